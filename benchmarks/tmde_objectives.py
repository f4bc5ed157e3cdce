r"""What translation and the distance constraint add to distillation in the training of `tmde`.

    python benchmarks/tmde_objectives.py WORK --data DATA \
        --json benchmarks/results/tmde_objectives.json

`WORK` is the folder of `docs/tmde_model.py` with its rows, vectors and encoder. Every variant of
the objectives is trained for the same number of steps with each seed, and measured on development
data, and on the built-in task of word order. A run whose result is there is not repeated.
Differences from distillation alone have 95% intervals over seeds, with a variance that is pooled
over the variants and so assumed to be equal (`tmde.papers.verdicts`). They are not corrected for
the number of comparisons.
"""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from common import load_task, markdown, write_json
from peers import measures_of

from tmde.data.io import replacing
from tmde.embedding import DocumentEmbedder
from tmde.eval import EmbeddingSystem, EvaluationOptions, evaluate
from tmde.eval.planning import LoadedTask
from tmde.papers.verdicts import pooled_difference, pooled_variance

sys.path.append(str(Path(__file__).parents[1] / "docs"))
from tmde_model import train

NO_TRANSLATION = "objectives.translation=null"
NO_DISTANCE = "objectives.distance=null"
NO_INFONCE = "objectives.infonce=null"
BASELINE = "distillation"
# The settings that turn off objectives, by variant.
VARIANTS = {
    BASELINE: (NO_TRANSLATION, NO_DISTANCE, NO_INFONCE),
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
    "word order": ("word_order", None),
}
MEASURES_FILE = "development.json"

Measures = dict[str, float]  # By title, in %.


def train_variant(work: Path, data: Path, variant: str, seed: int, steps: int) -> Path:
    """Train a variant with a seed, unless it is there; return the folder of its run."""
    name = "-".join(["steps", str(steps), *variant.strip("+ ").lower().split(), str(seed)])
    run = work / name
    if (run / "model.safetensors").exists():
        return run
    limits = [f"max_steps={steps}", "max_cpu_minutes=null", "eval_minutes=null", f"seed={seed}"]
    train(work, data, run, [*VARIANTS[variant], *limits, "keep_checkpoints=false"])
    return run


def measure(name: str, run: Path, tasks: Sequence[LoadedTask]) -> Measures:
    """Return the measures of a run on development data, and write them to its folder."""
    path = run / MEASURES_FILE
    if path.exists():
        return json.loads(path.read_text())
    embedder = DocumentEmbedder.from_pretrained(run, device="cpu")
    system = EmbeddingSystem(name, embedder, show_progress_bar=False)
    results = list(evaluate(tasks, [system], EvaluationOptions(folds=False, samples=100)))
    measures = {title: measure.value for title, measure in measures_of(results).items()}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(measures))
    return measures


def describe(measures: Mapping[str, Mapping[int, Measures]]) -> list[dict[str, Any]]:
    """Return each variant's runs, their mean, and its difference from distillation alone.

    Args:
        measures: The measures by variant and seed, two seeds at least.

    Returns:
        A result for each variant. `difference` has the mean and both ends of the interval.
    """
    results = []
    for name, runs in measures.items():
        results.append({"system": name, "runs": runs, "mean": {}, "difference": {}})
    titles = next(iter(measures[BASELINE].values()))
    for title in titles:
        values = {}
        for name, runs in measures.items():
            values[name] = {seed: run[title] for seed, run in runs.items()}
        variance = pooled_variance(list(values.values()))
        for result in results:
            name = result["system"]
            result["mean"][title] = statistics.mean(values[name].values())
            if name != BASELINE:
                difference = pooled_difference(values[name], values[BASELINE], variance)
                interval = [difference.mean, difference.low, difference.high]
                result["difference"][title] = interval
    return results


def table_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the printed table."""
    row = {"objectives": result["system"]}
    for title, mean in result["mean"].items():
        row[title] = f"{mean:.1f}"
        if title in result["difference"]:
            difference, low, high = result["difference"][title]
            row[title] += f" ({difference:+.1f}, {low:+.1f} to {high:+.1f})"
    return row


def main(
    work: Annotated[Path, typer.Argument(help="Folder of docs/tmde_model.py.")],
    data: Annotated[Path, typer.Option(help="Folder of the data.")],
    steps: Annotated[int, typer.Option(min=1, help="Steps of each run.")] = 500,
    seed: Annotated[list[int] | None, typer.Option(help="Default: 42, 43 and 44.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
) -> None:
    """Train and measure every variant with every seed."""
    seeds = sorted(set(seed or (42, 43, 44)))
    if len(seeds) < 2:
        raise typer.BadParameter(f"found the seed {seeds[0]}, expected two or more")
    tasks = []
    for title, (task_name, file_name) in TASKS.items():
        path = None if file_name is None else data / file_name
        tasks.append(load_task(title, task_name, path))
    measures: dict[str, dict[int, Measures]] = {name: {} for name in VARIANTS}
    for run_seed in seeds:
        for name in VARIANTS:
            run = train_variant(work, data, name, run_seed, steps)
            measures[name][run_seed] = measure(name, run, tasks)
    results = describe(measures)
    typer.echo(markdown([table_row(result) for result in results]))
    write_json(json_path, "tmde_objectives", {"steps": steps}, results)


if __name__ == "__main__":
    typer.run(main)
