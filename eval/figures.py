"""Figures of embedding spaces, of accuracy by language pair, and of training curves."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.manifold import TSNE

from modeling_tmde.data.io import replacing
from modeling_tmde.eval.report import AXES, METRICS, languages_of
from modeling_tmde.eval.results import Cell, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind people tell apart; with more groups the markers change.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")
DPI = 130
LEGEND_ROWS = 24
LOG_NAME = "log.jsonl"


def draw_embedding_space(
    path: str | Path,
    vectors: np.ndarray,
    labels: Sequence[str],
    languages: Sequence[str],
    document_ids: Sequence[str],
    title: str = "",
    seed: int = 0,
    max_documents: int = 400,
) -> None:
    """Draws a t-SNE map of documents, colored by class, colored by language, and with translations joined.

    With a good embedder the classes separate in the first panel, the languages mix in the second, and the lines of
    the third are too short to see (thesis, figures 3.2-3.4).

    Args:
        path: PNG, SVG or PDF to write.
        vectors: (n, d), one document a row.
        labels, languages, document_ids: One per row; rows with the same document id are translations.
        title: Title of the figure.
        seed: Seed of t-SNE and of the sampled documents.
        max_documents: Largest number of document ids to draw, each with all its translations. A larger set is
            sampled: t-SNE of more than about 2,000 points is slow and hard to read.

    Raises:
        ImportError: If matplotlib is missing.
        ValueError: If there are fewer than five documents, too few for t-SNE, or not as many labels as vectors.
    """
    columns = {"labels": labels, "languages": languages, "document_ids": document_ids}
    for name, column in columns.items():
        if len(column) != len(vectors):
            raise ValueError(f"{name}: found {len(column)}, expected one for each of {len(vectors)} vectors")
    names = np.array(list(dict.fromkeys(document_ids)), dtype=object)
    if len(names) > max_documents:
        chosen = set(np.random.default_rng(seed).choice(len(names), max_documents, replace=False).tolist())
        place = {name: position for position, name in enumerate(names)}
        kept = [row for row, name in enumerate(document_ids) if place[name] in chosen]
        vectors = np.asarray(vectors)[kept]
        labels, languages, document_ids = ([column[row] for row in kept] for column in columns.values())
        title = f"{title} ({max_documents:,} of {len(names):,} documents)".strip()
    if len(vectors) < 5:
        raise ValueError(f"t-SNE needs at least 5 documents, found {len(vectors)}")
    figure = new_figure((16.5, 5.6))
    points = TSNE(
        metric="cosine", init="random", perplexity=min(30, len(vectors) // 4), random_state=seed
    ).fit_transform(vectors)
    by_class, by_language, joined = figure.subplots(1, 3)
    for axes, groups, name in ((by_class, labels, "by class"), (by_language, languages, "by language")):
        _scatter(axes, points, np.asarray(groups))
        axes.set_title(name)
    for document in dict.fromkeys(document_ids):
        joined.plot(*points[np.asarray(document_ids) == document].T, color="0.6", linewidth=0.6, zorder=1)
    _scatter(joined, points, np.asarray(languages), size=7)
    if len(set(languages)) > len(COLOURS):  # the legend would be as large as the panel; the second panel shows it
        joined.get_legend().remove()
    joined.set_title("translations joined")
    figure.suptitle(title)
    save_figure(figure, path)


def _scatter(axes: Axes, points: np.ndarray, groups: np.ndarray, size: float = 14) -> None:
    """Plots points (n, 2) in the colors of their groups (n,), with a legend."""
    names = sorted(set(groups))
    for index, group in enumerate(names):
        style = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index // len(COLOURS) % len(MARKERS)]}
        axes.scatter(*points[groups == group].T, s=size, label=group, linewidths=0, zorder=2, **style)
    if len(names) > len(COLOURS):
        columns = math.ceil(len(names) / LEGEND_ROWS)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), markerscale=1.8, fontsize=8, ncols=columns)
    else:
        axes.legend(markerscale=1.8, fontsize=9, loc="best", framealpha=0.8)
    axes.set_xticks([])
    axes.set_yticks([])


def draw_accuracy_matrix(path: str | Path, cells_by_system: Mapping[str, Sequence[Cell]], title: str = "") -> Figure:
    """Draws the X-Y matrix of each system as a heat map in %, all on one color scale.

    Args:
        path: PNG, SVG or PDF to write.
        cells_by_system: Cells of one metric by system name. Missing pairs stay gray.
        title: Title of the figure.

    Raises:
        ImportError: If matplotlib is missing.
        ValueError: If there are no cells, or cells of several metrics.
    """
    every = [cell for cells in cells_by_system.values() for cell in cells]
    metrics = sorted({cell.metric for cell in every})
    if len(metrics) != 1:
        raise ValueError(f"An accuracy matrix: found cells of the metrics {metrics}, expected one metric")
    sources, targets = languages_of([(cell.source, cell.target) for cell in every])
    values = [100 * cell.value for cell in every if math.isfinite(cell.value)] or [0.0]
    low, high = min(values), max(values)
    low, high = (low, high) if high > low else (low - 1, high + 1)
    columns = min(3, len(cells_by_system))
    rows = math.ceil(len(cells_by_system) / columns)
    side = 0.68 if max(len(sources), len(targets)) <= 12 else 0.48
    size = (columns * (side * len(targets) + 1.2) + 1.2, rows * (side * len(sources) + 1.5) + 0.4)
    figure = new_figure(size)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(cells_by_system) :]:
        axes.set_axis_off()
    used = grid.flat[: len(cells_by_system)]
    for axes, (system, cells) in zip(used, cells_by_system.items(), strict=True):
        image = _heat_map(axes, cells, sources, targets, (low, high), font=11 if side > 0.5 else 8)
        means = ", ".join(f"{name} {100 * value:.1f}" for name, value in summarize(cells).items() if name != "All")
        axes.set_title(f"{system}\n{means}", fontsize=11)
        of_rows, of_columns = AXES.get(metrics[0], ("source", "target"))
        axes.set_ylabel(of_rows)
        axes.set_xlabel(of_columns)
    figure.colorbar(image, ax=list(used), label=METRICS.get(metrics[0], metrics[0]), shrink=0.8)
    figure.suptitle(title)
    save_figure(figure, path)
    return figure


def _heat_map(
    axes: Axes, cells: Sequence[Cell], sources: list[str], targets: list[str], limits: tuple[float, float], font: int
):
    values = np.full((len(sources), len(targets)), np.nan)
    for cell in cells:
        values[sources.index(cell.source), targets.index(cell.target)] = 100 * cell.value
    image = axes.imshow(np.ma.masked_invalid(values), cmap="cividis", vmin=limits[0], vmax=limits[1], aspect="equal")
    axes.set_facecolor("0.9")
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = _legible_on(image.cmap(image.norm(value)))
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=font)
    axes.set_xticks(range(len(targets)), targets, rotation=45 if max(map(len, targets)) > 4 else 0)
    axes.set_yticks(range(len(sources)), sources)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def _legible_on(colour: Sequence[float]) -> str:
    """Black or white, whichever has the higher contrast (WCAG 2: black from a luminance of 0.179)."""
    red, green, blue = (((value + 0.055) / 1.055) ** 2.4 for value in colour[:3])
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 else "black"


def draw_training_curves(path: str | Path, logs: Mapping[str, str | Path]) -> Figure:
    """Draws losses, dev retrieval and words per second against steps and, if logged, minutes.

    Args:
        path: PNG, SVG or PDF to write.
        logs: `log.jsonl` or run folder by run name. A run may still be in progress.

    Raises:
        ImportError: If matplotlib is missing.
        ValueError: If a log is missing, empty or damaged, or holds nothing to draw.
    """
    runs = {name: panels(read_log(path)) for name, path in logs.items()}
    titles = list(dict.fromkeys(title for found in runs.values() for title in found))
    if not titles:
        raise ValueError(f"{', '.join(map(str, logs.values()))}: found no loss, dev measure or speed to draw")
    titles.sort(key=lambda title: title == "Words per second")  # stable: runs differ in objectives
    sets = list(dict.fromkeys(name for found in runs.values() for curves in found.values() for name in curves))
    sets.sort(key=lambda name: name != "training")
    every = [one for found in runs.values() for curves in found.values() for one in curves.values()]
    axes_names = ["step"] + (["minutes"] if any(np.isfinite(one.minutes).any() for one in every) else [])
    figure = new_figure((6.2 * len(axes_names) + 0.4, 2.3 * len(titles) + 0.9))
    grid = figure.subplots(len(titles), len(axes_names), squeeze=False, sharex="col", sharey="row")
    for row, title in zip(grid, titles, strict=True):
        row[0].set_ylabel(title)
        for colour, found in zip(_cycle(COLOURS, len(runs)), runs.values(), strict=True):
            for name, one in found.get(title, {}).items():
                style = {"color": colour, "linestyle": LINES[sets.index(name) % len(LINES)], "linewidth": 1.4}
                if name != "training" or len(one.steps) == 1:
                    style |= {"marker": "o", "markersize": 3}
                row[0].plot(one.steps, one.values, **style)
                if len(row) > 1:
                    row[1].plot(one.minutes, one.values, **style)
        for axes in row:
            axes.grid(color="0.9")
            axes.spines[["top", "right"]].set_visible(False)
    for axes, name in zip(grid[-1], axes_names, strict=True):
        axes.set_xlabel(name)
    _curve_legend(figure, list(runs), sets)
    save_figure(figure, path)
    return figure


def _curve_legend(figure: Figure, runs: list[str], sets: list[str]) -> None:
    """Adds a legend above the panels: one color per run, one line style for training and for each dev set."""
    from matplotlib.lines import Line2D

    colours = zip(_cycle(COLOURS, len(runs)), runs, strict=True)
    handles = [Line2D([], [], color=colour, linewidth=3, label=name) for colour, name in colours]
    for style, name in zip(_cycle(LINES, len(sets)), sets, strict=True):
        marker = "" if name == "training" else "o"
        handles.append(Line2D([], [], color="0.3", linestyle=style, marker=marker, markersize=3, label=name))
    figure.legend(handles=handles, loc="outside upper center", ncols=min(6, len(handles)), frameon=False)


def _cycle(values: Sequence[str], count: int) -> list[str]:
    return [values[index % len(values)] for index in range(count)]


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty figure of (width, height) inches.

    Raises:
        ImportError: Without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Drawing needs matplotlib: pip install 'tmde[figures]'") from error
    return Figure(figsize=size, layout="constrained")


def save_figure(figure: Figure, path: str | Path) -> None:
    """Saves the figure atomically."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DPI)


