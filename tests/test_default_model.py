"""The packaged model: opened without a name, by every command, and to begin a training with."""

import json

import numpy as np
import pytest

from modeling_tmde import BagConfig, BagModel
from tests.cli.conftest import ok, write_rows
from tests.conftest import LANGUAGES, save
from tmde import DocumentEmbedder
from tmde.cli import run_quickstart
from tmde.data.sample import sample_documents, sample_sentences
from tmde.embedding.loading import DEFAULT_FOLDER
from tmde.hub_cards import describe_origins
from tmde.training.recipe import load_recipe
from tmde.training.starts import begin_with, choose_start

TEXTS = ["Das Parlament hat das Gesetz abgelehnt.", "Parliament rejected the law.", ""]


@pytest.fixture(scope="module")
def embedder():
    return DocumentEmbedder.from_pretrained(device="cpu")


@pytest.fixture(scope="module")
def sentences():
    rows = sample_sentences(200, "test")["translation"]
    return {code: [row[code] for row in rows] for code in LANGUAGES}


def test_the_package_is_small_and_complete(embedder):
    files = [path for path in DEFAULT_FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 20e6
    assert not [path.name for path in files if path.suffix == ".py"]  # AutoModel knows the class
    assert (DEFAULT_FOLDER / "README.md").is_file() and tuple(
        embedder.model.config.languages
    ) == LANGUAGES


def test_no_name_and_the_name(embedder, tmp_path, monkeypatch, tokenizer):
    """A folder that is called `default` too is another model."""
    expected = embedder.encode(TEXTS)
    assert np.isfinite(expected).all() and np.linalg.norm(expected, axis=1) == pytest.approx(
        1, abs=1e-5
    )
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "default", BagModel(BagConfig(vocab_size=400, d_model=48)), tokenizer)
    assert (
        DocumentEmbedder.from_pretrained("default", device="cpu").encode(TEXTS) == expected
    ).all()
    assert DocumentEmbedder.from_pretrained("./default").dimension == 48


def test_translations_are_found(embedder, sentences):
    vectors = {code: embedder.encode(texts) for code, texts in sentences.items()}
    for code in set(LANGUAGES) - {"en"}:
        found = (vectors["en"] @ vectors[code].T).argmax(axis=1)
        assert (found == np.arange(200)).mean() > 0.8, code


def test_index_and_search(tmp_path, monkeypatch):
    pytest.importorskip("lancedb")
    rows = [{"id": f"{row['doc_id']}-{row['language']}", **row} for row in sample_documents(30)]
    out = tmp_path / "index"
    ok("index", write_rows(tmp_path / "docs.jsonl", rows), "-o", out)
    assert (
        json.loads((out / "index.json").read_text())["embedding"]["model"] == "default"
    )  # wherever it is installed
    assert "150 unchanged" in ok("index", tmp_path / "docs.jsonl", "-o", out).stderr
    monkeypatch.chdir(tmp_path)
    query, right = next((row["text"], row["doc_id"]) for row in rows if row["language"] == "en")
    for code in LANGUAGES:
        (hit,) = ok(
            "search", query, "index", "-k", 1, "--filter", f"language={code}", "--json"
        ).stdout.splitlines()
        assert json.loads(hit)["id"].startswith(right), code


def test_quickstart_begins_with_a_search(capsys):
    run_quickstart._search(sample_documents(20))
    assert [
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line[3:5] in LANGUAGES
    ] == [*LANGUAGES]


@pytest.mark.parametrize("name", ["bag", "small"])
def test_training_begins_with_it(embedder, name, tmp_path):
    """With its tokenizer and, unless a recipe can be wider, its width."""
    recipe = begin_with(load_recipe(name, ["data.train=sample"]), "default")
    start = choose_start(recipe, tmp_path)
    start.check()
    tokenizer = start.tokenizer(None)
    begun = start.apply(tokenizer)
    assert begun.report["tokens_copied"] == len(tokenizer)
    assert begun.report["checkpoint"] == "default"
    vectors = DocumentEmbedder(begun.model.eval(), tokenizer).encode(TEXTS[:2])
    expected = embedder.encode(TEXTS[:2])
    if name == "small":  # whose first output is the bag through a LayerNorm
        expected = (expected - expected.mean(1, keepdims=True)) / expected.std(1, keepdims=True)
    assert vectors == pytest.approx(expected, abs=1e-3)
    (origin,) = describe_origins(recipe.settings())["begun_with"]
    assert origin["name"] == "default" and not origin["hub"]
