"""Find documents that repeat others, and write the rest."""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Unpack

from modeling_tmde import TmdeError
from tmde.data.documents import Chunk
from tmde.data.id_places import IdPlaces
from tmde.data.io import replacing
from tmde.data.language_columns import language_column, language_or_none
from tmde.documents.calibration import DEFAULT_SHARE
from tmde.documents.corpus_writer import checked_output, json_lines_writer
from tmde.documents.deduplicated_memory import MemoryOutput
from tmde.documents.deduplication import (
    MIN_PROBABILITY,
    MIN_SIMILARITY,
    UNKNOWN_LANGUAGE,
    DuplicateFinder,
    Group,
)
from tmde.documents.document_sets import Reading, checked_ids, default_ids, open_documents
from tmde.documents.language_identification import LanguageIdentifier
from tmde.documents.pair_probabilities import needed_calibration, warn_of_few
from tmde.documents.stored_documents import StoredDocuments, Strings
from tmde.embedding.opening import open_embedder, without_truncation_warnings
from tmde.embedding.packaged_models import DEFAULT_MODEL
from tmde.embedding.progress import progress_bar

_DECIMALS = 6


@dataclass(frozen=True)
class DeduplicationReport:
    """What was kept of a collection.

    Attributes:
        output: The file of the documents that were kept.
        groups_output: The file of the groups; None if none was written.
        documents: The documents that were read.
        duplicates: The documents that were removed, by kind, most frequent first.
        groups: The number of groups of documents that say the same.
        languages: The documents of each language, most frequent first, `""` for an unknown one;
            None if no language was identified.
    """

    output: Path
    groups_output: Path | None
    documents: int
    duplicates: dict[str, int]
    groups: int
    languages: dict[str, int] | None

    @property
    def kept(self) -> int:
        """The number of documents that were kept."""
        return self.documents - sum(self.duplicates.values())

    def sentences(self) -> list[str]:
        """Return the report as sentences for people."""
        sentences = []
        if self.languages is not None:
            counts = [f"{count:,} {code or 'unknown'}" for code, count in self.languages.items()]
            sentences.append(f"Languages: {', '.join(counts)}")
        kinds = [f"{count:,} {kind}" for kind, count in self.duplicates.items()]
        sentences.append(f"{self.documents:,} documents: {', '.join(kinds) or 'all different'}")
        sentences.append(f"{self.kept:,} documents kept -> {self.output}")
        if self.groups_output is not None:
            sentences.append(f"{self.groups:,} groups -> {self.groups_output}")
        return sentences


def dedupe_files(
    documents: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    groups: str | os.PathLike[str] | None = None,
    language_field: str | None = None,
    min_similarity: float = MIN_SIMILARITY,
    across_languages: bool = False,
    model: str | None = None,
    loading: Mapping[str, Any] | None = None,
    min_probability: float | None = None,
    share: float | None = None,
    calibration: str | os.PathLike[str] | None = None,
    **reading: Unpack[Reading],
) -> DeduplicationReport:
    """Remove documents that repeat an earlier one.

    Copies are equal except for case and white space. Near-duplicates share most of their
    characters; see [`~tmde.documents.deduplication.DuplicateFinder`]. Translations are removed with
    `across_languages`, and only these need a model.

    ```python
    report = dedupe_files("news.jsonl", "unique.jsonl", groups="groups.jsonl")
    ```

    What is read is kept in a temporary folder beside the output, where there is room for it.

    Args:
        documents: A file or folder of documents: text (a document a line), CSV, TSV, JSONL or
            parquet, or a folder of texts; `-` is stdin.
        output: The file of the documents that are kept, with all their columns, .jsonl; or .tmx of
            the texts of two or more columns, `field`. From TMX to TMX, what stays is the same bytes
            as before. Files that exist are replaced.
        groups: A file of the groups of documents that say the same, .jsonl; None writes none.
        language_field: The column of the languages, for translations; None for a column with such a
            name. Languages that are not known are identified (extra `clean`).
        min_similarity: The lowest similarity of near-duplicates, above 0, at most 1.
        across_languages: Remove translations, too.
        model: The model that finds them: a folder, a Hub id, or the name of a packaged model; None
            for the default one.
        loading: Arguments of `DocumentEmbedder.from_pretrained`. A document is embedded by its
            sentences unless `long_documents` says otherwise.
        min_probability: The lowest probability of translations, from 0 to 1; None for 0.9.
        share: The share of documents that have a translation in the collection; None for 0.5.
        calibration: A file of a calibration; None for that of the model.
        reading: How the files are read: `format`, `quoting`, `field`, `id_field`.

    Raises:
        TmdeError: A file, the model or an argument cannot be used.
        OSError: There is no such file.
    """
    if not across_languages:
        _check_unset(
            model=model,
            language_field=language_field,
            min_probability=min_probability,
            share=share,
            calibration=calibration,
            **(loading or {}),
        )
    target = checked_output(output, (".jsonl", ".tmx"), inputs=[documents])
    memory = None
    if target.suffix == ".tmx":
        memory = MemoryOutput(documents, target, reading.get("field"))
    groups_target = None
    if groups is not None:
        groups_target = checked_output(groups, (".jsonl",), "groups", target, [documents])
    chunks = _read(documents, language_field, **reading)
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
                embedder=embedder,
                calibration=needed_calibration(calibration, model, loading, embedder),
                min_probability=MIN_PROBABILITY if min_probability is None else min_probability,
                share=DEFAULT_SHARE if share is None else share,
                folder=folder,
            )
            languages = _all_languages(stored)
            counts = Counter(languages)
            _warn_of_rare_language(counts)
            with without_truncation_warnings():
                duplicate_groups = finder.groups(stored.texts, languages)
        else:
            duplicate_groups = DuplicateFinder(min_similarity, folder=folder).groups(stored.texts)
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
    )


def _check_unset(**for_translations: Any) -> None:
    """Raise `TmdeError` if an argument for translations is given, and none are searched for."""
    for name, value in for_translations.items():
        if value is not None:
            raise TmdeError(
                f"{name}: found {value!r} without across_languages; only translations are found by "
                "a model and by the languages of the documents"
            )


def _read(
    source: str | os.PathLike[str], language_field: str | None, **reading: Unpack[Reading]
) -> Iterator[tuple[Chunk, list[str], list[str | None]]]:
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


def _warn_of_rare_language(counts: Counter[str]) -> None:
    """Warn that probabilities mean little if a language has few documents."""
    known = {language: count for language, count in counts.items() if language != UNKNOWN_LANGUAGE}
    if len(known) > 1:
        language = min(known, key=known.__getitem__)
        warn_of_few(known[language], f"documents in {language}")


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
