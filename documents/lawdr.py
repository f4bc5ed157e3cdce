"""LAWDR: document vectors without their language, of sentences weighted by how rare they are (paper 003).

from modeling_tmde.documents import Lawdr
from modeling_tmde.embedding import DocumentEmbedder

lawdr = Lawdr(DocumentEmbedder.from_pretrained("path/to/checkpoint"), rank=4)
vectors = lawdr.fit_transform(documents, languages)  # n texts and their n codes -> (n, d)
"""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from modeling_tmde.data.io import replacing
from modeling_tmde.embedding import DocumentEmbedder, progress_bar
from modeling_tmde.long_documents import SentenceDensity, split_sentences

Document = str | Sequence[str]
Split = Callable[[str, str], list[str]]
Chunk = tuple[list[int], list[str], list[str]]  # number of the document, language, and text of each sentence

FILE_NAME = "lawdr.npz"
WEIGHTINGS = ("density", None)
_CHUNK = 8192  # sentences embedded at once


class LanguageDebiaser(TransformerMixin, BaseEstimator):
    """Removes from each vector v its language component, sum_i (v.u_i) u_i (paper 003, section 3.2 and algorithm 1).

    The u_i are the first right singular vectors of the matrix of a language's sentence vectors. The matrix is not
    centered: of closely packed vectors, the first is nearly their mean. Fitting is out of core and exact:
    `partial_fit` adds to each language's Gram matrix (d, d) in float64, whose eigenvectors are the singular vectors.

    Args:
        rank: m, directions to remove, of every language or by language (`{"de": 2, "en": 4}`). The paper removes 32
            to 256.

    Attributes:
        languages_: Codes, sorted. components_: By language (rank, d) float64, orthonormal, the dominant first.
    """

    def __init__(self, rank: int | Mapping[str, int] = 1) -> None:
        self.rank = rank

    def fit(self, vectors: np.ndarray, languages: str | Sequence[str]) -> LanguageDebiaser:
        """Forgets what was fitted before, and learns each language's directions.

        Args:
            vectors: (n, d).
            languages: One code for all vectors, or one for each.

        Raises:
            ValueError: A language whose vectors span fewer directions than its rank, a rank that is missing or not
                below d, not as many codes as vectors, numbers that are not finite.
        """
        self._grams: dict[str, np.ndarray] = {}
        for language, rows in rows_by_language(languages, len(vectors)).items():
            self.partial_fit(vectors[rows], language)
        return self.finish()

    def fit_transform(self, vectors: np.ndarray, languages: str | Sequence[str]) -> np.ndarray:
        """`fit` and `transform` of the same vectors."""
        return self.fit(vectors, languages).transform(vectors, languages)

    def partial_fit(self, vectors: np.ndarray, language: str) -> LanguageDebiaser:
        """Adds vectors (n, d) of one language to those it has seen; `components_` are there after `finish`."""
        vectors = np.asarray(vectors, np.float64)
        if not np.isfinite(vectors).all():
            raise ValueError(f"vectors: found a number that is not finite in those of {language!r}")
        grams = self.__dict__.setdefault("_grams", {})
        grams[language] = grams.get(language, 0) + vectors.T @ vectors
        return self

    def finish(self) -> LanguageDebiaser:
        """Computes `components_` of the vectors that `partial_fit` has seen. Raises ValueError as `fit`."""
        components = {}
        for language, gram in sorted(self._grams.items()):
            rank = self.rank.get(language) if isinstance(self.rank, Mapping) else self.rank
            values, vectors = np.linalg.eigh(gram)  # (d,) rising, (d, d)
            spanned = np.count_nonzero(values > values[-1] * len(values) * np.finfo(float).eps)
            if not isinstance(rank, (int, np.integer)) or not 1 <= rank < len(gram) or rank > spanned:
                raise ValueError(
                    f"rank: found {rank!r} for {language!r}, expected an integer from 1 to "
                    f"{min(spanned, len(gram) - 1)}: its sentences span {spanned} of the {len(gram)} dimensions"
                )
            components[language] = np.ascontiguousarray(vectors[:, ::-1][:, :rank].T)
        self.components_, self.languages_ = components, list(components)
        return self

    def transform(self, vectors: np.ndarray, languages: str | Sequence[str]) -> np.ndarray:
        """The semantic component of each vector: (n, d), float32 unless the vectors are float64.

        Raises:
            ValueError: Not fitted (`NotFittedError`), an unknown language, not as many codes as vectors.
        """
        if not hasattr(self, "components_"):
            raise NotFittedError("LanguageDebiaser: fit it to sentence vectors first")
        vectors = np.asarray(vectors)
        result = np.empty(vectors.shape, np.float64 if vectors.dtype == np.float64 else np.float32)
        for language, rows in rows_by_language(languages, len(vectors)).items():
            if language not in self.components_:
                raise ValueError(f"languages: found {language!r}, expected one of those fitted: {self.languages_}")
            directions = self.components_[language]
            block = vectors[rows].astype(np.float64)
            result[rows] = block - (block @ directions.T) @ directions
        return result


