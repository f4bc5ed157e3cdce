"""A share of the documents of a corpus: what does a model learn from less text?"""

import datasets
import numpy as np

from modeling_tmde import TmdeError
from tmde.data.rows import document_numbers, with_reading_order

# A share is a smaller corpus, the same one for all runs. The seed of a run decides how it is read.
SHARE_SEED = 42


def draw_share(rows: datasets.Dataset, share: float) -> datasets.Dataset:
    """Return the rows of a share of the documents, in their order, with `reading_order`.

    Each document is drawn independently, so the rows are only about `share` of all rows. The draw
    is the same for every run, and the documents of a smaller share are among those of a larger one.

    Args:
        rows: A corpus. A row whose `doc_id` is missing is taken for a document of its own.
        share: The chance that a document is drawn, (0, 1].

    Raises:
        TmdeError: No document is drawn.
    """
    generator = np.random.default_rng(SHARE_SEED)
    draws = generator.random(len(rows))  # (rows,), for rows without a document
    documents = document_numbers(rows)
    if documents is not None:
        draws_of_documents = generator.random(documents.max() + 1)  # (documents,)
        draws = np.where(documents < 0, draws, draws_of_documents[documents])
    chosen = np.flatnonzero(draws < share)
    if not len(chosen):
        raise TmdeError(
            f"train_share={share}: no document of {len(rows):,} rows was drawn; give a larger share"
        )
    # Rows on both sides of a gap do not continue one another.
    return with_reading_order(rows).select(chosen)
