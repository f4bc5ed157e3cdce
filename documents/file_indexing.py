"""Bring an index up to date with a file of documents."""

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from modeling_tmde import TmdeError
from tmde.data.delimited import Quoting
from tmde.data.documents import (
    VECTOR_COLUMN,
    BadRows,
    Chunk,
    Documents,
    InputFormat,
    text_fields_of,
)
from tmde.data.id_places import IdPlaces, Place
from tmde.data.language_columns import language_column, tell_language_folders
from tmde.data.languages import check_code, language_of_locale
from tmde.data.model_languages import LanguageWatch
from tmde.documents.document_sets import checked_ids, default_ids, path_from, places_of
from tmde.documents.index import Changes, DocumentIndex
from tmde.documents.index_settings import SETTINGS
from tmde.embedding.loading import errors_about
from tmde.embedding.opening import open_embedder, without_truncation_warnings
from tmde.embedding.packaged_models import DEFAULT_MODEL, PACKAGED_FOLDERS
from tmde.embedding.progress import progress_bar

# Documents that are embedded and committed at a time: an interruption loses the work of one batch
# at most.
BATCH = 1024
PRUNED_AT_ONCE = 8192  # ids that are looked up, and deleted, in one commit

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class IndexReport:
    """The report of `index_files`.

    Attributes:
        folder: The folder of the index.
        changes: The counts of documents added, updated and unchanged.
        deleted: The number of deleted documents.
        empty: The number of skipped empty documents.
        documents: The number of documents in the index.
        recall: The recall@10 of approximate search; None if search is exact.
        seconds: The time in seconds.
    """

    folder: Path
    changes: Changes
    deleted: int
    empty: int
    documents: int
    recall: float | None
    seconds: float

    def sentences(self) -> list[str]:
        """Return the report as sentences to print."""
        changes = self.changes
        search = "exact"
        if self.recall is not None:
            search = f"approximate, recall@10 {self.recall:.3f}, unless --exact is given"
        sentence = (
            f"{changes.added:,} added, {changes.updated:,} updated, "
            f"{changes.unchanged:,} unchanged, "
            f"{self.deleted:,} deleted, {self.empty:,} empty skipped, "
            f"{changes.report.tokens:,} tokens, {changes.report.truncated:,} texts truncated, "
            f"in {self.seconds:.1f} s -> {self.folder} "
            f"({self.documents:,} documents, search: {search})"
        )
        return [sentence]


def index_files(
    source: str | os.PathLike[str] | None,
    folder: str | os.PathLike[str],
    *,
    model: str | None = None,
    loading: Mapping[str, Any] | None = None,
    format: InputFormat | None = None,
    quoting: Quoting | None = None,
    field: str | Sequence[str] | None = None,
    id_field: str | None = None,
    language: str | None = None,
    language_field: str | None = None,
    delete: Sequence[str] = (),
    prune: bool = False,
    precision: str | None = None,
    truncate_dim: int | None = None,
    bad_rows: BadRows = "report",
    passages: bool | None = None,
) -> IndexReport:
    """Index the documents of files, or update an index.

    Unchanged documents are skipped, new ones added and changed ones replaced. Progress is saved
    every 1,024 documents.

    Args:
        source: A file or folder of documents; `-` is stdin. None only deletes documents.
        folder: The folder of the index, created if missing.
        model: A folder, a Hub id or a packaged model's name. Default: the index's model, or
            `default`.
        loading: Arguments for `DocumentEmbedder.from_pretrained`.
        format: The input format. Default: chosen by the suffix.
        quoting: The quoting of CSV and TSV; None detects it.
        field: The text column, or several to join with blank lines.
        id_field: The id column. Default: `id`, or else the file and row of a document.
        language: The language of all documents.
        language_field: The language column. Default: a column named language, lang, locale or
            similar, if it contains codes.
        delete: The ids of documents to delete.
        prune: Delete documents that are not in the source.
        precision: The type of a new index's vectors, see `DocumentIndex.create`.
        truncate_dim: Store only the first `truncate_dim` elements of each vector in a new index.
        bad_rows: `"report"` skips and reports unreadable rows; `"raise"` stops at the first one.
        passages: Whether a new index has one vector per passage (default) or per document.

    Raises:
        TmdeError: An argument, the model or a file can't be used.

    Example:
        ```python
        from tmde import index_files

        report = index_files("articles.csv", "articles.index", field=["title", "body"])
        print(*report.sentences())
        ```
    """
    check_code(language, "language")
    start = time.perf_counter()
    folder = Path(folder)
    path = None if source is None else os.fspath(source)
    loading = dict(loading or {})
    changes = Changes()
    empty = 0
    with (
        ExitStack() as stack,
        without_truncation_warnings(),
        errors_about(folder, prefix=False),
    ):
        if path is None:
            index = DocumentIndex.open(folder)
            _check_sizes(index, precision, truncate_dim, passages)
            stack.enter_context(index.writing())
            deleted = index.delete(delete)
        else:
            documents = Documents(
                stack,
                path,
                format,
                field,
                True,
                BATCH,
                language_field=language_field,
                required={} if id_field is None else {id_field: "--id-field"},
                left_out=folder,
                quoting=quoting,
                bad_rows=bad_rows,
                marks_headings=True,  # Passages begin at headings.
            )
            if language is None:
                language_field = _find_language_field(documents)
            index = _open_or_create(folder, model, loading, precision, truncate_dim, passages)
            id_field = _find_id_field(id_field, documents, index)
            stack.enter_context(index.writing())
            deleted = index.delete(delete, missing_ok=True)
            reader = _RowReader(
                id_field=id_field,
                id_prefix=_find_id_prefix(documents, id_field, folder.parent),
                start=None if documents.name == "stdin" else folder.parent,
                language=None if language is None else language_of_locale(language),
                language_field=language_field,
                left_out=_metadata_left_out(text_fields_of(field), id_field),
            )
            present_ids = IdPlaces() if prune else None
            changes, empty = _add_documents(index, documents, reader, present_ids)
            # It costs little here, and later nobody who only searches writes to the folder.
            index.index_words()
            if present_ids is not None:
                deleted += _delete_absent(index, present_ids)
        recall = None if index.exact else index.recall
        count = len(index)
    seconds = time.perf_counter() - start
    return IndexReport(folder, changes, deleted, empty, count, recall, seconds)


