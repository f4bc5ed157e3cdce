"""`tmde eval`: models on tasks, with significance, as a table, JSON, figures and model-card metadata."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from typer.core import TyperGroup

from modeling_tmde.cli.embedder_options import (
    AggregationOption,
    LongDocumentsOption,
    StrideOption,
    WindowOption,
)
from modeling_tmde.cli.eval_options import (
    CacheOption,
    DataOption,
    DeviceOption,
    DtypeOption,
    FoldsOption,
    HeadOption,
    LanguagesOption,
    MarginOption,
    MaxLengthOption,
    MaxQueriesOption,
    NoCacheOption,
    PoolingOption,
    ProtocolOption,
    ScoringOption,
    SeedOption,
    SeedsOption,
    StreamingOption,
    TaskOptionOption,
    TasksOption,
    TrainLanguagesOption,
    TrustOption,
)
from modeling_tmde.cli.mistakes import sentence
from modeling_tmde.data.documents import EmbedError

# The rest is imported where it is used: `tmde eval --help` must not wait for torch and scikit-learn.
if TYPE_CHECKING:
    from modeling_tmde.eval.systems import System

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
    except (EmbedError, ValueError, OSError, ImportError, RuntimeError, yaml.YAMLError) as error:
        _print_error(sentence(error) or str(error))
        raise typer.Exit(1) from None


def _print_error(error: Exception | str) -> None:
    Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)


@app.command()
def run(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="Checkpoints or Hub ids, as PATH or NAME=PATH; the name stands in the tables."
        ),
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
    long_documents: LongDocumentsOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    aggregation: AggregationOption = None,
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

        tmde eval mine=runs/mine --tasks sample,word_order -o results

        tmde eval mine=runs/mine --tasks sentence_retrieval=dev.jsonl --baseline FacebookAI/xlm-roberta-base
    """
    from modeling_tmde.cli import eval_inputs, eval_run
    from modeling_tmde.cli.eval_output import comparison_tables, write_output
    from modeling_tmde.eval.cache import ArrayCache
    from modeling_tmde.eval.report import print_report
    from modeling_tmde.eval.systems import CharacterTfidf

    with _errors(), _cache_folder(cache_dir, no_cache) as cache:
        _check_output(output, figures, overwrite)
        eval_inputs.check_names([eval_inputs.named(spec)[0] for spec in [*models, *(baseline or [])]])
        planned = eval_inputs.find_tasks(tasks, data, task_options)
        loading = eval_run.loading_options(
            max_length, device, dtype, trust_remote_code, long_documents, window, stride, aggregation
        )  # fmt: skip
        systems = eval_inputs.load_models(models, ArrayCache(cache), pooling, loading)
        rows: list[System] = [*systems, *eval_inputs.load_baselines(baseline or [], ArrayCache(cache), loading)]
        if tfidf:
            rows.append(CharacterTfidf())
        loaded = eval_inputs.load_tasks(planned, systems, languages, train_languages, streaming)
        options = eval_run.evaluation_options(
            protocol, head, train_languages, languages, seeds, folds, scoring, margin, max_queries, seed
        )  # fmt: skip
        results, errors = eval_run.evaluate_tasks(loaded, rows, options, cache)
        differences = eval_run.all_differences(results, [system.name for system in systems], seed)
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
    a: Annotated[
        str, typer.Argument(metavar="A", help="Evaluation folder, FOLDER#SYSTEM in one, or a model as for `run`.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What is compared with it.")],
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
    long_documents: LongDocumentsOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    aggregation: AggregationOption = None,
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

        tmde eval compare results#first results#second

    --tasks chooses among stored results too; the other options of `run` matter only for models.

    p is of an approximate randomisation test over test items; 'p (folds)' of the paired t-test over the ten folds of
    thesis 4.6. Neither is corrected for the number of comparisons.
    """
    from modeling_tmde.cli import eval_inputs, eval_run
    from modeling_tmde.cli.eval_output import comparison_tables
    from modeling_tmde.eval.cache import ArrayCache

    with _errors(), _cache_folder(cache_dir, no_cache) as cache:
        sides = [eval_inputs.stored_results(side) for side in (a, b)]
        if None in sides:
            known = next((results for results in sides if results is not None), [])
            planned = eval_inputs.find_tasks(
                tasks or [eval_inputs.spec_of(result) for result in known], data, task_options
            )
            loading = eval_run.loading_options(
                max_length, device, dtype, trust_remote_code, long_documents, window, stride, aggregation
            )  # fmt: skip
            names = [name for name, results in zip((a, b), sides, strict=True) if results is None]
            systems = eval_inputs.load_models(names, ArrayCache(cache), pooling, loading)
            loaded = eval_inputs.load_tasks(planned, systems, languages, train_languages, streaming)
            options = eval_run.evaluation_options(
                protocol, head, train_languages, languages, seeds, folds, scoring, margin, max_queries, seed
            )  # fmt: skip
            measured = [eval_run.evaluate_tasks(loaded, [system], options, cache) for system in systems]
            if errors := [error for _, found in measured for error in found]:
                raise errors[0]
            fresh = (results for results, _ in measured)
            sides = [next(fresh) if results is None else results for results in sides]
        elif tasks:
            wanted = {name.strip().partition("=")[0] for spec in tasks for name in spec.split(",")}
            sides = [[result for result in side if result.task.split("/")[0] in wanted] for side in sides]
        differences, alone = eval_run.compare_sides(*sides, each_cell=each_cell, seed=seed)
        for table in comparison_tables(differences):
            console.print(table)
        for task, side in alone:
            console.print(f"{task}: only {side} was measured on it", style="yellow", markup=False)


@app.command("tasks")
def list_tasks() -> None:
    """List the tasks."""
    from modeling_tmde.eval.tasks import TASKS

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

    Each run is a line, called as its folder or as NAME.

        tmde eval curves bag=runs/bag small=runs/small -o curves.png
    """
    from modeling_tmde.cli import eval_inputs
    from modeling_tmde.eval.figures import draw_training_curves

    with _errors():
        logs = [eval_inputs.named(run) for run in runs]
        eval_inputs.check_names([name for name, _ in logs])
        if output.suffix not in (".png", ".svg", ".pdf") or output.is_dir():
            raise ValueError(f"-o {output}: expected a file that ends in .png, .svg or .pdf")
        output.parent.mkdir(parents=True, exist_ok=True)
        draw_training_curves(output, dict(logs))
        console.print(str(output))


@contextmanager
def _cache_folder(cache_dir: Path | None, no_cache: bool) -> Iterator[Path]:
    from modeling_tmde.eval.cache import default_cache_dir

    if no_cache:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        yield cache_dir or default_cache_dir()


def _check_output(output: Path | None, figures: bool, overwrite: bool) -> None:
    """What would fail in the end fails at once."""
    from modeling_tmde.eval.storage import EVAL_NAME

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
