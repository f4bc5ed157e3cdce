"""Mining F1: precision, recall and F1 of mined sentence pairs.

Precision, recall and F1 of sentence pairs that were mined from two monolingual collections, against
the gold pairs hidden in them, as in the BUCC shared task. Every found pair counts once.
"""

from collections.abc import Sequence

import datasets
import evaluate

from tmde.documents.quality import PairQuality, pair_quality

_CITATION = """
@inproceedings{zweigenbaum-etal-2017-overview,
    title = {Overview of the Second BUCC Shared Task:
             Spotting Parallel Sentences in Comparable Corpora},
    author = {Zweigenbaum, Pierre and Sharoff, Serge and Rapp, Reinhard}, year = {2017},
    doi = {10.18653/v1/W17-2512}
}
"""
Pairs = Sequence[Sequence[Sequence[str]]]
_PAIRS_FEATURE = datasets.Sequence(datasets.Sequence(datasets.Value("string")))


class MiningF1(evaluate.Metric):
    """F1 of mined pairs of sentences.

    Args:
        predictions: For each pair of collections, the mined pairs [source id, target id].
        references: For each pair of collections, the gold pairs.

    Returns:
        precision, recall, f1: Over all pairs of collections together.

    Examples:
        >>> metric = evaluate.load("eval/metrics/mining_f1")
        >>> mined = [["a", "1"], ["b", "3"]]
        >>> metric.compute(predictions=[mined], references=[[["a", "1"]]])
        {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666}
    """

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features({"predictions": _PAIRS_FEATURE, "references": _PAIRS_FEATURE})
        return evaluate.MetricInfo(__doc__, _CITATION, features, self.__doc__)

    def _compute(self, predictions: Pairs, references: Pairs) -> dict[str, float]:
        qualities = []
        for mined_pairs, gold_pairs in zip(predictions, references, strict=True):
            unique_mined = {(source, target) for source, target in mined_pairs}
            unique_gold = {(source, target) for source, target in gold_pairs}
            qualities.append(pair_quality(unique_mined, unique_gold))
        total = sum(qualities, start=PairQuality(0, 0, 0))
        return {"precision": total.precision, "recall": total.recall, "f1": total.f1}


# Run by the Space of this metric.
if __name__ == "__main__":
    evaluate.utils.launch_gradio_widget(evaluate.load(__file__))
