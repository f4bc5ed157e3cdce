"""Classification heads: what is trained on the vectors of one language and tuned on a dev set.

`fit` of a head trains on features (n, d) and n labels. It returns, for each dev set by name, the
classifier with the best accuracy on it, whose `predict` gives (n,) class names for (n, d) features.
`fit_all` yields the same for many trainings; small networks are then trained together, which is
much faster. A head never sees a test set. The result of a `deterministic` head does not depend on
`seed`, so one run is enough. `describe` returns the hyperparameters as JSON values.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias, cast

import numpy as np
import scipy.sparse
from sklearn.base import ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.documents.unit_rows import Matrix
from tmde.eval.ffn import WORTH_THREADS, DevSets, FfnClassifier, FfnHead, Training, training_groups

logger = logging.get_logger(__name__)

Classifier: TypeAlias = ClassifierMixin | Pipeline | FfnClassifier


def pair_features(first: Matrix, second: Matrix) -> Matrix:
    """Return [u, v, |u - v|, u * v] of paired rows (InferSent, Conneau et al. 2017, section 3.1).

    Args:
        first: (n, d), dense or sparse.
        second: (n, d), of the same kind.

    Returns:
        (n, 4 d), of the same kind.
    """
    if scipy.sparse.issparse(first):
        products = cast(scipy.sparse.csr_matrix, first).multiply(second)
        blocks = [first, second, abs(first - second), products]
        return scipy.sparse.hstack(blocks, format="csr")
    return np.hstack([first, second, np.abs(first - second), first * second])


class _BestClassifiers:
    """The classifier with the best accuracy on each dev set.

    Args:
        dev_sets: Features and labels, by name.
    """

    def __init__(self, dev_sets: DevSets) -> None:
        self.dev_sets = dev_sets
        self.classifiers: dict[str, Classifier] = {}
        self._accuracies: dict[str, float] = {}

    def offer(self, name: str, classifier: Classifier) -> None:
        """Keep a copy of the classifier if it is the best on the dev set of this name."""
        features, labels = self.dev_sets[name]
        accuracy = float(np.mean(classifier.predict(features) == np.asarray(labels)))
        if accuracy > self._accuracies.get(name, -math.inf):
            self._accuracies[name] = accuracy
            self.classifiers[name] = copy.deepcopy(classifier)


@dataclass(frozen=True)
class LinearHead:
    """Tries every C (inverse L2 strength) and keeps the best on each dev set.

    If several C tie, the smallest is kept. Dense features are standardized with the mean and the
    deviation of the training features; sparse features are not.

    Args:
        name: The name of the head.
        estimator: An unfitted scikit-learn classifier with parameters `C` and `max_iter`. A fit
            that needs more iterations is used as it is, with one warning.
        grid: The C's tried on dense features.
        sparse_grid: The C's tried on CSR features. TF-IDF rows have length 1 and want a weaker
            penalty.
    """

    deterministic: ClassVar[bool] = True
    name: str
    estimator: ClassifierMixin
    grid: tuple[float, ...]
    sparse_grid: tuple[float, ...]

    def fit(
        self,
        features: Matrix,
        labels: Sequence[str] | np.ndarray,
        devs: DevSets,
        seed: int = 0,
    ) -> dict[str, ClassifierMixin]:
        """Train with every C and return the best classifier on each dev set.

        Args:
            features: (n, d), dense or CSR.
            labels: The n class names.
            devs: Features and labels of dev sets, by name.
            seed: Ignored.
        """
        best = _BestClassifiers(devs)
        is_small = features.shape[0] * features.shape[1] < WORTH_THREADS
        with threadpool_limits(1 if is_small else None):
            for classifier in self._path(features, np.asarray(labels)):
                for name in devs:
                    best.offer(name, classifier)
        return best.classifiers

    def fit_all(self, trainings: Iterable[Training]) -> Iterator[dict[str, ClassifierMixin]]:
        """Yield what `fit` returns for each training, in order."""
        for training in trainings:
            yield self.fit(*training)

    def _path(self, features: Matrix, labels: np.ndarray) -> Iterator[ClassifierMixin | Pipeline]:
        """Yield one classifier per C, strongest penalty first.

        It is the same object each time: an estimator that can starts from the coefficients of the
        last C.
        """
        estimator = clone(self.estimator)
        if scipy.sparse.issparse(features):
            for strength in sorted(self.sparse_grid):
                self._fit_estimator(estimator, strength, features, labels)
                yield estimator
            return
        scaler = StandardScaler().fit(features)
        scaled = scaler.transform(features)
        for strength in sorted(self.grid):
            self._fit_estimator(estimator, strength, scaled, labels)
            yield make_pipeline(scaler, estimator)

    def _fit_estimator(
        self, estimator: ClassifierMixin, strength: float, features: Matrix, labels: np.ndarray
    ) -> None:
        """Fit with one C. Scikit-learn's warnings for each C become one for the head."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.set_params(C=strength).fit(features, labels)
        if np.max(estimator.n_iter_) >= estimator.max_iter:
            logger.warning_once(
                f"The head {self.name!r} did not converge in {estimator.max_iter} iterations "
                "for some C"
            )

    def describe(self) -> dict[str, object]:
        """Return the hyperparameters as JSON values."""
        return {
            "head": self.name,
            "C": list(self.grid),
            "C_sparse": list(self.sparse_grid),
            "max_iter": self.estimator.max_iter,
            "standardised": "dense features only",
        }


