"""Find the files of a source, and read their rows: parquet, JSONL and TSV, as files, folders or Hub datasets."""

import glob
import gzip
import json
import logging
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import datasets
import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .checks import CorpusError, Words, bad_value, check_languages, is_code

logger = logging.getLogger("modeling_tmde.data")

AnyDataset = datasets.Dataset | datasets.IterableDataset
Block = tuple[Sequence[int], dict[str, list]]  # row numbers, as an editor counts lines, and values by column

FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".tsv": "tsv", ".jsonl.gz": "jsonl", ".tsv.gz": "tsv"}
ADVICE = "Pass a .parquet, .jsonl or .tsv file, or Moses files by their prefix or as {'de': 'corpus.de', ...}."
BLOCK_ROWS = 1000
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


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
        files = sorted(file for file in Path(path).rglob("*") if file.is_file() and format_of(file.name))
        files = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
        if not files:
            expected = "files ending in " + ", ".join(FORMATS)
            raise bad_value(path, None, None, Words("a folder without such files"), expected, ADVICE)
        return [_one_file(str(file)) for file in files]
    if os.path.isfile(path):
        return [_one_file(path)]
    moses = _find_moses(path)
    if moses is not None:
        return [moses]
    if glob.has_magic(path):
        found = sorted(name for name in glob.glob(path, recursive=True) if os.path.isfile(name))
        if not found:
            raise bad_value(path, None, None, Words("no file that matches"), "at least one", "Correct the glob.")
        return [_one_file(name) for name in found]
    owner, _, name = path.partition("/")
    if name and "/" not in name and owner not in ("", ".", "..") and not os.path.isdir(owner):
        return None
    found = Words("no such file or folder, and no Moses files of that prefix")
    raise bad_value(path, None, None, found, "one", ADVICE)


def format_of(path: str) -> str | None:
    """Return the format that the name of a file says."""
    return next((kind for suffix, kind in FORMATS.items() if path.lower().endswith(suffix)), None)


def _one_file(path: str) -> FileSource:
    kind = format_of(path)
    if kind is None:
        raise bad_value(path, None, None, Words("a file of unknown format"), "one of " + ", ".join(FORMATS), ADVICE)
    return FileSource(kind, (path,))


def _find_moses(prefix: str) -> FileSource | None:
    """Find the files `prefix.de`, `prefix.en`, ... (or `prefix.de.gz`); None if there is not one of them."""
    files: dict[str, str] = {}
    for path in sorted(glob.glob(glob.escape(prefix) + ".*")):
        code = path[len(prefix) + 1 :].removesuffix(".gz")
        if is_code(code) and os.path.isfile(path):
            files.setdefault(code, path)
    pair = prefix.rsplit(".", 1)[-1].split("-")
    if len(pair) == 2 and all(map(is_code, pair)) and files:  # europarl.de-en: exactly these two
        for code in pair:
            if code not in files:
                path = f"{prefix}.{code}"
                raise bad_value(path, None, code, Words("no such file"), "a text file", f"Beside it: {files}.")
        files = {code: files[code] for code in sorted(pair)}
    if len(files) == 1:
        raise CorpusError(f"{prefix}: found one Moses file, {list(files.values())}, expected two or more. {ADVICE}")
    return FileSource("moses", tuple(files.values()), tuple(files)) if files else None


def is_hub_layout(path: str | os.PathLike) -> bool:
    """Return whether a local folder has a README.md whose front matter lists `configs`, as on the Hub."""
    readme = os.path.join(path, "README.md")
    return os.path.isfile(readme) and bool((huggingface_hub.metadata_load(readme) or {}).get("configs"))


