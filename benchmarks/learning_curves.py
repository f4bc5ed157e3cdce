r"""Learning curves of a comparison: every checkpoint of every run, on development data.

    tmde compare scratch --train DATA/parallel --train DATA/general ... -o scratch/
    python benchmarks/learning_curves.py scratch/ --data DATA \
        --json benchmarks/results/learning_curves.json

`--data` holds `parallel_dev.parquet`, `general_dev.parquet`, `eval/sib200.parquet` and
`eval/topic_documents.parquet`. A point has the rows and the CPU minutes of training before its
checkpoint. What was measured of a checkpoint is kept beside it, so that the command goes on where
it was interrupted, and measures new checkpoints alone.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from common import load_task, write_json
from peers import measures_of

from tmde.data.io import write_atomically
from tmde.embedding import DocumentEmbedder
from tmde.eval import EmbeddingSystem, EvaluationOptions, evaluate
from tmde.eval.planning import LoadedTask
from tmde.papers.claims import learning_curve, training_cpu_minutes

TASKS = {
    "documentation": ("sentence_retrieval", "parallel_dev.parquet"),
    "general": ("sentence_retrieval", "general_dev.parquet"),
    "pages": ("document_retrieval", "eval/topic_documents.parquet"),
    "SIB-200": ("sib200", "eval/sib200.parquet"),
    "topics": ("topic_documents", "eval/topic_documents.parquet"),
}
LONGEST_TEXT = 128  # Tokens of a text, of all systems.
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


def curves_of(folder: Path, tasks: Sequence[LoadedTask]) -> Mapping[str, dict[str, Any]]:
    """Return the curve of every finished run, by system and seed."""
    curves: dict[str, dict[str, Any]] = {}
    for run in sorted((folder / "runs").iterdir()):
        if (run / RESULTS_NAME).exists():
            system, _, seed = run.name.rpartition("-")
            curves.setdefault(system, {})[seed] = curve(run, tasks)
    return curves


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the comparison.")],
    data: Annotated[Path, typer.Option(help="Folder of the data.")],
    json_file: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
) -> None:
    """Measure every checkpoint."""
    tasks = []
    for title, (task_name, file_name) in TASKS.items():
        tasks.append(load_task(title, task_name, data / file_name))
    curves = curves_of(folder, tasks)
    write_json(json_file, "learning_curves", {"longest text": LONGEST_TEXT}, curves)


if __name__ == "__main__":
    typer.run(main)
