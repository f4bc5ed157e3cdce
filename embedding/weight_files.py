# SPDX-License-Identifier: Apache-2.0

"""The files that hold the weights of a saved model.

The commands look for them before they import anything heavy, so this file imports nothing heavy.
"""

from __future__ import annotations

from pathlib import Path

_WEIGHT_FILES = ("*.safetensors", "*.bin")


def holds_weights(folder: Path) -> bool:
    """Return whether a folder holds the weights of a model, and not only a graph of one."""
    return any(any(folder.glob(pattern)) for pattern in _WEIGHT_FILES)
