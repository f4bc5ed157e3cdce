"""Counts of the rows of a corpus that were read, and of those that were left out."""

import enum
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

logger = logging.getLogger("tmde.data")

MAX_EXAMPLES = 10

# Interleaved streams are read in threads. The lock is global because a report must be picklable.
_LOCK = threading.Lock()


class RowState(enum.IntEnum):
    """What becomes of a row. The numbers are stored in caches."""

    KEPT = 0
    OTHER_LANGUAGES = 1
    BAD = 2


@dataclass
class CorpusReport:
    """Counts of what was read and of what was left out, filled in place by [`load_parallel`].

    Attributes:
        rows: The rows read.
        kept: The rows that came through.
        empty_texts: The texts of the requested languages that were empty or only whitespace, and
            became None.
        dropped_rows: The rows dropped as bad: fewer than two texts, or fewer than two after the
            empty ones went.
        other_rows: The rows left out, though not bad: the source has further languages, and these
            rows lack two of the requested ones.
        first_examples: The first few bad rows, with what was found and expected.
    """

    rows: int = 0
    kept: int = 0
    empty_texts: int = 0
    dropped_rows: int = 0
    other_rows: int = 0
    first_examples: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._last_rows: dict[str, int] = {}  # the last row counted, by place

    def __deepcopy__(self, memo: dict) -> "CorpusReport":
        """Return the report itself.

        `interleave_datasets` copies streams, but the caller holds this very report.
        """
        return self

    def add(self, place: str, checked: Mapping[str, Sequence], last_row: int) -> list[int]:
        """Count checked rows, unless they were counted before, and return which of them are kept.

        A stream is read again in every epoch, and by `interleave_datasets` also within one.

        Args:
            place: What the rows were read from.
            checked: Their columns `state`, `empty` and `example`.
            last_row: The number of the last of them, from 1.

        Returns:
            Positions in `checked`.
        """
        states = checked["state"]
        with _LOCK:
            is_new = last_row > self._last_rows.get(place, 0)
            if is_new:
                self._last_rows[place] = last_row
                counted = _count(checked)
                self._include(counted)
        if is_new and counted.first_examples:
            logger.warning("%s: %s", place, counted.summary())
        return [index for index, state in enumerate(states) if state == RowState.KEPT]

    def _include(self, other: "CorpusReport") -> None:
        self.rows += other.rows
        self.kept += other.kept
        self.empty_texts += other.empty_texts
        self.dropped_rows += other.dropped_rows
        self.other_rows += other.other_rows
        self.first_examples += other.first_examples
        del self.first_examples[MAX_EXAMPLES:]

    def summary(self) -> str:
        """Return one sentence with the counts and the first examples."""
        text = (
            f"{self.rows} rows read, {self.kept} kept, {self.dropped_rows} bad rows dropped, "
            f"{self.empty_texts} empty texts set to None, {self.other_rows} rows without two of "
            "the requested languages left out"
        )
        if self.first_examples:
            text += f". First bad ones: {'; '.join(self.first_examples)}"
        return text


def _count(checked: Mapping[str, Sequence]) -> CorpusReport:
    """Return the counts of checked rows alone."""
    states = list(checked["state"])
    examples = [example for example in checked["example"] if example]
    return CorpusReport(
        rows=len(states),
        kept=states.count(RowState.KEPT),
        empty_texts=sum(checked["empty"]),
        dropped_rows=states.count(RowState.BAD),
        other_rows=states.count(RowState.OTHER_LANGUAGES),
        first_examples=examples[:MAX_EXAMPLES],
    )
