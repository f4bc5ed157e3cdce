"""Vectors without the directions that all vectors of their language share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.exceptions import NotFittedError

from modeling_tmde import TmdeError


class LanguageDebiaser:
    """Removes from each vector its language component (paper 003, section 3.2 and algorithm 1).

    The component of a vector v is sum_i (v.u_i) u_i. The methods are those of a scikit-learn
    transformer, but this class is not one: a `Pipeline` would pass class labels as languages.

    The u_i are the first right singular vectors of the matrix of a language's sentence vectors. The
    matrix is not centered, so the first of closely packed vectors is nearly their mean. The u_i are
    computed as eigenvectors of the Gram matrix (d, d), a sum over the vectors in float64. So the
    vectors need not fit into memory.

    Args:
        rank: m, the number of directions to remove, of every language or by language
            (`{"de": 2, "en": 4}`). The paper removes 32 to 256.

    Attributes:
        languages_: The codes, sorted.
        components_: By language (rank, d) float64, orthonormal, the dominant first.
    """

    def __init__(self, rank: int | Mapping[str, int] = 1) -> None:
        self.rank = rank

    @classmethod
    def from_components(
        cls, rank: int | Mapping[str, int], components: dict[str, np.ndarray]
    ) -> LanguageDebiaser:
        """Return a debiaser that was fitted before, of its directions by language."""
        debiaser = cls(rank)
        debiaser.components_ = components
        debiaser.languages_ = list(components)
        return debiaser

    def fit(self, vectors: np.ndarray, languages: str | Sequence[str]) -> LanguageDebiaser:
        """Forget what was fitted before, and learn each language's directions.

        Args:
            vectors: (n, d).
            languages: One code for all vectors, or one for each.

        Raises:
            TmdeError: A language whose vectors span fewer directions than its rank, a rank that is
                missing or not below d, not as many codes as vectors, numbers that are not finite.
        """
        vectors = np.asarray(vectors)
        grams = {}
        for language, rows in rows_by_language(languages, len(vectors)).items():
            grams[language] = gram(vectors[rows])
        return self.fit_grams(grams)

    def fit_transform(self, vectors: np.ndarray, languages: str | Sequence[str]) -> np.ndarray:
        """Fit and transform the same vectors."""
        return self.fit(vectors, languages).transform(vectors, languages)

    def fit_grams(self, grams: Mapping[str, np.ndarray]) -> LanguageDebiaser:
        """Fit the sums of each language's [`gram`] matrices, in which vectors may come in parts.

        Args:
            grams: By language, (d, d) float64.

        Raises:
            TmdeError: As `fit`.
        """
        components = {}
        for language, gram_matrix in sorted(grams.items()):
            components[language] = _directions(gram_matrix, self._rank_of(language), language)
        self.components_ = components
        self.languages_ = list(components)
        return self

    def _rank_of(self, language: str) -> int | None:
        """Return the number of directions to remove of a language; None if it is not given."""
        if isinstance(self.rank, Mapping):
            return self.rank.get(language)
        return self.rank

    def transform(self, vectors: np.ndarray, languages: str | Sequence[str]) -> np.ndarray:
        """Return the semantic component of each vector.

        Args:
            vectors: (n, d).
            languages: One code for all vectors, or one for each.

        Returns:
            (n, d), float32 unless the vectors are float64.

        Raises:
            TmdeError: An unknown language, not as many codes as vectors.
            NotFittedError: Nothing was fitted.
        """
        if not hasattr(self, "languages_"):
            raise NotFittedError("LanguageDebiaser is not fitted: call `fit` first")
        vectors = np.asarray(vectors)
        dtype = np.float64 if vectors.dtype == np.float64 else np.float32
        result = np.empty(vectors.shape, dtype)
        for language, rows in rows_by_language(languages, len(vectors)).items():
            if language not in self.components_:
                raise TmdeError(
                    f"languages: found {language!r}, "
                    f"expected one of those fitted: {self.languages_}"
                )
            directions = self.components_[language]  # (rank, d)
            block = vectors[rows].astype(np.float64)
            result[rows] = block - (block @ directions.T) @ directions
        return result


def _directions(gram_matrix: np.ndarray, rank: int | None, language: str) -> np.ndarray:
    """Return the dominant directions of a language, (rank, d), of its Gram matrix.

    Raises:
        TmdeError: The rank is no integer, or the language has not that many directions.
    """
    dimension = len(gram_matrix)
    values, vectors = np.linalg.eigh(gram_matrix)  # (d,) rising, (d, d)
    spanned = _count_spanned(values)
    highest_rank = min(spanned, dimension - 1)
    if not isinstance(rank, int | np.integer) or not 1 <= rank <= highest_rank:
        raise TmdeError(
            f"rank: found {rank!r} for {language!r}, expected an integer from 1 to "
            f"{highest_rank}: its sentences span {spanned} of the {dimension} dimensions"
        )
    dominant_first = vectors[:, ::-1]
    return np.ascontiguousarray(dominant_first[:, :rank].T)


def _count_spanned(eigenvalues: np.ndarray) -> int:
    """Return the number of directions that vectors span, of the eigenvalues (d,) of their Gram."""
    rounding = eigenvalues[-1] * len(eigenvalues) * np.finfo(float).eps
    return int(np.count_nonzero(eigenvalues > rounding))


def highest_debiased_rank(gram_matrix: np.ndarray) -> int:
    """Return the most directions that can be removed from vectors with this Gram matrix (d, d)."""
    spanned = _count_spanned(np.linalg.eigvalsh(gram_matrix))
    return min(spanned, len(gram_matrix) - 1)


def gram(vectors: np.ndarray) -> np.ndarray:
    """Return the Gram matrix of the dimensions, (d, d) float64: a sum over vectors (n, d).

    Raises:
        TmdeError: A number is not finite.
    """
    vectors = np.asarray(vectors, np.float64)
    if not np.isfinite(vectors).all():
        raise TmdeError("vectors: found a number that is not finite; look at the model")
    return vectors.T @ vectors


def rows_by_language(languages: str | Sequence[str], count: int) -> dict[str, np.ndarray]:
    """Return the row numbers of each language, in order.

    Args:
        languages: One code for all rows, or one for each.
        count: The number of rows.

    Raises:
        TmdeError: There is not one code for each row.
    """
    if isinstance(languages, str):
        languages = [languages] * count
    codes = np.array(languages, object)
    if len(codes) != count:
        raise TmdeError(
            f"languages: found {len(codes)}, "
            f"expected one for each of {count} vectors, or one in all"
        )
    return {language: np.flatnonzero(codes == language) for language in dict.fromkeys(codes)}
