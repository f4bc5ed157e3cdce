"""The metrics as modules of `evaluate`, loaded by path and without a network."""

import inspect
from collections.abc import Callable
from pathlib import Path

import evaluate
import numpy as np
import pytest

from tmde.eval import metrics
from tmde.eval.metrics.sts_correlation.sts_correlation import correlations
from tmde.eval.metrics.translation_retrieval.translation_retrieval import rank_scores

FOLDER = Path(inspect.getfile(metrics)).parent


@pytest.fixture
def load(monkeypatch, tmp_path) -> Callable[[str], evaluate.Metric]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return lambda name: evaluate.load(str(FOLDER / name), cache_dir=str(tmp_path))


def test_scores_of_ranks_by_hand():
    assert rank_scores([1, 2, 20, 1]) == {
        "precision_at_1": 0.5,
        "mrr": (2 + 0.5 + 0.05) / 4,
        "recall_at_10": 0.75,
    }


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    return first @ second / np.linalg.norm(first) / np.linalg.norm(second)


def test_translation_retrieval_against_a_plain_loop(load):
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(30, 4))
    candidates = queries + rng.normal(size=(30, 4))
    ranks = []
    for query, translation in zip(queries, candidates, strict=True):
        right = cosine(query, translation)
        ranks.append(sum(cosine(query, other) >= right - 1e-12 for other in candidates))
    scores = load("translation_retrieval").compute(predictions=queries, references=candidates)
    assert scores == pytest.approx(rank_scores(ranks), abs=1e-6)


def test_a_tie_counts_as_a_miss_in_translation_retrieval(load):
    vectors = [[1.0, 0.0], [1.0, 0.0]]
    scores = load("translation_retrieval").compute(predictions=vectors, references=vectors)
    assert scores["precision_at_1"] == 0
    assert scores["mrr"] == 0.5


def test_same_and_cross_accuracy_weigh_cells_equally(load):
    # Only the predictions of "a" are right.
    scores = load("same_cross_accuracy").compute(
        predictions=["a", "a", "b", "b", "a", "b"],
        references=["a", "a", "a", "a", "a", "a"],
        train_languages=["en", "en", "en", "en", "de", "de"],
        test_languages=["en", "de", "de", "de", "en", "de"],
    )
    expected = {"Same": 0.5, "Cross": (1 / 3 + 1) / 2, "All": (1 + 1 / 3 + 1 + 0) / 4}
    assert scores == pytest.approx(expected)


def test_correlation_by_hand(load):
    scores = load("sts_correlation").compute(predictions=[0.1, 0.9, 0.5], references=[1, 3, 5])
    assert scores["spearman"] == pytest.approx(0.5)  # ranks 1 3 2 and 1 2 3
    pearson = np.corrcoef([0.1, 0.9, 0.5], [1, 3, 5])[0, 1]
    assert scores["pearson"] == pytest.approx(pearson, abs=1e-6)


def test_equal_predictions_have_no_correlation():
    assert correlations([0.5, 0.5, 0.5], [1, 2, 3]) == {"spearman": 0.0}


FOUND_PAIRS = [[["a", "1"], ["b", "3"]], [["c", "4"]]]
GOLD_PAIRS = [[["a", "1"], ["b", "2"]], [["c", "4"], ["d", "5"]]]


def test_alignment_recall_by_hand(load):
    scores = load("alignment_recall").compute(predictions=FOUND_PAIRS, references=GOLD_PAIRS)
    assert scores == {"recall": 0.5}


def test_alignment_recall_needs_gold_pairs(load):
    metric = load("alignment_recall")
    with pytest.raises(ValueError, match="found no gold pair"):
        metric.compute(predictions=[[["a", "1"]]], references=[[]])


def test_mining_f1_by_hand(load):
    scores = load("mining_f1").compute(predictions=FOUND_PAIRS, references=GOLD_PAIRS)
    f1 = 2 * (2 / 3) * 0.5 / (2 / 3 + 0.5)
    assert scores == pytest.approx({"precision": 2 / 3, "recall": 0.5, "f1": f1})


def test_a_mined_pair_counts_once(load):
    scores = load("mining_f1").compute(
        predictions=[[["a", "1"], ["a", "1"]]], references=[[["a", "1"]]]
    )
    assert scores == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
