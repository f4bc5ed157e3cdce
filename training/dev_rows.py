"""Dev rows, held out of the training data with their copies: whole documents if there are any."""

from functools import partial

import datasets
import numpy as np
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data.rows import document_numbers, with_reading_order

logger = logging.get_logger("tmde.training")

Row = dict[str, str | None]  # text by language

LARGEST_SHARE = 10  # At most one row in ten is held out.
FEWEST_ROWS = 2  # A small corpus gives two, because finding one text among one is no test.
# Without documents, so many consecutive rows are held out together. Most of them are then followed
# by a dev row, and 2,000 dev rows still come from 200 places.
BLOCK_ROWS = 10


def hold_out_rows(
    train: datasets.Dataset | datasets.IterableDataset, number: int, seed: int
) -> tuple[datasets.Dataset | datasets.IterableDataset, datasets.Dataset]:
    """Split off `number` dev rows, or a tenth of the rows if that is less, but at least two.

    The rows of a dataset are drawn by `hold_out`; of a stream, the first ones are taken. A row that
    occurs twice is held out once, and its copies are not trained: mixed corpora repeat rows. Rows
    of a dataset have the column `reading_order`, so that no row is continued across a gap.

    Returns:
        The rest, and the rows held out.

    Raises:
        TmdeError: Nothing would be left to train.
    """
    if isinstance(train, datasets.Dataset):
        share = _share(number, len(train))
        if share >= len(train):
            raise TmdeError(
                f"dev_rows={number}: found only {len(train)} rows, too few to hold any out; "
                "give --dev"
            )
        train, held = hold_out(train, share, seed)
    else:
        first_rows = list(train.take(LARGEST_SHARE * number))
        share = _share(number, len(first_rows))
        held = datasets.Dataset.from_list(first_rows[:share], features=train.features)
    places = _first_places(held["translation"][:])
    held = held.select(sorted(places.values()))
    # The copies are looked up in a dict and not in a set, because a dict has the same order in all
    # processes. So all of them find the same cached tokens.
    rest = train.filter(
        partial(_are_not_held_out, held_out=places), input_columns="translation", batched=True
    )
    if isinstance(rest, datasets.Dataset):
        _check_rest(len(rest), len(train) - len(rest), number)
    return rest, held


def _share(number: int, row_count: int) -> int:
    """Return how many of the rows to hold out."""
    return min(number, max(row_count // LARGEST_SHARE, FEWEST_ROWS))


def _first_places(rows: list[Row]) -> dict[tuple, int]:
    """Return where each row occurs first."""
    places: dict[tuple, int] = {}
    for place, row in enumerate(rows):
        places.setdefault(_key(row), place)
    return places


def _key(row: Row) -> tuple:
    return tuple(sorted(row.items()))


def _are_not_held_out(rows: list[Row], held_out: dict[tuple, int]) -> list[bool]:
    return [_key(row) not in held_out for row in rows]


def _check_rest(row_count: int, copies: int, number: int) -> None:
    """Raise TmdeError if no row is left to train, and log how many copies are not trained."""
    if not row_count:
        raise TmdeError(f"dev_rows={number}: all rows repeat held-out ones; give --dev")
    if copies:
        logger.warning(f"{copies:,} rows repeat held-out rows and are left out of training")


def hold_out(
    rows: datasets.Dataset, number: int, seed: int
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split off `number` rows at random, or fewer: whole documents if `doc_id` names any.

    A row without a document is taken for one of its own. If every document is too long, the ends of
    some are held out, and a warning says so. If no row has a document, blocks of consecutive rows
    are held out.

    Returns:
        The rest, and the rows held out, with the column `reading_order`. Both have the order of
        the corpus, except that the rows of a document that is held out stand together.
    """
    rows = with_reading_order(rows)
    documents = document_numbers(rows)
    if documents is None:
        held = _draw_blocks(len(rows), number, seed)
    else:
        held = _draw_documents(documents, number, seed)
        if not len(held):
            held = _draw_ends(documents, number, seed)
            logger.warning(
                f"dev_rows: every document has more than {number:,} rows, so the last rows of "
                f"{len(np.unique(documents[held])):,} training documents are held out; raise "
                "dev_rows, or give dev"
            )
    rest = np.setdiff1d(np.arange(len(rows)), held)
    return rows.select(rest), rows.select(held)


def _draw_blocks(row_count: int, number: int, seed: int) -> np.ndarray:
    """Draw blocks of `BLOCK_ROWS` consecutive rows, and return `number` rows of them in order."""
    blocks = np.arange(row_count) // BLOCK_ROWS  # (rows,)
    priorities = np.random.default_rng(seed).permutation(blocks[-1] + 1)  # (blocks,)
    drawn = np.argsort(priorities[blocks], kind="stable")
    return np.sort(drawn[:number])


def _draw_ends(documents: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Draw documents, and take about `BLOCK_ROWS` rows from the end of each, or more if need be.

    The row before a gap in the middle of a document would be followed by a row that is held out.

    Args:
        documents: The document of each row, (rows,); all of them have more than `number` rows.
        number: How many rows to take.
        seed: The seed of the draws.

    Returns:
        The rows, (`number`,), in the order of the corpus.
    """
    generator = np.random.default_rng(seed)
    all_documents = np.unique(documents)
    count = min(len(all_documents), -(-number // BLOCK_ROWS))
    drawn = generator.choice(all_documents, count, replace=False)
    ends = []
    for document, share in zip(drawn, np.array_split(np.arange(number), count), strict=True):
        rows_of_document = np.flatnonzero(documents == document)
        ends.append(rows_of_document[-len(share) :])
    return np.sort(np.concatenate(ends))


def _draw_documents(documents: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Draw documents with equal chances, and take those that still fit.

    Args:
        documents: The document of each row, (rows,), or -1.
        number: How many rows to take at most.
        seed: The seed of the draws.

    Returns:
        The rows of the documents, (at most `number`,).
    """
    documents = documents.copy()
    is_alone = documents < 0
    documents[is_alone] = documents.max() + 1 + np.arange(is_alone.sum())
    lengths = np.bincount(documents)  # (documents,)
    chosen = []
    rows_left = number
    for document in np.random.default_rng(seed).permutation(len(lengths)):
        if lengths[document] <= rows_left:
            chosen.append(document)
            rows_left -= lengths[document]
    held = np.flatnonzero(np.isin(documents, chosen))
    # The rows of a document are brought together, because a mixed corpus scatters them.
    return held[np.argsort(documents[held], kind="stable")]
