# SPDX-License-Identifier: Apache-2.0

"""Write an embedder into a folder that tmde, transformers and sentence-transformers open."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.sentence_transformers_files import (
    MODULES_FILE,
    POOLING_FILE,
    PROMPTS_FILE,
    TRANSFORMER_FILE,
    write_sentence_transformers_files,
)
from tmde.embedding.hub_names import is_possible_hub_id
from tmde.embedding.stored_settings import CALIBRATION_FILE

# The prompts of documents go by these names, and the first that a model has is taken.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")

_CARD = "README.md"


def save_model(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> None:
    """Write a model, its tokenizer, and the card of the folder or repository it was loaded from.

    Args:
        folder: Made if missing. A card that is there stays.
        model: The encoder.
        tokenizer: Its tokenizer.
        max_length: Longest input in tokens, which the tokenizer stores if it is shorter than its
            own.

    Raises:
        TmdeError: The folder is a file.
    """
    if folder.is_file():
        raise TmdeError(f"path: found the file {folder}, expected a folder or a new name")
    model.save_pretrained(folder)
    limited = copy.copy(tokenizer)
    limited.model_max_length = min(max_length, tokenizer.model_max_length)
    limited.save_pretrained(folder)
    copy_card(model, folder)
    _replace_calibration(model, folder / CALIBRATION_FILE)


def _replace_calibration(model: PreTrainedModel, target: Path) -> None:
    """Copy the calibration beside a model; delete that of other weights."""
    source = _file_of_model(model, CALIBRATION_FILE)
    if source is None:
        target.unlink(missing_ok=True)
    elif source.resolve() != target.resolve():
        shutil.copyfile(source, target)


def copy_card(model: PreTrainedModel, folder: Path) -> None:
    """Copy the card of a model, which holds the license under which its weights are passed on.

    Args:
        model: A model that was loaded from a folder or the Hub; another one has no card.
        folder: Where the card goes. One that is there stays.
    """
    if (folder / _CARD).exists():
        return
    card = _file_of_model(model, _CARD)
    if card is not None:
        shutil.copyfile(card, folder / _CARD)


def _file_of_model(model: PreTrainedModel, file: str) -> Path | None:
    """Return a file of the folder or repository that a model was loaded from; None without one.

    A file of the Hub is that of the cache.
    """
    name = str(model.name_or_path)
    path = Path(name) / file
    if path.is_file():
        return path
    if not is_possible_hub_id(name):
        return None
    # Newer versions of transformers do not say which commit was loaded; then it is the last one.
    commit = getattr(model.config, "_commit_hash", None)
    try:
        return Path(hf_hub_download(name, file, revision=commit))
    except (HfHubHTTPError, HTTPError, HFValidationError, OSError):
        return None


def save_settings(
    folder: Path,
    model: PreTrainedModel,
    pooling: str,
    prompts: Mapping[str, str],
    prompt: str,
    similarity_fn_name: str,
) -> None:
    """Write how the vectors are made, in the files of sentence-transformers.

    Args:
        folder: The folder of the model. Files of an earlier save are replaced.
        model: The encoder.
        pooling: `"cls"` or `"mean"`.
        prompts: The prompts by name.
        prompt: The prompt for every text, "" for none.
        similarity_fn_name: The name of the measure that compares vectors.
    """
    for name in (MODULES_FILE, TRANSFORMER_FILE, POOLING_FILE, PROMPTS_FILE):
        (folder / name).unlink(missing_ok=True)
    write_sentence_transformers_files(model, folder, pooling, prompt)
    named_prompts = dict(prompts)
    default_name = None
    if prompt:
        default_name = _name_of_prompt(named_prompts, prompt)
        named_prompts[default_name] = prompt
    # Whoever opens the folder takes no prompt for queries and documents unless the file names one.
    named_prompts.setdefault("query", prompt)
    named_prompts.setdefault("document", _document_prompt(prompts, prompt))
    content = {
        "model_type": "SentenceTransformer",
        "prompts": named_prompts,
        "default_prompt_name": default_name,
        "similarity_fn_name": similarity_fn_name,
    }
    (folder / PROMPTS_FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _name_of_prompt(prompts: Mapping[str, str], prompt: str) -> str:
    """Return the name of a prompt, "default" if it has none."""
    for name, text in prompts.items():
        if text == prompt:
            return name
    return "default"


def _document_prompt(prompts: Mapping[str, str], prompt: str) -> str:
    """Return what `encode_document` puts before a text.

    Args:
        prompts: The prompts by name.
        prompt: The prompt for every text.
    """
    for name in DOCUMENT_PROMPTS:
        if name in prompts:
            return prompts[name]
    return prompt
