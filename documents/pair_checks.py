"""Checks of a text and its translation that need no model, and texts without code."""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from modeling_tmde.tokenization import without_invisible
from tmde.documents.mining import plain_text
from tmde.documents.placeholders import decoded
from tmde.documents.text_length import length_in_letters

# An alternative that may run far before it fails begins only where a word or a path does. So a long
# text without spaces takes a time that grows with its length, and not with the square of it. A word
# with digits ends before kana and Chinese signs, because these are other words.
_CODE = re.compile(
    r"""
    https?://\S+                          # an address
    | (?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+   # an e-mail address
    | </?[a-zA-Z][^<>]*>                  # <b>, <span color='green'>, </b>
    | &(?:[a-zA-Z]+|\#\d+);               # &nbsp;
    | \$?\{\{?[^{}\s]*\}\}?               # {name}, ${name}, {0}, {{name}}
    | \$\w+(?:[.|]\w+)*                   # $name, $unit.name, $HOME
    | %\(\w+\)[sdif]                      # %(name)s
    | %(?:\d+\$)?(?:[.\d]*[sdifg]|@|L?\d+|n)(?!\w)  # %s, %1$s, %.2f, %@, %1
    | \\[nrt]                             # \n, as two characters
    | (?<!\w)--?[a-zA-Z][\w-]*(?:=\S+)?   # --no-delay, -v
    | (?<![\w.-])(?:\.\.?|[\w.-]+)?(?:[/\\][\w.-]+){2,}/?  # /usr/share/doc, data/maps/a.map
    | ~(?:[/\\][\w.-]+)+                  # ~/notes.txt
    | (?<!\w)\w+_\w+(?:[._]\w+)*          # ai_controller, player_name
    | (?<!\w)[a-zA-Z]+(?:\.[a-zA-Z]\w+)+(?!\w)  # module.function, notes.txt
    | (?<![^\W\d_\u3040-\u9fff])(?:[^\W\d_\u3040-\u9fff]*\d)+[^\W\d_\u3040-\u9fff]*  # 498YW
    """,
    re.VERBOSE,
)
# All that these alternatives match has one of these signs.
_SIGN_OF_CODE = re.compile(r"[@<&{$%\\/~_\d]|-[a-zA-Z]|[a-zA-Z]\.[a-zA-Z]")
_SIGNS_OF_WORDS = "+#\u266d\u266f"  # C++, C#, and flat and sharp keys of music
# The letter that chooses an item of a menu: "&File", "_File", "~File", "文件(&F)".
_MARKED_LETTER = re.compile(r"\(&\w\)|[&~](?=\w)")
# Longer texts are compared by their first words, because the comparison takes quadratic time.
_COMPARED_WORDS = 500
_CACHED_TEXTS = 2**14  # Several checks ask for the words of the same text.
_CACHED_WORDS = 2**7  # Those of the texts of a row; of more, they would take much memory.
# -5 and 1.12 keep their signs. Those in 2019-2020, e-mail and behind a sentence separate words.
_SIGN_OUTSIDE_NUMBERS = re.compile(r"(?<=\w)[-\u2212]|[-\u2212](?!\d)|(?<!\d)[.,]|[.,](?!\d)")
_SIGNS_OF_NUMBERS = "-\u2212.,"


def has_letters(text: str) -> bool:
    """Return whether a text has a letter."""
    return any(map(str.isalpha, text))


def letter_count(text: str) -> int:
    """Return the number of letters of a text."""
    return sum(map(str.isalpha, text))


def is_copy(first: str, second: str) -> bool:
    """Return whether two texts have the same words, in upper or lower case.

    Example:
        >>> is_copy("Save as...", "save as")
        True
    """
    first_words = _words(first)
    second_words = _words(second)
    if not first_words or len(first_words) != len(second_words):
        return False
    return _folded(first_words) == _folded(second_words)


def common_run(first: str, second: str) -> tuple[str, str]:
    """Return the longest run of words that occurs in both texts, in upper or lower case.

    Returns:
        The run as the first text has it, and as the second has it.

    Example:
        >>> common_run("Wählen Sie The Name of the file.", "Select the name of the file.")
        ('The Name of the file', 'the name of the file')
    """
    first_words = _words(first)[:_COMPARED_WORDS]
    second_words = _words(second)[:_COMPARED_WORDS]
    matcher = difflib.SequenceMatcher(
        None, _folded(first_words), _folded(second_words), autojunk=False
    )
    match = matcher.find_longest_match()
    first_run = first_words[match.a : match.a + match.size]
    second_run = second_words[match.b : match.b + match.size]
    return " ".join(first_run), " ".join(second_run)


