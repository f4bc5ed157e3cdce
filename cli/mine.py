"""`tmde mine`: two files of sentences in, their likely translations of each other out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords

Retrieval = Literal["max", "intersection", "forward", "backward"]
Search = Literal["auto", "exact", "hnsw"]


@dataclass(kw_only=True)
class MineOptions(common.ModelOptions, common.ProbabilityOptions, common.SidesOptions):
    """The options of `tmde mine`."""

    a: Annotated[
        str,
        Argument(metavar="A", help="File or folder of sentences in one language, or - for stdin."),
    ]
    b: Annotated[
        str, Argument(metavar="B", help="File or folder of sentences in the other language.")
    ]
    output: Annotated[
        Path, Option("--output", "-o", metavar="OUT", help="File to write: .tsv, .jsonl or .tmx.")
    ]
    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            help="Folder, Hub id or packaged model. Default: `default`.",
            callback=common.check_model_name,
        ),
    ] = None
    vectors_a: Annotated[
        Path | None, Option(help="Vectors of A from `tmde embed`, .npy, instead of embedding A.")
    ] = None
    vectors_b: Annotated[Path | None, Option(help="The same for B.")] = None
    precision: Annotated[
        common.Precision,
        Option(
            help="Precision of the vectors, including --vectors-a and --vectors-b, as in "
            "`tmde embed`."
        ),
    ] = "float32"
    truncate_dim: Annotated[
        int | None,
        Option(min=1, help="Keep only the first N dimensions. Default: all."),
    ] = None
    scoring: common.ScoringOption = "ratio"
    k: common.NeighborsOption = 4
    retrieval: Annotated[
        Retrieval,
        Option(
            help="Keep the best pair of each text in A (forward), in B (backward), in both "
            "(intersection), or in either (max)."
        ),
    ] = "max"
    threshold: Annotated[float | None, Option(help="Minimum score of a pair.")] = None
    max_pairs: Annotated[int | None, Option(min=1, help="Keep only the N best pairs.")] = None
    drop_identical: Annotated[
        bool, Option("--drop-identical", help="Omit pairs of identical texts.")
    ] = False
    search: Annotated[
        Search,
        Option(help="Neighbor search; auto uses hnsw beyond about 160,000 x 160,000 sentences."),
    ] = "auto"
    gold: Annotated[
        Path | None, Option(help="Correct pairs (id of A, tab, id of B), for evaluation.")
    ] = None
    optimize_threshold: Annotated[
        bool,
        Option("--optimize-threshold", help="Choose the threshold with the highest F1 on --gold."),
    ] = False
    judge_anyway: common.JudgeAnywayOption = False
    overwrite: common.OverwriteOption = False


@command(MineOptions)
def mine(options: MineOptions) -> None:
    """Mine bitext: find pairs of sentences that are translations, best first.

    A and B are text (one sentence per line), or CSV, TSV, JSONL or parquet with a "text" column
    (all except parquet may be gzipped), or folders of such tables. Duplicate sentences count once.
    Pairs with a probability below 0.4 are omitted; on all development text, this limit had nearly
    the best F1. --min-probability 0 keeps all pairs; 0.9 keeps hardly any wrong pairs, but loses up
    to half of the correct ones.

        tmde mine news.de.txt news.en.txt -o pairs.tsv

    --threshold, --max-pairs and --optimize-threshold replace this limit. If the model has no
    calibration, run `tmde calibrate`, or set a --threshold.

    Probabilities assume that half of the sentences have a translation on the other side. If fewer
    do, set --share, here to a twentieth:

        tmde mine web.de.txt web.en.txt -o pairs.tsv --share 0.05

    With --language-a and --language-b, JSONL output is a corpus that `tmde train` reads, and TMX
    output is a translation memory:

        tmde mine de.txt en.txt -o pairs.jsonl --language-a de --language-b en

    For large files, embed first (this can be resumed), then mine the vectors as often as you like:

        tmde embed de.txt -o de.npy --resume

        tmde mine de.txt en.txt -o pairs.tsv --vectors-a de.npy --vectors-b en.npy

    Choose a threshold on a training split with known pairs, to use it on another split. A BUCC line
    is an id, a tab and a text:

        tmde mine train.de train.en -o train.tsv --format tsv --gold train.gold --optimize-threshold
    """
    common.check_output(options.output, options.overwrite, (".tsv", ".jsonl", ".tmx"))
    common.check_sources(options.a, options.b)
    from tmde.documents.file_mining import mine_files

    choices = keywords(options, MineOptions, without=("overwrite",))
    choices |= keywords(options, common.SidesOptions)
    choices |= keywords(options, common.ProbabilityOptions)
    report = mine_files(**choices, loading=keywords(options, common.ModelOptions))
    for sentence in report.sentences():
        typer.echo(sentence, err=True)
