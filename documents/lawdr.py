"""LAWDR: document vectors without their language, of sentences weighted by how rare they are (paper 003).

from tmde.documents import Lawdr
from tmde.embedding.document_embedder import DocumentEmbedder

lawdr = Lawdr(DocumentEmbedder.from_pretrained("path/to/checkpoint"), rank=4)
vectors = lawdr.fit_transform(documents, languages)  # n texts and their n codes -> (n, d)
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from modeling_tmde import TmdeError
from tmde.data.io import replacing
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.long_documents import SentenceDensity, split_sentences
from tmde.embedding.progress import progress_bar

Document = str | Sequence[str]

FILE_NAME = "lawdr.npz"
PAPER_DENSITY = SentenceDensity()
_CHUNK = 8192  # sentences embedded at once, and the rest of the last document


class LanguageDebiaser:
    """Removes from each vector v its language component, sum_i (v.u_i) u_i (paper 003, section 3.2 and algorithm 1).

    It is called as a transformer of scikit-learn is, but is none: in a `Pipeline`, class labels would be taken for
    languages.

    The u_i are the first right singular vectors of the matrix of a language's sentence vectors. The matrix is not
    centered: of closely packed vectors, the first is nearly their mean. The u_i are computed as eigenvectors of the
    Gram matrix (d, d), a sum over the vectors in float64, so that fitting can be out of core.

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
        vectors, by_language = np.asarray(vectors), rows_by_language(languages, len(vectors))
        return self.fit_grams(
            {language: gram(vectors[rows]) for language, rows in by_language.items()}
        )

    def fit_transform(self, vectors: np.ndarray, languages: str | Sequence[str]) -> np.ndarray:
        """`fit` and `transform` of the same vectors."""
        return self.fit(vectors, languages).transform(vectors, languages)

    def fit_grams(self, grams: Mapping[str, np.ndarray]) -> LanguageDebiaser:
        """`fit` of the sums of each language's [`gram`] matrices, in which vectors may come in parts."""
        components = {}
        for language, gram in sorted(grams.items()):
            rank = self.rank.get(language) if isinstance(self.rank, Mapping) else self.rank
            values, vectors = np.linalg.eigh(gram)  # (d,) rising, (d, d)
            spanned = np.count_nonzero(values > values[-1] * len(values) * np.finfo(float).eps)
            if (
                not isinstance(rank, (int, np.integer))
                or not 1 <= rank < len(gram)
                or rank > spanned
            ):
                raise TmdeError(
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
        _check_fitted(self)
        vectors = np.asarray(vectors)
        result = np.empty(vectors.shape, np.float64 if vectors.dtype == np.float64 else np.float32)
        for language, rows in rows_by_language(languages, len(vectors)).items():
            if language not in self.components_:
                raise TmdeError(
                    f"languages: found {language!r}, expected one of those fitted: {self.languages_}"
                )
            directions = self.components_[language]
            block = vectors[rows].astype(np.float64)
            result[rows] = block - (block @ directions.T) @ directions
        return result


class Lawdr:
    """Language-agnostic weighted document representations: paper 003, algorithm 1 and eq. 3.

    Sentences are embedded, rid of their language's dominant directions, and averaged with the weights
    w = b / (b + P(s)), where P is the density of the sentence vectors of this language. Eq. 3 is the sum of w v; this
    returns that sum over the sum of the weights, which points in the same direction and does not grow with the
    document. As algorithm 1 prints it, the density is that of the vectors before debiasing (section 4.1 can be read
    the other way). Directions and densities are each language's own.

    Documents are read once by `fit` and once by `transform`, some 8,192 sentences at a time: any iterable will do.
    Memory holds for each language a Gram matrix (8 d^2 bytes) and in `fit` a sample of sentences.

    Args:
        embedder: A `DocumentEmbedder`, or anything with `encode(list of n str) -> (n, d)`.
        rank: Directions to remove, of every language or by language; see `LanguageDebiaser`.
        density: `SentenceDensity` with the settings of each language's; None for a plain mean.
        debias: Whether directions are removed.

    Attributes:
        languages_: Codes that were fitted, sorted. debiaser_: `LanguageDebiaser`, or None. densities_: By language
            its `SentenceDensity`; empty without weighting.
        truncated_: Sentences that were longer than the embedder takes, in the last `fit` or `transform`.
    """

    def __init__(
        self,
        embedder: Any,
        rank: int | Mapping[str, int] = 1,
        density: SentenceDensity | None = PAPER_DENSITY,
        debias: bool = True,
    ) -> None:
        self.embedder = embedder
        self.rank = rank
        self.density = density
        self.debias = debias

    def fit(self, documents: Iterable[Document], languages: str | Iterable[str]) -> Lawdr:
        """Learns directions and densities of each language, in one pass.

        Args:
            documents: Texts, which are split into sentences, or lists of sentences, of which blank ones are left out.
            languages: One code for all, or one for each, read in step with the documents.

        Raises:
            ValueError: No documents, a document without a sentence (its number is named), not as many codes as
                documents, a language with fewer sentences than the rank, vectors that are not finite.
        """
        grams: dict[str, np.ndarray] = {}
        samples: dict[str, _Reservoir] = {}
        self.truncated_ = 0
        for _, codes, sentences in sentence_chunks(documents, languages):
            vectors = self._embed(codes, sentences)
            for language, rows in rows_by_language(codes, len(sentences)).items():
                grams[language] = grams.get(language, 0) + gram(vectors[rows])
                if self.density is not None:
                    reservoir = _Reservoir(self.density.sample, self.density.seed)
                    samples.setdefault(language, reservoir).add(vectors[rows])
        if not grams:
            raise TmdeError("documents: found none, expected at least one")
        self.languages_ = sorted(grams)
        self.debiaser_ = LanguageDebiaser(self.rank).fit_grams(grams) if self.debias else None
        self.densities_ = {}
        for language, reservoir in sorted(samples.items()):
            if len(reservoir.vectors) < 2:
                raise TmdeError(
                    f"documents: found one sentence of {language!r}, expected 2 for a density"
                )
            self.densities_[language] = replace(self.density).fit(reservoir.vectors)
        return self

    def transform(
        self, documents: Iterable[Document], languages: str | Iterable[str]
    ) -> np.ndarray:
        """One vector for each document, (n, d) float32; arguments as for `fit`, of languages that were fitted.

        Raises:
            ValueError: Not fitted (`NotFittedError`), a language that was not fitted, or as `fit`.
        """
        _check_fitted(self)
        self.truncated_, parts = 0, []
        for numbers, codes, sentences in sentence_chunks(documents, languages, self.languages_):
            vectors, weights = self._embed(codes, sentences), np.ones((len(sentences), 1))
            for language, rows in (
                rows_by_language(codes, len(vectors)).items() if self.densities_ else ()
            ):
                weights[rows, 0] = self.densities_[language].weights(vectors[rows])
            if self.debiaser_ is not None:
                vectors = self.debiaser_.transform(vectors, codes)
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))
            sums = np.add.reduceat(vectors * weights, starts), np.add.reduceat(weights, starts)
            parts.append((sums[0] / sums[1]).astype(np.float32))
        if not parts:
            raise TmdeError("documents: found none, expected at least one")
        return np.concatenate(parts)

    def fit_transform(
        self, documents: Iterable[Document], languages: str | Iterable[str]
    ) -> np.ndarray:
        """`fit` and `transform` of the same documents, which are embedded twice: vectors are not kept.

        Raises:
            TypeError: An iterator, which can be read only once. Else as `fit`.
        """
        if isinstance(documents, Iterator) or isinstance(languages, Iterator):
            raise TypeError(
                "documents, languages: found an iterator, which can be read once; expected a list"
            )
        return self.fit(documents, languages).transform(documents, languages)

    def save(self, folder: str | os.PathLike) -> None:
        """Writes `lawdr.npz` (no pickle) with everything but the embedder; replaces an earlier one.

        Raises:
            ValueError: Not fitted (`NotFittedError`).
        """
        _check_fitted(self)
        settings = {
            "rank": self.rank,
            "debias": self.debias,
            "density": self.density and asdict(self.density),
        }
        about = {"settings": settings, "languages": self.languages_}
        arrays = {"about": np.array(json.dumps(about, default=lambda value: value.item()))}
        for number, language in enumerate(self.languages_):
            if self.debias:
                arrays[f"{number}/directions"] = self.debiaser_.components_[language]
            learned = self.densities_[language].to_arrays() if self.densities_ else {}
            arrays |= {f"{number}/density/{name}": array for name, array in learned.items()}
        Path(folder).mkdir(parents=True, exist_ok=True)
        with replacing(Path(folder) / FILE_NAME) as temporary:
            np.savez(temporary, **arrays)

    @classmethod
    def load(cls, folder: str | os.PathLike, embedder: Any) -> Lawdr:
        """Opens what `save` wrote, with the embedder that it was fitted with.

        Raises:
            FileNotFoundError: No `lawdr.npz` in the folder.
        """
        with np.load(Path(folder) / FILE_NAME, allow_pickle=False) as file:
            arrays = dict(file)
        about = json.loads(str(arrays["about"]))
        settings = about["settings"]
        settings["density"] = settings["density"] and SentenceDensity(**settings["density"])
        lawdr = cls(embedder, **settings)
        lawdr.languages_, lawdr.truncated_, lawdr.densities_ = about["languages"], 0, {}
        lawdr.debiaser_ = LanguageDebiaser(lawdr.rank) if lawdr.debias else None
        if lawdr.debias:
            names = enumerate(lawdr.languages_)
            lawdr.debiaser_.components_ = {
                code: arrays[f"{number}/directions"] for number, code in names
            }
            lawdr.debiaser_.languages_ = lawdr.languages_
        for number, language in enumerate(lawdr.languages_ if lawdr.density else []):
            start = f"{number}/density/"
            learned = {
                name.removeprefix(start): array
                for name, array in arrays.items()
                if name.startswith(start)
            }
            lawdr.densities_[language] = SentenceDensity.from_arrays(learned)
        return lawdr

    def _embed(self, codes: list[str], sentences: list[str]) -> np.ndarray:
        """(sentences, d)."""
        if not isinstance(self.embedder, DocumentEmbedder):
            return np.asarray(self.embedder.encode(sentences))
        codes = codes if self.embedder.needs_language else None
        vectors, embedding_report = self.embedder.encode_with_report(
            sentences, language=codes, show_progress_bar=False
        )
        self.truncated_ += embedding_report.truncated
        return vectors


