"""Tasks, one file each; `TASKS` holds them by name."""

from .base import (
    ClassificationData,
    ContrastData,
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
from .europarl_matrix import EuroparlMatrix
from .mldoc import MLDoc
from .sample import Sample
from .sentence_retrieval import SentenceRetrieval
from .sib200 import SIB200
from .sts import STS
from .tatoeba import Tatoeba
from .word_order import WordOrder
from .xnli import XNLI
from .xsr import XSR

_CLASSES = (DocumentRetrieval, EuroparlMatrix, MLDoc, SIB200, STS, Sample, SentenceRetrieval, Tatoeba, TopicDocuments)
TASKS: dict[str, type[Task]] = {task.name: task for task in (*_CLASSES, WordOrder, XNLI, XSR)}

__all__ = [
    "TASKS",
    "ClassificationData",
    "ContrastData",
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
