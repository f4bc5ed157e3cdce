"""The work of `tmde eval run`: measure systems on tasks, and write and draw their results."""

import itertools
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.markdown import Markdown

from modeling_tmde import TmdeError
from tmde.cli.errors import describe_error
from tmde.cli.evaluation_options import find_tasks, named_paths, split_list
from tmde.cli.models import load_embedder
from tmde.cli.options import LONG_OPTIONS
from tmde.cli.stored_results import differences_markdown
from tmde.data.io import write_atomically
from tmde.embedding import DocumentEmbedder
from tmde.embedding.loading import errors_about
from tmde.embedding.progress import progress_bar
from tmde.eval.figures import (
    FEWEST_MAPPED_DOCUMENTS,
    MAX_PAIRS,
    DebiasedPair,
    draw_accuracy_matrix,
    draw_embedding_space,
    draw_principal_components,
)
from tmde.eval.geometry import raw_and_debiased
from tmde.eval.planning import LoadedTask, PlannedTask
from tmde.eval.report import markdown_report, print_report
from tmde.eval.results import EVAL_NAME, TaskResult, write_results
from tmde.eval.runner import EvaluationOptions, evaluate
from tmde.eval.systems import CharacterTfidf, EmbeddingSystem, System, default_cache_dir
from tmde.eval.tasks import CaptionData, ClassificationData, GeometryData
from tmde.eval.tasks.labeled_documents import LabeledDocuments, describe_documents
from tmde.eval.translated_tfidf import TranslatedTfidf


@dataclass(frozen=True)
class EvaluationJob:
    """What `tmde eval run` was asked for; the fields are its arguments and options.

    Attributes:
        models: Paths or Hub ids, or `NAME=PATH`.
        loading: The arguments of `load_embedder`.
        labeled: Files of labeled documents, or `NAME=FILE`.
        columns: The columns of these files, by `FIELD`, or by `NAME.FIELD` for one of them.
        baselines: Encoders of the Hub, each measured with both poolings.
        translators: Trained models with a decoder, whose translations are measured by TF-IDF.
        translate_into: The language that these translate into; None for each model's default.
    """

    models: list[str]
    loading: dict[str, Any]
    tasks: list[str] | None
    labeled: list[str]
    columns: dict[str, str]
    data: Path | None
    languages: str | None
    train_languages: str | None
    streaming: bool
    task_options: list[str] | None
    protocol: str
    head: str | None
    seeds: int
    folds: bool
    scoring: str
    max_queries: int | None
    seed: int
    baselines: list[str]
    translators: list[str]
    translate_into: str | None
    has_tfidf: bool
    output: Path | None
    overwrite: bool
    has_figures: bool
    cache_folder: Path | None


@dataclass(frozen=True)
class Measurements:
    """The results of all systems on all tasks.

    Attributes:
        results: The results of all measurements that succeeded.
        errors: A sentence for each measurement that failed because of the user or the machine.
        defect: The first error that is a defect of tmde; None if there was none.
    """

    results: list[TaskResult]
    errors: list[str]
    defect: Exception | None

    def raise_errors(self) -> None:
        """Raise what went wrong, if anything did.

        Raises:
            TmdeError: A system could not be measured on a task.
            Exception: The defect, with its own traceback.
        """
        if self.defect is not None:
            raise self.defect
        if self.errors:
            raise TmdeError("\n".join(self.errors))


