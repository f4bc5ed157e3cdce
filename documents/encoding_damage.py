"""Texts that were read or written in a wrong encoding."""

from __future__ import annotations

import re

from tmde.documents.pair_checks import without_code, without_mnemonics

# A letter that an encoding did not have: f?r, gr??er. Before a capital, a space may be missing.
_LOST_LETTER = re.compile(r"(?<![^\W\d_])[^\W\d_]+\?{1,2}[^\W\d_A-Z]\w*")
_REPLACEMENT = "\ufffd"


def encoding_damage(text: str, other: str) -> str | None:
    """Return a word or a part of a text that was read or written in a wrong encoding; None if none.

    Args:
        text: The text.
        other: Its translation. A question mark within a word of both is no damage.

    Example:
        >>> encoding_damage("Das ist f?r dich.", "This is for you.")
        'f?r'
        >>> encoding_damage("Das ist fÃ¼r dich.", "This is for you.")
        'fÃ¼r'
    """
    if _REPLACEMENT in text:
        return _REPLACEMENT
    lost = _lost_letter(text)
    if lost is not None and _lost_letter(other) is None:
        return lost
    if text.isascii():
        return None
    from ftfy import fix_encoding

    if fix_encoding(text) == text:
        return None
    for word in text.split():
        if fix_encoding(word) != word:
            return word
    return text


def _lost_letter(text: str) -> str | None:
    """Return the first word that has a question mark in place of a letter; None if none has."""
    plain = without_mnemonics(text)
    if "?" not in plain:
        return None
    match = _LOST_LETTER.search(without_code(plain))
    return None if match is None else match[0]