def open_index(folder: str | Path, model: str | None, loading: Mapping[str, Any]) -> DocumentIndex:
    """Open an index with its embedder.

    Args:
        folder: The folder of the index.
        model: The location of its model; None for the one stored in the index.
        loading: Arguments of `from_pretrained`, which override those of the index.

    Raises:
        TmdeError: The index or its model cannot be loaded.
    """
    index = DocumentIndex.open(folder)
    has_packaged = index.model_name in PACKAGED_FOLDERS
    if model in PACKAGED_FOLDERS and has_packaged and model != index.model_name:
        raise TmdeError(
            f"{folder}: its model is {index.model_name}, but --model is {model}, and vectors "
            "of two models can't be compared; create another index with `tmde index FILE -o "
            f"NEW_FOLDER -m {model}`"
        )
    # Raises if the index was made of vectors, without a model.
    options = {**index.loading_options, **loading}
    try:
        index.embedder = open_embedder(model or index.model_name, options)
    except ValueError as error:
        reason = str(error)[:500]
        raise TmdeError(
            f"{reason} (the model of {folder} is {index.model_name}; see --model)"
        ) from error
    return index


def _open_or_create(
    folder: Path,
    model: str | None,
    loading: Mapping[str, Any],
    precision: str | None,
    truncate_dim: int | None,
    passages: bool | None,
) -> DocumentIndex:
    if (folder / SETTINGS).exists():
        index = open_index(folder, model, loading)
        _check_sizes(index, precision, truncate_dim, passages)
        return index
    embedder = open_embedder(model or DEFAULT_MODEL, {"long_documents": "sentences", **loading})
    return DocumentIndex.create(
        folder,
        embedder,
        revision=loading.get("revision"),
        precision=precision or "float32",
        truncate_dim=truncate_dim,
        passages=passages is not False,
    )


def _check_sizes(
    index: DocumentIndex, precision: str | None, truncate_dim: int | None, passages: bool | None
) -> None:
    """Raise TmdeError if an index has other vectors than those that are asked for."""
    if passages is not None and passages != index.has_passages:
        made_of = "passages" if index.has_passages else "whole documents"
        option = "--passages" if passages else "--no-passages"
        raise TmdeError(
            f"{index.folder}: found vectors of {made_of}; omit {option}, or create another "
            f"index: `tmde index FILE -o NEW_FOLDER {option}`"
        )
    stored = {"--precision": index.precision, "--truncate-dim": index.stored_dimension}
    for option, value in (("--precision", precision), ("--truncate-dim", truncate_dim)):
        if value is not None and value != stored[option]:
            raise TmdeError(
                f"{index.folder}: {option} is {value}, but the index was created with "
                f"{stored[option]}; omit {option}, or create another index: `tmde index FILE "
                f"-o NEW_FOLDER {option} {value}`"
            )


def _find_id_field(id_field: str | None, documents: Documents, index: DocumentIndex) -> str | None:
    """Return the field of the ids; None if a document is known by its file and row.

    Raises:
        TmdeError: Documents without ids come from stdin once more: row 1 would be another document.
    """
    if id_field is not None:
        return id_field
    if "id" in documents.fields:
        return "id"
    if documents.name == "stdin" and len(index):
        raise TmdeError(
            "stdin: its documents have no ids and would replace those of an earlier run in "
            f"{index.folder}; give a file, or --format jsonl with --id-field"
        )
    return None


def _find_id_prefix(documents: Documents, id_field: str | None, start: Path) -> str:
    """Return what is put before the ids of documents: their folder, if their names are the ids.

    So files of one name in two folders keep their documents apart. The folder is relative to the
    one that the index is in: it is the same from wherever it is indexed, and both can be moved.

    Args:
        documents: The documents.
        id_field: The column of the ids.
        start: The folder that the index is in.
    """
    if documents.text_folder is None or id_field != "id":
        return ""
    return path_from(start, documents.text_folder.folder) + "/"


