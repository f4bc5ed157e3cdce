"""Find the files of a source of documents: a file, stdin, or a folder of texts or tables."""

import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, cast, get_args

from modeling_tmde import TmdeError

from .languages import language_of_locale, names_a_language
from .lines import read_lines, shown_path
from .markup import MARKUP_SUFFIXES, read_blocks, text_of_blocks
from .tables import (
    FORMATS,
    SETTINGS_SUFFIX,
    TABLE_FORMATS,
    UNIT_FORMATS,
    Quoting,
    Row,
    Table,
    files_in,
    is_data,
    suffix_of,
)

InputFormat = Literal["text", "jsonl", "csv", "tsv", "parquet", "tmx", "po", "xliff", "ts"]

# The names of files beside the data of a folder.
_ABOUT_THE_FOLDER = ("readme", "license", "licence", "notice", "changelog")
# A file with one of these suffixes is not taken for text, unless the user says so.
_NO_TEXT = (
    *(".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz", ".arrow", ".npy", ".xml", ".pdf"),
    *(".doc", ".docx", ".odt", ".xls", ".xlsx", ".ods"),
)
_TABLE_SUFFIXES = ", ".join((*TABLE_FORMATS, SETTINGS_SUFFIX, *UNIT_FORMATS))
_TEXT_SUFFIXES = (".txt", *MARKUP_SUFFIXES)  # In a folder, such a file is one document.
# Folders are called `my-notes` and `to_read`, too: of a locale, they name script and region alone.
_LANGUAGE_FOLDER = re.compile(
    r"[A-Za-z]{2,3}([-_][A-Z][a-z]{3})?([-_]([A-Za-z]{2}|[0-9]{3}))?([.@][\w.@-]+)?", re.ASCII
)
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class TextFolder(Table):
    """A folder whose files are one document each, or one such file of Markdown or HTML.

    Attributes:
        folder: The folder.
        marks_headings: Whether the headings of Markdown and HTML begin with `#`.
    """

    folder: str = ""
    marks_headings: bool = False

    @property
    def names(self) -> list[str]:
        """The files, relative to the folder with `/` between the parts."""
        return [_name_in(self.folder, path) for path in self.paths]

    @property
    def subfolders(self) -> tuple[str, ...]:
        """The folders in it, without those in them; "" stands for the folder itself."""
        names: dict[str, None] = {}
        for name in self.names:
            first_part, separator, _ = name.partition("/")
            names[first_part if separator else ""] = None
        return tuple(names)

    @property
    def has_languages(self) -> bool:
        """Whether all files stand in folders that are named by language codes: `de/a.txt`."""
        return all(map(_is_language_folder, self.subfolders))

    def fields(self) -> list[str]:
        """Return the fields of its rows."""
        if self.has_languages:
            return ["id", "text", "language"]
        return ["id", "text"]

    def row_count(self) -> int | None:
        """Return the number of files."""
        return len(self.paths)

    def _numbered_rows(self) -> Iterator[tuple[int, Row]]:
        """Yield the documents, numbered from 1, with their name without suffix as `id`.

        Raises:
            CorpusError: A file is damaged or not UTF-8.
        """
        has_languages = self.has_languages
        for number, (path, name) in enumerate(zip(self.paths, self.names, strict=True), 1):
            text = document_text(path, self.marks_headings)
            row = {"id": _without_suffixes(name), "text": text}
            if has_languages:
                row["language"] = language_of_locale(name.partition("/")[0])
            yield number, row


def document_text(path: str, marks_headings: bool = False) -> str:
    """Return the text of a file that is one document; Markdown and HTML lose their markup.

    Args:
        path: The file.
        marks_headings: Whether the headings of Markdown and HTML begin with `#`.

    Raises:
        CorpusError: The file is damaged, or its bytes can't be decoded.
    """
    if suffix_of(path) in MARKUP_SUFFIXES:
        return text_of_blocks(read_blocks(path), marks_headings)
    return "\n".join(line for _, line in read_lines(path))


def _name_in(folder: str, path: str) -> str:
    """Return a path relative to a folder, with `/` between the parts."""
    return shown_path(os.path.relpath(path, folder)).replace(os.sep, "/")


def _is_language_folder(name: str) -> bool:
    """Return whether a folder is named by a known language or its locale: `de`, `pt-BR`."""
    return _LANGUAGE_FOLDER.fullmatch(name) is not None and names_a_language(name.lower())


def find_documents(
    stack: ExitStack,
    source: str,
    format: InputFormat | None,
    left_out: Path | None = None,
    quoting: Quoting | None = None,
) -> list[Table]:
    """Find the tables of a source.

    Args:
        stack: Removes the temporary files that are made of stdin and pipes.
        source: A file, `-` for stdin, or a folder.
        format: None for the format of the suffix, or text for stdin.
        left_out: A folder whose files are none of the source.
        quoting: What the quotes of CSV and TSV are; None to find out.

    Returns:
        The tables; of a folder of texts, and of a file of Markdown or HTML, one `TextFolder`.

    Raises:
        TmdeError: The source has no documents, or an unknown format.
        OSError: There is no such file.
    """
    if os.path.isdir(source):
        if format is not None:
            raise TmdeError(
                f"--format {format}: found the folder {source}, expected a file; the format "
                "of files in a folder is chosen by their suffixes"
            )
        return _find_in_folder(stack, source, left_out, quoting)
    name = "stdin" if source == "-" else shown_path(source)
    if format is None and suffix_of(source) in MARKUP_SUFFIXES:
        folder = os.path.dirname(source) or os.curdir
        return [TextFolder("texts", (source,), name=name, folder=folder)]
    kind = format or format_of(source)
    return [Table(kind, (_readable_path(stack, source),), name=name, quoting=quoting)]


