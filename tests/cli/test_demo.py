"""`tmde demo` without a browser: what it reads, finds, draws and says. The page itself: test_demo_page.py."""

import re
import shutil
import socket
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

pytest.importorskip("faiss")
pytest.importorskip("gradio")
pytest.importorskip("plotly")

from modeling_tmde import AlignedConfig, AlignedModel, BagConfig, BagModel
from modeling_tmde.cli import demo as demo_module
from modeling_tmde.cli import demo_page
from modeling_tmde.cli.demo_collection import NOTHING, OTHERS, SAMPLE, Source, draw_collection, index_documents
from modeling_tmde.cli.demo_figure import hover_texts, map_figure
from modeling_tmde.cli.demo_page import NO_LANGUAGE, Found, Searcher
from modeling_tmde.cli.demo_views import failure_view, header_view, hits_view, map_note
from modeling_tmde.data.documents import EmbedError
from modeling_tmde.documents.index import DocumentIndex
from modeling_tmde.embedding import DocumentEmbedder
from tests.cli.demo_helpers import ROWS, run, write
from tests.conftest import LANGUAGES

EVIL = '<script>x()</script><img src=x onerror="x()"> & ${x()}'


@pytest.fixture(scope="session")
def model(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("bag")
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=400, d_model=16)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def collect(model, folder, rows=ROWS, label_fields=(), points=5000, **fields):
    """The collection of a JSONL file."""
    folder.mkdir(exist_ok=True)
    source = Source(str(write(folder / "docs.jsonl", rows)), label_fields=label_fields, **fields)
    index = index_documents(source, str(model), folder / "index", "cpu", {})
    return draw_collection(index, "docs.jsonl", "bag", label_fields, points)


@pytest.fixture
def collection(model, tmp_path):
    return collect(model, tmp_path)


def test_a_file_of_documents(collection, model):
    assert [hit.id for hit in collection.drawn] == list("abcde")
    assert collection.groups == {
        "language": ["es", "de", "de", "es", NOTHING], "label": ["home", "home", "town", NOTHING, "town"],
    }  # fmt: skip
    assert collection.languages == ["de", "es", None]
    assert collection.drawn[0].metadata == {"language": "es", "title": "Casa", "label": "home"}
    expected = DocumentEmbedder.from_pretrained(str(model)).encode([row["text"] for row in ROWS], normalize=True)
    assert collection.index.vectors(list("abcde")) == pytest.approx(expected, abs=1e-5)
    assert collection.map.vectors == pytest.approx(expected, abs=1e-5) and collection.map.method == "pca"


def test_fields_of_other_names_and_empty_documents(model, tmp_path, capsys):
    rows = [{"key": 1, "body": "haus", "lang": "de", "topic": "x", "tags": ["p", "q"], "label": "no"}]
    rows += [{"key": 2, "body": "  ", "lang": "de", "topic": "x", "tags": [], "label": "no"}]
    rows += [{"key": 3, "body": "casa", "lang": "it", "topic": "y", "tags": [], "label": "no"}]
    fields = {"field": "body", "id_field": "key", "language_field": "lang"}
    found = collect(model, tmp_path, rows, ("topic", "tags"), **fields)
    assert "1 empty documents left out" in capsys.readouterr().err
    assert [hit.id for hit in found.drawn] == ["1", "3"]
    assert found.groups == {"language": ["de", "it"], "topic": ["x", "y"], "tags": ["p, q", NOTHING]}


TWO_LANGUAGES = [
    {"text": "haus", "lang": "de", "language": "Germanic"},
    {"text": "casa", "lang": "es", "language": "Romance"},
]


def test_the_language_is_a_label_too(model, tmp_path, monkeypatch):
    docs, label = write(tmp_path / "docs.jsonl", TWO_LANGUAGES), ("--label-field", "lang")
    _, shown, _ = serve(monkeypatch, model, docs, "--language-field", "lang", *label, "--no-browser")
    assert shown.groups == {"language": ["de", "es"]} and shown.languages == ["de", "es"]
    _, shown, _ = serve(monkeypatch, model, docs, "--label-field", "language", "--no-browser")
    assert shown.groups == {"language": ["Germanic", "Romance"]}


