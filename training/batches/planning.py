"""Planning of micro-batches: which rows share one, in which languages, and in which order.

A plan depends on the rows of one chunk and a random generator alone, so every process makes the
same one, and a run resumes at any batch by planning one chunk.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tmde.data.tokens import Tokens
from tmde.training.objectives.targets import NEXT, target_columns

# Languages of a row by their numbers, ascending.
LanguageSet = tuple[int, ...]
NO_ROW = -1


@dataclass(frozen=True, eq=False)
class PlannedBatch:
    """The texts of one micro-batch, of which nothing is read yet.

    Attributes:
        languages: The languages by their numbers.
        rows: The rows that make up each text, (languages, joined, rows of the batch); `NO_ROW`
            where fewer rows are joined. They are numbers of rows of the chunk's tokens.
        next_rows: The row that follows each text in its document, (rows of the batch,), if one is
            to be predicted.
    """

    languages: LanguageSet
    rows: np.ndarray
    next_rows: np.ndarray | None = None


@dataclass(frozen=True)
class BatchPlanner:
    """Plans the micro-batches of one chunk after another.

    The attributes are described at `ParallelBatches`.

    Attributes:
        languages: The languages to use.
        needed_languages: Every set of languages must hold one of these; None for no such need.
        languages_per_row: How many languages of each row are used; None for all.
        temperature: How evenly sets of languages are drawn.
        micro_batch_tokens: The most padded tokens of one language of a micro-batch.
        micro_batch_rows: The most rows of a micro-batch; None for no limit.
        max_joined_rows: How many rows are joined at most.
        neighbor_share: How often the last language's text is the next row's.
        max_length: The length to which texts are truncated, in tokens.
        shuffle: Whether rows and batches are shuffled.
        fewest_languages: How many languages a row must have.
        targets: What the decoder predicts.
        needed_texts: Every set of languages must hold all of these.
    """

    languages: Sequence[str]
    needed_languages: Sequence[str] | None
    languages_per_row: int | None
    temperature: float
    micro_batch_tokens: int
    micro_batch_rows: int | None
    max_joined_rows: int
    neighbor_share: float
    max_length: int
    shuffle: bool
    fewest_languages: int = 2
    targets: Sequence[str] = ()
    needed_texts: Sequence[str] = ()

    @property
    def columns(self) -> tuple[int, ...]:
        """The target columns by their numbers, which follow those of the languages."""
        number = len(target_columns(self.targets))
        return tuple(range(len(self.languages), len(self.languages) + number))

    def plan(
        self, tokens: Tokens, rows: np.ndarray, rng: np.random.Generator
    ) -> tuple[list[PlannedBatch], Counter[str]]:
        """Plan a chunk.

        Args:
            tokens: The tokens of the dataset.
            rows: The rows of the chunk, as numbers of rows of `tokens`.
            rng: The generator of this chunk.

        Returns:
            The micro-batches in their final order, and the counts of the chunk.
        """
        rows_by_languages, counts = self._draw_languages(tokens, rows, rng)
        planned = []
        for languages, members in sorted(rows_by_languages.items()):
            joined_rows = self._join(tokens, languages, members, rng)  # (languages, joined, rows)
            next_rows = None
            if NEXT in self.targets:
                next_rows = self._next_rows(tokens, languages, joined_rows[0])
                has_next = next_rows >= 0
                counts["rows_without_next"] += int((~has_next).sum())
                joined_rows = joined_rows[..., has_next]
                next_rows = next_rows[has_next]
            lengths = self._lengths(tokens, languages, joined_rows, next_rows)
            counts["texts"] += lengths.size
            counts["truncated_texts"] += int((lengths > self.max_length).sum())
            longest = np.minimum(lengths, self.max_length).max(axis=0)
            for batch_rows in self._pack(longest, rng):
                next_of_batch = None if next_rows is None else next_rows[batch_rows]
                planned.append(PlannedBatch(languages, joined_rows[..., batch_rows], next_of_batch))
        if self.shuffle:
            planned = [planned[index] for index in rng.permutation(len(planned))]
        return planned, counts

    # ---- Languages

    def _language_sets(self, available: LanguageSet) -> list[LanguageSet]:
        """Return the sets of languages that a row with these languages can give."""
        num_languages = len(available)
        if self.languages_per_row is not None:
            num_languages = min(self.languages_per_row, num_languages)
        if num_languages < self.fewest_languages:
            return []
        language_sets = itertools.combinations(available, num_languages)
        return list(filter(self._fits, language_sets))

    def _fits(self, language_set: LanguageSet) -> bool:
        """Return whether a set of languages holds one of the needed ones, and all needed texts."""
        languages = {self.languages[number] for number in language_set}
        if not languages.issuperset(self.needed_texts):
            return False
        return self.needed_languages is None or not languages.isdisjoint(self.needed_languages)

    def _draw_languages(
        self, tokens: Tokens, rows: np.ndarray, rng: np.random.Generator
    ) -> tuple[dict[LanguageSet, np.ndarray], Counter[str]]:
        """Draw a set of languages for each row.

        Returns:
            The rows of each set of languages, and the counts of rows with and without one.
        """
        counts = Counter(rows=len(rows), rows_without_pair=0, texts=0, truncated_texts=0)
        if self.columns:
            has_columns = (tokens.lengths[rows][:, self.columns] >= 0).all(axis=1)  # (rows,)
            counts["rows_without_column"] = int((~has_columns).sum())
            rows = rows[has_columns]
        # Rows that have the same languages are of one kind, and are drawn together.
        available = tokens.lengths[rows][:, : len(self.languages)] >= 0  # (rows, languages)
        _, first_rows, kind_of_row = np.unique(
            np.packbits(available, axis=1), axis=0, return_index=True, return_inverse=True
        )
        kind_of_row = kind_of_row.reshape(-1)
        sets_of_kind = []
        for row in first_rows:
            available_languages = np.flatnonzero(available[row]).tolist()
            sets_of_kind.append(self._language_sets(tuple(available_languages)))
        kind_sizes = np.bincount(kind_of_row).tolist()

        frequencies: Counter[LanguageSet] = Counter()
        for language_sets, kind_size in zip(sets_of_kind, kind_sizes, strict=True):
            if not language_sets:
                counts["rows_without_pair"] += kind_size
            for language_set in language_sets:
                frequencies[language_set] += kind_size

        members: dict[LanguageSet, list[np.ndarray]] = defaultdict(list)
        draws = rng.random(len(rows))
        for kind, language_sets in enumerate(sets_of_kind):
            if not language_sets:
                continue
            rows_of_kind = np.flatnonzero(kind_of_row == kind)
            drawn = self._draw_sets(language_sets, frequencies, draws[rows_of_kind])
            for number in np.unique(drawn):
                members[language_sets[number]].append(rows_of_kind[drawn == number])

        rows_by_languages = {}
        for language_set, parts in members.items():
            rows_by_languages[language_set] = rows[np.sort(np.concatenate(parts))]
        return rows_by_languages, counts

    def _draw_sets(
        self,
        language_sets: list[LanguageSet],
        frequencies: Counter[LanguageSet],
        draws: np.ndarray,
    ) -> np.ndarray:
        """Return the number of the set that each of the uniform draws (rows,) falls on."""
        exponent = 1 / self.temperature - 1
        weights = [float(frequencies[language_set]) ** exponent for language_set in language_sets]
        cumulative = np.cumsum(weights)
        return np.searchsorted(cumulative, draws * cumulative[-1])

    # ---- Rows

    def _join(
        self, tokens: Tokens, languages: LanguageSet, rows: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Return the rows that make up each text, (languages, joined, rows), `NO_ROW` for none.

        A row is joined by those that follow it, as long as they have all of these languages and
        the target columns. With `neighbor_share`, the last language's text of some rows is replaced
        by the row that follows in the same document.
        """
        numbers = np.ones(len(rows), dtype=np.int64)
        if self.max_joined_rows > 1:
            numbers = rng.integers(1, self.max_joined_rows + 1, size=len(rows))
        joined = np.full((self.max_joined_rows, len(rows)), NO_ROW, dtype=np.int64)
        joined[0] = rows
        for place in range(1, self.max_joined_rows):
            needed = (*languages, *self.columns)
            following = following_rows(tokens, needed, joined[place - 1])
            joined[place] = np.where(place < numbers, following, NO_ROW)
        texts = np.repeat(joined[None], len(languages), axis=0)  # (languages, joined, rows)
        if self.neighbor_share and tokens.documented:
            last_places = (joined >= 0).sum(axis=0) - 1
            last_rows = joined[last_places, np.arange(len(rows))]
            following = following_rows(tokens, languages, last_rows)
            is_drawn = rng.random(len(rows)) < self.neighbor_share
            is_replaced = is_drawn & (following >= 0)
            texts[-1, 0] = np.where(is_replaced, following, texts[-1, 0])
            texts[-1, 1:] = np.where(is_replaced, NO_ROW, texts[-1, 1:])
        return texts

    def _next_rows(
        self, tokens: Tokens, languages: LanguageSet, joined_rows: np.ndarray
    ) -> np.ndarray:
        """Return the row that follows each text (rows,), `NO_ROW` if none has all languages.

        Args:
            tokens: The tokens of the dataset.
            languages: The languages of the texts by their numbers.
            joined_rows: The rows that make up each text, (joined, rows).
        """
        last_places = (joined_rows >= 0).sum(axis=0) - 1
        last_rows = joined_rows[last_places, np.arange(joined_rows.shape[1])]
        return following_rows(tokens, languages, last_rows)

    def _lengths(
        self,
        tokens: Tokens,
        languages: LanguageSet,
        joined_rows: np.ndarray,
        next_rows: np.ndarray | None,
    ) -> np.ndarray:
        """Return the tokens of all texts that are read or predicted, (texts, rows).

        Args:
            tokens: The tokens of the dataset.
            languages: The languages by their numbers.
            joined_rows: The rows that make up each text, (languages, joined, rows).
            next_rows: The rows to predict, (rows,); None for none.
        """
        lengths = [text_lengths(tokens, languages, joined_rows)]
        if next_rows is not None:
            lengths.append(text_lengths(tokens, languages, next_rows[None, None]))
        if self.columns:
            lengths.append(text_lengths(tokens, self.columns, joined_rows[:1]))
        return np.concatenate(lengths)

    def _pack(self, lengths: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield rows of similar length together, as many as both limits allow.

        All languages of a batch are padded to its longest text, so the longer side has rows times
        length tokens. Only a row that is longer than the token budget exceeds it, alone. Rows of
        equal length come in random order.

        Args:
            lengths: The longest text of each row (rows,).
            rng: The generator of this chunk.
        """
        order = np.arange(len(lengths))
        if self.shuffle:
            order = rng.permutation(order)
        order = order[np.argsort(-lengths[order], kind="stable")]
        begin = 0
        while begin < len(order):
            num_rows = max(1, self.micro_batch_tokens // int(lengths[order[begin]]))
            if self.micro_batch_rows is not None:
                num_rows = min(num_rows, self.micro_batch_rows)
            end = begin + num_rows
            # A row alone has no negatives, so the batch before the last leaves it a second row.
            if end + 1 == len(order) and num_rows > 2:
                end -= 1
            yield order[begin:end]
            begin = end


def following_rows(tokens: Tokens, texts: Sequence[int], rows: np.ndarray) -> np.ndarray:
    """Return the row after each row (rows,); `NO_ROW` if there is none with all of the texts.

    Args:
        tokens: The tokens of the dataset.
        texts: The numbers of the languages and target columns that the next row must have.
        rows: Rows of the dataset, or `NO_ROW`.
    """
    # NO_ROW is -1: it reads the last row of the dataset, and what it reads is put aside.
    following = np.where(rows != NO_ROW, tokens.following[rows], NO_ROW)
    has_all_texts = (tokens.lengths[following][:, texts] >= 0).all(axis=1)
    is_usable = (following != NO_ROW) & has_all_texts
    return np.where(is_usable, following, NO_ROW)


def text_lengths(tokens: Tokens, languages: LanguageSet, rows: np.ndarray) -> np.ndarray:
    """Return the tokens of joined texts, `<s>` and `</s>` included, as (languages, rows).

    Args:
        tokens: The tokens of the dataset.
        languages: The languages by their numbers.
        rows: The rows that make up each text, (languages, joined, rows), or (1, joined, rows) if
            they are the same in all languages.
    """
    language_of_text = np.array(languages)[:, None, None]
    # NO_ROW reads the last row here, too.
    lengths = np.where(rows != NO_ROW, tokens.lengths[rows, language_of_text], 0)
    return lengths.sum(axis=1, dtype=np.int64) + 2
