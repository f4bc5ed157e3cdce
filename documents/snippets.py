"""The sentence of a document that answers a query, as a line of a list of hits."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.sentences import split_sentences

# In characters, the longest line of a paragraph that is wrapped at a fixed width.
_WRAPPED_WIDTHS = range(40, 201)
_LIST_ITEM = re.compile(r"\s*([-*+•–#>|]|\(?\w{1,3}[.)]\s)")
# Characters of Thai, Lao, Burmese, Khmer, Chinese and Japanese.
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\uff00-\uffef\U00020000-\U0003ffff]"
)
# Marks of Markdown and HTML, and what stands in their place.
_MARKUP = (
    (re.compile(r"^\s*#{1,6}\s+", re.MULTILINE), ""),  # a heading
    (re.compile(r"\s*\{\s*#[\w-]+\s*\}"), ""),  # the anchor of a heading
    (re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s+\"[^\"]*\")?\)"), r"\1"),  # a link or an image
    (re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*"), r"\1"),  # bold
    (re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])"), r"\1"),  # italic
    (re.compile(r"`+([^`]+)`+"), r"\1"),  # code
    (
        re.compile(
            r"</?(?:a|abbr|b|br|code|div|em|i|img|kbd|li|ol|p|pre|small|span|strong|sub|sup|ul)"
            r"(?:\s[^<>]*)?/?>",
            re.IGNORECASE,
        ),
        "",
    ),
)
# The most of a document that is compared with a query.
MOST_SENTENCES = 256
MOST_CHARACTERS = 100_000


def shortened(text: str, width: int) -> str:
    """Return the text as one line of at most `width` characters."""
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    return line[: width - 1].rstrip() + "…"


def without_markup(text: str) -> str:
    """Return a text without marks of Markdown and tags of HTML; as it is if nothing else is left.

    Words with underscores, list items and tags that are no usual ones of HTML stay.
    """
    plain = text
    for pattern, replacement in _MARKUP:
        plain = pattern.sub(replacement, plain)
    return plain if plain.strip() else text


def unwrapped(text: str) -> str:
    """Return a text without the line breaks by which an editor wraps paragraphs at a fixed width.

    Such a break stands where the next word would have made the line longer than the longest one of
    the paragraph. The longest line itself always ends so. A single such break is therefore removed
    only if the next line begins in lower case, and several are removed only if not all of their
    next lines begin with a capital, as headings and verses do. Breaks before list items stay, and
    so do those of scripts that put no spaces between words.
    """
    paragraphs = re.split(r"(\n[^\S\n]*\n)", text.replace("\r\n", "\n"))
    return "".join(map(_unwrapped_paragraph, paragraphs))


def _unwrapped_paragraph(paragraph: str) -> str:
    """Return a paragraph, or the blank lines between two, without breaks of a fixed width."""
    lines = paragraph.split("\n")
    width = max(map(len, lines))
    if len(lines) == 1 or width not in _WRAPPED_WIDTHS:
        return paragraph
    wrapped_lines = []
    for number, (line, next_line) in enumerate(itertools.pairwise(lines), 1):
        if _may_be_wrapped(line, next_line, width):
            wrapped_lines.append(number)
    initials = {number: lines[number].lstrip()[0] for number in wrapped_lines}
    has_prose = any(initial.isalpha() and not initial.isupper() for initial in initials.values())
    if len(wrapped_lines) == 1 or not has_prose:
        wrapped_lines = [number for number in wrapped_lines if initials[number].islower()]
    unwrapped_text = lines[0]
    for number, line in enumerate(lines[1:], 1):
        unwrapped_text += " " if number in wrapped_lines else "\n"
        unwrapped_text += line
    return unwrapped_text


def _may_be_wrapped(line: str, next_line: str, width: int) -> bool:
    """Whether the first word of the next line would have made this one longer than the width."""
    next_words = next_line.split(maxsplit=1)
    if not next_words or _LIST_ITEM.match(next_line):
        return False
    line = line.rstrip()
    if _SPACELESS.match(line[-1:]) or _SPACELESS.match(next_words[0]):
        return False
    return len(line) + 1 + len(next_words[0]) > width


def nearest_sentences(
    texts: Sequence[str],
    languages: Sequence[object],
    query: np.ndarray,
    embedder: DocumentEmbedder,
) -> list[str]:
    """Return the sentence of each document that is nearest to a query.

    A document whose language the embedder needs and does not know is returned as it is.

    Args:
        texts: The documents.
        languages: The language code of each, as its metadata say; anything else counts as unknown.
        query: (d,) of length 1.
        embedder: Embeds the sentences.
    """
    nearest = list(texts)
    document_numbers: list[int] = []
    sentence_codes: list[str] = []
    sentences: list[str] = []
    for number, (text, language) in enumerate(zip(nearest, languages, strict=True)):
        code = language if isinstance(language, str) else None
        if embedder.needs_language and code not in embedder.model.config.languages:
            continue
        parts = split_sentences(unwrapped(text), code)[:MOST_SENTENCES]
        document_numbers += [number] * len(parts)
        if code is not None:
            sentence_codes += [code] * len(parts)
        sentences += parts
    if not sentences:
        return nearest
    codes = sentence_codes if embedder.needs_language else None
    vectors = embedder.encode(sentences, language=codes, show_progress_bar=False, normalize=True)
    cosines = (vectors @ query).tolist()  # (sentences,)
    best_cosines = [-math.inf] * len(texts)
    for number, cosine, sentence in zip(document_numbers, cosines, sentences, strict=True):
        # Of equally near sentences, the last one in the alphabet is taken, so that the order of the
        # sentences in the document does not matter.
        if (cosine, sentence) > (best_cosines[number], nearest[number]):
            best_cosines[number] = cosine
            nearest[number] = sentence
    return nearest


def matching_sentences(texts: Sequence[str], languages: Sequence[object], query: str) -> list[str]:
    """Return the sentence of each document that has the most words of a query.

    Of several, it is the first; of none, the first sentence of the document.

    Args:
        texts: The documents.
        languages: The language code of each; anything but a string counts as unknown.
        query: A text.
    """
    query_words = _words(query)
    chosen = []
    for text, language in zip(texts, languages, strict=True):
        code = language if isinstance(language, str) else None
        sentences = split_sentences(unwrapped(text), code)[:MOST_SENTENCES]
        best_sentence = text
        best_count = -1
        for sentence in sentences:
            count = len(query_words & _words(sentence))
            if count > best_count:
                best_sentence = sentence
                best_count = count
        chosen.append(best_sentence)
    return chosen


def matching_passage(passages: Sequence[str], query: str) -> int:
    """Return the number of the first passage that has the most words of a query."""
    if len(passages) == 1:
        return 0
    query_words = _words(query)
    counts = [len(query_words & _words(passage)) for passage in passages]
    return counts.index(max(counts))


def _words(text: str) -> set[str]:
    """Return the words of a text without case and accents, as the index compares them."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    letters = [letter for letter in decomposed if not unicodedata.combining(letter)]
    return set(re.findall(r"\w+", "".join(letters)))
