"""From parallel rows to micro-batches that fill a token budget, the same for every run of a seed.

An epoch is cut into chunks of `buffer_rows` rows. Each chunk is planned on its own from (seed, epoch, chunk): which
languages of a row are used, which rows share a batch, in which order the batches come. So a run resumes at any
batch by planning one chunk, and every process plans the same batches and keeps its share. Memory holds one chunk of a
stream. Of a map-style dataset, every process and DataLoader worker holds the token ids of all rows drawn so far (2
bytes a token, 16 a text), so that later epochs tokenise nothing.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import datasets
import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.training.objectives import BatchSizes
from modeling_tmde.training.token_store import ArrowSource, ListSource, TextSource, TokenStore

logger = logging.get_logger("modeling_tmde.training")


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


@dataclass(frozen=True)
class _Plan:
    """The rows of one micro-batch: `rows` (languages, joined, rows) of the store, -1 where nothing is joined."""

    languages: tuple[int, ...]
    rows: np.ndarray


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
        micro_batch_tokens: Most padded tokens of a micro-batch, all languages counted; a row longer than that is a
            micro-batch of its own.
        languages_per_row: Languages used of each row; None uses all that a row has.
        temperature: Of the draw described above.
        buffer_rows: Rows of a chunk.
        micro_batch_rows: Most rows of a micro-batch; None for no such limit.
        max_joined_rows: Joins a row with up to this many less one that follow it in its document (a number drawn
            evenly from 1 to it) to one longer text in every language, so that the encoder also learns texts of several
            sentences; 1 leaves rows as they are. The tokenizer must begin texts with a blank, which then is between
            them. Which document a row belongs to says the column `doc_id` of a map-style dataset; without it, or of
            a stream, rows stay as they are, and a warning says so.
        neighbor_share: Of so many of the rows the last language's text is replaced by the row that follows in the
            document, if there is one: neighbours share their topic, not their words.
        pivots_only: Whether every set of languages must hold a pivot, as translation needs it.
        max_length: Longer texts are truncated to this many tokens, and counted.
        seed: Of shuffling and drawing.
        epochs: Passes over the rows; None repeats them for ever.
        shuffle: Whether rows and batches are shuffled.
        rank, world_size: Micro-batches `rank`, `rank + world_size`, ... are this process's. Rounds that cannot be
            filled for all processes at the very end are left out.
        start: Where to begin, for resuming.

    Raises:
        ValueError: If there are fewer than two languages or `languages_per_row` is below two, if an option is out of
            its range, or rows are joined whose tokenizer leaves no blank between them.
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
        micro_batch_rows: int | None = None,
        max_joined_rows: int = 1,
        neighbor_share: float = 0.0,
        pivots_only: bool = True,
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
        joined = tokenizer.decode(2 * tokenizer.encode("a", add_special_tokens=False))
        if max_joined_rows > 1 and joined != "a a":
            raise ValueError(
                f"max_joined_rows={max_joined_rows}: the tokenizer makes {joined!r} of the texts 'a' and 'a' joined, "
                "expected 'a a': train it with tokenizer.add_prefix_space=true, or set max_joined_rows=1"
            )
        if not 0 <= neighbor_share <= 1:
            raise ValueError(f"neighbor_share={neighbor_share} is a share of the rows and must lie between 0 and 1")
        if micro_batch_rows is not None and micro_batch_rows < 1:
            raise ValueError(f"micro_batch_rows={micro_batch_rows} must be at least 1, or null for no limit")
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
        self.micro_batch_rows = micro_batch_rows
        self.max_joined_rows = max_joined_rows
        self.neighbor_share = neighbor_share
        self.pivots_only = pivots_only
        self.max_length = max_length
        self.seed = seed
        self.epochs = epochs
        self.shuffle = shuffle
        self.rank = rank
        self.world_size = world_size
        self.start = start or Position()
        self._store: tuple[datasets.Dataset, TokenStore] | None = None
        self._language_sets: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

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

    def _batches(self) -> Iterator[tuple[Position, TokenStore, _Plan, ChunkCounts, float]]:
        epochs = itertools.count(self.start.epoch) if self.epochs is None else range(self.start.epoch, self.epochs)
        for epoch in epochs:
            first_chunk = self.start.chunk if epoch == self.start.epoch else 0
            found = False
            for chunk, (store, rows) in enumerate(self._chunks(epoch, first_chunk), start=first_chunk):
                skip = self.start.batch if (epoch, chunk) == (self.start.epoch, self.start.chunk) else 0
                planned, counts = self._plan(store, rows, np.random.default_rng([self.seed, epoch, chunk]))
                found = found or bool(planned)
                for index, plan in enumerate(planned):
                    if index >= skip:
                        yield Position(epoch, chunk, index), store, plan, counts, (index + 1) / len(planned)
            if not found and first_chunk == 0:
                pivots = f" with one of the pivot languages {self.pivot_languages} among them"
                raise ValueError(
                    f"No row of the training data has two of the languages {self.languages}"
                    f"{pivots if self.pivots_only else ''}; check data.languages and data.pivot_languages"
                )

    def _chunks(self, epoch: int, first_chunk: int) -> Iterator[tuple[TokenStore, np.ndarray]]:
        """The rows of an epoch, `buffer_rows` at a time from chunk `first_chunk` on, and the store of their texts."""
        if isinstance(self.dataset, datasets.Dataset):
            if self._store is None or self._store[0] is not self.dataset:
                source = ArrowSource(self.dataset, self.languages)
                self._store = (self.dataset, TokenStore(source, self.tokenizer))
            order = np.arange(len(self.dataset))
            if self.shuffle:
                order = np.random.default_rng([self.seed, epoch]).permutation(order)
            self._check_documents(self._store[1].source)
            for begin in range(first_chunk * self.buffer_rows, len(order), self.buffer_rows):
                yield self._store[1], order[begin : begin + self.buffer_rows]
            return
        stream = self.dataset
        if self.shuffle:
            stream = stream.shuffle(seed=self.seed, buffer_size=self.buffer_rows)
            stream.set_epoch(epoch)
        # `iter` reads all of the stream in any DataLoader worker, where plain iteration would take a share of its
        # files and another seed; and `skip` would forget the epoch.
        for rows in itertools.islice(stream.iter(self.buffer_rows), first_chunk, None):
            source = ListSource(rows["translation"], self.languages)
            self._check_documents(source)
            yield TokenStore(source, self.tokenizer), np.arange(len(source.rows))

    def _check_documents(self, source: TextSource) -> None:
        if (self.max_joined_rows > 1 or self.neighbor_share) and not source.neighbors.any():
            option = f"neighbor_share={self.neighbor_share}"
            if self.max_joined_rows > 1:
                option = f"max_joined_rows={self.max_joined_rows}"
            logger.warning_once(
                f"{option} has no effect: no two rows of the training data follow each other in a document, which a "
                "column doc_id of map-style data would say"
            )

    def _choices(self, available: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The sets of languages (by number) that a row with these can give: every one holds a pivot, if needed."""
        if available in self._language_sets:
            return self._language_sets[available]
        size = len(available) if self.languages_per_row is None else min(self.languages_per_row, len(available))
        sets = itertools.combinations(available, size) if size >= 2 else ()
        pivots = [number for number, language in enumerate(self.languages) if language in self.pivot_languages]
        found = [languages for languages in sets if not self.pivots_only or not set(languages).isdisjoint(pivots)]
        self._language_sets[available] = found
        return found

    def _plan(self, store: TokenStore, rows: np.ndarray, rng: np.random.Generator) -> tuple[list[_Plan], ChunkCounts]:
        """The micro-batches of a chunk, in their final order."""
        groups, counts = self._draw_languages(store, rows, rng)
        planned = []
        for languages, group in sorted(groups.items()):
            cells = self._neighbors(store, languages, group, rng)  # (languages, joined, rows)
            lengths = self._lengths(store, languages, cells, counts)
            planned.extend(_Plan(languages, cells[..., batch]) for batch in self._pack(lengths, len(languages), rng))
        if self.shuffle:
            planned = [planned[index] for index in rng.permutation(len(planned))]
        return planned, counts

    def _draw_languages(
        self, store: TokenStore, rows: np.ndarray, rng: np.random.Generator
    ) -> tuple[dict[tuple[int, ...], np.ndarray], ChunkCounts]:
        """The rows of each set of languages, and the counts of rows without one."""
        counts = ChunkCounts(rows=len(rows))
        available = store.source.available[rows]
        packed = np.packbits(available, axis=1)  # sorted many times faster
        _, first, kind_of_row = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        kind_of_row = kind_of_row.reshape(-1)
        choices = [self._choices(tuple(np.flatnonzero(available[row]).tolist())) for row in first]
        frequency: dict[tuple[int, ...], int] = defaultdict(int)
        for sets, size in zip(choices, np.bincount(kind_of_row), strict=True):
            counts.rows_without_pair += 0 if sets else int(size)
            for languages in sets:
                frequency[languages] += int(size)
        members: dict[tuple[int, ...], list[np.ndarray]] = defaultdict(list)
        draws = rng.random(len(rows))
        for kind, sets in enumerate(choices):
            if sets:
                of_kind = np.flatnonzero(kind_of_row == kind)
                weights = np.cumsum([float(frequency[languages]) ** (1 / self.temperature - 1) for languages in sets])
                drawn = np.searchsorted(weights, draws[of_kind] * weights[-1])
                for number in np.unique(drawn):
                    members[sets[number]].append(of_kind[drawn == number])
        groups = {languages: np.sort(np.concatenate(parts)) for languages, parts in members.items()}
        return {languages: rows[places] for languages, places in groups.items() if len(places)}, counts

    def _neighbors(
        self, store: TokenStore, languages: tuple[int, ...], rows: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """The rows of the store that make up each text: (languages, joined, rows), -1 for none.

        A row is joined by those after it, as long as they continue its document in all of these languages. Of
        `neighbor_share` of the rows the last language's text is the row after the first language's.
        """
        source = store.source
        sizes = np.ones(len(rows), dtype=np.int64)
        if self.max_joined_rows > 1:
            sizes = rng.integers(1, self.max_joined_rows + 1, size=len(rows))
        whole = source.available[:, languages].all(axis=1)
        cells = np.full((self.max_joined_rows, len(rows)), -1, dtype=np.int64)
        cells[0] = rows
        for step in range(1, self.max_joined_rows):
            before = cells[step - 1]
            after = np.minimum(before + 1, len(whole) - 1)
            goes_on = (before >= 0) & (step < sizes) & source.neighbors[before] & whole[after]
            cells[step] = np.where(goes_on, after, -1)
        cells = np.repeat(cells[None], len(languages), axis=0)
        if self.neighbor_share:
            last = cells[-1].max(axis=0)
            after = np.minimum(last + 1, len(whole) - 1)
            moved = (rng.random(len(rows)) < self.neighbor_share) & source.neighbors[last] & whole[after]
            cells[-1, 0] = np.where(moved, after, cells[-1, 0])
            cells[-1, 1:] = np.where(moved, -1, cells[-1, 1:])
        return cells

    def _lengths(
        self, store: TokenStore, languages: tuple[int, ...], cells: np.ndarray, counts: ChunkCounts
    ) -> np.ndarray:
        """Tokens of the longest text of each row, `<s>` and `</s>` counted, after truncation: (rows,)."""
        lengths = _total(store, languages, cells)[0] + 2  # (languages, rows)
        counts.texts += lengths.size
        counts.truncated_texts += int((lengths > self.max_length).sum())
        return np.minimum(lengths, self.max_length).max(axis=0)

    def _pack(self, lengths: np.ndarray, num_languages: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Rows of similar length together, as many as the budget holds; rows of equal length in random order."""
        order = rng.permutation(len(lengths)) if self.shuffle else np.arange(len(lengths))
        order = order[np.argsort(-lengths[order], kind="stable")]
        begin = 0
        while begin < len(order):
            size = max(1, self.micro_batch_tokens // (num_languages * int(lengths[order[begin]])))
            size = min(size, self.micro_batch_rows or size)
            # A row alone has no negatives: one that would be left over joins the batch before it.
            end = len(order) if begin + size + 1 == len(order) and size > 1 else begin + size
            yield order[begin:end]
            begin = end

    def _collate(self, position: Position, store: TokenStore, plan: _Plan, counts: ChunkCounts) -> ParallelBatch:
        lengths, words = _total(store, plan.languages, plan.rows)  # (languages, rows)
        lengths = np.minimum(lengths, self.max_length - 2)
        num_languages, num_rows = lengths.shape
        width = int(lengths.max()) + 2
        input_ids = np.full((num_languages, num_rows, width), self.tokenizer.pad_token_id, dtype=np.int64)
        flat = input_ids.reshape(-1)
        begins = np.arange(lengths.size).reshape(lengths.shape) * width
        flat[begins] = self.tokenizer.bos_token_id
        flat[begins + lengths + 1] = self.tokenizer.eos_token_id
        filled = np.zeros_like(lengths)
        numbers = np.broadcast_to(np.array(plan.languages)[:, None], lengths.shape)
        for joined in range(plan.rows.shape[1]):
            there = plan.rows[:, joined] >= 0  # (languages, rows)
            cells = store.cells(plan.rows[:, joined][there], numbers[there])
            taken = np.minimum(cells.lengths, (lengths - filled)[there])
            store.fill(flat, cells.starts, taken, (begins + 1 + filled)[there])
            filled[there] += taken
        attention_mask = (np.arange(width) < lengths[..., None] + 2).astype(np.int64)
        languages = tuple(self.languages[number] for number in plan.languages)
        targets = [index for index, language in enumerate(languages) if language in self.pivot_languages]
        sources = num_languages - 1  # of each pivot
        sizes = BatchSizes(
            rows=num_rows,
            languages=num_languages,
            directions=sources * len(targets),
            target_tokens=sources * int((lengths[targets] + 1).sum()),
        )
        return ParallelBatch(
            torch.from_numpy(input_ids),
            torch.from_numpy(attention_mask),
            languages,
            sizes,
            (int(words.sum()), sources * int(words[targets].sum())),
            position,
            counts=counts,
        )


def _total(store: TokenStore, languages: tuple[int, ...], cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and words of texts joined of rows `cells` (languages, joined, rows): twice (languages, rows)."""
    there = cells >= 0
    numbers = np.broadcast_to(np.array(languages)[:, None, None], cells.shape)
    found = store.cells(cells[there], numbers[there])
    lengths, words = np.zeros(cells.shape, dtype=np.int64), np.zeros(cells.shape, dtype=np.int64)
    lengths[there], words[there] = found.lengths, found.words
    return lengths.sum(axis=1), words.sum(axis=1)
