"""Mining F1: precision, recall and F1 of mined sentence pairs.

Precision, recall and F1 of sentence pairs that were mined from two monolingual collections, against the gold pairs
hidden in them, as in the BUCC shared task. Every found pair counts once.
"""

from collections.abc import Sequence

import datasets
import evaluate

_CITATION = """
@inproceedings{zweigenbaum-etal-2017-overview,
    title = {Overview of the Second BUCC Shared Task: Spotting Parallel Sentences in Comparable Corpora},
    author = {Zweigenbaum, Pierre and Sharoff, Serge and Rapp, Reinhard}, year = {2017},
    doi = {10.18653/v1/W17-2512}
}
"""
Pairs = Sequence[Sequence[Sequence[str]]]
_FEATURE = datasets.Sequence(datasets.Sequence(datasets.Value("string")))


class MiningF1(evaluate.Metric):
    """F1 of mined pairs of sentences.

    Args:
        predictions: for each pair of collections, the mined pairs [source id, target id].
        references: for each pair of collections, the gold pairs.
    Returns:
        precision, recall, f1: over all pairs of collections together.
    Examples:
        >>> metric = evaluate.load("eval/metrics/mining_f1")
        >>> metric.compute(predictions=[[["a", "1"], ["b", "3"]]], references=[[["a", "1"]]])
        {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666}
    """

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features({"predictions": _FEATURE, "references": _FEATURE})
        return evaluate.MetricInfo(__doc__, _CITATION, features, self.__doc__)

    def _compute(self, predictions: Pairs, references: Pairs) -> dict[str, float]:
        found, gold = (
            [set(map(tuple, pairs)) for pairs in side] for side in (predictions, references)
        )
        hits = sum(len(ours & right) for ours, right in zip(found, gold, strict=True))
        precision, recall = (hits / max(1, sum(map(len, pairs))) for pairs in (found, gold))
        return {
            "precision": precision,
            "recall": recall,
            "f1": 2 * precision * recall / ((precision + recall) or 1),
        }


if __name__ == "__main__":  # the Space of the metric
    evaluate.utils.launch_gradio_widget(evaluate.load(__file__))
