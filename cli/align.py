"""`tmde align`: documents of two languages in, pairs out, and their sentences as a corpus."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords
from tmde.cli.errors import OptionError
from tmde.cli.models import suggest_accurate
from tmde.embedding.packaged_models import DEFAULT_MODEL


@dataclass(kw_only=True)
class AlignOptions(
    common.LongOptions, common.ModelOptions, common.ProbabilityOptions, common.SidesOptions
):
    """The options of `tmde align`."""

    a: Annotated[
        str,
        Argument(metavar="A", help="File or folder of documents in one language, or - for stdin."),
    ]
    b: Annotated[
        str, Argument(metavar="B", help="File or folder of documents in the other language.")
    ]
    model: common.ModelOption = DEFAULT_MODEL
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="OUT", help="File for the document pairs, .tsv."),
    ] = None
    rows: Annotated[Path | None, Option(help="File for the aligned sentences, .jsonl or .tmx.")] = (
        None
    )
    unpaired: Annotated[
        Path | None,
        Option(
            help="File for unpaired documents and, with --rows, unaligned sentences, .tsv or "
            ".jsonl."
        ),
    ] = None
    identical: Annotated[
        Path | None,
        Option(help="File for untranslated text (the same on both sides), .tsv or .jsonl."),
    ] = None
    url_field: Annotated[
        str | None, Option(help="Column with the URL; documents are first paired by URL.")
    ] = None
    same_domain: Annotated[
        bool, Option("--same-domain", help="Pair only documents from the same website.")
    ] = False
    scoring: common.ScoringOption = "ratio"
    k: common.NeighborsOption = 4
    threshold: Annotated[
        float | None, Option(help="Minimum score of a document pair not matched by URL.")
    ] = None
    min_distinctness: Annotated[
        float,
        Option(
            min=0,
            max=1,
            help="Minimum distinctness of such a pair: how much better it is than the next-best "
            "match. 0.25 suits pages and articles.",
        ),
    ] = 0.0
    lawdr_rank: Annotated[
        str | None,
        Option(
            metavar="N|auto",
            help="Embed with LAWDR and remove this many directions; auto removes enough to hide "
            "the language.",
        ),
    ] = None
    pairs: Annotated[
        Path | None,
        Option(help="Known document pairs: OUT of an earlier run, or id of A, tab, id of B."),
    ] = None
    reference: Annotated[
        Path | None, Option(help="Correct pairs in the format of --pairs, for evaluation.")
    ] = None
    paragraphs: Annotated[
        bool, Option("--paragraphs", help="Align lines instead of sentences.")
    ] = False
    min_score: Annotated[
        float | None, Option(help="Minimum score of a sentence pair, from 0 (unrelated) to 1.")
    ] = None
    overwrite: common.OverwriteOption = False


@command(AlignOptions)
def align(options: AlignOptions) -> None:
    """Align documents one to one, and align their sentences.

    OUT is a table with a header and one line per pair, best first: score, distinctness, id_a, id_b,
    and URLs if there are any. If many documents have no translation on the other side, leave out
    doubtful pairs with --min-distinctness 0.25.

    A and B are text (one document per line), or CSV, TSV, JSONL or parquet with a "text" column;
    all except parquet may be gzipped. They may also be single Markdown or HTML pages, or folders of
    such tables or of .txt, .md and .html files (one document each). Markup and code blocks are
    removed.

        tmde align german.jsonl english.jsonl -o pairs.tsv

    Build a parallel corpus and train on it. Sentence pairs with a probability below 0.1 are
    omitted; --min-probability 0 keeps them:

        tmde align german.jsonl english.jsonl -o pairs.tsv --rows rows.jsonl --language-a de
        --language-b en

        tmde train bag --train rows.jsonl 'languages=[de, en]' 'pivot_languages=[en]' -o runs/mine

    List what is missing in the other language, and what is untranslated:

        tmde align german.jsonl english.jsonl --rows rows.jsonl --unpaired unpaired.tsv
        --identical identical.tsv --language-a de --language-b en

    Align only the sentences of known pairs:

        tmde align german.jsonl english.jsonl --pairs pairs.tsv --rows rows.jsonl ...
    """
    if options.output is not None:
        common.check_output(options.output, options.overwrite, [".tsv"])
    if options.rows is not None:
        common.check_output(options.rows, options.overwrite, [".jsonl", ".tmx"], "--rows")
    lists = {"--unpaired": options.unpaired, "--identical": options.identical}
    for name, path in lists.items():
        if path is not None:
            common.check_output(path, options.overwrite, [".tsv", ".jsonl"], name)
    common.check_sources(options.a, options.b)
    choices = keywords(options, AlignOptions, without=("overwrite", "lawdr_rank"))
    choices |= keywords(options, common.SidesOptions)
    choices |= keywords(options, common.ProbabilityOptions)
    loading = keywords(options, common.ModelOptions) | keywords(options, common.LongOptions)
    rank = None if options.lawdr_rank is None else _parse_rank(options.lawdr_rank)
    from tmde.documents.file_alignment import align_files

    report = align_files(**choices, lawdr_rank=rank, loading=loading)
    for sentence in report.sentences():
        typer.echo(sentence, err=True)
    suggest_accurate(options.model, "`-m accurate`")


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
