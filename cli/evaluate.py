"""`tmde eval`: models on tasks, with significance, as a table, JSON, figures and model-card metadata."""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from tqdm.auto import tqdm
from typer.core import TyperGroup

from modeling_tmde.cli.eval_inputs import (
    check_names,
    find_tasks,
    load_baselines,
    load_models,
    load_tasks,
    named,
    spec_of,
    split_names,
    stored_results,
)
from modeling_tmde.cli.eval_output import comparison_tables, write_output
from modeling_tmde.embedding import POOLINGS
from modeling_tmde.eval.cache import ArrayCache, default_cache_dir
from modeling_tmde.eval.classification import PROTOCOLS
from modeling_tmde.eval.figures import draw_training_curves
from modeling_tmde.eval.heads import HEADS
from modeling_tmde.eval.nearest import SCORINGS
from modeling_tmde.eval.report import print_report
from modeling_tmde.eval.results import TaskResult
from modeling_tmde.eval.runner import EvaluationOptions, LoadedTask, evaluate_cached
from modeling_tmde.eval.significance import ComparisonError, Difference, compare
from modeling_tmde.eval.storage import EVAL_NAME
from modeling_tmde.eval.systems import CharacterTfidf, System
from modeling_tmde.eval.tasks import TASKS

console = Console()


class _DefaultGroup(TyperGroup):
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


TasksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        "-t",
        help="NAME or NAME=SOURCE (a file, a folder or a Hub id), comma-separated or repeated; `all`: the sample and "
        "every task whose files are in --data (the default). `tmde eval tasks` lists them.",
    ),
]
TaskOptionOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="TASK.OPTION=VALUE of a task, such as xnli.max_train=20000; can be repeated."),
]
DataOption = Annotated[Path | None, typer.Option("--data", help="Folder where the files of tasks are looked for.")]
LanguagesOption = Annotated[
    str | None,
    typer.Option(
        "--languages",
        help="Languages to test, such as de,en,fr. Default: those of the task that the models were trained on.",
    ),
]
TrainLanguagesOption = Annotated[
    str | None,
    typer.Option(help="Languages with labels: `en` is Evaluation I of the thesis, all (the default) Evaluation II."),
]
ProtocolOption = Annotated[
    Literal[tuple(PROTOCOLS)],  # typer reads annotations when it runs, so the choices are stated once
    typer.Option(help="Where hyper-parameters come from, and what a classifier sees."),
]
HeadOption = Annotated[
    Literal[tuple(HEADS)] | None,
    typer.Option(
        help="Classifier on the vectors; ffn and ffn_nli are LASER's for MLDoc and XNLI. Default: the task's."
    ),
]
SeedsOption = Annotated[int, typer.Option(min=1, help="Seeds of a classifier that has any (ffn).")]
FoldsOption = Annotated[bool, typer.Option(help="The ten folds of the paired t-test (thesis 4.6).")]
ScoringOption = Annotated[Literal[SCORINGS], typer.Option(help="What retrieval ranks by.")]
MarginOption = Annotated[Literal[SCORINGS], typer.Option(help="Second score of retrieval, for its error rate (xsim).")]
MaxQueriesOption = Annotated[int | None, typer.Option(min=1, help="Queries of retrieval; default: all rows.")]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(min=3, help="Tokens where texts are cut. Default: all a model takes; 750 if it is silent."),
]
PoolingOption = Annotated[
    Literal[POOLINGS] | None, typer.Option(help="Default: cls for models of this package, else mean.")
]
DeviceOption = Annotated[str | None, typer.Option(help="Default: cuda, else mps, else cpu.")]
DtypeOption = Annotated[str | None, typer.Option(help="Of the weights, such as bfloat16.")]
TrustOption = Annotated[bool, typer.Option("--trust-remote-code", help="Run the code of a Hub model.")]
StreamingOption = Annotated[bool, typer.Option("--streaming", help="Stream Hub datasets.")]
CacheOption = Annotated[
    Path | None, typer.Option(help="Folder of cached vectors and results. Default: $TMDE_CACHE or the user's cache.")
]
NoCacheOption = Annotated[bool, typer.Option("--no-cache", help="Measure everything anew.")]
SeedOption = Annotated[int, typer.Option(help="Of folds, intervals, classifiers and pictures.")]


@contextmanager
def _errors() -> Iterator[None]:
    """Bad input ends in one message, not in a traceback."""
    try:
        yield
    except typer.Exit:  # a RuntimeError, too
        raise
    except KeyboardInterrupt:
        _print_error("interrupted; what was finished is cached, so the same command goes on from there")
        raise typer.Exit(130) from None
    except (ValueError, OSError, ImportError, RuntimeError, yaml.YAMLError) as error:
        _print_error(error)
        raise typer.Exit(1) from None


def _print_error(error: Exception | str) -> None:
    Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)


