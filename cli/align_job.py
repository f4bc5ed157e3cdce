"""What one `tmde align` does: reads and embeds documents, aligns them, and aligns the sentences of each pair."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from modeling_tmde.cli.align_pairs import KnownPair, pair_lines
from modeling_tmde.cli.document_sets import DocumentSet, check_languages, read_document_set
from modeling_tmde.cli.embedding_job import stderr_is_terminal, told_out_of_memory
from modeling_tmde.cli.vector_files import check_output, replacing
from modeling_tmde.data.documents import EmbedError, InputFormat

# torch and numpy are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    import numpy as np

    from modeling_tmde.documents.alignment import AlignedPair
    from modeling_tmde.documents.parallel_rows import RowsReport
    from modeling_tmde.embedding import DocumentEmbedder

Sides = tuple[DocumentSet, DocumentSet]


@dataclass(frozen=True)
class AlignmentJob:
    """The command line, but for the model."""

    a: str
    b: str
    out: Path | None
    rows: Path | None
    pairs: Path | None
    languages: tuple[str | None, str | None]
    format: InputFormat | None
    field: str | None
    id_field: str | None
    url_field: str | None
    same_domain: bool
    scoring: str | None
    k: int | None
    threshold: float | None
    lawdr_rank: int | None
    unit: str
    min_score: float | None
    overwrite: bool


def check_options(
    job: AlignmentJob, paragraphs: bool, long_documents: dict[str, object]
) -> tuple[Path | None, Path | None]:
    """Files to write, through links: that of the pairs, and that of the rows.

    Args:
        long_documents: Options of how those are embedded, by name; None where one is not given.

    Raises:
        EmbedError: Options that exclude or need each other, files that cannot be written.
    """
    if job.a == job.b == "-":
        raise EmbedError("A and B are both -, but there is one stdin; give a file for one of them")
    if job.threshold is not None and math.isnan(job.threshold):
        raise EmbedError("--threshold: found nan, expected a number")
    if job.out is None and job.rows is None:
        raise EmbedError("Nothing to write; give --output for pairs of documents, --rows for their sentences, or both")
    if job.pairs is not None:
        if job.rows is None:
            raise EmbedError("--pairs are known: there is nothing to do without --rows")
        _refuse("--pairs", {"--output": job.out, "--threshold": job.threshold, "--url-field": job.url_field,
                            "--same-domain": job.same_domain or None, "--lawdr-rank": job.lawdr_rank,
                            "--scoring": job.scoring, "-k": job.k},
                "known pairs are neither searched nor written")  # fmt: skip
    if job.scoring == "cosine":
        _refuse("--scoring cosine", {"-k": job.k}, "only margins have neighbours")
    if job.lawdr_rank is not None and job.rows is None:
        _refuse("--lawdr-rank", long_documents, "LAWDR embeds sentences, and weights them itself")
    if job.rows is None and (job.min_score is not None or paragraphs):
        raise EmbedError("--min-score and --paragraphs are of --rows, which is missing")
    if job.same_domain and job.url_field is None:
        raise EmbedError("--same-domain needs the URLs of documents; give --url-field")
    _check_languages(job)
    out, rows = (
        path and check_output(path, job.overwrite, (suffix,), option)
        for option, path, suffix in (("--output", job.out, ".tsv"), ("--rows", job.rows, ".jsonl"))
    )
    return out, rows


def open_sides(job: AlignmentJob) -> Sides:
    """Both sets of documents.

    Raises:
        EmbedError: What cannot be read, no documents, an id that a file of pairs cannot hold.
    """
    columns = [] if job.url_field is None else [job.url_field]
    sides = tuple(read_document_set(source, job.format, job.field, job.id_field, columns) for source in (job.a, job.b))
    for side in sides:
        if not any(text.strip() for text in side.texts):
            raise EmbedError(f"{side.name}: found no document that is not empty, expected at least one")
        for number, id in zip(side.numbers, side.ids, strict=True):
            if "\t" in id or id.splitlines() != [id]:
                raise EmbedError(
                    f"{side.name}, {side.words[0]} {number}: found id {id!r}, expected one without tab and "
                    "line end, and not empty"
                )
    return sides


def align_sides(job: AlignmentJob, sides: Sides, embedder: DocumentEmbedder) -> list[AlignedPair]:
    """One-to-one pairs of documents that are not empty, by the rows of the files, best first.

    Raises:
        EmbedError: A language that the model does not know, vectors that cannot be compared.
    """
    import numpy as np

    from modeling_tmde.documents.alignment import align_documents

    _check_model_languages(job, embedder)
    kept = [np.array([row for row, text in enumerate(side.texts) if text.strip()]) for side in sides]
    texts = [[side.texts[row] for row in rows.tolist()] for side, rows in zip(sides, kept, strict=True)]
    urls = _urls(job, sides)
    options = {"scoring": job.scoring or "ratio", "k": 4 if job.k is None else job.k}
    options |= {"threshold": job.threshold, "same_domain": job.same_domain}
    if urls is not None:
        options["first_urls"], options["second_urls"] = (
            [of_side[row] for row in rows.tolist()] for of_side, rows in zip(urls, kept, strict=True)
        )
        if None not in job.languages:
            options["languages"] = list(dict.fromkeys(code.split("-")[0].lower() for code in job.languages))
    with _told_errors(sides, embedder):
        vectors = _vectors(job, sides, texts, embedder)
        start = time.perf_counter()
        pairs = align_documents(
            *vectors, **options, show_progress_bar=stderr_is_terminal(), say=lambda line: typer.echo(line, err=True)
        )
    by_url = sum(pair.by_url for pair in pairs)
    scored = [pair.score for pair in pairs if not pair.by_url]
    typer.echo(
        f"{len(pairs):,} pairs of documents in {time.perf_counter() - start:.1f} s"
        + (f", {by_url:,} by URL" if urls else "")
        + (f"; {options['scoring']} {scored[0]:.4f} to {scored[-1]:.4f}" if scored else ""),
        err=True,
    )
    return [pair._replace(first=int(kept[0][pair.first]), second=int(kept[1][pair.second])) for pair in pairs]


def write_pairs(job: AlignmentJob, target: Path, pairs: Sequence[AlignedPair], sides: Sides) -> None:
    """
    Raises:
        EmbedError: It cannot be written.
    """
    with _writing("--output", job.out):
        with replacing(target) as file:
            file.writelines(line.encode("utf-8") + b"\n" for line in pair_lines(pairs, *sides, _urls(job, sides)))
    typer.echo(f"{len(pairs):,} pairs -> {job.out}", err=True)


def write_rows(
    job: AlignmentJob,
    target: Path,
    pairs: Sequence[AlignedPair | KnownPair],
    sides: Sides,
    embedder: DocumentEmbedder,
) -> None:
    """Aligns the sentences of each pair and writes what is aligned.

    Raises:
        EmbedError: A language that the model does not know; it cannot be written.
    """
    from tqdm.auto import tqdm

    from modeling_tmde.documents.parallel_rows import RowsReport, parallel_rows

    _check_model_languages(job, embedder)
    report, start = RowsReport(), time.perf_counter()
    bar = tqdm(pairs, desc="Aligning", unit=" pairs", disable=not stderr_is_terminal())
    documents = ((_pair_id(sides, pair), sides[0].texts[pair.first], sides[1].texts[pair.second]) for pair in bar)
    with _told_errors(sides, embedder), _writing("--rows", job.rows), replacing(target) as file:
        for row in parallel_rows(documents, embedder, job.languages, job.unit, job.min_score, report=report):
            file.write(json.dumps(row, ensure_ascii=False).encode("utf-8") + b"\n")
    _summarise(report, job, time.perf_counter() - start)


def _summarise(report: RowsReport, job: AlignmentJob, seconds: float) -> None:
    beads = ", ".join(f"{count:,} {kind}" for kind, count in report.beads.most_common())
    cut = f", {report.split:,} split" if report.split else ""
    low = "" if job.min_score is None else f"{report.low:,} below {job.min_score:g}, "
    typer.echo(
        f"{report.documents:,} pairs: {report.first_segments:,} and {report.second_segments:,} {job.unit} "
        f"({report.texts:,} texts embedded, {report.truncated:,} truncated{cut}) in {seconds:.1f} s: "
        f"{beads or 'none'}\n"
        f"{report.rows:,} rows -> {job.rows} (left out: {low}{report.identical:,} identical, {report.wordless:,} "
        "without letters)",
        err=True,
    )


def _vectors(job: AlignmentJob, sides: Sides, texts: list[list[str]], embedder: DocumentEmbedder) -> list[np.ndarray]:
    if job.lawdr_rank is not None:
        return _lawdr_vectors(job, sides, texts, embedder)
    vectors = []
    for side, of_side, language in zip(sides, texts, job.languages, strict=True):
        vectors.append(embedder.encode(of_side, language=language))
        report = embedder.last_report
        empty = len(side) - len(of_side)
        split = (
            f", {report.split:,} split into {report.pieces - report.texts + report.split:,}" if report.split else ""
        )
        typer.echo(
            f"{side.name}: {len(side):,} documents ({empty:,} empty: left out; {report.truncated:,} truncated{split}) "
            f"embedded in {report.seconds:.1f} s",
            err=True,
        )
    return vectors


def _lawdr_vectors(
    job: AlignmentJob, sides: Sides, texts: list[list[str]], embedder: DocumentEmbedder
) -> list[np.ndarray]:
    from modeling_tmde.documents.lawdr import Lawdr

    start = time.perf_counter()
    languages = [code for code, of_side in zip(job.languages, texts, strict=True) for _ in of_side]
    lawdr = Lawdr(embedder, rank=job.lawdr_rank)
    vectors = lawdr.fit_transform(texts[0] + texts[1], languages)
    empty = [len(side) - len(of_side) for side, of_side in zip(sides, texts, strict=True)]
    typer.echo(
        f"{sides[0].name}, {sides[1].name}: {len(sides[0]):,} and {len(sides[1]):,} documents ({sum(empty):,} empty: "
        f"left out; {lawdr.truncated_:,} sentences truncated) as LAWDR of rank {job.lawdr_rank} in "
        f"{time.perf_counter() - start:.1f} s",
        err=True,
    )
    return [vectors[: len(texts[0])], vectors[len(texts[0]) :]]


def _urls(job: AlignmentJob, sides: Sides) -> tuple[list[str], list[str]] | None:
    if job.url_field is None:
        return None
    first, second = (
        [" ".join(url.split()) for url in _without_nulls(side, job.url_field).strings(job.url_field, "--url-field")]
        for side in sides
    )
    return first, second


def _without_nulls(side: DocumentSet, column: str) -> DocumentSet:
    """Empty strings for the nulls of a column of strings: URLs that are not known."""
    import pyarrow as pa

    if column not in side.columns.column_names:
        return side
    values = side.columns.column(column)
    if not values.null_count or values.type not in (pa.string(), pa.large_string(), pa.null()):
        return side
    index = side.columns.column_names.index(column)
    return replace(side, columns=side.columns.set_column(index, column, values.cast(pa.string()).fill_null("")))


def _pair_id(sides: Sides, pair: AlignedPair | KnownPair) -> str:
    first, second = sides[0].ids[pair.first], sides[1].ids[pair.second]
    return first if first == second else f"{first}|{second}"


def _refuse(option: str, others: dict[str, object], reason: str) -> None:
    for other, value in others.items():
        if value is not None:
            raise EmbedError(f"{option} and {other} exclude each other: {reason}")


def _check_languages(job: AlignmentJob) -> None:
    check_languages(*job.languages)
    for option, code in zip(("--language-a", "--language-b"), job.languages, strict=True):
        for needing, value in (("--rows", job.rows), ("--lawdr-rank", job.lawdr_rank)):
            if code is None and value is not None:
                raise EmbedError(f"{needing} needs the languages of both sides; {option} is missing")


def _check_model_languages(job: AlignmentJob, embedder: DocumentEmbedder) -> None:
    if not embedder.needs_language:
        return
    if job.lawdr_rank is not None:
        raise EmbedError("--lawdr-rank: the model has an encoder for each language, which LAWDR cannot tell apart")
    known = list(embedder.model.config.languages)
    for option, code in zip(("--language-a", "--language-b"), job.languages, strict=True):
        if code not in known:
            raise EmbedError(
                f"{option}: found {code!r}, expected one of {', '.join(known)}: the model has an encoder for each "
                "language"
            )


@contextmanager
def _writing(option: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EmbedError(f"{option} {path}: {error.strerror or error}") from None


@contextmanager
def _told_errors(sides: Sides, embedder: DocumentEmbedder) -> Iterator[None]:
    try:
        with told_out_of_memory(embedder, "lower --max-length or --window"):
            yield
    except (ValueError, ImportError) as error:
        names = f"{sides[0].name} and {sides[1].name}"
        raise EmbedError(f"{names} with model {embedder.model.name_or_path}: {error}") from None
