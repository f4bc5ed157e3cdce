"""Classification heads: what is trained on the vectors of one language and tuned on a dev set.

`fit` of a head trains on features (n, d) and n labels. It returns, for each dev set by name, the
classifier with the best accuracy on it, whose `predict` gives (n,) class names for (n, d) features.
A head never sees a test set. The result of a `deterministic` head does not depend on `seed`, so one
run is enough. `describe` returns the hyperparameters as JSON values.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, cast

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from sklearn.base import ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits
from torch import nn
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.documents.unit_rows import Matrix

logger = logging.get_logger(__name__)

# Batches that are gathered and masked together. That takes few calls, and no second copy of a large
# training set.
_BATCHES_AT_ONCE = 256

# Numbers in a training set from which several threads pay. Below, they wait for each other:
# 1,000 x 256 took forty times as long on two cores as on one.
_WORTH_THREADS = 20_000_000

DevSets = Mapping[
    str, tuple[Matrix, Sequence[str] | np.ndarray]
]  # features (n, d) and n labels, by name


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
        latest_of_equals: Whether a classifier replaces another of the same accuracy.
    """

    def __init__(self, dev_sets: DevSets, latest_of_equals: bool = False) -> None:
        self.dev_sets = dev_sets
        self.latest_of_equals = latest_of_equals
        self.classifiers: dict[str, ClassifierMixin | Pipeline | FfnClassifier] = {}
        self._accuracies: dict[str, float] = {}

    def offer(self, name: str, classifier: ClassifierMixin | Pipeline | FfnClassifier) -> bool:
        """Keep a copy of the classifier if it is the best on the dev set of this name.

        Returns:
            Whether its accuracy is higher than that of all classifiers before.
        """
        features, labels = self.dev_sets[name]
        accuracy = float(np.mean(classifier.predict(features) == np.asarray(labels)))
        best_accuracy = self._accuracies.get(name, -math.inf)
        improved = accuracy > best_accuracy
        tied = accuracy == best_accuracy
        if improved or (tied and self.latest_of_equals):
            self._accuracies[name] = accuracy
            self.classifiers[name] = copy.deepcopy(classifier)
        return improved

    def offer_to_all(self, classifier: ClassifierMixin | Pipeline | FfnClassifier) -> bool:
        """Offer a classifier to every dev set, and return whether any accuracy improved."""
        improvements = [self.offer(name, classifier) for name in self.dev_sets]
        return any(improvements)


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
        self, features: Matrix, labels: Sequence[str], devs: DevSets, seed: int = 0
    ) -> dict[str, ClassifierMixin]:
        """Train with every C and return the best classifier on each dev set.

        Args:
            features: (n, d), dense or CSR.
            labels: The n class names.
            devs: Features and labels of dev sets, by name.
            seed: Ignored.
        """
        best = _BestClassifiers(devs)
        is_small = features.shape[0] * features.shape[1] < _WORTH_THREADS
        with threadpool_limits(1 if is_small else None):
            for classifier in self._path(features, np.asarray(labels)):
                best.offer_to_all(classifier)
        return best.classifiers

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
                f"The head {self.name!r} did not converge in {estimator.max_iter} iterations for "
                "every C"
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


class FfnClassifier:
    """A trained feed-forward network.

    Args:
        network: (n, d) features to (n, classes) logits.
        classes: Class names in the order of the outputs.
    """

    def __init__(self, network: nn.Sequential, classes: np.ndarray) -> None:
        self.network = network
        self.classes = classes

    @torch.no_grad()
    def logits(self, features: Matrix | torch.Tensor) -> torch.Tensor:
        """Return the (n, classes) logits of (n, d) features."""
        return self.network(torch.as_tensor(features))

    def predict(self, features: Matrix | torch.Tensor) -> np.ndarray:
        """Return the (n,) class names of (n, d) features."""
        best_outputs = self.logits(features).argmax(dim=1)
        return self.classes[best_outputs.numpy()]


