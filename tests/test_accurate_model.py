"""The packaged model `accurate` in every command; its prompt."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from modeling_tmde import BagConfig, BagModel
from tests.cli.conftest import ok, run, write_rows
from tests.conftest import save
from tmde import DocumentEmbedder
from tmde.cli import models
from tmde.data.sample import sample_documents
from tmde.embedding import ACCURATE_MODEL
from tmde.embedding.packaged_models import PACKAGED_FOLDERS

FOLDER = PACKAGED_FOLDERS[ACCURATE_MODEL]


@pytest.fixture(scope="module")
def embedder():
    return DocumentEmbedder.from_pretrained("accurate", device="cpu", dtype="float32")


def test_other_models_open_in_the_type_of_their_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    copied = shutil.copytree(FOLDER, tmp_path / "accurate")
    for model in ("default", copied):
        embedder = DocumentEmbedder.from_pretrained(model, device="cpu")
        assert embedder.arithmetic == "float32"


@pytest.mark.nightly
def test_index_and_search(tmp_path):
    pytest.importorskip("lancedb")
    rows = [{"id": f"{row['doc_id']}-{row['language']}", **row} for row in sample_documents(10)]
    documents = write_rows(tmp_path / "docs.jsonl", rows)
    out = tmp_path / "index"
    ok("index", documents, "-o", out, "-m", "accurate")
    settings = json.loads((out / "index.json").read_text())
    # The name, so that the index works wherever the package is installed.
    assert settings["embedding"]["model"] == "accurate"
    english = next(row for row in rows if row["language"] == "en")
    result = ok("search", english["text"], out, "-k", 1, "--filter", "language=de", "--json")
    assert json.loads(result.stdout)["id"] == f"{english['doc_id']}-de"
    assert "accurate" not in ok("search", english["text"], out, "-k", 1).stderr


def test_the_default_model_points_to_this_one_in_one_line(tmp_path, monkeypatch):
    pytest.importorskip("lancedb")
    monkeypatch.setattr(models, "is_terminal", lambda: True)
    rows = sample_documents(4)
    german = write_rows(tmp_path / "de.jsonl", [row for row in rows if row["language"] == "de"])
    english = write_rows(tmp_path / "en.jsonl", [row for row in rows if row["language"] == "en"])
    out = tmp_path / "index"
    ok("index", german, "-o", out)
    for command in (
        ["search", "a bank", out],
        ["align", german, english, "-o", tmp_path / "pairs.tsv"],
    ):
        lines = ok(*command).stderr.splitlines()
        assert len([line for line in lines if "-m accurate" in line]) == 1, command
    # Programs read this.
    assert "accurate" not in ok("search", "a bank", out, "--json").stderr
    # Words alone use no model.
    assert "accurate" not in ok("search", "a bank", out, "--mode", "words").stderr
    # Neither do scripts and logs need advice.
    monkeypatch.undo()
    assert "accurate" not in ok("align", german, english, "-o", tmp_path / "again.tsv").stderr


def test_a_path_is_a_folder_of_the_user(tmp_path, monkeypatch, tokenizer):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "accurate", BagModel(BagConfig(vocab_size=400, d_model=48)), tokenizer)
    assert DocumentEmbedder.from_pretrained(Path("accurate")).dimension == 48
    assert DocumentEmbedder.from_pretrained("./accurate").dimension == 48
    assert DocumentEmbedder.from_pretrained("accurate").dimension == 384


def test_an_index_of_the_other_packaged_model_is_refused(tmp_path):
    pytest.importorskip("lancedb")
    documents = write_rows(tmp_path / "docs.jsonl", [{"id": "a", "text": "Die Brücke ist zu."}])
    out = tmp_path / "index"
    ok("index", documents, "-o", out)
    for command in (["search", "bridge", out], ["index", documents, "-o", out]):
        result = run(*command, "-m", "accurate")
        assert result.exit_code == 1
        message = " ".join(result.output.split())
        assert "its model is default, but --model is accurate" in message
        assert "tmde index FILE -o NEW_FOLDER -m accurate" in message


def test_a_threshold_that_leaves_nothing_says_so(tmp_path, caplog):
    german = write_rows(tmp_path / "de.jsonl", [{"text": "Die Brücke ist zu."}, {"text": "Gut."}])
    english = write_rows(
        tmp_path / "en.jsonl", [{"text": "The bridge is shut."}, {"text": "Good."}]
    )
    for command in ("align", "mine"):
        out = tmp_path / f"{command}.tsv"
        caplog.clear()
        ok(command, german, english, "-o", out, "-m", "accurate", "--threshold", 9)
        assert "No pair reaches the threshold 9." in caplog.text


def test_its_own_prompt_given_again_is_reported(embedder, caplog):
    assert "prompt='query: '" in repr(embedder)
    DocumentEmbedder.from_pretrained("accurate", prompt="query: ", device="cpu")
    assert "already puts before" in caplog.text


@pytest.mark.parametrize("character", ["\u00ad", "\u200b", "\u2060", "\ufeff", "\u200e"])
def test_invisible_characters_do_not_change_a_vector(embedder, character):
    bridge, invisible = embedder.encode(["bridge", f"bri{character}dge{character}"])
    np.testing.assert_array_equal(invisible, bridge)
