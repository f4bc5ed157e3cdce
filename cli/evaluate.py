"""`tmde eval`: measures models on tasks and writes tables, JSON, figures and model-card metadata."""

import itertools
import json
import logging
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
import yaml
from huggingface_hub.repocard_data import eval_results_to_model_index
from rich.console import Console
from rich.table import Column, Table
from tqdm.auto import tqdm

from modeling_tmde.cli.errors import CommandGroup
from modeling_tmde.cli.options import LONG_OPTIONS, MODEL_OPTIONS, load_embedder, with_options
from modeling_tmde.data.io import PlainLoader, write_atomically
from modeling_tmde.documents.neighbours import SCORINGS
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.classification import PROTOCOLS
from modeling_tmde.eval.figures import draw_accuracy_matrix, draw_embedding_space, draw_training_curves
from modeling_tmde.eval.heads import HEADS
from modeling_tmde.eval.report import Comparison, eval_results, markdown_report, print_report
from modeling_tmde.eval.results import EVAL_NAME, TaskResult, read_results, write_results
from modeling_tmde.eval.runner import EvaluationOptions, LoadedTask, PlannedTask, evaluate_task, plan_tasks
from modeling_tmde.eval.statistics import ComparisonError, compare
from modeling_tmde.eval.systems import CharacterTfidf, EmbeddingSystem, System, VectorCache, default_cache_dir
from modeling_tmde.eval.tasks import TASKS, ClassificationData

logger = logging.getLogger(__name__)
console = Console()
TASK_PANEL, PROTOCOL_PANEL = "Tasks and their data", "Protocol"  # headings of the help
DRAWN_DOCUMENTS = 150


