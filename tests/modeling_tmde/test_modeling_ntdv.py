"""NTDV: equal to float64 loops over every gate and head, whatever the language and the padding."""

import numpy as np
import pytest
import torch

from modeling_tmde import NtdvConfig, NtdvForConditionalGeneration, NtdvModel
from modeling_tmde.modeling_ntdv import NtdvSelfAttention
from tests.modeling_tmde.families import padded
from tests.modeling_tmde.loops import gru_loop, softmax, weights_of

LANGUAGES = ["de", "en", "es"]
SIZES = {"vocab_size": 40, "embedding_dim": 5, "d_model": 6, "attention_heads": 3}
TEXTS = [[0, 7, 12, 30, 2], [0, 5, 2], [0, 9, 9, 33, 21, 8, 2], [0, 39, 2]]
TEXT_LANGUAGES = torch.tensor([0, 1, 2, 1])
VARIANTS = {
    "sum": {},
    "concat": {"vector": "concat"},
    "nmt": {"shared_layers": False},
    "nmt-concat": {"shared_layers": False, "vector": "concat"},
}
EVERY_VARIANT = pytest.mark.parametrize("name", VARIANTS)


def ntdv(name: str = "sum") -> NtdvForConditionalGeneration:
    torch.manual_seed(0)
    config = NtdvConfig(
        languages=LANGUAGES, pivot_languages=["en", "es"], **SIZES, **VARIANTS[name]
    )
    return NtdvForConditionalGeneration(config).eval()


# ---- Independent loops


def reference_encoder_states(model: NtdvModel, ids: list[int], language: str) -> np.ndarray:
    """The states of a language's own encoder, (length, d_model)."""
    vectors = weights_of(model.embed_tokens)["weight"][ids]
    weights = weights_of(model.encoders[language])
    forward = gru_loop(weights, vectors)
    backward = gru_loop(weights, vectors[::-1], "_reverse")[::-1]
    return np.concatenate([forward, backward], axis=1)


def reference_heads(attention: NtdvSelfAttention, states: np.ndarray) -> list[np.ndarray]:
    """U_1 ... U_r of eq. 3.1, (length, d_model) each."""
    weights = weights_of(attention)
    width = states.shape[1]
    heads = []
    for head in range(attention.heads):
        part = slice(head * width, (head + 1) * width)
        queries = states @ weights["q_proj.weight"][part].T
        keys = states @ weights["k_proj.weight"][part].T
        values = states @ weights["v_proj.weight"][part].T
        rows = [softmax(keys @ query / np.sqrt(width)) @ values for query in queries]
        heads.append(np.stack(rows))
    return heads


def reference_encoder(
    model: NtdvModel, ids: list[int], language: str
) -> tuple[np.ndarray, np.ndarray]:
    """The columns p_1 ... p_r (r, d_model) and the memory (length, d_model), eq. 3.1 and 3.2."""
    states = reference_encoder_states(model, ids, language)
    if not model.config.shared_layers:
        return states.mean(axis=0, keepdims=True), states
    z = gru_loop(weights_of(model.shared.gru), states)
    heads = reference_heads(model.shared.self_attention, z)
    columns = np.stack([head.mean(axis=0) for head in heads])
    projection = weights_of(model.shared.projection)["weight"]
    return columns, np.concatenate(heads, axis=1) @ projection.T


def reference_decoder(
    model: NtdvForConditionalGeneration, ids: list[int], memory: np.ndarray, language: str
) -> np.ndarray:
    """The outputs for target tokens, (length, embedding_dim)."""
    decoder = model.decoder.decoders[language]
    weights = weights_of(decoder)
    vectors = weights_of(model.decoder.embed_tokens)["weight"][ids]
    start = np.tanh(weights["start.weight"] @ memory.mean(axis=0) + weights["start.bias"])
    outputs = []
    for state in gru_loop(weights_of(decoder.gru), vectors, hidden=start):
        query = weights["attention.weight"] @ state
        shares = softmax(memory @ query / np.sqrt(len(state)))
        joined = np.concatenate([state, shares @ memory])
        outputs.append(np.tanh(weights["readout.weight"] @ joined + weights["readout.bias"]))
    return np.stack(outputs)


# ---- The encoder


@EVERY_VARIANT
def test_embedding_equals_a_plain_loop(name):
    model = ntdv(name).model
    width = 18 if name == "concat" else 6
    outputs = model(**padded(TEXTS), language_ids=TEXT_LANGUAGES)
    assert model.config.hidden_size == width
    assert outputs.pooler_output.shape == (4, width)
    assert torch.equal(outputs.last_hidden_state, outputs.pooler_output[:, None])
    for row, ids in enumerate(TEXTS):
        columns, _ = reference_encoder(model, ids, LANGUAGES[TEXT_LANGUAGES[row]])
        expected = columns.flatten() if name == "concat" else columns.sum(axis=0)
        vector = outputs.pooler_output[row].detach().numpy()
        np.testing.assert_allclose(vector, expected, atol=2e-6)


@EVERY_VARIANT
def test_context_and_memory_equal_a_plain_loop(name):
    model = ntdv(name).model
    outputs = model(**padded(TEXTS), language_ids=TEXT_LANGUAGES)
    for row, ids in enumerate(TEXTS):
        columns, memory = reference_encoder(model, ids, LANGUAGES[TEXT_LANGUAGES[row]])
        assert np.abs(memory).max() > 0.01  # There is something to compare.
        context = outputs.context[row].detach().numpy()
        np.testing.assert_allclose(context, columns.flatten(), atol=2e-6)
        slots = outputs.memory[row, : len(ids)].detach().numpy()
        np.testing.assert_allclose(slots, memory, atol=2e-6)
        assert not outputs.memory[row, len(ids) :].any()


def test_memory_is_left_out_if_only_the_embedding_is_needed():
    model = ntdv().model
    outputs = model(**padded(TEXTS), language_ids=TEXT_LANGUAGES, pooled_only=True)
    assert outputs.memory is None


# ---- The decoder


@pytest.mark.parametrize("name", ["sum", "nmt"])
def test_decoder_equals_a_plain_loop(name):
    model = ntdv(name)
    sources = padded(TEXTS, side="left")
    encoded = model.model(**sources, language_ids=TEXT_LANGUAGES)
    targets = [[0, 8, 30, 4], [0, 5], [0, 11, 11], [0, 6, 7, 8]]
    target_languages = torch.tensor([1, 2, 1, 2])
    states = model.decoder(
        padded(targets)["input_ids"],
        embedding=encoded.pooler_output,
        language_ids=target_languages,
        encoder_hidden_states=encoded.memory,
        encoder_attention_mask=sources["attention_mask"],
    ).last_hidden_state
    assert states.shape == (4, 4, 5)
    for row, target in enumerate(targets):
        _, memory = reference_encoder(model.model, TEXTS[row], LANGUAGES[TEXT_LANGUAGES[row]])
        expected = reference_decoder(model, target, memory, LANGUAGES[target_languages[row]])
        output = states[row, : len(target)].detach().numpy()
        np.testing.assert_allclose(output, expected, atol=2e-6)
