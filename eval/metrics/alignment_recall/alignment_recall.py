"""Alignment recall: share of the gold pairs of documents that were found.

Share of the gold pairs of parallel documents that an alignment found, as in the WMT 2016 shared task on bilingual
document alignment. Pairs of documents without a gold partner do not count.
"""

from collections.abc import Sequence

import datasets
import evaluate

_CITATION = """
@inproceedings{buck-koehn-2016-findings,
    title = {Findings of the WMT 2016 Bilingual Document Alignment Shared Task},
    author = {Buck, Christian and Koehn, Philipp}, year = {2016}, doi = {10.18653/v1/W16-2347}
}
"""
Pairs = Sequence[Sequence[Sequence[str]]]
_FEATURE = datasets.Sequence(datasets.Sequence(datasets.Value("string")))


class AlignmentRecall(evaluate.Metric):
    """Recall of aligned pairs of documents.

    Args:
        predictions: for each collection, the found pairs [source id, target id].
        references: for each collection, the gold pairs.
    Returns:
        recall: share of all gold pairs that were found.
    Examples:
        >>> metric = evaluate.load("eval/metrics/alignment_recall")
        >>> metric.compute(predictions=[[["a", "1"], ["b", "3"]]], references=[[["a", "1"], ["b", "2"]]])
        {'recall': 0.5}
    """

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features({"predictions": _FEATURE, "references": _FEATURE})
        return evaluate.MetricInfo(__doc__, _CITATION, features, self.__doc__)

    def _compute(self, predictions: Pairs, references: Pairs) -> dict[str, float]:
        found, gold = (
            [set(map(tuple, pairs)) for pairs in side] for side in (predictions, references)
        )
        if not any(gold):
            raise ValueError("references: found no gold pair, expected at least one")
        hits = sum(len(ours & right) for ours, right in zip(found, gold, strict=True))
        return {"recall": hits / sum(map(len, gold))}


if __name__ == "__main__":  # the Space of the metric
    evaluate.utils.launch_gradio_widget(evaluate.load(__file__))
