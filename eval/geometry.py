"""How the vectors of parallel texts lie: spectrum, distances, and what tells their language."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import scipy.sparse
from threadpoolctl import threadpool_limits

from tmde.documents.debiased_rank import (
    SplitVectors,
    debias_by_rank,
    language_accuracy,
    language_outcomes,
    remove_language_directions,
)
from tmde.documents.unit_rows import TIE
from tmde.eval.results import Cell
from tmde.eval.retrieval import precision_at_1, unrepeated_rows, vectors_of_rows
from tmde.eval.systems import System
from tmde.eval.tasks import GeometryData, TaskError

FEWEST_ROWS = 20  # Fewer rows span so few directions that the spectrum says nothing.
VARIANCE_SHARE = 0.9


def evaluate_geometry(
    data: GeometryData, system: System, progress: Callable[[str], None] | None = None
) -> list[Cell]:
    """Measure how the vectors of each pair of languages lie.

    The rows of a pair are those that have both languages and repeat no text of either. Every other
    row is learned from, and the rows between are tested:

    - `value` is the accuracy on both languages of a linear classifier of the language: 0.5 where
      vectors do not tell it. The vectors are centered and share one scale.
    - `debiased_rank` is the first number of directions among 0, 1, 2, 4 ... without which the
      accuracy is below 55% (Gong et al., 2021, section 10.1). It is chosen among the rows that are
      learned from: a classifier learns from half of them and is tested on the others. If no rank
      suffices, it is the highest that was tried. `language_accuracy_debiased` is the accuracy on
      the tested rows after that, of a classifier that is trained again.
    - `precision_at_1_cosine` and `precision_at_1_euclidean` are the means of both directions of
      search; equal distances count as misses. `precision_at_1_debiased` is by cosine after
      `debiased_rank` directions are removed.
    - `components_90` is the number of principal components that hold 90% of the variance of the
      vectors of both languages, in all rows.

    Args:
        data: Aligned texts.
        system: What represents texts; it may be fitted on both sides of a pair.
        progress: Called with a line before each pair.

    Returns:
        One cell a pair of languages, in one order. `outcomes` say of each tested text whether the
        classifier was right.

    Raises:
        TaskError: No pair has `FEWEST_ROWS` rows.
        TmdeError: A vector is not finite.
    """
    cells = []
    for source, target in itertools.combinations(data.languages, 2):
        rows = _rows_of_pair(data, source, target)
        if len(rows) < FEWEST_ROWS:
            continue
        if progress is not None:
            progress(f"{source} and {target}: {len(rows)} rows")
        source_vectors, target_vectors = _vectors_of_pair(data, system, source, target, rows)
        tested_ids = [data.ids[row] for row in rows[1::2]]
        # Threads wait for each other in products as small as these.
        with threadpool_limits(1):
            cells.append(_cell(source, target, source_vectors, target_vectors, tested_ids))
    if not cells:
        raise TaskError(
            f"Found no pair of languages with {FEWEST_ROWS} rows in common among "
            f"{', '.join(data.languages) or '(none)'}, expected at least one"
        )
    return cells


def raw_and_debiased(
    data: GeometryData, system: System, source: str, target: str, rank: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the tested vectors of a pair of languages as they are, and debiased.

    Args:
        data: The texts that `evaluate_geometry` measured.
        system: The system that it measured.
        source: The first language of a cell.
        target: Its second language.
        rank: Its `debiased_rank`.

    Returns:
        Vectors (n, d) of both languages, and the same without the directions of their language.
    """
    rows = _rows_of_pair(data, source, target)
    sources, targets = _vectors_of_pair(data, system, source, target, rows)
    vectors = {source: SplitVectors.every_other(sources), target: SplitVectors.every_other(targets)}
    with threadpool_limits(1):
        debiased = debias_by_rank(vectors, rank)
    raw_vectors = [vectors[source].tested, vectors[target].tested]
    debiased_vectors = [debiased[source].tested, debiased[target].tested]
    return raw_vectors, debiased_vectors


def _rows_of_pair(data: GeometryData, source: str, target: str) -> list[int]:
    """Return the rows that have both languages and repeat no text of either."""
    return unrepeated_rows(data.texts[source], data.texts[target])[: data.max_rows]