def select_configs(
    names: Sequence[str], languages: Sequence[str] | None, pivot_languages: Sequence[str] | None, place: str
) -> list[str]:
    """Return the configs to load, given the names of all of a dataset's.

    Returns:
        The pairs, such as `de-en`, of two `languages` (None: any) of which at least one is in `pivot_languages`
        (None: any); or the only config, if there is one that is not a pair.

    Raises:
        CorpusError: A language is in no pair, no pair fits, or there are several configs that are no pairs.
    """
    pairs = {name: tuple(name.split("-")) for name in names}
    pairs = {name: pair for name, pair in pairs.items() if len(pair) == 2 and all(map(is_code, pair))}
    if not pairs and len(names) == 1:
        return list(names)
    if not pairs:
        advice = "Pass config='...' with the one (or a list of those) to load."
        raise bad_value(place, None, "config", Words(f"the configs {sorted(names)}"), "pairs such as 'de-en'", advice)
    there = set(chain.from_iterable(pairs.values()))
    check_languages([*(languages or ()), *(pivot_languages or ())], there, place)
    wanted, pivots = set(languages or there), set(pivot_languages or there)
    chosen = [name for name, pair in pairs.items() if wanted.issuperset(pair) and pivots.intersection(pair)]
    if not chosen:
        expected = f"a pair of {sorted(wanted)} with a pivot of {sorted(pivots)}"
        advice = "Change the languages or the pivot languages."
        raise bad_value(place, None, "config", Words(f"the configs {sorted(names)}"), expected, advice)
    return sorted(chosen)


# ---- Lines


