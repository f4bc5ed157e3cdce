"""Training from recipes: the run's folder, held-out rows, kill and resume, and the command line."""

import json
import logging
import os
import shutil
import stat
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from typer.testing import CliRunner

from modeling_tmde import TmdeError, TmdeForConditionalGeneration, TmdeModel
from tests.conftest import make_rows
from tests.training.logs import assert_equal_weights, pick, read_log, values_of
from tests.training.test_batching import numbered_rows
from tests.training.trainers import ENVIRONMENT
from tmde.cli.main import app
from tmde.data.io import locked
from tmde.training.recipe import RecipeError, load_recipe, with_settings
from tmde.training.resuming import RunCompleteError
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
    "cooldown=0",
    "max_steps=4",
    "logging_steps=1",
    "eval_steps=2",
    "micro_batch_tokens=600",
    "languages_per_row=2",
    "eval_pairs=[de-en]",
    "disable_tqdm=true",
    "keep_checkpoints=true",
]


def write_corpus(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w") as file:
        for row in rows:
            file.write(json.dumps({"translation": row}, ensure_ascii=False) + "\n")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", numbered_rows(150))


def tiny_recipe(corpus: Path | str, *overrides: str):
    return load_recipe("quickstart", [f"data.train={corpus}", *TINY, *overrides])


def read(folder: Path, name: str = "results.json") -> dict:
    return json.loads((folder / name).read_text())


def trained_steps(folder: Path) -> list[int]:
    return values_of(read_log(folder, "loss"), "step")


LOSSES = (
    "loss",
    "grad_norm",
    "learning_rate",
    "epoch",
    "rows",
    "translation_nll",
    "distance_hinge",
)


def losses_by_step(folder: Path) -> dict[int, dict[str, float]]:
    """Return every component of the last log of each step, without speeds and clocks."""
    return {entry["step"]: pick(entry, LOSSES) for entry in read_log(folder, "loss")}


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def column(rows, language: str) -> list[str]:
    """Return the texts of all rows in a language."""
    return [row["translation"][language] for row in rows]


def row_texts(rows) -> list[tuple]:
    """Return the texts of each row."""
    return [tuple(row["translation"].values()) for row in rows]


# ---- The folder of a run


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> tuple[Path, TmdeTrainer]:
    folder = tmp_path_factory.mktemp("runs") / "first"
    return folder, train_recipe(tiny_recipe(corpus), folder)


def test_the_folder_of_a_run_holds_all_that_repeats_it(finished, corpus):
    folder, _ = finished
    names = {path.name for path in folder.iterdir()}
    assert {"recipe.yaml", "run.json", "log.jsonl", "results.json", "tokenizer"} <= names
    assert {"config.json", "model.safetensors", "tokenizer.json", "modeling_tmde.py"} <= names
    assert {"checkpoint-2", "checkpoint-4"} <= names
    assert not list(folder.glob("*.tmp"))
    repeated = load_recipe(str(folder / "recipe.yaml"))
    assert repeated.settings() == tiny_recipe(corpus).settings()


def test_the_record_of_a_run_counts_rows_and_parameters(finished):
    folder, trainer = finished
    record = read(folder, "run.json")
    assert record["versions"]["torch"] == metadata.version("torch")
    assert record["data"]["train"]["rows"] == 138
    assert record["data"]["dev"]["dev"]["rows"] == 12
    sizes = map(torch.Tensor.numel, trainer.model.parameters())
    assert record["parameters"] == sum(sizes)


def test_the_results_of_a_run_are_those_of_its_best_evaluation(finished):
    folder, trainer = finished
    results = read(folder)
    evaluations = read_log(folder, "eval_retrieval")
    assert set(values_of(evaluations, "step")) == {2, 4}
    assert results["best"]["eval_retrieval"] == max(values_of(evaluations, "eval_retrieval"))
    assert results["steps"] == 4
    assert results["best"]["step"] == results["best_step"]
    assert results["seen"]["rows"] == trainer.meter.seen["rows"] > 0
    assert results["corpus"]["rows"] == 150


def test_the_results_of_a_run_have_its_peak_memory(finished):
    folder, _ = finished
    states = [json.loads(path.read_text()) for path in folder.glob("checkpoint-*/data_state.json")]
    peaks = sorted(state["peak_memory_mib"] for state in states)
    assert len(peaks) == 2
    # Libraries alone take more than 100 MiB, and a peak never falls.
    assert 100 < peaks[0] <= peaks[1] <= read(folder)["peak_memory_mib"]


def test_auto_classes_open_the_folder_of_a_run(finished):
    folder, trainer = finished
    encoder = AutoModel.from_pretrained(folder)
    whole = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert isinstance(encoder, TmdeModel)
    assert isinstance(whole, TmdeForConditionalGeneration)
    assert_equal_weights(whole.state_dict(), trainer.model.state_dict())
    assert len(tokenizer) == whole.config.vocab_size


def test_without_dev_rows_the_last_weights_are_kept(corpus, tmp_path):
    trainer = train_recipe(tiny_recipe(corpus, "data.dev_rows=0", "max_steps=2"), tmp_path)
    results = read(tmp_path)
    assert results["best"] is None
    assert results["best_step"] is None
    assert results["steps"] == 2
    saved = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert_equal_weights(saved.state_dict(), trainer.model.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "is not empty"),
        ({"overwrite": True}, "does not look like a training run and was not overwritten"),
        ({"resume": True}, "no complete checkpoint"),
    ],
)
def test_a_folder_that_is_no_run_is_refused_and_kept(options, message, corpus, tmp_path):
    (tmp_path / ".thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match=message):
        train_recipe(tiny_recipe(corpus, "max_steps=1"), tmp_path, **options)
    assert list(tmp_path.iterdir()) == [tmp_path / ".thesis.tex"]


def test_a_run_is_refused_unless_it_is_to_be_overwritten(corpus, tmp_path):
    recipe = tiny_recipe(corpus, "max_steps=1")
    with pytest.raises(RecipeError, match="train_max_length=129 .* max_position_embeddings=128"):
        train_recipe(tiny_recipe(corpus, "train_max_length=129"), tmp_path)
    # A folder that was there stays, as empty as it was: the corrected command can use it.
    assert not list(tmp_path.iterdir())
    train_recipe(recipe, tmp_path)
    (tmp_path / "left.over").touch()
    with pytest.raises(ValueError, match="is not empty"):
        train_recipe(recipe, tmp_path)

    train_recipe(recipe, tmp_path, overwrite=True)

    assert not (tmp_path / "left.over").exists()
    assert (tmp_path / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("d_model=30", "is not a multiple of"),
        ("train_max_length=129", "train_max_length=129 exceeds the model's"),
        ("gradient_accumulation_steps=1000", "micro-batches per process, a step takes 1000"),
        ("eval_pairs=[de-xx]", "eval_pairs: found 'de-xx', expected pairs of the languages"),
        ("metric_for_best_model=bleu", "metric_for_best_model=bleu: this run does not measure it"),
        ("hub_token=hf_x", "hub_token would be written to recipe.yaml"),
    ],
)
def test_settings_that_could_never_work_leave_no_folder(corpus, tmp_path, override, message):
    recipe = tiny_recipe(corpus, "max_steps=-1", "num_train_epochs=1", override)
    with pytest.raises(ValueError, match=message):
        train_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---- Data


