"""The figure of the quality of each system against its speed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import SystemSummary

# Systems of this package, which the figure shows in color.
OUR_SYSTEMS = ("default", "small", "hybrid", "adapted", "accurate")
OUR_COLOR = "#1f5fa8"
OTHER_COLOR = "#757575"
FRONT_COLOR = "#b9c9de"
SPEED_TICKS = (10, 100, 1000, 10_000)
LEAST_SENTENCES = 50.0  # Systems that find fewer translations than this, in %, are not drawn.


def draw_quality_and_speed(systems: Sequence[SystemSummary], path: Path) -> None:
    """Draw the quality of each system against its speed, and the Pareto front.

    Args:
        systems: The systems. Those whose speed is not known, and those that hardly find
            translations, are left out.
        path: The file, PNG or SVG. Its folder must exist.
    """
    # matplotlib takes a second to import, and only the figure needs it.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = {
        "sentences": "finds the translation of a sentence, %",
        "questions_across": "finds the answer in another language, %",
        "similarity_across": "similarity across languages (Spearman x 100)",
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


def _draw_panel(panel: Any, systems: Sequence[SystemSummary], measure: str) -> None:
    """Draw one point a system, with its name and its interval, and a line through the best ones."""
    points = []
    for system in systems:
        points.append((system.name, system.texts_per_second, system.measures[measure]))
    front = pareto_front([(speed, value.value) for _, speed, value in points])
    panel.plot(*zip(*front, strict=True), color=FRONT_COLOR, linestyle="--", zorder=0)
    for system, speed, value in points:
        color = OUR_COLOR if system in OUR_SYSTEMS else OTHER_COLOR
        bars = [[value.value - value.low], [value.high - value.value]]
        panel.errorbar(speed, value.value, yerr=bars, fmt="o", color=color, markersize=9, capsize=3)
        # The name stands below the point if a system of about the same speed lies above it.
        is_below = any(
            max(speed, other) < 1.5 * min(speed, other) and other_value.value > value.value
            for _, other, other_value in points
        )
        # The name ends at the point if a faster system is close to it.
        is_left = any(
            speed < other < 5 * speed and abs(other_value.value - value.value) < 3
            for _, other, other_value in points
        )
        panel.annotate(
            system,
            (speed, value.value),
            xytext=(0, -23 if is_below else 11),
            textcoords="offset points",
            ha="right" if is_left else "center",
            color=color,
            weight="bold" if system in OUR_SYSTEMS else "normal",
        )
    panel.set_xscale("log")
    panel.margins(x=0.2, y=0.15)
    panel.set_xticks(SPEED_TICKS, [f"{tick:,}" for tick in SPEED_TICKS])
    panel.set_xticks([], minor=True)
    panel.set_xlabel("texts a second on one core")
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color="#e5e5e5")
    panel.set_axisbelow(True)
