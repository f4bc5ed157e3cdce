"""The LSTM family: equal to plain float64 loops, whatever the padding."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from modeling_tmde.configuration_laser import LaserConfig
from modeling_tmde.modeling_laser import LaserForConditionalGeneration, LaserModel, LaserState
from tests.conftest import jittered
from tests.modeling_tmde.families import padded
from tests.modeling_tmde.loops import conv_loop, gru_loop, lstm_loop, softmax, weights_of

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
    # Conneau (2019), table 3.6.
    "lstm_last": {"encoder_layers": 1, "unidirectional_layers": 1, "pooling": "last"},
    "bigru_last": {"encoder_layers": 2, "cell": "gru", "pooling": "last"},
    "inner_attention": {"encoder_layers": 1, "pooling": "attention", "attention_views": 4},
    "hconvnet": {"encoder_layers": 4, "cell": "conv"},
    # Conneau (2019), section 3.3.3; the first layer has a residual connection if widths are equal.
    "gated_convnet": {"encoder_layers": 3, "cell": "gated_conv", "embedding_dim": 16},
    "gated_convnet_mean": {"encoder_layers": 2, "cell": "gated_conv", "pooling": "mean"},
}
EVERY_VARIANT = pytest.mark.parametrize("name", VARIANTS)
SIDES = pytest.mark.parametrize("side", ["right", "left"])
SIZES = {
    "vocab_size": 400,
    "d_model": 16,
    "embedding_dim": 12,
    "decoder_hidden_size": 20,
    "language_embedding_dim": 4,
    "dropout": 0.0,
}
ROWS = [[0, 7, 7, 300, 2], [0, 2], [0, 9, 2], [0, *range(20, 29), 2]]


def tiny(name: str = "laser_3") -> LaserForConditionalGeneration:
    torch.manual_seed(0)
    config = LaserConfig(**SIZES | VARIANTS[name])
    return jittered(LaserForConditionalGeneration(config).eval(), 0.2)


# ---- The encoder


def read_layer(layer: nn.Module, inputs: np.ndarray) -> np.ndarray:
    """Read a text (length, width) with one layer -> (length, width of the layer)."""
    weights = weights_of(layer)
    if isinstance(layer, nn.Conv1d):
        return np.maximum(conv_loop(weights, inputs), 0)
    loop = lstm_loop if isinstance(layer, nn.LSTM) else gru_loop
    forward = loop(weights, inputs)
    if not layer.bidirectional:
        return forward
    backward = loop(weights, inputs[::-1], "_reverse")[::-1]
    return np.concatenate([forward, backward], axis=1)


def reference_states(model: LaserModel, row: list[int]) -> list[np.ndarray]:
    """Token vectors and the states of every layer, (length, width)."""
    vectors = weights_of(model.embed_tokens)["weight"][row]
    if model.config.cell == "gated_conv":
        return gated_states(model, vectors)
    states = [vectors]
    for layer in model.layers:
        states.append(read_layer(layer, states[-1]))
    return states


def gated_states(model: LaserModel, vectors: np.ndarray) -> list[np.ndarray]:
    """The states of gated convolutions, on scaled token vectors plus positions."""
    length, width = vectors.shape
    half = width // 2
    positions = np.empty((length, width))
    for place in range(length):
        for step in range(half):
            angle = place / 10000 ** (step / (half - 1))
            positions[place, step] = np.sin(angle)
            positions[place, half + step] = np.cos(angle)
    states = [vectors * np.sqrt(width) + positions]
    for layer in model.layers:
        channels = conv_loop(weights_of(layer), states[-1])
        values = channels[:, :16]
        gates = channels[:, 16:]
        outputs = values / (1 + np.exp(-gates))
        if states[-1].shape[1] == 16:
            outputs = (states[-1] + outputs) / np.sqrt(2)
        states.append(outputs)
    states[0] = vectors
    return states


def reference_embedding(model: LaserModel, row: list[int]) -> np.ndarray:
    states = reference_states(model, row)
    last = states[-1]
    if model.config.cell == "conv":
        return np.concatenate([layer_states.max(axis=0) for layer_states in states[1:]])
    if model.config.pooling == "max":
        return last.max(axis=0)
    if model.config.pooling == "mean":
        return last.mean(axis=0)
    if model.config.pooling == "last":
        size = model.layers[-1].hidden_size
        return np.concatenate([last[-1, :size], last[0, size:]])
    return attended_states(model, last)


def attended_states(model: LaserModel, states: np.ndarray) -> np.ndarray:
    """One weighted mean of the states (length, width) for each context vector, joined."""
    attention = weights_of(model.attention)
    keys = np.tanh(states @ attention["weight"].T + attention["bias"])  # (length, width)
    views = []
    for context in weights_of(model.contexts)["weight"]:
        views.append(softmax(keys @ context) @ states)
    return np.concatenate(views)


@EVERY_VARIANT
@SIDES
def test_embedding_equals_a_plain_loop(name, side):
    model = tiny(name).model
    expected = np.stack([reference_embedding(model, row) for row in ROWS])
    with torch.no_grad():
        outputs = model(**padded(ROWS, side, extra=2))
    np.testing.assert_allclose(outputs.pooler_output.numpy(), expected, atol=2e-6)
    assert outputs.last_hidden_state.shape == (4, 1, 16)
    assert torch.equal(outputs.last_hidden_state[:, 0], outputs.pooler_output)
    assert outputs.hidden_states is None


@EVERY_VARIANT
@SIDES
def test_hidden_states_equal_a_plain_loop(name, side):
    model = tiny(name).model
    batch = padded(ROWS, side, extra=2)
    is_token = batch["attention_mask"].bool()
    with torch.no_grad():
        hidden_states = model(**batch, output_hidden_states=True).hidden_states
    assert len(hidden_states) == model.config.encoder_layers + 1
    for text, row in enumerate(ROWS):
        for states, expected in zip(hidden_states, reference_states(model, row), strict=True):
            np.testing.assert_allclose(states[text, is_token[text]].numpy(), expected, atol=2e-6)
    for states in hidden_states[1:]:
        assert not states[~is_token].any()


def test_an_embedding_of_gated_convolutions_depends_on_its_text_alone():
    """Eight layers see eight tokens to either side, and padding is on either side of the texts."""
    torch.manual_seed(0)
    settings = {"encoder_layers": 8, "cell": "gated_conv", "embedding_dim": 16}
    model = jittered(LaserModel(LaserConfig(**SIZES | settings)).eval(), 0.2)
    rows = [torch.randint(5, 400, (length,)).tolist() for length in (1, 2, 9, 30, 60)]
    with torch.no_grad():
        alone = [model(torch.tensor([row])).pooler_output[0] for row in rows]
        right = model(**padded(rows, "right", extra=7)).pooler_output
        left = model(**padded(rows[::-1], "left")).pooler_output.flip(0)
    torch.testing.assert_close(right, torch.stack(alone), atol=1e-5, rtol=0)
    torch.testing.assert_close(left, torch.stack(alone), atol=1e-5, rtol=0)


def test_gated_convolutions_know_the_order_of_words_and_their_places():
    model = tiny("gated_convnet").model
    texts = torch.tensor([[0, 7, 9, 2], [0, 9, 7, 2], [0, 7, 7, 2]])
    with torch.no_grad():
        vectors = model(texts).pooler_output
        repeated = model(torch.tensor([[7] * 9]), output_hidden_states=True).hidden_states[-1][0]
    assert (vectors[0] - vectors[1]).abs().max() > 1e-3
    # Without positions, the states of one word repeated would be equal far from both ends.
    assert (repeated[4] - repeated[3]).abs().max() > 1e-3


def test_a_gated_convnet_has_the_parameters_of_the_paper():
    """8 convolutions of 3 x 512 x 1,024 weights and 1,024 biases: the paper's 12 million."""
    config = LaserConfig(
        cell="gated_conv", encoder_layers=8, d_model=512, embedding_dim=512, vocab_size=400
    )
    with torch.device("meta"):
        model = LaserModel(config)
    layers = sum(parameter.numel() for parameter in model.layers.parameters())
    assert layers == 8 * (3 * 512 * 1024 + 1024) == 12_591_104
    assert model.num_parameters() == layers + 400 * 512


