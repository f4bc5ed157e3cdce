"""The translation loss: numbers by hand, and torch's own label-smoothed cross-entropy over all logits."""

from math import exp, log

import pytest
import torch
from torch import nn

from modeling_tmde.training.objectives import OBJECTIVES, BatchSizes, TranslationObjective, cross_entropy, translation

CHUNK_ROWS = 512


@pytest.fixture(params=["ours", "torch", "checkpoints"])
def path(request, monkeypatch):
    """Runs with every way to do without all logits, whichever this device has; returns a setter of the chunk."""
    ways = {"torch": cross_entropy.by_torch, "checkpoints": cross_entropy.by_checkpoints}

    def use(chunk_rows: int) -> None:
        if request.param == "ours":
            monkeypatch.setattr(cross_entropy, "CHUNK_ROWS_CPU", chunk_rows)
        else:
            way = ways[request.param]
            monkeypatch.setattr(translation, "cross_entropy_sum", lambda *values: way(*values, chunk_rows))

    use(CHUNK_ROWS)
    return use


def random_case(tokens: int, width: int = 16, vocabulary: int = 50, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, width, generator=generator)
    weight = torch.randn(vocabulary, width, generator=generator) * 0.5 + 0.1
    targets = torch.randint(vocabulary, (tokens,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), targets


def full_loss(hidden, weight, targets, label_smoothing):
    """All logits at once, in float64; gives value and gradients."""
    hidden, weight = (tensor.detach().double().requires_grad_() for tensor in (hidden, weight))
    loss = nn.functional.cross_entropy(hidden @ weight.T, targets, label_smoothing=label_smoothing, reduction="sum")
    loss.backward()
    return loss.detach(), hidden.grad, weight.grad


def test_two_tokens_by_hand(path):
    hidden = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    # logits: (1, 0, 1) and (0, 2, 2); targets: the first and the second word
    output = TranslationObjective(label_smoothing=0.1)(hidden, weight, torch.tensor([0, 1]))
    first, second = log(exp(1) + exp(0) + exp(1)), log(exp(0) + exp(2) + exp(2))
    nll = (first - 1) + (second - 2)
    smooth = ((first - 1) + (first - 0) + (first - 1)) / 3 + ((second - 0) + (second - 2) + (second - 2)) / 3
    assert output.components["nll"].item() == pytest.approx(nll)
    assert output.loss.item() == pytest.approx(0.9 * nll + 0.1 * smooth)
    assert output.components["loss"].item() == output.loss.item()
    plain = TranslationObjective(label_smoothing=0.0)(hidden, weight, torch.tensor([0, 1]))
    assert plain.loss.item() == pytest.approx(nll)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize(("tokens", "chunk_rows"), [(1, 512), (40, 512), (40, 7), (21, 7), (1100, 512)])
def test_value_and_gradients_equal_cross_entropy(path, label_smoothing, tokens, chunk_rows):
    path(chunk_rows)
    hidden, weight, targets = random_case(tokens)
    output = TranslationObjective(label_smoothing=label_smoothing)(hidden, weight, targets)
    output.loss.backward()
    loss, hidden_gradient, weight_gradient = full_loss(hidden, weight, targets, label_smoothing)
    assert output.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(hidden.grad.double(), hidden_gradient, atol=2e-6, rtol=1e-4)
    torch.testing.assert_close(weight.grad.double(), weight_gradient, atol=2e-5 * tokens**0.5, rtol=1e-4)
    nll, _, _ = full_loss(hidden, weight, targets, 0.0)
    assert output.components["nll"].item() == pytest.approx(nll.item(), rel=1e-5)


def test_gradients_scale_with_the_factor_of_the_loss(path):
    """The trainer divides the sum by its count before it calls backward."""
    hidden, weight, targets = random_case(30)
    (TranslationObjective()(hidden, weight, targets).loss * (0.5 / 30)).backward()
    _, hidden_gradient, weight_gradient = full_loss(hidden, weight, targets, 0.1)
    torch.testing.assert_close(hidden.grad.double(), hidden_gradient * 0.5 / 30, atol=1e-7, rtol=1e-4)
    torch.testing.assert_close(weight.grad.double(), weight_gradient * 0.5 / 30, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("path", ["checkpoints"], indirect=True)
def test_no_more_logits_than_one_chunk_with_checkpoints(path, monkeypatch):
    path(7)
    shapes, original = [], nn.functional.cross_entropy

    def recorded(logits, *arguments, **keywords):
        shapes.append(tuple(logits.shape))
        return original(logits, *arguments, **keywords)

    monkeypatch.setattr(nn.functional, "cross_entropy", recorded)
    TranslationObjective()(*random_case(17)).loss.backward()
    assert shapes[:3] == [(7, 50), (7, 50), (3, 50)]
    assert sorted(shapes[3:]) == sorted(shapes[:3])  # made again for the backward pass, not kept


@pytest.mark.parametrize("hidden_dtype", [torch.bfloat16, torch.float32])
def test_bfloat16_autocast_is_close(path, hidden_dtype):
    hidden, weight, targets = random_case(64)
    states = hidden.to(hidden_dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = TranslationObjective()(states, weight, targets)
    output.loss.backward()
    loss, hidden_gradient, weight_gradient = full_loss(hidden, weight, targets, 0.1)
    assert output.loss.dtype == torch.float32
    assert output.loss.item() == pytest.approx(loss.item(), rel=1e-2)
    for gradient, expected in ((hidden.grad, hidden_gradient), (weight.grad, weight_gradient)):
        assert gradient.dtype == torch.float32
        assert (gradient - expected).norm() < 0.03 * expected.norm()


def test_count_is_tokens_or_sentences():
    sizes = BatchSizes(rows=6, languages=3, directions=4, target_tokens=131, tokens=150)
    assert TranslationObjective(reduction="mean").count(sizes) == 131
    assert TranslationObjective(reduction="sum").count(sizes) == 6 * 4


def test_defaults_are_those_of_the_thesis():
    objective = OBJECTIVES["translation"]()
    assert (objective.weight, objective.label_smoothing, objective.reduction) == (0.5, 0.1, "mean")
    assert objective.needs_decoder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": "none"}, "'none' is unknown; choose one of mean, sum"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0 must be at least 0 and below 1"),
        ({"label_smoothing": -0.1}, "label_smoothing=-0.1 must be"),
        ({"row_share": 0.0}, "row_share=0.0 must be above 0 and at most 1"),
        ({"row_share": 1.5}, "row_share=1.5 must be above 0"),
        ({"sampled_vocabulary": 0}, "sampled_vocabulary=0 must be at least 1, or null"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        TranslationObjective(**options)


# ---- A sample of the vocabulary


def test_a_sample_by_hand(path, monkeypatch):
    """Of six entries the targets 0 and 3 compete with what is drawn: 5, 3 and 5 again, so with 5 alone."""
    hidden = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    weight = torch.tensor([[1.0, 0.0], [9.0, 9.0], [9.0, 9.0], [0.0, 1.0], [9.0, 9.0], [1.0, 1.0]])
    draws = []

    def drawn(high, size, **options):
        draws.append((high, size))
        return torch.tensor([5, 3, 5])

    monkeypatch.setattr(torch, "randint", drawn)
    objective = TranslationObjective(label_smoothing=0.1, sampled_vocabulary=3)
    output = objective(hidden, weight, torch.tensor([0, 3]))
    # logits over entries 0, 3, 5: (1, 0, 1) and (0, 2, 2)
    first, second = log(exp(1) + exp(0) + exp(1)), log(exp(0) + exp(2) + exp(2))
    nll = (first - 1) + (second - 2)
    smooth = ((first - 1) + (first - 0) + (first - 1)) / 3 + ((second - 0) + (second - 2) + (second - 2)) / 3
    assert draws == [(6, (3,))]
    assert output.components["nll"].item() == pytest.approx(nll)
    assert output.loss.item() == pytest.approx(0.9 * nll + 0.1 * smooth)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_a_seeded_sample_equals_cross_entropy_over_it(path, label_smoothing):
    hidden, weight, targets = random_case(12, vocabulary=300)
    torch.manual_seed(4)
    entries = sorted(set(targets.tolist()) | set(torch.randint(300, (20,)).tolist()))
    assert 20 < len(entries) < 40
    objective = TranslationObjective(label_smoothing=label_smoothing, sampled_vocabulary=20)
    torch.manual_seed(4)
    output = objective(hidden, weight, targets)
    output.loss.backward()
    places = torch.tensor([entries.index(target) for target in targets.tolist()])
    loss, hidden_gradient, rows_gradient = full_loss(hidden, weight[entries], places, label_smoothing)
    assert output.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(hidden.grad.double(), hidden_gradient, atol=2e-6, rtol=1e-4)
    expected = torch.zeros(300, 16, dtype=torch.double)
    expected[entries] = rows_gradient
    torch.testing.assert_close(weight.grad.double(), expected, atol=1e-5, rtol=1e-4)  # of the others, nothing
    other = objective(hidden, weight, targets).loss  # drawn anew
    assert other.item() != output.loss.item()


@pytest.mark.parametrize("sampled", [3, 49, 50, 1000])
def test_a_sample_of_all_entries_is_no_sample(path, sampled):
    """As the targets are all there are, or so many are asked for."""
    hidden, weight, _ = random_case(50)
    targets = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    output = TranslationObjective(sampled_vocabulary=sampled)(hidden, weight, targets)
    output.loss.backward()
    loss, hidden_gradient, weight_gradient = full_loss(hidden, weight, targets, 0.1)
    assert output.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(hidden.grad.double(), hidden_gradient, atol=2e-6, rtol=1e-4)
    torch.testing.assert_close(weight.grad.double(), weight_gradient, atol=1e-4, rtol=1e-4)


def test_in_evaluation_nothing_is_sampled(path):
    hidden, weight, targets = random_case(10)
    state = torch.get_rng_state()
    loss = TranslationObjective(sampled_vocabulary=2).eval()(hidden, weight, targets).loss
    assert torch.equal(loss, TranslationObjective()(hidden, weight, targets).loss)
    assert torch.equal(torch.get_rng_state(), state)
    sampled = TranslationObjective(sampled_vocabulary=2)(hidden, weight, targets).loss
    assert sampled < 0.9 * loss  # fewer to compete with


def test_a_sample_under_autocast(path):
    hidden, weight, targets = random_case(64, vocabulary=300)
    objective = TranslationObjective(sampled_vocabulary=30)
    losses = []
    for enabled in (False, True):
        torch.manual_seed(2)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            losses.append(objective(hidden.to(torch.bfloat16) if enabled else hidden, weight, targets).loss)
    assert losses[1].dtype == torch.float32
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-2)


def test_without_gradients_none_are_computed(monkeypatch):
    products = []
    original = cross_entropy.linear
    monkeypatch.setattr(cross_entropy, "linear", lambda *values: products.append(1) or original(*values))
    hidden, weight, targets = random_case(10)
    with torch.no_grad():
        cross_entropy.cross_entropy_sum(hidden, weight, targets)
    assert len(products) == 1
    cross_entropy.cross_entropy_sum(hidden, weight, targets)
    assert len(products) == 1 + 3
