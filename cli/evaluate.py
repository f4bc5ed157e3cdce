"""`tmde eval`: measures models on tasks, compares stored results, lists tasks, draws curves."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command
from tmde.cli.errors import CommandGroup, OptionError

_COLUMNS_FORM = (
    "FIELD=COLUMN, such as label=Topic, or NAME.FIELD=COLUMN for one of several files of --labeled"
)


class _DefaultGroup(CommandGroup):
    """A group in which `tmde eval MODEL ...` means `tmde eval run MODEL ...`."""

    def parse_args(
        self,
        ctx: Any,  # noqa: ANN401 - typer does not export click's class
        args: list[str],
    ) -> list[str]:
        """Insert `run` unless a command is named."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_DefaultGroup,
    no_args_is_help=True,
    help="Evaluate embedders with published protocols.\n\n"
    "`tmde eval MODEL` is short for `tmde eval run MODEL`.",
)
_task = functools.partial(Option, rich_help_panel="Tasks and their data")
_protocol = functools.partial(Option, rich_help_panel="Protocol")


@dataclass(kw_only=True)
class RunOptions(common.LongOptions, common.ModelOptions):
    """The options of `tmde eval run`."""

    models: Annotated[
        list[str] | None,
        Argument(
            metavar="MODEL",
            help="Folders, Hub ids or packaged models, as MODEL or NAME=MODEL. Default: `default`.",
            show_default=False,
        ),
    ] = None
    tasks: Annotated[
        list[str] | None,
        _task("-t", "--tasks", help="Tasks, NAME or NAME=SOURCE, comma-separated."),
    ] = None
    labeled: Annotated[
        list[str] | None,
        _task(help="Labeled documents of your own, [NAME=]FILE: CSV, TSV, JSONL, parquet."),
    ] = None
    columns: Annotated[
        list[str] | None,
        _task(help="FIELD=COLUMN of --labeled, comma-separated: text=Body,label=Topic."),
    ] = None
    data: Annotated[
        Path | None,
        _task(help="Folder with task files. Without --tasks, runs those tasks and the sample."),
    ] = None
    languages: Annotated[
        str | None,
        _task(help="Languages, such as de,en. Default: those the models were trained on."),
    ] = None
    train_languages: Annotated[
        str | None,
        _task(
            help="Languages with labeled training texts; en is Evaluation I of Li (2021). "
            "Default: all."
        ),
    ] = None
    streaming: Annotated[bool, _task("--streaming", help="Stream Hub datasets.")] = False
    task_options: Annotated[
        list[str] | None, _task("--set", help="Task option, TASK.OPTION=VALUE. Repeatable.")
    ] = None
    protocol: Annotated[
        common.Protocol,
        _protocol(help="Data on which classifiers are tuned."),
    ] = "zero-shot"
    head: Annotated[common.Head | None, _protocol(help="Classifier. Default: the task's.")] = None
    seeds: Annotated[
        int, _protocol(min=1, help="Number of seeds for randomly initialized classifiers (ffn).")
    ] = 3
    folds: Annotated[
        bool,
        _protocol(help="Also train and test on ten splits for a t-test."),
    ] = True
    scoring: Annotated[common.Scoring, _protocol(help="Ranking score for retrieval.")] = "cosine"
    max_queries: Annotated[
        int | None, _protocol(min=1, help="Number of retrieval queries. Default: all rows.")
    ] = None
    seed: Annotated[int, _protocol(help="Seed for folds, intervals, classifiers and figures.")] = 0
    baseline: Annotated[
        list[str] | None,
        Option(help="Compare with this Hub encoder, with both its first and its mean output."),
    ] = None
    translated_tfidf: Annotated[
        list[str] | None,
        Option(
            metavar="MODEL",
            help="Classification baseline: TF-IDF of texts translated by this trained model into "
            "English or --translate-into.",
        ),
    ] = None
    translate_into: Annotated[
        str | None,
        Option(
            metavar="LANGUAGE",
            help="Target language of --translated-tfidf. Default: en, or the first that the "
            "model translates into.",
        ),
    ] = None
    tfidf: Annotated[bool, Option(help="Compare with character n-gram TF-IDF.")] = True
    output: Annotated[
        Path | None, Option("-o", "--output", help="Folder for eval.json and report.md.")
    ] = None
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace an earlier evaluation in -o.")
    ] = False
    figures: Annotated[
        bool, Option(help="Draw matrices and t-SNE maps into the output folder.")
    ] = True
    cache_dir: Annotated[
        Path | None, Option(help="Cache folder for vectors and results. Default: $TMDE_CACHE.")
    ] = None


