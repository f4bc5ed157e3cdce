"""What every task promises, and the checks of the data classes."""

import inspect

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
