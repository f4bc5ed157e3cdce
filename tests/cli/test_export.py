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


@pytest.mark.slow
def test_onnx_beside_the_weights_and_in_a_folder_of_its_own(tokenizer, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = tmp_path / "model"
    tiny_model().save_pretrained(model)
    tokenizer.save_pretrained(model)
    result = run("onnx", model)
    assert result.exit_code == 0 and "model.onnx" in result.output and "cosine of the vectors" in result.output
    assert run("onnx", model, "-o", tmp_path / "served", "--quantization", "int8").exit_code == 0
    assert {path.name for path in (tmp_path / "served").iterdir()} >= {"onnx", "config.json", "tokenizer.json"}
    assert (tmp_path / "served" / "onnx" / "model_int8.onnx").exists() and (model / "onnx" / "model.onnx").exists()
    result = run("onnx", model, "-o", tmp_path / "served")
    assert result.exit_code == 1 and "holds another model" in result.output


def test_static(tokenizer, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=400, d_model=8)).save_pretrained(tmp_path / "bag")
    tokenizer.save_pretrained(tmp_path / "bag")
    result = run("static", tmp_path / "bag", "-o", tmp_path / "static")
    assert result.exit_code == 0, result.output
    static = sentence_transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu")
    expected = DocumentEmbedder.from_pretrained(tmp_path / "bag", device="cpu").encode(["haus hund"])
    np.testing.assert_allclose(static.encode(["haus hund"]), expected, atol=1e-5)
    result = run("static", tmp_path / "bag", "-o", tmp_path / "static")
    assert result.exit_code == 1 and "exists already" in result.output


def test_a_push_leaves_out_a_graph_of_earlier_weights(tokenizer, tmp_path, caplog):
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=400, d_model=8)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"graph")
    assert "onnx/model.onnx" in push_model(tmp_path, "user/bag", dry_run=True).sizes
    saved = (tmp_path / "onnx" / "model.onnx").stat().st_mtime + 60
    os.utime(tmp_path / "model.safetensors", (saved, saved))
    assert "onnx/model.onnx" not in push_model(tmp_path, "user/bag", dry_run=True).sizes
    assert "older than the weights" in caplog.text
