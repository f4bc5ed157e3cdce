"""What cards say of a run or a corpus, and that the Hub's own classes read it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from safetensors.torch import save_file

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.configuration_ntdv import NtdvConfig
from modeling_tmde.modeling_ntdv import NtdvForConditionalGeneration
from tests.conftest import make_rows, save, tiny_model
from tmde import hub_cards
from tmde.hub_cards import dataset_card, is_edited, model_card, public_recipe, write_model_card

CONDITIONAL = {"architectures": ["XForConditionalGeneration"]}
TRANSFORMER = {"encoder_layers": 1, "max_position_embeddings": 64}
FAMILIES = {
    "tmde": {**TRANSFORMER, **CONDITIONAL, "bottleneck": "first", "bag_residual": False},
    "tmde_bag": {"normalize": True},
    "tmde_laser": {"encoder_layers": 2, "pooling": "max", **CONDITIONAL},
    "tmde_ntdv": {"shared_layers": True, "attention_heads": 2, **CONDITIONAL},
    "tmde_encoder": {**TRANSFORMER, "pooling": "mean"},
    "tmde_aligned": {"encoder": "bag", "encoder_config": {"d_model": 16}, "source_language": "en"},
    "tmde_adapted": {
        "encoder_config": {"model_type": "bert"},
        "pooling": "cls",
        **TRANSFORMER,
        **CONDITIONAL,
    },
}
RECIPE = {
    "description": "made in /home/somebody/place by https://me:secret@host/x?key=1",
    "data": {
        "train": ["/home/somebody/words.jsonl", "Helsinki-NLP/europarl"],
        "languages": ["de", "en", "fr"],
    },
    "objectives": {"translation": {"weight": 0.5}, "distance": {}},
    "training": {"max_steps": 2, "hub_token": "hf_secret", "output_dir": "my/own/runs/here"},
}
BEST = {
    "eval_dev_p1_de-en": 0.25,
    "eval_dev_translation_nll": 2.0,
    "eval_same": 0.9,
    "eval_cross": 0.8,
}


def write(path: Path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content) if path.suffix == ".yaml" else json.dumps(content))


def change(path: Path, **values) -> None:
    write(path, {**json.loads(path.read_text()), **values})


def make_run(folder: Path, family: str = "tmde") -> Path:
    """The files of a run, with weights that have 40 numbers in the encoder and 8 in the decoder."""
    languages = {"languages": ["de", "en", "fr"], "pivot_languages": ["en"], "vocab_size": 300}
    write(folder / "config.json", {"model_type": family, **languages, **FAMILIES[family]})
    write(folder / "tokenizer_config.json", {"model_max_length": 64})
    write(
        folder / "tokenizer.json",
        {"normalizer": {"type": "Lowercase"} if family == "tmde_bag" else None},
    )
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16})
    write(folder / "recipe.yaml", RECIPE)
    sources = [
        {"name": "words.jsonl", "kind": "files", "license": None},
        {"name": "Helsinki-NLP/europarl", "kind": "hub", "license": "known"},
    ]
    machine = {"threads": 2, "cpus": 4, "gpus": [], "processor": "x86"}
    run = {
        "recipe": "small",
        "sources": sources,
        "machine": machine,
        "data": {"train": {"rows": 108}},
    }
    write(folder / "run.json", {**run, "device": {"type": "cpu", "name": "EPYC"}, "processes": 1})
    results = {
        "steps": 2,
        "minutes": 150.0,
        "seen": {"source_words": 1234},
        "best": BEST,
        "best_step": 2,
    }
    write(
        folder / "results.json",
        {**results, "metric": "mix", "dev_pools": {"dev": {"p1_de-en": 12}}},
    )
    save_file(
        {"encoder.x": torch.zeros(40), "decoder.y": torch.zeros(8)}, folder / "model.safetensors"
    )
    return folder


@pytest.fixture
def run(tmp_path) -> Path:
    return make_run(tmp_path / "somebody" / "mine")


def row_of(card, name: str) -> list[str]:
    line = next(line for line in str(card).splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_card_that_the_hub_reads(family, tmp_path):
    card = ModelCard(str(model_card(make_run(tmp_path / "run", family), repo_id="user/run")))
    data, text = card.data.to_dict(), str(card)
    assert data["language"] == ["de", "en", "fr"] and data["datasets"] == ["Helsinki-NLP/europarl"]
    assert (
        "{{" not in text and "None" not in text and "Undefined" not in text and "\n\n\n" not in text
    )
    assert "somebody" not in text and "secret" not in text
    assert row_of(card, "Vector") == ["16 numbers, float32"]
    decodes, told = (
        family in ("tmde", "tmde_laser", "tmde_adapted"),
        family in ("tmde_ntdv", "tmde_aligned"),
    )
    assert ("**The decoder**" in text) is ("generate(" in text) is decodes
    assert ("**It must be told the language**" in text) is ("language_ids" in text) is told
    assert ("**Lower case.**" in text) is ("have length 1" in text) is (family == "tmde_bag")
    assert ("**Word order**" in text) is (family in ("tmde_bag", "tmde_aligned"))
    assert ("texts of any length" in text) is (
        family not in ("tmde", "tmde_encoder", "tmde_adapted")
    )
    assert ("the model it started from" in text) is (family == "tmde_adapted")


def test_numbers_are_those_of_the_run(run):
    card = model_card(run)
    assert row_of(card, "Parameters") == ["48; 40 of them embed"] and row_of(
        card, "Longest input"
    ) == ["64 tokens"]
    assert row_of(card, "dev, sentences") == ["25.0", "25.0", "8.3"]  # chance is one of 12
    assert row_of(card, "Same") == ["90.0", "–"] and row_of(card, "Wall clock") == ["2.5 hours"]
    assert row_of(card, "Device") == ["CPU: EPYC, 1 × 2 threads on 4 cores"]
    text = str(card)
    assert "in 2 steps over 1,234 words" in text and "108 rows" in text and "weight 0.5" in text
    assert "Its perplexity on dev rows is 7.4" in text  # exp(2)
    name, results = model_index_to_eval_results(card.data.to_dict()["model-index"])
    assert (name, results[0].metric_value, results[0].dataset_split) == ("mine", 0.25, "dev")
    change(run / "results.json", best=None)
    assert "None are recorded." in str(model_card(run)) and "model-index" not in str(
        model_card(run)
    )


def test_results_of_an_evaluation(run, tmp_path):
    cell = {
        "source": "de",
        "target": "de",
        "metric": "accuracy",
        "value": 0.9,
        "interval": [0.85, 0.95],
        "items": 100,
    }
    column = {
        "title": "Same",
        "value": 0.9,
        "interval": [0.85, 0.95],
        "chance": 0.25,
        "majority": 0.3,
    }
    entry = {
        "task_type": "text-classification",
        "dataset_type": "user/set",
        "dataset_name": "Topics",
    }
    entry |= {"metric_type": "accuracy", "metric_value": 0.7, "dataset_config": "Cross"}
    record = {
        "task": "Topics",
        "system": "ours",
        "protocol": "zero-shot",
        "metric_name": "Accuracy (%)",
    }
    record |= {"baseline": False, "cells": [cell], "columns": [column], "model_index": [entry]}
    write(tmp_path / "results" / "eval.json", {"results": [record, {**record, "system": "theirs"}]})
    with pytest.raises(ValueError, match="found results of ours, theirs, expected some of 'mine'"):
        model_card(run, results=[tmp_path / "results"])
    card = model_card(run, results=[f"{tmp_path / 'results'}#ours"])
    rows = [line for line in str(card).splitlines() if line.startswith("| Topics (zero-shot)")]
    columns, cells = [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in rows]
    assert columns == ["Accuracy (%)", "Same", "90.0", "85.0 to 95.0", "25.0", "30.0"]
    assert cells == ["de → de", "90.0", "85.0 to 95.0", "100"]
    (result,) = card.data.eval_results
    assert (result.metric_value, result.dataset_type) == (0.7, "user/set")


def test_licenses(run):
    stated = {
        "license": "mit",
        "data_licenses": {"words.jsonl": "CC0"},
        "description": "By **us**.",
    }
    write(run / "recipe.yaml", {**RECIPE, "card": stated})
    card = model_card(run)
    assert (
        card.data.license == "mit"
        and "| `words.jsonl` | CC0 |" in str(card)
        and "\nBy **us**.\n" in str(card)
    )
    card = model_card(
        run, license="apache-2.0", data_licenses={"/home/somebody/words.jsonl": "CC BY 4.0"}
    )
    assert card.data.license == "apache-2.0" and "| `words.jsonl` | CC BY 4.0 |" in str(card)
    with pytest.raises(
        ValueError, match="found other.jsonl, expected some of the training sources"
    ):
        model_card(run, data_licenses={"there/other.jsonl": "CC0"})


def test_a_published_recipe_has_no_paths_and_tokens(run):
    recipe = public_recipe(run)
    assert recipe["data"]["train"] == ["words.jsonl", "Helsinki-NLP/europarl"]
    assert recipe["training"] == {"max_steps": 2, "output_dir": "here"}
    assert recipe["description"] == "made in place by https://host/x"
    write(
        run / "recipe.yaml",
        {"data": {"train": {"de": r"C:\me\a.de", "en": "~/b.en"}, "eval_task": "topics=/x/y"}},
    )
    assert public_recipe(run)["data"] == {
        "train": {"de": "a.de", "en": "b.en"},
        "eval_task": "topics=y",
    }


def test_sources_and_origins(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "README.md").write_text("---\nlicense: cc0-1.0\n---\n")
    found = hub_cards.describe_sources(
        ["sample", "rows", "user/rows", {"de": "a/x.de", "en": "a/x.en"}]
    )
    expected = [
        ("sample", "sample"),
        ("rows", "files"),
        ("user/rows", "hub"),
        ("x.de, x.en", "files"),
    ]
    assert [(one["name"], one["kind"]) for one in found] == expected and found[1][
        "license"
    ] == "cc0-1.0"
    change(
        run / "run.json",
        begun_with=[{"name": "first", "hub": True, "license": None, "sources": None}],
    )
    recipe = {
        "warm_start": {"checkpoint": str(run)},
        "objectives": {"distillation": {"teacher": "a/b"}},
    }
    origins = hub_cards.describe_origins(recipe)
    assert [model["name"] for model in origins["begun_with"]] == ["mine", "first"] and origins[
        "teacher"
    ]["hub"]
    change(run / "run.json", **origins)
    text = str(model_card(run))
    assert "Started from: `mine`, trained on `words.jsonl` (license: not stated)" in text
    assert "itself started from [first](https://huggingface.co/first)" in text
    assert "Teacher: [a/b](https://huggingface.co/a/b), whose card names its training text." in text


def test_added_languages(run):
    write(run / "recipe.yaml", {"data": {"train": {"new": "x.tsv", "new_languages": ["pt"]}}})
    report = {"data": {"new": {"rows": 75}, "old": {"rows": 25}}, "trained_share": 0.5}
    write(
        run / "languages.json",
        {**report, "means": {"new_sentences": {"before": 0.1, "after": 0.85}}},
    )
    text = str(model_card(run))
    assert "Added languages: `pt`." in text and "25.0 % were of the other languages" in text
    assert "the weights are 50.0 % the trained ones" in text and "| 10.0 | 85.0 | +75.0 |" in text


def test_edited_text_is_kept_and_metadata_are_updated(run):
    path = run / "README.md"
    write_model_card(run, license="mit")
    write_model_card(run)  # text of ours is replaced, the license kept
    assert not is_edited(path.read_text()) and "license: mit" in path.read_text()
    path.write_text(
        path.read_text().replace("## Use it", "My words.\n\n## Use it").replace("- tmde", "- mine")
    )
    write_model_card(run, license="apache-2.0")
    text = path.read_text()
    assert is_edited(text) and "My words." in text
    assert "license: apache-2.0" in text and "- mine" in text and "- tmde" in text
    path.write_text("---\nlicense: [\n---\nx")
    with pytest.raises(ValueError, match="no YAML mapping"):
        write_model_card(run)


def test_dataset_card():
    rows = [{"translation": row} for row in make_rows(30, languages=("de", "en", "fr"))]
    rows[0] = {"translation": rows[0]["translation"] | {"fr": None}}
    features = {"translation": datasets.Translation(["de", "en", "fr"])}
    table = datasets.Dataset.from_list(rows, features=datasets.Features(features))
    text = str(dataset_card(table, "user/rows", license="cc0-1.0"))
    assert (
        "30 rows of translations in `de`, `en`, `fr`, not every row" in text
        and "`cc0-1.0`." in text
    )
    assert row_of(text, "de-fr") == ["29"] and row_of(text, "de-en") == ["30"]
    text = str(
        dataset_card(table.add_column("score", [index / 10 for index in range(30)]), "user/rows")
    )
    assert "lowest 0, median 1.45, highest 2.9" in text and "**Not stated**" in text


BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNER = """
import json, sys
import numpy
found = []
sys.modules["modeling_tmde"] = None
for family, code in sorted(json.load(open("blocks.json")), key=lambda block: "from modeling_tmde" in block[1]):
    if "from modeling_tmde" in code and sys.modules.get("modeling_tmde", True) is None:
        del sys.modules["modeling_tmde"]
    space = {}
    exec(code, space)
    vectors = space.get("vectors", space.get("vector"))
    vectors = [space["first"], space["second"]] if vectors is None else vectors
    rows = [numpy.asarray(row.detach() if hasattr(row, "detach") else row).tolist() for row in vectors]
    found.append([family, rows])
