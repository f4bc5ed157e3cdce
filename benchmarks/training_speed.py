"""Training throughput of T-MDE's variants beside Marian under `Seq2SeqTrainer`, each in a fresh process, in turn.

    python benchmarks/training_speed.py --size small --json benchmarks/results/training_small.json

All systems train on the same rows with the same tokenizer, optimizer and tokens in a batch, data loading included.
Words and tokens are those of source and target, without padding; the first half of the steps is not measured.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import datasets
import torch
import typer
from common import markdown, peak_memory, write_json
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from modeling_tmde.tokenization import train_tokenizer
from tmde.data import load_parallel
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe

LANGUAGES, PIVOTS = ("de", "en", "es", "fr", "it"), ("en", "es")
SIZES = {  # width, layers, heads, feed-forward, vocabulary, tokens a batch
    "tiny": (64, 4, 4, 128, 1000, 1024),
    "small": (512, 6, 8, 2048, 32000, 4096),
    "paper": (1024, 6, 16, 4096, 50000, 4096),
}
RECIPES = {
    "T-MDE": ("tmde", ["training.languages_per_row=2"]),
    "cT-MDE": ("ctmde", ["training.languages_per_row=2"]),
    "cT-MDE, all languages of a row": ("ctmde", ["training.languages_per_row=null"]),
    "T-MDE_P": ("tmde", ["model.bottleneck=pyramid", "training.languages_per_row=2"]),
}
MARIAN = "Marian, Seq2SeqTrainer, by length"


def train_tmde(name: str, folder: Path, size: str, steps: int, bf16: bool) -> dict[str, float]:
    """Rates of the second half of the steps, as the trainer logs them."""
    width, layers, heads, ffn, vocabulary, tokens = SIZES[size]
    recipe, overrides = RECIPES[name]
    model = {
        "d_model": width,
        "encoder_layers": layers,
        "encoder_ffn_dim": ffn,
        "decoder_ffn_dim": ffn,
    }
    model |= {"encoder_attention_heads": heads, "decoder_attention_heads": heads, "dropout": 0.1}
    training = {
        "micro_batch_tokens": tokens,
        "batch_tokens": "null",
        "max_steps": 2 * steps,
        "logging_steps": steps,
    }
    training |= {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": "false"}
    training |= {
        "bf16": str(bf16).lower(),
        "disable_tqdm": "true",
        "eval_on_start": "false",
        "warmup_steps": 1,
    }
    training |= {
        "gradient_accumulation_steps": 1,
        "train_max_length": 128,
        "metric_for_best_model": "null",
    }
    words = [f"model.{key}={value}" for key, value in model.items()]
    words += [f"training.{key}={value}" for key, value in training.items()]
    words += [
        f"data.train={folder / 'rows.parquet'}",
        "data.dev=null",
        "data.dev_rows=0",
        "data.eval_task=null",
    ]
    words += [f"tokenizer.vocab_size={vocabulary}", "training.max_minutes=null"]
    train_recipe(load_recipe(recipe, [*words, *overrides]), folder / "run")
    logs = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    log = [line for line in logs if "words_per_second" in line][-1]
    return {
        "words/s": log["words_per_second"],
        "tokens/s": log["tokens_per_second"],
        "padding": log["padding"],
    }


class Counter(TrainerCallback):
    """Time and counts at the middle and at the end."""

    def __init__(self, counts: dict[str, int], steps: int) -> None:
        self.counts, self.steps, self.marks = counts, steps, []

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if state.global_step % self.steps == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.marks.append((time.perf_counter(), dict(self.counts)))


def train_marian(folder: Path, size: str, steps: int, bf16: bool) -> dict[str, float]:
    """An encoder-decoder of equal size with full cross-attention; texts are tokenized beforehand."""
    width, layers, heads, ffn, vocabulary, tokens = SIZES[size]
    rng, rows = (
        random.Random(0),
        datasets.Dataset.from_parquet(str(folder / "rows.parquet"))["translation"],
    )
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    pairs = []
    for row in rows:
        target = rng.choice(PIVOTS)
        pairs.append((row[rng.choice([code for code in LANGUAGES if code != target])], row[target]))
    sources, targets = (
        tokenizer(list(side), truncation=True, max_length=128)["input_ids"]
        for side in zip(*pairs, strict=True)
    )
    words = [len(source.split()) + len(target.split()) for source, target in pairs]
    sizes = {"d_model": width, "encoder_layers": layers, "decoder_layers": 1}
    sizes["vocab_size"] = max(vocabulary, len(tokenizer))
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_attention_heads": heads, f"{side}_ffn_dim": ffn}
    special = {
        "pad_token_id": tokenizer.pad_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
    }
    model = MarianMTModel(MarianConfig(eos_token_id=tokenizer.eos_token_id, **sizes, **special))
    collate, counts = (
        DataCollatorForSeq2Seq(tokenizer, model),
        {"words": 0, "tokens": 0, "padded": 0, "read": 0},
    )

    def counted(features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        counts["words"] += sum(feature.pop("words") for feature in features)
        batch = collate(features)
        counts["read"] += int(batch["attention_mask"].sum())
        counts["padded"] += batch["input_ids"].numel()
        counts["tokens"] += int(batch["attention_mask"].sum() + (batch["labels"] != -100).sum())
        return batch

    mean = sum(map(len, sources)) / len(sources)
    options = {
        "per_device_train_batch_size": max(2, round(tokens / 2 / mean)),
        "max_steps": 2 * steps,
        "bf16": bf16,
    }
    options |= {
        "train_sampling_strategy": "group_by_length",
        "label_smoothing_factor": 0.1,
        "save_strategy": "no",
    }
    options |= {"optim": "adamw_torch_fused", "report_to": "none", "remove_unused_columns": False}
    options["disable_tqdm"] = True
    arguments = Seq2SeqTrainingArguments(
        str(folder / "marian"), use_cpu=not torch.cuda.is_available(), **options
    )
    examples = {"input_ids": sources, "labels": [ids[1:] for ids in targets], "words": words}
    counter = Counter(counts, steps)
    data, options = (
        datasets.Dataset.from_dict(examples),
        {"processing_class": tokenizer, "callbacks": [counter]},
    )
    Seq2SeqTrainer(model, arguments, counted, data, **options).train()
    (begin, before), (end, after) = counter.marks
    done = {key: (after[key] - before[key]) / (end - begin) for key in after}
    return {
        "words/s": done["words"],
        "tokens/s": done["tokens"],
        "padding": 1 - done["read"] / done["padded"],
    }


def prepare(folder: Path, source: str, number: int, vocabulary: int) -> None:
    """Rows that have every language, and a tokenizer of theirs."""
    rows = load_parallel(source, languages=LANGUAGES, max_rows=20 * number).select_columns(
        "translation"
    )
    rows = rows.filter(lambda row: all(row["translation"].get(code) for code in LANGUAGES))
    rows = rows.select(range(min(number, len(rows))))
    rows.to_parquet(folder / "rows.parquet")
    texts = {code: [row[code] for row in rows["translation"]] for code in LANGUAGES}
    train_tokenizer(texts, vocab_size=vocabulary).save_pretrained(folder / "tokenizer")


def main(
    train: Annotated[str, typer.Option(help="Parallel text in de, en, es, fr, it.")] = "sample",
    rows: Annotated[int, typer.Option(min=100, help="Rows to train on.")] = 8000,
    size: Annotated[str, typer.Option(help=f"One of {', '.join(SIZES)}.")] = "small",
    system: Annotated[list[str] | None, typer.Option(help="Only these.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Measured steps of a run.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each system, in turn.")] = 3,
    bf16: Annotated[
        bool, typer.Option("--bf16/--fp32", help="Autocast to bfloat16, all systems.")
    ] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
    measure: Annotated[str | None, typer.Option(hidden=True)] = None,
    folder: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Prints words and tokens per second of every system."""
    if measure is not None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            for name in ("rows.parquet", "tokenizer"):
                (Path(place) / name).symlink_to(folder / name)
            arguments = (Path(place), size, steps, bf16)
            found = (
                train_marian(*arguments) if measure == MARIAN else train_tmde(measure, *arguments)
            )
        typer.echo(json.dumps(found | {"peak": peak_memory()}))
        return
    names = system or [*RECIPES, MARIAN]
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as temporary:
        prepare(Path(temporary), train, rows, SIZES[size][4])
        options = [
            "--folder",
            temporary,
            "--size",
            size,
            "--steps",
            str(steps),
            "--bf16" if bf16 else "--fp32",
        ]
        for name in names * repeats:
            command = [sys.executable, __file__, "--measure", name, *options]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            results[name].append(json.loads(done.stdout.splitlines()[-1]))
    table = []
    for name, runs in results.items():
        row = {
            "system": name,
            **{key: median(run[key] for run in runs) for key in ("words/s", "tokens/s")},
        }
        row["padding"] = f"{median(run['padding'] for run in runs):.1%}"
        table.append(row | {"peak memory, GiB": max(run["peak"] for run in runs) / 2**30})
    typer.echo(
        f"{size}, {'bf16' if bf16 else 'fp32'}, {torch.get_num_threads()} threads, {steps} steps\n"
    )
    typer.echo(markdown(table))
    write_json(
        json_path,
        "training_speed",
        {"train": train, "rows": rows, "size": size, "steps": steps},
        results,
    )


if __name__ == "__main__":
    datasets.disable_progress_bars()
    typer.run(main)
