"""Dev evaluation in training: what is measured, what it chooses, and when it ends a run."""

import copy
import inspect
import itertools
import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch

from tests.conftest import LANGUAGES, make_dataset, make_rows, tiny_model
from tests.training.logs import assert_equal_weights, pick, read_log
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
    """Make a trainer that evaluates and saves at every step."""
    options = {
        "max_steps": 20,
        "warmup_steps": 1,
        "eval_steps": 1,
        "save_steps": 1,
        "eval_loss_rows": 4,
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "load_best_model_at_end": True,
    }
    objectives = {"infonce": InfoNCE()}
    if model is None:
        model = tiny_model(seed=1, dropout=0.3)
        objectives = {"distance": DistanceConstraint(negatives=3)}
    if rows is None:
        rows = make_rows(60, seed=2)
    options |= arguments
    return tiny_trainer(folder, tokenizer, rows, objectives, dev, task, model, **options)


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


def encode_one_by_one(embedder, texts) -> np.ndarray:
    """Return vectors (texts, d) of texts that are encoded one at a time."""
    return np.stack(list(map(embedder.encode, texts)))


def fit_head(vectors: dict, task: ClassificationData, language: str):
    """Return the classifier of one language, chosen on its dev split."""
    splits = task.splits[language]
    dev = {language: (vectors[language, "dev"], splits["dev"].labels)}
    head = get_head("logistic_regression")
    heads = head.fit(vectors[language, "train"], splits["train"].labels, dev, seed=0)
    return heads[language]


def scores_by_hand(model, tokenizer, task: ClassificationData) -> dict[str, float]:
    """Return the scores of every classifier on every language, one text at a time."""
    embedder = DocumentEmbedder(model, tokenizer)
    vectors = {}
    for language, splits in task.splits.items():
        for name, split in splits.items():
            vectors[language, name] = encode_one_by_one(embedder, split.texts)
    accuracies = defaultdict(list)
    for source, target in itertools.product(task.languages, repeat=2):
        head = fit_head(vectors, task, source)
        kind = "same" if source == target else "cross"
        for split in ("dev", "test"):
            predictions = np.array(head.predict(vectors[target, split]))
            is_right = predictions == np.array(task.splits[target][split].labels)
            accuracies[split, kind].append(is_right.mean())
    return {
        "same": np.mean(accuracies["dev", "same"]),
        "cross": np.mean(accuracies["dev", "cross"]),
        "all": np.mean(accuracies["dev", "same"] + accuracies["dev", "cross"]),
        "test_same": np.mean(accuracies["test", "same"]),
        "test_cross": np.mean(accuracies["test", "cross"]),
    }


def without_prefix(metrics: dict[str, float]) -> dict[str, float]:
    return {name.removeprefix("eval_"): value for name, value in metrics.items()}


def test_same_and_cross_equal_a_loop_over_languages(tokenizer, tmp_path, encoded):
    task = sample_task(("de", "en", "es"))
    trainer = make_trainer(tmp_path, tokenizer, task=task)
    # Other weights have other scores: nothing is kept from the evaluation before.
    for seed in (7, 8):
        trainer.model.load_state_dict(tiny_model(seed=seed).state_dict())
        encoded.clear()

        metrics = without_prefix(trainer.evaluate())

        assert sum(map(len, encoded)) == 3 * sum(SIZES.values())  # Every split is read once.
        expected = scores_by_hand(trainer.model.model, tokenizer, task)
        assert pick(metrics, SCORES) == pytest.approx(expected, abs=2e-6)
        assert "retrieval" not in metrics


@pytest.mark.parametrize("head", ["logistic_regression", "ffn"])
def test_an_evaluation_leaves_random_states_gradients_and_training_mode(head, tokenizer, tmp_path):
    dev = make_dataset(make_rows(40, seed=9))
    task = replace(sample_task(), head=head)
    trainer = make_trainer(tmp_path, tokenizer, dev, task)
    trainer.parallel_model.train()
    torch_state = torch.get_rng_state()
    python_state = random.getstate()
    numpy_state = np.random.get_state()[1].tolist()

    trainer.evaluate()

    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python_state
    assert np.random.get_state()[1].tolist() == numpy_state
    for module in trainer.parallel_model.modules():
        assert module.training
    for parameter in trainer.model.parameters():
        assert parameter.grad is None