@dataclass(frozen=True)
class FfnHead:
    """LASER's classifier of MLDoc, as thesis 4.3.3 uses it.

    It is that of `sent_classif.py` with the settings of LASER's `mldoc.sh`: Linear(d, 10), tanh,
    Linear(10, 8), tanh, Linear(8, classes); dropout before the first layer and after each hidden
    one; cross-entropy; Adam without weight decay on shuffled batches of 12. The epoch with the best
    dev accuracy is kept, the latest if several tie. As in LASER, the features are not standardized.
    Training runs on the CPU, which is fastest for such a small network.

    Args:
        name: The name of the head.
        epochs: Epochs over the training set.
        hidden: The width of each hidden layer.
        dropout: The share of activations set to 0 in training.
        batch_size: Rows a step; the last batch of an epoch holds the rest.
        learning_rate: The learning rate of Adam.
        activation: `tanh` or `sigmoid`, the activation of the hidden layers.
        input_dropout: Whether features are dropped, too.
        patience: Training stops after so many epochs without a better dev accuracy; None if it
            never stops early.
    """

    deterministic: ClassVar[bool] = False
    name: str = "ffn"
    epochs: int = 500
    hidden: tuple[int, ...] = (10, 8)
    dropout: float = 0.2
    batch_size: int = 12
    learning_rate: float = 0.001
    activation: str = "tanh"
    input_dropout: bool = True
    patience: int | None = None

    def fit(
        self, features: Matrix, labels: Sequence[str], devs: DevSets, seed: int
    ) -> dict[str, FfnClassifier]:
        """Train a network and return it as it was at its best epoch on each dev set.

        The global random state is neither read nor changed.

        Args:
            features: (n, d), dense.
            labels: The n class names.
            devs: Features and labels of dev sets, by name.
            seed: Seed of the initial parameters, the order of rows and the dropout.

        Raises:
            TmdeError: The features are sparse.
        """
        if scipy.sparse.issparse(features):
            raise TmdeError(
                f"The head {self.name!r} needs dense features; take 'logistic_regression' for "
                "TF-IDF"
            )
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.from_numpy(np.ascontiguousarray(features, np.float32))  # (n, d)
        classes, class_numbers = np.unique(np.asarray(labels), return_inverse=True)
        targets = torch.from_numpy(class_numbers)  # (n,)
        network = self._new_network(inputs.shape[1], len(classes), generator)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)
        classifier = FfnClassifier(network, classes)
        best = _BestClassifiers(devs, latest_of_equals=True)
        last_improvement = 0
        for epoch in range(self.epochs):
            if self.patience is not None and epoch - last_improvement > self.patience:
                break
            self._train_epoch(network, optimizer, inputs, targets, generator)
            if best.offer_to_all(classifier):
                last_improvement = epoch
        return best.classifiers

    def _new_network(
        self, input_size: int, class_count: int, generator: torch.Generator
    ) -> nn.Sequential:
        """Return hidden layers with their activations, and the output layer.

        The parameters are drawn from the distribution of `torch.nn.Linear`.
        """
        activation_class = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[self.activation]
        network = nn.Sequential()
        width = input_size
        for hidden_size in self.hidden:
            layer = drawn_linear(width, hidden_size, generator)
            network.append(nn.Sequential(layer, activation_class()))
            width = hidden_size
        network.append(drawn_linear(width, class_count, generator))
        return network

    def _train_epoch(
        self,
        network: nn.Sequential,
        optimizer: torch.optim.Optimizer,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        generator: torch.Generator,
    ) -> None:
        """Take one step for each batch of the shuffled rows."""
        order = torch.randperm(len(inputs), generator=generator)
        for rows in order.split(self.batch_size * _BATCHES_AT_ONCE):
            input_mask = self._draw_mask(len(rows), inputs.shape[1], generator)
            hidden_masks = [self._draw_mask(len(rows), size, generator) for size in self.hidden]
            row_inputs = inputs[rows]
            if self.input_dropout:
                row_inputs = row_inputs * input_mask
            columns = [row_inputs, targets[rows], *hidden_masks]
            batches = zip(*(column.split(self.batch_size) for column in columns), strict=True)
            for batch_inputs, batch_targets, *batch_masks in batches:
                optimizer.zero_grad()
                logits = _logits_with_dropout(network, batch_inputs, batch_masks)
                F.cross_entropy(logits, batch_targets).backward()
                optimizer.step()

    def _draw_mask(self, rows: int, width: int, generator: torch.Generator) -> torch.Tensor:
        """Draw a (rows, width) dropout mask: 0 for dropped, 1 / (1 - dropout) for other numbers."""
        keep_share = 1 - self.dropout
        mask = torch.empty(rows, width).bernoulli_(keep_share, generator=generator)
        return mask.div_(keep_share)

    def describe(self) -> dict[str, object]:
        """Return the hyperparameters as JSON values."""
        settings = asdict(self)
        settings["hidden"] = list(self.hidden)
        name = settings.pop("name")
        return {"head": name, **settings, "standardised": "no"}


def drawn_linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Return a linear layer whose parameters come from the generator, not from the global state.

    Their distribution is that of `torch.nn.Linear`.
    """
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = 1 / math.sqrt(inputs)
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer


def _logits_with_dropout(
    network: nn.Sequential, inputs: torch.Tensor, hidden_masks: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Return the (n, classes) logits of (n, d) inputs; the masks multiply the hidden layers."""
    *hidden_layers, output_layer = network
    hidden = inputs
    for layer, mask in zip(hidden_layers, hidden_masks, strict=True):
        hidden = layer(hidden) * mask  # (n, width)
    return output_layer(hidden)


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
        best = _BestClassifiers(devs)
        for head in self.heads:
            for name, classifier in head.fit(features, labels, devs, seed).items():
                best.offer(name, classifier)
        return best.classifiers

    def describe(self) -> dict[str, object]:
        """Return the hyperparameters as JSON values."""
        return {"head": self.name, "tried": [head.describe() for head in self.heads]}


Head = LinearHead | FfnHead | GridHead


def _probing_heads() -> tuple[FfnHead, ...]:
    """Return the heads that paper 004, section 3.3, tries for a probing task."""
    head = FfnHead(batch_size=64, activation="sigmoid", input_dropout=False, patience=10)
    settings = itertools.product((50, 100, 200), (0.0, 0.1, 0.2))
    return tuple(replace(head, hidden=(width,), dropout=dropout) for width, dropout in settings)


_HEADS: tuple[Head, ...] = (
    GridHead("mlp", _probing_heads()),
    FfnHead("ffn"),
    # The settings of LASER's xnli.sh.
    FfnHead("ffn_nli", epochs=200, hidden=(512, 384), dropout=0.3, batch_size=128),
    # The head of XNLI's baselines (004, section 4.2.5). The paper states the width, the dropout and
    # Adam's defaults, and leaves the other settings open.
    FfnHead("ffn_128", epochs=50, hidden=(128,), dropout=0.1, batch_size=64, patience=5),
    # The head of SNLI: the width is that of InferSent's classifier (004, section 3.2.3); Adam, the
    # batch size and the number of epochs are those of SentEval's code.
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
