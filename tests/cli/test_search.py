"""`tmde index` and `tmde search`: documents in, hits out; interrupted, updated, refused."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("lancedb")

from tests.cli.conftest import ok, run, save_bag, write_rows
from tests.conftest import make_rows
from tmde.documents import file_indexing as index_module
from tmde.documents.index import DocumentIndex
from tmde.embedding.document_embedder import DocumentEmbedder

ROWS = [
    {"id": "a", "text": "casa perro. Gato árbol.", "language": "es", "title": "Casa"},
    {"id": "b", "text": "haus hund. Katze baum.", "language": "de", "title": "Haus"},
    {"id": "c", "text": "fluss stadt. Licht nacht.", "language": "de", "title": "Fluss [rot]"},
    {"id": "d", "text": "pan agua " * 60, "language": "es", "title": None},
]
IDS = ["a", "b", "c", "d"]


def hits(*arguments, **kwargs):
    output = ok("search", *arguments, "--json", **kwargs).stdout
    return [json.loads(line) for line in output.splitlines()]


def hit_ids(*arguments, **kwargs):
    return [hit["id"] for hit in hits(*arguments, **kwargs)]


def refused(*arguments, **kwargs):
    """The message of a command that ends with exit code 1."""
    result = run(*arguments, **kwargs)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("Error: ")
    return result.stderr


@pytest.fixture
def docs(tmp_path):
    return write_rows(tmp_path / "docs.jsonl", ROWS)


@pytest.fixture
def made(docs, bag, tmp_path):
    """An index of the documents."""
    ok("index", docs, "-o", tmp_path / "index", "-m", bag)
    return tmp_path / "index"


# ---- Indexing and searching


def test_an_index_of_small_vectors(docs, bag, made, tmp_path):
    """The size is chosen once; a later update may repeat it, and not change it."""
    out = tmp_path / "small.index"
    sizes = ("--precision", "float16", "--truncate-dim", "5")
    ok("index", docs, "-o", out, "-m", bag, *sizes)
    assert "4 unchanged" in ok("index", docs, "-o", out).stderr
    assert "4 unchanged" in ok("index", docs, "-o", out, *sizes).stderr
    assert "1 deleted" in ok("index", "-o", out, *sizes, "--delete", "d").stderr
    index = DocumentIndex.open(out)
    assert (index.precision, index.vectors(["a"]).shape) == ("float16", (1, 5))
    for source in ([docs], ["--delete", "a"]):
        message = refused("index", *source, "-o", out, "--precision", "float32")
        assert "--precision is float32, but the index was created with float16" in message
        message = refused("index", *source, "-o", made, "--truncate-dim", "5")
        assert "--truncate-dim is 5, but the index was created with" in message
    assert "a" in DocumentIndex.open(out)


def test_an_index_is_made(docs, bag, tmp_path):
    out = tmp_path / "index"
    result = ok("index", docs, "-o", out, "-m", bag, "--max-length", 30)
    assert "4 added, 0 updated, 0 unchanged, 0 deleted" in result.stderr
    assert "4 documents, search: exact" in result.stderr
    assert result.stdout == ""


def test_long_documents_are_read_by_sentences(docs, bag, tmp_path):
    out = tmp_path / "index"
    result = ok("index", docs, "-o", out, "-m", bag, "--max-length", 30)
    assert DocumentIndex.open(out).settings["long_documents"] == "sentences"
    assert "0 texts truncated" in result.stderr


def test_hits_are_those_of_the_vectors(made, bag):
    embedder = DocumentEmbedder.from_pretrained(bag)
    query_vectors = embedder.encode(["Katze baum"], normalize=True)
    (scores,) = query_vectors @ DocumentIndex.open(made).vectors(IDS).T
    best_ids = [IDS[row] for row in (-scores).argsort()[:3]]
    best_hits = hits("Katze baum", made, "-k", 3)
    assert [hit["id"] for hit in best_hits] == best_ids
    assert [hit["rank"] for hit in best_hits] == [1, 2, 3]
    assert best_hits[0] == {
        "query": "Katze baum",
        "rank": 1,
        "score": pytest.approx(float(scores[1]), abs=1e-5),
        "id": "b",
        "snippet": "Katze baum.",
        "metadata": {"language": "de", "title": "Haus"},
    }


def test_the_table_of_hits(made):
    table = ok("search", "licht nacht", made).stdout
    for text in ("Fluss [rot]", "Licht nacht.", "score", "language"):
        assert text in table


def test_filters(made):
    filters = ["--filter", "language=de", "--filter", "language=es", "--filter", "title=Haus"]
    assert hit_ids("katze", made, *filters) == ["b"]


@pytest.mark.parametrize("is_piped", [False, True])
def test_several_queries(made, is_piped, tmp_path):
    texts = [row["text"].strip() for row in ROWS[2:]]
    content = f"\ufeff{texts[0]}\r\n\n {texts[1]} \n".encode()
    (tmp_path / "queries").write_bytes(content)
    if is_piped:
        first, second = hits(made, "--queries", "-", "-k", 1, input=content)
    else:
        first, second = hits(made, "--queries", tmp_path / "queries", "-k", 1)
    assert (first["query"], first["id"]) == (texts[0], "c")
    assert (second["query"], second["id"]) == (texts[1], "d")


def test_each_of_several_queries_stands_above_its_table(made):
    output = ok("search", made, "--queries", "-", input="zzz\nyyy\n").stdout
    assert "zzz" in output
    assert "yyy" in output


# ---- By meaning, by words, or both


@pytest.mark.parametrize("mode", ["meaning", "words", "both"])
def test_hits_of_a_mode_are_those_of_the_index(made, mode):
    expected = DocumentIndex.open(made).search("casa Katze nacht", k=3, mode=mode)
    printed = hits("casa Katze nacht", made, "--mode", mode, "-k", 3)
    assert [(hit["id"], hit["score"], hit["snippet"]) for hit in printed] == [
        (hit.id, pytest.approx(hit.score), hit.snippet) for hit in expected
    ]


def test_words_keep_to_filters(made):
    assert hit_ids("perro agua licht", made, "--mode", "words", "--filter", "language=de") == ["c"]


def test_words_need_no_model(made, bag, tmp_path):
    """The model of the index is gone, so nothing can be embedded."""
    settings = made / "index.json"
    content = settings.read_text(encoding="utf-8")
    assert str(bag) in content
    settings.write_text(content.replace(str(bag), str(tmp_path / "gone")), encoding="utf-8")
    assert hit_ids("ARBOL", made, "--mode", "words") == ["a"]


def test_a_search_by_words_that_no_document_has(made):
    output = ok("search", "xylophon", made, "--mode", "words").stdout
    assert output.strip() == "No document contains a query word."


def test_a_search_by_words_leaves_the_folder_alone(docs, made):
    ok("index", docs, "-o", made, "--delete", "a")  # a later update, which adds "a" again
    before = sorted(made.rglob("*"))
    assert hit_ids("árbol", made, "--mode", "words") == ["a"]
    assert sorted(made.rglob("*")) == before


def test_an_unknown_mode(made):
    result = run("search", "casa", made, "--mode", "sounds")
    assert result.exit_code == 2
    assert "'words'" in result.stderr


# ---- Updates


def test_a_second_run_changes_nothing(docs, made):
    assert "0 added, 0 updated, 4 unchanged" in ok("index", docs, "-o", made).stderr


def test_a_second_run_does_what_is_new(made, tmp_path):
    rows = [
        ROWS[0],
        ROWS[1] | {"text": "nuit pain"},
        ROWS[2] | {"title": "Neu"},
        {"id": "e", "text": "light night"},
    ]
    changed = write_rows(tmp_path / "docs.jsonl", rows)
    assert "1 added, 2 updated, 1 unchanged, 0 deleted" in ok("index", changed, "-o", made).stderr
    index = DocumentIndex.open(made)
    assert sorted(index) == [*IDS, "e"]
    assert index.documents(["c"])[0].metadata["title"] == "Neu"


def test_prune(made, tmp_path):
    rest = write_rows(tmp_path / "docs.jsonl", ROWS[:3])
    assert "1 deleted" in ok("index", rest, "-o", made, "--prune").stderr
    assert sorted(DocumentIndex.open(made)) == IDS[:3]


def test_prune_by_parts_removes_empty_and_absent_documents(bag, tmp_path, monkeypatch):
    monkeypatch.setattr(index_module, "PRUNED_AT_ONCE", 3)
    rows = [{"id": f"it's {number}", "text": "casa"} for number in range(20)]
    docs = write_rows(tmp_path / "docs.jsonl", rows)
    ok("index", docs, "-o", tmp_path / "index", "-m", bag)
    kept_rows = [row for row in rows if row["id"].endswith(("3", "7", "8"))]
    kept_rows[0] = {"id": kept_rows[0]["id"], "text": " "}
    write_rows(docs, kept_rows)
    assert "15 deleted, 1 empty" in ok("index", docs, "-o", tmp_path / "index", "--prune").stderr
    assert set(DocumentIndex.open(tmp_path / "index")) == {row["id"] for row in kept_rows[1:]}


def test_an_id_that_occurs_twice_in_two_batches(bag, tmp_path, monkeypatch):
    monkeypatch.setattr(index_module, "BATCH", 2)
    rows = [{"id": number, "text": "casa"} for number in (5, 6, 7, 6)]
    docs = write_rows(tmp_path / "docs.jsonl", rows)
    message = refused("index", docs, "-o", tmp_path / "index", "-m", bag)
    assert (
        "row 4, field 'id': found 6, which is also the id of row 2; expected unique ids" in message
    )


def test_delete(made, tmp_path):
    (tmp_path / "ids").write_bytes("\ufeffa\r\nb\n".encode())
    result = ok("index", "-o", made, "--delete", "d", "--delete-file", tmp_path / "ids")
    assert "3 deleted" in result.stderr
    assert list(DocumentIndex.open(made)) == ["c"]


def test_deleting_a_document_that_is_not_there(made):
    message = refused("index", "-o", made, "--delete", "c", "--delete", "x")
    assert "no document 'x'" in message
    assert "nothing was deleted" in message


def test_with_documents_a_deletion_can_be_given_again(docs, made):
    message = ok("index", docs, "-o", made, "--delete", "x", "--delete", "c").stderr
    assert "1 deleted" in message


def test_an_empty_index_has_no_hits(made):
    ok("index", "-o", made, "--delete=a", "--delete=b", "--delete=c", "--delete=d")
    assert hits("katze", made) == []
    assert "No documents" in ok("search", "katze", made).stdout


def test_an_interrupted_run_goes_on(bag, tmp_path, monkeypatch):
    """Interrupted while it embeds the third batch; the same command goes on where it was."""
    rows = []
    for number, translation in enumerate(make_rows(300)):
        rows.append({"id": str(number), "text": " ".join(translation.values())})
    docs = write_rows(tmp_path / "docs.jsonl", rows)
    out = tmp_path / "index"
    monkeypatch.setattr(index_module, "BATCH", 50)
    encode = DocumentEmbedder.encode_with_report
    batches = 0

    def interrupted(self, texts, *args, **kwargs):
        nonlocal batches
        if len(texts) == 50:
            batches += 1
        if batches == 3:
            raise KeyboardInterrupt
        return encode(self, texts, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(DocumentEmbedder, "encode_with_report", interrupted)
        assert run("index", docs, "-o", out, "-m", bag).exit_code == 130
    assert sorted(DocumentIndex.open(out)) == sorted(row["id"] for row in rows[:100])
    assert "200 added, 0 updated, 100 unchanged" in ok("index", docs, "-o", out).stderr
    index = DocumentIndex.open(out)
    assert len(index) == 300
    for row in rows[::37]:
        assert index.documents([row["id"]])[0].text == row["text"]


# ---- Other inputs


def test_lines_of_text_are_known_by_file_and_row(bag, tmp_path):
    """Files of one name in two folders do not replace each other's documents."""
    out = tmp_path / "index"
    one = tmp_path / "1" / "part.txt"
    two = tmp_path / "2" / "part.txt"
    for path, content in ((one, "haus\nhund\n\nbaum\n"), (two, "ville\n")):
        path.parent.mkdir()
        path.write_text(content)
    result = ok("index", one, "-o", out, "-m", bag)
    assert "1 empty skipped" in result.stderr
    assert "1 added, 0 updated" in ok("index", two, "-o", out).stderr
    assert "0 added, 0 updated, 3 unchanged" in ok("index", one, "-o", out).stderr
    index = DocumentIndex.open(out)
    names = ["1/part.txt:1", "1/part.txt:2", "1/part.txt:4", "2/part.txt:1"]
    assert sorted(index) == names
    assert index.documents([names[2]])[0].text == "baum"


