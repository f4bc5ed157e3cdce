"""Find the files of a source, and read rows of parquet, JSONL, TSV, text and Moses files and of datasets."""

import glob
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq

from .checks import Words, bad_value, is_code

AnyDataset = datasets.Dataset | datasets.IterableDataset
Row = dict[str, Any]

FORMATS = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".tsv": "tsv",
    ".jsonl.gz": "jsonl",
    ".tsv.gz": "tsv",
}
ADVICE = "Pass a .parquet, .jsonl or .tsv file, or Moses files by their prefix or as {'de': 'corpus.de', ...}."
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+", re.ASCII)


# ---- Finding


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


def find_files(
    source: str | os.PathLike | Mapping[str, str | os.PathLike],
) -> list[FileSource] | None:
    """Find the files of a source, in a fixed order.

    Args:
        source: A file, a folder (searched recursively for parquet, JSONL and TSV files), a glob, the prefix of Moses
            files, or Moses files by language.

    Returns:
        The files; None for a Hub dataset: a folder laid out like one, or what names nothing here but may be its id.

    Raises:
        CorpusError: Nothing matches, or the format is unknown.
    """
    path = "" if isinstance(source, Mapping) else os.path.expanduser(os.fspath(source))
    if by_language := source if isinstance(source, Mapping) else _moses_files(path):
        codes = sorted(by_language)
        return [
            FileSource("moses", tuple(os.fspath(by_language[code]) for code in codes), tuple(codes))
        ]
    if is_hub_layout(path):
        return None
    if os.path.isdir(path):
        within = glob.glob(os.path.join(glob.escape(path), "**"), recursive=True)
        found = [name for name in within if format_of(name)]
    else:
        found = [path] if os.path.isfile(path) else glob.glob(path, recursive=True)
    found = sorted(filter(os.path.isfile, found))
    if not found and HUB_ID.fullmatch(path) and not os.path.isdir(path.split("/")[0]):
        return None
    unknown = [name for name in found if format_of(name) is None]
    if unknown or not found:
        what = (
            "a file of unknown format"
            if unknown
            else "no such file or folder, and no file that matches"
        )
        expected = f"files ending in {', '.join(FORMATS)}, or two or more Moses files"
        raise bad_value((unknown or [path])[0], None, None, Words(what), expected, ADVICE)
    return [FileSource(format_of(name), (name,)) for name in found]


def format_of(path: str) -> str | None:
    """Return the format that the name of a file says."""
    return next((kind for suffix, kind in FORMATS.items() if path.lower().endswith(suffix)), None)


def _moses_files(prefix: str) -> dict[str, str]:
    """Return the files `prefix.de`, `prefix.en`, ... (or `prefix.de.gz`) by language, if there are two or more."""
    files: dict[str, str] = {}
    for path in sorted(glob.glob(glob.escape(prefix) + ".*")):
        code = path[len(prefix) + 1 :].removesuffix(".gz")
        if is_code(code):
            files.setdefault(code, path)
    return files if len(files) > 1 and not os.path.exists(prefix) else {}


def is_hub_layout(path: str | os.PathLike) -> bool:
    """Return whether a local folder has a README.md whose front matter lists `configs`, as on the Hub."""
    readme = os.path.join(path, "README.md")
    return os.path.isfile(readme) and bool(
        (huggingface_hub.metadata_load(readme) or {}).get("configs")
    )


# ---- Lines


def read_lines(
    path: str, place: str | None = None, name: str | None = None
) -> Iterator[tuple[int, str]]:
    """Yield line numbers, from 1, and lines without their ends. Only \\n (or \\r\\n) ends a line: U+2028 and the like
    may stand inside a text.

    Args:
        path: A file, plain or gzipped.
        place: Its name in messages.
        name: The field that the lines hold, for messages.

    Raises:
        CorpusError: The file is damaged, or has bytes that are not UTF-8.
        OSError: There is no such file.
    """
    place, number = place or path, 0
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                yield number, line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        near = line[max(error.start - 10, 0) : error.end + 10]
        found = Words(f"the undecodable bytes {line[error.start : error.end]!r} in {near!r}")
        advice = (
            "Convert the file to UTF-8 (for example: iconv -f latin1 -t utf-8) or correct the row."
        )
        raise bad_value(place, number, name, found, "UTF-8", advice) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        found = Words(f"a damaged file ({error})")
        raise bad_value(place, number + 1, name, found, "a text file", "Fetch it again.") from error


def read_rows(
    source: FileSource, place: str | None = None, names: Sequence[str] = ()
) -> Iterator[tuple[int, Row]]:
    """Yield the numbered rows of files of text, TSV (where a quote is just a character), JSONL or Moses.

    Args:
        names: The fields of TSV; none of them: the first line names them.

    Raises:
        CorpusError: A line is not JSON, or has too many or too few fields.
    """
    if source.format == "moses":
        files = [
            read_lines(path, path, name)
            for path, name in zip(source.paths, source.languages, strict=True)
        ]
        for lines in zip(*files, strict=True):
            yield lines[0][0], dict(zip(source.languages, (line for _, line in lines), strict=True))
        return
    place = place or source.place
    lines = read_lines(source.paths[0], place)
    if source.format == "tsv" and not names:
        names = next(lines, (1, ""))[1].split("\t")
        if len(set(names)) < len(names):
            raise bad_value(
                place, 1, "header", names, "different names", "Rename or take out columns."
            )
    for number, line in lines:
        if source.format == "text":
            yield number, {"text": line}
        elif source.format == "tsv" and line.strip(" "):
            values = line.split("\t")
            if len(values) != len(names):
                found, expected = (
                    Words(f"{len(values)} field(s)"),
                    f"{len(names)} ({', '.join(names)})",
                )
                raise bad_value(
                    place,
                    number,
                    None,
                    found,
                    expected,
                    "Correct the tabs of the row, or delete it.",
                )
            yield number, dict(zip(names, values, strict=True))
        elif line.strip(" "):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                row = Words(f"invalid JSON ({error})")
            if not isinstance(row, dict):
                raise bad_value(
                    place, number, None, row, "a JSON object", "Correct or delete the line."
                )
            yield number, row


def blocks_of(rows: Iterable[tuple[int, Row]], size: int) -> Iterator[tuple[list[int], list[Row]]]:
    """Yield numbered rows, `size` at a time."""
    rows = iter(rows)
    while block := list(islice(rows, size)):
        yield [number for number, _ in block], [row for _, row in block]


def check_text(value: object, place: str, number: int, name: str) -> None:
    """Raise [`CorpusError`] if a value is no text that UTF-8 can hold."""
    try:
        value.encode()
    except (AttributeError, UnicodeError):  # of a lone surrogate
        raise bad_value(
            place, number, name, value, "a text", "Correct or delete the row."
        ) from None


def open_parquet(path: str, streaming: bool = False) -> AnyDataset:
    """Open a parquet file by `datasets.load_dataset`, or raise [`CorpusError`] where it is damaged."""
    try:
        pq.read_metadata(path)
        return datasets.load_dataset(
            "parquet", data_files=[path], split="train", streaming=streaming
        )
    except (datasets.exceptions.DatasetGenerationError, pa.ArrowException, OSError) as error:
        found = Words(f"a file that is not parquet, or damaged ({error.__cause__ or error})")
        raise bad_value(
            path, None, None, found, "parquet", "Fetch or write the file again."
        ) from error
