"""Documents in five languages: classification and retrieval from one table."""

import datasets
import pytest

from modeling_tmde.eval.tasks import TASKS, data_fingerprint

TOPICS, DOCUMENTS = TASKS["topic_documents"](), TASKS["document_retrieval"]()


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
