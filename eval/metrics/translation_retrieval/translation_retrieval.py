"""Translation retrieval: precision at 1, mean reciprocal rank and recall at 10.

Each text is a query in one language; its translation must be found among all texts of the other
language, by cosine similarity of their vectors. If the translation ties with t other texts for the
first place, the query counts 1 / (t + 1): so often would it be right if ties were decided at
random. With the texts of the candidates, a text that occurs several times is one candidate, and
each of its occurrences is a right answer.
"""

from collections.abc import Sequence

import datasets
import evaluate
import numpy as np

from tmde.documents.ranks import TiedRanks, tied_ranks

_CITATION = """
@article{artetxe-schwenk-2019-massively,
    title = {Massively Multilingual Sentence Embeddings for
             Zero-Shot Cross-Lingual Transfer and Beyond},
    author = {Artetxe, Mikel and Schwenk, Holger},
    journal = {Transactions of the Association for Computational Linguistics},
    volume = {7}, year = {2019}, doi = {10.1162/tacl_a_00288}
}
"""


def rank_scores(ranks: TiedRanks) -> dict[str, float]:
    """Return precision at 1, mean reciprocal rank and recall at 10, expected over orders of ties.

    Args:
        ranks: The ranks of each query's translation.
    """
    return {
        "precision_at_1": float(ranks.chance_within(1).mean()),
        "mrr": float(ranks.mean_reciprocals().mean()),
        "recall_at_10": float(ranks.chance_within(10).mean()),
    }


class TranslationRetrieval(evaluate.Metric):
    """Scores of nearest-neighbor search for translations.

    Args:
        predictions: (n, d) vectors of the queries.
        references: (n, d) vectors of the candidates; row i is the translation of query i.
        target_texts: The n texts of the candidates. Without them, equal vectors tie, whether or not
            their texts are the same.

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

        Both texts are the same, so each is the translation of both queries.

        >>> same = [[1.0, 0.0], [1.0, 0.0]]
        >>> metric.compute(predictions=queries, references=same)["precision_at_1"]
        0.5
        >>> texts = ["Good day.", "Good day."]
        >>> metric.compute(predictions=queries, references=same, target_texts=texts)[
        ...     "precision_at_1"
        ... ]
        1.0
    """

    def _info(self) -> evaluate.MetricInfo:
        vector = datasets.Sequence(datasets.Value("float32"))
        features = datasets.Features({"predictions": vector, "references": vector})
        return evaluate.MetricInfo(__doc__, _CITATION, features, self.__doc__)

    def _compute(
        self,
        predictions: np.ndarray,
        references: np.ndarray,
        target_texts: Sequence[str] | None = None,
    ) -> dict[str, float]:
        queries = np.asarray(predictions, dtype=np.float32)  # (n, d)
        candidates = np.asarray(references, dtype=np.float32)  # (n, d)
        translations = np.arange(len(queries))
        if target_texts is not None:
            if len(target_texts) != len(candidates):
                raise ValueError(
                    f"target_texts: found {len(target_texts)} texts, expected one for each of the "
                    f"{len(candidates)} references"
                )
            _, first_rows, translations = np.unique(
                np.asarray(target_texts, dtype=object), return_index=True, return_inverse=True
            )
            candidates = candidates[first_rows]  # (different texts, d)
        return rank_scores(tied_ranks(queries, candidates, translations))


# Run by the Space of this metric.
if __name__ == "__main__":
    evaluate.utils.launch_gradio_widget(evaluate.load(__file__))
