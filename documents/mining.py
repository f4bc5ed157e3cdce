"""Bitext mining: translations among the sentences of two collections that are not parallel, scored by margin.

mined = mine_bitext(german_vectors, english_vectors, threshold=1.1)
for row, other, score in zip(mined.first, mined.second, mined.scores):
    print(score, german[row], english[other])
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from modeling_tmde import TmdeError
from tmde.data.files import read_lines
from tmde.documents.margins import check_scoring, ranked_scores, warn_without_ratio
from tmde.documents.neighbours import Matrix, find_neighbours

RETRIEVALS = ("forward", "backward", "intersection", "max")
GoldPairs = list[tuple[int, int]]  # row numbers of the first and of the second side


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of rows: `first` and `second` are their row numbers, (p,) int64; `scores` (p,) float32."""

    first: np.ndarray
    second: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, chosen: slice | np.ndarray) -> ScoredPairs:
        """The chosen pairs, in the order of their choice."""
        return ScoredPairs(self.first[chosen], self.second[chosen], self.scores[chosen])

    def best_first(self) -> ScoredPairs:
        """All pairs by falling score; equal scores in order of row numbers, so that two runs agree."""
        return self[np.lexsort((self.second, self.first, -self.scores))]

    def rows(self) -> GoldPairs:
        """Both row numbers of each pair."""
        return list(zip(self.first.tolist(), self.second.tolist(), strict=True))


@dataclass(frozen=True)
class PairQuality:
    """correct: found pairs that are in the gold list; found: found pairs; gold: pairs of the list."""

    correct: int
    found: int
    gold: int

    @property
    def precision(self) -> float:
        return self.correct / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.correct / (self.found + self.gold) if self.found + self.gold else 0.0


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
    """Pairs of rows that are likely translations, by the margins of Artetxe & Schwenk 2019 (arXiv 1811.01136).

    Args:
        first: (n, d), dense or sparse.
        second: (m, d), of the same kind.
        first_texts, second_texts: (n,) and (m,) texts of the rows. Of equal ones only the first takes part, of empty
            ones none; see [`first_occurrences`]. None: all rows take part.
        scoring, k: `cosine`, `ratio` or `distance`, and the neighbors of a margin; see [`scored_pairs`].
        retrieval, threshold: See [`retrieved_pairs`].
        max_pairs: Keep only this many, the best; None for all.
        drop_identical: Leave out pairs of equal texts, common in crawled pages, that nobody translated.
        search: `auto`, `exact` or `hnsw`; see [`~tmde.documents.neighbours.find_neighbours`].

    Returns:
        Pairs, best first.

    Raises:
        ValueError: Unknown scoring, retrieval or search, `k` below 1, no rows, different dimensions, numbers that are
            not finite, not one text for each row, or only empty ones; `drop_identical` without texts.
        ImportError: `hnsw` without faiss.

    Example:
        >>> vectors = np.eye(3, dtype=np.float32)
        >>> mined = mine_bitext(vectors, vectors[[2, 0]])
        >>> list(zip(mined.first.tolist(), mined.second.tolist()))
        [(0, 1), (2, 0)]
    """
    if retrieval not in RETRIEVALS:
        raise TmdeError(f"retrieval: found {retrieval!r}, expected one of {', '.join(RETRIEVALS)}")
    if drop_identical and (first_texts is None or second_texts is None):
        raise TmdeError(
            "drop_identical: found no texts of both sides, expected first_texts and second_texts"
        )
    sides, kept = [], []
    for name, matrix, texts in (("first", first, first_texts), ("second", second, second_texts)):
        matrix = matrix if hasattr(matrix, "shape") else np.asarray(matrix)  # a list
        if texts is not None and len(texts) != matrix.shape[0]:
            raise TmdeError(
                f"{name}: found {len(texts)} texts, expected {matrix.shape[0]}, one for each row"
            )
        kept.append(np.arange(matrix.shape[0]) if texts is None else first_occurrences(texts)[1])
        sides.append(matrix if len(kept[-1]) == matrix.shape[0] else matrix[kept[-1]])
    mined = retrieved_pairs(scored_pairs(*sides, scoring, k, search), retrieval, threshold)
    mined = ScoredPairs(kept[0][mined.first], kept[1][mined.second], mined.scores)
    if drop_identical:
        different = [
            plain_text(first_texts[i]) != plain_text(second_texts[j]) for i, j in mined.rows()
        ]
        mined = mined[np.array(different, bool)]
    return mined[:max_pairs]


