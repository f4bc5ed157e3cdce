"""`push_to_hub` of every family of models: the repository opens where the package is not, with the same vectors."""

import json

import numpy as np
import pytest
import torch

from modeling_tmde import BagConfig, BagModel, DocumentEmbedder
from modeling_tmde.configuration_aligned import AlignedConfig
from modeling_tmde.configuration_encoder import TmdeEncoderConfig
from modeling_tmde.configuration_laser import LaserConfig
from modeling_tmde.configuration_ntdv import NtdvConfig
from modeling_tmde.modeling_aligned import AlignedModel
from modeling_tmde.modeling_encoder import TmdeEncoderModel
from modeling_tmde.modeling_laser import LaserForConditionalGeneration
from modeling_tmde.modeling_ntdv import NtdvForConditionalGeneration
from tests.conftest import tiny_model
from tests.hub.clients import run_client
from tests.hub.test_push_model import commits, files

pytestmark = pytest.mark.slow

COMMON = {"vocab_size": 400, "languages": ["de", "en", "fr"], "pivot_languages": ["en"]}
TEXTS = ["haus hund katze", "house dog", "maison"]
LANGUAGES = ["de", "en", "fr"]


def make_models() -> dict[str, torch.nn.Module]:
    torch.manual_seed(5)
    laser = LaserConfig(d_model=16, embedding_dim=8, encoder_layers=1, decoder_hidden_size=8, **COMMON)
    ntdv = NtdvConfig(embedding_dim=8, d_model=8, attention_heads=2, vector="concat", **COMMON)
    sizes = {"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 8}
    encoder = TmdeEncoderConfig(pooling="mean", max_position_embeddings=40, **sizes, **COMMON)
    aligned = AlignedConfig(encoder="bag", encoder_config={"d_model": 16}, source_language="en", **COMMON)
    return {
        "aligned": AlignedModel(aligned),
        "bag": BagModel(BagConfig(d_model=16, **COMMON)),
        "encoder": TmdeEncoderModel(encoder),
        "laser": LaserForConditionalGeneration(laser),
        "ntdv": NtdvForConditionalGeneration(ntdv),
        "tmde": tiny_model(bottleneck="pyramid"),
    }


PUSH = """
from pathlib import Path
from transformers import AutoModel, AutoModelForSeq2SeqLM
import modeling_tmde
for folder in sorted(Path(arguments[0]).iterdir()):
    whole = folder.name in ("laser", "ntdv", "tmde")
    model = (AutoModelForSeq2SeqLM if whole else AutoModel).from_pretrained(folder)
    model.push_to_hub(f"user/{folder.name}", tags=["tested"], private=folder.name == "bag")
"""

OPEN = """
import torch
from transformers import AutoModel, AutoTokenizer
names, languages, *texts = arguments
vectors = {}
for name in names.split():
    model = AutoModel.from_pretrained(f"user/{name}", trust_remote_code=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(f"user/{name}")
    told = {}
    if name in ("aligned", "ntdv"):
        told["language_ids"] = torch.tensor([model.config.languages.index(one) for one in languages.split()])
    with torch.no_grad():
        vectors[name] = model(**tokenizer(texts, return_tensors="pt", padding=True), **told).pooler_output.tolist()
report(vectors)
assert not any(name.partition(".")[0] == "modeling_tmde" for name in sys.modules)
"""


def test_every_family(hub, tokenizer, tmp_path):
    expected = {}
    for name, model in make_models().items():
        model.eval().save_pretrained(tmp_path / "models" / name)
        tokenizer.save_pretrained(tmp_path / "models" / name)
        embedder = DocumentEmbedder(model, tokenizer)
        expected[name] = embedder.encode(TEXTS, language=LANGUAGES)
    run_client(hub, tmp_path / "pusher", PUSH, tmp_path / "models")
    opened = run_client(hub, tmp_path / "opener", OPEN, " ".join(expected), " ".join(LANGUAGES), *TEXTS, package=False)
    for name, vectors in expected.items():
        assert np.abs(vectors).max() > 1e-3
        np.testing.assert_allclose(opened[name], vectors, rtol=0, atol=1e-5, err_msg=name)
        assert len(commits(hub, f"user/{name}")) == 2
        held = files(hub, f"user/{name}")
        assert {"model.safetensors", "tokenizer.json", "modules.json", "1_Pooling/config.json"} <= set(held)
        assert not any(path.endswith((".bin", ".pt")) for path in held)
        assert b"- tested" in held["README.md"] and f"user/{name}".encode() in held["README.md"]
        assert hub.store.find("models", f"user/{name}").private == (name == "bag")
        for module in json.loads(held["config.json"])["auto_map"].values():
            assert f"{module.partition('.')[0]}.py" in held
