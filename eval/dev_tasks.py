"""Classification tasks on their dev splits, as a training run measures them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.classification import check_plans, evaluate_plans, plan_protocol
from tmde.eval.dev_retrieval import encode_dev_texts
from tmde.eval.heads import get_head
from tmde.eval.results import Cell, summarize
from tmde.eval.tasks import TASKS, ClassificationData, TaskError

TASK_METRICS = ("same", "cross", "all")
SPLITS = ("train", "dev", "test")


def load_eval_tasks(
    specs: str | Sequence[str] | None, languages: Sequence[str]
) -> dict[str, ClassificationData]:
    """Load tasks in the languages of the model that they have.

    Args:
        specs: One or several `NAME` or `NAME=SOURCE`; None for no task.
        languages: The languages of the model.

    Returns:
        The data by name, with the splits `train`, `dev` and `test`.

    Raises:
        TaskError: An unknown task, one that is no classification, a task twice, fewer than two of
            the languages, a split that is missing or empty, or a label of dev that a train split
            lacks.
    """
    if specs is None:
        specs = []
    elif isinstance(specs, str):
        specs = [specs]
    tasks: dict[str, ClassificationData] = {}
    for spec in specs:
        name, _, source = str(spec).partition("=")
        if name not in TASKS or name in tasks:
            raise TaskError(
                f"eval_task: found task {spec!r}, expected NAME[=SOURCE] of {', '.join(TASKS)}, "
                "each once"
            )
        data = TASKS[name]().load(source or None)
        if not isinstance(data, ClassificationData) or data.monolingual:
            raise TaskError(
                f"eval_task: found {type(data).__name__} for {spec!r}, expected labeled texts "
                "in several languages"
            )
        tasks[name] = _select_languages(data, languages, spec)
    return tasks


def _select_languages(
    data: ClassificationData, languages: Sequence[str], spec: str
) -> ClassificationData:
    """Return train, dev and test in the languages of the model.

    Raises:
        TaskError: There are fewer than two, or a split is bad.
    """
    common = [language for language in languages if language in data.splits]
    if len(common) < 2:
        raise TaskError(
            f"eval_task: found the languages {data.languages} in {spec!r}, expected at least two "
            f"of the model's {list(languages)}"
        )
    plans = plan_protocol("zero-shot", common, common)
    for tested_split in ("dev", "test"):
        check_plans(data, plans, tested_split)
    splits = {}
    for language in common:
        splits[language] = {name: data.splits[language][name] for name in SPLITS}
    return replace(data, splits=splits)


def measure_task(
    embedder: DocumentEmbedder,
    data: ClassificationData,
    autocast: AbstractContextManager,
) -> dict[str, float]:
    """Measure Evaluation II (Li, 2021, section 4.4.2).

    A classifier for each language's `train` labels is applied to every language.

    Args:
        embedder: The model in training.
        data: From `load_eval_tasks`. Every split is encoded once.
        autocast: The context in which texts are encoded; classifiers are trained outside of it.

    Returns:
        `same`, `cross` and `all` on the dev split, `test_same` and `test_cross` on the test split,
        between 0 and 1.
    """
    with autocast:
        system = encode_dev_texts(embedder, _all_texts(data))
    plans = plan_protocol("zero-shot", data.languages, data.languages)
    # The classifiers of one seed are tested on both splits.
    cells = evaluate_plans(data, plans, system, get_head(data.head), (0,), ("dev", "test"))
    dev_means = _means(cells["dev"])
    test_means = _means(cells["test"])
    scores = {name: dev_means[name] for name in TASK_METRICS}
    scores["test_same"] = test_means["same"]
    scores["test_cross"] = test_means["cross"]
    return scores


def _all_texts(data: ClassificationData) -> list[tuple[str, Sequence[str]]]:
    """Return the columns of texts of all splits, with their language."""
    columns = []
    for language, by_name in data.splits.items():
        for split in by_name.values():
            columns.append((language, split.texts))
            if split.second_texts:
                columns.append((language, split.second_texts))
    return columns


def _means(cells: Sequence[Cell]) -> dict[str, float]:
    """Return the means `same`, `cross` and `all` of cells."""
    return {name.lower(): mean for name, mean in summarize(cells).items()}
