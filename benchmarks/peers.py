r"""Quality, size and speed of any number of models in one table, by `tmde.eval`.

    python benchmarks/peers.py bag=runs/bag e5-small=E5 --prompt "e5-small=query: " \
        --dtype e5-small=bfloat16 --data DATA --static runs/static --train DATA/parallel \
        --minutes 20 --json peers.json

Models are NAME=FOLDER: all that `DocumentEmbedder` opens. TF-IDF is always measured. `--static`
adds sentence-transformers' `StaticEmbedding`, which is trained on `--train` with its own loss the
first time. Without `--data` only the built-in tasks are measured. Vectors and results are cached: a
second run is quick, an interrupted one goes on. Vectors are cached by the files of a model and not
by the code of this package, because a large encoder takes an hour: after a change of how models
compute, give another `--cache`.
"""

import hashlib
import itertools
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from common import LANGUAGES, interleaved, load_task, markdown, summary, write_json
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from modeling_tmde import train_tokenizer
from tmde.data import load_parallel
from tmde.data.languages import FLORES_CODES, iso_of_flores
from tmde.embedding import DocumentEmbedder
from tmde.embedding.loading import local_or_hub
from tmde.eval import (
    CharacterTfidf,
    EmbeddingSystem,
    EvaluationOptions,
    evaluate,
    summarize,
)
from tmde.eval.model_fingerprint import Role, prompt_of_role
from tmde.eval.planning import LoadedTask
from tmde.eval.results import TaskResult, write_results
from tmde.eval.systems import Language, default_cache_dir
from tmde.eval.tasks.base import text_fingerprint

