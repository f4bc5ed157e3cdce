"""The files beside a model: its settings for sentence-transformers, card and calibration."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import ModelCard, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
)
from transformers import PreTrainedModel

from modeling_tmde import TmdeError
from modeling_tmde.sentence_transformers_files import PROMPTS_FILE
from tmde.embedding.hub_names import is_possible_hub_id
from tmde.embedding.loading import errors_about

CALIBRATION_FILE = "calibration.json"  # of `tmde.documents.calibration`
_CARD = "README.md"
_MANY = "multilingual"  # The entry of a card that names no single language.


@dataclass(frozen=True)
class StoredSettings:
    """What `config_sentence_transformers.json` says; without that file, nothing.

    Attributes:
        prompts: The prompts by name.
        default_prompt: The prompt for every text; "" if there is none.
        similarity_fn_name: The name of the measure that compares vectors.
        truncate_dim: How many numbers of a vector are kept; None for all.
    """

    prompts: dict[str, str]
    default_prompt: str = ""
    similarity_fn_name: str = "cosine"
    truncate_dim: int | None = None


def stored_settings(
    name: str | os.PathLike[str], revision: str | None = None, token: str | bool | None = None
) -> StoredSettings:
    """Read `config_sentence_transformers.json` beside a model.

    Args:
        name: A folder or a Hub id.
        revision: The revision of the Hub repository.
        token: The token to read it with.

    Raises:
        TmdeError: The file is damaged, or names a default prompt that it does not have.
    """
    path = find_model_file(name, PROMPTS_FILE, revision, token)
    if path is None:
        return StoredSettings({})
    prompts: dict[str, str] = {}
    with errors_about(path):
        content = json.loads(path.read_text(encoding="utf-8"))
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
    return StoredSettings(
        prompts,
        default_prompt,
        content.get("similarity_fn_name") or "cosine",
        content.get("truncate_dim"),
    )


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


def replace_calibration(model: PreTrainedModel, folder: Path) -> None:
    """Copy the calibration beside a model into a folder; delete that of other weights there."""
    source = _file_of_model(model, CALIBRATION_FILE)
    target = folder / CALIBRATION_FILE
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


def license_of(model: PreTrainedModel) -> str | None:
    """Return the license that the card of a model states; None without one."""
    card = _file_of_model(model, _CARD)
    if card is None:
        return None
    license: str | None = ModelCard.load(card, ignore_metadata_errors=True).data.get("license")
    return license


def languages_of_card(model: PreTrainedModel) -> list[str] | None:
    """Return the codes of the languages that the card of a model states; None without any."""
    card = _file_of_model(model, _CARD)
    if card is None:
        return None
    stated = ModelCard.load(card, ignore_metadata_errors=True).data.get("language")
    languages = []
    for code in [stated] if isinstance(stated, str) else stated or []:
        if code is False:
            languages.append("no")  # YAML reads Norwegian as False.
        elif isinstance(code, str) and code != _MANY:
            languages.append(code)
    return languages or None


def _file_of_model(model: PreTrainedModel, file: str) -> Path | None:
    """Return a file of the folder or repository that a model was loaded from; None without one.

    A file of the Hub is that of the cache.
    """
    name = str(model.name_or_path)
    if not name:
        return None  # The model was built and not loaded.
    if not Path(name).is_dir() and not is_possible_hub_id(name):
        return None
    # Newer versions of transformers do not say which commit was loaded; then it is the last one.
    commit = getattr(model.config, "_commit_hash", None)
    try:
        return find_model_file(name, file, commit, token=None)
    except (HfHubHTTPError, HTTPError, HFValidationError, OSError):
        return None
