"""Systems under evaluation: embedders, and a TF-IDF baseline."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from modeling_tmde import TmdeError
from tmde.data.io import replacing
from tmde.data.model_languages import LanguageWatch
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.document_embedder import logger as embedding_logger
from tmde.eval.model_fingerprint import Role, model_fingerprint, prompt_of_role
from tmde.eval.tasks.base import text_fingerprint

# The code of one language for all texts, one code per text, or None where it plays no part.
Language = str | Sequence[str] | None


def default_cache_dir() -> Path:
    """Return `$TMDE_CACHE`, or `tmde` in the user's cache folder."""
    cache_of_tmde = os.environ.get("TMDE_CACHE")
    if cache_of_tmde:
        return Path(cache_of_tmde)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "tmde"


def _is_not_on_truncation(record: logging.LogRecord) -> bool:
    return record.funcName != DocumentEmbedder.warn_of_truncation.__name__


@contextmanager
def _truncation_counted() -> Iterator[None]:
    """Hold back the embedder's warnings of truncated texts, and nothing else that it logs.

    A system counts these texts, and their number is reported once per task.
    """
    embedding_logger.addFilter(_is_not_on_truncation)
    try:
        yield
    finally:
        embedding_logger.removeFilter(_is_not_on_truncation)


class System(Protocol):
    """A way to turn texts into vectors.

    Attributes:
        name: The name in tables.
        dense: Whether vectors are dense float32 matrices; otherwise they are sparse (CSR).
        texts: The number of different texts that were represented since `begin`.
        truncated: The number of them that were longer than the system's limit.
        seconds: The time that their encoding took since `begin`; 0 where all came from a cache.
        cpu_seconds: The time that the processor's cores worked on it, all together.
    """

    name: str
    dense: bool
    texts: int
    truncated: int
    seconds: float
    cpu_seconds: float

    @property
    def fingerprint(self) -> str:
        """A hash of everything that affects the vectors, for the cache of results."""

    def begin(self) -> None:
        """Start a new task: reset the counts, and forget what was kept for the last task."""

    def describe(self) -> dict[str, str | int]:
        """Return how texts become vectors, for the report."""

    def represent(
        self,
        texts: Sequence[str],
        fit_on: Sequence[str],
        language: Language = None,
        role: Role = None,
        fit_language: Language = None,
    ) -> np.ndarray | scipy.sparse.csr_matrix:
        """Return the vectors of texts.

        Args:
            texts: n texts.
            fit_on: The texts on which a representation may be fitted. In classification they are
                those of the training language, in retrieval both sides of the pool. A pretrained
                embedder ignores them.
            language: The language of the texts. Only an embedder that has an encoder for each
                language, or that splits texts into sentences, uses it.
            role: What the texts are in a search. An embedder puts its prompt for queries or for
                documents before them.
            fit_language: The language of `fit_on`, or of each of its texts; only classification
                says it. A system that translates uses it.

        Returns:
            A matrix of shape (n, d).
        """


@dataclass(frozen=True)
class _Counts:
    """How many texts were encoded, and how many of them were truncated."""

    texts: int
    truncated: int


