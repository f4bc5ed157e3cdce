"""One micro-batch of parallel rows, and its position in the stream of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from tmde.training.objectives.base import BatchSizes

TENSOR_FIELDS = ("input_ids", "attention_mask", "teacher_vectors", "taught", "labels")


@dataclass(frozen=True)
class Position:
    """A position in the stream of micro-batches."""

    epoch: int = 0
    chunk: int = 0
    batch: int = 0


@dataclass(frozen=True, eq=False)
class PaddedTexts:
    """Texts of several languages or columns.

    Attributes:
        input_ids: (texts, rows, length) `<s> tokens </s>`, right-padded to one length. Of texts to
            predict, the first dimension is 1 if all languages predict the same text.
        lengths: (texts, rows) int64, the tokens of each text, `<s>` and `</s>` counted, on the
            host.
        words: (texts, rows), the whitespace-separated words of each text, on the host.
    """

    input_ids: torch.Tensor
    lengths: np.ndarray
    words: np.ndarray


@dataclass(eq=False)
class ParallelBatch:
    """One micro-batch: `rows` rows in the same `languages`.

    Attributes:
        input_ids: (languages, rows, length) `<s> tokens </s>`, right-padded to one length.
        attention_mask: (languages, rows, length).
        languages: The language codes in the order of the first dimension.
        sizes: The numbers by which the objectives divide.
        source_words: The whitespace-separated words of all texts.
        target_words: The words of the target texts of all directions.
        lengths: (languages, rows) int64, the tokens of each text, `<s>` and `</s>` among them.
            Always in the memory of the host, where they are known without waiting for a GPU.
        teacher_vectors: (rows, d) of a teacher; None without a teacher.
        taught: (rows,), whether the teacher read each row; None without a teacher.
        labels: (rows,) numbers of classes; None if the rows have none.
        targets: The texts that a decoder predicts and the encoder does not read, by the name of the
            target.
        position: The position of this batch.
        next_position: The position after the round of all processes to which this batch belongs.
        counts: Counts of the chunk from which this batch comes: `rows`, `rows_without_pair`,
            `texts` and `truncated_texts`.
        chunk_done: The share of the chunk that is done after the round of this batch.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    languages: tuple[str, ...]
    sizes: BatchSizes
    source_words: int
    target_words: int
    lengths: np.ndarray
    teacher_vectors: torch.Tensor | None = None
    taught: torch.Tensor | None = None
    labels: torch.Tensor | None = None
    targets: dict[str, PaddedTexts] = field(default_factory=dict)
    position: Position = field(default_factory=Position)
    next_position: Position = field(default_factory=Position)
    counts: Counter[str] = field(default_factory=Counter)
    chunk_done: float = 0.0

    def to(self, device: torch.device, non_blocking: bool = True) -> ParallelBatch:
        """Move the tensors to a device, and return the batch."""
        return self._replace_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> ParallelBatch:
        """Move the tensors to pinned memory, and return the batch."""
        return self._replace_tensors(torch.Tensor.pin_memory)

    def _replace_tensors(self, move: Callable[[torch.Tensor], torch.Tensor]) -> ParallelBatch:
        for name in TENSOR_FIELDS:
            tensor = getattr(self, name)
            if tensor is not None:
                setattr(self, name, move(tensor))
        for name, texts in self.targets.items():
            self.targets[name] = replace(texts, input_ids=move(texts.input_ids))
        return self