def scored_pairs(
    first: Matrix, second: Matrix, scoring: str = "ratio", k: int = 4, search: str = "exact"
) -> ScoredPairs:
    """Each row of either side with its `k` nearest rows of the other side, scored.

    The margins of Artetxe & Schwenk 2019 (arXiv 1811.01136, section 3.1): with m(x, y) half the sum of the mean cosine
    of x to its `k` nearest of the other side and that of y to its `k` nearest, `ratio` is cos(x, y) / m(x, y),
    `distance` cos(x, y) - m(x, y), and `cosine` their `absolute` margin. A pair whose m(x, y) is 1e-6 or less scores
    -2e6 or less ([`~tmde.documents.neighbours.ranked_scores`]); the log tells how many there are.

    Args:
        first, second: (n, d) and (m, d), both dense or both sparse.
        scoring: `cosine`, `ratio` or `distance`.
        k: Neighbors of a row; all rows of a side that has fewer.
        search: As for [`mine_bitext`].

    Returns:
        Every pair once, in order of row numbers: at most (n + m) `k` of them.

    Raises:
        ValueError: As [`mine_bitext`].
    """
    check_scoring(scoring, k)
    cosines, seconds = find_neighbours(first, second, k, search)  # (n, k)
    back_cosines, firsts = find_neighbours(second, first, k, search)  # (m, k)
    of_first, of_second = cosines.mean(axis=1), back_cosines.mean(axis=1)
    rows = np.concatenate([np.repeat(np.arange(len(seconds)), seconds.shape[1]), firsts.ravel()])
    others = np.concatenate([seconds.ravel(), np.repeat(np.arange(len(firsts)), firsts.shape[1])])
    _, once = np.unique(rows * len(firsts) + others, return_index=True)
    rows, others = rows[once], others[once]
    scores = np.concatenate([cosines.ravel(), back_cosines.ravel()])[once]
    scores = ranked_scores(scoring, scores, (of_first[rows] + of_second[others]) / 2)
    warn_without_ratio(scoring, scores)
    return ScoredPairs(rows, others, scores)


def retrieved_pairs(
    pairs: ScoredPairs, retrieval: str = "max", threshold: float | None = None
) -> ScoredPairs:
    """Chooses among candidate pairs (Artetxe & Schwenk 2019, section 3.2).

    Args:
        pairs: Scored candidates.
        retrieval: `forward`, the best pair of each row of the first side; `backward`, of each row of the second;
            `intersection`, those in both; `max`, those in either, best first, each row once.
        threshold: Lowest score; None for all.

    Returns:
        Pairs, best first.
    """
    ordered = pairs.best_first()
    if threshold is not None:  # which may lie between two float32 scores
        ordered = ordered[ordered.scores.astype(np.float64) >= threshold]
    _, forward = np.unique(ordered.first, return_index=True)  # the first occurrence is the best
    _, backward = np.unique(ordered.second, return_index=True)
    if retrieval == "max":
        return _matched_pairs(ordered[np.union1d(forward, backward)])
    chosen = {"forward": np.sort(forward), "backward": np.sort(backward)}
    return ordered[chosen[retrieval] if retrieval in chosen else np.intersect1d(forward, backward)]


def _matched_pairs(ordered: ScoredPairs) -> ScoredPairs:
    """Competitive matching: pairs are taken best first, and each row of either side once."""
    used, kept = (set(), set()), []
    for position, (row, other) in enumerate(ordered.rows()):
        if row not in used[0] and other not in used[1]:
            used[0].add(row)
            used[1].add(other)
            kept.append(position)
    return ordered[np.array(kept, np.int64)]


