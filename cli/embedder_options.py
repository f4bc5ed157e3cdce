"""Options of commands that embed what they read, and the model that they name."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modeling_tmde.cli.embedding_job import load_model, stderr_is_terminal
from modeling_tmde.data.documents import EmbedError

# torch and transformers are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    from modeling_tmde.embedding import DocumentEmbedder


MODEL_PANEL, LONG_PANEL = "Model", "Long documents"  # headings of the help
AGGREGATIONS = ("mean", "max")  # those of modeling_tmde.long_documents, which imports torch


class Pooling(str, Enum):
    cls = "cls"
    mean = "mean"


class Dtype(str, Enum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class LongDocumentsMode(str, Enum):
    truncate = "truncate"
    chunk = "chunk"
    sentences = "sentences"


ModelOption = Annotated[str, typer.Option("--model", "-m", help="Folder of a saved model, or a Hub id.")]
PoolingOption = Annotated[
    Pooling | None, typer.Option(help="Default: cls for tmde models, mean for others.", rich_help_panel=MODEL_PANEL)
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens of the longest input. Default: all a model takes; 750 if it is silent.",
        rich_help_panel=MODEL_PANEL,
    ),
]
LongDocumentsOption = Annotated[
    LongDocumentsMode | None,
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


def long_document_options(
    mode: LongDocumentsMode | None,
    window: int | None,
    stride: int | None,
    aggregation: str | None,
    default: LongDocumentsMode | None = LongDocumentsMode.truncate,
) -> dict[str, str | int]:
    """Arguments of `DocumentEmbedder.from_pretrained`: those that were given.

    `default`: the mode of a command to which none is given; None where it is not known yet.

    Raises:
        EmbedError: Options that have no use without a mode that splits; an aggregation that there is not.
    """
    given = {"window": window, "stride": stride, "aggregation": aggregation}
    given = {name: value for name, value in given.items() if value is not None}
    found = mode or default
    if given and found == LongDocumentsMode.truncate:
        name, value = next(iter(given.items()))
        raise EmbedError(
            f"--{name}: found {value} with --long-documents truncate{'' if mode else ' (the default)'}, which splits "
            "nothing; give --long-documents chunk or sentences as well"
        )
    if aggregation not in (None, *AGGREGATIONS) and not Path(aggregation).expanduser().is_file():
        raise EmbedError(
            f"--aggregation: found {aggregation!r}, which is no file; expected {', '.join(AGGREGATIONS)} or the file "
            "of a saved SentenceDensity"
        )
    return {"long_documents": mode.value, **given} if mode else given


def open_embedder(
    model: str,
    pooling: Pooling | None = None,
    max_length: int | None = None,
    dtype: Dtype | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
    long_documents: LongDocumentsMode | None = None,
    window: int | None = None,
    stride: int | None = None,
    aggregation: str | None = None,
    **loading,
) -> DocumentEmbedder:
    """Loads the model that the options name; `loading`: more arguments of `DocumentEmbedder.from_pretrained`.

    Raises:
        EmbedError: For all that can be wrong with --model and how it is to embed.
    """
    options = {"pooling": pooling and pooling.value, "max_length": max_length, "dtype": dtype and dtype.value}
    options |= {"trust_remote_code": trust_remote_code, "revision": revision}
    options |= long_document_options(long_documents, window, stride, aggregation)
    return load_model(model, device, stderr_is_terminal(), options | loading)