class EmbeddingSystem:
    """A `DocumentEmbedder` that caches its vectors on disk and, during a task, in memory.

    Args:
        name: The name in tables.
        embedder: The loaded embedder.
        cache: The folder for vectors, `vectors/<fingerprint>/<key of the texts>.npz`. Damaged files
            are recomputed. None disables the disk cache.
        show_progress_bar: See `DocumentEmbedder.encode`.
    """

    # The size of the vectors that stay in memory where a cache on disk has them, too.
    MAX_BYTES_IN_MEMORY = 2 * 2**30
    dense = True

    def __init__(
        self,
        name: str,
        embedder: DocumentEmbedder,
        cache: Path | None = None,
        show_progress_bar: bool | None = None,
    ) -> None:
        self.name = name
        self.embedder = embedder
        self.cache = cache
        self.show_progress_bar = show_progress_bar
        languages = getattr(embedder.model.config, "languages", None)
        # The languages that the model was trained on; None where they are unknown.
        self.languages: tuple[str, ...] | None = tuple(languages) if languages else None
        self._watch = LanguageWatch(embedder)
        self.begin()

    @cached_property
    def fingerprint(self) -> str:
        """The `model_fingerprint` of the embedder, computed once per task."""
        return model_fingerprint(self.embedder)

    def begin(self) -> None:
        """Start a new task, for which the model may have changed: reset all counts and caches."""
        self.__dict__.pop("fingerprint", None)
        self.texts = 0
        self.truncated = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self._vectors_in_memory: dict[str, np.ndarray] = {}
        self._counted_keys: set[str] = set()
        # By role, the prompts that were used.
        self._role_prompts: dict[str, str] = {}

    def warn_of_languages(self, languages: Sequence[str]) -> None:
        """Warn once about each language that the model does not support."""
        self._watch.check_codes(languages)

    def describe(self) -> dict[str, str | int]:
        """Return how texts become vectors, with the prompts used by the task."""
        embedder = self.embedder
        description: dict[str, str | int] = {
            "pooling": embedder.pooling,
            "max_length": embedder.max_length,
            "dtype": embedder.arithmetic,
        }
        if embedder.prompt:
            description["prompt"] = embedder.prompt
        for role, prompt in self._role_prompts.items():
            if prompt != embedder.prompt:
                description[f"{role}_prompt"] = prompt
        if embedder.long_documents != "truncate":
            description |= embedder.long_document_settings
        return description

    def represent(
        self,
        texts: Sequence[str],
        fit_on: Sequence[str] = (),
        language: Language = None,
        role: Role = None,
        fit_language: Language = None,
    ) -> np.ndarray:
        """Return the vectors of texts, from a cache or computed.

        Args:
            texts: n texts.
            fit_on: Not used.
            language: The language of all texts, or of each text.
            role: The role of the texts in a search, which selects their prompt.
            fit_language: Not used.

        Returns:
            (n, d) float32.

        Raises:
            TmdeError: A vector is not finite, or the model does not support the language.
        """
        texts = list(texts)
        prompt = prompt_of_role(self.embedder, role)
        if role is not None:
            self._role_prompts[role] = prompt
        key = self._key_of_texts(texts, language, prompt)
        vectors = self._vectors_in_memory.get(key)
        if vectors is None:
            vectors, counts = self._read_or_encode(key, texts, language, prompt)
            self._count(key, counts)
            self._keep_in_memory(key, vectors)
        return vectors

    def _key_of_texts(self, texts: list[str], language: Language, prompt: str) -> str:
        """Return a hash of the texts, and of languages and prompt where vectors depend on these."""
        columns: list[Sequence[str | None]] = [texts]
        if self.embedder.needs_language or self.embedder.long_documents == "sentences":
            if language is None or isinstance(language, str):
                columns.append([language] * len(texts))
            else:
                columns.append(language)
        if prompt != self.embedder.prompt:
            # The fingerprint of the model covers its own prompt.
            columns.append(["prompt", prompt])
        return text_fingerprint(*columns)

    def _count(self, key: str, counts: _Counts) -> None:
        """Add the texts to the counts of the task, unless they were counted before."""
        if key in self._counted_keys:
            return
        self._counted_keys.add(key)
        self.texts += counts.texts
        self.truncated += counts.truncated

    def _keep_in_memory(self, key: str, vectors: np.ndarray) -> None:
        self._vectors_in_memory[key] = vectors
        if self.cache is None:
            return
        size = sum(array.nbytes for array in self._vectors_in_memory.values())
        while size > self.MAX_BYTES_IN_MEMORY:
            # The oldest vectors go first. They can be read from the disk.
            oldest_key = next(iter(self._vectors_in_memory))
            size -= self._vectors_in_memory.pop(oldest_key).nbytes

    def _read_or_encode(
        self, key: str, texts: list[str], language: Language, prompt: str
    ) -> tuple[np.ndarray, _Counts]:
        """Return vectors and counts from the cache on disk, or compute and store them."""
        if self.cache is None:
            return self._encode(texts, language, prompt)
        path = self.cache / "vectors" / self.fingerprint / f"{key}.npz"
        cached = _read_cached(path)
        if cached is not None:
            return cached
        vectors, counts = self._encode(texts, language, prompt)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            np.savez(temporary, vectors=vectors, counts=np.array(json.dumps(asdict(counts))))
        return vectors, counts

    def _encode(
        self, texts: list[str], language: Language, prompt: str
    ) -> tuple[np.ndarray, _Counts]:
        cpu_start = time.process_time()
        with _truncation_counted():
            vectors, report = self.embedder.encode_with_report(
                texts,
                show_progress_bar=self.show_progress_bar,
                language=language,
                prompt=prompt,
            )
        array = np.asarray(vectors)
        self._check_finite(array)
        self.seconds += report.seconds
        self.cpu_seconds += time.process_time() - cpu_start
        return array, _Counts(report.texts, report.truncated)

    def _check_finite(self, vectors: np.ndarray) -> None:
        is_finite = np.isfinite(vectors).all(axis=1)
        if is_finite.all():
            return
        damaged_rows = np.flatnonzero(~is_finite)
        raise TmdeError(
            f"{self.name}: found a vector that is not finite for text {damaged_rows[0]}, one "
            f"of {len(damaged_rows)} such texts out of {len(vectors)}. Is the checkpoint "
            "damaged, or its dtype too narrow?"
        )


