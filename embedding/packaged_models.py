"""The models that come with the package, by name."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_MODEL = "default"  # A bag of token vectors: fast.
ACCURATE_MODEL = "accurate"  # A transformer encoder: better, and slower.
TMDE_MODEL = "tmde"  # A four-layer T-MDE: faster, and its decoder reads vectors.

_PACKAGE = Path(__file__).parent
PACKAGED_FOLDERS = {
    DEFAULT_MODEL: _PACKAGE / "default",
    ACCURATE_MODEL: _PACKAGE / "accurate",
    TMDE_MODEL: _PACKAGE / "tmde",
}
# In bfloat16, their vectors have a cosine above 0.9999 with those in float32
# (docs/results/speed-and-size.md).
BFLOAT16_MODELS = {ACCURATE_MODEL, TMDE_MODEL}


def packaged_folder(name: str | os.PathLike[str]) -> Path | None:
    """Return the folder of a packaged model; None if the name is that of another model.

    A `Path` is always a folder of the user, as is `"./accurate"`.
    """
    return PACKAGED_FOLDERS.get(name) if isinstance(name, str) else None


def packaged_name(folder: str | os.PathLike[str]) -> str | None:
    """Return the name of the packaged model in a folder; None if it holds another model."""
    resolved = Path(folder).resolve()
    for name, packaged in PACKAGED_FOLDERS.items():
        if resolved == packaged.resolve():
            return name
    return None
