"""Train a small embedder on several processes, on GPUs or on the CPUs of a laptop.

    torchrun --nproc_per_node=2 examples/train_distributed.py     # two CPU processes, or two GPUs
    accelerate launch --multi_gpu --num_processes=4 examples/train_distributed.py
    python examples/train_distributed.py                          # one process

The data is the built-in sample, so that the script runs as it stands. `--train FILE` takes your
own; docs/guides/scale-out.md has the same with the command `tmde train`.

Each process trains on its own part of every step, and DDP averages the gradients. InfoNCE takes
negatives from all processes. Only the first process writes files and prints.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

from accelerate import PartialState

from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe


def main() -> None:
    """Train the recipe `quickstart`, and print the scores of the dev rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--train", default="sample", help="parallel text; default: the sample")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--output", type=Path, default=Path("runs/distributed"))
    arguments = parser.parse_args()

    # torch announces that gloo, the backend of CPU processes, has no device; nothing is wrong.
    warnings.filterwarnings("ignore", message="No device id is provided")
    state = PartialState()
    settings = [
        f"data.train={arguments.train}",
        f"max_steps={arguments.steps}",
        "max_minutes=null",  # Steps end the run, so every machine trains equally long.
        f"eval_steps={arguments.steps}",
        "objectives.infonce={}",
        "seed=42",
    ]
    recipe = load_recipe("quickstart", settings)
    train_recipe(recipe, arguments.output, overwrite=True)

    if state.is_main_process:
        results = json.loads((arguments.output / "results.json").read_text("utf-8"))
        print(f"{state.num_processes} processes, {results['steps']} steps")
        print(f"P@1 on the dev rows: {100 * results['best']['eval_retrieval']:.1f} %")
        print(f"the model is in {arguments.output}")
    # Without this, a process that ends first is an error for the others.
    state.destroy_process_group()


if __name__ == "__main__":
    main()
