"""`tmde export`: folders that are not overwritten, and graphs that a push leaves out."""

import os

import pytest
import torch
from typer.testing import CliRunner

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.cli.main import app
from modeling_tmde.training.publishing import push_model


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.fixture
def bag(tokenizer, tmp_path):
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=400, d_model=8)).save_pretrained(tmp_path / "bag")
    tokenizer.save_pretrained(tmp_path / "bag")
    return tmp_path / "bag"


def test_static(bag, tmp_path):
    pytest.importorskip("sentence_transformers")
    assert run("static", bag, "-o", tmp_path / "static").exit_code == 0
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
