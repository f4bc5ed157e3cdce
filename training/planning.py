"""Which rows share a micro-batch: a chunk of rows is planned on its own, from its rows and a random generator."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from modeling_tmde.data.token_store import Tokens


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


@dataclass(frozen=True)
class Plan:
    """The rows of one micro-batch: `rows` (languages, joined, rows) of the store, -1 where nothing is joined."""

    languages: tuple[int, ...]
    rows: np.ndarray


@dataclass
class Planner:
    """
    Plans the micro-batches of chunks. The fields are the options of `ParallelBatches` of the same names.

    Lengths are those of the tokens, so a chunk is planned at once from the store's index, and not a text is touched.
    """

    languages: list[str]
    pivot_languages: list[str]
    micro_batch_tokens: int
    languages_per_row: int | None
    temperature: float
    micro_batch_rows: int | None
    max_joined_rows: int
    neighbor_share: float
    pivots_only: bool
    max_length: int
    shuffle: bool

    def __post_init__(self):
        if len(self.languages) < 2:
            raise ValueError(f"Parallel rows need at least two languages, found {self.languages}")
        least = {"languages_per_row": 2, "micro_batch_rows": 1, "max_joined_rows": 1}
        unlimited = {"languages_per_row": ", or null for all of a row", "micro_batch_rows": ", or null for no limit"}
        for name, number in least.items():
            found = getattr(self, name)
            if found is not None and found < number:
                raise ValueError(f"{name}={found} must be at least {number}{unlimited.get(name, '')}")
        if not 0 <= self.neighbor_share <= 1:
            found = self.neighbor_share
            raise ValueError(f"neighbor_share={found} is a share of the rows and must lie between 0 and 1")
        if self.temperature <= 0:
            raise ValueError(f"pair_temperature={self.temperature} must be above 0 (inf is uniform)")
        self._language_sets: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

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

    def plan(self, tokens: Tokens, rows: np.ndarray, rng: np.random.Generator) -> tuple[list[Plan], ChunkCounts]:
        """The micro-batches of a chunk, in their final order."""
        groups, counts = self._draw_languages(tokens, rows, rng)
        planned = []
        for languages, group in sorted(groups.items()):
            cells = self._neighbors(tokens, languages, group, rng)  # (languages, joined, rows)
            lengths = self._lengths(tokens, languages, cells, counts)
            planned.extend(Plan(languages, cells[..., batch]) for batch in self._pack(lengths, len(languages), rng))
        if self.shuffle:
            planned = [planned[index] for index in rng.permutation(len(planned))]
        return planned, counts

    def _draw_languages(
        self, tokens: Tokens, rows: np.ndarray, rng: np.random.Generator
    ) -> tuple[dict[tuple[int, ...], np.ndarray], ChunkCounts]:
        """The rows of each set of languages, and the counts of rows without one."""
        counts = ChunkCounts(rows=len(rows))
        available = tokens.available(rows)
        _, first, kind_of_row = np.unique(_pack_bits(available), return_index=True, return_inverse=True)
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
        self, tokens: Tokens, languages: tuple[int, ...], rows: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """The rows of the store that make up each text: (languages, joined, rows), -1 for none.

        A row is joined by those after it, as long as they continue its document in all of these languages. Of
        `neighbor_share` of the rows the last language's text is the row after the first language's.
        """
        sizes = np.ones(len(rows), dtype=np.int64)
        if self.max_joined_rows > 1:
            sizes = rng.integers(1, self.max_joined_rows + 1, size=len(rows))
        final = len(tokens.neighbors) - 1

        def goes_on(before: np.ndarray, after: np.ndarray) -> np.ndarray:
            return tokens.neighbors[before] & tokens.available(after)[:, languages].all(axis=1)

        cells = np.full((self.max_joined_rows, len(rows)), -1, dtype=np.int64)
        cells[0] = rows
        for step in range(1, self.max_joined_rows):
            before = cells[step - 1]
            after = np.minimum(before + 1, final)
            cells[step] = np.where((before >= 0) & (step < sizes) & goes_on(before, after), after, -1)
        cells = np.repeat(cells[None], len(languages), axis=0)
        if self.neighbor_share:
            last = cells[-1].max(axis=0)
            after = np.minimum(last + 1, final)
            moved = (rng.random(len(rows)) < self.neighbor_share) & goes_on(last, after)
            cells[-1, 0] = np.where(moved, after, cells[-1, 0])
            cells[-1, 1:] = np.where(moved, -1, cells[-1, 1:])
        return cells

    def _lengths(
        self, tokens: Tokens, languages: tuple[int, ...], cells: np.ndarray, counts: ChunkCounts
    ) -> np.ndarray:
        """Tokens of the longest text of each row, `<s>` and `</s>` counted, after truncation: (rows,)."""
        there = cells >= 0
        numbers = np.broadcast_to(np.array(languages)[:, None, None], cells.shape)
        lengths = np.zeros(cells.shape, dtype=np.int64)
        lengths[there] = tokens.cells(cells[there], numbers[there]).lengths
        lengths = lengths.sum(axis=1) + 2  # (languages, rows)
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


def _pack_bits(flags: np.ndarray) -> np.ndarray:
    """One value for each row of flags (rows, any): a number of 64 bits, if that will do, which sorts far faster."""
    packed = np.packbits(flags, axis=1)
    if packed.shape[1] > 8:
        return packed.view(f"V{packed.shape[1]}").reshape(-1)
    padded = np.zeros((len(packed), 8), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64).reshape(-1)
