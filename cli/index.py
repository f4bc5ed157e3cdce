"""`tmde index`: documents into a folder that `tmde search` reads, and that the next `tmde index` brings up to date."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from modeling_tmde.cli.document_sets import DocumentSet
from modeling_tmde.cli.embedder_options import (
    LONG_PANEL,
    AggregationOption,
    DeviceOption,
    DtypeOption,
    LongDocumentsMode,
    MaxLengthOption,
    PoolingOption,
    RevisionOption,
    StrideOption,
    TrustRemoteCodeOption,
    WindowOption,
    long_document_options,
)
from modeling_tmde.cli.embedding_job import load_model, stderr_is_terminal, told_out_of_memory
from modeling_tmde.cli.search import embedder_of_index, file_lines, opened_index, told_errors
from modeling_tmde.data.documents import VECTOR_COLUMN, Chunk, Documents, EmbedError, InputFormat, open_documents

# pyarrow, torch and faiss are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    import pyarrow as pa

    from modeling_tmde.documents.index import DocumentIndex
    from modeling_tmde.documents.index_documents import Changes

_BATCH = 1024  # documents embedded and written at a time: so many are done again after an interruption


@dataclass
class _Batch:
    ids: list[str]
    texts: list[str]
    metadata: pa.Table
    languages: list[str] | str | None
    place: str  # for messages


@dataclass
class _Reader:
    """Documents of one input as batches of an index; counts what it leaves out.

    seen: number of the line or row of each id.
    """

    documents: Documents
    field: str
    id_field: str | None
    language: str | None
    seen: dict[str, int] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)

    def batches(self) -> Iterator[_Batch]:
        done = 0
        for chunk in self.documents.chunks:
            numbers = list(chunk.numbers) or list(range(done + 1, done + 1 + chunk.rows))
            done += chunk.rows
            yield self._batch(chunk, numbers)

    def _batch(self, chunk: Chunk, numbers: list[int]) -> _Batch:
        import pyarrow as pa

        name, word = self.documents.name, self.documents.words[0]
        ids = self._ids(chunk, numbers)
        for number, id in zip(numbers, ids, strict=True):
            if id in self.seen:
                raise EmbedError(
                    f"{name}, {word} {number}, {self.id_field!r}: found {id!r}, which {word} {self.seen[id]} has too; "
                    "expected ids that occur once"
                )
            self.seen[id] = number
        kept = [row for row, text in enumerate(chunk.texts) if text.strip()]
        if len(kept) < len(ids):
            for row in sorted(set(range(len(ids))) - set(kept)):
                self.empty.append(f"{word} {numbers[row]}")
                del self.seen[ids[row]]
        dropped = {self.field, self.id_field, VECTOR_COLUMN} & set(chunk.columns.column_names)
        metadata = chunk.columns.drop_columns(sorted(dropped))
        languages: list[str] | str | None = self.language
        if chunk.languages is not None:
            languages = [chunk.languages[row] for row in kept]
        codes = [self.language] * chunk.rows if chunk.languages is None else chunk.languages
        if (self.language or chunk.languages) and "language" not in metadata.column_names:  # whatever its field's name
            metadata = metadata.append_column("language", pa.array(codes, pa.string()))
        place = f"{name}, {word}s {numbers[0]} to {numbers[-1]}"
        if not metadata.num_columns:  # a table without columns forgets its rows
            metadata = None
        else:
            metadata = metadata.take(kept)
        return _Batch([ids[row] for row in kept], [chunk.texts[row] for row in kept], metadata, languages, place)

    def _ids(self, chunk: Chunk, numbers: list[int]) -> list[str]:
        if self.id_field is None:  # the whole path: files of one name in two folders keep their documents apart
            return [f"{self.documents.name}:{number}" for number in numbers]
        words = self.documents.words
        documents = DocumentSet(self.documents.name, chunk.texts, [], numbers, chunk.columns, words)
        return documents.strings(self.id_field, "--id-field")


def index(
    documents: Annotated[
        str | None, typer.Argument(metavar="DOCS", help="File of documents: text, JSONL or parquet; - for stdin.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", "-o", metavar="INDEX", help="Folder of the index, made or brought up to date.")
    ] = ...,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Folder of a saved model, or a Hub id. Default: that of the index."),
    ] = None,
    format: Annotated[InputFormat | None, typer.Option(help="Default: by DOCS's suffix; text for stdin.")] = None,
    field: Annotated[
        str | None, typer.Option(help="JSONL field or parquet column of the text. Default: text.")
    ] = None,
    id_field: Annotated[
        str | None,
        typer.Option(
            help="That of the id. Default: id if there is one, else DOCS as given and the line; lines of stdin go "
            "only into an empty index."
        ),
    ] = None,
    language: Annotated[str | None, typer.Option(help="Code of the documents' language, such as de.")] = None,
    language_field: Annotated[
        str | None, typer.Option(help="JSONL field or parquet column with the language of each document.")
    ] = None,
    delete: Annotated[list[str] | None, typer.Option(metavar="ID", help="Remove this document; repeatable.")] = None,
    delete_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Remove the documents whose ids are the lines of FILE.")
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove documents that are not in DOCS.")] = False,
    pooling: PoolingOption = None,
    max_length: MaxLengthOption = None,
    long_documents: Annotated[
        LongDocumentsMode | None,
        typer.Option(
            help="A document too long for the model: embed it sentence by sentence (sentences, the default), in "
            "overlapping windows (chunk), or cut it off (truncate).",
            rich_help_panel=LONG_PANEL,
        ),
    ] = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    aggregation: AggregationOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    revision: RevisionOption = None,
) -> None:
    """Index documents for `tmde search`, or bring an index up to date.

    A document whose id and text are in the index already is left alone; new ones are added, changed ones replaced. The
    other fields of DOCS are kept as metadata. What is done is on disk every 1,024 documents: after an interruption,
    the same command goes on.

        tmde index news.jsonl -o news.index -m path/to/model

        tmde index -o news.index --delete 17 --delete 18
    """
    start = time.perf_counter()
    settings = {"pooling": pooling and pooling.value, "max_length": max_length, "revision": revision}
    settings = {name: value for name, value in settings.items() if value is not None}
    loading = {"dtype": dtype and dtype.value, "trust_remote_code": trust_remote_code}
    try:
        # The default is that of the index, or sentences.
        settings |= long_document_options(long_documents, window, stride, aggregation, default=None)
        run = _Run(out, model, device, settings, loading)
        removed = _ids_to_delete(delete, delete_file)
        if documents is None and delete is None and delete_file is None:
            raise EmbedError("found neither DOCS nor --delete, expected one of them")
        if documents is None and prune:
            raise EmbedError("--prune: removes what is not in DOCS, and there is no DOCS")
        with ExitStack() as stack, told_errors(out):
            reader = None
            if documents is not None:
                reader = _reader(stack, documents, format, field, id_field, language, language_field)
            run.open(stack, reader)
            run.delete(removed, missing_ok=reader is not None)  # the same command goes on after an interruption
            if reader is not None:
                run.put(reader)
                run.prune(reader if prune else None)
    except EmbedError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo(f"Interrupted; what was written is in {out}, and the same command goes on", err=True)
        raise typer.Exit(130) from None
    _summarise(run, reader, time.perf_counter() - start)


def _ids_to_delete(ids: Sequence[str] | None, file: Path | None) -> list[str]:
    found = list(ids or ())
    if file is not None:
        found += file_lines(str(file), "--delete-file")
    return found


def _reader(
    stack: ExitStack,
    source: str,
    format: InputFormat | None,
    field: str | None,
    id_field: str | None,
    language: str | None,
    language_field: str | None,
) -> _Reader:
    if language is not None and language_field is not None:
        raise EmbedError("--language and --language-field exclude each other; give one of them")
    documents = open_documents(stack, source, format, field, True, _BATCH, language_field=language_field)
    if id_field is not None and id_field not in documents.schema.names:
        raise EmbedError(f"{documents.name}: no column {id_field!r}, found {documents.schema.names}; see --id-field")
    if id_field is None and "id" in documents.schema.names:
        id_field = "id"
    return _Reader(documents, "text" if field is None else field, id_field, language)


@dataclass
class _Run:
    """One command: what it opens, and what it did.

    settings: of the embedder, that were given and that an index keeps; loading: those that it does not keep.
    """

    out: Path
    model: str | None
    device: str | None
    settings: dict[str, Any]
    loading: dict[str, Any]
    index: DocumentIndex | None = None
    changes: Changes | None = None
    deleted: int = 0
    missing: int = 0  # of those to delete

    def open(self, stack: ExitStack, reader: _Reader | None) -> None:
        """Opens the index, or makes it; no other process writes to it until `stack` ends."""
        from modeling_tmde.documents.index import DocumentIndex
        from modeling_tmde.documents.index_files import MANIFEST, is_unused

        if (self.out / MANIFEST).exists() or reader is None:
            self.index = opened_index(self.out)
            stack.enter_context(self.index.writing())
            if reader is not None:
                if reader.id_field is None and reader.documents.name == "stdin" and len(self.index):
                    raise EmbedError(
                        f"stdin: its documents have no ids, and would replace those of another stdin in {self.out}; "
                        "give a file, or --format jsonl with --id-field"
                    )
                self._check_settings()
                loading = self.loading | self.settings
                self.index.embedder = embedder_of_index(self.index, self.model, self.device, loading)
            return
        if self.model is None:
            raise EmbedError(f"{self.out}: there is no index yet; give --model to make one")
        if not is_unused(self.out):
            raise EmbedError(f"--output {self.out}: is not an index; expected a new name, or an empty folder")
        loading = {"long_documents": "sentences"} | self.loading | self.settings
        embedder = load_model(self.model, self.device, stderr_is_terminal(), loading)
        revision = {"revision": self.settings["revision"]} if "revision" in self.settings else None
        try:
            self.index = DocumentIndex.create(self.out, embedder, loading=revision)
        except ImportError as error:
            raise EmbedError(str(error)) from None
        stack.enter_context(self.index.writing())

    def _check_settings(self) -> None:
        """
        Raises:
            EmbedError: Another way to embed than that of the documents that are in the index.
        """
        from modeling_tmde.long_documents import NO_LIMIT

        if self.index.settings is None:  # made without a model, which is said when it is to be opened
            return
        kept = self.index.settings
        for name in ("pooling", "long_documents", "max_length"):
            found = self.settings.get(name, kept.get(name))
            # A larger max_length may be lowered to what the model takes, as it was when the index was made.
            if found != kept.get(name) and not (name == "max_length" and found > kept[name]):
                option, was = name.replace("_", "-"), kept.get(name)
                was = "no limit" if name == "max_length" and was >= NO_LIMIT else was
                raise EmbedError(
                    f"--{option}: found {found}, but {self.out} was made with {was}; leave it out, or make "
                    "another index"
                )

    def delete(self, ids: Sequence[str], missing_ok: bool = False) -> None:
        if missing_ok:
            there = [id for id in dict.fromkeys(ids) if id in self.index]
            self.missing = len(set(ids)) - len(there)
            ids = there
        if ids:
            before = len(self.index)
            self.index.delete(ids)
            self.deleted += before - len(self.index)

    def put(self, reader: _Reader) -> None:
        """Adds and replaces documents, batch by batch."""
        from tqdm import tqdm

        from modeling_tmde.documents.index_documents import Changes

        self.changes = Changes()
        rows = reader.documents.rows
        with tqdm(total=rows, desc="Indexing", unit=" texts", disable=not stderr_is_terminal()) as bar:
            for batch in reader.batches():
                if batch.ids:
                    try:
                        with told_out_of_memory(self.index.embedder, "lower --max-length, or give --device cpu"):
                            change = self.index.upsert(
                                batch.ids, batch.texts, batch.metadata, language=batch.languages
                            )
                    except ValueError as error:
                        raise EmbedError(f"{batch.place}: {error}") from None
                    self.changes += change
                bar.update(len(batch.ids))

    def prune(self, reader: _Reader | None) -> None:
        if reader is not None:
            self.delete([id for id in self.index if id not in reader.seen])


def _summarise(run: _Run, reader: _Reader | None, seconds: float) -> None:
    parts = []
    if run.changes is not None:
        parts += [f"{getattr(run.changes, name):,} {name}" for name in ("added", "updated", "unchanged")]
    parts.append(f"{run.deleted:,} deleted")
    if run.missing:
        parts.append(f"{run.missing:,} to delete not there")
    if reader is not None and reader.empty:
        parts.append(f"{len(reader.empty):,} empty ones left out (first: {reader.empty[0]})")
    report = run.changes and run.changes.report
    if report:
        parts.append(f"{report.tokens:,} tokens, {report.truncated:,} texts truncated")
    search = "exact" if run.index.exact else "approximate, unless --exact is given"
    typer.echo(
        f"{', '.join(parts)}, in {seconds:.1f} s -> {run.out} ({len(run.index):,} documents, search: {search})",
        err=True,
    )
