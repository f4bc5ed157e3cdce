"""Training time against processes: the same steps, of the same batch, shared out among 1, 2, ... processes.

    python benchmarks/training_scaling.py --json benchmarks/results/training_scaling.json

Every process has one thread on a CPU (gloo), or one GPU (NCCL). A step has the same micro-batches however many
processes share them: one process accumulates what several train side by side, without dropout, so that T-MDE's loss is
the same, which is checked. The share of communication is the time that goes when DDP keeps gradients to itself. With
`--peer`, Marian of equal size under the stock trainer is measured as well.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import datasets
import torch
import typer
from common import markdown, median_ratio, summary, write_json
from sizes import SIZES, Size
from torch.distributed import GradBucket
from torch.nn.parallel import DistributedDataParallel
from training_speed import prepare
from training_systems import Clock, Counts, System, build
from transformers import TrainerCallback

from modeling_tmde.training.objectives.gather import sum_on_host

WARMUP_STEPS = 1
OURS, PEER = "cT-MDE", "Marian, Seq2SeqTrainer, by length"
SILENT = "cT-MDE, gradients kept"


class KeepGradients(TrainerCallback):
    """Lets no process tell its gradients to the others; each then trains a model of its own."""

    def __init__(self, system: System):
        self.system = system

    def on_train_begin(self, args, state, control, **kwargs):
        def keep(_, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            kept = torch.futures.Future()
            kept.set_result(bucket.buffer())
            return kept

        wrapped = self.system.trainer.model_wrapped
        assert isinstance(wrapped, DistributedDataParallel)
        wrapped.register_comm_hook(None, keep)


def measure(name: str, folder: Path, size: Size, micro_batches: int, steps: int, bf16: bool) -> None:
    """Started by torchrun: trains one system, and writes rates of all processes together to `result.json`."""
    rows = datasets.load_from_disk(folder / "rows")
    system = build(OURS if name == SILENT else name, folder, rows, size, WARMUP_STEPS + steps, bf16)
    trainer, processes = system.trainer, system.trainer.args.world_size
    trainer.args.gradient_accumulation_steps = micro_batches // processes
    clock = Clock(system.counts)
    trainer.add_callback(clock)
    if name == SILENT and processes > 1:
        trainer.add_callback(KeepGradients(system))
    trained = trainer.train()
    (begin, before), (end, after) = clock.ticks[WARMUP_STEPS - 1], clock.ticks[-1]
    done = Counts(**{key: value - vars(before)[key] for key, value in vars(after).items()})
    (tokens,) = sum_on_host([float(done.encoder_tokens + done.decoder_tokens)])
    found = {
        "seconds_per_step": (end - begin) / steps,
        "tokens_per_second": tokens / (end - begin),
        "loss": trained.training_loss,
        "parameters": system.parameters,
        "processes": processes,
    }
    if trainer.args.process_index == 0:
        (folder / "result.json").write_text(json.dumps(found))


def launch(name: str, processes: int, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    command += [__file__, "--measure", name, "--folder", str(folder), "--bf16" if options["bf16"] else "--fp32"]
    for option in ("size", "steps", "micro_batches", "micro_batch_tokens"):
        command += [f"--{option.replace('_', '-')}", str(options[option])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | threads)
    if done.returncode or not result.exists():
        raise RuntimeError(f"{name} on {processes} processes failed:\n{done.stderr[-3000:]}")
    return json.loads(result.read_text())


def check_losses(results: dict[tuple[str, int], list[dict[str, Any]]], bf16: bool) -> None:
    """Refuses times of trainings that were not the same."""
    losses = {processes: runs[0]["loss"] for (name, processes), runs in results.items() if name == OURS}
    first = next(iter(losses.values()))
    if any(abs(loss - first) > (2e-2 if bf16 else 1e-4) * abs(first) for loss in losses.values()):
        raise RuntimeError(f"{OURS}: losses by processes differ, found {losses}, expected the same")


def table(results: dict[tuple[str, int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Medians; ratios are medians of the ratios turn by turn."""
    rows = []
    for (name, processes), runs in results.items():
        if name == SILENT:
            continue
        seconds, alone, silent = (
            [run["seconds_per_step"] for run in found]
            for found in (runs, results[name, 1], results.get((SILENT, processes), []))
        )
        speedup = median_ratio(alone, seconds)
        rows.append(
            {
                "system": name,
                "processes": processes,
                "parameters, M": runs[0]["parameters"] / 1e6,
                "seconds a step": median(seconds),
                # The peer's batches are counted when they are fetched, which is not when they are trained on.
                "tokens/s": f"{median(run['tokens_per_second'] for run in runs):,.0f}" if name == OURS else "-",
                "speed-up": f"{speedup:.2f}",
                "efficiency": f"{speedup / processes:.0%}",
                "communication": f"{1 - median_ratio(silent, seconds):.0%}" if name == OURS and silent else "-",
                "loss": f"{runs[0]['loss']:.4f}",
            }
        )
    return rows


