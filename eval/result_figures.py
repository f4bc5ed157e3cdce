"""The figures that show the results of an evaluation, a picture for each task or system."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tmde.eval.figures import (
    FEWEST_MAPPED_DOCUMENTS,
    MAX_PAIRS,
    DebiasedPair,
    draw_accuracy_matrix,
    draw_embedding_space,
    draw_principal_components,
)
from tmde.eval.geometry import raw_and_debiased
from tmde.eval.planning import LoadedTask
from tmde.eval.results import TaskResult
from tmde.eval.systems import EmbeddingSystem, System
from tmde.eval.tasks import CaptionData, ClassificationData, GeometryData


def draw_results(
    folder: Path,
    results: Sequence[TaskResult],
    tasks: Sequence[LoadedTask],
    systems: Sequence[System],
    models: Sequence[EmbeddingSystem],
    seed: int,
) -> list[str]:
    """Draw what shows the results of each task.

    These are accuracy matrices by task, maps of the test documents by task and model, and principal
    components by task and system.

    Args:
        folder: The folder to draw into, created if it is missing.
        results: The results of all tasks and systems.
        tasks: The tasks with their data.
        systems: The systems.
        models: Those of them whose documents are mapped.
        seed: The seed of the maps.

    Returns:
        The names of all pictures in the folder.
    """
    folder.mkdir(exist_ok=True)
    for task in tasks:
        results_of_task = [result for result in results if result.task == task.name]
        # Captions and images are no languages: half of their matrix would be empty.
        if not isinstance(task.data, CaptionData):
            _draw_matrix(folder, results_of_task, task.name)
        if isinstance(task.data, GeometryData):
            _draw_components(folder, results_of_task, task.data, systems)
        if isinstance(task.data, ClassificationData):
            _draw_spaces(folder, task.name, task.data, models, seed)
    return sorted(path.name for path in folder.glob("*.png"))


def _draw_matrix(folder: Path, results: Sequence[TaskResult], task_name: str) -> None:
    """Draw the accuracies by languages of training and test, if there are several of training."""
    matrices = {result.system: result.cells for result in results}
    for cells in matrices.values():
        source_languages = {cell.source for cell in cells}
        if len(source_languages) < 2:
            return
    if matrices:
        path = folder / f"{_file_name(task_name)}-matrix.png"
        draw_accuracy_matrix(path, matrices, task_name)


def _draw_components(
    folder: Path, results: Sequence[TaskResult], data: GeometryData, systems: Sequence[System]
) -> None:
    """Draw the vectors of each pair of languages, raw and debiased, a picture for each system."""
    system_of_name = {system.name: system for system in systems}
    for result in results:
        title = f"{result.task}: {result.system}"
        if len(result.cells) > MAX_PAIRS:
            title += f" ({MAX_PAIRS} of {len(result.cells)} pairs of languages)"
        system = system_of_name[result.system]
        pairs = []
        for cell in result.cells[:MAX_PAIRS]:
            rank = int(cell.extra["debiased_rank"])
            raw, debiased = raw_and_debiased(data, system, cell.source, cell.target, rank)
            accuracies = (cell.value, cell.extra["language_accuracy_debiased"])
            languages = (cell.source, cell.target)
            pairs.append(DebiasedPair(languages, raw, debiased, rank, accuracies))
        path = folder / _file_name(f"{result.task}-{result.system}-components.png")
        draw_principal_components(path, pairs, title)


def _draw_spaces(
    folder: Path,
    task_name: str,
    data: ClassificationData,
    models: Sequence[EmbeddingSystem],
    seed: int,
) -> None:
    """Draw the vectors of the test documents of all languages, a picture for each model."""
    tests = data.mapped_documents()  # (language, split) each
    labels: list[str] = []
    languages: list[str] = []
    ids: list[str] = []
    for language, split in tests:
        labels += split.labels
        languages += [language] * len(split.labels)
        ids += split.ids
    if len(ids) < FEWEST_MAPPED_DOCUMENTS:
        return
    for model in models:
        vectors = [model.represent(split.texts, (), language) for language, split in tests]
        path = folder / _file_name(f"{task_name}-{model.name}-space.png")
        title = f"{task_name}: test documents, {model.name}"
        draw_embedding_space(path, np.concatenate(vectors), labels, languages, ids, title, seed)


def _file_name(name: str) -> str:
    """Return a name without characters that file systems refuse."""
    return re.sub(r"[^\w.-]+", "-", name)
