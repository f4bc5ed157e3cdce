"""The code that a card shows, run as it is printed."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.configuration_ntdv import NtdvConfig
from modeling_tmde.modeling_ntdv import NtdvForConditionalGeneration
from tests.conftest import save, tiny_model
from tests.hub_cards.recorded_runs import write
from tmde.hub_cards import model_card

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Runs every Python block of `blocks.json`. The blocks that need no package of ours come first and
# cannot import one. The vectors that a block leaves behind are written to `vectors.json`.
RUNNER = """
import json, sys
import numpy

OURS = ("tmde", "modeling_tmde")

def needs_package(block):
    family, code = block
    return "from tmde" in code

def rows_of(space):
    vectors = space.get("vectors", space.get("vector"))
    if vectors is None:
        vectors = [space["first"], space["second"]]
    rows = []
    for row in vectors:
        row = row.detach() if hasattr(row, "detach") else row
        rows.append(numpy.asarray(row).tolist())
    return rows

for name in OURS:
    sys.modules[name] = None
vectors_of_blocks = []
for family, code in sorted(json.load(open("blocks.json")), key=needs_package):
    if needs_package((family, code)):
        for name in OURS:
            if sys.modules.get(name, True) is None:
                del sys.modules[name]
    space = {}
    exec(code, space)
    vectors_of_blocks.append([family, rows_of(space)])
json.dump(vectors_of_blocks, open("vectors.json", "w"))
"""


def make_models() -> dict:
    """Return a model with a decoder, one without, and one with an encoder for each language.

    The names are those of their folders. A folder called `tmde` would hide the package.
    """
    torch.manual_seed(2)
    common = {"vocab_size": 400, "languages": ["de", "en"], "pivot_languages": ["en", "de"]}
    bag = BagModel(BagConfig(d_model=8, **common))
    ntdv_config = NtdvConfig(embedding_dim=8, d_model=8, attention_heads=2, **common)
    return {
        "first": tiny_model(languages=["de", "en"], pivot_languages=["en", "de"]),
        "bag": bag,
        "ntdv": NtdvForConditionalGeneration(ntdv_config),
    }


@pytest.fixture
def blocks(tokenizer, tmp_path) -> list[tuple[str, str]]:
    """Family and code of every block of the cards of three models."""
    blocks = []
    for family, model in make_models().items():
        card = model_card(save(tmp_path / family, model.eval(), tokenizer))
        for code in BLOCK.findall(str(card)):
            blocks.append((family, code))
    return blocks


def unit_rows(vectors) -> np.ndarray:
    return np.array(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_all_blocks_of_a_model_find_the_same_vectors(blocks, tmp_path):
    write(tmp_path / "blocks.json", blocks)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-c", RUNNER],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-3000:]

    vectors_of_blocks = json.loads((tmp_path / "vectors.json").read_text())
    families = [family for family, _ in vectors_of_blocks]
    assert families.count("first") == 4
    assert len(families) == 10
    expected: dict[str, np.ndarray] = {}
    for family, vectors in vectors_of_blocks:
        unit = unit_rows(vectors)
        first = expected.setdefault(family, unit)
        # The block on decoding embeds the first text only.
        np.testing.assert_allclose(unit, first[: len(unit)], atol=1e-5)
