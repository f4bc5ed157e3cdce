"""Vectors of more texts than memory holds: in a file that is mapped into memory."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from tmde.embedding.document_embedder import DocumentEmbedder, EncodeOutput, EncodeReport
from tmde.embedding.quantization import DTYPES, check_precision, stored_width

_CHUNK = 16_384  # texts that are read and embedded at a time


def encode_to_file(
    embedder: DocumentEmbedder,
    texts: Iterable[str],
    count: int,
    path: str | os.PathLike[str],
    language: str | Iterable[str] | None = None,
    truncate_dim: int | None = None,
    precision: str = "float32",
) -> EncodeOutput:
    """Embed texts chunk by chunk into a .npy file.

    Args:
        embedder: The model.
        texts: `count` strings.
        count: Their number.
        path: The file to write. If it exists, it is replaced.
        language: One code for all texts, or one for each; None if it plays no part.
        truncate_dim: Keep the first numbers of a vector only; None for all.
        precision: How numbers are stored, see [`~tmde.embedding.DocumentEmbedder.encode`].

    Returns:
        The vectors that `encode` returns, mapped from the file and read-only, and the report.

    Raises:
        TypeError: As `encode`.
        TmdeError: As `encode`.
    """
    check_precision(precision)
    width = stored_width(truncate_dim or embedder.dimension, precision)
    vectors = np.lib.format.open_memmap(
        path, mode="w+", dtype=DTYPES[precision], shape=(count, width)
    )
    outputs = embedder.encode_iter_with_reports(
        texts,
        chunk_size=_CHUNK,
        # By default it shows on a terminal only, and not in a log.
        show_progress_bar=count > _CHUNK,
        total=count,
        language=language,
        truncate_dim=truncate_dim,
        precision=precision,
    )
    report = EncodeReport()
    for output in outputs:
        start = report.texts
        report += output.report
        vectors[start : report.texts] = output.vectors
    vectors.flush()
    return EncodeOutput(np.load(path, mmap_mode="r"), report)
