"""The work of `tmde clean`: check the rows of a corpus, and write those that are kept."""

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from modeling_tmde import TmdeError
from tmde.cli.clean_languages import MergedLanguages
from tmde.cli.corpus_writer import corpus_writer, json_lines_writer
from tmde.cli.models import load_embedder, without_truncation_warnings
from tmde.cli.pair_probabilities import ProbabilityOptions, find_calibration, warn_of_few
from tmde.data import DOCUMENT_ID, SOURCE_FILE, SOURCE_ROW, load_parallel
from tmde.data.delimited import Quoting
from tmde.documents.cleaning import FEWEST_TEXTS, CheckedRow, RowCleaner
from tmde.documents.pair_checker import Reason
from tmde.embedding import DocumentEmbedder
from tmde.embedding.progress import progress_bar

_DECIMALS = 6

Row = dict[str, Any]


@dataclass(frozen=True)
class CleaningJob:
    """What `tmde clean` was asked for; the fields are its arguments and options.

    Attributes:
        output: The file to write as the user named it.
        target: The same file with symlinks resolved.
        removed_output: The file of removed texts as the user named it; None if none is written.
        removed_target: The same file with symlinks resolved.
        loading: The arguments of `load_embedder`.
        skipped: Reasons for which nothing is removed.
        calibration: The file of a calibration; None for that of the model.
    """

    sources: list[str]
    languages: list[str] | None
    columns: dict[str, str] | None
    quoting: Quoting | None
    output: Path
    target: Path
    removed_output: Path | None
    removed_target: Path | None
    model: str
    loading: dict[str, Any]
    skipped: list[str]
    min_probability: float
    share: float
    calibration: Path | None


def clean_files(job: CleaningJob) -> None:
    """Clean a corpus, write what is kept and what is removed, and print how much it is.

    Raises:
        TmdeError: A source, the model or an option cannot be used.
    """
    rows = load_parallel(
        job.sources,
        job.languages,
        columns=job.columns,
        document_ids=True,
        places=True,
        quoting=job.quoting,
    )
    codes = sorted(rows.features["translation"])
    merged = MergedLanguages(codes, is_chosen=job.languages is not None or job.columns is not None)
    _check_languages(merged, codes, job.sources)
    description = merged.describe()
    if description is not None:
        typer.echo(description, err=True)
    has_documents = any(value is not None for value in rows[DOCUMENT_ID])
    with ExitStack() as stack:
        stack.enter_context(without_truncation_warnings())
        cleaner = _make_cleaner(job, load_embedder(job.model, **job.loading))
        write = stack.enter_context(corpus_writer(job.target, merged.languages, has_documents))
        write_removed = None
        if job.removed_target is not None:
            write_removed = stack.enter_context(json_lines_writer(job.removed_target))
        counts: Counter[str] = Counter()
        kept_count = 0
        shortened_count = 0
        text_counts: Counter[str] = Counter()  # by language
        translations = progress_bar(rows["translation"], desc="Cleaning", unit=" rows")
        checked_rows = cleaner.clean(merged.rows(translations))
        for checked, doc_id in zip(checked_rows, rows[DOCUMENT_ID], strict=True):
            text_counts.update(checked.original.keys())
            reasons = {finding.reason.value for finding in checked.findings}
            counts.update(reasons)
            if reasons and write_removed is not None:
                write_removed(_removed_row(checked, rows[checked.number - 1]))
            if checked.is_kept:
                kept_count += 1
                if reasons:
                    shortened_count += 1
                write(checked.translation, doc_id)
    language, fewest = text_counts.most_common()[-1]
    warn_of_few(fewest, f"texts in {language}")
    for sentence in merged.describe_rows():
        typer.echo(sentence, err=True)
    described = [f"{count:,} {reason}" for reason, count in counts.most_common()]
    typer.echo(f"{len(rows):,} rows: {', '.join(described) or 'nothing to remove'}", err=True)
    shortened = f" ({shortened_count:,} of them without a text)" if shortened_count else ""
    typer.echo(f"{kept_count:,} rows kept{shortened} -> {job.output}", err=True)
    if job.removed_output is not None:
        typer.echo(f"Removed texts, with reasons and scores -> {job.removed_output}", err=True)


def _check_languages(merged: MergedLanguages, codes: list[str], sources: list[str]) -> None:
    """Raise `TmdeError` if all texts are in one language."""
    if len(merged.languages) < FEWEST_TEXTS:
        raise TmdeError(
            f"{', '.join(sources)}: found texts in one language ({', '.join(codes)}), expected "
            "two; if these are to be compared, name them: --languages " + ",".join(codes)
        )


def _make_cleaner(job: CleaningJob, embedder: DocumentEmbedder) -> RowCleaner:
    """Return what checks the rows.

    Raises:
        TmdeError: The model has no calibration, or one of another prompt or pooling.
    """
    options = ProbabilityOptions(job.min_probability, job.share, job.calibration)
    revision = job.loading.get("revision")
    calibration = find_calibration(options, job.model, revision, embedder)
    assert calibration is not None  # It is asked for, so without one there is an error.
    reasons = [reason for reason in Reason if reason.value not in job.skipped]
    return RowCleaner(embedder, calibration, job.min_probability, job.share, reasons)


def _removed_row(checked: CheckedRow, source_row: Row) -> Row:
    """Return what the file of removed texts says about a row.

    Args:
        checked: The row.
        source_row: The same row with its file, its number there and its document.
    """
    findings = []
    for finding in checked.findings:
        findings.append(
            {
                "reason": finding.reason.value,
                "languages": list(finding.languages),
                "score": round(finding.score, _DECIMALS),
                "detail": finding.detail,
            }
        )
    row: Row = {
        "file": source_row[SOURCE_FILE],
        "row": source_row[SOURCE_ROW],
        "translation": checked.original,
        "kept": checked.is_kept,
        "findings": findings,
    }
    if checked.probability is not None:
        row["probability"] = round(checked.probability, _DECIMALS)
    if source_row[DOCUMENT_ID] is not None:
        row[DOCUMENT_ID] = source_row[DOCUMENT_ID]
    return row
