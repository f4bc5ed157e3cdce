"""`tmde align`: two sets of documents in, one-to-one pairs out, and their sentences as a parallel corpus."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from modeling_tmde.cli.document_sets import (
    DocumentSet,
    FieldOption,
    FormatOption,
    IdFieldOption,
    LanguageAOption,
    LanguageBOption,
    OverwriteOption,
    Scoring,
    SentencesOption,
    check_model_language,
    check_sides,
    read_document_set,
)
from modeling_tmde.cli.index import truncation_counted
from modeling_tmde.cli.options import (
    AggregationOption,
    DeviceOption,
    DtypeOption,
    MaxLengthOption,
    ModelOption,
    PoolingOption,
    RevisionOption,
    StrideOption,
    TrustRemoteCodeOption,
    WindowOption,
    check_output,
    load_embedder,
)
from modeling_tmde.data.io import replacing
from modeling_tmde.documents.alignment import (
    AlignedPair,
    align_documents,
    alignment_precision,
    alignment_recall,
)
from modeling_tmde.documents.lawdr import Lawdr
from modeling_tmde.documents.mining import read_gold_pairs
from modeling_tmde.documents.parallel_rows import RowsReport, parallel_rows
from modeling_tmde.embedding import DocumentEmbedder, progress_bar

Sides = tuple[DocumentSet, DocumentSet]


def align(
    a: Annotated[str, typer.Argument(metavar="A", help="File of documents of one language, or - for stdin.")],
    b: Annotated[str, typer.Argument(metavar="B", help="File of documents of the other language.")],
    model: ModelOption,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT", help="Pairs of documents to write, .tsv.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="Parallel corpus to write, .jsonl: aligned sentences of the pairs.")
    ] = None,
    format: FormatOption = None,
    field: FieldOption = None,
    id_field: IdFieldOption = None,
    url_field: Annotated[
        str | None,
        typer.Option(help="That of the URL: pages that differ in marks of language alone are paired first."),
    ] = None,
    same_domain: Annotated[
        bool, typer.Option("--same-domain", help="Pair only documents of one website; needs --url-field.")
    ] = False,
    language_a: LanguageAOption = None,
    language_b: LanguageBOption = None,
    scoring: Annotated[
        Scoring | None, typer.Option(help="Margin of Artetxe & Schwenk 2019, or cosine. Default: ratio.")
    ] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Neighbors of a margin. Default: 4.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Lowest score of a pair that is not one by URL. Default: all pairs.")
    ] = None,
    lawdr_rank: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Represent documents as LAWDR does: sentences without so many main directions of their language, "
            "weighted by how rare they are. Fitted to A and B.",
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Known pairs, instead of aligning: OUT of an earlier run, or id of A, tab, id of B."),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="The right pairs, as for --pairs: prints recall and precision.")
    ] = None,
    paragraphs: Annotated[
        bool, typer.Option("--paragraphs", help="Align the lines of documents instead of their sentences.")
    ] = False,
    min_score: Annotated[
        float | None, typer.Option(help="Lowest score of a row: 1 is alike, 0 unrelated. Default: all.")
    ] = None,
    long_documents: SentencesOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    aggregation: AggregationOption = None,
    pooling: PoolingOption = None,
    max_length: MaxLengthOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    revision: RevisionOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Align documents one to one, and their sentences.

    OUT has a line for each pair, best first, after a header: score, id_a, id_b, and URLs if there are any. Text input
    holds one document a line.

        tmde align german.jsonl english.jsonl -o pairs.tsv -m path/to/model

    On to a parallel corpus (look at the rows of lowest score, and choose --min-score by them), and to a model:

        tmde align german.jsonl english.jsonl -o pairs.tsv -m path/to/model --rows rows.jsonl --language-a de
        --language-b en

        tmde train bag --train rows.jsonl 'languages=[de, en]' 'pivot_languages=[en]' -o runs/mine

    Known pairs are not scored, only their sentences aligned:

        tmde align german.jsonl english.jsonl --pairs pairs.tsv --rows rows.jsonl ...
    """
    start, languages = time.perf_counter(), (language_a, language_b)
    if out is None and rows is None:
        raise ValueError("Nothing to write; give --output for pairs of documents, --rows for their sentences, or both")
    searched = {"--output": out, "--threshold": threshold, "--url-field": url_field, "--lawdr-rank": lawdr_rank}
    searched |= {"--same-domain": same_domain or None, "--scoring": scoring, "-k": k}
    if pairs is not None:
        _exclude("--pairs", searched, "known pairs are neither searched nor written")
    if scoring == "cosine":
        _exclude("--scoring cosine", {"-k": k}, "only margins have neighbors")
    if lawdr_rank is not None and rows is None:
        split = {"--long-documents": long_documents, "--window": window, "--stride": stride}
        _exclude("--lawdr-rank", split | {"--aggregation": aggregation}, "LAWDR embeds and weights sentences itself")
    if rows is None and (min_score is not None or paragraphs or pairs is not None):
        raise ValueError("--pairs, --min-score and --paragraphs are of --rows, which is missing")
    if None in languages and (rows is not None or lawdr_rank is not None):
        raise ValueError("--rows and --lawdr-rank need the languages of both sides: --language-a and --language-b")
    if same_domain and url_field is None:
        raise ValueError("--same-domain needs --url-field: the URLs say which website a document is of")
    check_sides(a, b, languages)
    out_file = out and check_output(out, overwrite, [".tsv"])
    rows_file = rows and check_output(rows, overwrite, [".jsonl"], "--rows")
    columns = [] if url_field is None else [url_field]
    sides = tuple(read_document_set(source, format, field, id_field, columns) for source in (a, b))
    known, right = (None if path is None else _read_pairs(path, sides) for path in (pairs, reference))
    embedder = load_embedder(
        model, pooling=pooling, max_length=max_length, dtype=dtype, device=device, revision=revision, window=window,
        trust_remote_code=trust_remote_code, long_documents=long_documents or "sentences", stride=stride,
        aggregation=aggregation,
    )  # fmt: skip
    for option, code in zip(("--language-a", "--language-b"), languages, strict=True):
        check_model_language(embedder, option, code)
    with truncation_counted():
        if known is None:
            urls = None if url_field is None else [_urls(side, url_field) for side in sides]
            options = {"scoring": scoring or "ratio", "k": k or 4, "threshold": threshold, "same_domain": same_domain}
            found = _aligned(sides, languages, embedder, lawdr_rank, urls, options)
            if out is not None:
                _write_pairs(out_file, found, sides, urls)
                typer.echo(f"{len(found):,} pairs -> {out}", err=True)
        else:
            found = known
        if right is not None:
            _report_recall(found, right, reference)
        if rows is not None:
            unit = "paragraphs" if paragraphs else "sentences"
            report = _write_rows(rows_file, found, sides, languages, embedder, unit, min_score)
            _summarize(report, unit, rows, min_score)
    typer.echo(f"Done in {time.perf_counter() - start:.1f} s", err=True)


