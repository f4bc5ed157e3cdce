"""STS correlation: Spearman's and Pearson's correlation of measured and gold similarities.

Correlation of measured similarities (such as cosines of embeddings) with the similarities that
people gave the same pairs of texts. If all measured similarities are equal, there is no
correlation: Spearman's is given as 0 and Pearson's is left out.
"""

from collections.abc import Sequence

import datasets
import evaluate
import numpy as np
from scipy.stats import pearsonr, spearmanr

_CITATION = """
@inproceedings{cer-etal-2017-semeval,
    title = {SemEval-2017 Task 1: Semantic Textual Similarity
             Multilingual and Crosslingual Focused Evaluation},
    author = {Cer, Daniel and Diab, Mona and Agirre, Eneko and Lopez-Gazpio, Inigo and
              Specia, Lucia},
    year = {2017}, doi = {10.18653/v1/S17-2001}
}
"""


def correlations(
    predictions: Sequence[float] | np.ndarray, references: Sequence[float] | np.ndarray
) -> dict[str, float]:
    """Return Spearman's and Pearson's correlation.

    If all predictions are equal, Spearman's is 0 and there is no Pearson's.

    Args:
        predictions: (n,) measured similarities.
        references: (n,) gold similarities.
    """
    if np.ptp(predictions) == 0:
        return {"spearman": 0.0}
    spearman = spearmanr(references, predictions).statistic
    pearson = pearsonr(references, predictions).statistic
    return {"spearman": float(spearman), "pearson": float(pearson)}


class StsCorrelation(evaluate.Metric):
    """Correlation of similarities.

    Args:
        predictions: Measured similarity of each pair.
        references: Gold similarity of each pair, on any scale.

    Returns:
        spearman: Spearman's rank correlation.
        pearson: Pearson's correlation.

    Examples:
        >>> metric = evaluate.load("eval/metrics/sts_correlation")
        >>> metric.compute(predictions=[0.1, 0.5, 0.9], references=[0, 2, 4])
        {'spearman': 1.0, 'pearson': 1.0}
    """

    def _info(self) -> evaluate.MetricInfo:
        score = datasets.Value("float")
        features = datasets.Features({"predictions": score, "references": score})
        return evaluate.MetricInfo(__doc__, _CITATION, features, self.__doc__)

    def _compute(
        self, predictions: Sequence[float], references: Sequence[float]
    ) -> dict[str, float]:
        return correlations(predictions, references)


# Run by the Space of this metric.
if __name__ == "__main__":
    evaluate.utils.launch_gradio_widget(evaluate.load(__file__))
