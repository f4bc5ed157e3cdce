"""The files of a run's folder that are published with its model."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.hub_cards.run_records import public_recipe, read_json

logger = logging.get_logger("tmde.hub_cards")

# Files of a model, in addition to the remote code that its configuration names. Nothing else in a
# run's folder is published: no checkpoints, optimizer states, logs, scripts or data.
MODEL_FILES = (
    "config*.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer*.*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
    "*.spm",
    "chat_template.jinja",
    "modules.json",
    "sentence_bert_config.json",
    "[0-9]_*/config.json",
    "[0-9]_*/model.safetensors",
    "onnx/*",
    "curves.png",
    "LICENSE*",
)

# Files from which a card or the published records are made.
RECORD_FILES = ("*.json", "*.yaml", "*.md")

# Earlier weights and their results, which a commit of new weights deletes.
STALE_MODEL = (
    "model*.safetensors",
    "*.safetensors.index.json",
    "*.bin",
    "*.bin.index.json",
    "onnx/*",
    "curves.png",
    "recipe.yaml",
    "results.json",
)


def stage_model(folder: Path, stage: Path) -> None:
    """Put the publishable files of a model into another folder.

    They are links, except for the recipe and the results of its run, from which local information
    is removed.

    Args:
        folder: The folder of the model, of a run or a checkpoint.
        stage: The folder that will be uploaded.

    Raises:
        TmdeError: A file is a link that leaves the folder, and not one into the Hub's cache.
    """
    files = _glob(folder, MODEL_FILES) | _remote_code(folder)
    files -= _outdated_graphs(folder)
    _check_links(folder, files | _glob(folder, RECORD_FILES))
    for path in files:
        link = stage / path.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())
    _stage_records(folder, stage)


def _glob(folder: Path, patterns: tuple[str, ...]) -> set[Path]:
    files: set[Path] = set()
    for pattern in patterns:
        files.update(folder.glob(pattern))
    return files


def _remote_code(folder: Path) -> set[Path]:
    """Return the Python files that the configuration names, and those that they import."""
    config = read_json(folder / "config.json")
    files: set[Path] = set()
    for reference in (config.get("auto_map") or {}).values():
        # A reference is `module.Class`, prefixed by `repository--` for another repository.
        module_name = reference.split("--")[-1].split(".")[0]
        module = folder / f"{module_name}.py"
        files.add(module)
        files.update(map(Path, get_relative_import_files(module)))
    return files


def _outdated_graphs(folder: Path) -> set[Path]:
    """Return the files of an ONNX export of earlier weights, and warn if there are any."""
    graphs = set(folder.glob("onnx/*"))
    weights_saved = max(path.stat().st_mtime_ns for path in folder.glob("model*.safetensors"))
    if all(path.stat().st_mtime_ns >= weights_saved for path in graphs):
        return set()
    logger.warning(
        f"{folder / 'onnx'} is older than the weights and was left out; run `tmde export onnx "
        f"{folder}`"
    )
    return graphs


def _check_links(folder: Path, files: set[Path]) -> None:
    """Raise an error for a file outside the folder: it may be private."""
    root = folder.resolve()
    # In the Hub's cache, the files of a snapshot are links to blobs next to the snapshots.
    hub_blobs = root.parent.parent / "blobs"
    for path in files:
        target = path.resolve()
        if not target.is_relative_to(root) and not target.is_relative_to(hub_blobs):
            raise TmdeError(
                f"{path}: found a link to {target}, outside the folder; replace it with the file"
            )


def _stage_records(folder: Path, stage: Path) -> None:
    """Write the recipe and the results of a run without local information."""
    recipe = public_recipe(folder)
    if recipe:
        recipe_text = yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True)
        (stage / "recipe.yaml").write_text(recipe_text, "utf-8")
    results = read_json(folder / "results.json")
    if results:
        # The examples contain file names and lines of the user's files.
        (results.get("corpus") or {}).pop("first_examples", None)
        (stage / "results.json").write_text(json.dumps(results, indent=2) + "\n", "utf-8")
