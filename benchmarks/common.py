"""What every benchmark shares: the machine, interleaved repeats, a Markdown table, a JSON file."""

import json
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from tmde.data.io import write_atomically
from tmde.eval.environment import environment

PEERS = ("sentence-transformers", "onnxruntime", "lancedb", "ray")


# ---- Measuring


def interleaved(
    functions: Mapping[str, Callable[[], Any]],
    repeats: int = 5,
    warmup: int = 1,
    synchronize: bool = False,
) -> dict[str, list[float]]:
    """Return the seconds of every function, `repeats` times each.

    The functions run in turn, so that what slows the machine for a while slows all of them.

    Args:
        functions: What is measured, by name.
        repeats: The measurements of each.
        warmup: The calls of each before these, which are not measured.
        synchronize: Wait for the GPU at both ends.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(-warmup, repeats):
        for name, function in functions.items():
            _synchronize(synchronize)
            begin = time.perf_counter()
            function()
            _synchronize(synchronize)
            if turn >= 0:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def _synchronize(is_wanted: bool) -> None:
    if is_wanted and torch.cuda.is_available():
        torch.cuda.synchronize()


def summary(values: Sequence[float]) -> dict[str, float | int]:
    """Return `median`, `min`, `max` and the number of `repeats`."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "repeats": len(values),
    }


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median of the ratios turn by turn, because both ran next to each other."""
    ratios = [
        numerator / denominator
        for numerator, denominator in zip(numerators, denominators, strict=True)
    ]
    return statistics.median(ratios)


def peak_memory() -> int:
    """Return the largest resident memory of this process so far, in bytes; of tensors on a GPU."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # The kernel of macOS counts bytes, that of Linux kibibytes.
    return peak if sys.platform == "darwin" else peak * 1024


# ---- The machine


def machine() -> dict[str, Any]:
    """Return processor, threads, accelerators, Python, and the versions of what is compared."""
    record = environment()
    installed_versions = {
        distribution.name: distribution.version for distribution in metadata.distributions()
    }
    for name in PEERS:
        if name in installed_versions:
            record["versions"][name] = installed_versions[name]
    record["machine"] |= {"processor": _processor(), "system": platform.platform()}
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
    """Return a table of all rows under the keys of the first; numbers stand at the right."""
    columns = list(rows[0])
    sides = ["right" if isinstance(rows[0][key], int | float) else "left" for key in columns]
    cells = []
    for row in rows:
        cells.append([_cell(row.get(key)) for key in columns])
    return tabulate(cells, columns, "pipe", colalign=sides, disable_numparse=True)


def _cell(value: object) -> str:
    """Return a value as a reader wants it: three digits of a small number, none after a large."""
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
    """Write machine, settings and results of one benchmark; nothing without a path."""
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
