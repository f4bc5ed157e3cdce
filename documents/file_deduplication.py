"""Find documents that repeat others, and write the rest."""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
from typing_extensions import Unpack

from modeling_tmde import TmdeError
from tmde.data.documents import Chunk
from tmde.data.id_places import IdPlaces
from tmde.data.io import replacing
from tmde.data.language_columns import language_column, language_or_none
from tmde.data.model_languages import LanguageWatch
from tmde.data.tables import suffix_of
from tmde.data.unit_files import UNIT_FORMATS, read_units
from tmde.documents.corpus_writer import checked_output, json_lines_writer
from tmde.documents.deduplicated_memory import MemoryOutput
from tmde.documents.deduplication import (
    MIN_DISTINCTNESS,
    MIN_SIMILARITY,
    MIN_WORDS,
    UNKNOWN_LANGUAGE,
    DuplicateFinder,
    Group,
)
from tmde.documents.document_sets import Reading, checked_ids, default_ids, open_documents
from tmde.documents.filtered_files import FEWEST_TEXTS
from tmde.documents.language_identification import LanguageIdentifier
from tmde.documents.signature_bands import Text
from tmde.documents.stored_documents import StoredDocuments, Strings
from tmde.embedding import DocumentEmbedder
from tmde.embedding.opening import open_embedder, without_truncation_warnings
from tmde.embedding.packaged_models import DEFAULT_MODEL
from tmde.embedding.progress import progress_bar

_DECIMALS = 6
# Short documents are identified as any language, so a language needs this share of the documents.
_MIN_SHARE = 0.02
_PART_END = "\x1f"  # the unit separator of ASCII, between the texts of a row

StoredChunk = tuple[Chunk, list[str], list[str | None]]  # documents, their ids and languages


@dataclass(frozen=True)
class DeduplicationReport:
    """The report of `dedupe_files`.

    Attributes:
        output: The file of kept documents.
        groups_output: The file of duplicate groups, if one was written.
        documents: The number of documents read.
        duplicates: The number of removed documents by kind, most frequent first.
        groups: The number of duplicate groups.
        languages: The number of documents in each language, most frequent first, with `""` for
            unknown; None if no language was detected.
        unit: The compared unit: "documents", or "rows" of a translation memory.
    """

    output: Path
    groups_output: Path | None
    documents: int
    duplicates: dict[str, int]
    groups: int
    languages: dict[str, int] | None
    unit: str = "documents"

    @property
    def kept(self) -> int:
        """The number of kept documents."""
        return self.documents - sum(self.duplicates.values())

    def sentences(self) -> list[str]:
        """Return the report as sentences to print."""
        sentences = []
        if self.languages is not None:
            counts = [f"{count:,} {code or 'unknown'}" for code, count in self.languages.items()]
            sentences.append(f"Languages: {', '.join(counts)}")
        kinds = [f"{count:,} {kind}" for kind, count in self.duplicates.items()]
        sentences.append(f"{self.documents:,} {self.unit}: {', '.join(kinds) or 'all different'}")
        sentences.append(f"{self.kept:,} {self.unit} kept -> {self.output}")
        if self.groups_output is not None:
            noun = "group" if self.groups == 1 else "groups"
            sentences.append(f"{self.groups:,} {noun} -> {self.groups_output}")
        return sentences


