"""`freeze`: parameters that stay as they are, by the beginning of their names."""

import pytest
import torch
from torch import nn
from transformers import TrainerCallback

from modeling_tmde.training.objectives import TranslationObjective
from modeling_tmde.training.optimization import freeze
from tests.conftest import tiny_model
from tests.training.trainers import tiny_trainer


def named_linears(*names: str) -> nn.Module:
    """A model whose parameters have these names, each a part of a path."""
    model = nn.Module()
    for name in names:
        *path, last = name.split(".")
        owner = model
        for part in path:
            if not hasattr(owner, part):
                owner.add_module(part, nn.Module())
            owner = getattr(owner, part)
        owner.register_parameter(last, nn.Parameter(torch.zeros(2)))
    return model


NAMES = (
    "model.encoders.d.weight",
    "model.encoders.de.weight",
    "model.encoders.de.bias",
    "model.layers.1.weight",
    "model.layers.10.weight",
    "model.embed.weight",
    "model.embed_tokens.weight",
    "decoder.model.weight",
    "lm_head.weight",
)


@pytest.mark.parametrize(
    ("prefixes", "frozen"),
    [
        (["model.encoders.d"], {"model.encoders.d.weight"}),
        (["model.encoders.de"], {"model.encoders.de.weight", "model.encoders.de.bias"}),
        (["model"], {name for name in NAMES if name.startswith("model.")}),  # not `decoder.model`
        (["lm_head", "model.layers"], {"lm_head.weight", "model.layers.1.weight", "model.layers.10.weight"}),
        (None, set()),
    ],
)
def test_prefixes_are_whole_parts_of_names(prefixes, frozen):
    model = named_linears(*NAMES)
    freeze(model, prefixes)
    assert {name for name, parameter in model.named_parameters() if not parameter.requires_grad} == frozen


@pytest.mark.parametrize("prefix", ["model.encoders.d", "odel", ""])
def test_a_prefix_of_no_parameter_is_refused(prefix):
    model = named_linears("model.encoders.de.weight", "model.embed_tokens.weight", "lm_head.weight")
    message = f"freeze: found {prefix!r}, expected .*such as model.encoders, model.embed_tokens, lm_head.weight"
    with pytest.raises(ValueError, match=message):
        freeze(model, ["lm_head", prefix])


def test_freezing_everything_is_refused():
    model = named_linears("model.layers.0.weight", "lm_head.weight", "decoder.weight")
    model.decoder.weight.requires_grad_(False)  # no objective uses it
    with pytest.raises(ValueError, match=r"freeze=\['model', 'lm_head'\] leaves nothing to train"):
        freeze(model, ["model", "lm_head"])
    freeze(named_linears("model.layers.0.weight", "lm_head.weight"), ["model"])


# ---- In a run


class Groups(TrainerCallback):
    """The optimizer's groups: the parameters' identities, and the rate of each."""

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        self.groups = [({id(item) for item in group["params"]}, group["lr"]) for group in optimizer.param_groups]


FROZEN = ["model.embed_tokens", "model.layers.1", "model.token_weights", "lm_head", "decoder.embed_languages"]


@pytest.mark.parametrize("rate", [None, 1e-3, 0.0])
def test_frozen_weights_stay_bit_for_bit_and_the_others_move(rate, tokenizer, tmp_path):
    """Weight decay, and a rate of the tables' own, do not reach them either."""
    model, groups = tiny_model(bag_residual=True), Groups()
    options = {"max_steps": 3, "warmup_steps": 0, "learning_rate": 0.01, "lr_scheduler_type": "constant"}
    options |= {"weight_decay": 0.1, "languages_per_row": None, "freeze": FROZEN, "embedding_learning_rate": rate}
    objective = {"translation": TranslationObjective()}
    trainer = tiny_trainer(tmp_path, tokenizer, None, objective, model=model, callbacks=[groups], **options)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    trainer.train()
    stays = {name for name in before if any(f"{name}.".startswith(f"{prefix}.") for prefix in FROZEN)}
    assert len(stays) > 10 and stays > {"model.embed_tokens.weight", "lm_head.weight", "model.token_weights"}
    if rate == 0.0:
        stays.add("decoder.embed_tokens.weight")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == (name in stays), name
    trained = {id(parameter): name for name, parameter in model.named_parameters() if name not in stays}
    assert set().union(*(members for members, _ in groups.groups)) == set(trained)
    rates = {trained[item]: lr for members, lr in groups.groups for item in members}
    table = rates.pop("decoder.embed_tokens.weight", None)
    assert table == {None: 0.01, 1e-3: 1e-3, 0.0: None}[rate]
    assert set(rates.values()) == {0.01}
