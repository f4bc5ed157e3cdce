"""Losses on tokens: translation, language modeling, and the unified generative task."""

import itertools
import math
from math import exp, log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from modeling_tmde.configuration_encoder import TmdeEncoderConfig
from modeling_tmde.modeling_encoder import TmdeEncoderForMaskedLM
from tmde.training.objectives import (
    BatchSizes,
    CausalLanguageModel,
    MaskedLanguageModel,
    TranslationLanguageModel,
    TranslationObjective,
    UnifiedGenerativeTask,
    cross_entropy,
)
from tmde.training.objectives.masking import Masked, random_tokens
from tmde.training.objectives.translation_lm import neighbors

CONFIG = TmdeEncoderConfig(vocab_size=50, d_model=8, encoder_attention_heads=2)


def random_case(tokens: int, width: int = 16, vocabulary: int = 50):
    """Decoder states, an output projection and targets."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, width, generator=generator)
    weight = torch.randn(vocabulary, width, generator=generator) * 0.5 + 0.1
    targets = torch.randint(vocabulary, (tokens,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), targets


def full_loss(hidden, weight, targets, label_smoothing):
    """Return torch's loss over all logits at once, in float64, and its two gradients."""
    hidden = hidden.detach().double().requires_grad_()
    weight = weight.detach().double().requires_grad_()
    loss = nn.functional.cross_entropy(
        hidden @ weight.T, targets, label_smoothing=label_smoothing, reduction="sum"
    )
    loss.backward()
    return loss.detach(), hidden.grad, weight.grad


# ---- Mixed precision


@pytest.mark.parametrize("objective", [TranslationObjective(), MaskedLanguageModel()])
def test_autocast_decides_the_type_of_the_projection(objective, monkeypatch):
    """On CUDA, a LayerNorm returns float32 under autocast; the projection is in bfloat16."""
    types = set()

    def record(ctx, hidden, weight, targets, chunk_rows):
        types.update((hidden.dtype, weight.dtype))
        return compute(ctx, hidden, weight, targets, chunk_rows)

    compute = cross_entropy.ChunkedCrossEntropy.forward
    monkeypatch.setattr(cross_entropy.ChunkedCrossEntropy, "forward", staticmethod(record))
    hidden, weight, targets = random_case(20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = nn.functional.layer_norm(hidden, (16,)).float()
        loss = objective(states, weight, targets).loss
    loss.backward()
    assert types == {torch.bfloat16}
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32
    expected = objective(nn.functional.layer_norm(hidden, (16,)), weight, targets).loss
    assert loss.item() == pytest.approx(expected.item(), rel=0.01)


# ---- Translation


def test_two_tokens_by_hand():
    hidden = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    # logits: (1, 0, 1) and (0, 2, 2); targets: the first and the second word
    output = TranslationObjective(label_smoothing=0.1)(hidden, weight, torch.tensor([0, 1]))
    first = log(exp(1) + exp(0) + exp(1))
    second = log(exp(0) + exp(2) + exp(2))
    nll = (first - 1) + (second - 2)
    smooth = ((first - 1) + (first - 0) + (first - 1)) / 3 + (
        (second - 0) + (second - 2) + (second - 2)
    ) / 3
    assert output.components["nll"].item() == pytest.approx(nll)
    assert output.loss.item() == pytest.approx(0.9 * nll + 0.1 * smooth)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("tokens", "chunk_rows"), [(1, 512), (40, 7), (1100, 512)])
def test_value_and_gradients_equal_cross_entropy(label_smoothing, tokens, chunk_rows, monkeypatch):
    monkeypatch.setattr(cross_entropy, "CHUNK_ROWS_CPU", chunk_rows)
    hidden, weight, targets = random_case(tokens)
    output = TranslationObjective(label_smoothing=label_smoothing)(hidden, weight, targets)
    (output.loss * 0.5).backward()
    loss, hidden_gradient, weight_gradient = full_loss(hidden, weight, targets, label_smoothing)
    assert output.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(hidden.grad.double(), 0.5 * hidden_gradient, atol=2e-6, rtol=1e-4)
    torch.testing.assert_close(
        weight.grad.double(), 0.5 * weight_gradient, atol=2e-5 * tokens**0.5, rtol=1e-4
    )


