"""Codes of languages as people write them: `de`, `De`, `deu`, `de-DE`, `en_US.UTF-8`."""

import re
from collections.abc import Collection
from functools import lru_cache

from langcodes import Language, tag_is_valid
from langcodes.tag_parser import LanguageTagError

from .checks import NOT_LANGUAGES
from .language_codes import AMBIGUOUS_CODES, THREE_LETTER_CODES

LOCALE = re.compile(r"([A-Za-z]{2,3})([-_][A-Za-z0-9]{2,8})*([.@][\w.@-]+)?", re.ASCII)
SCRIPT = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{4})(?![A-Za-z0-9])", re.ASCII)


def language_of_locale(code: str) -> str:
    """Return the language of a locale: `de` of `de-DE`, `en` of `en_US`, `EN` and `en`.

    A name that is no locale is returned as it is.
    """
    if not may_name_a_language(code):
        return code
    return re.split("[-_.@]", code.strip())[0].lower()


@lru_cache(maxsize=4096)
def two_letter_code(code: str) -> str:
    """Return the shortest code of the language of a locale: `de` of `deu`, `ger` and `de-AT`.

    A language without a code of two letters keeps its own. Mandarin is `zh`, and Standard Arabic
    `ar`.
    """
    language = language_of_locale(code)
    if len(language) != 3:
        return language
    if language == "tgl":
        return "tl"  # CLDR calls it Filipino, `fil`.
    try:
        known = Language.get(language).prefer_macrolanguage().language or language
    except LanguageTagError:
        return language
    return known if len(known) == 2 else language


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
    for candidate in (code, language_of_locale(code), two_letter_code(code)):
        if candidate in known_languages:
            return candidate
    return None


def may_name_a_language(name: str) -> bool:
    """Return whether a name has the form of a code or a locale, whatever language it is."""
    plain = name.strip().lower()
    if LOCALE.fullmatch(plain) is None or plain in NOT_LANGUAGES:
        return False
    return re.split("[-_.@]", plain)[0] not in NOT_LANGUAGES


def names_a_language(name: str) -> bool:
    """Return whether a name that nobody asked for is that of a known language, or its locale.

    `de`, `En-US`, `ENG` and `cat_Latn` are; `len` has the form of a code, and `cat` is more often a
    category than Catalan.
    """
    if not may_name_a_language(name):
        return False
    language = language_of_locale(name)
    if language in AMBIGUOUS_CODES:
        return SCRIPT.match(name.strip()) is not None
    if len(language) == 2:
        return tag_is_valid(language)
    return language in THREE_LETTER_CODES or len(two_letter_code(language)) == 2


def same_locale(first: str, second: str) -> bool:
    """Return whether two names are one locale, written differently: `pt-BR`, `pt_br`."""
    return _plain(first) == _plain(second)


def fits_language(locale: str, language: str) -> bool:
    """Return whether a locale is of a language: `de-DE` of `de`, and also `de` of `de-DE`.

    `deu` is `de`. `en-GB` is not of `en-US`: both name a region.
    """
    if not may_name_a_language(locale) or not may_name_a_language(language):
        return False
    if two_letter_code(locale) != two_letter_code(language):
        return False
    names = (_plain(locale), _plain(language))
    return language_of_locale(locale) in names or language_of_locale(language) in names


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")
