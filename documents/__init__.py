"""Documents, many and long: search, alignment, mining, vectors without their language.

The functions on files do what the commands of `tmde` do, and return a report.
"""

from tmde.documents.alignment import align_documents
from tmde.documents.calibration import Calibration, pair_evidence
from tmde.documents.cleaning import RowCleaner
from tmde.documents.file_alignment import align_files
from tmde.documents.file_cleaning import clean_files
from tmde.documents.file_deduplication import dedupe_files
from tmde.documents.file_indexing import index_files
from tmde.documents.file_mining import mine_files
from tmde.documents.index import DocumentIndex
from tmde.documents.lawdr import Lawdr
from tmde.documents.mining import mine_bitext
from tmde.documents.model_calibration import calibrate_model
from tmde.documents.sentence_alignment import align_sentences
from tmde.documents.word_file_alignment import align_word_files

__all__ = [
    "Calibration",
    "DocumentIndex",
    "Lawdr",
    "RowCleaner",
    "align_documents",
    "align_files",
    "align_sentences",
    "align_word_files",
    "calibrate_model",
    "clean_files",
    "dedupe_files",
    "index_files",
    "mine_bitext",
    "mine_files",
    "pair_evidence",
]
