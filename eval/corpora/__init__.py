"""Parallel corpora: one function that loads them, map-style or streaming, and checks every row."""

from .checks import CorpusError, CorpusReport
from .load import load_parallel

__all__ = ["CorpusError", "CorpusReport", "load_parallel"]