@pytest.mark.parametrize("head", ["logistic_regression", "ffn"])
def test_whatever_training_draws_evaluations_are_the_same(head, tokenizer, tmp_path):
    dev = make_dataset(make_rows(40, seed=9))
    trainer = make_trainer(tmp_path, tokenizer, dev, replace(sample_task(), head=head))

    first = trainer.evaluate()
    torch.rand(5)
    second = trainer.evaluate()

    assert first.keys() == second.keys()
    for name, value in first.items():
        if "minutes" not in name:
            assert second[name] == value, name


def test_scores_of_several_tasks_are_means_and_are_there_by_name(tokenizer, tmp_path, monkeypatch):
    scores_by_languages = {
        2: {"same": 0.9, "cross": 0.5, "all": 0.6, "test_same": 0.8, "test_cross": 0.4},
        3: {"same": 0.7, "cross": 0.1, "all": 0.2, "test_same": 0.6, "test_cross": 0.2},
    }
    tasks = {"sib200": sample_task(), "other": sample_task(("de", "en", "es"))}

    def measure(embedder, data, *rest):
        return scores_by_languages[len(data.languages)]

    monkeypatch.setattr("tmde.training.evaluation.measure_task", measure)

    metrics = without_prefix(make_trainer(tmp_path, tokenizer, task=tasks).evaluate())

    means = {"same": 0.8, "cross": 0.3, "all": 0.4, "test_same": 0.7, "test_cross": 0.3}
    assert pick(metrics, means) == pytest.approx(means)
    assert metrics["mix"] == pytest.approx(0.55)
    for score in SCORES:
        assert metrics[f"sib200_{score}"] == scores_by_languages[2][score]
        assert metrics[f"other_{score}"] == scores_by_languages[3][score]


def test_tasks_are_loaded_in_the_languages_that_are_trained():
    assert load_eval_tasks("sample", ["it", "xx", "de"])["sample"].languages == ["it", "de"]
    assert load_eval_tasks(None, LANGUAGES) == {}


@pytest.mark.parametrize(
    ("names", "languages", "message"),
    [
        (
            "sampel",
            LANGUAGES,
            r"eval_task: found task 'sampel', expected NAME\[=SOURCE\] of .*sample",
        ),
        (
            ["sample", "sample"],
            LANGUAGES,
            "eval_task: found task 'sample', expected .* each once",
        ),
        (
            "sample",
            ["en", "pt"],
            r"found the languages \['de', .*two of the model's \['en', 'pt'\]",
        ),
    ],
)
def test_tasks_that_cannot_be_measured_are_named(names, languages, message):
    with pytest.raises(TaskError, match=message):
        load_eval_tasks(names, languages)


def test_a_task_without_a_dev_split_is_refused(monkeypatch):
    task = sample_task()
    german_splits = dict(task.splits["de"])
    del german_splits["dev"]
    incomplete = ClassificationData(task.splits | {"de": german_splits}, task.provenance)
    monkeypatch.setattr(TASKS["sample"], "load", lambda *args: incomplete)
    with pytest.raises(TaskError, match="'de' has no split 'dev'"):
        load_eval_tasks("sample", LANGUAGES)


# ---- Retrieval


def documents(number: int, rows_each: int = 5, seed: int = 0) -> datasets.Dataset:
    """Return rows of documents in de, en and es.

    Of every second document one row lacks Spanish, and every fifth document is too short.
    """
    rows = make_rows(number * rows_each, seed=seed, languages=("de", "en", "es"))
    for index in range(1, len(rows), 2 * rows_each):
        rows[index]["es"] = None
    document_rows = []
    names = []
    for index, row in enumerate(rows):
        document, place = divmod(index, rows_each)
        if document % 5 or place < 3:
            document_rows.append(row)
            names.append(f"doc {document}")
    return make_dataset(document_rows).add_column("doc_id", names, feature=datasets.Value("string"))


