# SPDX-License-Identifier: Apache-2.0

"""Find a model: the packaged one, a folder, or a Hub id. Name its files in errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modeling_tmde import TmdeError
from tmde.embedding.stored_settings import stored_settings

DEFAULT_MODEL = "default"  # the name of the model that comes with the package
DEFAULT_FOLDER = Path(__file__).with_name("default")

_CONFIG_FILES = ("config.json", "adapter_config.json")
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_MAX_REASON = 500  # characters of an error of another library
# Errors whose message says what is wrong. Any other one is a failure inside of a library.
_ERRORS_WITH_A_REASON = (OSError, ValueError, RuntimeError, AssertionError)


@contextmanager
def reading(
    path: str | Path, kind: type[TmdeError] = TmdeError, prefix: bool = True
) -> Iterator[None]:
    """Name a file in the errors of libraries that read it: damaged files raise almost anything.

    Args:
        path: The file or folder that is read in the `with` block.
        kind: The error to raise.
        prefix: Also name the file in a ValueError or OSError, which may be about another file.

    Raises:
        TmdeError: Or another `kind`, in place of all errors except those of a missing package and
            of too little memory.
    """
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        is_out_of_memory = type(error).__name__ == "OutOfMemoryError"
        is_about_a_file = isinstance(error, (OSError, ValueError))
        if is_out_of_memory or (is_about_a_file and not prefix):
            raise
        reason = _reason_of(error)
        if not reason.startswith(str(path)):
            reason = f"{path}: {reason}"
        raise kind(reason) from error


def _reason_of(error: Exception) -> str:
    """Return what an error says, on one line, and a guess if that says little."""
    message = " ".join(str(error).split())[:_MAX_REASON]
    is_recursion = isinstance(error, RecursionError)
    if isinstance(error, _ERRORS_WITH_A_REASON) and not is_recursion:
        return message
    kind = type(error).__name__
    return f"damaged or cut off? Copy or download it again ({kind}: {message})"


def local_or_hub(path: str | os.PathLike[str]) -> str:
    """Return the folder or the Hub id of a model; for "default", the folder in the package.

    The errors for names that can be neither are clearer than those of the Hub client.

    Args:
        path: A folder of a saved model, a Hub id, or "default".

    Raises:
        FileNotFoundError: It is no folder of a saved model and cannot be a Hub id.
        TmdeError: A list of weight shards is damaged, or names a file outside of the folder.
    """
    if path == DEFAULT_MODEL:
        return str(DEFAULT_FOLDER)
    folder = Path(path).expanduser()
    if folder.is_dir():
        _check_model_folder(folder)
        return str(folder)
    if folder.exists() or not _HUB_ID.fullmatch(str(path)):
        raise FileNotFoundError(
            f"no folder {folder}; expected the folder of a saved model, or a Hub id such as "
            "'name/model'"
        )
    return str(path)


def _check_model_folder(folder: Path) -> None:
    """Check that a folder has a configuration and that its shards are files of the folder."""
    if not any((folder / name).is_file() for name in _CONFIG_FILES):
        raise FileNotFoundError(
            f"folder {folder} has no config.json; expected the folder of a saved model"
        )
    for index in folder.glob("*.index.json"):
        with reading(index):
            shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            for shard in shards:
                if Path(shard).name != shard:
                    raise TmdeError(
                        f"found the shard {shard!r}, expected a file of the same folder"
                    )


def default_prompt(
    name: str | os.PathLike[str], revision: str | None = None, token: str | bool | None = None
) -> str:
    """Return the prompt that a model carries for every text.

    It is the one of `prompts` in `config_sentence_transformers.json` that `default_prompt_name`
    names; "" without that file or name.

    Args:
        name: A folder or a Hub id.
        revision: The revision of the Hub repository.
        token: The token to read it with.

    Raises:
        TmdeError: There is no prompt of that name.
    """
    return stored_settings(name, revision, token).default_prompt
