"""`tmde align`: two sets of documents in, one-to-one pairs out, and their sentences as a parallel corpus."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from modeling_tmde import TmdeError
from tmde.cli import document_sets
from tmde.cli import options as common
from tmde.cli.index import truncation_counted
from tmde.documents.alignment import AlignedPair, align_documents, alignment_quality
from tmde.documents.lawdr import Lawdr
from tmde.documents.mining import read_gold_pairs
from tmde.documents.parallel_rows import parallel_rows
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.loading import DEFAULT_MODEL
from tmde.embedding.progress import progress_bar


@common.with_options(**document_sets.SIDES_OPTIONS, **common.MODEL_OPTIONS, **common.LONG_OPTIONS)
def align(
    a: Annotated[
        str, Argument(metavar="A", help="File of documents of one language, or - for stdin.")
    ],
    b: Annotated[str, Argument(metavar="B", help="File of documents of the other language.")],
    model: common.ModelOption = DEFAULT_MODEL,
    out: Annotated[
        Path | None, Option("--output", "-o", metavar="OUT", help="Pairs to write, .tsv.")
    ] = None,
    rows: Annotated[
        Path | None, Option(help="Corpus to write, .jsonl: aligned sentences of the pairs.")
    ] = None,
    url_field: Annotated[
        str | None, Option(help="Field of the URL, by which pages are paired first.")
    ] = None,
    same_domain: Annotated[
        bool, Option("--same-domain", help="Pair only within a website.")
    ] = False,
    scoring: document_sets.ScoringOption = "ratio",
    k: document_sets.NeighborsOption = 4,
    threshold: Annotated[
        float | None, Option(help="Lowest score of a pair that is not one by URL.")
    ] = None,
    lawdr_rank: Annotated[
        int | None, Option(min=1, help="Embed by LAWDR, and remove this many directions.")
    ] = None,
    pairs: Annotated[
        Path | None, Option(help="Known pairs: OUT of an earlier run, or id of A, tab, id of B.")
    ] = None,
    reference: Annotated[
        Path | None, Option(help="Right pairs, as for --pairs: prints the quality.")
    ] = None,
    paragraphs: Annotated[
        bool, Option("--paragraphs", help="Align lines instead of sentences.")
    ] = False,
    min_score: Annotated[
        float | None, Option(help="Lowest score of a row: 1 is alike, 0 unrelated.")
    ] = None,
    overwrite: common.OverwriteOption = False,
    loading: dict[str, Any] = ...,
) -> None:
    """Align documents one to one, and their sentences.

    OUT has a line for each pair, best first, after a header: score, id_a, id_b, and URLs if there are any. Text input
    holds one document a line.

        tmde align german.jsonl english.jsonl -o pairs.tsv

    On to a parallel corpus (look at the rows of lowest score, and choose --min-score by them), and to a model:

        tmde align german.jsonl english.jsonl -o pairs.tsv -m path/to/model --rows rows.jsonl --language-a de
        --language-b en

        tmde train bag --train rows.jsonl 'languages=[de, en]' 'pivot_languages=[en]' -o runs/mine

    Known pairs are not scored, only their sentences aligned:

        tmde align german.jsonl english.jsonl --pairs pairs.tsv --rows rows.jsonl ...
    """
    if out is None and rows is None:
        raise TmdeError(
            "Nothing to write; give --output for pairs of documents, --rows for their sentences, or both"
        )
    if pairs is not None and (out is not None or rows is None):
        raise TmdeError(
            "--pairs needs --rows and excludes --output: known pairs are neither searched nor written"
        )
    if same_domain and url_field is None:
        raise TmdeError(
            "--same-domain needs --url-field: the URLs say which website a document is of"
        )
    out_file = out and common.check_output(out, overwrite, [".tsv"])
    rows_file = rows and common.check_output(rows, overwrite, [".jsonl"], "--rows")
    sides = document_sets.read_sides(a, b, loading, url_field)
    languages = tuple(side.language for side in sides)
    if None in languages and (rows is not None or lawdr_rank is not None):
        raise TmdeError(
            "--rows and --lawdr-rank need the languages of both sides: --language-a and --language-b"
        )
    right, found = (
        path and read_gold_pairs(path, sides[0].ids, sides[1].ids) for path in (reference, pairs)
    )
    embedder = document_sets.load_embedder_of_sides(
        model, sides, **{"long_documents": "sentences"} | loading
    )
    with truncation_counted():
        if found is None:
            found = _aligned(
                sides,
                embedder,
                lawdr_rank,
                scoring,
                k=k,
                threshold=threshold,
                same_domain=same_domain,
            )
        if out is not None:
            columns = [
                "score",
                "id_a",
                "id_b",
                *(["url_a", "url_b", "matched_by"] if url_field else []),
            ]
            fields = [
                [pair.score, sides[0].ids[pair.first], sides[1].ids[pair.second]] for pair in found
            ]
            for row, (i, j, _, by_url) in zip(
                fields, found if url_field else (), strict=bool(url_field)
            ):
                row += [sides[0].urls[i], sides[1].urls[j], "url" if by_url else "score"]
            document_sets.write_rows(out_file, columns, fields)
            typer.echo(f"{len(found):,} pairs -> {out}", err=True)
        if right is not None:
            document_sets.report_quality(reference, alignment_quality(found, right))
        if rows is not None:
            report, unit = Counter(), "paragraphs" if paragraphs else "sentences"
            texts = (
                (
                    "|".join(dict.fromkeys([sides[0].ids[i], sides[1].ids[j]])),
                    sides[0].texts[i],
                    sides[1].texts[j],
                )
                for i, j, *_ in progress_bar(found, desc="Aligning", unit=" pairs")
            )
            aligned = parallel_rows(
                texts, embedder, languages, paragraphs, min_score, report=report
            )
            document_sets.write_rows(
                rows_file,
                ["translation", "doc_id", "segment", "score"],
                (row.values() for row in aligned),
            )
            beads = ", ".join(
                f"{count:,} {kind}" for kind, count in report.most_common() if "-" in kind
            )
            typer.echo(
                f"{report['documents']:,} pairs: {report['first']:,} and {report['second']:,} {unit} "
                f"({report['texts']:,} texts embedded, {report['truncated']:,} truncated): {beads or 'none'}\n"
                f"{report['rows']:,} rows (left out: {report['low']:,} of a low score, {report['identical']:,} "
                f"identical, {report['wordless']:,} without letters) -> {rows}",
                err=True,
            )


def _aligned(
    sides: document_sets.Sides,
    embedder: DocumentEmbedder,
    lawdr_rank: int | None,
    scoring: str,
    **options: Any,
) -> list[AlignedPair]:
    """Pairs of documents that are not empty, by the rows of the files, best first."""
    kept = [[row for row, text in enumerate(side.texts) if text.strip()] for side in sides]
    of_sides = list(zip(sides, kept, strict=True))
    for name, (side, rows) in zip(("first_urls", "second_urls"), of_sides, strict=True):
        options[name] = side.urls and [side.urls[row] for row in rows]
    if None not in (languages := [side.language for side in sides]):
        options["languages"] = [code.split("-")[0].lower() for code in languages]
    if lawdr_rank is None:
        vectors = [side.embed(rows, embedder) for side, rows in of_sides]
    else:
        lawdr = Lawdr(embedder, rank=lawdr_rank)
        texts = [side.texts[row] for side, rows in of_sides for row in rows]
        both = lawdr.fit_transform(texts, [side.language for side, rows in of_sides for _ in rows])
        vectors = both[: len(kept[0])], both[len(kept[0]) :]
        typer.echo(
            f"{len(texts):,} documents by LAWDR ({lawdr.truncated_:,} sentences truncated)",
            err=True,
        )
    pairs = align_documents(*vectors, scoring, **options)
    scored = [pair.score for pair in pairs if not pair.by_url]
    scores = f"; {scoring} {scored[0]:.4f} to {scored[-1]:.4f}" if scored else ""
    typer.echo(
        f"{len(pairs):,} pairs of documents, {len(pairs) - len(scored):,} by URL{scores}", err=True
    )
    return [pair._replace(first=kept[0][pair.first], second=kept[1][pair.second]) for pair in pairs]
