"""The work of `tmde mine`: sentences of two files are paired by their vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import typer

from modeling_tmde import TmdeError
from tmde.cli import document_sets
from tmde.cli.document_sets import DocumentSet, Sides, SidesOptions
from tmde.cli.mined_vectors import MinedVectors
from tmde.documents import mining
from tmde.documents.calibration import Calibration, mined_pair_evidence
from tmde.documents.mining import ChosenTexts, ScoredPairs
from tmde.documents.pair_probabilities import ProbabilityOptions, find_calibration, warn_of_few
from tmde.documents.quality import pair_quality
from tmde.embedding import DocumentEmbedder
from tmde.embedding.packaged_models import DEFAULT_MODEL

RowPairs = set[tuple[int, int]]

_DECIMALS = 6


@dataclass(frozen=True)
class MiningJob:
    """What `tmde mine` was asked for; the fields are its arguments and options.

    Attributes:
        output: The file to write as the user named it.
        target: The same file with symlinks resolved.
        model: The model; None if the user named none.
        loading: The arguments of `DocumentEmbedder.from_pretrained`.
        first_vectors: A file of vectors of the first side, which is not embedded then.
        second_vectors: The same of the second side.
        precision: How the numbers of vectors are stored.
        truncate_dim: How many numbers of an embedded vector are kept; None for all.
    """

    first_file: str
    second_file: str
    sides_options: SidesOptions
    output: Path
    target: Path
    model: str | None
    loading: dict[str, Any]
    probabilities: ProbabilityOptions
    first_vectors: Path | None
    second_vectors: Path | None
    precision: str
    truncate_dim: int | None
    scoring: str
    k: int
    retrieval: str
    threshold: float | None
    max_pairs: int | None
    drop_identical: bool
    search: str
    gold: Path | None
    optimize_threshold: bool


@dataclass(frozen=True)
class Candidates:
    """The sentences of one side that take part: neither empty nor repeated.

    Attributes:
        side: All sentences.
        occurrences: For each row of the side, the first row with the same sentence, (n,) int64.
        rows: The rows that take part, (candidates,) int64.
    """

    side: DocumentSet
    occurrences: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, side: DocumentSet) -> "Candidates":
        """Find the sentences of a side that take part."""
        occurrences, rows = mining.first_occurrences(side.texts)
        return cls(side, occurrences, rows)

    @property
    def texts(self) -> Sequence[str]:
        """The sentences that take part."""
        return ChosenTexts(self.side.texts, self.rows)


def mine_files(job: MiningJob) -> None:
    """Mine pairs of two files, write them, and print how many there are.

    Raises:
        TmdeError: A file, the model or an option cannot be used.
    """
    sides = document_sets.read_sides(job.first_file, job.second_file, job.sides_options)
    _check_languages(sides)
    # Vectors may need much space, so they go where the output has to find space, too.
    with TemporaryDirectory(dir=job.target.parent, prefix=f".{job.target.name}.") as folder:
        vectors = MinedVectors(Path(folder), job.precision, job.truncate_dim)
        _mine_sides(job, sides, vectors)


def _mine_sides(job: MiningJob, sides: Sides, mined_vectors: MinedVectors) -> None:
    """Mine pairs of two sides, write them, and print how many there are."""
    given_vectors: list[np.ndarray | None] = []
    for path, side in zip((job.first_vectors, job.second_vectors), sides, strict=True):
        given_vectors.append(None if path is None else mined_vectors.open(path, side))
    candidates = [Candidates.of(side) for side in sides]
    right_pairs = _read_right_pairs(job, candidates)
    embedder = None
    if any(vectors is None for vectors in given_vectors):
        model = job.model or DEFAULT_MODEL
        embedder = document_sets.load_embedder_of_sides(model, sides, **job.loading)
    calibration = _find_calibration(job, embedder, mined_vectors)
    vectors = _vectors_of(candidates, given_vectors, embedder, mined_vectors)
    pairs = _mine(job, candidates, vectors)
    probabilities = None
    if calibration is not None:
        fewest = min(len(candidate.rows) for candidate in candidates)
        warn_of_few(fewest, "sentences of a side")
        pairs, probabilities = _with_probabilities(job, sides, pairs, calibration)
    if job.optimize_threshold and right_pairs is not None:
        threshold, quality = mining.best_threshold(pairs, right_pairs)
        typer.echo(
            f"--threshold {threshold:.6g} has the highest F1 on {job.gold}: {quality.f1:.4f}; "
            "apply it to another list for a fair figure",
            err=True,
        )
        pairs = pairs[: quality.found]  # The best pairs come first.
        if probabilities is not None:
            probabilities = probabilities[: quality.found]
    _write_pairs(job, sides, pairs, probabilities)
    if job.gold is not None and right_pairs is not None:
        document_sets.report_quality(job.gold, pair_quality(pairs.rows(), right_pairs))
    scores = ""
    if len(pairs):
        scores = f", scores {pairs.scores[-1]:.4f} to {pairs.scores[0]:.4f}"
    typer.echo(
        f"{len(pairs):,} pairs ({job.scoring}, {job.retrieval}{scores}) -> {job.output}", err=True
    )


def _find_calibration(
    job: MiningJob, embedder: DocumentEmbedder | None, mined_vectors: MinedVectors
) -> Calibration | None:
    """Return the calibration of the model of the vectors; None without one.

    Raises:
        TmdeError: Probabilities are asked for, and there is none, or one for another `-k`, or the
            vectors are not those of the calibration.
    """
    if not mined_vectors.keeps_cosines:
        reason = (
            "they need whole vectors: no --truncate-dim, and --precision float32, int8 or uint8"
        )
        if job.probabilities.are_asked_for:
            raise TmdeError(f"--min-probability, --share, --calibration: {reason}")
        typer.echo(f"No probabilities: {reason}", err=True)
        return None
    model = job.model
    if embedder is not None:
        model = model or DEFAULT_MODEL
    revision = job.loading.get("revision")
    calibration = find_calibration(job.probabilities, model, revision, embedder)
    if calibration is None or job.k == calibration.neighbors:
        return calibration
    if job.probabilities.are_asked_for:
        raise TmdeError(
            f"-k: found {job.k}, expected {calibration.neighbors}, the neighbors of the calibration"
        )
    typer.echo(f"No probabilities: they need -k {calibration.neighbors}", err=True)
    return None


def _with_probabilities(
    job: MiningJob, sides: Sides, pairs: ScoredPairs, calibration: Calibration
) -> tuple[ScoredPairs, np.ndarray]:
    """Return the pairs that are probable enough, and their probabilities, (p,)."""
    first, second = sides
    evidence = mined_pair_evidence(pairs, first.texts, second.texts)
    probabilities = calibration.probabilities(evidence, job.probabilities.share_or())
    min_probability = job.probabilities.min_probability
    if min_probability is None:
        return pairs, probabilities
    is_probable = probabilities >= min_probability
    if len(pairs) and not is_probable.any():
        typer.echo(
            f"No pair reaches --min-probability {min_probability:g}; the best has "
            f"{probabilities.max():.3f}",
            err=True,
        )
    return pairs[is_probable], probabilities[is_probable]


def _check_languages(sides: Sides) -> None:
    languages = [side.language for side in sides]
    if languages.count(None) == 1:
        raise TmdeError("Found one of --language-a and --language-b, expected both or neither")


def _read_right_pairs(job: MiningJob, candidates: list[Candidates]) -> RowPairs | None:
    """Read the gold list as pairs of rows.

    A pair of repeated sentences is that of their first occurrences, because these alone are mined.
    """
    if job.gold is None:
        return None
    first, second = candidates
    gold_pairs = mining.read_gold_pairs(job.gold, first.side.ids, second.side.ids)
    right_pairs = set()
    for first_row, second_row in gold_pairs:
        pair = int(first.occurrences[first_row]), int(second.occurrences[second_row])
        right_pairs.add(pair)
    return right_pairs


def _vectors_of(
    candidates: list[Candidates],
    given_vectors: list[np.ndarray | None],
    embedder: DocumentEmbedder | None,
    mined_vectors: MinedVectors,
) -> list[np.ndarray]:
    """Return the vectors of the candidates of each side, (candidates, d), embedded if not given."""
    vectors_of_sides = []
    for candidate, vectors in zip(candidates, given_vectors, strict=True):
        if vectors is not None:
            vectors_of_sides.append(mined_vectors.choose(vectors, candidate.rows))
        else:
            assert embedder is not None  # It was loaded because a side has no vectors.
            vectors = mined_vectors.embed(candidate.side, candidate.rows, embedder)
            vectors_of_sides.append(vectors)
    return vectors_of_sides


def _mine(job: MiningJob, candidates: list[Candidates], vectors: list[np.ndarray]) -> ScoredPairs:
    """Mine the candidates; return pairs of rows of the files, best first."""
    first, second = candidates
    # No candidate is empty or repeated, so texts are needed to compare both of a pair alone.
    pairs = mining.mine_bitext(
        vectors[0],
        vectors[1],
        first.texts if job.drop_identical else None,
        second.texts if job.drop_identical else None,
        job.scoring,
        job.k,
        job.retrieval,
        job.threshold,
        job.max_pairs,
        job.drop_identical,
        job.search,
    )
    if not len(pairs.scores) and job.threshold is not None:
        document_sets.report_no_pair(job.threshold)
    return pairs.renumbered(first.rows, second.rows)


def _write_pairs(
    job: MiningJob, sides: Sides, pairs: ScoredPairs, probabilities: np.ndarray | None
) -> None:
    """Write pairs as TSV or JSONL; JSONL of known languages is a parallel corpus."""
    first, second = sides
    is_corpus = job.target.suffix == ".jsonl" and first.language is not None
    scores = {"score": _rounded(pairs.scores)}
    if probabilities is not None:
        scores["probability"] = _rounded(probabilities)
    columns = [*scores, "id_a", "id_b", "text_a", "text_b"]
    if is_corpus:
        columns = ["translation", *scores, "ids"]
    rows = _rows(sides, pairs, list(scores.values()), is_corpus)
    document_sets.write_rows(job.target, columns, rows)


def _rows(
    sides: Sides, pairs: ScoredPairs, scores: list[list[float]], is_corpus: bool
) -> Iterator[tuple[Any, ...]]:
    """Yield the row of each pair as it is written.

    Args:
        sides: Both sides.
        pairs: The pairs.
        scores: The columns of scores.
        is_corpus: Whether the rows are those of a parallel corpus.
    """
    first, second = sides
    for position in range(len(pairs)):
        first_row = pairs.first[position]
        second_row = pairs.second[position]
        values = [column[position] for column in scores]
        first_id = first.ids[first_row]
        first_text = first.texts[first_row]
        second_id = second.ids[second_row]
        second_text = second.texts[second_row]
        if is_corpus:
            translation = {first.language: first_text, second.language: second_text}
            ids = {first.language: first_id, second.language: second_id}
            yield translation, *values, ids
        else:
            yield *values, first_id, second_id, first_text, second_text


def _rounded(numbers: np.ndarray) -> list[float]:
    """Return numbers as they are written."""
    return [round(number, _DECIMALS) for number in numbers.tolist()]
