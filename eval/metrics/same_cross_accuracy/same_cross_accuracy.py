"""Same / Cross accuracy: mean accuracy over pairs of languages, within and across languages.

Accuracy of cross-lingual classification. A cell is a pair of languages: the classifier's training language and the
test language. `Same` is the mean over the cells with equal languages, `Cross` over those with different languages,
`All` over all cells. Every cell counts the same, however many items it has.
"""

from collections.abc import Sequence

import datasets
import evaluate
import numpy as np

_CITATION = """
@mastersthesis{li-2021-multilingual,
    title = {Multilingual document embedding with sequential neural network models},
    author = {Li, Wei}, school = {The Hong Kong University of Science and Technology}, year = {2021}
}
"""
_COLUMNS = ("predictions", "references", "train_languages", "test_languages")


def group_pairs(pairs: Sequence[tuple[str, str]]) -> dict[str, list[int]]:
    """Positions of the pairs of `Same`, `Cross` and `All`, without empty groups."""
    groups = {
        "Same": [place for place, (source, target) in enumerate(pairs) if source == target],
        "Cross": [place for place, (source, target) in enumerate(pairs) if source != target],
        "All": list(range(len(pairs))),
    }
    return {name: places for name, places in groups.items() if places}


def same_cross(pairs: Sequence[tuple[str, str]], values: Sequence[float]) -> dict[str, float]:
    """Means of the values of the cells."""
    return {
        name: float(np.mean([values[place] for place in places]))
        for name, places in group_pairs(pairs).items()
    }


class SameCrossAccuracy(evaluate.Metric):
    """Mean accuracies over cells.

    Args:
        predictions, references: predicted and right class of each test item.
        train_languages, test_languages: languages of the item's cell.
    Returns:
        Same, Cross, All: mean accuracies; a mean over no cells is left out.
    Examples:
        >>> metric = evaluate.load("eval/metrics/same_cross_accuracy")
        >>> metric.compute(
        ...     predictions=["a", "b", "a"], references=["a", "a", "a"],
        ...     train_languages=["en", "en", "en"], test_languages=["en", "de", "de"],
        ... )
        {'Same': 1.0, 'Cross': 0.5, 'All': 0.75}
    """

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features({name: datasets.Value("string") for name in _COLUMNS})
        return evaluate.MetricInfo(__doc__, _CITATION, features, self.__doc__)

    def _compute(self, **columns: Sequence[str]) -> dict[str, float]:
        correct: dict[tuple[str, str], list[bool]] = {}
        for found, right, *pair in zip(*(columns[name] for name in _COLUMNS), strict=True):
            correct.setdefault(tuple(pair), []).append(found == right)
        return same_cross(list(correct), [float(np.mean(items)) for items in correct.values()])


if __name__ == "__main__":  # the Space of the metric
    evaluate.utils.launch_gradio_widget(evaluate.load(__file__))
