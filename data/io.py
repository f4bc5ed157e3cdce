"""Files that are written whole or not at all, by one process at a time, and YAML with 3e-4 as a number."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from filelock import FileLock, Timeout
from huggingface_hub.utils.sha import sha_fileobj

from modeling_tmde import TmdeError


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of what is written to `path`: a hidden file beside it, or in it where only it is writable.

    Raises:
        ValueError: Another process holds it.
    """
    path = path.resolve()  # the folder that a link names
    inside = path.is_dir() and not os.access(path.parent, os.W_OK)
    lock = (path if inside else path.parent) / f".{path.name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(FileLock(lock, timeout=0))
        except Timeout:
            raise TmdeError(
                f"{path}: another process is writing to it; wait for it, or choose another"
            ) from None
        try:
            yield
        finally:
            with contextlib.suppress(PermissionError):  # Windows deletes no open file
                lock.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, renamed to `path` at the end and removed after an error."""
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(
                file.fileno()
            )  # or after a crash of the machine the name may be there without the content
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def digests(files: Iterable[Path], folder: Path) -> str:
    """SHA-256 of files, as `sha256sum` writes them down, by their names in the folder."""
    lines = []
    for path in sorted(files):
        with path.open("rb") as file:
            lines.append(f"{sha_fileobj(file).hex()}  {path.relative_to(folder).as_posix()}\n")
    return "".join(lines)


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
PlainLoader.add_implicit_resolver(
    _FLOAT, re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
