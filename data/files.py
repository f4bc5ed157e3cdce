"""Find the files of a source, and read their rows: JSONL, CSV, TSV, TMX, text, Moses, parquet."""

import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, overload

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq

from tmde.embedding.hub_names import is_possible_hub_id

from .checks import CorpusError, Unquoted, bad_value
from .lines import NumberedRows as NumberedRows
from .lines import Row as Row
from .lines import read_lines as read_lines
from .locales import names_a_language
from .tables import open_table
from .translation_memories import unit_rows

AnyDataset: TypeAlias = datasets.Dataset | datasets.IterableDataset

TableFormat = Literal["jsonl", "csv", "tsv", "parquet"]

TABLE_FORMATS: dict[str, TableFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
}
# Such a file of rows is read if the user names it. In folders, it is often one of settings.
SETTINGS_SUFFIX = ".json"
_PLAIN_FORMATS: dict[str, str] = {**TABLE_FORMATS, ".tmx": "tmx"}
_GZIPPED_FORMATS = {
    f"{suffix}.gz": format for suffix, format in _PLAIN_FORMATS.items() if format != "parquet"
}
FORMATS = _PLAIN_FORMATS | _GZIPPED_FORMATS
# A file of this suffix is read if the user names it. In folders, such files are often settings.
NAMED_FORMATS = FORMATS | {SETTINGS_SUFFIX: "jsonl", f"{SETTINGS_SUFFIX}.gz": "jsonl"}
EXPECTED_FILES = (
    "files ending in .parquet, .jsonl, .ndjson, .csv, .tsv, .tab or .tmx (all but parquet also "
    "gzipped, .gz), or two or more Moses files"
)
ADVICE = (
    "Pass a file of these, a folder of them, or Moses files by their prefix or as "
    "{'de': 'corpus.de', ...}."
)
ARRAY_ADVICE = (
    "Write the objects of the array one a line (jq -c '.[]' in.json > out.jsonl, or in pandas: "
    "to_json(..., orient='records', lines=True))."
)


# ---- Finding


@dataclass(frozen=True)
class FileSource:
    """The file, or the Moses files, that hold one table of rows.

    Attributes:
        format: `"parquet"`, `"jsonl"`, `"csv"`, `"tsv"`, `"tmx"`, `"text"` or `"moses"`.
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
        source: A file, a folder (searched recursively for parquet, JSONL, CSV, TSV and TMX files),
            a glob, the prefix of Moses files, or Moses files by language.

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
        if is_possible_hub_id(path, needs_owner=True):
            return None
        raise _no_files_error(path, "no such file or folder, and no file that matches")
    return [_file_source(name) for name in paths]


def _file_source(path: str) -> FileSource:
    """Return a file of one of the `NAMED_FORMATS`.

    Raises:
        CorpusError: Its name says none of them.
    """
    format = named_format_of(path)
    if format is None:
        raise _no_files_error(path, "a file of unknown format")
    return FileSource(format, (path,))


def _moses_source(files: Mapping[str, str | os.PathLike]) -> FileSource:
    codes = sorted(files)
    paths = [os.fspath(files[code]) for code in codes]
    return FileSource("moses", tuple(paths), tuple(codes))


def _moses_files(prefix: str) -> dict[str, str]:
    """Return the files `prefix.de`, `prefix.en`, ... by language.

    Their names may also end in `.de.gz`, `.de.txt` or `.de.txt.gz`.

    The result is empty if there are fewer than two, or a file of the name `prefix`.
    """
    if os.path.exists(prefix):
        return {}
    files: dict[str, str] = {}
    for path in sorted(glob.glob(glob.escape(prefix) + ".*")):
        code = path[len(prefix) + 1 :].removesuffix(".gz").removesuffix(".txt")
        if names_a_language(code):
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
        paths = [name for name in _files_in_folder(path) if format_of(name)]
    elif os.path.isfile(path):
        return [path]
    else:
        paths = glob.glob(path, recursive=True)
    return _different_files(name for name in paths if os.path.isfile(name))


def _files_in_folder(folder: str) -> Iterator[str]:
    """Yield the files in a folder and its subfolders, without hidden ones.

    Links to folders are followed, but no folder is entered twice: a link may lead back to the
    folder itself.
    """
    entered_folders = set()
    for parent, subfolders, names in os.walk(folder, followlinks=True):
        real_parent = os.path.realpath(parent)
        if real_parent in entered_folders:
            subfolders.clear()
            continue
        entered_folders.add(real_parent)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in names:
            if not name.startswith("."):
                yield os.path.join(parent, name)


def _different_files(paths: Iterable[str]) -> list[str]:
    """Return paths, sorted; of several ones to one file, the shortest."""
    path_of_file: dict[str, str] = {}
    for path in sorted(sorted(paths), key=len):
        path_of_file.setdefault(os.path.realpath(path), path)
    return sorted(path_of_file.values())


def format_of(path: str) -> str | None:
    """Return the format that the name of a file in a folder says; None if it says none."""
    return _format_by_suffix(path, FORMATS)


def named_format_of(path: str) -> str | None:
    """Return the format of a file that the user names, which may also be .json; None if unknown."""
    return _format_by_suffix(path, NAMED_FORMATS)


def _format_by_suffix(path: str, formats: Mapping[str, str]) -> str | None:
    for suffix, format in formats.items():
        if path.lower().endswith(suffix):
            return format
    return None


def _no_files_error(place: str, description: str) -> CorpusError:
    return bad_value(place, None, None, Unquoted(description), EXPECTED_FILES, ADVICE)


# ---- Rows


def read_rows(
    source: FileSource, place: str | None = None, names: Sequence[str] = ()
) -> NumberedRows:
    """Yield the numbered rows of files of text, CSV, TSV, JSONL, TMX or Moses.

    Args:
        source: The file or files.
        place: Their name in messages.
        names: The fields of CSV or TSV; if there are none, the first line names them.

    Raises:
        CorpusError: A line is not JSON, a row has too many or too few fields, or a file is no TMX.
    """
    place = place or source.place
    if source.format == "moses":
        return _moses_rows(source)
    if source.format == "text":
        return _text_rows(source.paths[0], place)
    if source.format == "csv":
        return open_table(source.paths[0], "csv", place, names or None)
    if source.format == "tsv":
        return open_table(source.paths[0], "tsv", place, names or None)
    if source.format == "tmx":
        return unit_rows(source.paths[0], place)
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
            if _begins_an_array(row, line):
                row = Unquoted("an array")
                advice = ARRAY_ADVICE
            raise bad_value(place, number, None, row, "a JSON object", advice)
        yield number, row


def _begins_an_array(row: object, line: str) -> bool:
    """Return whether a line, and what it holds if it is JSON, begins an array of objects."""
    if isinstance(row, list):
        return bool(row) and isinstance(row[0], dict)
    return line.lstrip().startswith("[")


def blocks_of(rows: Iterable[tuple[int, Row]], size: int) -> Iterator[tuple[list[int], list[Row]]]:
    """Yield the numbers and the rows of numbered rows, `size` at a time."""
    numbers: list[int] = []
    block: list[Row] = []
    for number, row in rows:
        numbers.append(number)
        block.append(row)
        if len(block) == size:
            yield numbers, block
            numbers = []
            block = []
    if block:
        yield numbers, block


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
