"""Across tasks: what each says of itself, and what is claimed of where data come from."""

import inspect

import datasets
import pytest

from tmde.eval.tasks import GROUPS, TASKS

TEXT = {"text": "a", "title": "a", "doc_id": "a", "label": "CCAT", "index_id": 0, "category": "x"}
PAIR = {"premise": "a", "hypothesis": "b", "label": 0}


def text_configs(names, row):
    splits = ("train", "validation", "test")
    return {name: {split: [row | {"language": name}] for split in splits} for name in names}


PARALLEL = {
    f"{a}-{b}": {"train": [{"translation": {a: f"{a} {n}", b: f"{b} {n}"}} for n in range(3)]}
    for a, b in (("de", "en"), ("en", "pl"))
}
CASES = {  # data of each task, options of `load`
    "sib200": (text_configs(("deu_Latn", "eng_Latn"), TEXT), {}),
    "xnli": (text_configs(("de", "en"), PAIR), {}),
    "xnli_translate_train": (text_configs(("de", "en"), PAIR), {}),
    "mldoc": (text_configs(("de", "en"), TEXT), {}),
    "topic_documents": (text_configs(("de", "en"), TEXT), {}),
    "document_retrieval": (text_configs(("de", "en"), TEXT), {}),
    "tatoeba": ({"deu-eng": {"test": [{"sentence1": "a", "sentence2": "b"}]}}, {}),
    "europarl_matrix": (PARALLEL, {"rows": 3}),
    "xsr": (PARALLEL, {"queries": 2, "candidates": 3}),
    "sts": ({"en-de": {"test": [{"sentence1": "a", "sentence2": "b", "score": 1.0}]}}, {}),
    "sentence_retrieval": (PARALLEL, {}),
}
KNOWN = {
    "sib200",
    "xnli",
    "xnli_translate_train",
    "mldoc",
}  # any source in their format is a copy of the benchmark
TRAIN = {"europarl_matrix", "xsr", "sentence_retrieval"}


def test_every_task_describes_itself():
    for name, task in TASKS.items():
        assert task.name == name and task.description and "\n" not in task.description
        assert list(inspect.signature(task().load).parameters)[:3] == [
            "source",
            "languages",
            "streaming",
        ]
    files = {"sample", "word_order", "xnli_translate_test", "rcv", "wmt16", "wmt19"}
    assert set(TASKS) == {*CASES, *GROUPS["probing"], *GROUPS["senteval"], *files}


@pytest.mark.parametrize("name", CASES)
def test_provenance(name, dataset_folder, monkeypatch):
    configs, options = CASES[name]
    folder, task = dataset_folder(configs, name=name), TASKS[name]()
    for function in ("load_dataset", "get_dataset_config_names", "get_dataset_split_names"):
        original = getattr(
            datasets, function
        )  # requests for a dataset of the Hub are answered from the folder
        answer = lambda path, *args, original=original, **other: original(folder, *args, **other)  # noqa: E731
        monkeypatch.setattr(datasets, function, answer)
    for source, hub_id in ((folder, None), ("someone/else", "someone/else")):
        found = task.load(source, **options).provenance
        assert (found.source, found.hub_id, found.split) == (
            source,
            hub_id,
            "train" if name in TRAIN else "test",
        )
        assert (found.citation == found.licence == "as given by the source") == (name not in KNOWN)
        assert (found.url is None) == (name not in KNOWN)
    if task.default_source is not None:
        default = task.load(**options).provenance
        assert default.hub_id == default.source == task.default_source
        assert default.url and "as given" not in default.citation + default.licence