def dedupe_files(
    documents: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    groups: str | os.PathLike[str] | None = None,
    columns: Mapping[str, str] | None = None,
    language_field: str | None = None,
    min_similarity: float = MIN_SIMILARITY,
    min_words: int = MIN_WORDS,
    across_languages: bool = False,
    model: str | None = None,
    loading: Mapping[str, Any] | None = None,
    min_distinctness: float | None = None,
    **reading: Unpack[Reading],
) -> DeduplicationReport:
    """Remove documents that repeat an earlier one.

    Copies are identical except for case and whitespace. Near-duplicates share most of their
    characters; short ones share all of their words (see
    [`~tmde.documents.deduplication.DuplicateFinder`]). `across_languages` also removes
    translations; only this requires a model.

    The input is copied to a temporary folder next to the output.

    Args:
        documents: A file or folder of documents: text (one document per line), CSV, TSV, JSONL or
            parquet; `-` is stdin.
        output: The .jsonl file for kept documents with all their columns, or a .tmx with the texts
            of two or more `columns`. From TMX to TMX, kept units are byte-identical.
        groups: The .jsonl file for the groups of duplicates.
        columns: The columns of a table of pairs, by language: `{"en": "source", "de": "target"}`. A
            row is removed if all its texts repeat those of an earlier row. None uses all languages
            of a TMX or a catalog.
        language_field: The language column, for `across_languages`. Default: a column with a common
            name. Missing languages are detected (`clean` extra).
        min_similarity: The minimum similarity of near-duplicates, above 0 and at most 1.
        min_words: Texts with fewer words are near-duplicates only if their words are the same.
        across_languages: Also remove translations.
        model: The model that finds translations: a folder, a Hub id or a packaged model's name.
            Default: the default model.
        loading: Arguments for `DocumentEmbedder.from_pretrained`. Default: documents are embedded
            sentence by sentence (`long_documents`).
        min_distinctness: The minimum distinctness of translations, from 0 to 1, see
            [`~tmde.documents.distinct_pairs`]. Default: 0.4.
        reading: The fields of [`~tmde.documents.document_sets.Reading`].

    Raises:
        TmdeError: A file, the model or an argument can't be used.
        OSError: A file does not exist.

    Example:
        ```python
        from tmde import dedupe_files

        report = dedupe_files("news.jsonl", "unique.jsonl", groups="groups.jsonl")
        print(*report.sentences())
        ```
    """
    if not across_languages:
        _check_unset(
            model=model,
            language_field=language_field,
            min_distinctness=min_distinctness,
            **(loading or {}),
        )
    target = checked_output(output, (".jsonl", ".tmx"), inputs=[documents])
    if columns is None and not reading.get("field") and not across_languages:
        columns = _languages_of_units(documents)
    memory = None
    if target.suffix == ".tmx":
        memory = MemoryOutput(documents, target, reading.get("field"), columns)
    groups_target = None
    if groups is not None:
        groups_target = checked_output(groups, (".jsonl",), "groups", target, [documents])
    if columns is not None:
        _check_columns(columns, across_languages, reading)
        reading["field"] = list(columns.values())
    chunks = _read(documents, language_field, **reading)
    if columns is not None:
        chunks = _paired(chunks, list(columns.values()))
    with tempfile.TemporaryDirectory(prefix=f".{target.stem}.", dir=target.parent) as name:
        folder = Path(name)
        stored = StoredDocuments.write(folder, chunks)
        counts = None
        if across_languages:
            model = model or DEFAULT_MODEL
            loading = {"long_documents": "sentences"} | dict(loading or {})
            embedder = open_embedder(model, loading)
            finder = DuplicateFinder(
                min_similarity,
                min_words=min_words,
                embedder=embedder,
                min_distinctness=(
                    MIN_DISTINCTNESS if min_distinctness is None else min_distinctness
                ),
                folder=folder,
            )
            languages = _all_languages(stored)
            counts = Counter(languages)
            _warn_of_unknown_languages(counts, embedder)
            with without_truncation_warnings():
                duplicate_groups = finder.groups(stored.texts, languages)
        else:
            finder = DuplicateFinder(min_similarity, min_words=min_words, folder=folder)
            texts: Sequence[Text] = stored.texts
            if columns is not None:
                texts = _PairedTexts(stored.texts)
            duplicate_groups = finder.groups(texts)
        _write(stored, duplicate_groups, target, groups_target, memory)
        document_count = len(stored)
        were_identified = stored.languages.null_count > 0
    kinds = Counter(match.kind.value for group in duplicate_groups for match in group.duplicates)
    return DeduplicationReport(
        output=Path(output),
        groups_output=None if groups is None else Path(groups),
        documents=document_count,
        duplicates=dict(kinds.most_common()),
        groups=len(duplicate_groups),
        languages=dict(counts.most_common()) if counts and were_identified else None,
        unit="documents" if columns is None else "rows",
    )


def _check_unset(**for_translations: Any) -> None:
    """Raise `TmdeError` if an argument for translations is given, and none are searched for."""
    for name, value in for_translations.items():
        if value is not None:
            raise TmdeError(
                f"{name}: found {value!r} without across_languages, expected both or neither, "
                "because only translations require a model and languages"
            )


def _languages_of_units(source: str | os.PathLike[str]) -> dict[str, str] | None:
    """Return the languages of a translation memory or a catalog; None for another file."""
    path = os.path.expanduser(os.fspath(source))
    format = UNIT_FORMATS.get(suffix_of(path))
    if format is None or not os.path.isfile(path):
        return None
    languages: dict[str, str] = {}
    for _, row in read_units(format, path, str(source)):
        if isinstance(row, dict):
            languages |= {code: code for code in row}
    return languages if len(languages) >= FEWEST_TEXTS else None


def _check_columns(
    columns: Mapping[str, str], across_languages: bool, reading: Mapping[str, Any]
) -> None:
    """Raise `TmdeError` unless columns are those of pairs, and nothing else names the texts."""
    if across_languages:
        raise TmdeError(
            f"columns: found {dict(columns)} with across_languages, but the texts of a row "
            "are translations already; omit one of them"
        )
    if reading.get("field"):
        raise TmdeError(
            f"columns: found {dict(columns)} and the field {reading['field']!r}; set "
            "columns=... to compare each column of a row, or field=... to compare one text"
        )
    if len(columns) < FEWEST_TEXTS:
        raise TmdeError(
            f"columns: found {dict(columns)}, expected at least two columns; set one text "
            "column with field"
        )


