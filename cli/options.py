"""Options that several commands share, and checks of the files and folders that a command writes.

Nothing heavy is imported here: every command imports this module, also only to show its help.
"""

import errno
import functools
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from tmde.cli.errors import OptionError
from tmde.embedding.hub_names import check_model_path
from tmde.embedding.packaged_models import packaged_folder

# Values that the library defines too. Importing it takes seconds, so they are repeated here; a test
# compares them.
INDEX_SETTINGS = "index.json"  # the file by which the folder of an index is known
InputFormat = Literal["text", "jsonl", "csv", "tsv", "parquet", "tmx", "po", "xliff", "ts"]
Quoting = Literal["minimal", "none"]
Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
Scoring = Literal["cosine", "ratio", "distance"]
CorrelationMethod = Literal["spearman", "pearson"]
Protocol = Literal["zero-shot", "targeted", "leave-one-out"]
Head = Literal["mlp", "ffn", "ffn_nli", "ffn_128", "ffn_512", "logistic_regression", "svm"]

# The comma before the next `NAME=` of --columns.
_NEXT_COLUMN = re.compile(r",(?=\s*[\w.@-]+\s*=)")

_input = functools.partial(Option, rich_help_panel="Input")
_model = functools.partial(Option, rich_help_panel="Model")
_long = functools.partial(Option, rich_help_panel="Long documents")
_probability = functools.partial(Option, rich_help_panel="Probabilities")


def check_sources(*sources: str | None) -> None:
    """Check that files and folders of documents exist, before anything heavy is imported.

    Args:
        sources: The files and folders; `-` is stdin.

    Raises:
        FileNotFoundError: One does not exist.
    """
    for source in sources:
        if source is not None and source != "-" and not os.path.exists(source):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)


def check_model_name(name: str | None) -> str | None:
    """Return the name of a model, as a callback of an option.

    Raises:
        OSError: It is neither a folder nor a possible Hub id.
    """
    if name is not None and packaged_folder(name) is None:
        check_model_path(name)
    return name


ModelArgument = Annotated[
    str,
    Argument(
        metavar="MODEL", help="Folder of a saved model, or a Hub id.", callback=check_model_name
    ),
]
ModelOption = Annotated[
    str,
    Option(
        "--model",
        "-m",
        help="Folder, Hub id, or packaged model: `default` (fast), `tmde` or `accurate`.",
        callback=check_model_name,
    ),
]
BadRows = Literal["report", "raise"]
OverwriteOption = Annotated[bool, Option("--overwrite", help="Replace existing files.")]

JudgeAnywayOption = Annotated[
    bool,
    Option("--judge-anyway", help="Also score texts in languages that the model does not support."),
]

# How a model is loaded: the fields of `ModelOptions`. Some commands accept only a few of them.
PoolingOption = Annotated[
    Literal["cls", "mean"] | None,
    _model(help="Pooling of the outputs. Default: cls for tmde models, mean for others."),
]
PromptOption = Annotated[
    str | None,
    _model(help="Prefix for every text, such as 'query: '. Default: the model's own."),
]
DtypeOption = Annotated[
    Literal["float32", "bfloat16", "float16"] | None,
    _model(
        help="Data type of the weights. Default: the checkpoint's; for `accurate` and `tmde`, the "
        "fastest one on the CPU."
    ),
]
DeviceOption = Annotated[
    str | None, _model(help="cpu, cuda, cuda:1 or mps. Default: the best available device.")
]
TrustRemoteCodeOption = Annotated[
    bool, _model("--trust-remote-code", help="Run code from the model's Hub repository.")
]
RevisionOption = Annotated[str | None, _model(help="Branch, tag or commit of a model on the Hub.")]

BadRowsOption = Annotated[
    BadRows,
    _input(help="Whether to report and skip unreadable rows, or raise an error at the first one."),
]

