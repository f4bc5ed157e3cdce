"""Resume a run from its last checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from tmde.training.recipe.building import model_class_of
from tmde.training.starts.base import BegunModel, Rows, Start, open_config
from tmde.training.starts.tokenizers import open_tokenizer_files


@dataclass(frozen=True)
class Resumed(Start):
    """Resume the run from one of its checkpoints.

    Only the shape of the model is built here, because the trainer loads the weights.

    Attributes:
        checkpoint: The checkpoint, a folder in that of the run.
    """

    checkpoint: Path

    def check(self) -> None:
        """Check nothing: what the run began with is no longer needed."""

    def tokenizer(self, rows: Rows | None) -> PreTrainedTokenizerBase:
        """Return the tokenizer of the checkpoint."""
        return open_tokenizer_files(self.checkpoint)

    def apply(self, tokenizer: PreTrainedTokenizerBase) -> BegunModel:
        """Return a model of the checkpoint's configuration."""
        config = open_config(self.checkpoint)
        return BegunModel(model_class_of(self.recipe)(config))
