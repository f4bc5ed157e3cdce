"""Numbered ids and texts, of which most data of these tests consist."""

from collections.abc import Iterable


def numbered(stem: str, numbers: Iterable[int]) -> list[str]:
    """Return the stem with each number: `numbered("de ", [1, 2])` is `["de 1", "de 2"]`."""
    return [f"{stem}{number}" for number in numbers]


def numbered_by_language(languages: Iterable[str], stem: str, count: int) -> dict[str, list[str]]:
    """Return `count` texts or ids for each language: its code, the stem, and a number from 0."""
    by_language = {}
    for language in languages:
        by_language[language] = numbered(f"{language}{stem}", range(count))
    return by_language
