"""What a task gives to the protocols: texts, labels or alignment, and where they come from."""

from __future__ import annotations

import abc
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from tmde.data.checks import CorpusError

# Bad data of a task. The message names file or split, row, value found and value expected.
TaskError = CorpusError
Source = str | os.PathLike | None
Languages = Sequence[str] | None
LawdrRank = int | Literal["auto"] | None


@dataclass(frozen=True)
class Provenance:
    """Where a task's data come from, for the report and the model card.

    Args:
        citation: Authors, title and year.
        license: The license of the data.
        hub_id: The Hub dataset; None if it is not one.
        url: A page about the data.
        source: What was loaded, a path or a Hub id. It is filled in by `load`.
        split: The split that is tested on.
    """

    citation: str
    license: str
    hub_id: str | None = None
    url: str | None = None
    source: str | None = None
    split: str | None = None

    def as_record(self) -> dict[str, str | None]:
        """Return the fields as `eval.json` stores them; its key of the license is `licence`."""
        return {
            "citation": self.citation,
            "licence": self.license,
            "hub_id": self.hub_id,
            "url": self.url,
            "source": self.source,
            "split": self.split,
        }


class LabeledText(NamedTuple):
    """A labeled text, or a labeled pair of texts.

    Attributes:
        item_id: The id of the item, unique in its split.
        text: The text, or the first of a pair.
        label: The name of the class.
        second_text: The second text of a pair; None for a single text.
    """

    item_id: str
    text: str
    label: str
    second_text: str | None = None


@dataclass(frozen=True)
class Split:
    """Labeled texts of one language, in order.

    Args:
        ids: One a row, unique in the split. Rows of different languages with one id are
            translations. The ids of a task whose texts are not parallel begin with the language, so
            that no two languages share one.
        texts: The n texts; for pairs of texts (NLI) the first of each.
        labels: The n class names.
        second_texts: The second text of each pair; None for single texts.
        language: The code of the language that the texts are in; None if it is that of their place
            in [`ClassificationData`]. Test sets translated into English have another.
        place: Where the texts come from, for messages.

    Raises:
        TaskError: An id comes twice.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    labels: Sequence[str]
    second_texts: Sequence[str] | None = None
    language: str | None = None
    place: str = "a split"

    def __post_init__(self) -> None:
        for item_id, count in Counter(self.ids).most_common(1):
            if count > 1:
                raise TaskError(f"{self.place}: expected distinct ids, found {item_id!r} twice")

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, items: Iterable[LabeledText], place: str, language: str | None = None) -> Split:
        """Return items, which are all single texts or all pairs, as a split.

        Args:
            items: The items in order.
            place: Where the texts come from, for messages.
            language: The language of the texts, if it is not that of their place.
        """
        ids = []
        texts = []
        labels = []
        second_texts = []
        for item in items:
            ids.append(item.item_id)
            texts.append(item.text)
            labels.append(item.label)
            if item.second_text is not None:
                second_texts.append(item.second_text)
        return cls(ids, texts, labels, second_texts or None, language, place)


@dataclass(frozen=True)
class ClassificationData:
    """Labeled texts of several languages.

    Args:
        splits: By language and name. The names are `train`, `dev` and `test`, and `train_10k` for
            MLDoc's larger train set.
        provenance: Where the data come from.
        head: The name of the head of the published protocol, a key of `tmde.eval.heads.HEADS`.
        monolingual: Whether the labels, such as words, mean nothing in another language, so that
            classifiers are tested in their own.
        six_folds: Whether the folds are those of Li (2021, section 3.3).
    """

    splits: Mapping[str, Mapping[str, Split]]
    provenance: Provenance
    head: str = "logistic_regression"
    monolingual: bool = False
    six_folds: bool = False

    @property
    def languages(self) -> list[str]:
        """The languages, in order."""
        return list(self.splits)

    def rows(self) -> dict[str, Any]:
        """Return the number of rows by language and split."""
        counts: dict[str, dict[str, int]] = {}
        for language, by_name in self.splits.items():
            counts[language] = {}
            for name, split in by_name.items():
                counts[language][name] = len(split)
        return counts

    def mapped_documents(self) -> list[tuple[str, Split]]:
        """Return the test documents for a map, with their language; none of pairs of texts.

        If some languages have mirrored documents (Li, 2021, figures 3.2-3.4), only these languages
        are mapped, and both kinds of documents.
        """
        has_mirrored = any("mirrored" in by_name for by_name in self.splits.values())
        documents = []
        for language, by_name in self.splits.items():
            if has_mirrored and "mirrored" not in by_name:
                continue
            for name in ("test", "mirrored"):
                split = by_name.get(name)
                if split is not None and not split.second_texts:
                    documents.append((split.language or language, split))
        return documents

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Yield everything that decides a result, for a fingerprint."""
        for language, by_name in self.splits.items():
            for name, split in by_name.items():
                yield [language, name]
                yield split.ids
                yield split.texts
                yield split.labels
                yield split.second_texts or []


