"""`tmde index` and `tmde search`: documents in, hits out; interrupted, updated, and told what is wrong."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("lancedb")

from tests.cli.conftest import ok, run, save_bag, write_rows
from tests.conftest import make_rows
from tmde.cli import update_index as index_module
from tmde.documents.index import DocumentIndex
from tmde.embedding.document_embedder import DocumentEmbedder

ROWS = [
    {"id": "a", "text": "casa perro. Gato árbol.", "language": "es", "title": "Casa"},
    {"id": "b", "text": "haus hund. Katze baum.", "language": "de", "title": "Haus"},
    {"id": "c", "text": "fluss stadt. Licht nacht.", "language": "de", "title": "Fluss [rot]"},
    {"id": "d", "text": "pan agua " * 60, "language": "es", "title": None},
]


def hits(*arguments, **kwargs):
    return [
        json.loads(line)
        for line in ok("search", *arguments, "--json", **kwargs).stdout.splitlines()
    ]


@pytest.fixture
def docs(tmp_path):
    return write_rows(tmp_path / "docs.jsonl", ROWS)


@pytest.fixture
def made(docs, bag, tmp_path):
    ok("index", docs, "-o", tmp_path / "index", "-m", bag)
    return tmp_path / "index"


def test_index_and_search(docs, bag, tmp_path):
    out = tmp_path / "index"
    result = ok("index", docs, "-o", out, "-m", bag, "--max-length", 30)
    for text in ("4 added, 0 updated, 0 unchanged, 0 deleted", "4 documents, search: exact"):
        assert text in result.stderr
    assert "0 texts truncated" in result.stderr and result.stdout == ""  # sentence by sentence
    index, embedder = DocumentIndex.open(out), DocumentEmbedder.from_pretrained(bag, max_length=30)
    assert index.settings["long_documents"] == "sentences"
    found = hits("Katze baum", out, "-k", 3)
    scores = embedder.encode(["Katze baum"], normalize=True) @ index.vectors(list("abcd")).T
    assert found[0] == {
        "query": "Katze baum", "rank": 1, "score": pytest.approx(float(scores[0, 1]), abs=1e-5), "id": "b",
        "snippet": "Katze baum.", "metadata": {"language": "de", "title": "Haus"},
    }  # fmt: skip
    assert [hit["rank"] for hit in found] == [1, 2, 3]
    assert [hit["id"] for hit in found] == ["abcd"[row] for row in (-scores[0]).argsort()[:3]]
    table = ok("search", "licht nacht", out).stdout
    assert (
        "Fluss [rot]" in table
        and "Licht nacht." in table
        and "score" in table
        and "language" in table
    )


def test_a_second_run_does_what_is_new(docs, made, tmp_path):
    assert "0 added, 0 updated, 4 unchanged" in ok("index", docs, "-o", made).stderr
    rows = [
        ROWS[0],
        ROWS[1] | {"text": "nuit pain"},
        ROWS[2] | {"title": "Neu"},
        {"id": "e", "text": "light night"},
    ]
    changed = write_rows(tmp_path / "docs.jsonl", rows)
    assert "1 added, 2 updated, 1 unchanged, 0 deleted" in ok("index", changed, "-o", made).stderr
    index = DocumentIndex.open(made)
    assert sorted(index) == list("abcde") and index.documents(["c"])[0].metadata["title"] == "Neu"
    assert "1 deleted" in ok("index", changed, "-o", made, "--prune").stderr
    assert sorted(DocumentIndex.open(made)) == list("abce")


def test_delete(made, docs, tmp_path):
    (tmp_path / "ids").write_bytes("\ufeffa\r\nb\n".encode())
    result = ok("index", "-o", made, "--delete", "d", "--delete-file", tmp_path / "ids")
    assert "3 deleted" in result.stderr and list(DocumentIndex.open(made)) == ["c"]
    result = run("index", "-o", made, "--delete", "c", "--delete", "x")
    assert (
        result.exit_code == 1
        and "no document 'x'" in result.stderr
        and "nothing was deleted" in result.stderr
    )
    result = ok(
        "index", docs, "-o", made, "--delete", "x", "--delete", "c"
    )  # with DOCS it can be given again
    assert "1 added, 0 updated" not in result.stderr and "1 deleted" in result.stderr
    ok("index", "-o", made, *[f"--delete={id}" for id in "abcd"])
    assert hits("katze", made) == [] and "No documents" in ok("search", "katze", made).stdout


def test_filters_and_several_queries(made, tmp_path):
    filters = ["--filter", "language=de", "--filter", "language=es", "--filter", "title=Haus"]
    assert [hit["id"] for hit in hits("katze", made, *filters)] == ["b"]
    texts = [row["text"].strip() for row in ROWS]
    (tmp_path / "queries").write_bytes(f"\ufeff{texts[2]}\r\n\n {texts[3]} \n".encode())
    for found in (
        hits(made, "--queries", tmp_path / "queries", "-k", 1),
        hits(made, "--queries", "-", "-k", 1, input=(tmp_path / "queries").read_bytes()),
    ):
        assert [(hit["query"], hit["id"]) for hit in found] == [(texts[2], "c"), (texts[3], "d")]
    assert (
        "agua" in ok("search", made, "--queries", "-", input="agua\nhund\n").stdout
    )  # each above its table


def test_other_inputs(bag, tmp_path):
    """Text files, whose lines have no ids, do not replace each other's documents; parquet has columns."""
    out, table = tmp_path / "index", tmp_path / "in.parquet"
    one, two = tmp_path / "1" / "part.txt", tmp_path / "2" / "part.txt"
    for path, content in ((one, "haus\nhund\n\nbaum\n"), (two, "ville\n")):
        path.parent.mkdir()
        path.write_text(content)
    ok("index", "-", "-o", out, "-m", bag, "--language", "it", input="casa\ncane\n")
    result = ok("index", one, "-o", out, "--language", "de")
    assert "1 empty ones left out" in result.stderr
    assert "1 added, 0 updated" in ok("index", two, "-o", out).stderr
    assert (
        "0 added, 0 updated, 3 unchanged" in ok("index", one, "-o", out, "--language", "de").stderr
    )
    result = run("index", "-", "-o", out, input="acqua\n")
    assert (
        result.exit_code == 1
        and "have no ids, and would replace those of another stdin" in result.stderr
    )
    rows = {
        "key": [7, 8],
        "body": ["ville", "nuit"],
        "lang": ["fr", "es"],
        "price": [float("nan"), 2],
    }
    pq.write_table(pa.table(rows), table)
    ok(
        "index",
        table,
        "-o",
        out,
        "--field",
        "body",
        "--id-field",
        "key",
        "--language-field",
        "lang",
    )
    index = DocumentIndex.open(out)
    expected = ["7", "8", "stdin:1", "stdin:2", f"{one}:1", f"{one}:2", f"{one}:4", f"{two}:1"]
    assert sorted(index) == sorted(expected)
    tree, dog = index.documents([f"{one}:4", "stdin:2"])
    assert tree.text == "baum" and dog.metadata["language"] == "it"
    metadata = {"language": "fr", "lang": "fr", "price": None}
    assert (index.documents(["7"])[0].text, index.documents(["7"])[0].metadata) == (
        "ville",
        metadata,
    )
    assert {hit["id"] for hit in hits("nuit", out, "--filter", "language=es")} == {"8"}


