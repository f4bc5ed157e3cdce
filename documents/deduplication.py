"""Find documents that say the same: copies, near-duplicates, and translations.

```python
finder = DuplicateFinder()
for group in finder.groups(["It rains.", "it  rains", "The sun shines."]):
    print(group.kept, [match.document for match in group.duplicates])
```
"""

from __future__ import annotations

import enum
import itertools
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.distinct_pairs import check_min_distinctness, distinct_pairs
from tmde.documents.mining import ChosenTexts, first_occurrences
from tmde.documents.signature_bands import (
    SignatureBands,
    Text,
    comparable_text,
    parts_of,
    plain_words,
    resemblance,
    shingles,
)
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.mapped_vectors import encode_to_file
from tmde.embedding.progress import progress_bar

MIN_SIMILARITY = 0.7
MIN_WORDS = 50  # of a text that may differ from another one in words
# Higher than where documents are aligned, because a wrong pair removes a document.
MIN_DISTINCTNESS = 0.4
# The language of a document in an unknown language, which is no translation of any.
UNKNOWN_LANGUAGE = ""
_DOCUMENTS_WITH_BAR = 20_000  # documents from which on a progress bar is shown

Item = TypeVar("Item")


class Kind(str, enum.Enum):
    """How a document repeats another. The values are what the command writes."""

    COPY = "copy"
    NEAR_DUPLICATE = "near-duplicate"
    TRANSLATION = "translation"


@dataclass(frozen=True, slots=True)
class Match:
    """A document that repeats the one that is kept.

    Attributes:
        document: Its number in the collection, from 0.
        kind: How it repeats it.
        score: 1 for a copy, the similarity of a near-duplicate, the distinctness of a translation.
    """

    document: int
    kind: Kind
    score: float


@dataclass(slots=True)
class Group:
    """Documents that say the same.

    Attributes:
        kept: The number of the first of them in the collection.
        duplicates: The others.
    """

    kept: int
    duplicates: list[Match] = field(default_factory=list)


