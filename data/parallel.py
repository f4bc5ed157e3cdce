"""`load_parallel`: one call from a name, a path or a list of them to a checked parallel corpus."""

import logging
import math
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain, islice
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .checks import Words, bad_value, check_languages, is_code
from .files import (
    AnyDataset,
    FileSource,
    Row,
    blocks_of,
    check_text,
    find_files,
    open_parquet,
    read_lines,
    read_rows,
)
from .sample import LANGUAGES, sample_parallel

logger = logging.getLogger("tmde.data")

Source = str | os.PathLike | Mapping[str, str | os.PathLike]
Columns = dict[str, list | pa.Array]

DOCUMENT_ID = (
    "doc_id"  # the column that names the document of a row, in the source and in the result
)
LABEL = "label"  # the column of the class of a premise and a hypothesis, in the source and in the result
NLI_TEXTS = ("premise", "hypothesis")
CLASSES = ("entailment", "neutral", "contradiction")  # the order of SNLI, MultiNLI and XNLI
BATCH_ROWS = 500  # what a stream reads and checks ahead of the row it gives
MAX_EXAMPLES = 10
KEPT, OTHER, BAD = range(3)
_LOCK = (
    threading.Lock()
)  # interleaved streams are read in threads; here, since a report must be picklable


@dataclass
class CorpusReport:
    """Counts of what was read and of what was left out, filled in place by [`load_parallel`].

    Args:
        rows: Rows read.
        kept: Rows that came through.
        empty_texts: Texts of the requested languages that were empty or only whitespace, and became None.
        dropped_rows: Rows dropped as bad: fewer than two texts, or fewer than two after the empty ones went.
        other_rows: Rows left out, though not bad: of a source with further languages, without two requested ones.
        first_examples: The first few bad rows, with what was found and expected.
    """

    rows: int = 0
    kept: int = 0
    empty_texts: int = 0
    dropped_rows: int = 0
    other_rows: int = 0
    first_examples: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reached: dict[str, int] = {}

    def __deepcopy__(self, memo: dict) -> "CorpusReport":
        """Return the report itself: `interleave_datasets` copies streams, and the caller holds this one."""
        return self

    def add(self, place: str, checked: dict[str, list], last_row: int) -> list[int]:
        """Count the checked rows of `place` up to `last_row`, unless they were counted before: a stream is read again
        in every epoch, and by `interleave_datasets` also within one. Return which of the rows are kept."""
        states, examples = checked["state"], [example for example in checked["example"] if example]
        counts = [
            len(states),
            states.count(KEPT),
            sum(checked["empty"]),
            states.count(BAD),
            states.count(OTHER),
        ]
        new = CorpusReport(*counts, first_examples=examples[:MAX_EXAMPLES])
        with _LOCK:
            is_new = last_row > self._reached.get(place, 0)
            if is_new:
                self._reached[place] = last_row
                for item in fields(new):
                    setattr(self, item.name, getattr(self, item.name) + getattr(new, item.name))
                del self.first_examples[MAX_EXAMPLES:]
        if is_new and new.first_examples:
            logger.warning("%s: %s", place, new.summary())
        return [index for index, state in enumerate(states) if state == KEPT]

    def summary(self) -> str:
        """Return one sentence with the counts and the first examples."""
        text = (
            f"{self.rows} rows read, {self.kept} kept, {self.dropped_rows} bad rows dropped, {self.empty_texts} empty "
            f"texts set to None, {self.other_rows} rows without two of the requested languages left out"
        )
        return (
            f"{text}. First bad ones: {'; '.join(self.first_examples)}"
            if self.first_examples
            else text
        )


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
    labels: bool = False,
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
            Hub datasets.
        labels: Load pairs for natural language inference instead: the columns `premise`, `hypothesis` and `label`, the
            name of one of entailment, neutral and contradiction, or its number in this order or in that of a
            `ClassLabel`. A row with another one, such as the -1 of SNLI, is a bad row. `languages` then choose among
            the configs of a Hub dataset.

    Returns:
        A dataset with the one column `translation`, a struct with a nullable string for each language, keys sorted.
        Every row has at least two texts. With `document_ids`, also `doc_id`, a string, null where a source has none;
        with `labels`, the texts are `premise` and `hypothesis`, and `label` is the number of the class.

    Raises:
        CorpusError: Bad input, whatever `bad_rows`: no file found, unknown languages, Moses files of different
            lengths, bytes that are not UTF-8, wrong numbers of TSV fields, values that are not texts, invalid JSON,
            missing columns; with `bad_rows="raise"` also empty texts and rows with fewer than two languages. For a
            stream, what the rows hold is raised when they are read.
        OSError: A Moses file does not exist, or a Hub dataset can't be reached.
        ValueError: From `datasets`: a Hub dataset lacks the config or the split.

    Example:
        >>> report = CorpusReport()
        >>> rows = load_parallel({"de": "ep.de", "en": "ep.en"}, report=report)  # doctest: +SKIP
        >>> rows[0]["translation"]  # doctest: +SKIP
        {'de': 'Das Haus', 'en': 'The house'}
    """
    for name, value, is_right, expected in (
        ("bad_rows", bad_rows, bad_rows in ("report", "raise"), '"report" or "raise"'),
        (
            "temperature",
            temperature,
            temperature is None or temperature > 0,
            "a number above 0, or None",
        ),
        ("languages", languages, not isinstance(languages, str), "a list of language codes"),
    ):
        if not is_right:
            raise bad_value("load_parallel", None, name, value, expected, "Correct the argument.")
    codes = None if languages is None else tuple(sorted(set(languages)))
    stated, pivot_languages = (
        (tuple(sorted(NLI_TEXTS)), None) if labels else (codes, pivot_languages)
    )
    elements = (
        list(source) if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    )
    report = CorpusReport() if report is None else report
    parts: list[Part] = []
    for element in elements:
        if element == "sample":
            rows = sample_parallel(
                max_rows or 20_000, split={"validation": "dev"}.get(split, split), seed=seed
            )
            raw = rows.to_iterable_dataset() if streaming else rows
            parts.append(Part(raw, f"sample (split {split})", LANGUAGES, len(rows)))
            continue
        element = element if isinstance(element, Mapping) else os.path.expanduser(element)
        files = find_files(element)
        if files is None:
            access, configs = (
                {"revision": revision, "token": token},
                [config] if isinstance(config, str) else config,
            )
            if config is None:
                names = datasets.get_dataset_config_names(element, **access)
                configs = select_configs(names, codes, pivot_languages, element)
            parts += [
                _hub_part(element, name, split, stated, streaming=streaming, **access)
                for name in configs
            ]
        elif config is not None or revision is not None or "[" in split:
            advice = "Files have none of these; a folder laid out like a Hub dataset lists `configs` in its README.md."
            found = Words(f"config={config!r}, revision={revision!r}, split={split!r}")
            raise bad_value(
                str(element),
                None,
                "config",
                found,
                "no config, revision or slice of a split",
                advice,
            )
        else:
            parts += [_file_part(file, stated, streaming) for file in files]
    found = set(chain.from_iterable(part.languages for part in parts))
    check_languages([*(stated or ()), *(pivot_languages or ())], found, str(source))
    chosen = stated or tuple(sorted(found))
    if len(chosen) < 2:
        advice = "Request two or more, or load a source that has them."
        raise bad_value(
            str(source), None, "languages", list(chosen), "at least two languages", advice
        )
    limits = _limits(parts, None if streaming else max_rows, temperature)
    check, wanted = (
        {"languages": chosen, "bad_rows": bad_rows},
        features_of(chosen, document_ids, labels),
    )
    loaded = [
        _load(part, streaming, wanted, report, limit, **check)
        for part, limit in zip(parts, limits, strict=True)
    ]
    mixed = _mix(loaded, parts, temperature, seed)
    if streaming:
        return mixed if max_rows is None else mixed.take(max_rows)
    if len(mixed) == 0:
        advice = "Look at the file and at the requested languages."
        raise bad_value(
            str(source), None, None, Words(f"no row to keep ({report.summary()})"), "some", advice
        )
    return mixed if max_rows is None else mixed.select(range(min(max_rows, len(mixed))))


def features_of(
    languages: Sequence[str], document_ids: bool = False, labels: bool = False
) -> datasets.Features:
    """Return the features of every corpus: `translation`, a struct of nullable strings with sorted keys; with
    `document_ids`, a nullable string `doc_id`; and with `labels`, a number `label`."""
    text = datasets.Value("string")
    columns = {"translation": dict.fromkeys(sorted(languages), text)} | (
        {DOCUMENT_ID: text} if document_ids else {}
    )
    return datasets.Features(columns | ({LABEL: datasets.Value("int64")} if labels else {}))


def document_numbers(rows: datasets.Dataset) -> np.ndarray | None:
    """Return a number for the document of each row, (rows,), -1 for none; None if no row has a `doc_id`."""
    if DOCUMENT_ID not in rows.column_names:
        return None
    names = rows.select_columns(DOCUMENT_ID).with_format("arrow")[:][DOCUMENT_ID].combine_chunks()
    numbers = pc.fill_null(names.dictionary_encode().indices, -1).to_numpy().astype(np.int64)
    return numbers if (numbers >= 0).any() else None


# ---- Opening


@dataclass
class Part:
    """What temperature mixes: a file, or a config of a Hub dataset.

    Args:
        source: A text file, or rows with `translation` or one column per language.
        place: Its name in messages.
        languages: Those it holds; of a JSONL file at least the requested ones.
        rows: How many rows it has, if that is known.
        is_config: Whether it is a config of a Hub dataset.
    """

    source: FileSource | AnyDataset
    place: str
    languages: Sequence[str]
    rows: int | None = None
    is_config: bool = False


def select_configs(
    names: Sequence[str],
    languages: Sequence[str] | None,
    pivot_languages: Sequence[str] | None,
    place: str,
) -> list[str]:
    """Return the configs to load, given the names of all of a dataset's.

    Returns:
        The pairs, such as `de-en`, of two `languages` (None: any) of which at least one is in `pivot_languages`
        (None: any); of names that are no pairs, the only one, or those of the languages.

    Raises:
        CorpusError: A language is in no pair, or no config fits.
    """
    pairs = {name: set(name.split("-")) for name in names if name.count("-") == 1}
    pairs = {name: pair for name, pair in pairs.items() if all(map(is_code, pair))}
    there = set().union(*pairs.values())
    wanted, pivots = set(languages or there), set(pivot_languages or there)
    if pairs:
        check_languages(sorted(wanted | pivots), there, place)
    chosen = sorted(name for name, pair in pairs.items() if pair <= wanted and pair & pivots)
    chosen = chosen or sorted(wanted.intersection(names)) or [*names] * (len(names) == 1)
    if not chosen:
        expected = f"a pair such as 'de-en' of {sorted(wanted)} with a pivot of {sorted(pivots)}"
        advice = (
            "Change the languages, or pass config='...' with the one (or a list of those) to load."
        )
        raise bad_value(
            place, None, "config", Words(f"the configs {sorted(names)}"), expected, advice
        )
    return chosen


def _hub_part(
    path: str, config: str, split: str, stated: Sequence[str] | None, **options: Any
) -> Part:
    raw = datasets.load_dataset(path, config, split=split, **options)
    place, counted = f"{path} (config {config}, split {split})", (raw.info.splits or {}).get(split)
    rows = (
        len(raw) if isinstance(raw, datasets.Dataset) else counted and counted.num_examples or None
    )
    return Part(raw, place, _languages_of(raw.take(1), place, stated), rows, is_config=True)


def _file_part(file: FileSource, stated: Sequence[str] | None, streaming: bool) -> Part:
    place, rows = file.place, None
    if file.format == "parquet":
        raw = open_parquet(file.paths[0], streaming)
        return Part(
            raw,
            place,
            _languages_of(raw.take(1), place, stated),
            pq.read_metadata(file.paths[0]).num_rows,
        )
    if file.format == "moses":
        counts = {path: sum(1 for _ in read_lines(path)) for path in file.paths}
        if len(set(counts.values())) > 1:
            advice = "Line n of each must be a translation of line n of the others: fetch or align the files again."
            raise bad_value(
                place,
                None,
                None,
                Words(f"different numbers of lines {counts}"),
                "equal ones",
                advice,
            )
        rows = counts[file.paths[0]]
    names = _languages_of(
        (row for _, row in read_rows(file)), place, stated, file.format == "jsonl"
    )
    return Part(file, place, names, rows)


def _languages_of(
    rows: Iterable[Row], place: str, stated: Sequence[str] | None, differ: bool = False
) -> list[str]:
    """Return the languages of rows: the fields of `translation`, or else the columns, that are named by a language
    code or are stated.

    Args:
        differ: Rows may have different fields, so all are read, or as many as have the stated languages.
    """
    row, found, stated = {}, set(), set(stated or ())
    for row in rows:
        texts = row.get("translation", row)
        if isinstance(texts, dict):
            codes = {
                name
                for name, text in texts.items()
                if is_code(name) and isinstance(text, str | None)
            }
            found |= codes | stated & texts.keys()
        if not differ or (stated and stated <= found):
            break
    if not found:
        columns = Words(
            f"the columns {list(texts if isinstance(texts, dict) else row)}" if row else "no rows"
        )
        expected = "an object `translation` of texts by language, or one column per language, named by its code"
        advice = "Rename the columns, or pass languages=[...] with those to take."
        raise bad_value(place, None, "translation", columns, expected, advice)
    return sorted(found)


# ---- Limits and mixing


def _limits(
    parts: Sequence[Part], max_rows: int | None, temperature: float | None
) -> list[int | None]:
    """Return how many rows to read of each part. Hub configs that are not mixed share `max_rows` in proportion to
    their rows, else the first pair would be all there is."""
    if max_rows is None or temperature is not None or not all(part.is_config for part in parts):
        return [max_rows] * len(parts)
    return [math.ceil(max_rows * part.rows / sum(other.rows for other in parts)) for part in parts]


def mixing_probabilities(sizes: Sequence[int | None], temperature: float) -> list[float]:
    """Return p ~ rows^(1/temperature) for parts of `sizes` rows; uniform ones if a size is not known."""
    if any(size is None for size in sizes):
        logger.warning(
            "The rows of some parts are not known before they are read: the parts are mixed uniformly."
        )
        return [1 / len(sizes)] * len(sizes)
    weights = [
        (size / max(sizes)) ** (1 / temperature) for size in sizes
    ]  # the ratio first: no overflow below T = 1
    return [weight / sum(weights) for weight in weights]


def _mix(
    loaded: list[AnyDataset], parts: Sequence[Part], temperature: float | None, seed: int
) -> AnyDataset:
    """Join the parts: one after the other, or drawn at random."""
    # A stream's shuffle buffer is far smaller than a config, so configs in a row would come out language by language.
    streamed = isinstance(loaded[0], datasets.IterableDataset)
    if len(loaded) == 1 or (
        temperature is None and not (streamed and all(part.is_config for part in parts))
    ):
        return loaded[0] if len(loaded) == 1 else datasets.concatenate_datasets(loaded)
    sizes = [part.rows if streamed else len(rows) for rows, part in zip(loaded, parts, strict=True)]
    strategy = "all_exhausted_without_replacement" if temperature is None else "all_exhausted"
    probabilities = mixing_probabilities(sizes, temperature or 1.0)
    return datasets.interleave_datasets(
        loaded, probabilities, seed=seed, stopping_strategy=strategy
    )


# ---- Checks


def _check(
    columns: Columns,
    numbers: Sequence[int],
    place: str,
    languages: Sequence[str],
    has_others: bool,
    bad_rows: str,
    classes: Sequence[str],
) -> pa.Table:
    """Check numbered rows.

    Args:
        columns: The texts by language, and perhaps `doc_id` and `label`.
        has_others: Whether the source has further languages.
        classes: What the numbers of labels mean, in lower case; () where rows need no label.

    Returns:
        The rows, good and bad, with the columns of [`features_of`], how many of their texts were `empty`, their
        `state` (kept, of other languages, or bad) and an `example` of what is bad in the first few.
    """
    texts, nothing = [], [None] * len(numbers)
    for name in languages:
        values = columns.get(name, nothing)
        try:
            texts.append(values if isinstance(values, pa.Array) else pa.array(values, pa.string()))
        except (pa.ArrowException, UnicodeError):
            for number, value in zip(numbers, values, strict=True):
                check_text("" if value is None else value, place, number, name)
            raise
    blank = [
        pc.fill_null(pc.equal(pc.binary_length(pc.utf8_trim_whitespace(text)), 0), False)
        for text in texts
    ]
    there = np.stack([text.is_valid() for text in texts], axis=1)  # (rows, languages)
    empty = np.stack(blank, axis=1)
    state = np.where((there & ~empty).sum(axis=1) >= 2, KEPT, BAD)
    if has_others:
        state[there.sum(axis=1) < 2] = OTHER
    there_as = {name: (name, str(classes.index(name))) for name in CLASSES if name in classes}
    known = {form: CLASSES.index(name) for name, forms in there_as.items() for form in forms}
    labels = [known.get(str(value)) for value in columns.get(LABEL, nothing)]
    unlabeled = np.array([bool(classes) and label is None for label in labels], bool)
    state[unlabeled] = BAD
    examples, advice = list(nothing), 'Delete the row, or pass bad_rows="report" to skip it.'
    for row in np.flatnonzero(empty.any(axis=1) | (state == BAD))[:MAX_EXAMPLES]:
        codes = [name for name, is_there in zip(languages, there[row], strict=True) if is_there]
        name, found, expected = (
            "translation",
            Words(f"{len(codes)} language(s) {codes}"),
            "at least two languages",
        )
        if unlabeled[row]:
            name, found = LABEL, columns.get(LABEL, nothing)[row]
            expected = f"one of {', '.join(CLASSES)}, or its number"
        elif empty[row].any():
            first = int(empty[row].argmax())
            name, found, expected = languages[first], texts[first][row].as_py(), "a text"
        error = bad_value(place, numbers[row], name, found, expected, advice)
        if bad_rows == "raise":
            raise error
        examples[row] = str(error).removesuffix(f". {advice}")
    texts = [
        pc.if_else(mask, pa.scalar(None, pa.string()), text)
        for mask, text in zip(blank, texts, strict=True)
    ]
    documents = [None if name is None else str(name) for name in columns.get(DOCUMENT_ID, nothing)]
    checked = {
        "translation": pa.StructArray.from_arrays(texts, languages),
        DOCUMENT_ID: pa.array(documents, pa.string()),
        LABEL: pa.array(labels, pa.int64()),
        "empty": empty.sum(axis=1),
        "state": state,
        "example": pa.array(examples, pa.string()),
    }
    return pa.table(checked)


def _check_file(
    file: FileSource, limit: int | None, stamps: str, check: dict[str, Any]
) -> Iterator[Row]:
    """Yield the checked rows of a file. One that has changed has other `stamps`, and so another cache."""
    for numbers, rows in blocks_of(islice(read_rows(file), limit), BATCH_ROWS):
        texts = [row.get("translation", row) or {} for row in rows]
        for number, value in zip(numbers, texts, strict=True):
            if not isinstance(value, dict):
                expected = "an object of texts by language, or null"
                raise bad_value(
                    file.place, number, "translation", value, expected, "Correct or delete the row."
                )
        columns = {name: [text.get(name) for text in texts] for name in check["languages"]}
        columns |= {name: [row.get(name) for row in rows] for name in (DOCUMENT_ID, LABEL)}
        yield from _check(columns, numbers, **check).to_pylist()


def _check_table(table: pa.Table, indices: Sequence[int], check: dict[str, Any]) -> pa.Table:
    prefix = "translation." if "translation" in table.column_names else ""
    table = table.flatten()
    columns = {
        name: table[prefix + name]
        for name in check["languages"]
        if prefix + name in table.column_names
    }
    for (
        name,
        column,
    ) in (
        columns.items()
    ):  # texts stay in Arrow's memory: as Python objects they take twice the time
        columns[name] = (
            column.combine_chunks() if column.type == pa.string() else column.to_pylist()
        )
    columns |= {
        name: table[name].to_pylist() for name in (DOCUMENT_ID, LABEL) if name in table.column_names
    }
    return _check(columns, [index + 1 for index in indices], **check)


def _load(
    part: Part,
    streaming: bool,
    wanted: datasets.Features,
    report: CorpusReport,
    limit: int | None,
    **check: Any,
) -> AnyDataset:
    """Return the good rows of a part, with the columns `wanted`. The checked rows of a dataset are cached, and its
    counts are made of them; a stream counts as it is read."""
    counted = {
        "empty": datasets.Value("int64"),
        "state": datasets.Value("int64"),
        "example": datasets.Value("string"),
    }
    features = datasets.Features(
        features_of(check["languages"], document_ids=True, labels=True) | counted
    )
    label = (getattr(part.source, "features", None) or {}).get(LABEL)
    check |= {"place": part.place, "has_others": not set(part.languages) <= set(check["languages"])}
    check["classes"] = (
        [name.lower() for name in getattr(label, "names", CLASSES)] if LABEL in wanted else ()
    )
    options = {
        "with_indices": True,
        "batched": True,
        "batch_size": BATCH_ROWS if streaming else 20 * BATCH_ROWS,
    }
    if isinstance(part.source, FileSource):
        stamps = [
            (status.st_size, status.st_mtime_ns) for status in map(os.stat, part.source.paths)
        ]
        arguments = {"file": part.source, "limit": limit, "stamps": str(stamps), "check": check}
        kind = datasets.IterableDataset if streaming else datasets.Dataset
        try:
            checked = kind.from_generator(_check_file, features=features, gen_kwargs=arguments)
        except datasets.exceptions.DatasetGenerationError as error:
            raise error.__cause__ from None
    else:
        raw = part.source if limit is None else part.source.take(limit)
        check_table = partial(_check_table, check=check)
        checked = (
            raw.with_format("arrow")
            .map(check_table, features=features, **options)
            .with_format(None)
        )
    if streaming:
        keep = partial(_keep, part.place, report, list(wanted))
        return checked.map(keep, remove_columns=list(features), features=wanted, **options)
    kept = report.add(part.place, checked.select_columns(list(counted))[:], len(checked))
    rows = checked.select_columns(list(wanted))
    return rows if len(kept) == len(rows) else rows.select(kept)


def _keep(
    place: str, report: CorpusReport, wanted: list[str], batch: Columns, indices: list[int]
) -> Columns:
    kept = report.add(place, batch, indices[-1] + 1)
    return {name: [batch[name][index] for index in kept] for name in wanted}
