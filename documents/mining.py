"""Bitext mining: translations among the sentences of two collections that are not parallel.

```python
mined = mine_bitext(german_vectors, english_vectors, threshold=1.1)
for first_row, second_row, score in zip(mined.first, mined.second, mined.scores):
    print(score, german[first_row], english[second_row])
```
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

import numpy as np

from modeling_tmde import TmdeError
from modeling_tmde.tokenization import without_invisible
from tmde.data.lines import read_lines
from tmde.data.tables import Table
from tmde.documents.neighbors import (
    check_scoring,
    find_neighbors,
    ranked_scores,
    warn_without_ratio,
)
from tmde.documents.quality import PairQuality
from tmde.documents.unit_rows import Matrix

RETRIEVALS = ("forward", "backward", "intersection", "max")
GoldPairs = list[tuple[int, int]]  # row numbers of the first and of the second side
Neighbors = tuple[np.ndarray, np.ndarray]  # cosines and row numbers of neighbors, (n, k) each

GOLD_COLUMNS = ("id_a", "id_b")
_DIGEST_BYTES = 16

Text = TypeVar("Text")


@dataclass(frozen=True)
class ScoredPairs:
    """p pairs of rows with their scores.

    Attributes:
        first: The row numbers on the first side, (p,) int64.
        second: The row numbers on the second side, (p,) int64.
        scores: (p,) float32.
        cosines: The cosine of each pair, (p,) float32.
        neighbor_means: The mean cosine of both texts to their `k` nearest neighbors on the other
            side, (p,) float32.
    """

    first: np.ndarray
    second: np.ndarray
    scores: np.ndarray
    cosines: np.ndarray
    neighbor_means: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, chosen: slice | np.ndarray) -> ScoredPairs:
        """Return the chosen pairs, in the order of their choice."""
        return ScoredPairs(
            self.first[chosen],
            self.second[chosen],
            self.scores[chosen],
            self.cosines[chosen],
            self.neighbor_means[chosen],
        )

    def renumbered(self, first_rows: np.ndarray, second_rows: np.ndarray) -> ScoredPairs:
        """Return the pairs with the row numbers of larger collections.

        Args:
            first_rows: The new number of each row of the first side, (n,).
            second_rows: That of each row of the second side, (m,).
        """
        return dataclasses.replace(
            self, first=first_rows[self.first], second=second_rows[self.second]
        )

    def best_first(self) -> ScoredPairs:
        """Return all pairs by falling score.

        Equal scores are in order of row numbers, so that two runs agree.
        """
        return self[np.lexsort((self.second, self.first, -self.scores))]

    def rows(self) -> GoldPairs:
        """Return both row numbers of each pair."""
        return list(zip(self.first.tolist(), self.second.tolist(), strict=True))


# ---- Mining


def mine_bitext(
    first: Matrix,
    second: Matrix,
    first_texts: Sequence[str] | None = None,
    second_texts: Sequence[str] | None = None,
    scoring: str = "ratio",
    k: int = 4,
    retrieval: str = "max",
    threshold: float | None = None,
    max_pairs: int | None = None,
    drop_identical: bool = False,
    search: str = "auto",
) -> ScoredPairs:
    """Mine bitext: return pairs of rows that are likely translations, best first.

    Scores are the margins of Artetxe and Schwenk (2019, arXiv 1811.01136).

    Args:
        first: (n, d), dense or sparse.
        second: (m, d), of the same kind.
        first_texts: The texts of `first`, (n,), to skip repeated and empty ones; see
            [`first_occurrences`].
        second_texts: The texts of `second`, (m,).
        scoring: `cosine`, `ratio` or `distance`; see [`scored_pairs`].
        k: The number of neighbors for a margin.
        retrieval: How pairs are chosen; see [`retrieved_pairs`].
        threshold: The minimum score of a pair; None for no limit.
        max_pairs: Keep only the best `max_pairs` pairs; None for all.
        drop_identical: Skip pairs of identical texts, which are common on untranslated web pages.
        search: `auto`, `exact` or `hnsw`; see [`~tmde.documents.neighbors.find_neighbors`].

    Returns:
        The pairs.

    Raises:
        TmdeError: An option is invalid, there are no rows, dimensions differ, numbers are not
            finite, texts do not match the rows or are all empty, or `drop_identical` lacks texts.
        ImportError: `hnsw` requires faiss.

    Example:
        ```python
        from tmde import DocumentEmbedder, mine_bitext

        embedder = DocumentEmbedder.from_pretrained()
        german = embedder.encode(["Die Brücke ist zu.", "Morgen regnet es.", "Gute Nacht!"])
        english = embedder.encode(["It will rain tomorrow.", "The bridge is shut.", "I am late."])
        mined = mine_bitext(german, english, k=2)
        print(mined.first, mined.second, mined.scores)
        ```
    """
    check_retrieval(retrieval)
    if drop_identical and (first_texts is None or second_texts is None):
        raise TmdeError(
            "drop_identical: the texts of both sides are missing, expected first_texts and "
            "second_texts"
        )
    first_matrix, first_rows = _taking_part("first", first, first_texts)
    second_matrix, second_rows = _taking_part("second", second, second_texts)
    candidates = scored_pairs(first_matrix, second_matrix, scoring, k, search)
    chosen = retrieved_pairs(candidates, retrieval, threshold)
    mined = chosen.renumbered(first_rows, second_rows)
    if drop_identical and first_texts is not None and second_texts is not None:
        mined = _without_identical(mined, first_texts, second_texts)
    return mined[:max_pairs]


def check_retrieval(retrieval: str) -> None:
    """Raise TmdeError if there is no such way to choose pairs."""
    if retrieval not in RETRIEVALS:
        raise TmdeError(f"retrieval: found {retrieval!r}, expected one of {', '.join(RETRIEVALS)}")


def _taking_part(
    name: str, matrix: Matrix, texts: Sequence[str] | None
) -> tuple[Matrix, np.ndarray]:
    """Return the vectors that take part in mining, and the numbers of their rows, (at most n,).

    Raises:
        TmdeError: There is not one text for each row.
    """
    if not hasattr(matrix, "shape"):  # a list
        matrix = np.asarray(matrix)
    if texts is None:
        return matrix, np.arange(matrix.shape[0])
    if len(texts) != matrix.shape[0]:
        raise TmdeError(
            f"{name}: found {len(texts)} texts, expected {matrix.shape[0]}, one for each row"
        )
    _, rows = first_occurrences(texts)
    if len(rows) == matrix.shape[0]:
        return matrix, rows
    return matrix[rows], rows


def _without_identical(
    pairs: ScoredPairs, first_texts: Sequence[str], second_texts: Sequence[str]
) -> ScoredPairs:
    """Return the pairs of different texts."""
    are_different = []
    for first_row, second_row in pairs.rows():
        first_text = plain_text(first_texts[first_row])
        second_text = plain_text(second_texts[second_row])
        are_different.append(first_text != second_text)
    return pairs[np.array(are_different, bool)]


def scored_pairs(
    first: Matrix, second: Matrix, scoring: str = "ratio", k: int = 4, search: str = "exact"
) -> ScoredPairs:
    """Return each row of either side with its `k` nearest rows of the other side, scored.

    The margins are those of Artetxe & Schwenk 2019 (arXiv 1811.01136, section 3.1): with m(x, y)
    half the sum of the mean cosine of x to its `k` nearest of the other side and that of y to its
    `k` nearest, `ratio` is cos(x, y) / m(x, y), `distance` cos(x, y) - m(x, y), and `cosine` their
    `absolute` margin. A pair whose m(x, y) is 1e-6 or less scores -2e6 or less
    ([`~tmde.documents.neighbors.ranked_scores`]); the log tells how many there are.

    Args:
        first: (n, d), dense or sparse.
        second: (m, d), of the same kind.
        scoring: `cosine`, `ratio` or `distance`.
        k: The neighbors of a row; all rows of a side that has fewer.
        search: As for [`mine_bitext`].

    Returns:
        Every pair once, in order of row numbers: at most (n + m) `k` of them.

    Raises:
        TmdeError: As [`mine_bitext`].
    """
    check_scoring(scoring, k)
    forward = find_neighbors(first, second, k, search)
    backward = find_neighbors(second, first, k, search)
    return scored_neighbors(forward, backward, scoring)


def scored_neighbors(forward: Neighbors, backward: Neighbors, scoring: str) -> ScoredPairs:
    """Return the pairs of [`scored_pairs`] whose neighbors are known.

    Args:
        forward: For each row of the first side, the cosines and the row numbers of its nearest on
            the second side, (n, k) each.
        backward: The same for each row of the second side, (m, k) each.
        scoring: `cosine`, `ratio` or `distance`.
    """
    forward_cosines, second_neighbors = forward
    backward_cosines, first_neighbors = backward
    first_count, first_k = second_neighbors.shape
    second_count, second_k = first_neighbors.shape
    forward_rows = np.repeat(np.arange(first_count), first_k)
    backward_rows = np.repeat(np.arange(second_count), second_k)
    first_rows = np.concatenate([forward_rows, first_neighbors.ravel()])
    second_rows = np.concatenate([second_neighbors.ravel(), backward_rows])
    cosines = np.concatenate([forward_cosines.ravel(), backward_cosines.ravel()])
    # A pair that both sides list occurs twice, with the same number.
    pair_numbers = first_rows * second_count + second_rows
    _, unique = np.unique(pair_numbers, return_index=True)
    first_rows = first_rows[unique]
    second_rows = second_rows[unique]
    first_means = forward_cosines.mean(axis=1)  # (n,)
    second_means = backward_cosines.mean(axis=1)  # (m,)
    means = (first_means[first_rows] + second_means[second_rows]) / 2
    cosines = cosines[unique]
    scores = ranked_scores(scoring, cosines.copy(), means.copy())
    warn_without_ratio(scoring, scores)
    return ScoredPairs(first_rows, second_rows, scores, cosines, means)


def retrieved_pairs(
    pairs: ScoredPairs, retrieval: str = "max", threshold: float | None = None
) -> ScoredPairs:
    """Choose among candidate pairs (Artetxe & Schwenk 2019, section 3.2).

    Args:
        pairs: Scored candidates.
        retrieval: `forward`, the best pair of each row of the first side; `backward`, of each row
            of the second; `intersection`, those in both; `max`, those in either, best first, each
            row once.
        threshold: The lowest score; None for all.

    Returns:
        Pairs, best first.
    """
    ordered = pairs.best_first()
    if threshold is not None:
        # In float32, a threshold that lies between two scores could become one of them.
        ordered = ordered[ordered.scores.astype(np.float64) >= threshold]
    # The first occurrence of a row is its best pair.
    _, forward = np.unique(ordered.first, return_index=True)
    _, backward = np.unique(ordered.second, return_index=True)
    if retrieval == "forward":
        return ordered[np.sort(forward)]
    if retrieval == "backward":
        return ordered[np.sort(backward)]
    if retrieval == "intersection":
        return ordered[np.intersect1d(forward, backward)]
    return _matched_pairs(ordered[np.union1d(forward, backward)])


def _matched_pairs(ordered: ScoredPairs) -> ScoredPairs:
    """Return the pairs of competitive matching: best first, and each row of either side once."""
    is_first_paired = np.zeros(ordered.first.max(initial=-1) + 1, bool)
    is_second_paired = np.zeros(ordered.second.max(initial=-1) + 1, bool)
    is_chosen = np.zeros(len(ordered), bool)
    for position in range(len(ordered)):
        first_row = ordered.first[position]
        second_row = ordered.second[position]
        if is_first_paired[first_row] or is_second_paired[second_row]:
            continue
        is_first_paired[first_row] = True
        is_second_paired[second_row] = True
        is_chosen[position] = True
    return ordered[is_chosen]


# ---- Texts


def plain_text(text: str) -> str:
    """Return the text in NFC, without invisible characters and with single spaces between words."""
    return " ".join(unicodedata.normalize("NFC", without_invisible(text)).split())


def first_occurrences(
    texts: Collection[Text], comparable: Callable[[Any], str] = plain_text
) -> tuple[np.ndarray, np.ndarray]:
    """Find empty and repeated texts.

    Args:
        texts: n texts, which are read once, one after the other.
        comparable: Makes what is compared of a text, or of a row of texts. Texts are equal if it
            is, and empty if it is.

    Returns:
        occurrences: (n,) int64, for each text the row number of the first that equals it.
        unique_rows: (at most n,) int64, the row numbers of the texts that are neither empty nor
            repeat another.
    """
    # Digests take less memory than the texts themselves.
    digests = np.empty(len(texts), f"S{_DIGEST_BYTES}")
    is_empty = np.zeros(len(texts), bool)
    for row, text in enumerate(texts):
        compared = comparable(text)
        is_empty[row] = not compared
        digests[row] = _digest(compared)
    _, first_rows, inverse = np.unique(digests, return_index=True, return_inverse=True)
    occurrences = first_rows[inverse]
    is_unique = (occurrences == np.arange(len(texts))) & ~is_empty
    return occurrences, np.flatnonzero(is_unique)


def _digest(text: str) -> bytes:
    """Return 16 bytes that no two texts share, as far as anybody knows."""
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES
    ).digest()


# ---- Gold lists


def read_gold_pairs(
    path: str | os.PathLike, first_ids: Sequence[str], second_ids: Sequence[str]
) -> GoldPairs:
    """Read pairs of ids as row numbers: BUCC's gold lists, and files of `tmde align` and `mine`.

    Args:
        path: UTF-8, one pair a line: two ids and a tab between them, or the columns `id_a` and
            `id_b` if a header names them. Empty lines are skipped, and a pair that occurs twice
            counts once.
        first_ids: The ids of the rows of the first side, (n,), each once.
        second_ids: Those of the second side, (m,).

    Raises:
        TmdeError: The file cannot be read, a line is not two ids, an id is unknown, or there is no
            pair at all.
    """
    first_rows = {id: row for row, id in enumerate(first_ids)}
    second_rows = {id: row for row, id in enumerate(second_ids)}
    pairs: dict[tuple[int, int], None] = {}  # an ordered set
    for place, first_id, second_id in _gold_ids(path):
        first_row = _known_row(first_id, first_rows, "first", place)
        second_row = _known_row(second_id, second_rows, "second", place)
        pairs[first_row, second_row] = None
    if not pairs:
        raise TmdeError(f"{path}: found no pair, expected one per line: two ids separated by a tab")
    return list(pairs)


def _gold_ids(path: str | os.PathLike) -> Iterator[tuple[str, str, str]]:
    """Yield the place and both ids of each pair of a file.

    Raises:
        TmdeError: A line has not as many fields as the header, or two without one.
    """
    table = Table("tsv", (os.fspath(path),))
    _, first_line = next(read_lines(os.fspath(path)), (1, ""))
    if not set(GOLD_COLUMNS) <= set(first_line.split("\t")):
        table = replace(table, header=GOLD_COLUMNS)
    for number, row in table.rows():
        first_id, second_id = (row[name] for name in GOLD_COLUMNS)
        yield f"{path}, row {number}", first_id, second_id


def _known_row(id: str, rows: Mapping[str, int], side: str, place: str) -> int:
    """Return the row of an id.

    Raises:
        TmdeError: The side has no such id.
    """
    if id not in rows:
        example = next(iter(rows), "(none)")
        raise TmdeError(
            f"{place}: found id {id!r}, which no text of the {side} side has, expected an id "
            f"such as {example!r}; the first id of a pair is from the first side"
        )
    return rows[id]


def best_threshold(
    pairs: ScoredPairs, gold: Collection[tuple[int, int]]
) -> tuple[float, PairQuality]:
    """Return the threshold of highest F1, to be applied to other texts, and the quality at it.

    Args:
        pairs: Pairs that were mined without threshold, of a train split.
        gold: As in [`pair_quality`].

    Returns:
        The threshold, half-way between the lowest score that it keeps and the next one (the highest
        threshold, if several are best), and the quality of these pairs at it.

    Raises:
        TmdeError: No pairs, or none of them in the gold list.
    """
    ordered = pairs.best_first()
    gold_pairs = set(gold)
    is_correct = [pair in gold_pairs for pair in ordered.rows()]
    correct = np.cumsum(is_correct)  # (p,) among the best 1, 2, ... p
    if not any(is_correct):
        raise TmdeError(
            f"Found none of the {len(gold)} gold pairs among {len(ordered)} mined ones; is "
            "the list for these texts, and were they mined without a threshold?"
        )
    scores = ordered.scores.astype(np.float64)
    counts = np.arange(1, len(ordered) + 1)
    f1 = 2 * correct / (counts + len(gold))
    f1[:-1][scores[:-1] == scores[1:]] = -1  # No threshold separates equal scores.
    best = int(np.argmax(f1))
    threshold = float(scores[best : best + 2].mean())
    quality = PairQuality(correct=int(correct[best]), found=best + 1, gold=len(gold))
    return threshold, quality


class ChosenTexts(Sequence[Text]):
    """Some of the texts of a sequence, which are not copied.

    Args:
        texts: All texts, (n,).
        rows: The numbers of those that are chosen, (m,).
    """

    def __init__(self, texts: Sequence[Text], rows: np.ndarray) -> None:
        self.texts = texts
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Text: ...

    @overload
    def __getitem__(self, place: slice) -> list[Text]: ...

    def __getitem__(self, place: int | slice) -> Text | list[Text]:
        if isinstance(place, slice):
            return [self.texts[row] for row in self.rows[place].tolist()]
        return self.texts[int(self.rows[place])]