def test_stdin_is_indexed_once(bag, tmp_path):
    out = tmp_path / "index"
    ok("index", "-", "-o", out, "-m", bag, "--language", "it", input="casa\ncane\n")
    index = DocumentIndex.open(out)
    assert sorted(index) == ["stdin:1", "stdin:2"]
    assert index.documents(["stdin:2"])[0].metadata["language"] == "it"
    message = refused("index", "-", "-o", out, input="acqua\n")
    assert "have no ids and would replace those of an earlier run" in message


def test_parquet_with_columns_of_other_names(bag, tmp_path):
    out = tmp_path / "index"
    source = tmp_path / "in.parquet"
    columns = {
        "key": [7, 8],
        "body": ["ville", "nuit"],
        "lang": ["fr", "es"],
        "price": [float("nan"), 2],
    }
    pq.write_table(pa.table(columns), source)
    fields = ["--field", "body", "--id-field", "key", "--language-field", "lang"]
    ok("index", source, "-o", out, "-m", bag, *fields)
    (town,) = DocumentIndex.open(out).documents(["7"])
    assert town.text == "ville"
    assert town.metadata == {"language": "fr", "lang": "fr"}
    assert hit_ids("nuit", out, "--filter", "language=es") == ["8"]


def write_articles(path, name="lang", codes=("de-DE", "", "fr")):
    rows = [f"{number};Haus;hund {number};{code}" for number, code in enumerate(codes)]
    path.write_text("\n".join([f"key;title;body;{name}", *rows]))
    return path


