"""The directions that vectors of a language share, and how many of them hide the language.

The directions (Gong et al., 2021, section 3.2) are the right singular vectors of the matrix of a
language's vectors, which is not centered. They are computed as eigenvectors of its Gram matrix
(d, d), a sum over the vectors in float64, so that the vectors need not fit into memory. Their
number is chosen by the rule of section 10.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from modeling_tmde import TmdeError

# Directions are removed until the language is told less often than this.
LANGUAGE_LIMIT = 0.55
# A choice looks at so many vectors of a language; the paper's has some 1,300.
MOST_VECTORS = 2000
# Chance moves the accuracy of 2 x 50 tested vectors by 0.05, as far as the limit is from one half.
FEWEST_VECTORS = 100


@dataclass(frozen=True)
class SplitVectors:
    """The vectors of a language: those that are learned from, and those that are tested.

    Attributes:
        learned: (n, d).
        tested: (m, d).
    """

    learned: np.ndarray
    tested: np.ndarray

    @classmethod
    def every_other(cls, vectors: np.ndarray) -> SplitVectors:
        """Learn from rows 0, 2, 4 ... of vectors (n, d), and test the rows between."""
        return cls(vectors[0::2], vectors[1::2])

    def first(self, learned_count: int, tested_count: int) -> SplitVectors:
        """Return the first vectors of both parts."""
        return SplitVectors(self.learned[:learned_count], self.tested[:tested_count])

    def without_directions(self, directions: np.ndarray) -> SplitVectors:
        """Return the vectors without directions (rank, d)."""
        return SplitVectors(
            without_directions(self.learned, directions),
            without_directions(self.tested, directions),
        )


@dataclass(frozen=True)
class DebiasedLanguages:
    """Vectors from which directions of their language were removed.

    Attributes:
        rank: The number of directions of each language; 0 if the vectors did not tell the language
            before.
        accuracy: How often a linear classifier still tells the language.
        vectors: The vectors of each language without these directions.
    """

    rank: int
    accuracy: float
    vectors: Mapping[str, SplitVectors]


def remove_language_directions(vectors: Mapping[str, SplitVectors]) -> DebiasedLanguages:
    """Remove 1, 2, 4, 8 ... directions of each language, until it can hardly be predicted.

    The first rank, 0 included, with a `language_accuracy` below `LANGUAGE_LIMIT` is taken, as in
    Gong et al. (2021), section 10.1; without one, the last that the vectors allow.

    Args:
        vectors: By language. Directions are those of the learned vectors.
    """
    directions = _directions_by_language(vectors)
    last_rank = min(map(highest_rank, directions.values()))
    debiased = DebiasedLanguages(0, language_accuracy(vectors), vectors)
    rank = 1
    while debiased.accuracy >= LANGUAGE_LIMIT and rank <= last_rank:
        remaining = _without_first(vectors, directions, rank)
        debiased = DebiasedLanguages(rank, language_accuracy(remaining), remaining)
        rank *= 2
    return debiased


def debias_by_rank(vectors: Mapping[str, SplitVectors], rank: int) -> dict[str, SplitVectors]:
    """Return vectors without the first `rank` directions of their language.

    Args:
        vectors: By language. Directions are those of the learned vectors.
        rank: The number of directions, 0 or one that `remove_language_directions` has found.
    """
    return _without_first(vectors, _directions_by_language(vectors), rank)


def _directions_by_language(vectors: Mapping[str, SplitVectors]) -> dict[str, np.ndarray]:
    """Return all directions that the learned vectors of each language span."""
    directions = {}
    for language, language_vectors in vectors.items():
        directions[language] = dominant_directions(gram(language_vectors.learned))
    return directions


def _without_first(
    vectors: Mapping[str, SplitVectors], directions: Mapping[str, np.ndarray], rank: int
) -> dict[str, SplitVectors]:
    """Return vectors without the first `rank` directions of their language."""
    remaining = {}
    for language, language_vectors in vectors.items():
        removed = directions[language][:rank]
        remaining[language] = language_vectors.without_directions(removed)
    return remaining


def language_accuracy(vectors: Mapping[str, SplitVectors]) -> float:
    """Return how often a linear classifier tells the language of a tested vector from another one.

    With two languages this is the accuracy of Gong et al. (2021), and with more its mean over all
    pairs of languages: one half is chance with any number of them. A pair has as many vectors of
    one language as of the other.

    Args:
        vectors: By language, two or more.
    """
    accuracies = []
    for first, second in itertools.combinations(vectors.values(), 2):
        learned_count = min(len(first.learned), len(second.learned))
        tested_count = min(len(first.tested), len(second.tested))
        outcomes = language_outcomes(
            first.first(learned_count, tested_count), second.first(learned_count, tested_count)
        )
        accuracies.append(outcomes.mean())
    return float(np.mean(accuracies))


def language_outcomes(first: SplitVectors, second: SplitVectors) -> np.ndarray:
    """Return whether a linear classifier tells the language of each tested vector.

    Vectors are centered and share one scale. A scale for each dimension would depend on the
    coordinates in which the vectors are given, and lift the many directions in which vectors of
    TF-IDF hardly differ.

    Args:
        first: The vectors of a language; `learned` is (n, d) and `tested` (m, d).
        second: Those of another one, in the same numbers.

    Returns:
        (2m,) floats, those of the first language before those of the second.
    """
    # Importing it takes a second.
    from sklearn.linear_model import LogisticRegression

    learned = np.vstack([first.learned, second.learned])
    tested = np.vstack([first.tested, second.tested])
    center = learned.mean(axis=0)
    learned = learned - center
    tested = tested - center
    scale = np.sqrt(np.square(learned).mean())
    if scale > 0:  # It is 0 if all vectors are equal.
        learned = learned / scale
        tested = tested / scale
    classifier = LogisticRegression(max_iter=1000)
    learned_labels = np.repeat([0, 1], [len(first.learned), len(second.learned)])
    tested_labels = np.repeat([0, 1], [len(first.tested), len(second.tested)])
    # Threads wait for each other in products as small as these.
    with threadpool_limits(1):
        classifier.fit(learned, learned_labels)
        predicted = classifier.predict(tested)
    return (predicted == tested_labels).astype(float)


def choose_rank(samples: Mapping[str, np.ndarray]) -> int:
    """Return the first rank of 0, 1, 2, 4, 8 ... that hides the language (Gong et al., 2021, 10.1).

    Every other vector is learned from, and those between are tested, as in
    `remove_language_directions`.

    Args:
        samples: By language, vectors (n, d). Of more than `MOST_VECTORS`, as many are taken, evenly
            spaced.

    Raises:
        TmdeError: There is one language only, a language has fewer than `FEWEST_VECTORS` vectors,
            or every rank leaves the language to be told.
    """
    if len(samples) < 2:
        listed = ", ".join(samples)
        raise TmdeError(
            f"rank: found 'auto' for one language ({listed}), expected vectors in at least "
            "two languages. Give a number"
        )
    vectors = {}
    for language, sample in samples.items():
        if len(sample) < FEWEST_VECTORS:
            raise TmdeError(
                f"rank: found 'auto' for {len(sample)} vectors of {language!r}, expected at "
                f"least {FEWEST_VECTORS} per language. Give a number"
            )
        vectors[language] = SplitVectors.every_other(_evenly_spaced(np.asarray(sample, np.float64)))
    debiased = remove_language_directions(vectors)
    if debiased.accuracy >= LANGUAGE_LIMIT:
        raise TmdeError(
            f"rank: found 'auto', but even with {debiased.rank} directions removed, the most "
            f"tried, a classifier predicts {debiased.accuracy:.0%} of the vectors' languages, "
            f"expected less than {LANGUAGE_LIMIT:.0%}. Give a number or more vectors"
        )
    return debiased.rank


def _evenly_spaced(vectors: np.ndarray) -> np.ndarray:
    """Return up to `MOST_VECTORS` of vectors (n, d), evenly spaced, in their order."""
    count = min(len(vectors), MOST_VECTORS)
    rows = np.linspace(0, len(vectors) - 1, count).astype(int)
    return vectors[rows]


# ---- Directions


def gram(vectors: np.ndarray) -> np.ndarray:
    """Return the Gram matrix of the dimensions, (d, d) float64: a sum over vectors (n, d).

    Raises:
        TmdeError: A number is not finite.
    """
    vectors = np.asarray(vectors, np.float64)
    if not np.isfinite(vectors).all():
        raise TmdeError("vectors: found a number that is not finite; check the model")
    return vectors.T @ vectors


def dominant_directions(gram_matrix: np.ndarray) -> np.ndarray:
    """Return all directions that vectors span, orthonormal, the dominant first.

    Args:
        gram_matrix: The Gram matrix of the vectors, (d, d).

    Returns:
        (directions, d) float64.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(gram_matrix)  # (d,) rising, (d, d)
    rounding = eigenvalues[-1] * len(eigenvalues) * np.finfo(float).eps
    is_spanned = eigenvalues > rounding
    dominant_first = eigenvectors[:, is_spanned][:, ::-1]
    return np.ascontiguousarray(dominant_first.T)


def highest_rank(directions: np.ndarray) -> int:
    """Return how many of the directions (directions, d) can be removed: one dimension must stay."""
    count, dimension = directions.shape
    return min(count, dimension - 1)


def without_directions(vectors: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return vectors (n, d) without their components in orthonormal directions (rank, d).

    Returns:
        (n, d) float64.
    """
    vectors = np.asarray(vectors, np.float64)
    return vectors - (vectors @ directions.T) @ directions