# Arguments of the commands for documents.
DOCUMENTS_HELP = "File or folder of documents, or - for stdin."
# How a file of documents is read.
FormatOption = Annotated[
    InputFormat | None,
    _input(help="File format. Default: by suffix, such as .csv or .csv.gz; text for stdin."),
]
QuotingOption = Annotated[
    Quoting | None,
    _input(
        help="Quotes in CSV and TSV: minimal if they enclose fields, none if they are plain "
        "characters. Default: detected."
    ),
]
FieldOption = Annotated[
    list[str] | None,
    _input(
        help="Column with the text. Repeatable: columns are joined in this order, separated by "
        "blank lines. Default: text."
    ),
]
IdFieldOption = Annotated[
    str | None,
    _input(
        help="Column with the id. Default: id, or the row number; in an index, file and row number."
    ),
]
LanguageOption = Annotated[str | None, _input(help="Language code of all documents, such as de.")]
LanguageFieldOption = Annotated[
    str | None, _input(help="Column with the language of each document; de-DE counts as de.")
]

ScoringOption = Annotated[
    Scoring,
    Option(help="Pair score: cosine, or a margin (ratio, distance; Artetxe and Schwenk, 2019)."),
]
NeighborsOption = Annotated[int, Option("-k", min=1, help="Number of neighbors for the margin.")]

# Options for the training data, shared by `tmde train` and `tmde compare`.
TrainOption = Annotated[
    list[str] | None,
    Option("--train", help="Parallel text: file, folder, glob, Hub id or 'sample'. Repeatable."),
]
DevOption = Annotated[
    list[str] | None, Option("--dev", help="Held-out rows, [NAME=]SOURCE. Repeatable.")
]

ColumnsOption = Annotated[
    list[str] | None,
    Option(
        "--columns",
        metavar="NAME=COLUMN,...",
        help="Names of your columns, such as de=Source,en=Target; also doc_id=... Repeatable.",
    ),
]


def columns_of(
    items: Sequence[str] | None, form: str = "NAME=COLUMN, such as de=Source,en=Target"
) -> dict[str, str] | None:
    """Return the columns of `--columns` by their names in tmde; None without the option.

    Args:
        items: `NAME=COLUMN`, or several separated by commas. A comma before anything but `NAME=`
            belongs to the column.
        form: What an item should look like, for messages.

    Raises:
        OptionError: An item is not of this form, or a name occurs twice.
    """
    columns: dict[str, str] = {}
    for item in _split_columns(items or ()):
        name, _, column = item.partition("=")
        name = name.strip()
        column = column.strip()
        if not name or not column:
            raise OptionError(f"--columns: found {item!r}, expected {form}")
        if name in columns:
            raise OptionError(
                f"--columns: found {name} twice, {columns[name]!r} and {column!r}; give only one"
            )
        columns[name] = column
    return columns or None


def _split_columns(items: Sequence[str]) -> list[str]:
    """Return the single items `NAME=COLUMN`, without empty ones."""
    single_items = []
    for item in items:
        for part in _NEXT_COLUMN.split(item):
            single_item = part.strip(" ,")
            if single_item:
                single_items.append(single_item)
    return single_items


def one_or_all(sources: list[str]) -> str | list[str]:
    """Return the source of a repeatable option that was given once, or the list of all."""
    return sources[0] if len(sources) == 1 else sources


@dataclass(kw_only=True)
class InputOptions:
    """How a file of documents is read."""

    format: FormatOption = None
    quoting: QuotingOption = None
    field: FieldOption = None
    language: LanguageOption = None
    language_field: LanguageFieldOption = None


@dataclass(kw_only=True)
class ModelOptions:
    """Arguments of `DocumentEmbedder.from_pretrained` that control how a model is loaded."""

    pooling: PoolingOption = None
    max_length: Annotated[
        int | None,
        _model(
            min=1,
            help="Maximum input length in tokens. Default: the model's limit, or 750 if it states "
            "none.",
        ),
    ] = None
    prompt: PromptOption = None
    dtype: DtypeOption = None
    device: DeviceOption = None
    trust_remote_code: TrustRemoteCodeOption = False
    revision: RevisionOption = None