# ---- The decoder


@pytest.mark.parametrize("name", ["laser_1", "paper_001"])
def test_decoder_equals_a_plain_loop(name):
    decoder = tiny(name).decoder
    embeddings = torch.randn(4, 16)
    languages = [1, 2, 4, 1]
    input_ids = padded(ROWS)["input_ids"]
    with torch.no_grad():
        states = decoder(input_ids, embeddings, torch.tensor(languages)).last_hidden_state
    assert states.shape == (4, 11, 20)
    lstm_weights = weights_of(decoder.lstm)
    weights = weights_of(decoder)
    for text, row in enumerate(ROWS):
        embedding = embeddings[text].double().numpy()
        language = weights["embed_languages.weight"][languages[text]]
        vectors = weights["embed_tokens.weight"][row]
        constant = [embedding, language]
        if name == "paper_001":
            vectors[0] = language
            constant = [embedding]
        inputs = np.stack([np.concatenate([vector, *constant]) for vector in vectors])
        hidden = weights["initial_hidden.weight"] @ embedding + weights["initial_hidden.bias"]
        cell = weights["initial_cell.weight"] @ embedding + weights["initial_cell.bias"]
        expected = lstm_loop(lstm_weights, inputs, hidden=hidden, cell=cell)
        np.testing.assert_allclose(states[text, : len(row)].numpy(), expected, atol=2e-6)


