"""LAWDR: document vectors without their language, of sentences weighted by how rare they are.

Gong et al. (2021).

```python
from tmde.documents import Lawdr
from tmde.embedding.document_embedder import DocumentEmbedder

lawdr = Lawdr(DocumentEmbedder.from_pretrained("path/to/checkpoint"), rank=4)
vectors = lawdr.fit_transform(documents, languages)  # n texts and their n codes -> (n, d)
```
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from modeling_tmde import TmdeError
from tmde.data.io import replacing
from tmde.documents.debiased_rank import MOST_VECTORS, gram
from tmde.documents.language_debiaser import LanguageDebiaser, Rank, rows_by_language
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.progress import progress_bar
from tmde.embedding.sentence_density import SentenceDensity
from tmde.embedding.sentences import split_sentences

Document = str | Sequence[str]

FILE_NAME = "lawdr.npz"
PAPER_DENSITY = SentenceDensity()
_RANK_SEED = 42  # of the sentences by which the rank is chosen
_CHUNK = 8192  # sentences embedded at once, not counting the rest of the last document


class Lawdr:
    """LAWDR: language-agnostic weighted document representations (Gong et al., 2021).

    The dominant directions of each language are removed from its sentence vectors, which are
    averaged with weights w = b / (b + P(s)), where P is the density of the language's vectors
    before debiasing (algorithm 1, eq. 3). Unlike in eq. 3, the sum of w v is divided by the sum of
    the weights, so it does not grow with the document.

    `fit` and `transform` each read documents once, so any iterable works.

    Args:
        embedder: A `DocumentEmbedder`, or any object with `encode(list of n str) -> (n, d)`.
        rank: The number of directions to remove, for all languages or by language. `"auto"` chooses
            the smallest of 0, 1, 2, 4, 8 ... that hides the language (section 10.1); it requires at
            least two languages with 100 sentences each.
        density: A `SentenceDensity` with the settings for every language; None for a plain mean.
        debias: Whether to remove directions.

    Attributes:
        languages_: The fitted language codes, sorted.
        debiaser_: The `LanguageDebiaser`, or None.
        densities_: The `SentenceDensity` of each language; empty without weighting.
        truncated_: The number of sentences truncated in the last `fit` or `transform`.

    Example:
        ```python
        from tmde import DocumentEmbedder
        from tmde.documents import Lawdr

        german = ["Die Brücke ist zu. Es regnet.", "Der Zug fährt. Er ist pünktlich."]
        english = ["The bridge is closed. It rains.", "The train runs. It is on time."]
        lawdr = Lawdr(DocumentEmbedder.from_pretrained(), rank=1)
        lawdr.fit([*german, *english], languages=["de", "de", "en", "en"])
        vectors = lawdr.transform(german, languages="de")
        ```
    """

    def __init__(
        self,
        embedder: Any,
        rank: Rank = 1,
        density: SentenceDensity | None = PAPER_DENSITY,
        debias: bool = True,
    ) -> None:
        self.embedder = embedder
        self.rank = rank
        self.density = density
        self.debias = debias

    def fit(self, documents: Iterable[Document], languages: str | Iterable[str]) -> Lawdr:
        """Learn the directions and densities of each language in one pass.

        Args:
            documents: Texts to split into sentences, or lists of sentences. Blank sentences are
                dropped.
            languages: One code for all documents, or one per document.

        Raises:
            TmdeError: There are no documents, a document has no sentence, the number of codes is
                wrong, a language has fewer sentences than the rank (or too few for `"auto"`), or
                vectors are not finite.
        """
        grams: dict[str, np.ndarray] = {}
        density_samples = _Samples.for_density(self.density)
        rank_samples = _Samples(MOST_VECTORS, _RANK_SEED)
        self.truncated_ = 0
        for chunk in sentence_chunks(documents, languages):
            vectors = self._embed(chunk)
            for language, rows in rows_by_language(chunk.languages, len(vectors)).items():
                language_vectors = vectors[rows]
                grams[language] = grams.get(language, 0) + gram(language_vectors)
                density_samples.add(language, language_vectors)
                rank_samples.add(language, language_vectors)
        if not grams:
            raise TmdeError("documents: found none, expected at least one")
        self.languages_ = sorted(grams)
        self.debiaser_ = None
        if self.debias:
            self.debiaser_ = LanguageDebiaser(self.rank).fit_grams(grams, rank_samples.vectors)
        self.densities_ = {}
        if self.density is None:
            return self
        for language, sample in sorted(density_samples.vectors.items()):
            if len(sample) < 2:
                raise TmdeError(
                    f"documents: found one sentence of {language!r}, expected at least 2 for "
                    "a density"
                )
            # A copy of the settings is fitted, because each language has a density of its own.
            self.densities_[language] = replace(self.density).fit(sample)
        return self

    def transform(
        self, documents: Iterable[Document], languages: str | Iterable[str]
    ) -> np.ndarray:
        """Return one vector per document, (n, d) float32.

        Args:
            documents: As for `fit`.
            languages: As for `fit`; all must have been fitted.

        Raises:
            TmdeError: A language was not fitted, or as for `fit`.
            NotFittedError: Nothing was fitted.
        """
        self._check_fitted()
        self.truncated_ = 0
        parts = []
        for chunk in sentence_chunks(documents, languages, self.languages_):
            vectors = self._embed(chunk)
            weights = self._weights(vectors, chunk.languages)  # (sentences, 1)
            if self.debiaser_ is not None:
                vectors = self.debiaser_.transform(vectors, chunk.languages)
            # All sentences of a document are in one chunk, so a new number begins a document.
            starts = np.flatnonzero(np.diff(chunk.document_numbers, prepend=-1))
            sums = np.add.reduceat(vectors * weights, starts)  # (documents, d)
            total_weights = np.add.reduceat(weights, starts)  # (documents, 1)
            parts.append((sums / total_weights).astype(np.float32))
        if not parts:
            raise TmdeError("documents: found none, expected at least one")
        return np.concatenate(parts)

    def fit_transform(
        self, documents: Iterable[Document], languages: str | Iterable[str]
    ) -> np.ndarray:
        """Fit and transform the same documents, embedding them twice.

        Args:
            documents: As for `fit`, but not an iterator.
            languages: As for `fit`, but not an iterator.

        Raises:
            TypeError: An iterator was given.
            TmdeError: As for `fit`.
        """
        if isinstance(documents, Iterator) or isinstance(languages, Iterator):
            raise TypeError(
                "documents, languages: found an iterator, which can be read only once; "
                "expected a list"
            )
        return self.fit(documents, languages).transform(documents, languages)

    def save(self, folder: str | os.PathLike) -> None:
        """Write or replace `lawdr.npz`, which contains everything except the embedder.

        Raises:
            NotFittedError: Nothing was fitted.
        """
        self._check_fitted()
        settings = {
            "rank": self.rank,
            "debias": self.debias,
            "density": None if self.density is None else asdict(self.density),
        }
        about = {"settings": settings, "languages": self.languages_}
        arrays: dict[str, Any] = {"about": np.array(json.dumps(about, default=np.generic.item))}
        for number, language in enumerate(self.languages_):
            if self.debiaser_ is not None:
                arrays[f"{number}/directions"] = self.debiaser_.components_[language]
            if language in self.densities_:
                for name, array in self.densities_[language].to_arrays().items():
                    arrays[_density_key(number, name)] = array
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / FILE_NAME) as temporary:
            np.savez(temporary, **arrays)

    @classmethod
    def load(cls, folder: str | os.PathLike, embedder: Any) -> Lawdr:
        """Load what `save` wrote.

        Args:
            folder: The folder of `lawdr.npz`.
            embedder: The embedder used for fitting.

        Raises:
            FileNotFoundError: The folder has no `lawdr.npz`.
        """
        with np.load(Path(folder) / FILE_NAME, allow_pickle=False) as file:
            arrays = dict(file)
        about = json.loads(str(arrays["about"]))
        settings = about["settings"]
        density = None
        if settings["density"] is not None:
            density = SentenceDensity(**settings["density"])
        lawdr = cls(embedder, rank=settings["rank"], density=density, debias=settings["debias"])
        lawdr.languages_ = about["languages"]
        lawdr.truncated_ = 0
        lawdr.debiaser_ = None
        if lawdr.debias:
            directions = {}
            for number, language in enumerate(lawdr.languages_):
                directions[language] = arrays[f"{number}/directions"]
            lawdr.debiaser_ = LanguageDebiaser.from_components(lawdr.rank, directions)
        lawdr.densities_ = {}
        if lawdr.density is not None:
            for number, language in enumerate(lawdr.languages_):
                learned = _density_arrays(arrays, number)
                lawdr.densities_[language] = SentenceDensity.from_arrays(learned)
        return lawdr

    @property
    def rank_(self) -> int | Mapping[str, int]:
        """The rank in use: `rank`, or what `"auto"` found; 0 without debiasing."""
        self._check_fitted()
        return 0 if self.debiaser_ is None else self.debiaser_.rank_

    def _check_fitted(self) -> None:
        if not hasattr(self, "languages_"):
            raise NotFittedError("Lawdr is not fitted: call `fit` first")

    def _embed(self, chunk: SentenceChunk) -> np.ndarray:
        """Return the vectors of sentences, (sentences, d), and count the truncated ones."""
        if not isinstance(self.embedder, DocumentEmbedder):
            return np.asarray(self.embedder.encode(chunk.sentences))
        codes = chunk.languages if self.embedder.needs_language else None
        vectors, report = self.embedder.encode_with_report(
            chunk.sentences, language=codes, show_progress_bar=False
        )
        self.truncated_ += report.truncated
        return np.asarray(vectors)

    def _weights(self, vectors: np.ndarray, languages: list[str]) -> np.ndarray:
        """Return the weight of each sentence, (sentences, 1), by the density of its language."""
        weights = np.ones((len(vectors), 1))
        if self.densities_:
            for language, rows in rows_by_language(languages, len(vectors)).items():
                weights[rows, 0] = self.densities_[language].weights(vectors[rows])
        return weights


def _density_key(number: int, name: str) -> str:
    return f"{number}/density/{name}"


def _density_arrays(arrays: Mapping[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    """Return what the density of a language has learned, by name."""
    prefix = _density_key(number, "")
    learned = {}
    for key, array in arrays.items():
        if key.startswith(prefix):
            learned[key.removeprefix(prefix)] = array
    return learned


class _Samples:
    """A uniform sample of the vectors of each language, which come in parts.

    Args:
        size: The number of vectors of a language; 0 keeps none.
        seed: The seed of the draw.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seed = seed
        self._reservoirs: dict[str, _Reservoir] = {}

    @classmethod
    def for_density(cls, density: SentenceDensity | None) -> _Samples:
        """Return empty samples as large as a density needs them; for None, they stay empty."""
        if density is None:
            return cls(0, 0)
        return cls(density.sample, density.seed)

    def add(self, language: str, vectors: np.ndarray) -> None:
        """Let vectors of a language, (n, d), into its sample."""
        if language not in self._reservoirs:
            self._reservoirs[language] = _Reservoir(self.size, self.seed, like=vectors)
        self._reservoirs[language].add(vectors)

    @property
    def vectors(self) -> dict[str, np.ndarray]:
        """The sample of each language, (up to `size`, d)."""
        return {language: sample.vectors for language, sample in self._reservoirs.items()}


