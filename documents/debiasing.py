"""Sentence vectors without their language: each language's dominant directions, removed (paper 003, LAWDR, section 3).

from modeling_tmde.documents.debiasing import LanguageDebiaser

debiaser = LanguageDebiaser(rank=4).fit(vectors, languages)  # (n, d) and n codes
semantic = debiaser.transform(vectors, languages)  # (n, d)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

_ROWS = 16384  # vectors in float64 at once


class LanguageDebiaser(TransformerMixin, BaseEstimator):
    """Removes from each vector v its language component, sum_i (v.u_i) u_i (paper 003, section 3.2 and algorithm 1).

    The u_i are the first right singular vectors of the matrix of a language's sentence vectors. This is not centred,
    so that with closely packed vectors the first is nearly their mean. Fitting is out of core and exact: what
    `partial_fit` adds up is each language's Gram matrix (d, d) in float64, whose eigenvectors are the right singular
    vectors of all vectors at once. It takes 8 d^2 bytes a language, 8 MiB at d = 1024.

    Args:
        rank: m, directions to remove, of every language or by language (`{"de": 2, "en": 4}`). The paper removes 32
            to 256; `smallest_rank` chooses as it does.

    Attributes:
        languages_: Codes, sorted. components_: By language (rank, d) float64, orthonormal, the dominant first.
        counts_: By language, how many vectors were fitted.
    """

    def __init__(self, rank: int | Mapping[str, int] = 1) -> None:
        self.rank = rank

    def fit(self, vectors: np.ndarray, languages: str | Sequence[str]) -> LanguageDebiaser:
        """Forgets what was fitted before, and learns each language's directions.

        Args:
            vectors: (n, d); a memory-mapped array is read in blocks.
            languages: One code for all vectors, or one for each.

        Returns:
            Itself.

        Raises:
            ValueError: A language with fewer vectors than its rank, or whose vectors span fewer directions, a rank
                that is not below d or is missing for a language, not as many codes as vectors, numbers that are not
                finite (language and row are named).
        """
        self.reset()
        for language, rows in rows_by_language(languages, len(vectors)).items():
            self._add(vectors, language, rows)
        return self.finish()

    def partial_fit(self, vectors: np.ndarray, language: str) -> LanguageDebiaser:
        """Adds vectors (n, d) of one language to those it has seen; `components_` are there after `finish`.

        Raises:
            ValueError: Other dimensions than before, numbers that are not finite.
        """
        if not hasattr(self, "_grams"):
            self.reset()
        self._add(vectors, language, np.arange(len(vectors)))
        return self

    def reset(self) -> None:
        """Forgets all vectors."""
        self._grams: dict[str, np.ndarray] = {}
        self.counts_: dict[str, int] = {}

    def finish(self) -> LanguageDebiaser:
        """Computes `components_` of the vectors that `partial_fit` has seen; more may follow, and another `finish`.

        Raises:
            ValueError: As `fit`.
        """
        if not getattr(self, "_grams", None):
            raise ValueError("vectors: found none, expected some of each language")
        components = {}
        for language in sorted(self._grams):
            rank = self._rank_of(language)
            values, rising = np.linalg.eigh(self._grams[language])  # (d,) rising, (d, d)
            spanned = _numerical_rank(values)
            if rank > spanned:  # the other eigenvectors are any
                raise ValueError(
                    f"rank: found {rank} for {language!r}, whose {self.counts_[language]} sentences span only "
                    f"{spanned} directions, expected at most as many. Give more sentences that differ or a lower rank"
                )
            components[language] = np.ascontiguousarray(rising[:, ::-1][:, :rank].T)
        self.components_ = components
        self.languages_ = list(components)
        return self

    def spans(self) -> dict[str, int]:
        """By language, how many directions the vectors seen span: the largest rank that `finish` can do."""
        return {code: _numerical_rank(np.linalg.eigvalsh(gram)) for code, gram in sorted(self._grams.items())}

    def transform(self, vectors: np.ndarray, languages: str | Sequence[str]) -> np.ndarray:
        """The semantic component of each vector: (n, d), float32 unless the vectors are float64.

        Args:
            vectors, languages: As for `fit`; languages that were fitted.

        Raises:
            ValueError: Not fitted (`NotFittedError`), an unknown language, other dimensions, numbers that are not
                finite.
        """
        return self._split(vectors, languages, semantic=True)

    def fit_transform(self, vectors: np.ndarray, languages: str | Sequence[str]) -> np.ndarray:
        """`fit` and `transform` of the same vectors."""
        return self.fit(vectors, languages).transform(vectors, languages)

    def language_component(self, vectors: np.ndarray, languages: str | Sequence[str]) -> np.ndarray:
        """What `transform` takes away: (n, d), of the same type. Both add up to the vectors.

        Raises:
            ValueError: As `transform`.
        """
        return self._split(vectors, languages, semantic=False)

    def _split(self, vectors: np.ndarray, languages: str | Sequence[str], semantic: bool) -> np.ndarray:
        if not hasattr(self, "components_"):
            raise NotFittedError("LanguageDebiaser: fit it to sentence vectors first")
        rows_of = rows_by_language(languages, len(vectors))
        if unknown := sorted(set(rows_of) - set(self.components_)):
            raise ValueError(
                f"languages: found {unknown[0]!r}, expected one of those fitted: {', '.join(self.languages_)}. Fit "
                "vectors of all languages"
            )
        shape = np.shape(vectors)
        result = np.empty(shape, np.float64 if np.asarray(vectors[:0]).dtype == np.float64 else np.float32)
        for language, rows in rows_of.items():
            directions = self.components_[language]
            for chosen, block in _blocks(vectors, language, rows, directions.shape[1]):
                component = (block @ directions.T) @ directions
                result[chosen] = block - component if semantic else component
        return result

    def _add(self, vectors: np.ndarray, language: str, rows: np.ndarray) -> None:
        dimension = len(next(iter(self._grams.values()))) if self._grams else None
        gram, count = self._grams.get(language), 0
        for _, block in _blocks(vectors, language, rows, dimension):
            product = block.T @ block
            gram = product if gram is None else gram + product
            count += len(block)
        if count:  # all or nothing of these vectors, where one is not finite
            self._grams[language] = gram
            self.counts_[language] = self.counts_.get(language, 0) + count

    def _rank_of(self, language: str) -> int:
        rank = self.rank
        if isinstance(rank, Mapping):
            if language not in rank:
                raise ValueError(f"rank: found none for {language!r}, expected one for each language fitted")
            rank = rank[language]
        dimension = len(self._grams[language])
        if not isinstance(rank, (int, np.integer)) or isinstance(rank, bool) or not 1 <= rank < dimension:
            raise ValueError(
                f"rank: found {rank!r} for {language!r}, expected an integer from 1 to {dimension - 1}, below the "
                f"{dimension} dimensions of the vectors"
            )
        if self.counts_[language] < rank:
            raise ValueError(
                f"rank: found {rank} for {language!r}, of which there are {self.counts_[language]} sentences, "
                "expected at least as many sentences as directions. Give more sentences or a lower rank"
            )
        return int(rank)


def _numerical_rank(eigenvalues: np.ndarray) -> int:
    """Of a symmetric matrix, by its eigenvalues (d,), rising: those that rounding errors do not account for."""
    smallest = max(eigenvalues[-1], 0) * len(eigenvalues) * np.finfo(eigenvalues.dtype).eps
    return int(np.count_nonzero(eigenvalues > smallest))


def rows_by_language(languages: str | Sequence[str], count: int) -> dict[str, np.ndarray]:
    """Row numbers of each language, in order, languages in order of appearance.

    Args:
        languages: One code for all, or one for each of `count` rows.

    Raises:
        ValueError: Not as many codes as rows. TypeError: A code that is not a string.
    """
    if isinstance(languages, str):
        return {languages: np.arange(count)} if count else {}
    if len(languages) != count:
        raise ValueError(f"languages: found {len(languages)}, expected one for each of {count} vectors, or one in all")
    rows: dict[str, list[int]] = {}
    for row, language in enumerate(languages):
        if not isinstance(language, str):
            raise TypeError(f"languages: found {language!r} for row {row}, expected a code such as 'de'")
        rows.setdefault(str(language), []).append(row)
    return {language: np.array(found) for language, found in rows.items()}


def _blocks(
    vectors: np.ndarray, language: str, rows: np.ndarray, dimension: int | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Row numbers and float64 vectors of one language, block by block, once they are found to be right."""
    shape = np.shape(vectors)
    if len(shape) != 2 or not shape[1] or dimension not in (None, shape[1]):
        wanted = "(n, d)" if dimension is None else f"(n, {dimension}), the dimensions that were fitted"
        raise ValueError(f"vectors: found shape {shape} for {language!r}, expected {wanted}")
    for start in range(0, len(rows), _ROWS):
        chosen = rows[start : start + _ROWS]
        block = np.asarray(vectors[chosen], dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if len(bad):
            raise ValueError(
                f"vectors: found a number that is not finite in row {chosen[bad[0]]} ({language!r}), expected finite "
                "numbers. Look at the model that made them"
            )
        yield chosen, block
