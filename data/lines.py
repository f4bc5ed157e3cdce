"""Read text files, plain or gzipped, in UTF-8: in blocks of whole lines, or line by line."""

import gzip
import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from .checks import CorpusError, Unquoted, bad_value

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
CONTEXT_BYTES = 10  # quoted by an error on both sides of bytes that can't be decoded
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)
_BLOCK_BYTES = 1 << 20
_UTF_16_SAMPLE = 1000  # The first bytes of a file tell whether it is UTF-16 without a mark.


def shown_path(path: str | os.PathLike) -> str:
    r"""Return a path for messages and ids, with bytes that are not UTF-8 escaped, such as `\xe9`.

    Python has such bytes as lone surrogates, which cannot be printed or stored.
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def read_lines(
    path: str, place: str | None = None, name: str | None = None
) -> Iterator[tuple[int, str]]:
    r"""Yield line numbers, from 1, and lines without their ends.

    Only \n (or \r\n) ends a line: U+2028 and the like may stand inside a text. In a file without
    \n, as old Macs wrote them, \r ends a line.

    Args:
        path: A file, plain or gzipped.
        place: Its name in messages.
        name: The field that the lines hold, for messages.

    Raises:
        CorpusError: The file is damaged, or has bytes that are not UTF-8.
        OSError: There is no such file.
    """
    number = 0
    for block in text_blocks(path, place, name):
        for line in block.removesuffix("\n").split("\n"):
            number += 1
            yield number, line


def text_blocks(path: str, place: str | None = None, name: str | None = None) -> Iterator[str]:
    r"""Yield a file in blocks of whole lines, which end in \n; for the arguments see `read_lines`.

    Only the last line of the file may lack its end.

    Raises:
        CorpusError: The file is damaged, or has bytes that are not UTF-8.
        OSError: There is no such file.
    """
    place = place or shown_path(path)
    number = 1  # of the first line of a block
    try:
        with open_binary(path) as file:
            for block in _byte_blocks(file):
                if number == 1:
                    _check_no_utf_16(block, place, name)
                text, bad_lines = _decoded(block)
                if text:
                    yield text
                number += text.count("\n")
                if bad_lines:
                    raise _not_utf8(place, number, name, _bad_bytes(bad_lines), "cp1252")
    except GZIP_ERRORS as error:
        raise damaged_file_error(place, number, name, error) from error


def _byte_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of whole lines, without a byte order mark."""
    has_old_ends = False
    is_first = True
    parts: list[bytes] = []  # of a line whose end is not read yet
    while chunk := file.read(_BLOCK_BYTES):
        if is_first:
            chunk = chunk.removeprefix(BYTE_ORDER_MARK)
            has_old_ends = b"\r" in chunk and b"\n" not in chunk
            is_first = False
        if has_old_ends:
            chunk = chunk.replace(b"\r", b"\n")
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*parts, chunk[:end]])
            parts = []
        parts.append(chunk[end:])
    last_line = b"".join(parts)
    if last_line:
        yield last_line.removesuffix(b"\r")


def _decoded(block: bytes) -> tuple[str, bytes]:
    """Return the text of a block, and the lines from the first one that is not UTF-8."""
    try:
        text = block.decode()
        bad_lines = b""
    except UnicodeDecodeError as error:
        end = block.rfind(b"\n", 0, error.start) + 1
        text = block[:end].decode()
        bad_lines = block[end:]
    return text.replace("\r\n", "\n"), bad_lines


def _bad_bytes(lines: bytes) -> str:
    """Describe the bytes that can't be decoded in the first of some lines."""
    line, _, _ = lines.partition(b"\n")
    try:
        line.decode()
    except UnicodeDecodeError as error:
        bad_bytes = line[error.start : error.end]
        first = max(error.start - CONTEXT_BYTES, 0)
        context = line[first : error.end + CONTEXT_BYTES]
        return f"the undecodable bytes {bad_bytes!r} in {context!r}"
    raise AssertionError("the line is UTF-8")


def _check_no_utf_16(block: bytes, place: str, name: str | None) -> None:
    """Raise CorpusError if the first block of a file is UTF-16."""
    encoding = _utf_16_of(block[:_UTF_16_SAMPLE])
    if encoding is not None:
        raise _not_utf8(place, 1, name, "bytes of UTF-16", encoding)


def _utf_16_of(sample: bytes) -> str | None:
    """Return the kind of UTF-16 of the first bytes of a file; None if they are none."""
    if sample.startswith(UTF_16_MARKS):
        return "utf-16"
    fewest = len(sample) / 4  # Every second byte of Latin letters is NUL.
    if sample[1::2].count(0) > fewest:
        return "utf-16le"
    if sample[::2].count(0) > fewest:
        return "utf-16be"
    return None


def _not_utf8(
    place: str, row: int, name: str | None, description: str, encoding: str
) -> CorpusError:
    advice = (
        f"Convert the file to UTF-8 (for example: iconv -f {encoding} -t utf-8; in Excel, save "
        "it as 'CSV UTF-8') or correct the row."
    )
    return bad_value(place, row, name, Unquoted(description), "UTF-8", advice)


def open_binary(path: str) -> BinaryIO:
    """Open a file, plain or gzipped, to read its bytes."""
    if path.lower().endswith(".gz"):
        return cast(BinaryIO, gzip.open(path, "rb"))
    return open(path, "rb")


def damaged_file_error(place: str, number: int, name: str | None, error: Exception) -> CorpusError:
    """Return the error of a gzipped file that can't be unpacked from a row on."""
    description = Unquoted(f"a damaged file ({error})")
    return bad_value(place, number, name, description, "a text file", "Fetch it again.")
