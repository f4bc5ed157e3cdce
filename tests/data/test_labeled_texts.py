"""`load_mldoc`, `load_xnli` and `load_sib200` on files and folders with the schemas they expect."""

from pathlib import Path

import datasets
import pytest
import yaml

from tmde import load_mldoc, load_sib200, load_xnli
from tmde.data import CorpusError


def write_hub_folder(folder: Path, configs: dict[str, dict[str, datasets.Dataset]]) -> str:
    """Write a folder like a dataset of the Hub: parquet files, and a README.md that lists them."""
    header = []
    for config, splits in configs.items():
        files = []
        for split, rows in splits.items():
            path = f"{config}/{split}.parquet"
            rows.to_parquet(folder / path)
            files.append({"split": split, "path": path})
        header.append({"config_name": config, "data_files": files})
    readme = f"---\n{yaml.safe_dump({'configs': header})}---\n"
    (folder / "README.md").write_text(readme, encoding="utf-8")
    return str(folder)


every_way = pytest.mark.parametrize("streaming", [False, True])


def rows_of(loaded, streaming: bool) -> list[dict]:
    kind = datasets.IterableDataset if streaming else datasets.Dataset
    assert isinstance(loaded, kind)
    return list(loaded)


@pytest.fixture
def mldoc(tmp_path) -> str:
    """Files of the public script, run under Python 3; one of them has a bad label."""
    files = {
        "mldoc.de.train.1000": "MCAT\tb'Die B\\xc3\\xb6rse f\\xc3\\xa4llt .'\nCCAT\tA Co . w\n",
        "mldoc.de.train.10000": "ECAT\tDie Zinsen\n",
        "mldoc.de.test": "GCAT\tDas Wetter\n",
        "mldoc.en.dev": "GCAT\tThe weather\nXCAT\tA mistake\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return str(tmp_path)


@every_way
def test_mldoc_of_files(mldoc, streaming):
    loaded = load_mldoc(mldoc, "de", "train.1000", streaming)
    assert rows_of(loaded, streaming) == [
        {"text": "Die Börse fällt .", "label": 3},
        {"text": "A Co. w", "label": 0},
    ]
    assert loaded.features["label"].names == ["CCAT", "ECAT", "GCAT", "MCAT"]


def test_mldoc_splits_and_raw_texts(mldoc):
    assert load_mldoc(mldoc, "de", "train", clean=False)[1]["text"] == "A Co . w"
    assert load_mldoc(mldoc, "de", "train.10000")["text"][:] == ["Die Zinsen"]
    assert load_mldoc(mldoc, "de", "test")["text"][:] == ["Das Wetter"]


@every_way
def test_mldoc_of_a_dataset(tmp_path, streaming):
    rows = datasets.Dataset.from_dict({"label": ["MCAT", "ECAT"], "text": ["one", "two"]})
    source = write_hub_folder(tmp_path, {"german": {"train": rows, "validation": rows}})
    expected = [{"text": "one", "label": 3}, {"text": "two", "label": 1}]
    assert rows_of(load_mldoc(source, "de", "train.1000", streaming), streaming) == expected
    assert rows_of(load_mldoc(source, "de", "validation", streaming), streaming) == expected


@every_way
def test_a_bad_label_is_named_with_its_row(mldoc, streaming):
    message = r"mldoc.en.dev, row 2, field 'label': found 'XCAT', expected one of CCAT, ECAT"
    with pytest.raises(CorpusError, match=message):
        list(load_mldoc(mldoc, "en", "dev", streaming))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fr", "dev"), r"'language': found 'fr', expected .*\(de, en\)"),
        (("de", "dev"), r"'split': found 'dev', expected one of test, train, train_10k. Correct"),
    ],
)
def test_what_mldoc_lacks_is_named_at_once(mldoc, arguments, message):
    with pytest.raises(CorpusError, match=message):
        load_mldoc(mldoc, *arguments, streaming=True)


def test_mldoc_names_what_it_reads():
    with pytest.raises(CorpusError, match=r"expected a folder with MLDoc's files.*mldoc\.de\.dev"):
        load_mldoc("nowhere", "de")


def test_the_splits_of_a_dataset_of_mldoc_are_listed(tmp_path):
    rows = datasets.Dataset.from_dict({"label": ["MCAT"], "text": ["one"]})
    source = write_hub_folder(tmp_path, {"german": {"train": rows, "validation": rows}})
    with pytest.raises(CorpusError, match="found 'test', expected one of train, dev"):
        load_mldoc(source, "de", "test")
    with pytest.raises(CorpusError, match=r"'language': found 'fr', expected .*\(de\)"):
        load_mldoc(source, "fr", "test")


