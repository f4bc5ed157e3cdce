"""Results on disk by fingerprint: vectors by model and texts, so that a second evaluation takes seconds."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np


def default_cache_dir() -> Path:
    """`$TMDE_CACHE`, or `tmde` in the user's cache folder."""
    if os.environ.get("TMDE_CACHE"):
        return Path(os.environ["TMDE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tmde"


class ArrayCache:
    """Named arrays and a JSON note by two keys, one file `folder/<group>/<key>.npz` each.

    A file gets its name when it is complete; one that cannot be read (a disk that was full) is computed again.

    Args:
        folder: None keeps nothing.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = None if folder is None else Path(folder)

    def get(
        self, group: str, key: str, compute: Callable[[], tuple[dict[str, np.ndarray], dict]]
    ) -> tuple[dict[str, np.ndarray], dict]:
        """The arrays and the note of these keys: read, or computed and kept."""
        if self.folder is None:
            return compute()
        path = self.folder / group / f"{key}.npz"
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            return arrays, json.loads(str(arrays.pop("__note__")))
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
            pass
        arrays, note = compute()
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "wb") as file:
                np.savez(file, __note__=np.array(json.dumps(note)), **arrays)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        return arrays, note
