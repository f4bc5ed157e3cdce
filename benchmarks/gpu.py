r"""What a GPU brings: speed of training and embedding, and two recipes at full length.

    python benchmarks/gpu.py WORK --data DATA --encoder intfloat/multilingual-e5-small \
        --json benchmarks/results/gpu.json

The steps run one after the other, and each leaves a file or folder in WORK:

1. `training_speed.json`: T-MDE's variants beside Marian, at the size of the paper, in bfloat16.
2. `embedding_speed.json`: `DocumentEmbedder` beside sentence-transformers.
3. `base`: the recipe `base`, 30 minutes with the bag that it begins with.
4. `adapted`: the encoder after 20 minutes of the recipe `adapted`, 2,048 pairs at a time.
5. `quality`: both on the general rows of DATA that training did not read.

A step whose result is there is left out, so an interrupted command continues. WORK belongs to one
set of options. `--rehearse` runs the
same steps on a CPU, with small sizes and a minute each: it shows that the commands work, and its
figures mean nothing.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from common import write_json

from tmde.data.io import write_atomically
from tmde.training.recipe import load_recipe

BENCHMARKS = Path(__file__).parent
PROMPT = "query: "  # of multilingual-e5


@dataclass(frozen=True)
class Job:
    """What the command was asked for.

    Attributes:
        work: The folder of the steps' results.
        data: The folder with `parallel/`, `general/` and their rows for development.
        encoder: The encoder that is adapted.
        rehearses: Whether the steps are small ones on a CPU.
    """

    work: Path
    data: Path
    encoder: str
    rehearses: bool


def run(*command: object) -> None:
    """Run a Python script or module, and stop if it fails."""
    subprocess.run([sys.executable, *map(str, command)], check=True)


def measure_training_speed(job: Job, target: Path) -> None:
    """Measure the words a second of training."""
    options = ["--size", "paper", "--bf16", "--train", job.data / "parallel", "--steps", 50]
    if job.rehearses:
        options = ["--size", "tiny", "--rows", 100, "--steps", 1, "--repeats", 1]
    run(BENCHMARKS / "training_speed.py", *options, "--json", target)


def measure_embedding_speed(job: Job, target: Path) -> None:
    """Measure the texts a second of embedding."""
    options = ["--device", "cuda", "--number", 20_000]
    if job.rehearses:
        options = ["--number", 10, "--width", 32, "--repeats", 1]
    run(BENCHMARKS / "embedding_speed.py", *options, "--json", target)


def train(job: Job, recipe: str, target: Path, *options: object) -> None:
    """Train a recipe on documentation and general text."""
    sources = ["--train", job.data / "parallel", "--train", job.data / "general"]
    if job.rehearses:
        # A tenth of these rows is held out.
        sources += ["data.max_rows=2000"]
    else:
        sources += ["--dev", job.data / "parallel_dev.parquet"]
        sources += ["--dev", job.data / "general_dev.parquet"]
    run("-m", "tmde", "train", recipe, *sources, "-o", target, "--overwrite", *options)


def train_base(job: Job, target: Path) -> None:
    """Train `base`: five minutes of its bag, and 25 of its layers."""
    _, _, bag_recipe, *bag_options = load_recipe("base").warm_start.made_by.split()
    options = []
    if job.rehearses:
        options += ["max_minutes=0.5", "per_device_train_batch_size=64", "micro_batch_tokens=4096"]
        options.append("buffer_rows=1024")
        bag_options += ["tokenizer.vocab_size=2000", *options]
        options.append("model.encoder_layers=2")
    bag = target.with_name(f"{target.name}-start")
    train(job, bag_recipe, bag, *bag_options)
    train(job, "base", target, "--warm-start", bag, *options)


def train_adapted(job: Job, target: Path) -> None:
    """Train `adapted` with more pairs in a batch than fit in the memory of most other machines."""
    options = ["--encoder", job.encoder, f"model.prompt={PROMPT}"]
    if job.rehearses:
        options += ["max_minutes=1", "per_device_train_batch_size=16", "micro_batch_tokens=1024"]
        options += ["objectives.distillation.teacher_share=0.001"]
    else:
        options += [
            "max_minutes=20",
            "per_device_train_batch_size=2048",
            "micro_batch_tokens=196608",
        ]
    train(job, "adapted", target, *options)


def measure_quality(job: Job, target: Path) -> None:
    """Measure how often both models find translations."""
    models = [f"base={job.work / 'base'}", f"adapted={job.work / 'adapted'}"]
    tasks = f"sentence_retrieval={job.data / 'general_dev.parquet'}"
    limits = ["--max-queries", 50] if job.rehearses else []
    run("-m", "tmde", "eval", *models, "--tasks", tasks, *limits, "-o", target, "--overwrite")


STEPS = {
    "training_speed.json": measure_training_speed,
    "embedding_speed.json": measure_embedding_speed,
    "base": train_base,
    "adapted": train_adapted,
    "quality": measure_quality,
}


def result_file(target: Path) -> Path | None:
    """Return the JSON file that a step writes at its end; None if it is not there."""
    for file in (target, target / "results.json", target / "eval.json"):
        if file.is_file():
            return file
    return None


def check_settings(file: Path, settings: Mapping[str, object]) -> None:
    """Write the settings of the command, or check that the folder was made with the same.

    Raises:
        typer.BadParameter: It was made with others.
    """
    if not file.exists():
        write_atomically(file, json.dumps(settings, indent=2) + "\n")
        return
    recorded = json.loads(file.read_text(encoding="utf-8"))
    if recorded != settings:
        raise typer.BadParameter(
            f"{file}: found {recorded}, expected {settings}; give the options of then, or a new "
            "folder"
        )


def main(
    work: Annotated[Path, typer.Argument(help="Folder of the results, to continue from.")],
    data: Annotated[Path, typer.Option(help="Folder with parallel/ and general/.")],
    encoder: Annotated[
        str, typer.Option(help="Encoder to adapt.")
    ] = "intfloat/multilingual-e5-small",
    rehearse: Annotated[bool, typer.Option(help="Small steps, on a CPU.")] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
) -> None:
    """Run all steps whose results are not there."""
    if not rehearse and not torch.cuda.is_available():
        raise typer.BadParameter("found no GPU; --rehearse runs small steps on a CPU")
    settings = {"data": str(data), "encoder": encoder, "rehearsed": rehearse}
    work.mkdir(parents=True, exist_ok=True)
    check_settings(work / "settings.json", settings)
    job = Job(work, data, encoder, rehearse)
    results = {}
    for name, step in STEPS.items():
        target = work / name
        if result_file(target) is None:
            typer.echo(f"== {name}")
            step(job, target)
        file = result_file(target)
        if file is None:
            raise RuntimeError(f"{target}: the step {name} ended without a result")
        results[Path(name).stem] = json.loads(file.read_text(encoding="utf-8"))
    write_json(json_path, "gpu", settings, results)


if __name__ == "__main__":
    typer.run(main)
