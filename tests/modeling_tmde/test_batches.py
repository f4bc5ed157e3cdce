"""In every family, a vector depends on its text alone: not on padding, its side, batch or order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import PreTrainedModel

from tests.modeling_tmde.families import ROWS, filled, padded
from tests.test_goldens import FAMILIES

EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)
TOKENS = st.lists(st.integers(3, 59), max_size=9).map(lambda ids: [0, *ids, 2])
LANGUAGE_ID = st.integers(0, 1)
TEXTS = st.lists(st.tuples(LANGUAGE_ID, TOKENS), min_size=1, max_size=5)


def batch_of(
    texts: list[tuple[int, list[int]]], model: PreTrainedModel, **options
) -> dict[str, torch.Tensor]:
    """A batch of texts, each with its language id."""
    batch = padded([ids for _, ids in texts], model=model, **options)
    if "language_ids" in batch:
        batch["language_ids"] = torch.tensor([language_id for language_id, _ in texts])
    return batch


@EVERY_FAMILY
@settings(max_examples=8, deadline=None)
@given(
    texts=TEXTS, extra=st.integers(0, 6), side=st.sampled_from(["left", "right"]), data=st.data()
)
def test_a_vector_depends_on_its_text_alone(family, texts, extra, side, data):
    model = filled(family)
    encoder = model.base_model
    texts = data.draw(st.permutations(texts))
    alone = []
    with torch.no_grad():
        for text in texts:
            alone.append(encoder(**batch_of([text], model)).pooler_output)
        together = encoder(**batch_of(texts, model, side=side, extra=extra))
    alone = torch.cat(alone)
    size = max(1.0, float(alone.abs().max()))
    torch.testing.assert_close(together.pooler_output / size, alone / size, atol=1e-5, rtol=0)
    assert torch.equal(together.last_hidden_state[:, 0], together.pooler_output)


@EVERY_FAMILY
def test_ids_at_padding_and_gaps_play_no_part(family):
    """A gap is what token dropout leaves: its token is not read."""
    model = filled(family)
    inputs = padded(model=model)
    inputs["attention_mask"][2, 3] = 0
    is_token = inputs["attention_mask"].bool()
    changed = inputs | {"input_ids": inputs["input_ids"].where(is_token, 17)}
    with torch.no_grad():
        expected = model.base_model(**inputs).pooler_output
        vectors = model.base_model(**changed).pooler_output
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=0)


@EVERY_FAMILY
def test_pooled_only_gives_the_same_vector(family):
    model = filled(family)
    inputs = padded(side="left", model=model)
    with torch.no_grad():
        expected = model.base_model(**inputs).pooler_output
        output = model.base_model(**inputs, pooled_only=True)
    torch.testing.assert_close(output.pooler_output, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(output.last_hidden_state[:, 0], output.pooler_output)


# ---- Wrong inputs

SOME_FAMILIES = pytest.mark.parametrize("family", ["first", "laser", "encoder-mean", "adapted-cls"])
LANGUAGE_FAMILIES = pytest.mark.parametrize("family", ["ntdv", "aligned-bag"])


@SOME_FAMILIES
def test_missing_inputs_are_named(family):
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        filled(family).base_model()


@SOME_FAMILIES
def test_a_mask_of_another_shape_is_named(family):
    encoder = filled(family).base_model
    message = r"attention_mask \(1, 2\) must be \(batch, length\) of the input, \(1, 6\)"
    with pytest.raises(ValueError, match=message):
        encoder(torch.tensor(ROWS[:1]), torch.ones(1, 2))


@pytest.mark.parametrize("family", ["laser", "ntdv", "aligned-bilstm"])
def test_a_text_without_tokens_is_named(family):
    model = filled(family)
    inputs = padded(model=model)
    inputs["attention_mask"][2] = 0
    with pytest.raises(ValueError, match="Text . of the batch has no token"):
        model.base_model(**inputs)


@pytest.mark.parametrize("family", ["bag", "aligned-bag", "aligned-bilstm"])
def test_vectors_in_place_of_ids_are_refused(family):
    model = filled(family)
    with pytest.raises(ValueError, match="takes input_ids only"):
        model.base_model(inputs_embeds=torch.zeros(1, 3, 16))


@LANGUAGE_FAMILIES
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"give language_ids \(batch,\), positions in its languages \['de', 'en'\]"),
        ({"language_ids": torch.tensor([0, 1])}, r"language_ids \(2,\) must be \(1,\)"),
        ({"language_ids": torch.tensor([2])}, r"language id 2 .* this model has \['de', 'en'\]"),
        ({"language": "xx"}, "language: found 'xx', expected one of"),
    ],
    ids=["missing", "too-many", "unknown-id", "unknown-code"],
)
def test_wrong_languages_are_named(family, options, message):
    encoder = filled(family).base_model
    with pytest.raises(ValueError, match=message):
        encoder(torch.tensor(ROWS[:1]), **options)


@LANGUAGE_FAMILIES
def test_a_code_is_the_same_as_its_id(family):
    encoder = filled(family).base_model
    ids = torch.tensor(ROWS[:1])
    by_code = encoder(ids, language="en").pooler_output
    by_id = encoder(ids, language_ids=torch.tensor([1])).pooler_output
    assert torch.equal(by_code, by_id)


# ---- Other ways to compute


def processor_autocasts_lstms() -> bool:
    """Return whether torch's own LSTM runs under autocast, which older processors cannot."""
    lstm = nn.LSTM(2, 2)
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            lstm(torch.zeros(1, 1, 2))
    except RuntimeError:
        return False
    return True


