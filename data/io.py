"""Files that are written whole or not at all, by one process at a time, and YAML with 3e-4 as a number."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from filelock import FileLock, Timeout


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of what is written to `path`.

    Raises:
        ValueError: Another process holds it.
    """
    lock = path.with_name(f".{path.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(FileLock(lock, timeout=0))
        except Timeout:
            raise ValueError(f"{path}: another process is writing to it; wait for it, or choose another") from None
        stack.callback(lock.unlink, missing_ok=True)
        yield


@contextlib.contextmanager
def reading(path: str | Path, kind: type[ValueError] = ValueError, prefix: bool = True) -> Iterator[None]:
    """Name `path` in the errors of libraries that read it: damaged files raise almost anything.

    Args:
        prefix: Also name it before a ValueError or OSError, which may be of another file.

    Raises:
        ValueError: Or another `kind`, instead of any other error but those of a missing package or full memory.
    """
    try:
        yield
    except Exception as error:
        stated, reason = isinstance(error, (OSError, ValueError)), str(error).partition("\n")[0][:500]
        if isinstance(error, (ImportError, MemoryError)) or "OutOfMemory" in repr(error) or (stated and not prefix):
            raise
        if not stated:
            reason = f"damaged or cut off? Copy or download it again ({type(error).__name__}: {reason})"
        raise kind(reason if str(path) in reason else f"{path}: {reason}") from error


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, renamed to `path` at the end and removed after an error."""
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write UTF-8 text to a temporary file beside `path`, then rename it."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


class PlainLoader(yaml.SafeLoader):
    """YAML as recipes mean it, as in YAML 1.2: 3e-4 is a number, only `true` and `false` are switches, and `no` is
    Norwegian."""


_BOOL, _FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"
PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
PlainLoader.add_implicit_resolver(_BOOL, re.compile(r"(true|false)$", re.IGNORECASE), list("tTfF"))
PlainLoader.add_implicit_resolver(_FLOAT, re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789"))