ARTICLE_FIELDS = ["--id-field", "key", "--field", "title", "--field", "body"]


@pytest.mark.parametrize("name", ["lang", "language", "Locale"])
def test_a_column_of_codes_is_the_language(name, bag, tmp_path, caplog):
    source = write_articles(tmp_path / "in.csv", name)
    ok("index", source, "-o", tmp_path / "index", "-m", bag, *ARTICLE_FIELDS)
    is_said = f"the column {name!r} is used as the language" in caplog.text
    assert is_said == (name != "language")
    documents = DocumentIndex.open(tmp_path / "index").documents(["0", "1", "2"])
    assert [document.metadata.get("language") for document in documents] == ["de", None, "fr"]


def test_a_column_of_other_words_is_not_the_language(bag, tmp_path, caplog):
    source = write_articles(tmp_path / "in.csv", codes=("Deutsch", "de"))
    ok("index", source, "-o", tmp_path / "index", "-m", bag, *ARTICLE_FIELDS)
    assert "is taken" not in caplog.text
    (document,) = DocumentIndex.open(tmp_path / "index").documents(["0"])
    assert document.metadata == {"title": "Haus", "lang": "Deutsch"}


def test_a_title_that_is_a_part_of_the_text_is_shown_too(bag, tmp_path):
    source = write_articles(tmp_path / "in.csv")
    ok("index", source, "-o", tmp_path / "index", "-m", bag, *ARTICLE_FIELDS)
    (document,) = DocumentIndex.open(tmp_path / "index").documents(["0"])
    assert document.text == "Haus\n\nhund 0"
    assert document.metadata == {"language": "de", "title": "Haus", "lang": "de-DE"}


