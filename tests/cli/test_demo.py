"""`tmde demo` without a browser: what it reads, finds, draws and escapes. The page itself: test_demo_page.py."""

import json
import re

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("lancedb")
pytest.importorskip("gradio")
pytest.importorskip("plotly")

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.cli import demo_page as page_module
from modeling_tmde.cli.demo import NOTHING, OTHERS, draw_collection, read_file
from modeling_tmde.cli.demo_page import hits_view, map_figure, search
from modeling_tmde.cli.main import app
from modeling_tmde.documents import DocumentIndex
from modeling_tmde.embedding import DocumentEmbedder
from tests.conftest import LANGUAGES

EVIL = '<script>x()</script><img src=x onerror="x()"> & ${x()}'
ROWS = [
    {"id": "a", "text": "casa perro. Gato árbol.", "language": "es", "title": "Casa", "label": "home"},
    {"id": "b", "text": "haus hund. Katze baum.", "language": "de", "title": "Haus", "label": "home"},
    {"id": "c", "text": "fluss stadt. Licht nacht.", "language": "de", "title": "Fluss", "label": "town"},
    {"id": "d", "text": "pan agua " * 60, "language": "es", "title": None, "label": None},
    {"id": "e", "text": "town light", "language": None, "title": None, "label": "town"},
    {"id": "f", "text": "  ", "language": None, "title": None, "label": "town"},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def model(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("bag")
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=400, d_model=16)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def serve(monkeypatch):
    """Runs the command without serving: its result, and the collection that the page would show."""
    shown = []

    class Page:
        is_running = False

        def close(self, verbose):
            pass

    def run(*arguments):
        shown.clear()
        result = CliRunner().invoke(app, ["demo", *map(str, arguments)])
        return result, shown[0] if shown else None

    monkeypatch.setattr(page_module, "demo_page", lambda collection: shown.append(collection) or Page())
    monkeypatch.setattr(page_module, "launch_page", lambda *_: "http://127.0.0.1:1/")
    return run


def test_a_file_of_documents(serve, model, tmp_path):
    result, shown = serve(model, write(tmp_path / "docs.jsonl", ROWS))
    assert result.exit_code == 0 and "The page is at http://127.0.0.1:1/" in result.stdout, result.output
    assert "1 empty documents left out" in result.stderr
    assert [hit.id for hit in shown.drawn] == list("abcde") and shown.name == "docs.jsonl"
    assert shown.groups == {
        "language": ["es", "de", "de", "es", NOTHING], "label": ["home", "home", "town", NOTHING, "town"],
    }  # fmt: skip
    assert shown.languages == ["de", "es", None]
    vectors = DocumentEmbedder.from_pretrained(str(model)).encode([row["text"] for row in ROWS[:5]], normalize=True)
    assert shown.map.vectors == pytest.approx(vectors, abs=1e-5) and shown.map.method == "pca"


def test_fields_of_other_names(serve, model, tmp_path):
    rows = [{"key": 1, "body": "haus", "lang": "de", "topic": "x", "tags": ["p", "q"], "label": "no"}]
    rows += [{"key": 3, "body": "casa", "lang": "it", "topic": "y", "tags": [], "label": "no"}]
    options = ["--field", "body", "--id-field", "key", "--language-field", "lang"]
    options += ["--label-field", "topic", "--label-field", "tags"]
    result, shown = serve(model, write(tmp_path / "docs.jsonl", rows), *options)
    assert result.exit_code == 0 and [hit.id for hit in shown.drawn] == ["1", "3"], result.output
    assert shown.groups == {"language": ["de", "it"], "topic": ["x", "y"], "tags": ["p, q", NOTHING]}


def test_the_sample_and_an_index(serve, model, tmp_path):
    result, shown = serve(model, "--points", 50, "--projection", "pca")
    assert result.exit_code == 0, result.output
    assert len(shown.index) == 300 and len(shown.drawn) == 50 and tuple(shown.languages) == LANGUAGES
    assert [code for code, _ in shown.examples] == list(LANGUAGES)
    out, rows = tmp_path / "index", [row | {"n": row["id"] * 2, "one": 1} for row in ROWS]
    arguments = ["index", write(tmp_path / "docs.jsonl", rows), "-o", out, "-m", model]
    assert CliRunner().invoke(app, [str(argument) for argument in arguments]).exit_code == 0
    for arguments in ([out], [model, out]):
        result, shown = serve(*arguments)
        assert result.exit_code == 0 and set(shown.groups) == {"language", "label", "n"}, result.output


def test_many_values_are_others(model, tmp_path):
    index = DocumentIndex.create(tmp_path / "index", DocumentEmbedder.from_pretrained(str(model)))
    ids = [str(number) for number in range(40)]
    index.upsert(ids, [f"haus {id}" for id in ids], [{"label": f"l{max(int(id), 5)}"} for id in ids])
    shown = draw_collection(index, "index", ["label"])
    assert len(set(shown.groups["label"])) == 24 and OTHERS in shown.groups["label"]
    assert "label" not in draw_collection(index, "index").groups


def collect(model, tmp_path, rows):
    index = DocumentIndex.create(tmp_path / "index", DocumentEmbedder.from_pretrained(str(model)))
    ids, texts, metadata = read_file(str(write(tmp_path / "docs.jsonl", rows)), None, None, None, None, ())
    index.upsert(ids, texts, metadata)
    return draw_collection(index, "docs.jsonl")


def test_search_and_its_filters(model, tmp_path):
    shown = collect(model, tmp_path, ROWS)
    found = search(shown, "Katze baum", 5, ["de", ""])
    assert {hit.id for hit in found.hits} == {"b", "c", "e"} and found.hits[0].snippet == "Katze baum."
    assert len(search(shown, "Katze", 9, ["de", "es", ""]).hits) == 5
    for arguments, message in [((" ",), "The query is empty"), (("x", 3, []), "choose at least one")]:
        with pytest.raises(ValueError, match=message):
            search(shown, *arguments)


def test_everything_of_a_document_is_escaped(model, tmp_path):
    rows = [{"id": EVIL, "text": EVIL, "language": EVIL, "title": EVIL, "label": EVIL}, ROWS[0]]
    shown = collect(model, tmp_path, rows)
    found = search(shown, EVIL, 2)
    views = [hits_view(found, shown), page_module.HTML.header(shown), map_figure(shown, "label", found).to_json()]
    for view in views:
        assert "<script" not in view and "<img" not in view and "\\u003cscript" not in view
    assert views[0].count("&lt;script&gt;") >= 4
    assert set(re.findall("<(\\w+)", "".join(map_figure(shown).data[0].hovertext))) <= {"b", "br", "i"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["MODEL", "docs.jsonl", "--label-field", "topic"], "no field 'topic'"),
        (["MODEL", "docs.jsonl", "--port", "1", "--host", "no.such.host.example"], "--host no.such.host.example"),
        (["MODEL", "none.jsonl"], "none.jsonl: found no such file"),
    ],
)
def test_mistakes(serve, model, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "docs.jsonl", ROWS)
    result, _ = serve(*(model if each == "MODEL" else each for each in arguments))
    assert result.exit_code == 1 and f"Error: {message}" in result.stderr or message in result.stderr, result.output