class _DefaultGroup(CommandGroup):
    """`tmde eval MODEL ...` means `tmde eval run MODEL ...`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_DefaultGroup,
    no_args_is_help=True,
    help="Measure embedders by the literature's protocols. `tmde eval MODEL --tasks ...` is short for "
    "`tmde eval run MODEL --tasks ...`.",
)


def _task(*names: str, **options: Any) -> typer.models.OptionInfo:
    return typer.Option(*names, rich_help_panel=TASK_PANEL, **options)


def _protocol(*names: str, **options: Any) -> typer.models.OptionInfo:
    return typer.Option(*names, rich_help_panel=PROTOCOL_PANEL, **options)


@app.command()
@with_options(**MODEL_OPTIONS, **LONG_OPTIONS)
def run(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="Checkpoints or Hub ids, as PATH or NAME=PATH; the name stands in the tables."
        ),
    ],
    tasks: Annotated[
        list[str] | None,
        _task(
            "--tasks",
            "-t",
            help="NAME or NAME=SOURCE (a file, a folder or a Hub id), comma-separated or repeated; `all`: the sample "
            "and every task whose files are in --data (the default). `tmde eval tasks` lists them.",
        ),
    ] = None,
    data: Annotated[Path | None, _task("--data", help="Folder where the files of tasks are looked for.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for eval.json, report.md, figures and model_index files."),
    ] = None,
    languages: Annotated[
        str | None,
        _task(help="Languages to test, such as de,en,fr. Default: those of the task that the models were trained on."),
    ] = None,
    train_languages: Annotated[
        str | None,
        _task(help="Languages with labels: `en` is Evaluation I of the thesis, all (the default) Evaluation II."),
    ] = None,
    protocol: Annotated[
        Literal[tuple(PROTOCOLS)], _protocol(help="Where hyperparameters come from, and what a classifier sees.")
    ] = "zero-shot",
    head: Annotated[
        Literal[tuple(HEADS)] | None,
        _protocol(
            help="Classifier on the vectors; ffn and ffn_nli are LASER's for MLDoc and XNLI. Default: the task's."
        ),
    ] = None,
    seeds: Annotated[int, _protocol(min=1, help="Seeds of a classifier that has any (ffn).")] = 3,
    folds: Annotated[bool, _protocol(help="The ten folds of the paired t-test (thesis 4.6).")] = True,
    scoring: Annotated[Literal[SCORINGS], _protocol(help="What retrieval ranks by.")] = "cosine",
    max_queries: Annotated[int | None, _protocol(min=1, help="Queries of retrieval. Default: all rows.")] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Hub encoder measured without training, by its first output and by its mean; repeatable."),
    ] = None,
    tfidf: Annotated[bool, typer.Option(help="Character n-gram TF-IDF as a baseline.")] = True,
    streaming: Annotated[bool, _task("--streaming", help="Stream Hub datasets.")] = False,
    task_options: Annotated[
        list[str] | None,
        _task("--set", help="TASK.OPTION=VALUE of a task, such as xnli.max_train=20000; can be repeated."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier evaluation in -o.")] = False,
    figures: Annotated[bool, typer.Option(help="Draw matrices and t-SNE maps into the output folder.")] = True,
    cache_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of cached vectors and results. Default: $TMDE_CACHE or the user's cache."),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Measure everything anew.")] = False,
    seed: Annotated[int, _protocol(help="Of folds, intervals, classifiers and figures.")] = 0,
    loading: dict[str, Any] = ...,
) -> None:
    """Measure models on tasks: a table here; with -o also JSON, Markdown, figures and model-card metadata.

    The second and later models are compared with the first one: difference, interval and p-value.

        tmde eval mine=runs/mine --tasks sample,word_order -o results

        tmde eval mine=runs/mine --tasks sentence_retrieval=dev.jsonl --baseline FacebookAI/xlm-roberta-base
    """
    _check_output(output, figures, overwrite)
    _check_names([_named(spec)[0] for spec in [*models, *(baseline or [])]])
    planned = find_tasks(tasks, data, task_options)
    with tempfile.TemporaryDirectory() if no_cache else nullcontext(cache_dir or default_cache_dir()) as folder:
        cache = VectorCache(folder)
        systems = [EmbeddingSystem(name, load_embedder(path, **loading), cache) for name, path in map(_named, models)]
        rows: list[System] = [*systems]
        for name, path in map(_named, baseline or []):
            first = load_embedder(path, **loading | {"pooling": "cls", "revision": None})
            kept = {key: value for key, value in loading.items() if key in ("max_length", *LONG_OPTIONS)}
            mean = DocumentEmbedder(first.model, first.tokenizer, pooling="mean", **kept)
            rows.append(EmbeddingSystem(f"{name} (first output)", first, cache))
            rows.append(EmbeddingSystem(f"{name} (mean)", mean, cache))
        if tfidf:
            rows.append(CharacterTfidf())
        loaded = _load_tasks(planned, systems, languages, train_languages, streaming)
        options = EvaluationOptions(
            protocol=protocol,
            head=head,
            train_languages=_split_names(train_languages),
            test_languages=_split_names(languages) if train_languages else None,
            seeds=seeds,
            folds=folds,
            scoring=scoring,
            max_queries=max_queries,
            seed=seed,
        )
        results, errors = _evaluate(loaded, rows, options, cache.folder)
        comparisons = _compare_with_first(results, [system.name for system in systems], seed)
        print_report(results, console)
        for comparison in comparisons:
            console.print(comparison.table())
        if output is not None:
            _write_output(output, results, comparisons, loaded, systems, figures, options)
            console.print(f"Everything is in {output}/")
    if errors:
        raise ValueError("\n".join(errors))


@app.command("compare")
def compare_command(
    a: Annotated[str, typer.Argument(metavar="A", help="Evaluation folder, or FOLDER#SYSTEM where it holds several.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is compared with it.")],
    each_cell: Annotated[
        bool, typer.Option("--each-cell", help="Compare every cell too, not only the means.")
    ] = False,
) -> None:
    """Difference of B from A, its interval and p-values, item by item.

        tmde eval compare results#first results#second

    p is from an approximate randomization test over test items, 'p (folds)' from the paired t-test over the ten folds
    of thesis 4.6. Neither is corrected for multiple comparisons.
    """
    sides = [{result.task: result for result in _stored_results(side)} for side in (a, b)]
    shared = [task for task in sides[0] if task in sides[1]]
    if not shared:
        raise ComparisonError(f"No task in common: found {sorted(sides[0])} and {sorted(sides[1])}")
    names = [sides[0][shared[0]].system, sides[1][shared[0]].system]
    if names[0] == names[1]:
        names = [f"{names[0]} (A)", f"{names[1]} (B)"]
    found = [compare(sides[0][task], sides[1][task], each_cell=each_cell) for task in shared]
    console.print(Comparison(f"{names[1]} - {names[0]}", list(itertools.chain(*found))).table())
    for side, other in (sides, sides[::-1]):
        for task in side.keys() - other.keys():
            console.print(f"{task}: only {side[task].system} was measured on it", style="yellow", markup=False)


@app.command("tasks")
def list_tasks() -> None:
    """List the tasks."""
    table = Table(Column("task", no_wrap=True), "what it is", "languages", "from")
    for name, task in sorted(TASKS.items()):
        table.add_row(name, task.description, " ".join(task.languages), task.default_source or "--tasks NAME=SOURCE")
    console.print(table)


@app.command("curves")
def curves(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Folders of training runs, as PATH or NAME=PATH.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG, SVG or PDF to write.")] = Path("curves.png"),
) -> None:
    """Draw the training curves of runs from their logs.

    Each run is one line, labeled NAME or by its folder.

        tmde eval curves bag=runs/bag small=runs/small -o curves.png
    """
    logs = [_named(run) for run in runs]
    _check_names([name for name, _ in logs])
    if output.suffix not in (".png", ".svg", ".pdf") or output.is_dir():
        raise ValueError(f"-o {output}: expected a file that ends in .png, .svg or .pdf")
    output.parent.mkdir(parents=True, exist_ok=True)
    draw_training_curves(output, dict(logs))
    console.print(str(output))


def find_tasks(specs: list[str] | None, data: Path | None, settings: list[str] | None) -> list[PlannedTask]:
    """Resolves `--tasks`, `--data` and `--set` to tasks.

    Raises:
        ValueError: A setting that is not TASK.OPTION=VALUE, or what `plan_tasks` refuses.
    """
    options: dict[str, dict[str, Any]] = {}
    for setting in settings or []:
        match = re.fullmatch(r"([^.=]+)\.([^=]+)=(.*)", setting, re.DOTALL)
        if not match:
            raise ValueError(f"--set: found {setting!r}, expected TASK.OPTION=VALUE")
        options.setdefault(match[1], {})[match[2]] = yaml.load(match[3], PlainLoader)
    names = [name.strip() for spec in specs or ["all"] for name in spec.split(",") if name.strip()]
    return plan_tasks(names, data, options)


def _split_names(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else None


def _named(spec: str) -> tuple[str, str]:
    """Name and path of NAME=PATH, or of a path alone."""
    name, equals, path = spec.partition("=")
    if not Path(spec).exists():
        return (name, path) if equals else (spec, spec)
    folder = Path(spec).resolve()
    return folder.parent.name if folder.name == "model" else folder.name, spec  # `tmde quickstart` makes .../model


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Two are called {name!r}; name them apart as NAME=PATH")


def _check_output(output: Path | None, figures: bool, overwrite: bool) -> None:
    """Checks the output folder before anything is measured."""
    if output is None:
        return
    if output.exists() and not output.is_dir():
        raise ValueError(f"-o {output}: found a file, expected a folder")
    if output.exists() and any(output.iterdir()):
        if not (output / EVAL_NAME).exists():
            raise ValueError(f"-o {output}: found other files, expected an empty folder or an earlier evaluation")
        if not overwrite:
            raise ValueError(f"-o {output}: found an earlier evaluation; choose another folder, or --overwrite it")
    if figures and find_spec("matplotlib") is None:
        raise ImportError("Figures need matplotlib: pip install 'tmde[eval]', or pass --no-figures")
    output.mkdir(parents=True, exist_ok=True)


def _load_tasks(
    planned: Sequence[PlannedTask],
    systems: Sequence[EmbeddingSystem],
    languages: str | None,
    train_languages: str | None,
    streaming: bool,
) -> list[LoadedTask]:
    """Loads the tasks in the requested languages, by default those that all models were trained on."""
    chosen, train = _split_names(languages), _split_names(train_languages)
    if chosen and train:
        chosen = tuple(dict.fromkeys([*chosen, *train]))
    trained_on = [system.languages for system in systems if system.languages is not None]
    known = [code for code in trained_on[0] if all(code in codes for codes in trained_on)] if trained_on else None
    loaded = [task.load(chosen, streaming, known, train) for task in planned]
    for task in loaded:
        missing = [code for code in train or () if code not in task.data.languages]
        if missing and isinstance(task.data, ClassificationData):
            listed = ", ".join(task.data.languages)
            raise ValueError(f"--train-languages: found {missing[0]!r}, expected some of {listed} (task {task.name})")
    return loaded


def _evaluate(
    tasks: Sequence[LoadedTask], systems: Sequence[System], options: EvaluationOptions, cache: Path
) -> tuple[list[TaskResult], list[str]]:
    """Measures every system on every task. A failure is returned as an error and does not stop the others."""
    results, errors = [], []
    with tqdm(total=len(tasks) * len(systems), desc="evaluating", unit="result", dynamic_ncols=True) as bar:
        for task, system in itertools.product(tasks, systems):
            bar.set_description(f"{task.name}: {system.name}")
            try:
                results.append(evaluate_task(task, system, options, cache, bar.set_postfix_str))
            except (ValueError, RuntimeError, ImportError) as error:
                errors.append(f"{task.name}, {system.name}: {error}")
            bar.set_postfix_str("")
            bar.update()
    if not results:
        raise ValueError(errors[0])
    return results, errors


def _compare_with_first(results: Sequence[TaskResult], models: Sequence[str], seed: int) -> list[Comparison]:
    """Compares each later model with the first on the tasks they share."""
    by_key = {(result.task, result.system): result for result in results}
    tasks = dict.fromkeys(result.task for result in results)
    comparisons = []
    for other in models[1:]:
        shared = [task for task in tasks if (task, models[0]) in by_key and (task, other) in by_key]
        found = [compare(by_key[task, models[0]], by_key[task, other], seed=seed) for task in shared]
        if found:
            comparisons.append(Comparison(f"{other} - {models[0]}", list(itertools.chain(*found))))
    return comparisons


def _stored_results(side: str) -> list[TaskResult]:
    """Results of one system in an evaluation folder, given as FOLDER or FOLDER#SYSTEM."""
    folder, system = (side, "") if Path(side, EVAL_NAME).exists() or "#" not in side else side.rsplit("#", 1)
    results = read_results(folder)
    names = list(dict.fromkeys(result.system for result in results))
    if not system and len(names) > 1:
        raise ComparisonError(f"{folder} holds {', '.join(names)}: choose one as {folder}#{names[0]}")
    if system and system not in names:
        raise ComparisonError(f"{folder}: found systems {', '.join(names)}, expected {system!r} among them")
    return [result for result in results if not system or result.system == system]


