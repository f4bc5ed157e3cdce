"""The work of `tmde embed`: a file of documents is embedded in shards, which are joined at the end.

Shard i holds the result of the i-th `shard_size` documents. With `resume`, or in one of several
processes, shards are kept in `OUT.shards` until OUT is complete. Each process reads the whole input
and embeds every n-th shard; the first process joins them.
"""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer

from modeling_tmde import TmdeError
from tmde import __version__
from tmde.cli.language_columns import named_like_language, tell_language_folders
from tmde.cli.models import load_embedder, without_truncation_warnings
from tmde.cli.options import check_output
from tmde.cli.shards import SHARDS_OF_SUFFIX, Shards
from tmde.data.delimited import Quoting
from tmde.data.documents import VECTOR_COLUMN, Chunk, Documents, InputFormat
from tmde.data.io import locked
from tmde.data.languages import known_code, language_of_locale
from tmde.embedding import DocumentEmbedder, EncodeReport
from tmde.embedding.progress import progress_bar
from tmde.embedding.quantization import PACKED, restored

# How much of a file that exists is embedded again to see whether it is complete.
CHECKED_CHUNKS = 4
CHECKED_DOCUMENTS = 8
# The largest distance of two vectors of one text, over their length; for signs, the largest share
# that differs. In bfloat16, other batches make the distance 0.03, which turns one sign in a
# hundred. Another model or text makes the distance about 1, and turns half of the signs.
LARGEST_DIFFERENCE = 0.05


@dataclass(frozen=True)
class EmbedJob:
    """What `tmde embed` was asked for; the fields are its arguments and options.

    Attributes:
        loading: The arguments of `load_embedder`.
    """

    source: str
    output: Path
    model: str
    loading: dict[str, Any]
    format: InputFormat | None
    quoting: Quoting | None
    field: list[str] | None
    language: str | None
    language_field: str | None
    batch_tokens: int | None
    normalize: bool
    truncate_dim: int | None
    precision: str
    resume: bool
    shard_size: int
    overwrite: bool

    @property
    def encode_options(self) -> dict[str, Any]:
        """The arguments of `encode` that are the same for all documents."""
        return {
            "batch_tokens": self.batch_tokens,
            "show_progress_bar": False,
            "normalize": self.normalize,
            "truncate_dim": self.truncate_dim,
            "precision": self.precision,
        }


@dataclass(frozen=True)
class Worker:
    """One of the processes that share a file, which the launcher names in the environment.

    Attributes:
        rank: The number of this process, from 0.
        processes: How many processes there are.
    """

    rank: int
    processes: int

    @classmethod
    def from_environment(cls) -> "Worker":
        """Return the process that this one is; the only one if there is no launcher."""
        rank = int(os.environ.get("RANK", 0))
        processes = int(os.environ.get("WORLD_SIZE", 1))
        return cls(rank, processes)

    @property
    def is_alone(self) -> bool:
        """Whether no other process takes part."""
        return self.processes == 1

    @property
    def is_first(self) -> bool:
        """Whether this process prepares the folder of shards and joins them."""
        return self.rank == 0

    def device(self, asked: str | None) -> str | None:
        """Return the device of this process: a GPU of its own, unless another kind is asked for."""
        if self.is_alone or asked not in (None, "cuda") or not torch.cuda.is_available():
            return asked
        return f"cuda:{os.environ['LOCAL_RANK']}"


