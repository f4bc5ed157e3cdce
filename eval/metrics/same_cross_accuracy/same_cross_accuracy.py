"""Same / Cross accuracy: mean accuracy over pairs of languages, within and across languages.

Accuracy of cross-lingual classification. A cell is a pair of languages: the classifier's training
language and the test language. `Same` is the mean over the cells with equal languages, `Cross` over
those with different languages, `All` over all cells. Every cell counts the same, however many items
it has.
"""

from collections import defaultdict
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
    """Return the positions of the pairs of `Same`, `Cross` and `All`, without empty groups.

    Args:
        pairs: Training and test language of each cell.
    """
    groups: dict[str, list[int]] = {"Same": [], "Cross": [], "All": []}
    for position, (source, target) in enumerate(pairs):
        name = "Same" if source == target else "Cross"
        groups[name].append(position)
        groups["All"].append(position)
    return {name: positions for name, positions in groups.items() if positions}


def same_cross(pairs: Sequence[tuple[str, str]], values: Sequence[float]) -> dict[str, float]:
    """Return the means of the cells' values over `Same`, `Cross` and `All`.

    Args:
        pairs: Training and test language of each cell.
        values: The value of each cell.
    """
    means = {}
    for name, positions in group_pairs(pairs).items():
        means[name] = float(np.mean([values[position] for position in positions]))
    return means


class SameCrossAccuracy(evaluate.Metric):
    """Mean accuracies over cells.

    Args:
        predictions: The predicted class of each test item.
        references: The right class of each test item.
        train_languages: The training language of each item's cell.
        test_languages: The test language of each item's cell.

    Returns:
        Same, Cross, All: Mean accuracies; a mean over no cells is left out.

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

    def _compute(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        train_languages: Sequence[str],
        test_languages: Sequence[str],
    ) -> dict[str, float]:
        correct: dict[tuple[str, str], list[bool]] = defaultdict(list)
        items = zip(predictions, references, train_languages, test_languages, strict=True)
        for predicted, gold, source, target in items:
            correct[source, target].append(predicted == gold)
        accuracies = [float(np.mean(outcomes)) for outcomes in correct.values()]
        return same_cross(list(correct), accuracies)


# Run by the Space of this metric.
if __name__ == "__main__":
    evaluate.utils.launch_gradio_widget(evaluate.load(__file__))
