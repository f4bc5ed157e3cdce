"""Every transformer computes the same with each implementation of attention."""

import pytest
import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from modeling_tmde import LaserModel
from tests.modeling_tmde.families import ROWS, SEQ2SEQ, filled, padded
from tests.test_goldens import FAMILIES

TRANSFORMERS = [
    *("first", "pyramid", "full", "dual", "first-bag"),
    *("encoder-mean", "encoder-first", "adapted-cls"),
]
LABELS = torch.tensor([[12, 13, 44, 2], [14, 2, -100, -100]] * 2)


def with_attention(family: str, implementation: str) -> PreTrainedModel:
    """Return a model whose parts all have an implementation, even if it is not installed."""
    model = filled(family)
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            module.config._attn_implementation = implementation
    return model


def results(model: PreTrainedModel, side: str) -> dict[str, torch.Tensor]:
    """Return what a model computes of a padded batch."""
    inputs = padded(side=side)
    encoder = model.base_model
    with torch.no_grad():
        outputs = {
            "vectors": encoder(**inputs).pooler_output,
            "pooled": encoder(**inputs, pooled_only=True).pooler_output,
            "unpadded": encoder(torch.tensor([ROWS[0]])).last_hidden_state,
        }
        if hasattr(model, "decoder"):
            inputs["target_language"] = "en"
            outputs["loss"] = model(**inputs, labels=LABELS).loss
            outputs["written"] = model.generate(**inputs, max_new_tokens=4)
    return outputs


def flash_attention(module, query, key, value, attention_mask, is_causal=None, **options):
    """Compute what flash attention does, with its rules for masks, by PyTorch's own function."""
    length = query.shape[2]
    key_length = key.shape[2]
    is_causal = module.is_causal if is_causal is None else is_causal
    if attention_mask is not None:
        assert attention_mask.shape == (len(query), key_length)
        # It cuts the mask of the queries out of that of the keys, from the right.
        assert length in (1, key_length)
        attention_mask = attention_mask.bool()[:, None, None, :].expand(-1, -1, length, -1)
        if is_causal and length > 1:
            attention_mask = attention_mask.tril()
    output, _ = sdpa_attention_forward(
        module, query, key, value, attention_mask, is_causal=is_causal and length > 1, **options
    )
    return output, None


