"""Check whether two texts of a row can be translations of each other."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tmde.documents.column_words import ColumnWords
from tmde.documents.language_identification import LanguageIdentifier
from tmde.documents.number_agreement import differing_numbers
from tmde.documents.pair_checks import (
    common_run,
    common_words,
    is_copy,
    length_deviation,
    letter_count,
    spoken_text,
    without_code,
    word_count,
)
from tmde.documents.placeholders import Placeholders

# A run of words that both texts have is untranslated if it is this long and in the wrong language.
_RUN_WORDS = 4
_RUN_SHARE = 0.4  # of the words of the shorter text
# A copy with fewer words is a name or a term. It is untranslated if the memory translates most of
# its words elsewhere; with more words, if it is a sentence, of which most words are in lower case.
_FEWEST_COPIED = 2
_SENTENCE_WORDS = 4
_SHORT_WORD = 2  # letters: abbreviations and units
# The most that the language of its column may have of the confidence in the two languages.
_MAX_SHARE_OF_COPY = 0.5
_MAX_SHARE_OF_SENTENCE = 0.2
_QUOTED_CHARACTERS = 60
# Vectors of few words say less: with fewer letters than these, texts that are right have low
# probabilities. Both numbers were chosen on development rows by length.
_FULL_LETTERS = 40
_SHORT_EXPONENT = 3


class Reason(str, enum.Enum):
    """Why a text or a row is removed. The values are what the commands write and read."""

    NO_LETTERS = "no-letters"
    ENCODING = "encoding"
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
        earlier_rows: The numbers of the rows that are repeated, from 1; empty for other reasons.
    """

    reason: Reason
    languages: tuple[str, ...]
    score: float
    detail: str
    earlier_rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class TextPair:
    """Two texts of a row.

    Attributes:
        languages: Their languages.
        first: The text of the first language.
        second: That of the second.
        expected_ratio: The usual logarithm of the length of the second over that of the first; None
            if too few pairs are known.
        probability: The probability that they are translations; None if too few other texts are
            known.
    """

    languages: tuple[str, str]
    first: str
    second: str
    expected_ratio: float | None
    probability: float | None


def least_probability(min_probability: float, first: str, second: str) -> float:
    """Return the probability that two texts need to be taken for translations.

    A right pair of single words often has a probability below 0.01. So short texts need less,

        min_probability * min(1, letters / 40)^3

    with the letters of the text that has fewer.

    Args:
        min_probability: What texts of 40 letters and more need.
        first: A text.
        second: The other one.

    Example:
        >>> least_probability(0.1, "a" * 20, "b" * 30)
        0.0125
    """
    letters = min(letter_count(first), letter_count(second))
    return min_probability * min(1.0, letters / _FULL_LETTERS) ** _SHORT_EXPONENT


