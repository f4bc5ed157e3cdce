"""Translation retrieval: precision at 1, mean reciprocal rank and recall at 10.

Each text is a query in one language; its translation must be found among all texts of the other
language, by cosine similarity of their vectors. A candidate that ties with the translation counts
as ranked before it.
"""

import datasets
import evaluate
import numpy as np

from tmde.documents.ranks import target_ranks

_CITATION = """
@article{artetxe-schwenk-2019-massively,
    title = {Massively Multilingual Sentence Embeddings for
             Zero-Shot Cross-Lingual Transfer and Beyond},
    author = {Artetxe, Mikel and Schwenk, Holger},
    journal = {Transactions of the Association for Computational Linguistics},
    volume = {7}, year = {2019}, doi = {10.1162/tacl_a_00288}
}
"""


def rank_scores(ranks: np.ndarray) -> dict[str, float]:
    """Return precision at 1, mean reciprocal rank and recall at 10.

    Args:
        ranks: (n,) rank of each query's translation, counted from 1.
    """
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
        precision_at_1: Share of queries whose nearest candidate is the translation. It is 1 minus
            the error rate of LASER's xsim.
        mrr: Mean reciprocal rank of the translation.
        recall_at_10: Share of queries with the translation among the ten nearest candidates.

    Examples:
        >>> metric = evaluate.load("eval/metrics/translation_retrieval")
        >>> queries = [[1.0, 0.0], [0.0, 1.0]]
        >>> metric.compute(predictions=queries, references=[[1.0, 0.1], [0.9, 0.2]])
        {'precision_at_1': 1.0, 'mrr': 1.0, 'recall_at_10': 1.0}
    """

    def _info(self) -> evaluate.MetricInfo:
        vector = datasets.Sequence(datasets.Value("float32"))
        features = datasets.Features({"predictions": vector, "references": vector})
        return evaluate.MetricInfo(__doc__, _CITATION, features, self.__doc__)

    def _compute(self, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        queries = np.asarray(predictions, dtype=np.float32)  # (n, d)
        candidates = np.asarray(references, dtype=np.float32)  # (n, d)
        translations = np.arange(len(queries))
        return rank_scores(target_ranks(queries, candidates, translations))


# Run by the Space of this metric.
if __name__ == "__main__":
    evaluate.utils.launch_gradio_widget(evaluate.load(__file__))