TFIDF = "TF-IDF"
STATIC = "StaticEmbedding"
# The files that decide the vectors of a model.
MODEL_FILES = ("model.safetensors", "config.json", "tokenizer.json", "sentence_bert_config.json")
ENGLISH = "SIB-200 from English"
# The task of each title, and its file in the data folder.
TASKS = {
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
PILOT_TEXTS = 64  # The speed of a system is estimated by these.
SPEED_SECONDS = 3  # A system reads at most so many texts as it can in this time.


# ---- Systems


def fingerprint_of_files(folder: Path, settings: str) -> str:
    """Return a hash of settings and of the files that decide the vectors of a model."""
    digest = hashlib.sha256(settings.encode())
    for name in MODEL_FILES:
        path = folder / name
        if path.exists():
            digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class Model(EmbeddingSystem):
    """A model folder, which truncates where sentence-transformers does by default.

    Args:
        name: Its name in the table.
        folder: Its folder.
        cache: The folder of vectors.
        prompt: The text before every text; None for that of the model.
        dtype: The type of the weights.
        document_prompt: The text before every document where queries search documents; None for
            that of the model, or `prompt`.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        cache: Path,
        prompt: str | None,
        dtype: str,
        document_prompt: str | None = None,
    ) -> None:
        max_length = None
        settings_file = folder / "sentence_bert_config.json"
        if settings_file.exists():
            max_length = json.loads(settings_file.read_text()).get("max_seq_length")
        prompts = {} if document_prompt is None else {"document": document_prompt}
        embedder = DocumentEmbedder.from_pretrained(
            folder, max_length=max_length, device="cpu", dtype=dtype, prompt=prompt, prompts=prompts
        )
        self.folder = folder
        self.settings = f"{embedder.prompt}\n{dtype}"
        for role in ("query", "document"):
            role_prompt = prompt_of_role(embedder, role)
            if role_prompt != embedder.prompt:
                self.settings += f"\n{role}: {role_prompt}"
        super().__init__(name, embedder, cache)

    @property
    def fingerprint(self) -> str:
        """Identifies files and settings, not the code that reads them."""
        return fingerprint_of_files(self.folder, self.settings)

    @property
    def network(self) -> torch.nn.Module:
        """The module whose parameters are counted."""
        return self.embedder.model

    def encode(self, texts: list[str]) -> np.ndarray:
        """Compute the vectors of texts, (n, d) float32, without the cache."""
        vectors, _ = self._encode(texts, "en", self.embedder.prompt)
        return vectors


class Static:
    """`StaticEmbedding` as sentence-transformers runs it, in batches of 1,024 texts.

    It follows the protocol `tmde.eval.systems.System`. Its vectors are not cached on disk, because
    it computes them as fast as a file is read.

    Args:
        name: Its name in the table.
        folder: Its folder.
    """

    dense = True
    # The model has no positions, so that no text is too long.
    truncated = 0

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.fingerprint = fingerprint_of_files(folder, settings="")
        self.network = SentenceTransformer(str(folder), device="cpu")
        self.begin()

    def begin(self) -> None:
        """Start a new task: reset the counts, and forget the vectors of the last one."""
        self.texts = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self._vectors: dict[str, np.ndarray] = {}

    def describe(self) -> dict[str, str | int]:
        """Return how texts become vectors."""
        return {"pooling": "mean", "dtype": "float32"}

    def represent(
        self,
        texts: Sequence[str],
        fit_on: Sequence[str] = (),
        language: Language = None,
        role: Role = None,
        fit_language: Language = None,
    ) -> np.ndarray:
        """Return the vectors of texts, (n, d) float32.

        Args:
            texts: n texts.
            fit_on: Not used.
            language: Not used.
            role: Not used.
            fit_language: Not used.
        """
        key = text_fingerprint(texts)
        if key not in self._vectors:
            start = time.perf_counter()
            cpu_start = time.process_time()
            self._vectors[key] = self.encode(list(texts))
            self.seconds += time.perf_counter() - start
            self.cpu_seconds += time.process_time() - cpu_start
            self.texts += len(texts)
        return self._vectors[key]

    def encode(self, texts: list[str]) -> np.ndarray:
        """Compute the vectors of texts, (n, d) float32."""
        return self.network.encode(texts, batch_size=1024)


MeasuredSystem = Model | Static | CharacterTfidf


def train_static(folder: Path, train: Sequence[str], minutes: float, width: int = 512) -> None:
    """Train a `StaticEmbedding` with the batches and the rate of sentence-transformers' examples.

    Args:
        folder: The folder to write to.
        train: Parallel text.
        minutes: The CPU time of the training.
        width: The size of a vector.
    """
    rows = load_parallel(list(train), languages=LANGUAGES)["translation"][:]
    texts: dict[str, list[str]] = {code: [] for code in LANGUAGES}
    for row in rows:
        for code in LANGUAGES:
            if row[code]:
                texts[code].append(row[code])
    tokenizer = train_tokenizer(texts, vocab_size=32_000)
    module = StaticEmbedding(tokenizer, embedding_dim=width)
    model = SentenceTransformer(modules=[module], device="cpu")
    loss = MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    begin = time.process_time()
    rng = random.Random(0)
    done = 0.0
    while done < 1:
        # Warmup to 0.2, then linear decay.
        optimizer.param_groups[0]["lr"] = 0.2 * min(done / 0.1, 1 - done)
        pairs = _draw_pairs(rows, rng)
        batches = [model.preprocess(list(pairs)), model.preprocess(list(pairs.values()))]
        optimizer.zero_grad()
        loss(batches, None).backward()
        optimizer.step()
        done = (time.process_time() - begin) / 60 / minutes
    model.save(str(folder))
    (folder / "results.json").write_text(json.dumps({"minutes": minutes}))


def _draw_pairs(rows: Sequence[Mapping[str, str]], rng: random.Random) -> dict[str, str]:
    """Return about 2,048 texts and a translation of each, in two languages at random.

    The texts all differ, because the loss takes every other one for a negative.
    """
    translation_of = {}
    for row in rng.choices(rows, k=2048):
        texts = [text for text in row.values() if text]
        anchor, translation = rng.sample(texts, 2)
        translation_of[anchor] = translation
    return translation_of


def load_systems(
    folders: Mapping[str, str],
    names: Sequence[str],
    prompts: Mapping[str, str],
    dtypes: Mapping[str, str],
    static: Path | None,
    cache: Path,
    document_prompts: Mapping[str, str] | None = None,
) -> list[MeasuredSystem]:
    """Return TF-IDF, `StaticEmbedding` and the models, as far as `names` has them."""
    document_prompts = document_prompts or {}
    systems: list[MeasuredSystem] = []
    if TFIDF in names:
        systems.append(CharacterTfidf())
    if static is not None and STATIC in names:
        systems.append(Static(STATIC, static))
    for name, folder in folders.items():
        if name in names:
            path = Path(local_or_hub(folder))
            model = Model(
                name,
                path,
                cache,
                prompts.get(name),
                dtypes.get(name, "float32"),
                document_prompts.get(name),
            )
            systems.append(model)
    return systems


# ---- Tasks


def load_tasks(data: Path | None, max_documents: int | None, cache: Path) -> list[LoadedTask]:
    """Return the built-in tasks, and those whose files are in the data folder.

    Args:
        data: The data folder; None for the built-in tasks alone.
        max_documents: The most topic documents.
        cache: The folder where a selection of them is written.
    """
    tasks = []
    for title, (name, file) in TASKS.items():
        path = None
        if file is not None:
            if data is None or not (data / file).exists():
                continue
            path = data / file
            if max_documents and path.stem == "topic_documents":
                path = select_documents(path, max_documents, cache)
        languages = LANGUAGES
        if title == ENGLISH:
            languages = tuple(map(iso_of_flores, FLORES_CODES))
        tasks.append(load_task(title, name, path, languages))
    return tasks


def select_documents(path: Path, count: int, cache: Path) -> Path:
    """Write documents at random, always the same, with all their languages; return the file."""
    rows = pd.read_parquet(path)
    ids = rows["doc_id"].drop_duplicates().sample(count, random_state=0)
    selection = cache / f"{count}_{path.name}"
    rows[rows["doc_id"].isin(ids)].to_parquet(selection)
    return selection


def measure_quality(
    tasks: Sequence[LoadedTask], systems: Sequence[MeasuredSystem], cache: Path
) -> list[TaskResult]:
    """Return the results of all systems on all tasks."""
    results = []
    for task, system in itertools.product(tasks, systems):
        typer.echo(f"{time.strftime('%X')} {task.name}, {system.name}", err=True)
        train_languages = ("en",) if task.name == ENGLISH else None
        options = EvaluationOptions(folds=False, train_languages=train_languages)
        results += evaluate([task], [system], options, cache)
    return results


# ---- Speed and size


def speed_texts(tasks: Sequence[LoadedTask]) -> list[str]:
    """Return the texts by which speed is measured, in random order: SIB-200, or the sample."""
    task_by_name = {task.name: task for task in tasks}
    task = task_by_name.get("SIB-200", task_by_name.get("sample"))
    texts = set()
    for code in LANGUAGES:
        texts.update(task.data.splits[code]["train"].texts)
    shuffled = sorted(texts)
    random.Random(0).shuffle(shuffled)
    return shuffled


def measure_speed(
    systems: Sequence[MeasuredSystem], texts: list[str]
) -> dict[str, dict[str, float | int]]:
    """Return the texts per second of each system; all are measured in turn.

    A slow system reads what it can in three seconds.
    """
    pilots = {}
    for system in systems:
        pilots[system.name] = _reader(system, texts[:PILOT_TEXTS])
    pilot_seconds = interleaved(pilots, repeats=1)

    counts = {}
    readers = {}
    for system in systems:
        (seconds,) = pilot_seconds[system.name]
        count = int(PILOT_TEXTS * SPEED_SECONDS / seconds)
        count = max(PILOT_TEXTS, min(len(texts), count))
        counts[system.name] = count
        readers[system.name] = _reader(system, texts[:count])

    speeds = {}
    for name, durations in interleaved(readers).items():
        texts_per_second = counts[name] / np.array(durations)
        speeds[name] = summary(texts_per_second.tolist())
    return speeds


def _reader(system: MeasuredSystem, texts: list[str]) -> Callable[[], Any]:
    """Return a function that embeds the texts without the cache."""
    if not isinstance(system, CharacterTfidf):
        return lambda: system.encode(texts)

    def fit_and_transform() -> None:
        system.begin()
        system.represent(texts, texts)

    return fit_and_transform


def describe_size(system: MeasuredSystem) -> dict[str, float | None]:
    """Return parameters, megabytes of weights and tokenizer, and minutes of training if known."""
    if isinstance(system, CharacterTfidf):
        return {"parameters, M": None, "MB": None, "minutes": None}
    parameters = sum(weights.numel() for weights in system.network.parameters())
    size = 0
    for name in ("model.safetensors", "tokenizer.json"):
        size += (system.folder / name).stat().st_size
    minutes = None
    report = system.folder / "results.json"
    if report.exists():
        minutes = json.loads(report.read_text())["minutes"]
        run = system.folder / "run.json"
        if run.exists():
            # The checkpoint that the run began with took time as well.
            warm_start = json.loads(run.read_text())["warm_start"] or {}
            minutes += warm_start.get("minutes") or 0.0
    return {"parameters, M": parameters / 1e6, "MB": size / 1e6, "minutes": minutes}


# ---- The table


@dataclass(frozen=True)
class Measure:
    """A value with its interval, in %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1f} [{self.low:.1f}, {self.high:.1f}]"


