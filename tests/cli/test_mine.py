"""`tmde mine`: files, vectors and gold lists in, TSV and JSONL out; clear errors."""

import numpy as np
import pytest
import torch

from tests.cli import conftest
from tests.cli.conftest import (
    id_pairs,
    ok,
    option_words,
    read_rows,
    read_tsv,
    turned,
    write_rows,
)
from tmde.data import load_parallel
from tmde.documents.mining import mine_bitext
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.quantization import restored

GERMAN = [
    "haus hund katze",
    "",
    "baum fluss stadt licht",
    "nacht brot",
    "haus  hund katze",  # The first sentence, repeated.
    "wasser stadt nacht haus",
    "haus hund katze katze",
]
TURNED = [turned(text) for text in GERMAN]
ENGLISH = ["licht licht licht brot", TURNED[5], TURNED[2], "hund hund brot", TURNED[0]]
RIGHT = [("1", "5"), ("3", "3"), ("6", "2")]  # numbers of lines, from 1
TRANSLATIONS = {GERMAN[row]: TURNED[row] for row in (0, 2, 5)}


def run(*arguments):
    return conftest.run("mine", *arguments)


@pytest.fixture
def inputs(tmp_path):
    """Both files, as text and as JSONL."""
    for name, texts in (("a", GERMAN), ("b", ENGLISH)):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")
        rows = [{"id": f"{name}{number}", "body": text} for number, text in enumerate(texts, 1)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    return tmp_path


@pytest.fixture
def mined(bag, inputs):
    """The result of a run that finds the right pairs, and its output."""
    out = inputs / "out.tsv"
    out.write_text("old")
    options = ["--scoring", "cosine", "--threshold", 0.999, "--overwrite"]
    result = ok("mine", inputs / "a.txt", inputs / "b.txt", "-o", out, "-m", bag, *options)
    return result, out


def test_tsv(mined):
    _, out = mined
    pairs = read_tsv(out)
    assert list(pairs) == ["score", "id_a", "id_b", "text_a", "text_b"]
    assert sorted(id_pairs(pairs)) == RIGHT
    assert pairs["score"].astype(float).tolist() == pytest.approx([1, 1, 1])
    assert dict(zip(pairs["text_a"], pairs["text_b"], strict=True)) == TRANSLATIONS


def test_the_report(mined):
    result, out = mined
    assert result.stdout == ""
    assert "(2 empty or repeated: left out; 0 split; 0 truncated)" in result.stderr
    assert f"3 pairs (cosine, max, scores 1.0000 to 1.0000) -> {out}" in result.stderr


@pytest.fixture
def vectors(bag, inputs):
    """The vectors of both files, which are in `a.npy` and `b.npy`, too."""
    embedder = DocumentEmbedder.from_pretrained(bag, device="cpu")
    vectors = embedder.encode(GERMAN), embedder.encode(ENGLISH)
    np.save(inputs / "a.npy", vectors[0])
    np.save(inputs / "b.npy", vectors[1])
    return vectors


@pytest.mark.parametrize(
    "options",
    [
        {"scoring": "distance", "k": 2, "retrieval": "forward"},
        {"retrieval": "backward", "max_pairs": 2, "search": "hnsw"},
        {"retrieval": "intersection", "threshold": 3.5},
    ],
)
@pytest.mark.parametrize(
    "sources", ["-m BAG", "--vectors-a A --vectors-b B", "--vectors-a A -m BAG"]
)
def test_options_reach_the_mining(bag, inputs, vectors, caplog, options, sources):
    """The pairs are those of the library."""
    expected = mine_bitext(*vectors, GERMAN, ENGLISH, **options)
    words = option_words(options)
    files = {"BAG": bag, "A": inputs / "a.npy", "B": inputs / "b.npy"}
    words += [files.get(word, word) for word in sources.split()]
    ok("mine", inputs / "a.txt", inputs / "b.txt", "-o", inputs / "out.tsv", *words)
    pairs = read_tsv(inputs / "out.tsv").astype({"score": float, "id_a": int, "id_b": int})
    pairs[["id_a", "id_b"]] -= 1  # Ids are the numbers of lines, from 1.
    assert id_pairs(pairs) == expected.rows()
    assert pairs["score"].tolist() == pytest.approx(expected.scores.tolist(), abs=1e-5)
    assert ("HNSW" in caplog.text) == ("search" in options)


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("sources", ["-m BAG", "--vectors-a A --vectors-b B"])
def test_small_vectors(bag, inputs, precision, sources):
    """Embedded or given, the pairs are those of the directions that small vectors stand for."""
    embedder = DocumentEmbedder.from_pretrained(bag, device="cpu")
    directions = []
    for name, texts in (("a", GERMAN), ("b", ENGLISH)):
        stored = embedder.encode(texts, precision=precision)
        np.save(inputs / f"{name}.npy", stored)
        directions.append(restored(torch.from_numpy(stored), precision).numpy())
    expected = mine_bitext(*directions, GERMAN, ENGLISH)
    files = {"BAG": bag, "A": inputs / "a.npy", "B": inputs / "b.npy"}
    words = [files.get(word, word) for word in sources.split()]
    words += ["--precision", precision]
    ok("mine", inputs / "a.txt", inputs / "b.txt", "-o", inputs / "out.tsv", *words)
    pairs = read_tsv(inputs / "out.tsv").astype({"score": float, "id_a": int, "id_b": int})
    pairs[["id_a", "id_b"]] -= 1
    assert id_pairs(pairs) == expected.rows()
    assert pairs["score"].tolist() == pytest.approx(expected.scores.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    "sources", ["-m BAG", "--vectors-a A --vectors-b B", "--vectors-a A -m BAG"]
)
def test_truncated_vectors(bag, inputs, vectors, sources):
    expected = mine_bitext(vectors[0][:, :5], vectors[1][:, :5], GERMAN, ENGLISH)
    files = {"BAG": bag, "A": inputs / "a.npy", "B": inputs / "b.npy"}
    words = [files.get(word, word) for word in sources.split()]
    words += ["--truncate-dim", 5]
    ok("mine", inputs / "a.txt", inputs / "b.txt", "-o", inputs / "out.tsv", *words)
    pairs = read_tsv(inputs / "out.tsv").astype({"score": float, "id_a": int, "id_b": int})
    pairs[["id_a", "id_b"]] -= 1
    assert id_pairs(pairs) == expected.rows()
    assert pairs["score"].tolist() == pytest.approx(expected.scores.tolist(), abs=1e-5)


def test_no_probabilities_of_signs(inputs, caplog):
    arguments = ["mine", inputs / "a.txt", inputs / "b.txt", "-o", inputs / "out.tsv"]
    ok(*arguments, "--precision", "ubinary")
    assert "No probabilities: they need whole vectors" in caplog.text
    assert "probability" not in read_tsv(inputs / "out.tsv")
    refused = run(*arguments[1:], "--overwrite", "--truncate-dim", 8, "--share", 0.5)
    assert refused.exit_code == 1
    assert (
        "Cannot compute probabilities: they need whole vectors: no --truncate-dim" in refused.stderr
    )


def test_no_vectors_are_left_behind(bag, inputs):
    before = set(inputs.iterdir())
    ok("mine", inputs / "a.txt", inputs / "b.txt", "-o", inputs / "out.tsv", "-m", bag)
    assert set(inputs.iterdir()) - before == {inputs / "out.tsv"}


def test_jsonl_is_a_corpus(bag, inputs):
    out = inputs / "out.jsonl"
    options = [
        *("--field", "body"),
        *("--scoring", "cosine"),
        *("--threshold", 0.999),
        *("--language-a", "de", "--language-b", "en"),
    ]
    ok("mine", inputs / "a.jsonl", inputs / "b.jsonl", "-o", out, "-m", bag, *options)
    rows = read_rows(out)
    assert all(list(row) == ["translation", "score", "ids"] for row in rows)
    ids = [row["ids"] for row in rows]
    for german_line, english_line in RIGHT:
        assert {"de": f"a{german_line}", "en": f"b{english_line}"} in ids
    assert len(ids) == len(RIGHT)
    corpus = load_parallel(str(out))
    assert {row["de"]: row["en"] for row in corpus["translation"]} == TRANSLATIONS
    memory = inputs / "out.tmx"
    ok("mine", inputs / "a.jsonl", inputs / "b.jsonl", "-o", memory, "-m", bag, *options)
    assert load_parallel(str(memory))["translation"][:] == corpus["translation"][:]
    assert f'<prop type="x-score">{rows[0]["score"]}</prop>' in memory.read_text()
    result = run(inputs / "a.txt", inputs / "b.txt", "-o", inputs / "x.tmx", "-m", bag)
    assert "a translation memory needs --language-a and --language-b" in result.stderr


def test_gold_lists(inputs):
    """Pairs of known cosines: the best threshold, and the quality at it."""
    angles = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    units = np.eye(5)
    # The cosine of pair i is the cosine of angle i; that of all others is 0.
    np.save(inputs / "a.npy", np.hstack([units, np.zeros((5, 5))]))
    np.save(inputs / "b.npy", np.hstack([units * np.cos(angles), units * np.sin(angles)]))
    texts = inputs / "x.txt"
    texts.write_text("\n".join("abcde"))
    (inputs / "gold").write_text("1\t1\n3\t3\n2\t5\n")
    options = [
        *("--vectors-a", inputs / "a.npy"),
        *("--vectors-b", inputs / "b.npy"),
        *("--scoring", "cosine"),
        *("--gold", inputs / "gold"),
        "--optimize-threshold",
    ]
    message = ok("mine", texts, texts, "-o", inputs / "out.tsv", *options).stderr
    # F1 of the best 1 to 5 is 2/4, 2/5, 4/6, 4/7 and 4/8.
    threshold = float(message.split("threshold=")[1].split()[0])
    assert threshold == pytest.approx((np.cos(0.3) + np.cos(0.4)) / 2, abs=1e-5)
    assert "has the highest F1 on" in message
    assert "precision 0.6667, recall 0.6667, F1 0.6667\n" in message
    assert len(read_tsv(inputs / "out.tsv")) == 3


def test_fields_keep_tabs_and_line_ends(inputs):
    texts = ["a\tb\u2028c\r\nd", "e"]
    for name in "ab":
        rows = [{"id": f"{name}\t{number}", "text": text} for number, text in enumerate(texts)]
        write_rows(inputs / f"{name}.jsonl", rows)
        np.save(inputs / f"{name}.npy", np.eye(2))
    vectors = ["--vectors-a", inputs / "a.npy", "--vectors-b", inputs / "b.npy"]
    for suffix in ("tsv", "jsonl"):
        ok("mine", inputs / "a.jsonl", inputs / "b.jsonl", "-o", inputs / f"out.{suffix}", *vectors)
    first_row = read_tsv(inputs / "out.tsv").iloc[0]
    assert list(first_row[1:]) == ["a\t0", "b\t0", texts[0], texts[0]]
    assert read_rows(inputs / "out.jsonl")[0]["text_a"] == texts[0]


BAD = [
    (["-", "-", "-o", "out.tsv", "-m", "x"], "A and B are both -"),
    (
        ["a.txt", "b.txt", "-o", "out.tsv", "--vectors-b", "b.npy"],
        "or one of them with its model",
    ),
    (
        ["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--optimize-threshold"],
        "--optimize-threshold needs --gold=FILE",
    ),
    (
        ["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--language-a", "de"],
        "expected both or neither",
    ),
    (
        ["empty.txt", "b.txt", "-o", "out.tsv", "-m", "x"],
        "empty.txt: found no document with text",
    ),
    (
        ["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--vectors-a", "b.npy"],
        "b.npy: found shape (5, 5)",
    ),
    (
        ["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--vectors-b", "int8.npy"],
        "int8.npy: found int8 elements, expected float32; set the precision",
    ),
    (
        [
            *("a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--vectors-b", "int8.npy"),
            *("--precision", "ubinary"),
        ],
        "int8.npy: found int8 elements, expected uint8; set the precision",
    ),
    (
        ["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--vectors-a", "a.txt"],
        "a.txt: not a .npy file",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_named(inputs, monkeypatch, arguments, message):
    monkeypatch.chdir(inputs)
    (inputs / "empty.txt").write_text("\n \n")
    np.save("b.npy", np.eye(5))
    np.save("int8.npy", np.eye(5, dtype=np.int8))
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert f"\n{result.stderr}".count("\nError: ") == 1, result.output
    assert message in result.stderr.partition("Error: ")[2], result.output
    assert not list(inputs.glob("out*"))
