"""Cards of runs that began with another model, were taught by one, or added languages: what they own up to."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from modeling_tmde.hub_cards import model_card, public_recipe
from modeling_tmde.hub_cards.run_facts import RunFacts
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe
from tests.hub_cards.conftest import TRAINING, write_recipe
from tests.hub_cards.test_model_card import change, row_of


@pytest.fixture(autouse=True)
def cache(secret, monkeypatch):
    monkeypatch.setattr("modeling_tmde.data.token_cache.default_folder", lambda: secret / "tokens")


def train(folder: Path, family: str, corpus: Path | str, name: str, **sections) -> Path:
    folder.mkdir(exist_ok=True)
    path = write_recipe(folder, family, corpus, **sections)
    train_recipe(load_recipe(str(path)), folder / name)
    return folder / name


@pytest.fixture(scope="module")
def begun(runs, corpus, secret) -> Path:
    """A bag that began with the folder of another run, whose card has a licence, in a chain of three."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("modeling_tmde.data.token_cache.default_folder", lambda: secret / "tokens")
        folder = secret / "chain"
        start = {"tokenizer": {}, "warm_start": {"checkpoint": str(runs["bag"])}}
        second = train(folder, "bag", corpus, "second", **start, card={"license": "cc-by-sa-4.0"})
        other = folder / "other.jsonl"
        other.write_bytes(corpus.read_bytes())
        return train(folder, "bag", other, "third", tokenizer={}, warm_start={"checkpoint": str(second)})


def test_a_local_model_that_a_run_began_with_is_told_with_its_data(begun, secret):
    card = model_card(begun)
    text = str(card)
    assert (
        "Begun with: `second` (licence: cc-by-sa-4.0), trained on `words.jsonl` (licence: not stated), itself begun "
        "with `tiny-bag`, trained on `words.jsonl` (licence: not stated)." in text
    )
    assert row_of(card, "Begun with") == ["`second`"] and card.data.base_model is None
    assert "Training text of this run" in text and "The licence of what it began with applies too." in text
    assert "this run fitted it to `de`, `en`, `fr` only" in text and "Trained on" not in text
    assert "words in this run: most of what it knows" in text and "fewer than useful" not in text
    assert "(`other.jsonl`) and that of what it began with (`second`)" in text
    assert secret.name not in text
    assert text == (begun / "README.md").read_text()


def test_of_a_folder_without_records_no_data_are_listed(runs, corpus, tmp_path):
    bare = tmp_path / "private-customer"
    bare.mkdir()
    for file in runs["bag"].iterdir():
        if file.name not in ("run.json", "recipe.yaml", "README.md") and file.is_file():
            (bare / file.name).write_bytes(file.read_bytes())
    folder = train(tmp_path / "x", "bag", corpus, "on", tokenizer={}, warm_start={"checkpoint": str(bare)})
    assert "Begun with: `private-customer`, whose data are not listed." in str(model_card(folder))


def test_an_older_run_tells_what_its_recipe_does(runs, begun, tmp_path):
    record = json.loads((begun / "run.json").read_text())
    for key in ("begun_with", "teacher", "hub_models"):
        record.pop(key)
    older = tmp_path / "older"
    older.mkdir()
    for file in begun.iterdir():
        if file.is_file():
            (older / file.name).write_bytes(file.read_bytes())
    (older / "run.json").write_text(json.dumps(record))
    assert "Begun with: `second`, whose data are not listed." in str(model_card(older))
    assert "Begun with: `tiny-roberta`" in str(model_card(runs["adapted"]))
    for family in set(runs) - {"adapted"}:
        assert "egun with" not in str(model_card(runs[family])).replace("which the model was begun", "")


