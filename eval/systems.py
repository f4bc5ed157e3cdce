"""Systems under evaluation: embedders, and a TF-IDF baseline.

A system turns texts into vectors: `represent(texts, fit_on, language)` gives a (len(texts), d) matrix, dense float32
or CSR (`dense` tells which). A representation may be fitted on the texts `fit_on`: in classification those of the
training language only, in retrieval both sides of the pool. A pretrained embedder ignores them. `language` is the
code of the texts' language, or one code per text; only an embedder with an encoder for each language uses it. `begin`
starts a new task; since then, `truncated` of the different `texts` were longer than the limit, and encoding took
`seconds` (0 from a cache). `name` and `describe()` are for the report, `fingerprint` for the cache of results.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from modeling_tmde import TmdeError
from tmde import __version__
from tmde.data.cpus import usable_cpus
from tmde.data.io import replacing
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.document_embedder import logger as embedding_logger
from tmde.eval.imported_code import imported_files
from tmde.eval.tasks.base import text_fingerprint

# Distributions that decide numbers. A test holds them against what the code imports.
PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "numpy", "safetensors")
PACKAGES += ("scikit-learn", "scipy", "sentencex")
PACKAGES += ("faiss", "faiss-cpu", "faiss-gpu")  # faiss has one name a channel and build


def default_cache_dir() -> Path:
    """`$TMDE_CACHE`, or `tmde` in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TMDE_CACHE") or Path(cache) / "tmde")


class EmbeddingSystem:
    """A `DocumentEmbedder` with cached vectors; those of the current task also stay in memory.

    Args:
        name: In tables.
        embedder: Loaded embedder.
        cache: Folder where vectors are kept, in `vectors/<fingerprint>/<key of the texts>.npz`, so that a second
            evaluation takes seconds. A damaged file is computed again. None keeps none.
        show_progress_bar, batch_tokens: As for `DocumentEmbedder.encode`. On a CPU smaller batches, which fit into
            its caches, are faster.
    """

    KEPT_BYTES = 2 * 2**30  # of vectors in memory, where there is a cache on disk
    dense = True

    def __init__(
        self,
        name: str,
        embedder: DocumentEmbedder,
        cache: Path | None = None,
        show_progress_bar: bool | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        self.name = name
        self.embedder = embedder
        self.cache = cache
        batch_tokens = batch_tokens or (8192 if embedder.device.type == "cpu" else 16384)
        self.options = {"show_progress_bar": show_progress_bar, "batch_tokens": batch_tokens}
        languages = getattr(embedder.model.config, "languages", None)
        self.languages: tuple[str, ...] | None = (
            tuple(languages) if languages else None
        )  # trained on; None: unknown
        self.begin()

    @cached_property
    def fingerprint(self) -> str:
        """See `model_fingerprint`; computed once per task."""
        return model_fingerprint(self.embedder)

    def begin(self) -> None:
        """Starts a new task: resets counts, vectors and fingerprint, because the model may have been trained since."""
        self.__dict__.pop("fingerprint", None)
        self.texts = self.truncated = 0
        self.seconds = 0.0
        self._recent: dict[str, np.ndarray] = {}
        self._counted: set[str] = set()

    def describe(self) -> dict[str, str | int]:
        """How texts become vectors."""
        embedder = self.embedder
        long = embedder.long_document_settings if embedder.long_documents != "truncate" else {}
        dtype = str(embedder.model.dtype).removeprefix("torch.")
        prompt = {"prompt": embedder.prompt} if embedder.prompt else {}
        return {
            "pooling": embedder.pooling,
            "max_length": embedder.max_length,
            "dtype": dtype,
            **prompt,
            **long,
        }

    def represent(
        self,
        texts: Sequence[str],
        fit_on: Sequence[str] = (),
        language: str | Sequence[str] | None = None,
    ) -> np.ndarray:
        """Vectors (n, d) float32.

        Raises:
            ValueError: A vector that is not finite, or a language that the model does not have.
        """
        texts = list(texts)
        columns = [texts]
        # The same text may have another vector, or other sentences, in each language.
        if self.embedder.needs_language or self.embedder.long_documents == "sentences":
            columns.append(
                [language] * len(texts)
                if language is None or isinstance(language, str)
                else language
            )
        key = text_fingerprint(*columns)
        if key not in self._recent:
            vectors, counts = self._cached(key, texts, language)
            if key not in self._counted:
                self._counted.add(key)
                self.texts += counts["texts"]
                self.truncated += counts["truncated"]
            self._recent[key] = vectors
            while (
                self.cache and sum(kept.nbytes for kept in self._recent.values()) > self.KEPT_BYTES
            ):
                del self._recent[next(iter(self._recent))]  # the oldest; it is on disk
            return vectors
        return self._recent[key]

    def _cached(
        self, key: str, texts: list[str], language: str | Sequence[str] | None
    ) -> tuple[np.ndarray, dict[str, int]]:
        """Vectors and counts, read or computed and kept."""
        if self.cache is None:
            return self._encode(texts, language)
        path = self.cache / "vectors" / self.fingerprint / f"{key}.npz"
        try:
            with np.load(path) as stored:
                return stored["vectors"], json.loads(str(stored["counts"]))
        except Exception:  # none yet, or damaged in whatever way
            vectors, counts = self._encode(texts, language)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            np.savez(temporary, vectors=vectors, counts=np.array(json.dumps(counts)))
        return vectors, counts

    def _encode(
        self, texts: list[str], language: str | Sequence[str] | None
    ) -> tuple[np.ndarray, dict[str, int]]:
        embedding_logger.disabled = True  # truncated texts are counted, and reported once per task
        try:
            vectors, report = self.embedder.encode_with_report(
                texts, language=language, **self.options
            )
        finally:
            embedding_logger.disabled = False
        if len(bad := np.flatnonzero(~np.isfinite(vectors).all(axis=1))):
            found = f"a vector that is not finite for text {bad[0]}, and for {len(bad)} of {len(texts)} texts in all"
            raise TmdeError(
                f"{self.name}: found {found}. Is the checkpoint damaged, or its dtype too small?"
            )
        self.seconds += report.seconds
        return vectors, {"texts": report.texts, "truncated": report.truncated}


def model_fingerprint(embedder: DocumentEmbedder) -> str:
    """SHA-256 (16 hex digits) of all that affects vectors.

    These are weights, config, tokenizer, prompt, limits, code, and the version of the library that finds sentences.
    """
    digest = hashlib.sha256()
    classes = (DocumentEmbedder, type(embedder), type(embedder.model))
    for file in imported_files(*[one.__module__ for one in classes]):
        digest.update(file.read_bytes())
    # The pooler of a Hub encoder is never used, and random at each start where the checkpoint has none.
    weights = {
        name: tensor
        for name, tensor in embedder.model.state_dict().items()
        if not name.startswith("pooler.")
    }
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    tokenizer = embedder.tokenizer.get_vocab()
    if (
        embedder.tokenizer.is_fast
    ):  # without the truncation and padding that the last call left behind
        tokenizer = json.loads(embedder.tokenizer.backend_tokenizer.to_str()) | {
            "truncation": None,
            "padding": None,
        }
    settings = [
        {**embedder.model.config.to_dict(), "_name_or_path": None},
        tokenizer,
        [type(embedder.model).__name__, embedder.pooling, embedder.prompt, embedder.max_length],
        embedder.long_document_settings,
        ["sentencex", metadata.version("sentencex")],
    ]
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]


