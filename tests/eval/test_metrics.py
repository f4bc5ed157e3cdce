"""The metrics as modules of `evaluate`, loaded by path and without a network."""

import inspect
from pathlib import Path

import evaluate
import numpy as np
import pytest

from tmde.eval import metrics
from tmde.eval.metrics.sts_correlation.sts_correlation import correlations
from tmde.eval.metrics.translation_retrieval.translation_retrieval import rank_scores

FOLDER = Path(inspect.getfile(metrics)).parent


@pytest.fixture
def load(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return lambda name: evaluate.load(str(FOLDER / name), cache_dir=str(tmp_path))


def test_translation_retrieval(load):
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(30, 4))
    candidates = queries + rng.normal(size=(30, 4))
    ranks = []
    for query, right in zip(queries, candidates, strict=True):
        cosines = [
            query @ each / np.linalg.norm(query) / np.linalg.norm(each)
            for each in (right, *candidates)
        ]
        ranks.append(sum(cosine >= cosines[0] - 1e-12 for cosine in cosines[1:]))
    found = load("translation_retrieval").compute(predictions=queries, references=candidates)
    assert found == pytest.approx(rank_scores(ranks), abs=1e-6)
    tied = load("translation_retrieval").compute(
        predictions=[[1.0, 0.0]] * 2, references=[[1.0, 0.0]] * 2
    )
    assert tied["precision_at_1"] == 0 and tied["mrr"] == 0.5  # a tie counts as a miss
    assert rank_scores([1, 2, 20, 1]) == {
        "precision_at_1": 0.5,
        "mrr": (2 + 0.5 + 0.05) / 4,
        "recall_at_10": 0.75,
    }


def test_same_and_cross_accuracy_weigh_cells_equally(load):
    rows = [
        ("en", "en", 1),
        ("en", "de", 1),
        ("en", "de", 0),
        ("en", "de", 0),
        ("de", "en", 1),
        ("de", "de", 0),
    ]
    found = load("same_cross_accuracy").compute(
        predictions=["a" if right else "b" for _, _, right in rows],
        references=["a"] * len(rows),
        train_languages=[row[0] for row in rows],
        test_languages=[row[1] for row in rows],
    )
    assert found == pytest.approx(
        {"Same": 0.5, "Cross": (1 / 3 + 1) / 2, "All": (1 + 1 / 3 + 1 + 0) / 4}
    )


def test_correlation_by_hand(load):
    found = load("sts_correlation").compute(predictions=[0.1, 0.9, 0.5], references=[1, 3, 5])
    assert found["spearman"] == pytest.approx(0.5)  # ranks 1 3 2 and 1 2 3
    assert found["pearson"] == pytest.approx(
        np.corrcoef([0.1, 0.9, 0.5], [1, 3, 5])[0, 1], abs=1e-6
    )
    assert correlations([0.5, 0.5, 0.5], [1, 2, 3]) == {"spearman": 0.0}


def test_found_pairs(load):
    found, gold = (
        [[["a", "1"], ["b", "3"]], [["c", "4"]]],
        [[["a", "1"], ["b", "2"]], [["c", "4"], ["d", "5"]]],
    )
    assert load("alignment_recall").compute(predictions=found, references=gold) == {"recall": 0.5}
    scores = load("mining_f1").compute(predictions=found, references=gold)
    assert scores == pytest.approx(
        {"precision": 2 / 3, "recall": 0.5, "f1": 2 * (2 / 3) * 0.5 / (2 / 3 + 0.5)}
    )
    with pytest.raises(ValueError, match="found no gold pair"):
        load("alignment_recall").compute(predictions=[[["a", "1"]]], references=[[]])
