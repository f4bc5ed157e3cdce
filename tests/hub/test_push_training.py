"""`Trainer(push_to_hub=True)`: what `tmde train ... push_to_hub=true` brings to the Hub, as it runs and at its end."""

import json

import numpy as np
import pytest

from tests.hub.clients import TMDE, run_client
from tests.hub.test_push_corpus import write_rows
from tests.hub.test_push_model import commits, files

pytestmark = pytest.mark.slow

TINY = """
options = ["d_model=16", "encoder_layers=1", "encoder_attention_heads=2", "encoder_ffn_dim=16", "decoder_ffn_dim=16",
           "decoder_attention_heads=2", "max_position_embeddings=128"]
options = [f"model.{option}" for option in options]
options += ["tokenizer.vocab_size=300", "data.dev=null", "dev_rows=20", "data.max_rows=null", "micro_batch_tokens=256"]
options += ["warmup_steps=0", "train_max_length=64", "embed_max_length=64", "eval_pool=10", "eval_loss_rows=10"]
options += ["max_steps=4", "eval_steps=2", "save_steps=2", "push_to_hub=true", "token_cache_dir=null"]
"""


def all_files(hub, repo_id):
    """(path, file) of each commit."""
    return [entry for commit in hub.store.find("models", repo_id).history() for entry in commit.files.items()]


def test_training_pushes_the_best_checkpoint(hub, tmp_path):
    from tests.conftest import make_rows

    hub.store.create("models", "user/other", private=False)
    other = [{"key": "header", "value": {"summary": "other"}}]
    other.append({"key": "file", "value": {"path": "config.json", "content": "eyJtb2RlbF90eXBlIjogImJlcnQifQ=="}})
    hub.store.commit(hub.store.find("models", "user/other"), "main", other, "user", False)
    write_rows(tmp_path / "rows.jsonl", make_rows(150, seed=4))
    code = (
        TMDE
        + TINY
        + """
folder = arguments[0]
options += ["--train", f"{folder}/rows.jsonl"]
def train(name, *more):
    return tmde("train", "quickstart", *options, *more, "-o", f"{folder}/{name}")
found = {
    "run": train("run", "hub_model_id=user/run", "hub_private_repo=true", "hub_strategy=checkpoint",
                 "hub_always_push=true", "learning_rate=0.003"),
    "end": train("end", "hub_strategy=end"),
    "other": train("third", "hub_model_id=user/other"),
    "stranger": train("fourth", "hub_model_id=eve/run"),
    "token": train("fifth", "hub_token=hf_user"),
}
from pathlib import Path
report([found, [name for name in ("third", "fourth", "fifth") if Path(folder, name).exists()]])
"""
    )
    found, begun = run_client(hub, tmp_path / "client", code, tmp_path)
    for name, (status, _, stderr) in found.items():
        assert status == (1 if name in ("other", "stranger", "token") else 0), (name, stderr)
    assert "HF_TOKEN" in found["token"][2]
    assert "'bert'" in found["other"][2] and "may not write" in found["stranger"][2] and not begun  # before training
    assert f"{hub.endpoint}/user/run" in found["run"][1]

    steps = [f"Training in progress, step {step}" for step in (4, 2)]
    assert commits(hub, "user/run") == ["End of training", *steps, "initial commit"]
    assert commits(hub, "user/end") == ["End of training", "initial commit"]  # by the name of its folder
    assert hub.store.find("models", "user/run").private and not hub.store.find("models", "user/end").private

    held, run = files(hub, "user/run"), tmp_path / "run"
    for name in (
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "modeling_tmde.py",
        "README.md",
        "modules.json",
    ):
        assert held[name] == (run / name).read_bytes(), name
    best = json.loads((run / "results.json").read_text())["best_step"]
    assert held["model.safetensors"] == (run / f"checkpoint-{best}" / "model.safetensors").read_bytes()
    assert json.loads(held["config.json"])["architectures"] == ["TmdeForConditionalGeneration"]
    assert b"user/run" in held["README.md"] and "recipe.yaml" in held
    for repo_id in ("user/run", "user/end"):  # nothing of any commit tells a place on this machine
        everything = {file.oid: (path, file) for path, file in all_files(hub, repo_id)}
        assert not [path for path, file in everything.values() if str(tmp_path).encode() in hub.store.read(file)]
    last = {path.removeprefix("last-checkpoint/") for path in held if path.startswith("last-checkpoint/")}
    assert {"model.safetensors", "optimizer.pt", "trainer_state.json", "data_state.json"} <= last
    assert held["last-checkpoint/model.safetensors"] == (run / "checkpoint-4" / "model.safetensors").read_bytes()
    name = json.loads(held["last-checkpoint/trainer_state.json"])["best_model_checkpoint"]
    ours = json.loads((run / "checkpoint-4" / "trainer_state.json").read_text())["best_model_checkpoint"]
    assert name == f"checkpoint-{best}" and ours == str(run / name)  # and the run's own is as it was
    ended = files(hub, "user/end")
    assert not any(path.startswith(("last-checkpoint", "checkpoint")) for path in ended)
    assert not [path for path in (*held, *ended) if path.endswith("training_args.bin")]

    during = hub.store.find("models", "user/run").history()[2].files  # step 2
    assert hub.store.read(during["tokenizer.json"]) == held["tokenizer.json"] and "modeling_tmde.py" in during
    shapes = np.frombuffer(hub.store.read(during["model.safetensors"])[:8], dtype="<u8")[0]
    header = json.loads(hub.store.read(during["model.safetensors"])[8 : 8 + int(shapes)])
    assert "model.embed_tokens.weight" in header  # the model's, not the training wrapper's


