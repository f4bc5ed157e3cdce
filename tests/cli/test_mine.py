"""`tmde mine`: files, vectors and gold lists in, TSV and JSONL out, clear errors, nothing left behind."""

import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.cli import mine as mine_module
from modeling_tmde.cli.main import app
from modeling_tmde.data import load_parallel
from modeling_tmde.documents.margins import SCORINGS
from modeling_tmde.documents.mining import RETRIEVALS, mine_bitext
from modeling_tmde.documents.neighbours import SEARCHES
from modeling_tmde.embedding import DocumentEmbedder
from tests.conftest import LANGUAGES, WORDS

GERMAN = [
    "haus hund katze", "", "baum fluss stadt licht", "nacht brot", "haus  hund katze", "wasser stadt nacht haus",
    "haus hund katze katze",
]  # fmt: skip


def turned(text):
    """To a bag, the same document: its words, but for the first, which has no space before it, in reversed order."""
    first, *others = text.split() or [""]
    return " ".join([first, *others[::-1]])


TURNED = [turned(text) for text in GERMAN]
ENGLISH = ["licht licht licht brot", TURNED[5], TURNED[2], "hund hund brot", TURNED[0]]
RIGHT = [("1", "5"), ("3", "3"), ("6", "2")]  # line numbers


def run(*arguments, **kwargs):
    return CliRunner().invoke(app, ["mine", *(str(argument) for argument in arguments)], **kwargs)


