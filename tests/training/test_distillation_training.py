"""Training by a teacher's vectors: gradients, processes, dev losses, and the space it ends in."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from modeling_tmde import BagConfig, BagModel
from tests.conftest import LANGUAGES, make_rows
from tests.training.logs import assert_equal_weights, entries_with, read_log, values_of
from tests.training.teachers import WIDTH, expected_vector, static_teacher
from tests.training.test_trainer import logged, weights_of
from tests.training.trainers import on_two_processes, tiny_trainer
from tmde import DocumentEmbedder
from tmde.eval.retrieval import precision_at_1
from tmde.training.objectives import Distillation, InfoNCE
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe
from tmde.training.teachers import vectors
from tmde.training.teachers.models import ModelTeacher


@pytest.fixture
def teacher(taught_by) -> tuple[Path, torch.Tensor]:
    return taught_by.folder, taught_by.table


def teacher_vectors_of(table: torch.Tensor, rows: list[dict[str, str]]) -> torch.Tensor:
    """Return the teacher's vectors (rows, d) of the English texts."""
    return torch.stack([expected_vector(table, row["en"]) for row in rows])


def vectors_of(embedder: DocumentEmbedder, rows: list[dict[str, str]], language: str):
    """Return the vectors (rows, d) of the texts in a language."""
    return embedder.encode([row[language] for row in rows])


def test_dev_losses_are_those_of_the_dev_rows(teacher, tokenizer, tmp_path):
    folder, table = teacher
    rows = make_rows(24, seed=9, languages=("de", "en"))
    objectives = {"distillation": Distillation(str(folder)), "infonce": InfoNCE()}
    trainer = tiny_trainer(tmp_path, tokenizer, dev=rows, objectives=objectives, eval_loss_rows=20)

    metrics = trainer.evaluate()

    embedder = DocumentEmbedder(trainer.parallel_model.encoder.eval(), tokenizer)
    german = torch.as_tensor(vectors_of(embedder, rows[:20], "de"))
    english = torch.as_tensor(vectors_of(embedder, rows[:20], "en"))
    vectors = torch.cat([german, english])
    targets = teacher_vectors_of(table, rows[:20]).repeat(2, 1)
    loss = (vectors - targets).square().sum(-1).mean()
    cosine = torch.cosine_similarity(vectors, targets).mean()
    assert metrics["eval_dev_distillation_loss"] == pytest.approx(loss.item(), rel=1e-3)
    assert metrics["eval_dev_distillation_cosine"] == pytest.approx(cosine.item(), abs=1e-3)
    assert "eval_dev_infonce_loss" in metrics


def test_an_evaluation_before_training_asks_the_teachers_of_the_run(tokenizer, tmp_path):
    """The projection of several teachers is that of the training rows."""
    for seed in (0, 1):
        static_teacher(tmp_path / str(seed), seed=seed)
    both = [str(tmp_path / "0"), str(tmp_path / "1")]
    dev = make_rows(12, seed=9, languages=("de", "en"))
    trainer = tiny_trainer(
        tmp_path / "run",
        tokenizer,
        make_rows(80, seed=2, languages=("de", "en")),
        dev=dev,
        objectives={"distillation": Distillation(both, teacher_languages=["en"])},
        embed_max_length=64,
        max_steps=1,
        learning_rate=0.0,
        eval_strategy="steps",
        eval_steps=1,
    )
    before = trainer.evaluate()
    assert (tmp_path / "run" / "teacher.json").is_file()
    trainer.train()
    [after] = [entry for entry in trainer.state.log_history if "eval_loss" in entry][-1:]
    assert after["eval_dev_distillation_loss"] == before["eval_dev_distillation_loss"]


def recipe_of(name: str, teacher: Path | None, folder: Path, *overrides: str):
    fixed = [
        "train=sample",
        "max_rows=300",
        "dev_rows=30",
        "vocab_size=500",
        f"token_cache_dir={folder / 'caches'}",
    ]
    fixed += [
        "max_minutes=null",
        "eval_minutes=null",
        "max_steps=4",
        "logging_steps=1",
        f"model.d_model={WIDTH}",
    ]
    fixed += [f"objectives.distillation.teacher={teacher}"] if teacher else []
    return load_recipe(name, [*fixed, *overrides])


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Two threads add up gradients of a table in either order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_a_run_is_the_same_whether_the_vectors_are_there_or_not(teacher, tmp_path, monkeypatch):
    recipe = recipe_of("distil", teacher[0], tmp_path, "data.dev_rows=40")
    first = train_recipe(recipe, tmp_path / "first")
    monkeypatch.setattr(ModelTeacher, "model", None)  # Nothing is loaded again.
    second = train_recipe(recipe, tmp_path / "second")

    assert len(logged(first)) == 4
    assert values_of(logged(first), "loss") == values_of(logged(second), "loss")
    assert_equal_weights(weights_of(second), weights_of(first))
    last = json.loads((tmp_path / "first" / "results.json").read_text())["best"]
    assert -1 <= last["eval_dev_distillation_cosine"] <= 1
    results = json.loads((tmp_path / "second" / "results.json").read_text())
    # The second run reads nothing, but its model needed the reading as well.
    assert results["teacher_minutes"] == pytest.approx(first.teachers.seconds / 60, abs=1e-6)