def run_evaluation(job: EvaluationJob) -> None:
    """Measure all systems on all tasks, and print and write the results.

    Raises:
        TmdeError: An argument cannot be used; or, at the end, a system could not be measured on a
            task.
        Exception: At the end, the first defect of tmde that stopped a measurement.
    """
    if job.output is not None:
        _prepare_output(job.output, job.has_figures, job.overwrite)
    if job.translate_into is not None and not job.translators:
        raise TmdeError(
            f"--translate-into: found {job.translate_into!r} without a model that translates; name "
            "one with --translated-tfidf MODEL"
        )
    model_paths = named_paths(job.models)
    baseline_paths = named_paths(job.baselines)
    translator_paths = named_paths(job.translators)
    planned_tasks = find_tasks(
        job.tasks, job.data, job.task_options, labeled=job.labeled, columns=job.columns
    )
    _check_labeled_documents(planned_tasks)
    cache = job.cache_folder or default_cache_dir()

    models = [
        EmbeddingSystem(name, load_embedder(path, **job.loading), cache)
        for name, path in model_paths.items()
    ]
    systems: list[System] = list(models)
    for name, path in baseline_paths.items():
        systems += _load_baseline(name, path, job.loading, cache)
    for name, path in translator_paths.items():
        device = job.loading.get("device")
        systems.append(_load_translator(name, path, device, job.translate_into))
    if job.has_tfidf:
        systems.append(CharacterTfidf())

    train_languages = split_list(job.train_languages)
    test_languages = split_list(job.languages)
    loaded_languages = None
    if test_languages is not None:
        loaded_languages = tuple(dict.fromkeys([*test_languages, *(train_languages or ())]))
    known_languages = _shared_languages(models)
    tasks = [
        planned.load(loaded_languages, job.streaming, known_languages, train_languages)
        for planned in planned_tasks
    ]
    _describe_labeled_documents(tasks)
    options = EvaluationOptions(
        protocol=job.protocol,
        head=job.head,
        train_languages=train_languages,
        # Without languages to train on, all that are loaded are tested.
        test_languages=test_languages if train_languages else None,
        seeds=job.seeds,
        folds=job.folds,
        scoring=job.scoring,
        max_queries=job.max_queries,
        seed=job.seed,
    )
    measurements = _measure(tasks, systems, options, cache)
    differences = _differences_from_first(measurements.results, list(model_paths), job.seed)

    console = Console()
    print_report(measurements.results, console)
    for table in differences:
        console.print(Markdown(table))
    if job.output is not None:
        figures = []
        _delete_figures(job.output)
        _write_results(job.output, measurements.results, options, models, model_paths)
        if job.has_figures:
            figures = _draw_figures(
                job.output / "figures", measurements.results, tasks, systems, models, job.seed
            )
        _write_report(job.output, measurements.results, differences, figures)
        console.print(f"Everything is in {job.output}/")
    measurements.raise_errors()


def _check_labeled_documents(planned_tasks: Sequence[PlannedTask]) -> None:
    """Read the user's own labeled documents, so that mistakes show before a model is loaded."""
    for planned in planned_tasks:
        if isinstance(planned.task, LabeledDocuments):
            options = planned.options
            planned.task.check(planned.source, options.get("columns"), options.get("quoting"))


def _describe_labeled_documents(tasks: Sequence[LoadedTask]) -> None:
    """Print how many documents, labels and splits the user's own labeled documents have."""
    for task in tasks:
        if isinstance(task.task, LabeledDocuments) and isinstance(task.data, ClassificationData):
            typer.echo(f"{task.name}: {describe_documents(task.data)}", err=True)


def _prepare_output(output: Path, has_figures: bool, overwrite: bool) -> None:
    """Make the output folder, or check it, before anything is measured."""
    if has_figures:
        import matplotlib  # noqa: F401 - if it is missing, say so now
    output.mkdir(parents=True, exist_ok=True)
    is_evaluation = (output / EVAL_NAME).exists()
    if any(output.iterdir()) and not (overwrite and is_evaluation):
        raise TmdeError(
            f"-o {output}: found files, expected an empty folder, or an evaluation and --overwrite"
        )


def _load_baseline(
    name: str, path: str, loading: dict[str, Any], cache: Path
) -> list[EmbeddingSystem]:
    """Return an encoder of the Hub as two systems, by its first output and by the mean."""
    first = load_embedder(path, **loading | {"pooling": "cls"})
    shared_options = {}
    for option, value in loading.items():
        if option == "max_length" or option in LONG_OPTIONS:
            shared_options[option] = value
    mean = DocumentEmbedder(
        first.model, first.tokenizer, "mean", prompt=first.prompt, **shared_options
    )
    return [
        EmbeddingSystem(f"{name} (first output)", first, cache),
        EmbeddingSystem(f"{name} (mean)", mean, cache),
    ]


