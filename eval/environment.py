"""What an evaluation or a training ran on: versions, the machine, and the code."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata, resources
from pathlib import Path

import torch

from tmde import __version__
from tmde.data.cpus import usable_cpus

# The packages of this project whose code decides vectors, and those whose code decides results.
CODE_OF_VECTORS = ("modeling_tmde", "tmde.embedding")
CODE_OF_RESULTS = (*CODE_OF_VECTORS, "tmde.data", "tmde.documents", "tmde.eval")
# Distributions that affect numbers.
PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "accelerate",
    "numpy",
    "safetensors",
    "sentence-transformers",
    "scikit-learn",
    "scipy",
    "sentencex",
    # The name of faiss depends on where it was installed from.
    "faiss",
    "faiss-cpu",
    "faiss-gpu",
)


def environment() -> dict[str, object]:
    """Return the versions of this package, of Python and of `PACKAGES`, and the machine."""
    return {
        "tmde": __version__,
        "versions": _versions(),
        "python": platform.python_version(),
        "machine": _machine(),
    }


def _versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        if distribution.name in PACKAGES:
            versions[distribution.name] = distribution.version
    return versions


def _machine() -> dict[str, object]:
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "processor": platform.machine(),
        "cpus": usable_cpus(),
        "threads": torch.get_num_threads(),
        "gpus": gpus,
    }


@cache
def code_digest(packages: tuple[str, ...]) -> str:
    """Return a hash of all Python files of some packages, for keys of caches.

    Args:
        packages: The dotted names of the packages.
    """
    digest = hashlib.sha256()
    for package in packages:
        digest.update(folder_digest(Path(str(resources.files(package)))))
    return digest.hexdigest()


def folder_digest(folder: Path) -> bytes:
    """Return the SHA-256 of the names and the contents of all Python files below a folder."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.digest()