def _write_output(
    folder: Path,
    results: Sequence[TaskResult],
    comparisons: Sequence[Comparison],
    tasks: Sequence[LoadedTask],
    models: Sequence[EmbeddingSystem],
    figures: bool,
    options: EvaluationOptions,
) -> None:
    """Writes `eval.json`, `outcomes.npz`, `report.md`, one `model_index` file a model, and the figures."""
    for pattern in ("model_index-*.yaml", "figures/*-matrix.png", "figures/*-space.png"):
        for stale in folder.glob(pattern):  # of an earlier evaluation, maybe of other models
            stale.unlink()
    info = {"command": ["tmde", *sys.argv[1:]], "options": json.loads(json.dumps(asdict(options)))}
    write_results(folder, results, info | {"models": {system.name: repr(system.embedder) for system in models}})
    report = markdown_report(results)
    if comparisons:
        report += "\n".join(["\n## Differences\n", *(comparison.markdown() for comparison in comparisons)])
    for name in dict.fromkeys(result.system for result in results if result.truncated is not None):
        own = [result for result in results if result.system == name]
        content = {"model-index": eval_results_to_model_index(name, eval_results(own))}
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=119)
        write_atomically(folder / f"model_index-{_file_name(name)}.yaml", text)
    if figures:
        _draw_figures(folder / "figures", results, tasks, models, options.seed)
        names = sorted(path.name for path in (folder / "figures").glob("*.png"))
        report += "\n## Figures\n\n" + "\n\n".join(f"![{name}](figures/{name})" for name in names) + "\n"
    write_atomically(folder / "report.md", report)


