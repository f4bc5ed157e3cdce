"""Vectors of texts as features for scikit-learn.

```python
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tmde import TmdeVectorizer

classifier = make_pipeline(TmdeVectorizer(), LogisticRegression())
classifier.fit(["Die Börse steigt.", "Der Verein gewinnt."], ["economy", "sports"])
classifier.predict(["The team has lost."])
```
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from modeling_tmde import TmdeError
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.loading import local_or_hub
from tmde.embedding.packaged_models import DEFAULT_MODEL

__all__ = ["TmdeVectorizer"]


# scikit-learn has no types.
class TmdeVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Embed texts as a step of a scikit-learn `Pipeline`.

    It replaces `TfidfVectorizer` and accepts the same texts. It learns nothing, so `fit` is
    optional. The model is loaded on first use and shared by copies with the same settings. A pickle
    stores the model's name, not its weights.

    Args:
        model: A folder, a Hub id or a packaged model's name.
        pooling: `"cls"` or `"mean"`. Default: the model's pooling.
        long_documents: How to handle long texts, see `DocumentEmbedder`.
        batch_size: The maximum number of texts in a batch. Default: batches are sized in tokens.
        max_length: The maximum input length in tokens. Default: the model's limit.
        prompt: A prefix for every text. Default: the model's prompt.
        normalize: Whether to scale each vector to length 1.
        device: The device. Default: cuda, otherwise mps, otherwise cpu.
        truncate_dim: Keep only the first `truncate_dim` elements of each vector; for models trained
            for this (Matryoshka embeddings).

    Example:
        ```python
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        from tmde import TmdeVectorizer

        pipeline = make_pipeline(TmdeVectorizer(), LogisticRegression())
        pipeline.fit(["The cat sleeps.", "Stocks fell sharply."], ["animals", "money"])
        print(pipeline.predict(["Der Hund schläft."]))
        ```
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        pooling: str | None = None,
        long_documents: str = "truncate",
        batch_size: int | None = None,
        max_length: int | None = None,
        prompt: str | None = None,
        normalize: bool = False,
        device: str | None = None,
        truncate_dim: int | None = None,
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.long_documents = long_documents
        self.batch_size = batch_size
        self.max_length = max_length
        self.prompt = prompt
        self.normalize = normalize
        self.device = device
        self.truncate_dim = truncate_dim

    def fit(self, X: Iterable[str], y: object = None) -> TmdeVectorizer:
        """Load the model, so that invalid settings fail early.

        Args:
            X: The texts.
            y: Ignored.

        Raises:
            TmdeError: `X` is not a list of texts, or as for `DocumentEmbedder.from_pretrained`.
        """
        _check_texts(X)
        self._embedder().encode([], truncate_dim=self.truncate_dim)
        return self

    def transform(self, X: Iterable[str]) -> np.ndarray:
        """Return the vectors of texts, (n, d) float32.

        Args:
            X: Any iterable of n strings, such as a list or a table column.

        Raises:
            TypeError: A text is not a string.
            TmdeError: `X` is not a list of texts.
        """
        _check_texts(X)
        vectors = self._embedder().encode(
            X,
            batch_size=self.batch_size,
            normalize=self.normalize,
            show_progress_bar=False,
            truncate_dim=self.truncate_dim,
        )
        return np.asarray(vectors)

    @property
    def _n_features_out(self) -> int:
        """The number of the features, for their names."""
        return self.truncate_dim or self._embedder().dimension

    def _embedder(self) -> DocumentEmbedder:
        """Return the embedder with these settings, loaded at first use."""
        model = DEFAULT_MODEL if self.model is None else self.model
        if not isinstance(model, str | os.PathLike):
            raise TmdeError(
                f"model: found {type(model).__name__}, expected a folder or Hub id, from "
                "which pickles and copies reload the model"
            )
        return _load_embedder(
            str(model),
            _time_of_change(model),
            self.pooling,
            self.long_documents,
            self.max_length,
            self.prompt,
            self.device,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = False
        return tags


# Copies of a vectorizer, which cross-validation makes for every fold, share one model.
@lru_cache(maxsize=1)
def _load_embedder(
    model: str,
    time_of_change: int,
    pooling: str | None,
    long_documents: str,
    max_length: int | None,
    prompt: str | None,
    device: str | None,
) -> DocumentEmbedder:
    """Load an embedder.

    Args:
        model: Its name.
        time_of_change: When its folder was last saved: another save is another model.
        pooling: How the outputs of tokens become a vector; None for that of the model.
        long_documents: How texts beyond the limit of the model are read.
        max_length: The most tokens of a text; None for the limit of the model.
        prompt: The text before every text; None for that of the model.
        device: The device of the model; None for a GPU if there is one.
    """
    return DocumentEmbedder.from_pretrained(
        model,
        pooling=pooling,
        max_length=max_length,
        device=device,
        long_documents=long_documents,
        prompt=prompt,
    )


def _time_of_change(model: str | os.PathLike[str]) -> int:
    """Return when the folder of a model was last saved, in nanoseconds; 0 for the Hub."""
    config = Path(local_or_hub(model)) / "config.json"
    if not config.is_file():
        return 0
    return config.stat().st_mtime_ns


def _check_texts(X: Any) -> None:
    """Check that this can be a list of texts.

    Raises:
        TmdeError: It is one text, a table, or nothing that can be iterated over.
    """
    if isinstance(X, str):
        raise TmdeError(f"X: found one text {X!r:.40}, expected a list of texts: [text]")
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) != 1:
        raise TmdeError(
            f"X: found a table of shape {tuple(shape)}, expected a list of texts; pass its "
            "text column, X['text']"
        )
    if not hasattr(X, "__iter__"):
        raise TmdeError(f"X: found {type(X).__name__}, expected a list of texts")
