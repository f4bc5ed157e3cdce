"""Two files of documents and pairs of their rows, for the commands that align and mine them."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import typer

from modeling_tmde import TmdeError
from tmde.cli.stored_documents import Strings
from tmde.data.checks import is_code
from tmde.data.delimited import Quoting
from tmde.data.documents import Chunk, Documents, InputFormat
from tmde.data.id_places import IdPlaces, Place
from tmde.data.io import replacing
from tmde.data.language_columns import (
    LANGUAGE_COLUMNS,
    language_or_none,
    named_like_language,
)
from tmde.documents.quality import PairQuality
from tmde.embedding import DocumentEmbedder, EncodeReport
from tmde.embedding.mapped_vectors import encode_to_file
from tmde.embedding.opening import open_embedder, without_truncation_warnings

_NEEDS_QUOTES = re.compile(r'[\t\n\r"]')
_CHUNK_SIZE = 8192  # documents that are read at once


@dataclass(frozen=True)
class DocumentSet:
    """The n documents of one file.

    Attributes:
        name: The file in messages.
        texts: Their texts.
        ids: Their ids.
        urls: Their URLs, "" for one without; None if no field of URLs was asked for.
        language: The code of the language of all; None if it was not given.
        language_hint: The language that a column or a folder names for all, and where it does so;
            None if there is none.
    """

    name: str
    texts: Sequence[str]
    ids: Sequence[str]
    urls: list[str] | None
    language: str | None
    language_hint: tuple[str, str] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def embed(self, rows: Sequence[int] | np.ndarray, embedder: DocumentEmbedder) -> np.ndarray:
        """Return the vectors of some rows, (rows, d), and print what was left out and truncated."""
        texts = [self.texts[row] for row in rows]
        vectors, report = embedder.encode_with_report(texts, language=self.language)
        self._tell_work(report)
        return np.asarray(vectors)

    def embed_to_file(
        self,
        rows: Sequence[int] | np.ndarray,
        embedder: DocumentEmbedder,
        path: Path,
        truncate_dim: int | None,
        precision: str,
    ) -> np.ndarray:
        """Do as `embed` with a file that holds the vectors; see `encode_to_file`."""
        texts = (self.texts[row] for row in rows)
        with without_truncation_warnings():
            vectors, report = encode_to_file(
                embedder, texts, len(rows), path, self.language, truncate_dim, precision
            )
        self._tell_work(report)
        return np.asarray(vectors)

    def _tell_work(self, report: EncodeReport) -> None:
        """Print what was embedded, left out and truncated."""
        left_out = len(self) - report.texts
        typer.echo(
            f"{self.name}: {report.texts:,} texts embedded in {report.seconds:.1f} s "
            f"({left_out:,} empty or repeated: left out; {report.split:,} split; "
            f"{report.truncated:,} truncated)",
            err=True,
        )


Sides = tuple[DocumentSet, DocumentSet]


@dataclass(frozen=True)
class SidesOptions:
    """How both files are read: the values of the options of `SIDES_OPTIONS`.

    Attributes:
        url_field: The field of the URLs; None if they are not needed.
    """

    format: InputFormat | None = None
    quoting: Quoting | None = None
    field: list[str] | None = None
    id_field: str | None = None
    language_a: str | None = None
    language_b: str | None = None
    url_field: str | None = None

    def check_languages(self) -> None:
        """Raise `TmdeError` if a language is no code, or if both are the same."""
        codes = {"--language-a": self.language_a, "--language-b": self.language_b}
        for option, code in codes.items():
            if code is not None and not is_code(code):
                raise TmdeError(
                    f"{option}: found {code!r}, expected a language code such as de or pt-BR"
                )
        if self.language_a is not None and self.language_a == self.language_b:
            raise TmdeError(
                f"--language-b: found {self.language_b!r}, the same as --language-a; expected "
                "another language"
            )


def read_sides(a: str, b: str, options: SidesOptions) -> Sides:
    """Read both files.

    A file is text (a document a line), CSV, TSV, JSONL or parquet; a folder holds texts or tables;
    `-` is stdin.

    Raises:
        TmdeError: A file cannot be read, a column is missing, an id occurs twice, all documents are
            empty, or the languages are no codes or equal.
    """
    if a == b == "-":
        raise TmdeError(
            "A and B are both -, but there is only one stdin; give a file for one of them"
        )
    options.check_languages()
    first = _read_side(a, options.language_a, options)
    second = _read_side(b, options.language_b, options)
    return first, second


def _read_side(source: str, language: str | None, options: SidesOptions) -> DocumentSet:
    """Read one file; see `read_sides`."""
    required: dict[str, str] = {}
    if options.id_field is not None:
        required[options.id_field] = "--id-field"
    if options.url_field is not None:
        required[options.url_field] = "--url-field"
    id_field = options.id_field or "id"
    kept_columns = [id_field, *required, *LANGUAGE_COLUMNS]
    with ExitStack() as stack:
        documents = Documents(
            stack,
            source,
            options.format,
            options.field,
            kept_columns,
            _CHUNK_SIZE,
            required=required,
            quoting=options.quoting,
        )
        language_column = documents.language_field or named_like_language(documents.fields)
        texts: list[pa.Array] = []  # one for each chunk, as the ids
        ids: list[pa.Array] = []
        urls: list[str] = []
        languages: set[str | None] = set()
        has_text = False
        id_places = IdPlaces()
        for chunk in documents.chunks:
            texts.append(pa.array(chunk.texts, pa.large_string()))
            chunk_ids = _ids_of(chunk, documents, id_field, id_places)
            ids.append(pa.array(chunk_ids, pa.large_string()))
            has_text = has_text or any(text.strip() for text in chunk.texts)
            if options.url_field is not None:
                chunk_urls = chunk.values(options.url_field)
                urls += [_without_spaces(url) for url in chunk_urls]
            if language_column is not None:
                languages.update(map(language_or_none, chunk.values(language_column)))
    if not has_text:
        raise TmdeError(f"{documents.name}: found no document with text, expected at least one")
    return DocumentSet(
        documents.name,
        Strings(pa.chunked_array(texts, pa.large_string())),
        Strings(pa.chunked_array(ids, pa.large_string())),
        urls if options.url_field is not None else None,
        language,
        _language_hint(documents, language_column, languages),
    )


def _ids_of(chunk: Chunk, documents: Documents, id_field: str, id_places: IdPlaces) -> list[str]:
    """Return the ids of the documents of a chunk; without a field of ids, their rows."""
    if id_field in documents.fields:
        return checked_ids(chunk, id_field, id_places)
    if len(documents.files) == 1:
        return [str(number) for number in chunk.numbers]
    return default_ids(chunk)


def _language_hint(
    documents: Documents, column: str | None, languages: set[str | None]
) -> tuple[str, str] | None:
    """Return the language of all documents, and what names it; None if they have several.

    Args:
        documents: The open file or folder.
        column: The column of the languages; None if there is none.
        languages: All values of the column, None for one that is no code.
    """
    if column is None or len(languages) != 1:
        return None
    (language,) = languages
    if language is None:
        return None
    if Path(documents.name).is_dir() and documents.language_field is not None:
        return language, f"the folder {documents.name}"
    return language, f"the column {column!r} of {documents.name}"


def needed_languages(sides: "Sides", purpose: str) -> TmdeError:
    """Return (not raise) the error of sides whose languages are needed and not known.

    Args:
        sides: Both sides.
        purpose: What needs the languages, as the beginning of a sentence.
    """
    proposals = []
    hints = []
    for option, side in zip(("--language-a", "--language-b"), sides, strict=True):
        if side.language is not None:
            continue
        code = "CODE"
        if side.language_hint is not None:
            code, place = side.language_hint
            hints.append(f"{place} says {code}")
        proposals.append(f"{option} {code}")
    message = f"{purpose} the languages of both sides; give {' '.join(proposals)}"
    if hints:
        message += f" ({', '.join(hints)})"
    return TmdeError(message)


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
            f"{place}: found {values[repeated]!r}, the id of {where} too; expected unique ids"
        )
    return ids


def places_of(chunk: Chunk) -> list[Place]:
    """Return the file and row of each document of a chunk."""
    return list(zip(chunk.files, chunk.numbers, strict=True))


def default_ids(chunk: Chunk) -> list[str]:
    """Return the ids of documents that have none: their file and row.

    The file is its whole path: files of one name in two folders keep their documents apart.
    `./news.txt` is `news.txt`.
    """
    ids = []
    for file, number in zip(chunk.files, chunk.numbers, strict=True):
        ids.append(f"{os.path.normpath(file)}:{number}")
    return ids


def load_embedder_of_sides(model: str, sides: Sides, **loading: Any) -> DocumentEmbedder:
    """Open a model, and check the languages if it has an encoder for each.

    Raises:
        TmdeError: The model cannot be used, or it has no encoder for the language of a side.
    """
    embedder = open_embedder(model, loading)
    if not embedder.needs_language:
        return embedder
    known = embedder.model.config.languages
    for option, side in zip(("--language-a", "--language-b"), sides, strict=True):
        if side.language not in known:
            raise TmdeError(
                f"{option}: found {side.language!r}, expected a language of the model: "
                f"{', '.join(known)}"
            )
    return embedder


def write_rows(target: Path, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    """Write rows as JSONL, or as TSV with a header, by the suffix of the file.

    Args:
        target: The file.
        columns: The names of the fields.
        rows: The values of each row, in the order of `columns`.
    """
    with replacing(target) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        if target.suffix == ".jsonl":
            for row in rows:
                fields = dict(zip(columns, row, strict=True))
                file.write(json.dumps(fields, ensure_ascii=False) + "\n")
            return
        file.write("\t".join(columns) + "\n")
        for row in rows:
            file.write("\t".join(tsv_field(value) for value in row) + "\n")


def tsv_field(value: str | float) -> str:
    """Return a field of TSV, quoted if it holds a tab, a line end or a quote, as pandas does."""
    if isinstance(value, float):
        return f"{value:.6f}"
    if _NEEDS_QUOTES.search(value) is None:
        return value
    doubled = value.replace('"', '""')
    return f'"{doubled}"'


def report_no_pair(threshold: float) -> None:
    """Print that no pair is good enough, and what to do."""
    typer.echo(
        f"No pair reaches --threshold {threshold:g}. Scores depend on the model: run without a "
        "threshold, look at them, and choose one.",
        err=True,
    )


def report_quality(path: Path, quality: PairQuality) -> None:
    """Print how many of the right pairs of a file were found."""
    typer.echo(
        f"{path}: {quality.correct:,} of {quality.gold:,} right pairs among {quality.found:,}: "
        f"precision {quality.precision:.4f}, recall {quality.recall:.4f}, F1 {quality.f1:.4f}",
        err=True,
    )