def test_logits_are_held_one_chunk_at_a_time(monkeypatch):
    """The thesis's 50,000 entries and a batch of 8k tokens are 1.6 GB of logits in fp32."""
    shapes = []
    softmax = torch.Tensor.log_softmax

    def recorded(logits, **options):
        shapes.append(tuple(logits.shape))
        return softmax(logits, **options)

    monkeypatch.setattr(torch.Tensor, "log_softmax", recorded)
    monkeypatch.setattr(cross_entropy, "CHUNK_ROWS_CPU", 7)
    TranslationObjective()(*random_case(17)).loss.backward()
    assert shapes == [(7, 50), (7, 50), (3, 50)]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_a_sampled_vocabulary_equals_cross_entropy_over_it(label_smoothing):
    hidden, weight, targets = random_case(12, vocabulary=300)
    torch.manual_seed(4)
    entries = sorted(set(targets.tolist()) | set(torch.randint(300, (20,)).tolist()))
    objective = TranslationObjective(label_smoothing=label_smoothing, sampled_vocabulary=20)
    torch.manual_seed(4)
    output = objective(hidden, weight, targets)
    output.loss.backward()
    places = torch.tensor(list(map(entries.index, targets.tolist())))
    loss, hidden_gradient, rows_gradient = full_loss(
        hidden, weight[entries], places, label_smoothing
    )
    assert output.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(hidden.grad.double(), hidden_gradient, atol=2e-6, rtol=1e-4)
    expected = torch.zeros(300, 16, dtype=torch.double)
    expected[entries] = rows_gradient
    torch.testing.assert_close(weight.grad.double(), expected, atol=1e-5, rtol=1e-4)
    assert objective(hidden, weight, targets).loss.item() != output.loss.item()  # It draws again.
    # Evaluation and a sample of everything are the loss over all entries.
    everything = TranslationObjective(label_smoothing=label_smoothing)(hidden, weight, targets).loss
    assert torch.equal(objective.eval()(hidden, weight, targets).loss, everything)


# ---- Masked language modeling


def batch(
    lengths: list[list[int]], seed: int = 0, vocabulary: int = 50
) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts `<s> tokens </s>` of (languages, rows) lengths, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor(lengths)[..., None]
    width = int(sizes.max()) + 3
    columns = torch.arange(width).expand(*sizes.shape[:2], width)
    ids = torch.randint(5, vocabulary, columns.shape, generator=generator)
    ids = (
        ids.masked_fill(columns == 0, 0)
        .masked_fill(columns == sizes - 1, 2)
        .masked_fill(columns >= sizes, 1)
    )
    return ids, (columns < sizes).long()


def sizes_of(mask: torch.Tensor) -> BatchSizes:
    return BatchSizes(
        rows=mask.shape[1],
        languages=len(mask),
        directions=1,
        target_tokens=1,
        tokens=int(mask.sum()),
    )


LENGTHS = st.integers(1, 4).flatmap(
    lambda rows: st.lists(
        st.lists(st.integers(2, 12), min_size=rows, max_size=rows), min_size=2, max_size=4
    )
)


@settings(max_examples=30, deadline=None)
@given(
    lengths=LENGTHS,
    share=st.sampled_from([0.15, 0.5, 1.0]),
    seed=st.integers(0, 1000),
    pairs=st.booleans(),
)
def test_as_many_tokens_are_hidden_as_counted_and_no_special_ones(lengths, share, seed, pairs):
    ids, mask = batch(lengths, seed)
    objective = MaskedLanguageModel(share=share)
    if pairs:
        objective = TranslationLanguageModel(share=share)
    count = objective.count(sizes_of(mask))
    torch.manual_seed(seed)

    masked = objective.mask(ids, mask, CONFIG)

    if pairs:
        ids = joined_with_neighbors(ids)
        mask = joined_with_neighbors(mask)
        assert torch.equal(mask.flatten(0, 1), masked.attention_mask)
    flat_ids = ids.flatten()
    shown = masked.input_ids.flatten()
    assert len(masked.places) == len(masked.places.unique()) == count
    assert torch.equal(flat_ids[masked.places], masked.targets)
    assert (masked.targets >= 5).all()
    assert mask.flatten()[masked.places].all()
    assert {0, 1, 2}.isdisjoint(shown[masked.places].tolist())
    is_other = torch.ones_like(flat_ids, dtype=torch.bool).index_fill(0, masked.places, False)
    assert torch.equal(shown[is_other], flat_ids[is_other])


