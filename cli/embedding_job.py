"""What one `tmde embed` has to do, and the part that every way of doing it shares: load, read, embed."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeling_tmde.cli.documents import Documents, EmbedError, InputFormat, open_documents

# torch and transformers are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from modeling_tmde.embedding import DocumentEmbedder

WriteChunk = Callable[[int, "np.ndarray", "pa.Table | None"], None]  # number of the chunk, (n, d) vectors, columns


@dataclass(frozen=True)
class EmbeddingJob:
    """The command line.

    shard_size: documents read, embedded and written at a time; loading: arguments of
    `DocumentEmbedder.from_pretrained`; encoding: arguments of `encode_iter`.
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

    def open(
        self, stack: ExitStack, keep_columns: bool, wanted: Callable[[int], bool] = lambda number: True
    ) -> Documents:
        """Opens the input; see `open_documents`."""
        return open_documents(stack, self.source, self.format, self.field, keep_columns, self.shard_size, wanted)


def load_embedder(job: EmbeddingJob, device: str | None, bar: bool) -> DocumentEmbedder:
    """Loads the model; `bar`: with a progress bar. Raises EmbedError for all that can be wrong with --model."""
    from transformers.utils import logging

    from modeling_tmde.embedding import DocumentEmbedder

    bars = logging.is_progress_bar_enabled()
    if not bar:
        logging.disable_progress_bar()
    try:
        return DocumentEmbedder.from_pretrained(job.model, device=device, **job.loading)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        where = "" if Path(job.model).expanduser().exists() else "no such folder, and as a Hub id: "
        where = "" if isinstance(error, FileNotFoundError) else where
        raise EmbedError(f"--model {job.model}: {where}{error}") from None
    finally:
        if bars:
            logging.enable_progress_bar()


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

    def texts() -> Iterator[str]:
        for number, chunk in enumerate(documents.chunks):
            sizes.append(chunk.rows)
            if chunk.texts is not None:
                pending.append((number, chunk.columns))
                yield from chunk.texts

    with _told_errors(job, embedder, documents.name):
        # All chunks but the input's last one are of this size, so that the vectors come chunk by chunk.
        for vectors in embedder.encode_iter(
            texts(), job.shard_size, show_progress_bar=bar, total=total, **job.encoding
        ):
            number, columns = pending.popleft()
            write(number, vectors, columns)
    return sizes


@contextmanager
def _told_errors(job: EmbeddingJob, embedder: DocumentEmbedder, name: str) -> Iterator[None]:
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise EmbedError(f"out of memory on {embedder.device}; lower --batch-tokens. {error}") from None
    except OSError as error:
        raise EmbedError(f"--output {job.out}: {error.strerror or error}") from None
    except ValueError as error:  # a tokenizer that is not the model's, a pooling that the model has no outputs for
        raise EmbedError(f"{name} with model {embedder.model.name_or_path}: {error}") from None


def stderr_is_terminal() -> bool:
    """A progress bar in a log file is a line of rubbish."""
    return sys.stderr.isatty()