def test_a_label_does_not_take_the_place_of_the_language(model, tmp_path, capsys):
    """A hit has one field called so."""
    shown_as = "found 'language', as which the page shows the field of --language-field 'lang'; give another one"
    with pytest.raises(EmbedError, match=f"^--label-field: {shown_as}"):
        collect(model, tmp_path, TWO_LANGUAGES, ("language",), language_field="lang")
    assert "Embedding" not in capsys.readouterr().err


def test_text_parquet_and_the_sample(model, tmp_path):
    (tmp_path / "docs.txt").write_text("haus\n\ncasa hund\n")
    index = index_documents(Source(str(tmp_path / "docs.txt")), str(model), tmp_path / "1", "cpu", {})
    found = draw_collection(index, "docs.txt", "bag")
    assert [hit.text for hit in found.drawn] == ["haus", "casa hund"] and [hit.id for hit in found.drawn] == ["1", "3"]
    assert not found.groups and not found.languages and not found.examples
    pq.write_table(pa.table({"text": ["haus", "casa"], "label": pa.array([3, 4])}), tmp_path / "docs.parquet")
    index = index_documents(Source(str(tmp_path / "docs.parquet")), str(model), tmp_path / "2", "cpu", {})
    assert draw_collection(index, "docs.parquet", "bag").groups == {"label": ["3", "4"]}
    index = index_documents(Source(), str(model), tmp_path / "3", "cpu", {})
    found = draw_collection(index, SAMPLE, "bag", points=50, method="pca")
    assert len(found.index) == 300 and len(found.drawn) == 50 and tuple(found.languages) == LANGUAGES
    assert set(found.groups) == {"language", "label"} and [code for code, _ in found.examples] == list(LANGUAGES)
    for code, text in found.examples:  # a sentence of a document in its language
        assert any(text in hit.text and hit.metadata["language"] == code for hit in found.drawn)
    assert "50 of 300 documents, chosen at random" in map_note(found) and "two principal components" in map_note(found)


def test_fields_of_an_index_are_its_groups(model, tmp_path):
    out, rows = tmp_path / "index", [row | {"n": row["id"] * 2, "one": 1} for row in ROWS]
    rows += [row | {"id": f"{number}", "n": f"{number:02d}"} for number, row in enumerate(ROWS * 6)]
    rows = [row for row in rows if row["language"]]
    assert run("index", write(tmp_path / "x.jsonl", rows), "-o", out, "-m", model).exit_code == 0
    index = DocumentIndex.open(out)
    found = draw_collection(index, "index", "bag")
    assert list(found.groups) == ["language", "label"]  # `one` has one value and `n` too many; a title is none
    groups = draw_collection(index, "index", "bag", ["n"]).groups
    assert list(groups) == ["language", "n"] and len(set(groups["n"])) == 24 and groups["n"].count(OTHERS) == 5
    with pytest.raises(EmbedError, match=r"index: no field 'topic', found \['language', .*see --label-field"):
        draw_collection(index, "index", "bag", ["topic"])


def test_search_is_that_of_the_index(collection, monkeypatch):
    searcher, embedder, encode, embedded = Searcher(collection), collection.index.embedder, DocumentEmbedder.encode, []

    def counted(self, texts, **options):
        embedded.extend(texts)
        return encode(self, texts, **options)

    for query in ("haus hund", "Licht nacht"):
        with monkeypatch.context() as patch:
            patch.setattr(DocumentEmbedder, "encode", counted)
            found = searcher.search(query, 3)
        assert embedded.count(query) == 1
        assert found.hits == collection.index.search(query, 3, snippet_width=300) and len(found.hits) == 3
        vector = embedder.encode([query])[0]
        assert found.place == pytest.approx(collection.map.place_of(vector)) and not found.cut
    found = searcher.search("Katze baum", 5, ["de"])
    assert {hit.id for hit in found.hits} == {"b", "c"}
    assert next(hit.snippet for hit in found.hits if hit.id == "b") == "Katze baum."
    assert {hit.id for hit in searcher.search("haus", 5, ["es", NO_LANGUAGE]).hits} == {"a", "d", "e"}
    assert len(searcher.search("haus", 5, ["es", "de", NO_LANGUAGE]).hits) == 5
    assert len(searcher.search("haus", 5).hits) == 5


