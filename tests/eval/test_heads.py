"""Heads: what they choose on a dev set, against scikit-learn and a plain training loop."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from torch import nn

from modeling_tmde import TmdeError
from tmde.eval.ffn import FfnHead, Training, training_groups
from tmde.eval.heads import GridHead, get_head, pair_features

CLASSES = np.array(["a", "b", "c"])


def noisy(
    seed: int, rows: int = 60, columns: int = 20, noise: float = 2.0
) -> tuple[np.ndarray, list[str]]:
    """Three classes that overlap, so that the penalty matters."""
    rng = np.random.default_rng(seed)
    class_numbers = np.arange(rows) % 3
    centers = np.random.default_rng(99).normal(size=(3, columns))
    features = centers[class_numbers] + noise * rng.normal(size=(rows, columns))
    return features.astype(np.float32), CLASSES[class_numbers].tolist()


FIRST = np.array([[1.0, -2], [0, 3]])
SECOND = np.array([[2.0, 2], [0, -1]])
PAIR_FEATURES = [[1, -2, 2, 2, 1, 4, 2, -4], [0, 3, 0, -1, 0, 4, 0, -3]]


def test_pair_features_of_dense_rows_by_hand():
    np.testing.assert_array_equal(pair_features(FIRST, SECOND), PAIR_FEATURES)


def test_pair_features_of_sparse_rows_by_hand():
    features = pair_features(scipy.sparse.csr_matrix(FIRST), scipy.sparse.csr_matrix(SECOND))
    np.testing.assert_array_equal(features.toarray(), PAIR_FEATURES)


def test_an_unknown_head_is_named_with_the_known_ones():
    with pytest.raises(TmdeError, match="Found head 'forest', expected one of mlp, ffn"):
        get_head("forest")


def test_a_network_refuses_sparse_features():
    features, labels = noisy(0)
    sparse = scipy.sparse.csr_matrix(features)
    with pytest.raises(TmdeError, match="'ffn' needs dense features"):
        FfnHead().fit(sparse, labels, {"dev": (sparse, labels)}, seed=0)


def reference_fit(name: str, strength: float, features: np.ndarray, labels: list[str]):
    """A cold, tightly converged fit in float64."""
    if name == "svm":
        model = LinearSVC(C=strength, dual=False, tol=1e-8, max_iter=5000)
    else:
        model = LogisticRegression(C=strength, max_iter=5000, tol=1e-8)
    return model.fit(features, labels)


def noisy_dev_sets() -> dict[str, tuple[np.ndarray, list[str]]]:
    """Three dev sets of 45 rows."""
    return {"1": noisy(1, rows=45), "2": noisy(2, rows=45), "3": noisy(3, rows=45)}


@pytest.mark.parametrize("name", ["logistic_regression", "svm"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_linear_heads_choose_as_separate_scikit_learn_fits_do(name, is_sparse):
    head = get_head(name)
    train, labels = noisy(0)
    dev_sets = noisy_dev_sets()
    test, _ = noisy(4, rows=200)
    if is_sparse:
        grid = head.sparse_grid
        mean = 0
        deviation = 1
        convert = scipy.sparse.csr_matrix
    else:
        grid = head.grid
        mean = train.mean(axis=0, dtype=float)
        deviation = train.std(axis=0, dtype=float)
        convert = np.asarray
    devs = {}
    for key, (rows, gold) in dev_sets.items():
        devs[key] = (convert(rows), gold)

    chosen = head.fit(convert(train), labels, devs, 0)

    references = [reference_fit(name, c, (train - mean) / deviation, labels) for c in grid]
    for key, (rows, gold) in dev_sets.items():
        accuracies = [fit.score((rows - mean) / deviation, gold) for fit in references]
        best = accuracies.index(max(accuracies))  # The first of equals has the strongest penalty.
        estimator = chosen[key] if is_sparse else chosen[key][-1]
        chosen_strength = estimator.C
        assert chosen_strength == grid[best]
        expected = references[best].predict((test - mean) / deviation)
        agreement = np.mean(chosen[key].predict(convert(test)) == expected)
        assert agreement >= 0.99  # Rows on the border may fall to either side.


@pytest.mark.parametrize("name", ["logistic_regression", "svm"])
def test_dev_sets_choose_different_penalties(name):
    """So that the test above does not compare one C only."""
    train, labels = noisy(0)
    chosen = get_head(name).fit(train, labels, noisy_dev_sets(), 0)
    assert len({classifier[-1].C for classifier in chosen.values()}) > 1


def reference_ffn(
    epochs: int, train: np.ndarray, labels: list[str], seed: int
) -> Iterator[nn.Sequential]:
    """LASER's loop, with draws in the head's order; yields the network after each epoch."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.tensor(train)
    targets = torch.tensor(np.searchsorted(CLASSES, labels))
    layers = [nn.Linear(train.shape[1], 10), nn.Linear(10, 8), nn.Linear(8, 3)]
    parameters = []
    for layer in layers:
        bound = 1 / math.sqrt(layer.in_features)
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
            parameters.append(parameter)
    optimizer = torch.optim.Adam(parameters, lr=0.001)
    for _ in range(epochs):
        order = torch.randperm(len(train), generator=generator)
        masks = []
        for layer in layers:
            mask = torch.empty(len(train), layer.in_features)
            masks.append(mask.bernoulli_(0.8, generator=generator))
        for start in range(0, len(train), 12):
            part = slice(start, start + 12)
            hidden = inputs[order][part]
            for layer, mask in zip(layers, masks, strict=True):
                hidden = layer(hidden * mask[part] / 0.8)
                if layer is not layers[-1]:
                    hidden = torch.tanh(hidden)
            optimizer.zero_grad()
            nn.functional.cross_entropy(hidden, targets[order][part]).backward()
            optimizer.step()
        yield nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