def _exclude(option: str, others: dict[str, object], reason: str) -> None:
    for other, value in others.items():
        if value is not None:
            raise ValueError(f"{option} and {other} exclude each other: {reason}")


def _read_pairs(path: Path, sides: Sides) -> list[tuple[int, int]]:
    return read_gold_pairs(path, sides[0].ids, sides[1].ids)


def _aligned(
    sides: Sides,
    languages: tuple[str | None, str | None],
    embedder: DocumentEmbedder,
    lawdr_rank: int | None,
    urls: list[list[str]] | None,
    options: dict[str, Any],
) -> list[AlignedPair]:
    """Pairs of documents that are not empty, by the rows of the files, best first."""
    kept = [side.filled() for side in sides]
    texts = [[side.texts[row] for row in of_side] for side, of_side in zip(sides, kept, strict=True)]
    if urls is not None:
        filled = ([of_side[row] for row in of_rows] for of_side, of_rows in zip(urls, kept, strict=True))
        options |= dict(zip(("first_urls", "second_urls"), filled, strict=True))
        if None not in languages:
            options["languages"] = list(dict.fromkeys(code.split("-")[0].lower() for code in languages))
    if lawdr_rank is None:
        vectors = [_embedded(*each, embedder) for each in zip(sides, texts, languages, strict=True)]
    else:
        if embedder.needs_language:
            raise ValueError("--lawdr-rank: the model has an encoder for each language, which LAWDR cannot tell apart")
        lawdr = Lawdr(embedder, rank=lawdr_rank)
        codes = [code for code, of_side in zip(languages, texts, strict=True) for _ in of_side]
        both = lawdr.fit_transform(texts[0] + texts[1], codes)
        vectors = [both[: len(texts[0])], both[len(texts[0]) :]]
        typer.echo(
            f"{sides[0].name}, {sides[1].name}: {len(texts[0]):,} and {len(texts[1]):,} documents as LAWDR of rank "
            f"{lawdr_rank} ({lawdr.truncated_:,} sentences truncated)",
            err=True,
        )
    pairs = align_documents(*vectors, **options, say=lambda line: typer.echo(line, err=True))
    scored = [pair.score for pair in pairs if not pair.by_url]
    by_url = f", {len(pairs) - len(scored):,} by URL" if urls else ""
    scores = f"; {options['scoring']} {scored[0]:.4f} to {scored[-1]:.4f}" if scored else ""
    typer.echo(f"{len(pairs):,} pairs of documents{by_url}{scores}", err=True)
    return [pair._replace(first=kept[0][pair.first], second=kept[1][pair.second]) for pair in pairs]


