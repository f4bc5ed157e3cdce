"""Find the files of a source, and read the rows of JSONL, TSV, text, Moses and parquet files."""

import glob
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, overload

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq

from .checks import CorpusError, Unquoted, bad_value, is_code

AnyDataset: TypeAlias = datasets.Dataset | datasets.IterableDataset
Row = dict[str, Any]
NumberedRows = Iterator[tuple[int, Row]]

FORMATS = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".tsv": "tsv",
    ".jsonl.gz": "jsonl",
    ".tsv.gz": "tsv",
}
ADVICE = (
    "Pass a .parquet, .jsonl or .tsv file, or Moses files by their prefix or as "
    "{'de': 'corpus.de', ...}."
)
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+", re.ASCII)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
CONTEXT_BYTES = 10  # quoted by an error on both sides of bytes that can't be decoded


# ---- Finding


@dataclass(frozen=True)
class FileSource:
    """The file, or the Moses files, that hold one table of rows.

    Attributes:
        format: `"parquet"`, `"jsonl"`, `"tsv"`, `"text"` or `"moses"`.
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


@overload
def find_files(source: Mapping[str, str | os.PathLike]) -> list[FileSource]: ...


@overload
def find_files(source: str | os.PathLike) -> list[FileSource] | None: ...


def find_files(
    source: str | os.PathLike | Mapping[str, str | os.PathLike],
) -> list[FileSource] | None:
    """Find the files of a source, in a fixed order.

    Args:
        source: A file, a folder (searched recursively for parquet, JSONL and TSV files), a glob,
            the prefix of Moses files, or Moses files by language.

    Returns:
        The files; None for a Hub dataset: a folder laid out like one, or a name of nothing here
        that may be its id.

    Raises:
        CorpusError: Nothing matches, or the format is unknown.
    """
    if isinstance(source, Mapping):
        if not source:
            raise _no_files_error("{}", "no file")
        return [_moses_source(source)]
    path = os.path.expanduser(os.fspath(source))
    moses_files = _moses_files(path)
    if moses_files:
        return [_moses_source(moses_files)]
    if is_hub_layout(path):
        return None
    paths = _matching_paths(path)
    if not paths:
        has_local_parent = os.path.isdir(path.split("/")[0])
        if HUB_ID.fullmatch(path) and not has_local_parent:
            return None
        raise _no_files_error(path, "no such file or folder, and no file that matches")
    return [_file_source(name) for name in paths]


def _file_source(path: str) -> FileSource:
    """Return a parquet, JSONL or TSV file.

    Raises:
        CorpusError: Its name says none of these formats.
    """
    format = format_of(path)
    if format is None:
        raise _no_files_error(path, "a file of unknown format")
    return FileSource(format, (path,))


def _moses_source(files: Mapping[str, str | os.PathLike]) -> FileSource:
    codes = sorted(files)
    paths = [os.fspath(files[code]) for code in codes]
    return FileSource("moses", tuple(paths), tuple(codes))


def _moses_files(prefix: str) -> dict[str, str]:
    """Return the files `prefix.de`, `prefix.en`, ... (or `prefix.de.gz`) by language.

    The result is empty if there are fewer than two, or a file of the name `prefix`.
    """
    if os.path.exists(prefix):
        return {}
    files: dict[str, str] = {}
    for path in sorted(glob.glob(glob.escape(prefix) + ".*")):
        code = path[len(prefix) + 1 :].removesuffix(".gz")
        if is_code(code):
            files.setdefault(code, path)
    return files if len(files) > 1 else {}


def is_hub_layout(path: str | os.PathLike) -> bool:
    """Return whether a local folder has a README.md whose header lists `configs`, as on the Hub."""
    readme = os.path.join(path, "README.md")
    if not os.path.isfile(readme):
        return False
    metadata = huggingface_hub.metadata_load(readme) or {}
    return bool(metadata.get("configs"))


def _matching_paths(path: str) -> list[str]:
    """Return the file of a name, the files of known formats in a folder, or those of a glob."""
    if os.path.isdir(path):
        within = glob.glob(os.path.join(glob.escape(path), "**"), recursive=True)
        paths = [name for name in within if format_of(name)]
    elif os.path.isfile(path):
        paths = [path]
    else:
        paths = glob.glob(path, recursive=True)
    return sorted(name for name in paths if os.path.isfile(name))


def format_of(path: str) -> str | None:
    """Return the format that the name of a file says; None if it says none."""
    for suffix, format in FORMATS.items():
        if path.lower().endswith(suffix):
            return format
    return None


def _no_files_error(place: str, description: str) -> CorpusError:
    expected = f"files ending in {', '.join(FORMATS)}, or two or more Moses files"
    return bad_value(place, None, None, Unquoted(description), expected, ADVICE)


# ---- Lines


def read_lines(
    path: str, place: str | None = None, name: str | None = None
) -> Iterator[tuple[int, str]]:
    r"""Yield line numbers, from 1, and lines without their ends.

    Only \n (or \r\n) ends a line: U+2028 and the like may stand inside a text.

    Args:
        path: A file, plain or gzipped.
        place: Its name in messages.
        name: The field that the lines hold, for messages.

    Raises:
        CorpusError: The file is damaged, or has bytes that are not UTF-8.
        OSError: There is no such file.
    """
    place = place or path
    number = 0
    open_file = gzip.open if path.endswith(".gz") else open
    try:
        with open_file(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                yield number, line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        bad_bytes = line[error.start : error.end]
        first = max(error.start - CONTEXT_BYTES, 0)
        context = line[first : error.end + CONTEXT_BYTES]
        description = Unquoted(f"the undecodable bytes {bad_bytes!r} in {context!r}")
        advice = (
            "Convert the file to UTF-8 (for example: iconv -f latin1 -t utf-8) or correct the row."
        )
        raise bad_value(place, number, name, description, "UTF-8", advice) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        description = Unquoted(f"a damaged file ({error})")
        raise bad_value(
            place, number + 1, name, description, "a text file", "Fetch it again."
        ) from error


# ---- Rows


def read_rows(
    source: FileSource, place: str | None = None, names: Sequence[str] = ()
) -> NumberedRows:
    """Yield the numbered rows of files of text, TSV, JSONL or Moses.

    Args:
        source: The file or files.
        place: Their name in messages.
        names: The fields of TSV; if there are none, the first line names them.

    Raises:
        CorpusError: A line is not JSON, or has too many or too few fields.
    """
    place = place or source.place
    if source.format == "moses":
        return _moses_rows(source)
    if source.format == "text":
        return _text_rows(source.paths[0], place)
    if source.format == "tsv":
        return _tsv_rows(source.paths[0], place, names)
    return _jsonl_rows(source.paths[0], place)


def _moses_rows(source: FileSource) -> NumberedRows:
    readers = []
    for path, language in zip(source.paths, source.languages, strict=True):
        readers.append(read_lines(path, path, language))
    for numbered_lines in zip(*readers, strict=True):
        number = numbered_lines[0][0]
        lines = [line for _, line in numbered_lines]
        yield number, dict(zip(source.languages, lines, strict=True))


def _text_rows(path: str, place: str) -> NumberedRows:
    for number, line in read_lines(path, place):
        yield number, {"text": line}


def _tsv_rows(path: str, place: str, names: Sequence[str]) -> NumberedRows:
    """Yield the rows of a TSV file, where a quote is just a character."""
    lines = read_lines(path, place)
    if not names:
        _, header = next(lines, (1, ""))
        names = header.split("\t")
        if len(set(names)) < len(names):
            advice = "Rename or take out columns."
            raise bad_value(place, 1, "header", names, "different names", advice)
    for number, line in lines:
        if not line.strip(" "):
            continue
        values = line.split("\t")
        if len(values) != len(names):
            description = Unquoted(f"{len(values)} field(s)")
            expected = f"{len(names)} ({', '.join(names)})"
            advice = "Correct the tabs of the row, or delete it."
            raise bad_value(place, number, None, description, expected, advice)
        yield number, dict(zip(names, values, strict=True))


def _jsonl_rows(path: str, place: str) -> NumberedRows:
    for number, line in read_lines(path, place):
        if not line.strip(" "):
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            row = Unquoted(f"invalid JSON ({error})")
        if not isinstance(row, dict):
            advice = "Correct or delete the line."
            raise bad_value(place, number, None, row, "a JSON object", advice)
        yield number, row


def blocks_of(rows: Iterable[tuple[int, Row]], size: int) -> Iterator[tuple[list[int], list[Row]]]:
    """Yield the numbers and the rows of numbered rows, `size` at a time."""
    iterator = iter(rows)
    while True:
        block = list(islice(iterator, size))
        if not block:
            return
        numbers = [number for number, _ in block]
        yield numbers, [row for _, row in block]


def column_of(rows: Iterable[Row], name: str) -> list:
    """Return the values of one field, and None for rows without it."""
    return [row.get(name) for row in rows]


def check_text(value: object, place: str, number: int, name: str) -> None:
    """Raise [`CorpusError`] if a value is not a text that UTF-8 can hold."""
    if isinstance(value, str):
        try:
            value.encode()
            return
        except UnicodeError:  # A lone surrogate has no code in UTF-8.
            pass
    raise bad_value(place, number, name, value, "a text", "Correct or delete the row.")


def open_parquet(path: str, streaming: bool = False) -> AnyDataset:
    """Open a parquet file by `datasets.load_dataset`.

    Raises:
        CorpusError: The file is damaged, or not parquet.
    """
    try:
        pq.read_metadata(path)
        return datasets.load_dataset(
            "parquet", data_files=[path], split="train", streaming=streaming
        )
    except (datasets.exceptions.DatasetGenerationError, pa.ArrowException, OSError) as error:
        reason = error.__cause__ or error
        description = Unquoted(f"a file that is not parquet, or damaged ({reason})")
        advice = "Fetch or write the file again."
        raise bad_value(path, None, None, description, "parquet", advice) from error
