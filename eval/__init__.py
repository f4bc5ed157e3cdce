"""Evaluation: tasks, systems, protocols, statistics and reports.

```python
from tmde import DocumentEmbedder
from tmde.eval import EmbeddingSystem, EvaluationOptions, evaluate, markdown_report, plan_tasks

tasks = [planned.load(["de", "en"]) for planned in plan_tasks(["sample"])]
system = EmbeddingSystem("mine", DocumentEmbedder.from_pretrained("path/to/checkpoint"))
results = list(evaluate(tasks, [system], EvaluationOptions()))
print(markdown_report(results))
```
"""

from .captions import evaluate_captions
from .classification import evaluate_classification
from .contrast import evaluate_contrast
from .correlations import correlate_tasks
from .planning import plan_tasks
from .questions import evaluate_questions
from .report import markdown_report
from .results import read_results, summarize, write_results
from .retrieval import evaluate_retrieval
from .runner import EvaluationOptions, evaluate
from .similarity import evaluate_similarity
from .statistics import compare
from .systems import CharacterTfidf, EmbeddingSystem
from .tasks import TASKS
from .translated_tfidf import TranslatedTfidf

__all__ = [
    "TASKS",
    "CharacterTfidf",
    "EmbeddingSystem",
    "EvaluationOptions",
    "TranslatedTfidf",
    "compare",
    "correlate_tasks",
    "evaluate",
    "evaluate_captions",
    "evaluate_classification",
    "evaluate_contrast",
    "evaluate_questions",
    "evaluate_retrieval",
    "evaluate_similarity",
    "markdown_report",
    "plan_tasks",
    "read_results",
    "summarize",
    "write_results",
]
