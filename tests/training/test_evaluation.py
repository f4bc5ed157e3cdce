"""Dev evaluation in training: what is measured, what it chooses, and when it ends a run."""

import inspect
import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch

from tests.conftest import LANGUAGES, make_dataset, make_rows, tiny_model
from tests.training.trainers import tiny_trainer
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.dev_tasks import load_eval_tasks
from tmde.eval.heads import get_head
from tmde.eval.tasks import TASKS, ClassificationData, TaskError
from tmde.training import callbacks
from tmde.training.objectives import DistanceConstraint, InfoNCE
from tmde.training.trainer import TmdeTrainer

SIZES = {"train": 40, "dev": 24, "test": 32}
SCORES = ("same", "cross", "all", "test_same", "test_cross")


def sample_task(languages: tuple[str, ...] = ("de", "en")) -> ClassificationData:
    return TASKS["sample"]().load(languages=languages, sizes=tuple(SIZES.values()))


def make_trainer(
    folder: Path, tokenizer, dev=None, task=None, model=None, rows=None, **arguments
) -> TmdeTrainer:
    """Evaluates and saves at every step."""
    options = {
        "max_steps": 20,
        "warmup_steps": 1,
        "eval_steps": 1,
        "save_steps": 1,
        "eval_loss_rows": 4,
    }
    options |= {"eval_strategy": "steps", "save_strategy": "steps", "load_best_model_at_end": True}
    objectives = (
        {"distance": DistanceConstraint(negatives=3)} if model is None else {"infonce": InfoNCE()}
    )
    model = model or tiny_model(seed=1, dropout=0.3)
    rows = make_rows(60, seed=2) if rows is None else rows
    return tiny_trainer(
        folder, tokenizer, rows, objectives, dev, task, model, **(options | arguments)
    )


@pytest.fixture
def encoded(monkeypatch) -> list[list[tuple[str, str]]]:
    """The texts of every call of an embedder, with their languages."""
    calls = []
    encode = DocumentEmbedder.encode_with_report

    def recording(*args, **options):
        call = inspect.signature(encode).bind(*args, **options)
        texts = list(call.arguments["texts"])
        language = call.arguments.get("language")
        codes = language
        if language is None or isinstance(language, str):
            codes = [language] * len(texts)
        calls.append(list(zip(texts, codes, strict=True)))
        return encode(*args, **options)

    monkeypatch.setattr(DocumentEmbedder, "encode_with_report", recording)
    return calls


# ---- Classification tasks


def scores_by_hand(model, tokenizer, task: ClassificationData) -> dict[str, float]:
    """Every classifier on every language, one text at a time."""
    embedder = DocumentEmbedder(model, tokenizer)
    vectors = {
        (language, name): np.stack([embedder.encode(text) for text in split.texts])
        for language, splits in task.splits.items()
        for name, split in splits.items()
    }
    scores = {}
    for split, prefix in (("dev", ""), ("test", "test_")):
        same = []
        cross = []
        for source in task.languages:
            train = task.splits[source]["train"]
            dev = task.splits[source]["dev"]
            devs = {source: (vectors[source, "dev"], dev.labels)}
            head = get_head("logistic_regression").fit(
                vectors[source, "train"], train.labels, devs, seed=0
            )[source]
            for target in task.languages:
                labels = task.splits[target][split].labels
                right = np.mean(
                    [
                        a == b
                        for a, b in zip(labels, head.predict(vectors[target, split]), strict=True)
                    ]
                )
                (same if source == target else cross).append(right)
        scores |= {f"{prefix}same": np.mean(same), f"{prefix}cross": np.mean(cross)}
        scores |= {} if prefix else {"all": np.mean(same + cross)}
    return scores


def test_same_and_cross_equal_a_loop_over_languages(tokenizer, tmp_path, encoded):
    task = sample_task(("de", "en", "es"))
    trainer = make_trainer(tmp_path, tokenizer, task=task)
    for seed in (7, 8):  # other weights, other scores: nothing is kept from the evaluation before
        trainer.model.model.load_state_dict(tiny_model(seed=seed).state_dict())
        encoded.clear()
        metrics = trainer.evaluate()
        assert sum(map(len, encoded)) == 3 * sum(SIZES.values())  # every split once
        found = {name: metrics[f"eval_{name}"] for name in SCORES}
        assert found == pytest.approx(
            scores_by_hand(trainer.model.model.model, tokenizer, task), abs=2e-6
        )
    assert "eval_retrieval" not in metrics


@pytest.mark.parametrize("head", ["logistic_regression", "ffn"])
def test_an_evaluation_leaves_random_states_gradients_and_training_mode(head, tokenizer, tmp_path):
    dev = make_dataset(make_rows(40, seed=9))
    task = replace(sample_task(), head=head)
    trainer = make_trainer(tmp_path, tokenizer, dev, task)
    trainer.model.train()
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
    first = trainer.evaluate()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]
    assert all(module.training for module in trainer.model.modules())
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    torch.rand(5)  # whatever training draws, the next evaluation gives the same
    second = trainer.evaluate()
    assert {key: value for key, value in first.items() if "minutes" not in key} == {
        key: value for key, value in second.items() if "minutes" not in key
    }


