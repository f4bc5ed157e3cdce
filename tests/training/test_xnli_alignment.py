"""The alignment loss of XNLI: numbers by hand, a plain float64 loop, and whom its gradient reaches."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel

from modeling_tmde import AlignedConfig, DocumentEmbedder
from modeling_tmde.training.building import stage_recipe
from modeling_tmde.training.objectives import OBJECTIVES, BatchSizes, XnliAlignment
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe

# With two rows the negative of each is the other: no draw to follow.
#   X1 = (0, 0)   X2 = (3, 0)        Y1 = (0, 4)   Y2 = (3, 4)
#   X1Y1 = 4, X2Y2 = 4, X2Y1 = 5, X1Y2 = 5
X, Y = torch.tensor([[0.0, 0.0], [3.0, 0.0]]), torch.tensor([[0.0, 4.0], [3.0, 4.0]])


def test_two_rows_by_hand():
    output = XnliAlignment()(torch.stack([X, Y]), ("en", "de"))
    # each row: 4 - 0.25 * (5 + 5) = 1.5
    assert output.loss.item() == pytest.approx(3.0)
    assert output.components["positive"].item() == pytest.approx(8.0)
    assert output.components["negative"].item() == pytest.approx(10.0)
    assert output.components["loss"].item() == output.loss.item()
    assert XnliAlignment(negative_weight=0.5)(torch.stack([X, Y]), ("en", "de")).loss.item() == pytest.approx(-2.0)
    assert XnliAlignment(negative_weight=0.0)(torch.stack([X, Y]), ("en", "de")).loss.item() == pytest.approx(8.0)


def test_pairs_are_of_the_source_with_each_other_language():
    """A third language at X itself: rows cost 0 - 0.25 * (3 + 3). Of Y and Z there is no pair."""
    rows = {"de": Y, "en": X, "fr": X}
    for order in itertools.permutations(rows):
        output = XnliAlignment()(torch.stack([rows[code] for code in order]), order)
        assert output.loss.item() == pytest.approx(3.0 + 2 * -1.5)
    assert XnliAlignment(source_language="fr")(torch.stack([Y, X]), ("de", "fr")).loss.item() == pytest.approx(3.0)


def test_only_the_targets_have_a_gradient():
    embeddings = torch.stack([Y, X]).requires_grad_()
    XnliAlignment()(embeddings, ("de", "en")).loss.backward()
    assert not embeddings.grad[1].any()
    # Y1: the unit vector from X1, minus a quarter of those from X2 (as the negative of X1's row and of X2's)
    expected = torch.tensor([0.0, 1.0]) - 0.25 * 2 * torch.tensor([-0.6, 0.8])
    torch.testing.assert_close(embeddings.grad[0, 0], expected)


def test_a_batch_without_the_source_is_refused():
    with pytest.raises(ValueError, match="source_language='en', and a batch of de, fr lacks it"):
        XnliAlignment()(torch.stack([X, Y]), ("de", "fr"))


def test_one_row_has_no_negatives():
    output = XnliAlignment()(torch.stack([X, Y])[:, :1], ("en", "de"))
    assert output.loss.item() == pytest.approx(4.0) and output.components["negative"].item() == 0


def test_count_and_settings():
    objective = OBJECTIVES["xnli_alignment"]()
    assert isinstance(objective, XnliAlignment)
    assert (objective.weight, objective.negative_weight, objective.source_language) == (1.0, 0.25, "en")
    assert objective.takes_languages and objective.needs_all_embeddings and not objective.needs_decoder
    assert objective.count(BatchSizes(rows=5, languages=2, directions=1, target_tokens=9, tokens=20)) == 5
    assert objective.count(BatchSizes(rows=5, languages=4, directions=6, target_tokens=9, tokens=20)) == 15
    for value in (-0.1, float("nan")):
        with pytest.raises(ValueError, match=f"xnli_alignment negative_weight={value}"):
            XnliAlignment(negative_weight=value)


# ---- Reference


def distance(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return sum((p - q) ** 2 for p, q in zip(x, y, strict=True)) ** 0.5


@settings(max_examples=25, deadline=None)
@given(languages=st.integers(2, 4), weight=st.sampled_from([0.0, 0.25, 1.0]), data=st.data(), seed=st.integers(0, 999))
def test_two_rows_equal_a_plain_loop(languages, weight, data, seed):
    codes = data.draw(st.permutations(["en", "de", "fr", "it"][:languages]))
    embeddings = torch.randn(languages, 2, 5, generator=torch.Generator().manual_seed(seed))
    leaf, exact = embeddings.clone().requires_grad_(), embeddings.double().requires_grad_()
    source = list(codes).index("en")
    x = exact[source].detach()
    expected = sum(
        distance(x[row], y[row]) - weight * (distance(x[1 - row], y[row]) + distance(x[row], y[1 - row]))
        for place, y in enumerate(exact)
        if place != source
        for row in range(2)
    )
    output = XnliAlignment(negative_weight=weight)(leaf, tuple(codes))
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-5)
    (found,) = torch.autograd.grad(output.loss, leaf)
    (wanted,) = torch.autograd.grad(expected, exact)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)


def test_negatives_are_drawn_evenly_from_the_other_rows():
    """On average over the draws the loss has the mean distance to the other rows, each at the same chance."""
    torch.manual_seed(0)
    x, y = torch.randn(6, 4), 3 * torch.randn(6, 4)
    distances = [[distance(p, q).item() for q in y] for p in x]  # X_i to Y_j
    others = [(i, j) for i in range(6) for j in range(6) if i != j]
    expected = sum(distances[i][i] for i in range(6)) - 0.25 * 2 * sum(distances[i][j] for i, j in others) / 5
    found = [XnliAlignment()(torch.stack([x, y]), ("en", "de")).loss.item() for _ in range(3000)]
    assert sum(found) / len(found) == pytest.approx(expected, abs=0.05)
    assert max(found) - min(found) > 1


def test_a_row_is_never_its_own_negative_and_the_two_draws_differ():
    torch.manual_seed(0)
    rows = 4
    points = 1000.0 * torch.eye(rows).expand(2, -1, -1)
    for _ in range(50):
        output = XnliAlignment()(points, ("en", "de"))
        assert output.components["negative"].item() == pytest.approx(rows * 1000 * 2**0.5)
    # distances of X_i to Y_j that tell which were drawn
    line = torch.stack([torch.zeros(rows, 1), torch.tensor([[1.0], [10.0], [100.0], [1000.0]])])
    sums = set()
    for _ in range(200):
        # every x_c is at 0, so one half of the negatives is always 1111; the other are the drawn y_c
        sums.add(round(2 * XnliAlignment()(line, ("en", "de")).components["negative"].item() - 1111))
    assert min(sums) >= 1 * 3 + 10 and max(sums) <= 3 * 1000 + 100 and len(sums) > 20


def test_up_to_half_the_weight_it_has_a_lower_bound_and_above_it_has_none():
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    mean = sum(distance(x[i], x[j]).item() for i in range(8) for j in range(8) if i != j) / 56
    far = torch.stack([x, 1e4 * torch.ones(8, 3)])
    assert XnliAlignment(negative_weight=0.25)(far, ("en", "de")).loss.item() / 8 > 8000
    assert XnliAlignment(negative_weight=0.75)(far, ("en", "de")).loss.item() / 8 < -8000
    torch.manual_seed(0)
    y = x.clone().requires_grad_()
    optimizer, found = torch.optim.SGD([y], lr=0.02), []
    for _ in range(600):
        loss = XnliAlignment()(torch.stack([x, y]), ("en", "de")).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item() / 8)
    assert sum(found[-300:]) / 300 > -2 * 0.25 * mean


def test_float32_under_autocast_and_of_half_vectors():
    embeddings = torch.stack([X, Y])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = XnliAlignment()(embeddings.bfloat16(), ("en", "de"))
    assert output.loss.dtype == torch.float32 and output.loss.item() == pytest.approx(3.0)


# ---- Recipes

SHORT = ["warmup_steps=0", "logging_steps=1", "micro_batch_rows=16", "train_max_length=32", "eval_loss_rows=20"]
DATA = ["train=sample", "data.streaming=false", "max_rows=200", "dev_rows=30", "dataloader_num_workers=0"]
STAGE = ["max_steps=4", "eval_steps=2", "tokenizer.vocab_size=400", "model.d_model=16", "dataloader_num_workers=0"]
LASER_STAGE = [
    "data.languages=[en, de]",
    "data.pivot_languages=[de]",
    "model.embedding_dim=8",
    "model.decoder_hidden_size=12",
    "batch_tokens=null",
]


def test_recipes_are_those_of_the_paper():
    for name, kind in (("xnli_bilstm", "bilstm"), ("xnli_cbow", "bag")):
        recipe = load_recipe(name)
        config = recipe.build_config()
        assert config.encoder == kind
        assert config.encoder_settings == AlignedConfig(encoder=kind).encoder_settings
        objective = recipe.build_objectives()["xnli_alignment"]
        assert (objective.negative_weight, objective.source_language) == (0.25, config.source_language)
        assert "encoders.en" in recipe.sections["training"]["freeze"]
        start = stage_recipe(recipe).build_config()
        assert start.model_type == {"bilstm": "tmde_laser", "bag": "tmde_bag"}[kind]
        assert start.hidden_size == config.hidden_size


@pytest.mark.parametrize("name", ["xnli_bilstm", "xnli_cbow"])
def test_the_source_encoder_stays_and_the_others_begin_as_it_is(name, tmp_path):
    laser = name == "xnli_bilstm"
    settings_of_encoder = "{d_model: 16, embedding_dim: 8}" if laser else "{d_model: 16}"
    frozen = ["encoders.en"] if laser else ["encoders.en", "encoders.de.token_weights"]
    stage = [f"warm_start.overrides.{key}" for key in [*STAGE, *SHORT, *(LASER_STAGE if laser else [])]]
    small = [f"encoder_config={settings_of_encoder}", "max_steps=6", "eval_steps=3", "data.languages=[de, en]"]
    recipe = load_recipe(name, [*DATA, *SHORT, *small, f"freeze=[{', '.join(frozen)}]", *stage])
    trainer = train_recipe(recipe, tmp_path / "run")
    assert sum("xnli_alignment_loss" in entry for entry in trainer.state.log_history) == 6
    assert any("eval_dev_xnli_alignment_loss" in entry for entry in trainer.state.log_history)
    before = AutoModel.from_pretrained(tmp_path / "run" / "warm_start").state_dict()
    encoders = trainer.model.model.encoders
    assert set(encoders["en"].state_dict()) == set(before)
    for key, value in before.items():
        assert torch.equal(encoders["en"].state_dict()[key], value), key
        change = (encoders["de"].state_dict()[key] - value).abs().max()
        # begun at the source's, and six steps of Adam from there
        assert change == 0 if key == "token_weights" else 0 < change < 0.01, key
    embedder = DocumentEmbedder.from_pretrained(str(tmp_path / "run"))
    vectors = embedder.encode(["Das Haus ist alt."] * 2, language=["de", "en"])
    assert vectors.shape == (2, 16) and (vectors[0] != vectors[1]).any()