def _vectors_of_pair(
    data: GeometryData, system: System, source: str, target: str, rows: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return dense vectors (n, d) of both languages."""
    pool_texts = []
    for language in (source, target):
        for row in rows:
            pool_texts.append(str(data.texts[language][row]))
    sources = vectors_of_rows(system, data.texts[source], pool_texts, source, rows)
    targets = vectors_of_rows(system, data.texts[target], pool_texts, target, rows)
    if scipy.sparse.issparse(sources):
        both = _coordinates(scipy.sparse.vstack([sources, targets]))
    else:
        both = np.vstack([sources, targets]).astype(np.float64)
    return both[: len(rows)], both[len(rows) :]


def _coordinates(vectors: scipy.sparse.csr_matrix) -> np.ndarray:
    """Return sparse vectors in coordinates of the space that they span, (n, at most n).

    All products of two vectors stay, and with them everything that is measured here.
    """
    products = vectors.dot(vectors.T).toarray()  # (n, n)
    values, directions = np.linalg.eigh(products)
    is_spanned = values > values[-1] * len(values) * np.finfo(float).eps
    return directions[:, is_spanned] * np.sqrt(values[is_spanned])


def _cell(
    source: str,
    target: str,
    sources: np.ndarray,
    targets: np.ndarray,
    tested_ids: Sequence[str],
) -> Cell:
    """Return the measures of one pair of languages."""
    vectors = {source: SplitVectors.every_other(sources), target: SplitVectors.every_other(targets)}
    outcomes = language_outcomes(vectors[source], vectors[target])
    rank = _chosen_rank(vectors)
    debiased = debias_by_rank(vectors, rank)
    tested_sources = vectors[source].tested
    tested_targets = vectors[target].tested
    return Cell(
        source=source,
        target=target,
        metric="language_accuracy",
        value=float(outcomes.mean()),
        ids=[*tested_ids, *tested_ids],
        outcomes=outcomes,
        chance=0.5,
        extra={
            "language_accuracy_debiased": language_accuracy(debiased),
            "debiased_rank": rank,
            "precision_at_1_cosine": precision_at_1(tested_sources, tested_targets),
            "precision_at_1_euclidean": euclidean_precision_at_1(tested_sources, tested_targets),
            "precision_at_1_debiased": precision_at_1(
                debiased[source].tested, debiased[target].tested
            ),
            "components_90": principal_components(np.vstack([sources, targets])),
            "size": len(outcomes),
        },
    )


def _chosen_rank(vectors: Mapping[str, SplitVectors]) -> int:
    """Return the number of directions to remove, by the vectors that are learned from alone."""
    halves = {}
    for language, language_vectors in vectors.items():
        halves[language] = SplitVectors.every_other(language_vectors.learned)
    return remove_language_directions(halves).rank


# ---- The spectrum, and Euclidean distances


def principal_components(vectors: np.ndarray, share: float = VARIANCE_SHARE) -> int:
    """Return how many principal components hold a share of the variance.

    Args:
        vectors: (n, d).
        share: The share, between 0 and 1.

    Returns:
        At least 1; 0 if all vectors are equal.
    """
    centered = vectors - vectors.mean(axis=0)
    variances = np.linalg.svd(centered, compute_uv=False) ** 2  # falling
    total = variances.sum()
    if total == 0:
        return 0
    # Rounding may leave a sum a little below a share that it reaches.
    is_below = np.cumsum(variances) / total < share - 1e-12
    return int(np.count_nonzero(is_below)) + 1


def euclidean_precision_at_1(sources: np.ndarray, targets: np.ndarray) -> float:
    """Return how often the translation is nearest by Euclidean distance.

    A translation that ties with t other candidates counts 1 / (t + 1), as in `precision_at_1`.

    Args:
        sources: (n, d).
        targets: (n, d), their translations at equal rows.

    Returns:
        The mean of both search directions, between 0 and 1.
    """
    source_squares = (sources**2).sum(axis=1)
    target_squares = (targets**2).sum(axis=1)
    squared = source_squares[:, None] + target_squares - 2 * sources @ targets.T  # (n, n)
    own = np.diag(squared).copy()
    np.fill_diagonal(squared, np.inf)
    tolerance = TIE * (source_squares + target_squares)  # that of cosines, on vectors of any length
    precisions = []
    for axis in (1, 0):
        is_nearer = squared < np.expand_dims(own - tolerance, axis)
        is_tied = squared <= np.expand_dims(own + tolerance, axis)
        hits = ~is_nearer.any(axis=axis)
        precisions.append(hits / (1 + is_tied.sum(axis=axis)))
    return float(np.mean(precisions))
