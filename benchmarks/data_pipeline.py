"""Training data: padding, rows per second beside the stock way, time spent waiting for data, and memory of a stream.

    python benchmarks/data_pipeline.py                        # all parts, on the built-in sample
    python benchmarks/data_pipeline.py --data corpus/ padding speed
    python benchmarks/data_pipeline.py memory --rows 10000000

Parts:
    padding  Of every recipe's batches, beside the same with an eighth of their `buffer_rows`, and the least that is
             possible where all languages of a row have one length: rows as long as their longest text.
    speed    Rows per second of batches of one pair of languages: tmde without a token cache, while it makes one, and
             with it, and as a stream; the peer is `datasets.map(tokenizer, batched=True)`, which keeps a cache as
             well, with `DataCollatorForSeq2Seq` in a DataLoader of random batches. And CPU seconds per M tokens.
    wait     Share of a training's time spent waiting for data, after its first step, and the seconds to the end of it.
    memory   Growth of the resident memory over a made-up stream, in a fresh process, from before the first row.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import datasets
import numpy as np
import psutil
import pyarrow as pa
import typer
from common import markdown, write_json
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerBase, TrainerCallback, set_seed

from modeling_tmde import train_tokenizer
from modeling_tmde.data import load_parallel
from modeling_tmde.data.tokens import open_tokens, tokenizer_threads
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.building import build_model, prepare_tokenizer
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.recipe import Recipe, load_recipe
from modeling_tmde.training.trainer import TmdeTrainer

PARTS = ("padding", "speed", "wait", "memory")
PADDED = ("quickstart", "bag", "small", "base", "tmde")
LANGUAGES = ["de", "en", "es", "fr", "it"]
MIB = 2**20


def open_recipe(name: str, source: str, *overrides: str) -> Recipe:
    recipe = load_recipe(name, ["data.streaming=false", *overrides])
    recipe.set("data.train", source)
    return recipe


def open_tokenizer(recipe: Recipe, rows: datasets.Dataset, folder: Path) -> PreTrainedTokenizerBase:
    """The recipe's, or that of its first stage, trained on a part of the rows; from the folder, if it is there."""
    name, start = recipe.name, recipe.warm_start
    if start.recipe is not None:
        name = start.recipe
        recipe = load_recipe(name, ["data.streaming=false"])
        for key, value in start.overrides.items():
            if key.startswith("tokenizer."):
                recipe.set(key, value)
                name += f"_{value}"
    recipe.set("tokenizer.max_characters", 3_000_000)
    return prepare_tokenizer(recipe, rows, folder / f"tokenizer_{name}")


def make_batches(recipe: Recipe, rows: Any, tokenizer: PreTrainedTokenizerBase, **changes: Any) -> ParallelBatches:
    """One epoch of a recipe's batches."""
    args = recipe.build_arguments("unused")
    options = {
        "micro_batch_tokens": args.micro_batch_tokens,
        "languages_per_row": args.languages_per_row,
        "temperature": args.pair_temperature,
        "buffer_rows": args.buffer_rows,
        "micro_batch_rows": args.micro_batch_rows,
        "max_joined_rows": args.max_joined_rows,
        "neighbor_share": args.neighbor_share,
        "pivots_only": any(name == "translation" for name in recipe.sections["objectives"]),
        "max_length": args.train_max_length,
    }
    return ParallelBatches(rows, tokenizer, recipe.data.languages, recipe.data.pivot_languages, **options | changes)


# ---- Padding


