r"""What translation and the distance constraint add to distillation in the training of `tmde`.

    python benchmarks/tmde_objectives.py WORK --data DATA \
        --json benchmarks/results/tmde_objectives.json

`WORK` is the folder of `docs/tmde_model.py` with its rows, vectors and encoder. Every variant of
the objectives is trained for the same number of steps with each seed, and measured on development
data. A run whose result is there is not repeated.
"""

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from common import load_task, markdown, write_json
from peers import measures_of

from tmde.embedding import DocumentEmbedder
from tmde.eval import EmbeddingSystem, EvaluationOptions, evaluate
from tmde.eval.planning import LoadedTask

sys.path.append(str(Path(__file__).parents[1] / "docs"))
from tmde_model import train

NO_TRANSLATION = "objectives.translation=null"
NO_DISTANCE = "objectives.distance=null"
NO_INFONCE = "objectives.infonce=null"
# What each variant lacks of the recipe.
VARIANTS = {
    "distillation": (NO_TRANSLATION, NO_DISTANCE, NO_INFONCE),
    "+ translation": (NO_DISTANCE, NO_INFONCE),
    "+ distance": (NO_TRANSLATION, NO_INFONCE),
    "+ InfoNCE": (NO_TRANSLATION, NO_DISTANCE),
    "all": (),
}
TASKS = {
    "documentation": ("sentence_retrieval", "parallel_dev.parquet"),
    "general": ("sentence_retrieval", "general_dev.parquet"),
    "questions": ("question_retrieval", "eval/xquad_dev.parquet"),
    "similarity": ("sts", "eval/sts_dev.parquet"),
}


def train_variant(work: Path, data: Path, variant: str, seed: int, steps: int) -> Path:
    """Train a variant with a seed, unless it is there; return the folder of its run."""
    name = "-".join(["steps", str(steps), *variant.strip("+ ").lower().split(), str(seed)])
    run = work / name
    if (run / "model.safetensors").exists():
        return run
    limits = [f"max_steps={steps}", "max_cpu_minutes=null", "eval_minutes=null", f"seed={seed}"]
    train(work, data, run, [*VARIANTS[variant], *limits, "keep_checkpoints=false"])
    return run


def measure(name: str, run: Path, tasks: Sequence[LoadedTask]) -> dict[str, float]:
    """Return the measures of a run on development data, in %."""
    embedder = DocumentEmbedder.from_pretrained(run, device="cpu")
    system = EmbeddingSystem(name, embedder, show_progress_bar=False)
    results = list(evaluate(tasks, [system], EvaluationOptions(folds=False, samples=100)))
    return {title: measure.value for title, measure in measures_of(results).items()}


def summary_row(variant: str, measures: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return a row of the table: the mean and the standard deviation over seeds."""
    row: dict[str, Any] = {"objectives": variant, "seeds": len(measures)}
    for title in measures[0]:
        values = [values_of_seed[title] for values_of_seed in measures]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        row[title] = f"{statistics.mean(values):.1f} ± {deviation:.1f}"
    return row


def main(
    work: Annotated[Path, typer.Argument(help="Folder of docs/tmde_model.py.")],
    data: Annotated[Path, typer.Option(help="Folder of the data.")],
    steps: Annotated[int, typer.Option(min=1, help="Steps of each run.")] = 500,
    seed: Annotated[list[int] | None, typer.Option(help="Default: 42, 43 and 44.")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="Default: all of them.")] = None,
    json: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Train and measure every variant with every seed."""
    for name in variant or ():
        if name not in VARIANTS:
            raise typer.BadParameter(f"found {name!r}, expected one of {', '.join(VARIANTS)}")
    tasks = []
    for title, (task_name, file_name) in TASKS.items():
        tasks.append(load_task(title, task_name, data / file_name))
    measures: dict[str, list[dict[str, float]]] = {name: [] for name in variant or VARIANTS}
    rows = []
    for run_seed in seed or (42, 43, 44):
        for name, measures_of_variant in measures.items():
            run = train_variant(work, data, name, run_seed, steps)
            values = measure(name, run, tasks)
            measures_of_variant.append(values)
            rows.append({"objectives": name, "seed": run_seed, "measures": values})
    typer.echo(markdown([summary_row(name, values) for name, values in measures.items()]))
    write_json(json, "tmde_objectives", {"steps": steps}, rows)


if __name__ == "__main__":
    typer.run(main)
