"""What a run's folder says about how to repeat it."""

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import datasets
import torch

from modeling_tmde import __version__

PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "numpy", "safetensors")


def write_atomically(path: Path, text: str) -> None:
    """Writes to a temporary name beside `path`, then renames."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def fingerprint(dataset: datasets.Dataset | datasets.IterableDataset | None) -> dict[str, Any] | None:
    """Rows and content fingerprint of a dataset; a stream has only what its source is."""
    if dataset is None:
        return None
    if isinstance(dataset, datasets.Dataset):
        return {"rows": len(dataset), "fingerprint": dataset._fingerprint}
    return {"rows": None, "streaming": True, "shards": dataset.num_shards}


def write_run_record(folder: Path, recipe_yaml: str, data: dict[str, Any], extra: dict[str, Any]) -> None:
    """Writes `recipe.yaml` (the recipe with its overrides) and `run.json` (versions, machine, data fingerprints)."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "recipe.yaml", recipe_yaml)
    record = {
        "tmde": __version__,
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": {
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        },
        "data": data,
        **extra,
    }
    write_atomically(folder / "run.json", json.dumps(record, indent=2, default=str))
