"""What a user may give wrong: one clear error that names file, row and field, or the option."""

import json

import pytest

from modeling_tmde.eval.tasks import TASKS, TaskError

GOOD = {"doc_id": "1", "language": "de", "title": "a", "text": "b", "label": "x", "split": "train"}


@pytest.fixture
def files(tmp_path):
    rows = [{"translation": {"de": f"satz {n}", "en": f"sentence {n}"}} for n in range(6)]
    contents = {
        "rows.jsonl": rows,
        "wrong.jsonl": [*rows, {"translation": {"de": 3, "en": "b"}}],
        "documents.jsonl": [GOOD, GOOD],
        "untitled.jsonl": [{key: value for key, value in GOOD.items() if key != "title"}],
        "labels.jsonl": [GOOD, GOOD | {"doc_id": "2", "label": None}],
        "sib.jsonl": [{"language": "deu_Latn", "split": "train", "index_id": 1, "label": "x", "text": "b"}],
    }
    for name, lines in contents.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "mldoc.de.dev").write_text("CCAT\ta\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("a", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("mldoc", {}, "'source': found None.*NIST.*generate_documents.py"),
        ("mldoc", {"source": ""}, "for de only .*a file such as mldoc.de.train.1000"),
        ("mldoc", {"source": "notes.txt"}, "a folder with MLDoc's files"),
        (
            "topic_documents",
            {"source": "documents.jsonl"},
            "'split': found 'dev'|ids must differ",
        ),
        ("topic_documents", {"source": "untitled.jsonl"}, r"untitled.jsonl, field 'title': found the columns"),
        ("topic_documents", {"source": "labels.jsonl"}, r"labels.jsonl, row 2, field 'label': found None"),
        ("topic_documents", {"source": "notes.txt"}, "found no such file, expected files ending in .parquet"),
        ("sib200", {"source": "sib.jsonl"}, "language de, field 'split': found the splits train, expected also 'dev'"),
        ("sib200", {"source": "sib.jsonl", "languages": ["fr"]}, "found 'fr', expected languages of the data: de"),
        ("xnli", {"source": "rows.jsonl"}, "expected a folder with a README.md"),
        ("xnli", {"source": "owner/name"}, "Couldn't reach 'owner/name'"),
        ("xnli", {"max_train": 0}, "'max_train': found 0, expected a whole number from 1"),
        ("sentence_retrieval", {}, "'source': found None.*parallel text"),
        ("sentence_retrieval", {"source": "rows.jsonl", "languages": ["de", "it"]}, "found 'it', expected one of"),
        ("sentence_retrieval", {"source": "rows.jsonl", "languages": "de"}, "found 'de', expected"),
        ("sentence_retrieval", {"source": "rows.jsonl", "max_rows": True}, "'max_rows': found True, expected a whole"),
        ("sentence_retrieval", {"source": "none.jsonl"}, "no such file or folder"),
        (
            "sentence_retrieval",
            {"source": "wrong.jsonl"},
            "wrong.jsonl, row 7, field 'translation.de': found 3",
        ),
        ("xsr", {"source": "rows.jsonl", "languages": ["de", "en"]}, "'candidates': found 6 rows with all"),
        ("xsr", {"source": "rows.jsonl", "queries": 9, "candidates": 4}, "found 9, expected at most candidates=4"),
        ("europarl_matrix", {"source": "rows.jsonl", "languages": ["de", "en"], "rows": 7}, "'rows': found 6 rows"),
        ("tatoeba", {"source": ""}, "expected tatoeba.deu-eng.deu and tatoeba.deu-eng.eng"),
        ("word_order", {"source": "mine.jsonl"}, "found the source '.*mine.jsonl', expected none"),
        ("word_order", {"phenomena": ["tense"]}, r"found phenomena=\['tense'\], expected a list of roles"),
        ("sample", {"languages": ["pl"]}, "found 'pl', expected languages of the data: de, en, es, fr, it"),
        ("sts", {"source": "rows.jsonl"}, "field 'sentence1': found the columns translation"),
    ],
)
def test_bad_sources(task, options, message, files, no_network):
    if "source" in options and "/" not in options["source"]:
        options = options | {"source": str(files / options["source"])}
    with pytest.raises(TaskError, match=message):
        data = TASKS[task]().load(**options)
        list(getattr(data, "ids", ()))
