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
from tmde.eval.systems import environment

PEERS = ("sentence-transformers", "onnxruntime", "lancedb", "ray")


def machine() -> dict[str, Any]:
    """Processor, threads, accelerators, Python and the versions of what is compared."""
    found, installed = environment(), {each.name: each.version for each in metadata.distributions()}
    found["versions"] |= {name: installed[name] for name in PEERS if name in installed}
    return found | {
        "machine": found["machine"] | {"processor": _processor(), "system": platform.platform()}
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
    return f"{fields.get('model name', platform.machine())}, family {fields.get('cpu family', '?')}"


def interleaved(
    functions: Mapping[str, Callable[[], Any]],
    repeats: int = 5,
    warmup: int = 1,
    synchronize: bool = False,
) -> dict[str, list[float]]:
    """Seconds of every function, `repeats` times, in turn: what slows the machine for a while slows all of them.

    Args:
        functions: What is measured, by name.
        repeats: Measurements of each.
        warmup: Calls of each before these, not measured.
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


def _synchronize(wanted: bool) -> None:
    if wanted and torch.cuda.is_available():
        torch.cuda.synchronize()


def summary(values: Sequence[float]) -> dict[str, float | int]:
    """`median`, `min`, `max` and the number of `repeats`."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "repeats": len(values),
    }


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median of the ratios turn by turn, both of which ran next to each other."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of all rows under the keys of the first; numbers to the right."""
    sides = ["right" if isinstance(value, (int, float)) else "left" for value in rows[0].values()]
    cells = [[_cell(row.get(key)) for key in rows[0]] for row in rows]
    return tabulate(cells, list(rows[0]), "pipe", colalign=sides, disable_numparse=True)


def _cell(value: Any) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def write_json(path: Path | None, name: str, settings: Mapping[str, Any], results: Any) -> None:
    """Machine, settings and results of one benchmark; nothing is written without a path."""
    if path is None:
        return
    content = {
        "benchmark": name,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **machine(),
        "settings": {
            key: str(value) if isinstance(value, Path) else value for key, value in settings.items()
        },
        "results": results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content, indent=2, default=float) + "\n")


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes; of tensors on a GPU."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
