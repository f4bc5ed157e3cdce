"""In every family, a vector depends on its text alone: not on padding, its side, the batch or the order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.modeling_tmde.families import ROWS, filled, padded
from tests.test_goldens import FAMILIES

TEXTS = st.lists(
    st.tuples(
        st.integers(0, 1), st.lists(st.integers(3, 59), max_size=9).map(lambda ids: [0, *ids, 2])
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=8, deadline=None)
@given(
    texts=TEXTS, extra=st.integers(0, 6), side=st.sampled_from(["left", "right"]), data=st.data()
)
def test_a_vector_depends_on_its_text_alone(family, texts, extra, side, data):
    model = filled(family)
    body, order = model.base_model, data.draw(st.permutations(range(len(texts))))

    def inputs(chosen: list[int], **options) -> dict[str, torch.Tensor]:
        batch = padded([texts[i][1] for i in chosen], model=model, **options)
        if "language_ids" in batch:
            batch["language_ids"] = torch.tensor([texts[i][0] for i in chosen])
        return batch

    with torch.no_grad():
        alone = torch.cat([body(**inputs([i])).pooler_output for i in order])
        together = body(**inputs(order, side=side, extra=extra))
    size = max(1.0, float(alone.abs().max()))
    torch.testing.assert_close(together.pooler_output / size, alone / size, atol=1e-5, rtol=0)
    assert torch.equal(together.last_hidden_state[:, 0], together.pooler_output)


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_at_padding_and_gaps_play_no_part(family):
    """A gap is what token dropout leaves: its token is not read."""
    model = filled(family)
    inputs = padded(model=model)
    inputs["attention_mask"][2, 3] = 0
    with torch.no_grad():
        expected = model.base_model(**inputs).pooler_output
        inputs["input_ids"] = torch.where(inputs["attention_mask"].bool(), inputs["input_ids"], 17)
        torch.testing.assert_close(
            model.base_model(**inputs).pooler_output, expected, atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("family", ["first", "laser", "encoder-mean", "adapted-cls"])
def test_wrong_inputs_are_named(family):
    body = filled(family).base_model
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        body()
    with pytest.raises(
        ValueError,
        match=r"attention_mask \(1, 2\) must be \(batch, length\) of the input, \(1, 6\)",
    ):
        body(torch.tensor(ROWS[:1]), torch.ones(1, 2))
    if family == "laser":
        with pytest.raises(ValueError, match="ext . of the batch has no token"):
            body(torch.tensor(ROWS[:1]), torch.zeros(1, 6))


@pytest.mark.parametrize("family", ["ntdv", "aligned-bag"])
def test_wrong_languages_are_named(family):
    body, ids = filled(family).base_model, torch.tensor(ROWS[:1])
    for options, message in (
        (
            {},
            r"give language_ids \(batch,\), positions in its languages \['de', 'en'\], or language=",
        ),
        ({"language_ids": torch.tensor([0, 1])}, r"language_ids \(2,\) must be \(1,\)"),
        ({"language_ids": torch.tensor([2])}, r"language id 2 .* this model has \['de', 'en'\]"),
        ({"language": "xx"}, "language: found 'xx', expected one of"),
    ):
        with pytest.raises(ValueError, match=message):
            body(ids, **options)
    assert torch.equal(body(ids, language="en")[1], body(ids, language_ids=torch.tensor([1]))[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_is_near(family):
    model = filled(family)
    inputs = padded(side="left", model=model)
    with torch.no_grad():
        exact = model.base_model(**inputs).pooler_output
        with torch.autocast("cpu", torch.bfloat16):
            mixed = model.base_model(**inputs).pooler_output
        half = model.to(torch.bfloat16).base_model(**inputs).pooler_output
    assert half.dtype == torch.bfloat16
    for vectors in (mixed, half):
        assert torch.nn.functional.cosine_similarity(vectors.float(), exact).min() > 0.99


@pytest.mark.parametrize(
    "family", ["first", "pyramid", "dual", "first-bag", "encoder-mean", "adapted-cls"]
)
def test_eager_attention_and_gradient_checkpointing_change_no_gradient(family):
    gradients = []
    for change in ("", "eager", "checkpointing"):
        model = filled(family).train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        if change == "eager":
            model.set_attn_implementation("eager")
        if change == "checkpointing":
            model.gradient_checkpointing_enable()
        labels = torch.tensor([[12, 13, 2], [14, 2, -100], [15, 2, -100], [16, 17, 2]])
        if family.startswith("encoder"):
            loss = model(**padded(), labels=padded()["input_ids"]).loss
        else:
            loss = model(**padded(), labels=labels, target_language="en").loss
        loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    assert all(gradient is not None for gradient in gradients[0].values())
    for other in gradients[1:]:
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(other[name], gradient, atol=1e-5, rtol=1e-4, msg=name)
