# SPDX-License-Identifier: Apache-2.0

"""The files that go with a model when it is saved again: its card and its calibration."""

from __future__ import annotations

import shutil
from pathlib import Path

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError
from transformers import PreTrainedModel

from tmde.embedding.hub_names import is_possible_hub_id
from tmde.embedding.stored_settings import CALIBRATION_FILE

_CARD = "README.md"


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
