"""Find a model: a packaged one, a folder, or a Hub id. Name its files in errors."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from transformers import AutoModel, PreTrainedModel
from transformers.utils import logging as transformers_logging

from modeling_tmde import TmdeError
from modeling_tmde.inspection import is_ours
from tmde.embedding.hub_names import HubNameError, check_model_path, check_repository
from tmde.embedding.packaged_models import packaged_folder

_CONFIG_FILES = ("config.json", "adapter_config.json")
_RECIPE_FILE = "recipe.yaml"  # written when a run of training begins
_MAX_REASON = 500  # characters of an error of another library
# Errors whose message says what is wrong. Any other one is a failure inside of a library.
_ERRORS_WITH_A_REASON = (OSError, ValueError, RuntimeError, AssertionError)

_IS_QUIET: ContextVar[bool] = ContextVar("is_quiet", default=False)


@contextmanager
def errors_about(
    path: str | Path, kind: type[TmdeError] = TmdeError, prefix: bool = True
) -> Iterator[None]:
    """Name a file in the errors of libraries that read it in the `with` block.

    Damaged files raise almost anything.

    Args:
        path: The file or folder that is read in the `with` block.
        kind: The error to raise.
        prefix: Also name the file in a ValueError or OSError, which may be about another file.

    Raises:
        TmdeError: Or another `kind`, in place of all errors except those of a missing package and
            of too little memory, and that of an unknown argument.
    """
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        is_out_of_memory = type(error).__name__ == "OutOfMemoryError"
        is_about_a_file = isinstance(error, (OSError, ValueError))
        # A misspelt argument is no damage of a file.
        is_about_an_argument = "unexpected keyword argument" in str(error)
        if is_out_of_memory or is_about_an_argument or (is_about_a_file and not prefix):
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
    return f"damaged or truncated? Copy or download it again ({kind}: {message})"


def local_or_hub(
    path: str | os.PathLike[str],
    revision: str | None = None,
    token: str | bool | None = None,
) -> str:
    """Return the folder or the Hub id of a model; for a packaged one, the folder in the package.

    If the Hub is not reached, a model of the cache is returned by its folder there.

    Args:
        path: A folder of a saved model, a Hub id, or the name of a packaged model.
        revision: The revision of the Hub repository.
        token: The token to read it with.

    Raises:
        OSError: It is no folder of a saved model and cannot be a Hub id, or the Hub is not reached
            or has no such model.
        TmdeError: A list of weight shards is damaged, or names a file outside of the folder.
    """
    packaged = packaged_folder(path)
    if packaged is not None:
        return str(packaged)
    name = os.fspath(path)
    folder = Path(name).expanduser()
    if folder.is_dir():
        check_model_folder(folder)
        return str(folder)
    cached_folder = _cached_folder(name, revision)
    if cached_folder is None:
        check_model_path(name)
    try:
        check_repository(name, token=token)
    except HubNameError:
        if cached_folder is None:
            raise
        return str(cached_folder)
    return name


def _cached_folder(name: str, revision: str | None) -> Path | None:
    """Return the folder of a Hub model in the cache; None if it is not there."""
    for file_name in _CONFIG_FILES:
        try:
            path = try_to_load_from_cache(name, file_name, revision=revision)
        except HFValidationError:  # The name cannot be that of a repository.
            return None
        if isinstance(path, str):
            return Path(path).parent
    return None


def check_model_folder(folder: Path) -> None:
    """Check that a folder has a configuration and that its shards are files of the folder.

    Raises:
        FileNotFoundError: It has no configuration.
        TmdeError: A list of weight shards is damaged, or names a file outside of the folder.
    """
    if not any((folder / name).is_file() for name in _CONFIG_FILES):
        if (folder / _RECIPE_FILE).is_file():
            raise FileNotFoundError(
                f"{folder}: this run has no model yet; continue it with `tmde train ... "
                f"--resume -o {folder}`"
            )
        raise FileNotFoundError(f"{folder}: no config.json, expected a model folder")
    for index in folder.glob("*.index.json"):
        with errors_about(index):
            shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            for shard in shards:
                if Path(shard).name != shard:
                    raise TmdeError(
                        f"found the shard {shard!r}, expected a file in the same folder"
                    )


@contextmanager
def without_load_report() -> Iterator[None]:
    """Hide what transformers prints of weights in this thread: its report and its bar.

    The report is a table of missing and unexpected weights. Who loads a model here checks its
    weights, and a user cannot act on the rest of that table: the head of another task is
    unexpected, and the pooler of BERT, which no vector needs, is missing.
    """
    token = _IS_QUIET.set(True)
    try:
        yield
    finally:
        _IS_QUIET.reset(token)


def _is_shown(record: logging.LogRecord) -> bool:
    return not _IS_QUIET.get()


def _weight_bar(factory: Callable[..., Any], arguments: Any, options: dict[str, Any]) -> Any:
    """Make a bar of transformers, which stays hidden in a quiet load."""
    if _IS_QUIET.get():
        options = options | {"disable": True}
    if _hook_of_application is not None:
        return _hook_of_application(factory, arguments, options)
    return factory(*arguments, **options)


logging.getLogger("transformers.modeling_utils").addFilter(_is_shown)
_hook_of_application = transformers_logging.set_tqdm_hook(_weight_bar)


def load_encoder(name: str, **options: Any) -> PreTrainedModel:
    """Call `AutoModel.from_pretrained`, and check that the weights are complete.

    Args:
        name: A folder or a Hub id.
        options: As in transformers.

    Raises:
        TmdeError: The checkpoint lacks weights, which would be random numbers in the model. A
            pooler on top of an encoder of another package may be missing: no vector needs it.
    """
    with without_load_report():
        # A pair, because of `output_loading_info`; transformers annotates the model alone.
        loaded: Any = AutoModel.from_pretrained(name, output_loading_info=True, **options)
    model: PreTrainedModel
    model, loading = loaded
    missing = sorted(loading["missing_keys"])
    if not is_ours(model):
        missing = [key for key in missing if "pooler" not in key.split(".")]
    if missing:
        raise TmdeError(
            f"{name}: found a checkpoint without {len(missing)} of the weights of a "
            f"{type(model).__name__}, such as {missing[0]}; expected all of them"
        )
    return model
