"""`tmde align`: documents of two languages in, pairs out, and their sentences as a corpus."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.errors import OptionError
from tmde.embedding.packaged_models import DEFAULT_MODEL


@common.with_options(
    sides=common.SIDES_OPTIONS,
    probabilities=common.PROBABILITY_OPTIONS,
    loading=common.MODEL_OPTIONS | common.LONG_OPTIONS,
)
def align(
    a: Annotated[
        str,
        Argument(metavar="A", help="File or folder of documents of one language, or - for stdin."),
    ],
    b: Annotated[
        str, Argument(metavar="B", help="File or folder of documents of the other language.")
    ],
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
    scoring: common.ScoringOption = "ratio",
    k: common.NeighborsOption = 4,
    threshold: Annotated[
        float | None, Option(help="Lowest score of a pair that is not one by URL.")
    ] = None,
    lawdr_rank: Annotated[
        str | None,
        Option(
            metavar="N|auto",
            help="Embed by LAWDR, and remove this many directions; auto: as many as hide the "
            "language.",
        ),
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
    *,
    sides: dict[str, Any],
    probabilities: dict[str, Any],
    loading: dict[str, Any],
) -> None:
    """Align documents one to one, and their sentences.

    OUT has a line for each pair, best first, after a header: score, id_a, id_b, and URLs if there
    are any.

    A and B are text (one document a line), CSV, TSV, JSONL or parquet with a column "text", any of
    them gzipped; or folders of .txt and .md files (one document each) or of such tables.

        tmde align german.jsonl english.jsonl -o pairs.tsv

    On to a parallel corpus, whose rows are translations with a probability of 0.9 or more, and to a
    model:

        tmde align german.jsonl english.jsonl -o pairs.tsv --rows rows.jsonl --min-probability 0.9
        --language-a de --language-b en

        tmde train bag --train rows.jsonl 'languages=[de, en]' 'pivot_languages=[en]' -o runs/mine

    Known pairs are not scored, only their sentences aligned:

        tmde align german.jsonl english.jsonl --pairs pairs.tsv --rows rows.jsonl ...
    """
    if out is None and rows is None:
        raise OptionError(
            "Nothing to write; give --output for pairs of documents, --rows for their sentences, "
            "or both"
        )
    if pairs is not None and (out is not None or rows is None):
        raise OptionError(
            "--pairs needs --rows and excludes --output: known pairs are neither searched nor "
            "written"
        )
    if probabilities and rows is None:
        raise OptionError(
            "--min-probability, --share and --calibration need --rows: probabilities are those of "
            "sentences"
        )
    if same_domain and url_field is None:
        raise OptionError(
            "--same-domain needs --url-field: the URLs say which website a document belongs to"
        )
    rank = None if lawdr_rank is None else _parse_rank(lawdr_rank)
    pairs_target = None
    rows_target = None
    if out is not None:
        pairs_target = common.check_output(out, overwrite, [".tsv"])
    if rows is not None:
        rows_target = common.check_output(rows, overwrite, [".jsonl"], "--rows")
    common.check_sources(a, b)
    from tmde.cli.align_files import AlignmentJob, align_files
    from tmde.cli.document_sets import SidesOptions
    from tmde.documents.pair_probabilities import ProbabilityOptions

    job = AlignmentJob(
        first_file=a,
        second_file=b,
        sides_options=SidesOptions(**sides, url_field=url_field),
        model=model,
        loading={"long_documents": "sentences"} | loading,
        probabilities=ProbabilityOptions(**probabilities),
        pairs_output=out,
        pairs_target=pairs_target,
        rows_output=rows,
        rows_target=rows_target,
        same_domain=same_domain,
        scoring=scoring,
        k=k,
        threshold=threshold,
        lawdr_rank=rank,
        known_pairs=pairs,
        reference=reference,
        paragraphs=paragraphs,
        min_score=min_score,
    )
    align_files(job)


def _parse_rank(text: str) -> int | Literal["auto"]:
    """Return the number of directions of `--lawdr-rank`, or `"auto"`.

    Raises:
        OptionError: It is neither.
    """
    if text == "auto":
        return "auto"
    if not text.isdecimal():
        raise OptionError(f"--lawdr-rank: found {text!r}, expected 0, 1, 2 ... or auto")
    return int(text)