@pytest.mark.parametrize("temperature", ["null", ".inf", "2.0"])
@pytest.mark.parametrize("streaming", ["true", "false"])
def test_dev_rows_and_their_copies_are_held_out(streaming, temperature, tmp_path):
    """A temperature repeats the rows of small corpora."""
    rows = numbered_rows(400)
    write_corpus(tmp_path / "0.jsonl", rows[:300])
    write_corpus(tmp_path / "1.jsonl", rows[300:340])
    write_corpus(tmp_path / "2.jsonl", rows[340:])
    options = ("dev_rows=30", f"streaming={streaming}", f"temperature={temperature}")

    train, dev, _ = load_data(tiny_recipe(tmp_path, *options))

    trained = column(train, "de")
    held = column(dev["dev"], "de")
    assert 20 < len(held) == len(set(held)) <= 30
    assert not set(held) & set(trained)
    assert set(held) | set(trained) == {row["de"] for row in rows}
    are_repeated = len(trained) > len(set(trained))
    assert are_repeated == (temperature != "null")


@pytest.mark.parametrize("streaming", ["true", "false"])
def test_rows_that_share_but_some_texts_with_a_dev_row_stay(streaming, tmp_path):
    rows = []
    for number in range(20):
        german = f"ja {number % 4}"
        rows.append({"de": german, "en": f"yes {number % 5}", "es": None})
        rows.append({"de": german, "en": None, "es": f"si {number % 5}"})
    corpus = write_corpus(tmp_path / "rows.jsonl", rows * 2)

    train, dev, _ = load_data(
        tiny_recipe(corpus, "languages=[de, en, es]", f"streaming={streaming}", "dev_rows=4")
    )

    trained = row_texts(train)
    held = row_texts(dev["dev"])
    assert len(held) == len(set(held)) >= 2
    assert len(trained) == 80 - 2 * len(held)
    assert not set(trained) & set(held)


