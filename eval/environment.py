"""What an evaluation or a training ran on: versions and the machine."""

from __future__ import annotations

import platform
from importlib import metadata

import torch

from tmde import __version__
from tmde.data.cpus import usable_cpus

# Distributions that affect numbers. A test compares them with what the code imports.
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
