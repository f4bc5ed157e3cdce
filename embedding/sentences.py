"""Split documents into sentences, or into windows of words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import sentencex

# A text of unknown language is split where the rules of all these languages agree.
SPLITTER_LANGUAGES = ("en", "de", "es", "fr", "it")

_LINE_BREAK = re.compile(r"[\r\n\u2028\u2029\x0b\x0c\x85]+")
_SPACE = re.compile(r"\s")
_WORD = re.compile(r"\S+")
_END_OF_MARKS = re.compile(r"(?<=[.!?])(?![.!?])")
# In characters. The rules of some languages take time quadratic in the length of a line.
_LINE_BLOCK = 4096


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """Split a document into sentences with the `sentencex` library.

    Line breaks end a sentence, so unwrap hard-wrapped text first.

    Args:
        text: A document of any length.
        language: The language code (ISO 639-1), for its abbreviations; `sentencex` falls back to a
            related language. With None, a sentence ends where the rules of German, English,
            Spanish, French and Italian agree, so neither "z. B." nor "M. Dupont" is split.

    Returns:
        The sentences in order, without surrounding whitespace. No other character is lost.
    """
    languages = SPLITTER_LANGUAGES if language is None else (language,)
    sentences = []
    for line in _LINE_BREAK.split(text):
        for piece in _split_line(line.strip(), languages):
            sentence = piece.strip()
            if sentence:
                sentences.append(sentence)
    return sentences


def _split_line(line: str, languages: Sequence[str]) -> Iterator[str]:
    """Yield the pieces of a line, which end where the rules of all languages end a sentence."""
    if not line:
        return
    # The rules of some languages break on a wide or narrow space before a full stop.
    plain_line = _SPACE.sub(" ", line)
    for start, stop in itertools.pairwise([0, *_block_ends(plain_line)]):
        block = plain_line[start:stop]
        ends = set.intersection(*[_sentence_ends(language, block) for language in languages])
        for begin, end in itertools.pairwise(sorted({0, len(block)} | ends)):
            yield line[start + begin : start + end]


def _block_ends(line: str) -> list[int]:
    """Return where to cut a line before its sentences are found.

    A long line is cut into blocks of at least `_LINE_BLOCK` characters, at the ends of sentences
    by the rules of English, whose time is linear.
    """
    if len(line) <= _LINE_BLOCK:
        return [len(line)]
    block_ends = []
    start = 0
    for end in sorted(_sentence_ends("en", line)):
        if end - start >= _LINE_BLOCK or end == len(line):
            block_ends.append(end)
            start = end
    return block_ends


def _sentence_ends(language: str, line: str) -> set[int]:
    """Return the places at which a sentence ends, which include the end of the line."""
    sentence_lengths = map(len, sentencex.segment(language, line))
    return set(itertools.accumulate(sentence_lengths))


def split_at_punctuation(text: str) -> list[str]:
    """Return the pieces of a document that end with one of the characters `.`, `!` and `?`.

    This is how Yu et al. (2018) split documents (section 5.1): "z. B." and "3.5" are cut in two,
    and line breaks do not count. Marks in a row end one piece.

    Returns:
        Non-empty strings without white space around. Together they hold every other character of
        the text.
    """
    pieces = []
    for piece in _END_OF_MARKS.split(text):
        piece = piece.strip()
        if piece:
            pieces.append(piece)
    return pieces


def word_windows(text: str, size: int, stride: int) -> list[str]:
    """Return overlapping windows of a document, as those of Yu et al. (2018), section 5.1.

    Windows start at every `stride`-th word, until one of them reaches the end of the text; the last
    one may be shorter. Words are what stands between white space.

    Args:
        text: A document.
        size: The words of a window, at least 1.
        stride: The words from the start of one window to that of the next, 1 to `size`.

    Returns:
        Parts of the text from the first to the last word of each window, and the text itself if it
        has no more words than a window.
    """
    words = list(_WORD.finditer(text))
    if len(words) <= size:
        return [text]
    windows = []
    start = 0
    while True:
        window = words[start : start + size]
        windows.append(text[window[0].start() : window[-1].end()])
        if start + size >= len(words):
            return windows
        start += stride
