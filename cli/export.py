"""`tmde export`: a model converted for other software."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords
from tmde.cli.errors import OptionError
from tmde.embedding.hub_names import holds_weights

_CHUNK_SIZE = 8192  # documents that are read at once

EncoderArgument = Annotated[
    str,
    Argument(
        metavar="ENCODER",
        help="Folder or Hub id of a text encoder.",
        callback=common.check_model_name,
    ),
]
NewFolderOption = Annotated[
    Path, Option("--output", "-o", metavar="FOLDER", help="Folder to create.")
]
RowLanguagesOption = Annotated[
    str | None,
    Option("--languages", help="Languages of the parallel text, such as de,en. Default: all."),
]

app = typer.Typer(no_args_is_help=True, help="Convert a model for other software.")


@dataclass(kw_only=True)
class LoadingOptions:
    """How an encoder is loaded."""

    pooling: common.PoolingOption = None
    prompt: common.PromptOption = None
    trust_remote_code: common.TrustRemoteCodeOption = False
    revision: common.RevisionOption = None


# ---- A graph


@dataclass(kw_only=True)
class OnnxOptions(LoadingOptions):
    """The options of `tmde export onnx`."""

    model: common.ModelArgument
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FOLDER", help="Folder to write. Default: MODEL."),
    ] = None
    quantization: Annotated[
        Literal["int8"] | None, Option(help="int8 quantizes the weights to 8 bits.")
    ] = None


@app.command()
@command(OnnxOptions)
def onnx(options: OnnxOptions) -> None:
    """Export a model as an ONNX graph: FOLDER/onnx/model.onnx or model_int8.onnx.

    The graph accepts batches of any size and length, and runs without torch. Its outputs are
    last_hidden_state and sentence_embedding, the vector. The export is compared with the model on
    texts in six languages. It fails if float32 outputs differ by more than 1e-4, or if the cosine
    of an int8 vector with the model's is below 0.9.

        tmde export onnx runs/tmde

    Another folder also receives the files that text-embeddings-inference, transformers.js and
    fastembed require:

        tmde export onnx default -o served

        tmde export onnx default -o served --quantization int8

    This requires the `onnx` extra.
    """
    folder = _onnx_folder(options.model, options.output)
    from tmde.embedding.export_check import open_exportable
    from tmde.embedding.export_onnx import export_onnx

    embedder = open_exportable(options.model, keywords(options, LoadingOptions))
    path, difference, cosine = export_onnx(
        embedder.model,
        embedder.tokenizer,
        folder,
        options.quantization,
        pooling=embedder.pooling,
        prompt=embedder.prompt,
    )
    typer.echo(
        f"{path}: largest relative difference from the model's outputs {difference:.1e}, lowest "
        f"cosine {cosine:.6f}"
    )


def _onnx_folder(model: str, output: Path | None) -> Path:
    """Return the output folder: the model's own, or one without another model."""
    source = Path(model).expanduser()
    if output is None:
        if not source.is_dir():
            raise OptionError(f"{model} is not a folder; set the folder to write to with --output")
        return source
    if holds_weights(output) and output.resolve() != source.resolve():
        raise OptionError(f"--output {output} contains another model; choose a new folder")
    return output


# ---- A table of vectors


@dataclass(kw_only=True)
class StaticOptions:
    """The options of `tmde export static`."""

    model: common.ModelArgument
    output: NewFolderOption
    prompt: common.PromptOption = None
    revision: common.RevisionOption = None


@app.command()
@command(StaticOptions)
def static(options: StaticOptions) -> None:
    """Export a bag as a static model for sentence-transformers and model2vec.

    Loading the folder does not require tmde. The packaged `default` model is a bag:

        tmde export static default -o static

    In Python: `SentenceTransformer("static").encode("Guten Tag")`, or
    `StaticModel.from_pretrained("static").encode("Guten Tag")` with model2vec.

    A static model counts every occurrence of a token. If the model dampens repeated tokens, as
    `default` does, the vectors differ slightly. The command evaluates the difference on the
    built-in sample and reports it in FOLDER/README.md.

    Every tmde model also loads without export: SentenceTransformer(MODEL, trust_remote_code=True).
    """
    common.check_new(options.output)
    from tmde.eval.static_report import export_static

    loading = keywords(options, StaticOptions, without=("model", "output"))
    report = export_static(options.model, options.output, loading)
    typer.echo(f"{options.output}: a static model for sentence-transformers and model2vec")
    typer.echo(report.text())


# ---- A bag