@app.command()
def run(
    models: Annotated[
        list[str], typer.Argument(help="Checkpoints or Hub ids, as PATH or NAME=PATH; the name stands in the tables.")
    ],
    tasks: TasksOption = None,
    data: DataOption = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for eval.json, report.md, figures and model_index files."),
    ] = None,
    languages: LanguagesOption = None,
    train_languages: TrainLanguagesOption = None,
    protocol: ProtocolOption = "zero-shot",
    head: HeadOption = None,
    seeds: SeedsOption = 3,
    folds: FoldsOption = True,
    scoring: ScoringOption = "cosine",
    margin: MarginOption = "ratio",
    max_queries: MaxQueriesOption = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Hub encoder measured without training, by its first output and by its mean; repeatable."),
    ] = None,
    tfidf: Annotated[bool, typer.Option(help="Character n-gram TF-IDF as a baseline.")] = True,
    max_length: MaxLengthOption = None,
    pooling: PoolingOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    trust_remote_code: TrustOption = False,
    streaming: StreamingOption = False,
    task_options: TaskOptionOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier evaluation in -o.")] = False,
    figures: Annotated[bool, typer.Option(help="Draw matrices and t-SNE maps into the output folder.")] = True,
    cache_dir: CacheOption = None,
    no_cache: NoCacheOption = False,
    seed: SeedOption = 0,
) -> None:
    """Measure models on tasks: a table here; with -o also JSON, Markdown, figures and model-card metadata.

    The second and later models are compared with the first one: difference, interval and p-value.
    """
    with _errors(), _cache_folder(cache_dir, no_cache) as cache:
        _check_output(output, figures, overwrite)
        check_names([named(spec)[0] for spec in [*models, *(baseline or [])]])
        planned = find_tasks(tasks, data, task_options)
        loading = _loading(max_length, device, dtype, trust_remote_code)
        systems = load_models(models, ArrayCache(cache), pooling, loading)
        rows: list[System] = [*systems, *load_baselines(baseline or [], ArrayCache(cache), loading)]
        if tfidf:
            rows.append(CharacterTfidf())
        loaded = load_tasks(planned, systems, languages, train_languages, streaming)
        options = _options(
            protocol, head, train_languages, languages, seeds, folds, scoring, margin, max_queries, seed
        )  # fmt: skip
        results, errors = _evaluate(loaded, rows, options, cache)
        differences = _differences(results, [system.name for system in systems], seed)
        print_report(results, console)
        if differences:
            for table in comparison_tables(differences):
                console.print(table)
        if output is not None:
            write_output(output, results, differences, loaded, systems, figures, options, sys.argv[1:])
            console.print(f"Everything is in {output}/")
        for error in errors:
            _print_error(error)
        if errors:
            raise typer.Exit(1)


@app.command("compare")
def compare_command(
    a: Annotated[str, typer.Argument(help="Evaluation folder, FOLDER#SYSTEM in one, or a model as for `run`.")],
    b: Annotated[str, typer.Argument(help="What is compared with it.")],
    tasks: TasksOption = None,
    data: DataOption = None,
    languages: LanguagesOption = None,
    train_languages: TrainLanguagesOption = None,
    protocol: ProtocolOption = "zero-shot",
    head: HeadOption = None,
    seeds: SeedsOption = 3,
    folds: FoldsOption = True,
    scoring: ScoringOption = "cosine",
    margin: MarginOption = "ratio",
    max_queries: MaxQueriesOption = None,
    each_cell: Annotated[
        bool, typer.Option("--each-cell", help="Compare every cell too, not only the means.")
    ] = False,
    max_length: MaxLengthOption = None,
    pooling: PoolingOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    trust_remote_code: TrustOption = False,
    streaming: StreamingOption = False,
    task_options: TaskOptionOption = None,
    cache_dir: CacheOption = None,
    no_cache: NoCacheOption = False,
    seed: SeedOption = 0,
) -> None:
    """Difference of B from A, its interval and p-values, item by item.

    --tasks chooses among stored results too; the other options of `run` matter only for models.

    p is of an approximate randomisation test over test items; 'p (folds)' of the paired t-test over the ten folds of
    thesis 4.6. Neither is corrected for the number of comparisons.
    """
    with _errors(), _cache_folder(cache_dir, no_cache) as cache:
        sides = [stored_results(side) for side in (a, b)]
        if None in sides:
            known = next((results for results in sides if results is not None), [])
            planned = find_tasks(tasks or [spec_of(result) for result in known], data, task_options)
            loading = _loading(max_length, device, dtype, trust_remote_code)
            names = [name for name, results in zip((a, b), sides, strict=True) if results is None]
            systems = load_models(names, ArrayCache(cache), pooling, loading)
            loaded = load_tasks(planned, systems, languages, train_languages, streaming)
            options = _options(
                protocol, head, train_languages, languages, seeds, folds, scoring, margin, max_queries, seed
            )  # fmt: skip
            measured = [_evaluate(loaded, [system], options, cache) for system in systems]
            if errors := [error for _, found in measured for error in found]:
                raise errors[0]
            fresh = (results for results, _ in measured)
            sides = [next(fresh) if results is None else results for results in sides]
        elif tasks:
            wanted = {name.strip().partition("=")[0] for spec in tasks for name in spec.split(",")}
            sides = [[result for result in side if result.task.split("/")[0] in wanted] for side in sides]
        differences, alone = _compare_sides(*sides, each_cell=each_cell, seed=seed)
        for table in comparison_tables(differences):
            console.print(table)
        for task, side in alone:
            console.print(f"{task}: only {side} was measured on it", style="yellow", markup=False)


