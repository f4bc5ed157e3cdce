"""Cards of parallel corpora: counts by hand, and the code that they print."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
import yaml
from huggingface_hub import DatasetCard, metadata_load
from typer.testing import CliRunner

from modeling_tmde.cli.main import app
from modeling_tmde.data import CorpusError, load_parallel
from modeling_tmde.hub_cards import dataset_card, write_dataset_card
from modeling_tmde.hub_cards.dataset_cards import size_category
from tests.conftest import make_rows

# de-en 3, de-fr 1, en-fr 2: counted by hand
ROWS = [
    {"de": "eins", "en": "one", "fr": "un"},
    {"de": "zwei", "en": "two", "fr": None},
    {"de": "drei", "en": "three", "fr": None},
    {"de": None, "en": "four", "fr": "quatre"},
]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Parquet in two files, in a folder below."""
    languages = {code: datasets.Value("string") for code in ("de", "en", "fr")}
    features = datasets.Features({"translation": languages, "doc_id": datasets.Value("string")})
    (tmp_path / "numbers" / "data").mkdir(parents=True)
    for number, rows in enumerate((ROWS[:3], ROWS[3:])):
        rows = [{"translation": row, "doc_id": "d"} for row in rows]
        part = datasets.Dataset.from_list(rows, features=features)
        part.to_parquet(tmp_path / "numbers" / "data" / f"train-{number}.parquet")
    return tmp_path / "numbers"


