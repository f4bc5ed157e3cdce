"""`tmde mine`: files, vectors and gold lists in, TSV and JSONL out; clear errors."""

import numpy as np
import pytest

from tests.cli import conftest
from tests.cli.conftest import ok, read_rows, turned, write_rows
from tmde.data import load_parallel
from tmde.documents.mining import mine_bitext
from tmde.embedding.document_embedder import DocumentEmbedder

GERMAN = [
    "haus hund katze", "", "baum fluss stadt licht", "nacht brot", "haus  hund katze", "wasser "
    "stadt nacht haus",
    "haus hund katze katze",
]  # fmt: skip


TURNED = [turned(text) for text in GERMAN]
ENGLISH = ["licht licht licht brot", TURNED[5], TURNED[2], "hund hund brot", TURNED[0]]
RIGHT = [("1", "5"), ("3", "3"), ("6", "2")]  # line numbers


def run(*arguments):
    return conftest.run("mine", *arguments)


@pytest.fixture
def inputs(tmp_path):
    for name, texts in (("a", GERMAN), ("b", ENGLISH)):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")
        rows = [{"id": f"{name}{number}", "body": text} for number, text in enumerate(texts, 1)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    return tmp_path


def rows_of(path):
    header, *rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    assert header == ["score", "id_a", "id_b", "text_a", "text_b"]
    return rows


def test_tsv(bag, inputs):
    a, b, out = inputs / "a.txt", inputs / "b.txt", inputs / "out.tsv"
    out.write_text("old")
    result = ok(
        "mine",
        a,
        b,
        "-o",
        out,
        "-m",
        bag,
        "--scoring",
        "cosine",
        "--threshold",
        0.999,
        "--overwrite",
    )
    assert result.stdout == "", result.output
    rows = rows_of(out)
    assert sorted((id_a, id_b) for _, id_a, id_b, *_ in rows) == RIGHT
    assert [float(score) for score, *_ in rows] == pytest.approx([1, 1, 1])
    assert {text_a: text_b for *_, text_a, text_b in rows} == {
        GERMAN[row]: TURNED[row] for row in (0, 2, 5)
    }
    assert "(2 empty or repeated: left out; 0 split; 0 truncated)" in result.stderr
    assert f"3 pairs (cosine, max, scores 1.0000 to 1.0000) -> {out}" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        {"scoring": "distance", "k": 2, "retrieval": "forward"},
        {"retrieval": "backward", "max_pairs": 2, "search": "hnsw"},
        {"retrieval": "intersection", "threshold": 3.5},
    ],
)
def test_options_reach_the_mining(bag, inputs, caplog, options):
    """Compared with the library, from vectors and from a model."""
    embedder = DocumentEmbedder.from_pretrained(bag, device="cpu")
    vectors = [embedder.encode(texts) for texts in (GERMAN, ENGLISH)]
    np.save(inputs / "a.npy", vectors[0])
    np.save(inputs / "b.npy", vectors[1])
    given = [
        part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    given = ["-k" if part == "--k" else part for part in given]
    mined = mine_bitext(*vectors, GERMAN, ENGLISH, **options)
    by_vectors = ["--vectors-a", inputs / "a.npy", "--vectors-b", inputs / "b.npy"]
    for more in (["-m", bag], by_vectors, [*by_vectors[:2], "-m", bag]):
        ok(
            "mine",
            inputs / "a.txt",
            inputs / "b.txt",
            "-o",
            inputs / "out.tsv",
            "--overwrite",
            *more,
            *given,
        )
        rows = rows_of(inputs / "out.tsv")
        assert [(int(i) - 1, int(j) - 1) for _, i, j, *_ in rows] == mined.rows()
        assert [float(row[0]) for row in rows] == pytest.approx(mined.scores.tolist(), abs=1e-5)
    assert ("HNSW" in caplog.text) == ("search" in options)


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
    assert {(row["ids"]["de"], row["ids"]["en"]) for row in rows} == {
        (f"a{i}", f"b{j}") for i, j in RIGHT
    }
    corpus = load_parallel(str(out))
    assert corpus["translation"] == [row["translation"] for row in rows]
    assert {row["de"]: row["en"] for row in corpus["translation"]} == {
        GERMAN[row]: TURNED[row] for row in (0, 2, 5)
    }


def test_gold_lists(inputs):
    """Pairs of known cosines: the best threshold, and the quality at it."""
    a, b = (inputs / f"{letter}.npy" for letter in "ab")
    angles = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    units = np.eye(5)
    np.save(
        a, np.hstack([units, np.zeros((5, 5))])
    )  # cosine of pair i: cos(angle i); of all others 0
    np.save(b, np.hstack([units * np.cos(angles), units * np.sin(angles)]))
    (inputs / "x.txt").write_text("\n".join("abcde"))
    (inputs / "gold").write_text("1\t1\n3\t3\n2\t5\n")
    arguments = [
        inputs / "x.txt",
        inputs / "x.txt",
        "-o",
        inputs / "out.tsv",
        "--vectors-a",
        a,
        "--vectors-b",
        b,
    ]
    arguments += ["--scoring", "cosine", "--gold", inputs / "gold", "--overwrite"]
    result = ok("mine", *arguments, "--optimize-threshold")
    # F1 of the best 1 to 5: 2/4, 2/5, 4/6, 4/7, 4/8
    threshold = float(result.stderr.split("--threshold ")[1].split()[0])
    assert threshold == pytest.approx((np.cos(0.3) + np.cos(0.4)) / 2, abs=1e-5)
    assert "has the highest F1 on" in result.stderr
    assert "precision 0.6667, recall 0.6667, F1 0.6667\n" in result.stderr
    assert len(rows_of(inputs / "out.tsv")) == 3


def test_fields_hold_no_tabs_and_line_ends(inputs):
    texts = ["a\tb\u2028c\r\nd", "e"]
    for name in "ab":
        rows = [{"id": f"{name}\t{number}", "text": text} for number, text in enumerate(texts)]
        write_rows(inputs / f"{name}.jsonl", rows)
        np.save(inputs / f"{name}.npy", np.eye(2))
    vectors = ["--vectors-a", inputs / "a.npy", "--vectors-b", inputs / "b.npy"]
    for suffix in ("tsv", "jsonl"):
        ok("mine", inputs / "a.jsonl", inputs / "b.jsonl", "-o", inputs / f"out.{suffix}", *vectors)
    assert rows_of(inputs / "out.tsv")[0][1:] == ["a 0", "b 0", "a b c d", "a b c d"]
    assert read_rows(inputs / "out.jsonl")[0]["text_a"] == texts[0]


BAD = [
    (["-", "-", "-o", "out.tsv", "-m", "x"], "A and B are both -"),
    (["a.txt", "b.txt", "-o", "out.tsv", "--vectors-b", "b.npy"], "or one of them and its --model"),
    (
        ["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--optimize-threshold"],
        "--optimize-threshold needs --gold",
    ),
    (
        ["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--language-a", "de"],
        "expected both or neither",
    ),
    (
        ["empty.txt", "b.txt", "-o", "out.tsv", "-m", "x"],
        "empty.txt: found no document that is not empty",
    ),
    (
        ["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--vectors-a", "b.npy"],
        "b.npy: found shape (5, 5)",
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
    result = run(*arguments)
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert result.exit_code == 1, result.output
    assert len(errors) == 1, result.output
    assert message in errors[0], result.output
    assert not list(inputs.glob("out*"))
