"""Alignment recall: share of the gold pairs of documents that were found.

Share of the gold pairs of parallel documents that an alignment found, as in the WMT 2016 shared
task on bilingual document alignment. Pairs of documents without a gold partner do not count.
"""

from collections.abc import Sequence

import datasets
import evaluate

from tmde.documents.quality import alignment_quality

_CITATION = """
@inproceedings{buck-koehn-2016-findings,
    title = {Findings of the WMT 2016 Bilingual Document Alignment Shared Task},
    author = {Buck, Christian and Koehn, Philipp}, year = {2016}, doi = {10.18653/v1/W16-2347}
}
"""
Pairs = Sequence[Sequence[Sequence[str]]]
_PAIRS_FEATURE = datasets.Sequence(datasets.Sequence(datasets.Value("string")))


class AlignmentRecall(evaluate.Metric):
    """Recall of aligned pairs of documents.

    Args:
        predictions: For each collection, the found pairs [source id, target id].
        references: For each collection, the gold pairs.

    Returns:
        recall: Share of all gold pairs that were found.

    Examples:
        >>> metric = evaluate.load("eval/metrics/alignment_recall")
        >>> found = [["a", "1"], ["b", "3"]]
        >>> gold = [["a", "1"], ["b", "2"]]
        >>> metric.compute(predictions=[found], references=[gold])
        {'recall': 0.5}
    """

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features({"predictions": _PAIRS_FEATURE, "references": _PAIRS_FEATURE})
        return evaluate.MetricInfo(__doc__, _CITATION, features, self.__doc__)

    def _compute(self, predictions: Pairs, references: Pairs) -> dict[str, float]:
        correct_count = 0
        gold_count = 0
        for found_pairs, gold_pairs in zip(predictions, references, strict=True):
            quality = alignment_quality(found_pairs, gold_pairs)
            correct_count += quality.correct
            gold_count += quality.gold
        if gold_count == 0:
            raise ValueError("references: found no gold pair, expected at least one")
        return {"recall": correct_count / gold_count}


# Run by the Space of this metric.
if __name__ == "__main__":
    evaluate.utils.launch_gradio_widget(evaluate.load(__file__))
