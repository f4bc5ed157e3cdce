"""Document vectors without their language, of sentences weighted by how rare they are (paper 003, LAWDR).

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.documents.lawdr import Lawdr

lawdr = Lawdr(DocumentEmbedder.from_pretrained("path/to/checkpoint"), rank=4)
vectors = lawdr.fit_transform(documents, languages)  # n texts and their n codes -> (n, d)
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from modeling_tmde.data.io import replacing, write_atomically
from modeling_tmde.documents.debiasing import LanguageDebiaser, rows_by_language
from modeling_tmde.documents.sentence_stream import Document, SentenceChunk, Split, sentence_chunks
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.long_documents import SentenceDensity, split_sentences

SETTINGS_NAME = "lawdr.json"
WEIGHTINGS = ("density", None)
_CHUNK = 8192  # sentences embedded at once
_FORMAT = 1


class Lawdr(TransformerMixin, BaseEstimator):
    """Language-agnostic weighted document representations: paper 003, algorithm 1 and eq. 3.

    Sentences are embedded, rid of their language's dominant directions, and averaged with the weights
    w = b / (b + P(s)), in which P is the density of sentence vectors of this language. Eq. 3 is the sum of w v; what
    is returned is that sum over the sum of the weights, the weighted mean, which points in the same direction and does
    not grow with the document. As algorithm 1 prints it, the density is that of the vectors before debiasing (section
    4.1 can be read the other way). Directions and densities are each language's own.

    Documents are read once by `fit` and once by `transform`, 8,192 sentences at a time: any iterable will do, and
    memory holds for each language a Gram matrix (8 d^2 bytes), in `fit` a sample of sentences (4 d `density_sample`
    bytes), and what `transform` returns. The result does not depend on how a stream is cut into chunks.

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
        truncated_: Sentences that were longer than the embedder takes, in the last `fit` or `transform`, where the
            embedder counts them.
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

        Returns:
            Itself.

        Raises:
            ValueError: No documents, a document without a sentence (its number is named), not as many codes as
                documents, a language with fewer sentences than the rank, vectors that are not finite, an argument of
                the constructor out of its range.
            TypeError: A document that is neither a string nor a list of strings.
        """
        density = self._density()  # of which nothing is learnt, but arguments are checked before hours of work
        debiaser = LanguageDebiaser(self.rank) if self.debias else None
        samples: dict[str, _Reservoir] = {}
        found: set[str] = set()
        self.truncated_ = 0
        for chunk in sentence_chunks(documents, languages, self.split, _CHUNK):
            rows_of = rows_by_language(chunk.languages, len(chunk.sentences))
            found.update(rows_of)
            if debiaser is None and density is None:
                continue
            vectors = self._embed(chunk)
            for language, rows in rows_of.items():
                if debiaser is not None:
                    debiaser.partial_fit(vectors[rows], language)
                if density is not None:
                    if language not in samples:
                        samples[language] = _Reservoir(self.density_sample, self.seed)
                    samples[language].add(vectors[rows])
        if not found:
            raise ValueError("documents: found none, expected at least one")
        if debiaser is not None:
            debiaser.finish()
        densities: dict[str, SentenceDensity] = {}
        for language in sorted(samples):
            sample = samples.pop(language).vectors()
            if len(sample) < 2:
                raise ValueError(f"documents: found {len(sample)} sentence of {language!r}, expected 2 for a density")
            densities[language] = self._density().fit(sample)
        # only now, all of them: an error leaves what was fitted before
        self.debiaser_, self.densities_, self.languages_ = debiaser, densities, sorted(found)
        return self

    def transform(self, documents: Iterable[Document], languages: str | Iterable[str]) -> np.ndarray:
        """One vector for each document.

        Args:
            documents, languages: As for `fit`; languages that were fitted.

        Returns:
            (n, d) float32.

        Raises:
            ValueError: Not fitted (`NotFittedError`), a language that was not fitted, an embedder of another dimension
                than was fitted, or as `fit`.
            TypeError: As `fit`.
        """
        parts = list(self.transform_iter(documents, languages))
        if not parts:
            raise ValueError("documents: found none, expected at least one")
        return np.concatenate(parts)

    def transform_iter(self, documents: Iterable[Document], languages: str | Iterable[str]) -> Iterator[np.ndarray]:
        """`transform` in flat memory: yields vectors (some, d) float32 of documents in order, as they are done."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("Lawdr: fit it to documents first")
        return self._transform(documents, languages)

    def _transform(self, documents: Iterable[Document], languages: str | Iterable[str]) -> Iterator[np.ndarray]:
        self.truncated_ = 0
        sums, totals, document = None, None, -1  # of the last document, which the next chunk may go on with
        for chunk in sentence_chunks(documents, languages, self.split, _CHUNK, self.languages_):
            weighted, weights = self._weighted(chunk)  # (sentences, d), (sentences,) float64
            starts = np.flatnonzero(np.diff(chunk.documents, prepend=-1))
            weighted, weights = np.add.reduceat(weighted, starts), np.add.reduceat(weights, starts)
            if sums is not None and document == chunk.documents[0]:
                weighted[0] += sums
                weights[0] += totals
            elif sums is not None:
                weighted, weights = np.vstack([sums, weighted]), np.append(totals, weights)
            if len(weights) > 1:
                yield (weighted[:-1] / weights[:-1, None]).astype(np.float32)
            sums, totals, document = weighted[-1], weights[-1], chunk.documents[-1]
        if sums is not None:
            yield (sums / totals)[None].astype(np.float32)

    def fit_transform(self, documents: Iterable[Document], languages: str | Iterable[str]) -> np.ndarray:
        """`fit` and `transform` of the same documents, which are embedded twice: vectors are not kept.

        Raises:
            TypeError: An iterator, which can be read only once. Else as `fit`.
        """
        for name, given in (("documents", documents), ("languages", languages)):
            if isinstance(given, Iterator):
                raise TypeError(f"{name}: found an iterator, which can be read once, expected a list or the like")
        return self.fit(documents, languages).transform(documents, languages)

    def save(self, folder: str | os.PathLike) -> None:
        """Writes `lawdr.json` and one file of arrays, without pickle; of the embedder and of `split` nothing.

        An earlier one in the folder is replaced at once, when all is written.

        Raises:
            ValueError: Not fitted (`NotFittedError`).
        """
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("Lawdr: nothing to save, it is not fitted")
        arrays: dict[str, np.ndarray] = {}
        for number, language in enumerate(self.languages_):
            if self.debiaser_ is not None:
                arrays[f"{number}/directions"] = self.debiaser_.components_[language]
            if language in self.densities_:
                learnt = self.densities_[language].to_arrays()
                arrays |= {f"{number}/density/{name}": array for name, array in learnt.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        content = buffer.getvalue()
        name = f"lawdr-{hashlib.sha256(content).hexdigest()[:16]}.npz"
        settings = {
            key: value for key, value in self.get_params(deep=False).items() if key not in ("embedder", "split")
        }
        settings["rank"] = dict(self.rank) if isinstance(self.rank, Mapping) else self.rank
        about = {"format": _FORMAT, "arrays": name, "languages": self.languages_, "split": _name_of(self.split)}
        if self.debiaser_ is not None:
            about["sentences"] = self.debiaser_.counts_
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
        about["settings"] = settings
        written = json.dumps(about, indent=2, default=lambda number: number.item())  # a number of numpy's
        write_atomically(folder / SETTINGS_NAME, written + "\n")
        for other in folder.glob("lawdr-*.npz"):
            if other.name != name:
                other.unlink()

    @classmethod
    def load(cls, folder: str | os.PathLike, embedder: Any, split: Split = split_sentences) -> Lawdr:
        """What `save` wrote, with the embedder that it was fitted with.

        Raises:
            FileNotFoundError: No `lawdr.json` in the folder.
            ValueError: A damaged one, or another `split` than it was fitted with.
        """
        path = Path(folder) / SETTINGS_NAME
        about = path.read_text(encoding="utf-8")
        try:
            about = json.loads(about)
            if about["format"] != _FORMAT:
                raise ValueError(f"found format {about['format']}, expected {_FORMAT}")
            with np.load(path.with_name(about["arrays"]), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            lawdr = cls(embedder, split=split, **about["settings"])
            lawdr._restore(about, arrays)
        except (KeyError, ValueError, TypeError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path}: not a whole Lawdr as Lawdr.save writes it: {error}") from error
        if about["split"] != _name_of(split):
            raise ValueError(
                f"split: found {_name_of(split)}, expected {about['split']}, with which {path} was fitted"
            )
        return lawdr

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        languages = list(about["languages"])
        self.debiaser_, self.densities_ = None, {}
        if self.debias:
            self.debiaser_ = LanguageDebiaser(self.rank)
            self.debiaser_.components_ = {code: arrays[f"{n}/directions"] for n, code in enumerate(languages)}
            self.debiaser_.languages_, self.debiaser_.counts_ = languages, dict(about["sentences"])
        if self.weighting is not None:
            for number, language in enumerate(languages):
                start = f"{number}/density/"
                learnt = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
                self.densities_[language] = SentenceDensity.from_arrays(learnt)
        self.languages_, self.truncated_ = languages, 0

    def _density(self) -> SentenceDensity | None:
        if self.weighting not in WEIGHTINGS:
            raise ValueError(f"weighting: found {self.weighting!r}, expected one of {WEIGHTINGS}")
        if self.weighting is None:
            return None
        return SentenceDensity(self.components, self.kernel, self.bandwidth, self.density_sample, self.seed)

    def _embed(self, chunk: SentenceChunk) -> np.ndarray:
        """(sentences, d)."""
        options: dict[str, Any] = {}
        if isinstance(self.embedder, DocumentEmbedder):
            options["show_progress_bar"] = False  # one for each chunk
            if self.embedder.needs_language:
                options["language"] = chunk.languages
        vectors = np.asarray(self.embedder.encode(chunk.sentences, **options))
        if vectors.ndim != 2 or len(vectors) != len(chunk.sentences):
            raise ValueError(
                f"embedder: found vectors of shape {vectors.shape} for {len(chunk.sentences)} sentences, expected "
                f"({len(chunk.sentences)}, d)"
            )
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise ValueError(
                f"embedder: found a number that is not finite in the vector of {chunk.sentences[bad[0]][:60]!r}, a "
                f"sentence of document {chunk.documents[bad[0]]}, expected finite numbers. Look at the model"
            )
        self.truncated_ += getattr(getattr(self.embedder, "last_report", None), "truncated", 0)
        return vectors

    def _weighted(self, chunk: SentenceChunk) -> tuple[np.ndarray, np.ndarray]:
        vectors = self._embed(chunk)
        weights = np.ones(len(vectors))
        if self.densities_:
            for language, rows in rows_by_language(chunk.languages, len(vectors)).items():
                weights[rows] = self.densities_[language].weights(vectors[rows])
        if self.debiaser_ is not None:
            vectors = self.debiaser_.transform(vectors, chunk.languages)
        return vectors * weights[:, None], weights


class _Reservoir:
    """A uniform sample of a stream of vectors: those of the lowest random keys, however the stream is cut."""

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._rng = np.random.default_rng(seed)
        self._keys = np.empty(0)
        self._kept: np.ndarray | None = None  # (up to size, d)

    def add(self, vectors: np.ndarray) -> None:
        keys = self._rng.random(len(vectors))
        if len(self._keys) == self._size:
            low = np.flatnonzero(keys < self._keys.max())
            keys, vectors = keys[low], vectors[low]
        keys = np.concatenate([self._keys, keys])
        lowest = np.argsort(keys)[: self._size]
        self._kept = vectors[lowest] if self._kept is None else np.concatenate([self._kept, vectors])[lowest]
        self._keys = keys[lowest]

    def vectors(self) -> np.ndarray:
        return self._kept


def _name_of(split: Split) -> str:
    return f"{split.__module__}.{getattr(split, '__qualname__', type(split).__qualname__)}"