class PairChecker:
    """Checks pairs of texts. The first thing that is wrong with a pair is its finding.

    Args:
        identifier: Tells languages apart.
        min_probability: Two texts with a lower probability do not match; short ones need less, see
            [`least_probability`].
        reasons: What to look for.
        words: The words of the other rows, by which names and loan words are known.
        placeholders: What a translation keeps as it is.
    """

    def __init__(
        self,
        identifier: LanguageIdentifier,
        min_probability: float,
        reasons: Collection[Reason],
        words: ColumnWords | None = None,
        placeholders: Placeholders | None = None,
    ) -> None:
        self.identifier = identifier
        self.min_probability = min_probability
        self.words = ColumnWords() if words is None else words
        self.placeholders = Placeholders() if placeholders is None else placeholders
        self._all_placeholders = Placeholders()
        # The plainest reasons come first: a copy is also improbable.
        checks: dict[Reason, Callable[[TextPair], Finding | None]] = {
            Reason.COPY: self._check_copy,
            Reason.PART_COPY: self._check_part_copy,
            Reason.IMPROBABLE: self._check_probability,
            Reason.PLACEHOLDERS: self._check_placeholders,
            Reason.NUMBERS: self._check_numbers,
            Reason.LENGTH: self._check_length,
        }
        self._checks = [check for reason, check in checks.items() if reason in reasons]

    def check(self, pair: TextPair) -> Finding | None:
        """Return what is wrong with a pair; None if nothing is."""
        for check in self._checks:
            finding = check(pair)
            if finding is not None:
                return finding
        return None

    def _check_copy(self, pair: TextPair) -> Finding | None:
        """Find a text that is a copy of the other one, and not a name, a term or a loan word."""
        if not is_copy(pair.first, pair.second):
            return None
        if min(_num_terms(pair.first), _num_terms(pair.second)) < _FEWEST_COPIED:
            return None
        return self._finding_of_untranslated(Reason.COPY, pair, pair.first, pair.second)

    def _check_part_copy(self, pair: TextPair) -> Finding | None:
        """Find a run of words that one of the texts has in the language of the other."""
        first = without_code(pair.first)
        second = without_code(pair.second)
        if common_words(first, second) < _RUN_WORDS:
            return None
        first_run, second_run = common_run(first, second)
        size = word_count(first_run)
        words = min(word_count(first), word_count(second))
        if size < _RUN_WORDS or size < _RUN_SHARE * words:
            return None
        return self._finding_of_untranslated(Reason.PART_COPY, pair, first_run, second_run)

    def _finding_of_untranslated(
        self, reason: Reason, pair: TextPair, first: str, second: str
    ) -> Finding | None:
        """Return the finding that words of both texts are in the wrong language for one; or None.

        Args:
            reason: That of the finding.
            pair: The texts.
            first: The words as the first text has them.
            second: The same as the second text has them.
        """
        spoken = spoken_text(first)
        words = [word for word in spoken.split() if len(word) > _SHORT_WORD]
        if len(words) < _FEWEST_COPIED:
            return None
        for language, other_language in (pair.languages, pair.languages[::-1]):
            share = self.identifier.share(spoken, language, other_language)
            translated = 0
            for word in words:
                translated += self.words.is_translated(word, other_language, language)
            is_elsewhere = 2 * translated > len(words) and share < _MAX_SHARE_OF_COPY
            is_sentence = _is_sentence(first) and _is_sentence(second)
            if is_elsewhere or (is_sentence and share < _MAX_SHARE_OF_SENTENCE):
                return Finding(reason, (language,), 1 - share, _quoted(first))
        return None

    def _check_probability(self, pair: TextPair) -> Finding | None:
        if pair.probability is None:
            return None
        needed = least_probability(self.min_probability, pair.first, pair.second)
        if pair.probability >= needed:
            return None
        detail = f"probability {pair.probability:.2g}, needed {needed:.2g}"
        return Finding(Reason.IMPROBABLE, pair.languages, pair.probability, detail)

    def _check_placeholders(self, pair: TextPair) -> Finding | None:
        differing = self.placeholders.differing(pair.first, pair.second)
        return _finding_of_difference(Reason.PLACEHOLDERS, pair, differing)

    def _check_numbers(self, pair: TextPair) -> Finding | None:
        first = self._all_placeholders.without(pair.first)
        second = self._all_placeholders.without(pair.second)
        differing = differing_numbers(first, second, pair.languages)
        return _finding_of_difference(Reason.NUMBERS, pair, differing)

    def _check_length(self, pair: TextPair) -> Finding | None:
        if pair.expected_ratio is None:
            return None
        deviation = length_deviation(pair.first, pair.second, pair.expected_ratio)
        if deviation <= 1:
            return None
        detail = f"{len(pair.first)} and {len(pair.second)} characters"
        return Finding(Reason.LENGTH, pair.languages, deviation, detail)


def _finding_of_difference(
    reason: Reason, pair: TextPair, differing: tuple[Sequence[str], Sequence[str]]
) -> Finding | None:
    """Return the finding of what one text has and the other lacks; None if nothing differs."""
    sides = []
    for language, items in zip(pair.languages, differing, strict=True):
        if items:
            sides.append(f"only in {language}: {' '.join(items)}")
    if not sides:
        return None
    return Finding(reason, pair.languages, 1.0, "; ".join(sides))


def _num_terms(text: str) -> int:
    """Return the number of words with letters, hyphenated ones as one, without code."""
    words = without_code(text).split()
    return len([word for word in words if letter_count(word) > _SHORT_WORD])


def _is_sentence(text: str) -> bool:
    """Return whether a text has several words, most of them in lower case, or all in capitals."""
    words = [word for word in without_code(text).split() if letter_count(word) > _SHORT_WORD]
    lowercase = [word for word in words if word[0].islower() or text.isupper()]
    return len(words) >= _SENTENCE_WORDS and 2 * len(lowercase) >= len(words)


def _quoted(text: str) -> str:
    """Return the beginning of a text."""
    if len(text) <= _QUOTED_CHARACTERS:
        return text
    return text[:_QUOTED_CHARACTERS] + "..."
