"""The work of `tmde eval run`: measure systems on tasks, and write and draw their results."""

import itertools
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markdown import Markdown

from modeling_tmde import TmdeError
from tmde.cli import options as common
from tmde.cli.declaration import keywords
from tmde.cli.errors import describe_error
from tmde.cli.evaluation_options import find_tasks, named_paths, split_list
from tmde.data.io import write_atomically
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.loading import errors_about
from tmde.embedding.opening import open_embedder
from tmde.embedding.packaged_models import DEFAULT_MODEL
from tmde.embedding.progress import progress_bar
from tmde.eval.planning import LoadedTask, PlannedTask
from tmde.eval.report import differences_markdown, markdown_report, print_report
from tmde.eval.result_figures import draw_results
from tmde.eval.results import EVAL_NAME, TaskResult, write_results
from tmde.eval.runner import EvaluationOptions, evaluate
from tmde.eval.systems import CharacterTfidf, EmbeddingSystem, System, default_cache_dir
from tmde.eval.tasks import ClassificationData
from tmde.eval.tasks.labeled_documents import LabeledDocuments, describe_documents
from tmde.eval.translated_tfidf import TranslatedTfidf
from tmde.papers.published import published_markdown

if TYPE_CHECKING:
    from tmde.cli.evaluate import RunOptions


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


def run_evaluation(options: "RunOptions", columns: dict[str, str]) -> None:
    """Measure all systems on all tasks, and print and write the results.

    Args:
        options: The options of `tmde eval run`.
        columns: The columns of labeled documents, by `FIELD`, or by `NAME.FIELD` for one of several
            files.

    Raises:
        TmdeError: An argument cannot be used; or, at the end, a system could not be measured on a
            task.
        Exception: At the end, the first defect of tmde that stopped a measurement.
    """
    output = options.output
    if output is not None:
        _prepare_output(output, options.figures, options.overwrite)
    model_paths = named_paths(options.models or [DEFAULT_MODEL])
    baseline_paths = named_paths(options.baseline or [])
    translator_paths = named_paths(options.translated_tfidf or [])
    planned_tasks = find_tasks(
        options.tasks,
        options.data,
        options.task_options,
        labeled=options.labeled or [],
        columns=columns,
    )
    _check_labeled_documents(planned_tasks)
    cache = options.cache_dir or default_cache_dir()

    loading = keywords(options, common.ModelOptions) | keywords(options, common.LongOptions)
    models = [
        EmbeddingSystem(name, open_embedder(path, loading), cache)
        for name, path in model_paths.items()
    ]
    systems: list[System] = list(models)
    for name, path in baseline_paths.items():
        systems += _load_baseline(name, path, options, cache)
    for name, path in translator_paths.items():
        with errors_about(path):
            translator = TranslatedTfidf.from_pretrained(
                f"{name} + TF-IDF", path, options.device, options.translate_into
            )
        systems.append(translator)
    if options.tfidf:
        systems.append(CharacterTfidf())

    train_languages = split_list(options.train_languages)
    test_languages = split_list(options.languages)
    loaded_languages = None
    if test_languages is not None:
        loaded_languages = tuple(dict.fromkeys([*test_languages, *(train_languages or ())]))
    known_languages = _shared_languages(models)
    tasks = [
        planned.load(loaded_languages, options.streaming, known_languages, train_languages)
        for planned in planned_tasks
    ]
    _describe_labeled_documents(tasks)
    settings = EvaluationOptions(
        protocol=options.protocol,
        head=options.head,
        train_languages=train_languages,
        # Without languages to train on, all that are loaded are tested.
        test_languages=test_languages if train_languages else None,
        seeds=options.seeds,
        folds=options.folds,
        scoring=options.scoring,
        max_queries=options.max_queries,
        seed=options.seed,
    )
    measurements = _measure(tasks, systems, settings, cache)
    differences = _differences_from_first(measurements.results, list(model_paths), options.seed)

    console = Console()
    print_report(measurements.results, console)
    for table in differences:
        console.print(Markdown(table))
    if output is not None:
        figures = []
        _delete_figures(output)
        _write_results(output, measurements.results, settings, models, model_paths)
        if options.figures:
            figures = draw_results(
                output / "figures", measurements.results, tasks, systems, models, options.seed
            )
        _write_report(output, measurements.results, differences, figures)
        console.print(f"Everything is in {output}/")
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
            f"-o {output}: found files, expected an empty folder, or an evaluation with --overwrite"
        )


def _load_baseline(
    name: str, path: str, options: "RunOptions", cache: Path
) -> list[EmbeddingSystem]:
    """Return an encoder of the Hub as two systems, by its first output and by the mean."""
    loading = keywords(options, common.ModelOptions)
    long_documents = keywords(options, common.LongOptions)
    first = open_embedder(path, loading | long_documents | {"pooling": "cls"})
    if options.max_length is not None:
        long_documents["max_length"] = options.max_length
    mean = DocumentEmbedder(
        first.model, first.tokenizer, "mean", prompt=first.prompt, **long_documents
    )
    return [
        EmbeddingSystem(f"{name} (first output)", first, cache),
        EmbeddingSystem(f"{name} (mean)", mean, cache),
    ]


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
                f"Interrupted. {len(results)} of {len(pairs)} results are stored in {cache}. "
                "Run the same command again to compute the others."
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
    """Write `report.md`: the tables, published ones, the differences, and links to the figures."""
    parts = [markdown_report(results)]
    published = published_markdown(results)
    if published:
        parts.append(published)
    if differences:
        parts += ["## Differences", "", *differences]
    if figures:
        parts += ["## Figures", ""]
        parts += [f"![{name}](figures/{name})\n" for name in figures]
    write_atomically(output / "report.md", "\n".join(parts))
