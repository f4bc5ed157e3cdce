"""Training data and documents: parallel rows, texts with metadata, tokens and the built-in sample."""

from .checks import DOCUMENT_ID, CorpusError, CorpusReport
from .parallel import load_parallel

__all__ = ["DOCUMENT_ID", "CorpusError", "CorpusReport", "load_parallel"]
