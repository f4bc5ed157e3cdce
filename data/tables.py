"""Read tables: CSV, TSV, JSON Lines, parquet, catalogs of translations, text, Moses, datasets.

There is one reader. Whatever the format is, it yields record batches of the rows of a table, with
two more columns: `FILE`, the name of the file, and `ROW`, the number of the row in it. Parallel
rows, documents and labeled texts are views: they choose columns and check what they hold.

```python
for table in find_tables("reviews.csv"):
    for batch in table.batches():
        print(batch[ROW], values_of(batch, "text"))
```
"""

import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from typing import Any, Literal, TypeAlias

import datasets
import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tmde.embedding.hub_names import check_repository, is_possible_hub_id

from .checks import CorpusError, MissingFileError, Unquoted, bad_value
from .delimited import Quoting, TableKind, header_of, read_delimited
from .json_lines import read_json_lines
from .languages import names_a_language
from .lines import open_binary, read_lines, shown_path
from .rows import TRANSLATION
from .unit_files import UNIT_FORMATS, read_units

TableFormat = Literal["jsonl", "csv", "tsv", "parquet"]
Row = dict[str, Any]
AnyDataset: TypeAlias = datasets.Dataset | datasets.IterableDataset

# The columns that every batch has beside those of its file.
FILE = "\0file"
ROW = "\0row"
LINE = "\0line"  # The JSON of a row, if the file is JSON Lines.
BAD = "\0bad"  # What is wrong with a row that cannot be read.
_OWN_COLUMNS = (FILE, ROW, LINE, BAD)

BATCH_ROWS = 8192
_START_BYTES = 4096

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
FORMATS: dict[str, str] = {**TABLE_FORMATS, SETTINGS_SUFFIX: "jsonl", **UNIT_FORMATS}
TABLES_OF_TEXT = ("csv", "tsv")
# Rows of these formats have fields of their own.
FORMATS_OF_DIFFERENT_ROWS = ("jsonl", *UNIT_FORMATS.values())
EXPECTED_FILES = (
    "files ending in .parquet, .jsonl, .ndjson, .csv, .tsv, .tab, .tmx, .po, .xliff, .xlf or .ts "
    "(all but parquet also gzipped, .gz), or two or more Moses files"
)
ADVICE = (
    "Pass a file of these, a folder of them, or Moses files by their prefix or as "
    "{'de': 'corpus.de', ...}."
)


