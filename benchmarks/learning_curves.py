r"""Learning curves of a comparison: every checkpoint of every run, on development data.

    tmde compare scratch --train DATA/parallel --train DATA/general ... -o scratch/
    python benchmarks/learning_curves.py scratch/ --data DATA \
        --json benchmarks/results/learning_curves.json --figure docs/figures/learning_curves.png

`--data` holds `parallel_dev.parquet`, `general_dev.parquet`, `eval/sib200.parquet` and
`eval/topic_documents.parquet`. A point has the rows and the CPU minutes of training before its
checkpoint. Measurements are stored beside each checkpoint, so an interrupted command resumes and
measures only new checkpoints.

The contrasts of the comparison are tested at equal rows and at equal CPU minutes: the most that
every run of both systems has reached. Between two checkpoints, a curve is a straight line. The
variance over seeds is pooled over the systems of a family, see `tmde.papers.verdicts`. Holm's
method corrects the p-values of Cross over all contrasts at equal rows and at equal minutes. While
runs are missing, verdicts are preliminary.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import typer
from common import load_task, write_json
from curves_figure import draw_curves
from peers import measures_of

from tmde.data.io import write_atomically
from tmde.embedding import DocumentEmbedder
from tmde.eval import EmbeddingSystem, EvaluationOptions, evaluate
from tmde.eval.planning import LoadedTask
from tmde.eval.statistics import holm
from tmde.papers.claims import learning_curve, training_cpu_minutes
from tmde.papers.comparison import read_comparison
from tmde.papers.verdicts import (
    FEWEST_SEEDS,
    SeedDifference,
    SeedVariance,
    detectable_difference,
    pooled_difference,
    pooled_variance,
    verdict_of,
)

Point = Mapping[str, Any]
Curves = Mapping[str, Mapping[int, Sequence[Point]]]  # by system and seed

TASKS = {
    "documentation": ("sentence_retrieval", "parallel_dev.parquet"),
    "general": ("sentence_retrieval", "general_dev.parquet"),
    "pages": ("document_retrieval", "eval/topic_documents.parquet"),
    "SIB-200": ("sib200", "eval/sib200.parquet"),
    "topics": ("topic_documents", "eval/topic_documents.parquet"),
}
LONGEST_TEXT = 128  # Tokens of a text, of all systems.
COMPARISON = "scratch"
AXES = ("rows", "minutes")
DECIDING = "Cross"
# Measures that are means of those of tasks.
MEANS = {
    "Cross": ("SIB-200 Cross", "topics Cross"),
    "Same": ("SIB-200 Same", "topics Same"),
}
# Systems of a family are expected to vary equally over seeds.
FAMILIES = (("tmde", "ctmde", "tmde_f", "ctmde_p"), ("laser_1", "laser_6"))
MEASURES_NAME = "measures.json"
RESULTS_NAME = "results.json"


def measure(checkpoint: Path, tasks: Sequence[LoadedTask]) -> dict[str, float]:
    """Return the measures of a checkpoint, from its file of them if it has one."""
    settings = [LONGEST_TEXT, *[task.fingerprint for task in tasks]]
    path = checkpoint / MEASURES_NAME
    if path.exists():
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if stored["settings"] == settings:
            return dict(stored["measures"])
    embedder = DocumentEmbedder.from_pretrained(checkpoint, device="cpu", max_length=LONGEST_TEXT)
    system = EmbeddingSystem(checkpoint.parent.name, embedder, show_progress_bar=False)
    results = list(evaluate(tasks, [system], EvaluationOptions(folds=False, samples=100)))
    measures = {title: measure.value for title, measure in measures_of(results).items()}
    for title, parts in MEANS.items():
        measures[title] = fmean(measures[part] for part in parts)
    content = {"settings": settings, "measures": measures}
    write_atomically(path, json.dumps(content) + "\n")
    return measures


def curve(run: Path, tasks: Sequence[LoadedTask]) -> list[dict[str, Any]]:
    """Return the points of a run in the order of its steps."""
    record = json.loads((run / RESULTS_NAME).read_text(encoding="utf-8"))
    minutes_per_step = training_cpu_minutes(record) / record["steps"]
    points: list[dict[str, Any]] = []
    for evaluation in learning_curve(run, minutes_per_step):
        checkpoint = run / f"checkpoint-{evaluation['step']}"
        if checkpoint.is_dir():
            typer.echo(str(checkpoint), err=True)
            points.append({**evaluation, "measures": measure(checkpoint, tasks)})
    return points


def curves_of(folder: Path, tasks: Sequence[LoadedTask]) -> dict[str, dict[int, list[Point]]]:
    """Return the curve of every finished run, by system and seed."""
    curves: dict[str, dict[int, list[Point]]] = {}
    for run in sorted((folder / "runs").iterdir()):
        if (run / RESULTS_NAME).exists():
            system, _, seed = run.name.rpartition("-")
            curves.setdefault(system, {})[int(seed)] = curve(run, tasks)
    return curves


# ---- Contrasts


def value_at(points: Sequence[Point], axis: str, position: float, measure: str) -> float:
    """Return a measure of a run at a number of rows or minutes, on a line between checkpoints.

    After the last checkpoint, the value is that of the last one.
    """
    positions = [point[axis] for point in points]
    values = [point["measures"][measure] for point in points]
    return float(np.interp(position, positions, values))


def values_at(
    runs: Mapping[int, Sequence[Point]], axis: str, position: float, measure: str
) -> dict[int, float]:
    """Return a measure of each seed of a system at a number of rows or minutes."""
    values = {}
    for seed, points in runs.items():
        values[seed] = value_at(points, axis, position, measure)
    return values


def family_of(system: str) -> tuple[str, ...]:
    """Return the systems that are expected to vary as much as a system, itself included."""
    return next(family for family in FAMILIES if system in family)


def family_variance(
    curves: Curves, system: str, axis: str, position: float, measure: str
) -> SeedVariance | None:
    """Return the variance of a measure over seeds of the family of a system.

    None if no system of the family has two seeds.
    """
    values = []
    for member in family_of(system):
        if member in curves:
            values.append(values_at(curves[member], axis, position, measure))
    if all(len(values_of_member) < FEWEST_SEEDS for values_of_member in values):
        return None
    return pooled_variance(values)


def shared_end(curves: Curves, systems: Sequence[str], axis: str) -> float:
    """Return the rows or minutes that every run of the systems has reached."""
    ends = []
    for system in systems:
        ends += [points[-1][axis] for points in curves[system].values()]
    return float(min(ends))


def shared_begin(curves: Curves, systems: Sequence[str], axis: str) -> float:
    """Return the rows or minutes after which every run of the systems has a checkpoint."""
    begins = []
    for system in systems:
        begins += [points[0][axis] for points in curves[system].values()]
    return float(max(begins))


def contrast_row(curves: Curves, better: str, worse: str, axis: str) -> dict[str, Any] | None:
    """Return the differences of two systems in all measures, at equal rows or minutes.

    None if a system was not measured, if no system of its family has two seeds, or if one system
    ends before the first checkpoint of the other.
    """
    if better not in curves or worse not in curves:
        return None
    position = shared_end(curves, [better, worse], axis)
    if position < shared_begin(curves, [better, worse], axis):
        return None
    differences = {}
    for measure in next(iter(curves[better].values()))[-1]["measures"]:
        variance = family_variance(curves, better, axis, position, measure)
        other_variance = family_variance(curves, worse, axis, position, measure)
        if variance is None or other_variance is None:
            return None
        values = values_at(curves[better], axis, position, measure)
        other_values = values_at(curves[worse], axis, position, measure)
        if family_of(better) == family_of(worse):
            difference = pooled_difference(values, other_values, variance)
        else:
            difference = pooled_difference(values, other_values, variance, other_variance)
        differences[measure] = asdict(difference)
    return {
        "better": better,
        "worse": worse,
        "equal": axis,
        "at": position,
        "differences": differences,
    }


def contrast_rows(curves: Curves, contrasts: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return the differences of all contrasts that are measured, with verdicts on Cross."""
    rows = []
    for better, worse in contrasts:
        for axis in AXES:
            row = contrast_row(curves, better, worse, axis)
            if row is not None:
                rows.append(row)
    tests = len(AXES) * len(contrasts)
    p_values = [row["differences"][DECIDING]["p"] for row in rows]
    # A contrast that is not measured yet counts as one with p = 1.
    missing = [1.0] * (tests - len(rows))
    corrected = holm([*p_values, *missing])[: len(rows)]
    for row, corrected_p in zip(rows, corrected, strict=True):
        difference = SeedDifference(**row["differences"][DECIDING])
        row["corrected_p"] = corrected_p
        row["verdict"] = verdict_of(difference, corrected_p)
        row["detectable"] = detectable_difference(difference, tests)
    return rows


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the comparison.")],
    data: Annotated[Path, typer.Option(help="Folder of the data.")],
    json_file: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Picture to draw, PNG or SVG.")] = None,
) -> None:
    """Measure every checkpoint."""
    tasks = []
    for title, (task_name, file_name) in TASKS.items():
        tasks.append(load_task(title, task_name, data / file_name))
    curves = curves_of(folder, tasks)
    rows = contrast_rows(curves, read_comparison(COMPARISON).contrasts)
    for row in rows:
        difference = row["differences"][DECIDING]
        typer.echo(
            f"{row['better']} - {row['worse']}, equal {row['equal']} ({row['at']:,.0f}): "
            f"{DECIDING} {difference['mean']:+.1f} ({difference['low']:+.1f} to "
            f"{difference['high']:+.1f}), {row['verdict']}"
        )
    results = {"curves": curves, "contrasts": rows}
    write_json(json_file, "learning_curves", {"longest text": LONGEST_TEXT}, results)
    if figure is not None:
        draw_curves(curves, figure)


if __name__ == "__main__":
    typer.run(main)
