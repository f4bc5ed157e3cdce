"""Training throughput of T-MDE's variants and of peers of equal size, each in a process of its own, in turn.

    python benchmarks/training_speed.py --size small --json benchmarks/results/training_small.json

Every system trains by its own trainer, data loading included, on the same rows with the same tokenizer, optimizer and
number of tokens in a batch. Words are those of source and target of every direction that is trained, tokens those that
encoder and decoder are given, neither with padding. The utilisation is the rate of the matrix products with weights
that the real tokens need, relative to the fastest large matrix product of the machine in the same run and precision.
Peak memory is that of the process, or on a GPU that of tensors.
"""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import datasets
import numpy as np
import torch
import typer
from common import markdown, summary, write_json
from sizes import LANGUAGES, PIVOTS, SIZES, Size, matrix_rate
from training_systems import PEERS, RECIPES, Clock, Counts, build

from modeling_tmde.data import load_parallel
from modeling_tmde.tokenization import train_tokenizer

WARMUP_STEPS = 2
BASELINE = "T-MDE"


def made_up_rows(number: int, seed: int = 0) -> list[dict[str, str]]:
    """Texts in all languages with shared meanings: log-normal lengths, words as unevenly frequent as a language's."""
    rng = np.random.default_rng(seed)
    syllables = np.array([first + last for first in "bcdfglmnprstv" for last in ("a", "e", "i", "o", "u", "en", "as")])
    spellings = {}
    for language in LANGUAGES:
        own = rng.choice(syllables, (20_000, 4))
        kept = rng.choice([1, 2, 2, 3, 3, 4], len(own))
        spellings[language] = np.array(["".join(word[:count]) for word, count in zip(own, kept, strict=True)])
    chances = 1 / np.arange(1, 20_001)
    lengths = rng.lognormal(np.log(20), 0.6, number).round().clip(3, 100).astype(int)
    meanings = np.split(rng.choice(20_000, lengths.sum(), p=chances / chances.sum()), np.cumsum(lengths)[:-1])
    factors = rng.normal([0.95, 1.0, 1.08, 1.1, 1.02], 0.08, (number, len(LANGUAGES))).clip(0.7, 1.4)
    rows = []
    for meaning, row_factors in zip(meanings, factors, strict=True):
        row = {}
        for language, factor in zip(LANGUAGES, row_factors, strict=True):  # some words are left out, or said twice
            places = np.linspace(0, len(meaning) - 1, max(2, round(len(meaning) * factor))).round().astype(int)
            row[language] = " ".join(spellings[language][meaning[places]])
        rows.append(row)
    return rows


def prepare(folder: Path, source: str, number: int, vocab_size: int) -> None:
    """Rows that have every language, at most `number`, and a tokenizer of theirs."""
    if source == "made-up":
        rows = datasets.Dataset.from_dict({"translation": made_up_rows(number)})
    else:
        rows = load_parallel(
            source, languages=LANGUAGES, pivot_languages=PIVOTS, split="train", max_rows=20 * number, bad_rows="report"
        )
        rows = rows.filter(lambda row: all(row["translation"].get(language) for language in LANGUAGES))
    if not len(rows):
        raise typer.BadParameter(f"{source} has no row in all of {LANGUAGES}", param_hint="--train")
    rows = rows.shuffle(seed=0).select(range(min(number, len(rows)))).select_columns("translation")
    rows.save_to_disk(folder / "rows")
    read = rows.select(range(min(20_000, len(rows))))["translation"]  # more does not change the tokenizer much
    texts = {language: [row[language] for row in read] for language in LANGUAGES}
    train_tokenizer(texts, vocab_size=vocab_size, show_progress=False).save_pretrained(folder / "tokenizer")


