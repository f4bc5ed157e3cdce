"""What a task gives to the protocols: texts, labels or alignment, and where they come from."""

from __future__ import annotations

import abc
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tmde.data.checks import CorpusError

TaskError = CorpusError  # bad data of a task: the message names file or split, row, value found and value expected
Source = str | os.PathLike | None
Languages = Sequence[str] | None


@dataclass(frozen=True)
class Provenance:
    """Where a task's data come from: for the report and the model card.

    hub_id: Hub dataset, if it is one; url: page of the data; licence: of the data; citation: authors, title, year;
    source: what was loaded, a path or a Hub id (filled in by `load`); split: which split of it is tested on.
    """

    citation: str
    licence: str
    hub_id: str | None = None
    url: str | None = None
    source: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Split:
    """Labeled texts of one language, in order.

    Args:
        ids: One a row, unique in the split. Rows of different languages with one id are translations; ids of a task
            whose texts are not parallel begin with the language, so that no two languages share one.
        texts: n texts; for pairs of texts (NLI) the first of each.
        labels: n class names.
        second_texts: The second text of each pair, or None.
        language: Code of the language that the texts are in, where it is another than that of their place in
            [`ClassificationData`] (test sets translated into English).
        place: Where they come from, for messages.

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
        name, count = next(iter(Counter(self.ids).most_common(1)), ("", 0))
        if count > 1:
            raise TaskError(f"{self.place}: ids must differ, found {name!r} twice")

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class ClassificationData:
    """`splits[language][name]` with the names `train`, `dev`, `test` (and `train_10k` for MLDoc's larger one).

    `head` is the classifier of the published protocol. Labels of `monolingual` data, such as words, mean nothing in
    another language: classifiers are tested in their own. `six_folds`: the folds are those of thesis 3.3.
    """

    splits: Mapping[str, Mapping[str, Split]]
    provenance: Provenance
    head: str = "logistic_regression"
    monolingual: bool = False
    six_folds: bool = False

    @property
    def languages(self) -> list[str]:
        return list(self.splits)

    def rows(self) -> dict[str, Any]:
        """Number of rows by language and split."""
        return {
            code: {name: len(split) for name, split in by.items()}
            for code, by in self.splits.items()
        }

    def mapped_documents(self) -> list[tuple[str, Split]]:
        """Test documents for a map, with their language; none of pairs of texts. Where some languages have mirrored
        documents (thesis, figures 3.2-3.4), only these languages and both kinds."""
        chosen = {
            code: by_name for code, by_name in self.splits.items() if "mirrored" in by_name
        } or self.splits
        return [
            (by_name[name].language or code, by_name[name])
            for code, by_name in chosen.items()
            for name in ("test", "mirrored")
            if name in by_name and not by_name[name].second_texts
        ]

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Everything that decides a result, for a fingerprint."""
        for language, by_name in self.splits.items():
            for name, split in by_name.items():
                yield from (
                    [language, name],
                    split.ids,
                    split.texts,
                    split.labels,
                    split.second_texts or [],
                )


class _AlignedTexts:
    """Data whose `texts` hold, by language, the same items in the same order."""

    @property
    def languages(self) -> list[str]:
        return list(self.texts)

    def rows(self) -> dict[str, int]:
        """Number of items by language."""
        return {code: sum(item is not None for item in items) for code, items in self.texts.items()}


@dataclass(frozen=True)
class RetrievalData(_AlignedTexts):
    """n-way aligned texts: row i of every language is the same content, None where a language lacks it.

    Args:
        ids: n, unique.
        texts: By language, n texts or None.
        queries: How many rows are queries, the others being candidates alone (XSR: 2,000 of 200,000); None: all.
    """

    ids: Sequence[str]
    texts: Mapping[str, Sequence[str | None]]
    provenance: Provenance
    queries: int | None = None

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Everything that decides a result, for a fingerprint."""
        yield from (self.ids, [str(self.queries)])
        for language, texts in self.texts.items():
            yield from ([language], texts)


@dataclass(frozen=True)
class ContrastData(_AlignedTexts):
    """Minimal pairs: item i of every language is the same two sentences, with like words and different meanings.

    Args:
        ids: n, unique.
        texts: By language, n times (sentence, contrast).
        groups: n names of the kind of contrast of each item.
        controls: Groups that are reported but left out of the means.
    """

    ids: Sequence[str]
    texts: Mapping[str, Sequence[tuple[str, str]]]
    groups: Sequence[str]
    provenance: Provenance
    controls: Sequence[str] = ()

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Everything that decides a result, for a fingerprint."""
        yield from (self.ids, self.groups, self.controls)
        for language, items in self.texts.items():
            yield from ([language], *zip(*items, strict=True))


@dataclass(frozen=True)
class SimilarityPairs:
    """Pairs of texts with a gold similarity (any scale), for one pair of languages."""

    ids: Sequence[str]
    first: Sequence[str]
    second: Sequence[str]
    scores: Sequence[float]


@dataclass(frozen=True)
class SimilarityData:
    """`pairs[(first language, second language)]`; `supervised` has pairs `train` and `dev` for a regression."""

    pairs: Mapping[tuple[str, str], SimilarityPairs]
    provenance: Provenance
    supervised: Mapping[str, SimilarityPairs] = field(default_factory=dict)

    @property
    def languages(self) -> list[str]:
        return list(dict.fromkeys(code for pair in self.pairs for code in pair))

    def rows(self) -> dict[str, int]:
        """Number of pairs of texts by pair of languages."""
        return {"-".join(codes): len(pairs.ids) for codes, pairs in self.pairs.items()}

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Everything that decides a result, for a fingerprint."""
        for codes, pairs in [
            *self.pairs.items(),
            *(([name], pairs) for name, pairs in self.supervised.items()),
        ]:
            scores = [repr(float(score)) for score in pairs.scores]
            yield from (codes, pairs.ids, pairs.first, pairs.second, scores)


@dataclass(frozen=True)
class DocumentCollection:
    """Documents of two languages, some of which are translations.

    Args:
        languages: Of the first and of the second side.
        documents: Texts by id, of both sides.
        pairs: Ids of a first and a second document that are known to be translations.
    """

    languages: tuple[str, str]
    documents: tuple[Mapping[str, str], Mapping[str, str]]
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class AlignmentData:
    """`collections[name]`, such as websites; a document is aligned within its own.

    `by_url`: pair documents by their URLs first, which are their ids. `lawdr_rank`: represent documents by LAWDR
    (paper 003), which removes that many directions from the sentences of each language.
    """

    collections: Mapping[str, DocumentCollection]
    provenance: Provenance
    by_url: bool = False
    lawdr_rank: int | None = None

    @property
    def languages(self) -> list[str]:
        return list(
            dict.fromkeys(code for each in self.collections.values() for code in each.languages)
        )

    def rows(self) -> dict[str, int]:
        """Number of documents by language."""
        counts: Counter[str] = Counter()
        for each in self.collections.values():
            counts.update(dict(zip(each.languages, map(len, each.documents), strict=True)))
        return dict(counts)

    def columns(self) -> Iterator[Sequence[str | None]]:
        """Everything that decides a result, for a fingerprint."""
        yield [str(self.by_url), str(self.lawdr_rank)]
        for name, each in self.collections.items():
            yield from ([name, *each.languages], *zip(*each.pairs, strict=True))
            for side in each.documents:
                yield from (list(side), list(side.values()))


TaskData = ClassificationData | RetrievalData | SimilarityData | ContrastData | AlignmentData


class Task(abc.ABC):
    """A benchmark. A subclass in a file of this package, listed in `TASKS`, is all that a new one needs.

    Class attributes: `name`, as on the command line; `description`, one line; `provenance` of the benchmark's own
    data; `languages`, those it has by default (ISO 639-1 where there is a code), () for all of the source;
    `default_source`, the Hub id or None; `local_names`, globs by which its files are found in a data folder; `head`,
    the default head of a classification task; `train_languages`, those whose labels it trains on by default (None:
    all).
    """

    name: ClassVar[str]
    description: ClassVar[str]
    provenance: ClassVar[Provenance] = Provenance(
        "as given by the source", "as given by the source"
    )
    languages: tuple[str, ...] = ()
    default_source: str | None = None
    local_names: tuple[str, ...] = ()
    head: str = "logistic_regression"
    train_languages: tuple[str, ...] | None = None

    @abc.abstractmethod
    def load(
        self, source: Source = None, languages: Languages = None, streaming: bool = False, **options
    ) -> TaskData:
        """Loads the data.

        Args:
            source: A file, a folder or a Hub id; None for `default_source`.
            languages: Which languages; None for those that the source has (of `languages`).
            streaming: Read the Hub without downloading whole files first.

        Raises:
            ValueError: Missing split, column or language, and other bad data.
        """


def text_fingerprint(*columns: Iterable[str | None]) -> str:
    """SHA-256 (first 16 hex digits) over texts in order; None and "" differ, and so do ["ab"] and ["a", "b"]."""
    digest = hashlib.sha256()
    for column in columns:
        for text in column:
            data = b"" if text is None else text.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % (-1 if text is None else len(data)))
            digest.update(data)
        digest.update(b"|")
    return digest.hexdigest()[:16]


def data_fingerprint(data: TaskData) -> str:
    """Fingerprint of everything that decides a result: ids, texts, labels, scores."""
    return text_fingerprint(*data.columns())
