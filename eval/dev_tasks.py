"""Classification tasks on their dev splits, as a training run measures them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.classification import check_plans, evaluate_classification, plan_protocol
from tmde.eval.dev_retrieval import encode_dev_texts
from tmde.eval.results import summarize
from tmde.eval.tasks import TASKS, ClassificationData, TaskError

TASK_METRICS = ("same", "cross", "all")
SPLITS = ("train", "dev", "test")


def load_eval_tasks(
    specs: str | Sequence[str] | None, languages: Sequence[str]
) -> dict[str, ClassificationData]:
    """The data of one or several `NAME` or `NAME=SOURCE`, in those of `languages` that they have, by name.

    Each has the splits `train`, `dev` and `test`.

    Raises:
        TaskError: An unknown task, one that is no classification, a task twice, fewer than two of the languages, a
            split that is missing or empty, or a label of dev that a train split lacks.
    """
    tasks: dict[str, ClassificationData] = {}
    for spec in [specs] if isinstance(specs, str) else specs or []:
        name, _, source = str(spec).partition("=")
        if name not in TASKS or name in tasks:
            raise TaskError(
                f"eval_task: found task {spec!r}, expected NAME[=SOURCE] of {', '.join(TASKS)}, each once"
            )
        data = TASKS[name]().load(source or None)
        if not isinstance(data, ClassificationData) or data.monolingual:
            raise TaskError(
                f"eval_task: found {type(data).__name__} for {spec!r}, expected classes across languages"
            )
        common = [language for language in languages if language in data.splits]
        if len(common) < 2:
            raise TaskError(
                f"eval_task: found the languages {data.languages} in {spec!r}, expected at least two of the model's "
                f"{list(languages)}"
            )
        for split in ("dev", "test"):
            check_plans(data, plan_protocol("zero-shot", common, common), split)
        tasks[name] = replace(
            data, splits={one: {key: data.splits[one][key] for key in SPLITS} for one in common}
        )
    return tasks


def measure_task(
    embedder: DocumentEmbedder,
    data: ClassificationData,
    args: Any,
    autocast: AbstractContextManager,
) -> dict[str, float]:
    """Evaluation II (thesis 4.4.2): a classifier for each language's `train` labels, applied to every language.

    Args:
        data: From `load_eval_tasks`. Every split is encoded once.
        args: Training arguments, of which none is used.
        autocast: In which texts are encoded; classifiers are trained outside of it.

    Returns:
        `same`, `cross` and `all` on the dev split, `test_same` and `test_cross` on the test split, between 0 and 1.
    """
    splits = [
        (language, split)
        for language, of_language in data.splits.items()
        for split in of_language.values()
    ]
    texts = [
        (language, side)
        for language, split in splits
        for side in (split.texts, split.second_texts)
        if side
    ]
    with autocast:
        system = encode_dev_texts(embedder, texts)
    scores = {}
    with torch.enable_grad():  # for heads that are trained by gradients
        for split, prefix, names in (
            ("dev", "", TASK_METRICS),
            ("test", "test_", ("same", "cross")),
        ):
            cells = evaluate_classification(
                data, system, data.head, test_split=split, seeds=(0,)
            )
            means = {name.lower(): value for name, value in summarize(cells).items()}
            scores |= {f"{prefix}{name}": means[name] for name in names}
    return scores