class Lawdr(TransformerMixin, BaseEstimator):
    """Language-agnostic weighted document representations: paper 003, algorithm 1 and eq. 3.

    Sentences are embedded, rid of their language's dominant directions, and averaged with the weights
    w = b / (b + P(s)), where P is the density of the sentence vectors of this language. Eq. 3 is the sum of w v; this
    returns that sum over the sum of the weights, which points in the same direction and does not grow with the
    document. As algorithm 1 prints it, the density is that of the vectors before debiasing (section 4.1 can be read
    the other way). Directions and densities are each language's own.

    Documents are read once by `fit` and once by `transform`, 8,192 sentences at a time: any iterable will do. Memory
    holds for each language a Gram matrix (8 d^2 bytes) and in `fit` a sample of sentences.

    Args:
        embedder: A `DocumentEmbedder`, or anything with `encode(list of n str) -> (n, d)`. `clone` shares it.
        rank: Directions to remove, of every language or by language; see `LanguageDebiaser`.
        weighting: `"density"`, or None for a plain mean.
        debias: Whether directions are removed.
        components, kernel, bandwidth: Of the density; see `SentenceDensity`.
        density_sample: Sentences of each language, drawn at random, that the density is fitted to.
        split: Makes sentences of a text and the code of its language.
        seed: Of the draw.

    Attributes:
        languages_: Codes that were fitted, sorted. debiaser_: `LanguageDebiaser`, or None. densities_: By language
            its `SentenceDensity`; empty without weighting.
        truncated_: Sentences that were longer than the embedder takes, in the last `fit` or `transform`.
    """

    def __init__(
        self,
        embedder: Any,
        rank: int | Mapping[str, int] = 1,
        weighting: str | None = "density",
        debias: bool = True,
        components: int = 16,
        kernel: str = "tophat",
        bandwidth: float | None = None,
        density_sample: int = 20_000,
        split: Split = split_sentences,
        seed: int = 42,
    ) -> None:
        self.embedder = embedder
        self.rank = rank
        self.weighting = weighting
        self.debias = debias
        self.components = components
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.density_sample = density_sample
        self.split = split
        self.seed = seed

    def __sklearn_clone__(self) -> Lawdr:
        return type(self)(**self.get_params(deep=False))  # a copy of the model would cost memory and gain nothing

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "languages_")

    def fit(self, documents: Iterable[Document], languages: str | Iterable[str]) -> Lawdr:
        """Learns directions and densities of each language, in one pass.

        Args:
            documents: Texts, which are split into sentences, or lists of sentences, of which blank ones are left out.
            languages: One code for all, or one for each, read in step with the documents.

        Raises:
            ValueError: No documents, a document without a sentence (its number is named), not as many codes as
                documents, a language with fewer sentences than the rank, vectors that are not finite, an argument of
                the constructor out of its range.
        """
        density = self._density()  # checks its arguments before hours of work
        debiaser = LanguageDebiaser(self.rank) if self.debias else None
        samples: dict[str, _Reservoir] = {}
        found: set[str] = set()
        self.truncated_ = 0
        for _, codes, sentences in sentence_chunks(documents, languages, self.split):
            found.update(codes)
            if debiaser is None and density is None:
                continue
            vectors = self._embed(codes, sentences)
            for language, rows in rows_by_language(codes, len(sentences)).items():
                if debiaser is not None:
                    debiaser.partial_fit(vectors[rows], language)
                if density is not None:
                    sample = samples.setdefault(language, _Reservoir(self.density_sample, self.seed))
                    sample.add(vectors[rows])
        if not found:
            raise ValueError("documents: found none, expected at least one")
        if debiaser is not None:
            debiaser.finish()
        densities: dict[str, SentenceDensity] = {}
        for language in sorted(samples):
            sample = samples.pop(language).vectors
            if len(sample) < 2:
                raise ValueError(f"documents: found {len(sample)} sentence of {language!r}, expected 2 for a density")
            densities[language] = self._density().fit(sample)
        self.debiaser_, self.densities_, self.languages_ = debiaser, densities, sorted(found)
        return self

    def transform(self, documents: Iterable[Document], languages: str | Iterable[str]) -> np.ndarray:
        """One vector for each document, (n, d) float32; arguments as for `fit`, of languages that were fitted.

        Raises:
            ValueError: Not fitted (`NotFittedError`), a language that was not fitted, or as `fit`.
        """
        parts = list(self.transform_iter(documents, languages))
        if not parts:
            raise ValueError("documents: found none, expected at least one")
        return np.concatenate(parts)

    def transform_iter(self, documents: Iterable[Document], languages: str | Iterable[str]) -> Iterator[np.ndarray]:
        """`transform` in flat memory: yields vectors (some, d) float32 of documents in order."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("Lawdr: fit it to documents first")
        self.truncated_ = 0
        sums, totals, last = np.empty((0, 0)), np.empty(0), None  # of a document that may go on in the next chunk
        for numbers, codes, sentences in sentence_chunks(documents, languages, self.split, self.languages_):
            weighted, weights = self._weighted(codes, sentences)  # (sentences, d), (sentences,) float64
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))
            weighted, weights = np.add.reduceat(weighted, starts), np.add.reduceat(weights, starts)
            if last == numbers[0]:
                weighted[0] += sums[0]
                weights[0] += totals[0]
            elif last is not None:
                weighted, weights = np.vstack([sums, weighted]), np.append(totals, weights)
            if len(weights) > 1:
                yield (weighted[:-1] / weights[:-1, None]).astype(np.float32)
            sums, totals, last = weighted[-1:], weights[-1:], numbers[-1]
        if last is not None:
            yield (sums / totals[:, None]).astype(np.float32)

    def fit_transform(self, documents: Iterable[Document], languages: str | Iterable[str]) -> np.ndarray:
        """`fit` and `transform` of the same documents, which are embedded twice: vectors are not kept.

        Raises:
            TypeError: An iterator, which can be read only once. Else as `fit`.
        """
        if isinstance(documents, Iterator) or isinstance(languages, Iterator):
            raise TypeError("documents, languages: found an iterator, which can be read once; expected a list")
        return self.fit(documents, languages).transform(documents, languages)

    def save(self, folder: str | os.PathLike) -> None:
        """Writes `lawdr.npz` (no pickle) with everything but the embedder and `split`; replaces an earlier one.

        Raises:
            ValueError: Not fitted (`NotFittedError`).
        """
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("Lawdr: nothing to save, it is not fitted")
        settings = {name: value for name, value in self.get_params(False).items() if name not in ("embedder", "split")}
        about = {"settings": settings, "languages": self.languages_, "split": _name_of(self.split)}
        arrays = {"about": np.array(json.dumps(about, default=lambda value: value.item()))}
        for number, language in enumerate(self.languages_):
            if self.debiaser_ is not None:
                arrays[f"{number}/directions"] = self.debiaser_.components_[language]
            if language in self.densities_:
                learned = self.densities_[language].to_arrays()
                arrays |= {f"{number}/density/{name}": array for name, array in learned.items()}
        Path(folder).mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        with replacing(Path(folder) / FILE_NAME) as temporary:
            temporary.write_bytes(buffer.getvalue())

    @classmethod
    def load(cls, folder: str | os.PathLike, embedder: Any, split: Split = split_sentences) -> Lawdr:
        """Opens what `save` wrote, with the embedder that it was fitted with.

        Raises:
            FileNotFoundError: No `lawdr.npz` in the folder.
            ValueError: Another `split` than it was fitted with.
        """
        with np.load(Path(folder) / FILE_NAME, allow_pickle=False) as file:
            arrays = dict(file)
        about = json.loads(str(arrays["about"]))
        if about["split"] != _name_of(split):
            raise ValueError(f"split: found {_name_of(split)}, expected {about['split']}, with which it was fitted")
        lawdr = cls(embedder, split=split, **about["settings"])
        lawdr.languages_, lawdr.truncated_ = about["languages"], 0
        lawdr.debiaser_, lawdr.densities_ = (LanguageDebiaser(lawdr.rank) if lawdr.debias else None), {}
        if lawdr.debias:
            components = {code: arrays[f"{number}/directions"] for number, code in enumerate(lawdr.languages_)}
            lawdr.debiaser_.components_, lawdr.debiaser_.languages_ = components, lawdr.languages_
        for number, language in enumerate(lawdr.languages_ if lawdr.weighting else []):
            start = f"{number}/density/"
            learned = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
            lawdr.densities_[language] = SentenceDensity.from_arrays(learned)
        return lawdr

    def _density(self) -> SentenceDensity | None:
        if self.weighting not in WEIGHTINGS:
            raise ValueError(f"weighting: found {self.weighting!r}, expected one of {WEIGHTINGS}")
        if self.weighting is None:
            return None
        return SentenceDensity(self.components, self.kernel, self.bandwidth, self.density_sample, self.seed)

    def _embed(self, codes: list[str], sentences: list[str]) -> np.ndarray:
        """(sentences, d)."""
        options: dict[str, Any] = {}
        if isinstance(self.embedder, DocumentEmbedder):
            options = {"show_progress_bar": False, "language": codes if self.embedder.needs_language else None}
        vectors = np.asarray(self.embedder.encode(sentences, **options))
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise ValueError(
                f"embedder: found a vector that is not finite, of {sentences[bad[0]][:60]!r}; look at the model"
            )
        self.truncated_ += getattr(getattr(self.embedder, "last_report", None), "truncated", 0)
        return vectors

    def _weighted(self, codes: list[str], sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Sentence vectors times their weights (n, d), and the weights (n,)."""
        vectors, weights = self._embed(codes, sentences), np.ones(len(sentences))
        if self.densities_:
            for language, rows in rows_by_language(codes, len(vectors)).items():
                weights[rows] = self.densities_[language].weights(vectors[rows])
        if self.debiaser_ is not None:
            vectors = self.debiaser_.transform(vectors, codes)
        return vectors * weights[:, None], weights


