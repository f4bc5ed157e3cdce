"""Translation language modelling: texts joined with their translations, tokens of both hidden."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.modeling_encoder import TmdeEncoderForMaskedLM
from modeling_tmde.training.objectives.base import BatchSizes, MaskedTokenObjective, PairMaskingObjective
from modeling_tmde.training.objectives.masked_lm import MaskedLanguageModel
from modeling_tmde.training.objectives.translation_lm import TranslationLanguageModel, neighbors
from modeling_tmde.training.recipe import load_recipe
from tests.training.test_masked_lm import CONFIG, batch, sizes_of, train_tiny


def test_kind():
    objective = TranslationLanguageModel()
    assert isinstance(objective, PairMaskingObjective) and isinstance(objective, MaskedTokenObjective)
    assert not objective.needs_all_embeddings and not objective.needs_decoder
    assert (objective.weight, objective.share, objective.mask_share, objective.random_share) == (1.0, 0.15, 0.8, 0.1)


def test_two_texts_by_hand():
    ids = torch.tensor([[[0, 7, 8, 2]], [[0, 9, 2, 1]]])
    mask = torch.tensor([[[1, 1, 1, 1]], [[1, 1, 1, 0]]])
    pairs = TranslationLanguageModel().concatenate(ids, mask, CONFIG)
    assert pairs.input_ids.tolist() == [[0, 7, 8, 2, 0, 9, 2, 1]]
    assert pairs.attention_mask.tolist() == [[1, 1, 1, 1, 1, 1, 1, 0]]
    assert pairs.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3]]


def test_every_language_is_read_equally_often():
    assert neighbors(2) == [(0, 1)]
    assert neighbors(3) == [(0, 1), (1, 2), (2, 0)]
    assert neighbors(5) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
    with pytest.raises(ValueError, match="Found rows of 1 language, expected 2 or more"):
        neighbors(1)


def test_rows_of_three_languages():
    ids, mask = batch([[5, 4], [3, 7], [6, 6]])
    pairs = TranslationLanguageModel().concatenate(ids, mask, CONFIG)
    width = ids.shape[-1]
    assert pairs.input_ids.shape == (3 * 2, 2 * width) == pairs.position_ids.shape == pairs.attention_mask.shape
    for number, (first, second) in enumerate([(0, 1), (1, 2), (2, 0)]):
        for row in range(2):
            found = pairs.input_ids[2 * number + row]
            assert torch.equal(found, torch.cat([ids[first, row], ids[second, row]]))
            joined = torch.cat([mask[first, row], mask[second, row]])
            assert torch.equal(pairs.attention_mask[2 * number + row], joined)


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.integers(1, 4).flatmap(
        lambda rows: st.lists(st.lists(st.integers(2, 12), min_size=rows, max_size=rows), min_size=2, max_size=4)
    ),
    share=st.sampled_from([0.15, 0.5]),
    seed=st.integers(0, 1000),
)
def test_the_count_is_known_before(lengths, share, seed):
    ids, mask = batch(lengths, seed)
    objective = TranslationLanguageModel(share=share)
    pairs = objective.concatenate(ids, mask, CONFIG)
    masked = objective.mask(pairs.input_ids, pairs.attention_mask, CONFIG)
    assert len(masked.places) == objective.count(sizes_of(mask))
    assert masked.input_ids.shape == pairs.input_ids.shape
    assert (masked.targets >= 5).all()
    assert pairs.attention_mask.flatten()[masked.places].all()


def test_count_by_hand():
    # 46 tokens of which 12 are special; of three languages, every text is read twice: 0.15 * 2 * 28 = 8.4
    two = BatchSizes(rows=3, languages=2, directions=1, target_tokens=9, tokens=46)
    three = BatchSizes(rows=3, languages=3, directions=1, target_tokens=9, tokens=46)
    assert TranslationLanguageModel().count(two) == 5
    assert TranslationLanguageModel().count(three) == 8


def test_tokens_of_both_texts_are_hidden():
    ids, mask = batch([[40] * 5, [40] * 5])
    objective = TranslationLanguageModel()
    pairs = objective.concatenate(ids, mask, CONFIG)
    torch.manual_seed(0)
    masked = objective.mask(pairs.input_ids, pairs.attention_mask, CONFIG)
    in_second = masked.places % pairs.input_ids.shape[1] >= ids.shape[-1]
    assert 10 < in_second.sum() < len(masked.places) - 10 == 57 - 10


def test_a_prediction_sees_the_translation_and_no_other_row():
    """What stands in the translation changes the state of a hidden token; another row does not, nor does padding
    between the two texts."""
    torch.manual_seed(0)
    model = TmdeEncoderForMaskedLM(CONFIG).eval()
    ids, mask = batch([[4, 8], [6, 5]])
    objective = TranslationLanguageModel()

    def states(ids, mask):
        pairs = objective.concatenate(ids, mask, CONFIG)
        with torch.no_grad():
            return model.model(pairs.input_ids, pairs.attention_mask, pairs.position_ids).token_states

    before = states(ids, mask)
    changed = ids.clone()
    changed[1, 0, 2] = 5 if ids[1, 0, 2] != 5 else 6
    after = states(changed, mask)
    assert (after[0, 1] - before[0, 1]).abs().max() > 1e-4
    torch.testing.assert_close(after[1], before[1], atol=1e-6, rtol=0)
    compact = torch.cat([ids[0, 0, :4], ids[1, 0, :6]])[None]
    positions = torch.cat([torch.arange(4), torch.arange(6)])[None]
    with torch.no_grad():
        alone = model.model(compact, position_ids=positions).token_states[0]
    width = ids.shape[-1]
    found = torch.cat([before[0, :4], before[0, width : width + 6]])
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=0)


def test_the_loss_is_that_of_masked_tokens():
    torch.manual_seed(0)
    hidden, weight, targets = torch.randn(9, 8), torch.randn(50, 8), torch.randint(50, (9,))
    found = TranslationLanguageModel()(hidden, weight, targets).loss
    assert torch.equal(found, MaskedLanguageModel()(hidden, weight, targets).loss)


def test_recipe_trains_on_single_and_on_parallel_texts(tmp_path):
    recipe = load_recipe("tlm")
    assert list(recipe.build_objectives()) == ["masked_lm", "translation_lm"]
    assert recipe.build_config(vocab_size=50000).encoder_layers == 12
    log, _ = train_tiny("tlm", tmp_path)
    steps = [line for line in log if "translation_lm_loss" in line]
    assert len(steps) == 6
    for line in steps:
        assert line["loss"] == pytest.approx(line["masked_lm_loss"] + line["translation_lm_loss"], rel=1e-3)
    assert steps[-1]["translation_lm_loss"] < steps[0]["translation_lm_loss"]
