"""The columns of a parallel corpus, and the documents that its rows come from."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc

TRANSLATION = "translation"  # The texts of a row by language.
DOCUMENT_ID = "doc_id"  # Names the document of a row, in the source and in the result.
LABEL = "label"  # The class of a premise and a hypothesis, in the source and in the result.
# Where a row stands in its source: the name of the file or data set, and the number of the row.
SOURCE_FILE = "file"
SOURCE_ROW = "row"
# A number for each row: the row with the next number continues its text.
READING_ORDER = "reading_order"
NLI_TEXTS = ("premise", "hypothesis")
CLASSES = ("entailment", "neutral", "contradiction")  # the order of SNLI, MultiNLI and XNLI
# The texts of a triple, which are named and not in languages: an anchor, the text that it is to
# find, and perhaps hard negatives, `negative` or `negative_1`, `negative_2` and so on.
ANCHOR = "anchor"
POSITIVE = "positive"
NEGATIVE = re.compile(r"negative(?:_(\d+))?", re.ASCII)


def features_of(
    languages: Sequence[str],
    document_ids: bool = False,
    labels: bool = False,
    places: bool = False,
) -> datasets.Features:
    """Return the features that every corpus has.

    Args:
        languages: The fields of `translation`, a struct of nullable strings with sorted keys.
        document_ids: Whether there is a nullable string `doc_id`.
        labels: Whether there is a number `label`.
        places: Whether there is the name `file` and the number `row` in it.
    """
    text = datasets.Value("string")
    columns = {"translation": dict.fromkeys(sorted(languages), text)}
    if document_ids:
        columns[DOCUMENT_ID] = text
    if labels:
        columns[LABEL] = datasets.Value("int64")
    if places:
        columns[SOURCE_FILE] = text
        columns[SOURCE_ROW] = datasets.Value("int64")
    return datasets.Features(columns)


def is_triple_text(name: str) -> bool:
    """Return whether a column of triples has this name."""
    return name in (ANCHOR, POSITIVE) or NEGATIVE.fullmatch(name) is not None


def triple_texts(names: Collection[str]) -> tuple[str, ...]:
    """Return the texts of triples among the names of columns: anchor, positive, then negatives.

    The result is () where the columns hold no triples, because there is no anchor or no positive.

    Example:
        >>> triple_texts(["id", "negative_2", "positive", "anchor", "negative_1"])
        ('anchor', 'positive', 'negative_1', 'negative_2')
    """
    if ANCHOR not in names or POSITIVE not in names:
        return ()
    negatives = []
    for name in names:
        match = NEGATIVE.fullmatch(name)
        if match is not None:
            negatives.append((int(match[1] or 0), name))
    return (ANCHOR, POSITIVE, *(name for _, name in sorted(negatives)))


def triples_of(rows: datasets.Dataset | datasets.IterableDataset | None) -> tuple[str, ...]:
    """Return the texts of a corpus of triples, see `triple_texts`; () for any other corpus."""
    if rows is None:
        return ()
    columns: Mapping[str, Any] | None = rows.features
    if columns is None:
        # A stream may state no features. `load_parallel` also reads its columns in the first row.
        columns = next(iter(rows.with_format(None).take(1)), {})
    return triple_texts(columns.get(TRANSLATION) or columns)


def document_numbers(rows: datasets.Dataset) -> np.ndarray | None:
    """Return a number for the document of each row, (rows,), and -1 for a row without one.

    The result is None if no row has a `doc_id`.
    """
    if DOCUMENT_ID not in rows.column_names:
        return None
    table = rows.select_columns(DOCUMENT_ID).with_format("arrow")[:]
    names = table[DOCUMENT_ID].combine_chunks()
    indices = pc.fill_null(names.dictionary_encode().indices, -1)
    numbers = indices.to_numpy().astype(np.int64)  # (rows,)
    if not (numbers >= 0).any():
        return None
    return numbers


def reading_order(documents: np.ndarray | None, has_text: np.ndarray) -> np.ndarray:
    """Number rows so that the row with the next number continues the text of a row.

    With documents, rows that stand together and have the same document continue one another.
    Without, a row is continued by the next one that has the same languages: the rows are a stream
    of sentences. Where nothing continues a row, the next number is left out.

    Args:
        documents: The result of `document_numbers`.
        has_text: Whether a row has a text in a language, (rows, languages).

    Returns:
        (rows,)
    """
    if documents is not None:
        streams = documents
        order = np.arange(len(documents))
    else:
        _, streams = np.unique(np.packbits(has_text, axis=1), axis=0, return_inverse=True)
        streams = streams.reshape(-1)  # (rows,)
        order = np.argsort(streams, kind="stable")
    ordered = streams[order]
    is_continued = (ordered[:-1] == ordered[1:]) & (ordered[1:] >= 0)  # (rows - 1,)
    steps = np.where(is_continued, 1, 2)
    numbers = np.zeros(len(order), np.int64)
    numbers[order[1:]] = np.cumsum(steps)
    return numbers


def stored_reading_order(rows: datasets.Dataset) -> np.ndarray | None:
    """Return the column `reading_order`, (rows,), or None without it."""
    if READING_ORDER not in rows.column_names:
        return None
    table = rows.select_columns(READING_ORDER).with_format("arrow")[:]
    return table[READING_ORDER].to_numpy()


def with_reading_order(rows: datasets.Dataset) -> datasets.Dataset:
    """Return rows with the column `reading_order`.

    Add it before rows are mixed, held out or drawn: afterwards, rows that stand together need not
    continue one another. Rows that have the column are returned as they are.
    """
    if READING_ORDER in rows.column_names:
        return rows
    return with_reading_orders([rows])[0]


def with_reading_orders(parts: Sequence[datasets.Dataset]) -> list[datasets.Dataset]:
    """Return the parts of a corpus with the column `reading_order`.

    No row of a part continues one of another. Parts that have the column keep its order.
    """
    ordered_parts = []
    first_number = 0
    for rows in parts:
        numbers = stored_reading_order(rows)
        if numbers is None:
            numbers = reading_order(document_numbers(rows), _has_text(rows))
        else:
            rows = rows.remove_columns(READING_ORDER)
        numbers = first_number + numbers
        first_number = numbers.max(initial=first_number) + 2
        # A dataset whose rows were selected is copied first, which takes less time in Arrow.
        ordered = rows.with_format("arrow").add_column(READING_ORDER, numbers)
        ordered_parts.append(ordered.with_format(None))
    return ordered_parts


def _has_text(rows: datasets.Dataset) -> np.ndarray:
    """Return whether each row has a text in each language, (rows, languages)."""
    table = rows.select_columns(TRANSLATION).with_format("arrow")[:]
    parts = []
    for translations in table[TRANSLATION].chunks:  # A whole column would be copied into memory.
        texts = translations.flatten()
        has_text = [text.is_valid().to_numpy(zero_copy_only=False) for text in texts]
        parts.append(np.stack(has_text, axis=1))
    if not parts:
        return np.zeros((0, len(table[TRANSLATION].type)), bool)
    return np.concatenate(parts)
