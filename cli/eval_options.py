"""Options that the commands of `tmde eval` share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from modeling_tmde.cli.embedder_options import MODEL_PANEL

TASK_PANEL, PROTOCOL_PANEL = "Tasks and their data", "Protocol"  # headings of the help
# Their homes import torch and scikit-learn, for which `tmde eval run --help` must not wait; a test compares them.
POOLINGS = ("cls", "mean")  # of modeling_tmde.embedding
PROTOCOLS = ("zero-shot", "targeted", "leave-one-out")  # of modeling_tmde.eval.classification
HEADS = ("ffn", "ffn_nli", "logistic_regression", "svm")  # of modeling_tmde.eval.heads
DTYPES = ("float32", "bfloat16", "float16")  # as `Dtype` of embedder_options
SCORINGS = ("cosine", "ratio", "distance", "absolute")  # of modeling_tmde.documents.nearest

TasksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        "-t",
        help="NAME or NAME=SOURCE (a file, a folder or a Hub id), comma-separated or repeated; `all`: the sample and "
        "every task whose files are in --data (the default). `tmde eval tasks` lists them.",
        rich_help_panel=TASK_PANEL,
    ),
]
TaskOptionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="TASK.OPTION=VALUE of a task, such as xnli.max_train=20000; can be repeated.",
        rich_help_panel=TASK_PANEL,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Folder where the files of tasks are looked for.", rich_help_panel=TASK_PANEL),
]
LanguagesOption = Annotated[
    str | None,
    typer.Option(
        "--languages",
        help="Languages to test, such as de,en,fr. Default: those of the task that the models were trained on.",
        rich_help_panel=TASK_PANEL,
    ),
]
TrainLanguagesOption = Annotated[
    str | None,
    typer.Option(
        help="Languages with labels: `en` is Evaluation I of the thesis, all (the default) Evaluation II.",
        rich_help_panel=TASK_PANEL,
    ),
]
ProtocolOption = Annotated[
    Literal[PROTOCOLS],
    typer.Option(help="Where hyper-parameters come from, and what a classifier sees.", rich_help_panel=PROTOCOL_PANEL),
]
HeadOption = Annotated[
    Literal[HEADS] | None,
    typer.Option(
        help="Classifier on the vectors; ffn and ffn_nli are LASER's for MLDoc and XNLI. Default: the task's.",
        rich_help_panel=PROTOCOL_PANEL,
    ),
]
SeedsOption = Annotated[
    int, typer.Option(min=1, help="Seeds of a classifier that has any (ffn).", rich_help_panel=PROTOCOL_PANEL)
]
FoldsOption = Annotated[
    bool, typer.Option(help="The ten folds of the paired t-test (thesis 4.6).", rich_help_panel=PROTOCOL_PANEL)
]
ScoringOption = Annotated[
    Literal[SCORINGS], typer.Option(help="What retrieval ranks by.", rich_help_panel=PROTOCOL_PANEL)
]
MarginOption = Annotated[
    Literal[SCORINGS],
    typer.Option(help="Second score of retrieval, for its error rate (xsim).", rich_help_panel=PROTOCOL_PANEL),
]
MaxQueriesOption = Annotated[
    int | None, typer.Option(min=1, help="Queries of retrieval; default: all rows.", rich_help_panel=PROTOCOL_PANEL)
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(
        min=3,
        help="Tokens where texts are cut. Default: all a model takes; 750 if it is silent.",
        rich_help_panel=MODEL_PANEL,
    ),
]
PoolingOption = Annotated[
    Literal[POOLINGS] | None,
    typer.Option(help="Default: cls for models of this package, else mean.", rich_help_panel=MODEL_PANEL),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="Default: cuda, else mps, else cpu.", rich_help_panel=MODEL_PANEL)
]
DtypeOption = Annotated[
    Literal[DTYPES] | None, typer.Option(help="Of the weights, such as bfloat16.", rich_help_panel=MODEL_PANEL)
]
TrustOption = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run the code of a Hub model.", rich_help_panel=MODEL_PANEL)
]
StreamingOption = Annotated[bool, typer.Option("--streaming", help="Stream Hub datasets.", rich_help_panel=TASK_PANEL)]
CacheOption = Annotated[
    Path | None, typer.Option(help="Folder of cached vectors and results. Default: $TMDE_CACHE or the user's cache.")
]
NoCacheOption = Annotated[bool, typer.Option("--no-cache", help="Measure everything anew.")]
SeedOption = Annotated[
    int, typer.Option(help="Of folds, intervals, classifiers and pictures.", rich_help_panel=PROTOCOL_PANEL)
]