def _find_language_field(documents: Documents) -> str | None:
    """Return the field of the language: the one that was named, or a column that looks like it.

    Such a column is taken by itself, because its first values are codes, and because languages
    only label the hits and help to find the ends of sentences.
    """
    if documents.language_field is not None:
        tell_language_folders(documents)
        return documents.language_field
    column = language_column(documents)
    if column is not None and column != "language":
        logger.warning(
            "%s: the column %r is used as the language of each document (as with "
            "--language-field %s)",
            documents.name,
            column,
            column,
        )
    return column


def _metadata_left_out(text_fields: Sequence[str], id_field: str | None) -> set[str]:
    """Return the columns that are no metadata: text, id and vector.

    If several columns make the text, a title among them stays metadata, because hits show it.
    """
    names = {*text_fields, VECTOR_COLUMN}
    if len(text_fields) > 1:
        names.discard("title")
    if id_field is not None:
        names.add(id_field)
    return names


# ---- Rows


@dataclass(frozen=True)
class _IndexRow:
    """A document as the index takes it."""

    id: str
    place: Place
    text: str
    metadata: dict[str, Any]
    language: str | None


@dataclass(frozen=True)
class _RowReader:
    """Makes rows of an index of documents.

    Attributes:
        id_field: The column of the ids; None if there is none.
        id_prefix: What is put before the ids.
        start: The folder that files are relative to in ids; None leaves their names as they are.
        language: The language of all documents; None if it was not named.
        language_field: The column of the languages; None if there is none.
        left_out: The columns that are no metadata.
    """

    id_field: str | None
    id_prefix: str
    start: Path | None
    language: str | None
    language_field: str | None
    left_out: set[str]

    def read(self, chunks: Iterable[Chunk]) -> Iterator[list[_IndexRow]]:
        """Yield the rows of each chunk; all fields but text, id and vector are metadata.

        Raises:
            TmdeError: A value is no id, or an id occurs twice.
        """
        id_places = IdPlaces()
        for chunk in chunks:
            if self.id_field is None:
                ids = default_ids(chunk, self.start)
            else:
                names = checked_ids(chunk, self.id_field, id_places)
                ids = [self.id_prefix + name for name in names]
            yield self._rows_of(chunk, ids)

    def _rows_of(self, chunk: Chunk, ids: list[str]) -> list[_IndexRow]:
        codes = self._codes_of(chunk)
        places = places_of(chunk)
        rows = []
        for number, fields in enumerate(chunk.rows()):
            code = codes[number]
            metadata: dict[str, Any] = {"language": code}
            for name, value in fields.items():
                if name not in self.left_out:
                    metadata[name] = value
            if code is not None or self.language_field is not None:
                metadata["language"] = code  # A column `language` may hold locales.
            row = _IndexRow(ids[number], places[number], chunk.texts[number], metadata, code)
            rows.append(row)
        return rows

    def _codes_of(self, chunk: Chunk) -> list[str | None]:
        """Return the language of each document of a chunk; None where it is not known."""
        if self.language is not None or self.language_field is None:
            return [self.language] * len(chunk.texts)
        codes: list[str | None] = []
        for value in chunk.values(self.language_field):
            is_filled = isinstance(value, str) and value != ""
            codes.append(language_of_locale(value) if is_filled else None)
        return codes


def _add_documents(
    index: DocumentIndex, documents: Documents, reader: _RowReader, present_ids: IdPlaces | None
) -> tuple[Changes, int]:
    """Add the documents that are not empty to the index, batch by batch.

    Args:
        index: The index.
        documents: The open source.
        reader: What makes rows of them.
        present_ids: Takes the ids of the documents, if they are needed.

    Returns:
        What was done, and the number of empty documents.
    """
    # All are read before the first is embedded: a bad row leaves the index as it was.
    rows_to_come = chain.from_iterable(reader.read(documents.read(BATCH)))
    index.expect((row.id, row.metadata) for row in rows_to_come if row.text.strip())
    changes = Changes()
    empty = 0
    watch = LanguageWatch(index.embedder)
    bar = progress_bar(documents.chunks, desc="Indexing", unit=f" x {BATCH:,} texts")
    for all_rows in reader.read(bar):
        rows = [row for row in all_rows if row.text.strip()]
        empty += len(all_rows) - len(rows)
        if not rows:
            continue
        watch.check([row.text for row in rows], [row.language for row in rows])
        ids = [row.id for row in rows]
        changes += index.upsert(
            ids,
            [row.text for row in rows],
            [row.metadata for row in rows],
            language=[row.language for row in rows],
        )
        if present_ids is not None:
            present_ids.add(ids, [row.place for row in rows])
    return changes, empty


def _delete_absent(index: DocumentIndex, present_ids: IdPlaces) -> int:
    """Delete the documents that have none of these ids, and return how many there were."""
    deleted = 0
    ids = iter(index)
    # Deletions do not disturb the iteration, which goes over the version at its beginning.
    while batch := list(islice(ids, PRUNED_AT_ONCE)):
        deleted += index.delete(present_ids.absent(batch))
    return deleted