# ---- The state of the decoder


def read_prefix(model: LaserForConditionalGeneration, embedding: torch.Tensor) -> LaserState:
    """The state after `<s>` and token 7 of each text."""
    ids = torch.tensor([[0, 7]] * len(embedding))
    languages = torch.ones(len(embedding), dtype=torch.long)
    with torch.no_grad():
        return model.decoder(ids, embedding, languages, use_cache=True).past_key_values


@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_goes_on_from_a_state(num_beams):
    model = tiny()
    embedding = torch.randn(3, 16)
    options = {
        "encoder_outputs": embedding,
        "target_language": "en",
        "max_new_tokens": 4,
        "do_sample": False,
        "num_beams": num_beams,
        "decoder_input_ids": torch.tensor([[0, 7, 9]] * 3),
        # With a mask, `generate` leaves out the tokens that the state has read.
        "decoder_attention_mask": torch.ones(3, 3),
    }
    expected = model.generate(**options)
    state = read_prefix(model, embedding)
    state.reorder_cache(torch.arange(3).repeat_interleave(num_beams))
    assert torch.equal(model.generate(**options, past_key_values=state), expected)


def random_state() -> LaserState:
    return LaserState(torch.randn(1, 3, 20), torch.randn(1, 3, 20), 2)


def test_a_state_is_not_compiled():
    assert not random_state().is_compileable


def test_a_state_has_two_tensors_as_leaves():
    state = random_state()
    leaves, _ = pytree.tree_flatten(state)
    assert len(leaves) == 2
    assert leaves[0] is state.hidden
    assert leaves[1] is state.cell
    keys_and_leaves, _ = pytree.tree_flatten_with_path(state)
    assert [pytree.keystr(path) for path, _ in keys_and_leaves] == [".hidden", ".cell"]


def test_the_structure_of_a_state_is_serialized():
    _, structure = pytree.tree_flatten(random_state())
    assert pytree.treespec_loads(pytree.treespec_dumps(structure)) == structure


def test_a_function_is_mapped_over_a_state():
    doubled = pytree.tree_map(lambda tensor: tensor.double(), random_state())
    assert isinstance(doubled, LaserState)
    assert doubled.length == 2
    assert doubled.hidden.dtype == torch.float64
    assert doubled.cell.dtype == torch.float64


def test_a_function_is_vectorized_over_a_state():
    def negative(state: LaserState) -> LaserState:
        return pytree.tree_map(torch.neg, state)

    state = random_state()
    mapped = torch.func.vmap(negative, in_dims=1, out_dims=1)(state)
    assert torch.equal(mapped.hidden, -state.hidden)
    assert mapped.length == 2


def test_a_decoder_is_exported_with_its_state():
    model = tiny()
    embedding = torch.randn(3, 16)
    state = read_prefix(model, embedding)
    arguments = (torch.tensor([[9], [9], [9]]), embedding, torch.ones(3, dtype=torch.long), state)
    program = torch.export.export(model.decoder, arguments, {"use_cache": True})
    with torch.no_grad():
        output = program.module()(*arguments, use_cache=True)
        expected = model.decoder(*arguments, use_cache=True)
    torch.testing.assert_close(output.last_hidden_state, expected.last_hidden_state)
    next_state = output.past_key_values
    assert isinstance(next_state, LaserState)
    assert next_state.length == 3
    torch.testing.assert_close(next_state.cell, expected.past_key_values.cell)
