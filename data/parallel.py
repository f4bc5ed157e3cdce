"""`load_parallel`: one call from a name, a path or a list of them to a checked parallel corpus."""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .checks import (
    DOCUMENT_ID,
    MAX_EXAMPLES,
    CorpusError,
    CorpusReport,
    Words,
    bad_value,
    check_codes,
    check_languages,
    clip,
    features_of,
    is_code,
)
from .files import (
    AnyDataset,
    FileSource,
    check_text,
    count_lines,
    count_rows,
    decode,
    find_files,
    is_hub_layout,
    open_parquet,
    parse_json,
    read_lines,
    select_configs,
    split_fields,
)
from .sample import sample_parallel

logger = logging.getLogger("modeling_tmde.data")

Source = str | os.PathLike | Mapping[str, str | os.PathLike]
Columns = dict[str, pa.Array]  # strings by language, and under `doc_id` the names of documents

VERSION = 1  # of the checks: raise it when they change, so that cached corpora are checked again
MAP_ROWS, STREAM_ROWS = 10_000, 500  # what a stream reads and checks ahead of the row it gives
PEEK_ROWS = 1000
KEPT, OTHER, BAD = range(3)


def load_parallel(
    source: Source | Sequence[Source],
    languages: Sequence[str] | None = None,
    pivot_languages: Sequence[str] | None = None,
    split: str = "train",
    streaming: bool = False,
    bad_rows: str = "report",
    temperature: float | None = None,
    seed: int = 0,
    config: str | Sequence[str] | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    max_rows: int | None = None,
    report: CorpusReport | None = None,
    document_ids: bool = False,
) -> AnyDataset:
    r"""Load a parallel corpus and check every row of it.

    Args:
        source: One of, or a list of:

            - `"sample"`: the built-in sample.
            - The id of a Hub dataset, such as `"Helsinki-NLP/europarl"`, or a folder laid out like one (a README.md
              that lists `configs`).
            - A parquet or JSONL file, with a column `translation` = `{language: text}` or one column per language; a
              TSV file with the language codes as header (a quote is just a character); JSONL and TSV may be gzipped.
              Or a glob of, or a folder with, such files.
            - Moses files: by language, `{"de": "corpus.de", "en": "corpus.en"}`, or by prefix, `"corpus"`.
        languages: The languages of the result; None for all that the source has.
        pivot_languages: Take only Hub configs (language pairs) with at least one of these. Rows of files are not
            selected by it.
        split: The split of a Hub dataset or of the sample. Files have no splits: all their rows are loaded.
        streaming: Return an `IterableDataset` that reads and checks as it goes, in flat memory.
        bad_rows: `"report"` to set empty texts to None, drop rows with fewer than two languages, and count both;
            `"raise"` to raise on them.
        temperature: Mix the parts (Hub configs or files) with p ~ rows^(1/temperature), repeating small ones until all
            are exhausted: 1.0 for proportional, `float("inf")` for uniform. None takes every row once: parts follow
            one another, except that the configs of a streamed Hub dataset are drawn in proportion to the rows that
            its card states (uniformly if it states none).
        seed: Of the mixing and of the sample.
        config: The config (or configs) of a Hub dataset, instead of the language pairs that fit.
        revision: Of a Hub dataset.
        token: For private Hub datasets.
        max_rows: Read at most that many rows: the first ones; of several Hub configs in proportion to their rows.
        report: Filled in place with the counts; in a stream as rows are read (in `DataLoader` workers each process
            has its own copy).
        document_ids: Keep the column `doc_id`, which names the document of a row, of parquet and JSONL files and of
            Hub datasets; not of a stream.

    Returns:
        A dataset with the one column `translation`, a struct with a nullable string for each language, keys sorted.
        Every row has at least two texts. With `document_ids`, also `doc_id`, a string, null where a source has none.

    Raises:
        CorpusError: Bad input, whatever `bad_rows`: missing files, unknown languages, Moses files of different
            lengths, bytes that are not UTF-8, wrong numbers of TSV fields, values that are not texts, invalid JSON,
            missing columns; with `bad_rows="raise"` also empty texts and rows with fewer than two languages. For a
            stream, what the rows hold is raised when they are read.

    Example:
        >>> report = CorpusReport()
        >>> rows = load_parallel({"de": "ep.de", "en": "ep.en"}, report=report)  # doctest: +SKIP
        >>> rows[0]["translation"]  # doctest: +SKIP
        {'de': 'Das Haus', 'en': 'The house'}
    """
    place = "load_parallel"
    if bad_rows not in ("report", "raise"):
        raise bad_value(place, None, "bad_rows", bad_rows, '"report" or "raise"', "Pass one of them.")
    if temperature is not None and not temperature > 0:
        advice = "1.0 mixes in proportion, float('inf') uniformly."
        raise bad_value(place, None, "temperature", temperature, "a number above 0, or None", advice)
    if max_rows is not None and max_rows < 1:
        raise bad_value(place, None, "max_rows", max_rows, "a number above 0, or None", "Leave it out for all rows.")
    if document_ids and streaming:
        raise bad_value(place, None, "document_ids", True, "False for a stream", "Pass streaming=False.")
    for name, codes in (("languages", languages), ("pivot_languages", pivot_languages)):
        if isinstance(codes, str) or not all(isinstance(code, str) for code in codes or ()):
            raise bad_value(place, None, name, codes, "a list of language codes", "Pass e.g. ['de', 'en'].")
    stated = None if languages is None else tuple(sorted(set(languages)))
    pivots = None if pivot_languages is None else tuple(sorted(set(pivot_languages)))
    elements = list(source) if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    if not elements:
        raise bad_value(place, None, "source", source, "at least one source", "Pass a path or a Hub id.")
    report = CorpusReport() if report is None else report
    parts: list[Part] = []
    for element in elements:
        if element == "sample":
            parts.append(_sample_part(split, seed, max_rows, streaming))
            continue
        files = None
        if isinstance(element, Mapping) or not is_hub_layout(os.path.expanduser(element)):
            files = find_files(element)
        if files is None:
            options = {"streaming": streaming, "revision": revision, "token": token}
            parts += _hub_parts(os.path.expanduser(element), stated, pivots, config, split, **options)
            continue
        if config is not None or revision is not None:
            advice = "Files have neither; a folder laid out like a Hub dataset has a README.md that lists `configs`."
            raise bad_value(str(element), None, "config", config or revision, "no config and no revision", advice)
        if "[" in split or "+" in split:
            advice = "Files have no splits to slice or to add: pass max_rows, or the files you want."
            raise bad_value(str(element), None, "split", split, "a plain name", advice)
        parts += [_file_part(file, stated, streaming) for file in files]
    chosen = _resolve_languages(parts, stated, pivots, str(source))
    if not streaming:
        for part, limit in zip(parts, _limits(parts, max_rows, temperature), strict=True):
            part.raw = part.raw.select(range(min(limit + part.header, len(part.raw)))) if limit else part.raw
    options = {"bad_rows": bad_rows, "document_ids": document_ids}
    load = _load_stream if streaming else _load
    mixed = _mix([load(part, chosen, report, options) for part in parts], parts, temperature, seed)
    if streaming:
        return mixed if max_rows is None else mixed.take(max_rows)
    if len(mixed) == 0:
        advice = "Look at the file and at the requested languages."
        raise bad_value(str(source), None, None, Words(f"no row to keep ({report.summary()})"), "some", advice)
    return mixed if max_rows is None else mixed.select(range(min(max_rows, len(mixed))))


