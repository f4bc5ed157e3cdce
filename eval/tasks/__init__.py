"""Tasks, one file each. `TASKS` holds them by name; a new file in this folder is found by itself."""

import importlib
import pkgutil

from .base import (
    TASKS,
    ClassificationData,
    ContrastData,
    Provenance,
    RetrievalData,
    SimilarityData,
    SimilarityPairs,
    Split,
    Task,
    TaskError,
    data_fingerprint,
    register,
    text_fingerprint,
)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

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
    "TaskError",
    "data_fingerprint",
    "register",
    "text_fingerprint",
]