def precision_by_hand(embedder, pairs: list[tuple[str, str]]) -> float:
    """Return precision at 1 of both directions, one text at a time in float64."""
    sides = []
    for texts in zip(*pairs, strict=True):
        vectors = encode_one_by_one(embedder, texts).astype(np.float64)
        sides.append(vectors / np.sqrt((vectors**2).sum(axis=1, keepdims=True)))
    hits = 0
    for queries, candidates in (sides, sides[::-1]):
        for place, query in enumerate(queries):
            hits += int(np.argmax(candidates @ query)) == place
    return hits / (2 * len(pairs))


def pairs_by_document(rows: datasets.Dataset, languages: tuple[str, str]) -> dict[str, list]:
    """Return the pairs of texts of every document, without rows that lack one."""
    pairs = defaultdict(list)
    for row, document in zip(rows["translation"], rows["doc_id"], strict=True):
        pair = tuple(row[language] for language in languages)
        if all(pair):
            pairs[document].append(pair)
    return pairs


def sentence_pool(documents_pairs: dict[str, list], size: int) -> list[tuple[str, str]]:
    """Return the first pairs of which no text has been on the same side before."""
    pool = []
    texts_by_side = (set(), set())
    for pair in itertools.chain.from_iterable(documents_pairs.values()):
        is_known = pair[0] in texts_by_side[0] or pair[1] in texts_by_side[1]
        if len(pool) < size and not is_known:
            pool.append(pair)
            texts_by_side[0].add(pair[0])
            texts_by_side[1].add(pair[1])
    return pool


def document_pool(documents_pairs: dict[str, list], num_rows: int) -> list[tuple[str, ...]]:
    """Return the first rows of every document that has enough, joined on both sides."""
    pool = []
    for pairs in documents_pairs.values():
        if len(pairs) >= num_rows:
            sides = zip(*pairs[:num_rows], strict=True)
            pool.append(tuple(map(" ".join, sides)))
    return pool


def test_retrieval_of_every_set_and_pair_equals_a_plain_loop(tokenizer, tmp_path, encoded):
    dev = {"one": documents(40), "few": documents(24, seed=2)}
    options = {"eval_pairs": None, "eval_document_rows": 4, "eval_pool": 50}
    trainer = make_trainer(tmp_path, tokenizer, dev, **options)

    metrics = without_prefix(trainer.evaluate())

    assert len(encoded) == 2 * 3
    for texts in encoded:
        assert len(set(texts)) == len(texts)  # No text is read twice.
    embedder = DocumentEmbedder(trainer.model.model, tokenizer)
    sentence_scores = {}
    document_scores = {}
    language_pairs = itertools.combinations(("de", "en", "es"), 2)
    for name, languages in itertools.product(dev, language_pairs):
        pairs = pairs_by_document(dev[name], languages)
        pair_name = "-".join(languages)
        sentences = sentence_pool(pairs, size=50)
        sentence_scores[f"{name}_p1_{pair_name}"] = precision_by_hand(embedder, sentences)
        texts = document_pool(pairs, num_rows=4)
        if len(texts) >= 20:  # The set `few` has fewer.
            document_scores[f"{name}_doc_p1_{pair_name}"] = precision_by_hand(embedder, texts)
    expected = sentence_scores | document_scores
    assert {name for name in metrics if "_p1_" in name} == set(expected)
    assert pick(metrics, expected) == pytest.approx(expected, abs=2e-6)
    means = [np.mean(list(sentence_scores.values())), np.mean(list(document_scores.values()))]
    assert metrics["retrieval"] == pytest.approx(means[0], abs=2e-6)
    assert metrics["document_retrieval"] == pytest.approx(means[1], abs=2e-6)
    assert metrics["mix"] == pytest.approx(np.mean(means), abs=2e-6)


# ---- The chosen checkpoint


def plant(monkeypatch, values: list[float]) -> list[float]:
    """Plant dev retrieval in the order of the evaluations; return the values not yet used."""
    remaining = list(values)
    monkeypatch.setattr(
        "tmde.training.evaluation.dev_retrieval", lambda *args: {"p1_de-en": remaining.pop(0)}
    )
    return remaining


