"""The figure of learning curves against training rows and CPU minutes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

AXES = {"rows": "training rows", "minutes": "CPU minutes"}
MEASURES = {"Cross": "Cross, %", "general Cross": "translations found, general text, %"}
TITLES = {
    "tmde": "T-MDE",
    "ctmde": "cT-MDE",
    "tmde_f": "T-MDE_F",
    "ctmde_p": "cT-MDE_P",
    "laser_1": "LASER_1",
    "laser_6": "LASER_6",
}
COLORS = {
    "tmde": "#1f5fa8",
    "ctmde": "#0b9a8d",
    "tmde_f": "#7f7f7f",
    "ctmde_p": "#7a52c7",
    "laser_1": "#d1495b",
    "laser_6": "#e08e1b",
}
GRID_POINTS = 100

Curves = Mapping[str, Mapping[int, Sequence[Mapping[str, Any]]]]


def draw_curves(curves: Curves, path: Path) -> Any:
    """Draw every measure of every system, with a band from the lowest to the highest seed.

    Args:
        curves: The points of each run, by system and seed.
        path: The file, PNG or SVG. Its folder must exist.

    Returns:
        The figure of matplotlib, which is closed.
    """
    # matplotlib takes a second to import, and only the figure needs it.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"font.size": 12, "figure.facecolor": "white"}):
        figure, panels = pyplot.subplots(
            len(MEASURES), len(AXES), figsize=(12, 8.5), layout="constrained", sharey="row"
        )
        for row, (measure, measure_title) in zip(panels, MEASURES.items(), strict=True):
            for panel, (axis, axis_title) in zip(row, AXES.items(), strict=True):
                for system in TITLES:
                    if system in curves:
                        _draw_system(panel, system, curves[system], axis, measure)
                panel.set_xlabel(axis_title)
                panel.set_ylim(bottom=0)
                panel.spines[["top", "right"]].set_visible(False)
                panel.grid(color="#e5e5e5")
                panel.locator_params(axis="x", nbins=6)
                panel.xaxis.set_major_formatter("{x:,.0f}")
            row[0].set_ylabel(measure_title)
        panels[0][0].legend(frameon=False)
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        figure.savefig(path, dpi=110, metadata=metadata)
        pyplot.close(figure)
    return figure


def _draw_system(
    panel: Any,
    system: str,
    runs: Mapping[int, Sequence[Mapping[str, Any]]],
    axis: str,
    measure: str,
) -> None:
    """Draw the mean of a system over seeds, where all of its runs have checkpoints."""
    begin = max(points[0][axis] for points in runs.values())
    end = min(points[-1][axis] for points in runs.values())
    positions = np.linspace(begin, end, GRID_POINTS)
    curves = []
    for points in runs.values():
        positions_of_run = [point[axis] for point in points]
        values = [point["measures"][measure] for point in points]
        curves.append(np.interp(positions, positions_of_run, values))
    stacked = np.stack(curves)  # (seeds, positions)
    color = COLORS[system]
    panel.plot(positions, stacked.mean(axis=0), color=color, label=TITLES[system])
    panel.fill_between(
        positions, stacked.min(axis=0), stacked.max(axis=0), color=color, alpha=0.2, linewidth=0
    )
