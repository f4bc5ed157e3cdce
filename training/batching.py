"""From parallel rows to micro-batches that fill a token budget, the same for every run of a seed.

An epoch is cut into chunks of `buffer_rows` rows. Each chunk is planned on its own from (seed, epoch, chunk): which
languages of a row are used, which rows share a batch, in which order the batches come. So a run resumes at any
batch by planning one chunk, memory stays flat, and every process plans the same batches and keeps its share.
"""

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import datasets
import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info
from transformers import PreTrainedTokenizerBase

from modeling_tmde.training.objectives import BatchSizes


@dataclass(frozen=True)
class Position:
    """A place in the stream of micro-batches."""

    epoch: int = 0
    chunk: int = 0
    batch: int = 0


@dataclass
class ChunkCounts:
    """What became of the rows and texts of a chunk."""

    rows: int = 0
    rows_without_pair: int = 0
    texts: int = 0
    truncated_texts: int = 0

    def add(self, other: "ChunkCounts") -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class ParallelBatch:
    """One micro-batch: `rows` rows in the same `languages`.

    Attributes:
        input_ids: (languages, rows, length) `<s> tokens </s>`, right-padded to one length.
        attention_mask: (languages, rows, length).
        languages: Codes in the order of the first dimension.
        sizes: What the objectives divide by.
        words: Whitespace-separated words of (all texts, all target texts of all directions).
        position: Where this batch stands; `next_position` is where the stream goes on after the round it belongs to.
        counts: Of the chunk that this batch comes from.
        chunk_done: Share of its chunk that is done after the round this batch belongs to.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    languages: tuple[str, ...]
    sizes: BatchSizes
    words: tuple[int, int]
    position: Position = field(default_factory=Position)
    next_position: Position = field(default_factory=Position)
    counts: ChunkCounts = field(default_factory=ChunkCounts)
    chunk_done: float = 0.0

    def model_inputs(self) -> dict:
        return {"input_ids": self.input_ids, "attention_mask": self.attention_mask, "languages": self.languages}

    def pin_memory(self) -> "ParallelBatch":
        self.input_ids, self.attention_mask = self.input_ids.pin_memory(), self.attention_mask.pin_memory()
        return self


@dataclass
class _EncodedRow:
    token_ids: tuple[list[int], ...]  # one list a language
    words: tuple[int, ...]

    @property
    def length(self) -> int:
        return max(map(len, self.token_ids))


class ParallelBatches(IterableDataset):
    """
    Micro-batches of parallel rows, for one process of `world_size`.

    Of every row at most `languages_per_row` languages are used, at least one of them a pivot. Which ones is drawn
    with weight `n ** (1 / temperature - 1)`, where `n` counts the rows of the chunk that could give the same
    languages: `temperature=1` draws among a row's own possibilities with equal chances, `inf` makes the pairs as
    even as the rows allow (the paper's uniform sampling).

    Args:
        dataset: Rows `{"translation": {language: text or None}}`, map-style or streaming.
        tokenizer: Makes `<s> tokens </s>`.
        languages, pivot_languages: Languages to use, and those the decoder translates into.
        micro_batch_tokens: Most padded tokens of a micro-batch, all languages counted; a row longer than that is a
            micro-batch of its own.
        languages_per_row: Languages used of each row; None uses all that a row has.
        temperature: Of the draw described above.
        buffer_rows: Rows of a chunk.
        max_joined_rows: Joins up to this many rows (a number drawn evenly from 1 to it) to one longer text in every
            language, so that the encoder also learns texts of several sentences; 1 leaves rows as they are.
        max_length: Longer texts are truncated to this many tokens, and counted.
        seed: Of shuffling and drawing.
        epochs: Passes over the rows; None repeats them for ever.
        shuffle: Whether rows and batches are shuffled.
        rank, world_size: Micro-batches `rank`, `rank + world_size`, ... are this process's. Rounds that cannot be
            filled for all processes at the very end are left out.
        start: Where to begin, for resuming.

    Raises:
        ValueError: If there are fewer than two languages or `languages_per_row` is below two.
    """

    def __init__(
        self,
        dataset: datasets.Dataset | datasets.IterableDataset,
        tokenizer: PreTrainedTokenizerBase,
        languages: list[str],
        pivot_languages: list[str],
        micro_batch_tokens: int = 8192,
        languages_per_row: int | None = 2,
        temperature: float = float("inf"),
        buffer_rows: int = 8192,
        max_joined_rows: int = 1,
        max_length: int = 256,
        seed: int = 0,
        epochs: int | None = 1,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
        start: Position | None = None,
    ):
        if len(languages) < 2:
            raise ValueError(f"Parallel rows need at least two languages, found {languages}")
        if languages_per_row is not None and languages_per_row < 2:
            raise ValueError(f"languages_per_row={languages_per_row} must be at least 2, or null for all of a row")
        if max_joined_rows < 1:
            raise ValueError(f"max_joined_rows={max_joined_rows} must be at least 1")
        if temperature <= 0:
            raise ValueError(f"pair_temperature={temperature} must be above 0 (inf is uniform)")
        self.dataset = dataset
        self.tokenizer = tokenizer
        self.languages = list(languages)
        self.pivot_languages = list(pivot_languages)
        self.micro_batch_tokens = micro_batch_tokens
        self.languages_per_row = languages_per_row
        self.temperature = temperature
        self.buffer_rows = buffer_rows
        self.max_joined_rows = max_joined_rows
        self.max_length = max_length
        self.seed = seed
        self.epochs = epochs
        self.shuffle = shuffle
        self.rank = rank
        self.world_size = world_size
        self.start = start or Position()

    @property
    def num_rows(self) -> int | None:
        """Rows of an epoch, or None for a stream of unknown length."""
        return len(self.dataset) if isinstance(self.dataset, datasets.Dataset) else None

    def __iter__(self) -> Iterator[ParallelBatch]:
        worker = get_worker_info()
        workers, worker_id = (worker.num_workers, worker.id) if worker else (1, 0)
        batches = self._batches()
        for index in itertools.count():
            window = list(itertools.islice(batches, self.world_size))
            if len(window) < self.world_size:
                return
            if index % workers == worker_id:
                batch = self._collate(*window[self.rank][:-1])
                last, *_, batch.chunk_done = window[-1]
                batch.next_position = Position(last.epoch, last.chunk, last.batch + 1)
                yield batch

    def _batches(self) -> Iterator[tuple[Position, tuple[str, ...], list[_EncodedRow], ChunkCounts, float]]:
        epochs = itertools.count(self.start.epoch) if self.epochs is None else range(self.start.epoch, self.epochs)
        for epoch in epochs:
            first_chunk = self.start.chunk if epoch == self.start.epoch else 0
            found = False
            for chunk, rows in enumerate(self._chunks(epoch, first_chunk), start=first_chunk):
                skip = self.start.batch if (epoch, chunk) == (self.start.epoch, self.start.chunk) else 0
                planned, counts = self._plan(rows, np.random.default_rng([self.seed, epoch, chunk]))
                found = found or bool(planned)
                for index, (languages, batch_rows) in enumerate(planned):
                    if index >= skip:
                        yield Position(epoch, chunk, index), languages, batch_rows, counts, (index + 1) / len(planned)
            if not found and first_chunk == 0:
                raise ValueError(
                    f"No row of the training data has two of the languages {self.languages} with one of the pivot "
                    f"languages {self.pivot_languages} among them; check data.languages and data.pivot_languages"
                )

    def _chunks(self, epoch: int, first_chunk: int) -> Iterator[list[dict[str, str | None]]]:
        """The rows of an epoch, `buffer_rows` at a time, beginning with chunk `first_chunk`."""
        if isinstance(self.dataset, datasets.Dataset):
            order = np.arange(len(self.dataset))
            if self.shuffle:
                order = np.random.default_rng([self.seed, epoch]).permutation(order)
            for begin in range(first_chunk * self.buffer_rows, len(order), self.buffer_rows):
                yield self.dataset[order[begin : begin + self.buffer_rows]]["translation"]
            return
        stream = self.dataset
        if self.shuffle:
            stream = stream.shuffle(seed=self.seed, buffer_size=self.buffer_rows)
            stream.set_epoch(epoch)
        # `iter` reads all of the stream in any DataLoader worker, where plain iteration would take a share of its
        # files and another seed; and `skip` would forget the epoch.
        for rows in itertools.islice(stream.iter(self.buffer_rows), first_chunk, None):
            yield rows["translation"]

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - lives as long as the run, a handful of language sets
    def _choices(self, available: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The language sets that a row with these languages can give: every one holds a pivot."""
        size = len(available) if self.languages_per_row is None else min(self.languages_per_row, len(available))
        if size < 2:
            return []
        sets = itertools.combinations(available, size)
        return [languages for languages in sets if not set(languages).isdisjoint(self.pivot_languages)]

    def _plan(
        self, rows: list[dict[str, str | None]], rng: np.random.Generator
    ) -> tuple[list[tuple[tuple[str, ...], list[_EncodedRow]]], ChunkCounts]:
        """The micro-batches of a chunk, in their final order."""
        counts = ChunkCounts(rows=len(rows))
        choices = []
        frequency: dict[tuple[str, ...], int] = defaultdict(int)
        for row in rows:
            sets = self._choices(tuple(language for language in self.languages if row.get(language)))
            counts.rows_without_pair += not sets
            choices.append(sets)
            for languages in sets:
                frequency[languages] += 1
        groups: dict[tuple[str, ...], list[dict[str, str | None]]] = defaultdict(list)
        draws = rng.random(len(rows))
        for row, sets, draw in zip(rows, choices, draws, strict=True):
            if sets:
                weights = np.cumsum([float(frequency[languages]) ** (1 / self.temperature - 1) for languages in sets])
                groups[sets[int(np.searchsorted(weights, draw * weights[-1]))]].append(row)
        planned = []
        for languages, group in sorted(groups.items()):
            encoded = self._encode(languages, self._join(languages, group, rng), counts)
            planned.extend((languages, batch) for batch in self._pack(encoded, len(languages), rng))
        if self.shuffle:
            planned = [planned[index] for index in rng.permutation(len(planned))]
        return planned, counts

    def _join(self, languages: tuple[str, ...], rows: list[dict], rng: np.random.Generator) -> list[dict[str, str]]:
        if self.max_joined_rows == 1:
            return rows
        sizes = rng.integers(1, self.max_joined_rows + 1, size=len(rows))
        ends = np.minimum(np.cumsum(sizes), len(rows))
        bounds = itertools.pairwise([0, *dict.fromkeys(ends.tolist())])
        return [
            {language: " ".join(row[language] for row in rows[begin:end]) for language in languages}
            for begin, end in bounds
        ]

    def _encode(self, languages: tuple[str, ...], rows: list[dict], counts: ChunkCounts) -> list[_EncodedRow]:
        columns, words = [], []
        for language in languages:
            texts = [row[language] for row in rows]
            encodings = self.tokenizer(texts, truncation=True, max_length=self.max_length)
            columns.append(encodings["input_ids"])
            words.append([len(text.split()) for text in texts])
            counts.texts += len(texts)
            counts.truncated_texts += sum(bool(encoding.overflowing) for encoding in encodings.encodings)
        pairs = zip(zip(*columns, strict=True), zip(*words, strict=True), strict=True)
        return [_EncodedRow(token_ids, row_words) for token_ids, row_words in pairs]

    def _pack(
        self, rows: list[_EncodedRow], num_languages: int, rng: np.random.Generator
    ) -> Iterator[list[_EncodedRow]]:
        """Rows of similar length together, as many as the budget holds; rows of equal length in random order."""
        order = rng.permutation(len(rows)) if self.shuffle else np.arange(len(rows))
        rows = sorted((rows[index] for index in order), key=lambda row: row.length, reverse=True)
        begin = 0
        while begin < len(rows):
            size = max(1, self.micro_batch_tokens // (num_languages * rows[begin].length))
            # A row alone has no negatives: one that would be left over joins the batch before it.
            end = len(rows) if begin + size + 1 == len(rows) and size > 1 else begin + size
            yield rows[begin:end]
            begin = end

    def _collate(
        self, position: Position, languages: tuple[str, ...], rows: list[_EncodedRow], counts: ChunkCounts
    ) -> ParallelBatch:
        length = max(row.length for row in rows)
        input_ids = np.full((len(languages), len(rows), length), self.tokenizer.pad_token_id, dtype=np.int64)
        attention_mask = np.zeros_like(input_ids)
        for column, row in itertools.product(range(len(languages)), range(len(rows))):
            tokens = rows[row].token_ids[column]
            input_ids[column, row, : len(tokens)] = tokens
            attention_mask[column, row, : len(tokens)] = 1
        targets = [index for index, language in enumerate(languages) if language in self.pivot_languages]
        sources = len(languages) - 1  # of each pivot
        sizes = BatchSizes(
            rows=len(rows),
            languages=len(languages),
            directions=sources * len(targets),
            target_tokens=sources * sum(len(row.token_ids[target]) - 1 for row in rows for target in targets),
        )
        words = (
            sum(sum(row.words) for row in rows),
            sources * sum(row.words[target] for row in rows for target in targets),
        )
        return ParallelBatch(
            torch.from_numpy(input_ids),
            torch.from_numpy(attention_mask),
            languages,
            sizes,
            words,
            position,
            counts=counts,
        )
