"""`load_parallel`: one call from a name, a path or a list of them to a checked parallel corpus."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasets

from .builder import build
from .checks import CorpusReport, Words, bad_value, check_languages
from .files import FileSource, check_stated, find_files
from .hub import HubPart, hub_parts, is_hub_layout
from .readers import count_rows, find_languages
from .sample_part import sample_part

logger = logging.getLogger("modeling_tmde.data")

Source = str | os.PathLike | Mapping[str, str | os.PathLike]
AnyDataset = datasets.Dataset | datasets.IterableDataset
Part = "FilesPart | HubPart"


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
        temperature: Mix the parts (Hub configs; or the files of a list, glob or folder) with p ~ rows^(1/temperature),
            repeating small ones until all are exhausted: 1.0 for proportional, `float("inf")` for uniform. None takes
            every row once: parts follow one another, except that the configs of a streamed Hub dataset are drawn in
            proportion to the rows that its card states (uniformly if it states none).
        seed: Of the mixing and of the sample.
        config: The config (or configs) of a Hub dataset, instead of the language pairs that fit.
        revision: Of a Hub dataset.
        token: For private Hub datasets.
        max_rows: At most that many rows: the first ones; of several Hub configs in proportion to their rows.
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
    _check_options(bad_rows, temperature, max_rows, document_ids and streaming)
    stated, pivots = check_stated(languages, "languages"), check_stated(pivot_languages, "pivot_languages")
    report = CorpusReport() if report is None else report
    elements = list(source) if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    if not elements:
        raise bad_value("load_parallel", None, "source", source, "at least one source", "Pass a path or a Hub id.")
    options = {
        "split": split,
        "streaming": streaming,
        "temperature": temperature,
        "seed": seed,
        "config": config,
        "revision": revision,
        "token": token,
        "max_rows": max_rows,
        "pivots": pivots,
    }
    parts = [part for element in elements for part in _parts_of(element, stated, options)]
    chosen = _resolve_languages(parts, stated, pivots, str(source))
    limits = _limits(parts, max_rows, temperature, streaming)
    loaded = [
        part.load(chosen, stated is None, bad_rows, limit, report, document_ids)
        for part, limit in zip(parts, limits, strict=True)
    ]
    mixed = _mix(loaded, parts, temperature, seed)
    if streaming:
        return mixed if max_rows is None else mixed.take(max_rows)
    if len(mixed) == 0:
        advice = "Look at the file and at the requested languages."
        raise bad_value(str(source), None, None, Words(f"no row to keep ({report.summary()})"), "some", advice)
    report.log(str(source))
    return mixed if max_rows is None else mixed.select(range(min(max_rows, len(mixed))))


@dataclass
class FilesPart:
    """Local files that are read one after the other."""

    files: list[FileSource]
    split: str
    streaming: bool

    def languages(self, requested: Sequence[str] | None, whole: bool = False) -> set[str]:
        """Return the languages of all the files; see [`find_languages`]."""
        return set().union(*(find_languages(file, requested, whole) for file in self.files))

    def rows(self) -> int:
        """Return the number of rows, bad ones included."""
        return sum(count_rows(file) for file in self.files)

    def load(
        self,
        languages: Sequence[str],
        inferred: bool,
        bad_rows: str,
        max_rows: int | None,
        report: CorpusReport,
        document_ids: bool,
    ) -> AnyDataset:
        """Return the checked rows as `translation` in `languages`; see [`build`]."""
        options = (inferred, bad_rows, self.split, self.streaming, max_rows, report, document_ids)
        return build(self.files, languages, *options)


def _check_options(bad_rows: str, temperature: float | None, max_rows: int | None, streamed_ids: bool) -> None:
    place = "load_parallel"
    if bad_rows not in ("report", "raise"):
        raise bad_value(place, None, "bad_rows", bad_rows, '"report" or "raise"', "Pass one of them.")
    if temperature is not None and not temperature > 0:
        advice = "1.0 mixes in proportion, float('inf') uniformly."
        raise bad_value(place, None, "temperature", temperature, "a number above 0, or None", advice)
    if max_rows is not None and max_rows < 1:
        raise bad_value(place, None, "max_rows", max_rows, "a number above 0, or None", "Leave it out for all rows.")
    if streamed_ids:
        raise bad_value(place, None, "document_ids", True, "False for a stream", "Pass streaming=False.")


def _parts_of(element: Source, languages: tuple[str, ...] | None, options: dict[str, Any]) -> list[Part]:
    """Return the parts of one source: what temperature mixes."""
    split, streaming = options["split"], options["streaming"]
    if element == "sample":
        return [sample_part(split, options["seed"], options["max_rows"], streaming)]
    if isinstance(element, Mapping) or not is_hub_layout(os.path.expanduser(element)):
        files = find_files(element)
        if files is not None:
            if options["config"] is not None or options["revision"] is not None:
                found = options["config"] or options["revision"]
                advice = (
                    "Files have neither; a folder laid out like a Hub dataset has a README.md that lists `configs`."
                )
                raise bad_value(str(element), None, "config", found, "no config and no revision", advice)
            if "[" in split or "+" in split:
                advice = "Files have no splits to slice or to add: pass max_rows, or the files you want."
                raise bad_value(str(element), None, "split", split, "a plain name", advice)
            groups = [files] if options["temperature"] is None else [[file] for file in files]
            return [FilesPart(group, split, streaming) for group in groups]
    hub_options = {name: options[name] for name in ("config", "split", "streaming", "revision", "token")}
    return hub_parts(os.path.expanduser(element), languages, options["pivots"], **hub_options)


def _resolve_languages(
    parts: Sequence[Part], languages: tuple[str, ...] | None, pivots: tuple[str, ...] | None, place: str
) -> tuple[str, ...]:
    """Return the languages of the result, sorted: the requested ones, or all that are in the parts."""
    requested = None if languages is None else sorted({*languages, *(pivots or ())})
    found = set().union(*(part.languages(requested) for part in parts))
    if not found.issuperset(requested or ()):  # a JSONL file may hold them further down
        found = set().union(*(part.languages(requested, whole=True) for part in parts))
    check_languages(requested or pivots or (), found, place)
    chosen = languages or tuple(sorted(found))
    if len(chosen) < 2:
        advice = "Request two or more, or load a source that has them."
        raise bad_value(place, None, "languages", list(chosen), "at least two languages", advice)
    return chosen


def _limits(
    parts: Sequence[Part], max_rows: int | None, temperature: float | None, streaming: bool
) -> list[int | None]:
    """Return how many rows to take of each part. Hub configs that are not mixed share `max_rows` in proportion to
    their rows, else the first pair would be all there is; other parts are cut after they were joined."""
    configs = [part for part in parts if isinstance(part, HubPart)]
    if max_rows is None or temperature is not None or streaming or len(configs) < max(2, len(parts)):
        return [max_rows] * len(parts)
    sizes = [part.rows() or 0 for part in configs]
    ends = [round(max_rows * sum(sizes[: index + 1]) / max(sum(sizes), 1)) for index in range(len(sizes))]
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
    streamed_configs = all(
        isinstance(part, HubPart) and isinstance(dataset, datasets.IterableDataset)
        for part, dataset in zip(parts, loaded, strict=True)
    )
    full = [index for index, dataset in enumerate(loaded) if not isinstance(dataset, datasets.Dataset) or len(dataset)]
    loaded, parts = [loaded[index] for index in full] or loaded[:1], [parts[index] for index in full] or parts[:1]
    if len(loaded) == 1:
        return loaded[0]
    if temperature is None and not streamed_configs:
        return datasets.concatenate_datasets(loaded)
    # A stream's shuffle buffer is far smaller than a config, so configs in a row would come out language by language.
    strategy = "all_exhausted_without_replacement" if temperature is None else "all_exhausted"
    probabilities = mixing_probabilities([part.rows() for part in parts], temperature or 1.0)
    return datasets.interleave_datasets(loaded, probabilities, seed=seed, stopping_strategy=strategy)
