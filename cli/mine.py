"""`tmde mine`: two files of sentences in, their likely translations of each other out."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from typer import Argument, Option

from modeling_tmde import TmdeError
from tmde.cli import document_sets
from tmde.cli.options import MODEL_OPTIONS, OverwriteOption, check_output, with_options
from tmde.documents import mining
from tmde.embedding.loading import DEFAULT_MODEL

Retrieval = Literal["max", "intersection", "forward", "backward"]
Search = Literal["auto", "exact", "hnsw"]


@with_options(**document_sets.SIDES_OPTIONS, **MODEL_OPTIONS)
def mine(
    a: Annotated[
        str, Argument(metavar="A", help="File of sentences of one language, or - for stdin.")
    ],
    b: Annotated[str, Argument(metavar="B", help="File of sentences of the other language.")],
    out: Annotated[
        Path, Option("--output", "-o", metavar="OUT", help="File to write: .tsv or .jsonl.")
    ],
    model: Annotated[
        str | None, Option("--model", "-m", help="Folder or Hub id. Default: the model of tmde.")
    ] = None,
    vectors_a: Annotated[
        Path | None, Option(help="Vectors of A by `tmde embed`, .npy: spares embedding it.")
    ] = None,
    vectors_b: Annotated[Path | None, Option(help="Vectors of B.")] = None,
    scoring: document_sets.ScoringOption = "ratio",
    k: document_sets.NeighborsOption = 4,
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
        Search, Option(help="auto: hnsw beyond some 100,000 x 100,000 sentences.")
    ] = "auto",
    gold: Annotated[
        Path | None, Option(help="The right pairs: id of A, tab, id of B. Prints the quality.")
    ] = None,
    optimize_threshold: Annotated[
        bool, Option("--optimize-threshold", help="Best F1 on --gold.")
    ] = False,
    overwrite: OverwriteOption = False,
    loading: dict[str, Any] = ...,
) -> None:
    """Mine translations: pairs of a sentence of A and one of B, best first.

    A repeated sentence takes part once, the first time it occurs. Without --threshold or --max-pairs every sentence
    that finds a partner is written, right or wrong: look at the scores, or let a gold list choose.

        tmde mine news.de.txt news.en.txt -o pairs.tsv --threshold 1.1

    With --language-a and --language-b, JSONL is a corpus that `tmde train` reads:

        tmde mine de.txt en.txt -o pairs.jsonl --language-a de --language-b en --threshold 1.1

    Embed long files first, which can be resumed, and mine their vectors as often as you like:

        tmde embed de.txt -o de.npy --resume

        tmde mine de.txt en.txt -o pairs.tsv --vectors-a de.npy --vectors-b en.npy

    A threshold from a train split, by a gold list of ids, for another split; BUCC's lines are an id, a tab and a text:

        tmde mine train.de train.en -o train.tsv --format tsv --gold train.gold --optimize-threshold
    """
    target = check_output(out, overwrite, (".tsv", ".jsonl"))
    by_vectors = sum(path is not None for path in (vectors_a, vectors_b))
    if (by_vectors == 1 and model is None) or (by_vectors == 2 and model is not None):
        raise TmdeError(
            "give --vectors-a and --vectors-b and no --model, or one of them and its --model"
        )
    if optimize_threshold and (gold is None or threshold is not None or max_pairs is not None):
        raise TmdeError(
            "--optimize-threshold needs --gold, and excludes --threshold and --max-pairs"
        )
    sides = document_sets.read_sides(a, b, loading)
    languages = [side.language for side in sides]
    if languages.count(None) == 1:
        raise TmdeError("Found one of --language-a and --language-b, expected both or neither")
    vectors = [
        vectors_a and _read_vectors(vectors_a, sides[0]),
        vectors_b and _read_vectors(vectors_b, sides[1]),
    ]
    occurrences, kept = zip(*(mining.first_occurrences(side.texts) for side in sides), strict=True)
    right = None
    if (
        gold is not None
    ):  # a pair of repeated sentences is that of their first occurrences, which alone are mined
        pairs = mining.read_gold_pairs(gold, sides[0].ids, sides[1].ids)
        right = {(int(occurrences[0][i]), int(occurrences[1][j])) for i, j in pairs}
    embedder = None
    if by_vectors < 2:
        embedder = document_sets.load_embedder_of_sides(model or DEFAULT_MODEL, sides, **loading)
    for number, (side, rows) in enumerate(zip(sides, kept, strict=True)):
        if vectors[number] is None:
            vectors[number] = side.embed(rows, embedder)
        elif len(rows) < len(side):
            vectors[number] = vectors[number][rows]
    texts = [[side.texts[row] for row in rows] for side, rows in zip(sides, kept, strict=True)]
    pairs = mining.mine_bitext(
        *vectors, *texts, scoring, k, retrieval, threshold, max_pairs, drop_identical, search
    )
    pairs = mining.ScoredPairs(kept[0][pairs.first], kept[1][pairs.second], pairs.scores)
    if optimize_threshold:
        chosen, quality = mining.best_threshold(pairs, right)
        hint = "apply it to another list for a fair figure"
        typer.echo(
            f"--threshold {chosen:.6g} has the highest F1 on {gold}: {quality.f1:.4f}; {hint}",
            err=True,
        )
        pairs = pairs[: quality.found]  # best first
    columns, rows = ["score", "id_a", "id_b", "text_a", "text_b"], []
    if corpus := target.suffix == ".jsonl" and languages[0] is not None:
        columns = ["translation", "score", "ids"]
    for (i, j), score in zip(pairs.rows(), pairs.scores.tolist(), strict=True):
        ids, texts, score = (
            (sides[0].ids[i], sides[1].ids[j]),
            (sides[0].texts[i], sides[1].texts[j]),
            round(score, 6),
        )
        by_language = [dict(zip(languages, both, strict=True)) for both in (texts, ids)]
        rows.append((by_language[0], score, by_language[1]) if corpus else (score, *ids, *texts))
    document_sets.write_rows(target, columns, rows)
    if right is not None:
        document_sets.report_quality(gold, mining.pair_quality(pairs.rows(), right))
    scores = f", scores {pairs.scores[-1]:.4f} to {pairs.scores[0]:.4f}" if len(pairs) else ""
    typer.echo(f"{len(pairs):,} pairs ({scoring}, {retrieval}{scores}) -> {out}", err=True)


def _read_vectors(path: Path, side: document_sets.DocumentSet) -> np.ndarray:
    """Vectors of all rows of a side, (n, d)."""
    try:
        vectors = np.load(
            path, mmap_mode="r", allow_pickle=False
        )  # a side may be larger than memory
    except (ValueError, EOFError) as error:
        raise TmdeError(f"{path}: not a .npy file ({error})") from None
    if vectors.ndim != 2 or len(vectors) != len(side):
        raise TmdeError(
            f"{path}: found shape {vectors.shape}, expected ({len(side)}, d), one for each row of {side.name}, in "
            "order, repeated and empty ones too"
        )
    return vectors
