"""What a document index keeps of the embedder that made its vectors, and what it shows of a document that it found."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from modeling_tmde.documents.index_documents import Hit
from modeling_tmde.documents.index_files import DENSITY, Manifest
from modeling_tmde.documents.index_metadata import DocumentIndexError
from modeling_tmde.documents.nearest import row_cosines
from modeling_tmde.long_documents import split_sentences

if TYPE_CHECKING:
    from modeling_tmde.embedding import DocumentEmbedder

# An embedder is known by its vectors of these: they stay when its folder is moved, when the package is updated, and
# nearly so in another dtype or on another device, and differ between any two trainings.
PROBES = (
    "Der Ausschuss hat 1998 beschlossen, die Brücke zu sperren. The bridge is closed, but the river is not.",
    "Il gatto dorme sul tavolo mentre fuori piove. ¿Cuántas lenguas hablan los niños? Le prix est de 42 euros.",
)
_SAME = 0.995  # cosine of two vectors of a probe; 8-bit weights stay above
_SNIPPET_SENTENCES = 256  # of a document that are compared with the query
_SNIPPET_CHARACTERS = 100_000


def embedding_settings(embedder: DocumentEmbedder, folder: Path, loading: Mapping[str, Any]) -> dict[str, Any]:
    """What an index writes down of its embedder, JSON values.

    Args:
        embedder: Whose vectors it will hold.
        folder: Of the index, where the density is saved if sentences are weighted by one.
        loading: More arguments of `DocumentEmbedder.from_pretrained`.
    """
    name = str(embedder.model.name_or_path)
    settings = embedder.long_document_settings
    if settings.get("aggregation", "").startswith("density"):
        embedder.aggregation.save(folder / DENSITY)
    return {
        "model": os.path.abspath(name) if os.path.isdir(name) else name,
        "loading": dict(loading),
        "pooling": embedder.pooling,
        "max_length": embedder.max_length,
        **settings,
        "uses_language": embedder.needs_language or settings["long_documents"] == "sentences",
        "probes": np.round(_probe_vectors(embedder).astype(float), 4).tolist(),
    }


def loading_options(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Arguments of `DocumentEmbedder.from_pretrained`, beside the name, that give the embedder of an index again."""
    names = ("pooling", "max_length", "long_documents", "window", "stride", "aggregation")
    options = {name: settings[name] for name in names if name in settings}
    if str(options.get("aggregation")).startswith("density"):
        options["aggregation"] = str(folder / DENSITY)
    return options | settings["loading"]


def open_embedder(settings: Mapping[str, Any], folder: Path) -> DocumentEmbedder:
    """
    Raises:
        DocumentIndexError: The model is not where it was, or cannot be loaded.
    """
    from modeling_tmde.embedding import DocumentEmbedder

    try:
        return DocumentEmbedder.from_pretrained(settings["model"], **loading_options(settings, folder))
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        raise DocumentIndexError(
            f"{folder}: its model {settings['model']} cannot be loaded ({error}); give the embedder"
        ) from None


def check_embedder(embedder: DocumentEmbedder, manifest: Manifest, folder: Path) -> None:
    """
    Raises:
        DocumentIndexError: Its vectors are not those of the index, or it reads texts differently.
    """
    settings = manifest.embedding
    if embedder.dimension != manifest.dimension:
        raise DocumentIndexError(
            f"{folder}: the embedder has {embedder.dimension} dimensions, the index {manifest.dimension}"
            + (f", which was made with {settings['model']}" if settings else "")
        )
    if settings is None:
        return
    found = {"pooling": embedder.pooling, "max_length": embedder.max_length, **embedder.long_document_settings}
    for name, value in found.items():
        if value != settings.get(name):
            raise DocumentIndexError(
                f"{folder}: {name} of the embedder is {value!r}, that of the index {settings.get(name)!r}; "
                "expected the same"
            )
    cosines = row_cosines(_probe_vectors(embedder), np.array(settings["probes"]))
    if not (cosines >= _SAME).all():
        raise DocumentIndexError(
            f"{folder}: was made with another model, {settings['model']} (cosines {np.round(cosines, 3).tolist()} for "
            f"the same texts, expected 1); found {embedder.model.name_or_path}"
        )


def _probe_vectors(embedder: DocumentEmbedder) -> np.ndarray:
    """(2, d) of length 1."""
    language = embedder.model.config.languages[0] if embedder.needs_language else None
    return embedder.encode(list(PROBES), language=language, show_progress_bar=False, normalize=True)


def snippets(hits: Sequence[Hit], query: np.ndarray, embedder: DocumentEmbedder | None, width: int) -> list[Hit]:
    """The hits with a sentence each: the nearest to the query, or the first where no embedder can tell.

    Args:
        hits: Of one query.
        query: (d,) of length 1.
        embedder: Of the index.
        width: Characters, the ellipsis of a longer sentence included.
    """
    sentences, owners = [], []
    for number, hit in enumerate(hits):
        language = hit.metadata.get("language")
        if embedder is not None and (not embedder.needs_language or language in embedder.model.config.languages):
            text = hit.text[:_SNIPPET_CHARACTERS]
            parts = split_sentences(text, language if isinstance(language, str) else None)[:_SNIPPET_SENTENCES]
            sentences += [(part, language) for part in parts]
            owners += [number] * len(parts)
    best: dict[int, tuple[float, str]] = {}
    if sentences:
        texts, languages = zip(*sentences, strict=True)
        codes = languages if embedder.needs_language else None
        vectors = embedder.encode(texts, language=codes, show_progress_bar=False, normalize=True)
        for (sentence, _), owner, cosine in zip(sentences, owners, (vectors @ query).tolist(), strict=True):
            if owner not in best or cosine > best[owner][0]:
                best[owner] = cosine, sentence
    return [
        replace(hit, snippet=shortened(best[number][1] if number in best else hit.text[: 4 * width], width))
        for number, hit in enumerate(hits)
    ]


def shortened(text: str, width: int) -> str:
    """One line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"
