"""Training from recipes: the run's folder, held-out rows, kill and resume, and the command line."""

import json
import logging
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from typer.testing import CliRunner

from modeling_tmde import TmdeForConditionalGeneration, TmdeModel
from tests.conftest import make_rows
from tests.training.test_batching import numbered_rows
from tests.training.trainers import ENVIRONMENT
from tmde.cli.main import app
from tmde.data.io import locked
from tmde.training.checkpoints import seal
from tmde.training.recipe import RecipeError, load_recipe, with_settings
from tmde.training.run import train_recipe
from tmde.training.run_data import load_data, named_sources
from tmde.training.trainer import TmdeTrainer

TINY = [
    "data.dev=null",
    "data.dev_rows=12",
    "vocab_size=400",
    "d_model=32",
    "encoder_ffn_dim=48",
    "decoder_ffn_dim=48",
    "max_position_embeddings=128",
    "train_max_length=128",
    "learning_rate=0.005",
    "warmup_steps=2",
    "max_steps=4",
    "logging_steps=1",
    "eval_steps=2",
    "micro_batch_tokens=600",
    "languages_per_row=2",
    "eval_pairs=[de-en]",
    "disable_tqdm=true",
]


def write_corpus(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text(
        "".join(json.dumps({"translation": row}, ensure_ascii=False) + "\n" for row in rows)
    )
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", numbered_rows(150))


def tiny_recipe(corpus: Path | str, *overrides: str):
    return load_recipe("quickstart", [f"data.train={corpus}", *TINY, *overrides])


def read(folder: Path, name: str = "results.json") -> dict:
    return json.loads((folder / name).read_text())


def log_lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def losses_by_step(folder: Path) -> dict[int, dict[str, float]]:
    """Every component of the last log of each step; speeds and clocks left out."""
    names = (
        "loss",
        "grad_norm",
        "learning_rate",
        "epoch",
        "rows",
        "translation_nll",
        "distance_hinge",
    )
    return {
        line["step"]: {name: line[name] for name in names}
        for line in log_lines(folder)
        if "loss" in line
    }


# ---- The folder of a run


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> tuple[Path, TmdeTrainer]:
    folder = tmp_path_factory.mktemp("runs") / "first"
    return folder, train_recipe(tiny_recipe(corpus), folder)


def test_folder_record_and_model_of_a_run(finished, corpus):
    folder, trainer = finished
    names = {path.name for path in folder.iterdir()}
    files = {
        "recipe.yaml",
        "run.json",
        "log.jsonl",
        "results.json",
        "config.json",
        "model.safetensors",
        "tokenizer",
    }
    assert files | {"tokenizer.json", "modeling_tmde.py", "checkpoint-2", "checkpoint-4"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    assert (
        load_recipe(str(folder / "recipe.yaml")).settings() == tiny_recipe(corpus).settings()
    )  # the run can be repeated
    record = read(folder, "run.json")
    results = read(folder)
    assert record["versions"]["torch"] == metadata.version("torch")
    assert record["data"]["train"]["rows"] == 138
    assert record["data"]["dev"]["dev"]["rows"] == 12
    assert record["parameters"] == sum(
        parameter.numel() for parameter in trainer.model.model.parameters()
    )
    evaluations = {
        line["step"]: line["eval_retrieval"]
        for line in log_lines(folder)
        if "eval_retrieval" in line
    }
    assert set(evaluations) == {2, 4}
    assert results["best"]["eval_retrieval"] == max(evaluations.values())
    assert results["steps"] == 4
    assert results["best"]["step"] == results["best_step"]
    assert results["seen"]["rows"] == trainer.meter.seen["rows"] > 0
    assert results["corpus"]["rows"] == 150
    encoder = AutoModel.from_pretrained(folder)
    whole = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert isinstance(encoder, TmdeModel)
    assert isinstance(whole, TmdeForConditionalGeneration)
    for name, value in trainer.model.model.state_dict().items():
        assert torch.equal(whole.state_dict()[name], value), name
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == whole.config.vocab_size


def test_without_dev_rows_the_last_weights_are_kept(corpus, tmp_path):
    trainer = train_recipe(tiny_recipe(corpus, "data.dev_rows=0", "max_steps=2"), tmp_path)
    results = read(tmp_path)
    assert results["best"] is None
    assert results["best_step"] is None
    assert results["steps"] == 2
    found = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).state_dict()
    assert all(
        torch.equal(found[name], value) for name, value in trainer.model.model.state_dict().items()
    )


def test_used_folder_is_refused_unless_it_is_a_run_to_overwrite(corpus, tmp_path):
    folder = tmp_path / "run"
    recipe = tiny_recipe(corpus, "max_steps=1")
    folder.mkdir()
    (folder / ".thesis.tex").write_text("years of work")
    for options, message in (
        ({}, "is not empty"),
        ({"overwrite": True}, "does not look like a training run; it is not overwritten"),
        ({"resume": True}, "no complete checkpoint"),
    ):
        with pytest.raises(ValueError, match=message):
            train_recipe(recipe, folder, **options)
    assert [path.name for path in folder.iterdir()] == [".thesis.tex"]
    shutil.rmtree(folder)
    folder.mkdir()
    with pytest.raises(RecipeError, match="train_max_length=129 .* max_position_embeddings=128"):
        train_recipe(tiny_recipe(corpus, "train_max_length=129"), folder)
    assert (
        folder / "recipe.yaml"
    ).is_file()  # a folder that was there stays, and can be overwritten
    (folder / "left.over").touch()
    with pytest.raises(ValueError, match="is not empty"):
        train_recipe(recipe, folder)
    train_recipe(recipe, folder, overwrite=True)
    assert not (folder / "left.over").exists()
    assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("d_model=30", "is not a multiple of"),
        ("train_max_length=129", "train_max_length=129 is more than the model takes"),
        ("gradient_accumulation_steps=1000", "micro-batches per process, a step takes 1000"),
        ("eval_pairs=[de-xx]", "eval_pairs: found 'de-xx', expected pairs of the languages"),
        ("metric_for_best_model=loss", "metric_for_best_model=loss: no evaluation measures it"),
        ("warmup_steps=0.1", "warmup_steps=0.1 is a share of all steps and needs max_steps"),
        ("hub_token=hf_x", "hub_token would be written to recipe.yaml"),
    ],
)
def test_settings_that_could_never_work_leave_no_folder(corpus, tmp_path, override, message):
    with pytest.raises(ValueError, match=message):
        train_recipe(
            tiny_recipe(corpus, "max_steps=-1", "num_train_epochs=1", override), tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


# ---- Data


@pytest.mark.parametrize("temperature", ["null", ".inf", "2.0"])
@pytest.mark.parametrize("streaming", ["true", "false"])
def test_dev_rows_and_their_copies_are_held_out(streaming, temperature, tmp_path):
    """A temperature repeats the rows of small corpora."""
    rows = numbered_rows(400)
    for number, part in enumerate((rows[:300], rows[300:340], rows[340:])):
        write_corpus(tmp_path / f"{number}.jsonl", part)
    options = ("dev_rows=30", f"streaming={streaming}", f"temperature={temperature}")
    train, dev, _ = load_data(tiny_recipe(tmp_path, *options))
    trained, held = ([row["translation"]["de"] for row in part] for part in (train, dev["dev"]))
    assert 20 < len(held) == len(set(held)) <= 30
    assert not set(held) & set(trained)
    assert set(held) | set(trained) == {row["de"] for row in rows}
    assert (len(trained) > len(set(trained))) == (temperature != "null")


@pytest.mark.parametrize("streaming", ["true", "false"])
def test_rows_that_share_but_some_texts_with_a_dev_row_stay(streaming, tmp_path):
    shared = [
        {"de": f"ja {number % 4}", "en": f"yes {number % 5}", "es": None} for number in range(20)
    ]
    shared += [
        {"de": f"ja {number % 4}", "en": None, "es": f"si {number % 5}"} for number in range(20)
    ]
    corpus = write_corpus(tmp_path / "rows.jsonl", shared * 2)
    train, dev, _ = load_data(
        tiny_recipe(corpus, "languages=[de, en, es]", f"streaming={streaming}", "dev_rows=4")
    )
    trained, held = (
        [tuple(row["translation"].values()) for row in rows] for rows in (train, dev["dev"])
    )
    assert len(held) == len(set(held)) >= 2
    assert len(trained) == 80 - 2 * len(held)
    assert not set(trained) & set(held)
    corpus = write_corpus(tmp_path / "rows.jsonl", numbered_rows(50))
    train, dev, _ = load_data(tiny_recipe(corpus, f"streaming={streaming}", "dev_rows=2000"))
    assert len(dev["dev"]) == 5
    assert len(list(train)) == 45  # no more than a tenth


def test_data_that_cannot_be_split_or_are_missing(tmp_path):
    corpus = write_corpus(tmp_path / "rows.jsonl", numbered_rows(1) * 30)
    with pytest.raises(
        ValueError, match="dev_rows=12: all rows are copies of those held out; give --dev"
    ):
        load_data(tiny_recipe(corpus))
    with pytest.raises(
        ValueError, match="dev_rows=12: found 2 rows in all, too few to hold out any; give --dev"
    ):
        load_data(tiny_recipe(write_corpus(tmp_path / "two.jsonl", numbered_rows(2))))
    with pytest.raises(RecipeError, match="needs training data: give --train"):
        load_data(load_recipe("quickstart", ["data.train=null"]))


def test_dev_sets_may_be_named(corpus, tmp_path):
    write_corpus(tmp_path / "talks.jsonl", make_rows(20, seed=8))
    recipe = tiny_recipe(corpus)
    sources = {"talks": str(tmp_path / "talks.jsonl"), "own": str(corpus)}
    train, dev, _ = load_data(with_settings(recipe, {"data.dev": sources}))
    assert len(train) == 150
    assert {name: len(rows) for name, rows in dev.items()} == {
        "talks": 20,
        "own": 150,
    }
    recipe = with_settings(recipe, {"data.dev": str(tmp_path / "talks.jsonl")})
    assert set(load_data(recipe).dev) == {"talks"}
    assert named_sources(["a/talks.jsonl", "news=b/dev.jsonl"]) == {
        "talks": "a/talks.jsonl",
        "news": "b/dev.jsonl",
    }
    assert named_sources(["d/lang=de/x.parquet"]) == {"x": "d/lang=de/x.parquet"}
    with pytest.raises(RecipeError, match="Two --dev sources are called 'dev'"):
        named_sources(["a/dev.jsonl", "b/dev.jsonl"])


# ---- Interrupted runs


def test_incomplete_newest_checkpoint_is_skipped_with_a_warning(finished, corpus, tmp_path, caplog):
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    (folder / "checkpoint-4" / "trainer_state.json").write_text("{")
    (folder / "checkpoint-9").mkdir()  # cut off before its state was written
    (folder / "checkpoint-9" / "sha256").touch()
    shutil.copytree(finished[0] / "checkpoint-4", folder / "checkpoint-8")
    states = (
        folder / "checkpoint-8" / "optimizer.pt"
    ).read_bytes()  # zeros, as after a crash of the machine
    (folder / "checkpoint-8" / "optimizer.pt").write_bytes(
        states[:1000] + bytes(64) + states[1064:]
    )
    (folder / "log.jsonl").unlink()
    with caplog.at_level(logging.WARNING, logger="tmde.training"):
        train_recipe(tiny_recipe(corpus), folder, resume=True)
    assert all(
        f"checkpoint-{step} is incomplete or damaged, and is skipped" in caplog.text
        for step in (9, 8, 4)
    )
    found = losses_by_step(folder)
    assert set(found) == {3, 4}
    for step, values in found.items():
        assert values == pytest.approx(losses_by_step(finished[0])[step], rel=1e-6), step


def test_a_damaged_best_checkpoint_is_not_taken(finished, corpus, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    state = json.loads((folder / "checkpoint-4/trainer_state.json").read_text())
    state["best_model_checkpoint"] = str(folder / "checkpoint-2")
    (folder / "checkpoint-4/trainer_state.json").write_text(json.dumps(state))
    seal(folder / "checkpoint-4")
    (folder / "checkpoint-2/model.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match="checkpoint-2, the best: model.safetensors is damaged"):
        train_recipe(tiny_recipe(corpus), folder, resume=True)


def test_a_folder_in_which_another_process_trains_is_refused_and_kept(corpus, tmp_path):
    with locked(tmp_path / "run"):
        (tmp_path / "run").mkdir()
        for options in ({}, {"overwrite": True}):
            with pytest.raises(ValueError, match="run: another process is writing to it"):
                train_recipe(tiny_recipe(corpus), tmp_path / "run", **options)
        assert (tmp_path / "run").is_dir()


def test_finished_run_resumes_to_itself_or_goes_on_to_a_larger_max_steps(
    finished, corpus, tmp_path
):
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    train_recipe(tiny_recipe(corpus), folder, resume=True)
    assert [line["step"] for line in log_lines(folder) if "loss" in line] == [1, 2, 3, 4]
    assert [read(folder)[key] for key in ("best_step", "seen")] == [
        read(finished[0])[k] for k in ("best_step", "seen")
    ]
    before, after = (
        load_file(path / "checkpoint-4" / "model.safetensors") for path in (finished[0], folder)
    )
    assert all(torch.equal(after[name], value) for name, value in before.items())
    with pytest.raises(
        RecipeError, match=r"model.encoder_layers is 3, and the run was begun with 2"
    ):
        train_recipe(tiny_recipe(corpus, "encoder_layers=3"), folder, resume=True)
    trainer = train_recipe(tiny_recipe(corpus, "max_steps=6"), folder, resume=True)
    assert trainer.state.global_step == 6
    assert [line["step"] for line in log_lines(folder) if "loss" in line] == [1, 2, 3, 4, 5, 6]


# ---- The command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quickstrat"], "Recipe 'quickstrat' is unknown; did you mean quickstart?"),
        (["quickstart", "--train", "missing.jsonl"], "missing.jsonl"),
        (["-o", "run"], "Name a recipe"),
    ],
)
def test_command_line_errors_are_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["train", *arguments])
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if line and "Warning" not in line]
    assert line.startswith("Error: ")
    assert message in line


