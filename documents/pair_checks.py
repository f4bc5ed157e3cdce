"""Checks of a text and its translation that need no model, and texts without code."""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections import Counter
from functools import lru_cache

from tmde.documents.mining import plain_text

# What a translation leaves as it is: addresses, names of variables, tags and entities.
_PLACEHOLDER = re.compile(
    r"""
    https?://[^\s/)\]}>,;"']+            # the host of an address: its path may be translated
    | (?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+  # an e-mail address
    | \$?\{[\w.:!$-]*\}                  # {name}, ${name}, {0}
    | %\(\w+\)[sdif]                     # %(name)s
    | %(?:\d+\$)?[sdif](?!\w)            # %s, %1$s
    | </?[a-zA-Z][^<>]*>                 # <b>, </b>
    | &(?:[a-zA-Z]+|\#\d+);              # &nbsp;
    | \$[A-Z_]{2,}\b                     # $HOME
    """,
    re.VERBOSE,
)
# An alternative that may run far before it fails begins only where a word or a path does. So a long
# text without spaces takes a time that grows with its length, and not with the square of it.
_CODE = re.compile(
    r"""
    https?://\S+                          # an address
    | (?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+   # an e-mail address
    | </?[a-zA-Z][^<>]*>                  # <b>, <span color='green'>, </b>
    | &(?:[a-zA-Z]+|\#\d+);               # &nbsp;
    | \$?\{[^{}\s]*\}                     # {name}, ${name}, {0}
    | \$\w+(?:[.|]\w+)*                   # $name, $unit.name, $HOME
    | %\(\w+\)[sdif]                      # %(name)s
    | %(?:\d+\$)?[sdif](?!\w)             # %s, %1$s
    | (?<!\w)--?[a-zA-Z][\w-]*(?:=\S+)?   # --no-delay, -v
    | (?<![\w.-])(?:\.\.?|[\w.-]+)?(?:[/\\][\w.-]+){2,}/?  # /usr/share/doc, data/maps/a.map
    | ~(?:[/\\][\w.-]+)+                  # ~/notes.txt
    | (?<!\w)\w+_\w+(?:[._]\w+)*          # ai_controller, player_name
    | (?<!\w)[a-zA-Z]+(?:\.[a-zA-Z]\w+)+(?!\w)  # module.function, notes.txt
    | (?<!\w)\w*\d\w*                     # 498YW
    """,
    re.VERBOSE,
)
# Longer texts are compared by their first words, because the comparison takes quadratic time.
_COMPARED_WORDS = 500


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
    words = _words(first)
    return bool(words) and words == _words(second)


def common_run(first: str, second: str) -> tuple[str, int]:
    """Return the longest run of words that occurs in both texts.

    Returns:
        The run, in lower case, and its number of words.

    Example:
        >>> common_run("Wählen Sie the name of the file.", "Select the name of the file.")
        ('the name of the file', 5)
    """
    first_words = _words(first)[:_COMPARED_WORDS]
    second_words = _words(second)[:_COMPARED_WORDS]
    matcher = difflib.SequenceMatcher(None, first_words, second_words, autojunk=False)
    match = matcher.find_longest_match()
    return " ".join(first_words[match.a : match.a + match.size]), match.size


def word_count(text: str) -> int:
    """Return the number of words of a text."""
    return len(_words(text))


def _words(text: str) -> list[str]:
    """Return the words of a text: runs of letters, their marks, and digits, in lower case."""
    return _only(("L", "M", "N"), text).split()


def _only(categories: tuple[str, ...], text: str) -> str:
    """Return a text in lower case, with spaces in place of all but some categories of Unicode."""
    return text.casefold().translate(_character_table(categories))


@lru_cache
def _character_table(categories: tuple[str, ...]) -> _CharacterTable:
    return _CharacterTable(categories)


class _CharacterTable(dict[int, str]):
    """The characters that `_only` puts for each, filled as they occur.

    Args:
        categories: The first letters of the categories that stay.
    """

    def __init__(self, categories: tuple[str, ...]) -> None:
        super().__init__()
        self._categories = categories

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if unicodedata.category(character)[0] not in self._categories:
            character = " "
        self[code] = character
        return character


def differing_placeholders(first: str, second: str) -> tuple[list[str], list[str]]:
    """Return the placeholders of each text that the other one lacks: two empty lists if they agree.

    Example:
        >>> differing_placeholders("{name} hat %d Dateien", "{nom} has %d files")
        (['{name}'], ['{nom}'])
    """
    first_counts = Counter(_PLACEHOLDER.findall(first))
    second_counts = Counter(_PLACEHOLDER.findall(second))
    only_first = sorted((first_counts - second_counts).elements())
    only_second = sorted((second_counts - first_counts).elements())
    return only_first, only_second


def length_deviation(first: str, second: str, expected: float) -> float:
    """Return how far the ratio of two lengths is from the expected one, relative to what is usual.

    The logarithm of the ratio scatters more for short texts. Of 99.5 % of the development pairs it
    is within 0.25 + 2.2 / sqrt(l), with l the characters of the shorter text: their deviation is
    at most 1.

    Args:
        first: The text of the first language.
        second: That of the second.
        expected: The usual logarithm of the length of the second over that of the first.
    """
    ratio = log_length_ratio(first, second)
    usual = 0.25 + 2.2 / math.sqrt(max(min(len(first), len(second)), 1))
    return abs(ratio - expected) / usual


def log_length_ratio(first: str, second: str) -> float:
    """Return the logarithm of the length of the second text over that of the first."""
    return math.log(max(len(second), 1) / max(len(first), 1))


def near_duplicate_key(text: str) -> str:
    """Return what near-duplicates have in common: the letters, without case, digits and signs.

    Example:
        >>> near_duplicate_key("See page 12.") == near_duplicate_key("See  page 7")
        True
    """
    normalized = unicodedata.normalize("NFKC", plain_text(text))
    return " ".join(_only(("L", "M"), normalized).split())


# ---- Text without code


def without_code(text: str) -> str:
    """Return a text without tags, variables, flags, paths, addresses and words with digits.

    Example:
        >>> without_code("<i>Copy</i> $unit.name to /usr/share/doc --force")
        'Copy to'
    """
    return " ".join(_CODE.sub(" ", text).split())