def test_a_folder_of_texts(bag, tmp_path, caplog):
    for name in ("de/a.txt", "es/a.md"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True)
        path.write_text("haus" if name.startswith("de") else "casa")
    out = tmp_path / "index"
    folder = tmp_path / "in"
    ok("index", folder, "-o", out, "-m", bag)
    assert f"{folder}: the folders de, es are used as the languages" in caplog.text
    assert hit_ids("haus", out) == ["in/de/a", "in/es/a"]
    assert hit_ids("haus", out, "--filter", "language=es", "--top-k", 1) == ["in/es/a"]


@pytest.mark.parametrize("name", ["notes", "notes/a.txt"])
def test_ids_do_not_depend_on_how_a_path_is_typed(bag, tmp_path, monkeypatch, name):
    """A folder of texts, and a file of which each line is a document."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("haus\nhund\n")
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    ok("index", name, "-o", "index", "-m", bag)
    ids = sorted(DocumentIndex.open("index"))
    file = name.removeprefix("notes").removeprefix("/")
    monkeypatch.chdir(folder)
    for source in (file or ".", f"../link/{file}", folder / file):
        assert "0 added, 0 updated" in ok("index", source, "-o", "../index").stderr
        assert "0 added, 0 updated" in ok("index", source, "-o", tmp_path / "index").stderr
    assert sorted(DocumentIndex.open("../index")) == ids


def test_source_and_target_of_a_memory_stand_side_by_side(bag, tmp_path):
    rows = [{"source": "haus", "target": "casa [1]", "n": 7}, {"source": "hund", "target": None}]
    memory = write_rows(tmp_path / "memory.jsonl", rows)
    out = tmp_path / "index"
    ok("index", memory, "-o", out, "-m", bag, "--field", "source", "--language", "de")
    table = ok("search", "haus", out).stdout
    heading, row = (line for line in table.splitlines() if "target" in line or "casa [1]" in line)
    assert "document" in heading
    assert "haus" in row
    assert hits("haus", out)[0]["metadata"] == {"language": "de", "target": "casa [1]", "n": 7}
    assert "target" not in ok("search", "haus", out, "--snippet-width", 0).stdout


def test_a_long_document_is_shown_by_its_nearest_passage(bag, tmp_path):
    text = "# Haus\n\nhund hund\n\n## Licht\n\nkatze baum\n"
    source = write_rows(tmp_path / "docs.jsonl", [{"id": "a", "text": text}])
    out = tmp_path / "index"
    ok("index", source, "-o", out, "-m", bag)
    (hit,) = hits("katze baum", out)
    assert (hit["heading"], hit["snippet"]) == ("Haus › Licht", "katze baum")
    assert hit["passage"] == "## Licht\n\nkatze baum"
    assert "Haus › Licht" in ok("search", "katze baum", out).stdout
    assert "passage" in hits("katze baum", out)[0]
    assert "found vectors of passages; omit --no-passages" in refused(
        "index", source, "-o", out, "--no-passages"
    )
    whole = tmp_path / "whole"
    ok("index", source, "-o", whole, "-m", bag, "--no-passages")
    assert "heading" not in hits("katze baum", whole)[0]


def test_passages_of_markdown_and_html_begin_at_headings(bag, tmp_path):
    source = tmp_path / "docs"
    source.mkdir()
    (source / "a.md").write_text("# Haus\n\nhund *hund*\n\nLicht\n-----\n\nkatze **baum**\n")
    (source / "b.html").write_text("<h1>Stadt</h1><p>fluss</p><h2>Nacht</h2><p>brot wasser</p>")
    ok("index", source, "-o", tmp_path / "index", "-m", bag)
    for query, heading in (("katze baum", "Haus › Licht"), ("brot wasser", "Stadt › Nacht")):
        hit = hits(query, tmp_path / "index")[0]
        assert (hit["heading"], hit["snippet"]) == (heading, query)


def test_texts_of_one_name_in_two_folders(bag, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", "haus"), ("b", "hund")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text(text)
        ok("index", name, "-o", "index", "-m", bag)
    assert "1 unchanged" in ok("index", "./a/", "-o", "index").stderr
    assert sorted(DocumentIndex.open("index")) == ["a/notes", "b/notes"]


def test_a_path_that_is_typed_in_another_way_is_the_same_file(bag, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "news.txt").write_text("haus\n")
    ok("index", "news.txt", "-o", "index", "-m", bag)
    assert "0 added, 0 updated, 1 unchanged" in ok("index", "./news.txt", "-o", "index").stderr


def test_a_folder_of_tables_without_ids(bag, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name, text in (("a.csv", "haus"), ("b.csv", "hund")):
        (folder / name).write_text(f"text\n{text}\n")
    ok("index", folder, "-o", tmp_path / "index", "-m", bag)
    assert sorted(DocumentIndex.open(tmp_path / "index")) == [
        "in/a.csv:2",
        "in/b.csv:2",
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_an_index_within_the_folder_of_its_documents(name, bag, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / name).write_text("text\nhaus\n" if name == "a.csv" else '{"text": "haus"}\n')
    ok("index", folder, "-o", folder / "index", "-m", bag)
    assert "0 added, 0 updated, 1 unchanged" in ok("index", folder, "-o", folder / "index").stderr


def test_the_language_option_goes_before_a_column_of_languages(bag, tmp_path):
    source = write_rows(tmp_path / "in.jsonl", [{"id": 1, "text": "haus", "language": "de-DE"}])
    ok("index", source, "-o", tmp_path / "index", "-m", bag, "--language", "fr")
    (document,) = DocumentIndex.open(tmp_path / "index").documents(["1"])
    assert document.metadata == {"language": "fr"}


def test_an_id_of_two_files(bag, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.csv", "b.csv"):
        (folder / name).write_text("id,text\n7,haus\n")
    message = refused("index", folder, "-o", tmp_path / "index", "-m", bag)
    place = f"{folder}/b.csv, row 2, field 'id'"
    assert f"{place}: found '7', which is also the id of row 2 of {folder}/a.csv" in message


def test_filters_are_either_within_a_name_and_all_between_names(made):
    both_languages = ["--filter", "language=de", "--filter", "language=es"]
    assert sorted(hit_ids("haus", made, *both_languages)) == IDS
    assert hit_ids("haus", made, *both_languages, "--filter", "title=Haus") == ["b"]


def test_a_piped_table_is_not_cut_at_80_columns(bag, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    title = "Donaudampfschifffahrt" * 8
    source = write_rows(tmp_path / "docs.jsonl", [{"id": "a", "text": "haus", "title": title}])
    ok("index", source, "-o", tmp_path / "index", "-m", bag)
    assert title in ok("search", "haus", tmp_path / "index").stdout


def test_models_that_move(made, bag, tokenizer, docs, tmp_path):
    moved = save_bag(tmp_path / "moved", tokenizer)
    assert hits("hund", made, "-m", moved) == hits("hund", made)
    manifest = made / "index.json"
    manifest.write_text(manifest.read_text().replace(str(bag), str(tmp_path / "gone")))
    for command in (("search", "hund", made), ("index", docs, "-o", made)):
        message = refused(*command)
        assert "gone" in message
        assert "; see --model" in message
        ok(*command, "-m", moved)


# ---- Mistakes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-o new", "Nothing to do; give DOCS"),
        (
            "-o index --delete a --prune",
            "DOCS is missing; --prune deletes documents that are not in it",
        ),
        ("docs.jsonl -o full -m BAG", "is not empty; choose a new folder"),
        ("docs.jsonl -o new -m BAG --id-field key", "no column 'key'"),
        ("docs.jsonl -o index --language de --language-field language", "can't be combined"),
        (
            "twice.jsonl -o index",
            "twice.jsonl, row 3, field 'id': found 'a', which is also the id of row 1",
        ),
    ],
)
def test_bad_arguments_to_index(made, bag, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("text")
    write_rows(tmp_path / "twice.jsonl", [ROWS[0], ROWS[1], ROWS[0]])
    arguments = [str(bag) if word == "BAG" else word for word in words.split()]
    assert message in refused("index", *arguments)
    assert not (tmp_path / "new").exists()
    assert sorted(DocumentIndex.open(made)) == IDS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["index"], "expected QUERY in quotes, and INDEX"),
        (["", "index"], "QUERY: found no text"),
        (["query", "index", "--filter", "language"], "expected NAME=VALUE"),
        (["index", "--queries", "bad"], "bad, row 2: found the undecodable bytes"),
        (["index", "--queries", "-"], "found no text"),
    ],
)
def test_bad_arguments_to_search(made, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").write_bytes(b"fine\n\xff")
    assert message in refused("search", *arguments, input="\n \n")


def test_where(made):
    assert hit_ids("haus", made, "--where", "language = 'de' AND title LIKE 'Fl%'") == ["c"]
    assert hit_ids("haus", made, "--where", "title IS NULL", "--filter", "language=es") == ["d"]


def test_a_where_by_an_unknown_column(made):
    message = refused("search", "haus", made, "--where", "year > 3")
    assert "where: found 'year > 3', expected a condition in SQL" in message
    assert "id, text, language, title" in message


def test_a_filter_that_matches_nothing_is_told(made):
    result = ok("search", "haus", made, "--filter", "language=fr")
    assert (
        "--filter language=fr: no document has this value; the values are: de, es" in result.stderr
    )


def test_a_filter_takes_locales(made):
    arguments = ("haus hund", made, "--filter", "language=de-DE")
    assert sorted(hit_ids(*arguments)) == ["b", "c"]
    assert "no document" not in ok("search", *arguments).stderr


def test_weak_hits_of_the_packaged_model_are_marked(tmp_path):
    text = "The central bank has raised its interest rates again."
    source = write_rows(tmp_path / "news.jsonl", [{"id": "1", "text": text}])
    ok("index", source, "-o", tmp_path / "index")
    result = ok("search", "Fußball im Regen", tmp_path / "index")
    assert " weak" in result.stdout
    assert "No document matches well: all scores are below 0.2." in result.stdout
    result = ok("search", "Die Zentralbank erhöht die Zinsen.", tmp_path / "index")
    assert "weak" not in result.stdout
    assert "matches well" not in result.stdout


def test_hits_of_other_models_are_not_marked(made):
    assert "weak" not in ok("search", "pan agua", made).stdout


# ---- Metadata


def test_types_of_metadata_that_show_far_down(bag, tmp_path, monkeypatch):
    """A list that is empty in the first batches holds numbers later; a bad row changes nothing."""
    monkeypatch.setattr(index_module, "BATCH", 2)
    rows = [{"id": str(number), "text": f"word {number}", "tags": []} for number in range(5)]
    rows.append({"id": "5", "text": "word 5", "tags": [7, 8], "big": 2**53 + 1})
    docs = write_rows(tmp_path / "docs.jsonl", rows)
    ok("index", docs, "-o", tmp_path / "index", "-m", bag)
    index = DocumentIndex.open(tmp_path / "index")
    assert index.documents(["5"])[0].metadata == {"tags": [7, 8], "big": 2**53 + 1}

    rows[5]["tags"] = "seven"
    write_rows(docs, rows)
    message = refused("index", docs, "-o", tmp_path / "other", "-m", bag)
    assert "document '5': metadata 'tags' is 'seven'" in message
    assert len(DocumentIndex.open(tmp_path / "other")) == 0