@pytest.mark.slow
def test_command_line_trains_on_two_processes(corpus, tmp_path):
    arguments = [*TINY, "dropout=0", "max_steps=3", "micro_batch_tokens=300", "use_cpu=true"]
    command = [
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes=2",
        "--main_process_port=0",
    ]
    process = subprocess.run(
        [sys.executable, "-m", *command, "-m", "tmde", "train", "quickstart"]
        + [*arguments, "--train", str(corpus), "-o", "run"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    assert process.stdout.count("the model is in run") == 1  # one process speaks
    assert read(tmp_path / "run", "run.json")["processes"] == 2
    # The same micro-batches, in the same rounds, as one process that accumulates two.
    train_recipe(
        tiny_recipe(corpus, *arguments, "gradient_accumulation_steps=2"), tmp_path / "alone"
    )
    found = losses_by_step(tmp_path / "run")
    expected = losses_by_step(tmp_path / "alone")
    assert set(found) == set(expected) == {1, 2, 3}
    for step in found:
        for name in ("loss", "learning_rate", "epoch", "translation_nll", "distance_hinge"):
            assert found[step][name] == pytest.approx(expected[step][name], rel=1e-4), (step, name)
    assert read(tmp_path / "run")["best_step"] == read(tmp_path / "alone")["best_step"]
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("run", "alone")]
    for name, value in weights[1].items():
        torch.testing.assert_close(weights[0][name], value, rtol=0, atol=1e-5)
