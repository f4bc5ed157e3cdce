"""Lengths of texts that can be compared across scripts."""

import re

# About as many letters of an alphabet are a Chinese character, or a syllable of kana or hangul.
_CHINESE_LETTERS = 3
_SYLLABLE_LETTERS = 2
_CHINESE = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
_SYLLABLE = re.compile("[\u3040-\u30ff\uac00-\ud7af]")


def length_in_letters(text: str) -> int:
    """Return the length of a text as if it was written in an alphabet.

    Example:
        >>> length_in_letters("Haus"), length_in_letters("橋を渡る")
        (4, 10)
    """
    if text.isascii():
        return len(text)
    chinese = (_CHINESE_LETTERS - 1) * len(_CHINESE.findall(text))
    syllables = (_SYLLABLE_LETTERS - 1) * len(_SYLLABLE.findall(text))
    return len(text) + chinese + syllables
