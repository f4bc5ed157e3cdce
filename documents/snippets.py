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
# The most of a document that is compared with a query.
MOST_SENTENCES = 256
MOST_CHARACTERS = 100_000


def shortened(text: str, width: int) -> str:
    """Return the text as one line of at most `width` characters."""
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    return line[: width - 1].rstrip() + "…"


def unwrapped(text: str) -> str:
    """Return a text without the line breaks by which an editor wraps paragraphs at a fixed width.

    Such a break stands where the next word would have made the line longer than the longest one of
    the paragraph. Other breaks stay: those of headings, list items and verses.
    """
    paragraphs = re.split(r"(\n[^\S\n]*\n)", text.replace("\r\n", "\n"))
    return "".join(map(_unwrapped_paragraph, paragraphs))


def _unwrapped_paragraph(paragraph: str) -> str:
    """Return a paragraph, or the blank lines between two, without breaks of a fixed width."""
    lines = paragraph.split("\n")
    width = max(map(len, lines))
    if len(lines) == 1 or width not in _WRAPPED_WIDTHS:
        return paragraph
    unwrapped_text = lines[0]
    for line, next_line in itertools.pairwise(lines):
        next_words = next_line.split(maxsplit=1)
        is_wrapped = (
            len(next_words) > 0
            and len(line.rstrip()) + 1 + len(next_words[0]) > width
            and _LIST_ITEM.match(next_line) is None
        )
        unwrapped_text += " " if is_wrapped else "\n"
        unwrapped_text += next_line
    return unwrapped_text


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


def _words(text: str) -> set[str]:
    """Return the words of a text without case and accents, as the index compares them."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    letters = [letter for letter in decomposed if not unicodedata.combining(letter)]
    return set(re.findall(r"\w+", "".join(letters)))
