"""`tmde embed`: a file or a pipe of documents in, a `.npy` or `.parquet` file of vectors out.

Shard i holds the result of the i-th `--shard-size` documents. With --resume, or in one of several processes of
`torchrun` or `accelerate launch`, shards are kept in `OUT.shards` until OUT is complete. Each process reads the whole
input and embeds every n-th shard; the first process joins them.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer
from filelock import FileLock, Timeout
from huggingface_hub import try_to_load_from_cache

from modeling_tmde import __version__
from modeling_tmde.cli.options import (
    LONG_OPTIONS,
    MODEL_OPTIONS,
    FieldOption,
    FormatOption,
    LanguageFieldOption,
    LanguageOption,
    ModelOption,
    OverwriteOption,
    check_output,
    load_embedder,
    with_options,
)
from modeling_tmde.data.documents import VECTOR_COLUMN, Chunk, Documents, open_documents
from modeling_tmde.data.io import replacing, write_atomically
from modeling_tmde.embedding import DocumentEmbedder

_SPEED = "Speed"  # a heading of the help


@with_options(**MODEL_OPTIONS, **LONG_OPTIONS)
def embed(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="File of documents, or - for stdin.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="File to write: .npy or .parquet.")],
    model: ModelOption,
    format: FormatOption = None,
    field: FieldOption = None,
    language: LanguageOption = None,
    language_field: LanguageFieldOption = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens in a batch. Default: 4,096 on a CPU, else 16,384.", rich_help_panel=_SPEED),
    ] = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="Use torch.compile; takes a minute at first.", rich_help_panel=_SPEED)
    ] = False,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale vectors to length 1.")] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Keep finished shards in OUT.shards until OUT is complete, and continue with those there."
        ),
    ] = False,
    shard_size: Annotated[
        int, typer.Option(min=1, help="Documents in memory at once, in a shard, and in a row group of parquet.")
    ] = 8192,
    overwrite: OverwriteOption = False,
    loading: dict[str, Any] = ...,
) -> None:
    """Embed documents: one vector a document, in the order of the input.

    Text input holds one document a line; an empty line is an empty document, so that row i is line i.
    Parquet output keeps the columns of the input and adds "embedding".

        tmde embed news.txt -o news.npy -m path/to/model

        zcat news.txt.gz | tmde embed - -o news.npy -m path/to/model

    Documents longer than the model takes, sentence by sentence; the mean of a document's sentences is its vector:

        tmde embed books.jsonl -o books.npy -m path/to/model --long-documents sentences

    Several processes share the shards of a file (one on each accelerator; on a CPU, set OMP_NUM_THREADS):

        torchrun --nproc-per-node 4 -m modeling_tmde.cli.main embed news.txt -o news.npy -m path/to/model

    After an interruption the same command continues at the first missing shard (of one process: with --resume).
    """
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    keep = resume or processes > 1
    if keep and (source == "-" or Path(source).is_fifo()):
        raise ValueError(f"{source} can be read once, by one process and without --resume; write it to a file")
    if language is not None and language_field is not None:
        raise ValueError("--language and --language-field exclude each other; give one of them")
    target = check_output(out, overwrite, (".npy", ".parquet"))
    folder = target.with_name(f"{target.name}.shards")
    if not keep and folder.exists():
        raise ValueError(f"{folder} holds shards of an unfinished run; give --resume to continue, or delete it")
    if processes > 1 and loading.get("device") in (None, "cuda") and torch.cuda.is_available():
        loading["device"] = f"cuda:{os.environ['LOCAL_RANK']}"

    def is_missing(number: int) -> bool:
        return number % processes == rank and not shards.path(number).exists()

    with ExitStack() as stack:
        if keep and rank == 0:
            try:
                stack.enter_context(FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0))
            except Timeout:
                raise ValueError(f"another run is writing shards into {folder}; give another --output") from None
        elif not keep:
            temporary = tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.")
            folder = Path(stack.enter_context(temporary))
        shards = _Shards(folder, target.suffix)
        documents = open_documents(
            stack, source, format, field, target.suffix == ".parquet", shard_size, language_field
        )  # fmt: skip
        if documents.schema is not None and VECTOR_COLUMN in documents.schema.names:
            raise ValueError(f"{documents.name} has a column {VECTOR_COLUMN!r} already; write to .npy, or rename it")
        embedder = load_embedder(model, compile=compile, **loading)

        def describe() -> dict[str, Any]:
            status = Path(source).stat()
            options = loading | embedder.long_document_settings | {
                "pooling": embedder.pooling, "max_length": embedder.max_length, "batch_tokens": batch_tokens,
                "normalize": normalize, "language": language, "language_field": language_field, "field": field,
                "shard_size": shard_size, "compile": compile,
                "device": None, "input": str(Path(source).resolve()), "input size": status.st_size,
                "input's last change": status.st_mtime_ns, "model": model, "output": target.suffix,
                "model version": _version_of(model, loading.get("revision")), "tmde": __version__,
            }  # fmt: skip
            return {name: str(value) for name, value in options.items()}

        if keep:
            run = describe()
            shards.start(run, rank, overwrite)
        start = time.perf_counter()
        encoding = {"chunk_size": shard_size, "batch_tokens": batch_tokens, "normalize": normalize}
        encoding["show_progress_bar"] = True
        sizes = _embed_shards(embedder, documents, shards, is_missing, language, language_field, **encoding)
        report, seconds = embedder.last_report, time.perf_counter() - start
        process = f"process {rank} of {processes}: " if processes > 1 else ""
        split = f", {report.split:,} split, {report.pieces:,} pieces in all" if report.split else ""
        typer.echo(
            f"{process}{report.texts:,} texts ({report.tokens:,} tokens, {report.truncated:,} truncated{split}) in "
            f"{seconds:.1f} s, {report.texts / seconds:,.0f} texts/s",
            err=True,
        )
        if rank:
            return
        while not all(shards.path(number).exists() for number in range(len(sizes))):
            time.sleep(0.2)  # for the other processes; the launcher ends this one if one of them fails
        if keep and describe() != run:
            raise ValueError(f"{documents.name} or the model has changed since the start; --overwrite starts again")
        try:
            shards.join(target, sizes, embedder.dimension, documents.schema)
        except OSError as error:
            raise ValueError(f"--output {out}: {error.strerror or error}") from error
        if keep:
            shutil.rmtree(folder)
    typer.echo(f"{out}: {sum(sizes):,} x {embedder.dimension} float32", err=True)


class _Shards:
    """A folder of shards: `.npy` files of vectors, or `.parquet` files of the input's columns and the vectors."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder, self.suffix = folder, suffix

    def path(self, number: int) -> Path:
        return self.folder / f"{number:08d}{self.suffix}"

    def start(self, run: dict[str, Any], rank: int, overwrite: bool) -> None:
        """Makes the folder, or continues with it if it is of the same run; all but the first process wait for that.

        Raises:
            ValueError: The folder holds shards of another run.
        """
        manifest = self.folder / "manifest.json"

        def found() -> dict[str, Any]:
            return json.loads(manifest.read_text(encoding="utf-8")) if manifest.exists() else {}

        while rank and found() != run:
            time.sleep(0.1)
        other = found()
        if other == run:
            return
        if self.folder.exists() and any(self.folder.iterdir()):
            if not overwrite:
                name = next((name for name in run if other.get(name) != run[name]), "run")
                raise ValueError(
                    f"{self.folder} holds shards of another run: its {name} is {other.get(name)!r}, now it is "
                    f"{run[name]!r}; give --overwrite to delete them, or another --output"
                )
            shutil.rmtree(self.folder)
        self.folder.mkdir(exist_ok=True)
        write_atomically(manifest, json.dumps(run, indent=2))

    def write(self, number: int, vectors: np.ndarray, columns: pa.Table | None) -> None:
        """Writes one shard, whole or not at all: vectors (rows, d) and the columns of the input that are kept."""
        with replacing(self.path(number)) as path:
            if columns is None:
                np.save(path, vectors)
            else:
                column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
                pq.write_table(columns.append_column(VECTOR_COLUMN, column), path)

    def join(self, target: Path, sizes: list[int], dimension: int, schema: pa.Schema | None) -> None:
        """Writes all shards, in order, to one file."""
        with replacing(target) as path:
            if self.suffix == ".npy":
                with open(path, "wb") as file:
                    shape = (sum(sizes), dimension)
                    np.lib.format.write_array_header_1_0(
                        file, {"descr": "<f4", "fortran_order": False, "shape": shape}
                    )
                    for number in range(len(sizes)):
                        file.write(np.load(self.path(number)).astype("<f4", copy=False).data)
            else:
                vectors = pa.field(VECTOR_COLUMN, pa.list_(pa.float32(), dimension))
                with pq.ParquetWriter(path, schema.append(vectors)) as writer:
                    for number in range(len(sizes)):
                        writer.write_table(pq.read_table(self.path(number)).cast(writer.schema))


