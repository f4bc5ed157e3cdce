"""Documents among parallel rows: those whose translations are searched for, and those that are held out whole."""

import itertools
from collections.abc import Sequence
from operator import itemgetter

import datasets
import numpy as np
import pyarrow.compute as pc
from transformers.utils import logging

from modeling_tmde.data import DOCUMENT_ID
from modeling_tmde.eval.retrieval import RetrievalPool, retrieval_pool

logger = logging.get_logger("modeling_tmde.training")

MIN_ROWS = 4  # of a document; fewer are hardly more than a sentence
MIN_DOCUMENTS = 20  # of a pool; among fewer, precision at 1 moves in steps that say little

Row = dict[str, str | None]  # text by language


def documents_of(rows: datasets.Dataset, max_rows: int) -> list[list[Row]]:
    """The documents of `rows`: consecutive rows of one `doc_id`; of rows without one, every `max_rows` of them.

    Args:
        rows: With the column `translation`, and perhaps `doc_id`.
        max_rows: Rows of a document that has no name.
    """
    names = rows[DOCUMENT_ID][:] if DOCUMENT_ID in rows.column_names else itertools.repeat(None, len(rows))
    named_rows = zip(names, rows["translation"][:], strict=True)
    documents = []
    for name, group in itertools.groupby(named_rows, itemgetter(0)):
        texts = [row for _, row in group]
        length = max_rows if name is None else len(texts)
        documents += [texts[start : start + length] for start in range(0, len(texts), length)]
    return documents


def document_pool(
    documents: Sequence[Sequence[Row]], source: str, target: str, max_rows: int, size: int
) -> RetrievalPool:
    """Documents in two languages: of each, the first `max_rows` rows that have both, joined by a blank.

    Both sides are of the same rows, so that they say the same. Documents of fewer than `MIN_ROWS` such rows, and those
    that repeat another in either language, are left out.

    Args:
        documents: From `documents_of`.
        source, target: Languages.
        max_rows: Rows of a document at most.
        size: Documents at most, the first ones.
    """
    joined = []
    for document in documents:
        complete = [row for row in document if row.get(source) and row.get(target)][:max_rows]
        if len(complete) >= MIN_ROWS:
            joined.append({language: " ".join(row[language] for row in complete) for language in (source, target)})
    return retrieval_pool(joined, source, target, size)


def hold_out(rows: datasets.Dataset, number: int, seed: int) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Splits off `number` rows at random, or fewer: whole documents, where the column `doc_id` names any.

    A row without a document is taken for one of its own. If every document is too long, single rows are held out, and
    a warning says so.

    Returns:
        The rest, and the rows held out; the rows of a document stand together.
    """
    held = _rows_of_documents(rows, number, seed)
    if held is None:
        parts = rows.train_test_split(test_size=number, seed=seed)
        rest, dev = parts["train"], parts["test"]
    else:
        rest, dev = rows.select(np.setdiff1d(np.arange(len(rows)), held)), rows.select(held)
    return rest, dev


def _rows_of_documents(rows: datasets.Dataset, number: int, seed: int) -> np.ndarray | None:
    """Row numbers of documents drawn with equal chances as long as they fit; None if there are none, or none fits."""
    if DOCUMENT_ID not in rows.column_names:
        return None
    names = rows.select_columns(DOCUMENT_ID).with_format("arrow")[:][DOCUMENT_ID].combine_chunks()
    if names.null_count == len(names):
        return None
    documents = pc.fill_null(names.dictionary_encode().indices, -1).to_numpy().astype(np.int64)  # (rows,)
    alone = documents < 0
    documents[alone] = documents.max() + 1 + np.arange(alone.sum())
    lengths = np.bincount(documents)
    chosen, left = [], number
    for document in np.random.default_rng(seed).permutation(len(lengths)):
        if lengths[document] <= left:
            chosen.append(document)
            left -= lengths[document]
        if left < lengths.min():
            break
    if not chosen:
        logger.warning(
            f"dev_rows: every document has more than {number:,} rows, so single rows of the training documents are "
            "held out; raise dev_rows, or give dev"
        )
        return None
    held = np.flatnonzero(np.isin(documents, chosen))
    return held[np.argsort(documents[held], kind="stable")]  # rows of corpora that are mixed do not stand together