json.dump(found, open("found.json", "w"))
"""


@pytest.mark.slow
def test_the_code_of_a_card_runs(tokenizer, tmp_path):
    """Each block as it is printed, without the package where it needs none; all find the same vectors."""
    torch.manual_seed(2)
    common = {"vocab_size": 400, "languages": ["de", "en"], "pivot_languages": ["en", "de"]}
    models = {
        "tmde": tiny_model(languages=["de", "en"], pivot_languages=["en", "de"]),
        "bag": BagModel(BagConfig(d_model=8, **common)),
        "ntdv": NtdvForConditionalGeneration(
            NtdvConfig(embedding_dim=8, d_model=8, attention_heads=2, **common)
        ),
    }
    blocks = []
    for family, model in models.items():
        card = model_card(save(tmp_path / family, model.eval(), tokenizer))
        blocks += [(family, *block) for block in BLOCK.findall(str(card))]
    write(
        tmp_path / "blocks.json",
        [(family, code) for family, language, code in blocks if language == "python"],
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PATH": path}
    bash = next(code for family, language, code in blocks if (family, language) == ("ntdv", "bash"))
    for command in ([sys.executable, "-c", RUNNER], ["bash", "-euc", bash]):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
    found = [
        *json.loads((tmp_path / "found.json").read_text()),
        ["ntdv", np.load(tmp_path / "vectors.npy")],
    ]
    assert [family for family, _ in found].count("tmde") == 4 and len(found) == 11
    expected = {}
    for family, vectors in found:
        unit = np.array(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
        np.testing.assert_allclose(unit, expected.setdefault(family, unit)[: len(unit)], atol=1e-5)
