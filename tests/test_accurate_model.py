"""The packaged model `accurate`: opened by name, by other libraries, and by every command."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from modeling_tmde import AdaptedModel, BagConfig, BagModel
from tests.cli.conftest import ok, run, write_rows
from tests.conftest import LANGUAGES, save
from tmde import DocumentEmbedder
from tmde.cli import models
from tmde.data.sample import sample_documents, sample_sentences
from tmde.embedding import ACCURATE_MODEL
from tmde.embedding.packaged_models import PACKAGED_FOLDERS, packaged_name

FOLDER = PACKAGED_FOLDERS[ACCURATE_MODEL]
TEXTS = ["Das Parlament hat das Gesetz abgelehnt.", "Parliament rejected the law.", "", "Ja!"]
SEALS = {
    "model.safetensors": "fa5aab72aa8ca417eb076b5ea0897c5357c35a3221228bc1dd81950dc9d00acc",
    "tokenizer.json": "1972e9ec75d6c07c30aa12067a6b301a1a1dbe5960902c734233c16463db8b95",
}


@pytest.fixture(scope="module")
def embedder():
    return DocumentEmbedder.from_pretrained("accurate", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def bfloat16_embedder():
    return DocumentEmbedder.from_pretrained("accurate", device="cpu", dtype="bfloat16")


def test_the_files_are_those_that_were_measured():
    """Every figure of this model in the documentation is of these bytes."""
    for name, digest in SEALS.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


def test_the_package_is_small_and_complete(embedder):
    size = 0
    for path in FOLDER.rglob("*"):
        size += path.stat().st_size
    assert size < 40e6
    assert not list(FOLDER.rglob("*.py"))  # AutoModel knows the class.
    assert (FOLDER / "README.md").is_file()
    assert isinstance(embedder.model, AdaptedModel)
    assert tuple(embedder.model.config.languages) == LANGUAGES
    assert embedder.max_length == 509  # The prompt takes three of 512.


def test_no_path_of_a_machine_is_in_it():
    for path in FOLDER.rglob("*.json"):
        assert "/tmp/" not in path.read_text()
        assert "/home/" not in path.read_text()


def test_a_packaged_folder_has_its_name(embedder):
    assert packaged_name(FOLDER) == "accurate"
    assert packaged_name(FOLDER.parent) is None
    assert "model='accurate'" in repr(embedder)


def test_a_vector_does_not_depend_on_the_batch(embedder):
    together = embedder.encode(TEXTS)
    assert np.isfinite(together).all()
    for row, text in enumerate(TEXTS):
        np.testing.assert_allclose(embedder.encode([text])[0], together[row], atol=1e-5)


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [
        ({"amx_bf16": True, "avx512_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": False, "avx512_f": True}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_it_opens_in_the_type_that_the_cpu_multiplies_fast(capabilities, dtype, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    embedder = DocumentEmbedder.from_pretrained("accurate", device="cpu")
    assert embedder.model.dtype == dtype
    assert f"torch.{embedder.arithmetic}" == str(dtype)
    assert f"dtype='{embedder.arithmetic}'" in repr(embedder)


def test_other_models_open_in_the_type_of_their_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    copied = shutil.copytree(FOLDER, tmp_path / "accurate")
    for model in ("default", copied):
        embedder = DocumentEmbedder.from_pretrained(model, device="cpu")
        assert embedder.arithmetic == "float32"


def test_bfloat16_vectors_are_nearly_those_of_float32(embedder, bfloat16_embedder):
    expected = embedder.encode(TEXTS)
    vectors = bfloat16_embedder.encode(TEXTS)
    alone = np.concatenate([bfloat16_embedder.encode([text]) for text in TEXTS])
    for rows in (vectors, alone):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
        assert (rows * expected).sum(1).min() > 0.999


def test_sentence_transformers_gives_the_same_vectors(embedder):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(FOLDER), device="cpu")
    np.testing.assert_allclose(model.encode(TEXTS), embedder.encode(TEXTS), atol=1e-5)


@pytest.mark.nightly
def test_translations_are_found(embedder):
    rows = sample_sentences(200, "test")["translation"]
    english_vectors = embedder.encode([row["en"] for row in rows], normalize=True)
    for code in set(LANGUAGES) - {"en"}:
        vectors = embedder.encode([row[code] for row in rows], normalize=True)
        nearest = (english_vectors @ vectors.T).argmax(axis=1)
        assert (nearest == np.arange(200)).mean() > 0.98, code


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


def test_vectors_have_length_1(embedder):
    lengths = np.linalg.norm(embedder.encode(TEXTS), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)


def test_every_weight_of_the_file_is_one_of_the_model():
    _, report = AutoModel.from_pretrained(FOLDER, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["missing_keys"]


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
