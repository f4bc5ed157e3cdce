"""Heads: what they choose on a dev set, against scikit-learn and a plain training loop."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from torch import nn

from tmde.eval.heads import FfnHead, GridHead, get_head, pair_features


def noisy(
    seed: int, rows: int = 60, columns: int = 20, noise: float = 2.0
) -> tuple[np.ndarray, list[str]]:
    """Three classes that overlap, so that the penalty matters."""
    rng = np.random.default_rng(seed)
    labels = np.array(["a", "b", "c"])[np.arange(rows) % 3]
    centers = np.random.default_rng(99).normal(size=(3, columns))
    features = centers[np.arange(rows) % 3] + noise * rng.normal(size=(rows, columns))
    return features.astype(np.float32), labels.tolist()


def test_pair_features_by_hand():
    first, second = np.array([[1.0, -2], [0, 3]]), np.array([[2.0, 2], [0, -1]])
    expected = [[1, -2, 2, 2, 1, 4, 2, -4], [0, 3, 0, -1, 0, 4, 0, -3]]
    np.testing.assert_array_equal(pair_features(first, second), expected)
    sparse = pair_features(scipy.sparse.csr_matrix(first), scipy.sparse.csr_matrix(second))
    np.testing.assert_array_equal(sparse.toarray(), expected)


REFERENCES = {
    "logistic_regression": lambda strength: LogisticRegression(C=strength, max_iter=5000, tol=1e-8),
    "svm": lambda strength: LinearSVC(C=strength, dual=False, tol=1e-8, max_iter=5000),
}


@pytest.mark.parametrize("name", ["logistic_regression", "svm"])
@pytest.mark.parametrize("sparse", [False, True])
def test_linear_heads_choose_as_separate_scikit_learn_fits_do(name, sparse):
    """Cold, tightly converged fits in float64, one for each C."""
    head = get_head(name)
    train, labels = noisy(0)
    mean, deviation = (
        (0, 1) if sparse else (train.mean(axis=0, dtype=float), train.std(axis=0, dtype=float))
    )
    devs = {str(seed): noisy(seed, rows=45) for seed in (1, 2, 3)}
    test, _ = noisy(4, rows=200)
    as_given = scipy.sparse.csr_matrix if sparse else np.asarray
    chosen = head.fit(
        as_given(train),
        labels,
        {key: (as_given(rows), gold) for key, (rows, gold) in devs.items()},
        0,
    )
    grid = head.sparse_grid if sparse else head.grid
    fits = [REFERENCES[name](strength).fit((train - mean) / deviation, labels) for strength in grid]
    strengths = set()
    for key, (rows, gold) in devs.items():
        accuracies = [fit.score((rows - mean) / deviation, gold) for fit in fits]
        best = accuracies.index(max(accuracies))  # the first of equals has the strongest penalty
        final = chosen[key] if sparse else chosen[key][-1]
        assert final.C == grid[best]
        strengths.add(final.C)
        agree = np.mean(
            chosen[key].predict(as_given(test)) == fits[best].predict((test - mean) / deviation)
        )
        assert agree >= 0.99  # rows on the border may fall to either side
    assert sparse or len(strengths) > 1, "the dev sets of this test should not all choose one C"


def reference_ffn(epochs: int, train: np.ndarray, labels: list[str], seed: int):
    """LASER's loop with torch's own layers, and draws in the head's order; yields the network after each epoch."""
    generator = torch.Generator().manual_seed(seed)
    inputs, gold = (
        torch.tensor(train),
        torch.tensor([sorted(set(labels)).index(label) for label in labels]),
    )
    layers = [nn.Linear(train.shape[1], 10), nn.Linear(10, 8), nn.Linear(8, len(set(labels)))]
    for layer in layers:
        bound = 1 / math.sqrt(layer.in_features)
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
    optimizer = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=0.001)
    for _ in range(epochs):
        order = torch.randperm(len(train), generator=generator)
        keep = [
            torch.empty(len(train), x.in_features).bernoulli_(0.8, generator=generator)
            for x in layers
        ]
        for start in range(0, len(train), 12):
            part = slice(start, start + 12)
            hidden = inputs[order][part]
            for layer, mask in zip(layers, keep, strict=True):
                hidden = layer(hidden * mask[part] / 0.8)
                hidden = hidden if layer is layers[-1] else torch.tanh(hidden)
            optimizer.zero_grad()
            nn.functional.cross_entropy(hidden, gold[order][part]).backward()
            optimizer.step()
        yield nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def test_ffn_is_lasers_network_and_keeps_the_latest_best_epoch():
    train, labels = noisy(0, rows=62, noise=1.0)  # 62 = 5 * 12 + 2
    dev, right = noisy(1, rows=12)
    devs = {"right": right, "wrong": right[1:] + right[:1], "unknown": ["z"] * 12}
    chosen = FfnHead(epochs=25).fit(
        train, labels, {name: (dev, gold) for name, gold in devs.items()}, seed=5
    )
    test = torch.tensor(noisy(2, rows=300)[0])
    classes, correct, logits = np.array(["a", "b", "c"]), {name: [] for name in devs}, []
    for network in reference_ffn(25, train, labels, seed=5):
        with torch.no_grad():
            predicted = classes[network(torch.tensor(dev)).argmax(dim=1)]
            logits.append(network(test))
        for name, gold in devs.items():
            correct[name].append(int((predicted == gold).sum()))
    latest = {
        name: max(range(25), key=lambda epoch: (found[epoch], epoch))
        for name, found in correct.items()
    }
    assert latest["unknown"] == 24  # never right: all epochs are equal
    assert latest["wrong"] < latest["right"]
    assert correct["wrong"].count(max(correct["wrong"])) > 1, (
        "this test needs a tie before the last epoch"
    )
    for name, epoch in latest.items():
        torch.testing.assert_close(chosen[name].logits(test), logits[epoch], atol=1e-5, rtol=1e-4)
        assert (chosen[name].predict(test.numpy()) == classes[logits[epoch].argmax(dim=1)]).all()


def test_a_grid_keeps_the_best_head_which_stops_in_time():
    (train, labels), dev, test = (
        noisy(0, noise=1.0),
        noisy(1, rows=30),
        torch.tensor(noisy(2, rows=300)[0]),
    )
    settings = {"batch_size": 12, "activation": "sigmoid", "input_dropout": False}
    heads = [FfnHead(hidden=(n,), epochs=10**9, patience=3, **settings) for n in (1, 50)]
    alone = [head.fit(train, labels, {"dev": dev}, seed=5)["dev"] for head in heads]
    accuracies = [np.mean(each.predict(dev[0]) == np.array(dev[1])) for each in alone]
    assert accuracies[0] < accuracies[1]
    (chosen,) = GridHead("grid", tuple(heads)).fit(train, labels, {"dev": dev}, seed=5).values()
    weight, bias, output, output_bias = alone[1].layers
    expected = torch.sigmoid(test @ weight.T + bias) @ output.T + output_bias
    torch.testing.assert_close(chosen.logits(test), expected)