def format_of(source: str) -> InputFormat:
    """Return the format that the suffix of a file says; a suffix .gz is left out.

    Raises:
        TmdeError: The suffix is that of no input format, or of gzipped parquet.
    """
    suffix = suffix_of(source)
    format = FORMATS.get(suffix)
    if format == "parquet" and source.lower().endswith(".gz"):
        raise TmdeError(
            f"{source}: found gzipped parquet, expected plain parquet, which is already "
            f"compressed; unpack it (gunzip {shlex.quote(source)})"
        )
    if format is None and suffix in _NO_TEXT:
        raise TmdeError(
            f"{source}: {suffix} is not an input format, expected "
            f"{', '.join(_TEXT_SUFFIXES)}, {_TABLE_SUFFIXES}, all but .parquet also with .gz, "
            "or a folder; give --format, or pipe text into -"
        )
    return cast(InputFormat, format or "text")


def _without_suffixes(name: str) -> str:
    """Return the name of a text file without .txt, .md, .html and .gz."""
    path = PurePosixPath(name)
    if path.suffix.lower() == ".gz":
        path = path.with_suffix("")
    return str(path.with_suffix(""))


# ---- Folders


def _find_in_folder(
    stack: ExitStack, folder: str, left_out: Path | None, quoting: Quoting | None
) -> list[Table]:
    """Return the texts or the tables of a folder.

    Raises:
        TmdeError: There are none, there are both, or two texts have one id.
    """
    texts: list[str] = []
    tables: list[str] = []
    known_paths = [
        path for path in _paths_in(folder, left_out) if _is_text(path) or _is_table(path)
    ]
    for path in without_side_files(known_paths):
        if _is_text(path):
            texts.append(path)
        else:
            tables.append(path)
    place = shown_path(folder)
    if texts and tables:
        first_text = _name_in(folder, texts[0])
        first_table = _name_in(folder, tables[0])
        raise TmdeError(
            f"{place}: found both texts, such as {first_text}, and tables, such as "
            f"{first_table}; move one kind to another folder"
        )
    if tables:
        return [_table_in(stack, path, quoting) for path in tables]
    if not texts:
        raise TmdeError(
            f"{place}: found no documents in this folder, expected files ending in "
            f"{', '.join(_TEXT_SUFFIXES)} (one document each) or tables ({_TABLE_SUFFIXES}), "
            "all but .parquet also with .gz"
        )
    text_folder = TextFolder("texts", tuple(texts), name=place, folder=folder)
    _check_ids(place, text_folder.names)
    return [text_folder]


def _is_text(path: str) -> bool:
    return suffix_of(path) in _TEXT_SUFFIXES


def _is_table(path: str) -> bool:
    return FORMATS.get(suffix_of(path)) in get_args(InputFormat) and is_data(path)


def _paths_in(folder: str, left_out: Path | None) -> list[str]:
    """Return the files in a folder and its subfolders, but those in a folder left out."""
    paths = files_in(folder)
    if left_out is None or left_out.resolve() == Path(folder).resolve():
        return paths
    other_folder = left_out.resolve()
    return [path for path in paths if not Path(path).resolve().is_relative_to(other_folder)]


def _table_in(stack: ExitStack, path: str, quoting: Quoting | None) -> Table:
    name = shown_path(path)
    return Table(format_of(path), (_readable_path(stack, path),), name=name, quoting=quoting)


def _check_ids(folder: str, names: Sequence[str]) -> None:
    name_of_id: dict[str, str] = {}
    for name in names:
        first_name = name_of_id.setdefault(_without_suffixes(name), name)
        if first_name != name:
            raise TmdeError(
                f"{folder}: found {first_name} and {name}, which have the same id "
                f"{_without_suffixes(name)!r}; expected unique names without suffix; rename one"
            )


# ---- Files that can be read twice


def _readable_path(stack: ExitStack, source: str) -> str:
    """Return the path of a file that can be read twice; stdin and pipes are copied to one."""
    if source != "-" and Path(source).is_file():
        return source
    path = Path(stack.enter_context(tempfile.TemporaryDirectory()), "documents")
    with path.open("wb") as copy:
        if source == "-":
            shutil.copyfileobj(sys.stdin.buffer, copy)
        else:
            with open(source, "rb") as stream:
                shutil.copyfileobj(stream, copy)
    if not _is_gzipped(path):
        return str(path)
    # The suffix tells the readers of text that it is gzipped.
    return str(path.rename(path.with_suffix(".gz")))


def _is_gzipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


def without_side_files(names: Sequence[str]) -> list[str]:
    """Return the files of a folder that hold its data.

    README.md, LICENSE.txt and the like hold none, nor does .json, which is often settings; but they
    are data where a folder has nothing else.

    Args:
        names: Files of known suffixes, without hidden ones.
    """
    data_names = list(names)
    for is_side_file in (_is_about_the_folder, _is_json):
        remaining_names = [name for name in data_names if not is_side_file(name)]
        if remaining_names:
            data_names = remaining_names
    return data_names


def _is_about_the_folder(name: str) -> bool:
    stem = _without_suffixes(os.path.basename(name)).lower()
    return suffix_of(name) in _TEXT_SUFFIXES and stem in _ABOUT_THE_FOLDER


def _is_json(name: str) -> bool:
    return suffix_of(name) == SETTINGS_SUFFIX
