"""Numbers and tables in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence


def percent(value: float | None) -> str:
    """A share as `83.1`; `<0.1` for what would round to nothing, `–` for nothing."""
    if value is None:
        return "–"
    return "<0.1" if 0 < value < 0.0005 else f"{100 * value:.1f}"


def markdown_escape(text: str) -> str:
    """Text that Markdown and HTML show as it is, also in a table's cell."""
    text = re.sub(r"([\\`*_|\[\]~$])", r"\\\1", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table, columns padded to read well as text too; the first `left` to the left, others to the right."""
    widths = [max(3, *(len(row[column]) for row in (header, *rows))) for column in range(len(header))]
    rule = ["-" * width if column < left else "-" * (width - 1) + ":" for column, width in enumerate(widths)]

    def line(row: Sequence[str]) -> str:
        cells = (
            text.ljust(width) if column < left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return f"| {' | '.join(cells)} |"

    return [line(header), line(rule), *(line(row) for row in rows)]


def number_range(counts: Sequence[int]) -> str:
    """`1,000`, or `980 to 1,000` of several that differ."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
