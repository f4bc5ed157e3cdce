"""`tmde export`: what the commands write, and mistakes."""

import os

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from modeling_tmde import BagConfig, BagModel, DocumentEmbedder
from modeling_tmde.cli.main import app
from modeling_tmde.training.publishing import push_model
from tests.conftest import tiny_model


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.fixture
def bag(tokenizer, tmp_path):
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=400, d_model=8)).save_pretrained(tmp_path / "bag")
    tokenizer.save_pretrained(tmp_path / "bag")
    return tmp_path / "bag"


@pytest.mark.slow
def test_onnx_in_a_folder_of_its_own(tokenizer, bag, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    tiny_model().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    result = run("onnx", tmp_path / "model", "-o", tmp_path / "served")
    assert result.exit_code == 0 and "cosine of the vectors" in result.output
    assert (tmp_path / "served" / "onnx" / "model.onnx").exists() and (tmp_path / "served" / "config.json").exists()
    result = run("onnx", tmp_path / "model", "-o", bag)
    assert result.exit_code == 1 and "holds another model" in result.output


def test_static(bag, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    result = run("static", bag, "-o", tmp_path / "static")
    assert result.exit_code == 0, result.output
    static = sentence_transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu")
    expected = DocumentEmbedder.from_pretrained(bag, device="cpu").encode(["haus hund"])
    np.testing.assert_allclose(static.encode(["haus hund"]), expected, atol=1e-5)
    result = run("static", bag, "-o", tmp_path / "static")
    assert result.exit_code == 1 and "exists already" in result.output


def test_a_push_leaves_out_a_graph_of_earlier_weights(bag, caplog):
    (bag / "onnx").mkdir()
    (bag / "onnx" / "model.onnx").write_bytes(b"graph")
    assert "onnx/model.onnx" in push_model(bag, "user/bag", dry_run=True).sizes
    saved = (bag / "onnx" / "model.onnx").stat().st_mtime + 60
    os.utime(bag / "model.safetensors", (saved, saved))
    assert "onnx/model.onnx" not in push_model(bag, "user/bag", dry_run=True).sizes
    assert "older than the weights" in caplog.text
