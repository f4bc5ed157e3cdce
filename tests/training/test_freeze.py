"""`freeze`: parameters that stay as they are, by the beginning of their names."""

import pytest
import torch
from torch import nn

from tests.conftest import tiny_model
from tests.training.trainers import tiny_trainer
from tmde.training.objectives import TranslationObjective
from tmde.training.optimization import freeze


@pytest.mark.parametrize(
    ("prefixes", "frozen"),
    [(["1"], {"1.weight"}), (["2", "10"], {"2.weight", "10.weight"}), (None, set())],
)
def test_prefixes_are_whole_parts_of_names(prefixes, frozen):
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(11)))
    freeze(model, prefixes)
    assert {
        name for name, parameter in model.named_parameters() if not parameter.requires_grad
    } == frozen


@pytest.mark.parametrize(
    ("prefixes", "message"),
    [
        (["0", "11"], "freeze: found '11', expected .*such as 0.weight"),
        (["0", "1"], "leaves nothing to train"),
    ],
)
def test_a_prefix_of_no_parameter_or_of_all_is_refused(prefixes, message):
    with pytest.raises(ValueError, match=message):
        freeze(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), prefixes)


FROZEN = [
    "model.embed_tokens",
    "model.layers.1",
    "model.token_weights",
    "lm_head",
    "decoder.embed_languages",
]


@pytest.mark.parametrize("rate", [None, 1e-3, 0.0])
def test_frozen_weights_stay_bit_for_bit_and_the_others_move(rate, tokenizer, tmp_path):
    """Weight decay, and a rate of the tables' own, do not reach them either."""
    model = tiny_model(bag_residual=True)
    options = {
        "max_steps": 3,
        "warmup_steps": 0,
        "learning_rate": 0.01,
        "lr_scheduler_type": "constant",
    }
    options |= {
        "weight_decay": 0.1,
        "languages_per_row": None,
        "freeze": FROZEN,
        "embedding_learning_rate": rate,
    }
    trainer = tiny_trainer(
        tmp_path, tokenizer, None, {"translation": TranslationObjective()}, model=model, **options
    )
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    trainer.train()
    stays = {
        name for name in before if any(f"{name}.".startswith(f"{prefix}.") for prefix in FROZEN)
    }
    assert len(stays) > 10
    assert stays > {
        "model.embed_tokens.weight",
        "lm_head.weight",
        "model.token_weights",
    }
    if rate == 0.0:
        stays.add("decoder.embed_tokens.weight")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == (name in stays), name
    rates = {
        id(item): group["lr"]
        for group in trainer.optimizer.param_groups
        for item in group["params"]
    }
    trained = {
        name: rates[id(parameter)]
        for name, parameter in model.named_parameters()
        if id(parameter) in rates
    }
    assert trained.keys() == before.keys() - stays
    assert (
        trained.pop("decoder.embed_tokens.weight", None)
        == {None: 0.01, 1e-3: 1e-3, 0.0: None}[rate]
    )
    assert set(trained.values()) == {0.01}