def measure(
    name: str, folder: Path, size: Size, steps: int, bf16: bool, warmup_steps: int = WARMUP_STEPS
) -> dict[str, Any]:
    """Trains one system for `steps` steps after the first ones, which set things up."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = datasets.load_from_disk(folder / "rows")
    system = build(name, folder, rows, size, warmup_steps + steps, bf16)
    clock = Clock(system.counts, waits=(warmup_steps, warmup_steps + steps))
    system.trainer.add_callback(clock)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    rate = matrix_rate(bf16, device)
    trained = system.trainer.train()
    rate = max(rate, matrix_rate(bf16, device))
    (begin, before), (end, after) = clock.ticks[warmup_steps - 1], clock.ticks[-1]
    seconds = end - begin
    done = Counts(**{key: value - vars(before)[key] for key, value in vars(after).items()})
    unit = 1 if sys.platform == "darwin" else 1024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {
        "words_per_second": done.words / seconds,
        "tokens_per_second": (done.encoder_tokens + done.decoder_tokens) / seconds,
        "rows_per_second": done.rows / seconds,
        "padding": 1 - done.encoder_tokens / done.padded_tokens,
        "data_wait": done.data_wait / seconds,
        "utilisation": done.flops / seconds / rate,
        "matrix_rate": rate,
        "peak_memory": torch.cuda.max_memory_allocated() if device == "cuda" else memory,
        "parameters": system.parameters,
        "loss": trained.training_loss,
    }


def in_fresh_process(name: str, folder: Path, size: str, steps: int, bf16: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", name, "--folder", str(folder), "--size", size]
    command += ["--steps", str(steps), "--bf16" if bf16 else "--fp32"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """Medians over the repeats; ratios are medians of the ratios turn by turn."""
    rows = []
    for name, runs in results.items():
        row: dict[str, Any] = {"system": name}
        row["parameters, M"] = runs[0]["parameters"] / 1e6
        for key, title in (("words_per_second", "words/s"), ("tokens_per_second", "tokens/s")):
            row[title] = median(run[key] for run in runs)
            if BASELINE in results:
                pairs = zip(runs, results[BASELINE], strict=True)
                row[f"{title} / {BASELINE}"] = f"{median(run[key] / base[key] for run, base in pairs):.2f}"
        row["utilisation"] = f"{median(run['utilisation'] for run in runs):.0%}"
        row["padding"] = f"{median(run['padding'] for run in runs):.1%}"
        row["peak memory, GiB"] = f"{max(run['peak_memory'] for run in runs) / 2**30:.2f}"
        rows.append(row)
    return markdown(rows)


def main(
    train: Annotated[str, typer.Option(help="Parallel text in de, en, es, fr, it; or made-up.")] = "sample",
    rows: Annotated[int, typer.Option(min=100, help="Rows to train on.")] = 8000,
    size: Annotated[str, typer.Option(help=f"One of {', '.join(SIZES)}.")] = "small",
    system: Annotated[list[str] | None, typer.Option(help="Only these; also any recipe, at its own size.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Measured steps of a run.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each system, in turn.")] = 3,
    bf16: Annotated[bool, typer.Option("--bf16/--fp32", help="Autocast to bfloat16, all systems.")] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
    measure_only: Annotated[str | None, typer.Option("--measure", hidden=True)] = None,
    folder: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Prints words and tokens per second of every system, relative to T-MDE's."""
    if size not in SIZES:
        raise typer.BadParameter(f"found {size!r}, expected one of {', '.join(SIZES)}", param_hint="--size")
    if measure_only is not None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        typer.echo(json.dumps(measure(measure_only, folder, SIZES[size].on(device), steps, bf16)))
        return
    names = system or [*RECIPES, *PEERS]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as temporary:
        prepare(Path(temporary), train, rows, SIZES[size].vocab_size)
        for turn in range(repeats):
            for name in names:
                results[name].append(in_fresh_process(name, Path(temporary), size, steps, bf16))
                typer.echo(
                    f"{turn + 1}/{repeats} {name}: {results[name][-1]['tokens_per_second']:,.0f} tokens/s", err=True
                )
    typer.echo(
        f"{size}, {'bf16' if bf16 else 'fp32'}, {torch.get_num_threads()} threads, {steps} steps, {repeats} runs\n"
    )
    typer.echo(table(results))
    settings = {"train": train, "rows": rows, "size": size, "steps": steps, "bf16": bf16, "sizes": vars(SIZES[size])}
    spread = {name: {key: summary([run[key] for run in runs]) for key in runs[0]} for name, runs in results.items()}
    write_json(json_path, "training_speed", settings, spread)


if __name__ == "__main__":
    datasets.disable_progress_bars()
    typer.run(main)
