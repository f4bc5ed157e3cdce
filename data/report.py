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
    TOO_FEW_TEXTS = 2
    EMPTY_TEXT = 3
    NO_LABEL = 4
    NO_NEEDED_TEXT = 5
    UNREADABLE = 6


REASONS = {
    RowState.TOO_FEW_TEXTS: "with fewer than two languages",
    RowState.EMPTY_TEXT: "with an empty text",
    RowState.NO_LABEL: "without a known label",
    RowState.NO_NEEDED_TEXT: "without an anchor or a positive",
    RowState.UNREADABLE: "that cannot be read",
}
BAD_STATES = tuple(REASONS)


@dataclass
class CorpusReport:
    """Counts of the rows that [`load_parallel`] read, kept and dropped.

    Attributes:
        rows: The number of rows read.
        kept: The number of rows returned.
        empty_texts: The number of empty or blank texts in the requested languages, which became
            None. Empty table cells and Moses lines do not count.
        dropped_rows: The number of bad rows: unreadable, or with fewer than two nonempty texts.
        other_rows: The number of rows skipped because they lack two requested languages, in a
            source with more languages.
        first_examples: The first few bad rows, with the value found and expected.
        reasons: The number of dropped rows by reason.
    """

    rows: int = 0
    kept: int = 0
    empty_texts: int = 0
    dropped_rows: int = 0
    other_rows: int = 0
    first_examples: list[str] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._last_rows: dict[str, int] = {}  # the last row counted, by place
        self._warned_places: set[str] = set()

    def __deepcopy__(self, memo: dict) -> "CorpusReport":
        """Return the report itself.

        `interleave_datasets` copies streams, but the caller holds this very report.
        """
        return self

    def add(self, place: str, checked: Mapping[str, Sequence], last_row: int) -> list[int]:
        """Count the checked rows that were not counted before, and return which rows are kept.

        Epochs and `interleave_datasets` read the rows of a stream again.

        Args:
            place: The source of the rows.
            checked: The columns `state`, `empty` and `example`.
            last_row: The number of the last row, from 1.

        Returns:
            Positions in `checked`.
        """
        states = checked["state"]
        is_first = False
        with _LOCK:
            is_new = last_row > self._last_rows.get(place, 0)
            if is_new:
                self._last_rows[place] = last_row
                counted = _count(checked)
                self._include(counted)
                is_first = bool(counted.first_examples) and place not in self._warned_places
            if is_first:
                self._warned_places.add(place)
        if is_first:
            # A stream warns of its first bad rows alone; its report counts all of them.
            logger.warning("%s: %s", place, counted.summary(place))
        return [index for index, state in enumerate(states) if state == RowState.KEPT]

    def _include(self, other: "CorpusReport") -> None:
        self.rows += other.rows
        self.kept += other.kept
        self.empty_texts += other.empty_texts
        self.dropped_rows += other.dropped_rows
        self.other_rows += other.other_rows
        self.first_examples += other.first_examples
        del self.first_examples[MAX_EXAMPLES:]
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    def summary(self, place: str | None = None) -> str:
        """Return one line with the counts and an example.

        Args:
            place: The source of the rows, to begin the line with.
        """
        text = f"{self.rows} rows read, {self.kept} kept"
        if self.dropped_rows:
            reasons = [f"{count} {reason}" for reason, count in self.reasons.items()]
            rows = "row" if self.dropped_rows == 1 else "rows"
            text += f", {self.dropped_rows} bad {rows} dropped ({', '.join(reasons)})"
        if self.empty_texts:
            text += f", {self.empty_texts} empty texts"
        if self.other_rows:
            text += f", {self.other_rows} rows without two of the requested languages left out"
        if self.first_examples:
            example = self.first_examples[0]
            if place is not None:
                example = example.removeprefix(f"{place}, ")
            text += f". First: {example}"
        return text


def _count(checked: Mapping[str, Sequence]) -> CorpusReport:
    """Return the counts of checked rows alone."""
    states = list(checked["state"])
    examples = [example for example in checked["example"] if example]
    reasons = {}
    for state, reason in REASONS.items():
        if state in states:
            reasons[reason] = states.count(state)
    return CorpusReport(
        rows=len(states),
        kept=states.count(RowState.KEPT),
        empty_texts=sum(checked["empty"]),
        dropped_rows=sum(reasons.values()),
        other_rows=states.count(RowState.OTHER_LANGUAGES),
        first_examples=examples[:MAX_EXAMPLES],
        reasons=reasons,
    )