class FfnComparison:
    """A head that was fitted with three dev sets, and the same epochs of the reference."""

    epochs = 25

    def __init__(self) -> None:
        train, train_labels = noisy(0, rows=62, noise=1.0)  # 62 = 5 * 12 + 2
        dev, right = noisy(1, rows=12)
        labels = {"right": right, "wrong": right[1:] + right[:1], "unknown": ["z"] * 12}
        devs = {name: (dev, gold) for name, gold in labels.items()}
        self.test = torch.tensor(noisy(2, rows=300)[0])
        self.chosen = FfnHead(epochs=self.epochs).fit(train, train_labels, devs, seed=5)
        self.correct: dict[str, list[int]] = {name: [] for name in labels}
        self.logits = []
        for network in reference_ffn(self.epochs, train, train_labels, seed=5):
            with torch.no_grad():
                predicted = CLASSES[network(torch.tensor(dev)).argmax(dim=1)]
                self.logits.append(network(self.test))
            for name, gold in labels.items():
                self.correct[name].append(int((predicted == gold).sum()))

    def latest_best(self, name: str) -> int:
        counts = self.correct[name]
        return max(range(self.epochs), key=lambda epoch: (counts[epoch], epoch))


@pytest.fixture(scope="module")
def comparison() -> FfnComparison:
    return FfnComparison()


def test_if_no_epoch_is_ever_right_the_last_is_the_best(comparison):
    assert comparison.latest_best("unknown") == comparison.epochs - 1


def test_the_best_epochs_tie_and_are_not_the_last(comparison):
    """What the comparison needs to tell the latest best epoch from others."""
    assert comparison.latest_best("wrong") < comparison.latest_best("right")
    counts = comparison.correct["wrong"]
    assert counts.count(max(counts)) > 1


@pytest.mark.parametrize("name", ["right", "wrong", "unknown"])
def test_ffn_is_lasers_network_at_its_latest_best_epoch(name, comparison):
    expected = comparison.logits[comparison.latest_best(name)]
    classifier = comparison.chosen[name]
    torch.testing.assert_close(classifier.logits(comparison.test), expected, atol=1e-5, rtol=1e-4)
    predicted = classifier.predict(comparison.test.numpy())
    np.testing.assert_array_equal(predicted, CLASSES[expected.argmax(dim=1)])


def test_training_leaves_the_global_random_state_alone():
    train, labels = noisy(0)
    before = torch.get_rng_state()
    FfnHead(epochs=2).fit(train, labels, {"dev": (train, labels)}, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_grid_keeps_the_best_head_which_stops_in_time():
    train, labels = noisy(0, noise=1.0)
    dev, dev_labels = noisy(1, rows=30)
    devs = {"dev": (dev, dev_labels)}
    test = torch.tensor(noisy(2, rows=300)[0])
    settings = {"batch_size": 12, "activation": "sigmoid", "input_dropout": False}
    narrow, wide = (FfnHead(hidden=(n,), epochs=10**9, patience=3, **settings) for n in (1, 50))
    worse = narrow.fit(train, labels, devs, seed=5)["dev"]
    better = wide.fit(train, labels, devs, seed=5)["dev"]
    assert np.mean(worse.predict(dev) == dev_labels) < np.mean(better.predict(dev) == dev_labels)

    chosen = GridHead("grid", (narrow, wide)).fit(train, labels, devs, seed=5)["dev"]

    (hidden, _), output = better.network
    expected = torch.sigmoid(test @ hidden.weight.T + hidden.bias) @ output.weight.T + output.bias
    torch.testing.assert_close(chosen.logits(test), expected)


def trainings_of_different_sizes() -> list[Training]:
    """Train sets of 30 to 62 rows, three seeds each, of which the last two have two classes."""
    trainings = []
    for number, rows in enumerate((62, 30, 48, 48)):
        train, labels = noisy(number, rows=rows, noise=1.0)
        if number == 3:
            labels = ["b" if label == "c" else label for label in labels]
        dev, dev_labels = noisy(10 + number, rows=21)
        for seed in range(3):
            trainings.append(Training(train, labels, {"dev": (dev, dev_labels)}, seed))
    return trainings


@pytest.mark.parametrize("patience", [None, 2])
def test_networks_trained_together_are_those_trained_alone(patience):
    head = FfnHead(epochs=12, patience=patience)
    test = noisy(20, rows=100)[0]
    trainings = trainings_of_different_sizes()

    together = list(head.fit_all(trainings))

    assert len(together) == len(trainings)
    for training, classifiers in zip(trainings, together, strict=True):
        alone = head.fit(*training)["dev"]
        assert classifiers["dev"].classes.tolist() == sorted(set(training.labels))
        torch.testing.assert_close(
            classifiers["dev"].logits(test), alone.logits(test), atol=1e-5, rtol=1e-4
        )


def test_trainings_are_read_as_they_are_needed(monkeypatch):
    """Two train sets are too many numbers for one group; a third one is not read yet."""
    monkeypatch.setattr("tmde.eval.ffn._STACKED_NUMBERS", 62 * 20)
    trainings = iter(trainings_of_different_sizes())
    groups = training_groups(trainings)
    assert [len(training.labels) for training in next(groups)] == [62, 62, 62]
    assert [len(training.labels) for training in trainings] == [30, 30, *[48] * 6]


def test_training_leaves_the_number_of_threads_alone():
    train, labels = noisy(0)
    before = torch.get_num_threads()
    FfnHead(epochs=1).fit(train, labels, {"dev": (train, labels)}, seed=5)
    assert torch.get_num_threads() == before
