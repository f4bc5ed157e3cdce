"""Choosing the checkpoint by Cross on the dev split of a classification task, and the table of every evaluation."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.heads import get_head
from modeling_tmde.eval.tasks import TASKS, ClassificationData, Provenance, RetrievalData, Split, Task, TaskError
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.callbacks import epoch_table
from modeling_tmde.training.evaluation import load_eval_task, task_in_languages
from modeling_tmde.training.objectives import DistanceConstraint
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.recipe import RecipeError, load_recipe
from modeling_tmde.training.train import _summarise, train_recipe
from modeling_tmde.training.trainer import TmdeTrainer
from tests.conftest import LANGUAGES, make_dataset, make_rows, tiny_model
from tests.training.test_train import ENVIRONMENT, LAUNCHERS, TINY, log_lines, numbered_rows, write_corpus

SIZES = {"train": 40, "dev": 24, "test": 32}
SCORES = ("same", "cross", "all", "test_same", "test_cross")


def sample_task(languages: tuple[str, ...] = LANGUAGES) -> ClassificationData:
    return TASKS["sample"]().load(languages=languages, sizes=tuple(SIZES.values()))


@pytest.fixture
def small_sample(monkeypatch) -> None:
    """The task `sample`, of a few documents."""
    load = TASKS["sample"].load
    monkeypatch.setattr(TASKS["sample"], "load", lambda task, *args: load(task, *args, sizes=tuple(SIZES.values())))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", numbered_rows(150))


def cross_recipe(corpus: Path, *overrides: str):
    own = ["eval_task=sample", "metric_for_best_model=cross", "data.languages=[de, en, es]"]
    return load_recipe("quickstart", [f"data.train={corpus}", *TINY, *own, *overrides])


def make_trainer(folder: Path, tokenizer, task: ClassificationData | None, dev_rows: bool = True, **arguments):
    defaults = {
        "output_dir": str(folder),
        "use_cpu": True,
        "disable_tqdm": True,
        "max_steps": 2,
        "warmup_steps": 1,
        "micro_batch_tokens": 400,
        "eval_pairs": ["de-en"],
        "metric_for_best_model": "cross",
    }
    return TmdeTrainer(
        ParallelModel(tiny_model(seed=1, dropout=0.3), {"distance": DistanceConstraint(negatives=3)}),
        TmdeTrainingArguments(**(defaults | arguments)),
        make_dataset(make_rows(60, seed=2)),
        tokenizer,
        eval_dataset=make_dataset(make_rows(12, seed=3)) if dev_rows else None,
        eval_task=task,
    )


# ---- What is measured


def scores_by_hand(model, tokenizer, task: ClassificationData) -> dict[str, float]:
    """Every classifier on every language, one text at a time."""
    embedder = DocumentEmbedder(model, tokenizer)
    vectors = {
        (language, name): np.stack([embedder.encode(text) for text in split.texts])
        for language, splits in task.splits.items()
        for name, split in splits.items()
    }
    scores = {}
    for split in ("dev", "test"):
        same, cross = [], []
        for source in task.languages:
            train, dev = task.splits[source]["train"], task.splits[source]["dev"]
            devs = {source: (vectors[source, "dev"], dev.labels)}
            head = get_head("logistic_regression").fit(vectors[source, "train"], train.labels, devs, seed=0)[source]
            for target in task.languages:
                labels = task.splits[target][split].labels
                predictions = head.predict(vectors[target, split])
                right = sum(label == predicted for label, predicted in zip(labels, predictions, strict=True))
                (same if source == target else cross).append(right / len(labels))
        prefix = "" if split == "dev" else "test_"
        scores[f"{prefix}same"] = sum(same) / len(same)
        scores[f"{prefix}cross"] = sum(cross) / len(cross)
        scores[f"{prefix}all"] = sum(same + cross) / len(same + cross)
    scores.pop("test_all")
    return scores


def test_same_and_cross_of_dev_and_test_equal_a_loop_over_languages(tokenizer, tmp_path, monkeypatch):
    encoded, encode = [], DocumentEmbedder.encode
    trainer = make_trainer(tmp_path, tokenizer, sample_task(("de", "en", "es")), dev_rows=False)

    def counting(embedder, texts, **options):
        encoded.append(len(texts))
        return encode(embedder, texts, **options)

    for seed in (7, 8):  # other weights, other scores: nothing is kept from the evaluation before
        trainer.model.model.load_state_dict(tiny_model(seed=seed).state_dict())
        encoded.clear()
        with monkeypatch.context() as patch:
            patch.setattr(DocumentEmbedder, "encode", counting)
            metrics = trainer.evaluate()
        assert sum(encoded) == 3 * sum(SIZES.values())  # every split once
        expected = scores_by_hand(trainer.model.model.model, tokenizer, sample_task(("de", "en", "es")))
        found = {name: metrics[f"eval_{name}"] for name in SCORES}
        assert found == pytest.approx(expected, abs=2e-6)
        assert len(set(found.values())) == 5  # else one could stand for another
    assert "eval_retrieval" not in metrics


def test_labels_of_test_have_no_influence_on_the_scores_that_choose(tokenizer, tmp_path):
    task = sample_task(("de", "en"))
    splits = {}
    for language, of_language in task.splits.items():
        test = of_language["test"]
        splits[language] = of_language | {"test": Split(test.ids, test.texts, test.labels[1:] + test.labels[:1])}
    found = [
        make_trainer(tmp_path, tokenizer, data).evaluate()
        for data in (task, ClassificationData(splits, task.provenance))
    ]
    assert all(found[0][f"eval_{name}"] == found[1][f"eval_{name}"] for name in ("same", "cross", "all"))
    assert all(found[0][f"eval_{name}"] != found[1][f"eval_{name}"] for name in ("test_same", "test_cross"))


@pytest.mark.parametrize("head", ["logistic_regression", "ffn"])
def test_an_evaluation_leaves_random_states_gradients_and_training_mode(head, tokenizer, tmp_path):
    trainer = make_trainer(tmp_path, tokenizer, sample_task(("de", "en")), eval_head=head)
    trainer.model.train()
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
    first = trainer.evaluate()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]
    assert all(module.training for module in trainer.model.modules())
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    second = trainer.evaluate()
    assert all(first[f"eval_{name}"] == second[f"eval_{name}"] for name in SCORES)


def test_languages_are_those_that_model_and_task_share(tokenizer, tmp_path):
    task = sample_task()
    more = ClassificationData({"pt": task.splits["es"], **task.splits}, task.provenance)
    assert task_in_languages(more, ["it", "xx", "de"]).languages == ["it", "de"]
    assert make_trainer(tmp_path, tokenizer, more).eval_tasks["task"].languages == list(LANGUAGES)


# ---- What is chosen


class Planted:
    """Measurements in place of the real ones; `states` keeps the weights that each of them found."""

    def __init__(self, monkeypatch, cross: list[float], retrieval: list[float]):
        self.states, cross, retrieval = [], iter(cross), iter(retrieval)

        def task(model, tokenizer, data, args, autocast):
            self.states.append({name: value.clone() for name, value in model.model.state_dict().items()})
            value = next(cross)
            same_and_test = {"same": 0.9, "all": 0.5, "test_same": 0.8, "test_cross": 1 - value}
            return same_and_test | {"cross": value}

        monkeypatch.setattr("modeling_tmde.training.trainer.measure_task", task)
        monkeypatch.setattr(
            "modeling_tmde.training.trainer.dev_retrieval", lambda *args: {"p1_de-en": next(retrieval)}
        )


def table_of(folder: Path) -> list[list[str]]:
    """The rows of `epochs.md` without the epoch, and the line below."""
    table, _, note = (folder / "epochs.md").read_text().partition("\n\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert rows[0][0] == "epoch" and set(rows[1]) == {"---:"}
    return [rows[0][1:], *(row[1:] for row in rows[2:]), [note.strip()]]


HEADER = ["step", "dev Same", "dev Cross", "test Same", "test Cross", "dev retrieval", "dev mix"]
NOTE = ["Bold: the chosen checkpoint, by dev Cross."]


@pytest.mark.usefixtures("small_sample")
def test_cross_chooses_the_checkpoint_and_the_table_tells(corpus, tmp_path, monkeypatch, capsys):
    planted = Planted(monkeypatch, cross=[0.3, 0.61, 0.4], retrieval=[0.9, 0.2, 0.8])
    folder = tmp_path / "run"
    trainer = train_recipe(cross_recipe(corpus, "max_steps=6"), folder)
    results = json.loads((folder / "results.json").read_text())
    assert results["metric"] == "cross" and results["best_step"] == results["best"]["step"] == 4
    assert results["best"]["eval_cross"] == 0.61 and results["best"]["eval_test_cross"] == 0.39
    assert results["best"]["eval_retrieval"] == 0.2
    found = AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict()
    assert all(torch.equal(found[name], value) for name, value in planted.states[1].items())
    assert any(not torch.equal(found[name], value) for name, value in planted.states[0].items())
    assert table_of(folder) == [
        HEADER,
        ["2", "90.00", "30.00", "80.00", "70.00", "90.00", "70.00"],
        ["**4**", "**90.00**", "**61.00**", "**80.00**", "**39.00**", "**20.00**", "**57.00**"],
        ["6", "90.00", "40.00", "80.00", "60.00", "80.00", "70.00"],
        NOTE,
    ]
    logged = {line["step"]: line["eval_cross"] for line in log_lines(folder) if "eval_cross" in line}
    assert logged == {2: 0.3, 4: 0.61, 6: 0.4}
    record = json.loads((folder / "run.json").read_text())
    rows = {language: SIZES for language in ("de", "en", "es")}
    assert record["data"]["eval_task"] | {"fingerprint": ""} == {"source": "sample", "rows": rows, "fingerprint": ""}
    assert load_recipe(str(folder / "recipe.yaml")).data.eval_task == "sample"
    _summarise(trainer, folder)
    assert "Same 90.0 on dev, 80.0 on test; Cross 61.0 on dev, 39.0 on test" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.usefixtures("small_sample")
def test_retrieval_still_chooses_where_it_is_asked_to(corpus, tmp_path, monkeypatch):
    Planted(monkeypatch, cross=[0.3, 0.6], retrieval=[0.9, 0.2])
    train_recipe(cross_recipe(corpus, "metric_for_best_model=retrieval"), tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["best_step"] == 2 and results["best"]["eval_cross"] == 0.3
    *_, first, second, note = table_of(tmp_path / "run")
    assert first[0] == "**2**" and second[0] == "4" and note == ["Bold: the chosen checkpoint, by dev retrieval."]


@pytest.mark.usefixtures("small_sample")
def test_a_resumed_run_keeps_the_rows_of_its_table(corpus, tmp_path, monkeypatch):
    Planted(monkeypatch, cross=[0.5, 0.4, 0.9, 0.45, 0.48], retrieval=[0.1] * 5)
    folder = tmp_path / "run"
    train_recipe(cross_recipe(corpus, "max_steps=6", "save_total_limit=null"), folder)
    assert [row[0] for row in table_of(folder)] == ["step", "2", "4", "**6**", NOTE[0]]
    shutil.rmtree(folder / "checkpoint-6")  # as if the run had been killed between its third evaluation and the save
    (folder / "epochs.md").unlink()
    train_recipe(cross_recipe(corpus, "max_steps=8"), folder, resume=True)
    rows = table_of(folder)
    assert [row[0] for row in rows] == ["step", "**2**", "4", "6", "8", NOTE[0]]
    assert [row[2] for row in rows[1:-1]] == ["**50.00**", "40.00", "45.00", "48.00"]
    results = json.loads((folder / "results.json").read_text())
    assert results["best_step"] == 2 and results["best"]["eval_cross"] == 0.5


@pytest.mark.usefixtures("small_sample")
def test_without_dev_rows_the_task_alone_is_measured(corpus, tmp_path):
    train_recipe(cross_recipe(corpus, "dev_rows=0", "max_steps=2"), tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["best_step"] == 2 and 0 < results["best"]["eval_cross"] < 1
    assert table_of(tmp_path / "run")[0] == [name for name in HEADER if name != "dev retrieval"]


# ---- Epochs


@pytest.mark.parametrize("streaming", ["false", "true"], ids=["map", "stream"])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_strategy_epoch_evaluates_and_saves_once_at_the_end_of_each(streaming, accumulation, corpus, tmp_path):
    options = ["max_steps=-1", "num_train_epochs=3", "eval_strategy=epoch", "save_total_limit=null"]
    options += [f"data.streaming={streaming}", f"gradient_accumulation_steps={accumulation}", "buffer_rows=60"]
    options += ["lr_scheduler_type=constant", "cooldown=0"]
    recipe = load_recipe("quickstart", [f"data.train={corpus}", *TINY, *options])
    folder = tmp_path / "run"
    trainer = train_recipe(recipe, folder)
    trained = {line["step"]: int(line["epoch"]) for line in log_lines(folder) if "loss" in line}
    evaluated = {line["step"]: int(line["epoch"]) for line in log_lines(folder) if "eval_retrieval" in line}
    last = trainer.state.global_step
    first_of_epoch = [min(step for step in trained if trained[step] == epoch) for epoch in (1, 2)]
    assert list(evaluated) == [*first_of_epoch, last]
    if streaming == "true" or accumulation == 1:  # else the last rows do not fill a step, and are left out
        assert list(evaluated.values()) == [1, 2, 3]
    assert {path.name for path in folder.glob("checkpoint-*")} == {f"checkpoint-{step}" for step in evaluated}
    assert [row[0].strip("*") for row in table_of(folder)[1:-1]] == [str(step) for step in evaluated]
    # Going on from the end of an epoch does not measure that epoch again.
    for step in list(evaluated)[1:]:
        shutil.rmtree(folder / f"checkpoint-{step}")
    train_recipe(recipe, folder, resume=True)
    steps = [line["step"] for line in log_lines(folder) if "eval_retrieval" in line]
    assert steps == [*evaluated, *list(evaluated)[1:]]


# ---- The table


def entry(step: int, **values: float) -> dict:
    scores = {f"eval_{name}": value for name, value in values.items()}
    return {"step": step, "epoch": step / 8, "eval_minutes": 1.0, **scores}


def arguments(**options) -> TmdeTrainingArguments:
    return TmdeTrainingArguments(output_dir="none", use_cpu=True, **options)


def test_table_marks_the_first_of_equals_and_leaves_out_what_nobody_measured():
    history = [
        {"step": 1, "loss": 2.0, "epoch": 0.1},
        entry(2, cross=0.25, retrieval=0.5),
        entry(4, cross=0.75),
        entry(6, cross=0.75, retrieval=0.123456),
        entry(6, cross=0.99, retrieval=0.99),  # measured once more when the run was over
    ]
    rows = [
        "| epoch | step | dev Cross | dev retrieval |",
        "| ---: | ---: | ---: | ---: |",
        "| 0.25 | 2 | 25.00 | 50.00 |",
        "| **0.50** | **4** | **75.00** | **-** |",
        "| 0.75 | 6 | 75.00 | 12.35 |",
    ]
    note = "\nBold: the chosen checkpoint, by dev Cross.\n"
    assert epoch_table(history, arguments(metric_for_best_model="eval_cross")) == "\n".join(rows) + "\n" + note
    unmarked = epoch_table(history, arguments(load_best_model_at_end=False))
    assert unmarked == "\n".join(rows).replace("**", "") + "\n"
    least = epoch_table(history, arguments(metric_for_best_model="cross", greater_is_better=False))
    assert "| **0.25** | **2** |" in least and least.count("**") == 8


def test_table_never_marks_the_start_of_which_nothing_is_saved():
    """A warm start that the run made worse: the row before the first step is there, but not what is loaded."""
    table = epoch_table([entry(0, cross=0.9), entry(2, cross=0.5)], arguments(metric_for_best_model="cross"))
    assert table.splitlines()[2:4] == ["| 0.00 | 0 | 90.00 |", "| **0.25** | **2** | **50.00** |"]


# ---- Errors


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["eval_task=null"], "metric_for_best_model=cross is measured on a classification task: give one"),
        (["metric_for_best_model=eval_test_cross"], "eval_test_cross would choose by the test split; choose by cross"),
        (["metric_for_best_model=retrieval", "dev_rows=0"], "retrieval is measured on dev rows, of which there are"),
        (["eval_task=sampel"], "eval_task: found task 'sampel', expected NAME or NAME=SOURCE, NAME of .*sample"),
        (["data.languages=[en, pt]"], r"found the languages \['de', .*two of the model's \['en', 'pt'\]"),
        (["eval_head=fnn"], "eval_head='fnn' is unknown, expected one of ffn, ffn_nli, logistic_regression, svm"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_read(overrides, message, tmp_path):
    recipe = cross_recipe(tmp_path / "missing.jsonl", *overrides)
    with pytest.raises(ValueError, match=message) as error:
        train_recipe(recipe, tmp_path / "run")
    assert isinstance(error.value, (RecipeError, TaskError)) or "metric_for_best_model" in str(error.value)


def test_an_override_names_task_and_source():
    assert load_recipe("quickstart", ["eval_task=mldoc=/data/m=1"]).data.eval_task == "mldoc=/data/m=1"


def test_a_trainer_without_the_task_refuses_cross(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="metric_for_best_model=cross is measured on a classification task"):
        make_trainer(tmp_path, tokenizer, None)


def test_bad_task_data_are_found_before_training(monkeypatch):
    class Pool(Task):
        name = "pool"

        def load(self, source=None, languages=None, streaming=False, **options):
            return RetrievalData(["1"], {"de": [source], "en": ["b"]}, Provenance("none", "none"))

    monkeypatch.setitem(TASKS, "pool", Pool)
    with pytest.raises(TaskError, match="eval_task: found RetrievalData for 'pool=x=y', expected a task of classific"):
        load_eval_task("pool=x=y", LANGUAGES)
    task = sample_task(("de", "en"))
    for name in ("train", "dev", "test"):
        german = {key: split for key, split in task.splits["de"].items() if key != name}
        with pytest.raises(TaskError, match=f"eval_task: Language 'de' has no split '{name}'"):
            task_in_languages(ClassificationData(dict(task.splits) | {"de": german}, task.provenance), LANGUAGES)
    test = task.splits["en"]["test"]
    english = dict(task.splits["en"]) | {"test": Split(test.ids, test.texts, [*test.labels[:-1], "weather"])}
    with pytest.raises(TaskError, match="eval_task: en/test: found the label 'weather'"):
        task_in_languages(ClassificationData({"de": task.splits["de"], "en": english}, task.provenance), LANGUAGES)


# ---- Several processes

WORKER = """
import json, sys
from pathlib import Path
from modeling_tmde.eval.tasks import TASKS
from modeling_tmde.training import trainer as module
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe
load, measure, calls = TASKS["sample"].load, module.measure_task, []
TASKS["sample"].load = lambda task, *args: load(task, *args, sizes=(40, 24, 32))
module.measure_task = lambda *args: calls.append(1) or measure(*args)
trainer = train_recipe(load_recipe("quickstart", sys.argv[2:]), sys.argv[1])
scores = [entry["eval_cross"] for entry in trainer.state.log_history if "eval_cross" in entry]
found = {"calls": len(calls), "scores": scores, "best": trainer.state.best_global_step}
Path(f"rank-{trainer.args.process_index}.json").write_text(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
def test_two_processes_choose_alike_by_what_the_first_measured(corpus, tmp_path):
    own = ["eval_task=sample", "metric_for_best_model=cross", "dropout=0", "micro_batch_tokens=300", "use_cpu=true"]
    overrides = [f"data.train={corpus}", *TINY, *own]
    (tmp_path / "worker.py").write_text(WORKER)
    process = subprocess.run(
        [sys.executable, "-m", *LAUNCHERS["torchrun"], "worker.py", "run", *overrides],
        cwd=tmp_path,
        env=ENVIRONMENT | {"TMDE_CACHE": os.devnull},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank.pop("calls") for rank in ranks] == [2, 0]
    assert ranks[0] == ranks[1] and len(ranks[0]["scores"]) == 2
    train_recipe(load_recipe("quickstart", [*overrides, "gradient_accumulation_steps=2"]), tmp_path / "alone")
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("run", "alone")]
    assert results[0]["best_step"] == results[1]["best_step"] == ranks[0]["best"]
    assert results[0]["best"]["eval_cross"] == pytest.approx(results[1]["best"]["eval_cross"], abs=0.01)
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("run", "alone")]
    for name, value in weights[1].items():
        torch.testing.assert_close(weights[0][name], value, rtol=0, atol=1e-5)