# ---- Opening


@dataclass
class Part:
    """What temperature mixes: a file, or a config of a Hub dataset, as `datasets.load_dataset` opened it.

    Args:
        raw: Its rows; for JSONL, TSV and Moses files, lines.
        place: Its name in messages.
        parse: Makes `(row numbers, columns)` of a table of raw rows and their numbers.
        languages: Those it holds; of a JSONL file those of its first rows.
        file: The file, if it is one; else it is a config of a Hub dataset.
        rows: How many rows a streamed config has, if its card says so.
        header: Raw rows that are none.
        find_more: Finds the languages that further rows of a JSONL file hold.
    """

    raw: AnyDataset
    place: str
    parse: Callable[..., tuple[Sequence[int], Columns]]
    languages: tuple[str, ...]
    file: FileSource | None = None
    rows: int | None = None
    header: int = 0
    find_more: Callable[[], set[str]] | None = None

    def count_rows(self) -> int | None:
        if isinstance(self.raw, datasets.Dataset):
            return len(self.raw) - self.header
        return count_rows(self.file) if self.file else self.rows


def _sample_part(split: str, seed: int, max_rows: int | None, streaming: bool) -> Part:
    rows = sample_parallel(max_rows or 20_000, split={"validation": "dev"}.get(split, split), seed=seed)
    place = f"sample (split {split})"
    names = _languages_of_schema(rows.features.arrow_schema, place, None)
    raw = rows.to_iterable_dataset() if streaming else rows
    return Part(raw, place, partial(_parse_table, place=place, names=names), names, rows=len(rows))


