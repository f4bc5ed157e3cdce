"""What a repository of rows holds besides those that are pushed: other splits, other configs, a person's card."""

import logging

import pytest
from datasets import Dataset

from modeling_tmde.data import CorpusError
from modeling_tmde.training.publishing_corpus import _rows, push_corpus
from tests.conftest import make_rows
from tests.hub.clients import TMDE, run_client
from tests.hub.test_push_corpus import write_rows
from tests.hub.test_push_model import commits

SPLITS = (
    TMDE
    + """
from huggingface_hub import CommitOperationAdd, HfApi, metadata_load, metadata_update
folder = arguments[0]
def rows(name):
    return datasets.load_dataset("json", data_files=f"{folder}/{name}.jsonl", split="train")
def push(name, place, *more):
    return tmde("push", f"{folder}/{name}.jsonl", place, "--repo-type", "dataset", *more)
def tree(place):
    api = HfApi()
    return sorted(path for path in api.list_repo_files(place, repo_type="dataset") if path != ".gitattributes")
def read(place):
    return open(HfApi().hf_hub_download(place, "README.md", repo_type="dataset")).read()
"""
)


@pytest.fixture
def corpora(tmp_path):
    """Rows to train on, to test with, and in other languages."""
    rows = make_rows(40, languages=("de", "en"))
    write_rows(tmp_path / "train.jsonl", rows[:30])
    write_rows(tmp_path / "longer.jsonl", rows[:35])
    write_rows(tmp_path / "test.jsonl", rows[30:])
    write_rows(tmp_path / "french.jsonl", make_rows(20, languages=("en", "fr")))
    return tmp_path


@pytest.mark.slow
def test_other_splits_stay(hub, corpora):
    code = (
        SPLITS
        + """
rows("test").push_to_hub("user/both", split="test")
metadata_update("user/both", {"license": "cc0-1.0", "tags": ["parliament"], "mine": 1}, repo_type="dataset")
text = read("user/both") + "\\n# By hand\\n"
HfApi().upload_file(path_or_fileobj=text.encode(), path_in_repo="README.md", repo_id="user/both", repo_type="dataset")
HfApi().upload_file(path_or_fileobj=b"x", path_in_repo="data/notes.txt", repo_id="user/both", repo_type="dataset")
found = {name: push(name, "user/both", "-m", name) for name in ("train", "longer")}
found["again"] = push("longer", "user/both", "-m", "again")
found["french"] = push("french", "user/both")
tested = list(datasets.load_dataset("user/both", split="test", download_mode="force_redownload"))
stream = datasets.load_dataset("user/both", split="train", streaming=True)
report([found, tree("user/both"), read("user/both"), tested, len(list(stream)),
        {name: split.num_examples for name, split in stream.info.splits.items()}])
"""
    )
    found, held, card, tested, streamed, counts = run_client(hub, corpora / "client", code, corpora)
    for name, (status, _, stderr) in found.items():
        assert status == (name == "french"), (name, stderr)
    assert "split test" in found["french"][2] and "--overwrite" in found["french"][2]
    assert "already" in found["again"][1]
    assert commits(hub, "user/both", "datasets")[:2] == ["longer", "train"]
    shards = ["data/test-00000-of-00001.parquet", "data/train-00000-of-00001.parquet"]
    assert held == ["README.md", "data/notes.txt", *shards]
    assert "# By hand" in card and "mine: 1" in card and "license: cc0-1.0" in card
    assert "- parliament" in card and "- parallel-corpus" in card
    assert [row["translation"] for row in tested] == make_rows(40, languages=("de", "en"))[30:]
    assert streamed == 35 and counts == {"train": 35, "test": 10}