def _read_cached(path: Path) -> tuple[np.ndarray, _Counts] | None:
    """Return the vectors and counts of a file of the cache; None if it is missing or damaged."""
    if not path.is_file():
        return None
    try:
        with np.load(path) as stored:
            return stored["vectors"], _Counts(**json.loads(str(stored["counts"])))
    except Exception:
        # A damaged archive raises almost anything. It is made again, and loses nothing.
        return None


class CharacterTfidf:
    """A TF-IDF baseline over character 2- to 5-grams within words.

    Document frequencies and the vocabulary (n-grams in at least two texts) come from the texts to
    fit on. The vectors match scikit-learn's `TfidfVectorizer(analyzer="char_wb",
    ngram_range=(2, 5), sublinear_tf=True, min_df=2)`, except that n-grams are hashed to 2^22
    columns.

    Args:
        name: The name in tables.
    """

    COLUMNS = 2**22
    MIN_DOCUMENT_FREQUENCY = 2
    dense = False
    texts = 0
    truncated = 0

    def __init__(self, name: str = "TF-IDF") -> None:
        self.name = name
        self.fingerprint = text_fingerprint(["char_wb 2-5 sublinear min_df=2", str(self.COLUMNS)])
        self._vectorizer = HashingVectorizer(
            analyzer="char_wb",
            ngram_range=(2, 5),
            n_features=self.COLUMNS,
            alternate_sign=False,
            norm=None,
        )
        self.begin()

    def begin(self) -> None:
        """Start a new task: forget all n-gram counts."""
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self._row_of_text: dict[str, int] = {}
        self._counts = scipy.sparse.csr_matrix((0, self.COLUMNS), dtype=np.float32)

    def describe(self) -> dict[str, str | int]:
        """Return how texts become rows."""
        return {"ngrams": "characters 2 to 5, within words", "columns": self.COLUMNS}

    def represent(
        self,
        texts: Sequence[str],
        fit_on: Sequence[str],
        language: Language = None,
        role: Role = None,
        fit_language: Language = None,
    ) -> scipy.sparse.csr_matrix:
        """Return the TF-IDF rows of texts.

        Args:
            texts: n texts.
            fit_on: The texts that define document frequencies and columns.
            language: Not used.
            role: Not used.
            fit_language: Not used.

        Returns:
            A sparse (n, number of n-grams in `fit_on`) matrix of rows with length 1.

        Raises:
            TmdeError: No n-gram is in two texts of `fit_on`.
        """
        fitted_counts = self._count_ngrams(fit_on)
        document_frequencies = np.bincount(fitted_counts.indices, minlength=self.COLUMNS)
        columns = np.flatnonzero(document_frequencies >= self.MIN_DOCUMENT_FREQUENCY)
        if len(columns) == 0:
            raise TmdeError(f"TF-IDF: found no n-gram in two of the {len(fit_on)} texts to fit on")
        num_documents = fitted_counts.shape[0]
        inverse_frequencies = np.log((1 + num_documents) / (1 + document_frequencies[columns])) + 1
        rows = self._count_ngrams(texts)[:, columns]
        inverse_frequencies = inverse_frequencies.astype(np.float32)
        rows.data = (1 + np.log(rows.data)) * inverse_frequencies[rows.indices]
        return normalize(rows, copy=False)

    def _count_ngrams(self, texts: Sequence[str]) -> scipy.sparse.csr_matrix:
        """Return the counts of n-grams, (n, COLUMNS). Every different text is counted once."""
        new_texts = [text for text in dict.fromkeys(texts) if text not in self._row_of_text]
        if new_texts:
            start = time.perf_counter()
            cpu_start = time.process_time()
            new_counts = self._vectorizer.transform(new_texts).astype(np.float32)
            self.seconds += time.perf_counter() - start
            self.cpu_seconds += time.process_time() - cpu_start
            for text in new_texts:
                self._row_of_text[text] = len(self._row_of_text)
            self._counts = scipy.sparse.vstack([self._counts, new_counts], format="csr")
        return self._counts[[self._row_of_text[text] for text in texts]]
