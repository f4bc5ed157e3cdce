"""Options that the commands share, and the model and the output file that they name."""

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from modeling_tmde.embedding import DocumentEmbedder

MODEL_PANEL, LONG_PANEL = "Model", "Long documents"  # headings of the help

Pooling = Literal["cls", "mean"]
Dtype = Literal["float32", "bfloat16", "float16"]
LongDocuments = Literal["truncate", "chunk", "sentences"]

ModelOption = Annotated[str, typer.Option("--model", "-m", help="Folder of a saved model, or a Hub id.")]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Folder of a saved model, or a Hub id.")]
PoolingOption = Annotated[
    Pooling | None, typer.Option(help="Default: cls for tmde models, mean for others.", rich_help_panel=MODEL_PANEL)
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens of the longest input. Default: all that the model takes; 750 if it names no limit.",
        rich_help_panel=MODEL_PANEL,
    ),
]
DtypeOption = Annotated[
    Dtype | None, typer.Option(help="Of the weights. Default: the checkpoint's.", rich_help_panel=MODEL_PANEL)
]
DeviceOption = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1, mps. Default: the best there is.", rich_help_panel=MODEL_PANEL)
]
TrustRemoteCodeOption = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run the Hub model's code.", rich_help_panel=MODEL_PANEL)
]
RevisionOption = Annotated[
    str | None, typer.Option(help="Branch, tag or commit of a Hub model.", rich_help_panel=MODEL_PANEL)
]
# Of a command without a default of its own, None is "truncate".
LongDocumentsOption = Annotated[
    LongDocuments | None,
    typer.Option(
        help="Of a document too long for the model, embed the beginning (truncate, the default), overlapping windows "
        "(chunk) or every sentence (sentences).",
        rich_help_panel=LONG_PANEL,
    ),
]
WindowOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="With chunk or sentences: split documents of more tokens. Default: as --max-length.",
        rich_help_panel=LONG_PANEL,
    ),
]
StrideOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens from the start of one window to the next. Default: half of a window.",
        rich_help_panel=LONG_PANEL,
    ),
]
AggregationOption = Annotated[
    str | None,
    typer.Option(
        help="Of a document's pieces: mean, max, or a saved SentenceDensity, for a weighted mean.",
        rich_help_panel=LONG_PANEL,
    ),
]
# Of a command whose default is "sentences".
SentencesOption = Annotated[
    LongDocuments | None,
    typer.Option(
        help="Embed a document too long for the model sentence by sentence (sentences, the default), in overlapping "
        "windows (chunk), or cut it off (truncate).",
        rich_help_panel=LONG_PANEL,
    ),
]
MODEL_OPTIONS = {
    "pooling": PoolingOption,
    "max_length": MaxLengthOption,
    "dtype": DtypeOption,
    "device": DeviceOption,
    "trust_remote_code": TrustRemoteCodeOption,
    "revision": RevisionOption,
}
LONG_OPTIONS = {
    "long_documents": SentencesOption,
    "window": WindowOption,
    "stride": StrideOption,
    "aggregation": AggregationOption,
}


def with_options(**options: Any) -> Callable[[Callable], Callable]:
    """Adds options, by their annotations, to a command, which gets the values that are set as the dict `loading`."""

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            values = {name: given.pop(name) for name in options}
            command(**given, loading={name: value for name, value in values.items() if value})

        signature = inspect.signature(command)
        own = [parameter for name, parameter in signature.parameters.items() if name != "loading"]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in options.items()
        ]
        wrapper.__signature__ = signature.replace(parameters=own + added)
        wrapper.__annotations__ = command.__annotations__ | options
        return wrapper

    return decorate


# Arguments of `DocumentEmbedder.from_pretrained` whose errors begin with their names, and which are options too.
_NAMED_BY_ERRORS = ("aggregation", "compile", "device", "dtype", "long_documents", "max_length", "pooling", "stride")
_NAMED_BY_ERRORS += ("window",)


def load_embedder(model: str, **loading) -> DocumentEmbedder:
    """`DocumentEmbedder.from_pretrained`, without the arguments that are None.

    Raises:
        ValueError: The model or one of the options cannot be used; names it.
    """
    loading = {name: value for name, value in loading.items() if value is not None}
    try:
        return DocumentEmbedder.from_pretrained(model, **loading)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        name, colon, text = str(error).partition(":")
        if colon and name in _NAMED_BY_ERRORS:
            raise ValueError(f"--{name.replace('_', '-')}:{text}") from error
        problem = _model_problem(model, error)
        raise ValueError(problem if problem.startswith(f"{model}:") else f"{model}: {problem}") from error


def _model_problem(model: str, error: Exception) -> str:
    text = str(error)
    if not Path(model).expanduser().exists() and not isinstance(error, FileNotFoundError):
        return f"no such folder, and as a Hub id: {text}"
    if "ignore_mismatched_sizes" in text:
        return "its weights have other sizes than its config.json says; take both from the same model"
    if "trust_remote_code" in text:
        return "it brings code of its own; if you trust where it comes from, give --trust-remote-code"
    return text


def check_output(path: Path, overwrite: bool, suffixes: Sequence[str], option: str = "--output") -> Path:
    """The file that will be written, links resolved; checked before the work begins.

    Raises:
        ValueError: Its suffix or folder is wrong, or it exists and `overwrite` is not given.
    """
    target = path.resolve()  # to replace what a link points to, not the link
    if path.suffix not in suffixes:
        raise ValueError(f"{option} {path}: found suffix {path.suffix!r}, expected {' or '.join(suffixes)}")
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder, expected a file name")
    if path.exists() and not overwrite:
        raise ValueError(f"{option} {path} exists; give --overwrite to replace it")
    if not target.parent.is_dir():
        raise ValueError(f"{option} {path}: folder {target.parent} does not exist")
    if not os.access(target.parent, os.W_OK):
        raise ValueError(f"{option} {path}: folder {target.parent} is not writable")
    return target
