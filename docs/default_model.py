r"""Make the model `default` that comes with the package.

    python docs/default_model.py WORK --data DATA

`DATA` has the folders `general` and `parallel` with parquet files of parallel rows (columns
`translation` and `doc_id`). embedding/default/README.md lists the sources of the model that ships.
`WORK` gets a file or folder for each step, and a step whose result is there is left out:

1. `rows.parquet` and `NAME.parquet` of each teacher: texts, and vectors of their English, as for
   the model `accurate`. A folder in which docs/accurate_model.py worked has them.
2. `default/start`: a bag of the token vectors of multilingual-e5-small.
3. `default/run-SEED`, three times: the start, trained by the recipe `default` with these teachers.
4. `default/mean`: the mean of the three runs' weights and those of the start.
5. `default/whitened`: the mean, whitened by translations of the training text.

The last is written to `--output` in 8 bits. The model of a single run is written by `--seed`.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from accurate_model import (
    E5,
    SEEDS,
    copy_files,
    model_path,
    prepare_teaching,
    run_command,
    save_weights,
)
from safetensors.torch import load_file

# The general text, and the documentation but for the Divinum Officium.
TRAIN = ("parallel/[mps]*.parquet", "general/*.parquet")
DEV = ("parallel_dev.parquet", "general_dev.parquet")
TEACHER_WEIGHT = 1.0  # With 3, fewer translations of general text are found.
TRAINED_SHARE = 0.85  # The share of the weights after training; the rest are those of the start.


def sources(option: str, data: Path, names: tuple[str, ...]) -> list[object]:
    """Return an option of a command for each file."""
    options: list[object] = []
    for name in names:
        options += [option, data / name]
    return options


# ---- Training


def make_start(encoder: str, data: Path, start: Path) -> None:
    """Make the bag that all runs begin with."""
    temporary = start.with_name(f".{start.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    run_command("export", "bag", encoder, "-o", temporary, *sources("--train", data, TRAIN))
    temporary.rename(start)


def train(start: Path, data: Path, rows: Path, vectors: list[Path], run: Path, seed: int) -> None:
    """Train the bag on all text, and with the teachers' vectors of the rows that they have read."""
    teachers = ", ".join(str(path) for path in vectors)
    run_command(
        "train",
        "default",
        *sources("--train", data, TRAIN),
        *["--train", rows],
        *sources("--dev", data, DEV),
        *["-o", run, "--overwrite", "--warm-start", start],
        f"objectives.distillation.teacher=[{teachers}]",
        "objectives.distillation.teacher_languages=[en]",
        "objectives.distillation.center=true",
        f"objectives.distillation.weight={TEACHER_WEIGHT}",
        "max_minutes=null",
        "max_cpu_minutes=20",
        f"seed={seed}",
    )


# ---- The mean, and its form


def mixed_weights(runs: list[Path], start: Path) -> dict[str, torch.Tensor]:
    """Return a weighted mean of the weights after and before training.

    The runs are averaged as in model soups (Wortsman et al. 2022a). The weights before training
    know more words (WiSE-FT, Wortsman et al. 2022b).

    Args:
        runs: The folders of the runs. Their weights have equal shares.
        start: The folder of the bag that they began with.
    """
    weights: dict[str, torch.Tensor] = {}
    for name, before in load_file(start / "model.safetensors").items():
        weights[name] = (1 - TRAINED_SHARE) * before.float()
    for run in runs:
        for name, trained in load_file(run / "model.safetensors").items():
            weights[name] = weights[name] + TRAINED_SHARE / len(runs) * trained.float()
    return weights


def write_mean(runs: list[Path], start: Path, target: Path) -> None:
    """Write a bag with the mean of the weights."""
    temporary = target.with_name(f".{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    unused = shutil.ignore_patterns("checkpoint-*")
    shutil.copytree(runs[0], temporary, ignore=unused)
    save_weights(mixed_weights(runs, start), temporary)
    temporary.rename(target)


def whiten(bag: Path, data: Path, target: Path) -> None:
    """Write a bag that is whitened by translations of the training text."""
    temporary = target.with_name(f".{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    options = sources("--train", data, TRAIN)
    script = Path(__file__).with_name("whitening.py")
    subprocess.run([sys.executable, script, bag, "-o", temporary, *map(str, options)], check=True)
    temporary.rename(target)


def stored_weights(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the table in 8 bits, and the weights of tokens in 16.

    A normalized bag does not depend on the scale of its table. Numbers below 2^-6 would lose digits
    in 8 bits, so the table is scaled.
    """
    table = weights["embed_tokens.weight"].float()
    table = 4 * table / table.std()
    return {
        "embed_tokens.weight": table.to(torch.float8_e4m3fn),
        "token_weights": weights["token_weights"].half(),
    }


def pack(source: Path, target: Path) -> None:
    """Write a bag without code, in 8 bits."""
    copy_files(source, target)
    settings: dict[str, Any] = json.loads((source / "config.json").read_text())
    del settings["auto_map"]
    (target / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    save_weights(stored_weights(load_file(source / "model.safetensors")), target)


def main(
    work: Annotated[
        Path, typer.Argument(help="Folder to make, or that of docs/accurate_model.py.")
    ],
    data: Annotated[Path, typer.Option(help="Folder with general/ and parallel/.")],
    models: Annotated[
        Path | None, typer.Option(help="Folder with the models, in place of the Hub.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder of the result.")] = Path("embedding/default"),
    seed: Annotated[
        int | None, typer.Option(help="Write the model of this seed alone; otherwise their mean.")
    ] = None,
) -> None:
    """Make the model, from the first step whose result is not there."""
    steps = work / "default"
    steps.mkdir(parents=True, exist_ok=True)
    rows, vectors = prepare_teaching(work, data, models)
    start = steps / "start"
    if not start.exists():
        make_start(model_path(E5, models), data, start)
    runs = []
    for run_seed in SEEDS if seed is None else (seed,):
        run = steps / f"run-{run_seed}"
        if not (run / "model.safetensors").exists():
            train(start, data, rows, vectors, run, run_seed)
        runs.append(run)
    suffix = "" if seed is None else f"-{seed}"
    mean = steps / f"mean{suffix}"
    if not mean.exists():
        write_mean(runs, start, mean)
    whitened = steps / f"whitened{suffix}"
    if not whitened.exists():
        whiten(mean, data, whitened)
    pack(whitened, output)


if __name__ == "__main__":
    typer.run(main)
