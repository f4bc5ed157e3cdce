"""`tmde export`: a static embedding, and graphs that a push leaves out."""

import os

import pytest

from modeling_tmde.training.publishing import push_model
from tests.cli.conftest import ok, save_bag


def test_static(bag, tmp_path):
    pytest.importorskip("sentence_transformers")
    ok("export", "static", bag, "-o", tmp_path / "static")
    assert (tmp_path / "static" / "modules.json").exists()


def test_a_push_leaves_out_a_graph_of_earlier_weights(tokenizer, tmp_path, caplog):
    bag = save_bag(tmp_path / "bag", tokenizer)
    (bag / "onnx").mkdir()
    (bag / "onnx" / "model.onnx").write_bytes(b"graph")
    assert "onnx/model.onnx" in push_model(bag, "user/bag", dry_run=True)[0]
    saved = (bag / "onnx" / "model.onnx").stat().st_mtime + 60
    os.utime(bag / "model.safetensors", (saved, saved))
    assert "onnx/model.onnx" not in push_model(bag, "user/bag", dry_run=True)[0]
    assert "older than the weights" in caplog.text
