"""Tiny models of every family, whose weights depend on the parameters' names, and their inputs."""

from collections.abc import Iterable

import pytest
import torch
from torch import nn
from transformers import DataCollator, PreTrainedModel, Trainer, TrainingArguments

from tests.conftest import nightly_except
from tests.test_goldens import FAMILIES, fill

# The first lines of a program in which this package cannot be imported.
BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("modeling_tmde", "tmde"):
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
sys.meta_path.insert(0, Blocker())
"""
PAD = 1
ROWS = [[0, 9, 14, 33, 9, 2], [0, 21, 2], [0, 5, 17, 26, 11, 50, 30, 2], [0, 44, 8, 8, 2]]
LANGUAGE_IDS = torch.tensor([0, 1, 0, 1])
SEQ2SEQ = [name for name in FAMILIES if not name.startswith(("bag", "aligned", "encoder"))]
# One of each kind of encoder and decoder. The tests of transformers' contract try the others
# nightly, because these differ in what they compute, which tests/test_goldens.py checks by day.
DAILY = ["first", "dual", "bag", "laser", "ntdv", "encoder-mean", "aligned-bag", "adapted-cls"]


def of_families(names: Iterable[str]) -> pytest.MarkDecorator:
    """Return the decorator of a test that takes the argument `family`."""
    return pytest.mark.parametrize("family", nightly_except(DAILY, names))


def filled(family: str) -> PreTrainedModel:
    model = FAMILIES[family]().eval()
    fill(model)
    return model


def needs_language(model: PreTrainedModel) -> bool:
    return model.base_model.needs_language_ids


def padded(
    rows: list[list[int]] = ROWS,
    side: str = "right",
    extra: int = 0,
    model: PreTrainedModel | None = None,
) -> dict[str, torch.Tensor]:
    """A batch of rows of ids, and the languages of the rows for a model that needs them.

    Args:
        rows: The ids of each text.
        side: The side of the padding.
        extra: The padding of the longest row.
        model: The model that reads the batch.
    """
    width = max(len(row) for row in rows) + extra
    input_ids = torch.full((len(rows), width), PAD)
    attention_mask = torch.zeros(len(rows), width, dtype=torch.long)
    for index, row in enumerate(rows):
        start = width - len(row) if side == "left" else 0
        end = start + len(row)
        input_ids[index, start:end] = torch.tensor(row)
        attention_mask[index, start:end] = 1
    inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
    if model is not None and needs_language(model):
        inputs["language_ids"] = LANGUAGE_IDS[torch.arange(len(rows)) % len(LANGUAGE_IDS)]
    return inputs


def trained_step(
    model: PreTrainedModel,
    features: list[dict],
    collator: DataCollator,
    folder,
    batch_size: int,
    **options,
) -> torch.Tensor:
    """Return the gradient of one step over all features, in batches of `batch_size`.

    SGD at a rate of 1 subtracts it from the weights.
    """
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=len(features) // batch_size,
        max_steps=1,
        optim="sgd",
        learning_rate=1.0,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        **options,
    )
    Trainer(model, arguments, data_collator=collator, train_dataset=features).train()
    after = nn.utils.parameters_to_vector(model.parameters()).detach()
    return before - after
