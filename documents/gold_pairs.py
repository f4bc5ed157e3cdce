"""Mined pairs against a gold list: the protocol of BUCC (Zweigenbaum et al. 2017, aclanthology.org/W17-2512)."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from modeling_tmde.documents.margins import ScoredPairs

GoldPairs = set[tuple[int, int]]  # row numbers of the first and of the second side


@dataclass(frozen=True)
class MiningQuality:
    """Pairs that are in the gold list (`correct`), pairs that were mined (`found`), and pairs of the list (`gold`)."""

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


def read_gold_pairs(path: str | os.PathLike, first_ids: Sequence[str], second_ids: Sequence[str]) -> GoldPairs:
    """Reads a gold list: one pair a line, two ids with a tab between them.

    Args:
        path: UTF-8. Empty lines are passed over, and a pair that occurs twice counts once.
        first_ids, second_ids: (n,) and (m,) ids of the rows, each once.

    Returns:
        Pairs of row numbers.

    Raises:
        OSError: A file that cannot be read.
        ValueError: A line that is not two ids, an id that is not known, bytes that are not UTF-8, or no pair at all;
            with file and line.
    """
    rows = [{id: row for row, id in enumerate(ids)} for ids in (first_ids, second_ids)]
    pairs: GoldPairs = set()
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"{os.fspath(path)}, line {number}"
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                found = f"0x{raw[error.start]:02x} at byte {error.start + 1}"
                raise ValueError(f"{where}: found {found}, expected UTF-8") from None
            if not line.strip():
                continue
            ids = line.split("\t")
            if len(ids) != 2:
                raise ValueError(
                    f"{where}: found {len(ids)} field(s), {line[:80]!r}, expected two ids and a tab between"
                )
            for side, id, known in zip(("first", "second"), ids, rows, strict=True):
                if id not in known:
                    raise ValueError(
                        f"{where}: found id {id!r}, which no text of the {side} side has, expected an id such as "
                        f"{next(iter(known), '(none: it is empty)')!r}; ids stand in the order of the two sides"
                    )
            pairs.add((rows[0][ids[0]], rows[1][ids[1]]))
    if not pairs:
        raise ValueError(f"{os.fspath(path)}: found no pair, expected one a line: two ids with a tab between them")
    return pairs


def mining_quality(pairs: ScoredPairs, gold: Collection[tuple[int, int]]) -> MiningQuality:
    """Precision, recall and F1 of mined pairs.

    Args:
        pairs: Each once.
        gold: Pairs of row numbers, each once. As in BUCC, it is taken to hold all the pairs that are right: a
            translation that it lacks counts as an error.
    """
    return MiningQuality(int(_is_gold(pairs, gold).sum()), len(pairs), len(gold))


def best_threshold(pairs: ScoredPairs, gold: Collection[tuple[int, int]]) -> tuple[float, MiningQuality]:
    """The threshold with the highest F1: find it on a train split, and apply it to another one.

    Args:
        pairs: Mined without threshold.
        gold: As in [`mining_quality`].

    Returns:
        The threshold, half-way between the lowest score that it keeps and the next one (the highest threshold, where
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
    f1[:-1][scores[:-1] == scores[1:]] = -1  # no threshold parts equal scores
    best = int(np.argmax(f1))
    threshold = scores[best] if best + 1 == len(scores) else (scores[best] + scores[best + 1]) / 2
    return float(threshold), MiningQuality(int(correct[best]), best + 1, len(gold))


def _is_gold(pairs: ScoredPairs, gold: Collection[tuple[int, int]]) -> np.ndarray:
    """(p,) bool."""
    known = set(gold)
    return np.array([pair in known for pair in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)], bool)
