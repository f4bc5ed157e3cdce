"""From a path, a folder, a glob, a Moses prefix or a dict to the files of a corpus and the languages in them."""

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .checks import CorpusError, Words, bad_value, is_code

FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".tsv": "tsv", ".jsonl.gz": "jsonl", ".tsv.gz": "tsv"}
ADVICE = "Pass a .parquet, .jsonl or .tsv file, or Moses files by their prefix or as {'de': 'corpus.de', ...}."


@dataclass(frozen=True)
class FileSource:
    """The file, or the Moses files, that hold one table of rows.

    Args:
        format: `"parquet"`, `"jsonl"`, `"tsv"` or `"moses"`.
        paths: The files: one, or one per language.
        languages: The language of each file, for `"moses"`.
    """

    format: str
    paths: tuple[str, ...]
    languages: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The files in error messages."""
        return " + ".join(self.paths)

    def stamps(self) -> tuple[tuple[str, int, int], ...]:
        """Return path, size and time of change of each file: the cache's key, so that a changed file is read again."""
        stats = [os.stat(path) for path in self.paths]
        return tuple(
            (os.path.abspath(path), stat.st_size, stat.st_mtime_ns)
            for path, stat in zip(self.paths, stats, strict=True)
        )


def find_files(source: str | os.PathLike | Mapping[str, str | os.PathLike]) -> list[FileSource] | None:
    """Find the files of a source, in a fixed order.

    Args:
        source: A file, a folder (searched recursively for parquet, JSONL and TSV files), a glob, the prefix of Moses
            files, or Moses files by language.

    Returns:
        The files; None if `source` is a string that names nothing here but may be the id of a Hub dataset.

    Raises:
        CorpusError: A file is missing, nothing matches, or the format is unknown.
    """
    if isinstance(source, Mapping):
        paths = {language: os.fspath(source[language]) for language in sorted(source)}
        for language, path in paths.items():
            if not os.path.isfile(path):
                raise bad_value(path, None, language, Words("no such file"), "a text file", "Correct the path.")
        return [FileSource("moses", tuple(paths.values()), tuple(paths))]
    path = os.path.expanduser(os.fspath(source))
    if os.path.isdir(path):
        return _in_folder(path)
    if os.path.isfile(path):
        return [_one_file(path)]
    moses = _moses(path)
    if moses is not None:
        return [moses]
    if glob.has_magic(path):
        found = sorted(name for name in glob.glob(path, recursive=True) if os.path.isfile(name))
        if not found:
            raise bad_value(path, None, None, Words("no file that matches"), "at least one", "Correct the glob.")
        return [_one_file(name) for name in found]
    if _may_be_hub_id(path):
        return None
    raise bad_value(
        path, None, None, Words("no such file or folder, and no Moses files of that prefix"), "one", ADVICE
    )


def _may_be_hub_id(path: str) -> bool:
    """Return whether a path that does not exist reads as `owner/name` and not as a mistyped local path."""
    parts = path.split("/")
    return len(parts) == 2 and all(parts) and parts[0] not in (".", "..") and not os.path.isdir(parts[0])


def _format(path: str) -> str | None:
    name = os.path.basename(path).lower()
    return next((kind for suffix, kind in FORMATS.items() if name.endswith(suffix)), None)


def _one_file(path: str) -> FileSource:
    kind = _format(path)
    if kind is None:
        raise bad_value(path, None, None, Words("a file of unknown format"), "one of " + ", ".join(FORMATS), ADVICE)
    return FileSource(kind, (path,))


def _in_folder(folder: str) -> list[FileSource]:
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file() and _format(path.name))
    paths = [path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if not paths:
        expected = "files ending in " + ", ".join(FORMATS)
        raise bad_value(folder, None, None, Words("a folder without such files"), expected, ADVICE)
    return [_one_file(str(path)) for path in paths]


def _moses(prefix: str) -> FileSource | None:
    """Find the files `prefix.de`, `prefix.en`, ... (or `prefix.de.gz`); None if there is not one of them."""
    files: dict[str, str] = {}
    for path in sorted(glob.glob(glob.escape(prefix) + ".*")):
        code = path[len(prefix) + 1 :].removesuffix(".gz")
        if is_code(code) and os.path.isfile(path):
            files.setdefault(code, path)
    pair = prefix.rsplit(".", 1)[-1].split("-")
    if len(pair) == 2 and all(map(is_code, pair)) and files:
        for code in pair:
            if code not in files:
                path = f"{prefix}.{code}"
                raise bad_value(path, None, code, Words("no such file"), "a text file", f"Beside it: {files}.")
        files = {code: files[code] for code in sorted(pair)}
    if not files:
        return None
    if len(files) == 1:
        raise CorpusError(f"{prefix}: found one Moses file, {list(files.values())}, expected two or more. {ADVICE}")
    return FileSource("moses", tuple(files.values()), tuple(files))


def check_stated(languages: Sequence[str] | None, name: str) -> tuple[str, ...] | None:
    """Return a list of language codes sorted and without repeats.

    Raises:
        CorpusError: It is a bare string or holds something else than strings.
    """
    if languages is None:
        return None
    if isinstance(languages, str) or not all(isinstance(code, str) for code in languages):
        raise bad_value("load_parallel", None, name, languages, "a list of language codes", "Pass e.g. ['de', 'en'].")
    return tuple(sorted(set(languages)))
