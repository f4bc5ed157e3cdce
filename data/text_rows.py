"""Parallel rows of Moses, TSV and JSONL files, as a builder of `datasets`: cached on disk, or streamed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import datasets
import pyarrow as pa
from datasets.builder import Key

from .checks import DOCUMENT_ID, CorpusError, Words, bad_value, is_code
from .files import AnyDataset, FileSource, check_text, parse_json, read_blocks, read_lines

ROW, FURTHER = "_row", "_further"  # a row's number, and how many texts it has in languages that are not read
BLOCK_ROWS = 500
PEEK_ROWS = 1000


@dataclass
class TextRowsConfig(datasets.BuilderConfig):
    """What is read of a source.

    Args:
        languages: Those that the rows hold, or are asked for.
        nested: The rows of a JSONL file have their texts in `translation`.
        inferred: The languages of a JSONL file are those of its first rows; one that turns up later is an error.
        document_ids: Read `doc_id` of a JSONL file.
        stamps: Sizes and times of the files: the cache of a file that has changed is not used.
    """

    source: FileSource | None = None
    languages: tuple[str, ...] = ()
    nested: bool = False
    inferred: bool = False
    document_ids: bool = False
    stamps: tuple[tuple[int, int], ...] = ()


class TextRows(datasets.ArrowBasedBuilder):
    """Rows with a column for each language, and their numbers, as an editor counts lines."""

    BUILDER_CONFIG_CLASS = TextRowsConfig

    def _info(self) -> datasets.DatasetInfo:
        names = [*self.config.languages, *[DOCUMENT_ID] * self.config.document_ids]
        numbers = {name: datasets.Value("int64") for name in (ROW, FURTHER)}
        return datasets.DatasetInfo(
            features=datasets.Features({name: datasets.Value("string") for name in names} | numbers)
        )

    def _split_generators(self, dl_manager: datasets.DownloadManager) -> list[datasets.SplitGenerator]:
        return [datasets.SplitGenerator("train", {"sources": [self.config.source]})]

    def _generate_tables(self, sources: list[FileSource]) -> Iterator[tuple[Key, pa.Table]]:
        schema = self.info.features.arrow_schema
        (source,) = sources
        blocks = {"moses": self._moses, "tsv": self._tsv, "jsonl": self._jsonl}[source.format](source)
        place = -1
        for place, (numbers, columns) in enumerate(blocks):
            columns = {FURTHER: [0] * len(numbers), ROW: list(numbers)} | columns
            yield (
                Key(0, place),
                pa.table([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema),
            )
        if place < 0:
            yield Key(0, 0), schema.empty_table()

    def _moses(self, source: FileSource) -> Iterator[tuple[Sequence[int], dict[str, list]]]:
        files = [read_lines(path, name=name) for path, name in zip(source.paths, source.languages, strict=True)]
        rows = zip(*files, strict=True)
        while block := list(islice(rows, BLOCK_ROWS)):
            texts = ([text for _, text in column] for column in zip(*block, strict=True))
            yield [row[0][0] for row in block], dict(zip(source.languages, texts, strict=True))

    def _tsv(self, source: FileSource) -> Iterator[tuple[Sequence[int], dict[str, list]]]:
        return read_blocks(source.paths[0], BLOCK_ROWS)

    def _jsonl(self, source: FileSource) -> Iterator[tuple[Sequence[int], dict[str, list]]]:
        path, names = source.paths[0], self.config.languages
        rows = json_rows(path)
        while block := list(islice(rows, BLOCK_ROWS)):
            columns = {name: [] for name in (*names, FURTHER, *[DOCUMENT_ID] * self.config.document_ids)}
            for number, row in block:
                texts = _texts_of_row(row, self.config.nested, path, number)
                for name in names:
                    text = texts.get(name)
                    if text is not None:
                        field = f"translation.{name}" if self.config.nested else name
                        check_text(text, path, number, field, "a text or null")
                    columns[name].append(text)
                further = [name for name in texts if name not in names] if self.config.nested else []
                if further and self.config.inferred:
                    expected = f"only the languages of the first {PEEK_ROWS} rows ({', '.join(names)})"
                    advice = "Pass languages=[...] with those to take."
                    raise bad_value(path, number, f"translation.{further[0]}", further[0], expected, advice)
                columns[FURTHER].append(sum(texts[name] is not None for name in further))
                if self.config.document_ids:
                    found = row.get(DOCUMENT_ID)
                    if found is not None and not isinstance(found, str | int):
                        expected = "a text, a whole number or null"
                        raise bad_value(path, number, DOCUMENT_ID, found, expected, "Correct the row.")
                    columns[DOCUMENT_ID].append(None if found is None else str(found))
            yield [number for number, _ in block], columns


def open_text_rows(source: FileSource, streaming: bool, **options: object) -> AnyDataset:
    """Open the rows of a Moses, TSV or JSONL source; the options are those of `TextRowsConfig`.

    Raises:
        CorpusError: A bad row; of a stream, when it is read.
    """
    stats = [Path(path).stat() for path in source.paths]
    stamps = tuple((stat.st_size, stat.st_mtime_ns) for stat in stats)
    builder = TextRows(source=source, stamps=stamps, cache_dir=str(datasets.config.HF_DATASETS_CACHE), **options)
    if streaming:
        return builder.as_streaming_dataset("train")
    try:
        builder.download_and_prepare()
    except datasets.exceptions.DatasetGenerationError as error:
        if isinstance(error.__cause__, CorpusError):
            raise error.__cause__ from None
        raise
    return builder.as_dataset("train")


def json_rows(path: str) -> Iterator[tuple[int, dict]]:
    """Yield the numbers and objects of the lines of a JSONL file that are not blank."""
    return ((number, parse_json(line, path, number)) for number, line in read_lines(path) if line.strip())


def json_languages(path: str, nested: bool, stated: Iterable[str] | None, limit: int | None = None) -> set[str]:
    """Return the languages of the first `limit` rows of a JSONL file, or of all."""
    found: set[str] = set()
    for number, row in islice(json_rows(path), limit):
        for name, text in _texts_of_row(row, nested, path, number).items():
            if nested or name in (stated or ()) or (is_code(name) and (stated is not None or isinstance(text, str))):
                found.add(name)
    if not found:
        expected = "a `translation` object, or one field per language"
        raise bad_value(path, None, "translation", Words("no rows with texts by language"), expected, "Correct it.")
    return found


def _texts_of_row(row: dict, nested: bool, path: str, number: int) -> dict:
    """Return what a row holds by language; without `translation`, also its other fields."""
    if not nested:
        return row
    texts = row.get("translation", Words(f"no such field beside {sorted(row)}"))
    if texts is not None and not isinstance(texts, dict):
        advice = 'Write every row as {"translation": {"de": "...", "en": "..."}}, or with one field per language.'
        raise bad_value(path, number, "translation", texts, "an object of texts by language", advice)
    return texts or {}
