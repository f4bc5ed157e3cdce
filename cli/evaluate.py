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
    help="Measure embedders by the literature's protocols.\n\n"
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
            help="Paths or Hub ids, or NAME=PATH. Default: the model that comes with tmde.",
            show_default=False,
        ),
    ] = None
    tasks: Annotated[
        list[str] | None, _task("-t", "--tasks", help="NAME or NAME=SOURCE, comma-separated.")
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
        Path | None, _task(help="Folder of tasks' files. Without --tasks, those, and the sample.")
    ] = None
    languages: Annotated[
        str | None, _task(help="Such as de,en. Default: those the models were trained on.")
    ] = None
    train_languages: Annotated[
        str | None, _task(help="With labels; en: thesis Evaluation I. Default: all.")
    ] = None
    streaming: Annotated[bool, _task("--streaming", help="Stream Hub datasets.")] = False
    task_options: Annotated[
        list[str] | None, _task("--set", help="TASK.OPTION=VALUE, repeatable.")
    ] = None
    protocol: Annotated[
        common.Protocol,
        _protocol(help="What a classifier is tuned on."),
    ] = "zero-shot"
    head: Annotated[common.Head | None, _protocol(help="Classifier. Default: the task's.")] = None
    seeds: Annotated[int, _protocol(min=1, help="Seeds of a classifier that has any (ffn).")] = 3
    folds: Annotated[
        bool,
        _protocol(help="Train and test again on ten splits, for a t-test."),
    ] = True
    scoring: Annotated[common.Scoring, _protocol(help="What retrieval ranks by.")] = "cosine"
    max_queries: Annotated[
        int | None, _protocol(min=1, help="Queries of retrieval. Default: all rows.")
    ] = None
    seed: Annotated[int, _protocol(help="Of folds, intervals, classifiers and figures.")] = 0
    baseline: Annotated[
        list[str] | None,
        Option(help="Hub encoder, by first output and mean."),
    ] = None
    translated_tfidf: Annotated[
        list[str] | None,
        Option(
            metavar="MODEL",
            help="As a baseline of classification, TF-IDF of the words of texts that a trained "
            "model translates into English, or into --translate-into.",
        ),
    ] = None
    translate_into: Annotated[
        str | None,
        Option(
            metavar="LANGUAGE",
            help="The language of --translated-tfidf. Default: en, or else the first that the "
            "model translates into.",
        ),
    ] = None
    tfidf: Annotated[bool, Option(help="Character n-gram TF-IDF as a baseline.")] = True
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
        Path | None, Option(help="Of vectors and results. Default: $TMDE_CACHE.")
    ] = None


@app.command()
@command(RunOptions)
def run(options: RunOptions) -> None:
    """Measure models on tasks: a table here; with -o also JSON, a report in Markdown, and figures.

    The second and later models are compared with the first one: difference, interval and p-value.

        tmde eval mine=runs/mine --tasks sample,word_order -o results

        tmde eval mine=runs/mine --tasks sentence_retrieval=dev.jsonl
        --baseline FacebookAI/xlm-roberta-base

    Labeled documents are classified within and across their languages. The fields are text, label,
    and, if there are any, language, split, id (the same for translations) and title:

        tmde eval A=runs/mine B=default --labeled news.csv --columns text=Body,label=Topic
    """
    if options.translate_into is not None and not options.translated_tfidf:
        raise OptionError(
            f"--translate-into: found {options.translate_into!r} without a model that translates; "
            "name one with --translated-tfidf MODEL"
        )
    columns = common.columns_of(options.columns, _COLUMNS_FORM) or {}
    from tmde.cli.run_evaluation import run_evaluation

    run_evaluation(options, columns)


@app.command("compare")
def compare_command(
    a: Annotated[
        str,
        Argument(metavar="A", help="Evaluation folder, or FOLDER#SYSTEM where it holds several."),
    ],
    b: Annotated[str, Argument(metavar="B", help="What is compared with it.")],
    each_cell: Annotated[bool, Option("--each-cell", help="Compare every cell too.")] = False,
) -> None:
    """Difference of B from A, its interval and p-values, item by item.

        tmde eval compare results#first results#second

    p says how often a difference of this size comes up by chance if both systems are equally good
    (randomization test over test items). 'p (folds)' says the same by a paired t-test over ten
    other splits of the documents. Neither is corrected for the number of comparisons.
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
        Argument(metavar="RESULTS", help="Evaluation folders, of one or several systems each."),
    ],
    tasks: Annotated[
        list[str] | None,
        Option("-t", "--tasks", help="Only these tasks and groups, comma-separated. Default: all."),
    ] = None,
    method: Annotated[
        common.CorrelationMethod, Option(help="Correlation of ranks, or of the results themselves.")
    ] = "spearman",
    output: Annotated[
        Path | None,
        Option("-o", "--output", help="TSV to write, with a row for each pair of tasks."),
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the file of -o.")] = False,
) -> None:
    """Correlate probing tasks with all other tasks, over the systems that have all of them.

        tmde eval correlate results/*/ --tasks probing,senteval -o correlations.tsv

    It needs four systems. Each p-value, of a permutation test, is corrected by Holm's method for
    the number of pairs of tasks. TF-IDF is left out.
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
    """List the tasks: what they measure, in which languages, and where their data come from.

    If the output is no terminal, every task is one line, and tabs separate the columns.
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

    Each run is one line, labeled NAME or by its folder.

        tmde eval curves bag=runs/bag small=runs/small -o curves.png
    """
    target = common.check_output(output, True, (".png", ".svg", ".pdf"), "-o")
    from rich.console import Console

    from tmde.cli.evaluation_options import named_paths
    from tmde.eval.figures import draw_training_curves

    draw_training_curves(target, named_paths(runs))
    Console().print(str(output))