class _Reservoir:
    """A uniform sample of a stream of vectors: those of the lowest random keys, however it is cut.

    Attributes:
        vectors: The sample, (up to `size`, d).

    Args:
        size: The number of vectors in the sample.
        seed: The seed of the keys.
        like: Vectors, (n, d), whose dimension and type are those of the sample.
    """

    def __init__(self, size: int, seed: int, like: np.ndarray) -> None:
        self.size = size
        self.rng = np.random.default_rng(seed)
        self.keys = np.empty(0)
        self.vectors = like[:0]

    def add(self, vectors: np.ndarray) -> None:
        """Let vectors, (n, d), into the sample."""
        keys = np.concatenate([self.keys, self.rng.random(len(vectors))])
        lowest = np.argsort(keys)[: self.size]
        self.keys = keys[lowest]
        self.vectors = np.concatenate([self.vectors, vectors])[lowest]


# ---- Sentences


@dataclass
class SentenceChunk:
    """The sentences of some documents.

    Attributes:
        document_numbers: The document of each sentence.
        languages: The code of each sentence.
        sentences: The sentences.
    """

    document_numbers: list[int] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)


def sentence_chunks(
    documents: Iterable[Document],
    languages: str | Iterable[str],
    known: Sequence[str] | None = None,
) -> Iterator[SentenceChunk]:
    """Yield the sentences of some documents at a time, 8,192 or a few more.

    Args:
        documents: As for `Lawdr.fit`.
        languages: As for `Lawdr.fit`.
        known: The languages that there may be; None for any.

    Raises:
        TmdeError: A document without a sentence, an unknown language, not as many codes as
            documents.
    """
    # A table is an iterable, too, but of the names of its columns.
    is_table = hasattr(documents, "columns")
    if isinstance(documents, str) or is_table:
        raise TmdeError(
            f"documents: found one {type(documents).__name__}, expected an iterable of documents"
        )
    total = _length(documents)
    chunk = SentenceChunk()
    pairs = _documents_with_language(documents, languages)
    for number, (document, language) in enumerate(
        progress_bar(pairs, desc="Documents", unit="", total=total)
    ):
        if known is not None and language not in known:
            raise TmdeError(
                f"languages: found {language!r} for document {number}, expected one of the "
                f"fitted languages: {', '.join(known)}. Fit documents in all languages"
            )
        sentences = _sentences_of(document, language)
        if not sentences:
            raise TmdeError(
                f"documents: document {number} is empty, expected at least one sentence"
            )
        chunk.document_numbers += [number] * len(sentences)
        chunk.languages += [language] * len(sentences)
        chunk.sentences += sentences
        if len(chunk.sentences) >= _CHUNK:
            yield chunk
            chunk = SentenceChunk()
    if chunk.sentences:
        yield chunk


def _length(items: object) -> int | None:
    return len(items) if hasattr(items, "__len__") else None


def _documents_with_language(
    documents: Iterable[Document], languages: str | Iterable[str]
) -> Iterator[tuple[Document, str]]:
    """Return each document with its code.

    Raises:
        TmdeError: There are not as many codes as documents.
    """
    if isinstance(languages, str):
        return zip(documents, itertools.repeat(languages), strict=False)
    document_count = _length(documents)
    code_count = _length(languages)
    both_known = document_count is not None and code_count is not None
    if both_known and code_count != document_count:
        raise TmdeError(
            f"languages: found {code_count}, expected {document_count}, one for each document"
        )
    return zip(documents, languages, strict=True)


def _sentences_of(document: Document, language: str) -> list[str]:
    """Return the sentences of a document that are not blank."""
    if isinstance(document, str):
        document = split_sentences(document, language)
    return [sentence for sentence in document if sentence.strip()]