class Links:
    """What each of n different texts repeats: at first nothing.

    Attributes:
        originals: The place of the text that each one repeats; its own place if it repeats none,
            (n,) int64.
        scores: The similarity or distinctness of those that repeat another, (n,) float64.
        are_translations: Whether they translate it, (n,) bool.
    """

    def __init__(self, count: int) -> None:
        self.originals = np.arange(count)
        self.scores = np.ones(count)
        self.are_translations = np.zeros(count, bool)

    def are_kept(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each of some texts repeats none, (rows,) bool."""
        are_kept: np.ndarray = self.originals[rows] == rows
        return are_kept

    def set(self, row: int, original: int, score: float, is_translation: bool = False) -> None:
        """Note that a text repeats another; itself if it repeats none."""
        self.originals[row] = original
        self.scores[row] = score
        self.are_translations[row] = is_translation

    def match(self, row: int, place: int) -> Match:
        """Return the match of a document.

        Args:
            row: Its number in the collection.
            place: The place of its text among the different ones.
        """
        if self.originals[place] == place:
            return Match(row, Kind.COPY, 1.0)
        # A copy of a text that is removed repeats what that repeats, in the same way.
        kind = Kind.TRANSLATION if self.are_translations[place] else Kind.NEAR_DUPLICATE
        return Match(row, kind, float(self.scores[place]))


class TranslatedPair(NamedTuple):
    """Two texts that are translations of each other.

    Attributes:
        distinctness: How much nearer they are than the next best.
        first: The place of one of them among the different texts.
        second: That of the other one.
    """

    distinctness: float
    first: int
    second: int


class TranslationGroups:
    """Groups of texts that are translations of each other, at most one of a language.

    Args:
        rows_of_language: The texts of each language.

    Attributes:
        highest: For each text in a group, the distinctness of the first pair that has it.
    """

    def __init__(self, rows_of_language: Mapping[str, np.ndarray]) -> None:
        self.highest: dict[int, float] = {}
        self._languages: dict[int, set[str]] = {}
        for language, rows in rows_of_language.items():
            for row in rows.tolist():
                self._languages[row] = {language}
        self._groups: dict[int, list[int]] = {}  # Its texts share one list.

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the groups."""
        for row, group in self._groups.items():
            if group[0] == row:
                yield group

    def join(self, pair: TranslatedPair) -> None:
        """Join the groups of two texts, unless both groups have a text of one language."""
        first_group = self._groups.get(pair.first, [pair.first])
        second_group = self._groups.get(pair.second, [pair.second])
        first_languages = self._languages[first_group[0]]
        second_languages = self._languages[second_group[0]]
        if first_languages & second_languages:
            return
        for row in (pair.first, pair.second):
            self.highest.setdefault(row, pair.distinctness)
        first_languages |= second_languages
        first_group += second_group
        for row in first_group:
            self._groups[row] = first_group
            self._languages[row] = first_languages


class DuplicateFinder:
    """Finds documents that repeat an earlier one.

    - Copies have equal texts except for case and white space.
    - Near-duplicates have a similarity of `min_similarity` or more: the number of sequences of five
      characters that both have, divided by that of all in either (Broder 1997, "On the resemblance
      and containment of documents"). All pairs of this similarity are found but for one in a
      thousand at most, and very few of those that are more similar; see
      [`~tmde.documents.signature_bands`].
      Texts of fewer than `min_words` words must also have the same words: "shown in green" and
      "shown in red" are similar, and say different things.
    - Translations are nearest to each other among the documents of both languages, by a
      distinctness of `min_distinctness` or more; see [`~tmde.documents.distinct_pairs`]. They need
      a model. Of three languages or more, documents that are joined by such pairs are one group,
      most distinct pairs first. A group has one document of a language, because documents that
      repeat each other in one language were found before.

    Two rows of a translation memory, tuples of texts, repeat each other only if all their texts do:
    their similarity is that of the texts that differ most.

    Every near-duplicate repeats the document that is kept, so no chain of small changes makes a
    group.

    Signatures of 640 bytes a document, and vectors if translations are searched for, are in
    temporary files that are mapped into memory. Beside these and the texts, a document takes some
    300 bytes.

    Args:
        min_similarity: The least similarity of near-duplicates, above 0 and at most 1.
        min_words: The words of a text from which on it may have other words than what it repeats; 0
            compares all texts by their similarity alone.
        embedder: The model of the vectors by which translations are found; None finds none.
        min_distinctness: The least distinctness of translations, from 0 to 1.
        folder: The folder of the temporary files; None for that of the system.

    Raises:
        TmdeError: A number is out of range.
    """

    def __init__(
        self,
        min_similarity: float = MIN_SIMILARITY,
        *,
        min_words: int = MIN_WORDS,
        embedder: DocumentEmbedder | None = None,
        min_distinctness: float = MIN_DISTINCTNESS,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if not 0 < min_similarity <= 1:
            raise TmdeError(
                f"min_similarity: found {min_similarity}, expected a number above 0, at most 1"
            )
        check_min_distinctness(min_distinctness)
        self.min_similarity = min_similarity
        self.min_words = min_words
        self.embedder = embedder
        self.min_distinctness = min_distinctness
        self.folder = folder

    def groups(self, texts: Sequence[Text], languages: Sequence[str] | None = None) -> list[Group]:
        """Return the groups of two or more documents, in the order of those that are kept.

        An empty text is in no group.

        Args:
            texts: The documents, (n,). They are read several times, one after the other. A tuple of
                texts is a row of a translation memory.
            languages: The language of each, (n,), for translations; "" for one that is not known.

        Raises:
            TmdeError: Translations are searched for without languages, or the other way round.
        """
        if (self.embedder is None) != (languages is None):
            raise TmdeError(
                "languages: expected one per text with an embedder, which finds "
                "translations, and none without"
            )
        first_copies, unique = first_occurrences(
            _with_bar(texts, "Looking for copies"), comparable_text
        )
        if not len(unique):
            return []
        unique_texts = ChosenTexts(texts, unique)
        links = Links(len(unique))
        with tempfile.TemporaryDirectory(prefix=".tmde-", dir=self.folder) as name:
            folder = Path(name)
            self._add_near_duplicates(links, unique_texts, folder)
            if languages is not None:
                unique_languages = ChosenTexts(languages, unique)
                self._add_translations(links, unique_texts, unique_languages, folder)
        return _grouped(unique, links, first_copies)

    # ---- Near-duplicates

    def _add_near_duplicates(self, links: Links, texts: Sequence[Text], folder: Path) -> None:
        """Link texts to the earlier ones that they nearly repeat, which repeat none themselves.

        Args:
            links: The links, which are added to.
            texts: Different texts, (n,).
            folder: The folder of temporary files.
        """
        bands = SignatureBands(_with_bar(texts, "Reading"), len(texts), self.min_similarity, folder)
        for row, buckets in bands.shared():
            candidates = bands.similar_kept_rows(row, buckets)
            original, similarity = self._most_similar(row, candidates, texts)
            if original == row:
                bands.keep(row, buckets)
            else:
                links.set(row, original, similarity)

    def _most_similar(
        self, row: int, candidates: Sequence[int], texts: Sequence[Text]
    ) -> tuple[int, float]:
        """Return the most similar text, and the similarity; the text itself if none is similar.

        Args:
            row: The text.
            candidates: The texts that may be similar. Of equally similar ones, the first is chosen.
            texts: All texts.
        """
        best = row
        if not candidates:
            return best, 1.0
        highest = 0.0
        for candidate in candidates:
            similarity = self._similarity(texts[row], texts[candidate])
            if similarity >= self.min_similarity and similarity > highest:
                best = candidate
                highest = similarity
        return (row, 1.0) if best == row else (best, highest)

    def _similarity(self, first: Text, second: Text) -> float:
        """Return the similarity of two documents, or of two rows that of the most different texts.

        It is 0 for short texts of different words.
        """
        similarities = []
        for first_part, second_part in zip(parts_of(first), parts_of(second), strict=True):
            first_words = plain_words(first_part)
            second_words = plain_words(second_part)
            are_short = min(len(first_words), len(second_words)) < self.min_words
            if are_short and first_words != second_words:
                return 0.0
            similarities.append(resemblance(shingles(first_part), shingles(second_part)))
        return min(similarities)

    # ---- Translations

    def _add_translations(
        self,
        links: Links,
        texts: Sequence[Text],
        languages: Sequence[str],
        folder: Path,
    ) -> None:
        """Link texts that are kept to the earliest one of their group of translations.

        Args:
            links: The links so far, which are added to.
            texts: Different texts, (n,).
            languages: The language of each.
            folder: The folder of temporary files.
        """
        rows_of_language = _rows_of_languages(languages, links)
        vectors_of_language = self._vectors(rows_of_language, texts, folder)
        groups = TranslationGroups(rows_of_language)
        for pair in self._translations(rows_of_language, vectors_of_language):
            groups.join(pair)
        for rows in groups:
            original = min(rows)
            for row in rows:
                if row != original:
                    links.set(row, original, groups.highest[row], is_translation=True)

    def _vectors(
        self, rows_of_language: Mapping[str, np.ndarray], texts: Sequence[Text], folder: Path
    ) -> dict[str, np.ndarray]:
        """Return the vectors of the texts of each language, in files of a folder."""
        assert self.embedder is not None
        vectors_of_language = {}
        for number, (language, rows) in enumerate(rows_of_language.items()):
            path = folder / f"language-{number}.npy"
            # Rows of a memory, which are tuples, are not searched for translations.
            texts_of_language = cast(Sequence[str], ChosenTexts(texts, rows))
            encoded = encode_to_file(
                self.embedder, texts_of_language, len(rows), path, language=language
            )
            vectors_of_language[language] = np.asarray(encoded.vectors)
        return vectors_of_language

    def _translations(
        self,
        rows_of_language: Mapping[str, np.ndarray],
        vectors_of_language: Mapping[str, np.ndarray],
    ) -> list[TranslatedPair]:
        """Return the pairs of texts that are distinct enough, most distinct first.

        Args:
            rows_of_language: The texts of each language, (n,).
            vectors_of_language: Their vectors, (n, d).
        """
        translations = []
        for first_language, second_language in itertools.combinations(sorted(rows_of_language), 2):
            pairs = distinct_pairs(
                vectors_of_language[first_language], vectors_of_language[second_language]
            )
            first_rows = rows_of_language[first_language][pairs.first].tolist()
            second_rows = rows_of_language[second_language][pairs.second].tolist()
            for first_row, second_row, distinctness in zip(
                first_rows, second_rows, pairs.distinctness.tolist(), strict=True
            ):
                if distinctness >= self.min_distinctness:
                    translations.append(TranslatedPair(distinctness, first_row, second_row))
        return sorted(translations, reverse=True)


def _with_bar(items: Collection[Item], desc: str) -> Collection[Item]:
    """Return items with a progress bar, if there is one for each of many documents."""
    is_short = len(items) < _DOCUMENTS_WITH_BAR
    bar: Collection[Item] = progress_bar(items, desc=desc, unit=" documents", disable=is_short)
    return bar


def _rows_of_languages(languages: Sequence[str], links: Links) -> dict[str, np.ndarray]:
    """Return the texts of each known language that are kept."""
    numbers: dict[str, int] = {}
    language_numbers = np.empty(len(languages), np.int32)
    for row, language in enumerate(languages):
        language_numbers[row] = numbers.setdefault(language, len(numbers))
    language_numbers[~links.are_kept(np.arange(len(languages)))] = -1
    rows_of_language = {}
    for language, number in numbers.items():
        rows = np.flatnonzero(language_numbers == number)
        if language != UNKNOWN_LANGUAGE and len(rows):
            rows_of_language[language] = rows
    return rows_of_language


def _grouped(unique: np.ndarray, links: Links, first_copies: np.ndarray) -> list[Group]:
    """Return the groups of documents that repeat one that is kept.

    Args:
        unique: The numbers of the different texts.
        links: What each different text repeats, by its place among these.
        first_copies: For each document the first that equals it.
    """
    filled = np.flatnonzero(np.isin(first_copies, unique))  # without empty texts
    places = np.searchsorted(unique, first_copies[filled])
    originals = unique[links.originals[places]]
    are_duplicates = originals != filled
    groups: dict[int, Group] = {}
    for row, place, original in zip(
        filled[are_duplicates].tolist(),
        places[are_duplicates].tolist(),
        originals[are_duplicates].tolist(),
        strict=True,
    ):
        group = groups.setdefault(original, Group(original))
        group.duplicates.append(links.match(row, place))
    return [groups[original] for original in sorted(groups)]
