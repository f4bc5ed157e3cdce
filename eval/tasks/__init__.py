"""Tasks, one file each; `TASKS` holds them by name."""

from .alignment import WMT16, WMT19
from .base import (
    AlignmentData,
    ClassificationData,
    ContrastData,
    DocumentCollection,
    Provenance,
    RetrievalData,
    SimilarityData,
    SimilarityPairs,
    Split,
    Task,
    TaskData,
    TaskError,
    data_fingerprint,
    text_fingerprint,
)
from .documents import DocumentRetrieval, TopicDocuments
from .mldoc import MLDoc
from .parallel import XSR, EuroparlMatrix, SentenceRetrieval
from .probing import PROBING
from .rcv import RCV
from .sample import Sample
from .senteval import SENTEVAL
from .sib200 import SIB200
from .sts import STS
from .tatoeba import Tatoeba
from .word_order import WordOrder
from .xnli import XNLI, XNLITranslateTest, XNLITranslateTrain

__all__ = [
    "GROUPS",
    "TASKS",
    "AlignmentData",
    "ClassificationData",
    "ContrastData",
    "DocumentCollection",
    "Provenance",
    "RetrievalData",
    "SimilarityData",
    "SimilarityPairs",
    "Split",
    "Task",
    "TaskData",
    "TaskError",
    "data_fingerprint",
    "text_fingerprint",
]

_CLASSES: tuple[type[Task], ...] = (
    DocumentRetrieval,
    EuroparlMatrix,
    MLDoc,
    RCV,
    SIB200,
    STS,
    Sample,
    SentenceRetrieval,
    Tatoeba,
    TopicDocuments,
    WMT16,
    WMT19,
    WordOrder,
    XNLI,
    XNLITranslateTest,
    XNLITranslateTrain,
    XSR,
    *PROBING,
    *SENTEVAL,
)
TASKS: dict[str, type[Task]] = {task.name: task for task in _CLASSES}

# Names that stand for several tasks.
GROUPS: dict[str, list[str]] = {
    "probing": [task.name for task in PROBING],
    "probing_text": [task.name for task in PROBING if task.generate is not None],
    "senteval": [task.name for task in SENTEVAL],
}
