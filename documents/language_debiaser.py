"""Vectors without the directions that all vectors of their language share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from sklearn.exceptions import NotFittedError

from modeling_tmde import TmdeError
from tmde.documents.debiased_rank import (
    choose_rank,
    dominant_directions,
    gram,
    highest_rank,
    without_directions,
)

AUTO: Literal["auto"] = "auto"
Rank = int | Literal["auto"] | Mapping[str, int]


class LanguageDebiaser:
    """Removes from each vector its language component (Gong et al., 2021, algorithm 1).

    The component of a vector v is sum_i (v.u_i) u_i. The methods are those of a scikit-learn
    transformer, but this class is not one: a `Pipeline` would pass class labels as languages.

    The u_i are the first right singular vectors of the matrix of a language's sentence vectors. The
    matrix is not centered, so the first of closely packed vectors is nearly their mean.

    Args:
        rank: m, the number of directions to remove, of every language or by language
            (`{"de": 2, "en": 4}`). 0 removes none. `"auto"` takes the smallest of 0, 1, 2, 4, 8 ...
            with which a linear classifier tells the language of fewer than 55% of held-out vectors
            (section 10.1; see `choose_rank`). The texts of all languages should be about the same
            things, or their topics tell the language. The paper finds 32 to 256.

    Attributes:
        languages_: The codes, sorted.
        components_: By language (rank, d) float64, orthonormal, the dominant first.
        rank_: The rank that was used: `rank`, or the number that `"auto"` found.
    """

    def __init__(self, rank: Rank = 1) -> None:
        self.rank = rank

    @classmethod
    def from_components(cls, rank: Rank, components: dict[str, np.ndarray]) -> LanguageDebiaser:
        """Return a debiaser that was fitted before, of its directions by language."""
        debiaser = cls(rank)
        debiaser.components_ = components
        debiaser.languages_ = list(components)
        if rank == AUTO:
            # It is the same number for each language.
            debiaser.rank_ = len(components[debiaser.languages_[0]])
        else:
            debiaser.rank_ = rank
        return debiaser

    def fit(self, vectors: np.ndarray, languages: str | Sequence[str]) -> LanguageDebiaser:
        """Forget what was fitted before, and learn each language's directions.

        Args:
            vectors: (n, d).
            languages: One code for all vectors, or one for each.

        Raises:
            TmdeError: A language whose vectors span fewer directions than its rank, a rank that is
                missing or not below d, not as many codes as vectors, numbers that are not finite.
                With the rank `"auto"`: one language, fewer than 100 vectors of a language, or
                no rank hides the languages.
        """
        vectors = np.asarray(vectors)
        grams = {}
        samples = {}
        for language, rows in rows_by_language(languages, len(vectors)).items():
            grams[language] = gram(vectors[rows])
            samples[language] = vectors[rows]
        return self.fit_grams(grams, samples)

    def fit_transform(self, vectors: np.ndarray, languages: str | Sequence[str]) -> np.ndarray:
        """Fit and transform the same vectors."""
        return self.fit(vectors, languages).transform(vectors, languages)

    def fit_grams(
        self, grams: Mapping[str, np.ndarray], samples: Mapping[str, np.ndarray] | None = None
    ) -> LanguageDebiaser:
        """Fit the sums of each language's `gram` matrices, in which vectors may come in parts.

        Args:
            grams: By language, (d, d) float64.
            samples: By language, some of the vectors, (n, d), by which the rank `"auto"` is chosen.

        Raises:
            TmdeError: As `fit`; or the rank is `"auto"`, and there are no samples.
        """
        rank = self.rank
        if rank == AUTO:
            if samples is None:
                raise TmdeError("rank: found 'auto' without samples of vectors; pass samples")
            rank = choose_rank(samples)
        components = {}
        for language, gram_matrix in sorted(grams.items()):
            components[language] = _directions(gram_matrix, _rank_of(rank, language), language)
        self.components_ = components
        self.languages_ = list(components)
        self.rank_ = rank
        return self

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
                    f"languages: found {language!r}, expected one of the fitted languages: "
                    f"{self.languages_}"
                )
            directions = self.components_[language]  # (rank, d)
            result[rows] = without_directions(vectors[rows], directions)
        return result


def _rank_of(rank: object, language: str) -> object:
    """Return the number of directions to remove of a language; None if it is not given."""
    if isinstance(rank, Mapping):
        return rank.get(language)
    return rank


def _directions(gram_matrix: np.ndarray, rank: object, language: str) -> np.ndarray:
    """Return the dominant directions of a language, (rank, d), of its Gram matrix.

    Raises:
        TmdeError: The rank is no integer, or the language has not that many directions.
    """
    directions = dominant_directions(gram_matrix)
    last_rank = highest_rank(directions)
    if not isinstance(rank, int | np.integer) or not 0 <= rank <= last_rank:
        spanned, dimension = directions.shape
        raise TmdeError(
            f"rank: found {rank!r} for {language!r}, expected 'auto', or an integer from 0 to "
            f"{last_rank}, because its sentences span {spanned} of the {dimension} dimensions"
        )
    return directions[:rank]


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
            f"languages: found {len(codes)}, expected one for all or one for each of {count} "
            "vectors"
        )
    return {language: np.flatnonzero(codes == language) for language in dict.fromkeys(codes)}
