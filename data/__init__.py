"""Parallel corpora: one function that loads them, map-style or streaming, and checks every row."""

from .checks import DOCUMENT_ID, CorpusError, CorpusReport
from .load import load_parallel

__all__ = ["DOCUMENT_ID", "CorpusError", "CorpusReport", "load_parallel"]
