"""Former home of `modeling_tmde.cli.options.check_output`; it goes when its users have moved."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from modeling_tmde.cli.options import check_output


@contextmanager
def replacing(out: Path) -> Iterator[BinaryIO]:
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)


__all__ = ["check_output", "replacing"]