def _draw_figures(
    folder: Path, results: Sequence[TaskResult], tasks: Sequence[LoadedTask], systems: Sequence[System], seed: int
) -> None:
    """Accuracy matrices by task, and t-SNE maps of the test documents by task and system."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        matrices = {result.system: result.cells for result in results if result.task == task.name}
        whole = all(len({cell.source for cell in cells}) > 1 for cells in matrices.values())
        if matrices and whole and all(result.protocol != "leave-one-out" for result in results):
            draw_accuracy_matrix(folder / f"{_file_name(task.name)}-matrix.png", matrices, task.name)
        if not isinstance(task.data, ClassificationData):
            continue
        tests = {language: splits["test"] for language, splits in task.data.splits.items()}
        if any(split.second_texts is not None for split in tests.values()):
            continue
        for system in systems:
            path = folder / f"{_file_name(task.name)}-{_file_name(system.name)}-space.png"
            vectors = [system.represent(split.texts, split.texts, language) for language, split in tests.items()]
            labels, ids = ([x for split in tests.values() for x in getattr(split, name)] for name in ("labels", "ids"))
            languages = [language for language, split in tests.items() for _ in split.ids]
            title = f"{task.name}: test documents, {system.name}"
            try:
                draw_embedding_space(
                    path, np.concatenate(vectors), labels, languages, ids, title, seed, DRAWN_DOCUMENTS
                )
            except ValueError as error:  # too few documents for t-SNE
                logger.warning("%s is not drawn: %s", path.name, error)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
