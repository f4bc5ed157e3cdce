"""The distance cost of cNV: numbers by hand, a plain float64 loop, and which sentences are negatives."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSeq2SeqLM

from modeling_tmde import DocumentEmbedder, NtdvConfig
from modeling_tmde.training.building import stage_recipe
from modeling_tmde.training.objectives import OBJECTIVES, BatchSizes, NtdvDistance
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe

# Three rows whose distances are whole numbers.
#   A1 = (0, 0)   A2 = (3, 0)   A3 = (0, 4)        B1 = (0, 0)   B2 = (3, 4)   B3 = (3, 0)
#   squared   B1  B2  B3
#   A1         0  25   9
#   A2         9  16   0
#   A3        16   9  25          norms 0, 3, 4, 0, 5, 3: v = 15 / 6 = 2.5 and 2 v + 1 = 6
POINTS = torch.tensor([[[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]])


def test_three_rows_by_hand():
    """margin * max(0, 1 + k / 6) with k of every row and negative written out."""
    a_to_b = [0 - 25, 0 - 9, 16 - 9, 16 - 0, 25 - 16, 25 - 9]  # A1 B2, A1 B3, A2 B1, A2 B3, A3 B1, A3 B2
    b_to_a = [0 - 9, 0 - 16, 16 - 25, 16 - 9, 25 - 9, 25 - 0]  # B1 A2, B1 A3, B2 A1, B2 A3, B3 A1, B3 A2
    expected = 1.5 * sum(max(0.0, 1 + k / 6) for k in a_to_b + b_to_a)
    assert expected == pytest.approx(1.5 * (4 + 48 / 6 + 3 + 48 / 6))
    output = NtdvDistance(margin=1.5, negatives=2)(POINTS)
    assert output.loss.item() == pytest.approx(expected) == pytest.approx(34.5)
    assert output.components["loss"].item() == output.loss.item()
    assert output.components["positive"].item() == 2 * (0 + 16 + 25)
    assert output.components["negative"].item() == (25 + 9 + 9 + 0 + 16 + 9 + 9 + 16 + 25 + 9 + 9 + 0) / 2


def test_few_rows_count_as_often_as_many():
    """Ten negatives where there are two: each counts five times."""
    assert NtdvDistance(margin=1.5, negatives=10)(POINTS).loss.item() == pytest.approx(5 * 34.5)


def test_equal_vectors_cost_the_margin_for_each_negative():
    output = NtdvDistance(margin=64.0, negatives=20)(torch.ones(2, 30, 4))
    assert output.loss.item() == pytest.approx(2 * 30 * 20 * 64, rel=1e-5)


def test_far_negatives_cost_nothing():
    points = 1000 * torch.eye(5).expand(2, -1, -1)
    output = NtdvDistance()(points.clone().requires_grad_())
    assert output.loss.item() == 0 and output.components["negative"].item() == pytest.approx(2 * 5 * 2e6)


def test_one_row_costs_nothing():
    embeddings = POINTS[:, :1].clone().requires_grad_()
    output = NtdvDistance()(embeddings)
    output.loss.backward()
    assert output.loss.item() == 0 and embeddings.grad.abs().max() == 0


def test_defaults_are_those_of_the_thesis():
    objective = OBJECTIVES["ntdv_distance"]()
    assert isinstance(objective, NtdvDistance)
    assert (objective.weight, objective.negatives) == (0.5, 20)
    assert objective.margin == 2 * math.sqrt(1024)
    assert objective.needs_all_embeddings and not objective.needs_decoder
    assert objective.count(BatchSizes(rows=5, languages=2, directions=2, target_tokens=9, tokens=20)) == 10
    assert objective.count(BatchSizes(rows=5, languages=3, directions=4, target_tokens=9, tokens=20)) == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [({"margin": 0.0}, "margin=0.0"), ({"margin": float("nan")}, "margin=nan"), ({"negatives": 0}, "negatives=0")],
)
def test_wrong_settings_are_named(options, message):
    with pytest.raises(ValueError, match=f"ntdv_distance {message}"):
        NtdvDistance(**options)


# ---- Reference


def reference(embeddings: torch.Tensor, objective: NtdvDistance) -> torch.Tensor:
    """Eq. 3.6-3.8, one scalar at a time, every other row a negative; embeddings (languages, rows, d) in float64."""

    def squared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return sum((p - q) ** 2 for p, q in zip(x, y, strict=True))

    languages, rows, _ = embeddings.shape
    norm = sum(squared(x, 0 * x) ** 0.5 for language in embeddings for x in language) / (languages * rows)
    if not objective.normalizer_gradient:
        norm = norm.detach()
    loss = 0 * embeddings.sum()
    for a in range(languages):
        for b in range(languages):
            for i in range(rows):
                for j in range(rows):
                    if a != b and i != j:
                        k = squared(embeddings[a, i], embeddings[b, i]) - squared(embeddings[a, i], embeddings[b, j])
                        cost = objective.margin + objective.margin * k / (2 * norm + 1)
                        if cost > 0:
                            loss = loss + cost
    return loss


@settings(max_examples=25, deadline=None)
@given(
    languages=st.integers(2, 3),
    rows=st.integers(2, 5),
    gradient=st.booleans(),
    margin=st.sampled_from([0.5, 8.0]),
    seed=st.integers(0, 1000),
)
def test_loss_and_gradient_equal_the_plain_reference(languages, rows, gradient, margin, seed):
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(1, rows, 4, generator=generator) + 0.6 * torch.randn(
        languages, rows, 4, generator=generator
    )
    objective = NtdvDistance(margin=margin, negatives=rows - 1, normalizer_gradient=gradient)
    leaf, exact = embeddings.clone().requires_grad_(), embeddings.double().requires_grad_()
    output, expected = objective(leaf), reference(exact, objective)
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-4)
    (found,) = torch.autograd.grad(output.loss, leaf)
    (wanted,) = torch.autograd.grad(expected, exact)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-3)


def test_gradient_of_the_normaliser_is_an_option():
    gradients = []
    for option in (True, False):
        leaf = POINTS.clone().requires_grad_()
        NtdvDistance(margin=1.5, normalizer_gradient=option)(leaf).loss.backward()
        gradients.append(leaf.grad)
    assert (gradients[0] - gradients[1]).abs().max() > 0.1


# ---- Sampling


def test_own_translation_is_never_a_negative_and_every_other_row_is():
    """A row far from all others: its translation's distance 0 would show as a cost of the margin."""
    torch.manual_seed(0)
    rows = 6
    embeddings = (100.0 * torch.eye(rows)).expand(2, -1, -1)  # translations are equal, all others far away
    for _ in range(20):
        assert NtdvDistance(margin=1.0, negatives=2)(embeddings).loss.item() == 0
    # B5 is where every A is: whoever draws it pays the margin, at 2 of 5 draws without replacement
    near = torch.stack([torch.zeros(rows, rows), 100.0 * torch.eye(rows)])
    near[1, rows - 1] = 0
    found = [NtdvDistance(margin=1.0, negatives=2)(near).components["negative"].item() for _ in range(400)]
    assert min(found) < max(found)
    # A_i draws B_5, at distance 0, with chance 2 / 5, else B_j at 1e4: five rows of A, and A_5 never draws B_5;
    # B_j, j < 5, always pays 1e4 and B_5 nothing
    expected = 5 * 1e4 * (1 - 1 / 5) + 1e4 + 5 * 1e4
    assert sum(found) / len(found) == pytest.approx(expected, rel=0.02)