def _paired(chunks: Iterable[StoredChunk], columns: Sequence[str]) -> Iterator[StoredChunk]:
    """Yield chunks with the texts of several columns, as `_PairedTexts` reads them."""
    for chunk, ids, languages in chunks:
        texts_of_columns = [chunk.values(column) for column in columns]
        texts = []
        for parts in zip(*texts_of_columns, strict=True):
            texts.append(_PART_END.join((part or "").replace(_PART_END, " ") for part in parts))
        yield replace(chunk, texts=texts), ids, languages


class _PairedTexts(Sequence[tuple[str, ...]]):
    """The texts of rows, which are stored as one string.

    Args:
        strings: The strings, (n,).
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = strings

    def __len__(self) -> int:
        return len(self.strings)

    @overload
    def __getitem__(self, place: int) -> tuple[str, ...]: ...

    @overload
    def __getitem__(self, place: slice) -> list[tuple[str, ...]]: ...

    def __getitem__(self, place: int | slice) -> tuple[str, ...] | list[tuple[str, ...]]:
        if isinstance(place, slice):
            return [tuple(string.split(_PART_END)) for string in self.strings[place]]
        return tuple(self.strings[place].split(_PART_END))

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        for string in self.strings:
            yield tuple(string.split(_PART_END))


def _read(
    source: str | os.PathLike[str], language_field: str | None, **reading: Unpack[Reading]
) -> Iterator[StoredChunk]:
    """Yield all documents in chunks, with the id and the language of each, under a progress bar.

    Arguments and errors are those of `dedupe_files`.
    """
    id_places = IdPlaces()
    with ExitStack() as stack:
        documents, id_field = open_documents(
            stack, source, True, language_field=language_field, **reading
        )
        column = documents.language_field or language_column(documents)
        bar = progress_bar(total=documents.rows, desc="Reading", unit=" documents")
        stack.enter_context(bar)
        for chunk in documents.chunks:
            if id_field in documents.fields:
                ids = checked_ids(chunk, id_field, id_places)
            else:
                ids = default_ids(chunk)
            yield chunk, ids, _languages_of(chunk, column)
            bar.update(len(chunk.texts))


def _languages_of(chunk: Chunk, column: str | None) -> list[str | None]:
    """Return the language of each document of a chunk; None for those that have none.

    Args:
        chunk: The documents.
        column: The column of their languages; None without one.
    """
    if column is None:
        return [None] * len(chunk.texts)
    values = chunk.languages or chunk.values(column)
    return [language_or_none(value) for value in values]


def _all_languages(documents: StoredDocuments) -> Sequence[str]:
    """Return the language of each document, which is identified where it is not known."""
    if not documents.languages.null_count:
        return Strings(documents.languages)
    identifier = LanguageIdentifier()
    languages = []
    texts = progress_bar(documents.texts, desc="Identifying languages", unit=" documents")
    for known_language, text in zip(documents.languages, texts, strict=True):
        language = known_language.as_py()
        if language is None:
            identified = identifier.identify(text)
            language = UNKNOWN_LANGUAGE if identified is None else identified.language
        # One string for all documents of a language.
        languages.append(sys.intern(language))
    return languages


def _warn_of_unknown_languages(counts: Counter[str], embedder: DocumentEmbedder) -> None:
    """Warn of languages that the model does not know, except those of hardly any document."""
    fewest = _MIN_SHARE * counts.total()
    LanguageWatch(embedder).check_codes(code for code, count in counts.items() if count >= fewest)


def _write(
    documents: StoredDocuments,
    groups: list[Group],
    target: Path,
    groups_target: Path | None,
    memory: MemoryOutput | None,
) -> None:
    """Write the documents that are kept, and the groups. Files appear when both are written."""
    is_kept = np.ones(len(documents), bool)
    for group in groups:
        for match in group.duplicates:
            is_kept[match.document] = False
    with ExitStack() as stack:
        if groups_target is not None:
            write_group = stack.enter_context(json_lines_writer(groups_target))
            for group in groups:
                write_group(_described_group(group, documents.ids))
        rows = progress_bar(
            documents.json_rows(), total=len(documents), desc="Writing", unit=" documents"
        )
        if memory is not None:
            memory.write(rows, is_kept.tolist())
            return
        temporary = stack.enter_context(replacing(target))
        output = stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
        for row, row_is_kept in zip(rows, is_kept.tolist(), strict=True):
            if row_is_kept:
                output.write(f"{row}\n")


def _described_group(group: Group, ids: Sequence[str]) -> dict[str, Any]:
    """Return what the file of groups says about a group."""
    duplicates = []
    for match in group.duplicates:
        score = round(match.score, _DECIMALS)
        duplicates.append({"id": ids[match.document], "kind": match.kind.value, "score": score})
    return {"kept": ids[group.kept], "duplicates": duplicates}
