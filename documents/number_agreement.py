"""The numbers in a text, which a translation keeps."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"\d+")


def numbers_of(text: str) -> list[str]:
    """Return the runs of digits of a text, sorted, without leading zeros.

    So `1,000.50` and `1.000,50` have the same numbers, and `03/04/2021` those of `4.3.2021`.
    Digits of other scripts are read as 0 to 9.

    Example:
        >>> numbers_of("On 03/04 at 5 p.m.")
        ['3', '4', '5']
    """
    return sorted(str(int(digits)) for digits in _DIGITS.findall(text))


def numbers_agree(first: str, second: str) -> bool:
    """Return whether two texts have the same numbers, in any order and format.

    Example:
        >>> numbers_agree("Seite 7 von 12", "Page 7 of 12")
        True
    """
    return numbers_of(first) == numbers_of(second)