@dataclass(frozen=True)
class Table:
    """The file, or the Moses files, that hold one table of rows.

    Attributes:
        format: `"parquet"`, `"jsonl"`, `"csv"`, `"tsv"`, `"tmx"`, `"po"`, `"xliff"`, `"ts"`,
            `"text"` or `"moses"`.
        paths: The files: one, or one per language.
        languages: The language of each file, for `"moses"`.
        name: The name in messages, if it is not that of the files.
        header: The names of the columns of CSV or TSV; () if the first row holds them.
        quoting: What the quotes of CSV or TSV are; None to find out.
        split: The split that all rows belong to, such as `"dev"`; None if the source does not say.
    """

    format: str
    paths: tuple[str, ...]
    languages: tuple[str, ...] = ()
    name: str = ""
    header: tuple[str, ...] = ()
    quoting: Quoting | None = None
    split: str | None = None

    @property
    def place(self) -> str:
        """The files in error messages."""
        return self.name or " + ".join(map(shown_path, self.paths))

    @property
    def has_different_rows(self) -> bool:
        """Whether each row has fields of its own."""
        return self.format in FORMATS_OF_DIFFERENT_ROWS

    @property
    def _kind(self) -> TableKind:
        return "csv" if self.format == "csv" else "tsv"

    def fields(self) -> list[str]:
        """Return the names of the columns; of rows that differ, those of the first rows.

        Raises:
            CorpusError: The file cannot be read.
        """
        if self.format == "text":
            return ["text"]
        if self.format == "moses":
            return list(self.languages)
        if self.format == "parquet":
            return self.parquet_file().schema_arrow.names
        if self.format in TABLES_OF_TEXT:
            if self.header:
                return list(self.header)
            return header_of(self.paths[0], self._kind, self.place, self.quoting)
        names: dict[str, None] = {}
        for batch in islice(self.batches(1000, keep_bad=True), 1):
            names |= dict.fromkeys(fields_of(batch))
        return list(names)

    def row_count(self) -> int | None:
        """Return the number of rows, if it is known without reading them.

        Raises:
            CorpusError: Moses files have different numbers of lines.
        """
        if self.format == "parquet":
            count: int = self.parquet_file().metadata.num_rows
            return count
        if self.format == "moses":
            return self._line_count()
        return None

    def batches(self, size: int = BATCH_ROWS, keep_bad: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most `size` at a time, with the columns `FILE` and `ROW`.

        Texts are strings, and `translation` is a struct of them. A column of JSON Lines that has
        other values, too, holds JSON; `values_of` returns its values.

        Args:
            size: The largest number of rows of a batch.
            keep_bad: Whether a row that cannot be read is one without values, and with the reason
                in a column `BAD`. Otherwise it raises an error.

        Raises:
            CorpusError: The file is damaged, or a row has no right form.
            OSError: There is no such file.
        """
        if self.format == "parquet":
            yield from self._parquet_batches(size)
        elif self.format in TABLES_OF_TEXT:
            columns_of_blocks = read_delimited(
                self.paths[0], self._kind, self.place, self.header, self.quoting
            )
            for numbers, arrays, errors in columns_of_blocks:
                if errors and not keep_bad:
                    raise next(iter(errors.values()))
                if errors:
                    arrays[BAD] = _reasons_of(errors, len(numbers))
                block = _with_places(pa.RecordBatch.from_pydict(arrays), self.place, numbers)
                for start in range(0, len(block), size):
                    yield block.slice(start, size)
        else:
            for rows in _blocks_of(_checked(self._numbered_rows(), keep_bad), size):
                columns: dict[str, pa.Array] = {}
                for name in dict.fromkeys(name for _, row in rows for name in row):
                    columns[name] = array_of(name, [row.get(name) for _, row in rows])
                batch = pa.RecordBatch.from_pydict(columns)
                yield _with_places(batch, self.place, [number for number, _ in rows])

    def rows(self, size: int = BATCH_ROWS) -> Iterator[tuple[int, Row]]:
        """Yield the rows, each with its number.

        Raises:
            CorpusError: See `batches`.
        """
        for batch in self.batches(size):
            yield from zip(values_of(batch, ROW), rows_of(batch), strict=True)

    def _numbered_rows(self) -> Iterator[tuple[int, Row | CorpusError]]:
        """Yield the rows of text, Moses files, units of translations or JSON Lines.

        Those of JSON Lines have their line as `LINE`. A row that cannot be read is an error.
        """
        path = self.paths[0]
        if self.format == "moses":
            yield from self._moses_rows()
        elif self.format == "text":
            for number, line in read_lines(path, self.place):
                yield number, {"text": line}
        elif self.format in UNIT_FORMATS.values():
            yield from read_units(self.format, path, self.place)
        else:
            for number, row, line in read_json_lines(path, self.place):
                if isinstance(row, dict):
                    row[LINE] = line
                yield number, row

    # ---- Moses

    def _moses_rows(self) -> Iterator[tuple[int, Row]]:
        readers = []
        for path, language in zip(self.paths, self.languages, strict=True):
            readers.append(read_lines(path, name=language))
        for numbered_lines in zip(*readers, strict=True):
            number = numbered_lines[0][0]
            lines = [line for _, line in numbered_lines]
            yield number, dict(zip(self.languages, lines, strict=True))

    def _line_count(self) -> int:
        """Return the number of lines that all Moses files have.

        Raises:
            CorpusError: Their numbers of lines differ.
        """
        counts: dict[str, int] = {}
        for path in self.paths:
            counts[shown_path(path)] = sum(1 for _ in read_lines(path))
        if len(set(counts.values())) > 1:
            description = Unquoted(f"different numbers of lines {counts}")
            advice = (
                "Line n of each must be a translation of line n of the others: "
                "fetch or align the files again."
            )
            raise bad_value(self.place, None, None, description, "equal ones", advice)
        return next(iter(counts.values()))

    # ---- Parquet

    @cached_property
    def class_names(self) -> dict[str, list[str]]:
        """The names of the classes of each column of class numbers.

        `datasets` writes them into files of parquet.
        """
        if self.format != "parquet":
            return {}
        schema = self.parquet_file().schema_arrow
        if b"huggingface" not in (schema.metadata or {}):
            return {}
        return _class_names_of(datasets.Features.from_arrow_schema(schema))

    def parquet_file(self) -> pq.ParquetFile:
        """Open the file of parquet.

        Raises:
            CorpusError: It is damaged, or not parquet.
        """
        try:
            return pq.ParquetFile(self.paths[0], memory_map=True)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from None

    def _parquet_batches(self, size: int) -> Iterator[pa.RecordBatch]:
        file = self.parquet_file()
        first_number = 1
        try:
            for batch in file.iter_batches(size):
                numbers = np.arange(first_number, first_number + len(batch))
                yield _with_places(batch, self.place, numbers)
                first_number += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error, first_number) from None

    def _damaged(self, error: Exception, number: int | None = None) -> CorpusError:
        description = Unquoted(f"a file that is not parquet, or damaged ({error})")
        advice = "Fetch or write the file again."
        return bad_value(self.place, number, None, description, "parquet", advice)


@dataclass(frozen=True)
class DatasetTable(Table):
    """The rows of a dataset, numbered from 1.

    Attributes:
        dataset: The rows.
    """

    dataset: AnyDataset = datasets.Dataset.from_dict({})

    def fields(self) -> list[str]:
        """Return the names of the columns; none if a stream does not state them."""
        return list(self.dataset.column_names or ())

    def row_count(self) -> int | None:
        """Return the number of rows; None for a stream."""
        if isinstance(self.dataset, datasets.Dataset):
            return len(self.dataset)
        return None

    @cached_property
    def class_names(self) -> dict[str, list[str]]:
        """The names of the classes of each column of class numbers."""
        return _class_names_of(self.dataset.features or {})

    def batches(self, size: int = BATCH_ROWS, keep_bad: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most `size` at a time; see `Table.batches`."""
        first_number = 1
        for rows in self.dataset.with_format("arrow").iter(size):
            numbers = np.arange(first_number, first_number + len(rows))
            yield batch_of_rows(rows, self.place, numbers)
            first_number += len(rows)


# ---- Datasets of the Hub


def may_be_dataset_id(name: str) -> bool:
    """Return whether a name may be the id of a Hub dataset; one does not end like a file."""
    return named_format_of(name) is None and is_possible_hub_id(name, needs_owner=True)


def config_names(
    dataset: str, revision: str | None = None, token: str | bool | None = None
) -> list[str]:
    """Return the configs of a Hub dataset, or of a local copy of one."""
    check_repository(dataset, "dataset", token)
    return list(datasets.get_dataset_config_names(dataset, revision=revision, token=token))


def open_split(
    source: str,
    config: str,
    split: str,
    streaming: bool = False,
    revision: str | None = None,
    token: str | bool | None = None,
) -> DatasetTable:
    """Open one split of a config of a dataset.

    Args:
        source: A Hub id, or a folder laid out like a dataset of the Hub.
        config: The name of the config.
        split: The name of the split in the dataset.
        streaming: Read the Hub without downloading whole files first.
        revision: The revision of a Hub dataset.
        token: The token for private Hub datasets.
    """
    check_repository(source, "dataset", token)
    dataset = datasets.load_dataset(
        source, config, split=split, streaming=streaming, revision=revision, token=token
    )
    place = f"{source} (config {config}, split {split})"
    return DatasetTable("dataset", (), name=place, split=split, dataset=dataset)


# ---- Batches


def _class_names_of(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the classes of each column that is a `ClassLabel`."""
    class_names = {}
    for name, feature in features.items():
        if isinstance(feature, datasets.ClassLabel):
            class_names[name] = feature.names
    return class_names


def batch_of_rows(
    rows: pa.Table, place: str, numbers: Sequence[int] | np.ndarray
) -> pa.RecordBatch:
    """Return rows of a dataset as a batch with the columns `FILE` and `ROW`."""
    (batch,) = rows.combine_chunks().to_batches()
    return _with_places(batch, place, numbers)


def _with_places(
    batch: pa.RecordBatch, place: str, numbers: Sequence[int] | np.ndarray
) -> pa.RecordBatch:
    """Return a batch with the columns `FILE` and `ROW`."""
    files = pa.DictionaryArray.from_arrays(np.zeros(len(numbers), np.int32), [place])
    arrays = [*batch.columns, files, pa.array(numbers, pa.int64())]
    schema = batch.schema.append(pa.field(FILE, files.type)).append(pa.field(ROW, pa.int64()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def array_of(name: str, values: list) -> pa.Array:
    """Return the values of a column as strings or, if some are none, as JSON.

    No other type of Arrow holds 1, 2.5 and "n/a". `translation` is a struct of strings.
    """
    type = pa.string()
    if name == TRANSLATION:
        texts_of_rows = [texts for texts in values if isinstance(texts, dict)]
        languages = dict.fromkeys(language for texts in texts_of_rows for language in texts)
        type = pa.struct([(language, pa.string()) for language in languages])
    try:
        return pa.array(values, type)
    except (pa.ArrowException, UnicodeError):
        pass
    texts = [None if value is None else json.dumps(value) for value in values]
    return pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts, pa.string()))


def fields_of(batch: pa.RecordBatch) -> list[str]:
    """Return the names of the columns that a batch has from its file."""
    return [name for name in batch.schema.names if name not in _OWN_COLUMNS]


def values_of(batch: pa.RecordBatch, name: str) -> list:
    """Return the values of a column; None for each row if the batch has no such column."""
    if name not in batch.schema.names:
        return [None] * len(batch)
    column = batch[name]
    values: list = column.to_pylist()
    if isinstance(column.type, pa.JsonType):
        return [None if value is None else json.loads(value) for value in values]
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return list(map(_decoded, values))
    return values


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of a batch, with the columns that it has from its file."""
    names = fields_of(batch)
    columns = [values_of(batch, name) for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _decoded(value: bytes | None) -> str | bytes | None:
    """Return bytes as the text that they are in UTF-8; other bytes as they are."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _reasons_of(errors: Mapping[int, CorpusError], count: int) -> pa.Array:
    """Return what is wrong with each of some rows; None for most."""
    reasons: list[str | None] = [None] * count
    for position, error in errors.items():
        reasons[position] = str(error)
    return pa.array(reasons, pa.string())


def _checked(
    rows: Iterable[tuple[int, Row | CorpusError]], keep_bad: bool
) -> Iterator[tuple[int, Row]]:
    """Yield rows with their numbers; for one that cannot be read, see `Table.batches`."""
    for number, row in rows:
        if not isinstance(row, CorpusError):
            yield number, row
        elif keep_bad:
            yield number, {BAD: str(row)}
        else:
            raise row


def _blocks_of(rows: Iterable[tuple[int, Row]], size: int) -> Iterator[list[tuple[int, Row]]]:
    """Yield rows with their numbers, at most `size` at a time.

    Rows with `translation` and rows with columns of texts, which a file may have, too, are never
    in one block.
    """
    for _, similar_rows in groupby(rows, key=lambda row: TRANSLATION in row[1]):
        while block := list(islice(similar_rows, size)):
            yield block


# ---- Finding


def find_tables(
    source: str | os.PathLike | Mapping[str, str | os.PathLike], quoting: Quoting | None = None
) -> list[Table] | None:
    """Find the tables of a source, in a fixed order.

    Args:
        source: A file, a folder (searched recursively for parquet, JSONL, CSV, TSV and TMX files),
            a glob, the prefix of Moses files, or Moses files by language.
        quoting: What the quotes of CSV and TSV are; None to find out.

    Returns:
        The tables; None for a Hub dataset: a folder laid out like one, or a name of nothing here
        that may be its id.

    Raises:
        MissingFileError: Nothing matches.
        CorpusError: The format is unknown.
    """
    if isinstance(source, Mapping):
        if not source:
            raise _no_files_error("{}", "no file")
        return [_moses_table(source)]
    path = os.path.expanduser(os.fspath(source))
    moses_files = _moses_files(path)
    if moses_files:
        return [_moses_table(moses_files)]
    if is_hub_layout(path):
        return None
    paths = _matching_paths(path)
    if not paths:
        if may_be_dataset_id(path):
            return None
        if os.path.isdir(path):
            raise _no_files_error(path, "a folder without such files")
        description = "no such file or folder, and no file that matches"
        raise _no_files_error(path, description, MissingFileError)
    return [table_of_file(name, quoting) for name in paths]


def table_of_file(path: str, quoting: Quoting | None = None) -> Table:
    """Return the table of a file.

    Raises:
        CorpusError: Its name says none of them.
    """
    format = named_format_of(path)
    if format is None:
        raise _no_files_error(path, "a file of unknown format")
    return Table(format, (path,), quoting=quoting)


def _moses_table(files: Mapping[str, str | os.PathLike]) -> Table:
    codes = sorted(files)
    paths = [os.fspath(files[code]) for code in codes]
    return Table("moses", tuple(paths), tuple(codes))


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
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        names = [name for name in files_in(path) if suffix_of(name) != SETTINGS_SUFFIX]
        return [name for name in names if named_format_of(name) and is_data(name)]
    return _different_files(filter(os.path.isfile, glob.glob(path, recursive=True)))


def is_data(path: str) -> bool:
    """Return whether a file in a folder is of the kind that its name says.

    The suffix .ts is also that of TypeScript and of videos.
    """
    if suffix_of(path) != ".ts":
        return True
    with open_binary(path) as file:
        return b"<TS" in file.read(_START_BYTES)


def files_in(folder: str | os.PathLike) -> list[str]:
    """Return the files in a folder and its subfolders, sorted, without hidden ones.

    Links to folders are followed, but no folder is entered twice: a link may lead back to the
    folder itself. Of several paths to one file, the shortest is returned.
    """
    paths: list[str] = []
    entered_folders = set()
    for parent, subfolders, names in os.walk(os.fspath(folder), followlinks=True):
        real_parent = os.path.realpath(parent)
        if real_parent in entered_folders:
            subfolders.clear()
            continue
        entered_folders.add(real_parent)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in names:
            path = os.path.join(parent, name)
            if not name.startswith(".") and os.path.isfile(path):
                paths.append(path)
    return _different_files(paths)


def _different_files(paths: Iterable[str]) -> list[str]:
    """Return paths, sorted; of several ones to one file, the shortest."""
    path_of_file: dict[str, str] = {}
    for path in sorted(sorted(paths), key=len):
        path_of_file.setdefault(os.path.realpath(path), path)
    return sorted(path_of_file.values())


def named_format_of(path: str) -> str | None:
    """Return the format of a file that the user names, as its suffix says; None if unknown."""
    name = path.lower()
    format = FORMATS.get(suffix_of(name))
    if format == "parquet" and name.endswith(".gz"):
        return None
    return format


def suffix_of(path: str) -> str:
    """Return the suffix of a file in lower case, without .gz."""
    return os.path.splitext(path.lower().removesuffix(".gz"))[1]


def _no_files_error(
    path: str, description: str, kind: type[CorpusError] = CorpusError
) -> CorpusError:
    value = Unquoted(description)
    return bad_value(shown_path(path), None, None, value, EXPECTED_FILES, ADVICE, kind)
