"""What can be wrong with a row of a parallel corpus."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Reason(str, enum.Enum):
    """Why a text or a row is removed. The values are what the commands write and read."""

    NO_LETTERS = "no-letters"
    LANGUAGE = "wrong-language"
    COPY = "untranslated"
    PART_COPY = "partly-untranslated"
    PLACEHOLDERS = "placeholders"
    NUMBERS = "numbers"
    IMPROBABLE = "no-translation"
    LENGTH = "length"
    DUPLICATE = "duplicate"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a row.

    Attributes:
        reason: What is wrong.
        languages: The languages of the texts that it was found in: one, or two that do not fit.
        score: Of a wrong language the confidence in the other one, of `no-translation` the
            probability, of `length` how many times the usual deviation; 1 for what is either there
            or not.
        detail: What was found, for people.
    """

    reason: Reason
    languages: tuple[str, ...]
    score: float
    detail: str
