"""`tmde mine`: two files of sentences in, their likely translations of each other out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from modeling_tmde.cli.document_sets import DocumentSet, check_languages, read_document_set
from modeling_tmde.cli.embedder_options import (
    DeviceOption,
    DtypeOption,
    MaxLengthOption,
    PoolingOption,
    RevisionOption,
    TrustRemoteCodeOption,
    open_embedder,
)
from modeling_tmde.cli.embedding_job import stderr_is_terminal, told_out_of_memory
from modeling_tmde.cli.vector_files import check_output, replacing
from modeling_tmde.data.documents import EmbedError, InputFormat

# torch, numpy and faiss are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    import numpy as np

    from modeling_tmde.documents.gold_pairs import GoldPairs
    from modeling_tmde.documents.margins import ScoredPairs
    from modeling_tmde.embedding import DocumentEmbedder

_INPUT = "Input"  # a heading of the help
COLUMNS = ("score", "id_a", "id_b", "text_a", "text_b")


class Scoring(str, Enum):
    ratio = "ratio"
    distance = "distance"
    cosine = "cosine"


class Retrieval(str, Enum):
    max = "max"
    intersection = "intersection"
    forward = "forward"
    backward = "backward"


class Search(str, Enum):
    auto = "auto"
    exact = "exact"
    ivf = "ivf"
    hnsw = "hnsw"


@dataclass(frozen=True)
class Side:
    """One of the two collections.

    kept: numbers of the rows that take part, neither empty nor repeated; occurrences: for each row the first one of
    its text; vectors: of all rows, from a file.
    """

    letter: str
    documents: DocumentSet
    language: str | None
    occurrences: np.ndarray
    kept: np.ndarray
    vectors: np.ndarray | None

    @property
    def texts(self) -> list[str]:
        """Of the rows that take part."""
        return [self.documents.texts[row] for row in self.kept.tolist()]

    def describe(self) -> str:
        texts = self.documents.texts
        empty = sum(not text.strip() for text in texts)
        repeated = len(texts) - empty - len(self.kept)
        return f"{self.documents.name}: {len(texts):,} sentences ({repeated:,} repeated, {empty:,} empty: left out)"


def mine(
    a: Annotated[str, typer.Argument(metavar="A", help="File of sentences of one language, or - for stdin.")],
    b: Annotated[str, typer.Argument(metavar="B", help="File of sentences of the other language.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="File to write: .tsv or .jsonl.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="Folder of a saved model, or a Hub id.")] = None,
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
    language_a: Annotated[
        str | None,
        typer.Option(
            help="Code of A's language, such as de: key of JSONL, told to a model that needs it.",
            rich_help_panel=_INPUT,
        ),
    ] = None,
    language_b: Annotated[str | None, typer.Option(help="Code of B's language.", rich_help_panel=_INPUT)] = None,
    vectors_a: Annotated[
        Path | None,
        typer.Option(
            help="Vectors of all rows of A, .npy of `tmde embed`: A is not embedded again.", rich_help_panel=_INPUT
        ),
    ] = None,
    vectors_b: Annotated[Path | None, typer.Option(help="Vectors of all rows of B.", rich_help_panel=_INPUT)] = None,
    scoring: Annotated[Scoring, typer.Option(help="Margin of Artetxe & Schwenk 2019, or cosine.")] = Scoring.ratio,
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbours of a margin.")] = 4,
    retrieval: Annotated[
        Retrieval,
        typer.Option(
            help="Best pair of each sentence of A (forward), of B (backward), of both (intersection), or of either, "
            "best first, each sentence once (max)."
        ),
    ] = Retrieval.max,
    threshold: Annotated[float | None, typer.Option(help="Lowest score of a pair. Default: all pairs.")] = None,
    max_pairs: Annotated[int | None, typer.Option(min=1, help="At most so many pairs, the best.")] = None,
    drop_identical: Annotated[
        bool, typer.Option("--drop-identical", help="Leave out pairs whose two texts are the same.")
    ] = False,
    search: Annotated[
        Search, typer.Option(help="auto: exact up to some 100,000 x 100,000 sentences, beyond that a faiss index.")
    ] = Search.auto,
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
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
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
    loading = {"pooling": pooling, "max_length": max_length, "dtype": dtype, "device": device}
    loading |= {"trust_remote_code": trust_remote_code, "revision": revision}
    options = {"scoring": scoring.value, "k": k, "retrieval": retrieval.value, "drop_identical": drop_identical}
    options |= {"search": search.value, "threshold": threshold, "max_pairs": max_pairs}
    try:
        target = check_output(out, overwrite, (".tsv", ".jsonl"))
        _check_options(a, b, model, (vectors_a, vectors_b), gold, optimize_threshold, threshold, max_pairs)
        check_languages(language_a, language_b)
        if (language_a is None) != (language_b is None):
            raise EmbedError("Found one of --language-a and --language-b, expected both or neither")
        sides = tuple(
            _read_side(letter, read_document_set(source, format, field, id_field), language, vectors)
            for letter, source, language, vectors in (("a", a, language_a, vectors_a), ("b", b, language_b, vectors_b))
        )
        gold_pairs = None if gold is None else _read_gold(gold, *sides)
        for side in sides:
            typer.echo(side.describe(), err=True)
        pairs = _mined(sides, model, loading, options)
        if optimize_threshold:
            pairs = _optimized(pairs, gold_pairs, gold)
        _write(target, out, pairs, sides)
    except EmbedError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    if gold_pairs is not None:
        _report_quality(pairs, gold_pairs, gold, optimize_threshold)
    lowest = f", scores {pairs.scores[-1]:.4f} to {pairs.scores[0]:.4f}" if len(pairs) else ""
    seconds = time.perf_counter() - start
    typer.echo(
        f"{len(pairs):,} pairs ({scoring.value}, {retrieval.value}{lowest}) in {seconds:.1f} s -> {out}", err=True
    )


def _check_options(
    a: str,
    b: str,
    model: str | None,
    vectors: tuple[Path | None, Path | None],
    gold: Path | None,
    optimize: bool,
    threshold: float | None,
    max_pairs: int | None,
) -> None:
    if a == b == "-":
        raise EmbedError("A and B are both -, but there is one stdin; give a file for one of them")
    if model is None and None in vectors:
        raise EmbedError("--model is missing; give it, or the vectors of both sides: --vectors-a and --vectors-b")
    if model is not None and None not in vectors:
        raise EmbedError("--model has nothing to embed with --vectors-a and --vectors-b; leave it out")
    if optimize and gold is None:
        raise EmbedError("--optimize-threshold needs the right pairs; give --gold")
    if optimize and (threshold, max_pairs) != (None, None):
        raise EmbedError("--optimize-threshold chooses the threshold; leave out --threshold and --max-pairs")
    from modeling_tmde.documents.mining import check_retrieval

    try:
        check_retrieval("max", threshold, max_pairs)
    except ValueError as error:
        raise EmbedError(f"--{error}") from None


def _read_side(letter: str, documents: DocumentSet, language: str | None, vectors: Path | None) -> Side:
    from modeling_tmde.documents.mining import first_occurrences

    occurrences, kept = first_occurrences(documents.texts)
    if not len(kept):
        raise EmbedError(f"{documents.name}: found no sentence that is not empty, expected at least one")
    found = None if vectors is None else _read_vectors(vectors, f"--vectors-{letter}", documents)
    return Side(letter, documents, language, occurrences, kept, found)


def _read_vectors(path: Path, option: str, documents: DocumentSet) -> np.ndarray:
    """(n, d), mapped and not read: a side of a million sentences may be larger than memory."""
    import numpy as np

    from modeling_tmde.documents.nearest import UnitRows

    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"not a .npy file ({error})"
        raise EmbedError(f"{option} {path}: {reason}") from None
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype.kind != "f":
        found = f"{vectors.dtype} of shape {vectors.shape}" if isinstance(vectors, np.ndarray) else "several arrays"
        raise EmbedError(f"{option} {path}: found {found}, expected floats of shape ({len(documents)}, d)")
    if len(vectors) != len(documents):
        raise EmbedError(
            f"{option} {path}: found {len(vectors):,} rows, expected {len(documents):,}, one for each sentence of "
            f"{documents.name}, in order, repeated and empty ones too"
        )
    try:
        UnitRows(f"{option} {path}", vectors)  # to name the row of the file that is not finite
    except ValueError as error:
        raise EmbedError(str(error)) from None
    return vectors


def _read_gold(path: Path, a: Side, b: Side) -> GoldPairs:
    """A pair of repeated sentences is that of their first occurrences, which alone can be mined."""
    from modeling_tmde.documents.gold_pairs import read_gold_pairs

    try:
        pairs = read_gold_pairs(path, a.documents.ids, b.documents.ids)
    except OSError as error:
        raise EmbedError(f"--gold {path}: {error.strerror}") from None
    except ValueError as error:
        hint = ""
        if "found id" in str(error) and any(side.documents.texts[side.kept[0]].count("\t") == 1 for side in (a, b)):
            hint = ". The sentences hold a tab: if these are lines of an id, a tab and the text, give --format tsv"
        raise EmbedError(f"--gold {error}{hint}") from None
    return {(int(a.occurrences[first]), int(b.occurrences[second])) for first, second in pairs}


def _mined(
    sides: tuple[Side, Side], model: str | None, loading: dict[str, Any], options: dict[str, Any]
) -> ScoredPairs:
    """All pairs, best first, by the rows of the files."""
    from modeling_tmde.documents.margins import ScoredPairs
    from modeling_tmde.documents.mining import mine_bitext

    embedder = None if model is None else open_embedder(model, **loading)
    vectors = [_vectors(side, embedder) for side in sides]
    bar = stderr_is_terminal()
    names = (sides[0].documents.name, sides[1].documents.name)
    options = options | {"say": lambda line: typer.echo(line, err=True), "show_progress_bar": bar, "names": names}
    try:
        pairs = mine_bitext(*vectors, sides[0].texts, sides[1].texts, **options)
    except (ValueError, ImportError) as error:
        raise EmbedError(str(error)) from None
    return ScoredPairs(sides[0].kept[pairs.first], sides[1].kept[pairs.second], pairs.scores)


def _vectors(side: Side, embedder: DocumentEmbedder | None) -> np.ndarray:
    """Of the sentences that take part, (n, d)."""
    if side.vectors is not None:
        return side.vectors if len(side.kept) == len(side.vectors) else side.vectors[side.kept]
    if embedder.needs_language:
        known = list(embedder.model.config.languages)
        if side.language not in known:
            raise EmbedError(
                f"--language-{side.letter}: found {side.language!r}, expected one of {', '.join(known)}: the model "
                "has an encoder for each language"
            )
    try:
        hint = "lower --max-length, or use the vectors of tmde embed --batch-tokens: --vectors-a and --vectors-b"
        with told_out_of_memory(embedder, hint):
            vectors = embedder.encode(side.texts, language=side.language)
    except ValueError as error:  # a tokenizer that is not the model's, a pooling that the model has no outputs for
        raise EmbedError(f"{side.documents.name} with model {embedder.model.name_or_path}: {error}") from None
    report = embedder.last_report
    typer.echo(
        f"{side.documents.name}: embedded {report.texts:,} sentences ({report.tokens:,} tokens, "
        f"{report.truncated:,} truncated) in {report.seconds:.1f} s",
        err=True,
    )
    return vectors


def _optimized(pairs: ScoredPairs, gold_pairs: GoldPairs, gold: Path) -> ScoredPairs:
    from modeling_tmde.documents.gold_pairs import best_threshold

    try:
        threshold, quality = best_threshold(pairs, gold_pairs)
    except ValueError as error:
        raise EmbedError(f"--gold {gold}: {error}") from None
    typer.echo(f"--threshold {threshold:.6g} has the highest F1 on {gold}: {quality.f1:.4f}", err=True)
    return pairs[: quality.found]  # best first


def _report_quality(pairs: ScoredPairs, gold_pairs: GoldPairs, gold: Path, optimized: bool) -> None:
    from modeling_tmde.documents.gold_pairs import mining_quality

    quality = mining_quality(pairs, gold_pairs)
    fitted = "; the threshold was chosen on this list: apply it to another one for a fair figure" if optimized else ""
    typer.echo(
        f"{gold}: {quality.correct:,} of {quality.gold:,} right pairs among {quality.found:,}: precision "
        f"{quality.precision:.4f}, recall {quality.recall:.4f}, F1 {quality.f1:.4f}{fitted}",
        err=True,
    )


def _write(target: Path, out: Path, pairs: ScoredPairs, sides: tuple[Side, Side]) -> None:
    lines = _jsonl(pairs, *sides) if out.suffix == ".jsonl" else _tsv(pairs, *sides)
    try:
        with replacing(target) as file:
            file.writelines(line.encode("utf-8") + b"\n" for line in lines)
    except OSError as error:
        raise EmbedError(f"--output {out}: {error.strerror or error}") from None


def _rows(pairs: ScoredPairs, a: Side, b: Side) -> Iterator[tuple[float, str, str, str, str]]:
    """Score, ids and texts."""
    for first, second, score in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.scores.tolist(), strict=True):
        ids = a.documents.ids[first], b.documents.ids[second]
        yield round(score, 6), *ids, a.documents.texts[first], b.documents.texts[second]


def _tsv(pairs: ScoredPairs, a: Side, b: Side) -> Iterator[str]:
    yield "\t".join(COLUMNS)
    for score, *strings in _rows(pairs, a, b):
        yield "\t".join([f"{score:.6f}", *(_in_a_field(string) for string in strings)])


def _in_a_field(string: str) -> str:
    """Whatever is a line end or a tab to some reader is a space."""
    return " ".join(" ".join(string.splitlines()).split("\t"))


def _jsonl(pairs: ScoredPairs, a: Side, b: Side) -> Iterable[str]:
    for row in _rows(pairs, a, b):
        score, id_a, id_b, text_a, text_b = row
        if a.language is None:
            content = dict(zip(COLUMNS, row, strict=True))
        else:
            content = {"translation": {a.language: text_a, b.language: text_b}, "score": score}
            content["ids"] = {a.language: id_a, b.language: id_b}
        yield json.dumps(content, ensure_ascii=False)
