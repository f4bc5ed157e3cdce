"""Documents to sentences, in any language, without a model and without the network (the library `sentencex`)."""

import re

import sentencex

SPLITTER_LANGUAGES = ("en", "de", "es", "fr", "it")  # whose rules are asked where the language is not known
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
        found, end = set(), 0
        for piece in sentencex.segment(language, plain):
            end += len(piece)
            found.add(end)
        ends = found if ends is None else ends & found
        if len(ends) <= 1:
            return [line]
    cuts = [0, *sorted(ends | {len(line)})]
    return [piece for start, end in zip(cuts, cuts[1:], strict=False) if (piece := line[start:end].strip())]
