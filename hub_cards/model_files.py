"""The files of a run's folder that a repository of its model holds."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.utils import logging

from modeling_tmde import TmdeError

from .provenance import public_recipe, read_json

logger = logging.get_logger("tmde.hub_cards")

# Files of a model, beside the remote code that its configuration names. Nothing else of a run's folder is published:
# no checkpoints, optimizer states, logs, scripts or data.
MODEL_FILES = (
    "config*.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
)
MODEL_FILES += (
    "tokenizer*.*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)
MODEL_FILES += (
    "*.spm",
    "chat_template.jinja",
    "modules.json",
    "sentence_bert_config.json",
    "[0-9]_*/config.json",
)
MODEL_FILES += ("[0-9]_*/model.safetensors", "onnx/*", "curves.png", "LICENSE*")
# Files of earlier weights and their results, which a commit of new weights deletes.
STALE_MODEL = (
    "model*.safetensors",
    "*.safetensors.index.json",
    "*.bin",
    "*.bin.index.json",
    "onnx/*",
    "curves.png",
)
STALE_MODEL += ("recipe.yaml", "results.json")


def stage_model(folder: Path, stage: Path) -> None:
    """Links the files of a model that may be published into `stage`.

    Raises:
        ValueError: A file is a link out of the folder, unless it is one into the Hub's cache.
    """
    files = {path for pattern in MODEL_FILES for path in folder.glob(pattern)}
    config = read_json(folder / "config.json")
    for reference in (config.get("auto_map") or {}).values():
        module = folder / f"{reference.split('--')[-1].split('.')[0]}.py"
        files |= {module, *map(Path, get_relative_import_files(module))}
    graphs = set(folder.glob("onnx/*"))
    saved = max(path.stat().st_mtime_ns for path in folder.glob("model*.safetensors"))
    if any(path.stat().st_mtime_ns < saved for path in graphs):
        logger.warning(
            f"{folder / 'onnx'} is older than the weights and left out; run `tmde export onnx {folder}`"
        )
        files -= graphs
    root = folder.resolve()
    for path in files.union(*map(folder.glob, ("*.json", "*.yaml", "*.md"))):
        target = path.resolve()
        if not any(map(target.is_relative_to, (root, root.parent.parent / "blobs"))):
            raise TmdeError(
                f"{path}: found a link out of the folder, to {target}; put the file itself there"
            )
    for path in files:
        target = stage / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path.resolve())


def stage_records(folder: Path, stage: Path) -> None:
    """Writes the recipe and the results of a run without what is of the machine alone."""
    if recipe := public_recipe(folder):
        (stage / "recipe.yaml").write_text(
            yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True), "utf-8"
        )
    if found := read_json(folder / "results.json"):
        (found.get("corpus") or {}).pop(
            "first_examples", None
        )  # names and lines of the user's files
        (stage / "results.json").write_text(json.dumps(found, indent=2) + "\n", "utf-8")
