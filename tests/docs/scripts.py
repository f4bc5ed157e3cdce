"""The scripts in docs/ as modules."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


@contextmanager
def script_module(name: str) -> Iterator[ModuleType]:
    """Import the script `docs/NAME.py`, which may import others there."""
    sys.path.insert(0, str(DOCS))
    loaded_before = set(sys.modules)
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(DOCS))
        for loaded in set(sys.modules) - loaded_before:
            file = getattr(sys.modules[loaded], "__file__", None)
            if file is not None and Path(file).parent == DOCS:
                del sys.modules[loaded]
