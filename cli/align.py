"""`tmde align`: two sets of documents in, one-to-one pairs out, and their sentences as a parallel corpus."""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from modeling_tmde.cli.align_job import (
    AlignmentJob,
    align_sides,
    check_options,
    open_sides,
    write_pairs,
    write_rows,
)
from modeling_tmde.cli.align_pairs import read_pairs
from modeling_tmde.cli.embedder_options import (
    LONG_PANEL,
    AggregationOption,
    DeviceOption,
    DtypeOption,
    LongDocumentsMode,
    MaxLengthOption,
    ModelOption,
    PoolingOption,
    RevisionOption,
    StrideOption,
    TrustRemoteCodeOption,
    WindowOption,
    open_embedder,
)
from modeling_tmde.data.documents import EmbedError, InputFormat

_INPUT = "Input"  # a heading of the help


class Scoring(str, Enum):
    ratio = "ratio"
    distance = "distance"
    cosine = "cosine"


def align(
    a: Annotated[str, typer.Argument(metavar="A", help="File of documents of one language, or - for stdin.")],
    b: Annotated[str, typer.Argument(metavar="B", help="File of documents of the other language.")],
    model: ModelOption,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT", help="Pairs of documents to write, .tsv.")
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(help="Parallel corpus to write, .jsonl: sentences of the pairs, aligned; for tmde train."),
    ] = None,
    format: Annotated[
        InputFormat | None, typer.Option(help="Default: by the suffix; text for stdin.", rich_help_panel=_INPUT)
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="JSONL field or parquet column of the text. Default: text.", rich_help_panel=_INPUT),
    ] = None,
    id_field: Annotated[
        str | None,
        typer.Option(
            help="That of the id. Default: id if there is one, else the line or row number.", rich_help_panel=_INPUT
        ),
    ] = None,
    url_field: Annotated[
        str | None,
        typer.Option(
            help="That of the URL: pages that differ in marks of language alone are paired first.",
            rich_help_panel=_INPUT,
        ),
    ] = None,
    same_domain: Annotated[
        bool,
        typer.Option(
            "--same-domain", help="Pair only documents of one website; needs --url-field.", rich_help_panel=_INPUT
        ),
    ] = False,
    language_a: Annotated[
        str | None,
        typer.Option(
            help="Code of A's language, such as de: of sentences, URLs, rows, a model that needs it.",
            rich_help_panel=_INPUT,
        ),
    ] = None,
    language_b: Annotated[str | None, typer.Option(help="Code of B's language.", rich_help_panel=_INPUT)] = None,
    scoring: Annotated[
        Scoring | None, typer.Option(help="Margin of Artetxe & Schwenk 2019, or cosine. Default: ratio.")
    ] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Neighbours of a margin. Default: 4.")] = None,
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
        float | None,
        typer.Option(help="Least score of a row: 1 is alike, 0 unrelated. Default: all that are aligned."),
    ] = None,
    long_documents: Annotated[
        LongDocumentsMode | None,
        typer.Option(
            help="A document too long for the model: embed it sentence by sentence (sentences, the default), in "
            "overlapping windows (chunk), or cut it off (truncate).",
            rich_help_panel=LONG_PANEL,
        ),
    ] = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    aggregation: AggregationOption = None,
    pooling: PoolingOption = None,
    max_length: MaxLengthOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    revision: RevisionOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
) -> None:
    """Align documents one to one, and their sentences.

    OUT has a line for each pair, best first, after a header: score, id_a, id_b, and URLs where there are any. Text
    input holds one document a line.

        tmde align german.jsonl english.jsonl -o pairs.tsv -m path/to/model

    On to a parallel corpus (look at the rows of lowest score, and choose --min-score by them), and to a model:

        tmde align german.jsonl english.jsonl -o pairs.tsv -m path/to/model --rows rows.jsonl --language-a de
        --language-b en

        tmde train bag --train rows.jsonl 'languages=\\[de, en]' 'pivot_languages=\\[en]' -o runs/mine

    Documents that are known to be pairs are not scored, only their sentences aligned:

        tmde align german.jsonl english.jsonl --pairs pairs.tsv --rows rows.jsonl ...
    """
    job = AlignmentJob(
        a, b, out, rows, pairs, (language_a, language_b), format, field, id_field, url_field, same_domain,
        scoring and scoring.value, k, threshold, lawdr_rank,
        "paragraphs" if paragraphs else "sentences", min_score, overwrite,
    )  # fmt: skip
    given = {"--long-documents": long_documents, "--window": window, "--stride": stride, "--aggregation": aggregation}
    long_documents = long_documents or LongDocumentsMode.sentences
    loading = {"pooling": pooling, "max_length": max_length, "dtype": dtype, "device": device}
    loading |= {"trust_remote_code": trust_remote_code, "revision": revision, "long_documents": long_documents}
    loading |= {"window": window, "stride": stride, "aggregation": aggregation}
    start = time.perf_counter()
    try:
        targets = check_options(job, paragraphs, given)
        sides = open_sides(job)
        known = None if pairs is None else read_pairs(pairs, "--pairs", *sides)
        right = None if reference is None else read_pairs(reference, "--reference", *sides)
        embedder = open_embedder(model, **loading)
        found = align_sides(job, sides, embedder) if known is None else known
        if out is not None:
            write_pairs(job, targets[0], found, sides)
        if right is not None:
            _report_recall(found, right, reference)
        if rows is not None:
            write_rows(job, targets[1], found, sides, embedder)
    except EmbedError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"Done in {time.perf_counter() - start:.1f} s", err=True)


def _report_recall(found: list, right: list, reference: Path) -> None:
    from modeling_tmde.documents.alignment import alignment_precision, alignment_recall

    wanted = {tuple(pair[:2]) for pair in right}
    hits = len(wanted & {tuple(pair[:2]) for pair in found})
    typer.echo(
        f"{reference}: found {hits:,} of {len(wanted):,} right pairs: recall {alignment_recall(found, right):.4f}, "
        f"precision {alignment_precision(found, right):.4f} (of pairs with a document that it knows)",
        err=True,
    )
