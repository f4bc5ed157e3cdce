"""The figure of the quality of each system against its speed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import SystemSummary

# Systems of this package, which the figure shows in color and joins by the Pareto front.
OUR_SYSTEMS = ("default", "small", "tmde", "hybrid", "adapted", "accurate")
LABELS = {
    "e5-small": "multilingual-e5-small",
    "StaticEmbedding": "StaticEmbedding, ours\n(from scratch, 8 minutes)",
}
OUR_COLOR = "#1f5fa8"
OTHER_COLOR = "#757575"
FRONT_COLOR = "#b9c9de"
SPEED_TICKS = (10, 100, 1000, 10_000)
SPEED_LIMITS = (10, 900_000)  # room for the labels beside the outermost points
LEAST_SENTENCES = 50.0  # Systems that find fewer translations than this, in %, are not drawn.


def draw_quality_and_speed(systems: Sequence[SystemSummary], path: Path) -> None:
    """Draw the quality of each system against its speed, and the Pareto front of our models.

    Args:
        systems: The systems. Those of unknown speed, and those that hardly find translations, are
            left out.
        path: The file, PNG or SVG. Its folder must exist.
    """
    # matplotlib takes a second to import, and only the figure needs it.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = {
        "sentences": "sentences: translation found, %",
        "questions_across": "questions: answer found across languages, %",
        "similarity_across": "similarity across languages, Spearman × 100",
    }
    settings = {"font.size": 13, "svg.hashsalt": "tmde", "figure.facecolor": "white"}
    with pyplot.rc_context(settings):
        figure, panels = pyplot.subplots(1, 3, figsize=(16.5, 4.8), layout="constrained")
        drawn = []
        for system in systems:
            finds_translations = system.measures["sentences"].value >= LEAST_SENTENCES
            if finds_translations and system.texts_per_second is not None:
                drawn.append(system)
        for panel, (measure, title) in zip(panels, titles.items(), strict=True):
            _draw_panel(panel, drawn, measure)
            panel.set_title(title, fontsize=13)
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        figure.savefig(path, dpi=130, metadata=metadata)
        pyplot.close(figure)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (speed, quality) for which no faster point is as good, fastest first."""
    front: list[tuple[float, float]] = []
    for speed, quality in sorted(points, reverse=True):
        if not front or quality > front[-1][1]:
            front.append((speed, quality))
    return front


def label_is_left(speed: float, speeds: Sequence[float]) -> bool:
    """Whether the label of a system belongs left of its point, where the wider gap is.

    Labels beside the points do not cross the error bars, which are vertical.
    """
    slower = [other for other in speeds if other < speed]
    faster = [other for other in speeds if other > speed]
    if not slower or not faster:
        return not slower
    return speed / max(slower) > min(faster) / speed


def _draw_panel(panel: Any, systems: Sequence[SystemSummary], measure: str) -> None:
    """Draw one point a system with its label and interval, and the front of our models."""
    speeds = [system.texts_per_second for system in systems]
    our_points = []
    for system in systems:
        if system.name in OUR_SYSTEMS:
            our_points.append((system.texts_per_second, system.measures[measure].value))
    front = pareto_front(our_points)
    panel.plot(*zip(*front, strict=True), color=FRONT_COLOR, linestyle="--", zorder=0)
    for system in systems:
        speed = system.texts_per_second
        value = system.measures[measure]
        is_ours = system.name in OUR_SYSTEMS
        is_left = label_is_left(speed, speeds)
        color = OUR_COLOR if is_ours else OTHER_COLOR
        bars = [[value.value - value.low], [value.high - value.value]]
        panel.errorbar(speed, value.value, yerr=bars, fmt="o", color=color, markersize=9, capsize=3)
        panel.annotate(
            LABELS.get(system.name, system.name),
            (speed, value.value),
            xytext=(-10 if is_left else 10, 0),
            textcoords="offset points",
            ha="right" if is_left else "left",
            va="center",
            color=color,
            weight="bold" if is_ours else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},  # hides the front
        )
    panel.set_xscale("log")
    panel.margins(y=0.12)
    panel.set_xlim(SPEED_LIMITS)
    panel.set_xticks(SPEED_TICKS, [f"{tick:,}" for tick in SPEED_TICKS])
    panel.set_xticks([], minor=True)
    panel.set_xlabel("texts per second on one core, float32")
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color="#e5e5e5")
    panel.set_axisbelow(True)
