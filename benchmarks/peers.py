"""Quality, size and speed of any number of models in one table and one figure, measured by `tmde.eval`.

    python benchmarks/peers.py bag=runs/bag e5-small=E5 --prompt "e5-small=query: " --dtype e5-small=bfloat16 \
        --data DATA --static runs/static --train DATA/parallel --minutes 20 --json peers.json --figure peers.png

Models are NAME=FOLDER: all that `DocumentEmbedder` opens. TF-IDF is always measured. `--static` adds
sentence-transformers' `StaticEmbedding`, which is trained on `--train` with its own loss the first time. Without
`--data` only the built-in tasks are measured. Vectors and results are cached: a second run is quick, an interrupted
one goes on. Vectors are cached by the files of a model and not by the code of this package, because a large encoder
takes an hour: after a change of how models compute, give another `--cache`.
"""

import hashlib
import itertools
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from common import interleaved, summary, write_json
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tabulate import tabulate

from modeling_tmde import train_tokenizer
from tmde.data import load_parallel
from tmde.embedding import DocumentEmbedder
from tmde.embedding.loading import local_or_hub
from tmde.eval import (
    CharacterTfidf,
    EmbeddingSystem,
    EvaluationOptions,
    evaluate,
    plan_tasks,
    summarize,
)
from tmde.eval.figures import COLORS
from tmde.eval.results import TaskResult, write_results
from tmde.eval.runner import LoadedTask
from tmde.eval.systems import System, default_cache_dir
from tmde.eval.tasks.languages import FLORES_CODES, iso_of_flores

LANGUAGES = ("de", "en", "es", "fr", "it")
FILES = ("model.safetensors", "config.json", "tokenizer.json", "sentence_bert_config.json")
ENGLISH = "SIB-200 from English"
TASKS = {  # by title: task and its file in the data folder
    "documentation": ("sentence_retrieval", "parallel_dev.parquet"),
    "general": ("sentence_retrieval", "general_dev.parquet"),
    "SIB-200": ("sib200", "eval/sib200.parquet"),
    ENGLISH: ("sib200", "eval/sib200.parquet"),
    "similarity": ("sts", "eval/sts_dev.parquet"),
    "word order": ("word_order", None),
    "sample": ("sample", None),
    "documents": ("document_retrieval", "eval/topic_documents.parquet"),
    "topics": ("topic_documents", "eval/topic_documents.parquet"),
}
NOT_DRAWN = (
    ENGLISH,
    "sample",
)  # most systems know five of the 31 languages; the sample is generated


class Model(EmbeddingSystem):
    """A model folder, truncating where sentence-transformers does by default."""

    def __init__(
        self, name: str, folder: Path, cache: Path, prompt: str | None, dtype: str | None
    ) -> None:
        settings = folder / "sentence_bert_config.json"
        length = (
            json.loads(settings.read_text()).get("max_seq_length") if settings.exists() else None
        )
        embedder = DocumentEmbedder.from_pretrained(
            folder, None, length, "cpu", dtype, prompt=prompt
        )
        self.folder, self.settings = folder, f"{embedder.prompt}\n{dtype}"
        super().__init__(name, embedder, cache, batch_tokens=4096)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.settings.encode())
        for path in filter(Path.exists, (self.folder / name for name in FILES)):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:16]


class Static(Model):
    """`StaticEmbedding` as sentence-transformers runs it, in batches of 1,024 texts, which suit it."""

    def __init__(self, name: str, folder: Path, cache: Path) -> None:
        self.name, self.folder, self.cache, self.settings = name, folder, cache, ""
        model = SentenceTransformer(str(folder), device="cpu")
        settings = {
            "pooling": "mean",
            "max_length": None,
            "prompt": "",
            "long_documents": "truncate",
        }
        self.embedder = SimpleNamespace(model=model, needs_language=False, **settings)
        self.begin()

    def _encode(self, texts: list[str], language: Any) -> tuple[np.ndarray, dict[str, int]]:
        return self.embedder.model.encode(texts, batch_size=1024), {
            "texts": len(texts),
            "truncated": 0,
        }


