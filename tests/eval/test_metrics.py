"""The metrics as modules of `evaluate`, loaded by path and without a network."""

import inspect
from collections.abc import Callable
from pathlib import Path

import evaluate
import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import TranslationEvaluator

from tmde.documents.ranks import TiedRanks
from tmde.eval import metrics
from tmde.eval.metrics.sts_correlation.sts_correlation import correlations
from tmde.eval.metrics.translation_retrieval.translation_retrieval import rank_scores

FOLDER = Path(inspect.getfile(metrics)).parent


@pytest.fixture
def load(monkeypatch, tmp_path) -> Callable[[str], evaluate.Metric]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return lambda name: evaluate.load(str(FOLDER / name), cache_dir=str(tmp_path))


def ranks_without_ties(ranks: list[int]) -> TiedRanks:
    return TiedRanks(np.array(ranks), np.array(ranks))


def test_scores_of_ranks_by_hand():
    expected = {"precision_at_1": 0.5, "mrr": (2 + 0.5 + 0.05) / 4, "recall_at_10": 0.75}
    assert rank_scores(ranks_without_ties([1, 2, 20, 1])) == pytest.approx(expected)


def test_scores_of_ties_are_their_means_over_all_orders():
    """Ranks 1 to 2, 1 to 4, 9 to 12 and 11 to 12."""
    ranks = TiedRanks(np.array([1, 1, 9, 11]), np.array([2, 4, 12, 12]))
    reciprocals = [3 / 2 / 2, (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4]
    reciprocals += [(1 / 9 + 1 / 10 + 1 / 11 + 1 / 12) / 4, (1 / 11 + 1 / 12) / 2]
    expected = {
        "precision_at_1": (1 / 2 + 1 / 4) / 4,
        "mrr": sum(reciprocals) / 4,
        "recall_at_10": (1 + 1 + 2 / 4) / 4,
    }
    assert rank_scores(ranks) == pytest.approx(expected)


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
    assert scores == pytest.approx(rank_scores(ranks_without_ties(ranks)), abs=1e-6)


def test_equal_vectors_of_all_texts_score_no_more_than_chance(load):
    vectors = [[1.0, 0.0]] * 4
    texts = ["one", "two", "three", "four"]
    metric = load("translation_retrieval")
    scores = metric.compute(predictions=vectors, references=vectors, target_texts=texts)
    assert scores["precision_at_1"] == 1 / 4
    assert scores["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


class VectorsByText(SentenceTransformer):
    """A model that looks its vectors up."""

    def __init__(self, vectors: dict[str, np.ndarray]) -> None:
        super().__init__(modules=[torch.nn.Identity()], device="cpu")
        self.vectors = vectors

    def encode(self, inputs, **options):
        return [torch.tensor(self.vectors[text]) for text in inputs]


def test_repeated_texts_score_as_in_sentence_transformers(load):
    """40 texts, of which many repeat, with the noisy vectors of their translations."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 15, 40)
    sources = [f"de {number}" for number in numbers]
    targets = [f"en {number}" for number in numbers]
    vectors = {}
    for number in range(15):
        meaning = rng.normal(size=3)
        vectors[f"de {number}"] = meaning + 0.5 * rng.normal(size=3)
        vectors[f"en {number}"] = meaning
    evaluator = TranslationEvaluator(sources, targets, write_csv=False)
    expected = evaluator(VectorsByText(vectors))
    metric = load("translation_retrieval")
    source_vectors = [vectors[text] for text in sources]
    target_vectors = [vectors[text] for text in targets]

    forward = metric.compute(
        predictions=source_vectors, references=target_vectors, target_texts=targets
    )
    backward = metric.compute(
        predictions=target_vectors, references=source_vectors, target_texts=sources
    )

    assert 0.3 < expected["src2trg_accuracy"] < 1
    assert forward["precision_at_1"] == expected["src2trg_accuracy"]
    assert backward["precision_at_1"] == expected["trg2src_accuracy"]
    # Without the texts, equal vectors share the place.
    without_texts = metric.compute(predictions=source_vectors, references=target_vectors)
    assert without_texts["precision_at_1"] < forward["precision_at_1"]


def test_one_text_is_needed_for_each_reference(load):
    vectors = [[1.0, 0.0], [0.0, 1.0]]
    with pytest.raises(ValueError, match="target_texts: found 1 texts, .* each of the 2 refer"):
        load("translation_retrieval").compute(
            predictions=vectors, references=vectors, target_texts=["one"]
        )


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