def test_draws_are_without_replacement():
    torch.manual_seed(1)
    embeddings = torch.randn(2, 5, 3)
    everything = NtdvDistance(negatives=4)(embeddings).loss
    assert torch.allclose(NtdvDistance(negatives=4)(embeddings).loss, everything)  # four of four, whatever the order
    fewer = {round(NtdvDistance(negatives=3)(embeddings).loss.item(), 3) for _ in range(10)}
    assert len(fewer) > 1


def test_float32_under_autocast():
    torch.manual_seed(2)
    embeddings = torch.randn(2, 10, 64)
    expected = NtdvDistance(negatives=9)(embeddings).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = NtdvDistance(negatives=9)(embeddings)
    assert output.loss.dtype == torch.float32
    assert output.loss.item() == pytest.approx(expected.item(), rel=1e-6)


# ---- Recipes

SHORT = ["warmup_steps=0", "logging_steps=1", "micro_batch_rows=16", "train_max_length=32", "eval_loss_rows=20"]
DATA = ["train=sample", "data.streaming=false", "max_rows=200", "dev_rows=30", "dataloader_num_workers=0"]
STAGE = ["max_steps=4", "eval_steps=2", "tokenizer.vocab_size=400", "model.d_model=16", "model.embedding_dim=8"]


def test_recipes_are_those_of_the_thesis():
    first, nv, cnv = (load_recipe(name) for name in ("nmt", "nv", "cnv"))
    assert stage_recipe(nv).sections == stage_recipe(cnv).sections == first.sections
    assert first.build_config().shared_layers is False and first.build_config().vocab_size == 85000
    assert nv.sections["model"] == cnv.sections["model"] and nv.build_config() == NtdvConfig()
    assert list(nv.build_objectives()) == ["translation"]
    objectives = cnv.build_objectives()
    assert (objectives["translation"].weight, objectives["ntdv_distance"].weight) == (1.0, 0.5)
    assert (objectives["ntdv_distance"].margin, objectives["ntdv_distance"].negatives) == (64.0, 20)
    for recipe in (first, nv, cnv):
        section = recipe.sections["training"]
        assert (section["micro_batch_rows"], section["train_max_length"]) == (80, 50)
    assert nv.sections["training"]["num_train_epochs"] == cnv.sections["training"]["num_train_epochs"] == 5


