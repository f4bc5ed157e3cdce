# SPDX-License-Identifier: Apache-2.0

"""What the files of sentence-transformers beside a model say: its prompts, measure and pooling."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from modeling_tmde import TmdeError
from modeling_tmde.sentence_transformers_files import POOLING_FILE, PROMPTS_FILE

CALIBRATION_FILE = "calibration.json"  # of `tmde.documents.calibration`

# The switches of `1_Pooling/config.json` that sentence-transformers wrote before version 6.
_POOLING_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class StoredSettings:
    """What `config_sentence_transformers.json` says; without that file, nothing.

    Attributes:
        prompts: The prompts by name.
        default_prompt: The prompt for every text; "" if there is none.
        similarity_fn_name: The name of the measure that compares vectors.
    """

    prompts: dict[str, str]
    default_prompt: str = ""
    similarity_fn_name: str = "cosine"


def stored_settings(
    name: str | os.PathLike[str], revision: str | None = None, token: str | bool | None = None
) -> StoredSettings:
    """Read `config_sentence_transformers.json` beside a model.

    Args:
        name: A folder or a Hub id.
        revision: The revision of the Hub repository.
        token: The token to read it with.

    Raises:
        TmdeError: The file names a default prompt that it does not have.
    """
    path = find_model_file(name, PROMPTS_FILE, revision, token)
    if path is None:
        return StoredSettings({})
    content = json.loads(path.read_text(encoding="utf-8"))
    prompts: dict[str, str] = {}
    for prompt_name, prompt in (content.get("prompts") or {}).items():
        prompts[prompt_name] = prompt or ""
    default_prompt = ""
    default_name = content.get("default_prompt_name")
    if default_name is not None:
        if default_name not in prompts:
            raise TmdeError(
                f"{path}: default_prompt_name is {default_name!r}, expected one of "
                f"{sorted(prompts)}"
            )
        default_prompt = prompts[default_name]
    return StoredSettings(prompts, default_prompt, content.get("similarity_fn_name") or "cosine")


def stored_pooling(
    name: str | os.PathLike[str], revision: str | None = None, token: str | bool | None = None
) -> str | None:
    """Return the pooling that `1_Pooling/config.json` beside a model names.

    Args:
        name: A folder or a Hub id.
        revision: The revision of the Hub repository.
        token: The token to read it with.

    Returns:
        `"cls"`, `"mean"`, or another name of sentence-transformers; several are joined by "+". None
        without that file.
    """
    path = find_model_file(name, POOLING_FILE, revision, token)
    if path is None:
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    modes = content.get("pooling_mode")
    if modes is None:
        modes = _modes_of_switches(content)
    if isinstance(modes, str):
        return modes
    return "+".join(modes) or None


def _modes_of_switches(content: dict[str, Any]) -> list[str]:
    """Return the poolings that are switched on."""
    modes = []
    for switch, mode in _POOLING_SWITCHES.items():
        if content.get(switch):
            modes.append(mode)
    return modes


def find_model_file(
    name: str | os.PathLike[str], file: str, revision: str | None, token: str | bool | None
) -> Path | None:
    """Return a file of a model, downloaded if necessary; None without one.

    Args:
        name: A folder or a Hub id.
        file: The name of the file.
        revision: The revision of the Hub repository.
        token: The token to read it with.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        path = folder / file
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(str(name), file, revision=revision, token=token))
    except EntryNotFoundError:  # The repository has no such file, or it is offline and not cached.
        return None
