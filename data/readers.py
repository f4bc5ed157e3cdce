"""Readers of the local formats: each yields blocks of rows, as arrays of strings by language."""

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from .checks import DOCUMENT_ID, CorpusError, Words, as_ids, as_text, bad_value, check_codes, decode, is_code
from .files import FileSource

PEEK_ROWS = 1000
Block = tuple[Sequence[int], dict[str, pa.Array]]  # the row numbers, and the strings by language


def read_blocks(
    source: FileSource, languages: Sequence[str], inferred: bool, block_rows: int, document_ids: bool = False
) -> Iterator[Block]:
    """Read a source in blocks of at most `block_rows` rows.

    Args:
        source: The files.
        languages: The languages of the corpus. Blocks may hold others besides, or lack some of them.
        inferred: Whether the languages were looked up and not requested: then a language that turns up later (JSONL)
            is an error, else it is left aside.
        document_ids: Whether to read the column `doc_id` of parquet and JSONL rows too.

    Yields:
        Row numbers, as an editor counts lines (from 1 for parquet), and one array of strings per language (and one
        under `doc_id`, where it is asked for and there).

    Raises:
        CorpusError: The file does not hold what it should.
    """
    if source.format == "parquet":
        yield from _read_parquet(source.paths[0], languages, block_rows, document_ids)
    elif source.format == "moses":
        yield from _read_moses(source, block_rows)
    elif source.format == "tsv":
        yield from _read_tsv(source.paths[0], languages, block_rows)
    else:
        yield from _read_jsonl(source.paths[0], languages, inferred, block_rows, document_ids)


def find_languages(source: FileSource, requested: Sequence[str] | None, whole: bool = False) -> set[str]:
    """Return the languages of a source: from its schema, header or file names; for JSONL from its first rows, or
    from the `whole` file.

    Raises:
        CorpusError: The file has no texts, or (where none were requested) a name is not a language code.
    """
    place = source.place
    if source.format == "moses":
        found = set(source.languages)
    elif source.format == "parquet":
        found = _parquet_languages(source.paths[0], requested)
    elif source.format == "tsv":
        found = set(_tsv_header(source.paths[0]))
    else:
        found = _jsonl_languages(source.paths[0], requested, whole)
    if requested is None:
        check_codes(sorted(found), place)
    return found


def check_lengths(source: FileSource) -> None:
    """Raise [`CorpusError`] if Moses files differ in their number of lines: before any row, never half a corpus."""
    if source.format != "moses":
        return
    counts = [count_lines(path) for path in source.paths]
    if len(set(counts)) > 1:
        listed = ", ".join(f"{path}: {count} lines" for path, count in zip(source.paths, counts, strict=True))
        advice = "Line n of each must be a translation of line n of the others: fetch or align the files again."
        raise CorpusError(
            f"{source.place}: found different numbers of lines ({listed}), expected equal ones. {advice}"
        )


def count_rows(source: FileSource) -> int:
    """Return how many rows the source holds, bad ones included."""
    if source.format == "parquet":
        return _open_parquet(source.paths[0]).metadata.num_rows
    return count_lines(source.paths[0]) - (source.format == "tsv")


def count_lines(path: str) -> int:
    """Return the number of lines as an editor counts them: only \\n ends a line, the last may lack it."""
    count, last = 0, b"\n"
    for chunk in _guarded(path, lambda file: iter(lambda: file.read(1 << 20), b"")):
        count, last = count + chunk.count(b"\n"), chunk
    return count + (not last.endswith(b"\n"))


