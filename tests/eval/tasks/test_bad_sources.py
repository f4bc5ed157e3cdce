"""What a user may give wrong: one clear error that names file, row and field, or the option."""

import json

import pytest

from tmde.eval.tasks import TASKS, Split, TaskError

GOOD = {"doc_id": "1", "language": "de", "title": "a", "text": "b", "label": "x", "split": "train"}
STS_HEADER = "sentence1\tsentence2\tscore\tlang\n"


@pytest.fixture
def files(tmp_path):
    rows = [{"translation": {"de": f"satz {n}", "en": f"sentence {n}"}} for n in range(6)]
    contents = {
        "rows.jsonl": rows,
        "wrong.jsonl": [*rows, {"translation": {"de": 3, "en": "b"}}],
        "documents.jsonl": [GOOD, GOOD],
        "untitled.jsonl": [{key: value for key, value in GOOD.items() if key != "title"}],
        "labels.jsonl": [GOOD, GOOD | {"doc_id": "2", "label": None}],
        "disagree.jsonl": [GOOD, GOOD | {"language": "en", "label": "y"}],
    }
    for name, lines in contents.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("a", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("mldoc", {}, "'source': found None.*NIST.*generate_documents.py"),
        ("mldoc", {"source": ""}, "a folder with MLDoc's files"),
        ("wmt16", {"source": "."}, r"found no file, expected test\.pairs.*lett\.gz"),
        ("rcv", {"source": "."}, "train/DE1000: found no documents.* NIST"),
        (
            "topic_documents",
            {"source": "documents.jsonl"},
            "language de, split train: .*found '1' twice",
        ),
        (
            "topic_documents",
            {"source": "untitled.jsonl"},
            r"untitled.jsonl, field 'title': found the columns",
        ),
        (
            "topic_documents",
            {"source": "labels.jsonl"},
            r"labels.jsonl, row 2, field 'label': found None",
        ),
        (
            "topic_documents",
            {"source": "disagree.jsonl"},
            r"split train, id 1, .*'y', expected .*, 'x'\.",
        ),
        (
            "topic_documents",
            {"source": "notes.txt"},
            "unknown format, expected files ending in .parquet",
        ),
        (
            "xnli",
            {"source": "rows.jsonl"},
            r"found no file, expected xnli\.dev\.tsv\. Pass .* XNLI-1\.0\.zip",
        ),
        ("sentence_retrieval", {}, "'source': found None.*parallel text"),
        (
            "xsr",
            {"source": "rows.jsonl", "queries": 9, "candidates": 4},
            "found 9, expected at most candidates=4",
        ),
        ("word_order", {"source": "mine.jsonl"}, "found the source '.*mine.jsonl', expected none"),
        (
            "word_order",
            {"phenomena": ["tense"]},
            r"found phenomena=\['tense'\], expected a list of roles",
        ),
        (
            "sample",
            {"languages": ["pl"]},
            r"found 'pl', expected .* in the data \(de, en, es, fr, it\)",
        ),
        ("sample", {"sizes": [4, 4, 0]}, "'sizes': found 0, expected a whole number from 1"),
    ],
)
def test_bad_sources(task, options, message, files):
    if "source" in options:
        options = options | {"source": str(files / options["source"])}
    with pytest.raises(TaskError, match=message):
        data = TASKS[task]().load(**options)
        list(getattr(data, "ids", ()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "sentence1\tsentence2\tscore\na\tb\t1\n",
            "row 2, field 'lang': found 'pairs'.*name the file like en-de.tsv",
        ),
        (
            STS_HEADER + "a\tb\t1\tde\n",
            r"row 2, field 'lang': found 'de', expected two language codes",
        ),
        (
            STS_HEADER + "a\tb\thigh\ten-de\n",
            r"row 2, field 'score': found 'high', expected a finite number",
        ),
        (STS_HEADER + "a\t1\ten-de\n", r"row 2: found 3 field\(s\), expected 4"),
    ],
)
def test_bad_similarities(content, message, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(content)
    with pytest.raises(TaskError, match=r"pairs\.tsv.*" + message):
        TASKS["sts"]().load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"CCAT\ta\nno tab\n",
            r"mldoc.de.dev, row 2: found 'no tab', expected label<TAB>text.*index files",
        ),
        (
            b"CCAT\ta\nXCAT\tb\n",
            r"mldoc.de.dev, row 2, field 'label': found 'XCAT', expected one of CCAT, ECAT, GC",
        ),
        (
            b"CCAT\ta\nMCAT\t\xe9t\xe9\n",
            r"mldoc.de.dev, row 2: found the undecodable bytes .*expected UTF-8",
        ),
        (
            b"CCAT\ta\nMCAT\tb'\\xe9t\\xe9'\n",
            r"mldoc.de.dev, row 2, field 'text': found .*bytes literal",
        ),
        (b"", r"mldoc.de.dev: found no rows"),
    ],
)
def test_bad_lines_of_mldoc(content, message, tmp_path):
    (tmp_path / "mldoc.de.dev").write_bytes(content)
    with pytest.raises(TaskError, match=message):
        TASKS["mldoc"]().load(tmp_path)


def test_a_pair_without_gold_label(dataset_folder):
    configs = {
        "de": {"test": [{"premise": "a", "hypothesis": "b", "label": label} for label in (1, -1)]}
    }
    message = (
        r"\(config de, split test\), row 2, field 'label': found -1, expected one of entailment"
    )
    with pytest.raises(TaskError, match=message):
        TASKS["xnli"]().load(dataset_folder(configs))


def test_repeated_ids_are_refused():
    with pytest.raises(TaskError, match="a split: expected distinct ids, found 'b' twice"):
        Split(["a", "b", "c", "b"], ["t"] * 4, ["l"] * 4)


def test_a_row_that_is_no_text_is_left_out_and_reported(files, caplog):
    data = TASKS["sentence_retrieval"]().load(str(files / "wrong.jsonl"))
    assert len(data.ids) == 6
    assert "wrong.jsonl: 7 rows read, 6 kept, 1 bad row dropped" in caplog.text
    assert "row 7, field 'de': found 3, expected a text" in caplog.text
