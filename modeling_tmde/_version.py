# SPDX-License-Identifier: Apache-2.0

"""The version of this package, and of all that decides the numbers of a run."""

import os
import platform
from importlib import metadata
from typing import Any

__version__ = "0.1.0"

PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "numpy", "safetensors", "scikit-learn")
PACKAGES += ("scipy", "faiss", "faiss-cpu", "faiss-gpu")  # faiss has one name a channel and build


def environment() -> dict[str, Any]:
    """Return the versions of this package, of Python and of the packages that decide the numbers, and the machine."""
    import torch

    found = {each.name: each.version for each in metadata.distributions()}
    versions = {name: found[name] for name in PACKAGES if name in found}
    machine = {"processor": platform.machine(), "cpus": os.cpu_count(), "threads": torch.get_num_threads()}
    machine["gpus"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"tmde": __version__, "versions": versions, "python": platform.python_version(), "machine": machine}
