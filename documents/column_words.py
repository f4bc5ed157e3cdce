"""The words of each language of a memory: what tells a loan word from an untranslated one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

# With fewer texts of a language, too few of its words are known.
_FEWEST_TEXTS = 200
# A word is translated if so many texts of the one language have it, and so many times as many as of
# the other.
_FEWEST_OF_WORD = 2
_MORE = 2


class ColumnWords:
    """Counts the texts of each language that have a word.

    Example:
        >>> words = ColumnWords()
        >>> for english, german in [("save", "sichern"), ("save as", "sichern als")]:
        ...     words.add("en", [*english.split(), "server"])
        ...     words.add("de", [*german.split(), "server"])
        >>> words.is_translated("save", "en", "de"), words.is_translated("server", "en", "de")
        (True, False)
    """

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._num_texts: Counter[str] = Counter()

    def add(self, language: str, words: Collection[str]) -> None:
        """Count the words of a text, in lower case, each once."""
        self._counts[language].update(set(words))
        self._num_texts[language] += 1

    def are_known(self, language: str) -> bool:
        """Return whether there were enough texts of a language to know its common words."""
        return self._num_texts[language] >= _FEWEST_TEXTS

    def known_share(self, language: str, words: Collection[str]) -> float:
        """Return the share of words that other texts of the language have; 0 without words."""
        if not words:
            return 0.0
        counts = self._counts[language]
        return sum(counts[word] > 0 for word in words) / len(words)

    def is_translated(self, word: str, language: str, other_language: str) -> bool:
        """Return whether texts of one language have a word, and far fewer of the other."""
        count = self._counts[language][word]
        return count >= _FEWEST_OF_WORD and count > _MORE * self._counts[other_language][word]