def test_languages_that_are_not_drawn_are_there(model, tmp_path):
    rows = [{"id": f"{number}", "text": "haus hund", "language": "de"} for number in range(20)]
    others = [{"id": "fr", "text": "la maison", "language": "fr"}, {"id": "no", "text": "town"}]
    found = collect(model, tmp_path, [*rows, *others], points=4)
    assert {hit.metadata["language"] for hit in found.drawn} == {"de"} and set(found.groups["language"]) == {"de"}
    assert found.languages == ["de", "fr", None] and "22 documents of docs.jsonl in de, fr" in header_view(found)
    searcher = Searcher(found)
    assert [hit.id for hit in searcher.search("haus hund", 5, ["fr"]).hits] == ["fr"]
    assert {hit.id for hit in searcher.search("haus hund", 5, ["fr", NO_LANGUAGE]).hits} == {"fr", "no"}
    assert len(searcher.search("haus hund", 50, ["de", "fr", NO_LANGUAGE]).hits) == 22
    found.index.delete(["fr"])
    assert draw_collection(found.index, "docs.jsonl", "bag", points=4).languages == ["de", None]


def test_a_language_called_none(model, tmp_path):
    rows = [{"id": name, "text": "haus", "language": code} for name, code in (("a", "none"), ("b", None), ("c", ""))]
    out = tmp_path / "index"
    assert run("index", write(tmp_path / "x.jsonl", rows), "-o", out, "-m", model).exit_code == 0
    found = draw_collection(DocumentIndex.open(out), "index", "bag")  # the empty one stays empty in an index
    assert found.languages == ["none", None]
    searcher = Searcher(found)
    assert {hit.id for hit in searcher.search("haus", 5, ["none"]).hits} == {"a"}
    assert {hit.id for hit in searcher.search("haus", 5, [NO_LANGUAGE]).hits} == {"b", "c"}
    assert len(searcher.search("haus", 5, ["none", NO_LANGUAGE]).hits) == 3
    labels = {getattr(block, "label", None): block for block in demo_page.demo_page(found).blocks.values()}
    assert labels["Languages of the hits"].choices == [("none", "none"), (NOTHING, NO_LANGUAGE)]


def test_what_cannot_be_searched(collection):
    searcher = Searcher(collection)
    for query in (None, "", " \n"):
        with pytest.raises(EmbedError, match="^The query is empty: type a text, in any language.$"):
            searcher.search(query)
    with pytest.raises(EmbedError, match="choose at least one"):
        searcher.search("haus", 5, [])
    with pytest.raises(EmbedError, match="The search failed: "):
        searcher.search("haus \ud800", 5)


def test_a_query_that_is_cut_off(model, tmp_path):
    write(tmp_path / "docs.jsonl", ROWS)
    loading = {"max_length": 20, "long_documents": "truncate"}
    index = index_documents(Source(str(tmp_path / "docs.jsonl")), str(model), tmp_path / "index", "cpu", loading)
    found = draw_collection(index, "docs.jsonl", "bag")
    result = Searcher(found).search("haus hund " * 30)
    assert result.cut and "too long: its first 20 tokens count" in hits_view(result, found)
    assert "too long" not in hits_view(Searcher(found).search("haus"), found)


def test_a_model_with_an_encoder_for_each_language(tokenizer, tmp_path):
    torch.manual_seed(0)
    shape = {
        "vocab_size": 400,
        "d_model": 16,
        "languages": ("de", "es"),
        "pivot_languages": ("es",),
        "source_language": "es",
    }
    aligned = AlignedModel(AlignedConfig(**shape, encoder="bag", encoder_config={"d_model": 16}))
    aligned.save_pretrained(tmp_path / "aligned")
    tokenizer.save_pretrained(tmp_path / "aligned")
    told = [row for row in ROWS if row["language"]]
    found = collect(tmp_path / "aligned", tmp_path / "1", told)
    german, spanish = (Searcher(found).search("pan agua " * 60, 4, None, code) for code in ("de", "es"))
    assert spanish.hits[0].id == "d" and spanish.hits[0].score == pytest.approx(1, abs=1e-5)
    assert german.hits[0].score < 0.99
    with pytest.raises(EmbedError, match="line 5: found language None, expected one of .*de, es"):
        collect(tmp_path / "aligned", tmp_path / "2")
    with pytest.raises(EmbedError, match="found no language of the documents.*see --language-field"):
        collect(tmp_path / "aligned", tmp_path / "3", [{"text": "haus"}])