def joined_with_neighbors(texts: torch.Tensor) -> torch.Tensor:
    """Return (pairs, rows, 2 * length) of texts (languages, rows, length)."""
    pairs = []
    for first, second in neighbors(len(texts)):
        pairs.append(torch.cat([texts[first], texts[second]], dim=-1))
    return torch.stack(pairs)


def test_four_fifths_are_masked_a_tenth_replaced_and_a_tenth_left():
    ids, mask = batch([[1002] * 20, [502] * 20])
    torch.manual_seed(0)
    masked = MaskedLanguageModel(share=0.5).mask(ids, mask, CONFIG)
    number = len(masked.places)
    shown = masked.input_ids.flatten()[masked.places]
    assert number == 15000
    assert (shown == 4).float().mean().item() == pytest.approx(
        0.8, abs=5 * math.sqrt(0.16 / number)
    )
    # Of those replaced, one in 46 gets the token that was there.
    left = (shown == masked.targets).float().mean().item()
    assert left == pytest.approx(0.1 + 0.1 / 46, abs=5 * math.sqrt(0.09 / number))
    longer = (masked.places < ids[0].numel()).float().mean().item()
    assert longer == pytest.approx(2 / 3, abs=5 * math.sqrt(2 / 9 / number))
    counts = torch.bincount(random_tokens(46000, CONFIG, torch.device("cpu")), minlength=50)
    assert counts[[0, 1, 2, 4]].sum() == 0
    assert (counts[torch.tensor([3, *range(5, 50)])] - 1000).abs().max() < 5 * 1000**0.5


def test_tokens_are_chosen_by_their_frequency():
    """Draw from rows of 100 tokens of one type and 100 that are each of another.

    With a power of 0.5, the chances of the rare tokens to those of the frequent ones are 10 : 1.
    """
    begin = torch.tensor([0])
    end = torch.tensor([2])
    row = torch.cat([begin, torch.full((100,), 5), torch.arange(6, 106), end])
    ids = row.expand(1, 400, -1)
    config = TmdeEncoderConfig(vocab_size=200, d_model=8, encoder_attention_heads=2)
    objective = MaskedLanguageModel(share=0.001, frequency_power=0.5)
    torch.manual_seed(0)

    masked = objective.mask(ids, torch.ones_like(ids), config)

    assert len(masked.targets) == 80
    # Each of the frequent tokens weighs 1 / sqrt(40000), the others 1 / sqrt(400).
    frequent = (masked.targets == 5).float().mean().item()
    assert frequent == pytest.approx(1 / 11, abs=5 * (10 / 11**2 / 80) ** 0.5)


def test_causal_language_model():
    """Each place predicts the next token of its text, from states that do not depend on it."""
    config = TmdeEncoderConfig(
        vocab_size=50, d_model=8, encoder_layers=2, encoder_attention_heads=2, causal=True
    )
    ids = torch.tensor([[[0, 7, 8, 2], [0, 9, 2, 1]]])
    mask = (ids != 1).long()
    objective = CausalLanguageModel()
    masked = objective.mask(ids, mask, config)
    assert masked.places.tolist() == [0, 1, 2, 4, 5]
    assert masked.targets.tolist() == [7, 8, 2, 9, 2]
    assert objective.count(sizes_of(mask)) == 5
    assert torch.equal(masked.input_ids, ids)
    model = TmdeEncoderForMaskedLM(config).eval()
    states = model.model(ids[0], mask[0]).token_states
    changed = model.model(ids[0].index_fill(1, torch.tensor([2]), 30), mask[0]).token_states
    assert torch.equal(states[0, :2], changed[0, :2])
    assert not torch.allclose(states[0, 2], changed[0, 2])
    padded_ids = nn.functional.pad(ids[0], (3, 0), value=1)
    padded_mask = nn.functional.pad(mask[0], (3, 0), value=0)
    alone = model.model(ids[0], mask[0]).pooler_output
    left = model.model(padded_ids, padded_mask).pooler_output
    assert torch.allclose(alone, left, atol=1e-6)
    objective.check_config(config)
    config.causal = False
    with pytest.raises(ValueError, match="set model.causal=true"):
        objective.check_config(config)


