"""The LSTM family: equal to plain float64 loops, whatever the padding; the published sizes."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from modeling_tmde.configuration_laser import LaserConfig
from modeling_tmde.modeling_laser import LaserForConditionalGeneration, LaserModel, LaserState
from tests.conftest import jittered
from tests.modeling_tmde.families import padded

PAPER_001 = {
    "encoder_layers": 2,
    "unidirectional_layers": 1,
    "pooling": "mean",
    "language_signal": "start_token",
}
VARIANTS = {
    "laser_1": {"encoder_layers": 1},
    "laser_3": {"encoder_layers": 3},
    "paper_001": PAPER_001,
}
# Of thesis 004, table 3.6.
VARIANTS |= {
    "lstm_last": {"encoder_layers": 1, "unidirectional_layers": 1, "pooling": "last"},
    "bigru_last": {"encoder_layers": 2, "cell": "gru", "pooling": "last"},
    "inner_attention": {"encoder_layers": 1, "pooling": "attention", "attention_views": 4},
    "hconvnet": {"encoder_layers": 4, "cell": "conv"},
}
ROWS = [[0, 7, 7, 300, 2], [0, 2], [0, 9, 2], [0, *range(20, 29), 2]]


def tiny(name: str = "laser_3", seed: int = 0, **changes) -> LaserForConditionalGeneration:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 400, "d_model": 16, "embedding_dim": 12, "decoder_hidden_size": 20}
    options = sizes | {"language_embedding_dim": 4, "dropout": 0.0} | VARIANTS[name] | changes
    return jittered(LaserForConditionalGeneration(LaserConfig(**options)).eval(), 0.2)


# ---- Plain loops


def numpy_lstm(
    layer: nn.LSTM, inputs: np.ndarray, suffix: str = "", hidden=None, cell=None
) -> np.ndarray:
    """One text (length, width) -> (length, hidden_size), a step at a time in float64 (gates i, f, g, o)."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    w_ih, w_hh, b_ih, b_hh = (
        getattr(layer, name + suffix).detach().double().numpy() for name in names
    )
    hidden = np.zeros(layer.hidden_size) if hidden is None else hidden
    cell = np.zeros(layer.hidden_size) if cell is None else cell
    outputs = []
    for vector in inputs:
        i, f, g, o = np.split(w_ih @ vector + b_ih + w_hh @ hidden + b_hh, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        hidden = o * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs)


