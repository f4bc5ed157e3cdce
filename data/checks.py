"""The error of bad input, and the codes of languages."""

import difflib
import re
from collections.abc import Iterable

from modeling_tmde import TmdeError

LANGUAGE_CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*", re.ASCII)
# Usual names of other columns, and suffixes of other files, that look like codes.
NOT_LANGUAGES = frozenset(
    "src tgt url uri doc doc_id idx ids key uid row set sim txt xml tsv csv log zip bak tmp old bin md gz".split()
)


class CorpusError(TmdeError):
    """Bad input. The message names file, row, field, the value found, the value expected and what to do."""


class Words(str):
    """A description in an error message, printed without quotes."""


def bad_value(
    place: str, row: int | None, name: str | None, found: object, expected: str, advice: str
) -> CorpusError:
    """Return (not raise) the [`CorpusError`] of one bad value."""
    where = (
        place + (f", row {row}" if row is not None else "") + (f", field '{name}'" if name else "")
    )
    text = found if isinstance(found, Words) else repr(found)
    if len(text) > 80 and not isinstance(found, Words):
        text = text[:77] + "..."
    return CorpusError(f"{where}: found {text}, expected {expected}. {advice}")


def is_code(name: str) -> bool:
    """Return whether a name in the data can be taken for a language code without having been requested."""
    return LANGUAGE_CODE.fullmatch(name) is not None and name not in NOT_LANGUAGES


def check_languages(requested: Iterable[str], found: Iterable[str], place: str) -> None:
    """Raise [`CorpusError`] if a requested language is not among the found ones."""
    found = sorted(set(found))
    for code in requested:
        if code not in found:
            near = difflib.get_close_matches(code, found, n=1, cutoff=0.55)  # en is not close to de
            listed = ", ".join(name[:20] for name in found[:40])
            advice = (
                f"Did you mean {near[0]!r}?" if near else f"Ask for those: languages=[{listed}]."
            )
            raise bad_value(
                place,
                None,
                "languages",
                code,
                f"one of the languages in the data ({listed})",
                advice,
            )