class _AlignedTexts:
    """Data whose `texts` hold, by language, the same items in the same order."""

    texts: Mapping[str, Sequence]

    @property
    def languages(self) -> list[str]:
        """The languages, in order."""
        return list(self.texts)

    def rows(self) -> dict[str, int]:
        """Return the number of items by language."""
        counts = {}
        for language, items in self.texts.items():
            counts[language] = sum(item is not None for item in items)
        return counts


@dataclass(frozen=True)
class LawdrSettings:
    """How LAWDR (Gong et al., 2021) represents documents.

    Args:
        rank: How many directions are removed from the sentences of each language; 0 for none,
            `"auto"` for as many as hide the language.
        weighted: Whether sentences are weighted by inverse density; otherwise a document is the
            mean of its sentences.
    """

    rank: int | Literal["auto"]
    weighted: bool = True


@dataclass(frozen=True)
class RetrievalData(_AlignedTexts):
    """Aligned texts of several languages: row i of every language has the same content.

    Args:
        ids: The n unique ids of the rows.
        texts: By language, n texts; None where a language lacks the row.
        provenance: Where the data come from.
        queries: How many rows are queries, the others being candidates alone (XSR: 2,000 of
            200,000); None if all are.
        lawdr: How LAWDR represents the texts of an embedder; None if the system does.
    """

    ids: Sequence[str]
    texts: Mapping[str, Sequence[str | None]]
    provenance: Provenance
    queries: int | None = None
    lawdr: LawdrSettings | None = None

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Yield everything that decides a result, for a fingerprint."""
        yield self.ids
        yield [str(self.queries)]
        if self.lawdr is not None:
            yield [repr(self.lawdr)]
        for language, texts in self.texts.items():
            yield [language]
            yield texts


@dataclass(frozen=True)
class ContrastData(_AlignedTexts):
    """Minimal pairs: two sentences with like words and different meanings, in every language.

    Args:
        ids: The n unique ids of the items.
        texts: By language, n pairs of a sentence and its contrast.
        groups: The name of the kind of contrast of each item.
        provenance: Where the data come from.
        controls: Groups that are reported but left out of the means.
    """

    ids: Sequence[str]
    texts: Mapping[str, Sequence[tuple[str, str]]]
    groups: Sequence[str]
    provenance: Provenance
    controls: Sequence[str] = ()

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Yield everything that decides a result, for a fingerprint."""
        yield self.ids
        yield self.groups
        yield self.controls
        for language, items in self.texts.items():
            yield [language]
            yield from zip(*items, strict=True)


@dataclass(frozen=True)
class GeometryData(_AlignedTexts):
    """Aligned texts of several languages, whose vectors are looked at.

    Args:
        ids: The n unique ids of the rows.
        texts: By language, n texts; None where a language lacks the row.
        provenance: Where the data come from.
        max_rows: The most rows of a pair of languages; the first ones are taken.
    """

    ids: Sequence[str]
    texts: Mapping[str, Sequence[str | None]]
    provenance: Provenance
    max_rows: int

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Yield everything that decides a result, for a fingerprint."""
        yield self.ids
        yield [str(self.max_rows)]
        for language, texts in self.texts.items():
            yield [language]
            yield texts


@dataclass(frozen=True)
class Questions:
    """Questions of one language, and the paragraphs of that language.

    Args:
        ids: The n unique ids of the questions.
        texts: The n questions.
        paragraph_ids: The id of the paragraph that answers each question, a key of `paragraphs`.
        paragraphs: The text of each paragraph by its id. Paragraphs of different languages with one
            id are translations.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    paragraph_ids: Sequence[str]
    paragraphs: Mapping[str, str]


