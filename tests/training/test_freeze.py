"""`freeze`: parameters that stay as they are, by the beginning of their names."""

import copy

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
    assert frozen_names(model) == frozen


def frozen_names(model: nn.Module) -> set[str]:
    names = set()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            names.add(name)
    return names


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


def train_frozen(folder, tokenizer, rate: float | None):
    """Train three steps with frozen parameters; return the trainer and the weights before."""
    model = tiny_model(bag_residual=True)
    options = {
        "max_steps": 3,
        "warmup_steps": 0,
        "learning_rate": 0.01,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.1,
        "languages_per_row": None,
        "freeze": FROZEN,
        "embedding_learning_rate": rate,
    }
    objectives = {"translation": TranslationObjective()}
    trainer = tiny_trainer(folder, tokenizer, None, objectives, model=model, **options)
    weights_before = copy.deepcopy(dict(model.named_parameters()))
    trainer.train()
    return trainer, weights_before


def names_below_prefixes(names) -> set[str]:
    """Return the names that `FROZEN` freezes."""
    prefixes = tuple(f"{prefix}." for prefix in FROZEN)
    return {name for name in names if f"{name}.".startswith(prefixes)}


def rates_by_name(trainer) -> dict[str, float]:
    """Return the learning rate of every parameter that the optimizer has."""
    names = {}
    for name, parameter in trainer.model.named_parameters():
        names[parameter] = name
    rates = {}
    for group in trainer.optimizer.param_groups:
        for parameter in group["params"]:
            rates[names[parameter]] = group["lr"]
    return rates


@pytest.mark.parametrize("rate", [None, 1e-3, 0.0])
def test_frozen_weights_stay_bit_for_bit_and_the_others_move(rate, tokenizer, tmp_path):
    """Weight decay, and a rate of the tables' own, do not reach them either."""
    trainer, weights_before = train_frozen(tmp_path, tokenizer, rate)

    unchanged = names_below_prefixes(weights_before)
    assert len(unchanged) > 10
    assert unchanged > {"model.embed_tokens.weight", "lm_head.weight", "model.token_weights"}
    if rate == 0.0:
        unchanged.add("decoder.embed_tokens.weight")
    for name, parameter in trainer.model.named_parameters():
        is_equal = torch.equal(parameter, weights_before[name])
        assert is_equal == (name in unchanged), name


@pytest.mark.parametrize(("rate", "table_rate"), [(None, 0.01), (1e-3, 1e-3), (0.0, None)])
def test_the_optimizer_has_all_that_is_not_frozen(rate, table_rate, tokenizer, tmp_path):
    trainer, weights_before = train_frozen(tmp_path, tokenizer, rate)

    rates = rates_by_name(trainer)

    assert rates.pop("decoder.embed_tokens.weight", None) == table_rate
    expected = set(weights_before) - names_below_prefixes(weights_before)
    assert set(rates) == expected - {"decoder.embed_tokens.weight"}
    assert set(rates.values()) == {0.01}
