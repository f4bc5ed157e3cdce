"""Feed-forward classification heads: small networks, of which many are trained at once."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from modeling_tmde import TmdeError
from tmde.documents.unit_rows import Matrix

# Batches whose dropout is drawn together. That takes few calls, and no second copy of a large
# training set.
_BATCHES_AT_ONCE = 256

# Most numbers in the training sets of networks that are trained together. One larger training set
# keeps the processor busy on its own.
_STACKED_NUMBERS = 50_000_000

# Products in a step of a network, and numbers in a training set of another head, from which several
# threads pay. Below, they wait for each other: 1,000 x 256 took forty times as long on two cores as
# on one.
WORTH_THREADS = 20_000_000

_ACTIVATIONS = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid}

DevSets = Mapping[
    str, tuple[Matrix, Sequence[str] | np.ndarray]
]  # features (n, d) and n labels, by name


class Training(NamedTuple):
    """What one training of a head takes.

    Attributes:
        features: (n, d) features of the train set.
        labels: The n class names.
        devs: Features and labels of dev sets, by name.
        seed: The seed of the head.
    """

    features: Matrix
    labels: Sequence[str] | np.ndarray
    devs: DevSets
    seed: int


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
    """LASER's classifier of MLDoc, as Li (2021, section 4.3.3) uses it.

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
        (classifiers,) = self.fit_all([Training(features, labels, devs, seed)])
        return classifiers

    def fit_all(self, trainings: Iterable[Training]) -> Iterator[dict[str, FfnClassifier]]:
        """Yield what `fit` returns for each training, in order.

        Networks of the same shape are trained together. Each gets the draws that it would get
        alone, so its result does not depend on the others, except for rounding.

        Args:
            trainings: Read in groups, as they are needed.

        Raises:
            TmdeError: Features are sparse.
        """
        for group in training_groups(trainings):
            yield from self._fit_group(group)

    def _fit_group(self, trainings: Sequence[Training]) -> list[dict[str, FfnClassifier]]:
        """Train networks of one shape together, each until its own end."""
        for training in trainings:
            if scipy.sparse.issparse(training.features):
                raise TmdeError(
                    f"The head {self.name!r} needs dense features; use 'logistic_regression' "
                    "for TF-IDF"
                )
        stack = _NetworkStack(self, trainings)
        trackers = []
        for training, classes in zip(trainings, stack.classes, strict=True):
            trackers.append(_EpochTracker(training.devs, classes, self.epochs, self.patience))
        optimizer = torch.optim.Adam(stack.parameters, lr=self.learning_rate, fused=True)
        running = list(range(len(trainings)))
        with _threads_for(stack.products_per_step):
            while running:
                optimizer.zero_grad()
                stack.next_loss().backward()
                optimizer.step()
                for position in running:
                    if stack.ends_epoch(position):
                        trackers[position].add_epoch(stack.networks[position])
                running = [position for position in running if not trackers[position].is_over]
        return [tracker.best_classifiers() for tracker in trackers]

    def new_network(
        self, input_size: int, class_count: int, generator: torch.Generator
    ) -> nn.Sequential:
        """Return hidden layers with their activations, and the output layer.

        The parameters are drawn from the distribution of `torch.nn.Linear`.
        """
        network = nn.Sequential()
        width = input_size
        for hidden_size in self.hidden:
            layer = drawn_linear(width, hidden_size, generator)
            network.append(nn.Sequential(layer, _ACTIVATIONS[self.activation]()))
            width = hidden_size
        network.append(drawn_linear(width, class_count, generator))
        return network

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


def training_groups(trainings: Iterable[Training]) -> Iterator[list[Training]]:
    """Yield trainings in groups whose networks have the same shape and fit into memory together.

    Args:
        trainings: They are read one ahead of the group that is yielded.
    """
    group: list[Training] = []
    group_shape = None
    group_numbers = 0
    for training in trainings:
        row_count, feature_count = training.features.shape
        shape = (feature_count, len(set(training.labels)))
        numbers = row_count * feature_count
        if group and group[-1].features is training.features:
            numbers = 0  # Seeds share their features.
        if group and (shape != group_shape or group_numbers + numbers > _STACKED_NUMBERS):
            yield group
            group = []
            group_numbers = 0
            numbers = row_count * feature_count
        group.append(training)
        group_shape = shape
        group_numbers += numbers
    if group:
        yield group


@contextmanager
def _threads_for(products_per_step: int) -> Iterator[None]:
    """Let torch use one thread unless the steps are large."""
    threads = torch.get_num_threads()
    if products_per_step < WORTH_THREADS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Step(NamedTuple):
    """The draws of one step of a network, padded to the batch size B.

    Attributes:
        rows: (B,) rows of the train set.
        weights: (B,) weight of each row in the loss; 0 for padding.
        masks: A dropout mask (B, width) of the input and of each hidden layer.
        ends_epoch: Whether it is the last step of an epoch.
    """

    rows: torch.Tensor
    weights: torch.Tensor
    masks: list[torch.Tensor]
    ends_epoch: bool


