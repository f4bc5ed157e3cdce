"""How common sentences like this one are, and the weights that follow from it (paper 003, LAWDR, eq. 3).

from modeling_tmde.density import SentenceDensity

density = SentenceDensity().fit(sentence_vectors)  # (n, d)
weights = density.weights(sentence_vectors)  # (n,): near 1 where a sentence is like no other, near 0 for boilerplate
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

KERNELS = ("tophat", "gaussian")
_FOLDS = 5
_CHOICE_SAMPLE = 4000  # vectors from which the bandwidth is chosen: in 16 dimensions it varies as n^(-1/20)
_BANDWIDTHS = 20  # that are tried
_BLOCK = 2**22  # products computed at once: 32 MiB
_ROWS = 16384  # vectors projected at once
_LEARNT = ("mean_", "axes_", "points_", "bandwidth_", "log_b_")


class SentenceDensity:
    """Kernel density of sentence vectors and the weights b / (b + P(s)) of paper 003, eq. 3 and algorithm 1.

    As in the paper's section 10.2: a principal component analysis reduces vectors to 16 dimensions, the kernel is a
    tophat (a density is a count of neighbours within the bandwidth), the bandwidth is chosen by 5-fold
    cross-validation, and b is half of the mean density of the fitted sentences. A sentence of mean density weighs 1/3,
    one without any neighbour 1, one that is common as a menu entry nearly 0. The density equals that of scikit-learn's
    `KernelDensity`, which takes many times longer in 16 dimensions; only its logarithm is ever computed.

    Cross-validation maximises the likelihood of held-out sentences. Two things would spoil it, and are settled here.
    A tophat gives no density at all to a sentence without neighbours, so that a single one would rule out every
    bandwidth but the widest: the bandwidth is chosen for a gaussian, and multiplied by the ratio of the two kernels'
    canonical bandwidths (Marron & Nolan 1988), 3.95 in 16 dimensions, which smooths as much. And of equal sentences
    the likelihood grows without limit as the bandwidth falls: 20 are tried, from the lower decile of the distances
    between a sentence and the nearest other that differs to the median of all distances (for a gaussian, over the
    square root of the dimensions).

    Args:
        components: Dimensions after the analysis; fewer where there are fewer dimensions or sentences.
        kernel: `"tophat"` or `"gaussian"`.
        bandwidth: In the units of the vectors: radius of the tophat, standard deviation of the gaussian. None: chosen.
        sample: Sentences, drawn at random, that all is fitted to; the time of `weights` grows with it.
        seed: Of that draw, and of the folds.

    Attributes:
        bandwidth_: The one used. mean_: (d,). axes_: (components, d), the principal ones, orthonormal.
        points_: (sample, components), the sentences of the sample. log_b_: Natural logarithm of b. All float64.

    Raises:
        ValueError: An argument out of its range.
    """

    def __init__(
        self,
        components: int = 16,
        kernel: str = "tophat",
        bandwidth: float | None = None,
        sample: int = 20_000,
        seed: int = 42,
    ) -> None:
        if kernel not in KERNELS:
            raise ValueError(f"kernel: found {kernel!r}, expected one of {KERNELS}")
        for name, number, least in (("components", components, 1), ("sample", sample, 2)):
            if number < least:
                raise ValueError(f"{name}: found {number}, expected at least {least}")
        if bandwidth is not None and not 0 < bandwidth < math.inf:
            raise ValueError(f"bandwidth: found {bandwidth}, expected a number above 0, or None to choose one")
        self.components = components
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.sample = sample
        self.seed = seed

    def __repr__(self) -> str:
        names = ("components", "kernel", "bandwidth", "sample", "seed")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def fit(self, vectors: np.ndarray) -> SentenceDensity:
        """Learns axes, bandwidth and b.

        Args:
            vectors: (n, d), n at least 2; a memory-mapped array is not read into memory.

        Returns:
            Itself.

        Raises:
            ValueError: Another shape, fewer than two vectors, or a number that is not finite.
            ImportError: Without scikit-learn.
        """
        from sklearn.decomposition import PCA

        if not hasattr(vectors, "shape"):  # a list
            vectors = np.asarray(vectors)
        for _ in _blocks(vectors, None):  # a model that gives NaN may give it anywhere
            pass
        if len(vectors) < 2:
            raise ValueError(f"vectors: found {len(vectors)}, expected at least 2 for a density")
        rng = np.random.default_rng(self.seed)
        rows = np.sort(rng.choice(len(vectors), min(self.sample, len(vectors)), replace=False))
        drawn = np.asarray(vectors[rows], dtype=np.float64)  # (sample, d)
        analysis = PCA(min(self.components, *drawn.shape), random_state=self.seed)
        with np.errstate(invalid="ignore", divide="ignore"):  # equal vectors have no variance to divide by
            analysis.fit(drawn)
        self.mean_, self.axes_ = analysis.mean_, np.ascontiguousarray(analysis.components_)
        self.points_ = self._project(drawn)  # (sample, components)
        self.bandwidth_ = float(self.bandwidth or _choose_bandwidth(self.points_, self.kernel, rng))
        log_density = self._log_density(self.points_)
        self.log_b_ = float(np.logaddexp.reduce(log_density) - math.log(2 * len(log_density)))
        return self

    def log_density(self, vectors: np.ndarray) -> np.ndarray:
        """Natural logarithm of P(s) in the reduced dimensions; -inf without a neighbour within a tophat.

        Args:
            vectors: (n, d), of the dimension that was fitted.

        Returns:
            (n,) float64.

        Raises:
            ValueError: Not fitted yet, another shape, or a number that is not finite.
        """
        self._check_fitted()
        parts = [self._log_density(self._project(block)) for block in _blocks(vectors, len(self.mean_))]
        return np.concatenate([np.empty(0), *parts])

    def weights(self, vectors: np.ndarray) -> np.ndarray:
        """b / (b + P(s)) of each sentence.

        Args:
            vectors: (n, d), of the dimension that was fitted.

        Returns:
            (n,) float32, above 0 and at most 1.

        Raises:
            ValueError: Not fitted yet, another shape, or a number that is not finite.
        """
        log_density = self.log_density(vectors)
        return (1 / (1 + np.exp(log_density - self.log_b_))).astype(np.float32)

    def save(self, path: str | os.PathLike) -> None:
        """Writes one file of arrays (numpy's .npz, without pickle), complete or not there. `path` is taken as it is.

        Raises:
            ValueError: Not fitted yet.
        """
        arrays = self.to_arrays()
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "wb") as file:
                np.savez(file, **arrays)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike) -> SentenceDensity:
        """What `save` wrote; its weights are the same.

        Raises:
            OSError: No such file. ValueError: A file of something else.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls.from_arrays({name: file[name] for name in file.files})
        except (KeyError, ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            raise ValueError(f"{os.fspath(path)}: not a density that SentenceDensity.save wrote: {error}") from error

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All that `from_arrays` needs, by name.

        Raises:
            ValueError: Not fitted yet (`NotFittedError`).
        """
        self._check_fitted()
        names = ("components", "kernel", "sample", "seed")
        settings = {name: np.asarray(getattr(self, name)) for name in names}
        settings["bandwidth"] = np.asarray(math.nan if self.bandwidth is None else self.bandwidth)
        return settings | {name: np.asarray(getattr(self, name)) for name in _LEARNT}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SentenceDensity:
        """What `to_arrays` gave.

        Raises:
            KeyError: Without one of them. ValueError: One that cannot be.
        """
        settings = {name: arrays[name].item() for name in ("components", "kernel", "sample", "seed", "bandwidth")}
        density = cls(**settings | {"bandwidth": None if math.isnan(settings["bandwidth"]) else settings["bandwidth"]})
        for name in _LEARNT:
            value = np.asarray(arrays[name], dtype=np.float64)
            setattr(density, name, value if value.ndim else float(value))
        return density

    def _check_fitted(self) -> None:
        if not hasattr(self, "log_b_"):
            from sklearn.exceptions import NotFittedError  # a ValueError, and what scikit-learn's tools look for

            raise NotFittedError(f"{type(self).__name__}: fit it to sentence vectors first")

    def _log_density(self, reduced: np.ndarray) -> np.ndarray:
        return _log_density(reduced, self.points_, self.bandwidth_, self.kernel)

    def _project(self, vectors: np.ndarray) -> np.ndarray:
        """(n, d) to (n, components) float64."""
        return (np.asarray(vectors, dtype=np.float64) - self.mean_) @ self.axes_.T


def _log_density(queries: np.ndarray, points: np.ndarray, bandwidth: float, kernel: str) -> np.ndarray:
    """Logarithm of the kernel density of `points` (m, k) at `queries` (n, k): (n,)."""
    size, dimensions = points.shape
    log_norm = dimensions * math.log(bandwidth) + math.log(size)
    if kernel == "tophat":
        log_norm += _log_ball(dimensions)
    else:
        log_norm += dimensions / 2 * math.log(2 * math.pi)
    columns = np.vstack([points.T, np.einsum("ij,ij->i", points, points) / -2])  # (k + 1, m)
    found = [np.empty(0)]
    for block in _slices(queries, max(1, _BLOCK // size)):
        half_norms = np.einsum("ij,ij->i", block, block)[:, None] / 2
        # (rows, m): x.y - |y|^2 / 2, which is (|x|^2 - |x - y|^2) / 2
        nearness = np.hstack([block, np.ones((len(block), 1))]) @ columns
        if kernel == "tophat":
            counts = np.count_nonzero(nearness > half_norms - bandwidth**2 / 2, axis=1)
            with np.errstate(divide="ignore"):
                found.append(np.log(counts) - log_norm)
        else:
            nearness -= half_norms
            nearness /= bandwidth**2
            highest = nearness.max(axis=1, keepdims=True)
            np.exp(np.subtract(nearness, highest, out=nearness), out=nearness)
            found.append(np.log(nearness.sum(axis=1)) + highest[:, 0] - log_norm)
    return np.concatenate(found)


def _choose_bandwidth(points: np.ndarray, kernel: str, rng: np.random.Generator) -> float:
    """The bandwidth of highest held-out likelihood; see the class."""
    spread = math.sqrt(points.var(axis=0).sum())
    if spread == 0:
        return 1.0
    # The same text in another batch differs by some 1e-6.
    _, firsts = np.unique(np.round(points / (1e-4 * spread)), axis=0, return_index=True)
    if len(firsts) < 2:
        return spread
    chosen = points[rng.permutation(len(points))[:_CHOICE_SAMPLE]]
    folds = np.arange(len(chosen)) % min(_FOLDS, len(chosen))
    bandwidths = _bandwidths(points[rng.permutation(firsts)[:_CHOICE_SAMPLE]])
    scores = [
        sum(
            _log_density(chosen[folds == fold], chosen[folds != fold], bandwidth, "gaussian").sum()
            for fold in range(folds.max() + 1)
        )
        for bandwidth in bandwidths
    ]
    return float(bandwidths[int(np.argmax(scores))]) * (_tophat_ratio(points.shape[1]) if kernel == "tophat" else 1)


def _tophat_ratio(dimensions: int) -> float:
    """Radius of a tophat over the standard deviation of a gaussian that smooths as much.

    Marron & Nolan 1988, in k dimensions: the canonical bandwidth is (R / m^2)^(1 / (k + 4)), with R the integral of
    the squared kernel and m its variance along an axis.
    """
    log_gaussian = -dimensions / 2 * math.log(4 * math.pi)
    log_tophat = 2 * math.log(dimensions + 2) - _log_ball(dimensions)
    return math.exp((log_tophat - log_gaussian) / (dimensions + 4))


def _log_ball(dimensions: int) -> float:
    """Logarithm of the volume of a ball of radius 1."""
    return dimensions / 2 * math.log(math.pi) - math.lgamma(dimensions / 2 + 1)


def _bandwidths(distinct: np.ndarray) -> np.ndarray:
    """Those of a gaussian that are tried, rising, for points no two of which are equal."""
    nearest, typical = [], []
    norms = np.einsum("ij,ij->i", distinct, distinct)
    for start in range(0, len(distinct), 512):
        block = slice(start, start + 512)
        squares = np.maximum(norms[block, None] + norms - 2 * distinct[block] @ distinct.T, 0)
        squares[np.arange(len(squares)), start + np.arange(len(squares))] = np.nan  # to itself
        nearest.append(np.nanmin(squares, axis=1))
        typical.append(np.nanmedian(squares))
    low, high = math.sqrt(np.quantile(np.concatenate(nearest), 0.1)), math.sqrt(np.median(typical))
    return np.geomspace(max(low, 1e-3 * high), high, _BANDWIDTHS) / math.sqrt(distinct.shape[1])


def _slices(array: np.ndarray, rows: int) -> Iterator[np.ndarray]:
    for start in range(0, len(array), rows):
        yield array[start : start + rows]


def _blocks(vectors: np.ndarray, dimension: int | None) -> Iterator[np.ndarray]:
    """Blocks of rows, once shape and numbers are found to be right."""
    shape = np.shape(vectors)
    if len(shape) != 2 or not shape[1] or dimension not in (None, shape[1]):
        wanted = f"(n, {'d' if dimension is None else dimension})"
        raise ValueError(f"vectors: found shape {shape}, expected {wanted}")
    for start in range(0, shape[0], _ROWS):
        block = np.asarray(vectors[start : start + _ROWS])
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if len(bad):
            raise ValueError(
                f"vectors: found a number that is not finite in row {start + bad[0]}, expected finite numbers. Look "
                "at the model that made them"
            )
        yield block
