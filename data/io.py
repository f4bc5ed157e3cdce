"""Write files as a whole or not at all, by one process at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout
from huggingface_hub.utils.sha import sha_fileobj

from modeling_tmde import TmdeError


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of what is written to `path`.

    The lock is a hidden file beside `path`, or in it if it is a folder and only that is writable.

    Raises:
        TmdeError: Another process holds the lock.
    """
    path = path.resolve()  # A link to a folder has the lock of the folder.
    lock_path = _lock_path(path)
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(FileLock(lock_path, timeout=0))
        except Timeout:
            raise TmdeError(
                f"{path}: another process is writing to it; wait for it, or choose another file"
            ) from None
        try:
            yield
        finally:
            with contextlib.suppress(PermissionError):  # Windows deletes no open file.
                lock_path.unlink(missing_ok=True)


def _lock_path(path: Path) -> Path:
    name = f".{path.name}.lock"
    if path.is_dir() and not os.access(path.parent, os.W_OK):
        return path / name
    return path.parent / name


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path`.

    The file is renamed to `path` at the end, and removed after an error.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        # Without this sync, a crash of the machine may leave the name without the content.
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write UTF-8 text to a temporary file beside `path`, then rename it."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def digests(files: Iterable[Path], folder: Path) -> str:
    """Return the SHA-256 of files, one a line as `sha256sum` writes them.

    Args:
        files: The files; the lines are in their order when sorted.
        folder: The folder that the names are relative to.
    """
    lines = []
    for path in sorted(files):
        name = path.relative_to(folder).as_posix()
        with path.open("rb") as file:
            digest = sha_fileobj(file).hex()
        lines.append(f"{digest}  {name}\n")
    return "".join(lines)
