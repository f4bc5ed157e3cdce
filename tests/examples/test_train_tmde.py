"""`examples/train_tmde.py`, by one process and by two, on folders with the schemas of the Hub."""

import os
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
import yaml
from transformers import AutoModel

from tmde import DocumentEmbedder
from tmde.data.sample import sample_documents, sample_sentences

SCRIPT = Path(__file__).parents[2] / "examples" / "train_tmde.py"
LANGUAGES = ("de", "en", "fr")
FLORES_CODES = {"de": "deu_Latn", "en": "eng_Latn", "fr": "fra_Latn"}

pytestmark = pytest.mark.slow


def write_hub_folder(folder: Path, configs: dict[str, dict[str, list[dict]]]) -> None:
    """Write a folder like a data set of the Hub: configs with rows by split."""
    header = []
    for config, splits in configs.items():
        files = []
        for split, rows in splits.items():
            path = f"{config}/{split}-00000-of-00001.parquet"
            datasets.Dataset.from_list(rows).to_parquet(folder / path)
            files.append({"split": split, "path": path})
        header.append({"config_name": config, "data_files": files})
    readme = f"---\n{yaml.safe_dump({'configs': header})}---\n"
    (folder / "README.md").write_text(readme, encoding="utf-8")


def europarl() -> dict[str, dict[str, list[dict]]]:
    """One config for each pair of languages."""
    texts = sample_sentences(600, "train", seed=3)["translation"]
    configs = {}
    for pair in (("de", "en"), ("de", "fr"), ("en", "fr")):
        rows = [{"translation": {language: row[language] for language in pair}} for row in texts]
        configs["-".join(pair)] = {"train": rows}
    return configs


def sib200() -> dict[str, dict[str, list[dict]]]:
    """One config for each FLORES-200 code."""
    configs = {}
    for language, code in FLORES_CODES.items():
        configs[code] = {}
        for split, size in (("train", 60), ("validation", 20), ("test", 20)):
            rows = []
            documents = sample_documents(size, split.replace("validation", "dev"), seed=3)
            for document in documents.filter(lambda row, name=language: row["language"] == name):
                rows.append(
                    {
                        "index_id": len(rows),
                        "category": document["label"],
                        "text": document["text"],
                    }
                )
            configs[code][split] = rows
    return configs


def xnli() -> dict[str, dict[str, list[dict]]]:
    """One config for each language, whose rows are translations."""
    configs = {language: {} for language in LANGUAGES}
    for split, size in (("train", 60), ("validation", 30), ("test", 30)):
        texts = sample_sentences(size + 1, "test", seed=size)["translation"]
        for language in LANGUAGES:
            rows = []
            for number in range(size):
                rows.append(
                    {
                        "premise": texts[number][language],
                        "hypothesis": texts[number + 1][language],
                        "label": number % 3,
                    }
                )
            configs[language][split] = rows
    return configs


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    for name, configs in (("europarl", europarl()), ("sib200", sib200()), ("xnli", xnli())):
        write_hub_folder(folder / name, configs)
    return folder


LAUNCHERS = {
    "python": [sys.executable],
    "accelerate": [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--cpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"),
    ],
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_it_trains_measures_and_saves(launcher, hub, tmp_path):
    sizes = ["--width", "64", "--batch-tokens", "1500", "--vocabulary", "600", "--steps", "4"]
    command = [*LAUNCHERS[launcher], str(SCRIPT), "--europarl", str(hub / "europarl"), *sizes]
    command += ["--tasks", f"sib200={hub / 'sib200'}", f"xnli={hub / 'xnli'}"]
    environment = {
        **os.environ,
        "HF_HOME": str(tmp_path / "huggingface"),
        "TMDE_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("## sib200") == 1, "only the first process prints"
    assert done.stdout.count("## xnli") == 1
    assert AutoModel.from_pretrained(tmp_path / "runs" / "tmde").config.d_model == 64
    embedder = DocumentEmbedder.from_pretrained(tmp_path / "runs" / "tmde")
    german, english = embedder.encode(["Guten Tag", "Good day"])
    assert german.shape == english.shape == (64,)
