"""What a corpus must look like: language codes, the one error class of bad input, and the report of bad rows."""

import difflib
import json
import logging
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields

import datasets

logger = logging.getLogger("modeling_tmde.data")

MAX_EXAMPLES = 10
DOCUMENT_ID = "doc_id"  # the column that names the document of a row, in the source and in the result
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*", re.ASCII)
# Usual names of other columns, and suffixes of other files, that look like codes.
NOT_LANGUAGES = frozenset(
    "src tgt url uri doc doc_id idx ids key uid row set sim txt xml tsv csv log zip bak tmp old bin md gz".split()
)
_LOCK = threading.Lock()  # interleaved streams are read in threads; here, since a report must be picklable


class CorpusError(ValueError):
    """Bad input. The message names file, row, field, the value found, the value expected and what to do."""


class Words(str):
    """A description in an error message, printed without quotes."""


def bad_value(place: str, row: int | None, name: str | None, found: object, expected: str, advice: str) -> CorpusError:
    """Return (not raise) the [`CorpusError`] of one bad value."""
    where = place + (f", row {row}" if row is not None else "") + (f", field '{name}'" if name else "")
    return CorpusError(f"{where}: found {clip(found)}, expected {expected}. {advice}")


def clip(value: object, width: int = 80) -> str:
    """Return at most `width` characters of the repr of `value`, or [`Words`] as they are."""
    text = value if isinstance(value, Words) else repr(value)
    return text if len(text) <= width or isinstance(value, Words) else text[: width - 3] + "..."


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
        self._reached: dict[str, int] = {}
        self._logged: set[str] = set()

    def __deepcopy__(self, memo: dict) -> "CorpusReport":
        """Return the report itself: `interleave_datasets` copies streams, and the caller holds this one."""
        return self

    def add(self, place: str, counts: "CorpusReport", last_row: int) -> None:
        """Add the counts of the rows of `place` up to `last_row`, unless they were counted before: a stream is read
        again in every epoch, and by `interleave_datasets` also within one."""
        with _LOCK:
            if last_row <= self._reached.get(place, 0):
                return
            self._reached[place] = last_row
            for item in fields(counts):
                setattr(self, item.name, getattr(self, item.name) + getattr(counts, item.name))
            del self.first_examples[MAX_EXAMPLES:]
        if (counts.empty_texts or counts.dropped_rows) and place not in self._logged:
            self._logged.add(place)
            logger.warning("%s: %s", place, counts.summary())

    def to_json(self) -> str:
        """Return the counts as a JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def summary(self) -> str:
        """Return one sentence with the counts and the first examples."""
        text = (
            f"{self.rows} rows read, {self.kept} kept, {self.dropped_rows} bad rows dropped, {self.empty_texts} empty "
            f"texts set to None, {self.other_rows} rows without two of the requested languages left out"
        )
        return f"{text}. First bad ones: {'; '.join(self.first_examples)}" if self.first_examples else text


def features_of(languages: Sequence[str], document_ids: bool = False) -> datasets.Features:
    """Return the features of every corpus: `translation`, a struct of nullable strings with sorted keys; and, with
    `document_ids`, a nullable string `doc_id`."""
    features = datasets.Features({"translation": {name: datasets.Value("string") for name in sorted(languages)}})
    if document_ids:
        features[DOCUMENT_ID] = datasets.Value("string")
    return features


def is_code(name: str) -> bool:
    """Return whether a name in the data can be taken for a language code without having been requested."""
    return LANGUAGE_CODE.fullmatch(name) is not None and name not in NOT_LANGUAGES


def check_codes(names: Iterable[str], place: str) -> None:
    """Raise [`CorpusError`] if one of the names that the data give to languages is not a language code."""
    for name in names:
        if not is_code(name):
            expected = "a language code such as 'en' or 'pt-BR' as name of the field"
            advice = "Rename it, or pass languages=[...] with the names of the fields to take."
            raise bad_value(place, None, name, name, expected, advice)


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
