"""`tmde mine`: two files of sentences in, their likely translations of each other out."""

import json
import time
from pathlib import Path
from typing import Annotated, Any, Literal

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
from modeling_tmde.cli.options import (
    MODEL_OPTIONS,
    FieldOption,
    FormatOption,
    IdFieldOption,
    OverwriteOption,
    check_output,
    load_embedder,
    with_options,
)
from modeling_tmde.data.io import replacing
from modeling_tmde.documents.mining import (
    ScoredPairs,
    best_threshold,
    first_occurrences,
    mine_bitext,
    mining_quality,
    read_gold_pairs,
)

COLUMNS = ("score", "id_a", "id_b", "text_a", "text_b")
Sides = tuple[DocumentSet, DocumentSet]


@with_options(**MODEL_OPTIONS)
def mine(
    a: Annotated[str, typer.Argument(metavar="A", help="File of sentences of one language, or - for stdin.")],
    b: Annotated[str, typer.Argument(metavar="B", help="File of sentences of the other language.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="File to write: .tsv or .jsonl.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="Folder of a saved model, or a Hub id.")] = None,
    format: FormatOption = None,
    field: FieldOption = None,
    id_field: IdFieldOption = None,
    language_a: LanguageAOption = None,
    language_b: LanguageBOption = None,
    vectors_a: Annotated[
        Path | None, typer.Option(help="Vectors of all rows of A, .npy of `tmde embed`: A is not embedded again.")
    ] = None,
    vectors_b: Annotated[Path | None, typer.Option(help="Vectors of all rows of B.")] = None,
    scoring: Annotated[Scoring, typer.Option(help="Margin of Artetxe & Schwenk 2019, or cosine.")] = "ratio",
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbors of a margin.")] = 4,
    retrieval: Annotated[
        Literal["max", "intersection", "forward", "backward"],
        typer.Option(
            help="Best pair of each sentence of A (forward), of B (backward), of both (intersection), or of either, "
            "best first, each sentence once (max)."
        ),
    ] = "max",
    threshold: Annotated[float | None, typer.Option(help="Lowest score of a pair. Default: all pairs.")] = None,
    max_pairs: Annotated[int | None, typer.Option(min=1, help="At most so many pairs, the best.")] = None,
    drop_identical: Annotated[
        bool, typer.Option("--drop-identical", help="Leave out pairs whose two texts are the same.")
    ] = False,
    search: Annotated[
        Literal["auto", "exact", "ivf", "hnsw"],
        typer.Option(help="auto: exact up to some 100,000 x 100,000 sentences, beyond that a faiss index."),
    ] = "auto",
    gold: Annotated[
        Path | None, typer.Option(help="The right pairs: id of A, tab, id of B. Prints precision, recall and F1.")
    ] = None,
    optimize_threshold: Annotated[
        bool, typer.Option("--optimize-threshold", help="Take the threshold with the highest F1 on --gold.")
    ] = False,
    overwrite: OverwriteOption = False,
    loading: dict[str, Any] = ...,
) -> None:
    """Mine translations: pairs of a sentence of A and one of B, best first.

    A repeated sentence takes part once, the first time it occurs. Without --threshold or --max-pairs every sentence
    that finds a partner is written, right or wrong: look at the scores, or let a gold list choose.

        tmde mine news.de.txt news.en.txt -o pairs.tsv -m path/to/model --threshold 1.1

    With --language-a and --language-b, JSONL is a corpus that `tmde train` reads:

        tmde mine de.txt en.txt -o pairs.jsonl -m MODEL --language-a de --language-b en --threshold 1.1

    Embed long files first, which can be resumed, and mine their vectors as often as you like:

        tmde embed de.txt -o de.npy -m MODEL --resume

        tmde mine de.txt en.txt -o pairs.tsv --vectors-a de.npy --vectors-b en.npy

    A threshold from a train split, by a gold list of ids, for another split; BUCC's lines are an id, a tab and a text:

        tmde mine train.de train.en -o train.tsv -m MODEL --format tsv --gold train.gold --optimize-threshold
    """
    start = time.perf_counter()
    target = check_output(out, overwrite, (".tsv", ".jsonl"))
    if (model is None) != (vectors_a is not None and vectors_b is not None):
        raise ValueError("give --model, or the vectors of both sides (--vectors-a and --vectors-b) and no --model")
    if optimize_threshold and (gold is None or threshold is not None or max_pairs is not None):
        raise ValueError(
            "--optimize-threshold needs --gold, and chooses the threshold: no --threshold, no --max-pairs"
        )
    if (language_a is None) != (language_b is None):
        raise ValueError("Found one of --language-a and --language-b, expected both or neither")
    languages = language_a, language_b
    check_sides(a, b, languages)
    sides = tuple(read_document_set(source, format, field, id_field) for source in (a, b))
    vectors = [_read_vectors("a", vectors_a, sides[0]), _read_vectors("b", vectors_b, sides[1])]
    occurrences, kept = zip(*(_first_occurrences(side) for side in sides), strict=True)
    right = None
    if gold is not None:  # a pair of repeated sentences is that of their first occurrences, which alone are mined
        pairs = read_gold_pairs(gold, sides[0].ids, sides[1].ids)
        right = list(dict.fromkeys((int(occurrences[0][i]), int(occurrences[1][j])) for i, j in pairs))
    texts = [[side.texts[row] for row in rows.tolist()] for side, rows in zip(sides, kept, strict=True)]
    if model is not None:
        embedder = load_embedder(model, **loading)
        check_model_language(embedder, "--language-a", language_a)
        check_model_language(embedder, "--language-b", language_b)
    for number, side in enumerate(sides):
        if vectors[number] is not None:
            if len(kept[number]) < len(side):
                vectors[number] = vectors[number][kept[number]]
            continue
        vectors[number] = embedder.encode(texts[number], language=languages[number])
        report = embedder.last_report
        typer.echo(
            f"{side.name}: embedded {report.texts:,} sentences ({report.tokens:,} tokens, {report.truncated:,} "
            f"truncated) in {report.seconds:.1f} s",
            err=True,
        )
    pairs = mine_bitext(
        *vectors, *texts, scoring, k, retrieval, threshold, max_pairs, drop_identical, search,
        say=lambda line: typer.echo(line, err=True), names=(sides[0].name, sides[1].name),
    )  # fmt: skip
    pairs = ScoredPairs(kept[0][pairs.first], kept[1][pairs.second], pairs.scores)
    if optimize_threshold:
        chosen, quality = best_threshold(pairs, right)
        typer.echo(f"--threshold {chosen:.6g} has the highest F1 on {gold}: {quality.f1:.4f}", err=True)
        pairs = pairs[: quality.found]  # best first
    _write(target, pairs, sides, languages)
    if right is not None:
        quality = mining_quality(pairs, right)
        hint = "; the threshold was chosen on this list: apply it to another one for a fair figure"
        typer.echo(
            f"{gold}: {quality.correct:,} of {quality.gold:,} right pairs among {quality.found:,}: precision "
            f"{quality.precision:.4f}, recall {quality.recall:.4f}, F1 {quality.f1:.4f}"
            f"{hint if optimize_threshold else ''}",
            err=True,
        )
    scores = f", scores {pairs.scores[-1]:.4f} to {pairs.scores[0]:.4f}" if len(pairs) else ""
    seconds = time.perf_counter() - start
    typer.echo(f"{len(pairs):,} pairs ({scoring}, {retrieval}{scores}) in {seconds:.1f} s -> {out}", err=True)


