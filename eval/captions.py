"""Image-caption retrieval: captions and images are projected into one space and ranked there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from sklearn.decomposition import TruncatedSVD
from torch import nn

from tmde.documents.unit_rows import TIE, Matrix
from tmde.eval.ffn import drawn_linear
from tmde.eval.results import Cell
from tmde.eval.systems import System
from tmde.eval.tasks import CaptionData, CaptionedImages

CAPTIONS = "captions"
IMAGES = "images"

FOLD_IMAGES = 1000  # Images that are searched together (Karpathy and Fei-Fei, 2015).
RECALLS = (1, 5, 10)
# TF-IDF has hundreds of thousands of columns. As many as fastText's vectors have are kept.
SPARSE_DIMENSIONS = 300
_PROJECTED_ROWS = 4096  # Rows of features that are read and projected at a time.


@dataclass(frozen=True)
class RankingSettings:
    """How the two projections are trained; the defaults are those of SentEval's code.

    Attributes:
        dimensions: The size of the space in which captions and images are compared.
        margin: How much more similar a caption must be to its image than to another one.
        batch_size: Captions a step; those of the other images in the batch are the negatives.
        learning_rate: The learning rate of Adam.
        epochs: The most epochs over the train captions.
        worse_epochs: Training ends when more epochs than these were no better on dev than the best
            one before.
    """

    dimensions: int = 1000
    margin: float = 0.2
    batch_size: int = 128
    learning_rate: float = 0.001
    epochs: int = 20
    worse_epochs: int = 3


def evaluate_captions(
    data: CaptionData,
    system: System,
    settings: RankingSettings | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    progress: Callable[[str], None] | None = None,
) -> list[Cell]:
    """Evaluate how well captions retrieve images and images retrieve captions (Conneau, 2019).

    A ranking loss trains two linear maps, one for caption vectors and one for image features. The
    epoch with the best sum of recalls on dev is tested. Test images are searched in folds of 1,000,
    in order; images after the last full fold are omitted, and fewer than 1,000 form one fold. Any
    caption of an image counts as correct. Wrong candidates rank before a right one that they tie.

    Args:
        data: Captions and features of images.
        system: The system that embeds captions; it may be fitted to train captions. Sparse vectors
            are reduced to 300 dimensions by singular value decomposition.
        settings: How the maps are trained. Default: SentEval's settings.
        seeds: The seeds of the training runs.
        progress: A function called with a line of text before each epoch.

    Returns:
        Two cells, from `captions` to `images` and back. `value` is recall at 1, and `ids` are image
        ids. `extra` contains `recall_at_5`, `recall_at_10`, `median_rank` (of a fold, rounded down,
        averaged over folds and seeds), `dev` (the mean of the six recalls on dev), `size`
        (queries), `candidates` (in the largest fold) and `images_left_out`.

    Raises:
        TmdeError: A vector is not finite.
    """
    settings = settings or RankingSettings()
    vectors = _represent(data, system)
    runs = []
    for seed in seeds:
        trained = _Training(data, vectors, settings, seed)
        for epoch in range(settings.epochs):
            if trained.is_finished:
                break
            if progress is not None:
                progress(f"{system.name}: seed {seed}, epoch {epoch + 1} of {settings.epochs}")
            trained.run_epoch()
        runs.append((trained.best_dev, _search(trained.best, data, "test", vectors["test"])))
    cells = []
    for source, target in ((CAPTIONS, IMAGES), (IMAGES, CAPTIONS)):
        dev_scores = [dev_score for dev_score, _ in runs]
        searches = [by_source[source] for _, by_source in runs]
        cells.append(_cell(source, target, data, searches, dev_scores))
    return cells


def _represent(data: CaptionData, system: System) -> dict[str, torch.Tensor]:
    """Return the vectors of the captions of each split, (captions, d) in float32."""
    fit_on = list(data.splits["train"].captions)
    matrices: dict[str, Matrix] = {}
    for name, split in data.splits.items():
        matrices[name] = system.represent(list(split.captions), fit_on, data.language)
    train = matrices["train"]
    if scipy.sparse.issparse(train):
        dimensions = min(SPARSE_DIMENSIONS, *train.shape)
        reduction = TruncatedSVD(dimensions, random_state=0).fit(train)
        matrices = {name: reduction.transform(matrix) for name, matrix in matrices.items()}
    vectors = {}
    for name, matrix in matrices.items():
        vectors[name] = torch.from_numpy(np.ascontiguousarray(matrix, np.float32))
    return vectors


# ---- Training


class _Projections(nn.Module):
    """The linear maps of captions and of images into one space.

    Args:
        caption_size: The dimension of the vectors of captions.
        image_size: The number of features of an image.
        dimensions: The dimension of the space.
        generator: Draws the parameters.
    """

    def __init__(
        self, caption_size: int, image_size: int, dimensions: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.caption_map = drawn_linear(caption_size, dimensions, generator)
        self.image_map = drawn_linear(image_size, dimensions, generator)

    def captions(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return unit vectors (n, dimensions) of captions (n, caption_size)."""
        return F.normalize(self.caption_map(vectors), dim=1)

    def images(self, features: torch.Tensor) -> torch.Tensor:
        """Return unit vectors (n, dimensions) of images (n, image_size)."""
        return F.normalize(self.image_map(features), dim=1)


