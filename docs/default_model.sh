#!/usr/bin/env bash
# Makes the model that comes with the package, in embedding/default/ (half an hour of one core):
#
#   bash docs/default_model.sh WORK ENCODER DEV TRAIN [TRAIN ...]
#
# WORK: folder to make. ENCODER: intfloat/multilingual-e5-small, or a folder that holds it. DEV: rows to measure on.
# TRAIN: parallel text whose licenses allow it; the sources of the model that ships are in embedding/default/README.md.
set -euo pipefail
work=$1 encoder=$2 dev=$3
shift 3
sources=()
for source in "$@"; do sources+=(--train "$source"); done
export OMP_NUM_THREADS=1
tmde train default "${sources[@]}" --dev "$dev" -o "$work" --warm-start "$encoder"
python - "$work" "$(dirname "$0")/../embedding/default" <<'PYTHON'
"""The run's files without code; a mean of the weights before and after training, which knows more words than the last
alone (WiSE-FT, Wortsman et al. 2022); and the table in 8 bits: a normalized bag does not depend on the table's scale."""
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

source, target = map(Path, sys.argv[1:])
(target / "1_Pooling").mkdir(parents=True, exist_ok=True)
names = ["tokenizer_config.json", "modules.json", "1_Pooling/config.json", "config_sentence_transformers.json"]
for name in [*names, "sentence_bert_config.json"]:
    shutil.copyfile(source / name, target / name)
tokenizer = json.loads((source / "tokenizer.json").read_text())
(target / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")) + "\n")
config = json.loads((source / "config.json").read_text())
del config["auto_map"]
(target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
trained, start = (load_file(folder / "model.safetensors") for folder in (source, source / "warm_start"))
weights = {name: 0.85 * tensor + 0.15 * start[name] for name, tensor in trained.items()}
table = weights["embed_tokens.weight"]
table = (4 * table / table.std()).to(torch.float8_e4m3fn)  # below 2^-6, numbers of this type lose digits
weights = {"embed_tokens.weight": table, "token_weights": weights["token_weights"].half()}
save_file(weights, target / "model.safetensors", {"format": "pt"})
PYTHON
