"""Data: parallel rows, labeled texts, documents, tokens and the built-in sample."""

from .checks import CorpusError
from .labeled_texts import load_mldoc, load_sib200, load_xnli
from .parallel import load_parallel
from .report import CorpusReport
from .rows import DOCUMENT_ID, SOURCE_FILE, SOURCE_ROW

__all__ = [
    "DOCUMENT_ID",
    "SOURCE_FILE",
    "SOURCE_ROW",
    "CorpusError",
    "CorpusReport",
    "load_mldoc",
    "load_parallel",
    "load_sib200",
    "load_xnli",
]
