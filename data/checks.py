"""What a parallel row must look like: vectorised checks, their one error class and their report."""

import difflib
import json
import logging
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields

import datasets
import pyarrow as pa
import pyarrow.compute as pc

logger = logging.getLogger("modeling_tmde.data")

MAX_EXAMPLES = 10
_LOCK = threading.Lock()  # interleaved streams are read in threads; here, since a report must be picklable
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*", re.ASCII)
DOCUMENT_ID = "doc_id"  # the column that names the document of a row, in the source and in the result
# Usual names of other columns, and suffixes of other files, that would pass for codes.
NOT_LANGUAGES = frozenset(
    "src tgt url uri doc doc_id idx ids key uid row set sim txt xml tsv csv log zip bak tmp old bin md gz".split()
)


class CorpusError(ValueError):
    """Bad corpus input. The message names file, row, field, the value found, the value expected and what to do."""


@dataclass
class CorpusReport:
    """Counts of what was read and of what was left out, filled in place by [`load_parallel`].

    Args:
        rows: Rows read.
        kept: Rows that came through.
        empty_texts: Texts of the requested languages that were empty or only whitespace, and became None.
        dropped_rows: Rows dropped as bad: fewer than two languages, or fewer than two after the empty texts went.
        other_rows: Rows left out, though not bad: they hold two languages, but not two of the requested ones.
        first_examples: The first few bad texts and rows, as `file, row, field: what`.
    """

    rows: int = 0
    kept: int = 0
    empty_texts: int = 0
    dropped_rows: int = 0
    other_rows: int = 0
    first_examples: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._parts: dict[str, CorpusReport] = {}
        self._reached: dict[str, int] = {}
        self._logged: set[str] = set()

    def __deepcopy__(self, memo: dict) -> "CorpusReport":
        """Return the report itself: `interleave_datasets` copies streams, and the caller holds this one."""
        return self

    def begin(self, source: str) -> None:
        """Forget the counts of `source`: it is loaded anew."""
        with _LOCK:
            self._parts.pop(source, None)
            self._reached.pop(source, None)
            self._logged.discard(source)
            for item in fields(self):
                setattr(self, item.name, [] if item.name == "first_examples" else 0)
            for part in self._parts.values():
                _accumulate(self, part)

    def add(self, source: str, counts: "CorpusReport", last_row: int) -> None:
        """Add the counts of the rows of `source` up to `last_row`, unless those were counted before: a stream is read
        again in every epoch, and by `interleave_datasets` also within one."""
        with _LOCK:
            if last_row > self._reached.get(source, 0):
                self._reached[source] = last_row
                _accumulate(self._parts.setdefault(source, CorpusReport()), counts)
                _accumulate(self, counts)

    def to_json(self) -> str:
        """Return the counts as a JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def log(self, source: str) -> None:
        """Log the counts of `source`, or the totals if it is none of the parts; once, and only if something is bad."""
        counts = self._parts.get(source, self)
        if source not in self._logged and (counts.empty_texts or counts.dropped_rows):
            self._logged.add(source)
            logger.warning("%s: %s", source, counts.summary())

    def summary(self) -> str:
        """Return one sentence with the counts and the first examples."""
        text = (
            f"{self.rows} rows read, {self.kept} kept, {self.dropped_rows} bad rows dropped, {self.empty_texts} empty "
            f"texts set to None, {self.other_rows} rows without two of the requested languages left out"
        )
        return f"{text}. First bad ones: {'; '.join(self.first_examples)}" if self.first_examples else text


def _accumulate(total: CorpusReport, part: CorpusReport) -> None:
    for item in fields(total):
        if item.name == "first_examples":
            total.first_examples.extend(part.first_examples[: MAX_EXAMPLES - len(total.first_examples)])
        else:
            setattr(total, item.name, getattr(total, item.name) + getattr(part, item.name))


def bad_value(place: str, row: int | None, name: str | None, found: object, expected: str, advice: str) -> CorpusError:
    """Return (not raise) the [`CorpusError`] of one bad value, worded the same way everywhere."""
    where = place + (f", row {row}" if row is not None else "") + (f", field '{name}'" if name else "")
    return CorpusError(f"{where}: found {clip(found)}, expected {expected}. {advice}")


def clip(value: object, width: int = 80) -> str:
    """Return the repr of `value`, at most `width` characters of it; a `str` subclass of ours is not quoted."""
    text = value if isinstance(value, Words) else repr(value)
    return text if len(text) <= width or isinstance(value, Words) else text[: width - 3] + "..."


class Words(str):
    """A description in an error message, to be printed without quotes."""


def features_of(languages: Sequence[str], document_ids: bool = False) -> datasets.Features:
    """Return the features of every corpus: `translation`, a struct of nullable strings with sorted keys; and, with
    `document_ids`, a nullable string `doc_id`."""
    features = datasets.Features({"translation": {name: datasets.Value("string") for name in sorted(languages)}})
    if document_ids:
        features[DOCUMENT_ID] = datasets.Value("string")
    return features


def check_languages(requested: Iterable[str], found: Iterable[str], place: str) -> None:
    """Raise [`CorpusError`] if a requested language is not among the found ones, with what is there and a hint."""
    found = sorted(set(found))
    for code in requested:
        if code in found:
            continue
        base = re.split(r"[-_]", code.lower())[0]
        near = [other for other in found if re.split(r"[-_]", other.lower())[0] == base]
        near = near or difflib.get_close_matches(code, found, n=1, cutoff=0.7)
        hint = f"Did you mean {near[0]!r}?" if near else f"Ask for those: languages=[{', '.join(found)}]."
        if any(len(name) > 20 or " " in name for name in found):
            hint = "Names like these are text: the first line of a TSV must be a header of language codes."
        listed = ", ".join(name[:20] for name in found[:40]) or "no languages at all"
        raise bad_value(place, None, "languages", code, f"one of the languages in the data ({listed})", hint)


def is_code(name: str) -> bool:
    """Return whether a name in the data can be taken for a language code without having been requested."""
    return LANGUAGE_CODE.fullmatch(name) is not None and name not in NOT_LANGUAGES


def check_codes(names: Iterable[str], place: str) -> None:
    """Raise [`CorpusError`] if one of the names that the data give to languages is not a language code."""
    for name in names:
        if not is_code(name):
            raise bad_value(
                place,
                None,
                name,
                name,
                "a language code such as 'en' or 'pt-BR' as name of the field",
                "Rename it, or pass languages=[...] with the names of the fields to take.",
            )


def as_text(array: pa.Array, place: str, numbers: Sequence[int], name: str) -> pa.Array:
    """Return `array` as valid UTF-8 strings.

    Raises:
        CorpusError: A value is not a string, or its bytes are not UTF-8.
    """
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not is_text and array.null_count < len(array):
        index = pc.index(array.is_valid(), True).as_py()
        advice = "Convert the column to strings, or take it out of the languages."
        raise bad_value(place, numbers[index], name, array[index].as_py(), f"a text or null, not {kind}", advice)
    if array.type != pa.string():
        array = array.cast(pa.string())
    try:
        array.validate(full=True)  # parquet readers take the bytes of a string column on trust
    except pa.ArrowInvalid:
        return decode(array.cast(pa.binary()).to_pylist(), place, numbers, name)
    return array


def as_ids(array: pa.Array, place: str, numbers: Sequence[int]) -> pa.Array:
    """Return document ids, texts or whole numbers, as strings.

    Raises:
        CorpusError: They are neither.
    """
    return array.cast(pa.string()) if pa.types.is_integer(array.type) else as_text(array, place, numbers, DOCUMENT_ID)


def decode(values: Sequence[bytes | None], place: str, numbers: Sequence[int], name: str | None) -> pa.Array:
    """Return bytes as an array of strings.

    Raises:
        CorpusError: Some bytes are not UTF-8.
    """
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        for number, value in zip(numbers, values, strict=True):
            try:
                (value or b"").decode("utf-8")
            except UnicodeDecodeError as error:
                near = value[max(error.start - 10, 0) : error.end + 10]
                raise bad_value(
                    place,
                    number,
                    name,
                    Words(f"the undecodable bytes {value[error.start : error.end]!r} in {near!r}"),
                    "UTF-8",
                    "Convert the file to UTF-8 (for example: iconv -f latin1 -t utf-8) or correct the row.",
                ) from None
        raise


@dataclass(frozen=True)
class Checker:
    """The checks on one corpus's blocks of rows; the same ones for the map-style and the streaming path.

    Args:
        languages: The languages of the result, sorted.
        bad_rows: `"report"` to count and drop bad rows, `"raise"` to raise on the first one.
        report: Where the counts go.
        document_ids: Whether the result has the column `doc_id`, null where the source has none.
    """

    languages: tuple[str, ...]
    bad_rows: str
    report: CorpusReport
    document_ids: bool = False

    def __call__(
        self, columns: dict[str, pa.Array], numbers: Sequence[int], place: str, limit: int | None = None
    ) -> pa.Table:
        """Check a block of rows and return the rows to keep.

        Args:
            columns: Strings by language, in every language that the rows hold, the requested ones or not; and, under
                `doc_id`, those that name the documents.
            numbers: The number of each row in its file.
            place: The file, for messages and for the report.
            limit: Keep at most that many rows, and count only the rows up to there.

        Returns:
            A table of the type of [`features_of`].

        Raises:
            CorpusError: With `bad_rows="raise"`: an empty text, or a row with fewer than two languages.
        """
        size = len(numbers)
        ids = columns.get(DOCUMENT_ID, pa.nulls(size, pa.string()))
        columns = {language: array for language, array in columns.items() if language != DOCUMENT_ID}
        texts = {language: columns.get(language, pa.nulls(size, pa.string())) for language in self.languages}
        blanks = {language: _blank(text) for language, text in texts.items()}
        in_all, requested = _count(columns.values(), size), _count(texts.values(), size)
        for language, blank in blanks.items():
            if blank is not None:
                texts[language] = pc.if_else(blank, pa.scalar(None, pa.string()), texts[language])
        keep = pc.greater_equal(_count(texts.values(), size), 2)
        other = pc.and_(pc.less(requested, 2), pc.greater_equal(in_all, 2))
        bad = pc.and_not(pc.invert(keep), other)

        if limit is not None and pc.sum(keep).as_py() is not None and pc.sum(keep).as_py() > limit:
            size = pc.indices_nonzero(keep)[limit].as_py()
        counts = CorpusReport(size, _true(keep, size), 0, _true(bad, size), _true(other, size))
        if any(blank is not None for blank in blanks.values()) or counts.dropped_rows:
            counts.empty_texts = sum(_true(blank, size) for blank in blanks.values() if blank is not None)
            self._look_closer(columns, blanks, bad, numbers[:size], place, counts)
        if size:
            self.report.add(place, counts, numbers[size - 1])
        struct = pa.StructArray.from_arrays([texts[name] for name in self.languages], names=list(self.languages))
        table = pa.table({"translation": struct} | ({DOCUMENT_ID: ids} if self.document_ids else {}))
        return table.slice(0, size).filter(keep.slice(0, size))

    def _look_closer(
        self,
        columns: dict[str, pa.Array],
        blanks: dict[str, pa.Array | None],
        bad: pa.Array,
        numbers: Sequence[int],
        place: str,
        counts: CorpusReport,
    ) -> None:
        """Name the first bad texts and rows: raise on the first of all, or keep some as examples."""
        found = []
        for language, blank in blanks.items():
            if blank is not None:
                found += [(index, language) for index in _first_true(blank, len(numbers))]
        found += [(index, "") for index in _first_true(bad, len(numbers))]  # '' sorts before the texts of its row
        blank_rows = {index for index, language in found if language}
        for index, language in sorted(found):
            if language:
                what, name = columns[language][index].as_py(), f"translation.{language}"
                expected, advice = "a text that is not empty", 'Delete the row, or pass bad_rows="report" to skip it.'
            elif index in blank_rows:
                continue  # the empty text explains the bad row, and is named itself
            else:
                there = [name for name, array in columns.items() if array[index].is_valid]
                what, name = Words(f"{len(there)} language(s) {there}"), "translation"
                expected, advice = "at least two languages", 'Delete the row, or pass bad_rows="report" to skip it.'
            if self.bad_rows == "raise":
                raise bad_value(place, numbers[index], name, what, expected, advice)
            if len(counts.first_examples) < MAX_EXAMPLES:
                counts.first_examples.append(f"{place}, row {numbers[index]}, field '{name}': {clip(what)}")


def _blank(array: pa.Array) -> pa.Array | None:
    """Return which texts are empty or only whitespace; None if none is, which is the usual case."""
    blank = pc.equal(pc.binary_length(pc.utf8_ltrim_whitespace(array)), 0).fill_null(False)
    return blank if pc.any(blank).as_py() else None


def _count(arrays: Iterable[pa.Array], size: int) -> pa.Array:
    count = pa.array([0], pa.int32()).take(pa.array([0] * size, pa.int32()))
    for array in arrays:
        count = pc.add(count, array.is_valid().cast(pa.int32()))
    return count


def _true(mask: pa.Array, size: int) -> int:
    return pc.sum(mask.slice(0, size)).as_py() or 0


def _first_true(mask: pa.Array, size: int) -> list[int]:
    return pc.indices_nonzero(mask.slice(0, size))[:MAX_EXAMPLES].to_pylist()