def test_cross_chooses_the_checkpoint_and_the_log_has_it(tokenizer, tmp_path, monkeypatch):
    plant(monkeypatch, [0.9, 0.2, 0.8])
    cross_scores = iter([0.3, 0.61, 0.4])
    models = []

    def measure(embedder, *args):
        models.append(copy.deepcopy(embedder.model))
        scores = {"same": 0.9, "all": 0.5, "test_same": 0.8, "test_cross": 0.39}
        return {**scores, "cross": next(cross_scores)}

    monkeypatch.setattr("tmde.training.evaluation.measure_task", measure)
    dev = make_dataset(make_rows(8, seed=3))
    options = {"max_steps": 3, "metric_for_best_model": "cross", "save_total_limit": 1}
    trainer = make_trainer(tmp_path, tokenizer, dev, sample_task(), **options)

    trainer.train()

    assert trainer.state.best_global_step == 2
    assert trainer.state.best_metric == 0.61
    assert_equal_weights(models[1].state_dict(), trainer.parallel_model.encoder.state_dict())
    expected = {
        "step": 2,
        "eval_same": 0.9,
        "eval_cross": 0.61,
        "eval_test_same": 0.8,
        "eval_test_cross": 0.39,
        "eval_retrieval": 0.2,
        "eval_mix": 0.57,
    }
    entry = read_log(tmp_path, "eval_cross")[1]
    assert pick(entry, expected) == pytest.approx(expected)


# ---- Early stopping

# An equal value is no better; the third without improvement in a row is at step 8.
VALUES = [0.3, 0.6, 0.5, 0.6, 0.7, 0.4, 0.7, 0.1, 0.9]


@pytest.fixture
def make_stopping(tokenizer, tmp_path):
    """A function that makes a trainer that stops after three evaluations without improvement."""
    dev = make_dataset(make_rows(8, seed=3))
    options = {"early_stopping_patience": 3, "save_total_limit": None}
    return lambda: make_trainer(tmp_path, tokenizer, dev, **options)


def test_a_run_stops_after_evaluations_without_improvement_also_after_a_resume(
    make_stopping, tmp_path, monkeypatch
):
    remaining = plant(monkeypatch, VALUES)
    trainer = make_stopping()
    trainer.train()
    assert trainer.state.global_step == 8
    assert trainer.state.best_global_step == 5
    assert remaining == VALUES[8:]

    # Checkpoint 7 has seen two evaluations without improvement.
    plant(monkeypatch, VALUES[7:])
    resumed = make_stopping()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))
    assert resumed.state.global_step == 8
    assert resumed.state.best_global_step == 5

    # Checkpoint 8 has seen all three.
    plant(monkeypatch, [0.1])
    stopped = make_stopping()
    stopped.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert stopped.state.global_step == 8


def test_a_metric_that_the_dev_rows_do_not_give(tokenizer, tmp_path):
    trainer = make_trainer(tmp_path, tokenizer, make_dataset(make_rows(1)))
    message = "metric_for_best_model=mix: the evaluation measured no eval_mix, expected one of"
    with pytest.raises(ValueError, match=message):
        trainer.train()


# ---- Curves


@pytest.mark.usefixtures("pictures")
def test_a_run_leaves_its_curves_and_its_log(tokenizer, tmp_path):
    dev = make_dataset(make_rows(8, seed=3))
    make_trainer(tmp_path, tokenizer, dev, max_steps=2).train()
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert "eval_dev_p1_de-en" in read_log(tmp_path)[1]


@pytest.mark.usefixtures("pictures")
def test_curves_that_cannot_be_drawn_end_no_run(tokenizer, tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(callbacks.logger, "warning", warnings.append)
    monkeypatch.setattr("tmde.training.callbacks.draw_training_curves", lambda *args: 1 / 0)
    dev = make_dataset(make_rows(8, seed=3))

    make_trainer(tmp_path, tokenizer, dev, max_steps=2).train()

    assert warnings == ["curves.png was not drawn: ZeroDivisionError: division by zero"]
