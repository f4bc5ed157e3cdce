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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
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
from tmde.data.rows import LABEL, features_of
from tmde.data.tokens import TextEncoder, Tokens, open_tokens, text_bounds, tokenize
from tmde.training.batches.batch import PaddedTexts, ParallelBatch, Position
from tmde.training.batches.planning import BatchPlanner, PlannedBatch
from tmde.training.objectives.base import BatchSizes
from tmde.training.objectives.targets import NEXT, PIVOTS, decoder_directions, target_columns
from tmde.training.teachers import Teachers, TeacherVectors, open_teachers

if TYPE_CHECKING:
    from tmde.training.arguments import TmdeTrainingArguments
    from tmde.training.parallel_model import ParallelModel

logger = logging.get_logger("tmde.training")


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


@dataclass(eq=False)
class ParallelBatches(IterableDataset):
    """Micro-batches of parallel rows, for one process of `world_size`.

    Args:
        dataset: Rows `{"translation": {language: text or None}}`, map-style or streaming.
        tokenizer: Makes `<s> tokens </s>`.
        planner: Chooses the languages of the rows, and the rows of a micro-batch.
        buffer_rows: The rows of a chunk.
        seed: The seed of shuffling and drawing.
        epochs: The number of passes over the rows; None repeats them for ever.
        rank: The number of this process.
        world_size: The number of processes. Micro-batches `rank`, `rank + world_size`, ... are this
            process's. Rounds that cannot be filled for all processes at the very end are left out.
        start: Where to begin, for resuming.
        tokens: The tokens of `dataset`, from `open_tokens`; None makes them in memory, those of a
            stream chunk by chunk.
        teacher: Gives batches a teacher's vectors of `dataset`, from `Teachers.vectors_of`.

    Raises:
        TmdeError: Rows are joined that have labels or are triples, or whose tokenizer leaves no
            blank between them, or texts whose targets are predicted are replaced.
    """

    dataset: datasets.Dataset | datasets.IterableDataset
    tokenizer: PreTrainedTokenizerBase
    planner: BatchPlanner
    buffer_rows: int = 8192
    seed: int = 0
    epochs: int | None = 1
    rank: int = 0
    world_size: int = 1
    start: Position = Position()
    tokens: Tokens | None = None
    teacher: TeacherVectors | None = None

    def __post_init__(self) -> None:
        self._check_joining()
        self.bos, self.eos, _ = text_bounds(self.tokenizer)
        if self.tokens is None and isinstance(self.dataset, datasets.Dataset):
            texts = self.planner.read_texts
            self.tokens = open_tokens(self.dataset, self.tokenizer, texts, folder=None)

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
        planner = self.planner
        joins = planner.max_joined_rows > 1
        changes_texts = joins or planner.neighbor_share > 0
        if changes_texts and LABEL in (self.dataset.column_names or ()):
            raise TmdeError(
                "max_joined_rows, neighbor_share: found labels, which belong to single rows, "
                "expected 1 and 0"
            )
        if changes_texts and planner.has_triples:
            raise TmdeError(
                "max_joined_rows, neighbor_share: found triples, which do not form "
                "documents, expected 1 and 0"
            )
        if planner.unread_targets and planner.neighbor_share:
            raise TmdeError(
                f"translation targets={planner.unread_targets}: found "
                f"neighbor_share={planner.neighbor_share}, expected 0, because a replaced "
                "text has no such target"
            )
        if joins:
            self._check_blanks()

    def _check_blanks(self) -> None:
        """Check that the tokenizer leaves a blank between texts that are joined."""
        joined = self.tokenizer.decode(2 * self.tokenizer.encode("a", add_special_tokens=False))
        if joined != "a a":
            raise TmdeError(
                f"max_joined_rows={self.planner.max_joined_rows}: the tokenizer turns the "
                f"joined texts 'a' and 'a' into {joined!r}, expected 'a a': train it with "
                "tokenizer.add_prefix_space=true, or set max_joined_rows=1"
            )

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
        for chunk_number, (tokens, rows) in enumerate(chunks, start=first_chunk):
            rng = np.random.default_rng([self.seed, epoch, chunk_number])
            plans, counts = self.planner.plan(tokens, rows, rng)
            for number, plan in enumerate(plans):
                yield PositionedBatch(
                    plan=plan,
                    tokens=tokens,
                    position=Position(epoch, chunk_number, number),
                    counts=counts,
                    chunk_done=(number + 1) / len(plans),
                )

    def _chunks(self, epoch: int, first_chunk: int) -> Iterator[tuple[Tokens, np.ndarray]]:
        """Yield the rows of an epoch, `buffer_rows` at a time, from chunk `first_chunk` on.

        Yields:
            The tokens of the dataset, or of this chunk of a stream, and the rows of the chunk, as
            numbers of rows of these tokens.
        """
        if self.tokens is None:
            yield from self._streamed_chunks(epoch, first_chunk)
            return
        order = np.arange(len(self.tokens))
        if self.planner.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        neighbor_share = self.planner.neighbor_share
        if neighbor_share and not self.tokens.documented:
            logger.warning_once(
                f"neighbor_share={neighbor_share} needs the order of rows in a document, but "
                "no row has a doc_id: add a column doc_id, or set neighbor_share=0"
            )
        for begin in range(first_chunk * self.buffer_rows, len(order), self.buffer_rows):
            yield self.tokens, order[begin : begin + self.buffer_rows]

    def _streamed_chunks(self, epoch: int, first_chunk: int) -> Iterator[tuple[Tokens, np.ndarray]]:
        stream = self.dataset
        if self.planner.shuffle:
            # Rows that follow one another keep their order; then only the files are shuffled.
            needs_order = self.planner.max_joined_rows > 1 or NEXT in self.planner.targets
            buffer_size = 1 if needs_order else self.buffer_rows
            stream = stream.shuffle(seed=self.seed, buffer_size=buffer_size)
            stream.set_epoch(epoch)
        encoder = TextEncoder(self.tokenizer)
        read_texts = self.planner.read_texts
        row_type = features_of(read_texts).arrow_schema.field(0).type
        # `iter` reads all of the stream in any DataLoader worker, where plain iteration would take
        # a share of its files and another seed; and `skip` would forget the epoch.
        for columns in itertools.islice(stream.iter(self.buffer_rows), first_chunk, None):
            rows = pa.table({"translation": pa.array(columns["translation"], row_type)})
            labels = np.array(columns[LABEL]) if LABEL in columns else None
            token_table = tokenize(rows, encoder, read_texts)
            tokens = Tokens(token_table, labels=labels)
            yield tokens, np.arange(len(tokens))

    def _raise_no_usable_row(self) -> None:
        planner = self.planner
        pivots = ""
        if planner.needed_languages is not None:
            pivots = f" with one of the pivot languages {planner.needed_languages} among them"
        number = "two" if planner.fewest_languages > 1 else "one"
        targets = ""
        if planner.unread_targets:
            targets = f" and the targets {', '.join(planner.unread_targets)}"
        raise TmdeError(
            f"No row of the training data has {number} of the languages {planner.languages}"
            f"{pivots}{targets}; check data.languages, data.pivot_languages and "
            "objectives.translation.targets"
        )

    # ---- Tensors

    def _load(self, planned: PositionedBatch) -> ParallelBatch:
        """Read the texts of a planned batch."""
        tokens = planned.tokens
        plan = planned.plan
        planner = self.planner
        texts = self._read(tokens, plan.languages, plan.rows)
        lengths = texts.lengths
        targets = self._read_targets(tokens, plan)
        first_rows = plan.rows[0, 0]
        teacher_vectors = None
        taught = None
        if self.teacher is not None:
            vectors, is_taught = self.teacher(first_rows)
            # The teacher has read the row, and not what stands in its place in another language.
            is_replaced = (plan.rows != plan.rows[:1]).any(axis=(0, 1))
            teacher_vectors = torch.from_numpy(vectors)
            taught = torch.from_numpy(is_taught & ~is_replaced)
        labels = None
        if tokens.labels is not None:
            labels = torch.from_numpy(tokens.labels[first_rows])

        languages = tuple(planner.languages[number] for number in plan.languages)
        directions = decoder_directions(planner.targets, languages, planner.pivot_languages)
        target_tokens = 0
        target_words = 0
        for direction in directions:
            predicted = texts if direction.target is None else targets[direction.target]
            target_tokens += int((predicted.lengths[direction.text] - 1).sum())
            target_words += int(predicted.words[direction.text].sum())
        sizes = BatchSizes(
            rows=lengths.shape[1],
            languages=len(languages),
            directions=len(directions),
            target_tokens=target_tokens,
            tokens=int(lengths.sum()),
            taught_rows=0 if taught is None else int(taught.sum()),
            has_triples=planner.has_triples,
        )
        steps = np.arange(lengths.max())
        return ParallelBatch(
            input_ids=texts.input_ids,
            attention_mask=torch.from_numpy((steps < lengths[..., None]).astype(np.int64)),
            languages=languages,
            sizes=sizes,
            source_words=int(texts.words.sum()),
            target_words=target_words,
            lengths=lengths,
            teacher_vectors=teacher_vectors,
            taught=taught,
            labels=labels,
            targets=targets,
            position=planned.position,
            counts=planned.counts,
        )

    def _read_targets(self, tokens: Tokens, plan: PlannedBatch) -> dict[str, PaddedTexts]:
        """Read the texts that the decoder alone needs, by the name of the target."""
        targets = {}
        if plan.next_rows is not None:
            targets[NEXT] = self._read(tokens, plan.languages, plan.next_rows[None, None])
        columns = zip(target_columns(self.planner.targets), self.planner.columns, strict=True)
        for name, number in columns:
            targets[name] = self._read(tokens, (number,), plan.rows[:1])
        return targets

    def _read(self, tokens: Tokens, languages: Sequence[int], rows: np.ndarray) -> PaddedTexts:
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
        return PaddedTexts(torch.from_numpy(self._pad(ids, lengths)), lengths, words)

    def _truncate(self, part_lengths: np.ndarray) -> np.ndarray:
        """Shorten the parts of texts (..., joined) so that each text fits into `max_length`."""
        before = np.cumsum(part_lengths, axis=-1) - part_lengths
        return np.clip(self.planner.max_length - 2 - before, 0, part_lengths)

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
    planning: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> ParallelBatches:
    """Return the batches on which a model with its objectives is trained or measured.

    Args:
        rows: Parallel rows.
        tokenizer: The tokenizer.
        model: Its objectives say what they need of the rows.
        args: The options that training and measuring share.
        teachers: The teachers of the run; None for their newest versions.
        planning: Options of `BatchPlanner` that they do not share.
        options: Options of `ParallelBatches` that they do not share.
    """
    teachers = teachers or open_teachers(model, args)
    planner = BatchPlanner(
        languages=model.texts,
        pivot_languages=model.config.pivot_languages,
        pivots_only=args.pivot_pairs or model.needs_pivot,
        fewest_languages=2 if model.needs_several_languages else 1,
        micro_batch_tokens=args.micro_batch_tokens,
        max_length=args.train_max_length,
        targets=model.targets or (PIVOTS,),
        **planning,
    )
    teacher = None if teachers is None else teachers.vectors_of(rows)
    return ParallelBatches(rows, tokenizer, planner, teacher=teacher, **options)


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
