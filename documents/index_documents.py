"""Documents as a document index takes them and gives them back: checked, as a table, and told apart by digests."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from modeling_tmde.documents.index_metadata import METADATA, OWN_COLUMNS, DocumentIndexError

if TYPE_CHECKING:
    from modeling_tmde.embedding import EncodeReport

# Bytes of a digest that are of the text (and its language, if that counts); the rest: of the metadata.
TEXT_DIGEST = 16
_SURROGATE = re.compile("[\ud800-\udfff]")

Metadata = Sequence[Mapping[str, Any]] | pa.Table


@dataclass(frozen=True)
class Hit:
    """A document that was found; score: cosine; snippet: its sentence that is nearest to the query, made short."""

    score: float
    id: str
    text: str
    snippet: str
    metadata: dict[str, Any]

    @classmethod
    def of(cls, score: float, row: Mapping[str, Any]) -> Hit:
        """From a row of a segment."""
        names = (name for name in row if name.startswith(METADATA))
        return cls(score, row["id"], row["text"], "", {name.removeprefix(METADATA): row[name] for name in names})


@dataclass(frozen=True)
class Changes:
    """What one or several writes did. updated: new text or metadata; report: of the texts that were embedded."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    report: EncodeReport | None = None

    def __add__(self, other: Changes) -> Changes:
        report = self.report or other.report
        if self.report is not None and other.report is not None:
            report = self.report + other.report
        sums = (getattr(self, name) + getattr(other, name) for name in ("added", "updated", "unchanged"))
        return Changes(*sums, report)


def document_table(
    ids: Sequence[str], texts: Sequence[str], metadata: Metadata | None, languages: Sequence[str | None] | None
) -> pa.Table:
    """The rows of a segment.

    Args:
        ids, texts: n of each.
        metadata: n mappings or a table of n rows.
        languages: n codes, where a vector depends on them.

    Raises:
        DocumentIndexError: Not as many of each, an id that comes twice, an empty id or text, values of one name that
            no column can hold.
    """
    columns = _metadata_columns(metadata, len(ids))
    counts = {"ids": len(ids), "texts": len(texts)} | ({} if metadata is None else {"metadata": len(columns)})
    if len(set(counts.values())) > 1:
        raise DocumentIndexError(f"Found {counts}, expected as many of each")
    seen: set[str] = set()
    for id, text in zip(ids, texts, strict=True):
        if not isinstance(id, str) or not id:
            raise DocumentIndexError(f"ids: found {id!r}, expected a string that is not empty")
        if id in seen:
            raise DocumentIndexError(f"ids: found {id!r} twice, expected different ids")
        if not isinstance(text, str) or not text.strip():
            raise DocumentIndexError(f"text of document {id!r}: found {text!r}, expected one that is not empty")
        for name, value in (("ids", id), (f"text of document {id!r}", text)):
            if not value.isascii() and (bad := _SURROGATE.search(value)):
                raise DocumentIndexError(f"{name}: found a lone surrogate, {bad[0]!r}, expected Unicode text")
        seen.add(id)
    table = pa.table([ids, texts, _digests(texts, languages, columns)], schema=OWN_COLUMNS)
    for name in columns.column_names:
        table = table.append_column(METADATA + name, columns.column(name))
    return table


def _metadata_columns(metadata: Metadata | None, rows: int) -> pa.Table:
    """One column a name; plain strings in place of those of a dictionary."""
    if isinstance(metadata, pa.Table):
        _check_names(metadata.column_names)
        if len(set(metadata.column_names)) < metadata.num_columns:
            raise DocumentIndexError(f"metadata: found columns {metadata.column_names}, expected different names")
        for number, item in enumerate(metadata.schema):
            plain = item.type.value_type if pa.types.is_dictionary(item.type) else item.type
            plain = pa.string() if pa.types.is_string_view(plain) else plain  # rows of a view cannot be taken
            if plain != item.type:
                metadata = metadata.set_column(number, item.name, metadata.column(number).cast(plain))
        return metadata
    mappings = [{}] * rows if metadata is None else list(metadata)
    columns = {"": pa.nulls(len(mappings))}  # a table without columns has no rows
    names = list(dict.fromkeys(name for mapping in mappings for name in mapping))
    _check_names(names)
    for name in names:
        try:
            columns[name] = pa.array([mapping.get(name) for mapping in mappings])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DocumentIndexError(f"metadata: {name!r} is not one type, as a column is ({error})") from None
    return pa.table(columns).drop_columns([""])


def _check_names(names: Sequence[object]) -> None:
    for name in names:
        if not isinstance(name, str) or not name or _SURROGATE.search(name):
            raise DocumentIndexError(f"metadata: found the name {name!r}, expected a string that is not empty")


def _digests(texts: Sequence[str], languages: Sequence[str | None] | None, columns: pa.Table) -> list[bytes]:
    rows = columns.to_pylist() if columns.num_columns else [{}] * len(texts)
    digests = []
    for text, code, row in zip(texts, languages or [""] * len(texts), rows, strict=True):
        filled = {name: value for name, value in row.items() if value is not None}
        parts = (f"{code}\0{text}", json.dumps(filled, sort_keys=True, default=str))
        digests.append(b"".join(_digest(part) for part in parts))
    return digests


def _digest(part: str) -> bytes:
    return hashlib.blake2b(part.encode("utf-8", "surrogatepass"), digest_size=TEXT_DIGEST).digest()


def unit_rows(vectors: np.ndarray, dimension: int, name: str, ids: Sequence[str] | None = None) -> np.ndarray:
    """(n, d) float32 of length 1; zeros stay zeros.

    Raises:
        DocumentIndexError: Another shape, or a vector that is not finite; `ids` name the rows.
    """
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise DocumentIndexError(f"{name}: found shape {vectors.shape}, expected (n, {dimension})")
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    bad = np.flatnonzero(~np.isfinite(norms))
    if len(bad):
        place = f"row {bad[0]}" if ids is None else repr(ids[bad[0]])
        raise DocumentIndexError(f"{name}: found a vector that is not finite for {place}, expected numbers")
    norms[norms == 0] = 1
    return (vectors / norms[:, None]).astype(np.float32)
