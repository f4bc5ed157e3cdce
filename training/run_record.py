"""What a run's folder says about how to repeat it, and where to go on."""

import json
from pathlib import Path
from typing import Any

import datasets
from transformers.utils import logging

from modeling_tmde.eval.records import environment, write_atomically

logger = logging.get_logger("modeling_tmde.training")


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
    record = {**environment(), "data": data, **extra}
    write_atomically(folder / "run.json", json.dumps(record, indent=2, default=str))


def find_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint; one that was cut off while it was written has no readable state."""
    steps = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
    for path in sorted(steps, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text())
            return path
        except (OSError, ValueError):
            logger.warning("%s is incomplete and is skipped", path)
    return None
