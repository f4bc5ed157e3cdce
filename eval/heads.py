"""Classification heads: what is trained on the vectors of one language and tuned on a dev set.

`fit` of a head trains on features (n, d) and n labels and returns, for each dev set by name, the classifier with the
best accuracy on it, whose `predict` gives (n,) class names for (n, d) features. It never sees a test set. A
`deterministic` head does not depend on `seed`, so one run is enough. `describe` returns the hyperparameters as JSON
values.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

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
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.documents.neighbours import Matrix

logger = logging.get_logger(__name__)

_BATCHES_AT_ONCE = (
    256  # gathered and masked together: few calls, and no second copy of a large training set
)

# Numbers in a training set from which several threads pay. Below, they wait for each other: 1,000 x 256 took forty
# times as long on two cores as on one.
_WORTH_THREADS = 20_000_000

Devs = Mapping[str, tuple[Matrix, Sequence[str]]]


def pair_features(first: Matrix, second: Matrix) -> Matrix:
    """[u, v, |u - v|, u * v] of paired rows, (n, d) and (n, d) to (n, 4 d) (InferSent, Conneau et al. 2017, 3.1)."""
    if scipy.sparse.issparse(first):
        return scipy.sparse.hstack(
            [first, second, abs(first - second), first.multiply(second)], format="csr"
        )
    return np.hstack([first, second, np.abs(first - second), first * second])


@dataclass(frozen=True)
class LinearHead:
    """Tries every C (inverse L2 strength) and keeps the best on each dev set, the smallest C if several tie.

    Dense features are standardized with the mean and deviation of the training features; sparse features are not.

    Args:
        name: Of the head.
        estimator: An unfitted scikit-learn classifier with parameters `C` and `max_iter`. A fit that needs more
            iterations is used as it is, with one warning.
        grid: C's tried on dense features.
        sparse_grid: C's tried on CSR features (TF-IDF rows have length 1, and want a weaker penalty).
    """

    deterministic: ClassVar[bool] = True
    name: str
    estimator: ClassifierMixin
    grid: tuple[float, ...]
    sparse_grid: tuple[float, ...]

    def fit(
        self, features: Matrix, labels: Sequence[str], devs: Devs, seed: int = 0
    ) -> dict[str, ClassifierMixin]:
        """See the module. `seed` has no influence."""
        best: dict[str, tuple[float, ClassifierMixin]] = {}
        small = features.shape[0] * features.shape[1] < _WORTH_THREADS
        with threadpool_limits(1 if small else None):
            for classifier in self._path(features, np.asarray(labels)):
                for name, (rows, gold) in devs.items():
                    accuracy = np.mean(classifier.predict(rows) == np.asarray(gold))
                    if name not in best or accuracy > best[name][0]:
                        best[name] = accuracy, classifier
        return {name: classifier for name, (_, classifier) in best.items()}

    def _path(self, features: Matrix, labels: np.ndarray) -> Iterator[ClassifierMixin | Pipeline]:
        """One classifier per C, strongest penalty first, each warm-started from the last where the estimator can."""
        sparse = scipy.sparse.issparse(features)
        scaler = None if sparse else StandardScaler().fit(features)
        scaled = features if sparse else scaler.transform(features)
        estimator = clone(self.estimator)
        for strength in sorted(self.sparse_grid if sparse else self.grid):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                estimator.set_params(C=strength).fit(scaled, labels)
            if np.max(estimator.n_iter_) >= estimator.max_iter:  # one warning for all fits
                message = f"The head {self.name!r} did not converge in {estimator.max_iter} iterations for every C"
                logger.warning_once(message)
            fitted = copy.deepcopy(estimator)
            yield fitted if sparse else make_pipeline(scaler, fitted)

    def describe(self) -> dict[str, object]:
        grids = {
            "C": list(self.grid),
            "C_sparse": list(self.sparse_grid),
            "max_iter": self.estimator.max_iter,
        }
        return {"head": self.name, **grids, "standardised": "dense features only"}


class FfnClassifier:
    """A feed-forward network with an activation between its layers.

    All parameters lie in one vector, so that a step of Adam is one kernel.

    Args:
        parameters: The vector: weight (outputs, inputs) and bias (outputs,) of each layer in turn.
        sizes: Width of the input, of each hidden layer and of the output.
        classes: Class names in the order of the outputs.
        activation: Name of a function of torch.
    """

    def __init__(
        self,
        parameters: torch.Tensor,
        sizes: Sequence[int],
        classes: np.ndarray,
        activation: str = "tanh",
    ) -> None:
        shapes = [
            shape
            for size in zip(sizes, sizes[1:], strict=False)
            for shape in (size[::-1], size[1:])
        ]
        parts = parameters.detach().split([math.prod(shape) for shape in shapes])
        self.layers = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        self.classes, self.activation = classes, getattr(torch, activation)

    def logits(self, hidden: torch.Tensor, masks: Sequence[torch.Tensor] = ()) -> torch.Tensor:
        """(n, d) to (n, classes); `masks` multiply the hidden layers in training."""
        for position in range(0, len(self.layers) - 2, 2):
            hidden = self.activation(F.linear(hidden, *self.layers[position : position + 2]))
            if masks:
                hidden = hidden * masks[position // 2]
        return F.linear(hidden, *self.layers[-2:])

    def predict(self, features: Matrix | torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            return self.classes[self.logits(torch.as_tensor(features)).argmax(dim=1).numpy()]


@dataclass(frozen=True)
class FfnHead:
    """LASER's classifier of MLDoc, as thesis 4.3.3 uses it (`sent_classif.py` with the settings of its `mldoc.sh`).

    Linear(d, 10), tanh, Linear(10, 8), tanh, Linear(8, classes); dropout before the first layer and after each hidden
    one; cross-entropy; Adam without weight decay on shuffled batches of 12. Keeps the epoch with the best dev
    accuracy, the latest if several tie. As in LASER the features are not standardized. Runs on the CPU, which is
    fastest for such a small network.

    Args:
        epochs: Epochs over the training set.
        hidden: Width of each hidden layer.
        dropout: Share of activations set to 0 in training.
        batch_size: Rows a step; the last batch of an epoch holds the rest.
        learning_rate: Of Adam.
        activation: Of the hidden layers, a function of torch.
        input_dropout: Also drop features.
        patience: Stop after so many epochs without a better dev accuracy; None: never.
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
        self, features: Matrix, labels: Sequence[str], devs: Devs, seed: int
    ) -> dict[str, FfnClassifier]:
        """See the module. Does not read or change the global random state.

        Raises:
            ValueError: CSR features.
        """
        if scipy.sparse.issparse(features):
            raise TmdeError(
                f"The head {self.name!r} needs dense features; take 'logistic_regression' for TF-IDF"
            )
        generator = torch.Generator().manual_seed(seed)
        classes, indices = np.unique(np.asarray(labels), return_inverse=True)
        inputs, gold = (
            torch.from_numpy(np.ascontiguousarray(features, np.float32)),
            torch.from_numpy(indices),
        )
        sizes = [inputs.shape[1], *self.hidden, len(classes)]
        draws = []
        for width, outputs in zip(
            sizes, sizes[1:], strict=False
        ):  # weight and bias as `torch.nn.Linear` draws them
            bound = 1 / math.sqrt(width)
            draws.append(
                torch.empty(outputs * (width + 1)).uniform_(-bound, bound, generator=generator)
            )
        parameters = torch.cat(draws)
        parameters.grad = torch.zeros_like(parameters)
        network = FfnClassifier(parameters, sizes, classes, self.activation)
        gradients = FfnClassifier(parameters.grad, sizes, classes, self.activation)
        for tensor, gradient in zip(network.layers, gradients.layers, strict=True):
            tensor.requires_grad_().grad = gradient  # a view of the vector's
        optimizer = torch.optim.Adam([parameters], lr=self.learning_rate, fused=True)
        best: dict[str, tuple[int, torch.Tensor]] = {}
        improved = 0
        for epoch in range(self.epochs):
            if self.patience and epoch - improved > self.patience:
                break
            order = torch.randperm(len(inputs), generator=generator)
            for chosen in order.split(self.batch_size * _BATCHES_AT_ONCE):
                masks = [self._mask(len(chosen), width, generator) for width in sizes[:-1]]
                given = inputs[chosen] * masks[0] if self.input_dropout else inputs[chosen]
                parts = [given, gold[chosen], *masks[1:]]
                for rows, targets, *kept in zip(
                    *(part.split(self.batch_size) for part in parts), strict=True
                ):
                    parameters.grad.zero_()
                    F.cross_entropy(network.logits(rows, kept), targets).backward()
                    optimizer.step()
            for name, (rows, right) in devs.items():
                correct = np.count_nonzero(network.predict(rows) == np.asarray(right))
                if name not in best or correct >= best[name][0]:
                    improved = epoch if name not in best or correct > best[name][0] else improved
                    best[name] = correct, parameters.clone()
        return {
            name: FfnClassifier(kept, sizes, classes, self.activation)
            for name, (_, kept) in best.items()
        }

    def _mask(self, rows: int, width: int, generator: torch.Generator) -> torch.Tensor:
        """(rows, width) dropout: 0, or 1 / (1 - dropout) for what is kept."""
        keep = 1 - self.dropout
        return torch.empty(rows, width).bernoulli_(keep, generator=generator).div_(keep)

    def describe(self) -> dict[str, object]:
        settings = asdict(self) | {"hidden": list(self.hidden)}
        return {"head": settings.pop("name"), **settings, "standardised": "no"}


