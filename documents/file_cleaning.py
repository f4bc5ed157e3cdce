"""Clean a parallel corpus: read it, check its rows, and write those that are kept."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset

from modeling_tmde import TmdeError
from tmde.data import DOCUMENT_ID, SOURCE_FILE, SOURCE_ROW, load_parallel
from tmde.data.delimited import Quoting
from tmde.data.model_languages import LanguageWatch
from tmde.data.unit_files import UNIT_FORMATS
from tmde.documents.cleaning import (
    DEFAULT_SHARE,
    FEWEST_TEXTS,
    MIN_PROBABILITY,
    CheckedRow,
    RowCleaner,
)
from tmde.documents.corpus_writer import (
    CORPUS_SUFFIXES,
    checked_output,
    json_lines_writer,
    write_corpus,
)
from tmde.documents.filtered_files import Decision, filtered_file, write_filtered
from tmde.documents.merged_languages import MergedLanguages
from tmde.documents.pair_checker import Reason
from tmde.documents.pair_probabilities import needed_calibration, warn_of_few
from tmde.embedding.opening import open_embedder, without_truncation_warnings
from tmde.embedding.packaged_models import DEFAULT_MODEL
from tmde.embedding.progress import progress_bar

OUTPUT_SUFFIXES = tuple(dict.fromkeys((*CORPUS_SUFFIXES, *UNIT_FORMATS)))
_DECIMALS = 6
_ROWS_AT_ONCE = 1000

Row = dict[str, Any]


@dataclass
class CleaningReport:
    """The report of `clean_files`.

    Attributes:
        output: The file of kept rows; None with `report_only`.
        removed: The file of removed rows, if one was written.
        rows: The number of rows read.
        kept: The number of rows kept.
        shortened: The number of kept rows from which a text was removed.
        reasons: The number of rows with each finding.
        texts: The number of texts read in each language.
        notes: Sentences about how languages were read.
        is_catalog: Whether the output is a catalog, in which wrong entries are marked instead of
            removed.
    """

    output: Path | None
    removed: Path | None
    rows: int
    kept: int = 0
    shortened: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    is_catalog: bool = False

    def sentences(self) -> list[str]:
        """Return the report as sentences to print."""
        reasons = [f"{count:,} {reason}" for reason, count in self.reasons.most_common()]
        sentences = [
            *self.notes,
            f"{self.rows:,} rows: {', '.join(reasons) or 'nothing to remove'}",
            self._outcome(),
        ]
        if self.removed is not None:
            subject = "Marked entries" if self.is_catalog else "Removed texts"
            if self.output is None:
                subject = "Findings"
            sentences.append(f"{subject}, with reasons and scores -> {self.removed}")
        return sentences

    def _outcome(self) -> str:
        """Return what became of the rows."""
        if self.is_catalog and self.output is not None:
            marked = self.rows - self.kept
            return f"{marked:,} rows marked for review, {self.kept:,} unchanged -> {self.output}"
        shortened = f" ({self.shortened:,} of them without a text)" if self.shortened else ""
        if self.output is None:
            return f"{self.kept:,} rows would be kept{shortened}"
        return f"{self.kept:,} rows kept{shortened} -> {self.output}"


def clean_files(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    removed: str | os.PathLike[str] | None = None,
    model: str = DEFAULT_MODEL,
    loading: Mapping[str, Any] | None = None,
    languages: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    quoting: Quoting | None = None,
    skip: Sequence[str] = (),
    placeholders: str | None = None,
    report_only: bool = False,
    min_probability: float = MIN_PROBABILITY,
    share: float = DEFAULT_SHARE,
    calibration: str | os.PathLike[str] | None = None,
    bad_rows: str = "report",
    judge_anyway: bool = False,
) -> CleaningReport:
    """Clean a translation memory or another parallel corpus.

    This removes texts in the wrong language, with broken encoding, or copied without translation.
    It also removes rows whose texts are not translations of each other, differ in numbers,
    placeholders or length, or repeat an earlier row.

    If there is one source and the output has its format, the file is filtered, not converted: kept
    TMX units are byte-identical. A catalog (`.po`, `.xliff`, `.xlf`, `.ts`) retains all entries;
    wrong ones are marked for review as the format defines it: fuzzy, `needs-review-translation`
    (XLIFF 2: `initial`), unfinished. Repeated entries are allowed in a catalog.

    Args:
        sources: Files, folders or Hub datasets, as `load_parallel` reads them.
        output: The file for kept rows: .tmx, .jsonl, .parquet or .tsv, or a catalog in the format
            of the source. None with `report_only`.
        removed: The .jsonl file for removed rows, with reasons and scores.
        model: A folder, a Hub id or a packaged model's name.
        loading: Arguments for `DocumentEmbedder.from_pretrained`.
        languages: The language codes; None for all.
        columns: Custom column names, see `load_parallel`.
        quoting: The quoting of CSV and TSV; None detects it.
        skip: The values of `Reason` to ignore.
        placeholders: The placeholders a translation must preserve, see
            [`~tmde.documents.RowCleaner`].
        report_only: Only count findings and write `removed`.
        min_probability: The minimum probability of a translation.
        share: The expected share of correct rows.
        calibration: A calibration file. Default: the model's own.
        bad_rows: `"report"` skips and counts unreadable rows; `"raise"` stops at the first one.
        judge_anyway: See [`~tmde.documents.RowCleaner`].

    Raises:
        TmdeError: A source, the model or an argument can't be used.

    Example:
        ```python
        from tmde import clean_files

        report = clean_files("memory.tmx", "clean.tmx", removed="removed.jsonl")
        print(*report.sentences())
        ```
    """
    inputs = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    _check_output_is_meant(output, report_only)
    target = None
    filtered = None
    if output is not None:
        target = checked_output(output, OUTPUT_SUFFIXES, inputs=inputs)
        filtered = filtered_file(inputs, target)
    elif len(inputs) == 1 and os.path.isfile(inputs[0]):
        filtered = filtered_file(inputs, Path(inputs[0]))  # What would be written, if it were.
    removed_target = None
    if removed is not None:
        removed_target = checked_output(removed, (".jsonl",), "removed", target, inputs)
    reasons = _reasons_without(skip)
    is_catalog = filtered is not None and filtered.is_catalog
    if is_catalog and Reason.DUPLICATE in reasons:
        reasons.remove(Reason.DUPLICATE)  # A program needs each entry by its context.
    rows = load_parallel(
        sources,
        languages,
        columns=columns,
        document_ids=True,
        places=True,
        quoting=quoting,
        bad_rows=bad_rows,
    )
    codes = sorted(rows.features["translation"])
    merged = MergedLanguages(codes, is_chosen=languages is not None or columns is not None)
    _check_languages(merged, codes, inputs)
    has_documents = any(value is not None for value in _column(rows, DOCUMENT_ID))
    report = CleaningReport(
        None if output is None else Path(output),
        None if removed is None else Path(removed),
        len(rows),
    )
    report.is_catalog = is_catalog
    with ExitStack() as stack:
        stack.enter_context(without_truncation_warnings())
        embedder = open_embedder(model, loading)
        model_calibration = needed_calibration(calibration, model, loading, embedder)
        unknown = LanguageWatch(embedder).check_codes(merged.languages)
        cleaner = RowCleaner(
            embedder,
            model_calibration,
            min_probability,
            share,
            reasons,
            placeholders,
            judge_anyway,
        )
        write_removed = None
        if removed_target is not None:
            write_removed = stack.enter_context(json_lines_writer(removed_target))
        translations = progress_bar(
            _column(rows, "translation"), desc="Cleaning", unit=" rows", total=len(rows)
        )
        checked_rows = cleaner.clean(merged.rows(translations))
        counted_rows = _counted_rows(checked_rows, rows, report, write_removed)
        if target is None:
            for _ in counted_rows:
                pass
        elif filtered is not None:
            write_filtered(target, filtered, _decisions(counted_rows, rows))
        else:
            kept_rows = _kept_rows(counted_rows, rows)
            write_corpus(target, _ordered(merged.languages, languages), has_documents, kept_rows)
    language, fewest = report.texts.most_common()[-1]
    warn_of_few(fewest, f"texts in {language}")
    report.notes = merged.notes()
    if unknown and not judge_anyway:
        report.notes.append(
            f"Pairs with {' or '.join(unknown)} were checked for everything except their meaning "
            "(no-translation), because the model was not trained on this language"
        )
    return report


def _column(rows: Dataset, name: str) -> Iterator[Any]:
    """Yield the values of a column, read in batches: a `Dataset` is slow row by row."""
    for batch in rows.select_columns(name).iter(_ROWS_AT_ONCE):
        yield from batch[name]


def _ordered(languages: list[str], asked_for: Sequence[str] | None) -> list[str]:
    """Return languages in the order in which somebody asked for them, if they are the same."""
    if asked_for is not None and set(asked_for) == set(languages):
        return list(asked_for)
    return languages


def _counted_rows(
    checked_rows: Iterable[CheckedRow],
    rows: Dataset,
    report: CleaningReport,
    write_removed: Callable[[Row], None] | None,
) -> Iterator[CheckedRow]:
    """Yield rows that were checked; count them, and write what is removed.

    Args:
        checked_rows: The rows that were checked.
        rows: The same rows with their files, their numbers there and their documents.
        report: Gets the counts.
        write_removed: Writes what is removed; None if nobody needs it.
    """
    for checked in checked_rows:
        reasons = {finding.reason.value for finding in checked.findings}
        report.texts.update(checked.original.keys())
        report.reasons.update(reasons)
        if reasons and write_removed is not None:
            write_removed(_removed_row(checked, rows))
        if checked.is_kept:
            report.kept += 1
            if reasons:
                report.shortened += 1
        yield checked


def _kept_rows(
    checked_rows: Iterable[CheckedRow], rows: Dataset
) -> Iterator[tuple[Mapping[str, str], str | None]]:
    """Yield the texts of the rows that are kept, and their documents."""
    for checked, doc_id in zip(checked_rows, _column(rows, DOCUMENT_ID), strict=True):
        if checked.is_kept:
            yield checked.translation, doc_id


def _decisions(checked_rows: Iterable[CheckedRow], rows: Dataset) -> Iterator[Decision]:
    """Yield what becomes of each row in the file that it comes from."""
    for checked, number in zip(checked_rows, _column(rows, SOURCE_ROW), strict=True):
        kept = tuple(checked.translation)
        removed = tuple(checked.original.keys() - checked.translation.keys())
        yield Decision(number, checked.is_kept, kept, removed)


def _check_output_is_meant(output: str | os.PathLike[str] | None, report_only: bool) -> None:
    """Raise `TmdeError` unless there is either an output or nothing to remove."""
    if report_only and output is not None:
        raise TmdeError(
            f"report_only: found output {output} too, expected only one of them; "
            "a report writes its findings to `removed`"
        )
    if output is None and not report_only:
        raise TmdeError("output: found none, expected a file; or set report_only")


def _reasons_without(skip: Sequence[str]) -> list[Reason]:
    """Return all reasons except some.

    Raises:
        TmdeError: One of these is no reason.
    """
    reasons = {reason.value: reason for reason in Reason}
    for value in skip:
        if value not in reasons:
            raise TmdeError(f"skip: found {value!r}, expected one of {', '.join(reasons)}")
    return [reason for value, reason in reasons.items() if value not in skip]


def _check_languages(
    merged: MergedLanguages, codes: list[str], sources: Iterable[str | os.PathLike[str]]
) -> None:
    """Raise `TmdeError` if all texts are in one language."""
    if len(merged.languages) < FEWEST_TEXTS:
        named = ", ".join(map(str, sources))
        raise TmdeError(
            f"{named}: found texts in one language ({', '.join(codes)}), expected two; to "
            f"compare these, set languages={','.join(codes)}"
        )


def _removed_row(checked: CheckedRow, rows: Dataset) -> Row:
    """Return what the file of removed texts says about a row.

    Args:
        checked: The row.
        rows: All rows with their files, their numbers there and their documents.
    """
    source_row = rows[checked.number - 1]
    findings = []
    for finding in checked.findings:
        detail = finding.detail
        if finding.earlier_rows:
            earlier_rows = [rows[number - 1] for number in finding.earlier_rows]
            places = [f"{row[SOURCE_FILE]}, row {row[SOURCE_ROW]}" for row in earlier_rows]
            detail = f"repeats {' and '.join(places)}"
        findings.append(
            {
                "reason": finding.reason.value,
                "languages": list(finding.languages),
                "score": round(finding.score, _DECIMALS),
                "detail": detail,
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
