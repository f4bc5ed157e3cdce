"""Masked language modelling: which tokens are hidden, how many, and what they cost."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoModelForMaskedLM

from modeling_tmde.configuration_encoder import TmdeEncoderConfig
from modeling_tmde.modeling_encoder import TmdeEncoderForMaskedLM, TmdeEncoderModel
from modeling_tmde.training.objectives import OBJECTIVES
from modeling_tmde.training.objectives.base import BatchSizes, MaskedTokenObjective
from modeling_tmde.training.objectives.masked_lm import MaskedLanguageModel, random_tokens
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe
from tests.training.test_train import numbered_rows, write_corpus

CONFIG = TmdeEncoderConfig(vocab_size=50, d_model=8, encoder_attention_heads=2)


def batch(lengths: list[list[int]], seed: int = 0, vocab: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts `<s> tokens </s>` of (languages, rows) lengths, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor(lengths)[..., None]
    width = int(sizes.max()) + 3
    columns = torch.arange(width).expand(*sizes.shape[:2], width)
    ids = torch.randint(5, vocab, columns.shape, generator=generator)
    ids = ids.masked_fill(columns == 0, 0).masked_fill(columns == sizes - 1, 2).masked_fill(columns >= sizes, 1)
    return ids, (columns < sizes).long()


def sizes_of(mask: torch.Tensor) -> BatchSizes:
    return BatchSizes(
        rows=mask.shape[1], languages=mask.shape[0], directions=1, target_tokens=1, tokens=int(mask.sum())
    )


def train_tiny(name: str, folder: Path, *overrides: str) -> tuple[list[dict], TmdeEncoderForMaskedLM]:
    """Trains a recipe for a few steps at a tiny size; what it logged, and the model."""
    corpus = write_corpus(folder / "corpus.jsonl", numbered_rows(150))
    sizes = ["vocab_size=400", "d_model=32", "encoder_layers=1", "encoder_attention_heads=4", "encoder_ffn_dim=48"]
    run = ["dev_rows=12", "streaming=false", "max_steps=6", "logging_steps=1", "eval_steps=3", "warmup_steps=2"]
    run += ["learning_rate=0.005", "bf16=false", "dataloader_num_workers=0", "eval_pairs=[de-en]", "disable_tqdm=true"]
    run += ["max_position_embeddings=256", "batch_tokens=null", "micro_batch_tokens=2000", "micro_batch_rows=20"]
    trainer = train_recipe(load_recipe(name, [f"train={corpus}", *sizes, *run, *overrides]), folder / "run")
    lines = (folder / "run" / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines], trainer.model.model


# ---- What is hidden


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.integers(1, 4).flatmap(
        lambda rows: st.lists(st.lists(st.integers(2, 12), min_size=rows, max_size=rows), min_size=1, max_size=3)
    ),
    share=st.sampled_from([0.15, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)
def test_exactly_so_many_tokens_are_hidden_and_no_special_ones(lengths, share, seed):
    ids, mask = batch(lengths, seed)
    objective = MaskedLanguageModel(share=share)
    torch.manual_seed(seed)
    masked = objective.mask(ids, mask, CONFIG)
    own = sum(length - 2 for row in lengths for length in row)
    number = max(1, round(share * own)) if own else 0
    assert len(masked.places) == number == objective.count(sizes_of(mask))
    assert masked.places.tolist() == sorted(set(masked.places.tolist()))
    assert masked.input_ids.shape == ids.shape
    flat = ids.flatten()
    assert torch.equal(flat[masked.places], masked.targets)
    assert (masked.targets >= 5).all()
    assert mask.flatten()[masked.places].all()
    others = torch.ones_like(flat, dtype=torch.bool).index_fill(0, masked.places, False)
    assert torch.equal(masked.input_ids.flatten()[others], flat[others])
    assert not ({0, 1, 2} & set(masked.input_ids.flatten()[masked.places].tolist()))


def test_count_by_hand():
    # 3 rows of 2 languages, 46 tokens, of which 12 are special: 0.15 * 34 = 5.1
    sizes = BatchSizes(rows=3, languages=2, directions=1, target_tokens=9, tokens=46)
    assert MaskedLanguageModel().count(sizes) == 5
    assert MaskedLanguageModel(share=0.5).count(sizes) == 17
    assert MaskedLanguageModel(share=0.001).count(sizes) == 1
    assert MaskedLanguageModel().count(BatchSizes(rows=3, languages=2, directions=1, target_tokens=9, tokens=12)) == 0


def test_four_fifths_are_masked_a_tenth_replaced_and_a_tenth_left():
    ids, mask = batch([[1002] * 20, [502] * 20])
    torch.manual_seed(0)
    masked = MaskedLanguageModel(share=0.5).mask(ids, mask, CONFIG)
    number = len(masked.places)
    assert number == 15000
    shown = masked.input_ids.flatten()[masked.places]
    hidden, left = (shown == 4).float().mean().item(), (shown == masked.targets).float().mean().item()
    # Of those replaced, one in 46 gets the token that stood there.
    deviation = 5 * math.sqrt(0.1 * 0.9 / number)
    assert hidden == pytest.approx(0.8, abs=5 * math.sqrt(0.8 * 0.2 / number))
    assert left == pytest.approx(0.1 + 0.1 / 46, abs=deviation)
    # Rows and languages get their part: 10 of 15 thousandths are in the longer texts.
    longer = (masked.places < ids[0].numel()).float().mean().item()
    assert longer == pytest.approx(2 / 3, abs=5 * math.sqrt(2 / 9 / number))


@pytest.mark.parametrize(("shares", "expected"), [((1.0, 0.0), "mask"), ((0.0, 0.0), "same"), ((0.0, 1.0), "other")])
def test_shares_of_the_hidden_tokens(shares, expected):
    ids, mask = batch([[40, 30]])
    masked = MaskedLanguageModel(share=1.0, mask_share=shares[0], random_share=shares[1]).mask(ids, mask, CONFIG)
    shown = masked.input_ids.flatten()[masked.places]
    if expected == "mask":
        assert (shown == 4).all()
    elif expected == "same":
        assert torch.equal(masked.input_ids, ids)
    else:
        assert (shown >= 3).all() and (shown != 4).all() and (shown != masked.targets).float().mean() > 0.8


def test_random_tokens_are_all_but_the_special_ones():
    """46 of 50 entries, each equally often."""
    torch.manual_seed(0)
    counts = torch.bincount(random_tokens(46000, CONFIG, torch.device("cpu")), minlength=50)
    assert counts[[0, 1, 2, 4]].sum() == 0
    others = counts[torch.tensor([3, *range(5, 50)])]
    assert (others - 1000).abs().max() < 5 * 1000**0.5


def test_every_token_is_hidden_equally_often():
    ids, mask = batch([[7], [12]])
    objective = MaskedLanguageModel(share=0.2)  # 3 of 15
    torch.manual_seed(0)
    counts = torch.zeros(ids.numel())
    for _ in range(2000):
        counts[objective.mask(ids, mask, CONFIG).places] += 1
    own = ((ids >= 5) & mask.bool()).flatten()
    assert counts[~own].sum() == 0 and counts.sum() == 6000
    assert (counts[own] - 400).abs().max() < 5 * (2000 * 0.2 * 0.8) ** 0.5


def test_a_batch_of_special_tokens_alone():
    ids, mask = batch([[2, 2]])
    masked = MaskedLanguageModel().mask(ids, mask, CONFIG)
    assert torch.equal(masked.input_ids, ids) and len(masked.places) == len(masked.targets) == 0
    weight = torch.randn(50, 8, requires_grad=True)
    assert MaskedLanguageModel()(torch.zeros(0, 8), weight, masked.targets).loss.item() == 0


def test_settings_that_do_not_fit():
    for share in (0, 1.1):
        with pytest.raises(ValueError, match=f"share={share} of the tokens"):
            MaskedLanguageModel(share=share)
    with pytest.raises(ValueError, match="mask_share=0.8 and random_share=0.3"):
        MaskedLanguageModel(random_share=0.3)
    config = TmdeEncoderConfig(vocab_size=50, d_model=8, encoder_attention_heads=2, mask_token_id=None)
    with pytest.raises(ValueError, match="mask_token_id=None, expected the id"):
        MaskedLanguageModel().mask(*batch([[5]]), config)


# ---- What it costs


def test_loss_by_hand():
    """Two states over a vocabulary of three, whose logits are (2, 0, 0) and (0, 1, 3)."""
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    hidden = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    objective = MaskedLanguageModel()
    assert isinstance(objective, MaskedTokenObjective) and objective.needs_all_embeddings
    output = objective(hidden, weight, torch.tensor([0, 1]))
    first = math.log(math.exp(2) + 2) - 2
    second = math.log(1 + math.e + math.exp(3)) - 1
    assert output.loss.item() == pytest.approx(first + second, rel=1e-6)
    assert output.loss.item() == pytest.approx(0.239545 + 2.169846, abs=1e-5)
    assert output.components["loss"].item() == output.loss.item()
    assert not output.components["loss"].requires_grad


def test_loss_and_gradients_equal_a_plain_loop():
    torch.manual_seed(0)
    hidden = torch.randn(30, 8, requires_grad=True)
    weight = torch.randn(50, 8, requires_grad=True)
    targets = torch.randint(50, (30,))
    output = MaskedLanguageModel()(hidden, weight, targets)
    expected = torch.zeros((), dtype=torch.float64)
    for state, target in zip(hidden.double(), targets.tolist(), strict=True):
        exponentials = [(state * row).sum().exp() for row in weight.double()]
        expected = expected - (exponentials[target] / sum(exponentials)).log()
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-5)
    wanted = torch.autograd.grad(expected, (hidden, weight))
    found = torch.autograd.grad(output.loss, (hidden, weight))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_under_autocast():
    torch.manual_seed(0)
    hidden, weight, targets = torch.randn(30, 8), torch.randn(50, 8), torch.randint(50, (30,))
    expected = MaskedLanguageModel()(hidden, weight, targets).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = MaskedLanguageModel()(hidden, weight, targets).loss
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=0.02)


# ---- Recipes


def test_recipe_of_thesis_004():
    recipe = load_recipe("mlm")
    config = recipe.build_config(vocab_size=50000)
    assert isinstance(config, TmdeEncoderConfig) and OBJECTIVES["masked_lm"] is MaskedLanguageModel
    assert (config.d_model, config.encoder_layers, config.encoder_attention_heads) == (1024, 12, 8)
    assert (config.activation_function, config.dropout, config.pooling) == ("gelu", 0.1, "first")
    assert config.position_embeddings == "learned" and config.max_position_embeddings == 256
    objective = recipe.build_objectives()["masked_lm"]
    assert (objective.share, objective.mask_share, objective.random_share) == (0.15, 0.8, 0.1)
    arguments = recipe.build_arguments("unused", bf16=False)
    assert arguments.train_max_length == arguments.embed_max_length == 256


def test_training_and_opening_what_was_trained(tmp_path):
    log, model = train_tiny("mlm", tmp_path, "max_steps=12")
    losses = [line["masked_lm_loss"] for line in log if "masked_lm_loss" in line]
    # A vocabulary of 400: ln 400 = 6, and with the noise of logits that nobody has learnt somewhat more.
    assert 5 < losses[0] < 8 and losses[-1] < losses[0] - 0.5
    whole = AutoModelForMaskedLM.from_pretrained(tmp_path / "run")
    encoder = AutoModel.from_pretrained(tmp_path / "run")
    assert type(whole) is TmdeEncoderForMaskedLM and type(encoder) is TmdeEncoderModel
    ids = torch.tensor([[0, 40, 4, 50, 2]])
    assert torch.equal(encoder(ids).pooler_output, whole.model(ids).pooler_output)
    assert torch.equal(whole(ids).logits, model.eval()(ids).logits)
    assert set(whole.state_dict()) == set(model.state_dict())