def _guarded(path: str, read: Callable[[BinaryIO], Iterator[bytes]]) -> Iterator[bytes]:
    """Yield from a plain or gzip file, with its damages named."""
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            yield from read(file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise bad_value(
            path, None, None, Words(f"a damaged gzip file ({error})"), "gzip", "Fetch it again."
        ) from error


def _line_blocks(path: str, block_rows: int) -> Iterator[list[bytes]]:
    """Yield lists of lines without their ends. Splitting the bytes at \\n alone leaves U+2028, U+0085 or a lone \\r
    inside a text, where str.splitlines would break it and shift every line after it."""
    lines = _guarded(path, iter)
    first, ending = True, b"\n"
    while block := list(islice(lines, block_rows)):
        if first:
            ending = b"\r\n" if block[0].endswith(b"\r\n") else b"\n"  # a file from Windows says so in its first line
            block[0] = block[0].removeprefix(b"\xef\xbb\xbf")
            first = False
        block = [line.removesuffix(b"\n") for line in block]
        yield [line.removesuffix(b"\r") for line in block] if ending == b"\r\n" else block


def _read_moses(source: FileSource, block_rows: int) -> Iterator[Block]:
    done = 0
    for blocks in zip_longest(*(_line_blocks(path, block_rows) for path in source.paths), fillvalue=[]):
        if len({len(block) for block in blocks}) > 1:  # counted equal before: written to since
            raise CorpusError(f"{source.place}: the files changed while they were read. Load the corpus again.")
        numbers = range(done + 1, done + 1 + len(blocks[0]))
        files = zip(source.languages, source.paths, blocks, strict=True)
        yield numbers, {language: decode(block, path, numbers, language) for language, path, block in files}
        done += len(blocks[0])


def _tsv_header(path: str) -> list[str]:
    line = next(_line_blocks(path, 1), [b""])[0]
    names = decode([line], path, [1], "header")[0].as_py().split("\t")
    if not line or len(set(names)) < len(names) or len(names) < 2:
        expected = "two or more different language codes, separated by tabs"
        raise bad_value(path, 1, "header", names, expected, "Put such a header on top of the file.")
    return names


def _read_tsv(path: str, languages: Sequence[str], block_rows: int) -> Iterator[Block]:
    names, done = _tsv_header(path), 0
    for lines in _line_blocks(path, block_rows):
        numbers = range(done + 1, done + 1 + len(lines))
        done += len(lines)
        if numbers.start == 1:
            lines, numbers = lines[1:], numbers[1:]
        rows = [line.split(b"\t") for line in lines]
        for number, row in zip(numbers, rows, strict=True):
            if len(row) != len(names):
                expected = f"{len(names)} ({', '.join(names)})"
                found = Words(f"{len(row)} field(s)")
                raise bad_value(path, number, None, found, expected, "Correct the tabs of the row, or delete it.")
        columns = zip(names, list(zip(*rows, strict=True)) or [()] * len(names), strict=True)
        yield (
            numbers,
            {
                name: decode(column, path, numbers, name)
                for name, column in columns
                if name in languages or is_code(name)
            },
        )


def _parse_jsonl(path: str, block_rows: int) -> Iterator[tuple[list[int], list[dict]]]:
    """Yield row numbers and the objects; blank lines are no rows."""
    done = 0
    for lines in _line_blocks(path, block_rows):
        numbers, rows = [], []
        for number, line in enumerate(lines, done + 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError:
                decode([line], path, [number], None)
            except ValueError as error:
                found, advice = Words(f"invalid JSON ({error})"), "Correct or delete the line."
                raise bad_value(path, number, None, found, "one JSON object a line", advice) from error
            if not isinstance(row, dict):
                raise bad_value(path, number, None, row, "a JSON object", "Correct or delete the line.")
            numbers.append(number)
            rows.append(row)
        done += len(lines)
        yield numbers, rows


def _texts_of(row: dict, nested: bool, path: str, number: int) -> dict:
    """Return what a JSON row holds by language; in flat rows (no `translation`) also its other columns."""
    if not nested:
        return row
    if "translation" not in row:
        found = Words(f"no such field beside {sorted(row)}")
        advice = "Write every row alike: with a `translation` object, or with one field per language."
        raise bad_value(path, number, "translation", found, "an object of texts by language", advice)
    texts = row["translation"]
    if texts is not None and not isinstance(texts, dict):
        advice = 'Write {"translation": {"de": "...", "en": "..."}}.'
        raise bad_value(path, number, "translation", texts, "an object of texts by language", advice)
    return texts or {}


def _jsonl_languages(path: str, requested: Sequence[str] | None, whole: bool) -> set[str]:
    found, nested = set(), None
    for numbers, rows in _parse_jsonl(path, PEEK_ROWS):
        for number, row in zip(numbers, rows, strict=True):
            nested = "translation" in row if nested is None else nested
            texts = _texts_of(row, nested, path, number)
            if nested:
                found.update(texts)
            elif requested is None:
                found.update(name for name, text in texts.items() if isinstance(text, str) and is_code(name))
            else:
                found.update(name for name in texts if is_code(name) or name in requested)
        if not whole:
            break
    if not found:
        expected = "a `translation` object, or one field per language"
        raise bad_value(path, None, "translation", Words("no rows with texts by language"), expected, "Correct it.")
    return found


def _read_jsonl(
    path: str, languages: Sequence[str], inferred: bool, block_rows: int, document_ids: bool
) -> Iterator[Block]:
    nested = None
    for numbers, rows in _parse_jsonl(path, block_rows):
        columns: dict[str, list] = {language: [None] * len(rows) for language in languages}
        for index, row in enumerate(rows):
            nested = "translation" in row if nested is None else nested
            for name, text in _texts_of(row, nested, path, numbers[index]).items():
                if name not in columns:
                    if not nested:
                        continue
                    if inferred:
                        expected = f"only the languages of the first {PEEK_ROWS} rows ({', '.join(languages)})"
                        advice = "Pass languages=[...] with those to take."
                        raise bad_value(path, numbers[index], f"translation.{name}", name, expected, advice)
                    columns[name] = [None] * len(rows)
                if text is not None and not isinstance(text, str):
                    field = f"translation.{name}" if nested else name
                    raise bad_value(path, numbers[index], field, text, "a text or null", "Correct the row.")
                columns[name][index] = text
        if document_ids:
            columns[DOCUMENT_ID] = [_id_of(row, path, number) for number, row in zip(numbers, rows, strict=True)]
        yield numbers, {name: _encode(texts, path, numbers, name) for name, texts in columns.items()}


def _id_of(row: dict, path: str, number: int) -> str | None:
    found = row.get(DOCUMENT_ID)
    if found is not None and not isinstance(found, str | int):
        raise bad_value(path, number, DOCUMENT_ID, found, "a text, a whole number or null", "Correct the row.")
    return None if found is None else str(found)


def _encode(texts: list[str | None], path: str, numbers: Sequence[int], name: str) -> pa.Array:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:  # JSON can spell half of a surrogate pair, UTF-8 cannot
        for number, text in zip(numbers, texts, strict=True):
            if any("\ud800" <= letter <= "\udfff" for letter in text or ""):
                advice = "Correct or delete the row."
                raise bad_value(path, number, name, text, "Unicode without lone surrogates", advice) from None
        raise


def _open_parquet(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        found = Words(f"{os.path.getsize(path)} bytes that are not parquet ({error})")
        raise bad_value(path, None, None, found, "a parquet file", "Fetch or write the file again.") from error


def _parquet_languages(path: str, requested: Sequence[str] | None) -> set[str]:
    with _open_parquet(path) as file:
        return languages_of_schema(file.schema_arrow, path, requested)


def languages_of_schema(schema: pa.Schema, place: str, requested: Sequence[str] | None) -> set[str]:
    """Return the languages of a table: the fields of `translation`, or else the columns named by a language code.

    Raises:
        CorpusError: There is no such column, or `translation` is not a struct.
    """
    if "translation" in schema.names:
        kind = schema.field("translation").type
        if not pa.types.is_struct(kind):
            advice = "Write a struct with one string per language."
            raise bad_value(place, 1, "translation", Words(str(kind)), "a struct of texts by language", advice)
        return {field.name for field in kind}
    flat = {field.name for field in schema if is_code(field.name) or field.name in (requested or ())}
    if "id" in flat and not pa.types.is_string(schema.field("id").type) and "id" not in (requested or ()):
        flat.discard("id")  # a running number, not Indonesian
    if not flat:
        expected = "a column `translation`, or one column per language"
        found, advice = Words(f"the columns {schema.names}"), "Rename the columns, or leave the file out."
        raise bad_value(place, None, "translation", found, expected, advice)
    return flat


def columns_of_table(
    table: pa.Table | pa.RecordBatch,
    names: Sequence[str],
    place: str,
    numbers: Sequence[int],
    document_ids: bool = False,
) -> Block:
    """Return the languages `names` of a table that has `translation` or one column per language, as strings; and,
    with `document_ids`, its `doc_id` if it has one.

    Raises:
        CorpusError: A value is not a text.
    """
    if "translation" in table.schema.names:
        struct = _in_one(table.column("translation"))
        # flatten(), unlike field(), also applies the nulls of the struct itself
        fields = zip((field.name for field in struct.type), struct.flatten(), strict=True)
        arrays = {f"translation.{name}": (name, array) for name, array in fields}
    else:
        arrays = {name: (name, table.column(name)) for name in names}
    columns = {name: as_text(_in_one(array), place, numbers, field) for field, (name, array) in arrays.items()}
    if document_ids and DOCUMENT_ID in table.schema.names:
        columns[DOCUMENT_ID] = as_ids(_in_one(table.column(DOCUMENT_ID)), place, numbers)
    return numbers, columns


def _in_one(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _read_parquet(path: str, languages: Sequence[str], block_rows: int, document_ids: bool) -> Iterator[Block]:
    done = 0
    with _open_parquet(path) as file:
        schema = file.schema_arrow
        names = sorted(languages_of_schema(schema, path, languages))
        read = ["translation"] if "translation" in schema.names else list(names)
        if document_ids and DOCUMENT_ID in schema.names:
            read.append(DOCUMENT_ID)
        try:
            for batch in file.iter_batches(block_rows, columns=read):
                numbers = range(done + 1, done + 1 + batch.num_rows)
                yield columns_of_table(batch, names, path, numbers, document_ids)
                done += batch.num_rows
        except (pa.ArrowInvalid, OSError) as error:
            found, advice = Words(f"damaged data ({error})"), "Fetch or write the file again."
            raise bad_value(path, done + 1, None, found, "readable parquet", advice) from error