@pytest.mark.parametrize("streaming", ["true", "false"])
def test_no_more_than_a_tenth_of_the_rows_is_held_out(streaming, tmp_path):
    corpus = write_corpus(tmp_path / "rows.jsonl", numbered_rows(50))
    train, dev, _ = load_data(tiny_recipe(corpus, f"streaming={streaming}", "dev_rows=2000"))
    assert len(dev["dev"]) == 5
    assert len(list(train)) == 45


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (numbered_rows(1) * 30, "all rows repeat held-out ones; give --dev"),
        (numbered_rows(2), "found only 2 rows, too few to hold any out; give --dev"),
    ],
)
def test_rows_that_cannot_be_split_are_refused(rows, message, tmp_path):
    corpus = write_corpus(tmp_path / "rows.jsonl", rows)
    with pytest.raises(ValueError, match=f"dev_rows=12: {message}"):
        load_data(tiny_recipe(corpus))


def test_a_share_of_the_rows_is_trained_beside_the_same_dev_rows(corpus):
    all_rows, dev, _ = load_data(tiny_recipe(corpus))
    share, dev_of_share, _ = load_data(tiny_recipe(corpus, "train_share=0.5"))
    assert column(dev_of_share["dev"], "de") == column(dev["dev"], "de")
    assert set(column(share, "de")) < set(column(all_rows, "de"))
    assert 0.3 < len(share) / len(all_rows) < 0.7


def test_a_share_is_the_same_with_every_seed(corpus):
    recipe = tiny_recipe(corpus, "train_share=0.5", "dev_rows=0")
    other_seed = with_settings(recipe, {"seed": recipe.seed + 1})
    assert column(load_data(recipe).train, "de") == column(load_data(other_seed).train, "de")


def test_missing_training_data_are_named():
    with pytest.raises(RecipeError, match="needs training data: give --train"):
        load_data(load_recipe("quickstart", ["data.train=null"]))


def test_dev_sets_may_be_named(corpus, tmp_path):
    talks = write_corpus(tmp_path / "talks.jsonl", make_rows(20, seed=8))
    sources = {"talks": str(talks), "own": str(corpus)}
    train, dev, _ = load_data(with_settings(tiny_recipe(corpus), {"data.dev": sources}))
    assert len(train) == 150
    assert set(dev) == {"talks", "own"}
    assert len(dev["talks"]) == 20
    assert len(dev["own"]) == 150


def test_a_dev_set_without_a_name_is_called_as_its_file(corpus, tmp_path):
    talks = write_corpus(tmp_path / "talks.jsonl", make_rows(20, seed=8))
    recipe = with_settings(tiny_recipe(corpus), {"data.dev": str(talks)})
    assert set(load_data(recipe).dev) == {"talks"}


def test_names_of_dev_sources():
    assert named_sources(["a/talks.jsonl", "news=b/dev.jsonl"]) == {
        "talks": "a/talks.jsonl",
        "news": "b/dev.jsonl",
    }
    assert named_sources(["d/lang=de/x.parquet"]) == {"x": "d/lang=de/x.parquet"}
    with pytest.raises(RecipeError, match="Two --dev sources are called 'dev'"):
        named_sources(["a/dev.jsonl", "b/dev.jsonl"])


# ---- Interrupted runs


@pytest.fixture
def copied_run(finished, tmp_path) -> Path:
    """A copy of the finished run, which a test may change."""
    return Path(shutil.copytree(finished[0], tmp_path / "run"))


def test_a_checkpoint_that_was_cut_off_is_not_resumed_from(finished, copied_run, corpus):
    (copied_run / "_unfinished" / "checkpoint-4").mkdir(parents=True)
    (copied_run / "_unfinished" / "checkpoint-4" / "optimizer.pt").write_bytes(b"cut off")
    shutil.rmtree(copied_run / "checkpoint-4")
    (copied_run / "log.jsonl").unlink()

    train_recipe(tiny_recipe(corpus), copied_run, resume=True)

    losses = losses_by_step(copied_run)
    expected = losses_by_step(finished[0])
    assert set(losses) == {3, 4}
    for step in (3, 4):
        assert losses[step] == pytest.approx(expected[step], rel=1e-6), step
    assert not (copied_run / "_unfinished").exists()


