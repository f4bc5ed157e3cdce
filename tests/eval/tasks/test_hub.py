"""Opening datasets: layouts, splits and every error."""

import datasets
import pytest

from modeling_tmde.eval.tasks import TaskError
from modeling_tmde.eval.tasks.hub import config_names, is_dataset, load_dataset, load_splits, split_names

ROWS = {"train": [{"text": f"t{i}"} for i in range(5)], "validation": [{"text": "v"}]}


@pytest.mark.parametrize("readme", [True, False])
@pytest.mark.parametrize("streaming", [False, True])
def test_layouts(readme, streaming, dataset_folder):
    folder = dataset_folder({"de": ROWS, "en": {"train": ROWS["train"][:1]}}, readme=readme)
    assert is_dataset(folder)
    assert config_names("t", folder) == ["de", "en"]
    assert split_names("t", folder, "de") == ["train", "validation"]
    rows = load_dataset("t", folder, "de", "train", streaming)
    assert isinstance(rows, datasets.IterableDataset if streaming else datasets.Dataset)
    assert list(rows) == ROWS["train"]
    opened = load_splits("t", folder, "de", ("train", "dev"), ("test",), streaming)
    assert {name: list(rows) for name, rows in opened.items()} == {"train": ROWS["train"], "dev": [{"text": "v"}]}


@pytest.mark.parametrize("readme", [True, False])
@pytest.mark.parametrize("streaming", [False, True])
def test_unknown_names(readme, streaming, dataset_folder):
    folder = dataset_folder({"de": ROWS, "en": ROWS}, readme=readme)
    with pytest.raises(TaskError, match=r"^mytask: .*dataset, field 'config': found 'xx', expected .* de, en\."):
        load_dataset("mytask", folder, "xx", "train", streaming)
    with pytest.raises(TaskError, match=r"'xx', expected one of its configs: de, en\."):
        split_names("mytask", folder, "xx")
    expected = r"\(config de\), field 'split': found 'test', expected one of its splits: train, validation\."
    with pytest.raises(TaskError, match=expected):
        load_dataset("mytask", folder, "de", "test", streaming)
    with pytest.raises(TaskError, match=expected):
        load_splits("mytask", folder, "de", ("train", "test"), streaming=streaming)


def test_train_10k_is_no_shard_of_train(dataset_folder):
    folder = dataset_folder({"de": {"train": [{"text": "a"}], "train_10k": [{"text": "b"}]}}, readme=False)
    assert split_names("t", folder, "de") == ["train", "train_10k"]
    assert list(load_dataset("t", folder, "de", "train")) == [{"text": "a"}]


def test_no_network(no_network):
    for call in (
        lambda: load_dataset("xnli", "facebook/xnli", "de", "test"),
        lambda: config_names("xnli", "facebook/xnli"),
        lambda: split_names("xnli", "facebook/xnli", "de"),
    ):
        with pytest.raises(TaskError, match=r"^xnli: facebook/xnli, .*Couldn't reach.*pass source= with a folder"):
            call()


def test_a_mistyped_path_does_not_ask_the_hub(no_network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for source in ("data/xnli", "./xnli", str(tmp_path / "xnli"), "xnli"):
        assert not is_dataset(source)
        with pytest.raises(TaskError, match="found no such file or folder, expected a path that exists, or a Hub id"):
            config_names("t", source)
    assert is_dataset("owner/name")


@pytest.mark.parametrize("readme", [True, False])
@pytest.mark.parametrize("streaming", [False, True])
def test_damaged_and_missing_files(readme, streaming, dataset_folder, tmp_path):
    folder = dataset_folder({"de": ROWS}, readme=readme)
    path = tmp_path / "hub" / "dataset" / "de" / "train-00000-of-00002.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(TaskError, match=r"^t: .*dataset: found files that can't be read \(.*parquet"):
        load_dataset("t", folder, "de", "train", streaming)
    for shard in path.parent.glob("*.parquet" if readme else "train-*"):
        shard.unlink()
    message = r"files missing \(" if readme else r"found 'train', expected one of its splits: validation"
    with pytest.raises(TaskError, match=message):
        load_dataset("t", folder, "de", "train", streaming)