def test_all_that_comes_from_documents_is_escaped(model, tmp_path):
    row = {"id": EVIL, "text": f"{EVIL}. {EVIL}", "language": EVIL, "title": EVIL, "label": EVIL}
    found = collect(model, tmp_path, [row, *ROWS])
    result = Searcher(found).search(EVIL, 6)
    figure = map_figure(found, "label", result)
    hovers = [text for trace in figure.data for text in trace.hovertext]
    names = [trace.name for trace in figure.data]
    for text in (hits_view(result, found), failure_view(EVIL), header_view(found), *hovers, *names):
        assert "<script" not in text and "<img" not in text
    page = hits_view(result, found)
    assert (
        page.count("&lt;script&gt;") >= 6
        and "&lt;script&gt;" in "".join(hovers)
        and "&lt;script&gt;" in "".join(names)
    )
    tags = set(re.findall(r"<([a-z]+)", page))
    assert tags == {"table", "caption", "thead", "tr", "th", "tbody", "td", "p", "span", "div", "details", "summary"}
    assert set(re.findall(r"<([a-z]+)", "".join(hovers))) == {"b", "br", "i"}


def test_the_map_marks_what_was_found(collection):
    result = Searcher(collection).search("Katze baum", 2)
    figure = map_figure(collection, "language", result)
    assert [trace.name for trace in figure.data] == [NOTHING, "de", "es", "hits", "query"]
    drawn = {trace.name: np.stack([trace.x, trace.y], axis=1) for trace in figure.data}
    places = dict(zip("abcde", collection.map.places, strict=True))
    assert drawn["de"] == pytest.approx(np.stack([places["b"], places["c"]]))
    assert drawn["hits"] == pytest.approx(np.stack([places[hit.id] for hit in result.hits]))
    assert drawn["query"][0] == pytest.approx(result.place)
    texts = hover_texts(collection)
    assert texts[1].startswith("<b>Haus</b><br>haus hund. Katze baum.<br>") and "de · home · b" in texts[1]
    assert list(figure.data[1].hovertext) == [texts[1], texts[2]]
    assert list(figure.data[3].hovertext)[0].startswith("<b>1</b> · <b>")
    assert [trace.name for trace in map_figure(collection, "label").data] == [NOTHING, "home", "town"]
    assert [trace.name for trace in map_figure(collection).data] == ["documents"]


def test_hits_that_are_not_drawn_have_no_ring(model, tmp_path):
    found = collect(model, tmp_path, points=2)
    result = Searcher(found).search("haus", 5)
    assert len(found.drawn) == 2 and len(result.hits) == 5 and "5 nearest documents" in hits_view(result, found)
    rings = next(trace for trace in map_figure(found, None, result).data if trace.name == "hits")
    assert len(rings.x) == 2
    lonely = Found(
        "haus", result.place, [hit for hit in result.hits if hit.id not in {hit.id for hit in found.drawn}], False
    )
    assert "hits" not in [trace.name for trace in map_figure(found, None, lonely).data]


