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
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.calibration import (
    DEFAULT_SHARE,
    Calibration,
    check_min_probability,
    check_share,
    mined_pair_evidence,
)
from tmde.documents.mining import ChosenTexts, first_occurrences, mine_bitext
from tmde.documents.signature_bands import SignatureBands, comparable_text, resemblance, shingles
from tmde.documents.unit_rows import slices
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.mapped_vectors import encode_to_file
from tmde.embedding.progress import progress_bar

MIN_SIMILARITY = 0.7
MIN_PROBABILITY = 0.9
# The language of a document in an unknown language, which is no translation of any.
UNKNOWN_LANGUAGE = ""
_CHUNK = 8192  # pairs of translations that are judged at once
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
        score: 1 for a copy, the similarity of a near-duplicate, the probability of a translation.
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
        scores: The similarity or probability of those that repeat another, (n,) float64.
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


class DuplicateFinder:
    """Finds documents that repeat an earlier one.

    - Copies have equal texts except for case and white space.
    - Near-duplicates have a similarity of `min_similarity` or more: the number of sequences of five
      characters that both have, divided by that of all in either (Broder 1997, "On the resemblance
      and containment of documents"). All pairs of this similarity are found but for one in a
      thousand at most, and very few of those that are more similar; see
      [`~tmde.documents.signature_bands`].
    - Translations are those that are nearest to each other among the documents of both languages,
      with a probability of `min_probability` or more. They need a model.

    Every duplicate repeats the document that is kept, so no chain of small changes makes a group.
    Documents that were kept are all kept by another run.

    Signatures of 640 bytes a document, and vectors if translations are searched for, are in
    temporary files that are mapped into memory. Beside these and the texts, a document takes some
    300 bytes.

    Args:
        min_similarity: The least similarity of near-duplicates, above 0 and at most 1.
        embedder: The model of the vectors by which translations are found; None finds none.
        calibration: That of the model.
        min_probability: The least probability of translations.
        share: The share of documents that you expect to have a translation in the collection.
        folder: The folder of the temporary files; None for that of the system.

    Raises:
        TmdeError: A number is out of range, the calibration is that of other vectors, or there is a
            model without a calibration or the other way round.
    """

    def __init__(
        self,
        min_similarity: float = MIN_SIMILARITY,
        *,
        embedder: DocumentEmbedder | None = None,
        calibration: Calibration | None = None,
        min_probability: float = MIN_PROBABILITY,
        share: float = DEFAULT_SHARE,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if not 0 < min_similarity <= 1:
            raise TmdeError(
                f"min_similarity: found {min_similarity}, expected a number above 0, at most 1"
            )
        check_min_probability(min_probability)
        check_share(share)
        if (embedder is None) != (calibration is None):
            raise TmdeError(
                "embedder, calibration: found one of them, expected both for translations, or none"
            )
        if embedder is not None and calibration is not None:
            calibration.check_embedder(embedder)
        self.min_similarity = min_similarity
        self.embedder = embedder
        self.calibration = calibration
        self.min_probability = min_probability
        self.share = share
        self.folder = folder

    def groups(self, texts: Sequence[str], languages: Sequence[str] | None = None) -> list[Group]:
        """Return the groups of two or more documents, in the order of those that are kept.

        An empty text is in no group.

        Args:
            texts: The documents, (n,). They are read several times, one after the other.
            languages: The language of each, (n,), for translations; "" for one that is not known.

        Raises:
            TmdeError: Translations are searched for without languages, or the other way round.
        """
        if (self.calibration is None) != (languages is None):
            raise TmdeError(
                "languages: expected one for each text if translations are searched for, by an "
                "embedder and a calibration, and none otherwise"
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

    def _add_near_duplicates(self, links: Links, texts: ChosenTexts, folder: Path) -> None:
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
        self, row: int, candidates: Sequence[int], texts: ChosenTexts
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
        own_shingles = shingles(texts[row])
        highest = 0.0
        for candidate in candidates:
            similarity = resemblance(own_shingles, shingles(texts[candidate]))
            if similarity >= self.min_similarity and similarity > highest:
                best = candidate
                highest = similarity
        return (row, 1.0) if best == row else (best, highest)

    # ---- Translations

    def _add_translations(
        self,
        links: Links,
        texts: ChosenTexts,
        languages: ChosenTexts,
        folder: Path,
    ) -> None:
        """Link texts that are kept to the earlier ones that they translate.

        Args:
            links: The links so far, which are added to.
            texts: Different texts, (n,).
            languages: The language of each.
            folder: The folder of temporary files.
        """
        assert self.embedder is not None
        rows_of_language = _rows_of_languages(languages, links)
        vectors_of_language = {}
        for number, (language, rows) in enumerate(rows_of_language.items()):
            path = folder / f"language-{number}.npy"
            texts_of_language = ChosenTexts(texts, rows)
            encoded = encode_to_file(
                self.embedder, texts_of_language, len(rows), path, language=language
            )
            vectors_of_language[language] = np.asarray(encoded.vectors)
        parts = []
        for first_language, second_language in itertools.combinations(sorted(rows_of_language), 2):
            parts.append(
                self._translations(
                    (rows_of_language[first_language], rows_of_language[second_language]),
                    (vectors_of_language[first_language], vectors_of_language[second_language]),
                    texts,
                )
            )
        if not parts:
            return
        probabilities, earlier_rows, later_rows = (
            np.concatenate(columns) for columns in zip(*parts, strict=True)
        )
        # The most probable come first. A text that is removed is no original of another.
        order = np.lexsort((later_rows, earlier_rows, probabilities))[::-1]
        are_originals = np.zeros(len(texts), bool)
        are_kept = links.are_kept(np.arange(len(texts)))
        for position in order:
            earlier = earlier_rows[position]
            later = later_rows[position]
            if are_kept[earlier] and are_kept[later] and not are_originals[later]:
                links.set(later, earlier, probabilities[position], is_translation=True)
                are_kept[later] = False
                are_originals[earlier] = True

    def _translations(
        self,
        rows: tuple[np.ndarray, np.ndarray],
        vectors: tuple[np.ndarray, np.ndarray],
        texts: ChosenTexts,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the probability, the earlier and the later text of probable translations.

        Args:
            rows: The texts of the first and of the second language, (n,) and (m,).
            vectors: Their vectors, (n, d) and (m, d).
            texts: All texts.

        Returns:
            (translations,) each.
        """
        assert self.calibration is not None
        mined = mine_bitext(
            vectors[0], vectors[1], k=self.calibration.neighbors, retrieval="intersection"
        ).renumbered(rows[0], rows[1])
        probabilities = np.empty(len(mined))
        for chosen in slices(len(mined), _CHUNK):
            evidence = mined_pair_evidence(mined[chosen], texts, texts)
            probabilities[chosen] = self.calibration.probabilities(evidence, self.share)
        are_probable = probabilities >= self.min_probability
        first_rows = mined.first[are_probable]
        second_rows = mined.second[are_probable]
        earlier_rows = np.minimum(first_rows, second_rows)
        later_rows = np.maximum(first_rows, second_rows)
        return probabilities[are_probable], earlier_rows, later_rows


def _with_bar(items: Collection[Item], desc: str) -> Collection[Item]:
    """Return items with a progress bar, if there is one for each of many documents."""
    is_short = len(items) < _DOCUMENTS_WITH_BAR
    bar: Collection[Item] = progress_bar(items, desc=desc, unit=" documents", disable=is_short)
    return bar


def _rows_of_languages(languages: ChosenTexts, links: Links) -> dict[str, np.ndarray]:
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
