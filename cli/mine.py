"""`tmde mine`: two files of sentences in, their likely translations of each other out."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

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
    check_model_language,
    check_sides,
    read_document_set,
)
from modeling_tmde.cli.options import (
    DeviceOption,
    DtypeOption,
    MaxLengthOption,
    PoolingOption,
    RevisionOption,
    TrustRemoteCodeOption,
    check_output,
    load_embedder,
)
from modeling_tmde.data.io import replacing
from modeling_tmde.documents.mining import (
    GoldPairs,
    ScoredPairs,
    best_threshold,
    first_occurrences,
    mine_bitext,
    mining_quality,
    read_gold_pairs,
)

COLUMNS = ("score", "id_a", "id_b", "text_a", "text_b")


@dataclass(frozen=True)
class Side:
    """One of the two collections.

    occurrences: for each row the first one of its text; kept: rows that are neither empty nor repeated; vectors: of
    all rows, from a file.
    """

    letter: str
    documents: DocumentSet
    language: str | None
    occurrences: np.ndarray
    kept: np.ndarray
    vectors: np.ndarray | None


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
    pooling: PoolingOption = None,
    max_length: MaxLengthOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    revision: RevisionOption = None,
    overwrite: OverwriteOption = False,
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
    check_sides(a, b, (language_a, language_b))
    sides = (
        _read_side("a", read_document_set(a, format, field, id_field), language_a, vectors_a),
        _read_side("b", read_document_set(b, format, field, id_field), language_b, vectors_b),
    )
    gold_pairs = None if gold is None else _read_gold(gold, *sides)
    vectors = _vectors(
        sides, model, pooling=pooling, max_length=max_length, dtype=dtype, device=device, revision=revision,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    texts = [[side.documents.texts[row] for row in side.kept.tolist()] for side in sides]
    pairs = mine_bitext(
        *vectors, *texts, scoring, k, retrieval, threshold, max_pairs, drop_identical, search,
        say=lambda line: typer.echo(line, err=True), names=(sides[0].documents.name, sides[1].documents.name),
    )  # fmt: skip
    pairs = ScoredPairs(sides[0].kept[pairs.first], sides[1].kept[pairs.second], pairs.scores)
    if optimize_threshold:
        chosen, quality = best_threshold(pairs, gold_pairs)
        typer.echo(f"--threshold {chosen:.6g} has the highest F1 on {gold}: {quality.f1:.4f}", err=True)
        pairs = pairs[: quality.found]  # best first
    _write(target, pairs, sides)
    if gold_pairs is not None:
        quality = mining_quality(pairs, gold_pairs)
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


def _read_side(letter: str, documents: DocumentSet, language: str | None, path: Path | None) -> Side:
    filled = len(documents.filled())
    occurrences, kept = first_occurrences(documents.texts)
    vectors = None
    if path is not None:
        try:
            vectors = np.load(path, mmap_mode="r", allow_pickle=False)  # a side may be larger than memory
        except (ValueError, EOFError) as error:
            raise ValueError(f"--vectors-{letter} {path}: not a .npy file ({error})") from None
        shape, count = np.shape(vectors), len(documents)
        if len(shape) != 2 or shape[0] != count or vectors.dtype.kind != "f":
            raise ValueError(
                f"--vectors-{letter} {path}: found shape {shape}, expected floats of shape ({count}, d), one for each "
                f"sentence of {documents.name}, in order, repeated and empty ones too"
            )
    typer.echo(
        f"{documents.name}: {len(documents):,} sentences ({filled - len(kept):,} repeated, "
        f"{len(documents) - filled:,} empty: left out)",
        err=True,
    )
    return Side(letter, documents, language, occurrences, kept, vectors)


def _read_gold(path: Path, a: Side, b: Side) -> GoldPairs:
    """A pair of repeated sentences is that of their first occurrences, which alone can be mined."""
    try:
        pairs = read_gold_pairs(path, a.documents.ids, b.documents.ids)
    except ValueError as error:
        hint = ""
        if "found id" in str(error) and any(side.documents.texts[side.kept[0]].count("\t") == 1 for side in (a, b)):
            hint = ". The sentences hold a tab: if these are lines of an id, a tab and the text, give --format tsv"
        raise ValueError(f"--gold {error}{hint}") from None
    firsts = ((int(a.occurrences[first]), int(b.occurrences[second])) for first, second in pairs)
    return list(dict.fromkeys(firsts))


def _vectors(sides: tuple[Side, Side], model: str | None, **loading: Any) -> list[np.ndarray]:
    """Of the sentences that take part, (n, d) and (m, d)."""
    embedder = None if model is None else load_embedder(model, **loading)
    found = []
    for side in sides:
        if side.vectors is not None:
            found.append(side.vectors if len(side.kept) == len(side.vectors) else side.vectors[side.kept])
            continue
        check_model_language(embedder, f"--language-{side.letter}", side.language)
        texts = [side.documents.texts[row] for row in side.kept.tolist()]
        found.append(embedder.encode(texts, language=side.language))
        report = embedder.last_report
        typer.echo(
            f"{side.documents.name}: embedded {report.texts:,} sentences ({report.tokens:,} tokens, "
            f"{report.truncated:,} truncated) in {report.seconds:.1f} s",
            err=True,
        )
    return found


def _write(target: Path, pairs: ScoredPairs, sides: tuple[Side, Side]) -> None:
    a, b = (side.documents for side in sides)
    language_a, language_b = (side.language for side in sides)
    with replacing(target) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        if target.suffix == ".tsv":
            file.write("\t".join(COLUMNS) + "\n")
        for first, second, score in zip(
            *map(np.ndarray.tolist, (pairs.first, pairs.second, pairs.scores)), strict=True
        ):
            row = round(score, 6), a.ids[first], b.ids[second], a.texts[first], b.texts[second]
            if target.suffix == ".tsv":  # whatever is a line end or a tab to some reader becomes a space
                fields = [" ".join(" ".join(string.splitlines()).split("\t")) for string in row[1:]]
                file.write("\t".join([f"{score:.6f}", *fields]) + "\n")
            elif language_a is None:
                file.write(json.dumps(dict(zip(COLUMNS, row, strict=True)), ensure_ascii=False) + "\n")
            else:
                content = {"translation": {language_a: row[3], language_b: row[4]}, "score": row[0]}
                content["ids"] = {language_a: row[1], language_b: row[2]}
                file.write(json.dumps(content, ensure_ascii=False) + "\n")
