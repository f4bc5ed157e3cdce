"""Pictures of an embedding space."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.manifold import TSNE


def draw_embedding_space(
    path: str | Path,
    vectors: np.ndarray,
    labels: Sequence[str],
    languages: Sequence[str],
    document_ids: Sequence[str],
    title: str = "",
    seed: int = 0,
) -> None:
    """Draws documents in two dimensions (t-SNE), coloured by class, by language, and with translations joined.

    Where an embedder works, the colours of the first panel part, those of the second mix, and the lines of the third
    are too short to see. (Thesis figures 3.2-3.4.)

    Args:
        path: PNG, SVG or PDF to write.
        vectors: (n, d), one document a row.
        labels, languages, document_ids: Of each row; rows of one document id are translations.
        title: Above the panels.
        seed: Of t-SNE.

    Raises:
        ImportError: If matplotlib is missing.
        ValueError: If there are fewer than five documents, too few for t-SNE.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Drawing needs matplotlib: pip install 'tmde[figures]'") from error
    if len(vectors) < 5:
        raise ValueError(f"t-SNE needs at least 5 documents, found {len(vectors)}")
    points = TSNE(
        metric="cosine", init="random", perplexity=min(30, len(vectors) // 4), random_state=seed
    ).fit_transform(vectors)
    figure = Figure(figsize=(16.5, 5.6), layout="constrained")
    by_class, by_language, joined = figure.subplots(1, 3)
    for axes, groups, name in ((by_class, labels, "by class"), (by_language, languages, "by language")):
        _scatter(axes, points, np.asarray(groups))
        axes.set_title(name)
    for document in dict.fromkeys(document_ids):
        line = points[np.asarray(document_ids) == document]
        joined.plot(*line.T, color="0.6", linewidth=0.6, zorder=1)
    _scatter(joined, points, np.asarray(languages), size=7)
    joined.set_title("translations joined")
    figure.suptitle(title)
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    figure.savefig(temporary, dpi=130)
    os.replace(temporary, path)


def _scatter(axes, points: np.ndarray, groups: np.ndarray, size: float = 14) -> None:
    colours = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")
    for index, group in enumerate(sorted(set(groups))):
        chosen = points[groups == group]
        axes.scatter(*chosen.T, s=size, color=colours[index % len(colours)], label=group, linewidths=0, zorder=2)
    axes.legend(markerscale=1.8, fontsize=9, loc="best", framealpha=0.8)
    axes.set_xticks([])
    axes.set_yticks([])