def _read_vectors(letter: str, path: Path | None, side: DocumentSet) -> np.ndarray | None:
    """Vectors of all rows of a side, (n, d)."""
    if path is None:
        return None
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)  # a side may be larger than memory
    except (ValueError, EOFError) as error:
        raise ValueError(f"--vectors-{letter} {path}: not a .npy file ({error})") from None
    if vectors.ndim != 2 or len(vectors) != len(side):
        raise ValueError(
            f"--vectors-{letter} {path}: found shape {vectors.shape}, expected ({len(side)}, d), one for each "
            f"sentence of {side.name}, in order, repeated and empty ones too"
        )
    return vectors


def _first_occurrences(side: DocumentSet) -> tuple[np.ndarray, np.ndarray]:
    """See [`~modeling_tmde.documents.mining.first_occurrences`]; prints how many sentences are left out."""
    filled = len(side.filled())
    occurrences, kept = first_occurrences(side.texts)
    repeated, empty = filled - len(kept), len(side) - filled
    typer.echo(f"{side.name}: {len(side):,} sentences ({repeated:,} repeated, {empty:,} empty: left out)", err=True)
    return occurrences, kept


def _write(target: Path, pairs: ScoredPairs, sides: Sides, languages: tuple[str | None, str | None]) -> None:
    with replacing(target) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        if target.suffix == ".tsv":
            file.write("\t".join(COLUMNS) + "\n")
        for i, j, score in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.scores.tolist(), strict=True):
            ids, texts = (sides[0].ids[i], sides[1].ids[j]), (sides[0].texts[i], sides[1].texts[j])
            if target.suffix == ".tsv":  # whatever is a line end or a tab to some reader becomes a space
                fields = [" ".join(" ".join(each.splitlines()).split("\t")) for each in (*ids, *texts)]
                file.write("\t".join([f"{score:.6f}", *fields]) + "\n")
                continue
            row = dict(zip(COLUMNS, (round(score, 6), *ids, *texts), strict=True))
            if None not in languages:
                row = {"translation": dict(zip(languages, texts, strict=True)), "score": row["score"]}
                row["ids"] = dict(zip(languages, ids, strict=True))
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