def measures_of(results: Sequence[TaskResult]) -> dict[str, Measure]:
    """Return the measures of one system by the title of their column."""
    measures = {}
    for result in results:
        summaries = summarize(result.cells)
        for group in ("Same", "Cross"):
            is_left_out = group == "Same" and result.task == ENGLISH
            value = summaries.get(group)
            if value is None or is_left_out:
                continue
            low, high = result.intervals[group]
            measures[f"{result.task} {group}"] = Measure(100 * value, 100 * low, 100 * high)
    return measures


@dataclass(frozen=True)
class SystemReport:
    """All that was measured of one system.

    Attributes:
        name: Its name.
        size: See `describe_size`.
        speed: Texts per second, see `common.summary`.
        measures: Its quality.
        results: Its results on all tasks.
    """

    name: str
    size: dict[str, float | None]
    speed: dict[str, float | int]
    measures: dict[str, Measure]
    results: list[TaskResult]

    def table_row(self) -> dict[str, Any]:
        """Return a row of the printed table."""
        row = {"system": self.name, **self.size, "texts/s": f"{self.speed['median']:,.0f}"}
        for title, measure in self.measures.items():
            row[title] = str(measure)
        return row

    def json_row(self) -> dict[str, Any]:
        """Return a row of the JSON file."""
        measures = {}
        for title, measure in self.measures.items():
            measures[title] = (measure.value, measure.low, measure.high)
        cells = {}
        truncated = {}
        for result in self.results:
            cells_of_task = {}
            for cell in result.cells:
                cells_of_task["-".join(cell.pair)] = cell.value
            cells[result.task] = cells_of_task
            truncated[result.task] = result.truncated
        return {
            "system": self.name,
            **self.size,
            "texts/s": self.speed,
            "measures": measures,
            "cells": cells,
            "truncated": truncated,
        }


