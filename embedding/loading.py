# SPDX-License-Identifier: Apache-2.0

"""Where a model is: the packaged one, a folder, or a Hub id; and errors that name it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers.utils import cached_file

from modeling_tmde import TmdeError

DEFAULT_MODEL = "default"  # the name of the model that comes with the package
DEFAULT_FOLDER = Path(__file__).with_name("default")


@contextmanager
def reading(
    path: str | Path, kind: type[TmdeError] = TmdeError, prefix: bool = True
) -> Iterator[None]:
    """Name `path` in the errors of libraries that read it: damaged files raise almost anything.

    Args:
        prefix: Also name it before a ValueError or OSError, which may be of another file.

    Raises:
        ValueError: Or another `kind`, in place of all errors but those of a missing package and of too little memory.
    """
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        name, reason = type(error).__name__, " ".join(str(error).split())[:500]
        if name == "OutOfMemoryError" or (isinstance(error, (OSError, ValueError)) and not prefix):
            raise
        if name == "RecursionError" or not isinstance(
            error, (OSError, ValueError, RuntimeError, AssertionError)
        ):
            reason = f"damaged or cut off? Copy or download it again ({name}: {reason})"
        raise kind(reason if reason.startswith(str(path)) else f"{path}: {reason}") from error


def local_or_hub(path: str | os.PathLike) -> str:
    """The folder or the Hub id, with a better error for what can be neither than the Hub client's; of `default` the
    folder in the package.

    Raises:
        FileNotFoundError: It is no folder of a saved model and cannot be a Hub id.
        ValueError: A list of weight shards is damaged, or names a file outside of the folder.
    """
    if path == DEFAULT_MODEL:
        return str(DEFAULT_FOLDER)
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise FileNotFoundError(
                f"folder {folder} has no config.json; expected the folder of a saved model"
            )
        for index in folder.glob("*.index.json"):
            with reading(index):
                for shard in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values():
                    if Path(shard).name != shard:
                        raise TmdeError(f"found the shard {shard!r}, expected a file of its folder")
        return str(folder)
    if folder.exists() or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", str(path)):
        raise FileNotFoundError(
            f"no folder {folder}; expected a saved model's folder or a Hub id, 'name/model'"
        )
    return str(path)


def default_prompt(name: str | os.PathLike, **hub: str | bool | None) -> str:
    """The prompt that a model carries for every text: in its `config_sentence_transformers.json`, the one of `prompts`
    that `default_prompt_name` names. Empty without that file or name.

    Args:
        name: Folder or Hub id.
        hub: `revision` and `token`, of a Hub id.

    Raises:
        ValueError: There is no prompt of that name.
    """
    optional = {
        f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "connection_errors")
    }
    path = cached_file(
        os.path.expanduser(name), "config_sentence_transformers.json", **optional, **hub
    )
    content = {} if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
    prompts, chosen = content.get("prompts") or {}, content.get("default_prompt_name")
    if chosen is not None and chosen not in prompts:
        raise TmdeError(
            f"{path}: default_prompt_name is {chosen!r}, expected one of {sorted(prompts)}"
        )
    return prompts.get(chosen, "")