def test_checkpoints_name_the_best_one_by_its_final_name(finished):
    for checkpoint in finished[0].glob("checkpoint-*"):
        state = json.loads((checkpoint / "trainer_state.json").read_text())
        best = Path(state["best_model_checkpoint"])
        assert best.parent.name == finished[0].name
        assert best.name in ("checkpoint-2", "checkpoint-4")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_in_which_another_process_trains_is_refused_and_kept(overwrite, corpus, tmp_path):
    folder = tmp_path / "run"
    with locked(folder):
        folder.mkdir()
        with pytest.raises(ValueError, match="run: another process is writing to it"):
            train_recipe(tiny_recipe(corpus), folder, overwrite=overwrite)
        assert folder.is_dir()


def test_finished_run_resumes_to_itself(finished, copied_run, corpus):
    train_recipe(tiny_recipe(corpus), copied_run, resume=True)
    assert trained_steps(copied_run) == [1, 2, 3, 4]
    names = ("best_step", "seen")
    assert pick(read(copied_run), names) == pick(read(finished[0]), names)
    assert_equal_weights(
        weights_in(copied_run / "checkpoint-4"), weights_in(finished[0] / "checkpoint-4")
    )


def test_a_run_that_saved_only_models_does_not_resume(corpus, tmp_path):
    recipe = tiny_recipe(corpus, "save_only_model=true", "max_steps=2")
    train_recipe(recipe, tmp_path / "run")
    with pytest.raises(TmdeError, match="checkpoint-2 can't be resumed: it lacks the state of"):
        train_recipe(recipe, tmp_path / "run", resume=True)


def test_a_run_does_not_resume_with_another_model(copied_run, corpus):
    message = r"model.encoder_layers is 3, but the run started with 2"
    with pytest.raises(RecipeError, match=message):
        train_recipe(tiny_recipe(corpus, "encoder_layers=3"), copied_run, resume=True)


def test_a_run_does_not_resume_with_other_training_data(copied_run, corpus, tmp_path):
    other = write_corpus(tmp_path / "other.jsonl", numbered_rows(60))
    message = rf"data.train is '{other}', but the run started with '{corpus}'.* has moved, change"
    with pytest.raises(RecipeError, match=message):
        train_recipe(tiny_recipe(other), copied_run, resume=True)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learning_rate=0.01", "training.learning_rate is 0.01, .* started with 0.005"),
        ("objectives.translation.weight=0.001", "objectives.translation.weight is 0.001, .* 0.5"),
        ("objectives.distance=null", "objectives.distance is None, .* started with {'weight'"),
        ("vocab_size=500", "tokenizer.vocab_size is 500, .* started with 400"),
        (
            "warm_start.checkpoint=default",
            "warm_start.checkpoint is 'default', .* started with None",
        ),
        ("metric_for_best_model=retrieval", "training.metric_for_best_model is 'retrieval'"),
        # Without dev rows, some of the training rows would be held out.
        ("data.dev=sample", "data.dev is 'sample', but the run started with None"),
    ],
)
def test_a_run_does_not_resume_with_other_settings(override, message, copied_run, corpus):
    before = (copied_run / "recipe.yaml").read_text()
    with pytest.raises(RecipeError, match=message):
        train_recipe(tiny_recipe(corpus, override), copied_run, resume=True)
    assert (copied_run / "recipe.yaml").read_text() == before


def test_limits_and_reports_of_a_resumed_run_may_change_and_are_recorded(
    copied_run, corpus, caplog
):
    changes = ["max_steps=5", "logging_steps=5", "card.license=mit"]
    with caplog.at_level(logging.WARNING, logger="tmde.training"):
        train_recipe(tiny_recipe(corpus, *changes), copied_run, resume=True)
    recipe = load_recipe(str(copied_run / "recipe.yaml"))
    assert recipe.settings() == tiny_recipe(corpus, *changes).settings()
    assert "training.max_steps from 4 to 5; training.logging_steps from 1 to 5" in caplog.text
    assert "license: mit" in (copied_run / "README.md").read_text()


@pytest.mark.parametrize("change", ["edited", "longer"])
def test_a_run_does_not_resume_with_a_file_that_was_rewritten(change, copied_run, tmp_path):
    rows = numbered_rows(150)
    moved = write_corpus(tmp_path / "moved.jsonl", rows)
    name_data(copied_run, moved)
    first = rows[0]
    rows[0] = {code: text[::-1] for code, text in first.items()}
    write_corpus(moved, rows if change == "edited" else [*rows, first])
    with pytest.raises(RecipeError, match=r"other training data: .*moved.jsonl has "):
        train_recipe(tiny_recipe(moved), copied_run, resume=True)