def _embedded(side: DocumentSet, texts: list[str], language: str | None, embedder: DocumentEmbedder) -> np.ndarray:
    vectors = embedder.encode(texts, language=language)
    report = embedder.last_report
    split = f", {report.split:,} split into {report.pieces - report.texts + report.split:,}" if report.split else ""
    typer.echo(
        f"{side.name}: {len(side):,} documents ({len(side) - len(texts):,} empty: left out; {report.truncated:,} "
        f"truncated{split}) embedded in {report.seconds:.1f} s",
        err=True,
    )
    return vectors


def _urls(side: DocumentSet, url_field: str) -> list[str]:
    """One URL a document, "" if it is not known."""
    urls = side.values(url_field, "--url-field")
    for number, url in zip(side.numbers, urls, strict=True):
        if url is not None and not isinstance(url, str):
            raise ValueError(f"{side.documents.place(number, url_field)}: found {url!r}, expected a string")
    return [" ".join((url or "").split()) for url in urls]


def _write_pairs(target: Path, pairs: Sequence[AlignedPair], sides: Sides, urls: list[list[str]] | None) -> None:
    lines = ["\t".join(["score", "id_a", "id_b", *(["url_a", "url_b", "matched_by"] if urls else [])])]
    for pair in pairs:
        fields = [f"{pair.score:.6f}", sides[0].ids[pair.first], sides[1].ids[pair.second]]
        if any("\t" in id or id.splitlines() != [id] for id in fields[1:]):
            raise ValueError(f"found ids {fields[1:]}, expected ids without tab and line end: OUT has a pair a line")
        if urls:
            fields += [urls[0][pair.first], urls[1][pair.second], "url" if pair.by_url else "score"]
        lines.append("\t".join(fields))
    with replacing(target) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _report_recall(found: Sequence, right: Sequence, reference: Path) -> None:
    hits = len(set(right) & {tuple(pair[:2]) for pair in found})
    typer.echo(
        f"{reference}: found {hits:,} of {len(right):,} right pairs: recall {alignment_recall(found, right):.4f}, "
        f"precision {alignment_precision(found, right):.4f} (of pairs with a document that it knows)",
        err=True,
    )


def _write_rows(
    target: Path,
    pairs: Sequence,
    sides: Sides,
    languages: tuple[str, str],
    embedder: DocumentEmbedder,
    unit: str,
    min_score: float | None,
) -> RowsReport:
    """Aligns the sentences of each pair and writes what is aligned."""
    report = RowsReport()

    def documents():
        for first, second, *_ in progress_bar(pairs, desc="Aligning", unit=" pairs"):
            ids = sides[0].ids[first], sides[1].ids[second]
            yield ids[0] if ids[0] == ids[1] else "|".join(ids), sides[0].texts[first], sides[1].texts[second]

    with replacing(target) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for row in parallel_rows(documents(), embedder, languages, unit, min_score, report=report):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return report


def _summarize(report: RowsReport, unit: str, rows: Path, min_score: float | None) -> None:
    beads = ", ".join(f"{count:,} {kind}" for kind, count in report.beads.most_common())
    cut = f", {report.split:,} split" if report.split else ""
    low = "" if min_score is None else f"{report.low:,} below {min_score:g}, "
    typer.echo(
        f"{report.documents:,} pairs: {report.first_segments:,} and {report.second_segments:,} {unit} "
        f"({report.texts:,} texts embedded, {report.truncated:,} truncated{cut}): {beads or 'none'}\n"
        f"{report.rows:,} rows -> {rows} (left out: {low}{report.identical:,} identical, {report.wordless:,} without "
        "letters)",
        err=True,
    )
