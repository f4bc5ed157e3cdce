"""The script that makes the packaged model `default`: the mean of weights, and 8 bits."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from modeling_tmde import BagConfig, BagModel
from tests.conftest import save
from tests.docs.scripts import script_module
from tmde import DocumentEmbedder

TEXTS = ["Das Parlament hat das Gesetz abgelehnt.", "Parliament rejected the law."]


@pytest.fixture(scope="module")
def script():
    with script_module("default_model") as module:
        yield module


def bag(seed):
    torch.manual_seed(seed)
    model = BagModel(BagConfig(vocab_size=400, d_model=48, sublinear_counts=True))
    with torch.no_grad():
        model.token_weights.uniform_(0.5, 2.0)
        # Such small numbers have few digits in 8 bits, unless the table is scaled.
        model.embed_tokens.weight.normal_(std=1e-3)
    return model


def test_weights_are_the_mean_of_runs_and_start(script, tmp_path, tokenizer):
    start = tmp_path / "start"
    save(start, bag(0), tokenizer)
    runs = [tmp_path / "run-1", tmp_path / "run-2"]
    for seed, run in enumerate(runs, start=1):
        save(run, bag(seed), tokenizer)
        (run / "checkpoint-5").mkdir()

    script.write_mean(runs, start, tmp_path / "mean")

    assert not list(tmp_path.glob("mean/checkpoint-*"))
    before, first, second = (load_file(p / "model.safetensors") for p in (start, *runs))
    mean = load_file(tmp_path / "mean" / "model.safetensors")
    assert set(mean) == set(before)
    for name, weight in mean.items():
        trained = first[name].double() + second[name].double()
        expected = 0.425 * trained + 0.15 * before[name].double()
        torch.testing.assert_close(weight.double(), expected, atol=1e-6, rtol=0)


def test_8_bits_keep_the_vectors(script, tmp_path, tokenizer):
    save(tmp_path / "bag", bag(0), tokenizer)

    script.pack(tmp_path / "bag", tmp_path / "packed")

    stored = load_file(tmp_path / "packed" / "model.safetensors")
    assert stored["embed_tokens.weight"].dtype == torch.float8_e4m3fn
    assert not list((tmp_path / "packed").glob("*.py"))
    packed = DocumentEmbedder.from_pretrained(tmp_path / "packed", device="cpu").encode(TEXTS)
    exact = DocumentEmbedder.from_pretrained(tmp_path / "bag", device="cpu").encode(TEXTS)
    # A number of 3 bits after the first one is off by at most 1 in 16.
    assert ((packed * exact).sum(axis=1) > 0.997).all()
    assert not np.array_equal(packed, exact)