def least_cosine(vectors: torch.Tensor, exact: torch.Tensor) -> float:
    return float(nn.functional.cosine_similarity(vectors.float(), exact).min())


@EVERY_FAMILY
def test_bfloat16_weights_are_near(family):
    model = filled(family)
    inputs = padded(side="left", model=model)
    with torch.no_grad():
        exact = model.base_model(**inputs).pooler_output
        half = model.to(torch.bfloat16).base_model(**inputs).pooler_output
    assert half.dtype == torch.bfloat16
    assert least_cosine(half, exact) > 0.99


@EVERY_FAMILY
def test_bfloat16_autocast_is_near(family):
    model = filled(family)
    has_lstm = any(isinstance(module, nn.LSTM) for module in model.modules())
    if has_lstm and not processor_autocasts_lstms():
        pytest.skip("torch has no autocast of an LSTM on this processor")
    inputs = padded(side="left", model=model)
    with torch.no_grad():
        exact = model.base_model(**inputs).pooler_output
        with torch.autocast("cpu", torch.bfloat16):
            mixed = model.base_model(**inputs).pooler_output
    assert least_cosine(mixed, exact) > 0.99


def without_dropout(family: str) -> PreTrainedModel:
    """A model in training mode that drops nothing."""
    model = filled(family).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def gradients_of(model: PreTrainedModel, family: str) -> dict[str, torch.Tensor]:
    """The gradients of the loss of the whole model."""
    inputs = padded()
    if family.startswith("encoder"):
        loss = model(**inputs, labels=inputs["input_ids"]).loss
    else:
        labels = torch.tensor([[12, 13, 2], [14, 2, -100], [15, 2, -100], [16, 17, 2]])
        loss = model(**inputs, labels=labels, target_language="en").loss
    loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("change", ["eager", "checkpointing"])
@pytest.mark.parametrize(
    "family", ["first", "pyramid", "dual", "first-bag", "encoder-mean", "adapted-cls"]
)
def test_eager_attention_and_gradient_checkpointing_change_no_gradient(family, change):
    expected = gradients_of(without_dropout(family), family)
    model = without_dropout(family)
    if change == "eager":
        model.set_attn_implementation("eager")
    else:
        model.gradient_checkpointing_enable()
    gradients = gradients_of(model, family)
    for name, gradient in expected.items():
        assert gradient is not None, name
        torch.testing.assert_close(gradients[name], gradient, atol=1e-5, rtol=1e-4, msg=name)
