"""`load_parallel`: one call from a name, a path or a list of them to a checked parallel corpus."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import datasets

from .checks import CorpusError, MissingFileError, Unquoted, bad_value, check_languages
from .columns import (
    check_columns,
    column_pairs,
    is_other_name,
    missing_languages_error,
    shown_fields,
)
from .languages import check_code, may_name_a_language
from .lines import shown_path
from .mixing import limits_of, mix
from .parts import Part, PartOpener, RowSource
from .report import CorpusReport
from .row_checks import (
    BATCH_ROWS,
    COUNTED_FEATURES,
    FEWEST_TEXTS,
    RowChecker,
    check_rows,
    open_checked,
)
from .rows import ANCHOR, CLASSES, LABEL, NLI_TEXTS, POSITIVE, features_of, triple_texts
from .tables import AnyDataset, DatasetTable, Quoting

# Rows of a dataset that are checked at a time. A stream takes fewer, because its reader waits for
# the first one.
TABLE_ROWS = 20 * BATCH_ROWS
EXAMPLE_LANGUAGES = ("de", "en")
_DATASET = "dataset"  # a loaded dataset in messages
FORMATS_WITH_CELLS = ("csv", "tsv", "moses")


def load_parallel(
    source: RowSource | Sequence[RowSource],
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
    columns: Mapping[str, str] | None = None,
    places: bool = False,
    target_columns: Sequence[str] = (),
    fewest_texts: int = FEWEST_TEXTS,
    quoting: Quoting | None = None,
) -> AnyDataset:
    r"""Load a parallel corpus and check every row.

    Args:
        source: One of these, or a list of them:

            - `"sample"`: the built-in sample.
            - The id of a Hub dataset, such as `"Helsinki-NLP/europarl"`, or a folder with the
              layout of one (its README.md lists `configs`).
            - A file, folder or glob: parquet or JSONL with a `translation` column, `{language:
              text}`, or one column per language; CSV or TSV with language codes in the header; a
              translation memory (TMX); a catalog: gettext (.po, `localization` extra), XLIFF or Qt
              (.ts). All except parquet may be gzipped.
            - Moses files: by language, `{"de": "corpus.de", "en": "corpus.en"}`, or by prefix,
              `"corpus"`.
            - A `datasets.Dataset` or `IterableDataset`, with a `translation` column or one column
              per language.
        languages: The languages to return; None for all. Without a `de` column, `de` also reads a
            `de-DE` or `DE` column. `["anchor", "positive"]` loads triples with all their negatives.
        pivot_languages: Load only Hub configs (language pairs) that contain one of these.
        split: The split of a Hub dataset or of the sample. Files have no splits.
        streaming: Return an `IterableDataset`, which checks rows as it reads them, in constant
            memory. If one source is a stream, all sources are streamed.
        bad_rows: `"report"` sets empty texts to None, drops rows that are unreadable or have fewer
            than two languages, and counts both; `"raise"` raises an error.
        temperature: Mix Hub configs or files with p ~ rows^(1/temperature), repeating small ones
            until all are exhausted: 1.0 is proportional, `float("inf")` uniform. None reads every
            row once, one part after the other. A streamed Hub dataset is mixed by the row counts on
            its card, or uniformly if it has none.
        seed: The seed for mixing and for the sample.
        config: The configs of a Hub dataset. Default: all matching language pairs.
        revision: The branch, tag or commit of a Hub dataset.
        token: The Hub token for private datasets.
        max_rows: Read at most this many rows: the first ones, or a proportional share of each Hub
            config.
        report: Counts to update while rows are read. Each `DataLoader` worker updates its own copy.
        document_ids: Keep the `doc_id` column, the document of a row (parquet, JSONL and Hub
            datasets). If `temperature` mixes the rows, a `reading_order` column numbers them in
            document order.
        labels: Load pairs as in [`load_xnli`] from any source: the columns `premise`, `hypothesis`
            and `label`. A row with another label, such as SNLI's -1, is a bad row. `languages`
            selects configs of a Hub dataset.
        columns: Custom column names, such as `{"de": "Source", "en": "Target"}`; also for `doc_id`
            and `label`. If two or more languages are named, other columns are not read as
            languages.
        places: Add `file`, the name of the file or dataset, and `row`, the row number, as in error
            messages.
        target_columns: More texts of a row, such as linearized parses, which are read like the
            languages and returned in `translation`.
        fewest_texts: The minimum number of texts in a row, including `target_columns`: 2 or 1.
        quoting: `"minimal"` if fields of CSV and TSV may be quoted, `"none"` if quotes are plain
            characters; None detects it.

    Returns:
        A dataset with a `translation` column: a struct with a nullable string for each language,
        keys sorted. A triple has `anchor` and `positive`, and may have `negative`, or `negative_1`,
        `negative_2` and so on. `document_ids` adds `doc_id`, a string or null. With `labels`, the
        texts are `premise` and `hypothesis`, and `label` is the class number.

    Raises:
        CorpusError: The input is invalid as a whole: no file found, unknown languages, Moses files
            of different lengths, bytes that are not UTF-8, unclosed quotes, or missing columns.
            With `bad_rows="raise"`, also for a bad row; in a stream, when the row is read.
        OSError: A Moses file does not exist, or a Hub dataset can't be reached.
        ValueError: From `datasets`: a Hub dataset lacks the config or the split.

    Example:
        ```python
        from tmde import load_parallel

        rows = load_parallel("sample", languages=["de", "en"], max_rows=100)
        print(rows[0]["translation"])
        ```
    """
    _check_arguments(languages, bad_rows, temperature)
    if languages is None and target_columns:
        raise _bad_argument("languages", None, "a list of languages with target_columns")
    pairs = column_pairs(columns)
    report = CorpusReport() if report is None else report
    sources = _as_list(source)
    place = _place_of(sources)
    streaming = streaming or any(isinstance(rows, datasets.IterableDataset) for rows in sources)
    requested = None if languages is None else tuple(sorted(set(languages)))
    text_names = requested
    if requested is not None:
        text_names = tuple(sorted({*requested, *target_columns}))
    if labels:
        text_names = tuple(sorted(NLI_TEXTS))
        pivot_languages = None
    opener = PartOpener(
        text_names=text_names,
        # No config is named by a text of a triple.
        languages=None if ANCHOR in (requested or ()) else requested,
        columns=pairs,
        pivot_languages=pivot_languages,
        split=split,
        streaming=streaming,
        seed=seed,
        config=config,
        revision=revision,
        token=token,
        max_rows=max_rows,
        quoting=quoting,
    )
    parts: list[Part] = []
    for number, element in enumerate(sources, 1):
        dataset_place = _DATASET if len(sources) == 1 else f"{_DATASET} {number}"
        parts += opener.open(element, dataset_place)
    fields = list(dict.fromkeys(field for part in parts for field in part.fields))
    available = {language for part in parts for language in part.languages}
    if fields:
        check_columns(pairs, fields, place)
    _check_target_columns(target_columns, available, fields, place)
    chosen = _choose_languages(available, fields, text_names, pivot_languages, place, fewest_texts)
    checker = RowChecker(
        languages=chosen,
        raise_on_bad=bad_rows == "raise",
        columns=pairs,
        has_places=places,
        fewest_texts=fewest_texts,
        needed_texts=(ANCHOR, POSITIVE) if triple_texts(chosen) else (),
    )
    features = features_of(chosen, document_ids, labels, places)
    # A stream is cut at the end, because nobody knows yet how many rows each part gives.
    limits = limits_of(parts, None if streaming else max_rows, temperature)
    loaded = []
    for part, limit in zip(parts, limits, strict=True):
        loaded.append(_load_part(part, limit, checker, features, report, streaming))
    rows = mix(loaded, parts, temperature, seed)
    if streaming:
        return rows if max_rows is None else rows.take(max_rows)
    if len(rows) == 0:
        description = Unquoted(f"no row to keep ({report.summary()})")
        advice = "Look at the file and at the requested languages."
        raise bad_value(place, None, None, description, "some", advice)
    return rows if max_rows is None else rows.take(min(max_rows, len(rows)))


def _check_arguments(
    languages: Sequence[str] | None, bad_rows: str, temperature: float | None
) -> None:
    """Raise [`CorpusError`] for an argument of `load_parallel` that it cannot have."""
    if bad_rows not in ("report", "raise"):
        raise _bad_argument("bad_rows", bad_rows, '"report" or "raise"')
    if temperature is not None and not temperature > 0:
        raise _bad_argument("temperature", temperature, "a number above 0, or None")
    if isinstance(languages, str):
        raise _bad_argument("languages", languages, "a list of language codes")
    for name in languages or ():
        # A column may have another name, such as `german`.
        if may_name_a_language(name) and not is_other_name(name):
            check_code(name, "languages")


def _bad_argument(name: str, value: object, expected: str) -> CorpusError:
    return bad_value("load_parallel", None, name, value, expected, "Correct the argument.")


def _as_list(source: RowSource | Sequence[RowSource]) -> list[RowSource]:
    """Return the sources of a list, or the only one.

    Raises:
        CorpusError: A source is a dictionary of splits, or rows in memory.
    """
    if hasattr(source, "columns"):
        raise bad_value(
            "load_parallel",
            None,
            "source",
            Unquoted(f"a {type(source).__name__}"),
            "existing files, a Hub dataset or a Dataset",
            "Pass a data frame as datasets.Dataset.from_pandas(frame).",
            MissingFileError,
        )
    sources: list[RowSource]
    if isinstance(
        source, str | os.PathLike | Mapping | datasets.Dataset | datasets.IterableDataset
    ):
        sources = [source]
    else:
        sources = list(source)
    for element in sources:
        if isinstance(element, datasets.DatasetDict | datasets.IterableDatasetDict):
            names = list(element)
            description = Unquoted(f"a {type(element).__name__} of the splits {', '.join(names)}")
            advice = f"Pass one of them, such as rows[{names[0]!r}]." if names else "Pass a split."
            raise bad_value(
                "load_parallel", None, "source", description, "rows of one split", advice
            )
        if not isinstance(element, datasets.Dataset | datasets.IterableDataset):
            _check_files(element)
    return sources


def _check_files(source: object) -> None:
    """Raise [`CorpusError`] if a source is rows in memory instead of files.

    A row looks like Moses files by language: `{"de": "Das Haus.", "en": "The house."}`.
    """
    if isinstance(source, str | os.PathLike):
        return
    if isinstance(source, Mapping) and any(_is_file(path) for path in source.values()):
        return
    raise bad_value(
        "load_parallel",
        None,
        "source",
        source,
        "existing files, a Hub dataset or a Dataset",
        "Correct the paths of the files, or pass rows in memory as "
        "datasets.Dataset.from_list(rows) or datasets.Dataset.from_dict(columns).",
        MissingFileError,
    )


def _is_file(path: object) -> bool:
    return isinstance(path, str | os.PathLike) and os.path.isfile(path)


def _place_of(sources: Sequence[RowSource]) -> str:
    """Return the sources in error messages."""
    names = []
    for source in sources:
        if isinstance(source, str | os.PathLike):
            names.append(shown_path(source))
        elif isinstance(source, Mapping):
            names.append(str(source))
        else:
            names.append(_DATASET)
    return " + ".join(names)


def _choose_languages(
    available: set[str],
    fields: Sequence[str],
    text_names: tuple[str, ...] | None,
    pivot_languages: Sequence[str] | None,
    place: str,
    fewest: int,
) -> tuple[str, ...]:
    """Return the languages to load, sorted: those requested, or all that the parts have.

    Raises:
        CorpusError: A requested language is in no part, or there are fewer than `fewest`.
    """
    requested = [*(text_names or ()), *(pivot_languages or ())]
    unnamed = [field for field in fields if field not in available]
    has_all_requested = bool(requested) and set(requested) <= set(available)
    if len(available) < fewest and unnamed and not has_all_requested:
        wanted = requested or EXAMPLE_LANGUAGES
        missing = [name for name in wanted if name not in available]
        raise missing_languages_error(place, unnamed, missing)
    if ANCHOR in requested and not triple_texts(available):
        raise missing_languages_error(place, fields, requested)
    check_languages(requested, available, place)
    chosen = text_names or tuple(sorted(available))
    if ANCHOR in chosen:
        chosen = tuple(sorted(triple_texts(available)))
    if len(chosen) < fewest:
        advice = "Request two or more, or load a source that has them."
        raise bad_value(place, None, "languages", list(chosen), "at least two languages", advice)
    return chosen


def _check_target_columns(
    names: Sequence[str], available: Collection[str], fields: Sequence[str], place: str
) -> None:
    """Raise [`CorpusError`] if no part has a text of one of these names."""
    for name in names:
        if name in available:
            continue
        expected = f"one of the columns {shown_fields(fields or sorted(available))}"
        advice = "Correct the name, or add the text to `translation` or as its own column."
        raise bad_value(place, None, name, Unquoted("no such text"), expected, advice)


def _load_part(
    part: Part,
    limit: int | None,
    checker: RowChecker,
    features: datasets.Features,
    report: CorpusReport,
    streaming: bool,
) -> AnyDataset:
    """Return the good rows among the first `limit` of a part.

    The checked rows of a dataset are cached, and the counts are made from the cache; a stream
    counts as it is read.

    Args:
        part: The part.
        limit: How many rows to read; None for all.
        checker: What checks the rows of all parts.
        features: The columns of the result.
        report: The counts that are filled in.
        streaming: Whether to return a stream.
    """
    table = part.table
    class_names: list[str] = []
    if LABEL in features:
        class_names = table.class_names.get(LABEL, list(CLASSES))
    checker = replace(
        checker,
        place=table.place,
        has_other_languages=not set(part.languages) <= set(checker.languages),
        class_names=tuple(name.lower() for name in class_names),
        has_cells=table.format in FORMATS_WITH_CELLS,
    )
    if isinstance(table, DatasetTable):
        rows = table.dataset if limit is None else table.dataset.take(limit)
        checked = rows.with_format("arrow").map(
            partial(check_rows, checker=checker),
            with_indices=True,
            batched=True,
            batch_size=BATCH_ROWS if streaming else TABLE_ROWS,
            features=checker.features,
        )
        checked = checked.with_format(None)
    else:
        checked = open_checked(table, limit, checker, streaming)
    if streaming:
        return checked.map(
            partial(_keep_rows, table.place, report, list(features)),
            with_indices=True,
            batched=True,
            batch_size=BATCH_ROWS,
            remove_columns=list(checker.features),
            features=features,
        )
    counted = checked.select_columns(list(COUNTED_FEATURES))[:]
    good_rows = report.add(table.place, counted, len(checked))
    rows = checked.select_columns(list(features))
    if len(good_rows) == len(rows):
        return rows
    return rows.select(good_rows)


def _keep_rows(
    place: str, report: CorpusReport, names: list[str], batch: dict[str, list], indices: list[int]
) -> dict[str, list]:
    """Count a batch of checked rows, and return the columns `names` of the good ones."""
    good_rows = report.add(place, batch, indices[-1] + 1)
    columns = {}
    for name in names:
        values = batch[name]
        columns[name] = [values[row] for row in good_rows]
    return columns
