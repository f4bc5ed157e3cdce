"""What the folder of a training run or an evaluation says about how to repeat it, and how its files are written."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from modeling_tmde import __version__

PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "numpy", "safetensors", "scikit-learn")
OPTIONAL_PACKAGES = ("scipy", "faiss", "faiss-cpu", "faiss-gpu")  # faiss has one name a channel and build


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`, of its suffix, that gets its name at the end; after an error it is removed."""
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Writes UTF-8 to a temporary name beside `path`, then renames."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def environment() -> dict[str, Any]:
    """Versions of this package, of those that decide its numbers and of Python, and the machine."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    for name in OPTIONAL_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "tmde": __version__,
        "versions": versions,
        "python": platform.python_version(),
        "machine": {
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        },
    }
