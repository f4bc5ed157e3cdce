"""`tmde eval`: measures models on tasks and writes a report, JSON and figures."""

import functools
import itertools
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
import yaml
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Column, Table

from modeling_tmde import TmdeError
from tmde.cli.errors import CommandGroup
from tmde.cli.models import load_embedder
from tmde.cli.options import LONG_OPTIONS, MODEL_OPTIONS, check_output, with_options
from tmde.data.io import PlainLoader, write_atomically
from tmde.documents.neighbours import SCORINGS
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.progress import progress_bar
from tmde.eval.classification import PROTOCOLS
from tmde.eval.figures import draw_accuracy_matrix, draw_embedding_space, draw_training_curves
from tmde.eval.heads import HEADS
from tmde.eval.report import differences_table, markdown_report, print_report
from tmde.eval.results import EVAL_NAME, TaskResult, read_results, write_results
from tmde.eval.runner import EvaluationOptions, LoadedTask, PlannedTask, evaluate, plan_tasks
from tmde.eval.statistics import compare
from tmde.eval.systems import CharacterTfidf, EmbeddingSystem, System, default_cache_dir
from tmde.eval.tasks import GROUPS, TASKS, ClassificationData

console = Console()


class _DefaultGroup(CommandGroup):
    """`tmde eval MODEL ...` means `tmde eval run MODEL ...`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)


HELP = "Measure embedders by the literature's protocols.\n\n`tmde eval MODEL` is short for `tmde eval run MODEL`."
app = typer.Typer(cls=_DefaultGroup, no_args_is_help=True, help=HELP)
_task = functools.partial(typer.Option, rich_help_panel="Tasks and their data")
_protocol = functools.partial(typer.Option, rich_help_panel="Protocol")


@app.command()
@with_options(**MODEL_OPTIONS, **LONG_OPTIONS)
def run(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Paths or Hub ids, or NAME=PATH.")
    ],
    loading: dict[str, Any],
    tasks: Annotated[
        list[str] | None, _task("-t", "--tasks", help="NAME or NAME=SOURCE, comma-separated.")
    ] = None,
    data: Annotated[
        Path | None, _task(help="Folder of tasks' files. Without --tasks, those, and the sample.")
    ] = None,
    languages: Annotated[
        str | None, _task(help="Such as de,en. Default: those the models were trained on.")
    ] = None,
    train_languages: Annotated[
        str | None, _task(help="With labels; en: thesis Evaluation I. Default: all.")
    ] = None,
    streaming: Annotated[bool, _task("--streaming", help="Stream Hub datasets.")] = False,
    task_options: Annotated[
        list[str] | None, _task("--set", help="TASK.OPTION=VALUE, repeatable.")
    ] = None,
    protocol: Annotated[
        Literal[tuple(PROTOCOLS)], _protocol(help="What a classifier is tuned on.")
    ] = "zero-shot",
    head: Annotated[
        Literal[tuple(HEADS)] | None, _protocol(help="Classifier. Default: the task's.")
    ] = None,
    seeds: Annotated[int, _protocol(min=1, help="Seeds of a classifier that has any (ffn).")] = 3,
    folds: Annotated[
        bool, _protocol(help="The ten folds of the paired t-test (thesis 4.6).")
    ] = True,
    scoring: Annotated[Literal[SCORINGS], _protocol(help="What retrieval ranks by.")] = "cosine",
    max_queries: Annotated[
        int | None, _protocol(min=1, help="Queries of retrieval. Default: all rows.")
    ] = None,
    seed: Annotated[int, _protocol(help="Of folds, intervals, classifiers and figures.")] = 0,
    baseline: Annotated[
        list[str] | None, typer.Option(help="Hub encoder, by first output and mean.")
    ] = None,
    tfidf: Annotated[bool, typer.Option(help="Character n-gram TF-IDF as a baseline.")] = True,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for eval.json and report.md.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier evaluation in -o.")
    ] = False,
    figures: Annotated[
        bool, typer.Option(help="Draw matrices and t-SNE maps into the output folder.")
    ] = True,
    cache_dir: Annotated[
        Path | None, typer.Option(help="Of vectors and results. Default: $TMDE_CACHE.")
    ] = None,
) -> None:
    """Measure models on tasks: a table here; with -o also JSON, a report in Markdown, and figures.

    The second and later models are compared with the first one: difference, interval and p-value.

        tmde eval mine=runs/mine --tasks sample,word_order -o results

        tmde eval mine=runs/mine --tasks sentence_retrieval=dev.jsonl --baseline FacebookAI/xlm-roberta-base
    """
    if output is not None:
        _check_output(output, figures, overwrite)
    named, hub = _named(models), _named(baseline or [])
    planned = find_tasks(tasks, data, task_options)
    cache = cache_dir or default_cache_dir()
    systems = [
        EmbeddingSystem(name, load_embedder(path, **loading), cache) for name, path in named.items()
    ]
    rows: list[System] = [*systems]
    for name, path in hub.items():
        first = load_embedder(path, **loading | {"pooling": "cls"})
        kept = {
            key: value
            for key, value in loading.items()
            if key == "max_length" or key in LONG_OPTIONS
        }
        mean = DocumentEmbedder(first.model, first.tokenizer, "mean", prompt=first.prompt, **kept)
        rows.append(EmbeddingSystem(f"{name} (first output)", first, cache))
        rows.append(EmbeddingSystem(f"{name} (mean)", mean, cache))
    if tfidf:
        rows.append(CharacterTfidf())
    test, train = _split(languages), _split(train_languages)
    trained_on = [set(system.languages) for system in systems if system.languages]
    known = sorted(set.intersection(*trained_on)) if trained_on else None
    chosen = test and tuple(dict.fromkeys([*test, *(train or ())]))
    loaded = [task.load(chosen, streaming, known, train) for task in planned]
    test = train and test  # without train languages, all that are loaded
    options = EvaluationOptions(
        protocol, head, train, test, seeds, folds, scoring, max_queries=max_queries, seed=seed
    )
    results, errors = [], []
    bar = progress_bar(
        list(itertools.product(loaded, rows)), desc="evaluating", unit="result", dynamic_ncols=True
    )
    for task, system in bar:
        bar.set_description(f"{task.name}: {system.name}")
        try:
            results += evaluate([task], [system], options, cache, bar.set_postfix_str)
        except (ValueError, RuntimeError, ImportError) as error:  # does not stop the others
            errors.append(f"{task.name}, {system.name}: {error}")
    if not results:
        raise TmdeError(errors[0])
    first, *others = ([result for result in results if result.system == name] for name in named)
    differences = [table for other in others if (table := _differences(first, other, seed=seed))]
    print_report(results, console)
    for table in differences:
        console.print(Markdown(table))
    if output is not None:
        for stale in [*output.glob("figures/*-matrix.png"), *output.glob("figures/*-space.png")]:
            stale.unlink()  # of an earlier evaluation, maybe of other models
        info = {"command": ["tmde", *sys.argv[1:]], "options": asdict(options)}
        info["models"] = {
            system.name: f"{named[system.name]} {system.describe()}" for system in systems
        }
        write_results(output, results, info)
        report = [
            markdown_report(results),
            *(["## Differences", ""] if differences else []),
            *differences,
        ]
        if figures:
            names = _draw_figures(output / "figures", results, loaded, systems, seed)
            report += ["## Figures", "", *(f"![{name}](figures/{name})\n" for name in names)]
        write_atomically(output / "report.md", "\n".join(report))
        console.print(f"Everything is in {output}/")
    if errors:
        raise TmdeError("\n".join(errors))


@app.command("compare")
def compare_command(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="Evaluation folder, or FOLDER#SYSTEM where it holds several."
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What is compared with it.")],
    each_cell: Annotated[bool, typer.Option("--each-cell", help="Compare every cell too.")] = False,
) -> None:
    """Difference of B from A, its interval and p-values, item by item.

        tmde eval compare results#first results#second

    p is from an approximate randomization test over test items, 'p (folds)' from the paired t-test over the ten folds
    of thesis 4.6. Neither is corrected for multiple comparisons.
    """
    table = _differences(_stored_results(a), _stored_results(b), each_cell=each_cell)
    if not table:
        raise TmdeError(f"{a} and {b} have no task in common")
    console.print(Markdown(table))


@app.command("tasks")
def list_tasks() -> None:
    """List the tasks."""
    table = Table(Column("task", no_wrap=True), "what it is", "languages", "from")
    for name, task in sorted(TASKS.items()):
        table.add_row(
            name,
            task.description,
            " ".join(task.languages),
            task.default_source or "--tasks NAME=SOURCE",
        )
    for name, tasks in GROUPS.items():
        table.add_row(name, ", ".join(tasks), "", "")
    console.print(table)


@app.command("curves")
def curves(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="Folders of training runs, as PATH or NAME=PATH."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="PNG, SVG or PDF to write.")
    ] = Path("curves.png"),
) -> None:
    """Draw the training curves of runs from their logs.

    Each run is one line, labeled NAME or by its folder.

        tmde eval curves bag=runs/bag small=runs/small -o curves.png
    """
    draw_training_curves(check_output(output, True, (".png", ".svg", ".pdf"), "-o"), _named(runs))
    console.print(str(output))


def find_tasks(
    specs: list[str] | None, data: Path | None, settings: list[str] | None
) -> list[PlannedTask]:
    """Resolves `--tasks`, `--data` and `--set` to tasks.

    Raises:
        ValueError: A setting that is not TASK.OPTION=VALUE, or what `plan_tasks` refuses.
    """
    options: dict[str, dict[str, Any]] = {}
    for setting in settings or []:
        match = re.fullmatch(r"([^.=]+)\.([^=]+)=(.*)", setting, re.DOTALL)
        if not match:
            raise TmdeError(f"--set: found {setting!r}, expected TASK.OPTION=VALUE")
        options.setdefault(match[1], {})[match[2]] = yaml.load(match[3], PlainLoader)
    return plan_tasks(_split(",".join(specs or ["all"])), data, options)


def _split(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else None


def _named(specs: Sequence[str]) -> dict[str, str]:
    """Paths by name, of NAME=PATH or of paths alone."""
    found: dict[str, str] = {}
    for spec in specs:
        name, equals, path = spec.partition("=")
        if Path(spec).exists():
            folder = Path(spec).resolve()
            name, path = (
                folder.parent.name if folder.name == "model" else folder.name,
                spec,
            )  # of `tmde quickstart`
        if name in found:
            raise TmdeError(f"Two are called {name!r}; name them apart as NAME=PATH")
        found[name] = path or spec
    return found


def _check_output(output: Path, figures: bool, overwrite: bool) -> None:
    """Makes the output folder, or checks it, before anything is measured."""
    if figures:
        import matplotlib  # noqa: F401
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()) and not (overwrite and (output / EVAL_NAME).exists()):
        raise TmdeError(
            f"-o {output}: found files, expected an empty folder, or an evaluation and --overwrite"
        )


def _differences(a: Sequence[TaskResult], b: Sequence[TaskResult], **options: Any) -> str | None:
    """Markdown table of the differences of a system from another on the tasks they share; None if they share none."""
    firsts = {result.task: result for result in a}
    found = [
        compare(firsts[result.task], result, **options) for result in b if result.task in firsts
    ]
    return (
        differences_table(f"{b[0].system} - {a[0].system}", list(itertools.chain(*found)))
        if found
        else None
    )


def _stored_results(side: str) -> list[TaskResult]:
    """Results of one system in an evaluation folder, given as FOLDER or FOLDER#SYSTEM."""
    folder, system = (
        (side, "") if Path(side, EVAL_NAME).exists() or "#" not in side else side.rsplit("#", 1)
    )
    results = read_results(folder)
    names = list(dict.fromkeys(result.system for result in results))
    if (system or len(names) > 1) and system not in names:
        raise TmdeError(
            f"{folder} holds {', '.join(names)}, not {system!r}: choose one as {folder}#{names[0]}"
        )
    return [result for result in results if not system or result.system == system]


