"""Tasks, one file each; `TASKS` holds them by name."""

from collections.abc import Sequence

from .alignment import WMT16, WMT19
from .base import (
    AlignmentData,
    CaptionData,
    CaptionedImages,
    ClassificationData,
    ContrastData,
    DocumentCollection,
    GeometryData,
    Provenance,
    QuestionData,
    Questions,
    RetrievalData,
    SentenceAlignmentData,
    SimilarityData,
    SimilarityPairs,
    Split,
    Task,
    TaskData,
    TaskError,
    TranslatedText,
    data_fingerprint,
    text_fingerprint,
)
from .coco_captions import CocoCaptions
from .documents import DocumentRetrieval, TopicDocuments
from .labeled_documents import LabeledDocuments
from .mldoc import MLDoc
from .parallel import XSR, EuroparlMatrix, SentenceRetrieval
from .probing import GENERATED_PROBING, PROBING
from .question_retrieval import QuestionRetrieval
from .rcv import RCV
from .sample import Sample
from .sentence_alignment import SentenceAlignment
from .senteval import SENTEVAL
from .sib200 import SIB200
from .snli import SNLI
from .sts import STS
from .tatoeba import Tatoeba
from .vector_geometry import VectorGeometry
from .word_order import WordOrder
from .xnli import XNLI, XNLITranslateTest, XNLITranslateTrain

__all__ = [
    "GROUPS",
    "TASKS",
    "AlignmentData",
    "CaptionData",
    "CaptionedImages",
    "ClassificationData",
    "ContrastData",
    "DocumentCollection",
    "GeometryData",
    "Provenance",
    "QuestionData",
    "Questions",
    "RetrievalData",
    "SentenceAlignmentData",
    "SimilarityData",
    "SimilarityPairs",
    "Split",
    "Task",
    "TaskData",
    "TaskError",
    "TranslatedText",
    "data_fingerprint",
    "text_fingerprint",
]

_CLASSES: tuple[type[Task], ...] = (
    CocoCaptions,
    DocumentRetrieval,
    EuroparlMatrix,
    LabeledDocuments,
    MLDoc,
    QuestionRetrieval,
    RCV,
    SIB200,
    SNLI,
    STS,
    Sample,
    SentenceAlignment,
    SentenceRetrieval,
    Tatoeba,
    TopicDocuments,
    VectorGeometry,
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


def _names(tasks: Sequence[type[Task]]) -> list[str]:
    return [task.name for task in tasks]


# Names that stand for several tasks.
GROUPS: dict[str, list[str]] = {
    "probing": _names(PROBING),
    "probing_text": _names(GENERATED_PROBING),
    "senteval": _names(SENTEVAL),
}
