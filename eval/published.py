"""Published tables from `published_tables/*.yaml`, and whether measured numbers compare with them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import product

import yaml

from modeling_tmde.eval.results import TaskResult, summarize


@dataclass(frozen=True)
class PublishedTable:
    """A table as printed.

    Args:
        number, section, page, caption: As in the paper; the page is None if the source has no page numbers.
        citation, short: Full citation of the paper, and a short one such as `Li, 2021`.
        task, protocol, metric: As in a `TaskResult`; values are in % (except for the metric `p`).
        labels: Names of the label columns, such as `["Model", "β"]`.
        columns: Meaning of each column by title, among the cells of `sources` x `targets`: `en -> de`, or the mean
            `Same`, `Cross` or `All`; None for a column that an evaluation does not measure.
        rows: Top to bottom: the labels, then one value a column (a number, text such as `<0.0001`, None for empty).
        sources, targets: Training and test languages (query and candidate languages).
        part: Part of a table that is split by task.
        notes, inconsistent: Remarks on the table, and on numbers in it that contradict each other.
        conditions: `head` (classifier) and `rows` (by split) required of a comparable measurement.
    """

    number: str
    section: str
    caption: str
    citation: str
    short: str
    task: str
    protocol: str
    metric: str
    labels: list[str]
    columns: dict[str, str | None]
    rows: list[list[float | str | None]]
    sources: Sequence[str] = ()
    targets: Sequence[str] = ()
    part: str | None = None
    page: int | None = None
    notes: Sequence[str] = ()
    inconsistent: Sequence[str] = ()
    conditions: Mapping = field(default_factory=dict)

    def measured(self, result: TaskResult) -> dict[str, float] | None:
        """The columns of this table from measured cells, in %; None unless every pair of languages was measured.

        Cells of other languages are ignored, so that eight measured languages compare with five published ones.
        """
        wanted = set(product(self.sources, self.targets))
        chosen = [cell for cell in result.cells if cell.pair in wanted]
        if (self.task, self.protocol, self.metric) != (result.task.partition("/")[0], result.protocol, result.metric):
            return None
        if not wanted or len(chosen) != len(wanted):
            return None
        values = summarize(chosen) | {f"{cell.source} -> {cell.target}": cell.value for cell in chosen}
        return {column: 100 * values[measure] for column, measure in self.columns.items() if measure is not None}

    def printed(self) -> list[tuple[str, dict[str, float | str | None]]]:
        """Label and values by column of each row."""
        count = len(self.labels)
        names = ["", *(f"{name} = " for name in self.labels[1:])]
        return [
            (", ".join(map("{}{}".format, names, row[:count])), dict(zip(self.columns, row[count:], strict=True)))
            for row in self.rows
        ]

    def differences(self, result: TaskResult) -> list[str]:
        """Differences from the published conditions, such as `en: test 200 instead of 4,000`; empty if comparable."""
        found = []
        rows = result.data.get("rows") or {}
        for split, expected in self.conditions.get("rows", {}).items():
            for language in self.sources if split == "train" else self.targets:
                count = rows.get(language, {}).get(split, "unknown")
                if count != expected:
                    found.append(f"{language}: {split} {count} instead of {expected}")
        head, expected = result.settings.get("head", {}).get("head"), self.conditions.get("head")
        if expected not in (None, head):
            found.append(f"head {head}, published {expected}")
        return found


@functools.cache
def published_tables() -> tuple[PublishedTable, ...]:
    """All tables, in the order of the files."""
    tables = []
    folder = resources.files("modeling_tmde.eval") / "published_tables"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        paper = yaml.safe_load(file.read_text(encoding="utf-8"))
        for record in paper["tables"]:
            conditions = paper.get("conditions", {}).get(record["task"], {})
            about = {"citation": paper["citation"], "short": paper["short"], "conditions": conditions}
            tables.append(PublishedTable(**record, **about))
    return tuple(tables)