def test_scores_of_several_tasks_are_means_and_are_there_by_name(tokenizer, tmp_path, monkeypatch):
    planted = {
        "sib200": {"same": 0.9, "cross": 0.5, "all": 0.6, "test_same": 0.8, "test_cross": 0.4},
        "other": {"same": 0.7, "cross": 0.1, "all": 0.2, "test_same": 0.6, "test_cross": 0.2},
    }
    tasks = {"sib200": sample_task(), "other": sample_task(("de", "en", "es"))}
    monkeypatch.setattr(
        "tmde.training.evaluation.measure_task",
        lambda embedder, data, *rest: planted["sib200" if len(data.languages) == 2 else "other"],
    )
    metrics = make_trainer(tmp_path, tokenizer, task=tasks).evaluate()
    expected = {
        "same": 0.8,
        "cross": 0.3,
        "all": 0.4,
        "test_same": 0.7,
        "test_cross": 0.3,
        "mix": 0.55,
    }
    expected |= {
        f"{task}_{name}": value
        for task, scores in planted.items()
        for name, value in scores.items()
    }
    assert {name: metrics[f"eval_{name}"] for name in expected} == pytest.approx(expected)


def test_tasks_that_cannot_be_measured_are_named(monkeypatch):
    assert load_eval_tasks("sample", ["it", "xx", "de"])["sample"].languages == ["it", "de"]
    assert load_eval_tasks(None, LANGUAGES) == {}
    message = r"eval_task: found task 'sampel', expected NAME\[=SOURCE\] of .*sample"
    with pytest.raises(TaskError, match=message):
        load_eval_tasks("sampel", LANGUAGES)
    with pytest.raises(TaskError, match="eval_task: found task 'sample', expected .* each once"):
        load_eval_tasks(["sample", "sample"], LANGUAGES)
    with pytest.raises(
        TaskError, match=r"found the languages \['de', .*two of the model's \['en', 'pt'\]"
    ):
        load_eval_tasks("sample", ["en", "pt"])
    task = sample_task()
    german = {name: split for name, split in task.splits["de"].items() if name != "dev"}
    incomplete = ClassificationData(task.splits | {"de": german}, task.provenance)
    monkeypatch.setattr(TASKS["sample"], "load", lambda *args: incomplete)
    with pytest.raises(TaskError, match="'de' has no split 'dev'"):
        load_eval_tasks("sample", LANGUAGES)


# ---- Retrieval


