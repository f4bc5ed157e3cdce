"""Documents, many and long: search, alignment, mining, vectors without their language."""

from tmde.documents.alignment import align_documents, alignment_quality
from tmde.documents.index import DocumentIndex
from tmde.documents.lawdr import LanguageDebiaser, Lawdr
from tmde.documents.mining import mine_bitext, scored_pairs
from tmde.documents.sentence_alignment import align_sentences

__all__ = [
    "DocumentIndex",
    "LanguageDebiaser",
    "Lawdr",
    "align_documents",
    "align_sentences",
    "alignment_quality",
    "mine_bitext",
    "scored_pairs",
]
