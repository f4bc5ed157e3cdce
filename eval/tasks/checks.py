"""Checks that every task makes: its source, its languages, the labels of translations; and one wording of errors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from modeling_tmde.data.checks import Words, bad_value

from .base import Split, Task, TaskError


def bad_data(
    task: str, place: str, row: int | None, column: str | None, found: object, expected: str, advice: str
) -> TaskError:
    """Return (not raise) the [`TaskError`] of one bad value, worded the same way everywhere.

    Args:
        task: Name of the task.
        place: File, or Hub id with config and split.
        row: Counted from 1, as an editor counts lines.
        column: Column or argument.
        found: The value; a [`Words`] is not quoted.
    """
    return TaskError(f"{task}: {bad_value(place, row, column, found, expected, advice)}")


def source_of(task: Task, source: str | os.PathLike | None, advice: str) -> str:
    """Return the stated source or the task's default one.

    Raises:
        TaskError: There is neither; `advice` says where to get the data.
    """
    if source is None and task.default_source is None:
        raise bad_data(task.name, "load", None, "source", source, "a path or a Hub id", advice)
    return os.path.expanduser(os.fspath(task.default_source if source is None else source))


def check_count(task: str, option: str, value: object) -> None:
    """Raise [`TaskError`] if a number of rows is not at least 1 (or None)."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise TaskError(f"{task}: found {option}={value!r}, expected a whole number from 1. Correct it.")


def choose_languages(
    task: str, place: str, requested: Sequence[str] | None, available: Iterable[str], defaults: Sequence[str]
) -> list[str]:
    """Return the languages to load, without repeats: the requested ones, or those of `defaults` that are there.

    Args:
        defaults: None of them: all that are there.

    Raises:
        TaskError: A requested language is not there, or no default one is.
    """
    there = list(dict.fromkeys(available))
    listed = f"languages of the data: {', '.join(sorted(there)) or 'none'}"
    if requested is None:
        chosen = [language for language in defaults if language in there] if defaults else there
        if not chosen:
            found = Words(f"none of the default languages {', '.join(defaults)}")
            raise bad_data(task, place, None, "languages", found, listed, "Pass languages=[...] or another source.")
        return chosen
    if isinstance(requested, str) or not requested:
        advice = "Pass e.g. ['de', 'en']."
        raise bad_data(task, place, None, "languages", requested, "a list of language codes", advice)
    for language in requested:
        if language not in there:
            raise bad_data(task, place, None, "languages", language, listed, "Request only languages that are there.")
    return list(dict.fromkeys(requested))


def make_split(
    place: str,
    ids: Sequence[str],
    texts: Sequence[str],
    labels: Sequence[str],
    second_texts: Sequence[str] | None = None,
) -> Split:
    """Return a [`Split`]; its errors name `place` (task and source)."""
    try:
        split = Split(ids, texts, labels, second_texts)
    except TaskError as error:
        raise TaskError(f"{place}: {error}. Correct the file.") from error
    if not ids:
        raise TaskError(f"{place}: found no rows, expected some. Fetch or write the file again.")
    return split


def check_parallel(task: str, place: str, splits: Mapping[str, Mapping[str, Split]], names: Iterable[str]) -> None:
    """Raise [`TaskError`] if rows with one id, which are translations of each other, have different labels."""
    for name in names:
        gold: dict[str, tuple[str, str]] = {}
        for language, by_name in splits.items():
            if name not in by_name:
                continue
            for row_id, label in zip(by_name[name].ids, by_name[name].labels, strict=True):
                first_language, first_label = gold.setdefault(row_id, (language, label))
                if label != first_label:
                    where = f"{place}, language {language}, split {name}, id {row_id}"
                    expected = f"the label of its translation in {first_language}, {first_label!r}"
                    advice = "Rows of one id must be translations: fetch the languages in one edition."
                    raise bad_data(task, where, None, "label", label, expected, advice)
