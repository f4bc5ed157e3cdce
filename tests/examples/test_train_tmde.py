"""The README's script and `examples/train_tmde.py` on folders with the schemas of the Hub.

Each is run by one process and by two.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
import yaml
from transformers import AutoModel

from tests.conftest import nightly_except
from tmde import DocumentEmbedder
from tmde.data.sample import sample_documents, sample_sentences

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "train_tmde.py"
LANGUAGES = ("de", "en", "fr")
FLORES_CODES = {"de": "deu_Latn", "en": "eng_Latn", "fr": "fra_Latn"}


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
        # Without `--multi_gpu`, accelerate starts one process on a machine without GPUs.
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"),
        *("--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"),
    ],
}


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess:
    """Run a command in a folder, without a network."""
    environment = {
        **os.environ,
        "HF_HOME": str(folder / "huggingface"),
        "TMDE_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done


@pytest.mark.parametrize("launcher", nightly_except(["python"], LAUNCHERS))
def test_it_trains_measures_and_saves(launcher, hub, tmp_path):
    sizes = ["--width", "64", "--batch-tokens", "1500", "--steps", "4"]
    command = [*LAUNCHERS[launcher], str(SCRIPT), "--europarl", str(hub / "europarl"), *sizes]
    command += ["--tasks", f"sib200={hub / 'sib200'}", f"xnli={hub / 'xnli'}"]
    done = run(command, tmp_path)
    assert done.stdout.count("## sib200") == 1, "only the first process prints"
    assert done.stdout.count("## xnli") == 1
    assert AutoModel.from_pretrained(tmp_path / "runs" / "tmde").config.d_model == 64
    embedder = DocumentEmbedder.from_pretrained(tmp_path / "runs" / "tmde")
    german, english = embedder.encode(["Guten Tag", "Good day"])
    assert german.shape == english.shape == (64,)


# ---- The README's script


def readme_script() -> str:
    """Return the README's first script."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1]


def europarl_script(europarl: Path) -> str:
    """Return the script with a stream of Europarl in the place of the sample, and few steps."""
    source = f"{str(europarl)!r}, languages=languages, streaming=True"
    shortened, count = re.subn(r"max_steps=\d+", "max_steps=4", readme_script())
    assert count == 1
    on_europarl = shortened.replace('"sample", languages=languages)', f"{source})", 1)
    assert on_europarl != shortened
    return on_europarl


@pytest.mark.nightly
def test_the_script_of_the_readme_finds_translations(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(readme_script(), encoding="utf-8")
    done = run([sys.executable, str(script)], tmp_path)
    assert int(re.search(r"translations found: (\d+)%", done.stdout)[1]) >= 85


@pytest.mark.nightly
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_script_of_the_readme_trains_on_europarl(launcher, hub, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(europarl_script(hub / "europarl"), encoding="utf-8")
    done = run([*LAUNCHERS[launcher], str(script)], tmp_path)
    assert "translations found: " in done.stdout
    assert AutoModel.from_pretrained(tmp_path / "runs" / "tmde").config.d_model == 128
