"""Training data and documents: parallel rows, texts with metadata, tokens and the built-in sample."""

from .checks import CorpusError
from .parallel import DOCUMENT_ID, CorpusReport, load_parallel

__all__ = ["DOCUMENT_ID", "CorpusError", "CorpusReport", "load_parallel"]
