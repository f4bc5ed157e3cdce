"""Embed a file of documents in shards, which are joined at the end.

Shard i holds the result of the i-th `shard_size` documents. With `resume`, or in one of several
processes, shards are kept in `OUTPUT.shards` until OUTPUT is complete. Each process reads the whole
input and embeds every n-th shard; the first process joins them.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from modeling_tmde import TmdeError
from tmde import __version__
from tmde.embedding.document_embedder import (
    DocumentEmbedder,
    EncodeOutput,
    EncodeReport,
    VectorOptions,
)
from tmde.embedding.opening import open_embedder, without_truncation_warnings
from tmde.embedding.packaged_models import DEFAULT_MODEL
from tmde.embedding.progress import progress_bar
from tmde.embedding.quantization import PACKED, restored

from .delimited import Quoting
from .documents import VECTOR_COLUMN, BadRows, Chunk, Documents, InputFormat
from .io import locked
from .language_columns import named_like_language, tell_language_folders
from .languages import check_code, known_code, language_of_locale
from .model_languages import LanguageWatch
from .shards import Shards

__all__ = ["EmbeddedFile", "embed_file"]

# How much of a file that exists is embedded again to see whether it is complete.
CHECKED_CHUNKS = 4
CHECKED_DOCUMENTS = 8
# The largest distance of two vectors of one text, over their length; for signs, the largest share
# that differs. In bfloat16, other batches make the distance 0.03, which turns one sign in a
# hundred. Another model or text makes the distance about 1, and turns half of the signs.
LARGEST_DIFFERENCE = 0.05


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


@dataclass(frozen=True)
class EmbeddedFile:
    """The report of `embed_file`.

    Attributes:
        output: The file of vectors.
        rows: The number of documents.
        width: The width of the vectors.
        dtype: The type of the stored elements.
        worker: The position of this process among those that share the file.
        arithmetic: The type in which the model computes.
        work: The work of this process; None if the file was already complete.
        seconds: The time in seconds, including reading.
    """

    output: Path
    rows: int
    width: int
    dtype: np.dtype
    worker: Worker
    arithmetic: str
    work: EncodeReport | None = None
    seconds: float = 0.0

    def sentences(self) -> list[str]:
        """Return the report as sentences to print; only the first process covers the whole file."""
        sentences = []
        if self.work is not None:
            sentences.append(self._describe_work(self.work))
            whole = f"{self.output}: {self.rows:,} x {self.width} {self.dtype}"
        else:
            whole = f"{self.output} is already complete: {self.rows:,} x {self.width}"
        if self.worker.is_first:
            sentences.append(whole)
        return sentences

    def _describe_work(self, work: EncodeReport) -> str:
        process = ""
        if not self.worker.is_alone:
            process = f"process {self.worker.rank} of {self.worker.processes}: "
        pieces = ""
        if work.split:
            pieces = f", {work.split:,} split, {work.pieces:,} pieces in all"
        speed = work.texts / self.seconds
        return (
            f"{process}{work.texts:,} texts "
            f"({work.tokens:,} tokens, {work.truncated:,} truncated{pieces}) "
            f"in {self.seconds:.1f} s, {speed:,.0f} texts/s, computed in {self.arithmetic}"
        )


def embed_file(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    model: str = DEFAULT_MODEL,
    loading: Mapping[str, Any] | None = None,
    format: InputFormat | None = None,
    quoting: Quoting | None = None,
    field: str | Sequence[str] | None = None,
    language: str | None = None,
    language_field: str | None = None,
    batch_tokens: int | None = None,
    normalize: bool = False,
    truncate_dim: int | None = None,
    precision: str = "float32",
    resume: bool = False,
    shard_size: int = 8192,
    overwrite: bool = False,
    bad_rows: BadRows | None = None,
) -> EmbeddedFile:
    """Embed the documents of a file: one vector per document, in input order.

    Processes started by a launcher such as torchrun share the work.

    Args:
        source: A file or folder of documents; `-` is stdin.
        output: The file of vectors: .npy, or .parquet, which includes the input columns.
        model: A folder, a Hub id or a packaged model's name.
        loading: Arguments for `DocumentEmbedder.from_pretrained`.
        format: The input format. Default: chosen by the suffix.
        quoting: The quoting of CSV and TSV; None detects it.
        field: The text column, or several to join with blank lines.
        language: The language of all documents.
        language_field: The column of language codes.
        batch_tokens: The batch size in tokens, see `DocumentEmbedder.encode`.
        normalize: Whether to scale vectors to length 1.
        truncate_dim: Keep only the first `truncate_dim` elements of each vector.
        precision: The type of the stored elements, see `DocumentEmbedder.encode`.
        resume: Continue an interrupted run from its finished shards.
        shard_size: The number of documents per shard and in memory.
        overwrite: Replace an existing output and the shards of another run.
        bad_rows: `"report"` skips and reports unreadable rows; `"raise"` stops at the first one.
            Default: `"raise"` for .npy, where only the position links a vector to its document, and
            `"report"` for .parquet.

    Raises:
        TmdeError: An argument, the model or a file can't be used.

    Example:
        ```python
        from tmde import embed_file

        report = embed_file("articles.csv.gz", "articles.npy", field=["title", "body"])
        print(*report.sentences())
        ```
    """
    check_code(language, "language")
    source = os.fspath(source)
    output = Path(output)
    target = output.resolve()
    worker = Worker.from_environment()
    keeps_shards = resume or not worker.is_alone
    folder = Path(f"{target}.shards")
    _check_output(output, folder, keeps_shards, overwrite)
    if keeps_shards:
        _check_can_be_read_twice(source)
    may_be_complete = keeps_shards and not overwrite and not folder.exists() and target.is_file()
    loading = {"compile": False, **(loading or {})}
    with ExitStack() as stack:
        if may_be_complete:
            stored = read_vectors(target)
        elif keeps_shards and worker.is_first:
            stack.enter_context(locked(folder))
        # The input is opened before the model is loaded, because most mistakes show there.
        documents = Documents(
            stack,
            source,
            format,
            field,
            keep_columns=target.suffix == ".parquet",
            size=shard_size,
            language_field=language_field,
            quoting=quoting,
            bad_rows=bad_rows or ("report" if target.suffix == ".parquet" else "raise"),
        )
        if language is None:
            tell_language_folders(documents)
        _check_has_no_vectors(documents, target)
        if may_be_complete:
            # A folder's own time changes only when files are added or removed.
            changed = _last_change([Path(source), *documents.files])
            if changed > target.stat().st_mtime_ns:
                raise _other_output(output, f"{source} has changed since then")
        embedder = open_embedder(model, loading | {"device": worker.device(loading.get("device"))})
        encode_options: VectorOptions = {
            "batch_tokens": batch_tokens,
            "normalize": normalize,
            "truncate_dim": truncate_dim,
            "precision": precision,
        }
        encoder = _ChunkEncoder(documents, embedder, language, encode_options)
        width, dtype = encoder.kind_of_vectors()
        if may_be_complete:
            rows = _check_complete(output, stored, encoder, precision)
            return EmbeddedFile(output, rows, width, dtype, worker, embedder.arithmetic)
        settings = {
            **loading,
            **embedder.long_document_settings,
            **encode_options,
            "dtype": embedder.arithmetic,
            "chunk_size": shard_size,
            "tmde": __version__,
            "field": field,
            "language": language,
            "language_field": language_field,
            "quoting": quoting,
            "output": target.suffix,
            "input": _version_of(source, documents.files),
            "model": _version_of(model, _files_of_model(model)),
            "commit": getattr(embedder.model.config, "_commit_hash", None),
        }
        if not keeps_shards:
            prefix = f".{target.name}."
            folder = Path(stack.enter_context(TemporaryDirectory(dir=target.parent, prefix=prefix)))
        schema = documents.schema if target.suffix == ".parquet" else pa.schema([])
        shards = Shards(folder, schema, width, dtype)
        if keeps_shards:
            _begin(shards, settings, worker, overwrite)
        start = time.perf_counter()
        sizes, work = _embed_missing_shards(encoder, worker, shards)
        seconds = time.perf_counter() - start
        _finish(shards, sizes, target, worker, keeps_shards)
    return EmbeddedFile(
        output, sum(sizes), width, dtype, worker, embedder.arithmetic, work, seconds
    )


# ---- The vectors of a chunk


@dataclass(frozen=True)
class _ChunkEncoder:
    """Embeds the documents of a file, each in its language.

    Attributes:
        documents: The open file.
        embedder: The model.
        language: The language of all documents; None if each has its own, or none has any.
        options: The arguments of `encode` that are the same for all documents.
    """

    documents: Documents
    embedder: DocumentEmbedder
    language: str | None
    options: VectorOptions

    def encode(self, chunk: Chunk, limit: int | None = None) -> EncodeOutput:
        """Embed the first documents of a chunk, all by default.

        Raises:
            TmdeError: The model does not know the language of a text, or needs one.
        """
        languages = self._languages_of(chunk)
        if isinstance(languages, list):
            languages = languages[:limit]
        return self.embedder.encode_with_report(
            chunk.texts[:limit], language=languages, show_progress_bar=False, **self.options
        )

    def kind_of_vectors(self) -> tuple[int, np.dtype]:
        """Return how many numbers a vector has, and their type.

        Raises:
            TmdeError: The options exclude the model.
        """
        no_vectors = np.asarray(self.embedder.encode([], show_progress_bar=False, **self.options))
        return no_vectors.shape[1], no_vectors.dtype

    def _languages_of(self, chunk: Chunk) -> str | list[str] | None:
        """Return the language of a chunk, or of each of its texts."""
        known_languages = None  # Any code will do.
        if self.embedder.needs_language:
            known_languages = self.embedder.model.config.languages
        if self.language is not None and known_languages is not None:
            # The embedder refuses an unknown one.
            return known_code(self.language, known_languages) or self.language
        if self.language is not None:
            return language_of_locale(self.language)
        field = self.documents.language_field
        if chunk.languages is None or field is None:
            _check_needs_no_language(self.documents, known_languages)
            return None
        if known_languages is None:
            return [language_of_locale(code) for code in chunk.languages]
        codes = []
        for position, code in enumerate(chunk.languages):
            model_code = known_code(code, known_languages)
            if model_code is None:
                raise TmdeError(
                    f"{chunk.place(position, field)}: found {code!r}, expected one of the model's "
                    f"languages {known_languages}"
                )
            codes.append(model_code)
        return codes


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


def _embed_missing_shards(
    encoder: _ChunkEncoder, worker: Worker, shards: Shards
) -> tuple[list[int], EncodeReport]:
    """Embed and write the missing shards of this process.

    Returns:
        The number of documents of every shard, those of other processes included, and what was
        embedded.
    """
    report = EncodeReport()
    sizes = []
    watch = LanguageWatch(encoder.embedder)
    bar = progress_bar(total=encoder.documents.rows, desc="Embedding", unit=" texts")
    with bar, without_truncation_warnings():
        for number, chunk in enumerate(encoder.documents.chunks):
            sizes.append(len(chunk.texts))
            is_mine = number % worker.processes == worker.rank
            if is_mine and not shards.path(number).exists():
                watch.check(chunk.texts, encoder.language or chunk.languages)
                vectors, chunk_report = encoder.encode(chunk)
                shards.write(number, chunk, np.asarray(vectors))
                report += chunk_report
            bar.update(len(chunk.texts))
    encoder.embedder.warn_of_truncation(report)
    return sizes, report


def _finish(
    shards: Shards, sizes: list[int], target: Path, worker: Worker, keeps_shards: bool
) -> None:
    """Join the shards in the first process, when the others are done."""
    if not worker.is_first:
        shards.report_done(worker.rank)
        return
    shards.wait_for_others(worker.processes)
    shards.join(sizes, target)
    if keeps_shards:
        shards.delete()


# ---- A file that is complete already


def _check_complete(
    output: Path, stored: np.ndarray, encoder: _ChunkEncoder, precision: str
) -> int:
    """Check that a file of vectors is complete, as after a kill at the very end.

    Nothing beside the file tells from which run it is. So the number of its rows is compared with
    that of the documents, and some documents are embedded again.

    Args:
        output: The file.
        stored: Its vectors.
        encoder: What has embedded the documents, if the file is of the same run.
        precision: The precision of the numbers.

    Returns:
        The number of documents.

    Raises:
        TmdeError: The file is not what `embed_file` would write.
    """
    width, dtype = encoder.kind_of_vectors()
    if stored.ndim != 2 or stored.shape[1] != width:
        raise _other_output(output, f"its vectors are not of width {width}")
    if stored.dtype != dtype:
        raise _other_output(output, f"its type is {stored.dtype}, expected {dtype}")
    rows = 0
    for number, chunk in enumerate(encoder.documents.chunks):
        if number < CHECKED_CHUNKS:
            vectors = np.asarray(encoder.encode(chunk, CHECKED_DOCUMENTS).vectors)
            stored_vectors = stored[rows : rows + len(vectors)]
            if not _are_alike(vectors, stored_vectors, precision):
                raise _other_output(
                    output, "its vectors are from other texts, other options or another model"
                )
        rows += len(chunk.texts)
    if rows != len(stored):
        raise _other_output(output, f"it contains {len(stored):,} vectors of {rows:,} documents")
    return rows


def read_vectors(path: Path) -> np.ndarray:
    """Return the vectors of a file that `embed_file` wrote, (documents, dimension).

    Raises:
        TmdeError: It is not such a file.
    """
    try:
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r")
        column = pq.read_table(path, columns=[VECTOR_COLUMN])[VECTOR_COLUMN].combine_chunks()
        if not pa.types.is_fixed_size_list(column.type):
            raise ValueError(f"{VECTOR_COLUMN} is {column.type} instead of a fixed-size list")
        return column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise TmdeError(
            f"{path} exists and is not from tmde embed ({error}); set overwrite=True to replace it"
        ) from error


def _are_alike(vectors: np.ndarray, stored: np.ndarray, precision: str) -> bool:
    """Return whether vectors are the same except for what another batch changes.

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


