"""The packaged model: opened without a name, by every command, and to begin a training with."""

import hashlib
import json
import re

import numpy as np
import pytest

from modeling_tmde import BagConfig, BagModel
from tests.cli.conftest import ok, write_rows
from tests.conftest import LANGUAGES, save
from tmde import DocumentEmbedder
from tmde.cli import run_quickstart
from tmde.data.sample import sample_documents, sample_sentences
from tmde.embedding.packaged_models import DEFAULT_MODEL, PACKAGED_FOLDERS
from tmde.hub_cards import describe_origins
from tmde.training.recipe import load_recipe
from tmde.training.starts import choose_start
from tmde.training.starts.checkpoint import begin_with

TEXTS = ["Das Parlament hat das Gesetz abgelehnt.", "Parliament rejected the law.", ""]
SEALS = {
    "model.safetensors": "9414832cdf8de3d42f2c19c39f6113c17582f6120d97a3f0bba215de0d909095",
    "tokenizer.json": "10eded19c835ed9e687e6b9820265bf24bbfd3630c6b73edfbd3d7e7cf35d8b2",
}


@pytest.fixture(scope="module")
def embedder():
    return DocumentEmbedder.from_pretrained(device="cpu")


@pytest.fixture(scope="module")
def sentences():
    rows = sample_sentences(200, "test")["translation"]
    return {code: [row[code] for row in rows] for code in LANGUAGES}


def test_the_files_are_those_that_were_measured():
    """Every figure of this model in the documentation is of these bytes."""
    for name, digest in SEALS.items():
        content = (PACKAGED_FOLDERS[DEFAULT_MODEL] / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, name


def test_the_package_is_small_and_complete(embedder):
    size = 0
    for path in PACKAGED_FOLDERS[DEFAULT_MODEL].rglob("*"):
        size += path.stat().st_size
    assert size < 20e6
    assert not list(PACKAGED_FOLDERS[DEFAULT_MODEL].rglob("*.py"))  # AutoModel knows the class.
    assert (PACKAGED_FOLDERS[DEFAULT_MODEL] / "README.md").is_file()
    assert tuple(embedder.model.config.languages) == LANGUAGES


def test_no_name_and_the_name(embedder, tmp_path, monkeypatch, tokenizer):
    """The name `default` is the packaged model, also where a folder of that name exists."""
    expected = embedder.encode(TEXTS)
    assert np.isfinite(expected).all()
    assert np.linalg.norm(expected, axis=1) == pytest.approx(1, abs=1e-5)
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "default", BagModel(BagConfig(vocab_size=400, d_model=48)), tokenizer)
    by_name = DocumentEmbedder.from_pretrained("default", device="cpu")
    np.testing.assert_array_equal(by_name.encode(TEXTS), expected)
    assert DocumentEmbedder.from_pretrained("./default").dimension == 48


def test_translations_are_found(embedder, sentences):
    english_vectors = embedder.encode(sentences["en"])
    for code in set(LANGUAGES) - {"en"}:
        nearest = (english_vectors @ embedder.encode(sentences[code]).T).argmax(axis=1)
        assert (nearest == np.arange(200)).mean() > 0.8, code


def test_index_and_search(tmp_path, monkeypatch):
    pytest.importorskip("lancedb")
    rows = [{"id": f"{row['doc_id']}-{row['language']}", **row} for row in sample_documents(30)]
    documents = write_rows(tmp_path / "docs.jsonl", rows)
    out = tmp_path / "index"
    ok("index", documents, "-o", out)
    settings = json.loads((out / "index.json").read_text())
    # The name, so that the index works wherever the package is installed.
    assert settings["embedding"]["model"] == "default"
    assert "150 unchanged" in ok("index", documents, "-o", out).stderr
    monkeypatch.chdir(tmp_path)
    english = next(row for row in rows if row["language"] == "en")
    for code in LANGUAGES:
        options = ["-k", 1, "--filter", f"language={code}", "--json"]
        (hit,) = ok("search", english["text"], "index", *options).stdout.splitlines()
        assert json.loads(hit)["id"].startswith(english["doc_id"]), code


def test_quickstart_begins_with_a_search(capsys):
    run_quickstart._search(sample_documents(20))
    codes = re.findall(r"^   ([a-z]{2}) ", capsys.readouterr().out, re.MULTILINE)
    assert tuple(codes) == LANGUAGES


@pytest.mark.parametrize("name", ["bag", "small"])
def test_training_begins_with_it(embedder, name, tmp_path):
    """A recipe begins with its tokenizer and, unless it can be wider, its width."""
    recipe = begin_with(load_recipe(name, ["data.train=sample"]), "default")
    start = choose_start(recipe, tmp_path)
    start.check()
    tokenizer = start.tokenizer(None)
    model, report = start.apply(tokenizer)
    assert report["tokens_copied"] == len(tokenizer)
    assert report["checkpoint"] == "default"
    vectors = DocumentEmbedder(model.eval(), tokenizer).encode(TEXTS[:2])
    expected = embedder.encode(TEXTS[:2])
    if name == "small":  # Its first output is the bag through a LayerNorm.
        expected = (expected - expected.mean(1, keepdims=True)) / expected.std(1, keepdims=True)
    assert vectors == pytest.approx(expected, abs=1e-3)
    (origin,) = describe_origins(recipe.settings())["begun_with"]
    assert origin["name"] == "default"
    assert not origin["hub"]


@pytest.mark.parametrize("character", ["\u00ad", "\u200b", "\u2060", "\ufeff", "\u200e"])
def test_invisible_characters_do_not_change_a_vector(embedder, character):
    bridge, invisible = embedder.encode(["bridge", f"bri{character}dge{character}"])
    np.testing.assert_array_equal(invisible, bridge)
