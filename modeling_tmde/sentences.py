"""Documents to sentences, in any language, without a model and without the network (the library `sentencex`)."""

import itertools
import re
from bisect import bisect_right
from importlib.metadata import version

import sentencex

# Whose rules are asked where the language is not known; the ends of the first ones are where Italian is cut.
SPLITTER_LANGUAGES = ("en", "de", "es", "fr", "it")
# The rules of Italian, and of languages that fall back to it, take a time that grows with the square of a line.
_LINEAR = SPLITTER_LANGUAGES[:4]
_WHOLE = 16_384  # characters of a line that is not cut into blocks for the other languages
_BLOCK = 4096
_BREAK = re.compile(r"[\r\n\u2028\u2029\x0b\x0c\x85]+")
_SPACE = re.compile(r"\s")


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """The sentences of a document, in order.

    A line break ends a sentence: documents have them between paragraphs, headings and list items. Text that is wrapped
    at a fixed width should be unwrapped first.

    Args:
        text: Any length.
        language: Its code (ISO 639-1), for its abbreviations; `sentencex` falls back to a related language for those
            that it has no rules for. None: a sentence ends where the rules of German, English, Spanish, French and
            Italian all say so, so that neither "z. B." nor "M. Dupont" is cut in two.

    Returns:
        Non-empty strings without white space around. Together they hold every other character of the text.

    Raises:
        TypeError: Text that is not a string.
        RuntimeError: A version of `sentencex` that loses characters.
    """
    if not isinstance(text, str):
        raise TypeError(f"text: found {type(text).__name__}, expected str")
    languages = SPLITTER_LANGUAGES if language is None else (language,)
    sentences = []
    for line in _BREAK.split(text):
        if line := line.strip():
            sentences.extend(_split_line(line, languages))
    return sentences


def _split_line(line: str, languages: tuple[str, ...]) -> list[str]:
    ends: set[int] | None = None
    plain = _SPACE.sub(" ", line)  # the rules of some languages break on a wide or narrow space before a full stop
    for language in languages:
        if language in _LINEAR or len(plain) <= _WHOLE:
            found = _ends(language, plain)
        else:
            found = _ends_in_blocks(language, plain, _ends("en", plain) if ends is None else ends)
        ends = found if ends is None else ends & found
        if len(ends) <= 1:
            return [line]
    cuts = [0, *sorted(ends | {len(line)})]
    return [piece for start, end in itertools.pairwise(cuts) if (piece := line[start:end].strip())]


def _ends(language: str, line: str) -> set[int]:
    """Where sentences end, the end of the line included.

    Raises:
        RuntimeError: The library gave something else than pieces of the line.
    """
    pieces = list(sentencex.segment(language, line))
    if "".join(pieces) != line:
        raise RuntimeError(
            f"sentencex {version('sentencex')}, rules of {language!r}: found sentences that do not join to their line "
            f"of {len(line):,} characters, expected all of it; install another version of sentencex (1.0.32 does it)"
        )
    return set(itertools.accumulate(map(len, pieces)))


def _ends_in_blocks(language: str, line: str, ends: set[int]) -> set[int]:
    """As `_ends`, of blocks of the line that start and stop where `ends` are, and overlap.

    What is an end depends on the words before and after it: of each block but the first and the last, its first piece
    and its stop are left to its neighbours.
    """
    bounds = [
        start for first, last in itertools.pairwise([0, *sorted(ends)]) for start in range(first, last, _BLOCK // 2)
    ]
    bounds.append(len(line))
    found = {len(line)}
    first = decided = 0
    while decided < len(line):
        last = bisect_right(bounds, bounds[first] + _BLOCK) - 1
        start, stop = bounds[first], bounds[last]
        block = {start + end for end in _ends(language, line[start:stop])}
        found |= {end for end in block if decided <= end < stop}
        first, decided = last - 1, stop
    return found
