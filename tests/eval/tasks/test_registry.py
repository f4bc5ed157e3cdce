"""What every task promises, and the checks of the data classes."""

import inspect

import datasets
import pytest

from modeling_tmde.eval.tasks import TASKS, Provenance, RetrievalData, SimilarityPairs, Split, TaskError

NAMES = {
    "document_retrieval",
    "europarl_matrix",
    "mldoc",
    "sample",
    "sentence_retrieval",
    "sib200",
    "sts",
    "tatoeba",
    "topic_documents",
    "word_order",
    "xnli",
    "xsr",
}


def test_all_tasks_are_found():
    assert set(TASKS) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_task_describes_itself(name):
    task = TASKS[name]()
    assert task.name == name and task.description and "\n" not in task.description
    assert list(task.languages) == list(dict.fromkeys(task.languages))
    options = list(inspect.signature(task.load).parameters)
    assert options[:3] == ["source", "languages", "streaming"]


def test_an_option_that_a_task_lacks_is_an_error():
    with pytest.raises(TypeError, match="max_trian"):
        TASKS["xnli"]().load(max_trian=3)


@pytest.mark.parametrize("streaming", [False, True])
def test_streaming_is_passed_on(streaming, dataset_folder, monkeypatch):
    asked, load_dataset = [], datasets.load_dataset

    def recorded(*args, **options):
        asked.append(options["streaming"])
        return load_dataset(*args, **options)

    monkeypatch.setattr(datasets, "load_dataset", recorded)
    pair = {"sentence1": "a", "sentence2": "b", "score": 1.0, "premise": "a", "hypothesis": "b", "label": 0}
    topic = {"text": "a", "index_id": 0, "category": "x"}
    label = {"text": "a", "label": "CCAT"}
    document = {"doc_id": "a", "language": "de", "title": "a"} | label
    rows = {"en-de": [pair], "deu-eng": [pair], "de": [pair], "deu_Latn": [topic], "german": [label], "x": [document]}
    for name, config in zip(("sts", "tatoeba", "xnli", "sib200", "mldoc", "topic_documents"), rows, strict=True):
        asked.clear()
        splits = {split: rows[config] for split in ("train", "validation", "test")}
        TASKS[name]().load(dataset_folder({config: splits}, name=name), streaming=streaming)
        assert asked and set(asked) == {streaming}


def test_data_classes_refuse_repeats_and_lengths():
    with pytest.raises(TaskError, match="a split: ids must differ, found 'b' twice"):
        Split(["a", "b", "c", "b"], ["t"] * 4, ["l"] * 4)
    with pytest.raises(TaskError, match="'ids': 1, 'texts': 2"):
        Split(["a"], ["t"] * 2, ["l"] * 2)
    with pytest.raises(TaskError, match="retrieval data: ids must differ, found 'a' twice"):
        RetrievalData(["a", "a"], {}, Provenance("", ""))
    with pytest.raises(TaskError, match="similarity pairs: ids must differ, found 'a' twice"):
        SimilarityPairs(["a", "a"], ["x"] * 2, ["y"] * 2, [1.0] * 2)
    with pytest.raises(TaskError, match="'second': 1"):
        SimilarityPairs(["a", "b"], ["x"] * 2, ["y"], [1.0] * 2)
