"""Bitext mining: translations among the sentences of two collections that are not parallel, scored by margin.

mined = mine_bitext(german_vectors, english_vectors, threshold=1.1)
for row, other, score in zip(mined.first, mined.second, mined.scores):
    print(score, german[row], english[other])
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from modeling_tmde.documents.neighbours import (
    Matrix,
    find_neighbours,
    margin_scores,
    ranked_ratios,
    say_without_ratio,
)

SCORINGS = ("cosine", "ratio", "distance")
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


@dataclass(frozen=True)
class MiningQuality:
    """correct: mined pairs that are in the gold list; found: mined pairs; gold: pairs of the list."""

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
    say: Callable[[str], None] | None = None,
    show_progress_bar: bool = False,
    names: tuple[str, str] = ("first", "second"),
) -> ScoredPairs:
    """Pairs of rows that are likely translations, by the margins of Artetxe & Schwenk 2019 (arXiv 1811.01136).

    Args:
        first: (n, d), dense or sparse.
        second: (m, d), of the same kind.
        first_texts, second_texts: (n,) and (m,) texts of the rows. Of equal ones only the first takes part, of empty
            ones none; see [`first_occurrences`]. None: all rows take part.
        scoring, k: `cosine`, `ratio` or `distance`, and the neighbors of a margin; see [`scored_pairs`].
        retrieval, threshold, max_pairs: See [`retrieved_pairs`].
        drop_identical: Leave out pairs of equal texts, common in crawled pages, that nobody translated.
        search: `auto`, `exact`, `ivf` or `hnsw`; see [`~modeling_tmde.documents.neighbours.find_neighbours`], also for
            `say` and `show_progress_bar`.
        names: Of the two sides, in messages.

    Returns:
        Pairs, best first.

    Raises:
        ValueError: Unknown scoring, retrieval or search, `k` below 1, a threshold that is not a number, `max_pairs`
            below 0, no rows, different dimensions, numbers that are not finite, not one text for each row, or only
            empty ones; `drop_identical` without texts.
        ImportError: `ivf` or `hnsw` without faiss.

    Example:
        >>> vectors = np.eye(3, dtype=np.float32)
        >>> mined = mine_bitext(vectors, vectors[[2, 0]])
        >>> list(zip(mined.first.tolist(), mined.second.tolist()))
        [(0, 1), (2, 0)]
    """
    check_retrieval(retrieval, threshold, max_pairs)
    if drop_identical and (first_texts is None or second_texts is None):
        raise ValueError("drop_identical: found no texts of both sides, expected first_texts and second_texts")
    first, second = (each if hasattr(each, "shape") else np.asarray(each) for each in (first, second))  # lists
    rows, others = _kept_rows(names[0], first, first_texts), _kept_rows(names[1], second, second_texts)
    sides = (each if len(kept) == each.shape[0] else each[kept] for each, kept in ((first, rows), (second, others)))
    pairs = scored_pairs(*sides, scoring, k, search=search, say=say, show_progress_bar=show_progress_bar, names=names)
    mined = retrieved_pairs(pairs, retrieval, threshold)
    mined = ScoredPairs(rows[mined.first], others[mined.second], mined.scores)
    if drop_identical:
        texts = zip(mined.first.tolist(), mined.second.tolist(), strict=True)
        mined = mined[np.array([plain_text(first_texts[i]) != plain_text(second_texts[j]) for i, j in texts], bool)]
    return mined[:max_pairs]


def scored_pairs(
    first: Matrix,
    second: Matrix,
    scoring: str = "ratio",
    k: int = 4,
    candidates: int | None = None,
    search: str = "exact",
    say: Callable[[str], None] | None = None,
    show_progress_bar: bool = False,
    names: tuple[str, str] = ("first", "second"),
) -> ScoredPairs:
    """Each row of either side with its nearest rows of the other side, scored.

    The margins of Artetxe & Schwenk 2019 (arXiv 1811.01136, section 3.1): with m(x, y) half the sum of the mean cosine
    of x to its `k` nearest of the other side and that of y to its `k` nearest, `ratio` is cos(x, y) / m(x, y),
    `distance` cos(x, y) - m(x, y), and `cosine` their `absolute` margin. A pair whose m(x, y) is 1e-6 or less scores
    -2e6 or less ([`~modeling_tmde.documents.neighbours.ranked_ratios`]); `say` is told how many there are.

    Args:
        first, second: (n, d) and (m, d), both dense or both sparse.
        scoring: `cosine`, `ratio` or `distance`.
        k: Neighbors of a margin; all rows of a side that has fewer.
        candidates: Neighbors that are listed for each row; None: `k`.
        search, say, show_progress_bar, names: As for [`mine_bitext`].

    Returns:
        Every pair once, in order of row numbers: at most (n + m) `candidates` of them.

    Raises:
        ValueError: As [`mine_bitext`].
    """
    if scoring not in SCORINGS:
        raise ValueError(f"scoring: found {scoring!r}, expected one of {', '.join(SCORINGS)}")
    listed = k if candidates is None else candidates
    for name, number in (("k", k), ("candidates", listed)):
        if number < 1:
            raise ValueError(f"{name}: found {number}, expected at least 1")
    options = {"search": search, "say": say, "show_progress_bar": show_progress_bar}
    forward = find_neighbours(first, second, max(k, listed), names=names, **options)  # (n, width) each
    backward = find_neighbours(second, first, max(k, listed), names=names[::-1], **options)  # (m, width) each
    pairs = _union(forward, backward, listed)
    if scoring == "cosine":
        return pairs
    of_first, of_second = (cosines[:, :k].mean(axis=1) for cosines, _ in (forward, backward))
    means = (of_first[pairs.first] + of_second[pairs.second]) / 2
    if scoring == "distance":
        return ScoredPairs(pairs.first, pairs.second, margin_scores(scoring, pairs.scores, means))
    scores = ranked_ratios(pairs.scores, means)
    say_without_ratio(f"candidate pairs of {names[0]} and {names[1]}", scores, say)
    return ScoredPairs(pairs.first, pairs.second, scores)


def retrieved_pairs(
    pairs: ScoredPairs, retrieval: str = "max", threshold: float | None = None, max_pairs: int | None = None
) -> ScoredPairs:
    """Chooses among candidate pairs (Artetxe & Schwenk 2019, section 3.2).

    Args:
        pairs: Scored candidates.
        retrieval: `forward`, the best pair of each row of the first side; `backward`, of each row of the second;
            `intersection`, those in both; `max`, those in either, best first, each row once.
        threshold: Lowest score; None for all.
        max_pairs: At most so many, the best; None for all.

    Returns:
        Pairs, best first.

    Raises:
        ValueError: Unknown retrieval, a threshold that is not a number, `max_pairs` below 0.
    """
    check_retrieval(retrieval, threshold, max_pairs)
    ordered = pairs.best_first()
    _, forward = np.unique(ordered.first, return_index=True)  # the first occurrence is the best
    _, backward = np.unique(ordered.second, return_index=True)
    chosen = {
        "forward": lambda: np.sort(forward),
        "backward": lambda: np.sort(backward),
        "intersection": lambda: np.intersect1d(forward, backward),
        "max": lambda: np.union1d(forward, backward),
    }[retrieval]()
    mined = matched_pairs(ordered[chosen]) if retrieval == "max" else ordered[chosen]
    if threshold is not None:
        mined = mined[mined.scores.astype(np.float64) >= threshold]  # a threshold lies between float32 scores
    return mined[:max_pairs]


def matched_pairs(pairs: ScoredPairs) -> ScoredPairs:
    """Competitive matching: pairs are taken best first, and each row of either side once; best first."""
    ordered, used, kept = pairs.best_first(), (set(), set()), []
    for position, (row, other) in enumerate(zip(ordered.first.tolist(), ordered.second.tolist(), strict=True)):
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
    occurrences = np.array([seen.setdefault(plain_text(text), row) for row, text in enumerate(texts)], np.int64)
    kept = np.flatnonzero(occurrences == np.arange(len(occurrences)))
    return occurrences, kept[kept != seen.get("", -1)]


def check_retrieval(retrieval: str, threshold: float | None, max_pairs: int | None) -> None:
    """Raises ValueError if these are not arguments of [`retrieved_pairs`]."""
    if retrieval not in RETRIEVALS:
        raise ValueError(f"retrieval: found {retrieval!r}, expected one of {', '.join(RETRIEVALS)}")
    if threshold is not None and np.isnan(threshold):
        raise ValueError(f"threshold: found {threshold}, expected a number, or None for all pairs")
    if max_pairs is not None and max_pairs < 0:
        raise ValueError(f"max_pairs: found {max_pairs}, expected at least 0, or None for all")


def read_gold_pairs(path: str | os.PathLike, first_ids: Sequence[str], second_ids: Sequence[str]) -> GoldPairs:
    """Reads pairs of ids as row numbers: BUCC's gold lists, and what `tmde align` and `tmde mine` write.

    Args:
        path: UTF-8, one pair a line: two ids and a tab between them, or the columns `id_a` and `id_b` if a header
            names them. Empty lines are skipped, and a pair that occurs twice counts once.
        first_ids, second_ids: (n,) and (m,) ids of the rows, each once.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line that is not two ids, an unknown id, bytes that are not UTF-8, or no pair at all.
    """
    rows = [{id: row for row, id in enumerate(ids)} for ids in (first_ids, second_ids)]
    pairs, columns, expected = {}, [0, 1], 2
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"{os.fspath(path)}, line {number}"
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                found = f"0x{raw[error.start]:02x} at byte {error.start + 1}"
                raise ValueError(f"{where}: found {found}, expected UTF-8") from None
            fields = line.split("\t")
            if number == 1 and {"id_a", "id_b"} <= set(fields):
                columns, expected = [fields.index("id_a"), fields.index("id_b")], len(fields)
                continue
            if not line.strip():
                continue
            if len(fields) != expected:
                wanted = "two ids and a tab between" if expected == 2 else f"{expected}, as in the header"
                raise ValueError(f"{where}: found {len(fields)} field(s), {line[:80]!r}, expected {wanted}")
            ids = [fields[column] for column in columns]
            for side, id, known in zip(("first", "second"), ids, rows, strict=True):
                if id not in known:
                    raise ValueError(
                        f"{where}: found id {id!r}, which no text of the {side} side has, expected an id such as "
                        f"{next(iter(known), '(none: it is empty)')!r}; ids stand in the order of the two sides"
                    )
            pairs[rows[0][ids[0]], rows[1][ids[1]]] = True
    if not pairs:
        raise ValueError(f"{os.fspath(path)}: found no pair, expected one a line: two ids with a tab between them")
    return list(pairs)


def mining_quality(pairs: ScoredPairs, gold: Collection[tuple[int, int]]) -> MiningQuality:
    """Precision, recall and F1 by the protocol of BUCC (Zweigenbaum et al. 2017, aclanthology.org/W17-2512).

    Args:
        pairs: Each once.
        gold: Pairs of row numbers, each once. It is taken to hold all the pairs that are right: a translation that it
            lacks counts as an error.
    """
    return MiningQuality(int(_is_gold(pairs, gold).sum()), len(pairs), len(gold))


def best_threshold(pairs: ScoredPairs, gold: Collection[tuple[int, int]]) -> tuple[float, MiningQuality]:
    """The threshold of highest F1: to be found on a train split and applied to another one.

    Args:
        pairs: Mined without threshold.
        gold: As in [`mining_quality`].

    Returns:
        The threshold, half-way between the lowest score that it keeps and the next one (the highest threshold, if
        several are best), and the quality of these pairs at it.

    Raises:
        ValueError: No pairs, or none of them in the gold list.
    """
    ordered = pairs.best_first()
    correct = np.cumsum(_is_gold(ordered, gold))  # (p,) among the best 1, 2, ... p
    if not len(ordered) or not correct[-1]:
        raise ValueError(
            f"Found none of the {len(gold)} gold pairs among {len(ordered)} mined ones, expected at least one: is the "
            "list of these texts, and mined without a threshold?"
        )
    found = np.arange(1, len(ordered) + 1)
    scores = ordered.scores.astype(np.float64)
    f1 = 2 * correct / (found + len(gold))
    f1[:-1][scores[:-1] == scores[1:]] = -1  # no threshold separates equal scores
    best = int(np.argmax(f1))
    threshold = scores[best] if best + 1 == len(scores) else (scores[best] + scores[best + 1]) / 2
    return float(threshold), MiningQuality(int(correct[best]), best + 1, len(gold))


def _kept_rows(name: str, matrix: Matrix, texts: Sequence[str] | None) -> np.ndarray:
    """Numbers of the rows that take part."""
    if texts is None:
        return np.arange(matrix.shape[0])
    if len(texts) != matrix.shape[0]:
        raise ValueError(f"{name}: found {len(texts)} texts, expected {matrix.shape[0]}, one for each row")
    _, kept = first_occurrences(texts)
    if not len(kept):
        raise ValueError(f"{name}: found {len(texts)} texts, all of them empty, expected at least one that is not")
    return kept


def _union(
    forward: tuple[np.ndarray, np.ndarray], backward: tuple[np.ndarray, np.ndarray], listed: int
) -> ScoredPairs:
    """The pairs of both searches by their cosines: both give (rows, width) cosines and row numbers."""
    cosines, seconds = (found[:, :listed] for found in forward)
    back_cosines, firsts = (found[:, :listed] for found in backward)
    first = np.concatenate([np.repeat(np.arange(len(seconds)), seconds.shape[1]), firsts.ravel()])
    second = np.concatenate([seconds.ravel(), np.repeat(np.arange(len(firsts)), firsts.shape[1])])
    _, kept = np.unique(first * len(firsts) + second, return_index=True)
    return ScoredPairs(first[kept], second[kept], np.concatenate([cosines.ravel(), back_cosines.ravel()])[kept])


def _is_gold(pairs: ScoredPairs, gold: Collection[tuple[int, int]]) -> np.ndarray:
    """(p,) bool."""
    known = set(gold)
    return np.array([pair in known for pair in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)], bool)