@pytest.fixture(scope="session")
def bag(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("mining") / "bag"
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=400, d_model=24)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def inputs(tmp_path):
    for name, texts in (("a", GERMAN), ("b", ENGLISH)):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")
        rows = [{"id": f"{name}{number}", "body": text} for number, text in enumerate(texts, 1)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return tmp_path


def rows_of(path):
    header, *rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    assert header == ["score", "id_a", "id_b", "text_a", "text_b"]
    return rows


def test_tsv(bag, inputs):
    a, b, out = inputs / "a.txt", inputs / "b.txt", inputs / "out.tsv"
    result = run(a, b, "-o", out, "-m", bag, "--scoring", "cosine", "--threshold", 0.999, "--max-length", 4)
    assert result.exit_code == 0 and result.stdout == "", result.output
    result = run(a, b, "-o", out, "-m", bag, "--scoring", "cosine", "--threshold", 0.999, "--overwrite")
    assert result.exit_code == 0 and result.stdout == "", result.output
    rows = rows_of(out)
    assert sorted((id_a, id_b) for _, id_a, id_b, *_ in rows) == RIGHT
    assert [float(score) for score, *_ in rows] == pytest.approx([1, 1, 1])
    assert {text_a: text_b for *_, text_a, text_b in rows} == {GERMAN[row]: TURNED[row] for row in (0, 2, 5)}
    lines = result.stderr.splitlines()
    assert lines[0] == f"{a}: 7 sentences (1 repeated, 1 empty: left out)"
    assert lines[1] == f"{b}: 5 sentences (0 repeated, 0 empty: left out)"
    assert lines[2].startswith(f"{a}: embedded 5 sentences (") and "tokens, 0 truncated) in" in lines[2]
    assert lines[4:6] == [f"{a} -> {b}, 5 x 5 x 24: exact search", f"{b} -> {a}, 5 x 5 x 24: exact search"]
    assert lines[6].startswith("3 pairs (cosine, max, scores 1.0000 to 1.0000) in ") and lines[6].endswith(f"-> {out}")
    assert len(lines) == 7


def test_truncated_texts_are_counted(bag, inputs):
    result = run(inputs / "a.txt", inputs / "b.txt", "-o", inputs / "out.tsv", "-m", bag, "--max-length", 3)
    embedder = DocumentEmbedder.from_pretrained(bag, max_length=3, device="cpu")
    for name, texts in (("a.txt", [GERMAN[row] for row in (0, 2, 3, 5, 6)]), ("b.txt", ENGLISH)):
        embedder.encode(texts)
        assert embedder.last_report.truncated > 0
        report = f"{inputs / name}: embedded {len(texts)} sentences ({embedder.last_report.tokens} tokens, "
        assert f"{report}{embedder.last_report.truncated} truncated)" in result.stderr


def test_options_reach_the_mining(bag, inputs):
    """Compared with the library, on which each of the options has an effect."""
    embedder = DocumentEmbedder.from_pretrained(bag, device="cpu")
    first, second = embedder.encode(GERMAN), embedder.encode(ENGLISH)
    seen = []
    for number, options in enumerate(
        [{}, {"scoring": "distance", "k": 2}, {"retrieval": "forward"}, {"retrieval": "backward"}, {"search": "hnsw"},
         {"retrieval": "intersection", "k": 1}, {"max_pairs": 2}, {"threshold": 3.5}]
    ):  # fmt: skip
        given = [str(part) for key, value in options.items() for part in (f"--{key.replace('_', '-')}", value)]
        given = ["-k" if part == "--k" else part for part in given]
        out = inputs / f"{number}.tsv"
        result = run(inputs / "a.txt", inputs / "b.txt", "-o", out, "-m", bag, *given)
        assert result.exit_code == 0, result.output
        mined = mine_bitext(first, second, GERMAN, ENGLISH, **options)
        rows = rows_of(out)
        seen.append([row[:3] for row in rows] if "search" not in options else "HNSW" in result.stderr)
        assert [(int(i) - 1, int(j) - 1) for _, i, j, *_ in rows] == list(zip(mined.first, mined.second, strict=True))
        assert [float(row[0]) for row in rows] == pytest.approx(mined.scores.tolist(), abs=1e-5)
    assert seen[4] is True
    assert len({json.dumps(each) for each in seen}) == len(seen), "an option made no difference"


def test_jsonl_is_a_corpus(bag, inputs):
    out = inputs / "out.jsonl"
    result = run(
        inputs / "a.jsonl", inputs / "b.jsonl", "-o", out, "-m", bag, "--field", "body", "--scoring", "cosine",
        "--threshold", 0.999, "--language-a", "de", "--language-b", "en",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert all(list(row) == ["translation", "score", "ids"] for row in rows)
    assert {(row["ids"]["de"], row["ids"]["en"]) for row in rows} == {(f"a{i}", f"b{j}") for i, j in RIGHT}
    corpus = load_parallel(str(out))
    assert corpus["translation"] == [row["translation"] for row in rows]
    assert {row["de"]: row["en"] for row in corpus["translation"]} == {GERMAN[row]: TURNED[row] for row in (0, 2, 5)}


def test_jsonl_without_languages(bag, inputs):
    out = inputs / "out.jsonl"
    assert run(inputs / "a.txt", inputs / "b.txt", "-o", out, "-m", bag, "--max-pairs", 1).exit_code == 0
    row = json.loads(out.read_text())
    assert list(row) == ["score", "id_a", "id_b", "text_a", "text_b"]
    assert GERMAN[int(row["id_a"]) - 1] == row["text_a"] and ENGLISH[int(row["id_b"]) - 1] == row["text_b"]


def test_vectors_instead_of_a_model(bag, inputs):
    a, b = inputs / "a.txt", inputs / "b.txt"
    assert run(a, b, "-o", inputs / "model.tsv", "-m", bag).exit_code == 0
    for name, texts in (("a", GERMAN), ("b", ENGLISH)):
        np.save(inputs / f"{name}.npy", DocumentEmbedder.from_pretrained(bag, device="cpu").encode(texts))
    vectors = ["--vectors-a", inputs / "a.npy", "--vectors-b", inputs / "b.npy"]
    for name, options in (("both", vectors), ("one", [*vectors[:2], "-m", bag])):
        result = run(a, b, "-o", inputs / f"{name}.tsv", *options)
        assert result.exit_code == 0, result.output
        assert rows_of(inputs / f"{name}.tsv") == rows_of(inputs / "model.tsv")
        assert ("embedded" in result.stderr) == (name == "one")


def test_gold_lists(inputs):
    """Train and test halves with known cosines; the best threshold of the first is applied to the second."""
    a, b = (inputs / f"{letter}.npy" for letter in "ab")
    angles = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    units = np.eye(5)
    np.save(a, np.hstack([units, np.zeros((5, 5))]))  # cosine of pair i: cos(angle i); of all others 0
    np.save(b, np.hstack([units * np.cos(angles), units * np.sin(angles)]))
    (inputs / "x.txt").write_text("\n".join("abcde"))
    (inputs / "gold").write_text("1\t1\n3\t3\n2\t5\n")
    arguments = [inputs / "x.txt", inputs / "x.txt", "-o", inputs / "out.tsv", "--vectors-a", a, "--vectors-b", b]
    arguments += ["--scoring", "cosine", "--gold", inputs / "gold", "--overwrite"]
    result = run(*arguments, "--max-pairs", 4)
    assert "2 of 3 right pairs among 4: precision 0.5000, recall 0.6667, F1 0.5714\n" in result.stderr
    result = run(*arguments, "--optimize-threshold")
    assert result.exit_code == 0, result.output
    # F1 of the best 1 to 5: 2/4, 2/5, 4/6, 4/7, 4/8
    threshold = float(result.stderr.split("--threshold ")[1].split()[0])
    assert threshold == pytest.approx((np.cos(0.3) + np.cos(0.4)) / 2, abs=1e-5)
    assert "has the highest F1 on" in result.stderr and "precision 0.6667, recall 0.6667, F1 0.6667; " in result.stderr
    assert len(rows_of(inputs / "out.tsv")) == 3
    (inputs / "gold").write_text("4\t4\n1\t1\n")
    result = run(*arguments, "--threshold", threshold)
    assert "1 of 2 right pairs among 3: precision 0.3333, recall 0.5000, F1 0.4000\n" in result.stderr


def test_gold_pairs_of_repeated_sentences(bag, inputs):
    """Line 5 of A repeats line 1, which alone takes part."""
    (inputs / "gold").write_text("5\t5\n3\t3\n")
    options = ["--scoring", "cosine", "--threshold", 0.999, "--gold", inputs / "gold"]
    result = run(inputs / "a.txt", inputs / "b.txt", "-o", inputs / "out.tsv", "-m", bag, *options)
    assert "2 of 2 right pairs among 3" in result.stderr


def test_identical_pairs(bag, inputs):
    (inputs / "b.txt").write_text("\n".join([*ENGLISH, GERMAN[3]]))
    arguments = [inputs / "a.txt", inputs / "b.txt", "-m", bag, "--scoring", "cosine", "--threshold", 0.999]
    for name, options in (("all", []), ("different", ["--drop-identical"])):
        assert run(*arguments, "-o", inputs / f"{name}.tsv", *options).exit_code == 0
    assert {tuple(row[1:3]) for row in rows_of(inputs / "all.tsv")} == {*RIGHT, ("4", "6")}
    assert {tuple(row[1:3]) for row in rows_of(inputs / "different.tsv")} == set(RIGHT)


def test_fields_hold_no_tabs_and_line_ends(inputs):
    texts = ["a\tb\u2028c\r\nd", "e"]
    for name in "ab":
        rows = [{"id": f"{name}\t{number}", "text": text} for number, text in enumerate(texts)]
        (inputs / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        np.save(inputs / f"{name}.npy", np.eye(2))
    vectors = ["--vectors-a", inputs / "a.npy", "--vectors-b", inputs / "b.npy"]
    for suffix in ("tsv", "jsonl"):
        assert run(inputs / "a.jsonl", inputs / "b.jsonl", "-o", inputs / f"out.{suffix}", *vectors).exit_code == 0
    assert rows_of(inputs / "out.tsv")[0][1:] == ["a 0", "b 0", "a b c d", "a b c d"]
    assert json.loads((inputs / "out.jsonl").read_text().split("\n")[0])["text_a"] == texts[0]


def test_models_with_an_encoder_for_each_language(tokenizer, inputs, monkeypatch):
    told = []

    class Told(DocumentEmbedder):
        needs_language = True

        def encode(self, texts, language):
            told.append((len(texts), language))
            return super().encode(texts)

    embedder = Told(mine_model(), tokenizer)
    embedder.model.config.languages = list(LANGUAGES)
    monkeypatch.setattr(mine_module, "open_embedder", lambda model, **loading: embedder)
    arguments = [inputs / "a.txt", inputs / "b.txt", "-o", inputs / "out.tsv", "-m", "model"]
    assert run(*arguments, "--language-a", "de", "--language-b", "en").exit_code == 0
    assert told == [(5, "de"), (5, "en")]
    result = run(*arguments, "--overwrite")
    assert "Error: --language-a: found None, expected one of de, en, es, fr, it: the model has" in result.stderr
    result = run(*arguments, "--overwrite", "--language-a", "de", "--language-b", "pt")
    assert "Error: --language-b: found 'pt', expected one of de, en, es, fr, it" in result.stderr


def mine_model():
    return BagModel(BagConfig(vocab_size=400, d_model=8))


def test_a_failure_leaves_the_old_file(bag, inputs, monkeypatch):
    out = inputs / "out.tsv"
    out.write_text("old")
    before = sorted(path.name for path in inputs.iterdir())
    arguments = [inputs / "a.txt", inputs / "b.txt", "-o", out, "-m", bag]
    result = run(*arguments)
    assert result.exit_code == 1 and "out.tsv exists; give --overwrite" in result.stderr

    def broken(pairs, a, b):
        yield "score"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mine_module, "_tsv", broken)
    result = run(*arguments, "--overwrite")
    assert result.exit_code == 1 and "Error: --output" in result.stderr and "No space left" in result.stderr
    assert out.read_text() == "old" and sorted(path.name for path in inputs.iterdir()) == before


def test_lines_of_an_id_a_tab_and_a_text(bag, inputs, monkeypatch):
    """As BUCC's: with --format tsv their ids are known to a gold list, and without it the error says so."""
    monkeypatch.chdir(inputs)
    for name, texts in (("de", GERMAN), ("en", ENGLISH)):
        lines = [f"{name}-{number}\t{text}\r\n" for number, text in enumerate(texts, 1)]
        (inputs / f"sample.{name}").write_text("".join(lines), newline="")
    (inputs / "gold").write_text("".join(f"de-{first}\ten-{second}\n" for first, second in RIGHT))
    arguments = ["sample.de", "sample.en", "-o", "out.tsv", "-m", bag, "--gold", "gold"]
    result = run(*arguments)
    assert result.exit_code == 1 and "--gold gold, line 1: found id 'de-1'" in result.stderr
    assert "are lines of an id, a tab and the text, give --format tsv" in result.stderr
    result = run(*arguments, "--format", "tsv", "--scoring", "cosine", "--threshold", 0.999)
    assert result.exit_code == 0 and "precision 1.0000, recall 1.0000" in result.stderr, result.output
    assert {tuple(row[1:4]) for row in rows_of(inputs / "out.tsv")} == {
        (f"de-{first}", f"en-{second}", GERMAN[int(first) - 1]) for first, second in RIGHT
    }
    result = run(*arguments, "--format", "tsv", "--field", "body", "--overwrite")
    assert "--field body: sample.de is read as tsv, whose columns are id and text" in result.stderr
    for line, found in (("x", "1 field(s), 'x'"), ("x\ty\tz", r"3 field(s), 'x\ty\tz'")):
        (inputs / "sample.en").write_text(f"en-1\ta\n\n{line}\n")
        result = run(*arguments, "--format", "tsv", "--overwrite")
        assert f"sample.en, line 3: found {found}, expected two: an id, a tab and the text" in result.stderr
    (inputs / "sample.en").write_text("en-1\ta\n\nen-1\tb\n")
    result = run(*arguments, "--format", "tsv", "--overwrite")
    assert "sample.en, line 3, 'id': found 'en-1', which line 1 has too" in result.stderr


def test_too_little_memory_is_one_error(bag, inputs, monkeypatch):
    def encode(self, texts, language):
        raise torch.OutOfMemoryError("Tried to allocate 2 GiB")

    monkeypatch.setattr(DocumentEmbedder, "encode", encode)
    result = run(inputs / "a.txt", inputs / "b.txt", "-o", inputs / "out.tsv", "-m", bag)
    assert result.exit_code == 1 and "Traceback" not in result.output and not (inputs / "out.tsv").exists()
    assert "Error: out of memory on " in result.stderr and "lower --max-length, or use the vectors" in result.stderr


def test_links_are_followed(bag, inputs):
    (inputs / "real.tsv").write_text("old")
    (inputs / "link.tsv").symlink_to(inputs / "real.tsv")
    result = run(inputs / "a.txt", inputs / "b.txt", "-o", inputs / "link.tsv", "-m", bag, "--overwrite")
    assert result.exit_code == 0 and (inputs / "link.tsv").is_symlink() and rows_of(inputs / "real.tsv")


def test_a_real_pipe(bag, inputs):
    """300 sentences on each side, from stdin and from a file."""
    rng = random.Random(0)
    rows = sorted({tuple(rng.choices(WORDS["de"], k=9)) for _ in range(300)})
    (inputs / "b.txt").write_text("\n".join(turned(" ".join(row)) for row in rows[::-1]))
    command = [sys.executable, "-m", "modeling_tmde.cli.main", "mine", "-", "b.txt", "-o", "out.tsv", "-m", str(bag)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    text = "\n".join(" ".join(row) for row in rows)
    process = subprocess.run(
        [*command, "--scoring", "cosine", "--threshold", "0.9999"], input=text, text=True, capture_output=True,
        cwd=inputs, env=environment, timeout=100,
    )  # fmt: skip
    assert process.returncode == 0 and process.stdout == "", process.stderr
    assert process.stderr.startswith(f"stdin: {len(rows)} sentences") and "Traceback" not in process.stderr
    found = rows_of(inputs / "out.tsv")
    assert len(found) == len(rows)
    assert all(sorted(row[3].split()) == sorted(row[4].split()) for row in found)


BAD = [
    (["a.txt", "b.txt", "-o", "out.csv", "-m", "x"], "--output out.csv: found suffix '.csv', expected .tsv or .jsonl"),
    (["a.txt", "b.txt", "-o", "no/out.tsv", "-m", "x"], "does not exist"),
    (["-", "-", "-o", "out.tsv", "-m", "x"], "A and B are both -"),
    (["a.txt", "b.txt", "-o", "out.tsv"], "--model is missing; give it, or the vectors of both sides"),
    (["a.txt", "b.txt", "-o", "out.tsv", "--vectors-b", "b.npy"], "--model is missing"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--vectors-a", "a.npy", "--vectors-b", "b.npy"], "leave it out"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--optimize-threshold"], "needs the right pairs; give --gold"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--gold", "gold", "--optimize-threshold", "--threshold", "1"],
     "leave out --threshold and --max-pairs"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--threshold", "nan"], "--threshold: found nan, expected a"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--language-a", "de"], "expected both or neither"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--language-a", "de", "--language-b", "de"], "expected another"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--language-a", "german", "--language-b", "en"],
     "--language-a: found 'german', expected a language code"),
    (["empty.txt", "b.txt", "-o", "out.tsv", "-m", "x"], "empty.txt: found no sentence that is not empty"),
    (["none.txt", "b.txt", "-o", "out.tsv", "-m", "x"], "none.txt: No such file"),
    (["a.jsonl", "b.jsonl", "-o", "out.tsv", "-m", "x"], "a.jsonl, line 1: field 'text' is missing"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--gold", "gold"], "--gold gold, line 2: found id '9', which no"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--gold", "nogold"], "--gold nogold: No such file"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--vectors-a", "b.npy"],
     "--vectors-a b.npy: found 5 rows, expected 7, one for each sentence of a.txt"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--vectors-a", "a.txt"], "--vectors-a a.txt: not a .npy file"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--vectors-a", "no.npy"], "--vectors-a no.npy: No such file"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "x", "--vectors-a", "whole.npy"],
     "whole.npy: found int64 of shape (7, 2), expected floats of shape (7, d)"),
    (["a.txt", "b.txt", "-o", "out.tsv", "--vectors-a", "nan.npy", "--vectors-b", "b.npy"],
     "--vectors-a nan.npy: found a vector that is not finite in row 3"),
    (["a.txt", "b.txt", "-o", "out.tsv", "--vectors-a", "a.npy", "--vectors-b", "narrow.npy"],
     "Found 5 dimensions in a.txt and 2 in b.txt"),
    (["a.txt", "b.txt", "-o", "out.tsv", "-m", "no/model/there"], "--model no/model/there: "),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_named(inputs, monkeypatch, arguments, message):
    monkeypatch.chdir(inputs)
    (inputs / "empty.txt").write_text("\n \n")
    (inputs / "gold").write_text("1\t1\n9\t1\n")
    vectors = np.eye(7, 5) + 0.1
    for name, rows in {"a": vectors, "b": vectors[:5], "nan": vectors.copy(), "narrow": vectors[:5, :2]}.items():
        if name == "nan":
            rows[3, 1] = np.nan
        np.save(f"{name}.npy", rows)
    np.save("whole.npy", np.ones((7, 2), np.int64))
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1 and message in errors[0], result.stderr
    assert not list(inputs.glob("out*")) and "Traceback" not in result.output


def test_choices_are_those_of_the_library():
    assert {each.value for each in mine_module.Scoring} == set(SCORINGS)
    assert {each.value for each in mine_module.Retrieval} == set(RETRIEVALS)
    assert {each.value for each in mine_module.Search} == set(SEARCHES)
