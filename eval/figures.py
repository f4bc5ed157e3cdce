"""Figures of embedding spaces, of accuracy by language pair, and of training curves."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from sklearn.manifold import TSNE

from modeling_tmde import TmdeError
from tmde.data.io import replacing
from tmde.eval.results import METRICS, Cell, languages_of, summarize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colors, which color-blind people tell apart; with more groups the markers change.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
LOG_NAME = "log.jsonl"


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
        ValueError: If there are fewer than four documents, too few for t-SNE.
    """
    labels, languages, ids = (
        np.asarray(column, dtype=object) for column in (labels, languages, document_ids)
    )
    names = pd.unique(ids)
    if len(names) > max_documents:
        kept = np.isin(
            ids, names[np.random.default_rng(seed).choice(len(names), max_documents, replace=False)]
        )
        vectors, labels, languages, ids = (
            column[kept] for column in (vectors, labels, languages, ids)
        )
        title = f"{title} ({max_documents:,} of {len(names):,} documents)".strip()
    figure = _figure((16.5, 5.6))
    perplexity = min(30, len(vectors) // 4)
    points = TSNE(
        metric="cosine", init="random", perplexity=perplexity, random_state=seed
    ).fit_transform(vectors)
    panels = {
        "by class": (labels, 14),
        "by language": (languages, 14),
        "translations joined": (languages, 7),
    }
    for axes, (name, (groups, size)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        for index, group in enumerate(sorted(set(groups))):
            style = {
                "color": COLORS[index % len(COLORS)],
                "marker": MARKERS[index // len(COLORS) % len(MARKERS)],
            }
            axes.scatter(
                *points[groups == group].T, s=size, label=group, linewidths=0, zorder=2, **style
            )
        axes.set(title=name, xticks=[], yticks=[])
        if name == "translations joined":
            for document in pd.unique(ids):
                axes.plot(*points[ids == document].T, color="0.6", linewidth=0.6, zorder=1)
        else:
            columns = math.ceil(len(set(groups)) / 24)  # 24 rows fit
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, ncols=columns)
    figure.suptitle(title)
    _save(figure, path)


def draw_accuracy_matrix(
    path: str | Path, cells_by_system: Mapping[str, Sequence[Cell]], title: str = ""
) -> Figure:
    """Draws the X-Y matrix of each system as a heat map in %, all on one color scale.

    Args:
        path: PNG, SVG or PDF to write.
        cells_by_system: Cells of one metric by system name. Missing pairs stay gray.
        title: Title of the figure.

    Raises:
        ImportError: If matplotlib is missing.
    """
    every = [cell for cells in cells_by_system.values() for cell in cells]
    metric = METRICS[every[0].metric]
    sources, targets = languages_of(every)
    low, high = (100 * extreme(cell.value for cell in every) for extreme in (min, max))
    columns = min(3, len(cells_by_system))
    rows = math.ceil(len(cells_by_system) / columns)
    figure = _figure(
        (columns * (0.6 * len(targets) + 1.2) + 1.2, rows * (0.6 * len(sources) + 1.5) + 0.4)
    )
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(cells_by_system) :]:
        axes.set_axis_off()
    for axes, (system, cells) in zip(grid, cells_by_system.items(), strict=False):
        values = np.full((len(sources), len(targets)), np.nan)
        for cell in cells:
            values[sources.index(cell.source), targets.index(cell.target)] = 100 * cell.value
        image = axes.imshow(values, cmap="cividis", vmin=low, vmax=high)
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                color = "white" if value < (low + high) / 2 else "black"
                place = {"ha": "center", "va": "center", "fontsize": 10}
                axes.text(column, row, f"{value:.1f}", color=color, **place)
        axes.set_facecolor("0.9")
        axes.set_xticks(
            range(len(targets)), targets, rotation=45 if max(map(len, targets)) > 4 else 0
        )
        axes.set_yticks(range(len(sources)), sources)
        means = ", ".join(
            f"{name} {100 * value:.1f}" for name, value in summarize(cells).items() if name != "All"
        )
        axes.set_title(f"{system}\n{means}", fontsize=11)
        axes.set(ylabel=metric.rows, xlabel=metric.columns)
    figure.colorbar(image, ax=list(grid[: len(cells_by_system)]), label=metric.title, shrink=0.8)
    figure.suptitle(title)
    _save(figure, path)
    return figure


def draw_training_curves(path: str | Path, logs: Mapping[str, str | Path]) -> Figure:
    """Draws losses, dev measures and words per second against steps and minutes.

    Each run has a color; training and each dev set have a line style.

    Args:
        path: PNG, SVG or PDF to write.
        logs: `log.jsonl` or run folder by run name. A run may still be in progress.

    Raises:
        ImportError: If matplotlib is missing.
        ValueError: If a log is missing, empty or damaged, or holds nothing to draw.
    """
    from matplotlib.lines import Line2D

    runs = {name: pd.DataFrame(read_log(path)) for name, path in logs.items()}
    panels = log_panels({key for run in runs.values() for key in run})
    if not panels:
        raise TmdeError(
            f"{', '.join(map(str, logs.values()))}: found no loss, dev measure or speed to draw"
        )
    names = sorted(
        {name for sets in panels.values() for name in sets},
        key=lambda name: (name != "training", name),
    )
    colors = {name: COLORS[place % len(COLORS)] for place, name in enumerate(runs)}
    styles = {name: LINES[place % len(LINES)] for place, name in enumerate(names)}
    figure = _figure((12.8, 2.3 * len(panels) + 0.9))
    grid = figure.subplots(len(panels), 2, squeeze=False, sharex="col", sharey="row")
    for (title, sets), (by_step, by_minute) in zip(panels.items(), grid, strict=True):
        by_step.set_ylabel(title)
        for name, run in runs.items():
            minutes = run.reindex(columns=["minutes", "eval_minutes"]).bfill(axis=1)["minutes"]
            for data, keys in sets.items():
                values = run.reindex(columns=keys).mean(axis=1).dropna()
                if values.empty:
                    continue
                style = {"color": colors[name], "linestyle": styles[data], "linewidth": 1.4}
                style |= {
                    "marker": "o",
                    "markersize": 0 if data == "training" and len(values) > 1 else 3,
                }
                by_step.plot(run["step"][values.index], values, **style)
                by_minute.plot(minutes[values.index], values, **style)
    for axes in grid.flat:
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    grid[-1][0].set_xlabel("step")
    grid[-1][1].set_xlabel("minutes")
    handles = [
        Line2D([], [], color=color, linewidth=3, label=name) for name, color in colors.items()
    ]
    handles += [
        Line2D([], [], color="0.3", linestyle=style, label=name) for name, style in styles.items()
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=min(6, len(handles)), frameon=False
    )
    _save(figure, path)
    return figure


def log_panels(keys: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Logged measures by title of their panel, then by data: `training`, or the name of a dev set.

    The panels: loss, precision at 1 of dev retrieval of documents and of sentences (mean over language pairs),
    accuracy Same and Cross on the dev split of classification tasks, the loss of each objective, words per second.
    """
    keys = sorted(set(keys) - {"train_loss"}, key=lambda key: (key.startswith("eval_"), key))
    patterns = {
        "Weighted sum of losses": "(?P<data>)loss",
        "Dev documents, P@1": "eval_(?P<data>.+)_doc_p1_.+",
        "Dev retrieval, P@1": "eval_(?:(?P<data>.+)_)?p1_.+",
        "Dev accuracy": "eval_(?P<data>same|cross)",
    }
    losses = [key for key in keys if key.endswith("_loss") and not key.startswith("eval_")]
    for key in sorted(
        losses, key=len, reverse=True
    ):  # the name of one objective may end with that of another
        title = key.replace("_", " ").capitalize()
        patterns[title] = rf"(?:eval_(?:(?P<data>.+)_)?)?{key}"
    patterns["Words per second"] = "(?P<data>)words_per_second"
    panels: dict[str, dict[str, list[str]]] = {title: {} for title in patterns}
    for key in keys:
        for title, pattern in patterns.items():
            if match := re.fullmatch(pattern, key):
                data = match["data"] or ("dev" if key.startswith("eval_") else "training")
                panels[title].setdefault(data, []).append(key)
                break
    return {title: sets for title, sets in panels.items() if sets}


def read_log(path: str | Path) -> list[dict[str, float]]:
    """Reads the log of a run, in order of steps.

    An incomplete last line (still being written, or cut off by a kill) is skipped. When a run was resumed from a
    checkpoint, only the last attempt at each step counts.

    Args:
        path: `log.jsonl`, or the run's folder.

    Raises:
        ValueError: No log, no line in it, or a line that is no JSON object of numbers with a step.
    """
    path = Path(path)
    path = path / LOG_NAME if path.is_dir() else path
    if not path.is_file():
        raise TmdeError(
            f"{path}: found no log, expected the {LOG_NAME} of a training run, or the run's folder"
        )
    texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
    lines: list[dict[str, float]] = []
    for number, text in enumerate(texts, start=1):
        try:
            line = {name: float(value) for name, value in json.loads(text).items()}
            step = line["step"]
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            if not text.strip() or number == len(
                texts
            ):  # nothing follows the last line, not even its end
                continue
            raise TmdeError(
                f"{path}, line {number}: found {text[:60]!r}, expected numbers with a step"
            ) from None
        if (
            lines and step <= lines[-1]["step"]
        ):  # lines of one step with other keys are training, dev and summary
            lines = [
                x
                for x in lines
                if x["step"] < step or (x["step"] == step and x.keys() != line.keys())
            ]
        lines.append(line)
    if not lines:
        raise TmdeError(
            f"{path}: found no complete line, expected at least one; has the run logged yet?"
        )
    return lines


def _figure(size: tuple[float, float]) -> Figure:
    """An empty figure of (width, height) inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _save(figure: Figure, path: str | Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