def test_masked_tokens_by_hand():
    """Two states over a vocabulary of three, whose logits are (2, 0, 0) and (0, 1, 3)."""
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    hidden = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    output = MaskedLanguageModel()(hidden, weight, torch.tensor([0, 1]))
    assert output.loss.item() == pytest.approx(0.239545 + 2.169846, abs=1e-5)


def test_the_loss_of_no_token_is_0():
    no_targets = torch.zeros(0, dtype=torch.long)
    output = MaskedLanguageModel()(torch.zeros(0, 2), torch.ones(3, 2), no_targets)
    assert output.loss.item() == 0


def test_a_model_without_a_mask_token_cannot_hide_tokens():
    config = TmdeEncoderConfig(
        vocab_size=50, d_model=8, encoder_attention_heads=2, mask_token_id=None
    )
    with pytest.raises(ValueError, match="mask_token_id=None, expected the id"):
        MaskedLanguageModel().mask(*batch([[5]]), config)


@pytest.mark.parametrize(
    "objective",
    [UnifiedGenerativeTask(task="xtr"), MaskedLanguageModel(mask_share=0, random_share=1)],
)
def test_a_loss_that_hides_nothing_needs_no_mask_token(objective):
    config = TmdeEncoderConfig(
        vocab_size=50, d_model=8, encoder_attention_heads=2, mask_token_id=None
    )
    ids, mask = batch([[5, 4], [6, 3]])
    masked = objective.mask(ids, mask, config)
    assert masked.input_ids.shape == ids.shape


def test_translations_are_joined_and_positions_begin_again():
    ids = torch.tensor([[[0, 7, 8, 2]], [[0, 9, 2, 1]]])
    mask = torch.tensor([[[1, 1, 1, 1]], [[1, 1, 1, 0]]])
    pairs = TranslationLanguageModel(share=1, mask_share=1, random_share=0).mask(ids, mask, CONFIG)
    assert pairs.input_ids.tolist() == [[0, 4, 4, 2, 0, 4, 2, 1]]
    assert pairs.targets.tolist() == [7, 8, 9]
    assert pairs.attention_mask.tolist() == [[1, 1, 1, 1, 1, 1, 1, 0]]
    assert pairs.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3]]
    assert neighbors(2) == [(0, 1)]
    assert neighbors(3) == [(0, 1), (1, 2), (2, 0)]


# ---- Unified generative task


def label(other_ids: list[int], hidden_token: int | None) -> dict[int, float]:
    """Return q of a text that predicts another one, as probabilities by token.

    Args:
        other_ids: The tokens of the other text.
        hidden_token: The token of the predicting text that was hidden; None if none was.
    """
    words = set(other_ids) - {0, 1, 2, 4}
    if not words:
        words = set(other_ids) - {1}
    q = dict.fromkeys(words, 1 / len(words))
    if hidden_token is not None:
        q = dict.fromkeys(words, 0.5 / len(words))
        q[hidden_token] = q.get(hidden_token, 0.0) + 0.5
    return q