def test_a_push_that_fails_at_the_end_says_where_the_model_is(hub, tmp_path):
    from tests.conftest import make_rows

    write_rows(tmp_path / "rows.jsonl", make_rows(150, seed=4))
    hub.cut_commit = lambda: "before"
    code = (
        TMDE
        + TINY
        + """
folder = arguments[0]
report(tmde("train", "quickstart", *options, "--train", f"{folder}/rows.jsonl", "hub_model_id=user/run",
            "-o", f"{folder}/run"))
"""
    )
    status, _, stderr = run_client(hub, tmp_path / "client", code, tmp_path)
    assert status == 1 and f"tmde push {tmp_path}/run user/run" in " ".join(stderr.split()), stderr
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert commits(hub, "user/run") == ["initial commit"]


def test_weights_in_training_do_not_stay_beside_the_results_of_an_earlier_run(hub, tmp_path):
    from tests.conftest import make_rows

    write_rows(tmp_path / "rows.jsonl", make_rows(150, seed=4))
    code = (
        TINY
        + """
from pathlib import Path
from huggingface_hub import HfApi, hf_hub_download
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe
folder = arguments[0]
def train(name, *more):
    recipe = load_recipe("quickstart", [*options, "hub_model_id=user/run", "hub_always_push=true", *more])
    recipe.set("data.train", f"{folder}/rows.jsonl")
    return train_recipe(recipe, f"{folder}/{name}")
train("first", "hub_strategy=end").push_to_hub("First", license="mit", tags="mine")
HfApi().upload_file(path_or_fileobj=b"picture", path_in_repo="curves.png", repo_id="user/run")
trainer = train("second", "hub_strategy=every_save", "learning_rate=0.001")
best = trainer.state.best_global_step
def push(step):
    trainer._push_from_checkpoint(f"{folder}/second/checkpoint-{step}")
    trainer._finish_current_push()
push(best)  # the weights that are there already
card = Path(hf_hub_download("user/run", "README.md")).read_text()
HfApi().upload_file(path_or_fileobj=card.replace("## ", "By hand.\\n\\n## ", 1).encode(), path_in_repo="README.md",
                    repo_id="user/run", commit_message="By hand")
push({2: 4, 4: 2}[best])
report(best)
"""
    )
    run_client(hub, tmp_path / "client", code, tmp_path)
    history = hub.store.find("models", "user/run").history()
    titles = [commit.title for commit in history]
    first = titles.index("First")
    steps = [titles.index(f"Training in progress, step {step}", first - 3) for step in (2, 4)]
    told = {"results.json", "recipe.yaml"}
    for index in steps:
        held = files(hub, "user/run", history[index].oid)
        card = held["README.md"].decode()
        assert not (told | {"curves.png"}) & set(held) and "\n## " not in card
        assert "license: mit" in card and "- mine\n" in card and "- de\n" in card and '"user/run"' in card
    end = titles.index("End of training")
    assert end < min(steps)
    by_hand = titles.index("By hand")
    for index in range(by_hand, end + 1):
        held = files(hub, "user/run", history[index].oid)
        assert told <= set(held) and b"\n## " in held["README.md"], titles[index]
        assert held["model.safetensors"] == (tmp_path / "second" / "model.safetensors").read_bytes()
    last = files(hub, "user/run")
    assert titles[0].startswith("Training in progress") and not told & set(last)
    assert b"By hand." in last["README.md"]


