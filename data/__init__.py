"""Training data and documents: parallel rows, documents, tokens and the built-in sample."""

from .checks import CorpusError
from .parallel import load_parallel
from .report import CorpusReport
from .rows import DOCUMENT_ID, SOURCE_FILE, SOURCE_ROW

__all__ = [
    "DOCUMENT_ID",
    "SOURCE_FILE",
    "SOURCE_ROW",
    "CorpusError",
    "CorpusReport",
    "load_parallel",
]
