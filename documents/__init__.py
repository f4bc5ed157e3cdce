"""Documents, many and long: searched, aligned, mined for parallel text, represented without their language."""

from modeling_tmde.documents.alignment import align_documents, alignment_quality
from modeling_tmde.documents.index import DocumentIndex
from modeling_tmde.documents.lawdr import LanguageDebiaser, Lawdr
from modeling_tmde.documents.mining import mine_bitext, scored_pairs
from modeling_tmde.documents.sentence_alignment import align_sentences

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