def _hub_parts(
    path: str,
    languages: Sequence[str] | None,
    pivots: Sequence[str] | None,
    config: str | Sequence[str] | None,
    split: str,
    **options: object,
) -> list[Part]:
    """Open the configs of a Hub dataset: the stated ones, or every pair of two requested languages with a pivot."""
    reached = {name: options[name] for name in ("revision", "token")}
    try:
        if config is None:
            names = select_configs(datasets.get_dataset_config_names(path, **reached), languages, pivots, path)
        else:
            names = [config] if isinstance(config, str) else list(config)
        opened = {name: datasets.load_dataset(path, name, split=split, **options) for name in names}
    except CorpusError:
        raise
    except ValueError as error:  # of an unknown config or split, with those that there are
        found, advice = Words(f"what can't be loaded ({error})"), "Correct config= and split=."
        raise bad_value(path, None, None, found, f"config {config!r} and split {split!r}", advice) from error
    except (FileNotFoundError, ConnectionError) as error:
        found = Words(f"neither a local file or folder nor a dataset that the Hub gives ({error})")
        advice = "Correct the path or the id, log in if the dataset is private, or pass source='sample' to go offline."
        raise bad_value(path, None, None, found, "one of them", advice) from error
    parts = []
    for name, raw in opened.items():
        place = f"{path} (config {name}, split {split})"
        stated = (raw.info.splits or {}).get(split)
        rows = stated.num_examples or None if stated else None
        if raw.features is None:  # of a stream whose card does not say
            schema = next(iter(raw.with_format("arrow").iter(STREAM_ROWS))).schema
            raw = raw.cast(datasets.Features.from_arrow_schema(schema))
        found = _languages_of_schema(raw.features.arrow_schema, place, languages)
        parse = partial(_parse_table, place=place, names=found)
        parts.append(Part(raw, place, parse, found, rows=rows))
    return parts