def test_the_trainers_own_push(hub, tmp_path):
    """`trainer.push_to_hub` as of any `Trainer`: in the background, private, with what its card takes."""
    from tests.conftest import make_rows

    write_rows(tmp_path / "rows.jsonl", make_rows(150, seed=4))
    code = (
        TINY
        + """
import logging
from huggingface_hub import metadata_load
from modeling_tmde.hub_upload import HubUploadError
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe
from transformers.trainer_utils import HubStrategy
from transformers.utils.logging import get_logger
told = []
handler = logging.Handler()
handler.emit = lambda record: told.append(record.getMessage())
get_logger("modeling_tmde.training").addHandler(handler)
folder = arguments[0]
recipe = load_recipe("quickstart", [*options, "hub_model_id=user/run", "hub_private_repo=true", "hub_strategy=end"])
recipe.set("data.train", f"{folder}/rows.jsonl")
trainer = train_recipe(recipe, f"{folder}/run")

def refused(**options):
    try:
        trainer.push_to_hub(**options)
    except (HubUploadError, TypeError) as error:
        return f"{type(error).__name__}: {error}"

found = {}
told.clear()
commit = trainer.push_to_hub("Tagged", tags=["mine", "news"], license="mit", finetuned_from="user/start",
                             dataset_tags=["user/rows"], dataset="Rows", model_name="Run", language="de")
found["told"] = list(told)
found["card"] = metadata_load(f"{folder}/run/README.md")
future = trainer.push_to_hub("Later", blocking=False, tags="late")
found["commits"] = [commit.commit_message, future.result().commit_message]
weights = f"{folder}/run/model.safetensors"
import os
before = os.stat(weights).st_mtime_ns
found["unknown"] = refused(tgs=["mine"])
found["saved"] = os.stat(weights).st_mtime_ns != before

# The repository was deleted in the meantime, and is made anew.
trainer.hub_model_id, trainer.args.hub_strategy = "user/gone", HubStrategy.CHECKPOINT
trainer._push_from_checkpoint(f"{folder}/run/checkpoint-4")
trainer._finish_current_push()
trainer.args.hub_private_repo = None
trainer.hub_model_id = "user/public"
trainer.push_to_hub("Public")
found["public"] = refused(commit_message="Private", private=True)
trainer.hub_model_id = "user/private"
trainer.push_to_hub("Private", private=True)
report(found)
"""
    )
    found = run_client(hub, tmp_path / "client", code, tmp_path)
    assert len(found["told"]) == 1 and found["told"][0].endswith("by language, model_name, dataset"), found["told"]
    card = found["card"]
    assert {"mine", "news", "sentence-transformers"} <= set(card["tags"]) and card["license"] == "mit"
    assert (card["base_model"], card["datasets"], card["language"]) == (
        "user/start",
        ["user/rows"],
        ["de", "en", "es", "fr", "it"],
    )
    assert found["commits"] == ["Tagged", "Later"]
    assert commits(hub, "user/run")[:3] == ["Later", "Tagged", "End of training"]
    assert b"- late\n" in files(hub, "user/run")["README.md"] and b"- news\n" in files(hub, "user/run")["README.md"]
    assert "TypeError" in found["unknown"] and "'tgs'" in found["unknown"] and not found["saved"]
    assert "is public" in found["public"] and commits(hub, "user/public") == ["Public", "initial commit"]
    private = {name: hub.store.find("models", f"user/{name}").private for name in ("run", "gone", "public", "private")}
    assert private == {"run": True, "gone": True, "public": False, "private": True}
    gone = files(hub, "user/gone")
    assert json.loads(gone["last-checkpoint/trainer_state.json"])["best_model_checkpoint"].startswith("checkpoint-")
    assert not [path for path, content in gone.items() if str(tmp_path).encode() in content]