@every_way
def test_an_empty_file_is_an_error(tmp_path, streaming):
    (tmp_path / "mldoc.de.dev").write_text("")
    with pytest.raises(CorpusError, match=r"mldoc\.de\.dev: found no rows"):
        list(load_mldoc(tmp_path, "de", "dev", streaming))


@every_way
def test_a_block_that_is_full_is_read_once(tmp_path, streaming):
    (tmp_path / "mldoc.de.dev").write_text("MCAT\tone\n" * 1000)
    assert len(list(load_mldoc(tmp_path, "de", "dev", streaming))) == 1000


@pytest.fixture
def xnli(tmp_path) -> str:
    """A config with class numbers in another order, and one with numbers alone."""
    labels = datasets.ClassLabel(names=["neutral", "contradiction", "entailment"])
    pairs = {"premise": ["Er schläft.", "Es regnet."], "hypothesis": ["Er ruht.", "Es ist nass."]}
    texts = {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")}
    german = datasets.Dataset.from_dict(
        pairs | {"label": [2, 1]}, datasets.Features(texts | {"label": labels})
    )
    english = datasets.Dataset.from_dict(pairs | {"label": [0, -1]})
    configs = {"de": {"test": german, "validation": german}, "en": {"test": english}}
    return write_hub_folder(tmp_path, configs)


@every_way
def test_xnli(xnli, streaming):
    loaded = load_xnli("de", "test", streaming, xnli)
    assert rows_of(loaded, streaming) == [
        {"premise": "Er schläft.", "hypothesis": "Er ruht.", "label": 0},
        {"premise": "Es regnet.", "hypothesis": "Es ist nass.", "label": 2},
    ]
    assert loaded.features["label"].names == ["entailment", "neutral", "contradiction"]
    for name in ("dev", "validation", "val"):
        assert len(list(load_xnli("de", name, streaming, xnli))) == 2


def test_only_the_split_that_is_asked_for_is_opened(xnli, monkeypatch):
    load_dataset = datasets.load_dataset
    opened_splits = []

    def count(*arguments, split, **options):
        opened_splits.append(split)
        return load_dataset(*arguments, split=split, **options)

    monkeypatch.setattr(datasets, "load_dataset", count)
    load_xnli("de", "dev", source=xnli)
    assert opened_splits == ["validation"]


def test_a_split_with_our_name_goes_before_one_with_another(tmp_path):
    splits = {}
    for name in ("train", "training"):
        rows = {"index_id": [1], "category": ["sports"], "text": [name]}
        splits[name] = datasets.Dataset.from_dict(rows)
    source = write_hub_folder(tmp_path, {"deu_Latn": splits})
    assert load_sib200("de", "train", source=source)["text"] == ["train"]


def test_a_stream_of_xnli_is_read_again_in_each_epoch(xnli):
    stream = load_xnli("de", "test", streaming=True, source=xnli)
    assert list(stream) == list(stream)


@every_way
def test_an_xnli_pair_without_a_gold_label_is_named(xnli, streaming):
    message = r"\(config en, split test\), row 2, field 'label': found -1, expected one of entail"
    with pytest.raises(CorpusError, match=message):
        list(load_xnli("en", "test", streaming, xnli))


def test_what_xnli_lacks_is_named(xnli, tmp_path):
    with pytest.raises(CorpusError, match=r"'language': found 'fr', expected .*\(de, en\)"):
        load_xnli("fr", source=xnli)
    with pytest.raises(CorpusError, match=r"'split': found 'train', expected one of test, dev"):
        load_xnli("de", "train", source=xnli)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match=r"found no README.md that lists `configs`"):
        load_xnli("de", source=tmp_path / "empty")
    with pytest.raises(CorpusError, match=r"nowhere: found no such folder, expected a Hub dataset"):
        load_xnli("de", source="nowhere")
    with pytest.raises(FileNotFoundError, match=r"nowhere/xnli.jsonl: found no such folder"):
        load_xnli("de", source="nowhere/xnli.jsonl")


@every_way
def test_sib200(tmp_path, streaming):
    rows = {"index_id": [7, 9], "category": ["sports", "travel"], "text": ["Ein Tor.", "Am Meer."]}
    source = write_hub_folder(tmp_path, {"deu_Latn": {"test": datasets.Dataset.from_dict(rows)}})
    expected = [
        {"index_id": "7", "category": "sports", "text": "Ein Tor."},
        {"index_id": "9", "category": "travel", "text": "Am Meer."},
    ]
    for language in ("de", "deu_Latn"):
        assert rows_of(load_sib200(language, "test", streaming, source), streaming) == expected
    with pytest.raises(CorpusError, match=r"'language': found 'fr', expected .*\(de\)"):
        load_sib200("fr", source=source)
