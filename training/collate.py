"""One planned micro-batch as tensors."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from modeling_tmde.data.token_store import Tokens, text_bounds
from modeling_tmde.training.objectives import BatchSizes
from modeling_tmde.training.planning import ChunkCounts, Plan, Position
from modeling_tmde.training.teacher_vectors import TeacherVectors


@dataclass
class ParallelBatch:
    """One micro-batch: `rows` rows in the same `languages`.

    Attributes:
        input_ids: (languages, rows, length) `<s> tokens </s>`, right-padded to one length.
        attention_mask: (languages, rows, length).
        languages: Codes in the order of the first dimension.
        sizes: What the objectives divide by.
        words: Whitespace-separated words of (all texts, all target texts of all directions).
        lengths: (languages, rows) int64, tokens of each text, `<s>` and `</s>` among them. Always in the memory of the
            host, where they are known without waiting for a GPU.
        teacher_vectors, taught: (rows, d) of a teacher, and bool (rows,), which rows it read; None without a teacher.
        position: Where this batch stands; `next_position` is where the stream goes on after the round it belongs to.
        counts: Of the chunk that this batch comes from.
        chunk_done: Share of its chunk that is done after the round this batch belongs to.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    languages: tuple[str, ...]
    sizes: BatchSizes
    words: tuple[int, int]
    lengths: np.ndarray
    teacher_vectors: torch.Tensor | None = None
    taught: torch.Tensor | None = None
    position: Position = field(default_factory=Position)
    next_position: Position = field(default_factory=Position)
    counts: ChunkCounts = field(default_factory=ChunkCounts)
    chunk_done: float = 0.0

    @property
    def padding(self) -> float:
        """Share of the positions that are padding."""
        return 1 - float(self.lengths.sum()) / self.attention_mask.numel()

    def model_inputs(self) -> dict:
        names = ("input_ids", "attention_mask", "languages", "lengths", "teacher_vectors", "taught")
        return {name: getattr(self, name) for name in names}

    def _move(self, move: Callable[[torch.Tensor], torch.Tensor]) -> "ParallelBatch":
        for name in ("input_ids", "attention_mask", "teacher_vectors", "taught"):
            if getattr(self, name) is not None:
                setattr(self, name, move(getattr(self, name)))
        return self

    def to(self, device: torch.device) -> "ParallelBatch":
        return self._move(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "ParallelBatch":
        return self._move(torch.Tensor.pin_memory)


class Collator:
    """
    Makes the tensors of planned batches.

    Args:
        tokenizer: Whose special tokens are put around and after the texts.
        languages, pivot_languages: Codes of all languages, and of those that are translated into.
        max_length: Longer texts are truncated to this many tokens.
        teacher: Gives the vectors of a teacher, for rows that are not joined with others.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        languages: list[str],
        pivot_languages: list[str],
        max_length: int,
        teacher: TeacherVectors | None = None,
    ):
        self.bos, self.eos, _ = text_bounds(tokenizer)
        self.pad = tokenizer.pad_token_id
        self.languages, self.pivot_languages, self.max_length = languages, pivot_languages, max_length
        self.teacher = teacher

    def __call__(self, tokens: Tokens, plan: Plan, position: Position, counts: ChunkCounts) -> ParallelBatch:
        rows = plan.rows.transpose(0, 2, 1)  # (languages, rows, joined): the order of the tokens
        there = rows >= 0
        numbers = np.broadcast_to(np.array(plan.languages)[:, None, None], rows.shape)
        cells = tokens.cells(rows[there], numbers[there])
        starts, pieces, words = (np.zeros(rows.shape, dtype=np.int64) for _ in range(3))
        starts[there], pieces[there], words[there] = cells.starts, cells.lengths, cells.words
        before = np.cumsum(pieces, axis=-1) - pieces
        pieces = np.clip(self.max_length - 2 - before, 0, pieces)
        words = words.sum(-1)  # (languages, rows)
        lengths = pieces.sum(-1) + 2
        steps = np.arange(lengths.max())
        ends = lengths[..., None] - 1
        input_ids = np.full((*lengths.shape, len(steps)), self.pad, dtype=np.int64)
        input_ids[(steps > 0) & (steps < ends)] = tokens.gather(starts.reshape(-1), pieces.reshape(-1))
        input_ids[..., 0] = self.bos
        np.put_along_axis(input_ids, ends, self.eos, axis=-1)
        languages = tuple(self.languages[number] for number in plan.languages)
        targets = [index for index, language in enumerate(languages) if language in self.pivot_languages]
        sources = len(languages) - 1  # of each pivot
        teacher_vectors, taught = self._read_by_teacher(tokens, plan.rows[0, 0])
        sizes = BatchSizes(
            rows=lengths.shape[1],
            languages=len(languages),
            directions=sources * len(targets),
            target_tokens=sources * int((lengths[targets] - 1).sum()),
            tokens=int(lengths.sum()),
            taught_rows=0 if taught is None else int(taught.sum()),
        )
        return ParallelBatch(
            torch.from_numpy(input_ids),
            torch.from_numpy((steps <= ends).astype(np.int64)),
            languages,
            sizes,
            (int(words.sum()), sources * int(words[targets].sum())),
            lengths,
            teacher_vectors,
            taught,
            position,
            counts=counts,
        )

    def _read_by_teacher(self, tokens: Tokens, rows: np.ndarray) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        if self.teacher is None:
            return None, None
        vectors, taught = self.teacher(tokens, rows)
        return torch.from_numpy(vectors), torch.from_numpy(taught)
