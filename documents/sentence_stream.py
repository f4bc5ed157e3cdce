"""Documents of any number as chunks of sentences, so that whoever embeds them needs memory for one chunk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tqdm.auto import tqdm

Document = str | Sequence[str]
Split = Callable[[str, str], list[str]]

_END = object()


@dataclass(frozen=True)
class SentenceChunk:
    """Sentences in order, with number and language of the document of each. A document may go on in the next chunk."""

    documents: list[int] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)


def sentence_chunks(
    documents: Iterable[Document],
    languages: str | Iterable[str],
    split: Split,
    size: int,
    known: Sequence[str] | None = None,
) -> Iterator[SentenceChunk]:
    """The sentences of documents, `size` at a time.

    Args:
        documents: Texts, which are split, or lists of sentences, of which blank ones are left out.
        languages: One code for all, or one for each, read in step with the documents.
        split: Makes sentences of a text and its language.
        size: At least 1.
        known: Languages that there may be; None for any.

    Raises:
        ValueError: A document without a sentence (its number is named), an unknown language, not as many codes as
            documents.
        TypeError: A document that is neither a string nor a list of strings, a code that is no string.
    """
    chunk = SentenceChunk()
    for number, (document, language) in enumerate(_in_step(documents, languages)):
        if known is not None and language not in known:
            raise ValueError(
                f"languages: found {language!r} for document {number}, expected one of those fitted: "
                f"{', '.join(known)}. Fit documents of all languages"
            )
        sentences = split(document, language) if isinstance(document, str) else _sentences_of(document, number)
        if not sentences:
            raise ValueError(
                f"documents: document {number} is empty, expected at least one sentence. Leave such documents out"
            )
        for sentence in sentences:
            chunk.documents.append(number)
            chunk.languages.append(language)
            chunk.sentences.append(sentence)
            if len(chunk.sentences) == size:
                yield chunk
                chunk = SentenceChunk()
    if chunk.sentences:
        yield chunk


def _in_step(documents: Iterable[Document], languages: str | Iterable[str]) -> Iterator[tuple[Document, str]]:
    if isinstance(documents, str):
        raise TypeError("documents: found one str, expected an iterable of documents")
    total = len(documents) if hasattr(documents, "__len__") else None
    if total is not None and not isinstance(languages, str) and hasattr(languages, "__len__"):
        if len(languages) != total:
            raise ValueError(
                f"languages: found {len(languages)}, expected one for each of {total} documents, or one str for all"
            )
    codes = itertools.repeat(languages) if isinstance(languages, str) else itertools.chain(languages, [_END])
    count = 0
    for document in tqdm(documents, desc="Documents", unit="", total=total, delay=2, disable=None, leave=False):
        language = next(codes)
        if language is _END:
            raise ValueError(f"languages: found {count}, expected one for each document, of which there are more")
        if not isinstance(language, str):
            raise TypeError(f"languages: found {language!r} for document {count}, expected a code such as 'de'")
        yield document, language
        count += 1
    if not isinstance(languages, str) and next(codes) is not _END:
        raise ValueError(f"languages: found more than {count}, expected one for each of {count} documents")


def _sentences_of(document: Sequence[str], number: int) -> list[str]:
    if not isinstance(document, Sequence):
        raise TypeError(
            f"documents: found {type(document).__name__} as document {number}, expected str or list of str"
        )
    for sentence in document:
        if not isinstance(sentence, str):
            raise TypeError(
                f"documents: found {type(sentence).__name__} as a sentence of document {number}, expected str"
            )
    return [sentence for sentence in document if sentence.strip()]
