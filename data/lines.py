"""Read the lines of text files, plain or gzipped, in UTF-8."""

import gzip
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from .checks import CorpusError, Unquoted, bad_value

Row = dict[str, Any]
NumberedRows = Iterator[tuple[int, Row]]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
CONTEXT_BYTES = 10  # quoted by an error on both sides of bytes that can't be decoded
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


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
    line = b""
    try:
        with open_binary(path) as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                yield number, line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        bad_bytes = line[error.start : error.end]
        first = max(error.start - CONTEXT_BYTES, 0)
        context = line[first : error.end + CONTEXT_BYTES]
        description = Unquoted(f"the undecodable bytes {bad_bytes!r} in {context!r}")
        encoding = "utf-16" if line.startswith(UTF_16_MARKS) else "cp1252"
        advice = (
            f"Convert the file to UTF-8 (for example: iconv -f {encoding} -t utf-8; in Excel, save "
            "it as 'CSV UTF-8') or correct the row."
        )
        raise bad_value(place, number, name, description, "UTF-8", advice) from None
    except GZIP_ERRORS as error:
        raise damaged_file_error(place, number + 1, name, error) from error


def open_binary(path: str) -> BinaryIO:
    """Open a file, plain or gzipped, to read its bytes."""
    if path.lower().endswith(".gz"):
        return cast(BinaryIO, gzip.open(path, "rb"))
    return open(path, "rb")


def damaged_file_error(place: str, number: int, name: str | None, error: Exception) -> CorpusError:
    """Return the error of a gzipped file that can't be unpacked from a row on."""
    description = Unquoted(f"a damaged file ({error})")
    return bad_value(place, number, name, description, "a text file", "Fetch it again.")
