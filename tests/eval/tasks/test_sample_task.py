"""The sample task: sizes, languages and errors."""

import pytest

from modeling_tmde.eval.tasks import TASKS, TaskError

SAMPLE = TASKS["sample"]()


def test_sizes_and_languages():
    data = SAMPLE.load(languages=["fr", "de"], sizes=[8, 3, 5])
    assert data.languages == ["fr", "de"] and data.provenance.split == "test"
    for splits in data.splits.values():
        assert {name: len(split) for name, split in splits.items()} == {"train": 8, "dev": 3, "test": 5}
    assert list(data.splits["fr"]["test"].ids) == list(data.splits["de"]["test"].ids)
    assert list(data.splits["fr"]["test"].labels) == list(data.splits["de"]["test"].labels)


@pytest.mark.parametrize("sizes", [[1, 2], 7, "1e3", [1, 2, None], {"train": 1}])
def test_sizes_must_be_three(sizes):
    with pytest.raises(TaskError, match=r"found sizes=.*, expected three numbers: train, dev, test\."):
        SAMPLE.load(sizes=sizes)


@pytest.mark.parametrize("size", [0, -1, 2.0, "9", True])
def test_sizes_must_be_whole(size):
    with pytest.raises(TaskError, match=f"field 'sizes': found {size!r}, expected a whole number from 1"):
        SAMPLE.load(sizes=[4, 4, size])


def test_unknown_language():
    with pytest.raises(TaskError, match=r"found 'pl', expected languages of the data: de, en, es, fr, it\."):
        SAMPLE.load(languages=["de", "pl"], sizes=[4, 4, 4])
