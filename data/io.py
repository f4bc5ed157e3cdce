"""Files that are written whole or not at all, the environment of a run, and YAML with 3e-4 as a number."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import yaml

from modeling_tmde import __version__

PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "numpy", "safetensors", "scikit-learn")
PACKAGES += ("scipy", "faiss", "faiss-cpu", "faiss-gpu")  # faiss has one name a channel and build


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, renamed to `path` at the end and removed after an error."""
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write UTF-8 text to a temporary file beside `path`, then rename it."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def environment() -> dict[str, Any]:
    """Return the versions of this package, of Python and of the packages that decide the numbers, and the machine."""
    found = {each.name: each.version for each in metadata.distributions()}
    return {
        "tmde": __version__,
        "versions": {name: found[name] for name in PACKAGES if name in found},
        "python": platform.python_version(),
        "machine": {
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        },
    }


class PlainLoader(yaml.SafeLoader):
    """YAML as recipes mean it, as in YAML 1.2: 3e-4 is a number, only `true` and `false` are switches, and `no` is
    Norwegian."""


_BOOL, _FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"
PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
PlainLoader.add_implicit_resolver(_BOOL, re.compile(r"(true|false)$", re.IGNORECASE), list("tTfF"))
PlainLoader.add_implicit_resolver(_FLOAT, re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789"))