def ranking_loss(
    captions: torch.Tensor, images: torch.Tensor, image_numbers: torch.Tensor, margin: float
) -> torch.Tensor:
    """Return the pairwise ranking loss of a batch (Conneau, 2019, section 3.1.2).

    The negatives of a caption are the images of the batch that are not its own, and those of an
    image the captions of other images.

    Args:
        captions: Unit vectors of the captions, (n, d).
        images: Unit vectors of their images, (n, d); an image may occur several times.
        image_numbers: Which image it is, (n,).
        margin: The margin of the loss.

    Returns:
        The sum of both directions over all pairs and negatives.
    """
    scores = captions @ images.T  # (captions, images)
    right_scores = scores.diagonal()
    is_negative = image_numbers[:, None] != image_numbers[None, :]
    image_losses = (margin - right_scores[:, None] + scores).clamp(min=0)
    caption_losses = (margin - right_scores[None, :] + scores).clamp(min=0)
    return ((image_losses + caption_losses) * is_negative).sum()


class _Training:
    """The training of the projections with one seed.

    Args:
        data: Captions and features of images.
        vectors: The vectors of the captions of each split.
        settings: How the maps are trained.
        seed: Seed of the parameters and of the order of captions.

    Attributes:
        best: The maps after the best epoch on dev.
        best_dev: The mean of the six recalls on dev after it; -1 before the first epoch.
    """

    def __init__(
        self,
        data: CaptionData,
        vectors: dict[str, torch.Tensor],
        settings: RankingSettings,
        seed: int,
    ) -> None:
        self.data = data
        self.vectors = vectors
        self.settings = settings
        self.generator = torch.Generator().manual_seed(seed)
        self.projections = _Projections(
            vectors["train"].shape[1], data.features.shape[1], settings.dimensions, self.generator
        )
        self.optimizer = torch.optim.Adam(self.projections.parameters(), lr=settings.learning_rate)
        self.best = self.projections
        self.best_dev = -1.0
        self.worse_epochs = 0

    @property
    def is_finished(self) -> bool:
        """Whether too many epochs were no better."""
        return self.worse_epochs > self.settings.worse_epochs

    def run_epoch(self) -> None:
        """Train on every caption once, and keep the maps if dev is better than ever before."""
        self._train_epoch()
        recalls = []
        for search in _search(self.projections, self.data, "dev", self.vectors["dev"]).values():
            recalls += [search.recall_at(count) for count in RECALLS]
        dev_score = float(np.mean(recalls))
        if dev_score > self.best_dev:
            self.best_dev = dev_score
            self.best = copy.deepcopy(self.projections)
        else:
            self.worse_epochs += 1

    def _train_epoch(self) -> None:
        """Take a step for each batch of the shuffled train captions."""
        split = self.data.splits["train"]
        image_numbers = torch.from_numpy(split.image_numbers)
        order = torch.randperm(len(split.captions), generator=self.generator)
        for batch in order.split(self.settings.batch_size):
            numbers = image_numbers[batch]
            features = _features_of(self.data, split, numbers.numpy())
            loss = ranking_loss(
                self.projections.captions(self.vectors["train"][batch]),
                self.projections.images(features),
                numbers,
                self.settings.margin,
            )
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def _features_of(
    data: CaptionData, split: CaptionedImages, image_numbers: np.ndarray
) -> torch.Tensor:
    """Return the features of some images of a split in float32, (n, image_size)."""
    rows = data.features[split.feature_rows[image_numbers]]
    return torch.from_numpy(rows.astype(np.float32))


# ---- Search


