"""Documents, many and long: search, alignment, mining, vectors without their language.

The functions on files do what the commands of `tmde` do, and return a report. Names are imported at
first use: a search needs neither alignment nor cleaning.
"""

from typing import TYPE_CHECKING

from tmde.lazy_names import attach

if TYPE_CHECKING:
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

_MODULES = {
    "Calibration": "tmde.documents.calibration",
    "DocumentIndex": "tmde.documents.index",
    "Lawdr": "tmde.documents.lawdr",
    "RowCleaner": "tmde.documents.cleaning",
    "align_documents": "tmde.documents.alignment",
    "align_files": "tmde.documents.file_alignment",
    "align_sentences": "tmde.documents.sentence_alignment",
    "align_word_files": "tmde.documents.word_file_alignment",
    "calibrate_model": "tmde.documents.model_calibration",
    "clean_files": "tmde.documents.file_cleaning",
    "dedupe_files": "tmde.documents.file_deduplication",
    "index_files": "tmde.documents.file_indexing",
    "mine_bitext": "tmde.documents.mining",
    "mine_files": "tmde.documents.file_mining",
    "pair_evidence": "tmde.documents.calibration",
}


__getattr__, __dir__ = attach(__name__, _MODULES)
