"""The numbers in a text, which a translation keeps."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

# A number with groups of three digits, or a run of digits.
_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?:[.,'\u2019 \u00a0\u202f]\d{3})+(?!\d)|\d+")
# A time of the clock of twelve hours: 6 pm, 6:30 p.m.
_TWELVE_HOUR_TIME = re.compile(r"(?<!\d)(1[0-2]|0?[1-9])(:\d\d)?\s*([ap])\.?m\b", re.IGNORECASE)
# Translators write out numbers up to this one.
_SPELLED_OUT = 12


def numbers_of(text: str) -> list[str]:
    """Return the runs of digits of a text, sorted as strings, without leading zeros.

    Groups of three digits are one number, whatever separates them. A decimal point separates two:
    so `1,000.50` and `1.000,50` have the same numbers, and `03/04/2021` those of `4.3.2021`.
    Digits of other scripts are read as 0 to 9.

    Example:
        >>> numbers_of("On 03/04 at 5 p.m.: 12,000 people")
        ['12000', '3', '4', '5']
    """
    return sorted(_plain_digits(number) for number in _NUMBER.findall(text))


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


def differing_numbers(first: str, second: str) -> tuple[list[str], list[str]]:
    """Return the numbers that the other text lacks, and that it cannot have written out.

    A number up to twelve may be a word in the other text, unless that has another number in its
    place. The hour of 6 pm may be 6 or 18.

    Returns:
        The numbers of the first text and those of the second; two empty lists if the texts agree.

    Example:
        >>> differing_numbers("Seite 7", "Page 8")
        (['7'], ['8'])
        >>> differing_numbers("Seite 7", "page seven")
        ([], [])
        >>> differing_numbers("7:30 am to 6 pm", "de 7 h 30 à 18 h")
        ([], [])
    """
    differing = _only_in_each(first, second)
    if differing == ([], []):
        return differing
    differing_24 = _only_in_each(_with_24_hours(first), _with_24_hours(second))
    if differing_24 == ([], []):
        return differing_24
    return differing


def _only_in_each(first: str, second: str) -> tuple[list[str], list[str]]:
    """Return the numbers of each text that the other one lacks and cannot have written out."""
    first_counts = Counter(numbers_of(first))
    second_counts = Counter(numbers_of(second))
    only_first = sorted((first_counts - second_counts).elements())
    only_second = sorted((second_counts - first_counts).elements())
    is_one_sided = not only_first or not only_second
    if is_one_sided:
        only_first = [number for number in only_first if not _may_be_a_word(number)]
        only_second = [number for number in only_second if not _may_be_a_word(number)]
    return only_first, only_second
