"""What the page of `tmde demo` shows of an index: a map of its documents and their groups."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

from modeling_tmde import TmdeError
from tmde.documents.collection_map import CollectionMap, drawn_rows, map_collection
from tmde.documents.index import DocumentIndex, Hit
from tmde.embedding import split_sentences

# The passages that are shown without documents, and questions that they answer.
FOLDER = Path(__file__).with_name("demo_passages")
# 60 passages of FLORES-200, each in five languages. They belong to a benchmark, so nothing may be
# trained, chosen or reported on them.
PASSAGES = FOLDER / "passages.jsonl"
NAME = "FLORES-200"

# The language and the text of each.
QUESTIONS = (
    ("de", "Dürfen Drohnen am Flughafen fliegen?"),
    ("en", "Which wild animals can one see in Kenya?"),
    ("es", "¿Qué río lleva más agua?"),
    ("fr", "Où skier en hiver ?"),
    ("it", "Quali animali attirano i cibi in campeggio?"),
)
NOTHING = "(none)"  # the value of documents without one
OTHERS = "(others)"  # the value that stands for all rare ones
# The colors and markers of so many groups, and of both values above, can still be told apart.
MOST_GROUPS = 24
MOST_EXAMPLES = 5
# An example is a sentence of this many characters among the first of a document.
EXAMPLE_LENGTHS = range(25, 141)
_EXAMPLE_SOURCE = 2000
# What the guesser of languages reads at most.
_GUESSER_DOCUMENTS = 2000
_GUESSER_CHARACTERS = 400
# A guess that is less probable than this is none: a name may belong to any language.
LEAST_PROBABILITY = 0.8


# Translations of one document have its value in this field of the metadata.
DOCUMENT_FIELD = "doc_id"
# Fields that tell documents apart but no groups of them.
_UNCOLORED = ("language", "title", DOCUMENT_FIELD)


@dataclass(frozen=True)
class Example:
    """A query to try.

    Attributes:
        language: Its language.
        text: Its text.
        hit_languages: The languages of the documents that it is searched in.
    """

    language: str
    text: str
    hit_languages: list[str]


class LanguageGuesser:
    """Naive Bayes over the characters of words (Cavnar and Trenkle, 1994, have the features).

    Args:
        texts: n texts in two or more languages.
        languages: The code of each.
    """

    def __init__(self, texts: Sequence[str], languages: Sequence[str]) -> None:
        features = CountVectorizer(analyzer="char_wb", ngram_range=(1, 3))
        # Queries come in languages alike, however many documents each of them has.
        classifier = MultinomialNB(alpha=0.1, fit_prior=False)
        self._classifier = make_pipeline(features, classifier).fit(texts, languages)

    def guess(self, text: str) -> str | None:
        """Return the language of a text; None if it is too uncertain."""
        probabilities = self._classifier.predict_proba([text])[0]  # (languages,)
        best = probabilities.argmax()
        if probabilities[best] < LEAST_PROBABILITY:
            return None
        return str(self._classifier.classes_[best])


@dataclass(frozen=True)
class Collection:
    """Documents to search, and those of them that are drawn.

    Attributes:
        name: The name of the collection on the page.
        index: All documents.
        drawn: The documents on the map, rows of `map`.
        map: Their places.
        groups: The value of each drawn document, by the name of a field.
        languages: The languages of all documents, "" for those without one; empty if none has one.
        examples: Queries to try.
        has_translations: Whether documents are translations of each other, which share their value
            of `DOCUMENT_FIELD`.
        guesser: Guesses the language of a query; None if the documents have fewer than two.
        is_sample: Whether these are the passages that come with the package.
    """

    name: str
    index: DocumentIndex
    drawn: list[Hit]
    map: CollectionMap
    groups: dict[str, list[str]]
    languages: list[str]
    examples: list[Example]
    has_translations: bool = False
    guesser: LanguageGuesser | None = None
    is_sample: bool = False


def draw_collection(
    index: DocumentIndex,
    name: str,
    label_fields: Sequence[str] = (),
    points: int = 5000,
    method: str | None = None,
    is_sample: bool = False,
) -> Collection:
    """Return what the page shows of an index.

    Args:
        index: An index with its embedder.
        name: The name of the collection on the page.
        label_fields: Metadata that color the map besides `language`; if there are none, all fields
            with 2 to 24 different values do.
        points: The most documents that are drawn; others are chosen at random, always the same.
        method: See `map_collection`.
        is_sample: Whether the index holds the passages that come with the package.

    Raises:
        TmdeError: The index is empty, or no document has a label field.
    """
    all_ids = sorted(index)
    if not all_ids:
        raise TmdeError(f"{name}: found an index without documents")
    ids = [all_ids[row] for row in drawn_rows(len(all_ids), points)]
    typer.echo(f"Drawing a map of {len(ids):,} documents ...", err=True)
    drawn = index.documents(ids)
    languages = _languages_of(index)
    return Collection(
        name=name,
        index=index,
        drawn=drawn,
        map=map_collection(index.vectors(ids), method),
        groups=_groups_of(drawn, name, label_fields, bool(languages)),
        languages=languages,
        examples=_questions(languages) if is_sample else _examples_of(drawn, languages),
        has_translations=_has_translations(drawn),
        guesser=_learn_languages(drawn),
        is_sample=is_sample,
    )


def as_text(value: Any) -> str | None:  # noqa: ANN401 - metadata may be anything
    """Return a value of the metadata as the page shows it; None for one that is empty."""
    if isinstance(value, list | tuple):
        value = ", ".join(str(part) for part in value)
    if value is None or value == "":
        return None
    return str(value)


def _languages_of(index: DocumentIndex) -> list[str]:
    """Return the languages of all documents, "" for those without one; none if all lack one."""
    languages = {as_text(code) or "" for code in index.values("language")}
    if not any(languages):
        return []
    return sorted(languages)


def _groups_of(
    drawn: Sequence[Hit], name: str, label_fields: Sequence[str], has_languages: bool
) -> dict[str, list[str]]:
    """Return the value of each drawn document, by the fields that color the map.

    Args:
        drawn: The documents.
        name: The name of the collection, for messages.
        label_fields: The fields that were asked for; without any, all that fit are taken.
        has_languages: Whether documents have languages, which always color the map then.
    """
    field_names: list[str] = []
    for hit in drawn:
        field_names += [field_name for field_name in hit.metadata if field_name not in field_names]
    unknown = set(label_fields).difference(field_names)
    if unknown:
        raise TmdeError(
            f"{name}: no field {unknown.pop()!r}, found {field_names}; see --label-field"
        )
    groups = {}
    if has_languages:
        groups["language"] = _group_by(drawn, "language")
    for label_field in label_fields:
        groups[label_field] = _group_by(drawn, label_field)
    if label_fields:
        return groups
    for field_name in field_names:
        values = {as_text(hit.metadata.get(field_name)) for hit in drawn} - {None}
        tells_apart = 2 <= len(values) <= MOST_GROUPS
        if tells_apart and field_name not in _UNCOLORED:
            groups[field_name] = _group_by(drawn, field_name)
    return groups


def _group_by(drawn: Sequence[Hit], field_name: str) -> list[str]:
    """Return the value of a field of each document; rare values become one."""
    values = [as_text(hit.metadata.get(field_name)) for hit in drawn]
    counts = Counter(value for value in values if value is not None)
    group_of_value: dict[str | None, str] = {None: NOTHING}
    for value, _ in counts.most_common(MOST_GROUPS):
        group_of_value[value] = value
    return [group_of_value.get(value, OTHERS) for value in values]


def _has_translations(drawn: Sequence[Hit]) -> bool:
    """Return whether documents with the same `DOCUMENT_FIELD` are translations of each other.

    They are if there are such documents, and no two of them have the same language: those would be
    parts of a document.
    """
    languages_of_document: dict[str, set[str | None]] = {}
    count = 0
    for hit in drawn:
        document = as_text(hit.metadata.get(DOCUMENT_FIELD))
        if document is None:
            continue
        language = as_text(hit.metadata.get("language"))
        languages = languages_of_document.setdefault(document, set())
        if language is None or language in languages:
            return False
        languages.add(language)
        count += 1
    return count > len(languages_of_document)


def _learn_languages(drawn: Sequence[Hit]) -> LanguageGuesser | None:
    """Return what guesses languages as the documents have them; None for fewer than two."""
    texts = []
    languages = []
    for hit in drawn[:_GUESSER_DOCUMENTS]:
        language = as_text(hit.metadata.get("language"))
        if language is not None:
            texts.append(hit.text[:_GUESSER_CHARACTERS])
            languages.append(language)
    if len(set(languages)) < 2:
        return None
    return LanguageGuesser(texts, languages)


def _questions(languages: list[str]) -> list[Example]:
    """Return questions that the passages of the package answer."""
    return [Example(code, text, languages) for code, text in QUESTIONS]


def _examples_of(drawn: Sequence[Hit], languages: list[str]) -> list[Example]:
    """Return a sentence of a document in each of several languages, to be found in the others."""
    sentences: dict[str, str] = {}
    for hit in random.Random(0).sample(drawn, len(drawn)):
        language = as_text(hit.metadata.get("language"))
        if language is None or language in sentences:
            continue
        for sentence in split_sentences(hit.text[:_EXAMPLE_SOURCE], language):
            if len(sentence) in EXAMPLE_LENGTHS:
                sentences[language] = " ".join(sentence.split())
                break
    examples = []
    for language, sentence in sorted(sentences.items())[:MOST_EXAMPLES]:
        other_languages = [code for code in languages if code != language]
        # Documents of one language are searched in it.
        examples.append(Example(language, sentence, other_languages or languages))
    return examples
