"""NTDV: a float64 loop over every gate and head, routing by language, padding, checkpoints, and what learns."""

import numpy as np
import pytest
import torch

from modeling_tmde import NtdvConfig, NtdvForConditionalGeneration, NtdvModel
from tests.modeling_tmde.families import padded

LANGUAGES = ["de", "en", "es"]
SIZES = {"vocab_size": 40, "embedding_dim": 5, "d_model": 6, "attention_heads": 3}


def ntdv(seed: int = 0, **changes) -> NtdvForConditionalGeneration:
    torch.manual_seed(seed)
    options = SIZES | {"languages": LANGUAGES, "pivot_languages": ["en", "es"]} | changes
    return NtdvForConditionalGeneration(NtdvConfig(**options)).eval()


TEXTS = [[0, 7, 12, 30, 2], [0, 5, 2], [0, 9, 9, 33, 21, 8, 2], [0, 39, 2]]
TEXT_LANGUAGES = torch.tensor([0, 1, 2, 1])


# ---- An independent loop


def weights_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().double().numpy() for name, value in module.state_dict().items()}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max())
    return exponentials / exponentials.sum()


def run_gru(
    weights: dict[str, np.ndarray], vectors: list[np.ndarray], start: np.ndarray, suffix: str = ""
) -> list:
    """One step after the other: reset and update gate, candidate, and the mix of old and new."""
    state, states, width = start, [], len(start)
    for vector in vectors:
        given = weights["weight_ih_l0" + suffix] @ vector + weights["bias_ih_l0" + suffix]
        kept = weights["weight_hh_l0" + suffix] @ state + weights["bias_hh_l0" + suffix]
        reset = sigmoid(given[:width] + kept[:width])
        update = sigmoid(given[width : 2 * width] + kept[width : 2 * width])
        candidate = np.tanh(given[2 * width :] + reset * kept[2 * width :])
        state = (1 - update) * candidate + update * state
        states.append(state)
    return states


def reference_encoder(
    model: NtdvModel, ids: list[int], language: str
) -> tuple[np.ndarray, np.ndarray]:
    """The columns p_1 ... p_r (r, d_model) and the memory (length, d_model) of one text, eq. 3.1 and 3.2."""
    config, weights = model.config, weights_of(model.encoders[language])
    vectors = [weights_of(model.embed_tokens)["weight"][token] for token in ids]
    nothing = np.zeros(config.d_model // 2)
    forth = run_gru(weights, vectors, nothing)
    back = run_gru(weights, vectors[::-1], nothing, "_reverse")[::-1]
    states = [np.concatenate(pair) for pair in zip(forth, back, strict=True)]
    if not config.shared_layers:
        return np.mean(states, axis=0)[None], np.stack(states)
    z = run_gru(weights_of(model.shared.gru), states, np.zeros(config.d_model))
    attention, width, columns, heads = (
        weights_of(model.shared.self_attention),
        config.d_model,
        [],
        [],
    )
    for head in range(config.attention_heads):
        part = slice(head * width, (head + 1) * width)
        query, key, value = (
            [attention[f"{name}_proj.weight"][part] @ state for state in z]
            for name in ("q", "k", "v")
        )
        outputs = []
        for asking in query:
            shares = softmax(np.array([asking @ asked / np.sqrt(width) for asked in key]))
            outputs.append(sum(share * one for share, one in zip(shares, value, strict=True)))
        heads.append(np.stack(outputs))  # U_i, (length, d_model)
        columns.append(heads[-1].mean(axis=0))
    memory = np.concatenate(heads, axis=1) @ weights_of(model.shared.projection)["weight"].T
    return np.stack(columns), memory


def reference_decoder(
    model: NtdvForConditionalGeneration, ids: list[int], memory: np.ndarray, language: str
):
    weights = weights_of(model.decoder.decoders[language])
    gru = {
        name.removeprefix("gru."): value
        for name, value in weights.items()
        if name.startswith("gru.")
    }
    vectors = [weights_of(model.decoder.embed_tokens)["weight"][token] for token in ids]
    start = np.tanh(weights["start.weight"] @ memory.mean(axis=0) + weights["start.bias"])
    outputs = []
    for state in run_gru(gru, vectors, start):
        query = weights["attention.weight"] @ state
        shares = softmax(memory @ query / np.sqrt(len(state)))
        joined = np.concatenate([state, shares @ memory])
        outputs.append(np.tanh(weights["readout.weight"] @ joined + weights["readout.bias"]))
    return np.stack(outputs)


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ({}, 6),
        ({"vector": "concat"}, 18),
        ({"shared_layers": False}, 6),
        ({"shared_layers": False, "vector": "concat"}, 6),
    ],
)
def test_encoder_equals_a_plain_loop(options, width):
    model = ntdv(**options).model
    outputs = model(**padded(TEXTS), language_ids=TEXT_LANGUAGES)
    assert outputs.pooler_output.shape == (4, width) and model.config.hidden_size == width
    assert torch.equal(outputs.last_hidden_state, outputs.pooler_output[:, None])
    for row, ids in enumerate(TEXTS):
        columns, memory = reference_encoder(model, ids, LANGUAGES[TEXT_LANGUAGES[row]])
        embedding = columns.flatten() if width == 18 else columns.sum(axis=0)
        for found, expected in (
            (outputs.pooler_output[row], embedding),
            (outputs.context[row], columns.flatten()),
            (outputs.memory[row, : len(ids)], memory),
        ):
            np.testing.assert_allclose(found.detach().numpy(), expected, atol=2e-6)
        assert not outputs.memory[row, len(ids) :].any()
        assert np.abs(memory).max() > 0.01  # something to compare


@pytest.mark.parametrize("shared", [True, False])
def test_decoder_equals_a_plain_loop(shared):
    model = ntdv(shared_layers=shared)
    source = model.model(**padded(TEXTS, side="left"), language_ids=TEXT_LANGUAGES)
    targets, languages = (
        [[0, 8, 30, 4], [0, 5], [0, 11, 11], [0, 6, 7, 8]],
        torch.tensor([1, 2, 1, 2]),
    )
    ids = padded(targets)["input_ids"]
    options = {
        "embedding": source.pooler_output,
        "language_ids": languages,
        "encoder_hidden_states": source.memory,
        "encoder_attention_mask": padded(TEXTS, side="left")["attention_mask"],
    }
    states = model.decoder(ids, **options).last_hidden_state
    assert states.shape == (4, 4, 5)
    for row, target in enumerate(targets):
        _, memory = reference_encoder(model.model, TEXTS[row], LANGUAGES[TEXT_LANGUAGES[row]])
        expected = reference_decoder(model, target, memory, LANGUAGES[languages[row]])
        np.testing.assert_allclose(states[row, : len(target)].detach().numpy(), expected, atol=2e-6)
