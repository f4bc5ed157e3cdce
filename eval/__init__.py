"""Evaluation: tasks, systems, protocols, statistics and reports.

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval import EmbeddingSystem, EvaluationOptions, evaluate, markdown_report, plan_tasks

tasks = [planned.load(["de", "en"]) for planned in plan_tasks(["sample"])]
system = EmbeddingSystem("mine", DocumentEmbedder.from_pretrained("path/to/checkpoint"))
results = list(evaluate(tasks, [system], EvaluationOptions()))
print(markdown_report(results))
"""

import importlib

_HOMES = {
    "CharacterTfidf": "systems",
    "EmbeddingSystem": "systems",
    "EvaluationOptions": "runner",
    "TASKS": "tasks",
    "compare": "significance",
    "evaluate": "runner",
    "evaluate_classification": "classification",
    "evaluate_contrast": "contrast",
    "evaluate_retrieval": "retrieval",
    "evaluate_similarity": "similarity",
    "markdown_report": "report",
    "nearest_neighbours": "nearest",
    "plan_tasks": "runner",
    "read_results": "storage",
    "summarize": "results",
    "write_results": "storage",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str):
    """Imported when asked for: the sample and the corpora, which training uses, need nothing of scikit-learn."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