@dataclass(frozen=True)
class QuestionData:
    """Questions, and the paragraphs that answer them, in several languages.

    Args:
        questions: By language.
        provenance: Where the data come from.
    """

    questions: Mapping[str, Questions]
    provenance: Provenance

    @property
    def languages(self) -> list[str]:
        """The languages, in order."""
        return list(self.questions)

    def rows(self) -> dict[str, dict[str, int]]:
        """Return the number of questions and of paragraphs by language."""
        counts = {}
        for language, questions in self.questions.items():
            counts[language] = {
                "questions": len(questions.ids),
                "paragraphs": len(questions.paragraphs),
            }
        return counts

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Yield everything that decides a result, for a fingerprint."""
        for language, questions in self.questions.items():
            yield [language]
            yield questions.ids
            yield questions.texts
            yield questions.paragraph_ids
            yield list(questions.paragraphs)
            yield list(questions.paragraphs.values())


class ScoredPair(NamedTuple):
    """Two texts with a gold similarity.

    Attributes:
        pair_id: The id of the pair, unique among those of its languages and split.
        first: The first text.
        second: The second text.
        score: The gold similarity, on any scale.
    """

    pair_id: str
    first: str
    second: str
    score: float


@dataclass(frozen=True)
class SimilarityPairs:
    """Pairs of texts with a gold similarity, for one pair of languages.

    Args:
        ids: The n unique ids of the pairs.
        first: The n first texts.
        second: The n second texts.
        scores: The n gold similarities, on any scale.
    """

    ids: Sequence[str]
    first: Sequence[str]
    second: Sequence[str]
    scores: Sequence[float]

    @classmethod
    def of(cls, pairs: Iterable[ScoredPair]) -> SimilarityPairs:
        """Return pairs in the order in which they come."""
        ids = []
        first = []
        second = []
        scores = []
        for pair in pairs:
            ids.append(pair.pair_id)
            first.append(pair.first)
            second.append(pair.second)
            scores.append(pair.score)
        return cls(ids, first, second, scores)


@dataclass(frozen=True)
class SimilarityData:
    """Pairs of texts with gold similarities, by pair of languages.

    Args:
        pairs: By first and second language.
        provenance: Where the data come from.
        supervised: Pairs `train` and `dev` for a regression; empty if cosines are measured.
    """

    pairs: Mapping[tuple[str, str], SimilarityPairs]
    provenance: Provenance
    supervised: Mapping[str, SimilarityPairs] = field(default_factory=dict)

    @property
    def languages(self) -> list[str]:
        """The languages, in the order of the pairs."""
        return _unique_codes(self.pairs)

    def rows(self) -> dict[str, int]:
        """Return the number of pairs of texts by pair of languages."""
        return {"-".join(codes): len(pairs.ids) for codes, pairs in self.pairs.items()}

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Yield everything that decides a result, for a fingerprint."""
        for languages, pairs in self.pairs.items():
            yield languages
            yield from self._columns_of(pairs)
        for name, pairs in self.supervised.items():
            yield [name]
            yield from self._columns_of(pairs)

    def _columns_of(self, pairs: SimilarityPairs) -> Iterator[Sequence[str]]:
        yield pairs.ids
        yield pairs.first
        yield pairs.second
        yield [repr(float(score)) for score in pairs.scores]


@dataclass(frozen=True)
class DocumentCollection:
    """Documents of two languages, some of which are translations.

    Args:
        languages: The languages of the first and of the second side.
        documents: Texts by id, of both sides.
        pairs: Ids of a first and a second document that are known to be translations.
    """

    languages: tuple[str, str]
    documents: tuple[Mapping[str, str], Mapping[str, str]]
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class AlignmentData:
    """Collections of documents, such as websites; a document is aligned within its own.

    Args:
        collections: By name.
        provenance: Where the data come from.
        by_url: Whether documents are first paired by their URLs, which are their ids.
        lawdr: How LAWDR represents the documents of an embedder; None if the system does.
    """

    collections: Mapping[str, DocumentCollection]
    provenance: Provenance
    by_url: bool = False
    lawdr: LawdrSettings | None = None

    @property
    def languages(self) -> list[str]:
        """The languages, in the order of the collections."""
        return _unique_codes(collection.languages for collection in self.collections.values())

    def rows(self) -> dict[str, int]:
        """Return the number of documents by language."""
        counts: Counter[str] = Counter()
        for collection in self.collections.values():
            for language, documents in zip(collection.languages, collection.documents, strict=True):
                counts[language] += len(documents)
        return dict(counts)

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Yield everything that decides a result, for a fingerprint."""
        yield [str(self.by_url), str(self.lawdr)]
        for name, collection in self.collections.items():
            yield [name, *collection.languages]
            yield from zip(*collection.pairs, strict=True)
            for documents in collection.documents:
                yield list(documents)
                yield list(documents.values())


@dataclass(frozen=True)
class CaptionedImages:
    """The images of a split, and their captions.

    Args:
        image_ids: The ids of the m images, each once.
        feature_rows: The row of each image in the features of [`CaptionData`], (m,).
        captions: The n captions.
        image_numbers: The number of the image of each caption, from 0 to m - 1, (n,).
    """

    image_ids: Sequence[str]
    feature_rows: np.ndarray
    captions: Sequence[str]
    image_numbers: np.ndarray


@dataclass(frozen=True)
class CaptionData:
    """Captions of images, and a vector of features for each image.

    Args:
        splits: The images and captions of `train`, `dev` and `test`.
        features: A row for each image, (images, d); it may be mapped from a file.
        features_fingerprint: A hash of the features.
        language: The language of the captions.
        provenance: Where the data come from.
    """

    splits: Mapping[str, CaptionedImages]
    features: np.ndarray
    features_fingerprint: str
    language: str
    provenance: Provenance

    @property
    def languages(self) -> list[str]:
        """The language of the captions."""
        return [self.language]

    def rows(self) -> dict[str, dict[str, int]]:
        """Return the numbers of images and of captions of each split."""
        counts = {}
        for name, split in self.splits.items():
            counts[f"{name} images"] = len(split.image_ids)
            counts[f"{name} captions"] = len(split.captions)
        return {self.language: counts}

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Yield everything that decides a result, for a fingerprint."""
        yield [self.language, self.features_fingerprint]
        for name, split in self.splits.items():
            yield [name]
            yield split.image_ids
            yield [str(row) for row in split.feature_rows]
            yield split.captions
            yield [str(number) for number in split.image_numbers]