def log_probabilities(hidden: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
    """Return the logs of the softmax over the vocabulary, in float64, entry by entry."""
    exponentials = []
    for entry in weight.double():
        exponentials.append((hidden.double() * entry).sum().exp())
    total = sum(exponentials)
    return [(exponential / total).log() for exponential in exponentials]


def hidden_tokens(masked: Masked, shape: torch.Size) -> dict[int, tuple[int, int]]:
    """Return the language and the token that is hidden in each row, by row."""
    _, rows, length = shape
    tokens = {}
    for place, token in zip(masked.places.tolist(), masked.targets.tolist(), strict=True):
        language, row = divmod(place // length, rows)
        tokens[row] = (language, token)
    return tokens


def unified_reference(hidden, weight, masked: Masked, input_ids, task: str) -> torch.Tensor:
    """Return `sum KL(q || p)` over every ordered pair of texts of a row."""
    languages, rows, _ = input_ids.shape
    hidden_by_row = hidden_tokens(masked, input_ids.shape)
    loss = 0 * (hidden.sum() + weight.sum()).double()  # It has a gradient if nothing is hidden.
    for row in range(rows):
        hidden_language, hidden_token = hidden_by_row.get(row, (None, None))
        for a, b in itertools.permutations(range(languages), 2):
            q = label(input_ids[b, row].tolist(), hidden_token if a == hidden_language else None)
            if task == "smlm":
                q = {} if hidden_token is None else {hidden_token: 1.0}
            log_p = log_probabilities(hidden[a, row], weight)
            for token, probability in q.items():
                loss = loss + probability * (math.log(probability) - log_p[token])
    return loss


def test_one_pair_by_hand():
    """`<s> 5 6 </s>` with 5 hidden, and `<s> 7 8 </s>`, over a vocabulary of ten.

    The first predicts 7 and 8 with 1/4 each, and 5 with 1/2 (eq. 4); the second 5 and 6 with 1/2
    each (eq. 3). The logits are 0 for all tokens but 7, which has 2, and 0 for all but 5, which has
    1.
    """
    ids = torch.tensor([[[0, 5, 6, 2]], [[0, 7, 8, 2]]])
    weight = torch.zeros(10, 2)
    weight[7, 0] = 1.0
    weight[5, 1] = 1.0
    hidden = torch.tensor([[[2.0, 0.0]], [[0.0, 1.0]]])
    shown = ids.clone()
    shown[0, 0, 1] = 4
    masked = Masked(shown, torch.tensor([1]), torch.tensor([5]), ids > 2)
    output = UnifiedGenerativeTask()(hidden, weight, masked, ids, torch.ones_like(ids))
    first = -math.log(4) / 2 - math.log(2) / 2 - (2 / 4) + math.log(9 + math.exp(2))
    second = -math.log(2) - (1 / 2) + math.log(9 + math.e)
    assert output.loss.item() == pytest.approx(first + second, rel=1e-5)
    assert output.loss.item() == pytest.approx(2.524896, abs=1e-5)


@settings(max_examples=15, deadline=None)
@given(
    lengths=LENGTHS,
    task=st.sampled_from(["ugt", "xtr", "smlm"]),
    vocabulary=st.sampled_from([9, 50]),  # Of few entries, texts share and repeat tokens.
    seed=st.integers(0, 1000),
)
def test_unified_task_equals_a_plain_loop(lengths, task, vocabulary, seed):
    ids, mask = batch(lengths, seed, vocabulary)
    torch.manual_seed(seed)
    objective = UnifiedGenerativeTask(task=task)
    masked = objective.mask(ids, mask, CONFIG)
    hidden = torch.randn(*ids.shape[:2], 8, requires_grad=True)
    weight = torch.randn(50, 8, requires_grad=True)
    output = objective(hidden, weight, masked, ids, mask)
    expected = unified_reference(hidden, weight, masked, ids, task)
    assert task != "xtr" or torch.equal(masked.input_ids, ids)
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-4, atol=1e-4)
    gradients = torch.autograd.grad(output.loss, (hidden, weight))
    expected_gradients = torch.autograd.grad(expected, (hidden, weight))
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 1000))
def test_one_token_of_every_row_is_hidden(lengths, seed):
    ids, mask = batch(lengths, seed)
    torch.manual_seed(seed)
    masked = UnifiedGenerativeTask().mask(ids, mask, CONFIG)
    changed = masked.input_ids != ids
    assert torch.equal(changed.flatten().nonzero().squeeze(1), masked.places)
    is_content = (ids >= 5) & mask.bool()
    rows_with_content = is_content.any(dim=2).any(dim=0)
    assert torch.equal(changed.sum(dim=(0, 2)), rows_with_content.long())
    assert is_content[changed].all()
