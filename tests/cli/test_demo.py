"""`tmde demo` without a browser: what it reads, finds, draws and escapes."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("lancedb")
pytest.importorskip("gradio")
pytest.importorskip("plotly")

from tests.cli import conftest
from tests.cli.conftest import ok, read_rows, write_rows
from tests.conftest import LANGUAGES, jittered, save, tiny_model
from tmde.cli import demo_page as page_module
from tmde.cli.demo_collection import (
    FOLDER,
    NOTHING,
    PASSAGES,
    QUESTIONS,
    LanguageGuesser,
    draw_collection,
)
from tmde.cli.demo_page import map_figure
from tmde.cli.demo_search import DECODED_TOKENS, Searcher
from tmde.documents import DocumentIndex
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.loading import local_or_hub

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
    assert "1 empty skipped" in result.stderr
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
    assert [(example.language, example.text) for example in shown.examples] == list(QUESTIONS)
    assert shown.is_sample
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


def search(collection, query, k, languages, **options):
    return Searcher(collection).search(query, k, languages, **options)


def test_the_text_of_a_decoder_is_shown_and_escaped(tmp_path, tokenizer, monkeypatch):
    folder = save(tmp_path / "tmde", jittered(tiny_model(pivot_languages=["en", "es"])), tokenizer)
    shown = collect(folder, tmp_path, ROWS[:5])
    embedder = shown.index.embedder
    vector = embedder.encode("Katze baum")

    result = search(shown, "Katze baum", 2, ["de"])

    expected = {}
    for code in ("en", "es"):
        expected[code] = embedder.decode(vector, code, max_new_tokens=DECODED_TOKENS)[0]
    assert result.decoded == expected
    html = page_module.HTML.hits(replace(result, decoded={"en": EVIL}), shown)
    assert "The decoder reads the query" in html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_nothing_is_decoded_without_a_decoder(bag, tmp_path):
    shown = collect(bag, tmp_path, ROWS[:5])
    result = search(shown, "Katze baum", 2, ["de"])
    assert result.decoded == {}
    assert "decoder" not in page_module.HTML.hits(result, shown)


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


def test_search_by_words_finds_documents_with_a_word_of_the_query(bag, tmp_path):
    shown = collect(bag, tmp_path, ROWS[:5])
    result = search(shown, "ARBOL und Licht", 5, shown.languages, mode="words")
    # "árbol" and "Licht" are each in one document; case and accents do not matter.
    assert sorted(ids_of(result.hits)) == ["a", "c"]
    assert all(document.bm25 > 0 for document in result.documents)


def test_search_by_words_keeps_to_the_languages(bag, tmp_path):
    shown = collect(bag, tmp_path, ROWS[:5])
    assert ids_of(search(shown, "árbol light", 5, ["", "de"], mode="words").hits) == ["e"]


def test_search_by_words_that_no_document_has(bag, tmp_path):
    shown = collect(bag, tmp_path, ROWS[:5])
    result = search(shown, "xylophon", 5, shown.languages, mode="words")
    assert result.documents == []
    assert "has a word of the query" in page_module.HTML.hits(result, shown)


def test_search_by_both_ranks_a_document_first_that_both_find(bag, tmp_path):
    shown = collect(bag, tmp_path, ROWS[:5])
    result = search(shown, "Katze baum", 5, shown.languages, mode="both")
    assert result.hits[0].id == "b"
    assert len(result.hits) == 5  # by meaning, every document has a place


@pytest.mark.parametrize("mode", ["meaning", "words", "both"])
def test_hits_are_those_of_the_index(bag, tmp_path, mode):
    shown = collect(bag, tmp_path, ROWS[:5])
    expected = shown.index.search("casa Katze nacht", 3, mode=mode)
    assert ids_of(search(shown, "casa Katze nacht", 3, shown.languages, mode=mode).hits) == (
        ids_of(expected)
    )


TRANSLATIONS = [
    {"id": "1-de", "doc_id": 1, "language": "de", "text": "haus hund"},
    {"id": "1-es", "doc_id": 1, "language": "es", "text": "casa perro"},
    {"id": "1-en", "doc_id": 1, "language": "en", "text": "town light"},
    {"id": "2-de", "doc_id": 2, "language": "de", "text": "fluss nacht"},
    {"id": "2-es", "doc_id": 2, "language": "es", "text": "pan agua"},
]


def test_translations_are_one_hit(bag, tmp_path):
    shown = collect(bag, tmp_path, TRANSLATIONS)
    assert shown.has_translations
    # The words of one translation find it with all the others.
    result = search(shown, "town light", 1, shown.languages, mode="words")
    (document,) = result.documents
    assert sorted(version.id for version in document.versions) == ["1-de", "1-en", "1-es"]
    assert sorted(result.ids) == ["1-de", "1-en", "1-es"]


def test_a_hit_has_no_translations_of_other_languages(bag, tmp_path):
    shown = collect(bag, tmp_path, TRANSLATIONS)
    result = search(shown, "haus hund", 9, ["de", "en"])
    versions = [sorted(version.id for version in found.versions) for found in result.documents]
    assert sorted(versions) == [["1-de", "1-en"], ["2-de"]]


def test_the_language_of_the_query_comes_first(bag, tmp_path):
    shown = collect(bag, tmp_path, TRANSLATIONS)
    first = search(shown, "perro", 2, shown.languages, language="es")
    assert [hit.metadata["language"] for hit in first.hits] == ["es", "es"]


@pytest.mark.parametrize("change", ["no doc_id", "two parts of one language"])
def test_documents_that_are_no_translations_stay_apart(bag, tmp_path, change):
    rows = [dict(row) for row in TRANSLATIONS]
    if change == "no doc_id":
        for row in rows:
            del row["doc_id"]
    else:
        rows[1]["language"] = "de"
    shown = collect(bag, tmp_path, rows)
    assert not shown.has_translations
    assert len(search(shown, "haus", 9, shown.languages).hits) == 5


def test_an_example_of_documents_in_one_language_is_searched_in_it(bag, tmp_path):
    text = "Der Hund schläft heute in dem großen Haus."
    shown = collect(bag, tmp_path, [{"id": "a", "language": "de", "text": text}])
    (example,) = shown.examples
    assert example.text == text
    assert example.hit_languages == ["de"]


def test_the_language_of_a_query_is_guessed():
    rows = read_rows(PASSAGES)
    guesser = LanguageGuesser([row["text"] for row in rows], [row["language"] for row in rows])
    for language, question in QUESTIONS:
        assert guesser.guess(question) == language
    assert guesser.guess("12345") is None


def test_the_passages_of_the_package():
    rows = read_rows(PASSAGES)
    documents = {}
    for row in rows:
        documents.setdefault(row["doc_id"], {})[row["language"]] = row
    assert len(rows) == len({row["id"] for row in rows}) == 300
    assert len({row["text"] for row in rows}) == 300
    for versions in documents.values():
        assert tuple(sorted(versions)) == LANGUAGES
        assert len({row["topic"] for row in versions.values()}) == 1
        assert 15 <= len(versions["en"]["text"].split()) <= 40
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "CC BY-SA 4.0" in readme


def test_the_map_lights_hits_and_numbers_them(bag, tmp_path):
    shown = collect(bag, tmp_path, TRANSLATIONS)
    result = search(shown, "haus hund", 1, shown.languages)
    figure = map_figure(shown, "language", result)
    traces = {trace.name: trace for trace in figure.data}
    lit = {code: tuple(traces[code].selectedpoints) for code in ("de", "en", "es")}
    assert lit == {"de": (0,), "en": (0,), "es": (0,)}
    assert tuple(traces["hits"].text) == ("1",)
    assert traces["query"].x[0] == pytest.approx(result.place[0])


def test_numbers_that_would_overlap_are_one_label():
    """The third ring is far away; the label of the first two reaches the fourth."""
    points = np.array([[0, 0], [5, 5], [100, 0], [30, 0], [30, 40]], float)
    labels = page_module.ring_labels(points, [1, 2, 3, 4, 6])
    assert labels == ["1, 2, 4", "", "3", "", "6"]
    assert page_module.ring_labels(np.zeros((0, 2)), []) == []


def test_the_star_covers_no_number(bag, tmp_path):
    shown = collect(bag, tmp_path, TRANSLATIONS)
    result = search(shown, "haus hund", 1, shown.languages)
    (ring,) = [row for row, hit in enumerate(shown.drawn) if hit.id == result.ids[0]]
    place = shown.map.places[ring]
    unit = np.ptp(shown.map.places, axis=0).max() / 500  # The map is 500 pixels wide.
    positions = {}
    for pixels in (20, 200):
        star = place + np.array([0, pixels * unit])
        figure = map_figure(shown, "language", replace(result, place=star))
        hits = next(trace for trace in figure.data if trace.name == "hits")
        positions[pixels] = tuple(hits.textposition)
    assert positions == {20: ("bottom center",), 200: ("top center",)}


def test_the_page_names_the_packaged_model():
    model = SimpleNamespace(name_or_path=local_or_hub("default"))
    index = SimpleNamespace(embedder=SimpleNamespace(model=model))
    assert page_module._model_name(SimpleNamespace(index=index)) == "the packaged model default"
    model.name_or_path = "runs/mine"
    assert page_module._model_name(SimpleNamespace(index=index)) == "mine"


@pytest.mark.parametrize("is_sample", [True, False])
def test_the_license_of_the_passages_stands_below_them_alone(is_sample):
    footer = page_module.HTML.footer(SimpleNamespace(is_sample=is_sample))
    assert ("CC BY-SA 4.0" in footer) == is_sample


def test_a_short_text_is_shown_whole_with_its_nearest_sentence_marked(bag, tmp_path):
    shown = collect(bag, tmp_path, ROWS[:5])
    html = page_module.HTML.hits(search(shown, "Katze baum", 1, ["de"]), shown)
    assert "haus hund. <mark>Katze baum.</mark></p>" in html
    assert "Whole document" not in html


def test_of_a_long_text_its_nearest_sentence_is_shown_and_the_rest_unfolds(bag, tmp_path):
    text = "Katze baum. " + "Haus hund ist da. " * 30
    shown = collect(bag, tmp_path, [{"id": "a", "language": "de", "text": text}])
    html = page_module.HTML.hits(search(shown, "Katze baum", 1, ["de"]), shown)
    assert 'lang="de">Katze baum.</p>' in html
    assert "Whole document" in html
    assert '<span class="tmde-id">a</span>' in html


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


@pytest.mark.nightly
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