@dataclass
class _Ranks:
    """The ranks of the right candidates in one direction.

    Attributes:
        folds: For each fold, the rank of the first right candidate of each query, from 1.
        image_ids: The image of each query, over all folds.
        chances: For each fold, the recall at 1 of each query by guessing.
        candidates: The number of candidates in the largest fold.
    """

    folds: list[np.ndarray] = field(default_factory=list)
    image_ids: list[str] = field(default_factory=list)
    chances: list[np.ndarray] = field(default_factory=list)
    candidates: int = 0

    def add_fold(self, scores: np.ndarray, is_right: np.ndarray, image_ids: Sequence[str]) -> None:
        """Add the ranks of a fold.

        Args:
            scores: Cosines of queries and candidates, (n, m).
            is_right: Which candidates are right, (n, m).
            image_ids: The image of each query.
        """
        self.folds.append(first_right_ranks(scores, is_right))
        self.image_ids += image_ids
        self.chances.append(is_right.mean(axis=1))
        self.candidates = max(self.candidates, is_right.shape[1])

    @property
    def ranks(self) -> np.ndarray:
        """The ranks of all queries."""
        return np.concatenate(self.folds)

    @property
    def chance(self) -> float:
        """The recall at 1 of guessing."""
        return float(np.concatenate(self.chances).mean())

    def recall_at(self, count: int) -> float:
        """Return the share of queries with a right candidate among the first ones."""
        return float(np.mean(self.ranks <= count))

    @property
    def median_rank(self) -> float:
        """The mean over folds of the median rank, rounded down as in SentEval."""
        return float(np.mean([np.floor(np.median(ranks)) for ranks in self.folds]))


@torch.no_grad()
def _search(
    projections: _Projections, data: CaptionData, name: str, vectors: torch.Tensor
) -> dict[str, _Ranks]:
    """Return the ranks of captions that search images, and of images that search captions.

    Args:
        projections: The maps.
        data: Captions and features of images.
        name: The split.
        vectors: The vectors of its captions.

    Returns:
        The ranks by what searches, `captions` and `images`.
    """
    split = data.splits[name]
    caption_vectors = projections.captions(vectors)
    image_vectors = _project_images(projections, data, split)
    by_captions = _Ranks()
    by_images = _Ranks()
    for images in search_folds(len(split.image_ids)):
        captions = np.flatnonzero(np.isin(split.image_numbers, images))
        scores = (caption_vectors[captions] @ image_vectors[images].T).numpy()
        numbers = split.image_numbers[captions]
        is_right = numbers[:, None] == images[None, :]  # (captions, images)
        by_captions.add_fold(scores, is_right, [split.image_ids[number] for number in numbers])
        by_images.add_fold(scores.T, is_right.T, [split.image_ids[number] for number in images])
    return {CAPTIONS: by_captions, IMAGES: by_images}


def search_folds(image_count: int) -> list[np.ndarray]:
    """Return the numbers of the images of each fold: 1,000, or all if there are fewer.

    Images behind the last full fold are in none, because a search among more images is harder.

    Args:
        image_count: The number of images, numbered from 0.
    """
    if image_count < FOLD_IMAGES:
        return [np.arange(image_count)]
    fold_count = image_count // FOLD_IMAGES
    return np.split(np.arange(fold_count * FOLD_IMAGES), fold_count)


def _project_images(
    projections: _Projections, data: CaptionData, split: CaptionedImages
) -> torch.Tensor:
    """Return unit vectors of all images of a split, (images, dimensions)."""
    blocks = []
    for numbers in torch.arange(len(split.image_ids)).split(_PROJECTED_ROWS):
        blocks.append(projections.images(_features_of(data, split, numbers.numpy())))
    return torch.cat(blocks)


def first_right_ranks(scores: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Return the rank of the first right candidate of each query.

    A wrong candidate that ties with it counts as before it.

    Args:
        scores: Cosines of queries and candidates, (n, m).
        is_right: Which candidates are right, (n, m); at least one for each query.

    Returns:
        (n,) ranks, from 1.
    """
    best_right = np.where(is_right, scores, -np.inf).max(axis=1)  # (n,)
    is_before = ~is_right & (scores >= best_right[:, None] - TIE)
    return 1 + is_before.sum(axis=1)


def _cell(
    source: str,
    target: str,
    data: CaptionData,
    searches: Sequence[_Ranks],
    dev_scores: Sequence[float],
) -> Cell:
    """Return the scores of one direction, means over the trainings of all seeds."""
    first = searches[0]
    image_count = len(data.splits["test"].image_ids)
    searched_count = sum(map(len, search_folds(image_count)))
    is_first = np.stack([search.ranks == 1 for search in searches])  # (seeds, queries)
    recalls = is_first.mean(axis=1)  # (seeds,)
    std = None
    seed_values: tuple[float, ...] = ()
    if len(searches) > 1:
        std = float(recalls.std(ddof=1))
        seed_values = tuple(recalls.tolist())
    return Cell(
        source=source,
        target=target,
        metric="recall_at_1",
        value=float(recalls.mean()),
        ids=first.image_ids,
        outcomes=is_first.mean(axis=0),
        chance=first.chance,
        std=std,
        seed_values=seed_values,
        extra={
            "recall_at_5": float(np.mean([search.recall_at(5) for search in searches])),
            "recall_at_10": float(np.mean([search.recall_at(10) for search in searches])),
            "median_rank": float(np.mean([search.median_rank for search in searches])),
            "dev": float(np.mean(dev_scores)),
            "size": float(len(first.image_ids)),
            "candidates": float(first.candidates),
            "images_left_out": float(image_count - searched_count),
        },
    )
