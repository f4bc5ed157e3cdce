"""What a run's folder says about how to repeat it, and where to go on."""

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers.utils import logging

from modeling_tmde.data.io import environment, write_atomically
from modeling_tmde.hub_cards import check_licenses, describe_origins, describe_sources
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.evaluation import retrieval_pools
from modeling_tmde.training.recipe import Recipe, RecipeError

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


def run_settings(arguments: TmdeTrainingArguments) -> dict[str, Any]:
    """What readers of the results need to know, defaults included, and the device."""
    names = ("train_max_length", "embed_max_length", "eval_pool", "eval_document_rows")
    settings = {name: getattr(arguments, name) for name in names}
    return {"settings": settings, "device": {"type": arguments.device.type, "name": _device_name(arguments.device)}}


def origins(recipe: Recipe) -> dict[str, Any]:
    """What a run comes from, in the words of a card: to be asked where the run is, since `a/b` may be a folder.

    Raises:
        RecipeError: Licences of data that are not among the training sources.
    """
    sources = describe_sources(recipe.data.train)
    try:
        check_licenses(sources, recipe.sections.get("card", {}).get("data_licenses"))
    except ValueError as error:
        raise RecipeError(f"Section 'card' of recipe {recipe.name}: {error}") from error
    return {"recipe": recipe.name, "sources": sources, **describe_origins(recipe.sections)}


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def dev_pools(
    dev: Mapping[str, datasets.Dataset], languages: Sequence[str], arguments: TmdeTrainingArguments
) -> dict[str, dict[str, int]]:
    """By dev set and measure (`p1_de-en`, `doc_p1_de-en`), how many texts were searched: chance is one in them."""
    found = {name: retrieval_pools(rows, languages, arguments) for name, rows in dev.items()}
    return {name: {key: len(pool.sources) for key, pool in pools.items()} for name, pools in found.items()}


def write_card(folder: Path) -> None:
    """The model card of a finished run, which costs no run: what is wrong with it is a warning."""
    from modeling_tmde.hub_cards import write_model_card

    try:
        write_model_card(folder)
    except Exception as error:  # whatever it is: the model is there
        logger.warning(f"The model card was not written: {type(error).__name__}: {error}")


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
