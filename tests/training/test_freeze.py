"""`freeze`: parameters that stay as they are, by the beginning of their names."""

import copy

import pytest
import torch
from torch import nn
from transformers import TrainerCallback

from modeling_tmde import TmdeError
from tests.conftest import make_dataset, make_rows, tiny_model
from tests.training.trainers import ARGUMENTS, tiny_trainer
from tmde import TmdeTrainer, TmdeTrainingArguments
from tmde.training.objectives import InfoNCE, TranslationObjective
from tmde.training.optimization import parameters_below


@pytest.mark.parametrize(
    ("prefixes", "frozen"),
    [(["1"], {"1.weight"}), (["2", "10"], {"2.weight", "10.weight"}), ([], set())],
)
def test_prefixes_are_whole_parts_of_names(prefixes, frozen):
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(11)))
    parameters = parameters_below(model, prefixes)
    assert [weight for weight in model.parameters() if weight in set(parameters)] == parameters
    names = {name for name, weight in model.named_parameters() if weight in set(parameters)}
    assert names == frozen


def test_a_prefix_of_no_parameter_is_refused():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    with pytest.raises(TmdeError, match=r"freeze: found '11', expected .*such as 0.weight"):
        parameters_below(model, ["0", "11"])


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


def test_a_model_of_model_init_is_frozen_too(tokenizer, tmp_path):
    before = copy.deepcopy(tiny_model(seed=1).state_dict())
    trainer = TmdeTrainer(
        model_init=lambda: tiny_model(seed=1),
        args=TmdeTrainingArguments(str(tmp_path), **ARGUMENTS, freeze=["model.embed_tokens"]),
        train_dataset=make_dataset(make_rows(120, seed=2)),
        processing_class=tokenizer,
    )
    trainer.train()
    after = trainer.model.state_dict()
    assert torch.equal(after["model.embed_tokens.weight"], before["model.embed_tokens.weight"])
    assert not torch.equal(after["model.layers.0.fc1.weight"], before["model.layers.0.fc1.weight"])


def test_a_second_train_clips_by_the_weights_that_it_trains(tokenizer, tmp_path):
    class Gradients(TrainerCallback):
        """Notes which parameters have a gradient when gradients are clipped."""

        def __init__(self):
            self.names = []

        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            names = set()
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    names.add(name)
            self.names.append(names)

    gradients = Gradients()
    model = tiny_model(seed=1)
    arguments = {"embedding_learning_rate": 0.0, "freeze": ["model.layers.0"], "max_steps": 1}
    trainer = tiny_trainer(tmp_path, tokenizer, model=model, callbacks=[gradients], **arguments)
    trainer.train()
    model.zero_grad()
    trainer.train()

    first, second = gradients.names
    assert first == second
    assert "model.embed_tokens.weight" not in second
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    "arguments",
    [
        {"freeze": ["model"]},
        {"encoder_learning_rate": 0.0},
        {"freeze": ["model.layers", "model.layer_norm"], "embedding_learning_rate": 0.0},
    ],
)
def test_a_run_with_nothing_to_train_is_refused(arguments, tokenizer, tmp_path):
    with pytest.raises(TmdeError, match="leave nothing to train"):
        tiny_trainer(tmp_path, tokenizer, objectives={"infonce": InfoNCE()}, **arguments)