def _file_part(file: FileSource, stated: Sequence[str] | None, streaming: bool) -> Part:
    place, path = file.place, file.paths[0]
    if file.format == "parquet":
        try:
            with pq.ParquetFile(path) as parquet:
                schema, rows = parquet.schema_arrow, parquet.metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            found = Words(f"{os.path.getsize(path)} bytes that are not parquet ({error})")
            raise bad_value(path, None, None, found, "a parquet file", "Fetch or write the file again.") from error
        names = _languages_of_schema(schema, place, stated)
        columns = ["translation"] if "translation" in schema.names else list(names)
        columns += [DOCUMENT_ID] * (DOCUMENT_ID in schema.names)
        raw = open_parquet(path, streaming, columns=columns) if rows else _no_rows(columns, streaming)
        return Part(raw, place, partial(_parse_table, place=place, names=names), names, file)
    if file.format == "moses":
        counts = [count_lines(path) for path in file.paths]
        if len(set(counts)) > 1:
            listed = ", ".join(f"{path}: {count} lines" for path, count in zip(file.paths, counts, strict=True))
            advice = "Line n of each must be a translation of line n of the others: fetch or align the files again."
            raise CorpusError(f"{place}: found different numbers of lines ({listed}), expected equal ones. {advice}")
    lines = [_open_lines(path, streaming) for path in file.paths]
    if file.format == "moses":
        names = file.languages
        lines = [part.rename_column("text", name) for part, name in zip(lines, names, strict=True)]
        raw = datasets.concatenate_datasets(lines, axis=1)
        if stated is None:
            check_codes(names, place)
        parse = partial(_parse_moses, files=dict(zip(names, file.paths, strict=True)))
        return Part(raw, place, parse, names, file)
    (raw,) = lines
    if file.format == "tsv":
        names = tuple(next(read_lines(path), (1, ""))[1].split("\t"))
        if len(set(names)) < len(names) or len(names) < 2:
            expected = "two or more different language codes, separated by tabs"
            raise bad_value(path, 1, "header", list(names), expected, "Put such a header on top of the file.")
        if stated is None:
            check_codes(names, place)
        return Part(raw, place, partial(_parse_tsv, place=place, names=names), names, file, header=1)
    nested = "translation" in next((row for _, row in _json_rows(path)), {})
    find = partial(_json_languages, path, nested, stated)
    names = tuple(sorted(find(PEEK_ROWS)))
    if stated is None:
        check_codes(names, place)
    parse = partial(_parse_json, place=place, names=names, nested=nested, inferred=stated is None)
    return Part(raw, place, parse, names, file, find_more=find)


def _no_rows(columns: Sequence[str], streaming: bool) -> AnyDataset:
    features = datasets.Features({name: datasets.Value("string") for name in columns})
    if streaming:
        return datasets.IterableDataset.from_generator(partial(iter, ()), features=features)
    return datasets.Dataset.from_dict({name: [] for name in columns}, features=features)


def _open_lines(path: str, streaming: bool) -> AnyDataset:
    """Open the lines of a text file, plain or gzipped, as the column `text`.

    They are read as Latin-1, which any bytes are, so that `_text_of` can name the row whose bytes are not UTF-8.
    """
    options = {"encoding": "latin-1", "features": datasets.Features({"text": datasets.Value("string")})}
    if next(read_lines(path), None) is None:
        return _no_rows(["text"], streaming)
    try:
        return datasets.load_dataset(
            "text", data_files={"train": [path]}, split="train", streaming=streaming, **options
        )
    except datasets.exceptions.DatasetGenerationError as error:
        deque(read_lines(path), maxlen=0)  # names the row
        found = Words(f"a damaged file ({error.__cause__ or error})")
        raise bad_value(path, None, None, found, "text, plain or gzipped", "Fetch it again.") from error


def _text_of(line: str, path: str, number: int, name: str | None = None) -> str:
    """Return a line of `_open_lines` as it was written. Of a gzipped file, `datasets` decodes the lines itself."""
    if path.endswith(".gz"):
        return line.removeprefix("\ufeff") if number == 1 else line
    raw = line.encode("latin-1")
    return decode(raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw, path, number, name)


def _json_rows(path: str) -> Iterator[tuple[int, dict]]:
    return ((number, parse_json(line, path, number)) for number, line in read_lines(path) if line.strip())


def _json_languages(place: str, nested: bool, stated: Sequence[str] | None, limit: int | None = None) -> set[str]:
    """Return the languages of the first `limit` rows of a JSONL file, or of all."""
    found: set[str] = set()
    for number, row in islice(_json_rows(place), limit):
        for name, text in _texts_of_row(row, nested, place, number).items():
            if nested or name in (stated or ()) or (is_code(name) and (stated is not None or isinstance(text, str))):
                found.add(name)
    if not found:
        expected = "a `translation` object, or one field per language"
        raise bad_value(place, None, "translation", Words("no rows with texts by language"), expected, "Correct it.")
    return found


