"""The parts of `gpu.py`, each in a process of its own: `python gpu_parts.py KIND ARGUMENT --folder ... --out ...`.

What a part needs is imported first; then it waits for a line on stdin, so that the next part's imports take no time
of the accelerator. Results are lines of JSON, written as soon as they are there.
"""

import gc
import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from common import machine
from sizes import SIZES, Size, matrix_rate

# What a part imports before its turn; `machine` and the checks need torch, transformers and numpy alone.
MODULES = {
    "machine": "common",
    "data": "training_speed",
    "checks": "gpu_checks",
    "training": "training_speed",
    "variations": "gpu_checks",
    "embedding": "embedding_speed",
}
ROWS, WARMUP_STEPS, STEPS, DOCUMENTS = 40_000, 6, 24, 8000


def with_smaller_batches(run: Callable[[Size], dict[str, Any]], size: Size) -> dict[str, Any]:
    """What `run` returns for the largest micro-batches, of this size or halves of it, that fit into memory."""
    asked = size.micro_batch_tokens
    while True:
        try:
            found = run(size)
            break
        except torch.OutOfMemoryError as error:  # whose frames hold tensors as long as it lives
            message = str(error).splitlines()[0]
        smaller = size.micro_batch_tokens // 2
        if smaller < 2 * size.max_length:
            raise RuntimeError(f"micro-batches of {size.micro_batch_tokens} tokens are too large: {message}")
        print(f"{size.micro_batch_tokens} tokens: {message}; now {smaller}", file=sys.stderr)
        size = replace(size, micro_batch_tokens=smaller)
        gc.collect()
        torch.cuda.empty_cache()
    note = "" if size.micro_batch_tokens == asked else f"out of memory at {asked} tokens, halved"
    return found | {"micro_batch_tokens": size.micro_batch_tokens, "note": note}


def measure_machine(device: str) -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {"machine": machine(), "device": device}
    for bf16 in (False, True):
        found[f"matrix rate, {'bf16' if bf16 else 'fp32'}"] = matrix_rate(bf16, device)
    if device == "cuda":
        found["memory"] = torch.cuda.get_device_properties(0).total_memory
    yield found


def make_data(folder: Path, rehearse: bool) -> Iterator[dict[str, Any]]:
    """Rows and one tokenizer for all sizes: tables are as large as their sizes say, whatever the tokenizer has."""
    from training_speed import prepare

    rows = 400 if rehearse else ROWS
    prepare(folder, "made-up", rows, 1000 if rehearse else SIZES["small"].vocab_size)
    yield {"rows": rows}


def check(size: Size, device: str) -> Iterator[dict[str, Any]]:
    import gpu_checks

    for name in gpu_checks.VARIANTS:
        yield gpu_checks.check_variant(name, size, device)
    yield gpu_checks.check_waiting(size, device)


def train(name: str, size: Size, folder: Path, rehearse: bool) -> Iterator[dict[str, Any]]:
    import datasets
    from training_speed import measure

    datasets.disable_progress_bars()
    steps, warmup = (2, 1) if rehearse else (STEPS, WARMUP_STEPS)
    yield {"system": name} | with_smaller_batches(
        lambda smaller: measure(name, folder, smaller, steps, bf16=True, warmup_steps=warmup), size
    )


def vary(size: Size, device: str, rehearse: bool) -> Iterator[dict[str, Any]]:
    import gpu_checks

    yield from gpu_checks.vary(size, device, repeats=1 if rehearse else 3)


def embed(what: str, device: str, rehearse: bool) -> Iterator[dict[str, Any]]:
    """`fp32` and `bf16`: models beside sentence-transformers in the same precision; `modes`: those of one model."""
    import embedding_speed as speed

    documents = speed.made_up_texts(60 if rehearse else DOCUMENTS, seed=0)
    tokenizer = speed.train_tokenizer({"none": documents}, vocab_size=32_000, show_progress=False)
    with tempfile.TemporaryDirectory() as temporary:
        scratch, repeats = Path(temporary), 1 if rehearse else 3
        models = speed.made_up_models(tokenizer, scratch)
        for name in ("T-MDE, 6 layers", "BERT, 6 layers") if what != "modes" else ():
            yield from speed.compare({name: models[name]}, documents, device, repeats, scratch, bf16=what == "bf16")
        if what == "modes":
            copied = documents[:500]
            sides = (speed.noisy(copied, seed=2), copied)
            yield from speed.compare_modes(models["T-MDE, 6 layers"], documents, sides, device, repeats, scratch)


def run(kind: str, argument: str, folder: Path, rehearse: bool) -> Iterator[dict[str, Any]]:
    """The rows of one part; `argument` is its size, its system at a size (`paper: T-MDE`), or what to embed."""
    device = "cpu" if rehearse or not torch.cuda.is_available() else "cuda"
    torch.set_float32_matmul_precision("highest")  # no TF32 where fp32 is said
    size = SIZES.get("tiny" if rehearse else argument.split(":")[0], SIZES["small"]).on(device)
    if kind == "machine":
        yield from measure_machine(device)
    elif kind == "data":
        yield from make_data(folder, rehearse)
    elif kind == "checks":
        yield from check(size, device)
    elif kind == "training":
        yield from train(argument.split(": ", 1)[1], size, folder, rehearse)
    elif kind == "variations":
        yield from vary(size, device, rehearse)
    else:
        yield from embed(argument, device, rehearse)


def main(
    kind: Annotated[str, typer.Argument()],
    argument: Annotated[str, typer.Argument()],
    folder: Annotated[Path, typer.Option(help="With the data.")],
    out: Annotated[Path, typer.Option(help="File to write lines to.")],
    rehearse: bool = False,
    fail: Annotated[bool, typer.Option("--fail", help="Fails on purpose after the imports.")] = False,
) -> None:
    importlib.import_module(MODULES[kind])
    if not sys.stdin.readline():  # gpu.py is gone
        raise SystemExit(1)
    if fail:
        raise RuntimeError(f"{kind} {argument} fails on purpose")
    with out.open("a", encoding="utf-8") as lines:
        for row in run(kind, argument, folder, rehearse):
            lines.write(json.dumps(row, default=float) + "\n")
            lines.flush()


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)  # whose frames would push the error out of the last lines
    app.command()(main)
    app()
