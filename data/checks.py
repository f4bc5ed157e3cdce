"""The error that bad input raises, and the codes of languages."""

import difflib
import re
from collections.abc import Iterable, Sequence

from modeling_tmde import TmdeError

LANGUAGE_CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*", re.ASCII)
# These usual names of other columns and suffixes of other files look like codes.
# fmt: off
NOT_LANGUAGES = frozenset({
    "src", "tgt", "url", "uri", "doc", "doc_id", "idx", "ids", "key", "uid", "row", "set", "sim",
    "txt", "xml", "tsv", "csv", "log", "zip", "bak", "tmp", "old", "bin", "md", "gz",
})
# fmt: on
LONGEST_VALUE = 80  # characters of a value that an error quotes
LISTED_LANGUAGES = 40
CLOSE_ENOUGH = 0.55  # similarity of a code to a suggested one; `en` is not close to `de`


class CorpusError(TmdeError):
    """Invalid input data.

    The message names the file, row and field, the value found and expected, and what to do.
    """


class MissingFileError(CorpusError, FileNotFoundError):
    """A source of data that does not exist."""


class Unquoted(str):
    """A description that an error message prints without quotes."""


def bad_value(
    place: str,
    row: int | None,
    name: str | None,
    value: object,
    expected: str,
    advice: str,
    kind: type[CorpusError] = CorpusError,
) -> CorpusError:
    """Return (not raise) the [`CorpusError`] of one bad value.

    Args:
        place: The file, data set or argument.
        row: The number of the row, from 1; None if no row is to blame.
        name: The field; None if no field is to blame.
        value: The value; an [`Unquoted`] description is printed as it is, and never shortened.
        expected: A description of right values.
        advice: What to do about it, as a sentence.
        kind: The class of the error.
    """
    where = place
    if row is not None:
        where += f", row {row}"
    if name:
        where += f", field '{name}'"
    if isinstance(value, Unquoted):
        text = str(value)
    else:
        text = repr(value)
        if len(text) > LONGEST_VALUE:
            text = text[: LONGEST_VALUE - 3] + "..."
    return kind(f"{where}: found {text}, expected {expected}. {advice}")


def check_text(value: object, place: str, number: int, name: str) -> None:
    """Raise [`CorpusError`] if a value is not a text that UTF-8 can hold."""
    if isinstance(value, str):
        try:
            value.encode()
            return
        except UnicodeError:  # A lone surrogate has no code in UTF-8.
            pass
    raise bad_value(place, number, name, value, "a text", "Correct or delete the row.")


def is_code(name: str) -> bool:
    """Return whether a name has the form of a language code, whatever language it is."""
    return LANGUAGE_CODE.fullmatch(name) is not None and name not in NOT_LANGUAGES


def check_language(language: str, available: Iterable[str], place: str) -> None:
    """Raise [`CorpusError`] if the argument `language` is not an available one."""
    known = sorted(set(available))
    if language in known:
        return
    expected = f"one of the languages in the data ({_listed(known)})"
    raise bad_value(place, None, "language", language, expected, "Pass one of those.")


def check_languages(requested: Iterable[str], available: Iterable[str], place: str) -> None:
    """Raise [`CorpusError`] if requested languages are not among the available ones."""
    known = sorted(set(available))
    listed = _listed(known)
    missing = [code for code in dict.fromkeys(requested) if code not in known]
    if not missing:
        return
    similar = difflib.get_close_matches(missing[0], known, n=1, cutoff=CLOSE_ENOUGH)
    if similar and len(missing) == 1:
        advice = f"Did you mean {similar[0]!r}?"
    else:
        codes = ",".join(known)
        advice = f"Ask for those: --languages {codes}, or in Python languages=[{listed}]."
    expected = f"one of the languages in the data ({listed})"
    description = Unquoted(", ".join(map(repr, missing)))
    raise bad_value(place, None, "languages", description, expected, advice)


def _listed(languages: Sequence[str]) -> str:
    """Return the first languages as an error lists them."""
    return ", ".join(name[:20] for name in languages[:LISTED_LANGUAGES])