def _texts_of_row(row: dict, nested: bool, place: str, number: int) -> dict:
    """Return what a JSON row holds by language; in flat rows (no `translation`) also its other columns."""
    if not nested:
        return row
    texts = row.get("translation", Words(f"no such field beside {sorted(row)}"))
    if texts is not None and not isinstance(texts, dict):
        advice = 'Write every row as {"translation": {"de": "...", "en": "..."}}, or with one field per language.'
        raise bad_value(place, number, "translation", texts, "an object of texts by language", advice)
    return texts or {}


def _languages_of_schema(schema: pa.Schema, place: str, requested: Sequence[str] | None) -> tuple[str, ...]:
    """Return the languages of a table: the fields of `translation`, or else the columns named by a language code."""
    if "translation" in schema.names:
        kind = schema.field("translation").type
        if not pa.types.is_struct(kind):
            advice = "Write a struct with one string per language."
            raise bad_value(place, 1, "translation", Words(str(kind)), "a struct of texts by language", advice)
        found = [field.name for field in kind]
    else:
        found = [name for name in schema.names if is_code(name) or name in (requested or ())]
        if "id" in found and not pa.types.is_string(schema.field("id").type) and "id" not in (requested or ()):
            found.remove("id")  # a running number, not Indonesian
    if not found:
        expected = "a column `translation`, or one column per language"
        found, advice = Words(f"the columns {schema.names}"), "Rename the columns, or leave the file out."
        raise bad_value(place, None, "translation", found, expected, advice)
    if requested is None:
        check_codes(found, place)
    return tuple(sorted(found))


# ---- Languages, limits and mixing


def _resolve_languages(
    parts: Sequence[Part], languages: tuple[str, ...] | None, pivots: tuple[str, ...] | None, place: str
) -> tuple[str, ...]:
    """Return the languages of the result, sorted: the requested ones, or all that are in the parts."""
    requested = set(languages or ()) | set(pivots or ()) if languages else set()
    found = set().union(*(part.languages for part in parts))
    if not found.issuperset(requested):  # a JSONL file may hold them further down
        found = found.union(*(part.find_more() for part in parts if part.find_more))
    check_languages(sorted(requested) or pivots or (), found, place)
    chosen = languages or tuple(sorted(found))
    if len(chosen) < 2:
        advice = "Request two or more, or load a source that has them."
        raise bad_value(place, None, "languages", list(chosen), "at least two languages", advice)
    return chosen


def _limits(parts: Sequence[Part], max_rows: int | None, temperature: float | None) -> list[int | None]:
    """Return how many rows to take of each part. Hub configs that are not mixed share `max_rows` in proportion to
    their rows, else the first pair would be all there is; other parts are cut after they were joined."""
    configs = [part for part in parts if not part.file]
    if max_rows is None or temperature is not None or len(configs) < max(2, len(parts)):
        return [max_rows] * len(parts)
    sizes = np.cumsum([part.count_rows() for part in configs])
    ends = [round(max_rows * int(size) / max(int(sizes[-1]), 1)) for size in sizes]
    return [max(end - start, 1) for start, end in zip([0, *ends], ends, strict=False)]


def mixing_probabilities(sizes: Sequence[int | None], temperature: float) -> list[float]:
    """Return p ~ rows^(1/temperature) for parts of `sizes` rows; uniform ones if a size is not known."""
    if any(size is None for size in sizes):
        logger.warning("The rows of some parts are not known before they are read: the parts are mixed uniformly.")
        return [1 / len(sizes)] * len(sizes)
    weights = [(size / max(sizes)) ** (1 / temperature) for size in sizes]  # the ratio first: no overflow below T = 1
    return [weight / sum(weights) for weight in weights]