def _check_fitted(fitted: LanguageDebiaser | Lawdr) -> None:
    if not hasattr(fitted, "languages_"):
        raise NotFittedError(f"{type(fitted).__name__} is not fitted: call `fit` first")


class _Reservoir:
    """A uniform sample of a stream of vectors: those of the lowest random keys, however the stream is cut."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.rng, self.keys = size, np.random.default_rng(seed), np.empty(0)
        self.vectors: np.ndarray | None = None  # (up to size, d)

    def add(self, vectors: np.ndarray) -> None:
        keys = np.concatenate([self.keys, self.rng.random(len(vectors))])
        lowest = np.argsort(keys)[: self.size]
        vectors = vectors if self.vectors is None else np.concatenate([self.vectors, vectors])
        self.keys, self.vectors = keys[lowest], vectors[lowest]


def sentence_chunks(
    documents: Iterable[Document],
    languages: str | Iterable[str],
    known: Sequence[str] | None = None,
) -> Iterator[tuple[list[int], list[str], list[str]]]:
    """The sentences of some documents at a time, 8,192 or a few more: number of the document, language and text each.

    Args:
        documents, languages: As for `Lawdr.fit`.
        known: Languages that there may be; None for any.

    Raises:
        ValueError: A document without a sentence, an unknown language, not as many codes as documents.
    """
    if isinstance(documents, str) or hasattr(
        documents, "columns"
    ):  # a table is an iterable of its columns' names
        raise TmdeError(
            f"documents: found one {type(documents).__name__}, expected an iterable of documents"
        )
    total = len(documents) if hasattr(documents, "__len__") else None
    one = isinstance(languages, str)
    if not one and total is not None and hasattr(languages, "__len__") and len(languages) != total:
        raise TmdeError(
            f"languages: found {len(languages)}, expected {total}, one for each document"
        )
    pairs = zip(documents, itertools.repeat(languages) if one else languages, strict=not one)
    chunk: tuple[list[int], list[str], list[str]] = ([], [], [])
    for number, (document, language) in enumerate(
        progress_bar(pairs, desc="Documents", unit="", total=total)
    ):
        if known is not None and language not in known:
            raise TmdeError(
                f"languages: found {language!r} for document {number}, expected one of those fitted: "
                f"{', '.join(known)}. Fit documents of all languages"
            )
        sentences = split_sentences(document, language) if isinstance(document, str) else document
        sentences = [sentence for sentence in sentences if sentence.strip()]
        if not sentences:
            raise TmdeError(
                f"documents: document {number} is empty, expected at least one sentence"
            )
        chunk[0].extend([number] * len(sentences))
        chunk[1].extend([language] * len(sentences))
        chunk[2].extend(sentences)
        if len(chunk[0]) >= _CHUNK:
            yield chunk
            chunk = ([], [], [])
    if chunk[0]:
        yield chunk


def gram(vectors: np.ndarray) -> np.ndarray:
    """The products of all dimensions (d, d), summed over the vectors (n, d), float64."""
    vectors = np.asarray(vectors, np.float64)
    if not np.isfinite(vectors).all():
        raise TmdeError("vectors: found a number that is not finite; look at the model")
    return vectors.T @ vectors


def rows_by_language(languages: str | Sequence[str], count: int) -> dict[str, np.ndarray]:
    """Row numbers of each language, in order; one code for all of `count` rows, or one for each."""
    codes = np.array([languages] * count if isinstance(languages, str) else languages, object)
    if len(codes) != count:
        raise TmdeError(
            f"languages: found {len(codes)}, expected one for each of {count} vectors, or one in all"
        )
    return {language: np.flatnonzero(codes == language) for language in dict.fromkeys(codes)}
