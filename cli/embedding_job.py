"""What one `tmde embed` has to do, and the part that every way of doing it shares: load, read, embed."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeling_tmde.data.documents import VECTOR_COLUMN, Chunk, Documents, EmbedError, InputFormat, open_documents

# torch and transformers are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from modeling_tmde.embedding import DocumentEmbedder

# Arguments of `DocumentEmbedder.from_pretrained` whose errors begin with their names, and which are options, too.
_OPTIONS = ("aggregation", "device", "long_documents", "max_length", "pooling", "stride", "window")
WriteChunk = Callable[[int, "np.ndarray", "pa.Table | None"], None]  # number of the chunk, (n, d) vectors, columns


@dataclass(frozen=True)
class EmbeddingJob:
    """The command line.

    shard_size: documents read, embedded and written at a time; loading: arguments of
    `DocumentEmbedder.from_pretrained`; encoding: arguments of `encode_iter`; language: code of the language of all
    documents, or language_field: where the code of each is.
    """

    source: str
    out: Path
    model: str
    format: InputFormat | None
    field: str | None
    shard_size: int
    overwrite: bool
    device: str | None
    loading: dict[str, Any]
    encoding: dict[str, Any]
    language: str | None = None
    language_field: str | None = None

    def open(
        self, stack: ExitStack, keep_columns: bool, wanted: Callable[[int], bool] = lambda number: True
    ) -> Documents:
        """Opens the input; see `open_documents`.

        Raises:
            EmbedError: Also where the vectors would need the name of a column that is kept.
        """
        if self.language is not None and self.language_field is not None:
            raise EmbedError("--language and --language-field exclude each other; give one of them")
        field, language_field = self.field, self.language_field
        documents = open_documents(
            stack, self.source, self.format, field, keep_columns, self.shard_size, wanted, language_field
        )
        if keep_columns and VECTOR_COLUMN in documents.schema.names:
            raise EmbedError(
                f"{documents.name} has a column {VECTOR_COLUMN!r} already; write to .npy, or rename the column"
            )
        return documents


def load_embedder(job: EmbeddingJob, device: str | None, bar: bool) -> DocumentEmbedder:
    """Loads the job's model; `bar`: with a progress bar.

    Raises:
        EmbedError: For all that can be wrong with --model, and for a language that it needs and does not get.
    """
    embedder = load_model(job.model, device, bar, job.loading)
    _check_language(job, embedder)
    return embedder


def load_model(model: str, device: str | None, bar: bool, loading: dict[str, Any]) -> DocumentEmbedder:
    """Loads what --model names; `loading`: arguments of `DocumentEmbedder.from_pretrained`.

    Raises:
        EmbedError: For all that can be wrong with --model and the options of `loading`.
    """
    from safetensors import SafetensorError
    from transformers.utils import logging

    from modeling_tmde.embedding import DocumentEmbedder

    bars = logging.is_progress_bar_enabled()
    if not bar:
        logging.disable_progress_bar()
    try:
        return DocumentEmbedder.from_pretrained(model, device=device, **loading)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, SafetensorError) as error:
        name, _, text = str(error).partition(":")
        if isinstance(error, ValueError) and name in _OPTIONS:
            raise EmbedError(f"--{name.replace('_', '-')}:{text}") from None
        raise EmbedError(f"--model {model}: {model_problem(model, error)}") from None
    finally:
        if bars:
            logging.enable_progress_bar()


def model_problem(model: str, error: Exception) -> str:
    """What is wrong with a model that cannot be loaded; the library that says so may not know."""
    text = str(error)
    if not Path(model).expanduser().exists() and not isinstance(error, FileNotFoundError):
        return f"no such folder, and as a Hub id: {text}"
    if type(error).__name__ == "SafetensorError":
        return f"its weights (.safetensors) are damaged or cut off ({text}); copy or download them again"
    if "ignore_mismatched_sizes" in text:
        return "its weights have other sizes than its config.json says; take both from the same model"
    if "trust_remote_code" in text:
        return "it brings code of its own; if you trust where it comes from, give --trust-remote-code"
    return text


def _check_language(job: EmbeddingJob, embedder: DocumentEmbedder) -> None:
    if not embedder.needs_language:
        return
    known = list(embedder.model.config.languages)
    if job.language is None and job.language_field is None:
        raise EmbedError(
            f"--model {job.model} has an encoder for each language; give --language, one of {', '.join(known)}, or "
            "--language-field"
        )
    if job.language is not None and job.language not in known:
        raise EmbedError(f"--language: found {job.language!r}, expected one of the model's: {', '.join(known)}")


def embed_chunks(
    job: EmbeddingJob,
    embedder: DocumentEmbedder,
    documents: Documents,
    write: WriteChunk,
    bar: bool,
    total: int | None,
) -> list[int]:
    """Embeds the chunks that have texts and hands each to `write`.

    Args:
        bar: Show progress.
        total: Documents that will be embedded, if known.

    Returns:
        Rows of every chunk, embedded or not.
    """
    sizes: list[int] = []
    pending: deque[tuple[int, pa.Table | None]] = deque()
    codes: deque[str] = deque()  # of texts that were read, but not embedded

    def texts() -> Iterator[str]:
        for number, chunk in enumerate(documents.chunks):
            sizes.append(chunk.rows)
            if chunk.texts is not None:
                pending.append((number, chunk.columns))
                codes.extend(_told_languages(job, embedder, documents, chunk))
                yield from chunk.texts

    def languages() -> Iterator[str]:
        while codes:
            yield codes.popleft()

    with _told_errors(job, embedder, documents.name):
        # All chunks but the input's last one are of this size, so that the vectors come chunk by chunk.
        language = languages() if job.language_field is not None else job.language
        for vectors in embedder.encode_iter(
            texts(), job.shard_size, show_progress_bar=bar, total=total, language=language, **job.encoding
        ):
            number, columns = pending.popleft()
            write(number, vectors, columns)
    return sizes


def _told_languages(
    job: EmbeddingJob, embedder: DocumentEmbedder, documents: Documents, chunk: Chunk
) -> Sequence[str]:
    """Languages of the texts, if the model is to be told, or what finds the ends of sentences.

    Raises:
        EmbedError: One that the model does not know.
    """
    if chunk.languages is None:
        return ()
    if not embedder.needs_language:
        return chunk.languages if embedder.long_documents == "sentences" else ()
    known = list(embedder.model.config.languages)
    for number, code in zip(chunk.numbers, chunk.languages, strict=True):
        if code not in known:
            where = documents.place(number, job.language_field)
            raise EmbedError(f"{where}: found {code!r}, expected one of the model's languages: {', '.join(known)}")
    return chunk.languages


@contextmanager
def _told_errors(job: EmbeddingJob, embedder: DocumentEmbedder, name: str) -> Iterator[None]:
    try:
        with told_out_of_memory(embedder, "lower --batch-tokens"):
            yield
    except OSError as error:
        raise EmbedError(f"--output {job.out}: {error.strerror or error}") from None
    except ValueError as error:  # a tokenizer that is not the model's, a pooling that the model has no outputs for
        raise EmbedError(f"{name} with model {embedder.model.name_or_path}: {error}") from None


@contextmanager
def told_out_of_memory(embedder: DocumentEmbedder, hint: str) -> Iterator[None]:
    """Where the memory of its device does not suffice, names the device and `hint`: what to do."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise EmbedError(f"out of memory on {embedder.device}; {hint}. {error}") from None


def stderr_is_terminal() -> bool:
    """A progress bar in a log file is a line of rubbish."""
    return sys.stderr.isatty()
