"""Mappings of the word vectors of one language into the space of another.

MUSE: Conneau et al., 2018, arXiv 1710.04087; Conneau (2019), section 4.1. VecMap's start without a
dictionary: Artetxe et al., 2018, arXiv 1805.06297. multiCCA: Ammar et al., 2016, arXiv 1602.01925.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from modeling_tmde import TmdeError
from tmde.documents.mining import mine_bitext
from tmde.documents.unit_rows import row_cosines, unit_vectors
from tmde.documents.word_files import WordVectors
from tmde.embedding.progress import progress_bar

logger = logging.getLogger(__name__)

Fit = Literal["rotation", "cca"]
Start = Literal["similarities", "adversarial"]

NEIGHBORS = 10  # neighbors of a word in CSLS
FREQUENT = 20_000  # words whose mutual neighbors are the dictionary of a refinement
CRITERION = 10_000  # words whose neighbors are the criterion of a mapping

# Settings of the self-learning from similarities.
FIRST_SHARE = 0.1  # share of the similarities that take part in the first rounds
PATIENCE = 10  # rounds without a rise, after which the share doubles
LEAST_RISE = 1e-6  # of the mean similarity of nearest neighbors

# Settings of MUSE's adversarial game.
BATCH = 32  # words of each language
DISCRIMINATOR_STEPS = 5  # steps of the discriminator for one of the mapping
DISCRIMINATOR_RATE = 0.1
MAPPING_RATE = 0.5
DECAY = 0.95  # factor of the learning rates after an epoch
FALLEN_DECAY = 0.475  # the same, halved, after an epoch in which the criterion has fallen
SMOOTHING = 0.2
DROPOUT = 0.1
ORTHOGONALIZATION = 0.1  # beta of equation 4.7


def align_words(
    source: WordVectors,
    target: WordVectors,
    dictionary: np.ndarray | None = None,
    refinements: int = 5,
    fit: Fit = "rotation",
    start: Start = "similarities",
    **settings: int,
) -> np.ndarray:
    """Return the mapping (d, d) of source vectors into the space of the target.

    Args:
        source: The words that are mapped.
        target: The words of the other language.
        dictionary: Row numbers (p, 2) of translations, see
            [`~tmde.documents.word_files.read_dictionary`]. None: the mapping is learned without
            one, as `start` says.
        refinements: The most rounds of [`refine`].
        fit: How a mapping is computed from a dictionary: `rotation` by [`procrustes`], or `cca` by
            [`canonical_mapping`], which needs a dictionary. For `cca`, center the source first
            ([`~tmde.documents.word_files.WordVectors.centered`]), as multiCCA's code does.
        start: How a mapping is learned without a dictionary: `similarities` by
            [`align_by_similarities`], or `adversarial` by [`align_adversarially`].
        **settings: Further arguments of the function of `start`.

    Raises:
        TmdeError: The dimensions differ, `cca` has no dictionary or too small a one, or a fit or
            start of another name.
    """
    source_dimension = source.vectors.shape[1]
    target_dimension = target.vectors.shape[1]
    if source_dimension != target_dimension:
        raise TmdeError(
            f"Found word vectors of {source_dimension} and {target_dimension} dimensions, "
            "expected equal ones"
        )
    fit_mapping = _named("fit", fit, {"rotation": procrustes, "cca": canonical_mapping})
    if dictionary is not None:
        known_source = unit_vectors(source.vectors[dictionary[:, 0]])
        known_target = unit_vectors(target.vectors[dictionary[:, 1]])
        mapping = fit_mapping(known_source, known_target)
    elif fit == "cca":
        raise TmdeError("fit='cca': found no dictionary, expected one of translations")
    else:
        starts: dict[str, Callable[..., np.ndarray]] = {
            "similarities": align_by_similarities,
            "adversarial": align_adversarially,
        }
        mapping = _named("start", start, starts)(source, target, **settings)
    return refine(source, target, mapping, refinements, fit_mapping)


def _named(
    argument: str, name: str, functions: dict[str, Callable[..., np.ndarray]]
) -> Callable[..., np.ndarray]:
    """Return the function of a name, or raise [`TmdeError`]."""
    if name not in functions:
        raise TmdeError(f"{argument}: found {name!r}, expected {' or '.join(functions)}")
    return functions[name]


def procrustes(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the orthogonal W (d, d) with the smallest `||W x - y||` over pairs of rows x and y.

    It is `U V^T`, where `U S V^T` is the singular value decomposition of `Y^T X` (Conneau, 2019,
    equation 4.2).

    Args:
        source: The rows x, (p, d).
        target: The rows y, (p, d).
    """
    u, _, v = np.linalg.svd(target.T.astype(np.float64) @ source.astype(np.float64))
    return u @ v