# The sentences of both texts in a pair, by their number from 0.
SentenceBead = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class TranslatedText:
    """The sentences of a text and of its translation, and which of them belong together.

    Args:
        languages: The languages of the first and of the second side.
        first: The sentences of the first side, in order.
        second: Those of the second.
        beads: The right pairs. A sentence that is in none of them has no translation.
    """

    languages: tuple[str, str]
    first: Sequence[str]
    second: Sequence[str]
    beads: Sequence[SentenceBead]


@dataclass(frozen=True)
class SentenceAlignmentData:
    """Texts with their translations, whose sentences are aligned.

    Args:
        texts: By name.
        provenance: Where the data come from.
    """

    texts: Mapping[str, TranslatedText]
    provenance: Provenance

    @property
    def languages(self) -> list[str]:
        """The languages, in the order of the texts."""
        return _unique_codes(text.languages for text in self.texts.values())

    def rows(self) -> dict[str, int]:
        """Return the number of sentences by language."""
        counts: Counter[str] = Counter()
        for text in self.texts.values():
            for language, sentences in zip(text.languages, (text.first, text.second), strict=True):
                counts[language] += len(sentences)
        return dict(counts)

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Yield everything that decides a result, for a fingerprint."""
        for name, text in self.texts.items():
            yield [name, *text.languages]
            yield text.first
            yield text.second
            yield [repr(bead) for bead in text.beads]


def _unique_codes(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return the languages of pairs, each once, in the order of their first occurrence."""
    codes: dict[str, None] = {}
    for pair in pairs:
        codes.update(dict.fromkeys(pair))
    return list(codes)


TaskData = (
    ClassificationData
    | RetrievalData
    | QuestionData
    | SimilarityData
    | ContrastData
    | GeometryData
    | AlignmentData
    | SentenceAlignmentData
    | CaptionData
)


class Task(abc.ABC):
    """A benchmark. A subclass in a file of this package, listed in `TASKS`, is all a new one needs.

    Attributes:
        name: The name on the command line.
        description: One line.
        provenance: Where the benchmark's own data come from.
        languages: The languages that it has by default (ISO 639-1 where there is a code); () for
            all of the source.
        default_source: A Hub id; None if the data must be given.
        local_names: Globs by which its files are found in a data folder.
        needs: What users must provide, for a task without a default source.
        train_languages: The languages whose labels it trains on by default; None for all.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    provenance: ClassVar[Provenance] = Provenance(
        "as given by the source", "as given by the source"
    )
    languages: tuple[str, ...] = ()
    default_source: str | None = None
    local_names: tuple[str, ...] = ()
    needs: str = ""
    train_languages: tuple[str, ...] | None = None

    @abc.abstractmethod
    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        *positional_options: Any,
        **options: Any,
    ) -> TaskData:
        """Load the data.

        A task names its options in its own signature. Type checkers allow this because the
        signature here accepts any.

        Args:
            source: A file, a folder or a Hub id; None for `default_source`.
            languages: Which languages; None for those of `self.languages` that the source has.
            streaming: Read the Hub without downloading whole files first.
            *positional_options: Options of the task, by position.
            **options: Options of the task, by name.

        Raises:
            TaskError: A split, a column or a language is missing, or the data are bad.
        """


def text_fingerprint(*columns: Iterable[str | None]) -> str:
    """Return the SHA-256 of texts in order, its first 16 hex digits.

    None and "" differ, and so do ["ab"] and ["a", "b"].

    Args:
        *columns: Columns of texts.
    """
    digest = hashlib.sha256()
    for column in columns:
        for text in column:
            if text is None:
                digest.update(b"-1:")
                continue
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(encoded))
            digest.update(encoded)
        digest.update(b"|")
    return digest.hexdigest()[:16]


def data_fingerprint(data: TaskData) -> str:
    """Return a fingerprint of everything that decides a result: ids, texts, labels, scores."""
    return text_fingerprint(*data.columns())
