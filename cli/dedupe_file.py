"""The work of `tmde dedupe`: find documents that repeat others, and write the rest."""

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from tmde.cli.corpus_writer import json_lines_writer
from tmde.cli.document_sets import checked_ids, default_ids
from tmde.cli.id_places import IdPlaces
from tmde.cli.language_columns import column_values, language_column, language_or_none
from tmde.cli.models import load_embedder, without_truncation_warnings
from tmde.cli.pair_probabilities import ProbabilityOptions, find_calibration
from tmde.data.documents import Documents, InputFormat
from tmde.documents.deduplication import (
    MIN_PROBABILITY,
    UNKNOWN_LANGUAGE,
    DuplicateFinder,
    Group,
)
from tmde.documents.language_identification import LanguageIdentifier

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
        loading: The arguments of `load_embedder`.
    """

    documents: str
    output: Path
    target: Path
    groups_output: Path | None
    groups_target: Path | None
    model: str
    loading: dict[str, Any]
    format: InputFormat | None
    field: list[str] | None
    id_field: str | None
    language: str | None
    language_field: str | None
    min_similarity: float
    across_languages: bool
    probabilities: ProbabilityOptions


@dataclass
class Collection:
    """The n documents of the input.

    Attributes:
        texts: Their texts.
        ids: Their ids.
        rows: All their columns.
        languages: The language of each; None for those that have none.
    """

    texts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    languages: list[str | None] = field(default_factory=list)


def dedupe_file(job: DedupeJob) -> None:
    """Remove duplicates, write the other documents, and print how many of each kind there are.

    Raises:
        TmdeError: The input, the model or an option cannot be used.
    """
    collection = _read(job)
    embedder = load_embedder(job.model, **job.loading)
    min_probability = job.probabilities.min_probability
    if min_probability is None:
        min_probability = MIN_PROBABILITY
    calibration = None
    languages = _known_languages(collection)
    if job.across_languages:
        asked_for = replace(job.probabilities, min_probability=min_probability)
        revision = job.loading.get("revision")
        calibration = find_calibration(asked_for, job.model, revision, embedder)
        languages = _all_languages(collection)
    finder = DuplicateFinder(
        embedder,
        job.min_similarity,
        calibration,
        min_probability,
        job.probabilities.share_or(),
    )
    with without_truncation_warnings():
        groups = finder.groups(collection.texts, languages)
    _write(job, collection, groups)
    counts = Counter(match.kind.value for group in groups for match in group.duplicates)
    described = [f"{count:,} {kind}" for kind, count in counts.most_common()]
    typer.echo(
        f"{len(collection.texts):,} documents: {', '.join(described) or 'all different'}",
        err=True,
    )
    unique_count = len(collection.texts) - counts.total()
    typer.echo(f"{unique_count:,} documents kept -> {job.output}", err=True)
    if job.groups_output is not None:
        typer.echo(f"{len(groups):,} groups -> {job.groups_output}", err=True)


def _read(job: DedupeJob) -> Collection:
    """Read all documents.

    Raises:
        TmdeError: The input cannot be read, a column is missing, or an id occurs twice.
    """
    required = {}
    if job.id_field is not None:
        required[job.id_field] = "--id-field"
    id_field = job.id_field or "id"
    collection = Collection()
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
        )
        column = documents.language_field or language_column(documents)
        for chunk in documents.chunks:
            collection.texts += chunk.texts
            if id_field in documents.fields:
                collection.ids += checked_ids(chunk, id_field, id_places)
            else:
                collection.ids += default_ids(chunk)
            if job.language is not None:
                collection.languages += [job.language] * len(chunk.texts)
            elif column is None:
                collection.languages += [None] * len(chunk.texts)
            else:
                values = chunk.languages or column_values(chunk, column)
                collection.languages += map(language_or_none, values)
            rows = chunk.columns.to_pylist() or [{} for _ in chunk.texts]
            for row, text in zip(rows, chunk.texts, strict=True):
                collection.rows.append(row if row else {"text": text})
    return collection


def _known_languages(collection: Collection) -> list[str] | None:
    """Return the language of each document; None unless all are known."""
    languages = [language for language in collection.languages if language is not None]
    return languages if len(languages) == len(collection.texts) else None


def _all_languages(collection: Collection) -> list[str]:
    """Return the language of each document, which is identified where it is not known."""
    known = _known_languages(collection)
    if known is not None:
        return known
    identifier = LanguageIdentifier()
    languages = []
    for language, text in zip(collection.languages, collection.texts, strict=True):
        if language is None:
            identified = identifier.identify(text)
            language = UNKNOWN_LANGUAGE if identified is None else identified.language
        languages.append(language)
    counts = Counter(languages).most_common()
    described = [f"{count:,} {language or 'unknown'}" for language, count in counts]
    typer.echo(f"Languages: {', '.join(described)}", err=True)
    return languages


def _write(job: DedupeJob, collection: Collection, groups: list[Group]) -> None:
    """Write the documents that are kept, and the groups."""
    removed = {match.document for group in groups for match in group.duplicates}
    with json_lines_writer(job.target) as write:
        for number, row in enumerate(collection.rows):
            if number not in removed:
                write(row)
    if job.groups_target is None:
        return
    with json_lines_writer(job.groups_target) as write:
        for group in groups:
            duplicates = []
            for match in group.duplicates:
                score = round(match.score, _DECIMALS)
                id = collection.ids[match.document]
                duplicates.append({"id": id, "kind": match.kind.value, "score": score})
            write({"kept": collection.ids[group.kept], "duplicates": duplicates})
