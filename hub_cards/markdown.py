"""Markdown of cards: numbers, escapes and tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tabulate import tabulate


def percent(value: float | str | None) -> str:
    """Return a share as `83.1`; `–` for None."""
    if value is None:
        return "–"
    return f"{100 * float(value):.1f}"


def interval_text(interval: Sequence[float] | None) -> str:
    """Return an interval as `81.9 to 84.2`; `–` for None."""
    if interval is None:
        return "–"
    low, high = interval
    return f"{percent(low)} to {percent(high)}"


def escape(text: str) -> str:
    """Escape text for Markdown."""
    return re.sub(r"([\\`*_|\[\]~$<])", r"\\\1", text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table; empty without rows.

    Args:
        header: The titles of the columns.
        rows: The texts of the cells.
        left: The number of columns that are left-aligned; the others are right-aligned.
    """
    if not rows:
        return ""
    return tabulate(
        rows,
        header,
        "pipe",
        colglobalalign="right",
        colalign=["left"] * left,
        disable_numparse=True,
    )