def measure_padding(source: str, folder: Path) -> list[dict[str, Any]]:
    results = []
    for name in PADDED:
        recipe = open_recipe(name, source)
        rows = load_parallel(source, languages=LANGUAGES, document_ids=True, max_rows=recipe.data.max_rows)
        tokenizer = open_tokenizer(recipe, rows, folder)
        cache = open_tokens(rows, tokenizer, recipe.data.languages, folder / "tokens")
        own = recipe.build_arguments("unused").buffer_rows
        for buffer_rows in (own // 8, own):
            batches = make_batches(recipe, rows, tokenizer, buffer_rows=buffer_rows, tokens=cache)
            real = padded = least = 0
            shares = []
            for batch in batches:
                real += int(batch.lengths.sum())
                padded += batch.attention_mask.numel()
                least += int(batch.lengths.max(0).sum()) * batch.sizes.languages
                shares.append(batch.padding)
            results.append(
                {
                    "recipe": name,
                    "buffer_rows": buffer_rows,
                    "padding %": 100 * (1 - real / padded),
                    "median batch %": 100 * float(np.median(shares)),
                    "least possible %": 100 * (1 - real / least),
                    "batches": len(shares),
                }
            )
    return results


# ---- Speed beside the stock way


def spend(function: Any) -> tuple[Any, float, float]:
    """What a function returns, and the seconds and CPU seconds, child processes counted, that it took."""
    times = psutil.Process().cpu_times
    before, begin = times(), time.perf_counter()
    result = function()
    seconds, after = time.perf_counter() - begin, times()
    names = ("user", "system", "children_user", "children_system")
    return result, seconds, sum(getattr(after, name) - getattr(before, name) for name in names)


def count_batches(batches: Any) -> tuple[int, int]:
    """Rows and real tokens of an iterable of batches, of ours or of the peer's."""
    rows = tokens = 0
    for batch in batches:
        if isinstance(batch, dict) or hasattr(batch, "keys"):
            rows += len(batch["input_ids"])
            tokens += int(batch["attention_mask"].sum()) + int((batch["labels"] != -100).sum())
        else:
            rows += batch.sizes.rows
            tokens += int(batch.lengths.sum())
    return rows, tokens


def peer_rows(rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, folder: Path) -> datasets.Dataset:
    def tokenize(batch: dict[str, list]) -> Any:
        sources = [row["de"] for row in batch["translation"]]
        targets = [row["en"] for row in batch["translation"]]
        return tokenizer(sources, text_target=targets, truncation=True, max_length=256)

    threads = tokenizer_threads()
    return rows.map(
        tokenize,
        batched=True,
        remove_columns=rows.column_names,
        num_proc=threads if threads > 1 else None,
        cache_file_name=str(folder / "peer.arrow"),
        desc="Peer",
    )


def measure_speed(source: str, folder: Path, max_rows: int) -> list[dict[str, Any]]:
    rows = load_parallel(source, languages=["de", "en"], max_rows=max_rows)
    whole = [row["de"] is not None and row["en"] is not None for row in rows["translation"]]
    rows = rows.select(np.flatnonzero(whole))
    recipe = open_recipe("bag", source, "data.languages=[de, en]", "data.pivot_languages=[en]")
    tokenizer = open_tokenizer(recipe, rows, folder / "speed")
    options = {"micro_batch_rows": 256, "max_length": 256, "micro_batch_tokens": 16384, "buffer_rows": 65536}
    tokens_folder = folder / "speed_tokens"

    def cached() -> ParallelBatches:
        cache = open_tokens(rows, tokenizer, ["de", "en"], tokens_folder)
        return make_batches(recipe, rows, tokenizer, tokens=cache, **options)

    plain = make_batches(recipe, rows, tokenizer, **options)
    stream = make_batches(recipe, rows.to_iterable_dataset(num_shards=8), tokenizer, **options)

    def peer() -> DataLoader:
        collator = DataCollatorForSeq2Seq(tokenizer)
        return DataLoader(peer_rows(rows, tokenizer, folder), 256, shuffle=True, collate_fn=collator)

    functions = {
        "tmde, no cache, epoch 1": lambda: count_batches(plain),
        "tmde, no cache, epoch 2": lambda: count_batches(plain),
        "tmde, cache made, epoch 1": lambda: count_batches(cached()),
        "tmde, cache opened": lambda: count_batches(cached()),
        "tmde, stream": lambda: count_batches(stream),
        "peer, map, epoch 1": lambda: count_batches(peer()),
        "peer, cache opened": lambda: count_batches(peer()),
    }
    results = []
    for name, function in functions.items():
        (found, tokens), seconds, cpu = spend(function)
        results.append(
            {
                "data": name,
                "rows/s": found / seconds,
                "tokens/s": tokens / seconds,
                "CPU s per M tokens": 1e6 * cpu / tokens,
                "rows": found,
            }
        )
    rates = {row["data"]: row["rows/s"] for row in results}
    for row in results:
        first = "epoch 1" in row["data"] or "stream" in row["data"]
        row["times peer"] = row["rows/s"] / rates["peer, map, epoch 1" if first else "peer, cache opened"]
    return results


# ---- Waiting


class Clock(TrainerCallback):
    """When every step ended, and how long the trainer had waited for data by then."""

    def __init__(self):
        self.trainer: TmdeTrainer | None = None
        self.marks: list[tuple[float, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.marks.append((time.perf_counter(), self.trainer.data_wait))


def train_steps(recipe: Recipe, rows: Any, tokenizer: PreTrainedTokenizerBase, folder: Path, **arguments: Any) -> dict:
    """Trains a few steps; nothing is evaluated or saved."""
    values = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False, "disable_tqdm": True}
    values |= {"max_minutes": None, "eval_minutes": None, "eval_on_start": False, "logging_steps": 10**6}
    args = recipe.build_arguments(str(folder / "run"), **values, **arguments)
    set_seed(0)
    model = ParallelModel(build_model(recipe, tokenizer), recipe.build_objectives(), args.token_dropout)
    clock = Clock()
    trainer = TmdeTrainer(model, args, rows, tokenizer, callbacks=[clock])
    clock.trainer = trainer
    begin = time.perf_counter()
    trainer.train()
    (first, before), (last, after) = clock.marks[0], clock.marks[-1]
    seconds = last - first
    return {
        "first step s": first - begin,
        "wait %": 100 * (after - before) / seconds,
        "tokens/s": trainer.seen["source_tokens"] * (1 - 1 / len(clock.marks)) / seconds,
    }


def measure_wait(source: str, folder: Path, steps: dict[str, int]) -> list[dict[str, Any]]:
    results = []
    for name, number in steps.items():
        recipe = open_recipe(name, source)
        recipe.sections["warm_start"] = {}
        rows = load_parallel(source, languages=LANGUAGES, document_ids=True, max_rows=recipe.data.max_rows)
        tokenizer = open_tokenizer(open_recipe(name, source), rows, folder)
        stream = rows.select_columns("translation").to_iterable_dataset(num_shards=8)
        fresh = str(folder / f"fresh_{name}")
        shutil.rmtree(fresh, ignore_errors=True)
        kinds = {
            "map, no cache": (rows, {"token_cache_dir": None}),
            "map, cache made": (rows, {"token_cache_dir": fresh}),
            "map, cache there": (rows, {"token_cache_dir": fresh}),
            "map, cache there, 1 worker": (rows, {"token_cache_dir": fresh, "dataloader_num_workers": 1}),
            "stream": (stream, {"buffer_rows": 16384}),
            "stream, 1 worker": (stream, {"buffer_rows": 16384, "dataloader_num_workers": 1}),
        }
        for kind, (data, arguments) in kinds.items():
            arguments = {"dataloader_num_workers": 0, "max_steps": number} | arguments
            results.append({"recipe": name, "data": kind, **train_steps(recipe, data, tokenizer, folder, **arguments)})
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    return results


# ---- Memory of a stream


class MadeUp(datasets.ArrowBasedBuilder):
    """Rows of one to three words in two languages, drawn from some that are made once."""

    rows = 0
    BLOCK = 5000

    def _info(self) -> datasets.DatasetInfo:
        string = datasets.Value("string")
        return datasets.DatasetInfo(features=datasets.Features({"translation": {"de": string, "en": string}}))

    def _split_generators(self, dl_manager: object) -> list[datasets.SplitGenerator]:
        return [datasets.SplitGenerator(name="train", gen_kwargs={"parts": list(range(8))})]

    def _generate_tables(self, parts: list[int]) -> Any:
        generator = np.random.default_rng(0)
        draw = random.Random(0)

        def text(code: str) -> str:
            return " ".join(f"{code}{draw.randrange(900)}" for _ in range(draw.randint(1, 3)))

        pools = [pa.array([text(code) for _ in range(50_000)]) for code in ("d", "e")]
        for part in parts:
            for block in range(self.rows // 8 // self.BLOCK):
                places = pa.array(generator.integers(0, 50_000, self.BLOCK))
                texts = pa.StructArray.from_arrays([pool.take(places) for pool in pools], ["de", "en"])
                yield (part, block), pa.table({"translation": texts})


def memory_of_stream(rows: int, buffer_rows: int) -> dict[str, float]:
    """In this process: MiB before the first row, and how much more at most and at the end."""
    datasets.disable_progress_bars()
    builder = MadeUp(dataset_name="made_up", cache_dir=tempfile.mkdtemp())
    builder.rows = rows
    stream = builder.as_streaming_dataset(split="train")
    texts = {code: [f"{code[0]}{number}" for number in range(900)] for code in ("de", "en")}
    tokenizer = train_tokenizer(texts, vocab_size=2200)
    options = {"micro_batch_tokens": 16384, "buffer_rows": buffer_rows}
    batches = ParallelBatches(stream, tokenizer, ["de", "en"], ["en"], **options)
    process = psutil.Process()
    before, found, peaks = process.memory_info().rss, 0, [0, 0]  # of the first two chunks, and of the whole run
    begin = time.perf_counter()
    for batch in batches:
        found += batch.sizes.rows
        memory = process.memory_info().rss
        peaks = [max(peaks[0], memory) if batch.position.chunk < 2 else peaks[0], max(peaks[1], memory)]
    seconds = time.perf_counter() - begin
    return {
        "rows": found,
        "buffer_rows": buffer_rows,
        "before MiB": before / MIB,
        "growth MiB": (peaks[1] - before) / MIB,
        "of it after 2 chunks MiB": (peaks[1] - peaks[0]) / MIB,
        "rows/s": found / seconds,
    }


def measure_memory(rows: int) -> list[dict[str, Any]]:
    results = []
    for number, buffer_rows in ((rows // 20, 65536), (rows, 8192)):
        command = [sys.executable, __file__, "--rows", str(number), "--fresh", str(buffer_rows)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        results.append(json.loads(output.splitlines()[-1]))
    return results


def main(
    parts: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(PARTS)}; all by default.")] = None,
    data: Annotated[
        str, typer.Option(help="Parallel text with de, en, es, fr, it, as `tmde train --train`.")
    ] = "sample",
    rows: Annotated[int, typer.Option(help="Rows of the made-up stream; at least 800,000.")] = 10_000_000,
    speed_rows: Annotated[int, typer.Option(help="Rows read for the part speed.")] = 100_000,
    steps: Annotated[str, typer.Option(help="Recipes of the part wait and their steps.")] = (
        "bag=60,quickstart=400,small=20"
    ),
    fresh: Annotated[int, typer.Option(hidden=True, help="Measure one stream with so many buffer_rows.")] = 0,
    json_path: Annotated[Path | None, typer.Option("--json", help="Where results are written.")] = None,
) -> None:
    if fresh:
        print(json.dumps(memory_of_stream(rows, fresh)))
        return
    parts = parts or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        raise typer.BadParameter(f"found {', '.join(sorted(unknown))}, expected some of {', '.join(PARTS)}")
    if "memory" in parts and rows < 800_000:
        raise typer.BadParameter(f"--rows: found {rows}, expected at least 800000, which fill several chunks")
    counts = {name: int(number) for name, _, number in (item.partition("=") for item in steps.split(","))}
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        functions = {
            "padding": lambda: measure_padding(data, folder),
            "speed": lambda: measure_speed(data, folder, speed_rows),
            "wait": lambda: measure_wait(data, folder, counts),
            "memory": lambda: measure_memory(rows),
        }
        for part in parts:
            results[part] = functions[part]()
            print(f"\n## {part}\n\n{markdown(results[part])}", flush=True)
    settings = {"data": Path(data).name, "rows": rows, "speed_rows": speed_rows, "steps": counts}
    write_json(json_path, "data_pipeline", settings, results)


if __name__ == "__main__":
    typer.run(main)
