"""The numbers in a text, which a translation keeps."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from tmde.data.languages import two_letter_code

# A number with groups of three digits, or a run of digits.
_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?:[.,'\u2019 \u00a0\u202f]\d{3})+(?!\d)|\d+")
# A time of the clock of twelve hours: 6 pm, 6:30 p.m.
_TWELVE_HOUR_TIME = re.compile(r"(?<!\d)(1[0-2]|0?[1-9])(:\d\d)?\s*([ap])\.?m\b", re.IGNORECASE)
_DECIMAL = re.compile(r"(?<![\d.,])(\d[\d.,]*)([.,])(\d+)(?![.,]?\d)")
# i18n, k8s and W3C have names for words; "1h30m" begins with a number.
# In scripts without spaces, letters around a number are other words.
_WORD_WITH_DIGITS = re.compile(r"(?<![A-Za-z\d])[A-Za-z]+\d+[A-Za-z]+(?![A-Za-z\d])")
_THIN_SPACE = "\u2009"  # It separates groups of digits in French.
_SCALED = re.compile(r"(?<![\d.,])(\d+(?:[.,]\d+)?)[\s\u00a0\u202f]?([^\W\d_]{2,})")
# 15万, 1億2000万, 3千万, 3万5000: numbers with the signs of Chinese and Japanese for 10^4 and 10^8.
# 千 and 百 alone are no powers here: 5千克 are 5 kg.
_POWERS_OF_SIGNS = {
    **dict.fromkeys("百", 2),
    **dict.fromkeys("千", 3),
    **dict.fromkeys("万萬", 4),
    **dict.fromkeys("亿億", 8),
}
_PART_BY_SIGNS = re.compile(r"(\d[\d,]{0,20}(?:\.\d{1,12})?)[ \u00a0多余]?([百千]?[万萬亿億])")
_SCALED_BY_SIGNS = re.compile(
    rf"(?<![\d.,])((?:{_PART_BY_SIGNS.pattern})+)(\d{{1,4}}(?![\d.,]*[\d百千万萬亿億]))?"
)
# A Chinese or Japanese text with one of these may have a number above twelve in words.
_NUMERALS = re.compile("[十百千万萬亿億〇零廿]")
# A range of years whose second one is short: 2019–20.
_SHORT_RANGE = re.compile(r"(?<!\d)((?:1[5-9]|20)(\d\d))\s?[-/\u2013]\s?(\d\d)(?!\d)")
_GROUP = 3  # digits
_SPELLED_LANGUAGES = frozenset(("de", "en", "es", "fr", "it", "nl", "pt"))
# The powers of ten of abbreviations and words behind a number, by language.
_POWERS = {
    "de": {"tsd": 3, "tausend": 3, "mio": 6, "million": 6, "millionen": 6}
    | {"mrd": 9, "milliarde": 9, "milliarden": 9, "billion": 12, "billionen": 12},
    "en": {"thousand": 3, "million": 6, "millions": 6, "mn": 6, "billion": 9, "billions": 9}
    | {"bn": 9, "trillion": 12, "trillions": 12},
    "es": {"mil": 3, "millón": 6, "millones": 6, "mill": 6, "billón": 12, "billones": 12},
    "fr": {"mille": 3, "million": 6, "millions": 6, "mio": 6, "milliard": 9, "milliards": 9}
    | {"mrd": 9, "billion": 12, "billions": 12},
    "it": {"mila": 3, "mille": 3, "milione": 6, "milioni": 6, "mln": 6, "mio": 6}
    | {"miliardo": 9, "miliardi": 9, "mld": 9, "mrd": 9},
}
# Translators write out numbers up to this one.
_SPELLED_OUT = 12


def numbers_of(text: str) -> list[str]:
    """Return the runs of digits of a text, sorted as strings, without leading zeros.

    Groups of three digits are one number, whatever separates them. A decimal point separates two:
    so `1,000.50` and `1.000,50` have the same numbers, and `03/04/2021` those of `4.3.2021`.
    Digits of other scripts are read as 0 to 9, and 15万 as 150000.

    Example:
        >>> numbers_of("On 03/04 at 5 p.m.: 12,000 people")
        ['12000', '3', '4', '5']
    """
    text = _SCALED_BY_SIGNS.sub(_with_zeros, text)
    return sorted(_plain_digits(number) for number in _NUMBER.findall(text))


def _with_zeros(match: re.Match[str]) -> str:
    """Return a match of `_SCALED_BY_SIGNS` in digits; as it is, if it is no whole number."""
    total = int(match[4] or 0)
    for number, signs in _PART_BY_SIGNS.findall(match[1]):
        whole, _, fraction = number.replace(",", "").partition(".")
        digits = _scaled(whole, fraction, sum(_POWERS_OF_SIGNS[sign] for sign in signs))
        if digits is None:
            return match[0]
        total += int(digits)
    return str(total)


def _plain_digits(number: str) -> str:
    """Return a number as digits from 0 to 9, without signs between and zeros before them."""
    # `int` refuses thousands of digits.
    digits = [str(unicodedata.decimal(sign)) for sign in number if sign.isdecimal()]
    return "".join(digits).lstrip("0") or "0"


def _may_be_a_word(number: str) -> bool:
    return len(number) <= 2 and int(number) <= _SPELLED_OUT


def numbers_agree(first: str, second: str) -> bool:
    """Return whether two texts have the same numbers, in any order and format.

    Example:
        >>> numbers_agree("Seite 7 von 12", "Page 7 of 12")
        True
    """
    return numbers_of(first) == numbers_of(second)


def _with_24_hours(text: str) -> str:
    """Return a text with the hours of 0 to 23 in place of those with a.m. and p.m."""

    def hours(time: re.Match[str]) -> str:
        hour = int(time[1]) % 12
        if time[3].lower() == "p":
            hour += 12
        return f"{hour}{time[2] or ''}"

    return _TWELVE_HOUR_TIME.sub(hours, text)


def differing_numbers(
    first: str, second: str, languages: tuple[str, str] = ("", "")
) -> tuple[list[str], list[str]]:
    """Return the numbers that the other text lacks, and that it cannot have written otherwise.

    A number up to twelve may be a word in the other text, unless that has another number in its
    place. The hour of 6 pm may be 6 or 18, and 2019–20 is 2019–2020. In Dutch, English, French,
    German, Italian, Portuguese and Spanish, larger numbers may be words too, and millions be
    abbreviated. In Chinese and Japanese, any number may be in words. The zeros of 3.50 do not
    count, and neither do the digits of a word such as i18n, which the other text may have spelled
    out.

    Args:
        first: A text, without placeholders.
        second: Its translation.
        languages: The codes of their languages.

    Returns:
        The numbers of the first text and those of the second; two empty lists if the texts agree.

    Raises:
        ImportError: The package text2num is missing (extra `clean`).

    Example:
        >>> differing_numbers("Seite 7", "Page 8")
        (['7'], ['8'])
        >>> differing_numbers("Seite 7", "page seven")
        ([], [])
        >>> differing_numbers("7:30 am to 6 pm", "de 7 h 30 à 18 h")
        ([], [])
        >>> differing_numbers("1,5 Mio. in zwanzig Tagen", "1,500,000 in 20 days", ("de", "en"))
        ([], [])
    """
    first = first.replace(_THIN_SPACE, " ")
    second = second.replace(_THIN_SPACE, " ")
    if bool(_WORD_WITH_DIGITS.search(first)) != bool(_WORD_WITH_DIGITS.search(second)):
        first = _WORD_WITH_DIGITS.sub(" ", first)
        second = _WORD_WITH_DIGITS.sub(" ", second)
    differing = _only_in_each(first, second)
    if differing == ([], []):
        return differing
    readings = [(_with_24_hours(first), _with_24_hours(second))]
    plain = [_with_plain_decimals(first), _with_plain_decimals(second)]
    readings.append((plain[0], plain[1]))
    readings.append((_with_whole_years(first), _with_whole_years(second)))
    first_language, second_language = languages
    spelled = [_with_digits(first, first_language), _with_digits(second, second_language)]
    # A language may write out the number that the other has in digits, or both may do so.
    readings += [(spelled[0], plain[1]), (plain[0], spelled[1]), (spelled[0], spelled[1])]
    for first_reading, second_reading in readings:
        if _only_in_each(first_reading, second_reading) == ([], []):
            return [], []
    return differing


def _with_plain_decimals(text: str) -> str:
    """Return a text without the zeros at the end of decimal fractions: 3.5 in place of 3.50."""

    def plain_decimal(match: re.Match[str]) -> str:
        whole, separator, fraction = match.groups()
        is_group = len(fraction) == _GROUP and not ("." in whole or "," in whole)
        if is_group or separator in whole:  # 1,500 or 24.12.2026
            return match[0]
        fraction = fraction.rstrip("0")
        return f"{whole}{separator}{fraction}" if fraction else whole

    return _DECIMAL.sub(plain_decimal, text)


def _with_whole_years(text: str) -> str:
    """Return a text with 2019–2020 in place of 2019–20."""

    def whole_years(match: re.Match[str]) -> str:
        first, first_end, second_end = match.groups()
        is_later = int(second_end) > int(first_end)
        return f"{first}–{first[:2]}{second_end}" if is_later else match[0]

    return _SHORT_RANGE.sub(whole_years, text)


def _with_digits(text: str, language: str) -> str:
    """Return a text with digits in place of the words for numbers, if the language is known."""
    code = two_letter_code(language) if language else ""
    powers = _POWERS.get(code, {})

    def digits(match: re.Match[str]) -> str:
        power = powers.get(match[2].casefold())
        if power is None:
            return match[0]
        number = match[1].replace(",", ".")
        whole, _, fraction = number.partition(".")
        if len(fraction) == _GROUP:  # 1,500 million
            whole, fraction = whole + fraction, ""
        return _scaled(whole, fraction, power) or match[0]

    text = _with_plain_decimals(_SCALED.sub(digits, text))
    if code not in _SPELLED_LANGUAGES:
        return text
    try:
        from text_to_num import alpha2digit
    except ImportError as error:
        raise ImportError(
            "Reading numbers in words needs text2num: pip install 'tmde[clean]'", name="text2num"
        ) from error
    spelled: str = alpha2digit(text, code)
    return spelled


def _scaled(whole: str, fraction: str, power: int) -> str | None:
    """Return the digits of a number times a power of ten; None if the fraction is longer."""
    if len(fraction) > power:
        return None
    return whole + fraction.ljust(power, "0")


def _only_in_each(first: str, second: str) -> tuple[list[str], list[str]]:
    """Return the numbers of each text that the other one lacks and cannot have written out."""
    first_counts = Counter(numbers_of(first))
    second_counts = Counter(numbers_of(second))
    only_first = sorted((first_counts - second_counts).elements())
    only_second = sorted((second_counts - first_counts).elements())
    is_one_sided = not only_first or not only_second
    if is_one_sided:
        only_first = _without_words(only_first, second)
        only_second = _without_words(only_second, first)
    return only_first, only_second


def _without_words(numbers: list[str], other: str) -> list[str]:
    """Return numbers without those that the other text may have in words."""
    if _NUMERALS.search(other):
        return []
    return [number for number in numbers if not _may_be_a_word(number)]
