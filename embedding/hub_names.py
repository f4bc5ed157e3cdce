"""Names of models and datasets: a local path, or a repository on the Hub.

The commands check names before they import anything heavy, so this file imports nothing heavy.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Literal

_HUB_ID = re.compile(r"(?P<owner>\w[\w.-]*/)?\w[\w.-]*", re.ASCII)
_WEIGHT_FILES = ("*.safetensors", "*.bin")
_TIMEOUT = 10.0  # seconds in which the Hub must answer
# What a name without an owner may have meant.
_NAMES_OF_MODELS = (
    ". The packaged models are called 'default', 'tmde' and 'accurate'; a recipe such as 'small' "
    "has to be trained first with `tmde train`, and the folder of the run is the name of its model"
)


class HubNameError(FileNotFoundError):
    """A name that is neither a path nor a repository that can be read; the message says why."""


def is_possible_hub_id(name: str, needs_owner: bool = False) -> bool:
    """Return whether a name that is no path of this machine can be that of a repository.

    If the part before the slash is a folder here, the name is taken for a path that was mistyped.

    Args:
        name: The name.
        needs_owner: Whether the name must have the form `owner/name`. Only a few old repositories
            have no owner, and a data set of such a name is more often a mistyped file.
    """
    match = _HUB_ID.fullmatch(name)
    if match is None:
        return False
    if needs_owner and match["owner"] is None:
        return False
    first_part, slash, _ = name.partition("/")
    return not (slash and Path(first_part).is_dir())


def check_model_path(name: str) -> None:
    """Check that a name is a folder, or can be a Hub id.

    Raises:
        HubNameError: It is neither.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return
    if folder.exists():
        raise HubNameError(f"{name}: found a file, expected the folder of a saved model")
    if is_possible_hub_id(name):
        return
    advice = "expected the folder of a saved model, or a Hub id such as 'name/model'"
    parent = folder.parent
    if parent != Path() and parent.is_dir():
        advice = f"{advice}{_folders_in(parent)}"
    raise HubNameError(f"{name}: no such folder; {advice}")


def holds_weights(folder: Path) -> bool:
    """Return whether a folder holds the weights of a model, and not only a graph of one."""
    return any(any(folder.glob(pattern)) for pattern in _WEIGHT_FILES)


def _folders_in(parent: Path) -> str:
    """Return the names of up to five folders, as the end of a sentence."""
    names = sorted(path.name for path in parent.iterdir() if path.is_dir())
    if not names:
        return ""
    listed = ", ".join(names[:5])
    if len(names) > 5:
        listed += ", ..."
    return f" ({parent} holds {listed})"


def check_repository(
    repo_id: str,
    repo_type: Literal["model", "dataset"] = "model",
    token: str | bool | None = None,
) -> None:
    """Ask the Hub whether it has a repository, unless the name is a path of this machine.

    The libraries that load it would repeat a question without an answer for most of a minute. A
    repository that is there is not asked for again.

    Args:
        repo_id: The Hub id, such as `name/model`, or a path.
        repo_type: The kind of the repository.
        token: The token to ask with; None takes that of `hf auth login`.

    Raises:
        HubNameError: The Hub is not reached, or has no such repository.
    """
    if not Path(repo_id).expanduser().exists():
        _ask_hub(repo_id, repo_type, token)


@functools.cache  # It keeps no errors: a network comes back, and a repository gets made.
def _ask_hub(repo_id: str, repo_type: str, token: str | bool | None) -> None:
    """Raise HubNameError if the Hub has no such repository or is not reached."""
    reason = _reason_of_absence(repo_id, repo_type, token)
    if reason is not None:
        advice = _NAMES_OF_MODELS if repo_type == "model" and "/" not in repo_id else ""
        raise HubNameError(f"{repo_id}: no such folder, and {reason}{advice}")


def _reason_of_absence(repo_id: str, repo_type: str, token: str | bool | None) -> str | None:
    """Return why a repository cannot be loaded; None if it can, or if the Hub will say more."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    try:
        HfApi().repo_info(repo_id, repo_type=repo_type, timeout=_TIMEOUT, token=token)
    except OfflineModeIsEnabled:
        return _reason_offline(repo_type)
    except RepositoryNotFoundError:
        return (
            f"the Hub has no {repo_type} of this name that you may read (for a private one, run "
            "`hf auth login`)"
        )
    except HfHubHTTPError:
        # The Hub was reached. Whatever is wrong, the library that loads the files says it better.
        return None
    except (HTTPError, ConnectionError, TimeoutError) as error:
        return _reason_not_reached(repo_type, error)
    return None


def _reason_offline(repo_type: str) -> str | None:
    """Return why a name without a copy in the cache cannot be loaded offline."""
    if repo_type == "dataset":
        return None  # `datasets` has a cache of its own, and asks the Hub nothing.
    return "it is not in the cache, while HF_HUB_OFFLINE is set"


def _reason_not_reached(repo_type: str, error: Exception) -> str:
    """Return that the Hub is not reached, and why."""
    from huggingface_hub import constants

    lines = str(error).strip().splitlines()
    cause = lines[-1] if lines else type(error).__name__
    reason = f"{constants.ENDPOINT} is not reached ({cause})"
    if repo_type == "dataset":
        return f"{reason}; to use a copy in the cache, set HF_HUB_OFFLINE=1"
    return f"{reason}; it is not in the cache either"
