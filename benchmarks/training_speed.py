"""Training throughput of T-MDE's variants, beside Marian under `Seq2SeqTrainer`.

    python benchmarks/training_speed.py --size small --json benchmarks/results/training_small.json

All systems train on the same rows with the same tokenizer, optimizer and tokens in a batch, data
loading included, each in a fresh process, in turn. Words and tokens are those of source and target,
without padding; the first half of the steps is not measured.
"""

import json
import random
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import datasets
import pandas as pd
import torch
import typer
from common import LANGUAGES, in_fresh_process, markdown, peak_memory, summary, write_json
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)

from modeling_tmde.tokenization import train_tokenizer
from tmde.data import load_parallel
from tmde.training.recipe import load_recipe
from tmde.training.run import train_recipe

PIVOTS = ("en", "es")
MAX_LENGTH = 128  # tokens of a text
ROWS_FILE = "rows.parquet"
TOKENIZER_FOLDER = "tokenizer"
DROPOUT = 0.1
LABEL_SMOOTHING = 0.1


@dataclass(frozen=True)
class Size:
    """The size of a model and of its batches.

    Attributes:
        width: The size of a hidden state.
        layers: The layers of the encoder; the decoder has one.
        heads: The attention heads of encoder and decoder.
        ffn: The width of the feed-forward layers.
        vocabulary: The tokens that the tokenizer knows.
        batch_tokens: The tokens of a batch, padding included.
    """

    width: int
    layers: int
    heads: int
    ffn: int
    vocabulary: int
    batch_tokens: int


SIZES = {
    "tiny": Size(64, 4, 4, 128, 1000, 1024),
    "small": Size(512, 6, 8, 2048, 32000, 4096),
    "paper": Size(1024, 6, 16, 4096, 50000, 4096),
}
# The recipe of each system, and its overrides.
RECIPES = {
    "T-MDE": ("tmde", ["training.languages_per_row=2"]),
    "cT-MDE": ("ctmde", ["training.languages_per_row=2"]),
    "cT-MDE, all languages of a row": ("ctmde", ["training.languages_per_row=null"]),
    "T-MDE_P": ("tmde", ["model.bottleneck=pyramid", "training.languages_per_row=2"]),
}
MARIAN = "Marian, Seq2SeqTrainer, by length"
Rates = dict[str, float]


@dataclass(frozen=True)
class Job:
    """What one process measures.

    Attributes:
        folder: The folder with rows and tokenizer, which the run may write to.
        size: The size of the model.
        steps: The measured steps; as many before them are not measured.
        bf16: Whether it computes in bfloat16.
    """

    folder: Path
    size: Size
    steps: int
    bf16: bool


# ---- Data


def has_every_language(row: dict[str, Any]) -> bool:
    """Return whether a row has a text in each of `LANGUAGES`."""
    translation = row["translation"]
    return all(map(translation.get, LANGUAGES))


def prepare(folder: Path, source: str, count: int, vocabulary: int) -> None:
    """Write rows that have every language, and a tokenizer that was trained on them.

    Args:
        folder: The folder to write to.
        source: Parallel text.
        count: The most rows.
        vocabulary: The tokens of the tokenizer.
    """
    rows = load_parallel(source, languages=LANGUAGES, max_rows=20 * count)
    rows = rows.select_columns("translation")
    rows = rows.filter(has_every_language)
    count = min(count, len(rows))
    rows = rows.select(range(count))
    rows.to_parquet(folder / ROWS_FILE)
    texts: dict[str, list[str]] = {code: [] for code in LANGUAGES}
    for translation in rows["translation"]:
        for code in LANGUAGES:
            texts[code].append(translation[code])
    tokenizer = train_tokenizer(texts, vocab_size=vocabulary)
    tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)


# ---- T-MDE


