"""`tmde embed`: a file or a pipe of documents in, a `.npy` or `.parquet` file of vectors out."""

from __future__ import annotations

import time
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from modeling_tmde.cli.embed_shards import Outcome, ShardFolder, embed_in_shards
from modeling_tmde.cli.embedder_options import (
    AggregationOption,
    DeviceOption,
    DtypeOption,
    LongDocumentsOption,
    MaxLengthOption,
    ModelOption,
    PoolingOption,
    RevisionOption,
    StrideOption,
    TrustRemoteCodeOption,
    WindowOption,
    long_document_options,
)
from modeling_tmde.cli.embedding_job import EmbeddingJob, embed_chunks, load_embedder, stderr_is_terminal
from modeling_tmde.cli.processes import OtherProcessFailed, joined_processes, process_count
from modeling_tmde.cli.vector_files import check_output, replacing, vector_writer
from modeling_tmde.data.documents import EmbedError, InputFormat

SHARD_SIZE = 8192
_SPEED = "Speed"  # a heading of the help


class Backend(str, Enum):
    torch = "torch"
    onnx = "onnx"


class Quantization(str, Enum):
    int8 = "int8"


def embed(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="File of documents, or - for stdin.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="File to write: .npy or .parquet.")],
    model: ModelOption,
    format: Annotated[InputFormat | None, typer.Option(help="Default: by INPUT's suffix; text for stdin.")] = None,
    field: Annotated[str | None, typer.Option(help="JSONL field or parquet column to embed. Default: text.")] = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="Code of the documents' language, such as de: for a model with an encoder for each one, and for the "
            "ends of sentences."
        ),
    ] = None,
    language_field: Annotated[
        str | None, typer.Option(help="JSONL field or parquet column with the language of each document.")
    ] = None,
    pooling: PoolingOption = None,
    max_length: MaxLengthOption = None,
    long_documents: LongDocumentsOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    aggregation: AggregationOption = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens in a batch. Default: 4,096 on a CPU, else 16,384.", rich_help_panel=_SPEED),
    ] = None,
    dtype: DtypeOption = None,
    backend: Annotated[
        Backend, typer.Option(help="What runs the model; onnx: ONNX Runtime.", rich_help_panel=_SPEED)
    ] = Backend.torch,
    quantization: Annotated[
        Quantization | None,
        typer.Option(help="int8: weights of 8 bits; with torch on a CPU only.", rich_help_panel=_SPEED),
    ] = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="Use torch.compile; takes a minute at first.", rich_help_panel=_SPEED)
    ] = False,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale vectors to length 1.")] = False,
    device: DeviceOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    revision: RevisionOption = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Keep finished shards in OUT.shards until OUT is complete, and go on with those there."
        ),
    ] = False,
    shard_size: Annotated[
        int, typer.Option(min=1, help="Documents in memory at once, in a shard, and in a row group of parquet.")
    ] = SHARD_SIZE,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUT if it exists, and shards of another run.")
    ] = False,
) -> None:
    """Embed documents: one vector a document, in the order of the input.

    Text input holds one document a line; an empty line is an empty document, so that row i is line i.
    Parquet output keeps the columns of the input and adds "embedding".

        tmde embed news.txt -o news.npy -m path/to/model

        zcat news.txt.gz | tmde embed - -o news.npy -m path/to/model

    Documents longer than the model takes, sentence by sentence; the mean of a document's sentences is its vector:

        tmde embed books.jsonl -o books.npy -m path/to/model --long-documents sentences

    Several processes share the shards of a file (on each accelerator one; of a CPU, set OMP_NUM_THREADS):

        torchrun --nproc-per-node 4 -m modeling_tmde.cli.main embed news.txt -o news.npy -m path/to/model

        accelerate launch --multi_gpu --num_processes 4 -m modeling_tmde.cli.main embed news.txt ...

    After an interruption the same command goes on at the first missing shard (of one process: with --resume).
    """
    loading = {"pooling": pooling and pooling.value, "max_length": max_length, "dtype": dtype and dtype.value}
    loading |= {"backend": backend.value, "quantization": quantization and quantization.value, "compile": compile}
    loading |= {"trust_remote_code": trust_remote_code, "revision": revision}
    encoding = {"batch_tokens": batch_tokens, "normalize": normalize}
    try:
        loading |= long_document_options(long_documents, window, stride, aggregation)
        job = EmbeddingJob(
            source, out, model, format, field, shard_size, overwrite, device, loading, encoding, language,
            language_field,
        )  # fmt: skip
        if resume or process_count() > 1:
            with joined_processes() as processes:
                outcome = embed_in_shards(job, processes)
        else:
            outcome = _embed_directly(job)
    except EmbedError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    except OtherProcessFailed as error:
        if str(error):
            typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    if outcome is not None:
        _summarise(outcome, out)


def _embed_directly(job: EmbeddingJob) -> Outcome:
    with ExitStack() as stack:
        target = check_output(job.out, job.overwrite)
        if (shards := ShardFolder(target).path).exists():
            raise EmbedError(f"{shards} holds shards of an unfinished run; give --resume to go on, or delete it")
        documents = job.open(stack, keep_columns=target.suffix == ".parquet")
        bar = stderr_is_terminal()
        embedder = load_embedder(job, job.device, bar)
        start = time.perf_counter()
        try:
            with (
                replacing(target) as file,
                vector_writer(target, file, embedder.dimension, documents.schema) as writer,
            ):
                sizes = embed_chunks(
                    job, embedder, documents, lambda _, *rows: writer.write(*rows), bar, documents.rows
                )
        except OSError as error:
            raise EmbedError(f"--output {job.out}: {error.strerror or error}") from None
        return Outcome(embedder.last_report, sum(sizes), embedder.dimension, time.perf_counter() - start)


def _summarise(outcome: Outcome, out: Path) -> None:
    report, seconds = outcome.report, outcome.seconds
    before = outcome.rows - report.texts
    long = f"{report.truncated:,} truncated"
    if report.split:
        pieces = report.pieces - (report.texts - report.split)
        long += f", {report.split:,} split into {pieces:,} pieces"
    typer.echo(
        f"{report.texts:,} texts ({report.tokens:,} tokens, {long}) in {seconds:.1f} s, "
        f"{report.texts / seconds:,.0f} texts/s{f'; {before:,} were done before' if before else ''} -> {out} "
        f"({outcome.rows} x {outcome.dimension} float32)",
        err=True,
    )
