"""The columns of a parallel corpus, and the documents that its rows come from."""

from collections.abc import Sequence

import datasets
import numpy as np
import pyarrow.compute as pc

TRANSLATION = "translation"  # The texts of a row by language.
DOCUMENT_ID = "doc_id"  # Names the document of a row, in the source and in the result.
LABEL = "label"  # The class of a premise and a hypothesis, in the source and in the result.
# Where a row stands in its source: the name of the file or data set, and the number of the row.
SOURCE_FILE = "file"
SOURCE_ROW = "row"
NLI_TEXTS = ("premise", "hypothesis")
CLASSES = ("entailment", "neutral", "contradiction")  # the order of SNLI, MultiNLI and XNLI


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
