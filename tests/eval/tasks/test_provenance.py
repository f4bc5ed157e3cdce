"""Across tasks: what each says of itself, and what is claimed of where data come from."""

import functools
import inspect

import datasets
import pytest

from tmde.eval.tasks import GROUPS, TASKS

TEXT = {"text": "a", "title": "a", "doc_id": "a", "label": "CCAT", "index_id": 0, "category": "x"}
PREMISE = {"premise": "a", "hypothesis": "b", "label": 0}


def labeled_configs(names, row):
    """A row in each split of each config."""
    configs = {}
    for name in names:
        rows = [row | {"language": name}]
        configs[name] = {"train": rows, "validation": rows, "test": rows}
    return configs


def parallel_config(first, second):
    rows = [{"translation": {first: f"{first} {n}", second: f"{second} {n}"}} for n in range(3)]
    return {f"{first}-{second}": {"train": rows}}


PARALLEL = parallel_config("de", "en") | parallel_config("en", "pl")
# Data of each task that reads datasets.
CONFIGS = {
    "sib200": labeled_configs(("deu_Latn", "eng_Latn"), TEXT),
    "xnli": labeled_configs(("de", "en"), PREMISE),
    "xnli_translate_train": labeled_configs(("de", "en"), PREMISE),
    "snli": labeled_configs(("plain_text",), PREMISE),
    "mldoc": labeled_configs(("de", "en"), TEXT),
    "topic_documents": labeled_configs(("de", "en"), TEXT),
    "document_retrieval": labeled_configs(("de", "en"), TEXT),
    "tatoeba": {"deu-eng": {"test": [{"sentence1": "a", "sentence2": "b"}]}},
    "europarl_matrix": PARALLEL,
    "xsr": PARALLEL,
    "sts": {"en-de": {"test": [{"sentence1": "a", "sentence2": "b", "score": 1.0}]}},
    "sentence_retrieval": PARALLEL,
    "vector_geometry": PARALLEL,
}
OPTIONS = {"europarl_matrix": {"rows": 3}, "xsr": {"queries": 2, "candidates": 3}}
# Any source in their format is a copy of the benchmark.
COPIES = {"sib200", "snli", "xnli", "xnli_translate_train", "mldoc"}
TESTED_ON_TRAIN = {"europarl_matrix", "xsr", "sentence_retrieval", "vector_geometry"}
FROM_FILES = {
    "coco_captions",
    "labeled_documents",
    "question_retrieval",
    "sample",
    "word_order",
    "xnli_translate_test",
    "rcv",
    "sentence_alignment",
    "wmt16",
    "wmt19",
}


def test_every_task_has_a_case_here_or_tests_of_its_files():
    described = {*CONFIGS, *GROUPS["probing"], *GROUPS["senteval"], *FROM_FILES}
    assert set(TASKS) == described, "name a new task in CONFIGS, or in FROM_FILES"


def test_every_task_describes_itself_in_one_line():
    for name, task in TASKS.items():
        assert task.name == name
        assert task.description, name
        assert "\n" not in task.description, name


def test_a_task_without_a_default_source_says_what_it_needs():
    for name, task in TASKS.items():
        assert (task.default_source is None) == bool(task.needs), name


def test_every_task_loads_by_source_languages_and_streaming():
    for name, task in TASKS.items():
        parameters = list(inspect.signature(task().load).parameters)
        assert parameters[:3] == ["source", "languages", "streaming"], name


@pytest.fixture
def hub(dataset_folder, monkeypatch):
    """`hub(name of a task)`: a folder with its data, which also answers requests to the Hub."""

    def build(name: str) -> str:
        folder = dataset_folder(CONFIGS[name], name=name)
        for function in ("load_dataset", "get_dataset_config_names", "get_dataset_split_names"):
            original = getattr(datasets, function)

            @functools.wraps(original)
            def answer(path, *args, original=original, **options):
                return original(folder, *args, **options)

            monkeypatch.setattr(datasets, function, answer)
        return folder

    return build


def provenance(name, source=None):
    return TASKS[name]().load(source, **OPTIONS.get(name, {})).provenance


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("is_folder", [True, False])
def test_the_source_and_the_split_are_stated(name, is_folder, hub):
    folder = hub(name)
    source = folder if is_folder else "someone/else"
    stated = provenance(name, source)
    assert stated.source == source
    assert stated.hub_id == (None if is_folder else "someone/else")
    assert stated.split == ("train" if name in TESTED_ON_TRAIN else "test")


@pytest.mark.parametrize("name", sorted(COPIES))
def test_a_source_in_the_format_of_a_benchmark_is_a_copy_of_it(name, hub):
    hub(name)
    stated = provenance(name, "someone/else")
    assert stated.citation == TASKS[name].provenance.citation
    assert stated.url is not None


@pytest.mark.parametrize("name", sorted(set(CONFIGS) - COPIES))
def test_nothing_is_claimed_of_another_source(name, hub):
    hub(name)
    stated = provenance(name, "someone/else")
    assert stated.citation == "as given by the source"
    assert stated.license == "as given by the source"
    assert stated.url is None


WITH_DEFAULT = [name for name in CONFIGS if TASKS[name].default_source is not None]


@pytest.mark.parametrize("name", WITH_DEFAULT)
def test_the_default_source_is_the_benchmark(name, hub):
    hub(name)
    stated = provenance(name)
    assert stated.hub_id == TASKS[name].default_source
    assert stated.source == TASKS[name].default_source
    assert stated.url
    assert "as given" not in stated.citation
    assert "as given" not in stated.license