def read_lines(source: str | BinaryIO, place: str | None = None, name: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield line numbers, from 1, and lines without their ends. Only \\n (or \\r\\n) ends a line: U+2028 and the like
    may stand inside a text.

    Args:
        source: A file, plain or gzipped, or an open binary stream.
        place: Its name in messages.
        name: The field that the lines hold, for messages.

    Raises:
        CorpusError: Bytes that are not UTF-8, or a damaged gzip file.
    """
    place, number = place or str(source), 0
    opened = (gzip.open if str(source).endswith(".gz") else open)(source, "rb") if isinstance(source, str) else source
    try:
        for number, line in enumerate(opened, 1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.endswith(b"\n"):
                line = line[: -2 if line.endswith(b"\r\n") else -1]
            yield number, decode(line, place, number, name)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        found = Words(f"a damaged gzip file ({error})")
        raise bad_value(place, number + 1, None, found, "gzip", "Fetch it again.") from error
    except OSError as error:
        raise CorpusError(f"{place}: {error.strerror}") from None
    finally:
        if isinstance(source, str):
            opened.close()


def decode(line: bytes, place: str, number: int, name: str | None = None) -> str:
    """Return the text of a line, or raise [`CorpusError`] where its bytes are not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        near = line[max(error.start - 10, 0) : error.end + 10]
        found = Words(f"the undecodable bytes {line[error.start : error.end]!r} in {near!r}")
        advice = "Convert the file to UTF-8 (for example: iconv -f latin1 -t utf-8) or correct the row."
        raise bad_value(place, number, name, found, "UTF-8", advice) from None


def count_lines(path: str) -> int:
    """Return the number of lines as an editor counts them: the last may lack its end."""
    count, last = 0, b"\n"
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        try:
            while chunk := file.read(1 << 20):
                count, last = count + chunk.count(b"\n"), chunk
        except (EOFError, gzip.BadGzipFile, zlib.error):
            deque(read_lines(path), maxlen=0)  # names the place
    return count + (not last.endswith(b"\n"))


def count_rows(source: FileSource) -> int:
    """Return how many rows a source holds, bad ones included."""
    if source.format == "parquet":
        return pq.read_metadata(source.paths[0]).num_rows
    return count_lines(source.paths[0]) - (source.format == "tsv")


def parse_json(line: str, place: str, number: int) -> dict:
    """Return the object of a line of JSONL, or raise [`CorpusError`]."""
    advice = "Correct or delete the line."
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise bad_value(
            place, number, None, Words(f"invalid JSON ({error})"), "one JSON object a line", advice
        ) from error
    if not isinstance(row, dict):
        raise bad_value(place, number, None, row, "a JSON object", advice)
    return row


def check_text(value: object, place: str, number: int, name: str, expected: str = "a text") -> None:
    """Raise [`CorpusError`] if a value of JSON is no text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise bad_value(place, number, name, value, expected, "Correct the row.")
    if not value.isascii() and LONE_SURROGATE.search(value):
        raise bad_value(place, number, name, value, "Unicode without lone surrogates", "Correct or delete the row.")


def split_fields(line: str, names: Sequence[str], place: str, number: int) -> list[str]:
    """Return the fields of a line of TSV, where a quote is just a character, or raise [`CorpusError`]."""
    values = line.split("\t")
    if len(values) != len(names):
        found, expected = Words(f"{len(values)} field(s)"), f"{len(names)} ({', '.join(names)})"
        raise bad_value(place, number, None, found, expected, "Correct the tabs of the row, or delete it.")
    return values


# ---- Tables


def read_blocks(path: str, size: int = BLOCK_ROWS) -> Iterator[Block]:
    """Yield the rows of a parquet, JSONL or TSV file in blocks, with their numbers (in a TSV file from 2: its header
    is line 1).

    Raises:
        CorpusError: The file can't be read, a line is not JSON or has other fields than the first.
    """
    if format_of(path) == "parquet":
        yield from _dataset_blocks(open_parquet(path, streaming=True), path, size)
        return
    lines = ((number, line) for number, line in read_lines(path) if line.strip(" "))
    names: list[str] = []
    if format_of(path) == "tsv":
        names = next(lines, (1, ""))[1].split("\t")
        if len(set(names)) < len(names):
            raise bad_value(path, 1, "header", names, "different names", "Rename or take out columns.")
    while block := list(islice(lines, size)):
        if format_of(path) == "tsv":
            rows = [split_fields(line, names, path, number) for number, line in block]
            yield [number for number, _ in block], dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
            continue
        rows = [parse_json(line, path, number) for number, line in block]
        names = names or list(rows[0])
        for (number, _), row in zip(block, rows, strict=True):
            if set(row) != set(names):
                found, expected = Words(f"the fields {', '.join(row)}"), f"those of the first row: {', '.join(names)}"
                raise bad_value(path, number, None, found, expected, "Give every row the same fields.")
        yield [number for number, _ in block], {name: [row[name] for row in rows] for name in names}


def open_parquet(path: str, streaming: bool = False, **options: object) -> AnyDataset:
    """Open a parquet file by `datasets.load_dataset`, or raise [`CorpusError`] where it is damaged."""
    try:
        files = {"train": [path]}
        return datasets.load_dataset("parquet", data_files=files, split="train", streaming=streaming, **options)
    except (datasets.exceptions.DatasetGenerationError, pa.ArrowInvalid, OSError) as error:
        found = Words(f"no parquet file ({error.__cause__ or error})")
        raise bad_value(path, None, None, found, "parquet", "Fetch or write the file again.") from error


def _dataset_blocks(dataset: AnyDataset, place: str, size: int) -> Iterator[Block]:
    done = 0
    try:
        for table in dataset.with_format("arrow").iter(size):
            numbers = range(done + 1, done + 1 + table.num_rows)
            yield (
                numbers,
                {name: column_values(table.column(name), place, numbers, name) for name in table.column_names},
            )
            done += table.num_rows
    except pa.ArrowInvalid as error:  # a stream meets a damaged file only here
        found = Words(f"a file that can't be read ({error})")
        raise bad_value(place, done + 1, None, found, "parquet", "Fetch the file again.") from error


def column_values(column: pa.ChunkedArray, place: str, numbers: Sequence[int], name: str) -> list:
    """Return the values of a column, or raise [`CorpusError`] where the bytes of a string are not UTF-8."""
    try:
        return column.to_pylist()
    except UnicodeDecodeError:  # parquet readers take the bytes of a string column on trust
        raw = column.cast(pa.binary()).to_pylist()
        return [decode(value or b"", place, number, name) for number, value in zip(numbers, raw, strict=True)]


@dataclass(frozen=True)
class Table:
    """Rows with named columns.

    Args:
        place: Its name in messages.
        blocks: Reads the rows in blocks, from the first, each time it is called.
        split: The split that all its rows belong to, if the source says so.
        class_names: By column, the names of its class numbers.
    """

    place: str
    blocks: Callable[[], Iterator[Block]]
    split: str | None = None
    class_names: dict[str, list[str]] = field(default_factory=dict)


def open_table(source: str | AnyDataset, place: str | None = None, split: str | None = None) -> Table:
    """Open a parquet, JSONL or TSV file (the latter two also gzipped), or a dataset, map-style or streamed."""
    if isinstance(source, str):
        return Table(place or source, lambda: read_blocks(source), split)
    names = {
        name: kind.names for name, kind in (source.features or {}).items() if isinstance(kind, datasets.ClassLabel)
    }
    return Table(place or "dataset", lambda: _dataset_blocks(source, place or "dataset", BLOCK_ROWS), split, names)


def read_columns(
    table: Table,
    texts: Sequence[str],
    others: Sequence[str] = (),
    optional: Sequence[str] = (),
    empty_texts: bool = False,
    head: tuple[int, int] | None = None,
) -> tuple[list[int], dict[str, list]]:
    """Read columns of a table.

    Args:
        texts: Columns that must hold texts.
        others: Columns that must be there.
        optional: Columns that are read where they are there.
        empty_texts: Keep empty texts, with a warning that counts them, rather than raise.
        head: (n, seed): only the first n rows of a seeded shuffle of the table, drawn in one pass.

    Returns:
        The rows' numbers, and lists of values by column.

    Raises:
        CorpusError: There are no rows, a column is missing, or a text is not one or is empty.
    """
    numbers: list[int] = []
    columns: dict[str, list] = {}
    for block_numbers, block in table.blocks() if head is None else _shuffled_head(table.blocks(), *head):
        for name in (*texts, *others):
            if name not in block:
                found = Words(f"the columns {', '.join(block)}")
                raise bad_value(table.place, None, name, found, f"a column {name!r}", "Rename or add the column.")
        for name in (*texts, *others, *(name for name in optional if name in block)):
            columns.setdefault(name, []).extend(block[name])
        numbers.extend(block_numbers)
    if not numbers:
        raise bad_value(table.place, None, None, Words("no rows"), "some", "Fetch or write the file again.")
    for name in texts:
        empty = []
        for number, text in zip(numbers, columns[name], strict=True):
            if isinstance(text, str) and not text.strip() and empty_texts:
                empty.append(number)
            elif not isinstance(text, str) or not text.strip():
                advice = "Correct the row, or delete it (in every language, if the languages are parallel)."
                raise bad_value(table.place, number, name, text, "a text", advice)
        if empty:
            logger.warning("%s: %d empty texts in '%s', first in row %d", table.place, len(empty), name, empty[0])
    return numbers, columns


def _shuffled_head(blocks: Iterable[Block], size: int, seed: int) -> Iterator[Block]:
    """Yield the first `size` rows of a seeded shuffle: every row gets a random number, and the smallest ones stay."""
    rng = np.random.default_rng(seed)
    keys, numbers, columns = np.empty(0), [], {}
    for block_numbers, block in chain(blocks, [((), {})]):
        keys = np.concatenate([keys, rng.random(len(block_numbers))])
        numbers.extend(block_numbers)
        for name, values in block.items():
            columns.setdefault(name, []).extend(values)
        if len(keys) > 2 * size + BLOCK_ROWS or not block:
            order = np.argsort(keys, kind="stable")[:size]
            keys = keys[order]
            for values in (numbers, *columns.values()):
                values[:] = [values[index] for index in order]
    if numbers:
        yield numbers, columns
