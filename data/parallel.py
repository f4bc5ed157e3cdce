"""`load_parallel`: one call from a name, a path or a list of them to a checked parallel corpus."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

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
    column_values,
    count_lines,
    count_rows,
    find_files,
    is_hub_layout,
    open_parquet,
    read_lines,
    select_configs,
)
from .sample import sample_parallel
from .text_rows import FURTHER, PEEK_ROWS, ROW, json_languages, json_rows, open_text_rows

logger = logging.getLogger("modeling_tmde.data")

Source = str | os.PathLike | Mapping[str, str | os.PathLike]
Columns = dict[str, pa.Array]  # strings by language, and under `doc_id` the names of documents

VERSION = 2  # of the checks: raise it when they change, so that cached corpora are checked again
MAP_ROWS, STREAM_ROWS = 10_000, 500  # what a stream reads and checks ahead of the row it gives
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
    for name, value, is_right, expected in (
        ("bad_rows", bad_rows, bad_rows in ("report", "raise"), '"report" or "raise"'),
        ("temperature", temperature, temperature is None or temperature > 0, "a number above 0, or None"),
        ("max_rows", max_rows, max_rows is None or max_rows >= 1, "a number above 0, or None"),
        ("document_ids", document_ids, not (document_ids and streaming), "False for a stream"),
        ("languages", languages, _are_codes(languages), "a list of language codes"),
        ("pivot_languages", pivot_languages, _are_codes(pivot_languages), "a list of language codes"),
        ("source", source, source not in ([], ()), "at least one source"),
    ):
        if not is_right:
            raise bad_value("load_parallel", None, name, value, expected, "Correct the argument.")
    stated = None if languages is None else tuple(sorted(set(languages)))
    pivots = None if pivot_languages is None else tuple(sorted(set(pivot_languages)))
    elements = list(source) if isinstance(source, Sequence) and not isinstance(source, str) else [source]
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
        parts += [_file_part(file, stated, streaming, document_ids) for file in files]
    chosen = _resolve_languages(parts, stated, pivots, str(source))
    if not streaming:
        for part, limit in zip(parts, _limits(parts, max_rows, temperature), strict=True):
            part.raw = part.raw.select(range(min(limit, len(part.raw)))) if limit else part.raw
    options = {"bad_rows": bad_rows, "document_ids": document_ids}
    load = _load_stream if streaming else _load
    mixed = _mix([load(part, chosen, report, options) for part in parts], parts, temperature, seed)
    if streaming:
        return mixed if max_rows is None else mixed.take(max_rows)
    if len(mixed) == 0:
        advice = "Look at the file and at the requested languages."
        raise bad_value(str(source), None, None, Words(f"no row to keep ({report.summary()})"), "some", advice)
    return mixed if max_rows is None else mixed.select(range(min(max_rows, len(mixed))))


def _are_codes(codes: object) -> bool:
    return not isinstance(codes, str) and all(isinstance(code, str) for code in codes or ())


# ---- Opening


@dataclass
class Part:
    """What temperature mixes: a file, or a config of a Hub dataset, as `datasets.load_dataset` opened it.

    Args:
        raw: Its rows.
        place: Its name in messages.
        languages: Those it holds; of a JSONL file those of its first rows.
        file: The file, if it is one; else it is a config of a Hub dataset.
        rows: How many rows a streamed config has, if its card says so.
        find_more: Finds the languages that further rows of a JSONL file hold.
    """

    raw: AnyDataset
    place: str
    languages: tuple[str, ...]
    file: FileSource | None = None
    rows: int | None = None
    find_more: Callable[[], set[str]] | None = None

    def count_rows(self) -> int | None:
        if isinstance(self.raw, datasets.Dataset):
            return len(self.raw)
        return count_rows(self.file) if self.file else self.rows


def _sample_part(split: str, seed: int, max_rows: int | None, streaming: bool) -> Part:
    rows = sample_parallel(max_rows or 20_000, split={"validation": "dev"}.get(split, split), seed=seed)
    place = f"sample (split {split})"
    names = _languages_of_schema(rows.features.arrow_schema, place, None)
    raw = rows.to_iterable_dataset() if streaming else rows
    return Part(raw, place, names, rows=len(rows))


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
        parts.append(Part(raw, place, found, rows=rows))
    return parts


def _file_part(file: FileSource, stated: Sequence[str] | None, streaming: bool, document_ids: bool) -> Part:
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
        if rows:
            return Part(open_parquet(path, streaming, columns=columns), place, names, file)
        raw = datasets.Dataset.from_dict({name: [] for name in columns})
        return Part(raw.to_iterable_dataset() if streaming else raw, place, names, file)
    options: dict[str, object] = {}
    find = None
    if file.format == "moses":
        names = file.languages
        counts = [count_lines(path) for path in file.paths]
        if len(set(counts)) > 1:
            listed = ", ".join(f"{path}: {count} lines" for path, count in zip(file.paths, counts, strict=True))
            advice = "Line n of each must be a translation of line n of the others: fetch or align the files again."
            raise CorpusError(f"{place}: found different numbers of lines ({listed}), expected equal ones. {advice}")
    elif file.format == "tsv":
        names = tuple(next(read_lines(path), (1, ""))[1].split("\t"))
        if len(set(names)) < len(names) or len(names) < 2:
            expected = "two or more different language codes, separated by tabs"
            raise bad_value(path, 1, "header", list(names), expected, "Put such a header on top of the file.")
    else:
        nested = "translation" in next((row for _, row in json_rows(path)), {})
        find = partial(json_languages, path, nested, stated)
        names = tuple(sorted(find(PEEK_ROWS)))
        options = {"nested": nested, "inferred": stated is None, "document_ids": document_ids}
    if stated is None:
        check_codes(names, place)
    read = tuple(sorted({*names, *(stated or ())})) if find else names
    raw = open_text_rows(file, streaming, languages=read, **options)
    return Part(raw, place, names, file, find_more=find)


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


def _columns(
    table: pa.Table, numbers: Sequence[int], place: str, names: Sequence[str], document_ids: bool = False
) -> Columns:
    """Return the texts by language of raw rows, with `translation` or one column per language, and their documents."""
    table = table.combine_chunks()
    prefix = "translation." if "translation" in table.column_names else ""
    if prefix:
        struct = _in_one(table["translation"])
        # flatten(), unlike field(), also applies the nulls of the struct itself
        arrays = dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))
    else:
        if ROW in table.column_names:
            names = [name for name in table.column_names if name not in (ROW, FURTHER, DOCUMENT_ID)]
        arrays = {name: _in_one(table[name]) for name in names}
    columns = {name: _as_text(array, place, numbers, prefix + name) for name, array in arrays.items()}
    if document_ids and DOCUMENT_ID in table.column_names:
        ids = _in_one(table[DOCUMENT_ID])
        is_number = pa.types.is_integer(ids.type)
        columns[DOCUMENT_ID] = ids.cast(pa.string()) if is_number else _as_text(ids, place, numbers, DOCUMENT_ID)
    return columns


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
        column_values(array, place, numbers, name)  # names the row
        raise
    return array


def _check(
    table: pa.Table,
    indices: Sequence[int],
    place: str,
    names: Sequence[str],
    languages: Sequence[str],
    bad_rows: str,
    document_ids: bool,
    version: int = VERSION,
) -> pa.Table:
    """Check some rows, whose languages are `names`.

    Returns:
        Those rows, good or bad, with the columns of [`features_of`], how many of their texts were `empty`, their
        `state` (kept, of other languages, or bad) and, of the first bad ones, what is wrong as an `example`.
    """
    numbers = table[ROW].to_pylist() if ROW in table.column_names else [index + 1 for index in indices]
    columns = _columns(table, numbers, place, names, document_ids)
    ids = columns.pop(DOCUMENT_ID, pa.nulls(len(numbers), pa.string()))
    texts = {name: columns.get(name, pa.nulls(len(numbers), pa.string())) for name in languages}
    blank = {
        name: pc.equal(pc.binary_length(pc.utf8_ltrim_whitespace(text)), 0).fill_null(False)
        for name, text in texts.items()
    }
    in_all, requested = _count_valid(columns.values(), len(numbers)), _count_valid(texts.values(), len(numbers))
    in_all = in_all + (table[FURTHER].to_numpy() if FURTHER in table.column_names else 0)
    empty = np.sum([mask.to_numpy(zero_copy_only=False) for mask in blank.values()], axis=0).astype(np.int64)
    kept = requested - empty >= 2
    state = np.where(kept, KEPT, np.where((requested < 2) & (in_all >= 2), OTHER, BAD))
    bad = np.flatnonzero((empty > 0) | (state == BAD))[:MAX_EXAMPLES]
    examples = np.full(len(state), None, dtype=object)
    for index in bad.tolist():
        number, row = numbers[index], {name: array[index].as_py() for name, array in columns.items()}
        for name, value, expected in _describe_bad(row, languages):
            if bad_rows == "raise":
                advice = 'Delete the row, or pass bad_rows="report" to skip it.'
                raise bad_value(place, number, name, value, expected, advice)
            example = f"{place}, row {number}, field '{name}': {clip(value)}"
            examples[index] = f"{examples[index]}; {example}" if examples[index] else example
    if empty.any():
        texts = {name: pc.if_else(blank[name], pa.scalar(None, pa.string()), text) for name, text in texts.items()}
    struct = pa.StructArray.from_arrays(list(texts.values()), names=list(texts))
    found = {"translation": struct} | ({DOCUMENT_ID: ids} if document_ids else {})
    return pa.table(found | {"empty": empty, "state": state, "example": pa.array(examples, pa.string())})


def _count_valid(arrays: Iterable[pa.Array], size: int) -> np.ndarray:
    valid = [array.is_valid().to_numpy(zero_copy_only=False) for array in arrays]
    return np.sum(valid, axis=0, dtype=np.int64) if valid else np.zeros(size, np.int64)


def _describe_bad(row: dict[str, str | None], languages: Sequence[str]) -> Iterator[tuple[str, object, str]]:
    """Yield field, what was found and what was expected, of every empty text of a row, or of a row of one language."""
    there = [name for name, text in row.items() if text is not None]
    empty = [name for name in languages if name in there and not row[name].strip()]
    for name in empty:
        yield f"translation.{name}", row[name], "a text that is not empty"
    if not empty and len(there) < 2:
        yield "translation", Words(f"{len(there)} language(s) {there}"), "at least two languages"


def _count(found: pa.Table) -> tuple[np.ndarray, CorpusReport]:
    """Return which of the checked rows are kept, and the counts."""
    state, empty = found["state"].to_numpy(), found["empty"].to_numpy()
    states = np.bincount(state, minlength=3).tolist()
    examples = found["example"].drop_null()[:MAX_EXAMPLES].to_pylist()
    return state == KEPT, CorpusReport(
        len(state), states[KEPT], int(empty.sum()), states[BAD], states[OTHER], examples
    )


def _load(part: Part, languages: Sequence[str], report: CorpusReport, options: dict) -> datasets.Dataset:
    """Return the good rows of a part. The checked rows are cached by `Dataset.map`; the counts are made of them."""
    features = features_of(languages, options["document_ids"])
    if not len(part.raw):
        return datasets.Dataset.from_dict({name: [] for name in features}, features=features)
    counted = {"empty": datasets.Value("int64"), "state": datasets.Value("int64"), "example": datasets.Value("string")}
    checked = part.raw.with_format("arrow").map(
        partial(_check, place=part.place, names=part.languages, languages=languages, **options),
        with_indices=True,
        batched=True,
        batch_size=MAP_ROWS,
        remove_columns=part.raw.column_names,
        features=datasets.Features(features | counted),
        desc="Checking rows",
    )
    kept, counts = _count(checked[:])
    report.add(part.place, counts, counts.rows)
    rows = checked.with_format(None).select_columns(list(features))
    return rows if kept.all() else rows.select(np.flatnonzero(kept))


def _load_stream(
    part: Part, languages: Sequence[str], report: CorpusReport, options: dict
) -> datasets.IterableDataset:
    """Return the good rows of a part as a stream, which counts as it is read."""
    names = list(part.raw.features)
    check = partial(_check, place=part.place, names=part.languages, languages=languages, **options)
    return (
        part.raw.with_format("arrow")
        .map(
            partial(_check_block, check=check, place=part.place, report=report),
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
    check: Callable[[pa.Table, Sequence[int]], pa.Table],
    place: str,
    report: CorpusReport,
) -> pa.Table:
    found = check(table, indices)
    kept, counts = _count(found)
    report.add(place, counts, indices[-1] + 1)
    return found.select(["translation"]).filter(pa.array(kept))