class _Reservoir:
    """A uniform sample of a stream of vectors: those of the lowest random keys, however the stream is cut."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.rng = np.random.default_rng(seed)
        self.keys = np.empty(0)
        self.vectors: np.ndarray | None = None  # (up to size, d)

    def add(self, vectors: np.ndarray) -> None:
        keys = np.concatenate([self.keys, self.rng.random(len(vectors))])
        lowest = np.argsort(keys)[: self.size]
        vectors = vectors if self.vectors is None else np.concatenate([self.vectors, vectors])
        self.keys, self.vectors = keys[lowest], vectors[lowest]


def sentence_chunks(
    documents: Iterable[Document],
    languages: str | Iterable[str],
    split: Split,
    known: Sequence[str] | None = None,
    size: int | None = None,
) -> Iterator[Chunk]:
    """The sentences of documents, `size` (8,192) at a time; a document may go on in the next chunk.

    Args:
        documents, languages: As for `Lawdr.fit`.
        split: Makes sentences of a text and its language.
        known: Languages that there may be; None for any.

    Raises:
        ValueError: A document without a sentence, an unknown language, not as many codes as documents.
        TypeError: A document that is neither a string nor a list of strings.
    """
    if isinstance(documents, str):
        raise TypeError("documents: found one str, expected an iterable of documents")
    codes = itertools.repeat(languages) if isinstance(languages, str) else iter(languages)
    size, total = size or _CHUNK, len(documents) if hasattr(documents, "__len__") else None
    chunk: Chunk = ([], [], [])
    number = -1
    for number, document in enumerate(progress_bar(documents, desc="Documents", unit="", total=total)):
        language = next(codes, None)
        if language is None:
            raise ValueError(f"languages: found {number}, expected one for each document, of which there are more")
        if known is not None and language not in known:
            raise ValueError(
                f"languages: found {language!r} for document {number}, expected one of those fitted: "
                f"{', '.join(known)}. Fit documents of all languages"
            )
        if not isinstance(document, str) and not all(isinstance(each, str) for each in document):
            raise TypeError(f"documents: found {document!r:.80} as document {number}, expected str or list of str")
        sentences = split(document, language) if isinstance(document, str) else filter(str.strip, document)
        sentences = list(sentences)
        if not sentences:
            raise ValueError(f"documents: document {number} is empty, expected at least one sentence")
        for sentence in sentences:
            for column, value in zip(chunk, (number, language, sentence), strict=True):
                column.append(value)
            if len(chunk[0]) == size:
                yield chunk
                chunk = ([], [], [])
    if not isinstance(languages, str) and next(codes, None) is not None:
        raise ValueError(f"languages: found more than {number + 1}, expected one for each of {number + 1} documents")
    if chunk[0]:
        yield chunk


def rows_by_language(languages: str | Sequence[str], count: int) -> dict[str, np.ndarray]:
    """Row numbers of each language, in order; one code for all of `count` rows, or one for each."""
    languages = [languages] * count if isinstance(languages, str) else languages
    if len(languages) != count:
        raise ValueError(f"languages: found {len(languages)}, expected one for each of {count} vectors, or one in all")
    rows: dict[str, list[int]] = {}
    for row, language in enumerate(languages):
        rows.setdefault(language, []).append(row)
    return {language: np.array(found) for language, found in rows.items()}


def _name_of(split: Split) -> str:
    return f"{split.__module__}.{getattr(split, '__qualname__', type(split).__qualname__)}"
