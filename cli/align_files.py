"""The work of `tmde align`: pair the documents of two files, and align their sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

from tmde.cli import document_sets
from tmde.cli.document_sets import Sides, SidesOptions
from tmde.cli.models import suggest_accurate
from tmde.documents.alignment import AlignedPair, align_documents
from tmde.documents.bead_probabilities import ALIGNED_SHARE
from tmde.documents.calibration import Calibration
from tmde.documents.language_debiaser import Rank
from tmde.documents.lawdr import Lawdr
from tmde.documents.mining import GoldPairs, read_gold_pairs
from tmde.documents.pair_probabilities import ProbabilityOptions, find_calibration, warn_of_few
from tmde.documents.parallel_rows import Outcome, ParallelRowsReport, parallel_rows
from tmde.documents.quality import alignment_quality
from tmde.embedding import DocumentEmbedder
from tmde.embedding.opening import without_truncation_warnings
from tmde.embedding.progress import progress_bar


@dataclass(frozen=True)
class AlignmentJob:
    """What `tmde align` was asked for; the fields are its arguments and options.

    Attributes:
        loading: The arguments of `DocumentEmbedder.from_pretrained`.
        pairs_output: The file of pairs as the user named it; None if none is written.
        pairs_target: The same file with symlinks resolved.
        rows_output: The file of aligned sentences as the user named it; None if none is written.
        rows_target: The same file with symlinks resolved.
        known_pairs: A file of pairs of documents, which are not searched for then.
        reference: A file of the right pairs, by which the quality is measured.
    """

    first_file: str
    second_file: str
    sides_options: SidesOptions
    model: str
    loading: dict[str, Any]
    probabilities: ProbabilityOptions
    pairs_output: Path | None
    pairs_target: Path | None
    rows_output: Path | None
    rows_target: Path | None
    same_domain: bool
    scoring: str
    k: int
    threshold: float | None
    lawdr_rank: Rank | None
    known_pairs: Path | None
    reference: Path | None
    paragraphs: bool
    min_score: float | None


def align_files(job: AlignmentJob) -> None:
    """Align two files, write what was asked for, and print how much it is.

    Raises:
        TmdeError: A file, the model or an option cannot be used.
    """
    sides = document_sets.read_sides(job.first_file, job.second_file, job.sides_options)
    needs_languages = job.rows_output is not None or job.lawdr_rank is not None
    if needs_languages:
        # Raises if one is missing, before the model is loaded.
        _languages_of(sides)
    right_pairs = _read_pairs(job.reference, sides)
    row_pairs = _read_pairs(job.known_pairs, sides)
    embedder = document_sets.load_embedder_of_sides(job.model, sides, **job.loading)
    calibration = None
    if job.rows_target is not None:
        revision = job.loading.get("revision")
        calibration = find_calibration(job.probabilities, job.model, revision, embedder)
    with without_truncation_warnings():
        if row_pairs is None:
            pairs = _pair_documents(job, sides, embedder)
            row_pairs = [(pair.first, pair.second) for pair in pairs]
            if job.pairs_target is not None:
                _write_pairs(job, sides, pairs, job.pairs_target)
        if job.reference is not None and right_pairs is not None:
            quality = alignment_quality(row_pairs, right_pairs)
            document_sets.report_quality(job.reference, quality)
        if job.rows_target is not None:
            _write_parallel_rows(job, sides, row_pairs, embedder, calibration, job.rows_target)
    suggest_accurate(job.model, "`-m accurate`")


def _languages_of(sides: Sides) -> tuple[str, str]:
    """Return the languages of both sides.

    Raises:
        TmdeError: One of them was not given.
    """
    first = sides[0].language
    second = sides[1].language
    if first is None or second is None:
        raise document_sets.needed_languages(sides, "--rows and --lawdr-rank need")
    return first, second


def _read_pairs(path: Path | None, sides: Sides) -> GoldPairs | None:
    """Read pairs of ids as pairs of rows; None without a file."""
    if path is None:
        return None
    return read_gold_pairs(path, sides[0].ids, sides[1].ids)


def _pair_documents(
    job: AlignmentJob, sides: Sides, embedder: DocumentEmbedder
) -> list[AlignedPair]:
    """Return pairs of documents that are not empty, by the rows of the files, best first."""
    rows_of_sides = [_filled_rows(side.texts) for side in sides]
    first_rows, second_rows = rows_of_sides
    if job.lawdr_rank is None:
        first_vectors = sides[0].embed(first_rows, embedder)
        second_vectors = sides[1].embed(second_rows, embedder)
    else:
        first_vectors, second_vectors = _embed_by_lawdr(
            job.lawdr_rank, sides, rows_of_sides, embedder
        )
    pairs = align_documents(
        first_vectors,
        second_vectors,
        job.scoring,
        k=job.k,
        threshold=job.threshold,
        first_urls=_urls_of(sides[0], first_rows),
        second_urls=_urls_of(sides[1], second_rows),
        languages=_url_languages(sides),
        same_domain=job.same_domain,
    )
    _report_pairs(pairs, job.scoring)
    if not pairs and job.threshold is not None:
        document_sets.report_no_pair(job.threshold)
    return [
        pair._replace(first=first_rows[pair.first], second=second_rows[pair.second])
        for pair in pairs
    ]


def _filled_rows(texts: Sequence[str]) -> list[int]:
    """Return the rows of the texts that are not empty."""
    return [row for row, text in enumerate(texts) if text.strip()]


def _urls_of(side: document_sets.DocumentSet, rows: list[int]) -> list[str] | None:
    if side.urls is None:
        return None
    return [side.urls[row] for row in rows]


def _url_languages(sides: Sides) -> list[str] | None:
    """Return the languages as in URLs, such as `pt` for pt-BR; None unless both are known."""
    codes = []
    for side in sides:
        if side.language is None:
            return None
        codes.append(side.language.split("-")[0].lower())
    return codes


def _embed_by_lawdr(
    rank: Rank, sides: Sides, rows_of_sides: list[list[int]], embedder: DocumentEmbedder
) -> tuple[np.ndarray, np.ndarray]:
    """Return the LAWDR vectors of some rows of both sides, (rows, d) each."""
    texts: list[str] = []
    languages: list[str] = []
    for side, code, rows in zip(sides, _languages_of(sides), rows_of_sides, strict=True):
        texts += [side.texts[row] for row in rows]
        languages += [code] * len(rows)
    lawdr = Lawdr(embedder, rank=rank)
    vectors = lawdr.fit_transform(texts, languages)
    typer.echo(
        f"{len(texts):,} documents by LAWDR, {lawdr.rank_} directions removed "
        f"({lawdr.truncated_:,} sentences truncated)",
        err=True,
    )
    first_count = len(rows_of_sides[0])
    return vectors[:first_count], vectors[first_count:]


def _report_pairs(pairs: list[AlignedPair], scoring: str) -> None:
    """Print how many pairs there are, and their range of scores."""
    scores = [pair.score for pair in pairs if not pair.by_url]
    by_url = len(pairs) - len(scores)
    score_range = ""
    if scores:
        score_range = f"; {scoring} {scores[0]:.4f} to {scores[-1]:.4f}"
    typer.echo(f"{len(pairs):,} pairs of documents, {by_url:,} by URL{score_range}", err=True)


def _write_pairs(job: AlignmentJob, sides: Sides, pairs: list[AlignedPair], target: Path) -> None:
    first, second = sides
    columns = ["score", "id_a", "id_b"]
    if job.sides_options.url_field is not None:
        columns += ["url_a", "url_b", "matched_by"]
    rows = []
    for pair in pairs:
        row: list[str | float] = [pair.score, first.ids[pair.first], second.ids[pair.second]]
        if first.urls is not None and second.urls is not None:
            matched_by = "url" if pair.by_url else "score"
            row += [first.urls[pair.first], second.urls[pair.second], matched_by]
        rows.append(row)
    document_sets.write_rows(target, columns, rows)
    typer.echo(f"{len(pairs):,} pairs -> {job.pairs_output}", err=True)


def _write_parallel_rows(
    job: AlignmentJob,
    sides: Sides,
    row_pairs: GoldPairs,
    embedder: DocumentEmbedder,
    calibration: Calibration | None,
    target: Path,
) -> None:
    """Align the sentences of each pair, and write them as rows that `tmde train` reads."""
    report = ParallelRowsReport()
    aligned = parallel_rows(
        _texts_of_pairs(sides, row_pairs),
        embedder,
        _languages_of(sides),
        job.paragraphs,
        job.min_score,
        calibration=calibration,
        min_probability=job.probabilities.min_probability,
        share=job.probabilities.share_or(ALIGNED_SHARE),
        report=report,
    )
    columns = ["translation", "doc_id", "segment", "score"]
    if calibration is not None:
        columns.append("probability")
    rows = ([row[column] for column in columns] for row in aligned)
    document_sets.write_rows(target, columns, rows)
    unit = "paragraphs" if job.paragraphs else "sentences"
    typer.echo(
        f"{report.documents:,} pairs: {report.first_segments:,} and {report.second_segments:,} "
        f"{unit} ({report.embedded_texts:,} texts embedded, {report.truncated_texts:,} truncated): "
        f"{_describe_beads(report)}",
        err=True,
    )
    if calibration is not None:
        warn_of_few(min(report.first_segments, report.second_segments), f"{unit} of a side")
    outcomes = report.outcomes
    left_out = [
        f"{outcomes[Outcome.LOW_SCORE]:,} of a low score",
        f"{outcomes[Outcome.IMPROBABLE]:,} improbable",
        f"{outcomes[Outcome.IDENTICAL]:,} identical",
        f"{outcomes[Outcome.WORDLESS]:,} without letters",
    ]
    typer.echo(
        f"{outcomes[Outcome.ROW]:,} rows (left out: {', '.join(left_out)}) -> {job.rows_output}",
        err=True,
    )


def _texts_of_pairs(sides: Sides, row_pairs: GoldPairs) -> Iterator[tuple[str, str, str]]:
    """Yield the id and both texts of each pair, under a progress bar."""
    for first_row, second_row in progress_bar(row_pairs, desc="Aligning", unit=" pairs"):
        first_id = sides[0].ids[first_row]
        second_id = sides[1].ids[second_row]
        id = first_id if first_id == second_id else f"{first_id}|{second_id}"
        yield id, sides[0].texts[first_row], sides[1].texts[second_row]


def _describe_beads(report: ParallelRowsReport) -> str:
    """Return the count of each kind of bead, most frequent first: `812 1-1, 40 1-2`."""
    counts = []
    for (first_size, second_size), count in report.beads.most_common():
        counts.append(f"{count:,} {first_size}-{second_size}")
    return ", ".join(counts) or "none"