def test_the_minutes_of_a_run_count_those_of_its_teacher(teacher, tmp_path, monkeypatch):
    recipe = recipe_of("distil", teacher[0], tmp_path, "data.dev_rows=40")
    with monkeypatch.context() as patch:
        # As if the teacher had read each block for an hour.
        patch.setattr(vectors, "perf_counter", count(step=3600).__next__)
        first = train_recipe(recipe, tmp_path / "first")
    train_recipe(recipe, tmp_path / "second")
    results = json.loads((tmp_path / "second" / "results.json").read_text())
    assert results["teacher_minutes"] == pytest.approx(first.teachers.seconds / 60)
    assert results["teacher_minutes"] >= 60
    assert results["minutes"] > results["teacher_minutes"]


@pytest.mark.nightly
def test_two_processes_equal_one(teacher, tokenizer, tmp_path):
    """Two take as many micro-batches at once as one process takes after one another.

    All of them have rows that are not taught.
    """
    from tests.training.worker_trainer import one_run

    tokenizer.save_pretrained(tmp_path / "tokenizer")
    arguments = {
        "max_steps": 4,
        "warmup_steps": 2,
        "logging_steps": 1,
        "eval_steps": 2,
        "save_steps": 2,
        "seed": 7,
    }
    arguments |= {"micro_batch_tokens": 400, "eval_pairs": ["de-es"], "learning_rate": 5e-3}
    arguments |= {"token_cache_dir": str(tmp_path / "caches")}
    two = tmp_path / "two"
    one = tmp_path / "one"
    two.mkdir()
    options = {"tokenizer": str(tmp_path / "tokenizer"), "teacher": str(teacher[0])}
    options["arguments"] = {**arguments, "output_dir": str(two)}
    (tmp_path / "options.json").write_text(json.dumps(options))
    on_two_processes("worker_trainer.py", tmp_path / "options.json")
    caches = sorted((tmp_path / "caches").glob("*.arrow"))
    of_one = {**arguments, "gradient_accumulation_steps": 2, "output_dir": str(one)}
    trainer = one_run(tokenizer, teacher=str(teacher[0]), **of_one)
    # Made once for all processes and runs.
    assert caches
    assert sorted((tmp_path / "caches").glob("*.arrow")) == caches
    expected_weights = weights_of(trainer)
    for rank in (0, 1):
        for name, value in load_file(two / f"weights-{rank}.safetensors").items():
            torch.testing.assert_close(value, expected_weights[name], rtol=0, atol=1e-5)
    log_of_one = read_log(one)
    log_of_two = read_log(two)
    for name in (
        "loss",
        "grad_norm",
        "distillation_loss",
        "distillation_cosine",
        "eval_dev_distillation_loss",
    ):
        expected = values_of(entries_with(log_of_one, name), name)
        assert expected
        values = values_of(entries_with(log_of_two, name), name)
        assert values == pytest.approx(expected, rel=1e-4), name


# ---- Where it ends


def test_new_languages_land_in_the_teacher_s_space(teacher, tokenizer, tmp_path):
    """The vectors of a teacher that knows English alone bring the others there.

    This is measured by P@1 on 200 rows of their own.
    """
    folder, table = teacher
    torch.manual_seed(0)
    languages = {"languages": list(LANGUAGES), "pivot_languages": ["en", "es"]}
    model = BagModel(BagConfig(vocab_size=400, d_model=WIDTH, normalize=False, **languages))
    options = {
        "max_steps": 120,
        "learning_rate": 0.05,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0,
    }
    options |= {"micro_batch_tokens": 4000, "languages_per_row": None, "logging_steps": 100}
    objectives = {"distillation": Distillation(str(folder), teacher_languages=["en"])}
    trainer = tiny_trainer(
        tmp_path, tokenizer, make_rows(600, seed=5), objectives, model=model, **options
    )
    trainer.train()

    rows_by_words = {}
    for row in make_rows(400, seed=11):
        rows_by_words[tuple(sorted(row["en"].split()))] = row  # Each bag of words once.
    rows = list(rows_by_words.values())[:200]
    targets = teacher_vectors_of(table, rows).numpy()
    embedder = DocumentEmbedder(trainer.parallel_model.encoder.eval(), tokenizer)
    for language in ("de", "en", "it"):
        vectors = vectors_of(embedder, rows, language)
        assert precision_at_1(vectors, targets) > 0.9, language
