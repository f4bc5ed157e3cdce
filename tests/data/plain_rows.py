"""Rows of texts by language: small ones to write, and those of a data set to compare with them."""

from collections.abc import Iterable, Sequence

import datasets


def pair_rows(first: str, second: str, count: int) -> list[dict[str, str]]:
    """Return rows of a pair of languages that tell where they come from."""
    rows = []
    for number in range(count):
        rows.append({first: f"{first}{number} of {first}-{second}", second: f"{second}{number}"})
    return rows


def select_languages(rows: Iterable[dict], languages: Sequence[str]) -> list[dict]:
    """Return the texts of each row in these languages, None where it has none."""
    selected_rows = []
    for row in rows:
        selected_rows.append({code: row.get(code) for code in languages})
    return selected_rows


def translations(dataset: datasets.Dataset | datasets.IterableDataset) -> list[dict]:
    """Return the `translation` of each row, in order. It is the only column."""
    assert list(dataset.features) == ["translation"]
    return [row["translation"] for row in dataset]