@pytest.fixture
def adapted(runs, tmp_path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for file in runs["adapted"].iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_model_of_the_hub_is_linked(adapted):
    begun = [{"name": "somebody/encoder", "hub": True, "license": None, "sources": None}]
    change(adapted / "run.json", base_model="somebody/encoder", begun_with=begun, hub_models=["somebody/encoder"])
    recipe = yaml.safe_load((adapted / "recipe.yaml").read_text())
    recipe["model"]["encoder"] = "somebody/encoder"
    (adapted / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    card = model_card(adapted)
    link = "[somebody/encoder](https://huggingface.co/somebody/encoder)"
    assert f"Begun with: {link}, whose card says what it was trained on." in str(card)
    assert row_of(card, "Begun with") == [link] and card.data.base_model == "somebody/encoder"
    assert yaml.safe_load(public_recipe(adapted))["model"]["encoder"] == "somebody/encoder"


def test_a_pretrained_model_on_the_sample_knows_other_words(adapted, runs):
    sample = [{"name": "sample", "kind": "sample", "license": "Apache-2.0"}]
    change(adapted / "run.json", sources=sample)
    text = str(model_card(adapted))
    assert "knows no other words" not in text and "In this run it was trained on the sample" in text
    record = runs["bag"] / "run.json"
    before = record.read_text()
    try:
        change(record, sources=sample)
        assert "It knows no other words; do not use it for real text." in str(model_card(runs["bag"]))
    finally:
        record.write_text(before)


def test_dev_rows_of_the_users_own_are_not_called_held_out(runs, begun, corpus, tmp_path):
    dev = tmp_path / "own.jsonl"
    dev.write_bytes(corpus.read_bytes())  # the very rows that are trained
    recipe = {"train": str(corpus), "dev": str(dev), "languages": ["de", "en", "fr"], "pivot_languages": ["en"]}
    card = model_card(train(tmp_path / "x", "bag", corpus, "on", data=recipe))
    text = str(card)
    assert "of a source of its own (overlap with the training rows was not checked), which chose" in text
    assert "held out" not in text and "not trained on" not in text and "kind it was trained for" not in text
    assert card.data.eval_results[0].dataset_name == "own, sentences"
    card = model_card(runs["bag"])
    assert "held out of the training text, which were not trained on but chose" in str(card)
    assert card.data.eval_results[0].dataset_name == "dev, sentences held out from training"
    card = model_card(begun)
    assert "which this run was not trained on (what it began with may have been)" in str(card)
    assert card.data.eval_results[0].dataset_name == "dev, sentences held out from this run"


def test_paths_and_credentials_stay_here(adapted):
    recipe = yaml.safe_load((adapted / "recipe.yaml").read_text())
    recipe["description"] = "from ~/private/a and https://user:hush@host.org/x?token=hush"
    recipe["tokenizer"] = {"path": "models/private-tokenizer"}
    recipe["warm_start"] = {"checkpoint": "models/private-customer"}
    recipe["warm_start"]["overrides"] = {"tokenizer.path": "models/private-stage"}
    recipe["objectives"]["distillation"] = {"teacher": "models/private-teacher"}
    paths = ("logging_dir", "resume_from_checkpoint", "token_cache_dir", "fsdp_config", "accelerator_config")
    recipe["training"] |= {key: f"models/private-{key}" for key in paths}
    recipe["training"] |= {"deepspeed": {"nvme": "models/nvme", "comet": {"api_key": "hush"}}, "learning_rate": 0.1}
    recipe["training"]["run_name"] = "./models/name"
    recipe["data"]["train"] = ["https://user:hush@host.org/rows.jsonl?sig=hush", "s3://key:hush@models/rows"]
    recipe["data"]["dev"] = "https://user:hush@host.org/rows.jsonl?sig=hush#hush"
    (adapted / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    record = json.loads((adapted / "run.json").read_text())
    for known in (record, {key: value for key, value in record.items() if key not in ("sources", "hub_models")}):
        (adapted / "run.json").write_text(json.dumps(known))
        public = public_recipe(adapted)
        assert not [word for word in ("hush", "models", "user", "api_key", "~") if word in public]
    assert "hush" not in str(model_card(adapted)) and "models/" not in str(model_card(adapted))
    public = yaml.safe_load(public)
    assert public["description"] == "from a and https://host.org/x"
    assert public["tokenizer"]["path"] == "private-tokenizer" and public["training"]["learning_rate"] == 0.1
    assert public["training"]["deepspeed"] == {"nvme": "nvme", "comet": {}}
    assert (
        public["data"] | {"train": ["https://host.org/rows.jsonl", "rows"], "dev": "https://host.org/rows.jsonl"}
        == (public["data"])
    )


def test_hub_ids_are_those_that_were_none_here_when_the_run_was_recorded(tmp_path, monkeypatch):
    from modeling_tmde.hub_cards.origins import describe_origins

    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "customer").mkdir(parents=True)
    sections = {
        "tokenizer": {"path": "models/customer"},
        "warm_start": {"checkpoint": "models/customer", "overrides": {"tokenizer.path": "never/read"}},
        "objectives": {"distillation": {"teacher": "somebody/teacher"}},
    }
    found = describe_origins(sections)
    assert found["hub_models"] == ["somebody/teacher"] and found["base_model"] is None
    assert found["begun_with"] == [{"name": "customer", "hub": False, "license": None, "sources": None}]
    assert found["teacher"] == {"name": "somebody/teacher", "hub": True, "license": None, "sources": None}


def test_a_teacher_is_named(corpus, tmp_path):
    pytest.importorskip("sentence_transformers")
    from tests.training.teachers import static_teacher

    static_teacher(tmp_path / "private" / "wise-model", width=8)
    objectives = {"distillation": {"teacher": str(tmp_path / "private" / "wise-model"), "teacher_languages": ["en"]}}
    folder = train(tmp_path / "x", "bag", corpus, "pupil", objectives=objectives)
    card = model_card(folder)
    assert row_of(card, "Taught by") == ["`wise-model`"] and "private" not in str(card)
    assert "Taught by: `wise-model`, whose data are not listed." in str(card)
    assert "It learned the vectors of `wise-model`: their mistakes" in str(card)
    assert "So may that of its teacher." in str(card)


def test_added_languages_are_told_with_what_they_did(tmp_path):
    from modeling_tmde.training.added_language import add_languages
    from modeling_tmde.training.language_recipe import AddedLanguages
    from tests.training.added_language_helpers import NEW, OLD, SHORT, greek_rows, planted_bag, write_rows

    new = write_rows(tmp_path / "greek.parquet", greek_rows(150, seed=1))
    old = write_rows(tmp_path / "old.parquet", greek_rows(150, seed=2, languages=OLD))
    asked = AddedLanguages(str(planted_bag(tmp_path / "bag")), [NEW], [new], replay=old, overrides=SHORT)
    add_languages(asked, tmp_path / "run")
    card = str(model_card(tmp_path / "run"))
    assert "By `tmde add-language`" in card and "Added languages: `el`. Of the first rows" in card
    assert "| `greek.parquet` | not stated |" in card and "| `old.parquet` | not stated |" in card
    assert "Begun with: `bag`" in card and str(tmp_path) not in card
    means = json.loads((tmp_path / "run" / "languages.json").read_text())["means"]["new_sentences"]
    (row,) = [line for line in card.splitlines() if line.startswith("| with an added language | sentences")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:4] == [f"{100 * means['before']:.1f}", f"{100 * means['after']:.1f}"]
    train_section = yaml.safe_load(public_recipe(tmp_path / "run"))["data"]["train"]
    assert train_section["new"] == ["greek.parquet"] and train_section["replay"] == "old.parquet"
    assert train_section["new_languages"] == ["el"]


def test_weights_are_those_that_open(adapted):
    from safetensors.numpy import load_file, save_file

    expected = RunFacts.read(adapted).parameters
    (adapted / "adapter.safetensors").write_bytes(b"no weights")  # of something else
    assert RunFacts.read(adapted).parameters == expected
    tensors = load_file(adapted / "model.safetensors")
    names = sorted(tensors)
    parts = {"a.safetensors": names[:3], "b.safetensors": names[3:]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, adapted / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (adapted / "model.safetensors.index.json").write_text(json.dumps(index))
    assert RunFacts.read(adapted).parameters == expected  # the one file is what is read
    (adapted / "model.safetensors").unlink()
    assert RunFacts.read(adapted).parameters == expected
    (adapted / "b.safetensors").write_bytes((adapted / "b.safetensors").read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"b\.safetensors: the weights are missing or damaged"):
        model_card(adapted)


@pytest.mark.slow
def test_the_command_that_measures_runs_as_it_is_printed(corpus, tmp_path):
    data = {"train": str(corpus), "dev_rows": 0, "languages": ["de", "en", "fr"], "pivot_languages": ["en"]}
    folder = train(tmp_path / "x", "bag", corpus, "no dev", data=data, training={**TRAINING, "eval_strategy": "no"})
    card = str(model_card(folder))
    assert "`tmde eval somebody/bag --tasks sample`" in str(model_card(folder, repo_id="somebody/bag"))
    command = card.partition("no evaluation was given. `")[2].partition("`")[0]
    words = shlex.split(command)
    assert words[:3] == ["tmde", "eval", "no dev"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("tmde")), *words[1:]],
        cwd=folder.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