def train_static(folder: Path, train: Sequence[str], minutes: float, width: int = 512) -> None:
    """Trains by CPU time with the batches (2,048) and the rate (0.2) of sentence-transformers' own examples."""
    rows = load_parallel(list(train), languages=LANGUAGES)["translation"][:]
    texts = {code: [row[code] for row in rows if row[code]] for code in LANGUAGES}
    tokenizer = train_tokenizer(texts, vocab_size=32_000)
    model = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_dim=width)], device="cpu"
    )
    loss = MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    begun, draw = time.process_time(), random.Random(0)
    while (done := (time.process_time() - begun) / 60 / minutes) < 1:
        chosen = draw.choices(rows, k=2048)
        pairs = dict(
            draw.sample([text for text in row.values() if text], 2) for row in chosen
        )  # anchors all differ
        optimizer.param_groups[0]["lr"] = 0.2 * min(done / 0.1, 1 - done)  # warmup, linear decay
        optimizer.zero_grad()
        loss([model.preprocess(list(side)) for side in (pairs, pairs.values())], None).backward()
        optimizer.step()
    model.save(str(folder))
    (folder / "results.json").write_text(json.dumps({"minutes": minutes}))


def load_tasks(data: Path | None, max_documents: int | None, cache: Path) -> list[LoadedTask]:
    """The built-in tasks, and those whose files are in the data folder."""
    loaded = []
    for title, (name, file) in TASKS.items():
        path = data / file if data and file else None
        if file and not (path and path.exists()):
            continue
        if max_documents and path and path.stem == "topic_documents":
            rows = pd.read_parquet(path)
            kept = rows["doc_id"].drop_duplicates().sample(max_documents, random_state=0)
            path = cache / f"{max_documents}_{path.name}"
            rows[rows["doc_id"].isin(kept)].to_parquet(path)
        (planned,) = plan_tasks([f"{name}={path}" if path else name])
        known = list(map(iso_of_flores, FLORES_CODES)) if title == ENGLISH else LANGUAGES
        loaded.append(replace(planned.load(known=known), name=title))
    return loaded


def measure_speed(systems: Sequence[System], texts: list[str]) -> dict[str, Any]:
    """Texts a second of each system, all in turn; a slow one reads what it can in three seconds."""

    def reads(system: System, texts: list[str]) -> Callable[[], Any]:
        if system.dense:
            return lambda: system._encode(texts, "en")  # without the cache
        return lambda: system.begin() or system.represent(texts, texts)

    pilot = interleaved({system.name: reads(system, texts[:64]) for system in systems}, 1)
    numbers = {
        name: max(64, min(len(texts), int(64 * 3 / took[0]))) for name, took in pilot.items()
    }
    taken = interleaved(
        {system.name: reads(system, texts[: numbers[system.name]]) for system in systems}
    )
    return {
        name: summary([numbers[name] / took for took in rounds]) for name, rounds in taken.items()
    }


def about(system: System) -> dict[str, float | None]:
    """Parameters of the encoder, size of weights and tokenizer, and minutes of training where they are known."""
    if isinstance(system, CharacterTfidf):
        return {"parameters, M": None, "MB": None, "minutes": None}
    parameters = sum(weights.numel() for weights in system.embedder.model.parameters()) / 1e6
    size = (
        sum(
            (system.folder / name).stat().st_size
            for name in ("model.safetensors", "tokenizer.json")
        )
        / 1e6
    )
    reports = [system.folder / name / "results.json" for name in (".", "warm_start")]
    minutes = sum(json.loads(path.read_text())["minutes"] for path in reports if path.exists())
    return {"parameters, M": parameters, "MB": size, "minutes": minutes or None}


def measures(results: Sequence[TaskResult]) -> dict[str, tuple[float, float, float]]:
    """Value and interval in % by title of column, of one system."""
    found = {}
    for result, name in itertools.product(results, ("Same", "Cross")):
        value = summarize(result.cells).get(name)
        if value is not None and (name, result.task) != ("Same", ENGLISH):
            found[f"{result.task} {name}"] = tuple(
                100 * each for each in (value, *result.intervals[name])
            )
    return found


