"""`tmde demo` without a browser: what it reads, finds, draws and escapes."""

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("lancedb")
pytest.importorskip("gradio")
pytest.importorskip("plotly")

from tests.cli import conftest
from tests.cli.conftest import ok, write_rows
from tests.conftest import LANGUAGES
from tmde.cli import demo_page as page_module
from tmde.cli.demo_collection import NOTHING, draw_collection
from tmde.cli.demo_page import map_figure, search
from tmde.documents import DocumentIndex
from tmde.embedding.document_embedder import DocumentEmbedder

EVIL = '<script>x()</script><img src=x onerror="x()"> & ${x()}'

ROWS = [
    {
        "id": "a",
        "text": "casa perro. Gato árbol.",
        "language": "es",
        "title": "Casa",
        "label": "home",
    },
    {
        "id": "b",
        "text": "haus hund. Katze baum.",
        "language": "de",
        "title": "Haus",
        "label": "home",
    },
    {
        "id": "c",
        "text": "fluss stadt. Licht nacht.",
        "language": "de",
        "title": "Fluss",
        "label": "town",
    },
    {"id": "d", "text": "pan agua " * 60, "language": "es", "title": None, "label": None},
    {"id": "e", "text": "town light", "language": None, "title": None, "label": "town"},
    {"id": "f", "text": "  ", "language": None, "title": None, "label": "town"},
]


@pytest.fixture
def serve(monkeypatch):
    """Run the command without serving: its result, and the collection that the page would show."""
    shown = []

    class Page:
        def block_thread(self):
            pass

    def fake_page(collection):
        shown.append(collection)
        return Page()

    def run(*arguments):
        shown.clear()
        result = conftest.run("demo", *arguments, "--no-browser")
        return result, shown[0] if shown else None

    monkeypatch.setattr(page_module, "demo_page", fake_page)
    monkeypatch.setattr(page_module, "launch_page", lambda *_: "http://127.0.0.1:1/")
    return run


def ids_of(hits):
    return [hit.id for hit in hits]


def test_a_file_of_documents(serve, bag, tmp_path):
    result, shown = serve(bag, write_rows(tmp_path / "docs.jsonl", ROWS))
    assert result.exit_code == 0, result.output
    assert "The page is at http://127.0.0.1:1/" in result.stdout, result.output
    assert "1 empty ones left out" in result.stderr
    assert shown.name == "docs.jsonl"
    assert ids_of(shown.drawn) == list("abcde")
    assert shown.languages == ["", "de", "es"]
    assert shown.groups == {
        "language": ["es", "de", "de", "es", NOTHING],
        "label": ["home", "home", "town", NOTHING, "town"],
    }
    texts = [row["text"] for row in ROWS[:5]]
    vectors = DocumentEmbedder.from_pretrained(str(bag)).encode(texts, normalize=True)
    assert shown.map.vectors == pytest.approx(vectors, abs=1e-5)
    assert shown.map.method == "pca"


def test_fields_of_other_names(serve, bag, tmp_path):
    rows = [
        {"key": 1, "body": "haus", "lang": "de", "topic": "x", "tags": ["p", "q"], "label": "no"}
    ]
    rows += [{"key": 3, "body": "casa", "lang": "it", "topic": "y", "tags": [], "label": "no"}]
    path = write_rows(tmp_path / "docs.jsonl", rows)
    options = ["--field", "body", "--id-field", "key", "--language-field", "lang"]
    result, shown = serve(bag, path, *options, "--label-field", "topic", "--label-field", "tags")
    assert result.exit_code == 0, result.output
    assert ids_of(shown.drawn) == ["1", "3"], result.output
    assert shown.groups == {
        "language": ["de", "it"],
        "topic": ["x", "y"],
        "tags": ["p, q", NOTHING],
    }
    result, _ = serve(bag, path, *options, "--label-field", "other")
    assert result.exit_code == 1
    assert "no field 'other'" in result.stderr


def test_the_sample_and_an_index(serve, bag, tmp_path):
    result, shown = serve(bag, "--points", 50, "--projection", "pca")
    assert result.exit_code == 0, result.output
    assert len(shown.index) == 300
    assert len(shown.drawn) == 50
    assert tuple(shown.languages) == LANGUAGES
    assert tuple(dict(shown.examples)) == LANGUAGES
    out = tmp_path / "index"
    ok("index", write_rows(tmp_path / "docs.jsonl", ROWS), "-o", out, "-m", bag)
    for arguments in ([out], [bag, out]):
        result, shown = serve(*arguments)
        assert result.exit_code == 0, result.output
        assert set(shown.groups) == {"language", "label"}, result.output


def collect(bag, tmp_path, rows, label_fields=()):
    index = DocumentIndex.create(tmp_path / "index", DocumentEmbedder.from_pretrained(str(bag)))
    ids = []
    texts = []
    metadata = []
    for row in rows:
        fields = dict(row)
        ids.append(fields.pop("id"))
        texts.append(fields.pop("text"))
        metadata.append(fields)
    index.upsert(ids, texts, metadata)
    return draw_collection(index, "docs", label_fields)


def test_search_and_its_filters(bag, tmp_path):
    shown = collect(bag, tmp_path, ROWS[:5])
    hits = search(shown, "Katze baum", 5, ["de", ""]).hits
    assert sorted(ids_of(hits)) == ["b", "c", "e"]
    assert hits[0].snippet == "Katze baum."
    assert len(search(shown, "Katze", 9, shown.languages).hits) == 5
    with pytest.raises(ValueError, match="The query is empty"):
        search(shown, " ", 5, ["de"])
    with pytest.raises(ValueError, match="check at least one"):
        search(shown, "Katze", 5, [])


def test_everything_of_a_document_is_escaped(bag, tmp_path):
    rows = [{"id": EVIL, "text": EVIL, "language": EVIL, "title": EVIL, "label": EVIL}, ROWS[0]]
    shown = collect(bag, tmp_path, rows)
    result = search(shown, EVIL, 2, shown.languages)
    html = page_module.HTML
    views = [
        html.hits(result, shown),
        html.header(shown, EVIL),
        map_figure(shown, "label", result).to_json(),
    ]
    for view in views:
        assert "<script" not in view
        assert "<img" not in view
        assert "\\u003cscript" not in view
    assert views[0].count("&lt;script&gt;") >= 4
    hover_text = "".join(map_figure(shown).data[0].hovertext)
    assert set(re.findall(r"<(\w+)", hover_text)) <= {"b", "br", "i"}


@pytest.mark.slow
def test_sigterm_removes_the_temporary_files(tmp_path):
    command = [sys.executable, "-m", "tmde", "demo", "--no-browser"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        for line in process.stdout:
            if line.startswith("The page is at"):
                break
        assert list(tmp_path.glob("tmde-demo-*"))
        process.terminate()
        process.communicate(timeout=60)
    assert list(tmp_path.glob("tmde-demo-*")) == []
