"""Weights of sentences by their density among those of a corpus (LAWDR, Gong et al., 2021)."""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from modeling_tmde import TmdeError

KERNELS = ("tophat", "gaussian")

# Vectors that choose the bandwidth, which varies as n^(-1/20) in 16 dimensions.
_SELECTION_SAMPLE = 4000
_NUM_BANDWIDTHS = 20
_NUM_FOLDS = 5


@dataclass(eq=False)
class SentenceDensity:
    """Weight sentences by rarity: `b / (b + P(s))` (Gong et al., 2021, eq. 3).

    P is a kernel density of the sentence vectors, reduced to 16 dimensions by principal component
    analysis; b is half the mean density of the fitted sentences (section 10.2). The weight is 1/3
    for a sentence of mean density, 1 for one without neighbors, and nearly 0 for boilerplate.

    5-fold cross-validation chooses one of 20 bandwidths for a Gaussian. For a tophat, which assigns
    zero density to sentences without neighbors, it is converted by the ratio of the kernels'
    canonical bandwidths (Marron and Nolan, 1988), 3.95 in 16 dimensions.

    Args:
        components: The number of dimensions after the principal component analysis, if there are as
            many dimensions and sentences.
        kernel: `"tophat"`, which counts neighbors within the bandwidth, or `"gaussian"`.
        bandwidth: The tophat's radius or the Gaussian's standard deviation. None chooses it by
            cross-validation.
        sample: The number of random sentences to fit to. More slow down `weights`.
        seed: The seed of the sample and of the folds.

    Attributes:
        bandwidth_: The bandwidth in use.
        mean_: The mean of the sample, (d,) float64.
        axes_: The principal axes, (components, d) float64, orthonormal.
        points_: The reduced sample, (sample, components) float64.
        log_b_: The natural logarithm of b.

    Raises:
        TmdeError: The kernel is unknown.

    Example:
        ```python
        import numpy as np

        from tmde import SentenceDensity

        vectors = np.random.default_rng(0).normal(size=(500, 32))  # those of 500 sentences
        density = SentenceDensity().fit(vectors)
        weights = density.weights(vectors)  # (500,), near 0 for boilerplate
        ```
    """

    components: int = 16
    kernel: str = "tophat"
    bandwidth: float | None = None
    sample: int = 20_000
    seed: int = 42

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise TmdeError(f"kernel: found {self.kernel!r}, expected 'tophat' or 'gaussian'")

    def fit(self, vectors: np.ndarray) -> SentenceDensity:
        """Learn the axes, the bandwidth and b.

        Args:
            vectors: (n, d), with n at least 2; a memory map stays on disk.

        Returns:
            This object.

        Raises:
            ValueError: The shape is wrong, or a number is not finite.
        """
        from sklearn.decomposition import PCA  # Importing it takes a second.

        rng = np.random.default_rng(self.seed)
        sample_size = min(self.sample, len(vectors))
        rows = np.sort(rng.choice(len(vectors), sample_size, replace=False))
        drawn = np.asarray(np.asarray(vectors)[rows], dtype=np.float64)  # (sample, d)
        analysis = PCA(min(self.components, *drawn.shape), random_state=self.seed).fit(drawn)
        self.mean_ = analysis.mean_
        self.axes_ = np.ascontiguousarray(analysis.components_)
        self.points_ = self._project(drawn)  # (sample, components)
        bandwidth = self.bandwidth or _choose_bandwidth(self.points_, self.kernel, rng)
        self.bandwidth_ = float(bandwidth)
        log_densities = self.log_density(drawn)  # (sample,)
        log_sum = np.logaddexp.reduce(log_densities)
        self.log_b_ = float(log_sum - math.log(2 * len(log_densities)))
        return self

    def log_density(self, vectors: np.ndarray) -> np.ndarray:
        """Return the natural logarithm of P(s) in the reduced dimensions.

        Args:
            vectors: (n, d).

        Returns:
            (n,) float64; -inf if a tophat is 0.
        """
        return _log_density(self._project(vectors), self.points_, self.bandwidth_, self.kernel)

    def weights(self, vectors: np.ndarray) -> np.ndarray:
        """Return the weight `b / (b + P(s))` of each sentence.

        Args:
            vectors: (n, d).

        Returns:
            (n,) float32, above 0 and at most 1.
        """
        log_ratios = self.log_density(vectors) - self.log_b_
        weights: np.ndarray = 1 / (1 + np.exp(log_ratios))
        return weights.astype(np.float32)

    def _project(self, vectors: np.ndarray) -> np.ndarray:
        """Reduce vectors (n, d) to (n, components) float64."""
        centered: np.ndarray = np.asarray(vectors, dtype=np.float64) - self.mean_
        projected: np.ndarray = centered @ self.axes_.T
        return projected

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all arrays to one .npz file atomically."""
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        arrays: dict[str, Any] = self.to_arrays()
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SentenceDensity:
        """Load a density written by `save`.

        Raises:
            OSError: The file does not exist.
            TmdeError: The file is not a density.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls.from_arrays(file)
        except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise TmdeError(f"{path}: not a file of SentenceDensity.save: {error}") from error

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all settings and learned arrays, by name, for `from_arrays`."""
        arrays = {}
        for name, value in vars(self).items():
            arrays[name] = np.asarray(math.nan if value is None else value)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SentenceDensity:
        """Return the density from the arrays of `to_arrays`."""
        density = cls()
        settings = [field.name for field in fields(cls)]
        for name in (*settings, "mean_", "axes_", "points_", "bandwidth_", "log_b_"):
            array = arrays[name]
            is_scalar = array.ndim == 0
            setattr(density, name, array.item() if is_scalar else array)
        if density.bandwidth is not None and math.isnan(density.bandwidth):
            density.bandwidth = None
        return density

    def fingerprint(self) -> str:
        """Return 16 hex digits of a SHA-256 over all settings and learned arrays."""
        digest = hashlib.sha256()
        for name, array in sorted(self.to_arrays().items()):
            digest.update(name.encode())
            digest.update(array.tobytes())
        return digest.hexdigest()[:16]


def _log_density(
    queries: np.ndarray, points: np.ndarray, bandwidth: float, kernel: str
) -> np.ndarray:
    """Return the logarithm of the kernel density of `points` (m, k) at `queries` (n, k), (n,)."""
    from sklearn.neighbors import KernelDensity

    density = KernelDensity(bandwidth=bandwidth, kernel=kernel).fit(points)
    log_density: np.ndarray = density.score_samples(queries)
    return log_density


def _choose_bandwidth(points: np.ndarray, kernel: str, rng: np.random.Generator) -> float:
    """Return the bandwidth of highest held-out likelihood, see [`SentenceDensity`].

    Args:
        points: (n, k) in the reduced dimensions.
        kernel: The kernel that the bandwidth is for.
        rng: Draws the points that choose.
    """
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.neighbors import KernelDensity

    num_dimensions = points.shape[1]
    spread = math.sqrt(points.var(axis=0).sum())
    if spread == 0:
        return 1.0
    chosen = points[rng.permutation(len(points))[:_SELECTION_SAMPLE]]
    # The vector of the same text in another batch differs by about 1e-6.
    rounded = np.round(points / (1e-4 * spread))
    _, first_rows = np.unique(rounded, axis=0, return_index=True)
    distinct = points[rng.permutation(first_rows)[:_SELECTION_SAMPLE]]
    candidates = _candidate_bandwidths(distinct)
    search = GridSearchCV(
        KernelDensity(kernel="gaussian"),
        {"bandwidth": candidates},
        cv=KFold(min(_NUM_FOLDS, len(chosen))),
        refit=False,
    )
    best = float(search.fit(chosen).best_params_["bandwidth"])
    if kernel == "gaussian":
        return best
    return best * _tophat_to_gaussian_ratio(num_dimensions)


def _candidate_bandwidths(distinct: np.ndarray) -> np.ndarray:
    """Return the bandwidths of a gaussian to try for points (n, k) that all differ."""
    from scipy.spatial.distance import pdist
    from sklearn.neighbors import NearestNeighbors

    neighbor_distances, _ = NearestNeighbors(n_neighbors=1).fit(distinct).kneighbors()
    nearest = np.quantile(neighbor_distances, 0.1)
    typical = np.median(pdist(distinct))
    radii = np.geomspace(max(nearest, 1e-3 * typical), typical, _NUM_BANDWIDTHS)
    return radii / math.sqrt(distinct.shape[1])


def _tophat_to_gaussian_ratio(num_dimensions: int) -> float:
    """Return the ratio of the canonical bandwidths of both kernels (Marron & Nolan 1988).

    In k dimensions, the canonical bandwidth is `(R / m^2)^(1 / (k + 4))`, with R the integral of
    the squared kernel and m its variance along an axis.
    """
    log_gaussian = -num_dimensions / 2 * math.log(4 * math.pi)
    log_tophat = 2 * math.log(num_dimensions + 2) - _log_ball_volume(num_dimensions)
    return math.exp((log_tophat - log_gaussian) / (num_dimensions + 4))


def _log_ball_volume(num_dimensions: int) -> float:
    """Return the logarithm of the volume of a ball of radius 1."""
    half = num_dimensions / 2
    return half * math.log(math.pi) - math.lgamma(half + 1)
