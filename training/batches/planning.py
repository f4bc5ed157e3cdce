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

from modeling_tmde import TmdeError
from tmde.data.rows import ANCHOR, POSITIVE, triple_texts
from tmde.data.tokens import Tokens
from tmde.training.objectives.base import check_range
from tmde.training.objectives.targets import NEXT, PIVOTS, SELF, target_columns

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

    Of every row at most `languages_per_row` languages are used. Which ones is drawn with weight
    `n ** (1 / temperature - 1)`, where `n` counts the rows of the chunk that could give the same
    languages: `temperature=1` draws among a row's own possibilities with equal chances, `inf` makes
    the pairs as even as the rows allow (the paper's uniform sampling).

    Attributes:
        languages: The languages to use; of triples their texts, all of which a row gives.
        pivot_languages: The languages into which the decoder translates.
        pivots_only: Whether every set of languages must hold a pivot, as translation requires, or a
            list of the pivots of which it must hold one.
        languages_per_row: How many languages of each row are used; None for all that a row has.
        fewest_languages: How many languages a row must have.
        temperature: How evenly languages are drawn, see above.
        micro_batch_tokens: The most padded tokens of one language of a micro-batch: of the longer
            side of its pairs, as `fairseq --max-tokens` counts. A row longer than that is a
            micro-batch of its own.
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
        max_length: The length in tokens to which longer texts are truncated, and counted.
        targets: What the decoder predicts, see `TranslationObjective`. Rows that lack a target are
            left out, and counted as `rows_without_next` or `rows_without_column`. Columns stand in
            `translation` beside the languages. `"next"` keeps the rows of a stream in order.
        shuffle: Whether rows and batches are shuffled.

    Raises:
        TmdeError: The temperature is 0 or less, or `pivots_only` names no pivot.
    """

    languages: Sequence[str]
    pivot_languages: Sequence[str]
    pivots_only: list[str] | bool = True
    languages_per_row: int | None = 2
    fewest_languages: int = 2
    temperature: float = float("inf")
    micro_batch_tokens: int = 4096
    micro_batch_rows: int | None = None
    max_joined_rows: int = 1
    neighbor_share: float = 0.0
    max_length: int = 256
    targets: Sequence[str] = (PIVOTS,)
    shuffle: bool = True

    def __post_init__(self) -> None:
        check_range("pair_temperature", self.temperature, "(0, inf]")
        if not set(self.needed_languages or ()) <= set(self.pivot_languages):
            raise TmdeError(
                f"pivot_pairs={self.pivots_only}: expected some of the pivots "
                f"{self.pivot_languages}"
            )

    @property
    def has_triples(self) -> bool:
        """Whether the texts of a row are an anchor, its positive and hard negatives."""
        return bool(triple_texts(self.languages))

    @property
    def needed_languages(self) -> Sequence[str] | None:
        """The languages of which every set must hold one; None for no such need."""
        if not self.pivots_only:
            return None
        if isinstance(self.pivots_only, bool):
            return self.pivot_languages
        return self.pivots_only

    @property
    def unread_targets(self) -> list[str]:
        """The targets that are not among the texts that the encoder reads."""
        return [name for name in self.targets if name not in (PIVOTS, SELF)]

    @property
    def read_texts(self) -> list[str]:
        """The texts of a row that are tokenized."""
        return [*self.languages, *target_columns(self.targets)]

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
        if self.languages_per_row is not None and not self.has_triples:
            num_languages = min(self.languages_per_row, num_languages)
        if num_languages < self.fewest_languages:
            return []
        language_sets = itertools.combinations(available, num_languages)
        return list(filter(self._fits, language_sets))

    def _fits(self, language_set: LanguageSet) -> bool:
        """Return whether a set of languages holds one of the needed ones.

        A triple must have an anchor and its positive.
        """
        languages = {self.languages[number] for number in language_set}
        if self.has_triples and not languages.issuperset((ANCHOR, POSITIVE)):
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
    # NO_ROW reads the last row here, too, which the sum leaves out.
    lengths = tokens.lengths[rows, language_of_text]  # (languages, joined, rows)
    return lengths.sum(axis=1, where=rows != NO_ROW, dtype=np.int64) + 2