def test_the_page_is_made_without_being_served(collection):
    page = demo_page.demo_page(collection)
    assert page.title == "tmde demo" and not page.analytics_enabled
    labels = {getattr(block, "label", None): block for block in page.blocks.values()}
    assert labels["Languages of the hits"].value == ["de", "es", NO_LANGUAGE]
    assert labels["Colour of the map"].choices == [("Language", "language"), ("Label", "label")]
    assert not labels["Language of the query"].visible


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_bad_arguments(model, tmp_path):
    docs, index = write(tmp_path / "docs.jsonl", ROWS), tmp_path / "index"
    assert run("index", docs, "-o", index, "-m", model).exit_code == 0
    empty = tmp_path / "empty"
    DocumentIndex.create(empty, DocumentEmbedder.from_pretrained(str(model)))
    given = tmp_path / "given"
    DocumentIndex.create(given, dimension=2).add(["a"], ["haus"], vectors=np.ones((1, 2)))
    (tmp_path / "blank.txt").write_text("\n \n")
    moved = tmp_path / "moved"
    shutil.copytree(index, moved)
    (moved / "index.json").write_text((moved / "index.json").read_text().replace(str(model), str(tmp_path / "gone")))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        used = taken.getsockname()[1]
        for arguments, message in [
            ((model, docs, "--port", used), f"--port {used}: is in use; give another one"),
            ((model, docs, "--host", "no.such.host.invalid"), "--host: found 'no.such.host.invalid'"),
            ((model, docs, "--host", "192.0.2.1"), "--host 192.0.2.1: cannot be listened on"),
            ((tmp_path / "nowhere", docs), f"MODEL {tmp_path / 'nowhere'}: "),
            ((tmp_path / "nowhere", index), f"MODEL {tmp_path / 'nowhere'}: "),
            ((moved,), f"if it was moved, give it: tmde demo MODEL {moved}"),
            ((model, tmp_path / "no.jsonl"), "no.jsonl: No such file"),
            ((model, docs, "--field", "body"), "field 'body' is missing"),
            ((model, docs, "--label-field", "topic"), "no field 'topic', found ['id', 'text', 'language'"),
            ((model, docs, "--language-field", "lang"), "no field 'lang'"),
            ((model, tmp_path / "blank.txt"), "found no document that is not empty"),
            ((model, "--field", "body"), "--field: names a field of a file of documents; give COLLECTION as well"),
            ((model, "--label-field", "topic"), "--label-field: names a field of a file"),
            ((index, "--field", "body"), "is an index, which has been told its fields by tmde index"),
            ((index, docs), "expected a model before a collection"),
            ((index, "--label-field", "topic"), "no field 'topic', found ['language', 'title', 'label']"),
            ((empty,), "found an index without documents"),
            ((given,), "was made of given vectors, and has no model"),
        ]:
            result = run("demo", *arguments, "--no-browser")
            assert result.exit_code == 1 and message in result.stderr, (arguments, result.output)
            assert result.stderr.splitlines()[-1].startswith("Error: ")
            assert "Traceback" not in result.output


@pytest.mark.parametrize("name", ["gradio", "plotly"])
def test_missing_packages(model, name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    result = run("demo", model)
    assert result.exit_code == 1 and "pip install 'tmde[demo]'" in result.stderr and "Embedding" not in result.stderr
    with pytest.raises(ImportError, match=r"pip install 'tmde\[demo\]'"):
        demo_page.check_packages()


class Served:
    """In place of a page that is served; ends at once."""

    is_running = False

    def close(self, verbose=True):
        self.closed = True


def serve(monkeypatch, *arguments):
    """Runs the command up to where the page would be served, with host and port."""
    told, page = [], Served()
    monkeypatch.setattr(demo_page, "demo_page", lambda collection: told.append(collection) or page)

    def launch(page, host, port):
        told.append((host, port))
        return f"http://{host}:7860/"

    monkeypatch.setattr(demo_page, "launch_page", launch)
    result = run("demo", *arguments)
    assert result.exit_code == 0 and page.closed, result.output
    return result, *told


def test_the_command(model, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(demo_module.webbrowser, "open", opened.append)
    docs, index = write(tmp_path / "docs.jsonl", ROWS), tmp_path / "index"
    port = free_port()
    result, shown, address = serve(monkeypatch, model, docs, "--port", port, "--open", "--points", 3)
    assert address == ("127.0.0.1", port) and opened == ["http://127.0.0.1:7860/"]
    assert (shown.name, shown.model, len(shown.drawn)) == ("docs.jsonl", model.name, 3)
    assert "The page is at http://127.0.0.1:7860/ (Ctrl-C ends it)" in result.stdout
    assert "Embedding 5 documents" in result.stderr and "Warning" not in result.stderr
    assert not shown.index.folder.exists()  # it was temporary
    assert run("index", docs, "-o", index, "-m", model).exit_code == 0
    for arguments in ((index,), (model, index)):
        result, shown, address = serve(monkeypatch, *arguments, "--no-browser", "--host", "0.0.0.0", "--seed", 3)
        assert address == ("0.0.0.0", None) and (shown.name, shown.model) == ("index", model.name)
        assert "Warning: --host 0.0.0.0: others in the network can open the page" in result.stderr
        assert "Embedding" not in result.stderr and index.exists()
    assert len(opened) == 1


def test_interrupted_while_it_embeds(model, tmp_path, monkeypatch):
    def encode(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(DocumentEmbedder, "encode", encode)
    result = run("demo", model, write(tmp_path / "docs.jsonl", ROWS))
    assert result.exit_code == 130 and result.stderr.splitlines()[-1] == "Interrupted"
