"""`tmde export`: a model written in another form, for other software to run."""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from tmde.cli.errors import OptionError
from tmde.cli.options import (
    ColumnsOption,
    FieldOption,
    ModelArgument,
    check_new,
    columns_of,
    model_options,
    with_options,
)
from tmde.embedding.weight_files import holds_weights

if TYPE_CHECKING:
    from tmde.embedding.document_embedder import DocumentEmbedder

_CHUNK_SIZE = 8192  # documents that are read at once
# Chosen on development data, see docs/experiments.md.
_WHITENING_POWER = 0.6

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
@with_options(loading=model_options("pooling", "prompt", "trust_remote_code", "revision"))
def vocabulary(
    model: ModelArgument,
    output: NewFolderOption,
    text: TextOption = None,
    field: FieldOption = None,
    train: RowsOption = None,
    languages: RowLanguagesOption = None,
    columns: ColumnsOption = None,
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
    texts = _texts_of(text or (), field, train or (), languages, columns_of(columns))
    size_after, difference = export_vocabulary(embedder, texts, output, max_tokens, min_count)
    typer.echo(
        f"{output}: {size_after:,} of {size_before:,} tokens; vectors of known tokens differ by "
        f"{difference:.1e} at most"
    )


@app.command()
@with_options(loading=model_options("prompt", "trust_remote_code", "revision"))
def whitened(
    model: ModelArgument,
    output: NewFolderOption,
    train: Annotated[list[str], Option(metavar="SOURCE", help="Parallel rows; repeatable.")],
    languages: RowLanguagesOption = None,
    columns: ColumnsOption = None,
    pairs: Annotated[int, Option(min=1, help="Rows that are read at most.")] = 20_000,
    power: Annotated[
        float, Option(min=0.0, max=1.0, help="0 changes nothing, 1 whitens wholly.")
    ] = _WHITENING_POWER,
    seed: Annotated[int, Option(help="Of the choice of rows.")] = 0,
    *,
    loading: dict[str, Any],
) -> None:
    """Write a bag whose vectors depend less on what translations do not share.

        tmde export whitened runs/bag -o runs/whitened --train corpus/

    Directions in which the vectors of translations differ become shorter, and the others longer.
    Questions then find their paragraphs more often, and similarities are closer to those that
    people see. Embedding is as fast as before.

    For models of the recipes bag and default, after training. The corpus may be that of the
    training.
    """
    check_new(output)
    from tmde.embedding.export_whitened import bag_of, export_whitened

    embedder = _load_embedder(model, loading)
    bag_of(embedder)  # An encoder is refused before the rows are read.
    codes = languages.split(",") if languages else None
    translations = _draw_pairs(train, codes, columns_of(columns), pairs, seed)
    export_whitened(embedder, translations, output, power)
    typer.echo(f"{output}: whitened by {len(translations):,} pairs of translations")


@app.command()
@with_options(loading=model_options("prompt", "trust_remote_code", "revision"))
def pca(
    model: ModelArgument,
    output: NewFolderOption,
    text: TextOption = None,
    field: FieldOption = None,
    train: RowsOption = None,
    languages: RowLanguagesOption = None,
    columns: ColumnsOption = None,
    samples: Annotated[int, Option(min=1, help="Texts that are drawn at most.")] = 5_000,
    seed: Annotated[int, Option(help="Of the choice of texts.")] = 0,
    *,
    loading: dict[str, Any],
) -> None:
    """Rotate the vectors of a model, so that those of texts like yours can be cut.

        tmde export pca accurate -o runs/sorted --text documents.jsonl

    The new axes are the principal components of the vectors of your texts. Whole vectors have the
    same cosines as before. The first numbers of a vector (--truncate-dim) hold most of it, for
    texts of that kind.

    For bags and for encoders of the recipe adapted, after training.
    """
    check_new(output)
    if not text and not train:
        raise OptionError("Found no texts to read; give --text FILE or --train SOURCE")
    from tmde.embedding.export_pca import export_pca, rotatable_model

    embedder = _load_embedder(model, loading)
    rotatable_model(embedder)  # Another model is refused before the texts are read.
    texts = _texts_of(text or (), field, train or (), languages, columns_of(columns))
    drawn_texts = _draw(texts, samples, seed)
    export_pca(embedder, drawn_texts, output)
    typer.echo(f"{output}: rotated to the principal components of {len(drawn_texts):,} texts")


def _draw(texts: Iterator[str], count: int, seed: int) -> list[str]:
    """Return some of the texts, each with the same probability, or all if they are fewer."""
    generator = random.Random(seed)
    drawn: list[str] = []
    for position, text in enumerate(texts):
        if position < count:
            drawn.append(text)
            continue
        # Reservoir sampling: the texts are read once, and only the drawn ones are kept.
        place = generator.randrange(position + 1)
        if place < count:
            drawn[place] = text
    return drawn


def _draw_pairs(
    sources: Sequence[str],
    languages: list[str] | None,
    columns: dict[str, str] | None,
    count: int,
    seed: int,
) -> list[tuple[str, str]]:
    """Return two texts of each of some parallel rows, in languages drawn at random."""
    from tmde.data import load_parallel

    generator = random.Random(seed)
    rows = load_parallel(list(sources), languages, columns=columns)
    order = list(range(len(rows)))
    generator.shuffle(order)
    pairs = []
    for row in rows.select(order[:count])["translation"]:
        texts = list(filter(None, row.values()))
        if len(texts) >= 2:
            first, second = generator.sample(texts, 2)
            pairs.append((first, second))
    return pairs


def _texts_of(
    files: Sequence[str],
    field: list[str] | None,
    sources: Sequence[str],
    languages: str | None,
    columns: dict[str, str] | None,
) -> Iterator[str]:
    """Yield the texts of files of documents, then those of parallel rows in all their languages."""
    from tmde.data import load_parallel
    from tmde.data.documents import Documents

    with ExitStack() as stack:
        for file in files:
            documents = Documents(stack, file, None, field, False, _CHUNK_SIZE)
            for chunk in documents.chunks:
                yield from chunk.texts
    if not sources:
        return
    codes = languages.split(",") if languages else None
    rows = load_parallel(list(sources), codes, columns=columns)
    for batch in rows.iter(batch_size=1000):
        for row in batch["translation"]:
            yield from filter(None, row.values())