def test_a_run_resumes_with_a_copy_of_its_file(copied_run, tmp_path):
    copy = write_corpus(tmp_path / "copy.jsonl", numbered_rows(150))
    name_data(copied_run, copy)
    trainer = train_recipe(tiny_recipe(copy, "max_steps=5"), copied_run, resume=True)
    assert trainer.state.global_step == 5


def name_data(run: Path, corpus: Path) -> None:
    """Change the path of the training data in the recipe of a run, as for a file that moved."""
    path = run / "recipe.yaml"
    recipe = yaml.safe_load(path.read_text())
    recipe["data"]["train"] = str(corpus)
    path.write_text(yaml.safe_dump(recipe))


def test_the_command_resumes_with_the_data_of_the_run(copied_run):
    """The recipe `quickstart` names other data."""
    call = ["train", "quickstart", *TINY, "max_steps=5", "-o", str(copied_run), "--resume"]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    assert trained_steps(copied_run) == [1, 2, 3, 4, 5]


# ---- Complete runs


@pytest.fixture(scope="module")
def complete(corpus, tmp_path_factory) -> Path:
    """A run that has ended, as the umask of a group lets it write, without checkpoints."""
    folder = tmp_path_factory.mktemp("complete") / "run"
    umask = os.umask(0o027)
    try:
        train_recipe(tiny_recipe(corpus, "keep_checkpoints=false"), folder)
    finally:
        os.umask(umask)
    return folder


def test_a_complete_run_holds_its_weights_once(complete):
    names = [path.relative_to(complete).as_posix() for path in complete.rglob("*.safetensors")]
    assert names == ["model.safetensors"]
    assert not list(complete.glob("checkpoint-*"))


def test_the_files_of_a_run_have_the_permissions_of_the_umask(complete):
    modes = {stat.S_IMODE(path.stat().st_mode) for path in complete.rglob("*") if path.is_file()}
    assert modes == {0o640}


def test_a_complete_run_is_not_begun_again(complete, corpus):
    recipe = tiny_recipe(corpus, "keep_checkpoints=false")
    with pytest.raises(RunCompleteError, match="run is already complete, after 4 steps"):
        train_recipe(recipe, complete, resume=True)


def test_the_command_says_that_a_run_is_complete(complete, corpus):
    call = ["train", "quickstart", *TINY, "keep_checkpoints=false", "-o", str(complete), "--resume"]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    assert "is already complete, after 4 steps" in result.stdout


def test_a_complete_run_without_checkpoints_cannot_be_extended(complete, corpus):
    recipe = tiny_recipe(corpus, "keep_checkpoints=false", "max_steps=6")
    with pytest.raises(TmdeError, match="its checkpoints were deleted, so it can't continue"):
        train_recipe(recipe, complete, resume=True)


# ---- The command line


@pytest.mark.nightly
def test_command_line_trains_on_two_processes(corpus, tmp_path):
    """Two processes train the same micro-batches as one that accumulates two."""
    overrides = [*TINY, "dropout=0", "max_steps=3", "micro_batch_tokens=300", "use_cpu=true"]
    launch = ["accelerate.commands.launch", "--multi_gpu", "--num_processes=2"]
    launch += ["--main_process_port=0", "-m", "tmde", "train", "quickstart"]
    process = subprocess.run(
        [sys.executable, "-m", *launch, *overrides, "--train", str(corpus), "-o", "run"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    run = tmp_path / "run"
    alone = tmp_path / "alone"

    train_recipe(tiny_recipe(corpus, *overrides, "gradient_accumulation_steps=2"), alone)

    assert process.stdout.count("the model is in run") == 1  # One process alone speaks.
    assert read(run, "run.json")["processes"] == 2
    assert read(run)["best_step"] == read(alone)["best_step"]
    losses = losses_by_step(run)
    expected = losses_by_step(alone)
    assert set(losses) == set(expected) == {1, 2, 3}
    names = ("loss", "learning_rate", "epoch", "translation_nll", "distance_hinge")
    for step in losses:
        assert pick(losses[step], names) == pytest.approx(pick(expected[step], names), rel=1e-4)
    weights = weights_in(run)
    for name, value in weights_in(alone).items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-5)