def _mix(loaded: list[AnyDataset], parts: Sequence[Part], temperature: float | None, seed: int) -> AnyDataset:
    """Join the parts: one after the other, or drawn at random."""
    full = [index for index, rows in enumerate(loaded) if not isinstance(rows, datasets.Dataset) or len(rows)] or [0]
    loaded, parts = [loaded[index] for index in full], [parts[index] for index in full]
    streamed_configs = all(not part.file and not isinstance(part.raw, datasets.Dataset) for part in parts)
    if len(loaded) == 1:
        return loaded[0]
    if temperature is None and not streamed_configs:
        return datasets.concatenate_datasets(loaded)
    # A stream's shuffle buffer is far smaller than a config, so configs in a row would come out language by language.
    strategy = "all_exhausted_without_replacement" if temperature is None else "all_exhausted"
    probabilities = mixing_probabilities([part.count_rows() for part in parts], temperature or 1.0)
    return datasets.interleave_datasets(loaded, probabilities, seed=seed, stopping_strategy=strategy)


# ---- Rows


def _parse_table(
    table: pa.Table, numbers: list[int], requested: Sequence[str], place: str, names: Sequence[str]
) -> tuple[Sequence[int], Columns]:
    """Rows of parquet files and Hub datasets, with `translation` or one column per language."""
    table = table.combine_chunks()
    prefix = "translation." if "translation" in table.column_names else ""
    if prefix:
        struct = _in_one(table["translation"])
        # flatten(), unlike field(), also applies the nulls of the struct itself
        arrays = dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))
    else:
        arrays = {name: _in_one(table[name]) for name in names}
    columns = {name: _as_text(array, place, numbers, prefix + name) for name, array in arrays.items()}
    if DOCUMENT_ID in requested and DOCUMENT_ID in table.column_names:
        ids = _in_one(table[DOCUMENT_ID])
        is_number = pa.types.is_integer(ids.type)
        columns[DOCUMENT_ID] = ids.cast(pa.string()) if is_number else _as_text(ids, place, numbers, DOCUMENT_ID)
    return numbers, columns


def _in_one(column: pa.ChunkedArray) -> pa.Array:
    column = column.combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _as_text(array: pa.Array, place: str, numbers: Sequence[int], name: str) -> pa.Array:
    """Return `array` as valid UTF-8 strings, or raise [`CorpusError`]."""
    kind = array.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and array.null_count < len(array):
        index = pc.index(array.is_valid(), True).as_py()
        advice = "Convert the column to strings, or take it out of the languages."
        raise bad_value(place, numbers[index], name, array[index].as_py(), f"a text or null, not {kind}", advice)
    array = array.cast(pa.string())
    try:
        array.validate(full=True)  # parquet readers take the bytes of a string column on trust
    except pa.ArrowInvalid:
        for number, value in zip(numbers, array.cast(pa.binary()).to_pylist(), strict=True):
            decode(value or b"", place, number, name)
        raise
    return array


def _parse_moses(
    table: pa.Table, numbers: list[int], requested: Sequence[str], files: Mapping[str, str]
) -> tuple[Sequence[int], Columns]:
    columns = {}
    for name, path in files.items():
        lines = zip(numbers, table[name].to_pylist(), strict=True)
        columns[name] = pa.array([_text_of(line, path, number, name) for number, line in lines], pa.string())
    return numbers, columns


def _parse_tsv(
    table: pa.Table, numbers: list[int], requested: Sequence[str], place: str, names: Sequence[str]
) -> tuple[Sequence[int], Columns]:
    lines = [(number, line) for number, line in zip(numbers, table["text"].to_pylist(), strict=True) if number > 1]
    rows = [split_fields(_text_of(line, place, number), names, place, number) for number, line in lines]
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    kept = {name: pa.array(texts, pa.string()) for name, texts in zip(names, columns, strict=True)}
    return [number for number, _ in lines], kept