@dataclass(frozen=True)
class GridHead:
    """Tries every head and keeps the best on each dev set, the first if several tie.

    Args:
        name: The name of this head.
        heads: The heads to try.
    """

    deterministic: ClassVar[bool] = False
    name: str
    heads: tuple[FfnHead, ...]

    def fit(
        self, features: Matrix, labels: Sequence[str], devs: DevSets, seed: int
    ) -> dict[str, FfnClassifier]:
        """Train every head and return the best classifier on each dev set.

        Args:
            features: (n, d), dense.
            labels: The n class names.
            devs: Features and labels of dev sets, by name.
            seed: Seed of each head.
        """
        (classifiers,) = self.fit_all([Training(features, labels, devs, seed)])
        return classifiers

    def fit_all(self, trainings: Iterable[Training]) -> Iterator[dict[str, FfnClassifier]]:
        """Yield what `fit` returns for each training, in order."""
        for group in training_groups(trainings):
            best_of_trainings = [_BestClassifiers(training.devs) for training in group]
            for head in self.heads:
                for best, classifiers in zip(best_of_trainings, head.fit_all(group), strict=True):
                    for name, classifier in classifiers.items():
                        best.offer(name, classifier)
            for best in best_of_trainings:
                yield best.classifiers

    def describe(self) -> dict[str, object]:
        """Return the hyperparameters as JSON values."""
        return {"head": self.name, "tried": [head.describe() for head in self.heads]}


Head = LinearHead | FfnHead | GridHead


def _probing_heads() -> tuple[FfnHead, ...]:
    """Return the heads that Conneau (2019, section 3.3) tries for a probing task."""
    head = FfnHead(batch_size=64, activation="sigmoid", input_dropout=False, patience=10)
    settings = itertools.product((50, 100, 200), (0.0, 0.1, 0.2))
    return tuple(replace(head, hidden=(width,), dropout=dropout) for width, dropout in settings)


_HEADS: tuple[Head, ...] = (
    GridHead("mlp", _probing_heads()),
    FfnHead("ffn"),
    # The settings of LASER's xnli.sh.
    FfnHead("ffn_nli", epochs=200, hidden=(512, 384), dropout=0.3, batch_size=128),
    # The head of XNLI's baselines (Conneau, 2019, section 4.2.5). The paper states the width, the
    # dropout and Adam's defaults, and leaves the other settings open.
    FfnHead("ffn_128", epochs=50, hidden=(128,), dropout=0.1, batch_size=64, patience=5),
    # The head of SNLI: the width is that of InferSent's classifier (Conneau, 2019, section 3.2.3);
    # Adam, the batch size and the number of epochs are those of SentEval's code.
    FfnHead("ffn_512", epochs=15, hidden=(512,), dropout=0.0, batch_size=64, patience=5),
    # The model is multinomial. Each C of the path starts from the coefficients of the last.
    LinearHead(
        "logistic_regression",
        LogisticRegression(max_iter=1000, warm_start=True),
        grid=(0.001, 0.01, 0.1, 1.0, 10.0),
        sparse_grid=(1.0, 10.0, 100.0),
    ),
    # One class against the rest, squared hinge loss. The dual solver visits rows in a random order.
    LinearHead(
        "svm",
        LinearSVC(dual="auto", max_iter=1000, random_state=0),
        grid=(0.0001, 0.001, 0.01, 0.1, 1.0),
        sparse_grid=(0.1, 1.0, 10.0),
    ),
)
HEADS: dict[str, Head] = {head.name: head for head in _HEADS}


def get_head(name: str) -> Head:
    """Return the head of this name.

    Raises:
        TmdeError: No head has this name.
    """
    if name not in HEADS:
        raise TmdeError(f"Found head {name!r}, expected one of {', '.join(HEADS)}")
    return HEADS[name]
