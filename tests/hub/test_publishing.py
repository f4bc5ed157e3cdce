"""What is checked before the network is asked anything, and what of a folder is published."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from modeling_tmde.hub_upload import repository_files
from modeling_tmde.training.publishing import PublishError, check_checkpoint, check_repo_id, model_files, push_model


@pytest.fixture
def folder(model_folder, tmp_path):
    shutil.copytree(model_folder, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("repo_id", ["tiny", "a/b/c", "user/a b", "/tiny", "user/-x", "user/" + "x" * 100])
def test_bad_names(repo_id):
    with pytest.raises(PublishError, match="USER/NAME|cannot be the name"):
        check_repo_id(repo_id)


def test_a_complete_folder_passes(folder):
    assert check_checkpoint(folder)["model_type"] == "tmde"


DAMAGES = {
    "no folder": (lambda folder: shutil.rmtree(folder), "no folder"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "broken config": (lambda folder: (folder / "config.json").write_text("{"), "config.json: cannot be read"),
    "no type": (lambda folder: (folder / "config.json").write_text("{}"), "no model_type"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors"),
    "no code": (lambda folder: (folder / "modeling_tmde.py").unlink(), "no modeling_tmde.py"),
    "no tokenizer": (
        lambda folder: [(folder / name).unlink() for name in ("tokenizer.json", "tokenizer_config.json")],
        "tokenizer",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_incomplete_folder_is_refused(damage, folder, monkeypatch):
    monkeypatch.setattr("modeling_tmde.training.publishing.HubRepository", None)  # the network is not asked
    harm, words = DAMAGES[damage]
    harm(folder)
    with pytest.raises(PublishError, match=words) as error:
        push_model(folder, "user/tiny")
    assert str(folder) in str(error.value)


def test_weights_that_are_cut_off(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(PublishError, match="model.safetensors is missing or cut off"):
        check_checkpoint(folder)


def test_a_missing_shard(folder):
    (folder / "model.safetensors").unlink()
    save_file({"a": torch.zeros(2)}, folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(PublishError, match="model-00002-of-00002.safetensors is missing"):
        check_checkpoint(folder)


def test_a_tokenizer_of_another_model(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 10}))
    with pytest.raises(PublishError, match="the tokenizer has 400 tokens and the model 10"):
        check_checkpoint(folder)


def test_unknown_licenses_are_refused(folder):
    with pytest.raises(PublishError, match="Apache2.0.*do you mean 'apache-2.0'"):
        push_model(folder, "user/tiny", license="Apache2.0", dry_run=True)
    push_model(folder, "user/tiny", license="cc-by-4.0", dry_run=True)


def test_a_dry_run_writes_nothing(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    publication = push_model(folder, "user/tiny", dry_run=True)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert publication.commit is None and publication.sizes["README.md"] > 500
    assert publication.sizes["model.safetensors"] == (folder / "model.safetensors").stat().st_size


def test_what_a_person_wrote_in_the_card_stays(folder):
    (folder / "README.md").write_text("---\nlicense: mit\nmine: 1\n---\n\n# By hand\n")
    readme = model_files(folder, "user/tiny")["README.md"].decode()
    assert "# By hand" in readme and "mine: 1" in readme and "license: mit" in readme
    assert "library_name: transformers" in readme


def test_files_that_are_published(folder):
    for name in ("optimizer.pt", "pytorch_model.bin", "run.json", "log.jsonl", "notes.txt", "data_state.json"):
        (folder / name).write_text("x")
    for name in ("checkpoint-5/model.safetensors", "warm_start/config.json", "onnx/model.onnx", ".final.tmp/a.py"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("x")
    found = set(repository_files(folder))
    assert {"onnx/model.onnx", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"} <= found
    assert not {path for path in found if path.endswith((".pt", ".bin", ".txt", ".jsonl", "state.json", "run.json"))}
    assert not {path for path in found if path.startswith(("checkpoint", "warm_start", "."))}


def test_a_model_that_was_saved_before_sentence_transformers(folder):
    fresh = set(model_files(folder, "user/tiny"))
    modules = json.loads((folder / "modules.json").read_text())
    shutil.rmtree(folder / "1_Pooling")
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        (folder / name).unlink()
    made = model_files(folder, "user/tiny")
    assert set(made) == fresh
    assert json.loads(made["modules.json"]) == modules


def test_the_command_starts_without_torch():
    code = "import sys; from modeling_tmde.cli import push; assert 'torch' not in sys.modules, 'torch'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