def numpy_gru(layer: nn.GRU, inputs: np.ndarray, suffix: str = "") -> np.ndarray:
    """As `numpy_lstm` (gates r, z, n)."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    w_ih, w_hh, b_ih, b_hh = (
        getattr(layer, name + suffix).detach().double().numpy() for name in names
    )
    outputs = [np.zeros(layer.hidden_size)]
    for vector in inputs:
        (r, z, n), (hr, hz, hn) = (
            np.split(w_ih @ vector + b_ih, 3),
            np.split(w_hh @ outputs[-1] + b_hh, 3),
        )
        r, z = 1 / (1 + np.exp(-r - hr)), 1 / (1 + np.exp(-z - hz))
        outputs.append((1 - z) * np.tanh(n + r * hn) + z * outputs[-1])
    return np.stack(outputs[1:])


def numpy_conv(layer: nn.Conv1d, inputs: np.ndarray) -> np.ndarray:
    weight, bias = (parameter.detach().double().numpy() for parameter in (layer.weight, layer.bias))
    around = np.pad(inputs, ((1, 1), (0, 0)))
    sums = [
        sum(weight[:, :, k] @ around[place + k] for k in range(3)) for place in range(len(inputs))
    ]
    return np.maximum(np.stack(sums) + bias, 0)


def numpy_states(model: LaserModel, row: list[int]) -> list[np.ndarray]:
    """Token vectors and the states of every layer, (length, width)."""
    states = [model.embed_tokens.weight.detach().double().numpy()[row]]
    run = {"lstm": numpy_lstm, "gru": numpy_gru, "conv": numpy_conv}[model.config.cell]
    for layer in model.layers:
        forth = run(layer, states[-1])
        if getattr(layer, "bidirectional", False):
            back = run(layer, states[-1][::-1], "_reverse")[::-1]
            forth = np.concatenate([forth, back], axis=1)
        states.append(forth)
    return states


def numpy_embedding(model: LaserModel, row: list[int]) -> np.ndarray:
    states, pooling = numpy_states(model, row), model.config.pooling
    if model.config.cell == "conv":
        return np.concatenate([state.max(axis=0) for state in states[1:]])
    if pooling == "last":
        size = model.layers[-1].hidden_size
        return np.concatenate([states[-1][-1, :size], states[-1][0, size:]])
    if pooling == "attention":
        weight, bias = (
            each.detach().double().numpy()
            for each in (model.attention.weight, model.attention.bias)
        )
        views = []
        for context in model.contexts.weight.detach().double().numpy():
            shares = np.exp([context @ np.tanh(weight @ state + bias) for state in states[-1]])
            views.append(shares @ states[-1] / shares.sum())
        return np.concatenate(views)
    return states[-1].max(axis=0) if pooling == "max" else states[-1].sum(axis=0) / len(row)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_encoder_equals_a_plain_loop(name, side):
    model = tiny(name).model
    batch = padded(ROWS, side, extra=2)
    with torch.no_grad():
        outputs = model(**batch, output_hidden_states=True)
    expected = np.stack([numpy_embedding(model, row) for row in ROWS])
    np.testing.assert_allclose(outputs.pooler_output.numpy(), expected, atol=2e-6)
    assert outputs.last_hidden_state.shape == (4, 1, 16)
    assert torch.equal(outputs.last_hidden_state[:, 0], outputs.pooler_output)
    assert len(outputs.hidden_states) == model.config.encoder_layers + 1
    for index, states in enumerate(outputs.hidden_states):
        parts = {"inner_attention": 4, "hconvnet": 4}.get(name, 1)
        assert states.shape == (4, 13, 12 if index == 0 else 16 // parts)
        for text, row in enumerate(ROWS):
            real = batch["attention_mask"][text].bool()
            np.testing.assert_allclose(
                states[text, real].numpy(), numpy_states(model, row)[index], atol=2e-6
            )
            assert index == 0 or not states[text, ~real].any()


@pytest.mark.parametrize("name", ["laser_1", "paper_001"])
def test_decoder_equals_a_plain_loop(name):
    model = tiny(name)
    decoder = model.decoder
    embedding, languages = torch.randn(4, 16), torch.tensor([1, 2, 4, 1])
    ids = padded(ROWS)["input_ids"]
    with torch.no_grad():
        states = decoder(ids, embedding, languages).last_hidden_state
    assert states.shape == (4, 11, 20)
    weights = {key: value.double().numpy() for key, value in decoder.state_dict().items()}
    for text, row in enumerate(ROWS):
        p, language = (
            embedding[text].double().numpy(),
            weights["embed_languages.weight"][languages[text]],
        )
        tokens = weights["embed_tokens.weight"][row]
        constant = [p, language]
        if name == "paper_001":
            tokens[0], constant = language, [p]
        inputs = np.stack([np.concatenate([token, *constant]) for token in tokens])
        hidden, cell = (
            weights[f"initial_{part}.weight"] @ p + weights[f"initial_{part}.bias"]
            for part in ("hidden", "cell")
        )
        expected = numpy_lstm(decoder.lstm, inputs, "", hidden, cell)
        np.testing.assert_allclose(states[text, : len(row)].numpy(), expected, atol=2e-6)


# ---- The state of the decoder


def read_prefix(model: LaserForConditionalGeneration, embedding: torch.Tensor) -> LaserState:
    """The state after `<s>` and token 7 of each text."""
    ids = torch.tensor([[0, 7]] * len(embedding))
    languages = torch.ones(len(embedding), dtype=torch.long)
    with torch.no_grad():
        return model.decoder(ids, embedding, languages, use_cache=True).past_key_values


@pytest.mark.parametrize("beams", [1, 3])
def test_generation_goes_on_from_a_state(beams):
    model = tiny()
    embedding = torch.randn(3, 16)
    options = {"target_language": "en", "max_new_tokens": 4, "do_sample": False, "num_beams": beams}
    options |= {"decoder_input_ids": torch.tensor([[0, 7, 9]] * 3), "encoder_outputs": embedding}
    options["decoder_attention_mask"] = torch.ones(
        3, 3
    )  # `generate` then leaves out the tokens read
    state = read_prefix(model, embedding)
    assert not state.is_compileable
    state.reorder_cache(torch.arange(3).repeat_interleave(beams))
    assert torch.equal(model.generate(**options, past_key_values=state), model.generate(**options))


def test_a_state_is_a_pytree():
    state = LaserState(torch.randn(1, 3, 20), torch.randn(1, 3, 20), 2)
    leaves, structure = pytree.tree_flatten(state)
    assert leaves[0] is state.hidden and leaves[1] is state.cell and len(leaves) == 2
    assert pytree.treespec_loads(pytree.treespec_dumps(structure)) == structure
    doubled = pytree.tree_map(lambda tensor: tensor.double(), state)
    assert (
        isinstance(doubled, LaserState)
        and doubled.length == 2
        and doubled.cell.dtype == torch.float64
    )
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(state)[0]]
    assert paths == [".hidden", ".cell"]
    stepped = torch.func.vmap(lambda part: pytree.tree_map(torch.neg, part), in_dims=1, out_dims=1)(
        state
    )
    assert torch.equal(stepped.hidden, -state.hidden) and stepped.length == 2


def test_a_decoder_is_exported_with_its_state():
    model = tiny()
    embedding = torch.randn(3, 16)
    state = read_prefix(model, embedding)
    arguments = (torch.tensor([[9], [9], [9]]), embedding, torch.ones(3, dtype=torch.long), state)
    program = torch.export.export(model.decoder, arguments, {"use_cache": True})
    with torch.no_grad():
        found = program.module()(*arguments, use_cache=True)
        expected = model.decoder(*arguments, use_cache=True)
    torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state)
    assert isinstance(found.past_key_values, LaserState) and found.past_key_values.length == 3
    torch.testing.assert_close(found.past_key_values.cell, expected.past_key_values.cell)