@dataclass(kw_only=True)
class BagOptions:
    """The options of `tmde export bag`."""

    encoder: EncoderArgument
    output: NewFolderOption
    train: Annotated[list[str], Option(metavar="SOURCE", help="Parallel text. Repeatable.")]
    languages: RowLanguagesOption = None
    columns: common.ColumnsOption = None
    quoting: common.QuotingOption = None
    vocab_size: Annotated[int, Option(min=1, help="Size of the vocabulary.")] = 44_000
    whole_words: Annotated[
        int,
        Option(min=0, help="Number of entries for frequent words that the encoder splits."),
    ] = 8_000
    width: Annotated[
        int | None, Option(min=1, help="Width of the vectors. Default: the encoder's.")
    ] = None
    lowercase: Annotated[bool, Option("--lowercase/--cased", help="Lowercase all text.")] = True


@app.command()
@command(BagOptions)
def bag(options: BagOptions) -> None:
    """Build a bag from an encoder's token vectors, as a checkpoint to train.

        tmde export bag intfloat/multilingual-e5-small -o runs/e5-bag --train corpus/

        tmde train default --train corpus/ --warm-start runs/e5-bag -o runs/bag

    A bag is the weighted sum of a text's token vectors. Here, each token's vector is the encoder's
    output for that token alone. Tokens that do not occur in the --train text are dropped.

    This works for encoders with a Unigram (XLM-R) or WordPiece (BERT) vocabulary.
    """
    common.check_new(options.output)
    columns = common.columns_of(options.columns)
    from tmde.training.encoder_bag import export_bag

    model = export_bag(
        languages=_codes_of(options.languages),
        columns=columns,
        **keywords(options, BagOptions, without=("languages", "columns")),
    )
    typer.echo(
        f"{options.output}: a bag of {model.config.vocab_size:,} tokens and "
        f"{model.config.d_model} dimensions"
    )


# ---- Fewer tokens


@dataclass(kw_only=True)
class VocabularyOptions(LoadingOptions):
    """The options of `tmde export vocabulary`."""

    model: common.ModelArgument
    output: NewFolderOption
    text: Annotated[
        list[str] | None,
        Option(metavar="FILE", help="File or folder of documents to read. Repeatable."),
    ] = None
    field: common.FieldOption = None
    train: Annotated[
        list[str] | None, Option(metavar="SOURCE", help="Parallel text to read. Repeatable.")
    ] = None
    languages: RowLanguagesOption = None
    columns: common.ColumnsOption = None
    quoting: common.QuotingOption = None
    max_tokens: Annotated[int | None, Option(min=1, help="Maximum size of the new vocabulary.")] = (
        None
    )
    min_count: Annotated[int, Option(min=1, help="Drop tokens that occur less often.")] = 1


@app.command()
@command(VocabularyOptions)
def vocabulary(options: VocabularyOptions) -> None:
    """Reduce an encoder's vocabulary to the tokens in given texts, as a new checkpoint.

        tmde export vocabulary intfloat/multilingual-e5-small -o e5-de-en --train corpus/
        --languages de,en

    Special tokens, Latin letters and all characters in the texts are kept. The vectors of texts
    that contain only kept tokens don't change. The checkpoint can store the prompt:

        tmde export vocabulary intfloat/multilingual-e5-small -o e5-news --text news.jsonl
        --prompt "query: "

    This works for encoders with a Unigram (XLM-R) or WordPiece (BERT) vocabulary. Decoders and
    heads are dropped.
    """
    common.check_new(options.output)
    if not options.text and not options.train:
        raise OptionError("Found no texts; give --text FILE or --train SOURCE")
    common.check_sources(*(options.text or []))
    columns = common.columns_of(options.columns)
    from tmde.embedding.export_check import open_exportable
    from tmde.embedding.export_vocabulary import export_vocabulary

    embedder = open_exportable(options.model, keywords(options, LoadingOptions))
    size_before = len(embedder.tokenizer)
    size_after, difference = export_vocabulary(
        embedder,
        _texts_of(options, columns),
        options.output,
        options.max_tokens,
        options.min_count,
    )
    typer.echo(
        f"{options.output}: {size_after:,} of {size_before:,} tokens; vectors of kept tokens "
        f"differ by at most {difference:.1e}"
    )


def _texts_of(options: VocabularyOptions, columns: dict[str, str] | None) -> Iterator[str]:
    """Yield the texts of files of documents, then those of parallel rows in all their languages."""
    from tmde.data import load_parallel
    from tmde.data.documents import Documents

    with ExitStack() as stack:
        for file in options.text or []:
            documents = Documents(
                stack, file, None, options.field, False, _CHUNK_SIZE, quoting=options.quoting
            )
            for chunk in documents.chunks:
                yield from chunk.texts
    if not options.train:
        return
    rows = load_parallel(
        options.train,
        _codes_of(options.languages),
        columns=columns,
        quoting=options.quoting,
    )
    for batch in rows.iter(batch_size=1000):
        for row in batch["translation"]:
            yield from filter(None, row.values())


def _codes_of(languages: str | None) -> list[str] | None:
    """Return the languages of `--languages`; None without the option."""
    return languages.split(",") if languages else None