@app.command("tasks")
def list_tasks() -> None:
    """List the tasks."""
    table = Table(Column("task", no_wrap=True), "what it is", "languages", "from")
    for name, task in sorted(TASKS.items()):
        table.add_row(name, task.description, " ".join(task.languages), task.default_source or "--tasks NAME=SOURCE")
    console.print(table)


@app.command("curves")
def curves(
    runs: Annotated[list[str], typer.Argument(help="Folders of training runs, as PATH or NAME=PATH.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG, SVG or PDF to write.")] = Path("curves.png"),
) -> None:
    """Draw the training curves of runs from their logs."""
    with _errors():
        logs = [named(run) for run in runs]
        check_names([name for name, _ in logs])
        output.parent.mkdir(parents=True, exist_ok=True)
        draw_training_curves(output, dict(logs))
        console.print(str(output))


@contextmanager
def _cache_folder(cache_dir: Path | None, no_cache: bool) -> Iterator[Path]:
    if no_cache:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        yield cache_dir or default_cache_dir()


def _check_output(output: Path | None, figures: bool, overwrite: bool) -> None:
    """What would fail in the end fails at once."""
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


def _loading(max_length: int | None, device: str | None, dtype: str | None, trust_remote_code: bool) -> dict[str, Any]:
    return {"max_length": max_length, "device": device, "dtype": dtype, "trust_remote_code": trust_remote_code}


def _options(
    protocol: str,
    head: str | None,
    train_languages: str | None,
    languages: str | None,
    seeds: int,
    folds: bool,
    scoring: str,
    margin: str,
    max_queries: int | None,
    seed: int,
) -> EvaluationOptions:
    return EvaluationOptions(
        protocol=protocol,
        head=head,
        train_languages=split_names(train_languages),
        test_languages=split_names(languages) if train_languages else None,
        seeds=seeds,
        folds=folds,
        scoring=scoring,
        margin=margin,
        max_queries=max_queries,
        seed=seed,
    )


def _evaluate(
    tasks: Sequence[LoadedTask], systems: Sequence[System], options: EvaluationOptions, cache: Path
) -> tuple[list[TaskResult], list[Exception]]:
    """The results; what could not be measured costs one number, not the others."""
    results: list[TaskResult] = []
    errors: list[Exception] = []
    with tqdm(total=len(tasks) * len(systems), desc="evaluating", unit="result", dynamic_ncols=True) as bar:
        for task, system in itertools.product(tasks, systems):
            bar.set_description(f"{task.name}: {system.name}")
            try:
                results.append(evaluate_cached(task, system, options, cache, bar.set_postfix_str))
            except (ValueError, RuntimeError, ImportError) as error:
                errors.append(type(error)(f"{task.name}, {system.name}: {error}"))
            bar.set_postfix_str("")
            bar.update()
    if not results:
        raise errors[0]
    return results, errors


def _differences(results: Sequence[TaskResult], systems: Sequence[str], seed: int) -> list[tuple[str, Difference]]:
    """Of every later model from the first, as (name of both, difference)."""
    by_key = {(result.task, result.system): result for result in results}
    return [
        (f"{other} - {systems[0]}", difference)
        for other in systems[1:]
        for task in dict.fromkeys(result.task for result in results)
        if (task, systems[0]) in by_key and (task, other) in by_key
        for difference in compare(by_key[task, systems[0]], by_key[task, other], seed=seed)
    ]


def _compare_sides(
    a: Sequence[TaskResult], b: Sequence[TaskResult], each_cell: bool, seed: int
) -> tuple[list[tuple[str, Difference]], list[tuple[str, str]]]:
    """Differences on the tasks of both; and the tasks of one, with its system."""
    sides = [{result.task: result for result in side} for side in (a, b)]
    shared = [(result, sides[1][task]) for task, result in sides[0].items() if task in sides[1]]
    alone = [
        (task, result.system)
        for side, other in (sides, sides[::-1])
        for task, result in side.items()
        if task not in other
    ]
    if not shared:
        raise ComparisonError(f"No task in common: found {sorted(sides[0])} and {sorted(sides[1])}")
    differences = []
    for first, second in shared:
        names = (first.system, second.system)
        names = (f"{names[0]} (A)", f"{names[1]} (B)") if names[0] == names[1] else names
        found = compare(first, second, each_cell=each_cell, seed=seed)
        differences += [(f"{names[1]} - {names[0]}", difference) for difference in found]
    return differences, alone
