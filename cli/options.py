"""Options that several commands share, and how a command opens its model and checks its output file."""

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from modeling_tmde import TmdeError
from tmde.data.documents import InputFormat
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.loading import DEFAULT_MODEL, reading

_input = functools.partial(Option, rich_help_panel="Input")
_model = functools.partial(Option, rich_help_panel="Model")
_long = functools.partial(Option, rich_help_panel="Long documents")

ModelArgument = Annotated[
    str, Argument(metavar="MODEL", help="Folder of a saved model, or a Hub id.")
]
ModelOption = Annotated[
    str, Option("--model", "-m", help="Folder or Hub id; `default` is the model of tmde.")
]
OverwriteOption = Annotated[bool, Option("--overwrite", help="Replace files that exist.")]

# Of a file of documents.
FormatOption = Annotated[InputFormat | None, _input(help="Default: by the suffix; text for stdin.")]
FieldOption = Annotated[
    str | None, _input(help="JSONL field or parquet column of the text. Default: text.")
]
IdFieldOption = Annotated[
    str | None, _input(help="Field or column of the id. Default: id, or the line's number.")
]
LanguageOption = Annotated[
    str | None, _input(help="Code of the language of all documents, such as de.")
]
LanguageFieldOption = Annotated[
    str | None, _input(help="Field or column of the language of each document.")
]

# Arguments of `DocumentEmbedder.from_pretrained`, for `with_options`.
MODEL_OPTIONS = {
    "pooling": Annotated[
        Literal["cls", "mean"] | None, _model(help="Default: cls for tmde models, mean for others.")
    ],
    "max_length": Annotated[
        int | None,
        _model(
            min=1,
            help="Tokens of the longest input. Default: the model's limit; 750 if it names none.",
        ),
    ],
    "prompt": Annotated[
        str | None,
        _model(
            help="Before every text, such as 'query: '. Default: the one that the model carries."
        ),
    ],
    "dtype": Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        _model(help="Of the weights. Default: the checkpoint's."),
    ],
    "device": Annotated[
        str | None, _model(help="cpu, cuda, cuda:1, mps. Default: the best there is.")
    ],
    "trust_remote_code": Annotated[
        bool, _model("--trust-remote-code", help="Run the Hub model's code.")
    ],
    "revision": Annotated[str | None, _model(help="Branch, tag or commit of a Hub model.")],
}
LONG_OPTIONS = {
    "long_documents": Annotated[
        Literal["truncate", "chunk", "sentences"] | None,
        _long(
            help="Of a document too long for the model, embed the beginning (truncate: default of embed and eval), "
            "overlapping windows (chunk) or every sentence (sentences: default of the other commands)."
        ),
    ],
    "window": Annotated[
        int | None,
        _long(min=1, help="Split documents of more tokens. Default: those too long for the model."),
    ],
    "stride": Annotated[
        int | None,
        _long(min=1, help="Tokens from one window's start to the next. Default: half of a window."),
    ],
    "aggregation": Annotated[
        str | None,
        _long(help="Of the pieces of a document: mean (default), max, or a saved SentenceDensity."),
    ],
}


def with_options(**options: Any) -> Callable[[Callable], Callable]:
    """Adds options, given by their annotations, to a command, which gets those that are set as the dict `loading`.

    @with_options(**MODEL_OPTIONS, **LONG_OPTIONS)
    def align(a: ..., model: ModelOption, loading: dict[str, Any] = ...) -> None:
        embedder = load_embedder(model, **loading)
    """

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            loading = {
                name: value for name in options if (value := given.pop(name)) not in (None, False)
            }
            command(**given, loading=loading)

        own = [
            each
            for each in inspect.signature(command).parameters.values()
            if each.name != "loading"
        ]
        added = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )
            for name, annotation in options.items()
        ]
        wrapper.__signature__ = inspect.Signature(own + added)
        wrapper.__annotations__ = command.__annotations__ | options
        return wrapper

    return decorate


def load_embedder(model: str, **loading: Any) -> DocumentEmbedder:
    """`DocumentEmbedder.from_pretrained`; its errors begin with the model.

    Raises:
        ValueError: The model or one of the options cannot be used.
    """
    known = model == DEFAULT_MODEL or Path(model).expanduser().exists()
    with reading(model if known else f"{model}: no such folder, and as a Hub id"):
        return DocumentEmbedder.from_pretrained(model, **loading)


def check_output(
    path: Path, overwrite: bool, suffixes: Sequence[str], option: str = "--output"
) -> Path:
    """The file that will be written, symlinks resolved; checked before the work begins.

    Raises:
        ValueError: Its suffix or folder is wrong, or it exists and `overwrite` is not given.
    """
    if path.suffix not in suffixes or path.is_dir():
        raise TmdeError(f"{option} {path}: expected a file that ends in {' or '.join(suffixes)}")
    if path.exists() and not overwrite:
        raise TmdeError(f"{option} {path} exists; give --overwrite to replace it")
    target = path.resolve()  # replace the file that a link points to, not the link
    if not os.access(target.parent, os.W_OK):
        raise TmdeError(
            f"{option} {path}: folder {target.parent} does not exist or is not writable"
        )
    return target


def check_new(folder: Path) -> None:
    """Raises ValueError if the folder that will be made is a file, or holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TmdeError(f"--output {folder} exists already; give the name of a new folder")