def embed_file(job: EmbedJob) -> None:
    """Embed the documents of a file, and print what was done.

    Raises:
        TmdeError: Input, output, model or options cannot be used.
    """
    worker = Worker.from_environment()
    keeps_shards = job.resume or not worker.is_alone
    if keeps_shards:
        _check_can_be_read_twice(job.source)
    folder = Path(f"{job.output.resolve()}.shards")
    may_be_complete = keeps_shards and not job.overwrite and not folder.exists()
    if may_be_complete and job.output.is_file():
        check_complete(job, worker)
        return
    target = _check_output(job, worker, is_unfinished=keeps_shards and folder.exists())
    if folder.exists() and not keeps_shards:
        raise TmdeError(
            f"{folder} holds shards of an unfinished run; give --resume to continue, or delete it"
        )
    loading = job.loading | {"device": worker.device(job.loading.get("device"))}
    with ExitStack() as stack:
        if not keeps_shards:
            prefix = f".{target.name}."
            folder = Path(stack.enter_context(TemporaryDirectory(dir=target.parent, prefix=prefix)))
        elif worker.is_first:
            stack.enter_context(locked(folder))
        documents = _open_documents(stack, job, target.suffix)
        embedder = load_embedder(job.model, **loading)
        width, dtype = _kind_of_vectors(job, embedder)
        schema = documents.schema if target.suffix == ".parquet" else pa.schema([])
        shards = SHARDS_OF_SUFFIX[target.suffix](folder, schema, width, dtype)
        if keeps_shards:
            settings = _describe_run(job, documents, embedder, target.suffix)
            if worker.is_first:
                shards.begin(settings, job.overwrite)
            else:
                shards.wait_for_begin(settings)
        sizes = _embed_missing_shards(job, worker, documents, embedder, shards)
        if not worker.is_first:
            shards.report_done(worker.rank)
            return
        shards.wait_for_others(worker.processes)
        shards.join(sizes, target)
        if keeps_shards:
            shards.delete()
    typer.echo(f"{job.output}: {sum(sizes):,} x {width} {dtype}", err=True)


def _kind_of_vectors(job: EmbedJob, embedder: DocumentEmbedder) -> tuple[int, np.dtype]:
    """Return how many numbers a vector of the file has, and their type.

    Raises:
        TmdeError: The options exclude the model.
    """
    no_vectors = np.asarray(embedder.encode([], **job.encode_options))
    return no_vectors.shape[1], no_vectors.dtype


# ---- A file that is complete already


def check_complete(job: EmbedJob, worker: Worker) -> None:
    """Say that a file of vectors is complete, as after a kill at the very end, or refuse it.

    Nothing beside the file tells from which run it is. So the number of its rows is compared with
    that of the documents, and some documents are embedded again.

    Args:
        job: What `tmde embed` was asked for; its output exists, without shards.
        worker: This process.

    Raises:
        TmdeError: The file is not what the command would write.
    """
    target = check_output(job.output, True, tuple(SHARDS_OF_SUFFIX))
    stored = read_vectors(target)
    loading = job.loading | {"device": worker.device(job.loading.get("device"))}
    with ExitStack() as stack:
        documents = _open_documents(stack, job, target.suffix)
        if _last_change(job.source, documents.files) > target.stat().st_mtime_ns:
            raise _other_output(job, f"{job.source} has changed since")
        embedder = load_embedder(job.model, **loading)
        width, dtype = _kind_of_vectors(job, embedder)
        if stored.ndim != 2 or stored.shape[1] != width:
            raise _other_output(job, f"its vectors have another length than {width}")
        if stored.dtype != dtype:
            raise _other_output(job, f"its numbers are {stored.dtype}, expected {dtype}")
        rows = _compare_rows(job, documents, embedder, stored)
    if rows != len(stored):
        raise _other_output(job, f"it holds {len(stored):,} vectors of {rows:,} documents")
    if worker.is_first:
        typer.echo(f"{job.output} is already complete: {rows:,} x {width}", err=True)


def read_vectors(path: Path) -> np.ndarray:
    """Return the vectors of a file that `tmde embed` wrote, (documents, dimension).

    Raises:
        TmdeError: It is not such a file.
    """
    try:
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r")
        column = pq.read_table(path, columns=[VECTOR_COLUMN])[VECTOR_COLUMN].combine_chunks()
        if not pa.types.is_fixed_size_list(column.type):
            raise ValueError(f"{VECTOR_COLUMN} is {column.type}, and no list of a fixed size")
        return column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise TmdeError(
            f"{path} exists and holds no vectors of tmde embed ({error}); give --overwrite to "
            "replace it"
        ) from error


def _compare_rows(
    job: EmbedJob, documents: Documents, embedder: DocumentEmbedder, stored: np.ndarray
) -> int:
    """Embed the first documents of the first chunks again, and return the number of documents.

    Raises:
        TmdeError: A stored vector is another one.
    """
    known_languages = embedder.model.config.languages if embedder.needs_language else None
    rows = 0
    for number, chunk in enumerate(documents.chunks):
        if number < CHECKED_CHUNKS:
            languages = _languages_of(chunk, job, documents, known_languages)
            if isinstance(languages, list):
                languages = languages[:CHECKED_DOCUMENTS]
            vectors = embedder.encode(
                chunk.texts[:CHECKED_DOCUMENTS], language=languages, **job.encode_options
            )
            stored_vectors = stored[rows : rows + len(vectors)]
            if not _are_alike(np.asarray(vectors), stored_vectors, job.precision):
                raise _other_output(job, "its vectors are of other texts, options or another model")
        rows += len(chunk.texts)
    return rows


