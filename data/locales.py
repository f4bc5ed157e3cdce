"""The languages of locales: `de` of `de-DE`, `en` of `en_US` and of `EN`."""

import re
from collections.abc import Collection

from .checks import NOT_LANGUAGES, is_code
from .language_codes import AMBIGUOUS_CODES, TWO_LETTER_CODES
from .language_codes import LANGUAGE_CODES as LANGUAGE_CODES

LOCALE = re.compile(r"([A-Za-z]{2,3})([-_][A-Za-z0-9]{2,8})*([.@][\w.@-]+)?", re.ASCII)
SCRIPT = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{4})(?![A-Za-z0-9])", re.ASCII)
# Only codes of two letters are taken for languages in capitals: SRC, URL and the like are none.
CAPITAL_CODE = re.compile(r"[A-Z]{2}([-_][A-Za-z0-9]{2,8})*", re.ASCII)
NOT_CAPITAL_CODES = frozenset({"ID"})  # a usual name of a column of numbers


def language_of_locale(code: str) -> str:
    """Return the language of a locale: `de` of `de-DE`, `en` of `en_US`, `EN` and `en`.

    A name that is no locale is returned as it is.
    """
    if not _is_locale(code):
        return code
    return re.split("[-_.@]", code.strip())[0].lower()


def two_letter_code(code: str) -> str:
    """Return the shortest code of the language of a locale: `de` of `deu`, `ger` and `de-AT`.

    A language without a code of two letters keeps its own.
    """
    language = language_of_locale(code)
    return TWO_LETTER_CODES.get(language, language)


def merged_languages(codes: Collection[str]) -> dict[str, str]:
    """Return the language that each code stands for, where several or longer ones mean the same.

    A code that names a script keeps its name, and so does Chinese, whose regions differ in script.

    Example:
        >>> merged_languages(["de-AT", "de-DE", "eng", "zh-TW"])
        {'de-AT': 'de', 'de-DE': 'de', 'eng': 'en', 'zh-TW': 'zh-TW'}
    """
    languages = {}
    for code in codes:
        language = two_letter_code(code)
        has_script = SCRIPT.match(code) is not None or language == "zh"
        languages[code] = code if has_script else language
    return languages


def known_code(code: str, known_languages: Collection[str]) -> str | None:
    """Return the language, among known ones, that a code means; None if there is none.

    A locale that is known itself keeps its name: `zh-Hant` of a model with that language.

    Args:
        code: A code or a locale.
        known_languages: The languages of a model or a run.
    """
    for candidate in (code, language_of_locale(code)):
        if candidate in known_languages:
            return candidate
    return None


def _is_locale(name: str) -> bool:
    return LOCALE.fullmatch(name.strip()) is not None and name.lower() not in NOT_LANGUAGES


def may_name_a_language(name: str) -> bool:
    """Return whether a name has the form of a code or a locale, whatever language it is."""
    if is_code(name):
        return True
    if name in NOT_CAPITAL_CODES or name.lower() in NOT_LANGUAGES:
        return False
    return CAPITAL_CODE.fullmatch(name) is not None


def names_a_language(name: str) -> bool:
    """Return whether a name that nobody asked for is that of a known language, or its locale.

    `de`, `en-US`, `EN` and `cat_Latn` are; `len` has the form of a code, and `cat` is more often a
    category than Catalan.
    """
    if not may_name_a_language(name):
        return False
    language = language_of_locale(name)
    if language in LANGUAGE_CODES:
        return True
    return language in AMBIGUOUS_CODES and SCRIPT.match(name) is not None


def same_locale(first: str, second: str) -> bool:
    """Return whether two names are one locale, written differently: `pt-BR`, `pt_br`."""
    return _plain(first) == _plain(second)


def fits_language(locale: str, language: str) -> bool:
    """Return whether a locale is of a language: `de-DE` of `de`, and also `de` of `de-DE`.

    `en-GB` is not of `en-US`: both name a region.
    """
    if not _is_locale(locale) or not _is_locale(language):
        return False
    names = (_plain(locale), _plain(language))
    return language_of_locale(locale) == language_of_locale(language) and (
        language_of_locale(locale) in names
    )


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