def _embed_shards(
    embedder: DocumentEmbedder,
    documents: Documents,
    shards: _Shards,
    is_missing: Callable[[int], bool],
    language: str | None,
    language_field: str | None,
    **encoding: Any,
) -> list[int]:
    """Writes the shards that are missing; returns the rows of every chunk."""
    sizes: list[int] = []
    pending: deque[tuple[int, pa.Table | None]] = deque()
    codes: deque[str] = deque()

    def texts() -> Iterator[str]:
        for number, chunk in enumerate(documents.chunks):
            sizes.append(len(chunk.texts))
            if is_missing(number):
                pending.append((number, chunk.columns))
                codes.extend(_languages_of(chunk, documents, embedder, language_field))
                yield from chunk.texts

    # All chunks but the last have `chunk_size` rows, so that vectors come chunk by chunk.
    given = language if language_field is None else iter(lambda: codes.popleft() if codes else None, None)
    for vectors in embedder.encode_iter(texts(), total=documents.rows, language=given, **encoding):
        number, columns = pending.popleft()
        shards.write(number, vectors, columns)
    return sizes


def _languages_of(
    chunk: Chunk, documents: Documents, embedder: DocumentEmbedder, language_field: str | None
) -> list[str]:
    """
    Raises:
        ValueError: The model needs a language and does not know this one; names file, row and field.
    """
    codes = chunk.languages or []
    if embedder.needs_language:
        known = list(embedder.model.config.languages)
        for number, code in zip(chunk.numbers, codes, strict=False):
            if code not in known:
                place = documents.place(number, language_field)
                raise ValueError(f"{place}: found {code!r}, expected one of the model's languages: {', '.join(known)}")
    return codes


def _version_of(model: str, revision: str | None) -> str:
    """Changes when a file of the model does."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return str(try_to_load_from_cache(model, "config.json", revision=revision))  # its path names the commit
    files = sorted(path for path in folder.iterdir() if path.is_file())
    status = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(status).encode()).hexdigest()[:16]
