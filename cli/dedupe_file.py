"""The work of `tmde dedupe`: find documents that repeat others, and write the rest."""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from tmde.cli.document_sets import checked_ids, default_ids
from tmde.cli.stored_documents import StoredDocuments, Strings
from tmde.data.delimited import Quoting
from tmde.data.documents import Chunk, Documents, InputFormat
from tmde.data.id_places import IdPlaces
from tmde.data.io import replacing
from tmde.data.language_columns import language_column, language_or_none
from tmde.documents.corpus_writer import json_lines_writer
from tmde.documents.deduplication import (
    MIN_PROBABILITY,
    UNKNOWN_LANGUAGE,
    DuplicateFinder,
    Group,
)
from tmde.documents.language_identification import LanguageIdentifier
from tmde.documents.pair_probabilities import ProbabilityOptions, find_calibration, warn_of_few
from tmde.embedding.opening import open_embedder, without_truncation_warnings
from tmde.embedding.progress import progress_bar

_CHUNK = 8192  # documents that are read at once
_DECIMALS = 6


@dataclass(frozen=True)
class DedupeJob:
    """What `tmde dedupe` was asked for; the fields are its arguments and options.

    Attributes:
        output: The file to write as the user named it.
        target: The same file with symlinks resolved.
        groups_output: The file of groups as the user named it; None if none is written.
        groups_target: The same file with symlinks resolved.
        loading: The arguments of `DocumentEmbedder.from_pretrained`.
    """

    documents: str
    output: Path
    target: Path
    groups_output: Path | None
    groups_target: Path | None
    model: str
    loading: dict[str, Any]
    format: InputFormat | None
    quoting: Quoting | None
    field: list[str] | None
    id_field: str | None
    language_field: str | None
    min_similarity: float
    across_languages: bool
    probabilities: ProbabilityOptions


def dedupe_file(job: DedupeJob) -> None:
    """Remove duplicates, write the other documents, and print how many of each kind there are.

    What is read is kept in a temporary folder beside the output, where there is room for it.

    Raises:
        TmdeError: The input, the model or an option cannot be used.
    """
    prefix = f".{job.target.stem}."
    with tempfile.TemporaryDirectory(prefix=prefix, dir=job.target.parent) as name:
        folder = Path(name)
        documents = StoredDocuments.write(folder, _read(job))
        groups = _find_groups(job, documents, folder)
        _write(job, documents, groups)
        document_count = len(documents)
    counts = Counter(match.kind.value for group in groups for match in group.duplicates)
    described = [f"{count:,} {kind}" for kind, count in counts.most_common()]
    typer.echo(f"{document_count:,} documents: {', '.join(described) or 'all different'}", err=True)
    typer.echo(f"{document_count - counts.total():,} documents kept -> {job.output}", err=True)
    if job.groups_output is not None:
        typer.echo(f"{len(groups):,} groups -> {job.groups_output}", err=True)


def _read(job: DedupeJob) -> Iterator[tuple[Chunk, list[str], list[str | None]]]:
    """Yield all documents in chunks, with the id and the language of each, under a progress bar.

    Raises:
        TmdeError: The input cannot be read, a column is missing, or an id occurs twice.
    """
    required = {}
    if job.id_field is not None:
        required[job.id_field] = "--id-field"
    id_field = job.id_field or "id"
    id_places = IdPlaces()
    with ExitStack() as stack:
        documents = Documents(
            stack,
            job.documents,
            job.format,
            job.field,
            True,
            _CHUNK,
            job.language_field,
            required,
            quoting=job.quoting,
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


def _find_groups(job: DedupeJob, documents: StoredDocuments, folder: Path) -> list[Group]:
    """Return the groups of documents that say the same.

    Args:
        job: Says what is searched for.
        documents: The documents.
        folder: The folder of temporary files.
    """
    if not job.across_languages:
        return DuplicateFinder(job.min_similarity, folder=folder).groups(documents.texts)
    min_probability = job.probabilities.min_probability
    if min_probability is None:
        min_probability = MIN_PROBABILITY
    asked_for = replace(job.probabilities, min_probability=min_probability)
    embedder = open_embedder(job.model, job.loading)
    calibration = find_calibration(asked_for, job.model, job.loading.get("revision"), embedder)
    languages = _all_languages(documents)
    _warn_of_rare_language(languages)
    finder = DuplicateFinder(
        job.min_similarity,
        embedder=embedder,
        calibration=calibration,
        min_probability=min_probability,
        share=job.probabilities.share_or(),
        folder=folder,
    )
    with without_truncation_warnings():
        return finder.groups(documents.texts, languages)


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
    counts = Counter(languages).most_common()
    described = [f"{count:,} {language or 'unknown'}" for language, count in counts]
    typer.echo(f"Languages: {', '.join(described)}", err=True)
    return languages


def _warn_of_rare_language(languages: Sequence[str]) -> None:
    """Print that probabilities mean little if a language has few documents."""
    counts = Counter(languages)
    del counts[UNKNOWN_LANGUAGE]
    if len(counts) > 1:
        language, count = counts.most_common()[-1]
        warn_of_few(count, f"documents in {language}")


def _write(job: DedupeJob, documents: StoredDocuments, groups: list[Group]) -> None:
    """Write the documents that are kept, and the groups. Files appear when both are written."""
    is_kept = np.ones(len(documents), bool)
    for group in groups:
        for match in group.duplicates:
            is_kept[match.document] = False
    with ExitStack() as stack:
        temporary = stack.enter_context(replacing(job.target))
        output = stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
        if job.groups_target is not None:
            write_group = stack.enter_context(json_lines_writer(job.groups_target))
            for group in groups:
                write_group(_described_group(group, documents.ids))
        rows = progress_bar(
            documents.json_rows(), total=len(documents), desc="Writing", unit=" documents"
        )
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
