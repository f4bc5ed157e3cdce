"""Helpers of all benchmarks: repeats, intervals, the machine, a Markdown table, a JSON file."""

import contextlib
import json
import multiprocessing
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import torch

from tmde.data.io import write_atomically
from tmde.data.sample import sample_sentences
from tmde.eval import plan_tasks
from tmde.eval.environment import environment
from tmde.eval.markdown import markdown_table
from tmde.eval.planning import LoadedTask
from tmde.eval.results import Cell
from tmde.eval.statistics import with_interval

# Packages whose versions are recorded beside those of `tmde.eval.environment`.
PEERS = ("sentence-transformers", "onnxruntime", "lancedb", "ray")
SAMPLE_ROWS = 500
LANGUAGES = ("de", "en", "es", "fr", "it")
NTREX_FILES = {
    "de": "newstest2019-ref.deu.txt",
    "en": "newstest2019-src.eng.txt",
    "es": "newstest2019-ref.spa.txt",
    "fr": "newstest2019-ref.fra.txt",
    "it": "newstest2019-ref.ita.txt",
    "pt": "newstest2019-ref.por.txt",
    "ru": "newstest2019-ref.rus.txt",
}

Result = TypeVar("Result")


# ---- Measuring


def interleaved(
    functions: Mapping[str, Callable[[], Any]],
    repeats: int = 5,
    warmup: int = 1,
    synchronize: bool = False,
) -> dict[str, list[float]]:
    """Return the seconds of every function, `repeats` times each.

    The functions run in turn, so that a slow moment of the machine slows all of them.

    Args:
        functions: The functions to measure, by name.
        repeats: The number of measurements of each function.
        warmup: The number of calls of each function before the first measurement.
        synchronize: Whether to wait for the GPU before and after every call.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(-warmup, repeats):
        for name, function in functions.items():
            duration = _time(function, synchronize)
            if turn >= 0:
                seconds[name].append(duration)
    return seconds


def _time(function: Callable[[], Any], synchronize: bool) -> float:
    """Return the seconds of one call."""
    has_gpu = synchronize and torch.cuda.is_available()
    if has_gpu:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    function()
    if has_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def summary(values: Sequence[float]) -> dict[str, float | int]:
    """Return `median`, `min`, `max` and the number of `repeats`."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "repeats": len(values),
    }


def in_percent(outcomes: npt.ArrayLike, ids: Sequence[object] | None = None) -> list[float]:
    """Return a mean and its 95% interval over test items, in %: `[mean, low, high]`.

    Args:
        outcomes: The outcome of each item, (n,).
        ids: Items with the same id are resampled together, (n,); None if all are independent.
    """
    outcomes = np.asarray(outcomes, float)
    ids = range(len(outcomes)) if ids is None else ids
    cell = Cell("", "", "accuracy", float(outcomes.mean()), list(map(str, ids)), outcomes)
    return cell_in_percent(cell)


def sum_counts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts of several parts together: numbers, lists of them, or mappings of both."""
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if isinstance(value, Mapping):
                total[name] = sum_counts([total.get(name, {}), value])
            elif name in total:
                total[name] = np.add(total[name], value).tolist()
            else:
                total[name] = value
    return total


def cell_in_percent(cell: Cell) -> list[float]:
    """Return the value of a cell and its 95% interval, in %: `[value, low, high]`."""
    low, high = with_interval(cell).interval
    return [100 * cell.value, 100 * low, 100 * high]


def in_fresh_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function of a script in a new process, whose memory is that of the call alone."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median of the ratios turn by turn, because both ran next to each other."""
    ratios = np.divide(numerators, denominators)  # (turns,)
    return float(np.median(ratios))


def peak_memory() -> int:
    """Return the peak memory of this process so far, in bytes.

    On a machine with a GPU, it is the memory of tensors there.
    """
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts in bytes, and Linux in kibibytes.
    if sys.platform == "darwin":
        return peak
    return peak * 1024


# ---- Data to measure on


def load_task(
    title: str, name: str, file: Path | None = None, languages: Sequence[str] = LANGUAGES
) -> LoadedTask:
    """Return a task under a title of the benchmark.

    Args:
        title: The title.
        name: The name of the task in `tmde.eval.tasks`.
        file: Its source; None for a built-in one.
        languages: The languages to load.
    """
    spec = name if file is None else f"{name}={file}"
    (planned,) = plan_tasks([spec])
    return replace(planned.load(known=languages), name=title)


def translations(path: Path) -> list[dict[str, str | None]]:
    """Return the texts of each row of a parquet file of parallel rows, by language."""
    return pq.read_table(path, columns=["translation"])["translation"].to_pylist()


def sentence_pairs(path: Path) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the pairs of `tatoeba.parquet` by their two languages."""
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in pq.read_table(path).to_pylist():
        first, second = row["pair"].split("-")
        pairs.setdefault((first, second), []).append((row["sentence1"], row["sentence2"]))
    return pairs


def read_ntrex(clone: Path, languages: Sequence[str]) -> dict[str, list[str]]:
    """Return the sentences of news in each language, which are in one order.

    Args:
        clone: A clone of https://github.com/MicrosoftTranslator/NTREX.
        languages: The languages, keys of `NTREX_FILES`.
    """
    sentences = {}
    for language in languages:
        path = clone / "NTREX-128" / NTREX_FILES[language]
        sentences[language] = path.read_text(encoding="utf-8").splitlines()
    return sentences


def read_rows(data: Path | None) -> Iterator[dict[str, str | None]]:
    """Yield the texts of each row by language.

    Args:
        data: The folder with parallel/ and general/; None for the sample.
    """
    if data is None:
        yield from sample_sentences(SAMPLE_ROWS, "train", seed=0)["translation"]
        return
    files = [*(data / "parallel").glob("*.parquet"), *(data / "general").glob("*.parquet")]
    for path in sorted(files):
        yield from translations(path)


# ---- The machine


def machine() -> dict[str, Any]:
    """Return processor, threads, accelerators, Python, and the versions of packages and peers."""
    record = environment()
    for name in PEERS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            record["versions"][name] = metadata.version(name)
    record["machine"]["processor"] = _processor()
    record["machine"]["system"] = platform.platform()
    return record


def _processor() -> str:
    """Return the model and the family of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    model = fields.get("model name", platform.machine())
    family = fields.get("cpu family", "?")
    return f"{model}, family {family}"


# ---- Results


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of rows that may have different keys; numbers are aligned to the right."""
    sides: dict[str, str] = {}  # by column
    for row in rows:
        for column, value in row.items():
            side = "right" if isinstance(value, int | float) else "left"
            sides.setdefault(column, side)
    cells = []
    for row in rows:
        cells.append([_cell(row.get(column)) for column in sides])
    return "\n".join(markdown_table(list(sides), cells, alignment=list(sides.values())))


def _cell(value: object) -> str:
    """Return a value as text: small numbers with three digits, large ones without decimals."""
    if value is None:
        return "not measured"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 10:
        return f"{value:.3g}"
    return f"{value:.1f}"


def write_json(path: Path | None, name: str, settings: Mapping[str, Any], results: object) -> None:
    """Write machine, settings and results of one benchmark; do nothing without a path."""
    if path is None:
        return
    plain_settings = {}
    for key, value in settings.items():
        plain_settings[key] = str(value) if isinstance(value, Path) else value
    content = {
        "benchmark": name,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **machine(),
        "settings": plain_settings,
        "results": results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content, indent=2, default=float) + "\n")
