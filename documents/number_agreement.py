"""The numbers in a text, which a translation keeps."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

# A number with groups of three digits, or a run of digits.
_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?:[.,'\u2019 \u00a0\u202f]\d{3})+(?!\d)|\d+")
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


def differing_numbers(first: str, second: str) -> tuple[list[str], list[str]]:
    """Return the numbers that the other text lacks, and that it cannot have written out.

    A number up to twelve may be a word in the other text, unless that has another number in its
    place.

    Returns:
        The numbers of the first text and those of the second; two empty lists if the texts agree.

    Example:
        >>> differing_numbers("Seite 7", "Page 8")
        (['7'], ['8'])
        >>> differing_numbers("Seite 7", "page seven")
        ([], [])
    """
    first_counts = Counter(numbers_of(first))
    second_counts = Counter(numbers_of(second))
    only_first = sorted((first_counts - second_counts).elements())
    only_second = sorted((second_counts - first_counts).elements())
    is_one_sided = not only_first or not only_second
    if is_one_sided:
        only_first = [number for number in only_first if not _may_be_a_word(number)]
        only_second = [number for number in only_second if not _may_be_a_word(number)]
    return only_first, only_second