def _load_translator(
    name: str, path: str, device: str | None, language: str | None
) -> TranslatedTfidf:
    """Return the TF-IDF of a model's translations, as a system; errors begin with the model."""
    with errors_about(path):
        return TranslatedTfidf.from_pretrained(f"{name} + TF-IDF", path, device, language)


def _shared_languages(models: Sequence[EmbeddingSystem]) -> list[str] | None:
    """Return the languages that all models were trained on; None if no model names any."""
    languages_of_models = [set(model.languages) for model in models if model.languages]
    if not languages_of_models:
        return None
    return sorted(set.intersection(*languages_of_models))


def _measure(
    tasks: Sequence[LoadedTask],
    systems: Sequence[System],
    options: EvaluationOptions,
    cache: Path,
) -> Measurements:
    """Measure every system on every task; one that fails does not stop the others.

    Each result is stored in the cache when it is complete, from where the next call takes it.

    Raises:
        TmdeError: Nothing could be measured.
        KeyboardInterrupt: The user has pressed Ctrl-C; the message says what is stored.
        Exception: The same, because of a defect of tmde.
    """
    results: list[TaskResult] = []
    errors = []
    defect = None
    pairs = list(itertools.product(tasks, systems))
    bar = progress_bar(pairs, desc="evaluating", unit="result", dynamic_ncols=True)
    for task, system in bar:
        bar.set_description(f"{task.name}: {system.name}")
        try:
            results += evaluate([task], [system], options, cache, bar.set_postfix_str)
        except KeyboardInterrupt:
            bar.close()
            raise KeyboardInterrupt(
                f"Interrupted. {len(results)} of {len(pairs)} results are stored in {cache}. Run "
                "the same command again to measure the others."
            ) from None
        except Exception as error:
            # The results of the other measurements may have taken hours.
            message = describe_error(error)
            if message is not None:
                errors.append(f"{task.name}, {system.name}: {message}")
                continue
            traceback.print_exception(error)
            if defect is None:
                defect = error
    measurements = Measurements(results, errors, defect)
    if not results:
        measurements.raise_errors()
    return measurements


def _differences_from_first(
    results: Sequence[TaskResult], model_names: Sequence[str], seed: int
) -> list[str]:
    """Return a table of the differences of each further model from the first one."""
    results_of_models = []
    for name in model_names:
        results_of_models.append([result for result in results if result.system == name])
    first = results_of_models[0]
    tables = []
    for other in results_of_models[1:]:
        table = differences_markdown(first, other, seed=seed)
        if table is not None:
            tables.append(table)
    return tables


def _delete_figures(output: Path) -> None:
    """Delete the figures of an earlier evaluation, which may be of other models."""
    for pattern in ("*-matrix.png", "*-space.png", "*-components.png"):
        for path in output.glob(f"figures/{pattern}"):
            path.unlink()


def _write_results(
    output: Path,
    results: Sequence[TaskResult],
    options: EvaluationOptions,
    models: Sequence[EmbeddingSystem],
    model_paths: dict[str, str],
) -> None:
    descriptions = {}
    for model in models:
        descriptions[model.name] = f"{model_paths[model.name]} {model.describe()}"
    info = {
        "command": ["tmde", *sys.argv[1:]],
        "options": asdict(options),
        "models": descriptions,
    }
    write_results(output, results, info)


def _write_report(
    output: Path, results: Sequence[TaskResult], differences: list[str], figures: list[str]
) -> None:
    """Write `report.md`: the tables, the differences, and links to the figures."""
    parts = [markdown_report(results)]
    if differences:
        parts += ["## Differences", "", *differences]
    if figures:
        parts += ["## Figures", ""]
        parts += [f"![{name}](figures/{name})\n" for name in figures]
    write_atomically(output / "report.md", "\n".join(parts))


def _draw_figures(
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