@dataclass(frozen=True)
class Curve:
    """One measure over a run: (n,) steps, minutes (NaN where they were not logged) and values."""

    steps: np.ndarray
    minutes: np.ndarray
    values: np.ndarray


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """Reads the log of a run, in order of steps.

    An incomplete last line (still being written, or cut off by a kill) is skipped. When a run was resumed from a
    checkpoint, only the last attempt at each step counts.

    Args:
        path: `log.jsonl`, or the run's folder.

    Raises:
        ValueError: No log, no line in it, or a line that is no JSON object with a step.
    """
    path = Path(path)
    path = path / LOG_NAME if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"{path}: found no log, expected the {LOG_NAME} of a training run, or the run's folder")
    texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            step = line["step"]
        except (ValueError, KeyError, TypeError):
            if number == len(texts):  # nothing follows it, not even its end
                continue
            raise ValueError(
                f"{path}, line {number}: found {text[:60]!r}, expected a JSON object with a step"
            ) from None
        if lines and (step < lines[-1]["step"] or _is_repeated(line, lines)):
            while lines and lines[-1]["step"] >= step:
                lines.pop()
        lines.append(line)
    if not lines:
        raise ValueError(f"{path}: found no complete line, expected at least one; has the run logged yet?")
    return lines


def _is_repeated(line: dict[str, Any], lines: Sequence[dict[str, Any]]) -> bool:
    """Whether this training step was logged before; dev measures and the run's summary are separate lines."""
    same_step = itertools.takewhile(lambda other: other["step"] == line["step"], reversed(lines))
    return "loss" in line and any("loss" in other for other in same_step)