@dataclass(frozen=True)
class GridHead:
    """Tries every head and keeps the best on each dev set, the first if several tie."""

    deterministic: ClassVar[bool] = False
    name: str
    heads: tuple[FfnHead, ...]

    def fit(
        self, features: Matrix, labels: Sequence[str], devs: Devs, seed: int
    ) -> dict[str, FfnClassifier]:
        """See the module."""
        best: dict[str, tuple[float, FfnClassifier]] = {}
        for head in self.heads:
            for name, classifier in head.fit(features, labels, devs, seed).items():
                accuracy = np.mean(classifier.predict(devs[name][0]) == np.asarray(devs[name][1]))
                if name not in best or accuracy > best[name][0]:
                    best[name] = accuracy, classifier
        return {name: classifier for name, (_, classifier) in best.items()}

    def describe(self) -> dict[str, object]:
        return {"head": self.name, "tried": [head.describe() for head in self.heads]}


Head = LinearHead | FfnHead | GridHead
_PROBE = FfnHead(
    batch_size=64, activation="sigmoid", input_dropout=False, patience=10
)  # 004, section 3.3
_HEADS: tuple[Head, ...] = (
    GridHead(
        "mlp",
        tuple(
            replace(_PROBE, hidden=(n,), dropout=p) for n in (50, 100, 200) for p in (0.0, 0.1, 0.2)
        ),
    ),
    FfnHead(),
    FfnHead(
        "ffn_nli", epochs=200, hidden=(512, 384), dropout=0.3, batch_size=128
    ),  # of LASER's xnli.sh
    # Of XNLI's baselines (004, section 4.2.5), which leaves open all but width and dropout, and Adam's defaults.
    FfnHead("ffn_128", epochs=50, hidden=(128,), dropout=0.1, batch_size=64, patience=5),
    LinearHead(
        "logistic_regression",  # multinomial; each C of the path is warm-started from the last
        LogisticRegression(max_iter=1000, warm_start=True),
        grid=(0.001, 0.01, 0.1, 1.0, 10.0),
        sparse_grid=(1.0, 10.0, 100.0),
    ),
    LinearHead(
        "svm",  # one class against the rest, squared hinge loss; the dual solver visits rows in a random order
        LinearSVC(dual="auto", max_iter=1000, random_state=0),
        grid=(0.0001, 0.001, 0.01, 0.1, 1.0),
        sparse_grid=(0.1, 1.0, 10.0),
    ),
)
HEADS: dict[str, Head] = {head.name: head for head in _HEADS}


def get_head(name: str) -> Head:
    """The head of this name.

    Raises:
        ValueError: Unknown name.
    """
    if name not in HEADS:
        raise TmdeError(f"Found head {name!r}, expected one of {', '.join(HEADS)}")
    return HEADS[name]
