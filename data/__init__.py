"""Data: parallel rows, labeled texts, documents, tokens and the built-in sample.

Names are imported at first use: who reads documents does not need `datasets`.
"""

from typing import TYPE_CHECKING

from tmde.lazy_names import attach

if TYPE_CHECKING:
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

_MODULES = {
    "DOCUMENT_ID": "tmde.data.rows",
    "SOURCE_FILE": "tmde.data.rows",
    "SOURCE_ROW": "tmde.data.rows",
    "CorpusError": "tmde.data.checks",
    "CorpusReport": "tmde.data.report",
    "load_mldoc": "tmde.data.labeled_texts",
    "load_parallel": "tmde.data.parallel",
    "load_sib200": "tmde.data.labeled_texts",
    "load_xnli": "tmde.data.labeled_texts",
}


__getattr__, __dir__ = attach(__name__, _MODULES)
