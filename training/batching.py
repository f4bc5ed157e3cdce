"""From parallel rows to micro-batches that fill a token budget, the same for every run of a seed.

An epoch is cut into chunks of `buffer_rows` rows. Each chunk is planned on its own from (seed, epoch, chunk): which
languages of a row are used, which rows share a batch, in which order the batches come. So a run resumes at any
batch by planning one chunk, and every process plans the same batches and keeps its share. The tokens of a map-style
dataset are read from its cache; a stream is tokenised chunk by chunk, and memory holds one chunk.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import datasets
import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data.parallel import LABEL, features_of
from tmde.data.tokens import TextEncoder, Tokens, open_tokens, text_bounds, tokenize
from tmde.training.objectives import BatchSizes
from tmde.training.objectives.base import check_range
from tmde.training.teacher import TeacherVectors, open_teacher_vectors

if TYPE_CHECKING:
    from tmde.training.arguments import TmdeTrainingArguments
    from tmde.training.parallel_model import ParallelModel

logger = logging.get_logger("tmde.training")

# The languages of a micro-batch by number, and its rows: (languages, joined, rows), -1 where nothing is joined.
Plan = tuple[tuple[int, ...], np.ndarray]


@dataclass(frozen=True)
class Position:
    """A place in the stream of micro-batches."""

    epoch: int = 0
    chunk: int = 0
    batch: int = 0


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
        labels: (rows,) numbers of classes; None of rows that have none.
        position: Where this batch stands; `next_position` is where the stream goes on after the round it belongs to.
        counts: Of the chunk that this batch comes from: `rows`, `rows_without_pair`, `texts` and `truncated_texts`.
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
    labels: torch.Tensor | None = None
    position: Position = field(default_factory=Position)
    next_position: Position = field(default_factory=Position)
    counts: Counter[str] = field(default_factory=Counter)
    chunk_done: float = 0.0

    def _move(self, move: Callable[[torch.Tensor], torch.Tensor]) -> ParallelBatch:
        for name in ("input_ids", "attention_mask", "teacher_vectors", "taught", "labels"):
            if getattr(self, name) is not None:
                setattr(self, name, move(getattr(self, name)))
        return self

    def to(self, device: torch.device) -> ParallelBatch:
        return self._move(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> ParallelBatch:
        return self._move(torch.Tensor.pin_memory)


@dataclass(eq=False)
class ParallelBatches(IterableDataset):
    """
    Micro-batches of parallel rows, for one process of `world_size`.

    Of every row at most `languages_per_row` languages are used. Which ones is drawn
    with weight `n ** (1 / temperature - 1)`, where `n` counts the rows of the chunk that could give the same
    languages: `temperature=1` draws among a row's own possibilities with equal chances, `inf` makes the pairs as
    even as the rows allow (the paper's uniform sampling).

    Args:
        dataset: Rows `{"translation": {language: text or None}}`, map-style or streaming.
        tokenizer: Makes `<s> tokens </s>`.
        languages, pivot_languages: Languages to use, and those the decoder translates into.
        micro_batch_tokens: Most padded tokens of one language of a micro-batch: of the longer side of its pairs, as
            `fairseq --max-tokens` counts. A row longer than that is a micro-batch of its own.
        languages_per_row: Languages used of each row; None uses all that a row has.
        temperature: Of the draw described above.
        buffer_rows: Rows of a chunk.
        micro_batch_rows: Most rows of a micro-batch; None for no such limit.
        max_joined_rows: Joins a row with up to this many less one that follow it in its document (a number drawn
            evenly from 1 to it) to one longer text in every language, so that the encoder also learns texts of several
            sentences; 1 leaves rows as they are. The tokenizer must begin texts with a blank, which then is between
            them. The column `doc_id` of a map-style dataset says which document a row belongs to. Rows without one,
            and those of a stream, are a running text: a row is followed by the next with the same languages. A stream
            then is not shuffled but in chunks.
        neighbor_share: Of so many of the rows the last language's text is replaced by the row that follows in the
            document, if `doc_id` names any: neighbours share their topic, not their words.
        pivots_only: Whether every set of languages must hold a pivot, as translation needs it, or a list of the
            languages of which it must hold one.
        max_length: Longer texts are truncated to this many tokens, and counted.
        seed: Of shuffling and drawing.
        epochs: Passes over the rows; None repeats them for ever.
        shuffle: Whether rows and batches are shuffled.
        rank, world_size: Micro-batches `rank`, `rank + world_size`, ... are this process's. Rounds that cannot be
            filled for all processes at the very end are left out.
        start: Where to begin, for resuming.
        tokens: The tokens of `dataset`, from `open_tokens`; None makes them in memory, of a stream chunk by chunk.
        teacher: Gives batches a teacher's vectors of `dataset`, from `open_teacher_vectors`.

    Raises:
        ValueError: A temperature of 0 or less, `pivots_only` names no pivot, or rows are joined that have labels, or
            whose tokenizer leaves no blank between them.
    """

    dataset: datasets.Dataset | datasets.IterableDataset
    tokenizer: PreTrainedTokenizerBase
    languages: list[str]
    pivot_languages: list[str]
    micro_batch_tokens: int = 4096
    languages_per_row: int | None = 2
    temperature: float = float("inf")
    buffer_rows: int = 8192
    micro_batch_rows: int | None = None
    max_joined_rows: int = 1
    neighbor_share: float = 0.0
    pivots_only: list[str] | bool = True
    max_length: int = 256
    seed: int = 0
    epochs: int | None = 1
    shuffle: bool = True
    rank: int = 0
    world_size: int = 1
    start: Position = Position()
    tokens: Tokens | None = None
    teacher: TeacherVectors | None = None

    def __post_init__(self) -> None:
        check_range("pair_temperature", self.temperature, "(0, inf]")
        joined = self.tokenizer.decode(2 * self.tokenizer.encode("a", add_special_tokens=False))
        if self.max_joined_rows > 1 and joined != "a a":
            raise TmdeError(
                f"max_joined_rows={self.max_joined_rows}: the tokenizer makes {joined!r} of the texts 'a' and 'a' "
                "joined, expected 'a a': train it with tokenizer.add_prefix_space=true, or set max_joined_rows=1"
            )
        self.needed_languages = (
            self.pivot_languages if isinstance(self.pivots_only, bool) else self.pivots_only
        )
        if not set(self.needed_languages) <= set(self.pivot_languages):
            raise TmdeError(
                f"pivot_pairs={self.pivots_only}: expected some of the pivots {self.pivot_languages}"
            )
        if (self.max_joined_rows > 1 or self.neighbor_share) and LABEL in (
            self.dataset.column_names or ()
        ):
            raise TmdeError(
                "max_joined_rows, neighbor_share: labels are of single rows, expected 1 and 0"
            )
        self.bos, self.eos, _ = text_bounds(self.tokenizer)
        if self.tokens is None and isinstance(self.dataset, datasets.Dataset):
            self.tokens = open_tokens(self.dataset, self.tokenizer, self.languages, folder=None)

    def __iter__(self) -> Iterator[ParallelBatch]:
        worker = get_worker_info()
        workers, worker_id = (worker.num_workers, worker.id) if worker else (1, 0)
        batches = self._batches()
        for index in itertools.count():
            window = list(itertools.islice(batches, self.world_size))
            if len(window) < self.world_size:
                return
            if index % workers == worker_id:
                position, tokens, plan, counts, _ = window[self.rank]
                batch = self._collate(tokens, plan, position, counts)
                last, *_, batch.chunk_done = window[-1]
                batch.next_position = Position(last.epoch, last.chunk, last.batch + 1)
                yield batch

    def _batches(self) -> Iterator[tuple[Position, Tokens, Plan, Counter[str], float]]:
        epochs = (
            itertools.count(self.start.epoch)
            if self.epochs is None
            else range(self.start.epoch, self.epochs)
        )
        for epoch in epochs:
            first_chunk = self.start.chunk if epoch == self.start.epoch else 0
            found = False
            for chunk, (tokens, rows) in enumerate(
                self._chunks(epoch, first_chunk), start=first_chunk
            ):
                skip = (
                    self.start.batch
                    if (epoch, chunk) == (self.start.epoch, self.start.chunk)
                    else 0
                )
                planned, counts = self._plan(
                    tokens, rows, np.random.default_rng([self.seed, epoch, chunk])
                )
                found = found or bool(planned)
                for index, plan in enumerate(planned):
                    if index >= skip:
                        yield (
                            Position(epoch, chunk, index),
                            tokens,
                            plan,
                            counts,
                            (index + 1) / len(planned),
                        )
            if not found and first_chunk == 0:
                pivots = f" with one of the pivot languages {self.needed_languages} among them"
                raise TmdeError(
                    f"No row of the training data has two of the languages {self.languages}"
                    f"{pivots if self.pivots_only else ''}; check data.languages and data.pivot_languages"
                )

    def _chunks(self, epoch: int, first_chunk: int) -> Iterator[tuple[Tokens, np.ndarray]]:
        """The rows of an epoch, `buffer_rows` at a time from chunk `first_chunk` on, and their tokens."""
        if self.tokens is not None:
            order = np.arange(len(self.tokens))
            if self.shuffle:
                order = np.random.default_rng([self.seed, epoch]).permutation(order)
            if self.neighbor_share and not self.tokens.documented:
                logger.warning_once(
                    f"neighbor_share={self.neighbor_share} has no effect without doc_id"
                )
            for begin in range(first_chunk * self.buffer_rows, len(order), self.buffer_rows):
                yield self.tokens, order[begin : begin + self.buffer_rows]
            return
        stream = self.dataset
        if self.shuffle:
            # Rows that are to be joined stay in their order; then only the stream's files are shuffled.
            size = 1 if self.max_joined_rows > 1 else self.buffer_rows
            stream = stream.shuffle(seed=self.seed, buffer_size=size)
            stream.set_epoch(epoch)
        # `iter` reads all of the stream in any DataLoader worker, where plain iteration would take a share of its
        # files and another seed; and `skip` would forget the epoch.
        encoder = TextEncoder(self.tokenizer)
        type_of_rows = features_of(self.languages).arrow_schema
        for chunk in itertools.islice(stream.iter(self.buffer_rows), first_chunk, None):
            rows = pa.table(
                {"translation": pa.array(chunk["translation"], type_of_rows.field(0).type)}
            )
            labels = np.array(chunk[LABEL]) if LABEL in chunk else None
            tokens = Tokens(tokenize(rows, encoder, self.languages), texts=rows, labels=labels)
            yield tokens, np.arange(len(tokens))

    # ---- Planning

    def _choices(self, available: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The sets of languages (by number) that a row with these can give: every one holds a pivot, if needed."""
        size = (
            len(available)
            if self.languages_per_row is None
            else min(self.languages_per_row, len(available))
        )
        sets = itertools.combinations(available, size) if size >= 2 else ()
        pivots = [
            number
            for number, language in enumerate(self.languages)
            if language in self.needed_languages
        ]
        return [
            languages
            for languages in sets
            if not self.pivots_only or not set(languages).isdisjoint(pivots)
        ]

    def _plan(
        self, tokens: Tokens, rows: np.ndarray, rng: np.random.Generator
    ) -> tuple[list[Plan], Counter[str]]:
        """The micro-batches of a chunk, in their final order."""
        groups, counts = self._draw_languages(tokens, rows, rng)
        planned = []
        for languages, group in sorted(groups.items()):
            cells = self._join(tokens, languages, group, rng)  # (languages, joined, rows)
            lengths = np.where(
                cells >= 0, tokens.lengths[cells, np.array(languages)[:, None, None]], 0
            )
            lengths = (
                lengths.sum(axis=1, dtype=np.int64) + 2
            )  # (languages, rows), with <s> and </s>
            counts["texts"] += lengths.size
            counts["truncated_texts"] += int((lengths > self.max_length).sum())
            longest = np.minimum(lengths, self.max_length).max(axis=0)
            planned.extend((languages, cells[..., batch]) for batch in self._pack(longest, rng))
        if self.shuffle:
            planned = [planned[index] for index in rng.permutation(len(planned))]
        return planned, counts

    def _draw_languages(
        self, tokens: Tokens, rows: np.ndarray, rng: np.random.Generator
    ) -> tuple[dict[tuple[int, ...], np.ndarray], Counter[str]]:
        """The rows of each set of languages, and the counts of rows without one."""
        counts = Counter(rows=len(rows), rows_without_pair=0, texts=0, truncated_texts=0)
        available = tokens.lengths[rows] >= 0
        packed = np.packbits(available, axis=1)
        _, first, kind_of_row = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        kind_of_row = kind_of_row.reshape(-1)
        choices = [self._choices(tuple(np.flatnonzero(available[row]).tolist())) for row in first]
        frequency: dict[tuple[int, ...], int] = defaultdict(int)
        for sets, size in zip(choices, np.bincount(kind_of_row), strict=True):
            counts["rows_without_pair"] += 0 if sets else int(size)
            for languages in sets:
                frequency[languages] += int(size)
        members: dict[tuple[int, ...], list[np.ndarray]] = defaultdict(list)
        draws = rng.random(len(rows))
        for kind, sets in enumerate(choices):
            if sets:
                of_kind = np.flatnonzero(kind_of_row == kind)
                weights = np.cumsum(
                    [
                        float(frequency[languages]) ** (1 / self.temperature - 1)
                        for languages in sets
                    ]
                )
                drawn = np.searchsorted(weights, draws[of_kind] * weights[-1])
                for number in np.unique(drawn):
                    members[sets[number]].append(of_kind[drawn == number])
        return {
            languages: rows[np.sort(np.concatenate(parts))] for languages, parts in members.items()
        }, counts

    def _join(
        self, tokens: Tokens, languages: tuple[int, ...], rows: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """The rows that make up each text: (languages, joined, rows), -1 for none.

        A row is joined by those that follow it, as long as they have all of these languages. Of `neighbor_share` of
        the rows the last language's text is the row after the first language's, in the same document.
        """
        sizes = np.ones(len(rows), dtype=np.int64)
        if self.max_joined_rows > 1:
            sizes = rng.integers(1, self.max_joined_rows + 1, size=len(rows))

        def next_of(before: np.ndarray) -> np.ndarray:
            after = np.where(before >= 0, tokens.following[before], -1)
            return np.where(
                (after >= 0) & (tokens.lengths[after][:, languages] >= 0).all(axis=1), after, -1
            )

        cells = np.full((self.max_joined_rows, len(rows)), -1, dtype=np.int64)
        cells[0] = rows
        for step in range(1, self.max_joined_rows):
            cells[step] = np.where(step < sizes, next_of(cells[step - 1]), -1)
        cells = np.repeat(cells[None], len(languages), axis=0)
        if self.neighbor_share and tokens.documented:
            joined = (cells[-1] >= 0).sum(axis=0) - 1
            after = next_of(cells[-1, joined, np.arange(len(rows))])
            moved = (rng.random(len(rows)) < self.neighbor_share) & (after >= 0)
            cells[-1, 0] = np.where(moved, after, cells[-1, 0])
            cells[-1, 1:] = np.where(moved, -1, cells[-1, 1:])
        return cells

    def _pack(self, lengths: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Rows of similar length together, as many as the budget holds; rows of equal length in random order.

        All languages of a batch are padded to its longest text, so the longer side has rows times length tokens.
        """
        order = rng.permutation(len(lengths)) if self.shuffle else np.arange(len(lengths))
        order = order[np.argsort(-lengths[order], kind="stable")]
        begin = 0
        while begin < len(order):
            size = max(1, self.micro_batch_tokens // int(lengths[order[begin]]))
            size = min(size, self.micro_batch_rows or size)
            # A row alone has no negatives: one that would be left over joins the batch before it.
            end = len(order) if begin + size + 1 == len(order) and size > 1 else begin + size
            yield order[begin:end]
            begin = end

    # ---- Tensors

    def _collate(
        self, tokens: Tokens, plan: Plan, position: Position, counts: Counter[str]
    ) -> ParallelBatch:
        numbers, cells = plan
        rows = cells.transpose(0, 2, 1)  # (languages, rows, joined): the order of the tokens
        columns = np.broadcast_to(np.array(numbers)[:, None, None], rows.shape)
        there = rows >= 0
        pieces = np.where(there, tokens.lengths[rows, columns], 0).astype(np.int64)
        words = np.where(there, tokens.words[rows, columns], 0)
        before = np.cumsum(pieces, axis=-1) - pieces
        pieces = np.clip(self.max_length - 2 - before, 0, pieces)
        words = words.sum(-1)  # (languages, rows)
        lengths = pieces.sum(-1) + 2
        steps = np.arange(lengths.max())
        ends = lengths[..., None] - 1
        input_ids = np.full(
            (*lengths.shape, len(steps)), self.tokenizer.pad_token_id, dtype=np.int64
        )
        input_ids[(steps > 0) & (steps < ends)] = tokens.gather(
            rows[there], columns[there], pieces[there]
        )
        input_ids[..., 0] = self.bos
        np.put_along_axis(input_ids, ends, self.eos, axis=-1)
        languages = tuple(self.languages[number] for number in numbers)
        targets = [
            index for index, language in enumerate(languages) if language in self.pivot_languages
        ]
        sources = len(languages) - 1  # of each pivot
        teacher_vectors = taught = None
        if self.teacher is not None:
            teacher_vectors, taught = map(torch.from_numpy, self.teacher(tokens, cells[0, 0]))
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
            None if tokens.labels is None else torch.from_numpy(tokens.labels[cells[0, 0]]),
            position,
            counts=counts,
        )


def batches_of(
    rows: datasets.Dataset | datasets.IterableDataset,
    tokenizer: PreTrainedTokenizerBase,
    model: ParallelModel,
    args: TmdeTrainingArguments,
    **options: Any,
) -> ParallelBatches:
    """The batches that a model with its objectives is trained or measured on.

    Args:
        rows: Parallel rows.
        options: Of `ParallelBatches`, those that are not the same for both.
    """
    return ParallelBatches(
        rows,
        tokenizer,
        model.texts,
        model.config.pivot_languages,
        micro_batch_tokens=args.micro_batch_tokens,
        pivots_only=args.pivot_pairs or model.needs_pivot,
        max_length=args.train_max_length,
        teacher=open_teacher_vectors(rows, model, args),
        **options,
    )


class ParallelLoader(DataLoader):
    """A `DataLoader` of `ParallelBatches`, whose workers know from their start that they have no tokenizer threads."""

    def __iter__(self):
        with patch.dict(os.environ, TOKENIZERS_PARALLELISM="false"):
            return super().__iter__()