def report_systems(
    systems: Sequence[MeasuredSystem],
    results: Sequence[TaskResult],
    speeds: Mapping[str, dict[str, float | int]],
) -> list[SystemReport]:
    """Return a report of each system.

    Args:
        systems: The systems.
        results: The results of all systems on all tasks.
        speeds: Texts per second by the name of the system, see `measure_speed`.
    """
    reports = []
    for system in systems:
        results_of_system = [result for result in results if result.system == system.name]
        report = SystemReport(
            name=system.name,
            size=describe_size(system),
            speed=speeds[system.name],
            measures=measures_of(results_of_system),
            results=results_of_system,
        )
        reports.append(report)
    return reports


def split_named(values: Sequence[str]) -> dict[str, str]:
    """Return the values of `NAME=VALUE` by name."""
    value_by_name = {}
    for argument in values:
        name, value = split_name(argument)
        value_by_name[name] = value
    return value_by_name


def split_name(argument: str) -> tuple[str, str]:
    """Return name and value of `NAME=VALUE`.

    Raises:
        typer.BadParameter: There is no `=`.
    """
    name, separator, value = argument.partition("=")
    if not separator:
        raise typer.BadParameter(f"found {argument!r}, expected NAME=VALUE")
    return name, value


def main(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=FOLDER", help="Models.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the tasks' files.")] = None,
    systems: Annotated[
        str | None, typer.Option(help="Measure only these names, comma-separated.")
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option(help="NAME=TEXT before every text of a model.")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="NAME=bfloat16.")] = None,
    static: Annotated[
        Path | None, typer.Option(help="Folder of StaticEmbedding; trained if it is missing.")
    ] = None,
    train: Annotated[
        list[str] | None, typer.Option(help="Parallel text for it. Default: sample.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="CPU minutes of its training.")] = 20,
    max_documents: Annotated[
        int | None, typer.Option(help="Draw so many topic documents. Default: all.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Of vectors and results. Default: $TMDE_CACHE.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", help="Folder for `tmde eval compare`.")
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="File to write.")] = None,
) -> None:
    """Measure all systems on all tasks."""
    cache = cache or default_cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    folders = split_named(models or [])
    prompts = split_named(prompt or [])
    dtypes = split_named(dtype or [])
    names = systems.split(",") if systems else [TFIDF, STATIC, *folders]
    if static is not None and STATIC in names and not (static / "results.json").exists():
        train_static(static, train or ["sample"], minutes)
    loaded_systems = load_systems(folders, names, prompts, dtypes, static, cache)
    tasks = load_tasks(data, max_documents, cache)
    results = measure_quality(tasks, loaded_systems, cache)
    if output is not None:
        write_results(output, results, {})
    texts = speed_texts(tasks)
    speeds = measure_speed(loaded_systems, texts)
    reports = report_systems(loaded_systems, results, speeds)
    table = [report.table_row() for report in reports]
    typer.echo(markdown(table))
    characters = fmean(map(len, texts))
    threads = torch.get_num_threads()
    typer.echo(f"\ntexts/s: {characters:.0f} characters a text, {threads} threads.")
    typer.echo(f"Topics, documents: {max_documents or 'all'} documents.")
    settings = {"prompts": prompts, "dtypes": dtypes, "max_documents": max_documents}
    write_json(json_path, "peers", settings, [report.json_row() for report in reports])


if __name__ == "__main__":
    typer.run(main)
