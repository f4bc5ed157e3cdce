"""Translation retrieval: precision at 1, mean reciprocal rank and recall at 10.

Each text is a query in one language; its translation must be found among all texts of the other language, by cosine
similarity of their vectors. A candidate that ties with the translation counts as ranked before it.
"""

import datasets
import evaluate
import numpy as np

_CITATION = """
@article{artetxe-schwenk-2019-massively,
    title = {Massively Multilingual Sentence Embeddings for Zero-Shot Cross-Lingual Transfer and Beyond},
    author = {Artetxe, Mikel and Schwenk, Holger},
    journal = {Transactions of the Association for Computational Linguistics},
    volume = {7}, year = {2019}, doi = {10.1162/tacl_a_00288}
}
"""
TIE = 1e-6  # cosines closer than this are equal: float32 sums differ that much by the order of summation


def rank_scores(ranks: np.ndarray) -> dict[str, float]:
    """Scores from the (n,) rank of each query's translation, counted from 1."""
    ranks = np.asarray(ranks, dtype=np.float64)
    return {
        "precision_at_1": float((ranks == 1).mean()),
        "mrr": float((1 / ranks).mean()),
        "recall_at_10": float((ranks <= 10).mean()),
    }


class TranslationRetrieval(evaluate.Metric):
    """Scores of nearest-neighbor search for translations.

    Args:
        predictions: (n, d) vectors of the queries.
        references: (n, d) vectors of the candidates; row i is the translation of query i.
    Returns:
        precision_at_1: share of queries whose nearest candidate is the translation (1 - error rate of LASER's xsim).
        mrr: mean reciprocal rank of the translation.
        recall_at_10: share of queries with the translation among the ten nearest candidates.
    Examples:
        >>> metric = evaluate.load("eval/metrics/translation_retrieval")
        >>> metric.compute(predictions=[[1.0, 0.0], [0.0, 1.0]], references=[[1.0, 0.1], [0.9, 0.2]])
        {'precision_at_1': 1.0, 'mrr': 1.0, 'recall_at_10': 1.0}
    """

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features(
            {
                name: datasets.Sequence(datasets.Value("float32"))
                for name in ("predictions", "references")
            }
        )
        return evaluate.MetricInfo(__doc__, _CITATION, features, self.__doc__)

    def _compute(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        sides = (np.asarray(side, dtype=np.float64) for side in (predictions, references))
        queries, candidates = (
            side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in sides
        )
        right = np.einsum("ij,ij->i", queries, candidates)[:, None]
        ranks = []
        for start in range(0, len(queries), 1024):  # (1024, n) cosines at a time
            rows = slice(start, start + 1024)
            ranks.append(
                (queries[rows] @ candidates.T > right[rows] - TIE).sum(axis=1)
            )  # the translation is one
        return rank_scores(np.concatenate(ranks))


if __name__ == "__main__":  # the Space of the metric
    evaluate.utils.launch_gradio_widget(evaluate.load(__file__))
