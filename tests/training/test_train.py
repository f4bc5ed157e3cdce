"""Training from recipes: the run's folder, held-out rows, kill and resume, and the command line."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from modeling_tmde import TmdeForConditionalGeneration, TmdeModel
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.recipe import RecipeError, load_recipe
from modeling_tmde.training.train import (
    RunFolderError,
    build_model,
    find_checkpoint,
    load_data,
    named_sources,
    train_recipe,
)
from modeling_tmde.training.trainer import TmdeTrainer
from tests.conftest import make_rows

ROOT = Path(__file__).parents[2]
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
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "200",
}
TRAIN = [sys.executable, "-m", "modeling_tmde.training.train"]


def numbered_rows(num_rows: int) -> list[dict[str, str]]:
    """Rows that are all different."""
    return [
        {language: f"{text} {index}" for language, text in row.items()}
        for index, row in enumerate(make_rows(num_rows, seed=4))
    ]


def write_corpus(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps({"translation": row}, ensure_ascii=False) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", numbered_rows(150))


def tiny_recipe(corpus: Path | str, *overrides: str):
    return load_recipe("quickstart", [f"data.train={corpus}", *TINY, *overrides])


def log_lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def losses_by_step(folder: Path) -> dict[int, dict[str, float]]:
    """Every component of the last log of each step; speeds and clocks left out."""
    names = ("loss", "grad_norm", "learning_rate", "epoch", "rows", "translation_nll", "distance_hinge")
    return {line["step"]: {name: line[name] for name in names} for line in log_lines(folder) if "loss" in line}


# ---- The folder of a run


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> tuple[Path, TmdeTrainer]:
    folder = tmp_path_factory.mktemp("runs") / "first"
    return folder, train_recipe(tiny_recipe(corpus), folder)


def test_folder_of_a_run(finished):
    folder, trainer = finished
    names = {path.name for path in folder.iterdir()}
    files = {"recipe.yaml", "run.json", "log.jsonl", "results.json", "config.json", "model.safetensors", "tokenizer"}
    assert files | {"tokenizer.json", "tokenizer_config.json", "modeling_tmde.py"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    assert {name for name in names if name.startswith("checkpoint-")} == {"checkpoint-2", "checkpoint-4"}
    assert trainer.state.global_step == 4


def test_record_of_a_run(finished, corpus):
    folder, trainer = finished
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    assert recipe["data"]["train"] == str(corpus)
    assert recipe["model"]["d_model"] == 32 and recipe["training"]["max_steps"] == 4
    assert load_recipe(str(folder / "recipe.yaml")).sections == tiny_recipe(corpus).sections  # the run can be repeated
    record = json.loads((folder / "run.json").read_text())
    assert record["versions"]["torch"] == torch.__version__
    assert {"transformers", "tokenizers", "datasets", "accelerate"} <= set(record["versions"])
    assert record["data"]["train"]["rows"] == 138 and record["data"]["dev"]["dev"]["rows"] == 12
    assert record["data"]["train"]["fingerprint"]
    assert record["parameters"] == sum(parameter.numel() for parameter in trainer.model.model.parameters())
    results = json.loads((folder / "results.json").read_text())
    assert results["steps"] == 4
    assert results["best_step"] in (2, 4) and results["best"]["step"] == results["best_step"]
    evaluations = {line["step"]: line["eval_retrieval"] for line in log_lines(folder) if "eval_retrieval" in line}
    assert set(evaluations) == {2, 4}
    assert results["best"]["eval_retrieval"] == max(evaluations.values())
    assert results["seen"]["rows"] == trainer.throughput.seen["rows"] > 0
    assert results["corpus"]["rows"] == 150


def test_model_of_a_run_opens_with_the_auto_classes(finished):
    folder, trainer = finished
    encoder, whole = AutoModel.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert isinstance(encoder, TmdeModel) and isinstance(whole, TmdeForConditionalGeneration)
    for name, value in trainer.model.model.state_dict().items():
        assert torch.equal(whole.state_dict()[name], value), name
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == whole.config.vocab_size
    vectors = encoder(**tokenizer(["haus hund"], return_tensors="pt")).pooler_output
    assert torch.isfinite(vectors).all()


def test_best_weights_are_at_the_top_not_the_last(corpus, tmp_path, monkeypatch):
    planted, states = iter([0.2, 0.7, 0.4]), []

    def retrieval(encoder, *args):
        states.append({name: value.clone() for name, value in encoder.state_dict().items()})
        return {"p1_de-en": next(planted)}

    monkeypatch.setattr("modeling_tmde.training.trainer.dev_retrieval", retrieval)
    train_recipe(tiny_recipe(corpus, "max_steps=6"), tmp_path / "run")
    found = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run").get_encoder().state_dict()
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["best_step"] == 4 and results["best"]["eval_retrieval"] == 0.7
    assert all(torch.equal(found[name], value) for name, value in states[1].items())
    assert not all(torch.equal(found[name], value) for name, value in states[2].items())


def test_same_seed_same_run_and_other_seed_another(corpus, tmp_path):
    options = ("max_steps=2", "dropout=0.3")
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    train_recipe(tiny_recipe(corpus, *options), first)
    torch.rand(3)
    train_recipe(tiny_recipe(corpus, *options), again)
    train_recipe(tiny_recipe(corpus, *options, "seed=5"), other)
    assert losses_by_step(first) == losses_by_step(again)
    assert losses_by_step(first)[1]["loss"] != losses_by_step(other)[1]["loss"]


def test_built_in_sample_trains(tmp_path):
    recipe = load_recipe("quickstart", [*TINY[2:], "max_rows=300", "max_steps=2", "eval_pool=50"])
    assert recipe.data.train == recipe.data.dev == "sample"
    trainer = train_recipe(recipe, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data"]["train"]["rows"] == 300
    assert set(record["data"]["dev"]) == {"sample"}
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert 0 <= results["best"]["eval_sample_p1_de-en"] <= 1
    assert trainer.state.global_step == 2


def test_texts_longer_than_the_model_takes_are_refused_before_training(corpus, tmp_path):
    with pytest.raises(RecipeError, match="train_max_length=129 .* max_position_embeddings=128"):
        train_recipe(tiny_recipe(corpus, "train_max_length=129"), tmp_path / "run")


def test_a_corpus_smaller_than_one_step_is_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match="micro-batches per process, an optimizer step takes 1000"):
        train_recipe(
            tiny_recipe(corpus, "gradient_accumulation_steps=1000", "max_steps=-1", "num_train_epochs=1"),
            tmp_path / "run",
        )


def test_used_folder_is_refused_unless_it_is_a_run_to_overwrite(corpus, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    recipe = tiny_recipe(corpus, "max_steps=1")
    with pytest.raises(RunFolderError, match="is not empty"):
        train_recipe(recipe, folder)
    with pytest.raises(RunFolderError, match="does not look like a training run; it is not overwritten"):
        train_recipe(recipe, folder, overwrite=True)
    with pytest.raises(RunFolderError, match="no complete checkpoint"):
        train_recipe(recipe, folder, resume=True)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]
    train_recipe(recipe, tmp_path / "other")
    (tmp_path / "other" / "left.over").touch()
    with pytest.raises(RunFolderError, match="is not empty"):
        train_recipe(recipe, tmp_path / "other")
    train_recipe(recipe, tmp_path / "other", overwrite=True)
    assert not (tmp_path / "other" / "left.over").exists()
    assert [line["step"] for line in log_lines(tmp_path / "other") if "loss" in line] == [1]


def test_run_that_failed_before_its_first_step_leaves_no_folder(corpus, tmp_path):
    folder = tmp_path / "run"
    for wrong in ("d_model=30", "eval_pairs=[de-xx]"):  # found before and after run.json is written
        with pytest.raises(ValueError, match="is not a multiple of|expected pairs of the languages"):
            train_recipe(tiny_recipe(corpus, wrong), folder)
        assert not folder.exists()
    train_recipe(tiny_recipe(corpus, "max_steps=1"), folder)
    assert (folder / "model.safetensors").is_file()


def test_folder_that_was_there_before_a_failure_can_be_overwritten(corpus, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(RecipeError, match="train_max_length=129"):  # found after recipe.yaml is written
        train_recipe(tiny_recipe(corpus, "train_max_length=129"), folder)
    assert (folder / "recipe.yaml").is_file()
    with pytest.raises(RecipeError, match="d_model=30 is not a multiple of encoder_attention_heads=4"):
        train_recipe(tiny_recipe(corpus, "d_model=30"), folder, overwrite=True)
    assert (folder / "recipe.yaml").is_file()
    train_recipe(tiny_recipe(corpus, "max_steps=1"), folder, overwrite=True)
    assert (folder / "model.safetensors").is_file()


def test_without_dev_rows_the_last_weights_are_kept(corpus, tmp_path):
    trainer = train_recipe(tiny_recipe(corpus, "data.dev_rows=0", "max_steps=2"), tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["best"] is None and results["best_step"] is None and results["steps"] == 2
    assert not any("eval_retrieval" in line for line in log_lines(tmp_path / "run"))
    found = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run").state_dict()
    assert all(torch.equal(found[name], value) for name, value in trainer.model.model.state_dict().items())


# ---- Data


@pytest.mark.parametrize("streaming", ["true", "false"])
def test_dev_rows_are_held_out_of_the_training_rows(streaming, corpus):
    train, dev, _ = load_data(tiny_recipe(corpus, f"data.streaming={streaming}"))
    trained = {row["translation"]["de"] for row in train}
    held = {row["translation"]["de"] for row in dev["dev"]}
    assert len(held) == 12 and len(trained) == 138
    assert trained | held == {row["de"] for row in numbered_rows(150)} and not trained & held


@pytest.mark.parametrize("temperature", ["null", ".inf", "2.0"])
@pytest.mark.parametrize("streaming", ["true", "false"])
def test_copies_of_dev_rows_are_held_out_too(streaming, temperature, tmp_path):
    """A temperature repeats the rows of small corpora."""
    rows = numbered_rows(400)
    for number, part in enumerate((rows[:300], rows[300:340], rows[340:])):
        write_corpus(tmp_path / f"{number}.jsonl", part)
    train, dev, _ = load_data(
        tiny_recipe(tmp_path, "dev_rows=30", f"streaming={streaming}", f"temperature={temperature}")
    )
    trained = [row["translation"]["de"] for row in train]
    held = [row["translation"]["de"] for row in dev["dev"]]
    assert 20 < len(held) == len(set(held)) <= 30
    assert not set(held) & set(trained) and set(held) | set(trained) == {row["de"] for row in rows}
    assert (len(trained) > len(set(trained))) == (temperature != "null")


@pytest.mark.parametrize("streaming", ["true", "false"])
def test_rows_that_share_but_some_texts_with_a_dev_row_stay(streaming, tmp_path):
    shared = [{"de": f"ja {number % 4}", "en": f"yes {number % 5}", "es": None} for number in range(20)]
    shared += [{"de": f"ja {number % 4}", "en": None, "es": f"si {number % 5}"} for number in range(20)]
    corpus = write_corpus(tmp_path / "rows.jsonl", shared * 2)
    train, dev, _ = load_data(tiny_recipe(corpus, "languages=[de, en, es]", f"streaming={streaming}", "dev_rows=4"))
    trained, held = ([tuple(row["translation"].values()) for row in rows] for rows in (train, dev["dev"]))
    assert len(held) == len(set(held)) >= 2
    assert len(trained) == 80 - 2 * len(held) and not set(trained) & set(held)


@pytest.mark.parametrize("streaming", ["true", "false"])
def test_no_more_than_a_tenth_is_held_out(streaming, tmp_path):
    corpus = write_corpus(tmp_path / "rows.jsonl", numbered_rows(50))
    train, dev, _ = load_data(tiny_recipe(corpus, f"streaming={streaming}", "dev_rows=2000"))
    assert len(dev["dev"]) == 5 and len(list(train)) == 45


def test_copies_of_one_row_are_no_data(tmp_path):
    corpus = write_corpus(tmp_path / "rows.jsonl", numbered_rows(1) * 30)
    with pytest.raises(ValueError, match="dev_rows=12: all of the 30 rows are copies of those held out.* give --dev"):
        load_data(tiny_recipe(corpus))


def test_dev_sets_may_be_named(corpus, tmp_path):
    write_corpus(tmp_path / "talks.jsonl", make_rows(20, seed=8))
    recipe = tiny_recipe(corpus)
    recipe.set("data.dev", {"talks": str(tmp_path / "talks.jsonl"), "own": str(corpus)})
    train, dev, _ = load_data(recipe)
    assert len(train) == 150 and {name: len(rows) for name, rows in dev.items()} == {"talks": 20, "own": 150}
    recipe.set("data.dev", str(tmp_path / "talks.jsonl"))
    assert set(load_data(recipe)[1]) == {"talks"}


def test_without_training_data_the_error_says_what_to_give():
    recipe = load_recipe("quickstart", ["data.train=null"])
    with pytest.raises(RecipeError, match="needs training data: give --train"):
        load_data(recipe)


def test_tokenizer_is_trained_once_or_opened(corpus, tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    recipe = tiny_recipe(corpus, f"tokenizer.path={tmp_path / 'tokenizer'}", "max_steps=1")
    trainer = train_recipe(recipe, tmp_path / "run")
    assert trainer.processing_class.get_vocab() == tokenizer.get_vocab()
    assert build_model(recipe, tokenizer).config.vocab_size == len(tokenizer)


# ---- Interrupted runs

# Dropout and negatives draw random numbers; chunks of 40 rows put the interruption in the middle of the data.
INTERRUPTED = (
    "max_steps=12",
    "eval_steps=3",
    "dropout=0.3",
    "objectives.distance.negatives=3",
    "buffer_rows=40",
    "gradient_accumulation_steps=2",
    "cooldown=0.3",
)


def wait_for(path: Path, process: subprocess.Popen) -> None:
    for _ in range(1200):
        if path.exists():
            return
        assert process.poll() is None, process.stderr.read().decode()[-4000:]
        time.sleep(0.1)
    raise AssertionError(f"{path} did not appear")


@pytest.mark.slow
@pytest.mark.parametrize("streaming", ["false", "true"], ids=["map", "stream"])
def test_run_killed_in_the_middle_resumes_to_the_same_result(streaming, corpus, tmp_path):
    overrides = (*INTERRUPTED, f"data.streaming={streaming}")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    options = {
        "overrides": [f"data.train={corpus}", *TINY, *overrides],
        "output": str(killed),
        "hold_at": 8,
        "held": str(tmp_path / "held"),
    }
    (tmp_path / "options.json").write_text(json.dumps(options))
    worker = str(Path(__file__).with_name("worker_recipe.py"))
    command = [sys.executable, worker, str(tmp_path / "options.json")]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        train_recipe(tiny_recipe(corpus, *overrides), whole)  # never interrupted
        wait_for(tmp_path / "held", process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "model.safetensors").exists()
    assert find_checkpoint(killed) == killed / "checkpoint-6"
    before = losses_by_step(killed)
    assert set(before) == set(range(1, 9))  # steps 7 and 8 are lost and are made again
    trainer = train_recipe(tiny_recipe(corpus, *overrides), killed, resume=True)
    assert [line["step"] for line in log_lines(killed) if "loss" in line][8:] == list(range(7, 13))
    found, expected = losses_by_step(killed), losses_by_step(whole)
    assert set(found) == set(expected) == set(range(1, 13))
    for step, values in expected.items():
        assert found[step] == pytest.approx(values, rel=1e-6, abs=1e-6), step
        assert before.get(step, values) == pytest.approx(values, rel=1e-6, abs=1e-6), step
    for name, value in load_file(whole / "model.safetensors").items():
        torch.testing.assert_close(load_file(killed / "model.safetensors")[name], value, rtol=0, atol=1e-6)
    results = [json.loads((folder / "results.json").read_text()) for folder in (whole, killed)]
    for key in ("steps", "best_step", "seen", "rows"):
        assert results[0][key] == results[1][key], key
    assert trainer.state.global_step == 12


def test_incomplete_newest_checkpoint_is_skipped_with_a_warning(corpus, tmp_path, caplog):
    folder, recipe = tmp_path / "run", tiny_recipe(corpus, "max_steps=6", "dropout=0.3")
    train_recipe(recipe, folder)
    expected = losses_by_step(folder)
    newest = folder / "checkpoint-6"
    others = sorted(int(path.name.rpartition("-")[2]) for path in folder.glob("checkpoint-*") if path != newest)
    state = (newest / "trainer_state.json").read_text()
    (newest / "trainer_state.json").write_text(state[: len(state) // 2])
    (folder / "checkpoint-9").mkdir()  # cut off before its state was written
    (folder / "log.jsonl").unlink()
    with caplog.at_level(logging.WARNING, logger="modeling_tmde.training"):
        train_recipe(recipe, folder, resume=True)
    skipped = [
        record.getMessage() for record in caplog.records if "is incomplete and is skipped" in record.getMessage()
    ]
    assert [Path(message.split()[0]).name for message in skipped] == ["checkpoint-9", "checkpoint-6"]
    found = losses_by_step(folder)
    assert set(found) == set(range(others[-1] + 1, 7))
    for step, values in found.items():
        assert values == pytest.approx(expected[step], rel=1e-6), step


def test_finished_run_resumes_to_itself(finished, corpus, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    before = load_file(tmp_path / "run" / "checkpoint-4" / "model.safetensors")
    trainer = train_recipe(tiny_recipe(corpus), tmp_path / "run", resume=True)
    assert trainer.state.global_step == 4
    assert [line["step"] for line in log_lines(tmp_path / "run") if "loss" in line] == [1, 2, 3, 4]
    results = [json.loads((folder / "results.json").read_text()) for folder in (finished[0], tmp_path / "run")]
    assert results[0]["best_step"] == results[1]["best_step"] and results[0]["seen"] == results[1]["seen"]
    after = load_file(tmp_path / "run" / "checkpoint-4" / "model.safetensors")
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_resumed_run_goes_on_to_a_larger_max_steps(finished, corpus, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    trainer = train_recipe(tiny_recipe(corpus, "max_steps=6"), tmp_path / "run", resume=True)
    assert trainer.state.global_step == 6
    assert [line["step"] for line in log_lines(tmp_path / "run") if "loss" in line] == [1, 2, 3, 4, 5, 6]


def test_resume_with_another_model_is_refused(finished, corpus, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    recipe = tiny_recipe(corpus, "encoder_layers=3")
    with pytest.raises(RecipeError, match=r"model.encoder_layers is 3, and the run was begun with \d"):
        train_recipe(recipe, tmp_path / "run", resume=True)


# ---- The command line


@pytest.mark.slow
def test_command_line_errors_are_one_line(tmp_path):
    cases = {
        ("quickstrat",): "Recipe 'quickstrat' is unknown; did you mean quickstart?",
        ("quickstart", "learning_rat=1"): "Recipe key 'learning_rat' is unknown; did you mean",
        ("quickstart", "--train", str(tmp_path / "missing.jsonl")): "missing.jsonl",
    }
    processes = [
        subprocess.Popen(
            [*TRAIN, *arguments, "-o", str(tmp_path / f"run{index}")],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index, arguments in enumerate(cases)
    ]
    for process, message in zip(processes, cases.values(), strict=True):
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 1, errors
        assert output == ""
        (line,) = [line for line in errors.splitlines() if line and "Warning" not in line]
        assert line.startswith("Error: ") and message in line


LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc_per_node=2"],
    "accelerate": ["accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--main_process_port=0"],
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_command_line_trains_on_two_processes(launcher, corpus, tmp_path):
    arguments = [*TINY, "dropout=0", "max_steps=3", "micro_batch_tokens=300", "use_cpu=true"]
    process = subprocess.run(
        [sys.executable, "-m", *LAUNCHERS[launcher], "-m", "modeling_tmde.training.train", "quickstart", *arguments]
        + ["--train", str(corpus), "-o", "run"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    assert process.stdout.count("the model is in run") == 1  # one process speaks
    assert json.loads((tmp_path / "run" / "run.json").read_text())["processes"] == 2
    # The same micro-batches, in the same rounds, as one process that accumulates two.
    train_recipe(tiny_recipe(corpus, *arguments, "gradient_accumulation_steps=2"), tmp_path / "alone")
    found, expected = losses_by_step(tmp_path / "run"), losses_by_step(tmp_path / "alone")
    assert set(found) == set(expected) == {1, 2, 3}
    for step in found:
        for name in ("loss", "learning_rate", "epoch", "translation_nll", "distance_hinge"):
            assert found[step][name] == pytest.approx(expected[step][name], rel=1e-4), (step, name)
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("run", "alone")]
    assert results[0]["best_step"] == results[1]["best_step"]
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("run", "alone")]
    for name, value in weights[1].items():
        torch.testing.assert_close(weights[0][name], value, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_command_line_under_accelerate_launch_on_a_cpu(corpus, tmp_path):
    # accelerate starts one process for `--cpu`, whatever `--num_processes` says, unless MPI starts them.
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    command += ["-m", "modeling_tmde.training.train", "quickstart", *TINY, "max_steps=3", "--train", str(corpus)]
    process = subprocess.run(
        [*command, "-o", "run"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr[-4000:]
    assert [line["step"] for line in log_lines(tmp_path / "run") if "loss" in line] == [1, 2, 3]
    AutoModel.from_pretrained(tmp_path / "run")


def test_dev_sources_keep_their_names_and_never_replace_each_other():
    assert named_sources(["a/talks.jsonl", "news=b/dev.jsonl"]) == {"talks": "a/talks.jsonl", "news": "b/dev.jsonl"}
    assert named_sources(["d/lang=de/x.parquet"]) == {"x": "d/lang=de/x.parquet"}
    with pytest.raises(RecipeError, match="Two --dev sources are called 'dev'"):
        named_sources(["a/dev.jsonl", "b/dev.jsonl"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("eval_pairs=[de-xx]", "eval_pairs: found 'de-xx', expected pairs of the languages"),
        ("metric_for_best_model=loss", "metric_for_best_model=loss: no evaluation measures it"),
        ("warmup_steps=0.1", "warmup_steps=0.1 is a share of all steps and needs max_steps"),
    ],
)
def test_settings_that_could_never_work_are_refused(corpus, tmp_path, override, message):
    with pytest.raises(ValueError, match=message):
        train_recipe(tiny_recipe(corpus, "max_steps=-1", "num_train_epochs=1", override), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_metric_that_turns_out_not_to_be_measured(corpus, tmp_path):
    message = "'eval_dev_translation_los', which is not found in the evaluation metrics.*dev_translation_nll"
    with pytest.raises(ValueError, match=message):
        train_recipe(tiny_recipe(corpus, "metric_for_best_model=dev_translation_los"), tmp_path / "run")


@pytest.mark.parametrize(
    ("metric", "given", "expected"),
    [
        ("mix", None, True),
        ("eval_dev_translation_loss", None, False),
        ("dev_translation_nll", None, False),
        ("dev_infonce_accuracy", None, True),
        ("dev_translation_loss", True, True),
    ],
)
def test_less_is_better_of_a_loss(metric, given, expected):
    options = {"output_dir": "unused", "use_cpu": True, "metric_for_best_model": metric, "greater_is_better": given}
    assert TmdeTrainingArguments(**options).greater_is_better is expected