def _other_output(output: Path, reason: str) -> TmdeError:
    """Return the error for a file that exists and is not what would be written."""
    return TmdeError(f"{output} exists, and {reason}; set overwrite=True to replace it")


# ---- Input and output


def _check_output(output: Path, folder: Path, keeps_shards: bool, overwrite: bool) -> None:
    """Check the file of vectors and its folder of shards before the work begins.

    If shards are kept, a file that exists may be complete, or of another process.
    """
    if output.suffix not in (".npy", ".parquet") or output.is_dir():
        raise TmdeError(f"{output}: expected a file that ends in .npy or .parquet")
    if keeps_shards:
        return
    if output.exists() and not overwrite:
        raise TmdeError(f"{output} exists; set overwrite=True to replace it")
    if folder.exists():
        raise TmdeError(
            f"{folder} has shards of an unfinished run; set resume=True to continue, or delete it"
        )


def _check_can_be_read_twice(source: str) -> None:
    if source == "-" or Path(source).is_fifo():
        raise TmdeError(
            f"{source} can be read only once; write it to a file for resume=True or several "
            "processes"
        )


def _check_has_no_vectors(documents: Documents, target: Path) -> None:
    """Raise `TmdeError` if the input has a column of the name that vectors get in parquet."""
    if target.suffix == ".parquet" and VECTOR_COLUMN in documents.schema.names:
        raise TmdeError(
            f"{documents.name} already has a column {VECTOR_COLUMN!r}; rename it, or write to .npy"
        )


def _begin(shards: Shards, settings: Mapping[str, Any], worker: Worker, overwrite: bool) -> None:
    """Begin a run whose shards are kept, or continue it.

    Args:
        shards: The shards.
        settings: All that decides their content: only the same run may go on with them. The device
            is left out.
        worker: This process.
        overwrite: Delete the shards of another run.
    """
    texts = {name: str(value) for name, value in settings.items() if name != "device"}
    if worker.is_first:
        shards.begin(texts, overwrite)
    else:
        shards.wait_for_begin(texts)


def _version_of(path: str, files: Sequence[Path]) -> str:
    """Return a path with the time of the last change of its files, and their number.

    A path without files, the id of a Hub model, is returned as it is.
    """
    if not files:
        return path
    location = Path(path).expanduser().resolve()
    return f"{location}, changed {_last_change(files)}, files: {len(files)}"


def _files_of_model(model: str) -> list[Path]:
    """Return the files of a model in a folder; none of a Hub model."""
    return [path for path in Path(model).expanduser().glob("*") if path.is_file()]


def _last_change(files: Sequence[Path]) -> int:
    """Return the time of the last change of files, in nanoseconds."""
    return max(file.stat().st_mtime_ns for file in files)