def _parse_json(
    table: pa.Table,
    numbers: list[int],
    requested: Sequence[str],
    place: str,
    names: Sequence[str],
    nested: bool,
    inferred: bool = False,
) -> tuple[Sequence[int], Columns]:
    """Rows of a JSONL file. If its languages were looked up (`inferred`), one that turns up later is an error."""
    lines = [(number, line) for number, line in zip(numbers, table["text"].to_pylist(), strict=True) if line.strip()]
    numbers = [number for number, _ in lines]
    columns: dict[str, list] = {name: [None] * len(lines) for name in {*names, *requested} - {DOCUMENT_ID}}
    ids: list[str | None] = []
    for index, (number, line) in enumerate(lines):
        row = parse_json(_text_of(line, place, number), place, number)
        if DOCUMENT_ID in requested:
            found = row.get(DOCUMENT_ID)
            if found is not None and not isinstance(found, str | int):
                raise bad_value(
                    place, number, DOCUMENT_ID, found, "a text, a whole number or null", "Correct the row."
                )
            ids.append(None if found is None else str(found))
        for name, text in _texts_of_row(row, nested, place, number).items():
            if name not in columns:
                if not nested:
                    continue
                if inferred:
                    expected = f"only the languages of the first {PEEK_ROWS} rows ({', '.join(names)})"
                    advice = "Pass languages=[...] with those to take."
                    raise bad_value(place, number, f"translation.{name}", name, expected, advice)
                columns[name] = [None] * len(lines)
            if text is not None:
                check_text(text, place, number, f"translation.{name}" if nested else name, "a text or null")
            columns[name][index] = text
    arrays = {name: pa.array(texts, pa.string()) for name, texts in columns.items()}
    return numbers, arrays | ({DOCUMENT_ID: pa.array(ids, pa.string())} if ids else {})


def _check(
    table: pa.Table,
    indices: Sequence[int],
    parse: Callable[..., tuple[Sequence[int], Columns]],
    place: str,
    languages: Sequence[str],
    bad_rows: str,
    document_ids: bool,
    version: int = VERSION,
) -> pa.Table:
    """Parse and check some rows.

    Returns:
        Those rows, good or bad, with the columns of [`features_of`], their number `row`, how many of their texts were
        `empty`, and their `state`: kept, of other languages, or bad.
    """
    wanted = (*languages, DOCUMENT_ID) if document_ids else languages
    numbers, columns = parse(table, [index + 1 for index in indices], wanted)
    ids = columns.pop(DOCUMENT_ID, pa.nulls(len(numbers), pa.string()))
    texts = {name: columns.get(name, pa.nulls(len(numbers), pa.string())) for name in languages}
    blank = {
        name: pc.equal(pc.binary_length(pc.utf8_ltrim_whitespace(text)), 0).fill_null(False)
        for name, text in texts.items()
    }
    in_all, requested = _count_valid(columns.values(), len(numbers)), _count_valid(texts.values(), len(numbers))
    empty = np.sum([mask.to_numpy(zero_copy_only=False) for mask in blank.values()], axis=0).astype(np.int64)
    kept = requested - empty >= 2
    state = np.where(kept, KEPT, np.where((requested < 2) & (in_all >= 2), OTHER, BAD))
    if bad_rows == "raise" and len(bad := np.flatnonzero((empty > 0) | (state == BAD))):
        first = {name: array.take(bad[:1]) for name, array in columns.items()}
        for number, name, found, expected in _describe_bad([numbers[bad[0]]], first, languages):
            advice = 'Delete the row, or pass bad_rows="report" to skip it.'
            raise bad_value(place, number, name, found, expected, advice)
    if empty.any():
        texts = {name: pc.if_else(blank[name], pa.scalar(None, pa.string()), text) for name, text in texts.items()}
    struct = pa.StructArray.from_arrays(list(texts.values()), names=list(texts))
    found = {"translation": struct} | ({DOCUMENT_ID: ids} if document_ids else {})
    return pa.table(found | {"row": pa.array(numbers, pa.int64()), "empty": empty, "state": state})


def _count_valid(arrays: Iterable[pa.Array], size: int) -> np.ndarray:
    valid = [array.is_valid().to_numpy(zero_copy_only=False) for array in arrays]
    return np.sum(valid, axis=0, dtype=np.int64) if valid else np.zeros(size, np.int64)