@app.command()
@command(RunOptions)
def run(options: RunOptions) -> None:
    """Evaluate models on tasks: print a table, and with -o write JSON, a report and figures.

    Other models are compared with the first one: difference, confidence interval and p-value.

        tmde eval mine=runs/mine --tasks sample,word_order -o results

        tmde eval mine=runs/mine --tasks sentence_retrieval=dev.jsonl
        --baseline FacebookAI/xlm-roberta-base

    Labeled documents are classified within and across their languages. Their fields are text, label
    and, if present, language, split, id (the same for translations) and title:

        tmde eval A=runs/mine B=default --labeled news.csv --columns text=Body,label=Topic
    """
    if options.translate_into is not None and not options.translated_tfidf:
        raise OptionError(
            f"--translate-into: found {options.translate_into!r} without a translation model; "
            "set one with --translated-tfidf MODEL"
        )
    columns = common.columns_of(options.columns, _COLUMNS_FORM) or {}
    from tmde.cli.run_evaluation import run_evaluation

    run_evaluation(options, columns)


@app.command("compare")
def compare_command(
    a: Annotated[
        str,
        Argument(
            metavar="A", help="Folder of an evaluation, or FOLDER#SYSTEM if it contains several."
        ),
    ],
    b: Annotated[str, Argument(metavar="B", help="The evaluation to compare with A.")],
    each_cell: Annotated[bool, Option("--each-cell", help="Also compare every cell.")] = False,
) -> None:
    """Compare two evaluated systems: difference, confidence interval and p-values.

        tmde eval compare results#first results#second

    p is the probability of a difference this large if both systems are equally good (randomization
    test over test items). 'p (folds)' comes from a paired t-test over ten other splits of the
    documents. Neither is corrected for multiple comparisons.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    from tmde.eval.report import differences_markdown
    from tmde.eval.results import read_system

    table = differences_markdown(read_system(a), read_system(b), each_cell=each_cell)
    if table is None:
        raise OptionError(f"{a} and {b} have no task in common")
    Console().print(Markdown(table))


@app.command("correlate")
def correlate_command(
    results: Annotated[
        list[str],
        Argument(metavar="RESULTS", help="Folders of evaluations."),
    ],
    tasks: Annotated[
        list[str] | None,
        Option("-t", "--tasks", help="Only these tasks and groups, comma-separated. Default: all."),
    ] = None,
    method: Annotated[
        common.CorrelationMethod,
        Option(help="Correlation of ranks (spearman) or of the results themselves (pearson)."),
    ] = "spearman",
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="TSV to write, one row per pair of tasks."),
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the file of -o.")] = False,
) -> None:
    """Correlate probing tasks with all other tasks, across systems evaluated on all of them.

        tmde eval correlate results/*/ --tasks probing,senteval -o correlations.tsv

    At least four systems are required. Each p-value comes from a permutation test and is corrected
    for the number of task pairs (Holm). TF-IDF is excluded.
    """
    target = None
    if output is not None:
        target = common.check_output(output, overwrite, (".tsv",), "-o")
    from rich.console import Console
    from rich.markdown import Markdown

    from tmde.cli.evaluation_options import split_list
    from tmde.data.io import write_atomically
    from tmde.eval.correlations import correlate_tasks, correlations_markdown, correlations_tsv
    from tmde.eval.results import read_results

    measured = []
    for folder in results:
        measured += read_results(folder)
    names = split_list(",".join(tasks)) if tasks else None
    correlated = correlate_tasks(measured, method, tasks=names)
    Console().print(Markdown(correlations_markdown(correlated)))
    if target is not None:
        write_atomically(target, correlations_tsv(correlated))


@app.command("tasks")
def list_tasks() -> None:
    """List the tasks with what they measure, their languages and their data sources.

    If the output is not a terminal, each task is a line of tab-separated columns.
    """
    from tmde.cli.task_list import print_tasks

    print_tasks()


@app.command("curves")
def curves(
    runs: Annotated[
        list[str],
        Argument(metavar="RUN", help="Folders of training runs, as PATH or NAME=PATH."),
    ],
    output: Annotated[Path, Option("-o", "--output", help="PNG, SVG or PDF to write.")] = Path(
        "curves.png"
    ),
) -> None:
    """Draw the training curves of runs from their logs.

    Each run is a line, labeled with NAME or its folder.

        tmde eval curves bag=runs/bag small=runs/small -o curves.png
    """
    target = common.check_output(output, True, (".png", ".svg", ".pdf"), "-o")
    from rich.console import Console

    from tmde.cli.evaluation_options import named_paths
    from tmde.eval.figures import draw_training_curves

    draw_training_curves(target, named_paths(runs))
    Console().print(str(output))
