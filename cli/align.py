"""`tmde align`: two sets of documents in, one-to-one pairs out, and their sentences as a parallel corpus."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from modeling_tmde.cli.document_sets import (
    DocumentSet,
    LanguageAOption,
    LanguageBOption,
    Scoring,
    check_model_language,
    check_sides,
    read_document_set,
)
from modeling_tmde.cli.index import truncation_counted
from modeling_tmde.cli.options import (
    LONG_OPTIONS,
    MODEL_OPTIONS,
    FieldOption,
    FormatOption,
    IdFieldOption,
    ModelOption,
    OverwriteOption,
    check_output,
    load_embedder,
    with_options,
)
from modeling_tmde.data.io import replacing
from modeling_tmde.documents.alignment import AlignedPair, align_documents, alignment_precision, alignment_recall
from modeling_tmde.documents.lawdr import Lawdr
from modeling_tmde.documents.mining import read_gold_pairs
from modeling_tmde.documents.parallel_rows import RowsReport, parallel_rows
from modeling_tmde.embedding import DocumentEmbedder, progress_bar

Sides = tuple[DocumentSet, DocumentSet]


@with_options(**MODEL_OPTIONS, **LONG_OPTIONS)
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
    scoring: Annotated[Scoring, typer.Option(help="Margin of Artetxe & Schwenk 2019, or cosine.")] = "ratio",
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbors of a margin.")] = 4,
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
    overwrite: OverwriteOption = False,
    loading: dict[str, Any] = ...,
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
    if pairs is not None and (out is not None or rows is None):
        raise ValueError("--pairs needs --rows and excludes --output: known pairs are neither searched nor written")
    if rows is None and (min_score is not None or paragraphs):
        raise ValueError("--min-score and --paragraphs are of --rows, which is missing")
    if None in languages and (rows is not None or lawdr_rank is not None):
        raise ValueError("--rows and --lawdr-rank need the languages of both sides: --language-a and --language-b")
    if same_domain and url_field is None:
        raise ValueError("--same-domain needs --url-field: the URLs say which website a document is of")
    check_sides(a, b, languages)
    out_file = out and check_output(out, overwrite, [".tsv"])
    rows_file = rows and check_output(rows, overwrite, [".jsonl"], "--rows")
    columns = [url_field] if url_field else []
    sides = tuple(read_document_set(source, format, field, id_field, columns) for source in (a, b))
    ids = [side.ids for side in sides]
    right = read_gold_pairs(reference, *ids) if reference else None
    found = read_gold_pairs(pairs, *ids) if pairs else None
    embedder = load_embedder(model, **{"long_documents": "sentences"} | loading)
    for option, code in zip(("--language-a", "--language-b"), languages, strict=True):
        check_model_language(embedder, option, code)
    with truncation_counted():
        if found is None:
            urls = [_urls(side, url_field) for side in sides] if url_field else None
            options = {"scoring": scoring, "k": k, "threshold": threshold, "same_domain": same_domain}
            found = _aligned(sides, languages, embedder, lawdr_rank, urls, options)
            if out is not None:
                _write_pairs(out_file, found, sides, urls)
                typer.echo(f"{len(found):,} pairs -> {out}", err=True)
        if right is not None:
            hits = len(set(right) & {tuple(pair[:2]) for pair in found})
            recall, precision = alignment_recall(found, right), alignment_precision(found, right)
            typer.echo(
                f"{reference}: found {hits:,} of {len(right):,} right pairs: recall {recall:.4f}, precision "
                f"{precision:.4f} (of pairs with a document that it knows)",
                err=True,
            )
        if rows is not None:
            report = RowsReport()
            with replacing(rows_file) as temporary, open(temporary, "w", encoding="utf-8") as file:
                named = _named_texts(progress_bar(found, desc="Aligning", unit=" pairs"), sides)
                unit = "paragraphs" if paragraphs else "sentences"
                for row in parallel_rows(named, embedder, languages, unit, min_score, report=report):
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
            typer.echo(f"{_describe(report, unit)} -> {rows}", err=True)
    typer.echo(f"Done in {time.perf_counter() - start:.1f} s", err=True)


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
    return ["".join(str(url or "").split()) for url in side.values(url_field, "--url-field")]


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


def _named_texts(pairs: Sequence, sides: Sides) -> Iterator[tuple[str, str, str]]:
    """Id and both texts of each pair."""
    for first, second, *_ in pairs:
        ids = sides[0].ids[first], sides[1].ids[second]
        yield "|".join(dict.fromkeys(ids)), sides[0].texts[first], sides[1].texts[second]


def _describe(report: RowsReport, unit: str) -> str:
    beads = ", ".join(f"{count:,} {kind}" for kind, count in report.beads.most_common())
    return (
        f"{report.documents:,} pairs: {report.first_segments:,} and {report.second_segments:,} {unit} "
        f"({report.texts:,} texts embedded, {report.truncated:,} truncated): {beads or 'none'}\n"
        f"{report.rows:,} rows (left out: {report.low:,} of a low score, {report.identical:,} identical, "
        f"{report.wordless:,} without letters)"
    )
