"""From parallel rows to micro-batches that fill a token budget, the same for every run of a seed.

An epoch is cut into chunks of `buffer_rows` rows. Each chunk is planned by itself from (seed,
epoch, chunk), see `planning`. Every process plans the same batches and keeps its share. The tokens
of a map-style dataset are read from its cache; a stream is tokenized chunk by chunk, and memory
holds one chunk.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from accelerate.utils import patch_environment
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data.rows import ANCHOR, LABEL, POSITIVE, features_of, triple_texts
from tmde.data.tokens import TextEncoder, Tokens, open_tokens, text_bounds, tokenize
from tmde.training.batches.batch import ParallelBatch, Position, TargetTexts, WordCounts
from tmde.training.batches.planning import BatchPlanner, PlannedBatch
from tmde.training.objectives.base import BatchSizes, check_range
from tmde.training.objectives.targets import (
    NEXT,
    PIVOTS,
    SELF,
    decoder_directions,
    target_columns,
)
from tmde.training.teachers import Teachers, TeacherVectors, open_teachers

if TYPE_CHECKING:
    from tmde.training.arguments import TmdeTrainingArguments
    from tmde.training.parallel_model import ParallelModel

logger = logging.get_logger("tmde.training")


@dataclass(frozen=True, eq=False)
class Chunk:
    """A chunk of the rows of an epoch, before it is planned.

    Attributes:
        tokens: The tokens of the dataset, or of this chunk of a stream.
        rows: The rows of the chunk, as numbers of rows of `tokens`.
    """

    tokens: Tokens
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class PositionedBatch:
    """A planned batch in the stream of all batches.

    Attributes:
        plan: The batch.
        tokens: Where its texts are read.
        position: Its position.
        counts: The counts of its chunk.
        chunk_done: The share of its chunk that is done after it.
    """

    plan: PlannedBatch
    tokens: Tokens
    position: Position
    counts: Counter[str]
    chunk_done: float


@dataclass(frozen=True, eq=False)
class LoadedTexts:
    """Texts of several languages or columns.

    Attributes:
        input_ids: (texts, rows, length) `<s> tokens </s>`, right-padded.
        lengths: (texts, rows), `<s>` and `</s>` counted.
        words: (texts, rows), whitespace-separated words.
    """

    input_ids: np.ndarray
    lengths: np.ndarray
    words: np.ndarray

    def as_targets(self) -> TargetTexts:
        """Return the texts as what a decoder predicts."""
        return TargetTexts(torch.from_numpy(self.input_ids), self.lengths)


@dataclass(eq=False)
class ParallelBatches(IterableDataset):
    """Micro-batches of parallel rows, for one process of `world_size`.

    Of every row at most `languages_per_row` languages are used. Which ones is drawn with weight
    `n ** (1 / temperature - 1)`, where `n` counts the rows of the chunk that could give the same
    languages: `temperature=1` draws among a row's own possibilities with equal chances, `inf` makes
    the pairs as even as the rows allow (the paper's uniform sampling).

    Args:
        dataset: Rows `{"translation": {language: text or None}}`, map-style or streaming.
        tokenizer: Makes `<s> tokens </s>`.
        languages: The languages to use; of triples their texts, all of which a row gives.
        pivot_languages: The languages into which the decoder translates.
        micro_batch_tokens: The most padded tokens of one language of a micro-batch: of the longer
            side of its pairs, as `fairseq --max-tokens` counts. A row longer than that is a
            micro-batch of its own.
        languages_per_row: How many languages of each row are used; None for all that a row has.
        temperature: How evenly languages are drawn, see above.
        buffer_rows: The rows of a chunk.
        micro_batch_rows: The most rows of a micro-batch; None for no limit.
        max_joined_rows: Joins a row with some of the rows that follow it in its document to one
            longer text in every language, so that the encoder also learns texts of several
            sentences. A text is made of 1 to this many rows, a number drawn evenly; 1 leaves rows
            as they are. The tokenizer must begin texts with a blank, which then separates them. The
            column `doc_id` of a map-style dataset says to which document a row belongs. Rows
            without one, and those of a stream, are a running text: a row is followed by the next
            with the same languages. Only the chunks of such a stream are shuffled.
        neighbor_share: The share of the rows whose last language's text is replaced by the row that
            follows in the document, if `doc_id` names any: neighbors share their topic, not their
            words.
        pivots_only: Whether every set of languages must hold a pivot, as translation requires, or a
            list of the pivots of which it must hold one.
        max_length: The length in tokens to which longer texts are truncated, and counted.
        seed: The seed of shuffling and drawing.
        epochs: The number of passes over the rows; None repeats them for ever.
        shuffle: Whether rows and batches are shuffled.
        rank: The number of this process.
        world_size: The number of processes. Micro-batches `rank`, `rank + world_size`, ... are this
            process's. Rounds that cannot be filled for all processes at the very end are left out.
        start: Where to begin, for resuming.
        tokens: The tokens of `dataset`, from `open_tokens`; None makes them in memory, those of a
            stream chunk by chunk.
        teacher: Gives batches a teacher's vectors of `dataset`, from `Teachers.vectors_of`.
        targets: What the decoder predicts, see `TranslationObjective`. Rows that lack a target are
            left out, and counted as `rows_without_next` or `rows_without_column`. Columns stand in
            `translation` beside the languages. `"next"` keeps the rows of a stream in order.
        fewest_languages: How many languages a row must have.

    Raises:
        TmdeError: The temperature is 0 or less, `pivots_only` names no pivot, rows are joined that
            have labels or are triples, or whose tokenizer leaves no blank between them, or texts
            whose targets are predicted are replaced.
    """

    dataset: datasets.Dataset | datasets.IterableDataset
    tokenizer: PreTrainedTokenizerBase
    languages: Sequence[str]
    pivot_languages: Sequence[str]
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
    targets: Sequence[str] = (PIVOTS,)
    fewest_languages: int = 2

    def __post_init__(self) -> None:
        check_range("pair_temperature", self.temperature, "(0, inf]")
        self._check_joining()
        languages_per_row = self.languages_per_row
        needed_texts: tuple[str, ...] = ()
        if self.has_triples:
            languages_per_row = None
            needed_texts = (ANCHOR, POSITIVE)
        self.planner = BatchPlanner(
            languages=self.languages,
            needed_languages=self._needed_languages(),
            languages_per_row=languages_per_row,
            temperature=self.temperature,
            micro_batch_tokens=self.micro_batch_tokens,
            micro_batch_rows=self.micro_batch_rows,
            max_joined_rows=self.max_joined_rows,
            neighbor_share=self.neighbor_share,
            max_length=self.max_length,
            shuffle=self.shuffle,
            fewest_languages=self.fewest_languages,
            targets=self.targets,
            needed_texts=needed_texts,
        )
        # The texts of a row that are tokenized.
        self.read_texts = [*self.languages, *target_columns(self.targets)]
        self.bos, self.eos, _ = text_bounds(self.tokenizer)
        if self.tokens is None and isinstance(self.dataset, datasets.Dataset):
            self.tokens = open_tokens(self.dataset, self.tokenizer, self.read_texts, folder=None)

    @property
    def has_triples(self) -> bool:
        """Whether the texts of a row are an anchor, its positive and hard negatives."""
        return bool(triple_texts(self.languages))

    def __iter__(self) -> Iterator[ParallelBatch]:
        worker = get_worker_info()
        num_workers = 1 if worker is None else worker.num_workers
        worker_id = 0 if worker is None else worker.id
        for index, planned_round in enumerate(self._rounds()):
            if index % num_workers != worker_id:
                continue
            last = planned_round[-1]
            batch = self._load(planned_round[self.rank])
            batch.next_position = Position(
                last.position.epoch, last.position.chunk, last.position.batch + 1
            )
            batch.chunk_done = last.chunk_done
            yield batch

    def count_steps(self, accumulation_steps: int, epochs: float) -> int:
        """Return how many optimizer steps a run over a map-style dataset makes.

        All batches are planned and none is loaded. Every process counts the same.

        Args:
            accumulation_steps: The micro-batches of a process in a step.
            epochs: The passes over the rows, at most those of this object.
        """
        assert self.tokens is not None  # The length of a stream is unknown.
        num_chunks = math.ceil(len(self.tokens) / self.buffer_rows)
        num_rounds = 0
        for planned_round in replace(self, start=Position())._rounds():
            num_rounds += 1
            last = planned_round[-1]
            chunks_done = last.position.chunk + last.chunk_done
            epochs_done = last.position.epoch + chunks_done / num_chunks
            if num_rounds % accumulation_steps == 0 and epochs_done >= epochs:
                break
        return num_rounds // accumulation_steps

    # ---- Checks

    def _check_joining(self) -> None:
        joins = self.max_joined_rows > 1
        changes_texts = joins or self.neighbor_share > 0
        if changes_texts and LABEL in (self.dataset.column_names or ()):
            raise TmdeError(
                "max_joined_rows, neighbor_share: labels are of single rows, expected 1 and 0"
            )
        if changes_texts and self.has_triples:
            raise TmdeError(
                "max_joined_rows, neighbor_share: triples do not continue one another, expected 1 "
                "and 0"
            )
        if self._unread_targets and self.neighbor_share:
            raise TmdeError(
                f"translation targets={self._unread_targets}: found "
                f"neighbor_share={self.neighbor_share}, expected 0, because a text that is "
                "replaced has no such target"
            )
        if joins:
            self._check_blanks()

    @property
    def _unread_targets(self) -> list[str]:
        """The targets that are not among the texts that the encoder reads."""
        return [name for name in self.targets if name not in (PIVOTS, SELF)]

    def _check_blanks(self) -> None:
        """Check that the tokenizer leaves a blank between texts that are joined."""
        joined = self.tokenizer.decode(2 * self.tokenizer.encode("a", add_special_tokens=False))
        if joined != "a a":
            raise TmdeError(
                f"max_joined_rows={self.max_joined_rows}: the tokenizer makes {joined!r} of the "
                "texts 'a' and 'a' joined, expected 'a a': train it with "
                "tokenizer.add_prefix_space=true, or set max_joined_rows=1"
            )

    def _needed_languages(self) -> Sequence[str] | None:
        """Return the languages of which every set must hold one; None for no such need."""
        if not self.pivots_only:
            return None
        if isinstance(self.pivots_only, bool):
            return self.pivot_languages
        if not set(self.pivots_only) <= set(self.pivot_languages):
            raise TmdeError(
                f"pivot_pairs={self.pivots_only}: expected some of the pivots "
                f"{self.pivot_languages}"
            )
        return self.pivots_only

    # ---- The stream of planned batches

    def _rounds(self) -> Iterator[list[PositionedBatch]]:
        """Yield `world_size` batches at a time, of which each process takes one."""
        planned_batches = self._plan_all()
        while True:
            planned_round = list(itertools.islice(planned_batches, self.world_size))
            if len(planned_round) < self.world_size:
                return
            yield planned_round

    def _plan_all(self) -> Iterator[PositionedBatch]:
        """Yield the batches of all epochs and processes from `start` on."""
        epochs: Iterator[int] = itertools.count(self.start.epoch)
        if self.epochs is not None:
            epochs = iter(range(self.start.epoch, self.epochs))
        for epoch in epochs:
            first_chunk = self.start.chunk if epoch == self.start.epoch else 0
            is_empty = True
            for planned in self._plan_epoch(epoch, first_chunk):
                is_empty = False
                position = planned.position
                in_first_chunk = (epoch, position.chunk) == (self.start.epoch, self.start.chunk)
                if not in_first_chunk or position.batch >= self.start.batch:
                    yield planned
            if is_empty and first_chunk == 0:
                self._raise_no_usable_row()

    def _plan_epoch(self, epoch: int, first_chunk: int) -> Iterator[PositionedBatch]:
        """Yield all batches of an epoch from a chunk on."""
        chunks = self._chunks(epoch, first_chunk)
        for chunk_number, chunk in enumerate(chunks, start=first_chunk):
            rng = np.random.default_rng([self.seed, epoch, chunk_number])
            plans, counts = self.planner.plan(chunk.tokens, chunk.rows, rng)
            for number, plan in enumerate(plans):
                yield PositionedBatch(
                    plan=plan,
                    tokens=chunk.tokens,
                    position=Position(epoch, chunk_number, number),
                    counts=counts,
                    chunk_done=(number + 1) / len(plans),
                )

    def _chunks(self, epoch: int, first_chunk: int) -> Iterator[Chunk]:
        """Yield the rows of an epoch, `buffer_rows` at a time, from chunk `first_chunk` on."""
        if self.tokens is None:
            yield from self._streamed_chunks(epoch, first_chunk)
            return
        order = np.arange(len(self.tokens))
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        if self.neighbor_share and not self.tokens.documented:
            logger.warning_once(
                f"neighbor_share={self.neighbor_share} needs to know which rows follow one another "
                "in a document, and no row has a doc_id: add a column doc_id, or set "
                "neighbor_share=0"
            )
        for begin in range(first_chunk * self.buffer_rows, len(order), self.buffer_rows):
            yield Chunk(self.tokens, order[begin : begin + self.buffer_rows])

    def _streamed_chunks(self, epoch: int, first_chunk: int) -> Iterator[Chunk]:
        stream = self.dataset
        if self.shuffle:
            # Rows that follow one another keep their order; then only the files are shuffled.
            needs_order = self.max_joined_rows > 1 or NEXT in self.targets
            buffer_size = 1 if needs_order else self.buffer_rows
            stream = stream.shuffle(seed=self.seed, buffer_size=buffer_size)
            stream.set_epoch(epoch)
        encoder = TextEncoder(self.tokenizer)
        row_type = features_of(self.read_texts).arrow_schema.field(0).type
        # `iter` reads all of the stream in any DataLoader worker, where plain iteration would take
        # a share of its files and another seed; and `skip` would forget the epoch.
        for columns in itertools.islice(stream.iter(self.buffer_rows), first_chunk, None):
            rows = pa.table({"translation": pa.array(columns["translation"], row_type)})
            labels = np.array(columns[LABEL]) if LABEL in columns else None
            token_table = tokenize(rows, encoder, self.read_texts)
            tokens = Tokens(token_table, texts=rows, labels=labels)
            yield Chunk(tokens, np.arange(len(tokens)))

    def _raise_no_usable_row(self) -> None:
        pivots = ""
        if self.planner.needed_languages is not None:
            needed = self.planner.needed_languages
            pivots = f" with one of the pivot languages {needed} among them"
        number = "two" if self.fewest_languages > 1 else "one"
        targets = ""
        if self._unread_targets:
            targets = f" and the targets {', '.join(self._unread_targets)}"
        raise TmdeError(
            f"No row of the training data has {number} of the languages {self.languages}{pivots}"
            f"{targets}; check data.languages, data.pivot_languages and "
            "objectives.translation.targets"
        )

    # ---- Tensors

    def _load(self, planned: PositionedBatch) -> ParallelBatch:
        """Read the texts of a planned batch."""
        tokens = planned.tokens
        plan = planned.plan
        texts = self._read(tokens, plan.languages, plan.rows)
        lengths = texts.lengths
        target_texts = self._read_targets(tokens, plan)
        first_rows = plan.rows[0, 0]
        teacher_vectors = None
        taught = None
        if self.teacher is not None:
            vectors, is_taught = self.teacher(tokens, first_rows)
            # The teacher has read the row, and not what stands in its place in another language.
            is_replaced = (plan.rows != plan.rows[:1]).any(axis=(0, 1))
            teacher_vectors = torch.from_numpy(vectors)
            taught = torch.from_numpy(is_taught & ~is_replaced)
        labels = None
        if tokens.labels is not None:
            labels = torch.from_numpy(tokens.labels[first_rows])

        languages = tuple(self.languages[number] for number in plan.languages)
        directions = decoder_directions(self.targets, languages, self.pivot_languages)
        target_tokens = 0
        target_words = 0
        for direction in directions:
            predicted = texts if direction.target is None else target_texts[direction.target]
            target_tokens += int((predicted.lengths[direction.text] - 1).sum())
            target_words += int(predicted.words[direction.text].sum())
        sizes = BatchSizes(
            rows=lengths.shape[1],
            languages=len(languages),
            directions=len(directions),
            target_tokens=target_tokens,
            tokens=int(lengths.sum()),
            taught_rows=0 if taught is None else int(taught.sum()),
            has_triples=self.has_triples,
        )
        steps = np.arange(lengths.max())
        return ParallelBatch(
            input_ids=torch.from_numpy(texts.input_ids),
            attention_mask=torch.from_numpy((steps < lengths[..., None]).astype(np.int64)),
            languages=languages,
            sizes=sizes,
            words=WordCounts(int(texts.words.sum()), target_words),
            lengths=lengths,
            teacher_vectors=teacher_vectors,
            taught=taught,
            labels=labels,
            targets={name: target_texts[name].as_targets() for name in target_texts},
            position=planned.position,
            counts=planned.counts,
        )

    def _read_targets(self, tokens: Tokens, plan: PlannedBatch) -> dict[str, LoadedTexts]:
        """Read the texts that the decoder alone needs, by the name of the target."""
        targets = {}
        if plan.next_rows is not None:
            targets[NEXT] = self._read(tokens, plan.languages, plan.next_rows[None, None])
        columns = zip(target_columns(self.targets), self.planner.columns, strict=True)
        for name, number in columns:
            targets[name] = self._read(tokens, (number,), plan.rows[:1])
        return targets

    def _read(self, tokens: Tokens, languages: Sequence[int], rows: np.ndarray) -> LoadedTexts:
        """Read texts.

        Args:
            tokens: Where they are read.
            languages: Their languages or columns by their numbers.
            rows: The rows that make up each text, (languages, joined, rows), or (1, joined, rows).
        """
        numbers = np.array(languages)[:, None, None]  # (languages, 1, 1)
        # (languages, rows, joined): the order of the tokens.
        rows, numbers = np.broadcast_arrays(rows.transpose(0, 2, 1), numbers)
        is_row = rows >= 0
        part_lengths = np.where(is_row, tokens.lengths[rows, numbers], 0).astype(np.int64)
        part_lengths = self._truncate(part_lengths)
        lengths = part_lengths.sum(-1) + 2  # (languages, rows)
        words = np.where(is_row, tokens.words[rows, numbers], 0).sum(-1)  # (languages, rows)
        ids = tokens.gather(rows[is_row], numbers[is_row], part_lengths[is_row])
        return LoadedTexts(self._pad(ids, lengths), lengths, words)

    def _truncate(self, part_lengths: np.ndarray) -> np.ndarray:
        """Shorten the parts of texts (..., joined) so that each text fits into `max_length`."""
        before = np.cumsum(part_lengths, axis=-1) - part_lengths
        return np.clip(self.max_length - 2 - before, 0, part_lengths)

    def _pad(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return `<s> tokens </s>` of all texts, padded on the right to one length.

        Args:
            ids: The tokens of one text after the other, without special ones.
            lengths: (languages, rows), with `<s>` and `</s>`.

        Returns:
            (languages, rows, length).
        """
        steps = np.arange(lengths.max())
        last_steps = lengths[..., None] - 1  # (languages, rows, 1)
        shape = (*lengths.shape, len(steps))
        input_ids = np.full(shape, self.tokenizer.pad_token_id, dtype=np.int64)
        input_ids[(steps > 0) & (steps < last_steps)] = ids
        input_ids[..., 0] = self.bos
        np.put_along_axis(input_ids, last_steps, self.eos, axis=-1)
        return input_ids


def batches_of(
    rows: datasets.Dataset | datasets.IterableDataset,
    tokenizer: PreTrainedTokenizerBase,
    model: ParallelModel,
    args: TmdeTrainingArguments,
    teachers: Teachers | None = None,
    **options: Any,
) -> ParallelBatches:
    """Return the batches on which a model with its objectives is trained or measured.

    Args:
        rows: Parallel rows.
        tokenizer: The tokenizer.
        model: Its objectives say what they need of the rows.
        args: The options that training and measuring share.
        teachers: The teachers of the run; None for their newest versions.
        options: Options of `ParallelBatches` that they do not share.
    """
    teachers = teachers or open_teachers(model, args)
    return ParallelBatches(
        rows,
        tokenizer,
        model.texts,
        model.config.pivot_languages,
        micro_batch_tokens=args.micro_batch_tokens,
        pivots_only=args.pivot_pairs or model.needs_pivot,
        max_length=args.train_max_length,
        teacher=None if teachers is None else teachers.vectors_of(rows),
        targets=model.targets or (PIVOTS,),
        fewest_languages=2 if model.needs_several_languages else 1,
        **options,
    )


class ParallelLoader(DataLoader):
    """A `DataLoader` of `ParallelBatches` whose workers start without tokenizer threads."""

    def __init__(self, batches: ParallelBatches, **options: Any):
        # By default, torch would make a dictionary of tensors of a batch.
        super().__init__(batches, batch_size=None, collate_fn=_unchanged, **options)

    def __iter__(self) -> Iterator[ParallelBatch]:  # type: ignore[override]  # torch: a private class
        with patch_environment(TOKENIZERS_PARALLELISM="false"):
            return super().__iter__()


def _unchanged(batch: Any) -> Any:
    return batch