def curve(lines: Sequence[dict[str, Any]], keys: Sequence[str]) -> Curve | None:
    """Mean of these keys in each line that has any of them; None if no line has one."""
    rows = []
    for line in lines:
        if found := [line[key] for key in keys if line.get(key) is not None]:
            minutes = line.get("minutes", line.get("eval_minutes", np.nan))
            rows.append((line["step"], minutes, np.mean(found)))
    return Curve(*np.array(rows, dtype=np.float64).T) if rows else None


def panels(lines: Sequence[dict[str, Any]]) -> dict[str, dict[str, Curve]]:
    """Curves of a log by panel title, then by data (`training` or the name of a dev set).

    The panels: loss, precision at 1 of dev retrieval of sentences and of documents (mean over language pairs),
    accuracy Same and Cross on the dev split of classification tasks, the loss of each objective, words per second.
    """
    training = {key for line in lines if "loss" in line for key in line}
    evaluation = sorted({key for line in lines for key in line if key.startswith("eval_")})
    found: dict[str, dict[str, Curve | None]] = {"Weighted sum of losses": {"training": curve(lines, ["loss"])}}
    pairs: dict[str, dict[str, list[str]]] = {"Dev retrieval, P@1": {}, "Dev documents, P@1": {}}
    for key in evaluation:
        if match := re.fullmatch(r"eval_(?:(.+)_)?p1_.+", key):
            name = match[1] or "dev"
            title = "Dev documents, P@1" if name.endswith("_doc") else "Dev retrieval, P@1"
            pairs[title].setdefault(name.removesuffix("_doc"), []).append(key)
    for title, sets in pairs.items():
        found[title] = {name: curve(lines, keys) for name, keys in sets.items()}
    found["Dev accuracy"] = {name: curve(lines, [f"eval_{name.lower()}"]) for name in ("Same", "Cross")}
    for objective in sorted(key.removesuffix("_loss") for key in training if key.endswith("_loss")):
        curves = {"training": curve(lines, [f"{objective}_loss"])}
        for key in evaluation:
            if match := re.fullmatch(rf"eval_(?:(.+)_)?{re.escape(objective)}_loss", key):
                curves[match[1] or "dev"] = curve(lines, [key])
        found[f"{objective.replace('_', ' ').capitalize()} loss"] = curves
    found["Words per second"] = {"training": curve(lines, ["words_per_second"])}
    kept = {title: {name: one for name, one in curves.items() if one is not None} for title, curves in found.items()}
    return {title: curves for title, curves in kept.items() if curves}
