"""What an index stores about the embedder of its vectors, and how it recognizes that embedder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from modeling_tmde import TmdeError
from tmde.data.io import write_atomically
from tmde.documents.model_probes import DECIMALS, probe_vectors
from tmde.documents.unit_rows import unit_vectors
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.packaged_models import packaged_name
from tmde.embedding.sentence_density import SentenceDensity

SETTINGS = "index.json"  # A folder with this file is an index.
FORMAT = 4  # of the table and the settings
DENSITY = "density.npz"  # the density by which an embedder weights sentences, if it does

SAME_MODEL = 0.995  # cosine of two vectors of a probe; 8-bit weights stay above

# Arguments of `DocumentEmbedder.from_pretrained` that are stored.
_LOADING_OPTIONS = (
    "prompt",
    "pooling",
    "max_length",
    "long_documents",
    "window",
    "stride",
    "aggregation",
    "revision",
)


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of an index.

    They are `dimension` (of the vectors that are given), `embedding`, `precision`, `truncate_dim`,
    and what search has tuned.

    Raises:
        TmdeError: The folder is not an index, a damaged one, or one of another format.
    """
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        for name in ("dimension", "embedding", "format"):
            settings[name]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise TmdeError(f"{folder}: found no tmde index, or a damaged one ({error})") from None
    if settings["format"] != FORMAT:
        raise TmdeError(
            f"{folder}: created by another version of tmde (found format "
            f"{settings['format']}, expected {FORMAT}); rebuild the index: delete the folder, "
            "and run `tmde index` again"
        )
    return settings


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings of an index as a whole."""
    write_atomically(folder / SETTINGS, json.dumps(settings | {"format": FORMAT}) + "\n")


def describe_embedder(
    embedder: DocumentEmbedder, folder: Path, revision: str | None
) -> dict[str, Any]:
    """Return the settings of an embedder that an index stores, as JSON values.

    If the embedder weights sentences by a density, that is saved in the folder.
    """
    settings = _comparable_settings(embedder)
    if isinstance(embedder.aggregation, SentenceDensity):
        embedder.aggregation.save(folder / DENSITY)
    splits_sentences = settings["long_documents"] == "sentences"
    probes = np.round(probe_vectors(embedder).astype(float), DECIMALS)
    settings["model"] = _model_name(embedder)
    settings["dtype"] = embedder.arithmetic
    settings["revision"] = revision
    settings["uses_language"] = embedder.needs_language or splits_sentences
    settings["probes"] = probes.tolist()
    return settings


def loading_options(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the arguments, besides the name, that open a stored embedder again."""
    options = {}
    for name in _LOADING_OPTIONS:
        if settings.get(name) is not None:
            options[name] = settings[name]
    if options.get("aggregation", "").startswith("density"):
        options["aggregation"] = str(folder / DENSITY)
    return options


def check_embedder(
    embedder: DocumentEmbedder, settings: dict[str, Any], dimension: int, folder: Path
) -> None:
    """Raise TmdeError if an embedder makes other vectors than the one with the stored settings."""
    stored = settings | {"dimension": dimension}
    for name, value in _comparable_settings(embedder).items():
        if value != stored.get(name):
            raise TmdeError(
                f"{folder}: {name} is {stored.get(name)!r}, that of the embedder {value!r}"
            )
    stored_vectors = checked_unit_vectors(stored["probes"], dimension, "probes")
    cosines = np.sum(probe_vectors(embedder) * stored_vectors, axis=1)
    if not (cosines >= SAME_MODEL).all():
        raise TmdeError(
            f"{folder}: created with another model, {stored['model']} (cosines "
            f"{cosines.round(3)} for the same texts, expected 1); found "
            f"{embedder.model.name_or_path}"
        )


def checked_unit_vectors(vectors: npt.ArrayLike, dimension: int, name: str) -> np.ndarray:
    """Check vectors, and return them at length 1, (n, d) float32; zeros stay zeros.

    Args:
        vectors: (n, d) of any length.
        dimension: d.
        name: Their name in messages.

    Raises:
        TmdeError: Another shape, or a number that is not finite.
    """
    matrix = np.asarray(vectors, np.float32)
    if matrix.ndim != 2 or matrix.shape[1] != dimension:
        raise TmdeError(f"{name}: found shape {matrix.shape}, expected (n, {dimension})")
    if not np.isfinite(matrix).all():
        raise TmdeError(f"{name}: found a vector that is not finite, expected numbers")
    return unit_vectors(matrix)


def _comparable_settings(embedder: DocumentEmbedder) -> dict[str, Any]:
    """Return the settings on which the vectors of an embedder depend."""
    settings = {
        "dimension": embedder.dimension,
        "pooling": embedder.pooling,
        "max_length": embedder.max_length,
        "prompt": embedder.prompt,
    }
    return settings | embedder.long_document_settings


def _model_name(embedder: DocumentEmbedder) -> str:
    """Return the name by which the model is found again."""
    name = str(embedder.model.name_or_path)
    packaged = packaged_name(name)
    if packaged is not None:  # Its folder may move with the package.
        return packaged
    if os.path.isdir(name):
        return os.path.abspath(name)
    return name