def canonical_mapping(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the mapping W (d, d) of multiCCA (Ammar et al., 2016, arXiv 1602.01925).

    Canonical correlation analysis finds matrices A and B for which the columns of `X A` and `Y B`
    have variance 1, and each column of the one correlates as much as possible with the same column
    of the other and with no other column. The mapping takes a source word through these columns
    into the space of the target: `W x = (A B^-1)^T x`.

    Args:
        source: The rows x, (p, d).
        target: The rows y, (p, d).

    Raises:
        TmdeError: The rows of a side, without their mean, have a rank below d.
    """
    source_rows, source_scales, source_axes = _centered_svd(source)
    target_rows, target_scales, target_axes = _centered_svd(target)
    left, _, right = np.linalg.svd(source_rows.T @ target_rows)
    # X = U S V^T gives A = V S^-1 L, and Y in the same way B^-1 = R^T S V^T. The number of pairs,
    # by which both are scaled to variance 1, cancels out.
    directions = (source_axes.T / source_scales) @ left  # (d, d)
    inverse_directions = right @ (target_scales[:, None] * target_axes)  # (d, d)
    return (directions @ inverse_directions).T


def _centered_svd(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the singular value decomposition of vectors (p, d) without their mean.

    Returns:
        U (p, d), the singular values (d,) and V^T (d, d).
    """
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    count, dimension = centered.shape
    rank = np.linalg.matrix_rank(centered)
    if rank < dimension:
        raise TmdeError(
            f"CCA: found {count:,} pairs of words with vectors of rank {rank}, expected rank "
            f"{dimension}, the dimension of the vectors; use a larger dictionary"
        )
    return np.linalg.svd(centered, full_matrices=False)


def refine(
    source: WordVectors,
    target: WordVectors,
    mapping: np.ndarray,
    rounds: int = 5,
    fit_mapping: Callable[[np.ndarray, np.ndarray], np.ndarray] = procrustes,
) -> np.ndarray:
    """Improve a mapping by fitting it to mutual CSLS neighbors (Conneau, 2019, section 4.1.2).

    The neighbors are those among the 20,000 most frequent words.

    Args:
        source: The words that are mapped.
        target: The words of the other language.
        mapping: (d, d).
        rounds: The most rounds; they end with the first that does not raise the [`criterion`].
        fit_mapping: [`procrustes`], as in the thesis, or [`canonical_mapping`].

    Returns:
        The mapping of the highest criterion, (d, d).
    """
    if rounds == 0:
        return mapping
    frequent_source = unit_vectors(source.vectors[:FREQUENT])
    frequent_target = unit_vectors(target.vectors[:FREQUENT])
    best_criterion = criterion(source, target, mapping)
    for _ in range(rounds):
        pairs = mine_bitext(
            frequent_source @ mapping.T.astype(np.float32),
            frequent_target,
            scoring="distance",
            k=NEIGHBORS,
            retrieval="intersection",
        )
        refined = fit_mapping(frequent_source[pairs.first], frequent_target[pairs.second])
        refined_criterion = criterion(source, target, refined)
        if refined_criterion <= best_criterion:
            break
        best_criterion = refined_criterion
        mapping = refined
    return mapping


def criterion(source: WordVectors, target: WordVectors, mapping: np.ndarray) -> float:
    """Return how good a mapping is, which needs no dictionary (Conneau, 2019, section 4.1.3).

    It is the mean cosine of the 10,000 most frequent source words to their CSLS translations among
    as many target words.
    """
    queries = source[:CRITERION].mapped(mapping).vectors
    candidates = target[:CRITERION].vectors
    pairs = mine_bitext(queries, candidates, scoring="distance", k=NEIGHBORS, retrieval="forward")
    cosines = row_cosines(queries[pairs.first], candidates[pairs.second])
    return float(cosines.mean())


# ---- Without a dictionary, by similarities


def align_by_similarities(
    source: WordVectors, target: WordVectors, frequent: int = 4000, seed: int = 42
) -> np.ndarray:
    """Return a mapping learned from how similar the words of each language are to each other.

    It needs no dictionary (Artetxe et al., 2018, arXiv 1805.06297). A word and its translation have
    much the same similarities to the words of their own language. Sorted by size, they can be
    compared without knowing which words these are. Words with similar lists are a first dictionary.
    Few of its pairs are right, but [`procrustes`] and a new dictionary of CSLS neighbors take
    turns, and each improves the other.

    In the first rounds, only a tenth of the cosines take part, drawn anew in each round; the others
    count as 0. So wrong pairs are not found again and again. The share doubles when the mean cosine
    of nearest neighbors has not risen for ten rounds, and the rounds end when it has not risen for
    ten rounds of all cosines.

    Args:
        source: The words that are mapped.
        target: The words of the other language.
        frequent: The most frequent words of each language take part, this many.
        seed: The seed of the draws.

    Returns:
        (d, d), orthogonal: the one with the highest mean cosine of nearest neighbors.
    """
    count = min(frequent, len(source), len(target))
    source_vectors = _centered_units(source[:count])
    target_vectors = _centered_units(target[:count])
    generator = np.random.default_rng(seed)
    lists_of_source = _sorted_similarities(source_vectors)  # (count, count)
    lists_of_target = _sorted_similarities(target_vectors)
    source_rows, target_rows = _neighbor_pairs(lists_of_source @ lists_of_target.T)

    share = FIRST_SHARE
    rounds_without_rise = 0
    best_value = -np.inf
    best_mapping = np.eye(source_vectors.shape[1])
    for _ in progress_bar(itertools.count(), desc="Learn from similarities", unit=" rounds"):
        mapping = procrustes(source_vectors[source_rows], target_vectors[target_rows])
        cosines = source_vectors @ mapping.T.astype(np.float32) @ target_vectors.T
        value = (cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2
        rounds_without_rise += 1
        if value >= best_value + LEAST_RISE:
            rounds_without_rise = 0
        if value > best_value:
            best_value = value
            best_mapping = mapping
        if rounds_without_rise > PATIENCE:
            if share == 1:
                break
            share = min(1.0, 2 * share)
            rounds_without_rise = 0
        takes_part = None
        if share < 1:
            takes_part = generator.random(cosines.shape, dtype=np.float32) < share
        source_rows, target_rows = _neighbor_pairs(cosines, takes_part)
    return best_mapping


def _centered_units(words: WordVectors) -> np.ndarray:
    """Return the centered vectors of words, at length 1 again, (n, d)."""
    return unit_vectors(words.centered().vectors)


def _sorted_similarities(vectors: np.ndarray) -> np.ndarray:
    """Return the rising similarities of each word to all of its language, (n, n).

    They are the entries of the root of the matrix of cosines, and become centered unit vectors.
    """
    left, scales, _ = np.linalg.svd(vectors.astype(np.float64), full_matrices=False)
    similarities = (left * scales) @ left.T  # (n, n)
    sorted_units = unit_vectors(np.sort(similarities, axis=1))
    return unit_vectors(sorted_units - sorted_units.mean(axis=0))


def _neighbor_pairs(
    cosines: np.ndarray, takes_part: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the CSLS neighbor of every word of both languages.

    Args:
        cosines: (n, m).
        takes_part: Where the scores count, (n, m) bool; they are 0 elsewhere. None: everywhere.

    Returns:
        The rows of the source and those of the target, (n + m,) each.
    """
    source_means = _neighbor_means(cosines)  # (n,)
    target_means = _neighbor_means(cosines.T)  # (m,)
    # The mean of a word itself is the same for all of its candidates, and left out.
    scores_of_targets = cosines - target_means / 2
    scores_of_sources = cosines - source_means[:, None] / 2
    if takes_part is not None:
        scores_of_targets *= takes_part
        scores_of_sources *= takes_part
    count, other_count = cosines.shape
    source_rows = np.concatenate([np.arange(count), scores_of_sources.argmax(axis=0)])
    target_rows = np.concatenate([scores_of_targets.argmax(axis=1), np.arange(other_count)])
    return source_rows, target_rows


def _neighbor_means(cosines: np.ndarray) -> np.ndarray:
    """Return the mean of the ten largest cosines of each row (n, m), or of all if m is less."""
    neighbors = min(NEIGHBORS, cosines.shape[1])
    return np.partition(cosines, -neighbors, axis=1)[:, -neighbors:].mean(axis=1)


# ---- Without a dictionary, by adversarial training


def align_adversarially(
    source: WordVectors,
    target: WordVectors,
    epochs: int = 5,
    steps: int = 31_250,
    restarts: int = 1,
    frequent: int = 50_000,
    hidden: int = 2048,
    seed: int = 42,
) -> np.ndarray:
    """Return a mapping by which a discriminator cannot tell source words from target words.

    It needs no dictionary (Conneau, 2019, section 4.1). The discriminator is MUSE's: two hidden
    layers, input dropout 0.1; five steps of it for one of the mapping, in batches of 32 words of
    each language; SGD with decay 0.95 an epoch, halved where the [`criterion`] falls. The rate is
    0.1 for the discriminator and 0.5 for the mapping, which is left behind at 0.1. After each step
    of the mapping, `W <- 1.1 W - 0.1 W W^T W` (equation 4.7).

    The vectors keep their relative lengths, which tell frequent words from rare ones, but get the
    mean square length d: at length 1, the discriminator's gradients at this rate are too small to
    learn from.

    Many runs end at a wrong mapping, and where a run begins decides it. The first run begins with
    the identity, and the second with the identity in which one axis is mirrored, because a rotation
    turns into a reflection only by flattening an axis. Further runs begin with random orthogonal
    mappings, rotations and reflections in turn. The criterion chooses among the epochs of all runs.
    Each epoch is logged at level INFO.

    Args:
        source: The words that are mapped.
        target: The words of the other language.
        epochs: How often the mapping of a run is judged.
        steps: The steps of the mapping in an epoch. The default takes hours on a CPU.
        restarts: The runs after the first.
        frequent: The words of each language that are drawn, all with one probability.
        hidden: The width of the discriminator's layers.
        seed: The seed of weights and draws.

    Returns:
        (d, d), orthogonal: the one nearest to the mapping after the epoch with the highest
        criterion.
    """
    best_criterion = -np.inf
    best_mapping = np.eye(source.vectors.shape[1])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for run in range(restarts + 1):
            run_mapping, run_criterion = _play_run(
                source, target, run, epochs=epochs, steps=steps, frequent=frequent, hidden=hidden
            )
            if run_criterion > best_criterion:
                best_criterion = run_criterion
                best_mapping = run_mapping
    return best_mapping


def _play_run(
    source: WordVectors,
    target: WordVectors,
    run: int,
    *,
    epochs: int,
    steps: int,
    frequent: int,
    hidden: int,
) -> tuple[np.ndarray, float]:
    """Return the mapping (d, d) of the epoch with the highest criterion of a run, and that one."""
    best_criterion = -np.inf
    best_mapping = np.eye(source.vectors.shape[1])
    game = _AdversarialGame(
        source.vectors[:frequent],
        target.vectors[:frequent],
        hidden,
        first_mapping(source.vectors.shape[1], run),
    )
    for epoch in range(epochs):
        desc = f"Run {run + 1}, epoch {epoch + 1} of {epochs}"
        for _ in progress_bar(range(steps), desc=desc, unit=" steps"):
            game.play()
        mapping = game.nearest_orthogonal()
        value = criterion(source, target, mapping)
        logger.info(
            "%s: criterion %.4f, discriminator right %.1f %%", desc, value, 100 * game.accuracy()
        )
        game.decay(DECAY if value >= best_criterion else FALLEN_DECAY)
        if value > best_criterion:
            best_criterion = value
            best_mapping = mapping
    return best_mapping, best_criterion


def first_mapping(dimension: int, run: int) -> torch.Tensor:
    """Return the orthogonal mapping (d, d) that a run begins with.

    Its determinant is 1 if the number of the run is even, and -1 if it is odd.
    """
    mapping = torch.eye(dimension)
    if run > 1:
        mapping = torch.linalg.qr(torch.randn(dimension, dimension)).Q
    is_reflection = bool(torch.linalg.det(mapping) < 0)
    if is_reflection != (run % 2 == 1):
        mapping[:, -1] *= -1
    return mapping


class _AdversarialGame:
    """A mapping of source words, and a discriminator that tells them from target words.

    Args:
        source: The vectors that are mapped, (n, d) float32.
        target: The vectors of the other language, (m, d) float32.
        hidden: The width of the discriminator's layers.
        mapping: The mapping at the beginning, (d, d).
    """

    def __init__(
        self, source: np.ndarray, target: np.ndarray, hidden: int, mapping: torch.Tensor
    ) -> None:
        dimension = source.shape[1]
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.source = self._table(source)
        self.target = self._table(target)
        self.discriminator = nn.Sequential(
            nn.Dropout(DROPOUT),
            nn.Linear(dimension, hidden),
            nn.LeakyReLU(0.2),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(0.2),
            nn.Linear(hidden, 1),
        ).to(self.device)
        self.mapping = nn.Parameter(mapping.to(self.device))
        self.discriminator_optimizer = torch.optim.SGD(
            self.discriminator.parameters(), lr=DISCRIMINATOR_RATE
        )
        self.mapping_optimizer = torch.optim.SGD([self.mapping], lr=MAPPING_RATE)
        # The smoothed probabilities that a word is one of the source, (2 BATCH,).
        smoothed = [1 - SMOOTHING] * BATCH + [SMOOTHING] * BATCH
        self.is_source = torch.tensor(smoothed, device=self.device)

    def play(self) -> None:
        """Take some steps of the discriminator, and one of the mapping."""
        self.discriminator.train()
        for _ in range(DISCRIMINATOR_STEPS):
            self._step(self.discriminator_optimizer, self.is_source)
        self.discriminator.eval()
        self._step(self.mapping_optimizer, 1 - self.is_source)
        with torch.no_grad():
            w = self.mapping
            beta = ORTHOGONALIZATION
            self.mapping.copy_((1 + beta) * w - beta * w @ w.T @ w)

    def nearest_orthogonal(self) -> np.ndarray:
        """Return the orthogonal matrix that is nearest to the mapping, (d, d)."""
        mapping = self.mapping.detach().cpu().numpy()
        return procrustes(np.eye(len(mapping)), mapping.T)

    @torch.no_grad()
    def accuracy(self) -> float:
        """Return how many of the 10,000 most frequent words the discriminator tells right."""
        self.discriminator.eval()
        source_logits = self.discriminator(self.source[:CRITERION] @ self.mapping.T)[:, 0]  # (n,)
        target_logits = self.discriminator(self.target[:CRITERION])[:, 0]  # (m,)
        right = torch.cat([source_logits > 0, target_logits <= 0])
        return float(right.float().mean())

    def decay(self, factor: float) -> None:
        """Multiply the learning rates by a factor."""
        for optimizer in (self.discriminator_optimizer, self.mapping_optimizer):
            for group in optimizer.param_groups:
                group["lr"] *= factor

    def _table(self, vectors: np.ndarray) -> torch.Tensor:
        """Return vectors with the mean square length d."""
        table = torch.from_numpy(vectors).to(self.device)
        return table / table.square().mean().sqrt()

    def _step(self, optimizer: torch.optim.Optimizer, expected: torch.Tensor) -> None:
        """Take a step of one player, for which the discriminator should say what is expected."""
        self.discriminator_optimizer.zero_grad()
        self.mapping_optimizer.zero_grad()
        source_words = self._draw(self.source) @ self.mapping.T  # (BATCH, d)
        target_words = self._draw(self.target)
        logits = self.discriminator(torch.cat([source_words, target_words]))[:, 0]  # (2 BATCH,)
        F.binary_cross_entropy_with_logits(logits, expected).backward()
        optimizer.step()

    def _draw(self, table: torch.Tensor) -> torch.Tensor:
        """Return the vectors of a batch of words, (BATCH, d)."""
        return table[torch.randint(len(table), (BATCH,), device=self.device)]