def most_processes() -> int:
    if torch.cuda.is_available():
        return torch.cuda.device_count()
    return min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def main(
    train: Annotated[str, typer.Option(help="Parallel text in de, en, es, fr, it.")] = "sample",
    rows: Annotated[int, typer.Option(min=100, help="Rows to train on.")] = 4000,
    size: Annotated[str, typer.Option(help=f"One of {', '.join(SIZES)}.")] = "small",
    processes: Annotated[int | None, typer.Option(min=1, help="Most of them; all GPUs, or 2 on a CPU.")] = None,
    micro_batches: Annotated[int, typer.Option(min=1, help="Of a step, whoever trains them.")] = 4,
    micro_batch_tokens: Annotated[int, typer.Option(min=64, help="Padded tokens of a micro-batch.")] = 1024,
    steps: Annotated[int, typer.Option(min=1, help="Measured steps of a run.")] = 4,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each system, in turn.")] = 2,
    bf16: Annotated[bool, typer.Option("--bf16/--fp32", help="Autocast to bfloat16, all systems.")] = False,
    peer: Annotated[bool, typer.Option("--peer", help=f"Measure {PEER}, too.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, one repeat: does it run?")] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
    measure_only: Annotated[str | None, typer.Option("--measure", hidden=True)] = None,
    folder: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Prints time, speed-up and share of communication by number of processes."""
    if size not in SIZES:
        raise typer.BadParameter(f"found {size!r}, expected one of {', '.join(SIZES)}", param_hint="--size")
    if quick:
        size, rows, steps, repeats = "tiny", 400, 2, 1
    chosen = dataclasses.replace(SIZES[size], micro_batch_tokens=micro_batch_tokens, dropout=0.0)
    if measure_only is not None:
        measure(measure_only, folder, chosen, micro_batches, steps, bf16)
        return
    most = most_processes() if processes is None else processes
    numbers = [number for number in (2**power for power in range(most.bit_length())) if number <= most]
    if micro_batches % numbers[-1]:
        raise typer.BadParameter(
            f"found {micro_batches} micro-batches, expected a multiple of {numbers[-1]} processes",
            param_hint="--micro-batches",
        )
    runs = [
        (name, number)
        for number in numbers
        for name in (OURS, *([SILENT] if number > 1 else []), *([PEER] if peer else []))
    ]
    results: dict[tuple[str, int], list[dict[str, Any]]] = {run: [] for run in runs}
    options = {"size": size, "steps": steps, "micro_batches": micro_batches, "bf16": bf16}
    options["micro_batch_tokens"] = micro_batch_tokens // 2
    with tempfile.TemporaryDirectory() as temporary:
        prepare(Path(temporary), train, rows, SIZES[size].vocab_size)
        for turn in range(repeats):
            for name, number in runs:
                found = launch(name, number, Path(temporary), options)
                results[name, number].append(found)
                typer.echo(f"{turn + 1}/{repeats} {name} x {number}: {found['seconds_per_step']:.2f} s", err=True)
    check_losses(results, bf16)
    typer.echo(f"{size}, {'bf16' if bf16 else 'fp32'}, {steps} steps, {repeats} runs\n")
    typer.echo(markdown(table(results)))
    spread = [
        {"system": name, "processes": number} | {key: summary([run[key] for run in found]) for key in found[0]}
        for (name, number), found in results.items()
    ]
    write_json(json_path, "training_scaling", {"train": train, "rows": rows, **options}, spread)


if __name__ == "__main__":
    datasets.disable_progress_bars()
    typer.run(main)