def test_models_that_move(made, bag, tokenizer, docs, tmp_path):
    moved = save_bag(tmp_path / "moved", tokenizer)
    assert hits("hund", made, "-m", moved) == hits("hund", made)
    manifest = made / "index.json"
    manifest.write_text(manifest.read_text().replace(str(bag), str(tmp_path / "gone")))
    for command in (("search", "hund", made), ("index", docs, "-o", made)):
        result = run(*command)
        assert (
            result.exit_code == 1 and "gone" in result.stderr and "; see --model" in result.stderr
        )
        ok(*command, "-m", moved)


def test_interrupted_and_run_again(bag, tmp_path, monkeypatch):
    """Interrupted while it embeds the third batch; the same command goes on where it was."""
    rows = [
        {"id": str(number), "text": " ".join(row.values())}
        for number, row in enumerate(make_rows(300))
    ]
    docs, out = write_rows(tmp_path / "docs.jsonl", rows), tmp_path / "index"
    monkeypatch.setattr(index_module, "BATCH", 50)
    real, batches = DocumentEmbedder.encode, []

    def interrupted(self, texts, *args, **kwargs):
        batches.extend([texts] * (len(texts) == 50))
        if len(batches) == 3:
            raise KeyboardInterrupt
        return real(self, texts, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(DocumentEmbedder, "encode", interrupted)
        assert run("index", docs, "-o", out, "-m", bag).exit_code == 130
    assert sorted(DocumentIndex.open(out)) == sorted(row["id"] for row in rows[:100])
    assert "200 added, 0 updated, 100 unchanged" in ok("index", docs, "-o", out).stderr
    index = DocumentIndex.open(out)
    assert len(index) == 300 and all(
        index.documents([row["id"]])[0].text == row["text"] for row in rows[::37]
    )


def test_bad_arguments_to_index(made, bag, docs, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("text")
    twice = write_rows(tmp_path / "twice.jsonl", [ROWS[0], ROWS[1], ROWS[0]])
    new = tmp_path / "new"
    for arguments, message in [
        (("-o", new), "DOCS is missing (or --delete)"),
        (
            ("-o", made, "--delete", "a", "--prune"),
            "DOCS is missing; --prune removes what is not in it",
        ),
        (
            (docs, "-o", tmp_path / "full", "-m", bag),
            "holds an index or other files; expected a new name",
        ),
        ((docs, "-o", new, "-m", bag, "--id-field", "key"), "no column 'key'"),
        (
            (docs, "-o", made, "--language", "de", "--language-field", "language"),
            "exclude each other",
        ),
        ((twice, "-o", made), "twice.jsonl, row 3, field 'id': found 'a', which row 1 has too"),
    ]:
        result = run("index", *arguments)
        assert result.exit_code == 1 and message in result.stderr, (arguments, result.output)
        assert result.stderr.startswith("Error: ") and not new.exists()
    assert sorted(DocumentIndex.open(made)) == list("abcd")


def test_bad_arguments_to_search(made, tmp_path):
    (tmp_path / "bad").write_bytes(b"fine\n\xff")
    for arguments, message in [
        ((made,), "expected QUERY in quotes, and INDEX"),
        (("", made), "QUERY: found no text"),
        (("query", made, "--filter", "language"), "expected NAME=VALUE"),
        ((made, "--queries", tmp_path / "bad"), "bad, row 2: found the undecodable bytes"),
    ]:
        result = run("search", *arguments)
        assert result.exit_code == 1 and message in result.stderr, (arguments, result.output)
        assert result.stderr.startswith("Error: ")
    result = run("search", made, "--queries", "-", input="\n \n")
    assert result.exit_code == 1 and "found no text" in result.stderr