class CharacterTfidf:
    """TF-IDF baseline over character 2- to 5-grams within words.

    Document frequencies and vocabulary (n-grams in at least two texts) come from `fit_on`. Equals scikit-learn's
    `TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2)`, except that n-grams are
    hashed to 2^22 columns, so that each text is counted only once for all fits.
    """

    COLUMNS = 2**22
    dense = False
    texts = truncated = 0

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
        """Starts a new task: forgets the n-gram counts of the last one."""
        self.seconds = 0.0
        self._rows: dict[str, int] = {}
        self._counts = scipy.sparse.csr_matrix((0, self.COLUMNS), dtype=np.float32)

    def describe(self) -> dict[str, str | int]:
        """How texts become rows."""
        return {"ngrams": "characters 2 to 5, within words", "columns": self.COLUMNS}

    def represent(
        self,
        texts: Sequence[str],
        fit_on: Sequence[str],
        language: str | Sequence[str] | None = None,
    ) -> scipy.sparse.csr_matrix:
        """L2-normalized rows (n, columns found in `fit_on`), whatever the language.

        Raises:
            ValueError: `fit_on` shares no n-gram between two texts.
        """
        fitted = self._count(fit_on)
        frequency = np.bincount(fitted.indices, minlength=self.COLUMNS)
        columns = np.flatnonzero(frequency >= 2)
        if not len(columns):
            raise TmdeError(
                f"TF-IDF: found no n-gram in two of the {len(fit_on)} texts to fit on, expected some"
            )
        inverse = np.log((1 + fitted.shape[0]) / (1 + frequency[columns])) + 1
        chosen = self._count(texts)[:, columns]
        chosen.data = (1 + np.log(chosen.data)) * inverse.astype(np.float32)[chosen.indices]
        return normalize(chosen, copy=False)

    def _count(self, texts: Sequence[str]) -> scipy.sparse.csr_matrix:
        """(n, COLUMNS) counts of n-grams; every different text is counted once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if new:
            start = time.perf_counter()
            counted = self._vectorizer.transform(new).astype(np.float32)
            self.seconds += time.perf_counter() - start
            self._rows |= {text: len(self._rows) + place for place, text in enumerate(new)}
            self._counts = scipy.sparse.vstack([self._counts, counted], format="csr")
        return self._counts[[self._rows[text] for text in texts]]


System = EmbeddingSystem | CharacterTfidf


def environment() -> dict[str, object]:
    """The versions of this package, of Python and of the packages that decide the numbers, and the machine."""
    versions = {
        each.name: each.version for each in metadata.distributions() if each.name in PACKAGES
    }
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    host = {"processor": platform.machine(), "cpus": usable_cpus()}
    host |= {"threads": torch.get_num_threads(), "gpus": gpus}
    return {
        "tmde": __version__,
        "versions": versions,
        "python": platform.python_version(),
        "machine": host,
    }
