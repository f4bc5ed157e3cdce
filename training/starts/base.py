"""What every way to begin a model has in common."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import datasets
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde.configuration_tmde import TmdeConfig
from tmde.embedding.loading import errors_about, local_or_hub
from tmde.training.recipe.architectures import architecture_of
from tmde.training.recipe.schema import Recipe
from tmde.training.recipe.values import RecipeError

Rows: TypeAlias = datasets.Dataset | datasets.IterableDataset
Report: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Start(ABC):
    """A way to begin a model.

    Every process of a run calls `check`, then `tokenizer`, then `apply`.

    Attributes:
        recipe: The recipe of the run.
        folder: The folder of the run.
    """

    recipe: Recipe
    folder: Path

    @abstractmethod
    def check(self) -> None:
        """Check what the run begins with, before anything is deleted or trained.

        Raises:
            RecipeError: The run cannot begin with it.
        """

    @abstractmethod
    def tokenizer(self, rows: Rows | None) -> PreTrainedTokenizerBase:
        """Return the tokenizer of the run.

        Args:
            rows: The training rows, from which a new tokenizer is made.
        """

    @abstractmethod
    def apply(self, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, Report | None]:
        """Return the model before its first step, and what it took of a checkpoint.

        Args:
            tokenizer: The tokenizer of the run.

        Returns:
            The model, and the `warm_start` of `run.json`; None if the model took nothing.

        Raises:
            RecipeError: The architecture cannot be trained with this tokenizer or encoder.
        """


def open_config(
    checkpoint: str | os.PathLike,
    config_class: type[PreTrainedConfig] | None = None,
    purpose: str = "Warm start from",
) -> PreTrainedConfig:
    """Return the configuration of a model of this package.

    Args:
        checkpoint: Folder or Hub id.
        config_class: The configuration that is expected; None for any architecture.
        purpose: The beginning of an error message, before the checkpoint.

    Raises:
        RecipeError: The checkpoint is missing, or it is another model.
    """
    with errors_about(f"{purpose} {checkpoint}", RecipeError):
        config = AutoConfig.from_pretrained(local_or_hub(checkpoint))
    if config_class is None:
        is_expected = architecture_of(config) is not None
        # Every `model_type` of this package begins with that of T-MDE.
        expected = (
            f"one of this package ({TmdeConfig.model_type}...); `tmde export bag` makes one of an "
            "encoder"
        )
    else:
        is_expected = config.model_type == config_class.model_type
        expected = f"{config_class.model_type!r}"
    if not is_expected:
        raise RecipeError(
            f"{purpose} {checkpoint}: found a model of type {config.model_type!r}, expected "
            f"{expected}"
        )
    return config
