"""The work of `tmde index`: bring an index up to date with a file of documents."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import typer

from modeling_tmde import TmdeError
from tmde.cli.document_sets import checked_ids, default_ids, places_of
from tmde.data.delimited import Quoting
from tmde.data.documents import VECTOR_COLUMN, Chunk, Documents, InputFormat, text_fields_of
from tmde.data.id_places import IdPlaces, Place
from tmde.data.language_columns import language_column, tell_language_folders
from tmde.data.languages import language_of_locale
from tmde.data.lines import read_lines
from tmde.documents.index import Changes, DocumentIndex
from tmde.documents.index_settings import SETTINGS
from tmde.embedding.loading import errors_about
from tmde.embedding.opening import open_embedder, without_truncation_warnings
from tmde.embedding.packaged_models import DEFAULT_MODEL, PACKAGED_FOLDERS
from tmde.embedding.progress import progress_bar

# Documents that are embedded and committed at a time: an interruption loses the work of one batch
# at most.
BATCH = 1024
PRUNED_AT_ONCE = 8192  # ids that `--prune` looks up, and deletes, in one commit


@dataclass(frozen=True)
class IndexJob:
    """What `tmde index` was asked for; the fields are its arguments and options.

    Attributes:
        loading: The arguments of `DocumentEmbedder.from_pretrained`.
    """

    folder: Path
    documents: str | None
    model: str | None
    loading: dict[str, Any]
    format: InputFormat | None
    quoting: Quoting | None
    field: list[str] | None
    id_field: str | None
    language: str | None
    language_field: str | None
    delete: list[str]
    delete_file: str | None
    prune: bool
    precision: str | None = None
    truncate_dim: int | None = None


@dataclass
class Update:
    """What an update of an index has done so far.

    Attributes:
        changes: The documents that were added, updated and left as they are.
        deleted: The number of documents that were deleted.
        empty: The number of empty documents, which are not indexed.
        present_ids: The ids of all indexed documents of the file, which `--prune` keeps.
    """

    changes: Changes = field(default_factory=Changes)
    deleted: int = 0
    empty: int = 0
    present_ids: IdPlaces = field(default_factory=IdPlaces)


@dataclass(frozen=True)
class IndexRow:
    """A document as the index takes it."""

    id: str
    place: Place
    text: str
    metadata: dict[str, Any]
    language: str | None


def update_index(job: IndexJob) -> None:
    """Bring an index up to date with a file of documents, and print what was done.

    Raises:
        TmdeError: The file, the index or the model cannot be used.
    """
    start = time.perf_counter()
    unwanted_ids = list(job.delete)
    if job.delete_file:
        unwanted_ids += read_texts(job.delete_file)
    update = Update()
    with (
        ExitStack() as stack,
        without_truncation_warnings(),
        errors_about(job.folder, prefix=False),
    ):
        if job.documents is None:
            index = DocumentIndex.open(job.folder)
            _check_sizes(job, index)
            stack.enter_context(index.writing())
            update.deleted = index.delete(unwanted_ids)
        else:
            documents = _open_documents(stack, job.documents, job)
            language_field = _find_language_field(job, documents)
            index = _open_or_create(job)
            id_field = _find_id_field(job, documents, index)
            stack.enter_context(index.writing())
            update.deleted = index.delete(unwanted_ids, missing_ok=True)
            left_out = _metadata_left_out(job, id_field)
            id_prefix = _find_id_prefix(documents, id_field)
            columns = _Columns(id_field, language_field, left_out, id_prefix)
            _add_documents(job, documents, columns, index, update)
            # It costs little here, and later nobody who only searches writes to the folder.
            index.index_words()
        if job.prune:
            update.deleted += _delete_absent(index, update.present_ids)
    seconds = time.perf_counter() - start
    typer.echo(_describe(update, index, job.folder, seconds), err=True)


def open_index(folder: str | Path, model: str | None, loading: dict[str, Any]) -> DocumentIndex:
    """Open an index with its embedder.

    Args:
        folder: The folder of the index.
        model: Where its model is; None for the place that the index names.
        loading: Arguments of `from_pretrained`, which go before those of the index.

    Raises:
        TmdeError: The index or its model cannot be loaded.
    """
    index = DocumentIndex.open(folder)
    has_packaged = index.model_name in PACKAGED_FOLDERS
    if model in PACKAGED_FOLDERS and has_packaged and model != index.model_name:
        raise TmdeError(
            f"{folder}: was made with the model {index.model_name}, and --model is {model}; "
            "vectors of two models cannot be compared: make another index by "
            f"`tmde index FILE -o NEW_FOLDER -m {model}`"
        )
    # Raises if the index was made of vectors, without a model.
    options = index.loading_options | loading
    try:
        index.embedder = open_embedder(model or index.model_name, options)
    except ValueError as error:
        reason = str(error)[:500]
        raise TmdeError(
            f"{reason} (the model of {folder} is {index.model_name}; see --model)"
        ) from error
    return index


def read_texts(file: str) -> list[str]:
    """Return the lines of a UTF-8 file, or of stdin as `-`, that are not blank."""
    lines = sys.stdin if file == "-" else (line for _, line in read_lines(file))
    texts = [line.lstrip("\ufeff").strip() for line in lines]
    return [text for text in texts if text]


def _delete_absent(index: DocumentIndex, present_ids: IdPlaces) -> int:
    """Delete the documents that have none of these ids, and return how many there were."""
    deleted = 0
    ids = iter(index)
    # Deletions do not disturb the iteration, which goes over the version at its beginning.
    while batch := list(islice(ids, PRUNED_AT_ONCE)):
        deleted += index.delete(present_ids.absent(batch))
    return deleted


def _open_documents(stack: ExitStack, source: str, job: IndexJob) -> Documents:
    required = {}
    if job.id_field is not None:
        required[job.id_field] = "--id-field"
    return Documents(
        stack,
        source,
        job.format,
        job.field,
        True,
        BATCH,
        language_field=job.language_field,
        required=required,
        left_out=job.folder,
        quoting=job.quoting,
    )


def _open_or_create(job: IndexJob) -> DocumentIndex:
    if (job.folder / SETTINGS).exists():
        index = open_index(job.folder, job.model, job.loading)
        _check_sizes(job, index)
        return index
    loading = {"long_documents": "sentences"} | job.loading
    embedder = open_embedder(job.model or DEFAULT_MODEL, loading)
    return DocumentIndex.create(
        job.folder,
        embedder,
        revision=job.loading.get("revision"),
        precision=job.precision or "float32",
        truncate_dim=job.truncate_dim,
    )


def _check_sizes(job: IndexJob, index: DocumentIndex) -> None:
    """Raise TmdeError if the vectors of an index have another size than the one asked for."""
    stored = {"--precision": index.precision, "--truncate-dim": index.stored_dimension}
    for option, value in (("--precision", job.precision), ("--truncate-dim", job.truncate_dim)):
        if value is not None and value != stored[option]:
            raise TmdeError(
                f"{job.folder}: {option} is {value}, and the index was made with {stored[option]}; "
                f"leave {option} out, or make another index: `tmde index FILE -o NEW_FOLDER "
                f"{option} {value}`"
            )


def _find_id_field(job: IndexJob, documents: Documents, index: DocumentIndex) -> str | None:
    """Return the field of the ids; None if a document is known by its file and row.

    Raises:
        TmdeError: Documents without ids come from stdin once more: row 1 would be another document.
    """
    if job.id_field is not None:
        return job.id_field
    if "id" in documents.fields:
        return "id"
    if documents.name == "stdin" and len(index):
        raise TmdeError(
            "stdin: its documents have no ids and would replace those of an earlier stdin in "
            f"{job.folder}; give a file, or --format jsonl with --id-field"
        )
    return None


def _find_id_prefix(documents: Documents, id_field: str | None) -> str:
    """Return what is put before the ids of documents: their folder, if their names are the ids.

    So files of one name in two folders keep their documents apart.
    """
    if documents.text_folder is None or id_field != "id":
        return ""
    return os.path.normpath(documents.text_folder.folder) + "/"


def _find_language_field(job: IndexJob, documents: Documents) -> str | None:
    """Return the field of the language: the one that was named, or a column that looks like it.

    Such a column is taken by itself, because its first values are codes, and because languages
    only label the hits and help to find the ends of sentences.
    """
    if job.language is not None:
        return documents.language_field
    if documents.language_field is not None:
        tell_language_folders(documents)
        return documents.language_field
    column = language_column(documents)
    if column is not None and column != "language":
        typer.echo(
            f"{documents.name}: the column {column!r} is taken as the language of each document "
            f"(as by --language-field {column})",
            err=True,
        )
    return column


def _metadata_left_out(job: IndexJob, id_field: str | None) -> set[str]:
    """Return the columns that are no metadata: text, id and vector.

    If several columns make the text, a title among them stays metadata, because hits show it.
    """
    text_fields = text_fields_of(job.field)
    names = {*text_fields, VECTOR_COLUMN}
    if len(text_fields) > 1:
        names.discard("title")
    if id_field is not None:
        names.add(id_field)
    return names


@dataclass(frozen=True)
class _Columns:
    """The columns of documents that mean something to the index.

    Attributes:
        id: The column of the ids; None if there is none.
        language: The column of the languages; None if there is none.
        left_out: The columns that are no metadata.
        id_prefix: What is put before the ids.
    """

    id: str | None
    language: str | None
    left_out: set[str]
    id_prefix: str = ""


def _add_documents(
    job: IndexJob,
    documents: Documents,
    columns: _Columns,
    index: DocumentIndex,
    update: Update,
) -> None:
    """Add the documents that are not empty to the index, batch by batch."""
    # All are read before the first is embedded: a bad row leaves the index as it was.
    rows_to_come = chain.from_iterable(_rows_of_chunks(job, documents.read(BATCH), columns))
    index.expect((row.id, row.metadata) for row in rows_to_come if row.text.strip())
    bar = progress_bar(documents.chunks, desc="Indexing", unit=f" x {BATCH:,} texts")
    for all_rows in _rows_of_chunks(job, bar, columns):
        rows = [row for row in all_rows if row.text.strip()]
        update.empty += len(all_rows) - len(rows)
        if not rows:
            continue
        update.changes += index.upsert(
            [row.id for row in rows],
            [row.text for row in rows],
            [row.metadata for row in rows],
            language=[row.language for row in rows],
        )
        if job.prune:
            update.present_ids.add([row.id for row in rows], [row.place for row in rows])


def _rows_of_chunks(
    job: IndexJob, chunks: Iterable[Chunk], columns: _Columns
) -> Iterator[list[IndexRow]]:
    """Yield the documents of each chunk.

    Raises:
        TmdeError: A value is no id, or an id occurs twice.
    """
    id_places = IdPlaces()
    for chunk in chunks:
        if columns.id is None:
            ids = default_ids(chunk)
        else:
            names = checked_ids(chunk, columns.id, id_places)
            ids = [columns.id_prefix + name for name in names]
        yield list(_rows_of(job, chunk, ids, columns))


def _rows_of(job: IndexJob, chunk: Chunk, ids: list[str], columns: _Columns) -> Iterator[IndexRow]:
    """Yield the documents of a chunk; all fields but text, id and vector are metadata."""
    codes = _codes_of(job, chunk, columns)
    rows = chunk.rows()
    places = places_of(chunk)
    for number, id in enumerate(ids):
        row = rows[number]
        code = codes[number]
        metadata: dict[str, Any] = {"language": code}
        for name, value in row.items():
            if name not in columns.left_out:
                metadata[name] = value
        if code is not None or columns.language is not None:
            metadata["language"] = code  # A column `language` may hold locales.
        yield IndexRow(id, places[number], chunk.texts[number], metadata, code)


def _codes_of(job: IndexJob, chunk: Chunk, columns: _Columns) -> list[str | None]:
    """Return the language of each document of a chunk; None where it is not known."""
    if job.language is not None:
        return [language_of_locale(job.language)] * len(chunk.texts)
    if columns.language is None:
        return [None] * len(chunk.texts)
    codes: list[str | None] = []
    for value in chunk.values(columns.language):
        is_filled = isinstance(value, str) and value != ""
        codes.append(language_of_locale(value) if is_filled else None)
    return codes


def _describe(update: Update, index: DocumentIndex, folder: Path, seconds: float) -> str:
    """Return a line of what an update has done."""
    changes = update.changes
    search = "exact"
    if not index.exact:
        search = f"approximate, recall@10 {index.recall:.3f}, unless --exact is given"
    return (
        f"{changes.added:,} added, {changes.updated:,} updated, {changes.unchanged:,} unchanged, "
        f"{update.deleted:,} deleted, {update.empty:,} empty ones left out, "
        f"{changes.report.tokens:,} tokens, {changes.report.truncated:,} texts truncated, "
        f"in {seconds:.1f} s -> {folder} ({len(index):,} documents, search: {search})"
    )