def common_words(first: str, second: str) -> int:
    """Return how many words of the first text the second one has too, in upper or lower case.

    No common run is longer.
    """
    second_words = set(_folded(_words(second)))
    return sum(word in second_words for word in _folded(_words(first)))


def word_count(text: str) -> int:
    """Return the number of words of a text."""
    return len(_words(text))


@lru_cache(_CACHED_WORDS)
def _words(text: str) -> tuple[str, ...]:
    """Return the words of a text: runs of letters, their marks, and digits."""
    return tuple(_only(("L", "M", "N"), without_mnemonics(without_invisible(text))).split())


def _folded(words: Sequence[str]) -> list[str]:
    """Return words by which upper and lower case are equal."""
    return [word.casefold() for word in words]


def _only(categories: tuple[str, ...], text: str, signs: str = "") -> str:
    """Return a text with spaces in place of all but some categories of Unicode and some signs."""
    return text.translate(_character_table(categories, signs))


@lru_cache
def _character_table(categories: tuple[str, ...], signs: str) -> _CharacterTable:
    return _CharacterTable(categories, signs)


class _CharacterTable(dict[int, str]):
    """The characters that `_only` puts for each, filled as they occur.

    Args:
        categories: The first letters of the categories that stay.
        signs: Further characters that stay.
    """

    def __init__(self, categories: tuple[str, ...], signs: str) -> None:
        super().__init__()
        self._categories = categories
        self._signs = signs

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_wanted = unicodedata.category(character)[0] in self._categories
        if not is_wanted and character not in self._signs:
            character = " "
        self[code] = character
        return character


def length_deviation(first: str, second: str, expected: float) -> float:
    """Return how far the ratio of two lengths is from the expected one, relative to what is usual.

    The logarithm of the ratio scatters more for short texts. Of 99.5% of the development pairs it
    is within 0.25 + 2.2 / sqrt(l), with l the length of the shorter text: their deviation is at
    most 1. Lengths are those of [`~tmde.documents.text_length.length_in_letters`].

    Args:
        first: The text of the first language.
        second: That of the second.
        expected: The usual logarithm of the length of the second over that of the first.
    """
    ratio = log_length_ratio(first, second)
    shorter = min(length_in_letters(first), length_in_letters(second))
    usual = 0.25 + 2.2 / math.sqrt(max(shorter, 1))
    return abs(ratio - expected) / usual


def log_length_ratio(first: str, second: str) -> float:
    """Return the logarithm of the length of the second text over that of the first."""
    return math.log(max(length_in_letters(second), 1) / max(length_in_letters(first), 1))


def near_duplicate_key(text: str) -> str:
    """Return what near-duplicates have in common: the words, without case, mnemonics and signs.

    Numbers count with their signs, and so do signs that belong to a word.

    Example:
        >>> near_duplicate_key("_See the table on page 12.")
        'see the table on page 12'
        >>> near_duplicate_key("C++")
        'c++'
    """
    normalized = unicodedata.normalize("NFKC", plain_text(without_mnemonics(text))).casefold()
    normalized = _SIGN_OUTSIDE_NUMBERS.sub(" ", normalized)
    words = _only(("L", "M", "N"), normalized, _SIGNS_OF_WORDS + _SIGNS_OF_NUMBERS)
    return " ".join(word for word in words.split() if word.strip(_SIGNS_OF_WORDS))


# ---- Text without code


def without_mnemonics(text: str) -> str:
    """Return a text without the signs that mark a letter of a menu item.

    Example:
        >>> without_mnemonics("Ena&ble _this"), without_mnemonics("player_name and other_name")
        ('Enable this', 'player_name and other_name')
    """
    text = decoded(text)
    if "&" in text or "~" in text:
        text = _MARKED_LETTER.sub("", text)
    return text.replace("_", "") if text.count("_") == 1 else text


@lru_cache(_CACHED_TEXTS)
def spoken_text(text: str) -> str:
    """Return the words of a text that are in a language, in lower case.

    Left out are entities, mnemonics, code, numbers, signs and invisible characters.

    Example:
        >>> spoken_text("&Skip <b>PO</b> header: %s")
        'skip po header'
    """
    plain = without_code(without_mnemonics(without_invisible(text)))
    return " ".join(_only(("L", "M"), plain.lower(), "'\u2019").split())


@lru_cache(_CACHED_TEXTS)
def without_code(text: str) -> str:
    """Return a text without tags, variables, flags, paths, addresses and words with digits.

    Example:
        >>> without_code("<i>Copy</i> $unit.name to /usr/share/doc --force")
        'Copy to'
    """
    if _SIGN_OF_CODE.search(text):
        text = _CODE.sub(" ", text)
    return " ".join(text.split())
