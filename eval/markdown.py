"""Markdown of reports: numbers, escapes and tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tabulate

# Shares below this one round to 0.0%.
SMALLEST_SHOWN_SHARE = 0.0005


def percent(value: float | None) -> str:
    """Return a share in percent, such as `83.1`.

    Args:
        value: The share; None becomes `–`, and one that would round to zero `<0.1`.
    """
    if value is None:
        return "–"
    if 0 < value < SMALLEST_SHOWN_SHARE:
        return "<0.1"
    return f"{100 * value:.1f}"


def markdown_escape(text: str) -> str:
    """Escape text for Markdown and HTML, table cells included. Line breaks become spaces."""
    one_line = " ".join(text.split())
    escaped = re.sub(r"([\\`*_|\[\]~$])", r"\\\1", one_line)
    return escaped.replace("&", "&amp;").replace("<", "&lt;")


def markdown_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 1,
    *,
    alignment: Sequence[str] | None = None,
) -> list[str]:
    """Return the lines of a Markdown table.

    Args:
        header: The titles of the columns.
        rows: The texts of the cells.
        left: The number of columns that are left-aligned; the others are right-aligned.
        alignment: "left" or "right" for each column, instead of `left`.
    """
    if alignment is None:
        alignment = ["left"] * left + ["right"] * (len(header) - left)
    table = tabulate.tabulate(rows, header, "pipe", colalign=alignment, disable_numparse=True)
    return table.split("\n")