@pytest.mark.slow
def test_other_configs_are_not_lost(hub, corpora):
    code = (
        SPLITS
        + """
rows("train").push_to_hub("user/pairs", "de-en")
before = read("user/pairs")
found = [push("french", "user/pairs")]
rows("french").push_to_hub("user/pairs", "en-fr")
found += [push("french", "user/pairs"), len(datasets.load_dataset("user/pairs", "de-en", split="train"))]
found += [push("french", "user/pairs", "--overwrite"), tree("user/pairs")]
HfApi().create_repo("user/new", repo_type="dataset")
for path in ("LICENSE", ".gitignore"):
    HfApi().upload_file(path_or_fileobj=b"x", path_in_repo=path, repo_id="user/new", repo_type="dataset")
report([*found, push("french", "user/new"), tree("user/new")])
"""
    )
    one, two, rows, overwritten, held, new, beside = run_client(hub, corpora / "client", code, corpora)
    assert one[0] == 1 and "configs de-en" in one[2] and "--overwrite" in one[2] and "Traceback" not in one[2]
    assert two[0] == 1 and "configs de-en, en-fr" in two[2] and rows == 30
    assert overwritten[0] == 0 and held == ["README.md", "data/train-00000-of-00001.parquet"]
    assert new[0] == 0 and beside == [".gitignore", "LICENSE", "README.md", "data/train-00000-of-00001.parquet"]


def test_files_of_different_languages(tmp_path, caplog):
    german, french = make_rows(5, languages=("de", "en")), make_rows(4, languages=("en", "fr"))
    write_rows(tmp_path / "a.jsonl", german, score=[1, 2, 3, 4, 5], ids=[{"de": "x", "en": "y"}] * 5)
    write_rows(tmp_path / "b.jsonl", french, score=[0.5] * 4, ids=[{"fr": "z", "en": "w"}] * 4)
    publication = push_corpus(tmp_path, "user/corpus", dry_run=True)
    assert sorted(publication.sizes) == ["README.md", "data/train-00000-of-00001.parquet"]
    rows = _rows(str(tmp_path))
    assert [row["de"] for row in rows["translation"]] == [row["de"] for row in german] + [None] * 4
    assert rows["score"][:] == [1, 2, 3, 4, 5, 0.5, 0.5, 0.5, 0.5]
    assert rows["ids"][0] == {"de": "x", "en": "y", "fr": None} and rows["ids"][8] == {
        "de": None,
        "en": "w",
        "fr": "z",
    }
    assert "Left out" not in caplog.text


OTHERS = {
    "no scores": {},
    "texts": {"score": ["high"] * 4},
    "texts and numbers": {"score": ["high", 1, 2.5, None]},
    "one without": {"score": [1.0, 2.0, None, 3.0]},
}


@pytest.mark.parametrize("other", OTHERS)
def test_columns_that_not_all_rows_have_are_left_out(other, tmp_path, caplog):
    write_rows(tmp_path / "a.jsonl", make_rows(5), score=[1.5] * 5, segment=list(range(5)))
    write_rows(tmp_path / "b.jsonl", make_rows(4), segment=list(range(4)), **OTHERS[other])
    with caplog.at_level(logging.WARNING):
        rows = _rows(str(tmp_path))
    assert rows.column_names == ["translation", "segment"] and rows["segment"][:] == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert "Left out the columns score" in caplog.text


def test_files_of_several_formats(tmp_path, caplog):
    write_rows(tmp_path / "a.jsonl", make_rows(5), score=[1.5] * 5)
    table = Dataset.from_dict({"translation": make_rows(3), "score": [2, 3, 4]})
    table.to_parquet(tmp_path / "b.parquet")
    assert _rows(str(tmp_path))["score"][:] == [1.5] * 5 + [2, 3, 4]
    (tmp_path / "c.tsv").write_text("de\ten\nhaus\thouse\n")
    assert _rows(str(tmp_path)).column_names == ["translation"]
    assert "Left out the columns score" in caplog.text


def test_dropped_rows(tmp_path, caplog):
    write_rows(tmp_path / "a.jsonl", [*make_rows(5, languages=("de", "en")), {"de": "", "en": "x"}], score=[1.5] * 6)
    assert _rows(str(tmp_path / "a.jsonl")).column_names == ["translation"]
    assert "Left out the columns score: 1 rows were dropped" in caplog.text


def test_a_damaged_card_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("modeling_tmde.training.publishing_corpus.HubRepository", None)  # the network is not asked
    write_rows(tmp_path / "a.jsonl", make_rows(5))
    (tmp_path / "README.md").write_text("---\nlicense: [\n---\n")
    with pytest.raises((ValueError, CorpusError), match="README.md"):
        push_corpus(tmp_path, "user/corpus")