@pytest.fixture
def flash(monkeypatch):
    """The name of flash attention, for which a function on the CPU is called."""
    name = "flash_attention_2"
    monkeypatch.setitem(AttentionInterface._global_mapping, name, flash_attention)
    return name


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", TRANSFORMERS)
def test_flash_attention_gets_what_it_can_read(family, side, flash):
    torch.testing.assert_close(
        results(with_attention(family, flash), side), results(filled(family), side)
    )


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", TRANSFORMERS)
def test_flex_attention_computes_the_same(family, side):
    # Compiling a kernel takes a minute on a CPU.
    with torch.compiler.set_stance("force_eager"):
        flexible = results(with_attention(family, "flex_attention"), side)
    torch.testing.assert_close(flexible, results(filled(family), side), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_transformers_may_choose_flex_and_flash_attention(family):
    model = filled(family)
    model.set_attn_implementation("flex_attention")
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            assert module.config._attn_implementation == "flex_attention"
    with pytest.raises(ImportError, match="FlashAttention2"):
        model.set_attn_implementation("flash_attention_2")


def test_recurrent_models_refuse_an_implementation_of_attention():
    with pytest.raises(ValueError, match="LaserModel does not support"):
        LaserModel._from_config(filled("laser").config, attn_implementation="flex_attention")


# ---- Several texts in one row

PACKED = [
    ("first", "sdpa"),
    ("first", "eager"),
    ("full", "sdpa"),
    ("encoder-first", "sdpa"),
    ("encoder-first", "eager"),
    ("adapted-cls", "sdpa"),
    ("adapted-cls", "eager"),
]
FIRST, SECOND, THIRD = ROWS[0], ROWS[2], ROWS[3]


def packed_batch(dtype=torch.bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, mask of pairs, and positions of two rows: two texts, and one with padding."""
    length = len(FIRST) + len(SECOND)
    rows = [FIRST + SECOND, THIRD + [1] * (length - len(THIRD))]
    positions = torch.zeros(2, length, dtype=torch.long)
    positions[0] = torch.tensor([*range(len(FIRST)), *range(len(SECOND))])
    positions[1, : len(THIRD)] = torch.arange(len(THIRD))
    mask = torch.zeros(2, 1, length, length, dtype=torch.bool)
    mask[0, :, : len(FIRST), : len(FIRST)] = True
    mask[0, :, len(FIRST) :, len(FIRST) :] = True
    mask[1, :, :, : len(THIRD)] = True  # Padding may see a text.
    if dtype != torch.bool:
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
    return torch.tensor(rows), mask, positions


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
@pytest.mark.parametrize(("family", "implementation"), PACKED)
def test_packed_texts_have_the_states_of_each_text_alone(family, implementation, dtype):
    model = with_attention(family, implementation).base_model
    ids, mask, positions = packed_batch(dtype)
    with torch.no_grad():
        packed = model(ids, mask, position_ids=positions)
        alone = [model(torch.tensor([row])) for row in (FIRST, SECOND, THIRD)]
    second_start = len(FIRST)
    torch.testing.assert_close(packed.pooler_output[:1], alone[0].pooler_output)
    torch.testing.assert_close(packed.pooler_output[1:], alone[2].pooler_output)
    states = packed.last_hidden_state
    torch.testing.assert_close(states[:1, :second_start], alone[0].last_hidden_state)
    torch.testing.assert_close(states[:1, second_start:], alone[1].last_hidden_state)
    torch.testing.assert_close(states[1:, : len(THIRD)], alone[2].last_hidden_state)


@pytest.mark.parametrize("pooled_only", [True, False])
@pytest.mark.parametrize("family", ["first", "pyramid", "full", "encoder-mean", "adapted-mean"])
def test_the_embedding_of_a_packed_row_is_that_of_its_first_text(family, pooled_only):
    model = filled(family).base_model
    ids, mask, positions = packed_batch()
    vectors = model(ids, mask, position_ids=positions, pooled_only=pooled_only).pooler_output
    for vector, row in zip(vectors, (FIRST, THIRD), strict=True):
        torch.testing.assert_close(vector, model(torch.tensor([row])).pooler_output[0])


def test_a_causal_encoder_takes_packed_texts():
    model = FAMILIES["encoder-mean"](causal=True).eval()
    ids, mask, positions = packed_batch()
    vectors = model.base_model(ids, mask.tril(), position_ids=positions).pooler_output
    expected = model.base_model(torch.tensor([FIRST])).pooler_output
    torch.testing.assert_close(vectors[:1], expected)


@pytest.mark.parametrize("family", ["first", "full", "dual", "adapted-cls"])
def test_the_first_text_of_a_packed_row_is_decoded(family):
    model = filled(family)
    ids, mask, positions = packed_batch()
    labels = torch.tensor([[12, 13, 2], [14, 15, 2]])
    inputs = {"labels": labels, "target_language": "en"}
    packed = model(ids, mask, position_ids=positions, **inputs).logits
    alone = model(**padded([FIRST, THIRD]), **inputs).logits
    torch.testing.assert_close(packed, alone)


@pytest.mark.parametrize("family", ["first", "encoder-mean", "adapted-cls"])
def test_masks_of_pairs_that_do_not_fit_are_named(family, flash):
    model = with_attention(family, "sdpa").base_model
    ids, mask, positions = packed_batch()
    num_heads = model.config.num_attention_heads
    shape = rf"must be \(batch, 1 or {num_heads}, length, length\)"
    for wrong in (mask[..., :-1], mask.expand(-1, 3, -1, -1), mask[:, :0]):
        with pytest.raises(ValueError, match=shape):
            model(ids, wrong, position_ids=positions)
    with pytest.raises(ValueError, match=r"found torch.int64, expected torch.bool"):
        model(ids, mask.long(), position_ids=positions)
    model = with_attention(family, flash).base_model
    with pytest.raises(ValueError, match="attn_implementation='flash_attention_2' reads masks"):
        model(ids, mask, position_ids=positions)


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_masks_of_pairs_need_positions(family):
    ids, mask, _ = packed_batch()
    with pytest.raises(ValueError, match="position_ids: found none, expected the position of"):
        filled(family).base_model(ids, mask)


@pytest.mark.parametrize("family", ["first", "pyramid", "encoder-first", "adapted-cls"])
def test_a_mask_of_pairs_may_differ_between_heads(family):
    model = filled(family).base_model
    ids, mask, positions = packed_batch()
    num_heads = model.config.num_attention_heads
    expected = model(ids, mask, position_ids=positions).pooler_output
    by_head = model(ids, mask.expand(-1, num_heads, -1, -1), position_ids=positions)
    torch.testing.assert_close(by_head.pooler_output, expected)


BOTTLENECKS = ["first", "pyramid", "full", "dual", "encoder-first", "adapted-cls"]


@pytest.mark.parametrize(
    ("implementation", "dtype", "pooled_only"),
    [
        ("eager", torch.float32, False),
        ("sdpa", torch.float32, True),
        ("sdpa", torch.bfloat16, False),
    ],
)
@pytest.mark.parametrize("family", BOTTLENECKS)
def test_a_row_of_infinite_summands_gives_numbers(family, implementation, dtype, pooled_only):
    """Padding that sees nothing, as masks of pairs often have it."""
    model = with_attention(family, implementation).base_model.to(dtype)
    ids, mask, positions = packed_batch()
    mask[1, :, len(THIRD) :] = False
    summand = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    inputs = {"position_ids": positions, "pooled_only": pooled_only}
    outputs = model(ids, summand.to(dtype), **inputs)
    assert outputs.last_hidden_state.isfinite().all()
    expected = model(ids, mask, **inputs).pooler_output
    torch.testing.assert_close(outputs.pooler_output, expected)
    outputs.pooler_output.float().pow(2).sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_infinite_summands_stay_finite_under_autocast(implementation):
    model = with_attention("first", implementation).base_model
    ids, mask, positions = packed_batch()
    mask[1, :, len(THIRD) :] = False
    summand = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(ids, summand, position_ids=positions)
    assert outputs.last_hidden_state.isfinite().all()


def test_a_bag_refuses_packed_texts():
    ids, mask, positions = packed_batch()
    with pytest.raises(ValueError, match="with bag_residual=True a row can't"):
        filled("first-bag").base_model(ids, mask, position_ids=positions)


@pytest.mark.parametrize("family", ["laser", "ntdv", "bag", "aligned-bag"])
def test_models_without_attention_refuse_masks_of_pairs(family):
    model = filled(family).base_model
    inputs = padded(model=model)
    mask = torch.ones(len(ROWS), 1, 8, 8, dtype=torch.bool)
    with pytest.raises(
        ValueError, match=r"attention_mask \(4, 1, 8, 8\) must be \(batch, length\)"
    ):
        model(**inputs | {"attention_mask": mask})


# ---- Positions


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_positions_that_are_given_are_used(family):
    model = filled(family).base_model
    ids = torch.tensor([ROWS[0], ROWS[0]])
    counted = torch.arange(len(ROWS[0]))[None]
    plain = model(ids).pooler_output
    torch.testing.assert_close(model(ids, position_ids=counted).pooler_output, plain)
    reversed_positions = counted.flip(1).expand(2, -1)
    assert (model(ids, position_ids=reversed_positions).pooler_output - plain).abs().max() > 1e-3


@pytest.mark.parametrize("family", [name for name in TRANSFORMERS if name in SEQ2SEQ])
def test_positions_of_the_source_do_not_move_the_target(family):
    model = filled(family)
    inputs = padded([ROWS[0]]) | {"labels": LABELS[:1], "target_language": "en"}
    counted = torch.arange(len(ROWS[0]))[None]
    torch.testing.assert_close(model(**inputs, position_ids=counted).loss, model(**inputs).loss)


@pytest.mark.parametrize("family", ["first", "adapted-cls"])
def test_positions_that_do_not_fit_are_named(family):
    model = filled(family)
    ids = torch.tensor([[0, 7, 2]])
    with pytest.raises(ValueError, match=r"position_ids: found 32, expected 0 to 31"):
        model.model(ids, position_ids=torch.tensor([[0, 32, 2]]))
    with pytest.raises(ValueError, match=r"position_ids \(1, 2\) must be \(batch, length\)"):
        model.model(ids, position_ids=torch.tensor([[0, 1]]))
