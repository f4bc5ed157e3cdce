"""`tmde align-words`: files in, a bag that other commands open out; mistakes are named."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModel

from tests.cli.conftest import ok, run, write_rows
from tests.documents.test_word_vectors import planted
from tmde.documents.word_vectors import WordVectors, read_word_vectors, write_word_vectors
from tmde.embedding.document_embedder import DocumentEmbedder

LANGUAGES = ["--language-a", "de", "--language-b", "en"]


def write_dictionary(path, numbers):
    """Write the translations of some planted words, and in between one of an unknown word."""
    lines = [f"X{number}\ty{number}\nunknown y1\n" for number in numbers]
    path.write_text("".join(lines))


def test_from_files_to_a_bag_to_a_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    german, english, rotation, _ = planted(300, noise=0.01)
    write_word_vectors("a.vec", german)
    write_word_vectors("b.vec", english)
    write_dictionary(tmp_path / "train", range(200))
    write_dictionary(tmp_path / "test", range(200, 300))
    rows = []
    for row in range(60):
        rows.append({"translation": {"de": f"x{row} x{row + 9}", "en": f"y{row} y{row + 9}"}})
    write_rows(tmp_path / "rows.jsonl", rows)
    # Words with one number are much alike, words of neighboring numbers hardly.
    (tmp_path / "pairs").write_text("".join(f"X{n}\ty{n}\nx{n}\ty{n + 1}\n" for n in range(60)))
    (tmp_path / "scores").write_text("4\n0.5\n" * 60)
    options = ["--dictionary", "train", "--test", "test", "--sentences", "rows.jsonl"]
    options += ["--similarity", "pairs", "scores"]
    result = ok("align-words", "a.vec", "b.vec", "-o", "out", *LANGUAGES, *options)
    assert "words, CSLS, after" in result.stdout
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert results["similarity"]["pairs"] == 120
    assert results["similarity"]["left_out"] == 0
    assert results["similarity"]["before"] < 0.3
    assert results["similarity"]["after"] > 0.6
    assert f"{results['similarity']['after']:.3f} after, over 120 pairs" in result.stdout
    names = ["words, cosine", "words, CSLS", "words, ISF", "sentences, cosine", "sentences, CSLS"]
    assert list(results["after"]) == names
    for name in names:
        assert results["before"][name]["precision_at_1"] < 0.1
        assert results["after"][name]["precision_at_1"] > 0.95
    np.testing.assert_allclose(
        read_word_vectors("out/de.vec").vectors, german.vectors @ rotation.T, atol=0.05
    )
    translation = rows[0]["translation"]
    vectors = DocumentEmbedder.from_pretrained("out").encode(list(translation.values()))
    assert vectors[0] @ vectors[1] > 0.9
    options = [
        "--train",
        "rows.jsonl",
        "languages=[de, en]",
        "pivot_languages=[en]",
        "max_steps=1",
        "dev_rows=0",
    ]
    ok("train", "bag", *options, "--warm-start", "out", "-o", "run")
    assert json.loads((tmp_path / "run/run.json").read_text())["warm_start"]["tokens_left"] == 0


def test_multicca_of_three_languages_begins_a_training(tmp_path, monkeypatch):
    """German and Spanish are mapped to English, one after the other, as Yu et al. (2018) begin."""
    monkeypatch.chdir(tmp_path)
    german, english, _, _ = planted(300, noise=0.01)
    stretch = np.random.default_rng(6).normal(size=(20, 20))
    spanish = WordVectors([f"z{row}" for row in range(300)], english.vectors @ stretch.T)
    write_word_vectors("a.vec", german)
    write_word_vectors("b.vec", english)
    write_word_vectors("c.vec", spanish)
    write_dictionary(tmp_path / "de-en", range(300))
    (tmp_path / "es-en").write_text("".join(f"z{row} y{row}\n" for row in range(300)))
    cca = ["--fit", "cca", "--refinements", "0"]
    ok("align-words", "a.vec", "b.vec", "-o", "de", *LANGUAGES, "--dictionary", "de-en", *cca)
    languages = ["--language-a", "es", "--language-b", "en", "--also", "de=de/de.vec"]
    ok("align-words", "c.vec", "b.vec", "-o", "out", *languages, "--dictionary", "es-en", *cca)

    texts = ["x7 x30", "y7 y30", "z7 z30"]
    vectors = DocumentEmbedder.from_pretrained("out").encode(texts)
    assert (vectors @ vectors.T).min() > 0.9

    rows = []
    for row in range(0, 300, 2):
        translation = {}
        for code, letter in (("de", "x"), ("en", "y"), ("es", "z")):
            translation[code] = f"{letter}{row} {letter}{row + 1}"
        rows.append({"translation": translation})
    write_rows(tmp_path / "rows.jsonl", rows)
    options = "languages=[de,en,es] pivot_languages=[de,en,es] max_steps=1 learning_rate=0 "
    options += "dev_rows=0 micro_batch_tokens=300 batch_tokens=null dataloader_num_workers=0 "
    options += "model.d_model=16 embedding_dim=20 decoder_hidden_size=16 data.streaming=false"
    arguments = ["similarity_seq2seq", "--train", "rows.jsonl", *options.split()]
    ok("train", *arguments, "--warm-start", "out", "-o", "run")
    report = json.loads((tmp_path / "run/run.json").read_text())["warm_start"]
    assert report["tokens_left"] == 0
    bag = DocumentEmbedder.from_pretrained("out").model.embed_tokens.weight.detach()
    model = AutoModel.from_pretrained("run").embed_tokens.weight.detach()
    cosines = torch.nn.functional.cosine_similarity(bag[5:], model[5:])  # 5 special tokens.
    assert cosines.min() > 0.9999


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fit", "cca"], "--fit=cca: found no dictionary, expected one"),
        (["--dictionary", "d", "--start", "similarities"], "--start=similarities: found a dictio"),
        (["--epochs", "3"], "--epochs=3: expected --start=adversarial"),
        (["--restarts", "2"], "--restarts=2: expected --start=adversarial"),
        (["--also", "es"], "--also es: expected CODE=FILE, such as es=es.vec"),
        (["--also", "es=b", "--also", "es=c"], "--also es=c: found a second file for es"),
        (["--also", "en=b.vec"], "languages: found ['de', 'en', 'en'], expected different codes"),
        (
            ["--also", "es=c.vec", "--dictionary", "d"],
            "different dimensions, {'de': 2, 'en': 2, 'e",
        ),
    ],
)
def test_options_that_contradict_are_named(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.vec").write_text("1 2\nhaus 1 2\n")
    (tmp_path / "b.vec").write_text("1 2\nhouse 1 2\n")
    (tmp_path / "c.vec").write_text("1 3\ncasa 1 2 3\n")
    (tmp_path / "d").write_text("haus house\n")
    result = run("align-words", "a.vec", "b.vec", "-o", "out", *LANGUAGES, *options)
    assert result.exit_code == 1, result.output
    assert message in result.stderr, result.output
    assert not (tmp_path / "out").exists(), result.output


@pytest.mark.parametrize(
    ("vectors", "dictionary", "message"),
    [
        (
            "haus 0.1 0.2\n",
            "haus house",
            "a.vec, row 1: found 'haus 0.1 0.2', expected the numbers of words and of",
        ),
        (
            "2 2\nhaus 1 2\nhund 1\n",
            "haus house",
            "a.vec, row 3: found 'hund 1', expected a word and 2 finite",
        ),
        ("0 2\n", "haus house", "a.vec: found no word"),
        (
            "2 2\nhaus 1 2\n",
            "haus house",
            "a.vec: found 1 lines after the first, expected the 2 of its header",
        ),
        (
            "1 2\nhaus 1 2\n",
            "haus",
            "dictionary, row 1: found 'haus', expected a word and its translation",
        ),
        (
            "1 2\nhaus 1 2\n",
            "hund dog",
            "dictionary: found 1 pairs, none of words that both have vectors",
        ),
        ("1 3\nhaus 1 2 3\n", "haus house", "Found word vectors of 3 and 2 dimensions"),
    ],
)
def test_mistakes_are_named(tmp_path, monkeypatch, vectors, dictionary, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.vec").write_text(vectors)
    (tmp_path / "b.vec").write_text("1 2\nhouse 1 2\n")
    (tmp_path / "dictionary").write_text(dictionary)
    result = run(
        "align-words", "a.vec", "b.vec", "-o", "out", *LANGUAGES, "--dictionary", "dictionary"
    )
    assert result.exit_code == 1, result.output
    assert message in result.stderr, result.output
    assert not (tmp_path / "out").exists(), result.output