def plain_text(text: str) -> str:
    """The text in NFC, with one space for each run of white space and none around."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def first_occurrences(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Finds empty and repeated texts; texts are equal if their [`plain_text`] is.

    Returns:
        occurrences (n,) int64: for each text the row number of the first that equals it.
        kept (at most n,) int64: row numbers of the texts that are neither empty nor repeat another.
    """
    seen: dict[str, int] = {}
    occurrences = np.array(
        [seen.setdefault(plain_text(text), row) for row, text in enumerate(texts)], np.int64
    )
    kept = np.flatnonzero(occurrences == np.arange(len(occurrences)))
    return occurrences, kept[kept != seen.get("", -1)]


def read_gold_pairs(
    path: str | os.PathLike, first_ids: Sequence[str], second_ids: Sequence[str]
) -> GoldPairs:
    """Reads pairs of ids as row numbers: BUCC's gold lists, and what `tmde align` and `tmde mine` write.

    Args:
        path: UTF-8, one pair a line: two ids and a tab between them, or the columns `id_a` and `id_b` if a header
            names them. Empty lines are skipped, and a pair that occurs twice counts once.
        first_ids, second_ids: (n,) and (m,) ids of the rows, each once.

    Raises:
        ValueError: The file cannot be read, a line is not two ids, an id is unknown, or there is no pair at all.
    """
    known = [{id: row for row, id in enumerate(ids)} for ids in (first_ids, second_ids)]
    pairs, header = {}, ["id_a", "id_b"]
    for number, line in read_lines(os.fspath(path)):
        fields, where = line.split("\t"), f"{path}, line {number}"
        if number == 1 and set(header) <= set(fields):
            header = fields
        elif line.strip():
            if len(fields) != len(header):
                raise TmdeError(
                    f"{where}: found {line[:80]!r}, expected {len(header)} fields with tabs between"
                )
            ids = [fields[header.index(name)] for name in ("id_a", "id_b")]
            for side, id, rows in zip(("first", "second"), ids, known, strict=True):
                if id not in rows:
                    raise TmdeError(
                        f"{where}: found id {id!r}, which no text of the {side} side has, expected an id such as "
                        f"{next(iter(rows), '(none)')!r}; ids stand in the order of the two sides"
                    )
            pairs[known[0][ids[0]], known[1][ids[1]]] = True
    if not pairs:
        raise TmdeError(
            f"{path}: found no pair, expected one a line: two ids with a tab between them"
        )
    return list(pairs)


def pair_quality(
    pairs: Collection[tuple[int, int]], gold: Collection[tuple[int, int]]
) -> PairQuality:
    """Precision, recall and F1 by the protocol of BUCC (Zweigenbaum et al. 2017, aclanthology.org/W17-2512).

    Args:
        pairs: Each once.
        gold: Pairs of row numbers, each once. It is taken to hold all the pairs that are right: a translation that it
            lacks counts as an error.
    """
    return PairQuality(len(set(pairs) & set(gold)), len(pairs), len(gold))


def best_threshold(
    pairs: ScoredPairs, gold: Collection[tuple[int, int]]
) -> tuple[float, PairQuality]:
    """The threshold of highest F1: to be found on a train split and applied to another one.

    Args:
        pairs: Mined without threshold.
        gold: As in [`pair_quality`].

    Returns:
        The threshold, half-way between the lowest score that it keeps and the next one (the highest threshold, if
        several are best), and the quality of these pairs at it.

    Raises:
        ValueError: No pairs, or none of them in the gold list.
    """
    ordered, known = pairs.best_first(), set(gold)
    correct = np.cumsum(
        [pair in known for pair in ordered.rows()]
    )  # (p,) among the best 1, 2, ... p
    if not len(ordered) or not correct[-1]:
        raise TmdeError(
            f"Found none of the {len(gold)} gold pairs among {len(ordered)} mined ones, expected at least one: is the "
            "list of these texts, and mined without a threshold?"
        )
    scores = ordered.scores.astype(np.float64)
    f1 = 2 * correct / (np.arange(1, len(ordered) + 1) + len(gold))
    f1[:-1][scores[:-1] == scores[1:]] = -1  # no threshold separates equal scores
    best = int(np.argmax(f1))
    threshold = scores[best : best + 2].mean()
    return float(threshold), PairQuality(int(correct[best]), best + 1, len(gold))