def draw_front(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Means within a language and across languages against speed; a line joins the systems that no other beats."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 5), layout="constrained")
    for axes, group in zip(figure.subplots(1, 2), ("Same", "Cross"), strict=True):
        points = []
        for row in rows:
            values = {
                name: value
                for name, (value, *_) in row["measures"].items()
                if not name.startswith(NOT_DRAWN)
            }
            values = [value for name, value in values.items() if name.endswith(group)]
            points.append((row["texts/s"]["median"], fmean(values or [0]), row["system"]))
        front = sorted(
            one for one in points if not any(x > one[0] and y > one[1] for x, y, _ in points)
        )
        axes.plot(
            [x for x, _, _ in front],
            [y for _, y, _ in front],
            color="0.6",
            linestyle="--",
            zorder=1,
        )
        for (x, y, name), color in zip(points, itertools.cycle(COLORS), strict=False):
            axes.scatter(x, y, s=50, color=color, zorder=2)
            below = any(y < b and 0.9 < a / x < 1.1 for a, b, _ in points)
            axes.annotate(name, (x, y), (6, -15 if below else 6), textcoords="offset points")
        axes.set(
            xscale="log",
            xmargin=0.4,
            ymargin=0.15,
            xlabel="texts a second",
            ylabel=f"mean of {group}, %",
        )
    figure.savefig(path, dpi=130)


def main(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=FOLDER", help="Models.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the tasks' files.")] = None,
    systems: Annotated[
        str | None, typer.Option(help="Measure only these names, comma-separated.")
    ] = None,
    prompt: Annotated[list[str], typer.Option(help="NAME=TEXT before every text of a model.")] = [],  # noqa: B006
    dtype: Annotated[list[str], typer.Option(help="NAME=bfloat16.")] = [],  # noqa: B006
    static: Annotated[
        Path | None, typer.Option(help="Folder of StaticEmbedding; trained if it is missing.")
    ] = None,
    train: Annotated[list[str], typer.Option(help="Parallel text for it.")] = ["sample"],  # noqa: B006
    minutes: Annotated[float, typer.Option(help="CPU minutes of its training.")] = 20,
    max_documents: Annotated[
        int | None, typer.Option(help="Draw so many topic documents. Default: all.")
    ] = None,
    cache: Annotated[Path, typer.Option(help="Of vectors and results.")] = default_cache_dir(),  # noqa: B008
    output: Annotated[
        Path | None, typer.Option("-o", help="Folder for `tmde eval compare`.")
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
    figure: Annotated[Path | None, typer.Option(help="File to draw.")] = None,
) -> None:
    """Measures all systems on all tasks."""
    cache.mkdir(parents=True, exist_ok=True)
    folders, prompts, dtypes = (
        dict(spec.split("=", 1) for spec in given) for given in (models or [], prompt, dtype)
    )
    wanted = systems.split(",") if systems else ["TF-IDF", "StaticEmbedding", *folders]
    loaded: list[System] = [CharacterTfidf()] if "TF-IDF" in wanted else []
    if static and "StaticEmbedding" in wanted:
        if not (static / "results.json").exists():
            train_static(static, train, minutes)
        loaded.append(Static("StaticEmbedding", static, cache))
    for name in filter(wanted.__contains__, folders):
        loaded.append(
            Model(
                name, Path(local_or_hub(folders[name])), cache, prompts.get(name), dtypes.get(name)
            )
        )
    tasks, results = load_tasks(data, max_documents, cache), []
    for task, system in itertools.product(tasks, loaded):
        typer.echo(f"{time.strftime('%X')} {task.name}, {system.name}", err=True)
        options = EvaluationOptions(
            folds=False, train_languages=("en",) if task.name == ENGLISH else None
        )
        results += evaluate([task], [system], options, cache)
    if output:
        write_results(output, results, {})
    source = next(task for name in ("SIB-200", "sample") for task in tasks if task.name == name)
    texts = sorted({text for code in LANGUAGES for text in source.data.splits[code]["train"].texts})
    random.Random(0).shuffle(texts)
    speed, rows, table = measure_speed(loaded, texts), [], []
    for system in loaded:
        own = [result for result in results if result.system == system.name]
        row, found = {"system": system.name, **about(system)}, measures(own)
        shown = {name: "{:.1f} [{:.1f}, {:.1f}]".format(*values) for name, values in found.items()}
        table.append(row | {"texts/s": f"{speed[system.name]['median']:,.0f}"} | shown)
        cells = {
            result.task: {"-".join(cell.pair): cell.value for cell in result.cells}
            for result in own
        }
        rows.append(row | {"texts/s": speed[system.name], "measures": found, "cells": cells})
        rows[-1]["truncated"] = {result.task: result.truncated for result in own}
    typer.echo(tabulate(table, "keys", "pipe", floatfmt=".1f", missingval="-"))
    note = f"{fmean(map(len, texts)):.0f} characters a text, {torch.get_num_threads()} threads"
    typer.echo(f"\ntexts/s: {note}. Topics, documents: {max_documents or 'all'} documents.")
    write_json(
        json_path,
        "peers",
        {"prompts": prompts, "dtypes": dtypes, "max_documents": max_documents},
        rows,
    )
    if figure:
        draw_front(figure, rows)


if __name__ == "__main__":
    typer.run(main)
