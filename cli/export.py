"""`tmde export`: a model written in another form, for other software to run."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from tmde.cli.errors import OptionError
from tmde.cli.options import (
    ColumnsOption,
    FieldOption,
    ModelArgument,
    QuotingOption,
    check_model_name,
    check_new,
    columns_of,
    model_options,
    with_options,
)
from tmde.embedding.hub_names import holds_weights

if TYPE_CHECKING:
    from tmde.data.delimited import Quoting
    from tmde.embedding.document_embedder import DocumentEmbedder

_CHUNK_SIZE = 8192  # documents that are read at once
_BAG_CHARACTERS = 15_000_000  # the characters of each language that a bag's vocabulary is made of

NewFolderOption = Annotated[
    Path, Option("--output", "-o", metavar="FOLDER", help="Folder to make.")
]
TextOption = Annotated[
    list[str] | None,
    Option("--text", metavar="FILE", help="File or folder of documents to read; repeatable."),
]
RowsOption = Annotated[
    list[str] | None,
    Option("--train", metavar="SOURCE", help="Parallel rows to read; repeatable."),
]
RowLanguagesOption = Annotated[
    str | None, Option("--languages", help="Of the parallel rows, such as de,en. Default: all.")
]

app = typer.Typer(
    no_args_is_help=True, help="Write a model in another form, for other software to run."
)


@app.command()
@with_options(loading=model_options("pooling", "prompt", "trust_remote_code", "revision"))
def onnx(
    model: ModelArgument,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FOLDER", help="Default: MODEL.")
    ] = None,
    quantization: Annotated[Literal["int8"] | None, Option(help="int8: weights of 8 bits.")] = None,
    *,
    loading: dict[str, Any],
) -> None:
    """Write a model as an ONNX graph: FOLDER/onnx/model.onnx, or model_int8.onnx.

    The graph takes batches of any size and length, and runs without torch. Its outputs are
    last_hidden_state and sentence_embedding, the vector. It is checked and compared with the model
    on texts in six languages: in float32, outputs that differ by more than a ten-thousandth are an
    error; in int8, a vector whose cosine with the model's is below 0.9.

        tmde export onnx runs/tmde

    A folder of its own also gets the files that text-embeddings-inference, transformers.js and
    fastembed read:

        tmde export onnx default -o served

        tmde export onnx default -o served --quantization int8

    It needs tmde's extra "onnx".
    """
    folder = _onnx_folder(model, output)
    from tmde.embedding.export_onnx import export_onnx

    embedder = _load_embedder(model, loading)
    path, difference, cosine = export_onnx(
        embedder.model,
        embedder.tokenizer,
        folder,
        quantization,
        pooling=embedder.pooling,
        prompt=embedder.prompt,
    )
    typer.echo(
        f"{path}: its outputs differ from the model's by {difference:.1e} of the largest, the "
        f"cosine of the vectors is at least {cosine:.6f}"
    )


def _load_embedder(model: str, loading: dict[str, Any]) -> "DocumentEmbedder":
    """Return an embedder whose encoder and pooling make its vectors, on the CPU in float32."""
    from tmde.cli.models import load_embedder
    from tmde.embedding.export_check import check_can_be_exported

    embedder = load_embedder(model, device="cpu", dtype="float32", **loading)
    check_can_be_exported(embedder)
    return embedder


def _onnx_folder(model: str, output: Path | None) -> Path:
    """Return the folder to write to: that of the model, or one that holds no other model."""
    source = Path(model).expanduser()
    if output is None:
        if not source.is_dir():
            raise OptionError(f"{model} is not a folder; give --output, the folder to write to")
        return source
    if holds_weights(output) and output.resolve() != source.resolve():
        raise OptionError(f"--output {output} holds another model; give the name of a new folder")
    return output


@app.command()
@with_options(loading=model_options("prompt", "revision"))
def static(
    model: ModelArgument,
    output: Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="Folder to make.")],
    *,
    loading: dict[str, Any],
) -> None:
    """Write a bag as a table of vectors for sentence-transformers and model2vec.

    Nobody needs this package to open the folder. The packaged model is a bag:

        tmde export static default -o static

    In Python: `SentenceTransformer("static").encode("Guten Tag")`, or
    `StaticModel.from_pretrained("static").encode("Guten Tag")` with model2vec.

    A static model counts a token as often as it occurs. Where the model damps repeated tokens, as
    the packaged one does, vectors differ a little. The command measures this on the built-in sample
    and writes it into FOLDER/README.md.

    Every model of this package also opens as it is:
    SentenceTransformer(MODEL, trust_remote_code=True).
    """
    check_new(output)
    from tmde.cli.static_report import measure_static_export, write_static_card
    from tmde.embedding.export_static import export_static_embedding

    embedder = _load_embedder(model, loading)
    difference = export_static_embedding(
        embedder.model, embedder.tokenizer, output, prompt=embedder.prompt
    )
    report = measure_static_export(embedder, output, difference)
    write_static_card(model, embedder, output, report)
    typer.echo(f"{output}: a static model for sentence-transformers and model2vec")
    typer.echo(report.text())


@app.command()
def bag(
    encoder: Annotated[
        str,
        typer.Argument(
            metavar="ENCODER",
            help="Folder or Hub id of a text encoder.",
            callback=check_model_name,
        ),
    ],
    output: NewFolderOption,
    train: Annotated[list[str], Option(metavar="SOURCE", help="Parallel rows; repeatable.")],
    languages: RowLanguagesOption = None,
    columns: ColumnsOption = None,
    quoting: QuotingOption = None,
    vocab_size: Annotated[int, Option(min=1, help="Entries of the vocabulary.")] = 44_000,
    whole_words: Annotated[
        int, Option(min=0, help="How many of them are frequent words that the encoder splits.")
    ] = 8_000,
    width: Annotated[
        int | None, Option(min=1, help="Numbers of a vector. Default: the encoder's.")
    ] = None,
    lowercase: Annotated[
        bool, Option("--lowercase/--cased", help="Read all text in lower case.")
    ] = True,
) -> None:
    """Make a bag of an encoder's token vectors, as a checkpoint to train.

        tmde export bag intfloat/multilingual-e5-small -o runs/e5-bag --train corpus/

        tmde train default --train corpus/ --warm-start runs/e5-bag -o runs/bag

    A bag adds up weighted vectors of the tokens of a text. Here, the vector of a token is what the
    encoder makes of it alone. Tokens that the rows do not have are left out.

    For encoders with a Unigram (XLM-R) or WordPiece (BERT) vocabulary.
    """
    check_new(output)
    from tmde.data import load_parallel
    from tmde.data.io import write_atomically
    from tmde.hub_cards import describe_origins, describe_sources
    from tmde.training.encoder_bag import encoder_bag
    from tmde.training.starts.tokenizers import texts_by_language

    codes = languages.split(",") if languages else None
    rows = load_parallel(list(train), codes, columns=columns_of(columns), quoting=quoting)
    if codes is None:
        codes = sorted(rows.features["translation"])
    texts_of = texts_by_language(rows, codes, _BAG_CHARACTERS, seed=42)
    options: dict[str, Any] = {"languages": codes, "pivot_languages": []}
    if width is not None:
        options["d_model"] = width
    model, tokenizer = encoder_bag(
        encoder,
        chain.from_iterable(texts_of.values()),
        vocab_size=vocab_size,
        whole_words=whole_words,
        lowercase=lowercase,
        sublinear_counts=True,
        **options,
    )
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    # Cards of models that begin with the bag name the encoder and its license.
    record = {
        "sources": describe_sources(list(train)),
        **describe_origins({"warm_start": {"checkpoint": encoder}}),
    }
    write_atomically(output / "run.json", json.dumps(record, indent=2))
    typer.echo(
        f"{output}: a bag of {len(tokenizer):,} tokens and {model.config.d_model} numbers a vector"
    )


@app.command()
@with_options(loading=model_options("pooling", "prompt", "trust_remote_code", "revision"))
def vocabulary(
    model: ModelArgument,
    output: NewFolderOption,
    text: TextOption = None,
    field: FieldOption = None,
    train: RowsOption = None,
    languages: RowLanguagesOption = None,
    columns: ColumnsOption = None,
    quoting: QuotingOption = None,
    max_tokens: Annotated[
        int | None, Option(min=1, help="Most entries of the new vocabulary.")
    ] = None,
    min_count: Annotated[int, Option(min=1, help="Leave out tokens that occur less often.")] = 1,
    *,
    loading: dict[str, Any],
) -> None:
    """Cut the vocabulary of an encoder to the tokens of some texts, as a new checkpoint.

        tmde export vocabulary intfloat/multilingual-e5-small -o e5-de-en --train corpus/
        --languages de,en

    Special tokens, Latin letters and all characters of the texts stay. Texts of known tokens keep
    their vectors. The checkpoint carries the prompt, so that nobody has to remember it:

        tmde export vocabulary intfloat/multilingual-e5-small -o e5-news --text news.jsonl
        --prompt "query: "

    For encoders with a Unigram (XLM-R) or WordPiece (BERT) vocabulary; a decoder or a head is left
    out.
    """
    check_new(output)
    if not text and not train:
        raise OptionError("Found no texts to read; give --text FILE or --train SOURCE")
    from tmde.embedding.export_vocabulary import export_vocabulary

    embedder = _load_embedder(model, loading)
    size_before = len(embedder.tokenizer)
    texts = _texts_of(text or (), field, train or (), languages, columns_of(columns), quoting)
    size_after, difference = export_vocabulary(embedder, texts, output, max_tokens, min_count)
    typer.echo(
        f"{output}: {size_after:,} of {size_before:,} tokens; vectors of known tokens differ by "
        f"{difference:.1e} at most"
    )


def _texts_of(
    files: Sequence[str],
    field: list[str] | None,
    sources: Sequence[str],
    languages: str | None,
    columns: dict[str, str] | None,
    quoting: "Quoting | None",
) -> Iterator[str]:
    """Yield the texts of files of documents, then those of parallel rows in all their languages."""
    from tmde.data import load_parallel
    from tmde.data.documents import Documents

    with ExitStack() as stack:
        for file in files:
            documents = Documents(stack, file, None, field, False, _CHUNK_SIZE, quoting=quoting)
            for chunk in documents.chunks:
                yield from chunk.texts
    if not sources:
        return
    codes = languages.split(",") if languages else None
    rows = load_parallel(list(sources), codes, columns=columns, quoting=quoting)
    for batch in rows.iter(batch_size=1000):
        for row in batch["translation"]:
            yield from filter(None, row.values())