def measure_tmde(name: str, job: Job) -> Rates:
    """Train a variant of T-MDE; return the rates that the trainer logs at the last step."""
    recipe_name, overrides = RECIPES[name]
    run = job.folder / "run"
    recipe = load_recipe(recipe_name, [*recipe_options(job), *overrides])
    trainer = train_recipe(recipe, run)
    rates = {}
    for line in (run / "log.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "words_per_second" in record:
            rates = record
    return {
        "words_per_second": rates["words_per_second"],
        "tokens_per_second": rates["tokens_per_second"],
        "padding": rates["padding"],
        "parameters": sum(weight.numel() for weight in trainer.model.parameters()),
    }


def recipe_options(job: Job) -> list[str]:
    """Return recipe keys and their values for all variants."""
    size = job.size
    options = {
        "data.train": job.folder / ROWS_FILE,
        "data.dev": "null",
        "data.dev_rows": 0,
        "data.eval_task": "null",
        "tokenizer.vocab_size": size.vocabulary,
        "model.d_model": size.width,
        "model.encoder_layers": size.layers,
        "model.encoder_ffn_dim": size.ffn,
        "model.decoder_ffn_dim": size.ffn,
        "model.encoder_attention_heads": size.heads,
        "model.decoder_attention_heads": size.heads,
        "model.dropout": DROPOUT,
        "training.micro_batch_tokens": size.batch_tokens,
        "training.batch_tokens": "null",
        "training.gradient_accumulation_steps": 1,
        "training.train_max_length": MAX_LENGTH,
        "training.max_steps": 2 * job.steps,
        "training.max_minutes": "null",
        "training.warmup_steps": 1,
        # The last record covers the second half of the steps.
        "training.logging_steps": job.steps,
        "training.eval_strategy": "no",
        "training.eval_on_start": "false",
        "training.save_strategy": "no",
        "training.load_best_model_at_end": "false",
        "training.metric_for_best_model": "null",
        "training.bf16": str(job.bf16).lower(),
        "training.disable_tqdm": "true",
    }
    return [f"{key}={value}" for key, value in options.items()]


# ---- Marian


@dataclass
class Counts:
    """The words and tokens of some batches.

    Attributes:
        words: Words of sources and targets.
        tokens: Tokens of sources and targets, without padding.
        source_tokens: Tokens of sources, without padding.
        padded_source_tokens: Tokens of sources with padding.
    """

    words: int = 0
    tokens: int = 0
    source_tokens: int = 0
    padded_source_tokens: int = 0

    def since(self, earlier: "Counts") -> "Counts":
        """Return the counts of the batches that came after earlier ones."""
        return Counts(
            words=self.words - earlier.words,
            tokens=self.tokens - earlier.tokens,
            source_tokens=self.source_tokens - earlier.source_tokens,
            padded_source_tokens=self.padded_source_tokens - earlier.padded_source_tokens,
        )


@dataclass(frozen=True)
class Mark:
    """The counts at a moment, in seconds of `time.perf_counter`."""

    seconds: float
    counts: Counts


@dataclass
class CountingCollator:
    """A collator that counts the words and tokens of all batches.

    Attributes:
        collate: The collator of transformers, which makes the batches.
        counts: The counts of all batches so far.
    """

    collate: DataCollatorForSeq2Seq
    counts: Counts = field(default_factory=Counts)

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return a batch of the trainer's examples, and count it."""
        for feature in features:
            self.counts.words += feature.pop("words")
        batch = self.collate(features)
        source_tokens = int(batch["attention_mask"].sum())
        target_tokens = int((batch["labels"] != -100).sum())
        self.counts.tokens += source_tokens + target_tokens
        self.counts.source_tokens += source_tokens
        self.counts.padded_source_tokens += batch["input_ids"].numel()
        return batch


class MarkingCallback(TrainerCallback):
    """Remember time and counts at the middle and at the end of a training."""

    def __init__(self, counts: Counts, steps: int) -> None:
        self.counts = counts
        self.steps = steps
        self.marks: list[Mark] = []

    def on_step_end(
        self,
        args: Seq2SeqTrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Add a mark after each half of the steps."""
        if state.global_step % self.steps:
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = time.perf_counter()
        self.marks.append(Mark(seconds, replace(self.counts)))


def measure_marian(job: Job) -> Rates:
    """Train an encoder-decoder of equal size with full cross-attention; return its rates.

    Its texts are tokenized beforehand.
    """
    tokenizer = AutoTokenizer.from_pretrained(job.folder / TOKENIZER_FOLDER)
    model = make_marian(job.size, tokenizer)
    examples = make_examples(job.folder / ROWS_FILE, tokenizer)
    # Half of the tokens of a batch are those of the sources.
    source_length = fmean(map(len, examples["input_ids"]))
    batch_rows = round(job.size.batch_tokens / 2 / source_length)
    arguments = Seq2SeqTrainingArguments(
        str(job.folder / "marian"),
        use_cpu=not torch.cuda.is_available(),
        per_device_train_batch_size=max(2, batch_rows),
        max_steps=2 * job.steps,
        bf16=job.bf16,
        train_sampling_strategy="group_by_length",
        label_smoothing_factor=LABEL_SMOOTHING,
        optim="adamw_torch_fused",
        save_strategy="no",
        report_to="none",
        remove_unused_columns=False,
        disable_tqdm=True,
    )
    collator = CountingCollator(DataCollatorForSeq2Seq(tokenizer, model))
    marking = MarkingCallback(collator.counts, job.steps)
    trainer = Seq2SeqTrainer(
        model,
        arguments,
        collator,
        datasets.Dataset.from_dict(examples),
        processing_class=tokenizer,
        callbacks=[marking],
    )
    trainer.train()
    middle, end = marking.marks
    seconds = end.seconds - middle.seconds
    counts = end.counts.since(middle.counts)
    return {
        "words_per_second": counts.words / seconds,
        "tokens_per_second": counts.tokens / seconds,
        "padding": 1 - counts.source_tokens / counts.padded_source_tokens,
        "parameters": model.num_parameters(),
    }


def make_marian(size: Size, tokenizer: PreTrainedTokenizerBase) -> MarianMTModel:
    """Return a Marian model of random weights."""
    config = MarianConfig(
        vocab_size=max(size.vocabulary, len(tokenizer)),
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=1,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.ffn,
        decoder_ffn_dim=size.ffn,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return MarianMTModel(config)


def make_examples(rows_file: Path, tokenizer: PreTrainedTokenizerBase) -> dict[str, list]:
    """Return a random pair of each row, tokenized: a language to read and a pivot to write."""
    rng = random.Random(0)
    sources = []
    targets = []
    words = []
    for translation in datasets.Dataset.from_parquet(str(rows_file))["translation"]:
        pivot = rng.choice(PIVOTS)
        other_languages = [code for code in LANGUAGES if code != pivot]
        source = translation[rng.choice(other_languages)]
        target = translation[pivot]
        sources.append(source)
        targets.append(target)
        words.append(len(source.split()) + len(target.split()))
    source_ids = tokenizer(sources, truncation=True, max_length=MAX_LENGTH)["input_ids"]
    target_ids = tokenizer(targets, truncation=True, max_length=MAX_LENGTH)["input_ids"]
    # Labels do not begin with <s>, which only an encoder of tmde needs.
    labels = [ids[1:] for ids in target_ids]
    return {"input_ids": source_ids, "labels": labels, "words": words}


# ---- Processes


def measure_here(name: str, folder: Path, size: str, steps: int, bf16: bool) -> Rates:
    """Measure a system in this process.

    Args:
        name: The name of the system.
        folder: The folder of rows and tokenizer, which stays as it is.
        size: A key of `SIZES`.
        steps: The measured steps.
        bf16: Whether it computes in bfloat16.

    Returns:
        Its rates, and its memory at the peak in bytes.
    """
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        scratch = Path(temporary)
        for shared in (ROWS_FILE, TOKENIZER_FOLDER):
            (scratch / shared).symlink_to(folder / shared)
        job = Job(scratch, SIZES[size], steps, bf16)
        if name == MARIAN:
            rates = measure_marian(job)
        else:
            rates = measure_tmde(name, job)
    return rates | {"peak_memory": peak_memory()}


def summarize(name: str, runs: list[Rates]) -> dict[str, Any]:
    """Return the row of a system in the table: medians, and the largest peak."""
    table = pd.DataFrame(runs)
    medians = table.median()
    return {
        "system": name,
        "words/s": float(medians["words_per_second"]),
        "tokens/s": float(medians["tokens_per_second"]),
        "padding": f"{medians['padding']:.1%}",
        "peak memory, GiB": float(table["peak_memory"].max()) / 2**30,
    }


def describe(size: Size) -> dict[str, int | float]:
    """Return a size by the names of the settings of models, as the page reads them."""
    return {
        "d_model": size.width,
        "layers": size.layers,
        "decoder_layers": 1,
        "heads": size.heads,
        "ffn": size.ffn,
        "vocab_size": size.vocabulary,
        "micro_batch_tokens": size.batch_tokens,
        "max_length": MAX_LENGTH,
        "dropout": DROPOUT,
    }


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
) -> None:
    """Print words and tokens per second of every system."""
    names = system or [*RECIPES, MARIAN]
    precision = "bf16" if bf16 else "fp32"
    results: dict[str, list[Rates]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as temporary:
        prepare(Path(temporary), train, rows, SIZES[size].vocabulary)
        for _ in range(repeats):
            for name in names:
                rates = in_fresh_process(measure_here, name, Path(temporary), size, steps, bf16)
                results[name].append(rates)
    threads = torch.get_num_threads()
    typer.echo(f"{size}, {precision}, {threads} threads, {steps} steps\n")
    typer.echo(markdown([summarize(name, runs) for name, runs in results.items()]))
    settings = {
        "train": train,
        "rows": rows,
        "size": size,
        "steps": steps,
        "bf16": bf16,
        "sizes": describe(SIZES[size]),
    }
    summaries = {}
    for name, runs in results.items():
        summaries[name] = {rate: summary([run[rate] for run in runs]) for rate in runs[0]}
    write_json(json_path, "training_speed", settings, summaries)


if __name__ == "__main__":
    datasets.disable_progress_bars()
    typer.run(main)