def _are_alike(vectors: np.ndarray, stored: np.ndarray, precision: str) -> bool:
    """Return whether vectors are the same but for what another batch changes.

    Args:
        vectors: The vectors, (documents, width).
        stored: Those to compare them with; there may be fewer.
        precision: The precision of both.
    """
    if vectors.shape != stored.shape:
        return False
    if precision in PACKED:
        different_bits = np.unpackbits(vectors.view(np.uint8) ^ stored.view(np.uint8), axis=1)
        return bool((different_bits.mean(axis=1) <= LARGEST_DIFFERENCE).all())
    if precision != "float32":
        vectors = restored(torch.from_numpy(vectors), precision).numpy()
        stored = restored(torch.from_numpy(np.array(stored)), precision).numpy()
    differences = np.linalg.norm(vectors - stored, axis=1)
    allowed = LARGEST_DIFFERENCE * np.linalg.norm(vectors, axis=1)
    return bool((differences <= allowed).all())


def _other_output(job: EmbedJob, reason: str) -> TmdeError:
    """Return the error for a file that exists and is not what the command would write."""
    return TmdeError(f"--output {job.output} exists, and {reason}; give --overwrite to replace it")


# ---- Input and output


def _check_output(job: EmbedJob, worker: Worker, is_unfinished: bool) -> Path:
    """Check the file of vectors before the work begins, and return it with symlinks resolved.

    A file that exists is refused by the first process alone: the others may start after the first
    one has written it. If a run was killed before it deleted the shards, its file is written again.
    """
    replaces = job.overwrite or is_unfinished or not worker.is_first
    return check_output(job.output, replaces, tuple(SHARDS_OF_SUFFIX))


def _check_can_be_read_twice(source: str) -> None:
    if source == "-" or Path(source).is_fifo():
        raise TmdeError(
            f"{source} can be read only once; write it to a file, which --resume and several "
            "processes need"
        )


def _open_documents(stack: ExitStack, job: EmbedJob, output_suffix: str) -> Documents:
    """Open the input. It is read before the model is loaded, because most mistakes show there."""
    keeps_columns = output_suffix == ".parquet"
    documents = Documents(
        stack,
        job.source,
        job.format,
        job.field,
        keeps_columns,
        job.shard_size,
        job.language_field,
        quoting=job.quoting,
    )
    if job.language is None:
        tell_language_folders(documents)
    if keeps_columns and VECTOR_COLUMN in documents.schema.names:
        raise TmdeError(
            f"{documents.name} already has a column {VECTOR_COLUMN!r}; rename it, or write to .npy"
        )
    return documents


def _describe_run(
    job: EmbedJob, documents: Documents, embedder: DocumentEmbedder, output_suffix: str
) -> dict[str, str]:
    """Return all that decides the content of the shards: only the same run may go on with them."""
    settings = {"compile": False} | job.loading | embedder.long_document_settings
    settings |= {
        "chunk_size": job.shard_size,
        "batch_tokens": job.batch_tokens,
        "normalize": job.normalize,
        "truncate_dim": job.truncate_dim,
        "precision": job.precision,
        "tmde": __version__,
        "field": ", ".join(job.field or ()),
        "language": job.language,
        "language_field": job.language_field,
        "quoting": job.quoting,
        "output": output_suffix,
        "input": _version_of_input(job.source, documents.files),
        "model": _version_of(job.model),
        "commit": getattr(embedder.model.config, "_commit_hash", None),
    }
    settings.pop("device", None)
    return {name: str(value) for name, value in settings.items()}


def _version_of_input(source: str, files: Sequence[Path]) -> str:
    """Return a file or folder with the number of its files and the time of their last change."""
    if not os.path.isdir(source):
        return _version_of(source)
    changed = max(file.stat().st_mtime_ns for file in files)
    return f"{Path(source).resolve()}, {len(files)} files, changed {changed}"


