"""A collection of documents in two dimensions, to be looked at, and the places of new vectors among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.preprocessing import normalize

from modeling_tmde import TmdeError

TSNE_POINTS = 5000  # more take minutes
NEIGHBOURS = 5
TEMPERATURE = (
    0.05  # of the weights of neighbors: the one whose cosine is 0.05 higher counts e times as much
)
_COMPONENTS = 50  # that t-SNE sees, as van der Maaten and Hinton (2008) advise
_SMALLEST_TSNE = 10


@dataclass(frozen=True)
class CollectionMap:
    """places: (n, 2) float64, within -1 and 1; vectors: (n, d) of length 1; method: "tsne" or "pca"."""

    places: np.ndarray
    vectors: np.ndarray
    method: str

    def place_of(self, vector: np.ndarray) -> np.ndarray:
        """Where a new vector stands: t-SNE has no place for it, so it is put among its nearest documents.

        Args:
            vector: (d,) of any length.

        Returns:
            (2,), the mean of the places of the `NEIGHBOURS` documents of the highest cosines, weighted by
            exp(cosine / `TEMPERATURE`).
        """
        norm = np.linalg.norm(vector)
        cosines = self.vectors @ (vector / norm if norm else vector)  # (n,)
        nearest = np.argsort(-cosines, kind="stable")[:NEIGHBOURS]
        weights = np.exp((cosines[nearest] - cosines[nearest[0]]) / TEMPERATURE)
        return weights @ self.places[nearest] / weights.sum()


def map_collection(vectors: np.ndarray, method: str | None = None, seed: int = 0) -> CollectionMap:
    """Draws documents as points: principal components, of which t-SNE makes two dimensions out of the first 50.

    Args:
        vectors: (n, d), n >= 1.
        method: "tsne" (van der Maaten and Hinton, 2008), "pca" (the first two components), or None: t-SNE for up to
            `TSNE_POINTS` documents. Fewer than ten different vectors always get their components.
        seed: Of both.

    Raises:
        ValueError: No vectors.
    """
    vectors = np.asarray(vectors, np.float64)
    if vectors.ndim != 2 or not len(vectors):
        raise TmdeError(
            f"vectors: found shape {vectors.shape}, expected (n, d) with at least one row"
        )
    vectors = normalize(vectors)
    if method is None:
        method = "tsne" if len(vectors) <= TSNE_POINTS else "pca"
    if len(np.unique(vectors.round(6), axis=0)) < _SMALLEST_TSNE:
        method = "pca"
    count = min(2 if method == "pca" else _COMPONENTS, *vectors.shape)
    places = np.zeros((len(vectors), max(count, 2)))  # zeros where all vectors are alike
    if np.ptp(vectors, axis=0).any():
        places[:, :count] = PCA(count, random_state=seed).fit_transform(vectors)
    if method == "tsne":
        perplexity = min(30, (len(vectors) - 1) // 3)
        places = TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(places)
    places = np.asarray(places, np.float64) - (places.max(axis=0) + places.min(axis=0)) / 2
    return CollectionMap(places / max(np.abs(places).max(), 1e-12), vectors, method)


def drawn_rows(count: int, most: int, seed: int = 0) -> np.ndarray:
    """Sorted row numbers of at most `most` of `count` documents, drawn at random if there are more."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
