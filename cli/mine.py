"""`tmde mine`: two files of sentences in, their likely translations of each other out."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.errors import OptionError

Retrieval = Literal["max", "intersection", "forward", "backward"]
Search = Literal["auto", "exact", "hnsw"]


@common.with_options(
    sides=common.SIDES_OPTIONS,
    probabilities=common.PROBABILITY_OPTIONS,
    loading=common.MODEL_OPTIONS,
)
def mine(
    a: Annotated[
        str,
        Argument(metavar="A", help="File or folder of sentences of one language, or - for stdin."),
    ],
    b: Annotated[
        str, Argument(metavar="B", help="File or folder of sentences of the other language.")
    ],
    out: Annotated[
        Path, Option("--output", "-o", metavar="OUT", help="File to write: .tsv or .jsonl.")
    ],
    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            help="Folder or Hub id. Default: the model of tmde.",
            callback=common.check_model_name,
        ),
    ] = None,
    vectors_a: Annotated[
        Path | None, Option(help="Vectors of A by `tmde embed`, .npy: spares embedding it.")
    ] = None,
    vectors_b: Annotated[Path | None, Option(help="Vectors of B.")] = None,
    precision: Annotated[
        common.Precision,
        Option(help="Of the numbers of vectors, as `tmde embed` stores them; of given ones, too."),
    ] = "float32",
    truncate_dim: Annotated[
        int | None,
        Option(min=1, help="Keep only the first N numbers of each vector. Default: all."),
    ] = None,
    scoring: common.ScoringOption = "ratio",
    k: common.NeighborsOption = 4,
    retrieval: Annotated[
        Retrieval, Option(help="Best pairs of A, of B, of both, or of either (max).")
    ] = "max",
    threshold: Annotated[
        float | None, Option(help="Lowest score of a pair. Default: all pairs.")
    ] = None,
    max_pairs: Annotated[
        int | None, Option(min=1, help="Keep only this many pairs, the best.")
    ] = None,
    drop_identical: Annotated[
        bool, Option("--drop-identical", help="Leave out pairs of equal texts.")
    ] = False,
    search: Annotated[
        Search, Option(help="auto: hnsw beyond some 160,000 x 160,000 sentences.")
    ] = "auto",
    gold: Annotated[
        Path | None, Option(help="The right pairs: id of A, tab, id of B. Prints the quality.")
    ] = None,
    optimize_threshold: Annotated[
        bool, Option("--optimize-threshold", help="Best F1 on --gold.")
    ] = False,
    overwrite: common.OverwriteOption = False,
    *,
    sides: dict[str, Any],
    probabilities: dict[str, Any],
    loading: dict[str, Any],
) -> None:
    """Mine translations: pairs of a sentence of A and one of B, best first.

    A and B are text (one sentence a line), CSV, TSV, JSONL or parquet with a column "text", any of
    them gzipped, or folders of such tables. A repeated sentence takes part once, the first time it
    occurs. Without --min-probability, --threshold or --max-pairs every sentence that finds a
    partner is written, right or wrong.

        tmde mine news.de.txt news.en.txt -o pairs.tsv --min-probability 0.9

    The probability that a pair is a translation holds if half of the sentences have one on the
    other side. Say so if it is less, here a twentieth:

        tmde mine web.de.txt web.en.txt -o pairs.tsv --min-probability 0.9 --share 0.05

    With --language-a and --language-b, JSONL is a corpus that `tmde train` reads:

        tmde mine de.txt en.txt -o pairs.jsonl --language-a de --language-b en --min-probability 0.9

    Embed long files first, which can be resumed, and mine their vectors as often as you like:

        tmde embed de.txt -o de.npy --resume

        tmde mine de.txt en.txt -o pairs.tsv --vectors-a de.npy --vectors-b en.npy

    A threshold from a train split, by a gold list of ids, for another split; BUCC's lines are an
    id, a tab and a text:

        tmde mine train.de train.en -o train.tsv --format tsv --gold train.gold --optimize-threshold
    """
    target = common.check_output(out, overwrite, (".tsv", ".jsonl"))
    _check_vectors_and_model(vectors_a, vectors_b, model)
    limits = (threshold, max_pairs, probabilities.get("min_probability"))
    if optimize_threshold and (gold is None or any(limit is not None for limit in limits)):
        raise OptionError(
            "--optimize-threshold needs --gold, and excludes --threshold, --max-pairs and "
            "--min-probability"
        )
    common.check_sources(a, b)
    from tmde.cli.document_sets import SidesOptions
    from tmde.cli.mine_files import MiningJob, mine_files
    from tmde.documents.pair_probabilities import ProbabilityOptions

    job = MiningJob(
        first_file=a,
        second_file=b,
        sides_options=SidesOptions(**sides),
        output=out,
        target=target,
        model=model,
        loading=loading,
        probabilities=ProbabilityOptions(**probabilities),
        first_vectors=vectors_a,
        second_vectors=vectors_b,
        precision=precision,
        truncate_dim=truncate_dim,
        scoring=scoring,
        k=k,
        retrieval=retrieval,
        threshold=threshold,
        max_pairs=max_pairs,
        drop_identical=drop_identical,
        search=search,
        gold=gold,
        optimize_threshold=optimize_threshold,
    )
    mine_files(job)


def _check_vectors_and_model(
    vectors_a: Path | None, vectors_b: Path | None, model: str | None
) -> None:
    """Raise `OptionError` if a side has neither vectors nor a model, or a model has no use."""
    given_files = [path for path in (vectors_a, vectors_b) if path is not None]
    lacks_model = len(given_files) == 1 and model is None
    needs_no_model = len(given_files) == 2 and model is not None
    if lacks_model or needs_no_model:
        raise OptionError(
            "Give both --vectors-a and --vectors-b without --model, or one of them with its --model"
        )