def _last_change(source: str, files: Sequence[Path]) -> int:
    """Return the time of the last change of a source, in nanoseconds.

    Args:
        source: The file or folder.
        files: The files that are read.
    """
    # The time of a folder itself tells of files that were added or removed alone.
    sources = [Path(source)]
    for file in files:
        if file.is_relative_to(source):  # Others are unpacked copies.
            sources.append(file)
    return max(file.stat().st_mtime_ns for file in sources)


def _version_of(path: str) -> str:
    """Return a file or folder with the time of its last change; the id of a Hub model as it is."""
    location = Path(path).expanduser().resolve()
    if not location.exists():
        return path
    files = [location]
    if location.is_dir():
        files = [entry for entry in location.iterdir() if entry.is_file()]
    changed = max(file.stat().st_mtime_ns for file in files)
    return f"{location}, changed {changed}"


def _embed_missing_shards(
    job: EmbedJob,
    worker: Worker,
    documents: Documents,
    embedder: DocumentEmbedder,
    shards: Shards,
) -> list[int]:
    """Embed and write the missing shards of this process.

    Returns:
        The number of documents of every shard, those of other processes included.
    """
    known_languages = None
    if embedder.needs_language:
        known_languages = embedder.model.config.languages
    start = time.perf_counter()
    report = EncodeReport()
    sizes = []
    bar = progress_bar(total=documents.rows, desc="Embedding", unit=" texts")
    with bar, without_truncation_warnings():
        for number, chunk in enumerate(documents.chunks):
            sizes.append(len(chunk.texts))
            is_mine = number % worker.processes == worker.rank
            if is_mine and not shards.path(number).exists():
                vectors, chunk_report = embedder.encode_with_report(
                    chunk.texts,
                    language=_languages_of(chunk, job, documents, known_languages),
                    **job.encode_options,
                )
                shards.write(number, chunk, np.asarray(vectors))
                report += chunk_report
            bar.update(len(chunk.texts))
    embedder.warn_of_truncation(report)
    seconds = time.perf_counter() - start
    typer.echo(_describe_work(report, seconds, worker), err=True)
    return sizes


def _languages_of(
    chunk: Chunk, job: EmbedJob, documents: Documents, known_languages: Sequence[str] | None
) -> str | list[str] | None:
    """Return the language of a chunk, or of each of its texts.

    Args:
        chunk: The documents.
        job: Names the language, or the field that holds it.
        documents: The open file, which knows the field of the languages.
        known_languages: The languages of a model that needs one; None if any code will do.

    Raises:
        TmdeError: The model does not know the language of a text, or needs one.
    """
    if job.language is not None:
        return _code_of_all(job.language, known_languages)
    if chunk.languages is None or documents.language_field is None:
        _check_needs_no_language(documents, known_languages)
        return None
    if known_languages is None:
        return [language_of_locale(code) for code in chunk.languages]
    codes = []
    for position, code in enumerate(chunk.languages):
        model_code = known_code(code, known_languages)
        if model_code is None:
            place = chunk.place(position, documents.language_field)
            raise TmdeError(
                f"{place}: found {code!r}, expected one of the model's languages {known_languages}"
            )
        codes.append(model_code)
    return codes


def _code_of_all(language: str, known_languages: Sequence[str] | None) -> str:
    """Return the code of --language as the model knows it; the embedder refuses an unknown one."""
    if known_languages is None:
        return language_of_locale(language)
    return known_code(language, known_languages) or language


def _check_needs_no_language(documents: Documents, known_languages: Sequence[str] | None) -> None:
    """Raise `TmdeError` if the model needs the language of each text."""
    if known_languages is None:
        return
    message = (
        f"{documents.name}: the model needs the language of each text, one of {known_languages}; "
        "give --language or --language-field"
    )
    column = named_like_language(documents.fields)
    if column is not None:
        message += (
            f". The column {column!r} looks like the language; give --language-field {column}"
        )
    raise TmdeError(message)


def _describe_work(report: EncodeReport, seconds: float, worker: Worker) -> str:
    """Return a line of what this process has embedded."""
    process = ""
    if not worker.is_alone:
        process = f"process {worker.rank} of {worker.processes}: "
    pieces = ""
    if report.split:
        pieces = f", {report.split:,} split, {report.pieces:,} pieces in all"
    speed = report.texts / seconds
    return (
        f"{process}{report.texts:,} texts "
        f"({report.tokens:,} tokens, {report.truncated:,} truncated{pieces}) "
        f"in {seconds:.1f} s, {speed:,.0f} texts/s"
    )
