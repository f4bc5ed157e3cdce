r"""Learning curves of a comparison: every checkpoint of every run, on development data.

    tmde compare scratch --train DATA/parallel --train DATA/general ... -o scratch/
    python benchmarks/learning_curves.py scratch/ --data DATA \
        --json benchmarks/results/learning_curves.json --figure docs/figures/learning_curves.png

`--data` holds `parallel_dev.parquet`, `general_dev.parquet`, `eval/sib200.parquet` and
`eval/topic_documents.parquet`. A point has the rows and the CPU minutes of training before its
checkpoint. What was measured of a checkpoint is kept beside it, so that the command goes on where
it was interrupted, and measures new checkpoints alone.

The contrasts of the comparison are tested at equal rows and at equal CPU minutes: the most that
every run of both systems has reached. Between two checkpoints, a curve is a straight line. The
variance over seeds is pooled over the systems of a family, see `tmde.papers.verdicts`. Holm's
method corrects the p-values of Cross over all contrasts.
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
    """Return a measure of a run at a number of rows or minutes, on a line between checkpoints."""
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


def family_variances(
    curves: Curves, axis: str, position: float, measure: str
) -> dict[str, SeedVariance]:
    """Return the variance of a measure over seeds, by system; systems of a family share it."""
    variances = {}
    for family in FAMILIES:
        systems = [system for system in family if system in curves]
        values = [values_at(curves[system], axis, position, measure) for system in systems]
        if any(len(values_of_system) > 1 for values_of_system in values):
            variances |= dict.fromkeys(systems, pooled_variance(values))
    return variances


def shared_end(curves: Curves, systems: Sequence[str], axis: str) -> float:
    """Return the rows or minutes that every run of the systems has reached."""
    ends = []
    for system in systems:
        ends += [points[-1][axis] for points in curves[system].values()]
    return float(min(ends))


def contrast_row(curves: Curves, better: str, worse: str, axis: str) -> dict[str, Any] | None:
    """Return the differences of two systems in all measures, at equal rows or minutes.

    None if a system is not measured, or its family has a single seed of each system.
    """
    if better not in curves or worse not in curves:
        return None
    position = shared_end(curves, [better, worse], axis)
    differences = {}
    for measure in next(iter(curves[better].values()))[-1]["measures"]:
        variances = family_variances(curves, axis, position, measure)
        if better not in variances or worse not in variances:
            return None
        values = values_at(curves[better], axis, position, measure)
        other_values = values_at(curves[worse], axis, position, measure)
        difference = pooled_difference(values, other_values, variances[better], variances[worse])
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
    corrected = holm([row["differences"][DECIDING]["p"] for row in rows])
    for row, corrected_p in zip(rows, corrected, strict=True):
        difference = SeedDifference(**row["differences"][DECIDING])
        row["corrected_p"] = corrected_p
        row["verdict"] = verdict_of(difference, corrected_p)
        row["detectable"] = detectable_difference(difference, len(rows))
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
