"""Seconds until a fresh process is ready: imports and the help of commands, beside those of peers.

    python benchmarks/startup.py
    python benchmarks/startup.py --json benchmarks/results/startup.json

Every measurement is a new process; they take turns. A first turn does not count: it leaves the files in the system's
cache, and the modules compiled. `modeling_tmde` imports torch and transformers when one of its names is used, so that
both are measured: the package alone, and with its embedder, which compares with sentence-transformers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from common import interleaved, markdown, median_ratio, summary, write_json

IMPORTS = {
    "python alone": "pass",
    "import torch": "import torch",
    "import transformers": "import transformers",
    "from transformers import AutoModel": "from transformers import AutoModel",
    "import sentence_transformers": "import sentence_transformers",
    "import modeling_tmde": "import modeling_tmde",
    "from modeling_tmde import DocumentEmbedder": "from modeling_tmde import DocumentEmbedder",
}
COMMANDS = (
    "tmde --version", "tmde --help", "tmde train --help", "tmde embed --help", "tmde eval --help",
    "accelerate --help", "hf --help",
)  # fmt: skip
RATIOS = (
    ("import modeling_tmde", "import transformers"),
    ("from modeling_tmde import DocumentEmbedder", "import sentence_transformers"),
    ("from modeling_tmde import DocumentEmbedder", "from transformers import AutoModel"),
    ("tmde --help", "accelerate --help"),
    ("tmde --help", "hf --help"),
)


def processes() -> dict[str, Callable[[], object]]:
    """What is started, by name; a peer that is not installed is left out."""
    started: dict[str, list[str]] = {}
    for name, code in IMPORTS.items():
        package = code.split()[1] if " " in code else "sys"
        if find_spec(package) is not None:
            started[name] = [sys.executable, "-c", code]
    folder = Path(sys.executable).parent
    for command in COMMANDS:
        program, *arguments = command.split()
        if path := shutil.which(program, path=folder) or shutil.which(program):
            started[command] = [path, *arguments]
    run = partial(subprocess.run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {name: partial(run, line) for name, line in started.items()}


def main(
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each.")] = 9,
    quick: Annotated[bool, typer.Option("--quick", help="Two measurements of each: a rehearsal.")] = False,
    json: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Prints seconds of every start, and ratios to peers."""
    seconds = interleaved(processes(), repeats=2 if quick else repeats)
    results = {name: summary(values) for name, values in seconds.items()}
    typer.echo(markdown([{"start": name, **row} for name, row in results.items()]))
    ratios = {
        f"{ours} / {peer}": median_ratio(seconds[ours], seconds[peer])
        for ours, peer in RATIOS
        if ours in seconds and peer in seconds
    }
    typer.echo("\n" + markdown([{"ratio": name, "median": value} for name, value in ratios.items()]))
    write_json(json, "startup", {"repeats": 2 if quick else repeats}, {"seconds": results, "ratios": ratios})


if __name__ == "__main__":
    typer.run(main)
