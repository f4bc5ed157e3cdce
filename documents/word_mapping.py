"""Mappings of the word vectors of one language into the space of another.

MUSE: Conneau et al., 2018, arXiv 1710.04087; thesis 004, section 4.1.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from modeling_tmde import TmdeError
from tmde.documents.mining import mine_bitext
from tmde.documents.unit_rows import row_cosines, unit_vectors
from tmde.documents.word_files import WordVectors
from tmde.embedding.progress import progress_bar

NEIGHBORS = 10  # neighbors of a word in CSLS
FREQUENT = 20_000  # words whose mutual neighbors are the dictionary of a refinement
CRITERION = 10_000  # words whose neighbors are the criterion of a mapping

# Settings of MUSE's adversarial game.
BATCH = 32  # words of each language
DISCRIMINATOR_STEPS = 5  # steps of the discriminator for one of the mapping
LEARNING_RATE = 0.1
DECAY = 0.95  # factor of the learning rate after an epoch
FALLEN_DECAY = 0.475  # the same, halved, after an epoch in which the criterion has fallen
SMOOTHING = 0.2
DROPOUT = 0.1
ORTHOGONALIZATION = 0.01  # beta of equation 4.7


def align_words(
    source: WordVectors,
    target: WordVectors,
    dictionary: np.ndarray | None = None,
    refinements: int = 5,
    **adversarial: int,
) -> np.ndarray:
    """Return the orthogonal mapping (d, d) of source vectors into the space of the target.

    Args:
        source: The words that are mapped.
        target: The words of the other language.
        dictionary: Row numbers (p, 2) of translations, see
            [`~tmde.documents.word_files.read_dictionary`]. None: [`align_adversarially`].
        refinements: The most rounds of [`refine`].
        **adversarial: Arguments of [`align_adversarially`].

    Raises:
        TmdeError: The dimensions differ.
    """
    source_dimension = source.vectors.shape[1]
    target_dimension = target.vectors.shape[1]
    if source_dimension != target_dimension:
        raise TmdeError(
            f"Found word vectors of {source_dimension} and {target_dimension} dimensions, "
            "expected the same of both"
        )
    if dictionary is None:
        mapping = align_adversarially(source, target, **adversarial)
    else:
        known_source = unit_vectors(source.vectors[dictionary[:, 0]])
        known_target = unit_vectors(target.vectors[dictionary[:, 1]])
        mapping = procrustes(known_source, known_target)
    return refine(source, target, mapping, refinements)


def procrustes(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the orthogonal W (d, d) with the smallest `||W x - y||` over pairs of rows x and y.

    It is `U V^T`, where `U S V^T` is the singular value decomposition of `Y^T X` (004, equation
    4.2).

    Args:
        source: The rows x, (p, d).
        target: The rows y, (p, d).
    """
    u, _, v = np.linalg.svd(target.T.astype(np.float64) @ source.astype(np.float64))
    return u @ v


def refine(
    source: WordVectors, target: WordVectors, mapping: np.ndarray, rounds: int = 5
) -> np.ndarray:
    """Improve a mapping by Procrustes on mutual CSLS neighbors (004, section 4.1.2).

    The neighbors are those among the 20,000 most frequent words.

    Args:
        source: The words that are mapped.
        target: The words of the other language.
        mapping: (d, d).
        rounds: The most rounds; they end with the first that does not raise the [`criterion`].

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
        refined = procrustes(frequent_source[pairs.first], frequent_target[pairs.second])
        refined_criterion = criterion(source, target, refined)
        if refined_criterion <= best_criterion:
            break
        best_criterion = refined_criterion
        mapping = refined
    return mapping


def criterion(source: WordVectors, target: WordVectors, mapping: np.ndarray) -> float:
    """Return how good a mapping is, which needs no dictionary (004, section 4.1.3).

    It is the mean cosine of the 10,000 most frequent source words to their CSLS translations among
    as many target words.
    """
    queries = source[:CRITERION].mapped(mapping).vectors
    candidates = target[:CRITERION].vectors
    pairs = mine_bitext(queries, candidates, scoring="distance", k=NEIGHBORS, retrieval="forward")
    cosines = row_cosines(queries[pairs.first], candidates[pairs.second])
    return float(cosines.mean())


# ---- Without a dictionary


def align_adversarially(
    source: WordVectors,
    target: WordVectors,
    epochs: int = 5,
    steps: int = 31_250,
    frequent: int = 50_000,
    hidden: int = 2048,
    seed: int = 42,
) -> np.ndarray:
    """Return a mapping by which a discriminator cannot tell source words from target words.

    It needs no dictionary (004, section 4.1). The settings are MUSE's: a discriminator with two
    hidden layers, input dropout 0.1 and smoothing 0.2; five steps of it for one of the mapping, in
    batches of 32 words of each language; SGD at 0.1, with decay 0.95 an epoch, halved where the
    [`criterion`] falls; after each step, `W <- 1.01 W - 0.01 W W^T W` (equation 4.7).

    The vectors keep their relative lengths, which tell frequent words from rare ones, but get the
    mean square length d: at length 1, the discriminator's gradients at this rate are too small to
    learn from.

    Args:
        source: The words that are mapped.
        target: The words of the other language.
        epochs: How often the mapping is judged.
        steps: The steps of the mapping in an epoch. The default takes hours on a CPU.
        frequent: The words of each language that are drawn, all with one probability.
        hidden: The width of the discriminator's layers.
        seed: The seed of weights and draws.

    Returns:
        (d, d), orthogonal: the one nearest to the mapping after the epoch with the highest
        criterion.
    """
    dimension = source.vectors.shape[1]
    best_criterion = -np.inf
    best_mapping = np.eye(dimension)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        game = _AdversarialGame(source.vectors[:frequent], target.vectors[:frequent], hidden)
        for epoch in range(epochs):
            desc = f"Epoch {epoch + 1} of {epochs}"
            for _ in progress_bar(range(steps), desc=desc, unit=" steps"):
                game.play()
            mapping = game.nearest_orthogonal()
            value = criterion(source, target, mapping)
            game.decay(DECAY if value >= best_criterion else FALLEN_DECAY)
            if value > best_criterion:
                best_criterion = value
                best_mapping = mapping
    return best_mapping


class _AdversarialGame:
    """A mapping of source words, and a discriminator that tells them from target words.

    Args:
        source: The vectors that are mapped, (n, d) float32.
        target: The vectors of the other language, (m, d) float32.
        hidden: The width of the discriminator's layers.
    """

    def __init__(self, source: np.ndarray, target: np.ndarray, hidden: int) -> None:
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
        self.mapping = nn.Parameter(torch.eye(dimension, device=self.device))
        self.discriminator_optimizer = torch.optim.SGD(
            self.discriminator.parameters(), lr=LEARNING_RATE
        )
        self.mapping_optimizer = torch.optim.SGD([self.mapping], lr=LEARNING_RATE)
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
