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
    "DocumentIndex": "documents.index",
    "EmbeddingSystem": "systems",
    "EvaluationOptions": "runner",
    "LanguageDebiaser": "documents.debiasing",
    "Lawdr": "documents.lawdr",
    "TASKS": "tasks",
    "align_documents": "documents.alignment",
    "align_sentences": "documents.sentence_alignment",
    "alignment_recall": "documents.alignment",
    "compare": "significance",
    "evaluate": "runner",
    "evaluate_classification": "classification",
    "evaluate_contrast": "contrast",
    "evaluate_retrieval": "retrieval",
    "evaluate_similarity": "similarity",
    "language_probe": "documents.language_probe",
    "markdown_report": "report",
    "mine_bitext": "documents.mining",
    "nearest_neighbours": "nearest",
    "parallel_rows": "documents.parallel_rows",
    "plan_tasks": "runner",
    "read_results": "storage",
    "scored_pairs": "documents.margins",
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