def _draw_figures(
    folder: Path,
    results: Sequence[TaskResult],
    tasks: Sequence[LoadedTask],
    systems: Sequence[System],
    seed: int,
) -> list[str]:
    """Accuracy matrices by task, and t-SNE maps of the test documents by task and system. Returns the file names."""
    folder.mkdir(exist_ok=True)
    for task in tasks:
        matrices = {result.system: result.cells for result in results if result.task == task.name}
        if matrices and all(
            len({cell.source for cell in cells}) > 1 for cells in matrices.values()
        ):
            draw_accuracy_matrix(
                folder / f"{_file_name(task.name)}-matrix.png", matrices, task.name
            )
        tests = task.data.mapped_documents() if isinstance(task.data, ClassificationData) else []
        rows = [
            (label, code, name)
            for code, x in tests
            for label, name in zip(x.labels, x.ids, strict=True)
        ]
        for system in systems if len(rows) >= 5 else ():  # t-SNE needs some
            name = _file_name(f"{task.name}-{system.name}-space.png")
            vectors = np.concatenate(
                [system.represent(split.texts, (), code) for code, split in tests]
            )
            title = f"{task.name}: test documents, {system.name}"
            draw_embedding_space(folder / name, vectors, *zip(*rows, strict=True), title, seed)
    return sorted(path.name for path in folder.glob("*.png"))


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