def write_mined(path: Path, rows: list[dict[str, str]]) -> None:
    """As `tmde mine --language-a de --language-b en` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {"translation": row, "score": 1.5 - number / 100, "ids": {"de": str(number), "en": str(number)}}
        for number, row in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_counts_and_metadata(folder):
    card = dataset_card(folder, license="cc0-1.0", sources=["a [book](https://example.org)"])
    data = card.data.to_dict()
    assert data["language"] == ["de", "en", "fr"] and data["license"] == "cc0-1.0"
    assert data["size_categories"] == "n<1K" and data["multilinguality"] == "multilingual"
    assert data["task_categories"] == ["translation", "sentence-similarity"]
    assert data["configs"] == [
        {
            "config_name": "default",
            "data_files": [{"split": "train", "path": ["data/train-0.parquet", "data/train-1.parquet"]}],
        }
    ]
    text = str(card)
    assert re.findall(r"^\| (\w\w-\w\w) +\| +(\d+) \|", text, re.MULTILINE) == [
        ("de-en", "3"), ("de-fr", "1"), ("en-fr", "2")
    ]  # fmt: skip
    assert (
        "4 rows of translations in `de`, `en`, `fr`, not every row in every language. To" in text
        and "- a [book](https://example.org)" in text
    )
    assert "Not recorded in the rows" in text and "| `doc_id` | `string` |" in text
    assert str(folder.parent) not in text and "None" not in text and "{{" not in text


def test_the_hubs_loader_and_ours_read_the_folder_by_its_card(folder):
    write_dataset_card(folder)
    assert DatasetCard.load(folder / "README.md").data.to_dict()["configs"]
    (folder / "unlisted.jsonl").write_text('{"translation": {"de": "null", "en": "zero"}}\n')
    streamed = list(datasets.load_dataset(str(folder), split="train", streaming=True))
    assert [row["translation"] for row in streamed] == ROWS
    loaded = load_parallel(str(folder), languages=["de", "en", "fr"])
    assert loaded["translation"][:] == ROWS


def test_what_tmde_mine_writes_is_said_to_be_mined(tmp_path):
    write_mined(tmp_path / "mined" / "rows.jsonl", make_rows(21, languages=("de", "en")))
    text = str(dataset_card(tmp_path / "mined", model="/home/me/models/small", threshold=1.1))
    assert "21 rows of translations in `de`, `en`, mined:" in text and "By `tmde mine`" in text
    assert "| Model | small |" in text and "| Lowest score that was kept | 1.1 |" in text
    assert "lowest, median, highest | 1.3, 1.4, 1.5 |" in text and "**Wrong rows.**" in text
    assert "multilinguality: translation" in text and "- mined" in text and "/home" not in text
    assert "| Model | user/name |" in str(dataset_card(tmp_path / "mined", model="user/name"))


def test_what_tmde_align_writes_is_said_to_be_aligned(tmp_path):
    (tmp_path / "rows").mkdir()
    row = {"translation": {"de": "eins", "en": "one"}, "doc_id": "a", "segment": 0, "score": 0.5}
    (tmp_path / "rows" / "rows.jsonl").write_text(json.dumps(row) + "\n")
    text = str(dataset_card(tmp_path / "rows"))
    assert "By `tmde align --rows`" in text and "**Not stated**" in text


def write_rows(path: Path, *rows: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1, 3, 2, 8], "| Scores in the rows: lowest, median, highest | 1, 2.5, 8 |"),
        ([0.5, None, 1.5, None], "| Scores in the rows: lowest, median, highest | 0.5, 1, 1.5 |"),
        (["high", "low", "high", None], None),
        ([None, None, None, None], None),
        ([True, False, True, True], None),
    ],
)
def test_scores_are_numbers_that_are_there(tmp_path, scores, expected):
    rows = [{"translation": {"de": "eins", "en": "one"}, "ids": {"de": "1", "en": "1"}} for _ in scores]
    write_rows(tmp_path / "rows" / "rows.jsonl", *(row | {"score": s} for row, s in zip(rows, scores, strict=True)))
    text = str(dataset_card(tmp_path / "rows"))
    assert "nan" not in text and ("Scores in the rows" in text) is (expected is not None)
    assert expected is None or expected in text
    # Nothing is said of words that is true of scores alone.
    assert ("mined:" in text) is ("higher is surer" in text) is ("Sort by `score`" in text) is (expected is not None)
    assert "| `score` |" in text


def test_a_column_of_words_called_score_is_published(tmp_path):
    write_rows(tmp_path / "rows" / "rows.jsonl", {"translation": {"de": "eins", "en": "one"}, "score": "high"})
    push = ("push", str(tmp_path / "rows"), "u/x", "--repo-type", "dataset", "--dry-run")
    result = CliRunner().invoke(app, push)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("nested", [True, False])
def test_files_that_load_dataset_cannot_open_as_one(tmp_path, suffix, nested):
    """Which `load_parallel` reads, and `tmde push` writes alike."""
    folder = tmp_path / "two pairs"
    folder.mkdir()
    for name, row in (("a", {"de": "eins", "en": "one"}), ("b", {"fr": "un", "en": "one"})):
        rows = datasets.Dataset.from_list([{"translation": row} if nested else row])
        write = rows.to_parquet if suffix == "parquet" else rows.to_json
        write(folder / f"{name}.{suffix}")
    assert load_parallel(str(folder), languages=["de", "en", "fr"]).num_rows == 2
    with pytest.raises(ValueError, match=r"two pairs: load_dataset cannot open .*expected the same columns.*: write"):
        write_dataset_card(folder)
    assert not (folder / "README.md").exists()
    result = CliRunner().invoke(app, ["push", str(folder), "u/x", "--repo-type", "dataset", "--dry-run"])
    assert result.exit_code == 0, result.output


def test_norwegian_is_no_false(tmp_path):
    """YAML reads `no` as one; other codes stay without quotes."""
    write_rows(tmp_path / "rows" / "rows.jsonl", {"translation": {"no": "en", "da": "en", "sv_SE": "ett"}})
    write_dataset_card(tmp_path / "rows")
    text = (tmp_path / "rows" / "README.md").read_text()
    assert metadata_load(tmp_path / "rows" / "README.md")["language"] == ["da", "no", "sv"]
    (command,) = (shlex.split(line) for line in text.splitlines() if line.startswith("tmde train"))
    assert command[-3] == 'languages=[da, "no", sv_SE]' and command[-2] == "pivot_languages=[da]"
    values = [yaml.safe_load(override.partition("=")[2]) for override in command[-3:-1]]
    assert values == [["da", "no", "sv_SE"], ["da"]]
    write_rows(tmp_path / "rows" / "rows.jsonl", {"translation": {"no": "en", "sv": "ett"}})
    assert """'languages=["no", sv]' 'pivot_languages=["no"]' """ in str(dataset_card(tmp_path / "rows"))


def test_edits_are_kept(folder):
    assert write_dataset_card(folder)
    path = folder / "README.md"
    path.write_text(path.read_text().replace("## Limits", "## Limits\n\nNo numbers above ten.\n"))
    assert not write_dataset_card(folder, license="cc0-1.0")
    assert "No numbers above ten." in path.read_text() and metadata_load(path)["license"] == "cc0-1.0"


def test_what_cannot_be_described_is_named(tmp_path):
    with pytest.raises(ValueError, match="found no folder"):
        dataset_card(tmp_path / "nothing")
    (tmp_path / "rows.tsv").write_text("de\ten\neins\tone\n")
    with pytest.raises(ValueError, match="found files of tsv, expected parquet or JSONL"):
        dataset_card(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"translation": {"de": "eins", "en": "one"}}\n')
    with pytest.raises(ValueError, match="found files of jsonl and tsv"):
        dataset_card(tmp_path)
    (tmp_path / "rows.tsv").unlink()
    (tmp_path / "rows.jsonl").write_text('{"text": "eins"}\n')
    with pytest.raises(CorpusError):
        dataset_card(tmp_path)


@pytest.mark.parametrize(
    ("rows", "name"), [(999, "n<1K"), (1000, "1K<n<10K"), (760_110, "100K<n<1M"), (10**12, "100B<n<1T")]
)
def test_size_categories(rows, name):
    assert size_category(rows) == name


@pytest.mark.slow
def test_the_code_of_a_card_runs(tmp_path):
    """As it is printed, in fresh processes, but for the five minutes of training."""
    write_mined(tmp_path / "mined" / "rows.jsonl", make_rows(60, languages=("de", "en")))
    write_dataset_card(tmp_path / "mined")
    card = (tmp_path / "mined" / "README.md").read_text()
    ((_, python), (_, bash)) = re.findall(r"^```(python|bash)\n(.*?)^```$", card, re.MULTILINE | re.DOTALL)
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([sys.executable, "-c", python], **options)
    assert done.returncode == 0, done.stderr
    assert make_rows(1, languages=("de", "en"))[0]["de"] in done.stdout
    short = "max_minutes=null eval_minutes=null max_steps=2 vocab_size=300 d_model=8 dev_rows=10 micro_batch_rows=8"
    assert bash.strip().endswith("max_minutes=5")
    done = subprocess.run(["bash", "-euc", bash.strip().replace("max_minutes=5", short)], **options)
    assert done.returncode == 0, done.stderr
    found = metadata_load(tmp_path / "runs" / "bag" / "README.md")
    assert found["language"] == ["de", "en"]
    assert "| `mined` | not stated |" in (tmp_path / "runs" / "bag" / "README.md").read_text()


def test_the_licence_in_the_metadata_is_that_of_the_text(folder):
    (folder / "README.md").write_text(str(dataset_card(folder)).replace("---", "---\nlicense: cc0-1.0", 1))
    assert write_dataset_card(folder) and metadata_load(folder / "README.md")["license"] == "cc0-1.0"
    assert "Not stated" not in (folder / "README.md").read_text()