class _Draws:
    """The draws of one seed for train sets of one size.

    Attributes:
        network: The network before training.
        step: The current step.
    """

    def __init__(
        self, head: FfnHead, seed: int, row_count: int, input_size: int, class_count: int
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.network = head.new_network(input_size, class_count, generator)
        self._widths = (input_size, *head.hidden)
        self._steps = self._draw_steps(head, row_count, generator)
        self.step: _Step

    def advance(self) -> None:
        """Draw the next step."""
        self.step = next(self._steps)

    def _draw_steps(
        self, head: FfnHead, row_count: int, generator: torch.Generator
    ) -> Iterator[_Step]:
        """Yield the steps of one epoch after the other, without an end."""
        keep_share = 1 - head.dropout
        while True:
            order = torch.randperm(row_count, generator=generator)
            steps_left = math.ceil(row_count / head.batch_size)
            for rows in order.split(head.batch_size * _BATCHES_AT_ONCE):
                masks = []
                for width in self._widths:
                    mask = torch.empty(len(rows), width)
                    mask.bernoulli_(keep_share, generator=generator).div_(keep_share)
                    masks.append(mask.split(head.batch_size))
                for batch_rows, *batch_masks in zip(
                    rows.split(head.batch_size), *masks, strict=True
                ):
                    steps_left -= 1
                    yield _padded_step(batch_rows, batch_masks, head.batch_size, steps_left == 0)


def _padded_step(
    rows: torch.Tensor, masks: list[torch.Tensor], batch_size: int, ends_epoch: bool
) -> _Step:
    """Return a step whose loss is the mean over its rows."""
    weights = torch.full((len(rows),), 1 / len(rows))
    padding = batch_size - len(rows)
    if padding:
        rows = F.pad(rows, (0, padding))
        weights = F.pad(weights, (0, padding))
        masks = [F.pad(mask, (0, 0, 0, padding)) for mask in masks]
    return _Step(rows, weights, masks, ends_epoch)


class _TrainSets:
    """The train sets of several networks, as one table.

    Attributes:
        features: (rows, d).
        targets: (rows,) class numbers.
        first_rows: (K,) first row of each network's train set.
        classes: The class names of each network, in the order of their numbers.
    """

    def __init__(self, trainings: Sequence[Training]) -> None:
        features: list[torch.Tensor] = []
        targets: list[torch.Tensor] = []
        first_rows: list[int] = []
        self.classes: list[np.ndarray] = []
        row_count = 0
        previous: Training | None = None
        for training in trainings:
            is_shared = (
                previous is not None
                and training.features is previous.features
                and training.labels is previous.labels
            )
            if is_shared:
                first_rows.append(first_rows[-1])
                self.classes.append(self.classes[-1])
                continue
            previous = training
            classes, class_numbers = np.unique(np.asarray(training.labels), return_inverse=True)
            features.append(_as_tensor(training.features))
            targets.append(torch.from_numpy(class_numbers))
            first_rows.append(row_count)
            self.classes.append(classes)
            row_count += len(class_numbers)
        # One large train set is not copied.
        self.features = features[0] if len(features) == 1 else torch.cat(features)
        self.targets = torch.cat(targets)
        self.first_rows = torch.tensor(first_rows)


class _NetworkStack:
    """Networks of one shape, whose parameters are stacked and trained by one loss.

    Every network goes through its own train set at its own pace: an epoch of one may have more
    steps than that of another. Networks of one seed and one number of rows share their draws.

    Args:
        head: The settings.
        trainings: K trainings with the same numbers of features and of classes.

    Attributes:
        parameters: Weight (K, out, in) and bias (K, out) of each layer, in turn.
        networks: The K networks, whose parameters are views of the stacked ones.
        classes: The class names of each network, in the order of its outputs.
        products_per_step: The products of the first layers in one step.
    """

    def __init__(self, head: FfnHead, trainings: Sequence[Training]) -> None:
        input_rate = head.dropout if head.input_dropout else 0.0
        self._dropout_rates = [input_rate, *[head.dropout for _ in head.hidden]]
        self._activation = _ACTIVATIONS[head.activation]()
        self._train_sets = _TrainSets(trainings)
        self.classes = self._train_sets.classes
        input_size = self._train_sets.features.shape[1]
        class_count = len(self.classes[0])
        draws: dict[tuple[int, int], _Draws] = {}
        self._draws_of: list[_Draws] = []
        for training in trainings:
            key = (training.seed, len(training.labels))
            if key not in draws:
                draws[key] = _Draws(head, *key, input_size, class_count)
            self._draws_of.append(draws[key])
        self._draws = list(draws.values())
        positions = [self._draws.index(network_draws) for network_draws in self._draws_of]
        self._draw_positions = torch.tensor(positions)  # (K,)
        parameters_of_networks = [drawn.network.parameters() for drawn in self._draws_of]
        self.parameters: list[torch.Tensor] = []
        for parameters in zip(*parameters_of_networks, strict=True):
            self.parameters.append(torch.stack(parameters).detach().requires_grad_())
        self.networks: list[nn.Sequential] = []
        for position, drawn in enumerate(self._draws_of):
            network = copy.deepcopy(drawn.network)
            for parameter, stacked in zip(network.parameters(), self.parameters, strict=True):
                parameter.data = stacked.detach()[position]
            self.networks.append(network)
        self.products_per_step = self.parameters[0].numel() * head.batch_size

    def next_loss(self) -> torch.Tensor:
        """Return the sum of the losses of all networks on their next batches."""
        for drawn in self._draws:
            drawn.advance()
        steps = [drawn.step for drawn in self._draws]
        rows = self._per_network([step.rows for step in steps])  # (K, batch)
        rows = rows + self._train_sets.first_rows[:, None]
        weights = self._per_network([step.weights for step in steps])  # (K, batch)
        masks: list[torch.Tensor | None] = []
        for layer, rate in enumerate(self._dropout_rates):
            if rate == 0:
                masks.append(None)
            else:
                layer_masks = [step.masks[layer] for step in steps]
                masks.append(self._per_network(layer_masks))  # (K, batch, width)
        # This gathers rows in half the time of an index.
        inputs = F.embedding(rows, self._train_sets.features)  # (K, batch, d)
        # An evaluation during training disables gradients.
        with torch.enable_grad():
            logits = self._logits(inputs, masks)  # (K, batch, classes)
            losses = F.cross_entropy(
                logits.flatten(0, 1), self._train_sets.targets[rows.flatten()], reduction="none"
            )
            return losses @ weights.flatten()

    def _per_network(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return what is drawn once for several networks for each of them, (K, ...)."""
        if len(tensors) == 1:
            return tensors[0].expand(len(self._draw_positions), *tensors[0].shape)
        return torch.stack(list(tensors))[self._draw_positions]

    def _logits(self, inputs: torch.Tensor, masks: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Return the (K, batch, classes) logits of (K, batch, d) inputs, with dropout."""
        hidden = inputs
        weights = self.parameters[::2]
        biases = self.parameters[1::2]
        for layer, (weight, bias, mask) in enumerate(zip(weights, biases, masks, strict=True)):
            if layer > 0:
                hidden = self._activation(hidden)
            if mask is not None:
                hidden = hidden * mask
            hidden = torch.baddbmm(bias[:, None], hidden, weight.mT)  # (K, batch, out)
        return hidden

    def ends_epoch(self, position: int) -> bool:
        """Return whether the last step ended an epoch of a network."""
        return self._draws_of[position].step.ends_epoch


class _EpochTracker:
    """The best epochs of one network.

    Args:
        devs: Features and labels of dev sets, by name.
        classes: The class names, in the order of the outputs.
        epochs: The number of epochs.
        patience: See `FfnHead`.
    """

    def __init__(
        self, devs: DevSets, classes: np.ndarray, epochs: int, patience: int | None
    ) -> None:
        self._classes = classes
        self._network: nn.Sequential
        self._best_parameters: dict[str, torch.Tensor] = {}  # flat, by dev set
        self._epochs = epochs
        self._patience = patience
        number_of_class = {name: number for number, name in enumerate(classes)}
        self._dev_sets = {}
        for name, (features, labels) in devs.items():
            # No network ever predicts a class that its train set lacks.
            numbers = [number_of_class.get(label, -1) for label in labels]
            self._dev_sets[name] = (_as_tensor(features), torch.tensor(numbers))
        self._best_counts = dict.fromkeys(devs, -1)
        self._epoch = 0
        self._last_improvement = 0

    @property
    def is_over(self) -> bool:
        """Whether the network has had all its epochs, or does not improve any more."""
        if self._epoch >= self._epochs:
            return True
        epochs_since = self._epoch - self._last_improvement
        return self._patience is not None and epochs_since > self._patience

    @torch.no_grad()
    def add_epoch(self, network: nn.Sequential) -> None:
        """Keep the parameters of the network for each dev set on which it was never better."""
        self._network = network
        for name, (features, targets) in self._dev_sets.items():
            predicted = network(features).argmax(dim=1)
            correct_count = int((predicted == targets).sum())
            if correct_count > self._best_counts[name]:
                self._last_improvement = self._epoch
            if correct_count >= self._best_counts[name]:
                self._best_counts[name] = correct_count
                self._best_parameters[name] = parameters_to_vector(network.parameters())
        self._epoch += 1

    def best_classifiers(self) -> dict[str, FfnClassifier]:
        """Return the network at its best epoch on each dev set, the latest if several tie."""
        classifiers = {}
        for name, parameters in self._best_parameters.items():
            network = copy.deepcopy(self._network)
            vector_to_parameters(parameters, network.parameters())
            classifiers[name] = FfnClassifier(network, self._classes)
        return classifiers


def _as_tensor(features: Matrix) -> torch.Tensor:
    """Return features as float32, without a copy if they are."""
    return torch.from_numpy(np.ascontiguousarray(features, np.float32))
