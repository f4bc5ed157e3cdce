"""Dev rows: held out of the training data with their copies, whole documents where there are any."""

from functools import partial

import datasets
import numpy as np
from transformers.utils import logging

from modeling_tmde import TmdeError

from .rows import document_numbers

logger = logging.get_logger("tmde.training")

Row = dict[str, str | None]  # text by language


def hold_out_rows(
    train: datasets.Dataset | datasets.IterableDataset, number: int, seed: int
) -> tuple[datasets.Dataset | datasets.IterableDataset, datasets.Dataset]:
    """Split off `number` dev rows, but no more than a tenth or two, each once: of a dataset as `hold_out` draws them,
    of a stream the first ones. The rest has no row with the very texts of one of them: mixed corpora repeat rows.

    Returns:
        The rest, and the rows held out.

    Raises:
        ValueError: Nothing would be left to train.
    """
    if isinstance(train, datasets.Dataset):
        share = min(number, max(len(train) // 10, 2))  # there is nothing to find in one row
        if share >= len(train):
            raise TmdeError(
                f"dev_rows={number}: found {len(train)} rows in all, too few to hold out any; give --dev"
            )
        train, held = hold_out(train, share, seed)
    else:
        first = list(train.take(10 * number))
        held = datasets.Dataset.from_list(
            first[: min(number, max(len(first) // 10, 2))], features=train.features
        )
    places = {_key(row): place for place, row in reversed(list(enumerate(held["translation"][:])))}
    held = held.select(sorted(places.values()))
    # A dict, whose order does not depend on the process, so that all processes find the same cached tokens.
    rest = train.filter(
        partial(_are_others, known=places), input_columns="translation", batched=True
    )
    if isinstance(rest, datasets.Dataset):
        if not len(rest):
            raise TmdeError(f"dev_rows={number}: all rows are copies of those held out; give --dev")
        if len(rest) < len(train):
            logger.warning(
                f"{len(train) - len(rest):,} rows are copies of rows held out, and are not trained"
            )
    return rest, held


def _key(row: Row) -> tuple:
    return tuple(sorted(row.items()))


def _are_others(rows: list[Row], known: dict[tuple, int]) -> list[bool]:
    return [_key(row) not in known for row in rows]


def hold_out(
    rows: datasets.Dataset, number: int, seed: int
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split off `number` rows at random, or fewer: whole documents, where the column `doc_id` names any.

    A row without a document is taken for one of its own. If every document is too long, single rows are held out, and
    a warning says so.

    Returns:
        The rest, and the rows held out; the rows of a document stand together.
    """
    documents = document_numbers(rows)
    held = [] if documents is None else _draw_documents(documents, number, seed)
    if len(held):
        return rows.select(np.setdiff1d(np.arange(len(rows)), held)), rows.select(held)
    if documents is not None:
        logger.warning(
            f"dev_rows: every document has more than {number:,} rows, so single rows of the training documents are "
            "held out; raise dev_rows, or give dev"
        )
    parts = rows.train_test_split(test_size=number, seed=seed)
    return parts["train"], parts["test"]


def _draw_documents(documents: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Return at most `number` rows: those of documents drawn with equal chances as long as they fit."""
    alone = documents < 0
    documents[alone] = documents.max() + 1 + np.arange(alone.sum())
    lengths = np.bincount(documents)
    chosen, left = [], number
    for document in np.random.default_rng(seed).permutation(len(lengths)):
        if lengths[document] <= left:
            chosen.append(document)
            left -= lengths[document]
    held = np.flatnonzero(np.isin(documents, chosen))
    return held[
        np.argsort(documents[held], kind="stable")
    ]  # rows of corpora that are mixed do not stand together
