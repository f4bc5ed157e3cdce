"""Documents in five languages: classification and retrieval from one table."""

import json

import datasets
import pytest

from modeling_tmde.eval.tasks import TASKS, TaskError, data_fingerprint

TOPICS, DOCUMENTS = TASKS["topic_documents"](), TASKS["document_retrieval"]()


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return str(path)


def document_rows(languages=("de", "en"), sizes=(("train", 3), ("dev", 2), ("test", 4))):
    return [
        {
            "doc_id": f"docs/{'ab'[i % 2]}/{split}{i}.md",
            "language": language,
            "title": f"{language} title {i}",
            "text": f"{split} one {i}\n\ntwo",
            "label": "ab"[i % 2],
            "split": split,
        }
        for language in languages
        for split, size in sizes
        for i in range(size)
    ]


@pytest.mark.parametrize("streaming", [False, True])
def test_documents(streaming, tmp_path, dataset_folder):
    rows = document_rows()
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "topic_documents.parquet")
    datasets.Dataset.from_list([{"other": 1}]).to_parquet(tmp_path / "sib200.parquet")
    by_split = {name: [row for row in rows if row["split"] == name] for name in ("train", "dev", "test")}
    in_splits = {
        {"dev": "validation"}.get(name, name): [{k: v for k, v in row.items() if k != "split"} for row in part]
        for name, part in by_split.items()
    }
    hub = dataset_folder({"default": in_splits})  # splits of the Hub instead of the column
    loaded = [TOPICS.load(source, streaming=streaming) for source in (tmp_path / "topic_documents.parquet", hub)]
    loaded.append(TOPICS.load(tmp_path, streaming=streaming))
    assert len({data_fingerprint(data) for data in loaded}) == 1
    dev = loaded[0].splits["en"]["dev"]
    assert list(dev.texts) == ["en title 0\n\ndev one 0\n\ntwo", "en title 1\n\ndev one 1\n\ntwo"]
    assert list(dev.ids) == ["docs/a/dev0.md", "docs/b/dev1.md"] and list(dev.labels) == ["a", "b"]
    assert list(loaded[0].splits["de"]) == ["train", "dev", "test"]
    for data in loaded:
        splits = [split for by_name in data.splits.values() for split in by_name.values()]
        assert not any("docs/" in text for split in splits for text in split.texts)
    found = DOCUMENTS.load(hub, languages=["en", "de"], streaming=streaming)
    assert list(found.ids) == [f"docs/{'ab'[i % 2]}/test{i}.md" for i in range(4)]
    assert found.languages == ["en", "de"] and found.texts["de"][3] == "de title 3\n\ntest one 3\n\ntwo"
    assert len(DOCUMENTS.load(hub, split="train", streaming=streaming).ids) == 3


def test_documents_that_a_language_lacks(tmp_path):
    rows = [row for row in document_rows() if (row["language"], row["doc_id"]) != ("en", "docs/b/test1.md")]
    data = DOCUMENTS.load(write_jsonl(tmp_path / "documents.jsonl", rows), languages=["en", "de"])
    assert list(data.ids) == ["docs/a/test0.md", "docs/a/test2.md", "docs/b/test3.md", "docs/b/test1.md"]
    assert data.texts["en"][3] is None and data.texts["de"][3].startswith("de title 1")


def test_documents_errors(tmp_path):
    path = tmp_path / "documents.jsonl"
    with pytest.raises(TaskError, match=r"Pass source= with topic_documents\.parquet"):
        TOPICS.load()
    source = write_jsonl(path, document_rows(sizes=(("train", 2), ("test", 2))))
    with pytest.raises(TaskError, match=r"found 'dev', expected one of the splits of de: train, test\."):
        TOPICS.load(source)
    with pytest.raises(TaskError, match=r"found 'dev', expected one of the splits of de"):
        DOCUMENTS.load(source, split="dev")
    with pytest.raises(TaskError, match=r"found 'it', expected languages of the data: de, en\."):
        DOCUMENTS.load(source, languages=["it"])
    rows = document_rows()
    rows[-1] = rows[-1] | {"label": "a"}
    with pytest.raises(TaskError, match=r"language en, split test, id docs/b/test3\.md, field 'label': found 'a'"):
        TOPICS.load(write_jsonl(path, rows))
    rows[-1] = rows[-2]
    with pytest.raises(TaskError, match=r"language en, split test: ids must differ, found 'docs/a/test2\.md' twice"):
        DOCUMENTS.load(write_jsonl(path, rows))
    rows = [{k: v for k, v in row.items() if k != "split"} for row in document_rows()]
    with pytest.raises(TaskError, match=r"documents\.jsonl, field 'split': found the columns .*expected also"):
        TOPICS.load(write_jsonl(path, rows))
    with pytest.raises(TaskError, match=r"row 2, field 'title': found None, expected a text"):
        TOPICS.load(write_jsonl(path, [*document_rows()[:1], document_rows()[1] | {"title": None}]))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(TaskError, match=r"empty, field 'source': found no such file, expected files ending"):
        TOPICS.load(empty)


def test_shared_documents(shared_file):
    path = shared_file("eval/topic_documents.parquet")
    data = TOPICS.load(path)
    assert data.languages == ["de", "en", "es", "fr", "it"]
    for splits in data.splits.values():
        assert [len(splits[name]) for name in ("train", "dev", "test")] == [400, 200, 800]
        assert not any("msdocs_operations/" in text for split in splits.values() for text in split.texts)
    found = DOCUMENTS.load(path)
    assert len(found.ids) == 800 and all(None not in texts for texts in found.texts.values())
    english = data.splits["en"]["test"]
    assert found.texts["en"][17] == english.texts[english.ids.index(found.ids[17])]
