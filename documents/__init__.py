"""Documents, many and long: search, alignment, mining, vectors without their language."""

from tmde.documents.alignment import align_documents
from tmde.documents.calibration import Calibration, pair_evidence
from tmde.documents.cleaning import RowCleaner
from tmde.documents.index import DocumentIndex
from tmde.documents.lawdr import Lawdr
from tmde.documents.mining import mine_bitext
from tmde.documents.sentence_alignment import align_sentences

__all__ = [
    "Calibration",
    "DocumentIndex",
    "Lawdr",
    "RowCleaner",
    "align_documents",
    "align_sentences",
    "mine_bitext",
    "pair_evidence",
]