def _describe_bad(
    numbers: Sequence[int], columns: Columns, languages: Sequence[str]
) -> Iterator[tuple[int, str, object, str]]:
    """Yield row number, field, what was found and what was expected, of every empty text and every bad row."""
    for index, number in enumerate(numbers):
        row = {name: array[index].as_py() for name, array in columns.items() if name != DOCUMENT_ID}
        there = [name for name, text in row.items() if text is not None]
        empty = [name for name in languages if name in there and not row[name].strip()]
        for name in empty:
            yield number, f"translation.{name}", row[name], "a text that is not empty"
        if not empty and len(there) < 2:
            yield number, "translation", Words(f"{len(there)} language(s) {there}"), "at least two languages"


def _count(
    found: pa.Table, part: Part, languages: Sequence[str], read: Callable[[np.ndarray], pa.Table]
) -> tuple[np.ndarray, CorpusReport]:
    """Return which of the checked rows are kept, and the counts. `read` gives the raw rows of some numbers."""
    state, empty, rows = (found[name].to_numpy() for name in ("state", "empty", "row"))
    states = np.bincount(state, minlength=3).tolist()
    counts = CorpusReport(len(state), states[KEPT], int(empty.sum()), states[BAD], states[OTHER])
    bad = rows[(state == BAD) | (empty > 0)][:MAX_EXAMPLES]
    if len(bad):
        described = _describe_bad(*part.parse(read(bad), bad.tolist(), languages), languages)
        counts.first_examples = [
            f"{part.place}, row {number}, field '{name}': {clip(what)}"
            for number, name, what, _ in islice(described, MAX_EXAMPLES)
        ]
    return state == KEPT, counts


def _load(part: Part, languages: Sequence[str], report: CorpusReport, options: dict) -> datasets.Dataset:
    """Return the good rows of a part. The checked rows are cached by `Dataset.map`; the counts are made of them."""
    features = features_of(languages, options["document_ids"])
    if not len(part.raw):
        return datasets.Dataset.from_dict({name: [] for name in features}, features=features)
    checked = part.raw.with_format("arrow").map(
        partial(_check, parse=part.parse, place=part.place, languages=languages, **options),
        with_indices=True,
        batched=True,
        batch_size=MAP_ROWS,
        remove_columns=part.raw.column_names,
        features=datasets.Features(features | {name: datasets.Value("int64") for name in ("row", "empty", "state")}),
        desc="Checking rows",
    )
    raw = part.raw.with_format("arrow")
    kept, counts = _count(checked[:], part, languages, lambda rows: raw.select(rows - 1)[:])
    report.add(part.place, counts, counts.rows)
    rows = checked.with_format(None).select_columns(list(features))
    return rows if kept.all() else rows.select(np.flatnonzero(kept))


def _load_stream(
    part: Part, languages: Sequence[str], report: CorpusReport, options: dict
) -> datasets.IterableDataset:
    """Return the good rows of a part as a stream, which counts as it is read."""
    names = list(part.raw.features)
    check = partial(_check, parse=part.parse, place=part.place, languages=languages, **options)
    raw, part = (
        part.raw,
        replace(part, raw=None, find_more=None),
    )  # DataLoader workers get a copy of what the function holds
    return (
        raw.with_format("arrow")
        .map(
            partial(_check_block, check=check, part=part, languages=languages, report=report),
            with_indices=True,
            batched=True,
            batch_size=STREAM_ROWS,
            remove_columns=[name for name in names if name != "translation"],
            features=features_of(languages),
        )
        .with_format(None)
    )


def _check_block(
    table: pa.Table,
    indices: Sequence[int],
    check: Callable,
    part: Part,
    languages: Sequence[str],
    report: CorpusReport,
) -> pa.Table:
    found = check(table, indices)
    first = indices[0]
    kept, counts = _count(found, part, languages, lambda rows: table.take(rows - 1 - first))
    if found.num_rows:
        report.add(part.place, counts, indices[-1] + 1)
    return found.select(["translation"]).filter(pa.array(kept))