@dataclass(kw_only=True)
class LongOptions:
    """Arguments of `DocumentEmbedder.from_pretrained` for long documents."""

    long_documents: Annotated[
        Literal["truncate", "chunk", "sentences", "punctuation", "words"] | None,
        _long(
            help="How to embed documents longer than the model's limit. truncate: only the start "
            "(default of embed and eval). chunk: overlapping windows. sentences: each "
            "sentence (default of the other commands). punctuation: each piece up to `.`, "
            "`!` or `?`. words: overlapping windows of 128 words."
        ),
    ] = None
    window: Annotated[
        int | None,
        _long(
            min=1,
            help="Split documents with more tokens than this (for words: more words). Default: the "
            "model's limit (for words: 128).",
        ),
    ] = None
    stride: Annotated[
        int | None,
        _long(
            min=1,
            help="Tokens (for words: words) from one window to the next. Default: half a window.",
        ),
    ] = None
    aggregation: Annotated[
        str | None,
        _long(
            help="How to combine the vectors of the pieces: mean (default), max, or a saved "
            "SentenceDensity."
        ),
    ] = None


@dataclass(kw_only=True)
class SidesOptions:
    """How two files of documents are read."""

    format: FormatOption = None
    quoting: QuotingOption = None
    field: FieldOption = None
    id_field: IdFieldOption = None
    bad_rows: BadRowsOption = "report"
    language_a: Annotated[str | None, _input(help="Language code of A.")] = None
    language_b: Annotated[str | None, _input(help="Language code of B.")] = None


@dataclass(kw_only=True)
class ProbabilityOptions:
    """Options for the translation probabilities of pairs."""

    min_probability: Annotated[
        float | None,
        _probability(
            min=0,
            max=1,
            help="Minimum probability of a sentence pair; 0 keeps all. Default, unless another "
            "limit is set: 0.4; align: 0.1.",
        ),
    ] = None
    share: Annotated[
        float | None,
        _probability(
            help="Share of texts that have a translation on the other side. Default: 0.5; align:"
            " 0.9."
        ),
    ] = None
    calibration: Annotated[
        Path | None,
        _probability(help="File from `tmde calibrate`. Default: the model's own calibration."),
    ] = None


def read_texts(file: str) -> list[str]:
    """Return the nonblank lines of a UTF-8 file, or of stdin for `-`."""
    from tmde.data.lines import read_lines

    lines = sys.stdin if file == "-" else (line for _, line in read_lines(file))
    texts = [line.lstrip("\ufeff").strip() for line in lines]
    return [text for text in texts if text]


def check_languages_exclude(language: str | None, language_field: str | None) -> None:
    """Raise `OptionError` if both one language and a field of languages are given."""
    if language is not None and language_field is not None:
        raise OptionError("--language and --language-field can't be combined; give only one")


def check_output(
    path: Path, overwrite: bool, suffixes: Sequence[str], option: str = "--output"
) -> Path:
    """Check an output file before the work begins.

    Returns:
        The file with symlinks resolved, so that the file is replaced instead of the link.

    Raises:
        OptionError: Its suffix or folder is wrong, or it exists and `overwrite` is not given.
    """
    if path.suffix not in suffixes or path.is_dir():
        raise OptionError(f"{option} {path}: expected a file that ends in {' or '.join(suffixes)}")
    if path.exists() and not overwrite:
        raise OptionError(f"{option} {path} exists; set --overwrite to replace it")
    target = path.resolve()
    if not os.access(target.parent, os.W_OK):
        raise OptionError(
            f"{option} {path}: folder {target.parent} does not exist or is not writable"
        )
    return target


def check_new(folder: Path) -> None:
    """Raise `OptionError` if the output folder is a file or is not empty."""
    if not folder.exists():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise OptionError(f"--output {folder} already exists; choose a new folder")