@pytest.mark.parametrize("name", ["cnv", "nv"])
def test_two_stages_of_which_the_second_trains_the_shared_layers_alone(name, tmp_path):
    stage = [f"warm_start.overrides.{key}" for key in [*STAGE, *SHORT, "dataloader_num_workers=0"]]
    small = ["d_model=16", "embedding_dim=8", "max_steps=6", "eval_steps=3"]
    trainer = train_recipe(load_recipe(name, [*DATA, *SHORT, *small, *stage]), tmp_path / "run")
    losses = [entry for entry in trainer.state.log_history if "translation_loss" in entry]
    assert len(losses) == 6 and ("ntdv_distance_loss" in losses[0]) is (name == "cnv")
    assert 0 <= trainer.state.log_history[-2]["eval_retrieval"] <= 1
    before = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run" / "warm_start").state_dict()
    model = trainer.model.model
    learnt = [name for name, p in model.named_parameters() if p.requires_grad]
    assert learnt == [name for name, _ in model.named_parameters() if name.startswith("model.shared.")] != []
    for key, value in before.items():
        assert torch.equal(model.state_dict()[key], value), key
    assert set(model.state_dict()) - set(before) == set(learnt)
    saved = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    embedder = DocumentEmbedder.from_pretrained(str(tmp_path / "run"))
    vectors = embedder.encode(["Das Haus ist alt.", "The house is old."], language=["de", "en"])
    assert vectors.shape == (2, 16) and saved.config.hidden_size == 16
    inputs = embedder.tokenizer(["The house is old."], return_tensors="pt")
    written = saved.generate(**inputs, language_ids=torch.tensor([1]), target_language="de", max_new_tokens=3)
    assert written.shape[0] == 1 and written[0, 0] == 0
