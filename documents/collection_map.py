"""A collection of documents in two dimensions, and the places of new vectors among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.preprocessing import normalize

from modeling_tmde import TmdeError

TSNE_POINTS = 5000  # documents; t-SNE of more takes minutes
NEIGHBORS = 5

# A neighbor whose cosine is 0.05 higher weighs e times as much.
TEMPERATURE = 0.05
_COMPONENTS = 50  # components that t-SNE sees, as van der Maaten and Hinton (2008) advise
_SMALLEST_TSNE = 10  # different vectors; fewer are drawn by their components
_LARGEST_PERPLEXITY = 30


@dataclass(frozen=True)
class CollectionMap:
    """n documents as points.

    Attributes:
        places: (n, 2) float64, within -1 and 1.
        vectors: (n, d) of length 1.
        method: "tsne" or "pca".
    """

    places: np.ndarray
    vectors: np.ndarray
    method: str

    def place_of(self, vector: np.ndarray) -> np.ndarray:
        """Return where a new vector stands: t-SNE has no place for it, so its neighbors decide.

        Args:
            vector: (d,) of any length.

        Returns:
            (2,), the mean of the places of the `NEIGHBORS` documents of the highest cosines,
            weighted by exp(cosine / `TEMPERATURE`).
        """
        norm = np.linalg.norm(vector)
        unit = vector / norm if norm else vector
        cosines = self.vectors @ unit  # (n,)
        nearest = np.argsort(-cosines, kind="stable")[:NEIGHBORS]
        # The highest cosine is subtracted, so that no exponential overflows.
        weights = np.exp((cosines[nearest] - cosines[nearest[0]]) / TEMPERATURE)
        return weights @ self.places[nearest] / weights.sum()


def map_collection(vectors: np.ndarray, method: str | None = None, seed: int = 0) -> CollectionMap:
    """Draw documents as points: t-SNE of their first 50 principal components, or the first two.

    Args:
        vectors: (n, d), n >= 1.
        method: "tsne" (van der Maaten and Hinton, 2008), "pca" (the first two components), or None:
            t-SNE for up to `TSNE_POINTS` documents. Fewer than ten different vectors always get
            their components.
        seed: The seed of both methods.

    Raises:
        TmdeError: No vectors.
    """
    vectors = np.asarray(vectors, np.float64)
    if vectors.ndim != 2 or not len(vectors):
        raise TmdeError(
            f"vectors: found shape {vectors.shape}, expected (n, d) with at least one row"
        )
    vectors = normalize(vectors)
    if method is None:
        method = "tsne" if len(vectors) <= TSNE_POINTS else "pca"
    different_vectors = np.unique(vectors.round(6), axis=0)
    if len(different_vectors) < _SMALLEST_TSNE:
        method = "pca"
    if method == "pca":
        points = _principal_components(vectors, 2, seed)
    else:
        components = _principal_components(vectors, _COMPONENTS, seed)
        perplexity = min(_LARGEST_PERPLEXITY, (len(vectors) - 1) // 3)
        tsne = TSNE(init="pca", perplexity=perplexity, random_state=seed)
        points = tsne.fit_transform(components)
    return CollectionMap(_in_unit_square(points), vectors, method)


def _principal_components(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the first components, (n, count) or fewer but two; zeros where all are alike."""
    count = min(count, *vectors.shape)
    components = np.zeros((len(vectors), max(count, 2)))
    if np.ptp(vectors, axis=0).any():
        components[:, :count] = PCA(count, random_state=seed).fit_transform(vectors)
    return components


def _in_unit_square(points: np.ndarray) -> np.ndarray:
    """Return points, centered and scaled so that the largest coordinate is 1."""
    points = np.asarray(points, np.float64)
    center = (points.max(axis=0) + points.min(axis=0)) / 2
    centered = points - center
    return centered / max(np.abs(centered).max(), 1e-12)


def drawn_rows(count: int, most: int, seed: int = 0) -> np.ndarray:
    """Return the sorted row numbers of at most `most` of `count` documents, drawn at random."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
