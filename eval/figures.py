"""Figures of embedding spaces, principal components, accuracy by language pair, training curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from modeling_tmde import TmdeError
from tmde.data.io import replacing
from tmde.eval.results import METRICS, Cell, Metric, languages_of, summarize
from tmde.eval.training_log import TRAINING, log_panels, read_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

__all__ = [
    "COLORS",
    "DebiasedPair",
    "draw_accuracy_matrix",
    "draw_embedding_space",
    "draw_principal_components",
    "draw_training_curves",
]

# Okabe and Ito's colors, which color-blind people tell apart. With more groups the markers change.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")
# The perplexity of t-SNE is a quarter of the number of documents, and at least 1.
FEWEST_MAPPED_DOCUMENTS = 4
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))

# So many entries of a legend fit beside a map.
MAX_LEGEND_ROWS = 24
# So many pairs of languages fit into a figure of principal components.
MAX_PAIRS = 12


# ---- Embedding spaces


def draw_embedding_space(
    path: str | Path,
    vectors: np.ndarray,
    labels: Sequence[str],
    languages: Sequence[str],
    document_ids: Sequence[str],
    title: str = "",
    seed: int = 0,
    max_documents: int = 150,
) -> None:
    """Draw a t-SNE map of documents three times.

    The first map is colored by class, the second by language, and the third joins translations.
    With a good embedder the classes separate in the first, the languages mix in the second, and the
    lines of the third are too short to see (Li, 2021, figures 3.2-3.4).

    Args:
        path: The PNG, SVG or PDF to write.
        vectors: One document per row, (n, d).
        labels: The class of each row.
        languages: The language of each row.
        document_ids: The id of each row; rows with the same id are translations.
        title: The title of the figure.
        seed: The seed of t-SNE and of the sampled documents.
        max_documents: The largest number of document ids to draw, each with all its translations.
            A larger set is sampled: t-SNE of more than about 2,000 points is slow and hard to read.

    Raises:
        ImportError: Matplotlib is missing.
        ValueError: There are fewer documents than `FEWEST_MAPPED_DOCUMENTS`.
    """
    documents = pd.DataFrame(
        {"label": list(labels), "language": list(languages), "id": list(document_ids)},
        dtype=object,
    )
    names = pd.unique(documents["id"])
    if len(names) > max_documents:
        sampled = np.random.default_rng(seed).choice(len(names), max_documents, replace=False)
        is_sampled = np.isin(documents["id"].to_numpy(), names[sampled])
        documents = documents[is_sampled]
        vectors = vectors[is_sampled]
        title = f"{title} ({max_documents:,} of {len(names):,} documents)".strip()
    figure = _figure(width=16.5, height=5.6)
    points = _tsne(vectors, seed)
    by_class, by_language, joined = figure.subplots(1, 3)
    _draw_map(by_class, "by class", points, documents["label"], size=14)
    _draw_map(by_language, "by language", points, documents["language"], size=14)
    _draw_map(joined, "translations joined", points, documents["language"], size=7)
    _add_legend(by_class, documents["label"])
    _add_legend(by_language, documents["language"])
    ids = documents["id"].to_numpy()
    for document_id in pd.unique(ids):
        translations = points[ids == document_id]
        joined.plot(*translations.T, color="0.6", linewidth=0.6, zorder=1)
    figure.suptitle(title)
    _save(figure, path)


def _tsne(vectors: np.ndarray, seed: int) -> np.ndarray:
    """Return the points (n, 2) of a map of vectors (n, d)."""
    perplexity = min(30, len(vectors) // FEWEST_MAPPED_DOCUMENTS)
    tsne = TSNE(metric="cosine", init="random", perplexity=perplexity, random_state=seed)
    return tsne.fit_transform(vectors)


def _draw_map(axes: Axes, title: str, points: np.ndarray, groups: pd.Series, size: float) -> None:
    """Draw points (n, 2) in the colors and markers of their groups."""
    for index, group in enumerate(sorted(set(groups))):
        group_points = points[(groups == group).to_numpy()]
        axes.scatter(
            group_points[:, 0],
            group_points[:, 1],
            s=size,
            label=group,
            color=COLORS[index % len(COLORS)],
            marker=MARKERS[index // len(COLORS) % len(MARKERS)],
            linewidths=0,
            zorder=2,
        )
    axes.set(title=title, xticks=[], yticks=[])


def _add_legend(axes: Axes, groups: pd.Series) -> None:
    columns = math.ceil(len(set(groups)) / MAX_LEGEND_ROWS)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, ncols=columns)


# ---- Principal components


@dataclass(frozen=True)
class DebiasedPair:
    """The vectors of parallel texts in two languages, as they are and debiased.

    Args:
        languages: The two languages.
        raw: The vectors of each language, (n, d).
        debiased: The same without the directions of their language.
        rank: The number of directions that were removed from each language.
        accuracies: How often a linear classifier tells the language of raw and of debiased vectors.
    """

    languages: tuple[str, str]
    raw: Sequence[np.ndarray]
    debiased: Sequence[np.ndarray]
    rank: int
    accuracies: tuple[float, float]


def draw_principal_components(
    path: str | Path, pairs: Sequence[DebiasedPair], title: str = ""
) -> Figure:
    """Draw the first two principal components of vectors of two languages, raw beside debiased.

    The raw vectors are drawn as in Gong et al. (2021), figures 1 and 2: languages separate where
    vectors are biased. Each panel has components of its own.

    Args:
        path: The PNG, SVG or PDF to write.
        pairs: The pairs of languages; no more than `MAX_PAIRS` can be read easily.
        title: The title of the figure.

    Returns:
        The figure, with two panels a pair.

    Raises:
        ImportError: Matplotlib is missing.
    """
    columns = min(2, len(pairs))
    rows = math.ceil(len(pairs) / columns)
    figure = _figure(width=8.4 * columns, height=4 * rows + 0.5)
    grid = figure.subplots(rows, 2 * columns, squeeze=False).reshape(-1, 2)
    for axes in grid[len(pairs) :].flat:
        axes.set_axis_off()
    styles = _language_styles(pairs)
    for (raw_axes, debiased_axes), pair in zip(grid, pairs, strict=False):
        first, second = pair.languages
        raw_accuracy, debiased_accuracy = pair.accuracies
        removed = "1 direction" if pair.rank == 1 else f"{pair.rank} directions"
        raw_axes.set_title(
            f"{first} and {second}, raw\nlanguage predicted: {100 * raw_accuracy:.0f}%",
            fontsize=11,
        )
        debiased_axes.set_title(
            f"{first} and {second}, {removed} removed\n"
            f"language predicted: {100 * debiased_accuracy:.0f}%",
            fontsize=11,
        )
        _draw_components(raw_axes, pair.languages, pair.raw, styles)
        _draw_components(debiased_axes, pair.languages, pair.debiased, styles)
    figure.suptitle(title)
    _save(figure, path)
    return figure


def _language_styles(pairs: Sequence[DebiasedPair]) -> dict[str, tuple[str, str]]:
    """Return the color and the marker of each language, the same in all panels."""
    languages: set[str] = set()
    for pair in pairs:
        languages.update(pair.languages)
    styles = {}
    for index, language in enumerate(sorted(languages)):
        color = COLORS[index % len(COLORS)]
        marker = MARKERS[index % len(MARKERS)]
        styles[language] = (color, marker)
    return styles


def _draw_components(
    axes: Axes,
    languages: Sequence[str],
    vectors: Sequence[np.ndarray],
    styles: Mapping[str, tuple[str, str]],
) -> None:
    """Draw the first two principal components of the vectors (n, d) of two languages."""
    analysis = PCA(2, svd_solver="full")
    points = analysis.fit_transform(np.vstack(vectors))  # (all vectors, 2)
    points_of_languages = np.split(points, [len(vectors[0])])
    for language, language_points in zip(languages, points_of_languages, strict=True):
        color, marker = styles[language]
        axes.scatter(
            language_points[:, 0],
            language_points[:, 1],
            s=12,
            label=language,
            color=color,
            marker=marker,
            alpha=0.6,
            linewidths=0,
        )
    first_share, second_share = 100 * analysis.explained_variance_ratio_
    axes.set_xlabel(f"component 1 ({first_share:.1f}% of the variance)")
    axes.set_ylabel(f"component 2 ({second_share:.1f}%)")
    axes.tick_params(labelsize=8)
    axes.legend(fontsize=9, markerscale=1.6)


# ---- Accuracy by language pair


def draw_accuracy_matrix(
    path: str | Path, cells_by_system: Mapping[str, Sequence[Cell]], title: str = ""
) -> Figure:
    """Draw the X-Y matrix of each system as a heat map in %, all on one color scale.

    Args:
        path: The PNG, SVG or PDF to write.
        cells_by_system: The cells of one metric by name of a system. Missing pairs stay gray.
        title: The title of the figure.

    Returns:
        The figure.

    Raises:
        ImportError: Matplotlib is missing.
    """
    all_cells: list[Cell] = []
    for cells in cells_by_system.values():
        all_cells.extend(cells)
    metric = METRICS[all_cells[0].metric]
    sources, targets = languages_of(all_cells)
    values = [100 * cell.value for cell in all_cells]
    limits = (min(values), max(values))

    columns = min(3, len(cells_by_system))
    rows = math.ceil(len(cells_by_system) / columns)
    figure = _figure(
        width=columns * (0.6 * len(targets) + 1.2) + 1.2,
        height=rows * (0.6 * len(sources) + 1.5) + 0.4,
    )
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    panels = grid[: len(cells_by_system)]
    unused_panels = grid[len(cells_by_system) :]
    for axes in unused_panels:
        axes.set_axis_off()
    for axes, (system, cells) in zip(panels, cells_by_system.items(), strict=True):
        matrix = _matrix(cells, sources, targets)
        image = _draw_matrix(axes, matrix, limits)
        _label_matrix(axes, sources, targets, metric)
        axes.set_title(f"{system}\n{_means_text(cells)}", fontsize=11)
    figure.colorbar(image, ax=list(panels), label=metric.title, shrink=0.8)
    figure.suptitle(title)
    _save(figure, path)
    return figure


def _matrix(cells: Sequence[Cell], sources: list[str], targets: list[str]) -> np.ndarray:
    """Return the values in %, (sources, targets); NaN where a pair is missing."""
    matrix = np.full((len(sources), len(targets)), np.nan)
    for cell in cells:
        matrix[sources.index(cell.source), targets.index(cell.target)] = 100 * cell.value
    return matrix


def _draw_matrix(axes: Axes, matrix: np.ndarray, limits: tuple[float, float]) -> AxesImage:
    """Draw a matrix as colors and numbers; `limits` are the ends of the color scale."""
    low, high = limits
    image = axes.imshow(matrix, cmap="cividis", vmin=low, vmax=high)
    axes.set_facecolor("0.9")
    for (row, column), value in np.ndenumerate(matrix):
        if np.isfinite(value):
            is_dark = value < (low + high) / 2
            color = "white" if is_dark else "black"
            axes.text(
                column, row, f"{value:.1f}", color=color, ha="center", va="center", fontsize=10
            )
    return image


def _label_matrix(axes: Axes, sources: list[str], targets: list[str], metric: Metric) -> None:
    has_long_names = max(map(len, targets)) > 4
    rotation = 45 if has_long_names else 0
    axes.set_xticks(range(len(targets)), targets, rotation=rotation)
    axes.set_yticks(range(len(sources)), sources)
    axes.set(ylabel=metric.rows, xlabel=metric.columns)


def _means_text(cells: Sequence[Cell]) -> str:
    """Return a text such as `Same 85.0, Cross 65.0`."""
    means = summarize(cells)
    return ", ".join(f"{name} {100 * mean:.1f}" for name, mean in means.items() if name != "All")


# ---- Training curves


def draw_training_curves(path: str | Path, logs: Mapping[str, str | Path]) -> Figure:
    """Draw losses, dev measures and words per second against steps and minutes.

    Each run has a color; training and each dev set have a line style.

    Args:
        path: The PNG, SVG or PDF to write.
        logs: `log.jsonl` or the run's folder, by name of a run. A run may still be in progress.

    Returns:
        The figure.

    Raises:
        ImportError: Matplotlib is missing.
        TmdeError: A log is missing, empty or damaged, or holds nothing to draw.
    """
    runs: dict[str, pd.DataFrame] = {}
    keys: set[str] = set()
    for name, log in logs.items():
        runs[name] = pd.DataFrame(read_log(log))
        keys.update(runs[name].columns)
    panels = log_panels(keys)
    if not panels:
        paths = ", ".join(map(str, logs.values()))
        raise TmdeError(f"{paths}: found no loss, dev metric or speed to plot")
    colors = {name: COLORS[index % len(COLORS)] for index, name in enumerate(runs)}
    styles = _line_styles(panels)

    figure = _figure(width=12.8, height=2.3 * len(panels) + 0.9)
    grid = figure.subplots(len(panels), 2, squeeze=False, sharex="col", sharey="row")
    for (title, keys_of_data), (by_step, by_minute) in zip(panels.items(), grid, strict=True):
        by_step.set_ylabel(title)
        for name, run in runs.items():
            for data, keys_of_curve in keys_of_data.items():
                curve = _curve(run, keys_of_curve)
                # A training curve needs no marks, unless it is a single point.
                has_marks = data != TRAINING or len(curve) == 1
                style = {
                    "color": colors[name],
                    "linestyle": styles[data],
                    "linewidth": 1.4,
                    "marker": "o",
                    "markersize": 3 if has_marks else 0,
                }
                _draw_curve(by_step, by_minute, curve, style)
    _finish_axes(grid)
    _add_curve_legend(figure, colors, styles)
    _save(figure, path)
    return figure


def _line_styles(panels: Mapping[str, Mapping[str, list[str]]]) -> dict[str, Any]:
    """Return the line style of training and of each dev set."""
    data_names: set[str] = set()
    for keys_of_data in panels.values():
        data_names.update(keys_of_data)
    dev_sets = sorted(data_names - {TRAINING})
    ordered = [TRAINING, *dev_sets] if TRAINING in data_names else dev_sets
    return {name: LINES[index % len(LINES)] for index, name in enumerate(ordered)}


def _curve(run: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return step, minutes and value of the lines of a log that have any of these measures.

    Args:
        run: The log, one line per row.
        keys: The names of the measures; the value is their mean.
    """
    minutes = run.reindex(columns=["minutes", "eval_minutes"]).bfill(axis=1)["minutes"]
    value = run.reindex(columns=keys).mean(axis=1)
    curve = pd.DataFrame({"step": run["step"], "minutes": minutes, "value": value})
    return curve.dropna(subset=["value"])


def _draw_curve(
    by_step: Axes, by_minute: Axes, curve: pd.DataFrame, style: Mapping[str, Any]
) -> None:
    if curve.empty:
        return
    by_step.plot(curve["step"], curve["value"], **style)
    by_minute.plot(curve["minutes"], curve["value"], **style)


def _finish_axes(grid: np.ndarray) -> None:
    for axes in grid.flat:
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    grid[-1][0].set_xlabel("step")
    grid[-1][1].set_xlabel("minutes")


def _add_curve_legend(figure: Figure, colors: Mapping[str, str], styles: Mapping[str, Any]) -> None:
    """Add a legend of the colors of the runs and of the line styles of their data."""
    from matplotlib.lines import Line2D

    handles = []
    for name, color in colors.items():
        handles.append(Line2D([], [], color=color, linewidth=3, label=name))
    for name, style in styles.items():
        handles.append(Line2D([], [], color="0.3", linestyle=style, label=name))
    columns = min(6, len(handles))
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, frameon=False)


# ---- Files


def _figure(width: float, height: float) -> Figure:
    """Return an empty figure; the sizes are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: str | Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
