"""The languages that codes and locales name."""

import re

_LOCALE = re.compile(r"(?P<language>[A-Za-z]{2,3})(?:[-_.][\w.@-]*)?", re.ASCII)


def language_of_locale(code: str) -> str:
    """Return the language of a locale: `de` for `de-DE`, `de_AT` and `DE`.

    A name that is no locale is returned as it is.
    """
    match = _LOCALE.fullmatch(code.strip())
    if match is None:
        return code
    return match["language"].lower()