def documents(number: int, rows_each: int = 5, seed: int = 0) -> datasets.Dataset:
    """Rows in de, en and es; of every second document one row lacks Spanish, and every fifth
    document is too short.
    """
    rows = make_rows(number * rows_each, seed=seed, languages=("de", "en", "es"))
    for index in range(1, len(rows), 2 * rows_each):
        rows[index]["es"] = None
    kept = [
        index for index in range(len(rows)) if (index // rows_each) % 5 or index % rows_each < 3
    ]
    ids = [f"doc {index // rows_each}" for index in kept]
    return make_dataset([rows[i] for i in kept]).add_column(
        "doc_id", ids, feature=datasets.Value("string")
    )


def precision_by_hand(embedder, pairs: list[tuple[str, str]]) -> float:
    """Both directions, one text at a time in float64."""
    sides = [
        [embedder.encode(text).astype(np.float64) for text in side]
        for side in zip(*pairs, strict=True)
    ]
    sides = [[vector / np.sqrt((vector**2).sum()) for vector in side] for side in sides]
    hits = 0
    for queries, candidates in (sides, sides[::-1]):
        for place, query in enumerate(queries):
            hits += int(np.argmax([query @ candidate for candidate in candidates])) == place
    return hits / (2 * len(pairs))


def test_retrieval_of_every_set_and_pair_equals_a_plain_loop(tokenizer, tmp_path, encoded):
    dev = {"one": documents(40), "few": documents(24, seed=2)}
    trainer = make_trainer(
        tmp_path, tokenizer, dev, eval_pairs=None, eval_document_rows=4, eval_pool=50
    )
    metrics = trainer.evaluate()
    # No text twice.
    assert len(encoded) == 2 * 3
    assert all(len(set(texts)) == len(texts) for texts in encoded)
    embedder = DocumentEmbedder(trainer.model.model.model, tokenizer)
    expected = {}
    for (name, rows), pair in itertools.product(
        dev.items(), (("de", "en"), ("de", "es"), ("en", "es"))
    ):
        by_document: dict[str, list] = {}
        sentences: list[tuple[str, str]] = []
        for row, document in zip(rows["translation"], rows["doc_id"], strict=True):
            texts = tuple(row[language] for language in pair)
            if all(texts):
                by_document.setdefault(document, []).append(texts)
                if len(sentences) < 50 and not any(
                    a == b for s in sentences for a, b in zip(s, texts, strict=True)
                ):
                    sentences.append(texts)
        joined = [
            tuple(map(" ".join, zip(*t[:4], strict=True)))
            for t in by_document.values()
            if len(t) >= 4
        ]
        expected[f"eval_{name}_p1_{'-'.join(pair)}"] = precision_by_hand(embedder, sentences)
        if len(joined) >= 20:  # not of the set `few`
            expected[f"eval_{name}_doc_p1_{'-'.join(pair)}"] = precision_by_hand(embedder, joined)
    assert {key: value for key, value in metrics.items() if "_p1_" in key} == pytest.approx(
        expected, abs=2e-6
    )
    means = [
        np.mean([value for key, value in expected.items() if ("_doc_" in key) == is_document])
        for is_document in (False, True)
    ]
    assert (metrics["eval_retrieval"], metrics["eval_document_retrieval"]) == pytest.approx(
        means, abs=2e-6
    )
    assert metrics["eval_mix"] == pytest.approx(np.mean(means), abs=2e-6)


# ---- The chosen checkpoint


def plant(monkeypatch, values: list[float]) -> list[float]:
    """Dev retrieval in the order of the evaluations; what is left of it."""
    left = list(values)
    monkeypatch.setattr(
        "tmde.training.evaluation.dev_retrieval", lambda *args: {"p1_de-en": left.pop(0)}
    )
    return left


def test_cross_chooses_the_checkpoint_and_the_log_has_it(tokenizer, tmp_path, monkeypatch):
    plant(monkeypatch, [0.9, 0.2, 0.8])
    cross = iter([0.3, 0.61, 0.4])
    states = []

    def measure(embedder, *args):
        states.append({name: value.clone() for name, value in embedder.model.state_dict().items()})
        return {"same": 0.9, "cross": next(cross), "all": 0.5, "test_same": 0.8, "test_cross": 0.39}

    monkeypatch.setattr("tmde.training.evaluation.measure_task", measure)
    dev = make_dataset(make_rows(8, seed=3))
    options = {"max_steps": 3, "metric_for_best_model": "cross"}
    trainer = make_trainer(tmp_path, tokenizer, dev, sample_task(), save_total_limit=1, **options)
    trainer.train()
    assert trainer.state.best_global_step == 2
    assert trainer.state.best_metric == 0.61
    for name, value in trainer.model.encoder.state_dict().items():
        assert torch.equal(value, states[1][name]), name
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").open()]
    logged = [line for line in logged if "eval_cross" in line]
    names = (
        "step",
        "eval_same",
        "eval_cross",
        "eval_test_same",
        "eval_test_cross",
        "eval_retrieval",
        "eval_mix",
    )
    assert [logged[1][name] for name in names] == pytest.approx(
        [2, 0.9, 0.61, 0.8, 0.39, 0.2, 0.57]
    )


# ---- Early stopping

VALUES = [
    0.3,
    0.6,
    0.5,
    0.6,
    0.7,
    0.4,
    0.7,
    0.1,
    0.9,
]  # an equal is no better; the third in a row is at step 8


def test_a_run_stops_after_evaluations_without_improvement_also_after_a_resume(
    tokenizer, tmp_path, monkeypatch
):
    dev = make_dataset(make_rows(8, seed=3))
    options = {"early_stopping_patience": 3, "save_total_limit": None}
    left = plant(monkeypatch, VALUES)
    trainer = make_trainer(tmp_path, tokenizer, dev, **options)
    trainer.train()
    assert (trainer.state.global_step, trainer.state.best_global_step, left) == (8, 5, VALUES[8:])
    plant(monkeypatch, VALUES[7:])  # checkpoint 7 has seen two evaluations without improvement
    resumed = make_trainer(tmp_path, tokenizer, dev, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))
    assert (resumed.state.global_step, resumed.state.best_global_step) == (8, 5)
    plant(monkeypatch, [0.1])
    stopped = make_trainer(tmp_path, tokenizer, dev, **options)
    stopped.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert stopped.state.global_step == 8


def test_a_metric_that_the_dev_rows_do_not_give(tokenizer, tmp_path):
    with pytest.raises(
        ValueError,
        match="metric_for_best_model=mix: the evaluation measured no eval_mix, expected one of",
    ):
        make_trainer(tmp_path, tokenizer, make_dataset(make_rows(1))).train()


# ---- Curves


@pytest.mark.usefixtures("pictures")
def test_a_run_leaves_its_curves_and_no_picture_ends_it(tokenizer, tmp_path, monkeypatch):
    dev = make_dataset(make_rows(8, seed=3))
    make_trainer(tmp_path / "run", tokenizer, dev, max_steps=2).train()
    assert (tmp_path / "run" / "curves.png").stat().st_size > 10_000
    assert "eval_dev_p1_de-en" in json.loads(
        (tmp_path / "run" / "log.jsonl").read_text().splitlines()[1]
    )
    warnings = []
    monkeypatch.setattr(callbacks.logger, "warning", warnings.append)
    monkeypatch.setattr("tmde.training.callbacks.draw_training_curves", lambda *args: 1 / 0)
    make_trainer(tmp_path / "broken", tokenizer, dev, max_steps=1).train()
    assert warnings == ["curves.png could not be drawn: ZeroDivisionError: division by zero"]
