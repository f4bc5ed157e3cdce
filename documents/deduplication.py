"""Find documents that say the same: copies, near-duplicates, and translations.

```python
finder = DuplicateFinder(embedder)
for group in finder.groups(["It rains.", "it  rains", "The sun shines."]):
    print(group.kept, [match.document for match in group.duplicates])
```
"""

from __future__ import annotations

import enum
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.calibration import DEFAULT_SHARE, Calibration, check_share, pair_evidence
from tmde.documents.mining import mine_bitext, plain_text
from tmde.documents.neighbors import find_neighbors
from tmde.embedding.document_embedder import DocumentEmbedder

NEIGHBORS = 10  # of a document that may be near-duplicates
MIN_SIMILARITY = 0.7
MIN_PROBABILITY = 0.9
_SHINGLE = 5  # characters
# Neighbors are compared from the nearest on, until so many one after the other are no duplicates.
_PATIENCE = 3


class Kind(str, enum.Enum):
    """How a document repeats another. The values are what the command writes."""

    COPY = "copy"
    NEAR_DUPLICATE = "near-duplicate"
    TRANSLATION = "translation"


@dataclass(frozen=True)
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


@dataclass
class Group:
    """Documents that say the same.

    Attributes:
        kept: The number of the first of them in the collection.
        duplicates: The others.
    """

    kept: int
    duplicates: list[Match] = field(default_factory=list)


class DuplicateFinder:
    """Finds documents that repeat an earlier one.

    - Copies have equal texts but for case and white space.
    - Near-duplicates have a similarity of `min_similarity` or more: the number of sequences of five
      characters that both have, divided by that of all in either (Broder 1997, "On the resemblance
      and containment of documents"). The documents that are compared are the nearest ones by
      vectors.
    - Translations are those that are nearest to each other among the documents of both languages,
      with a probability of `min_probability` or more.

    Every duplicate repeats the document that is kept, so no chain of small changes makes a group.

    Args:
        embedder: The model of the vectors.
        min_similarity: The least similarity of near-duplicates, above 0 and at most 1.
        calibration: That of the model; None finds no translations.
        min_probability: The least probability of translations.
        share: The share of documents that you expect to have a translation in the collection.

    Raises:
        TmdeError: A number is out of range, or the calibration is that of other vectors.
    """

    def __init__(
        self,
        embedder: DocumentEmbedder,
        min_similarity: float = MIN_SIMILARITY,
        calibration: Calibration | None = None,
        min_probability: float = MIN_PROBABILITY,
        share: float = DEFAULT_SHARE,
    ) -> None:
        if not 0 < min_similarity <= 1:
            raise TmdeError(
                f"min_similarity: found {min_similarity}, expected a number above 0, at most 1"
            )
        if not 0 <= min_probability <= 1:
            raise TmdeError(f"min_probability: found {min_probability}, expected 0 to 1")
        check_share(share)
        if calibration is not None:
            calibration.check_embedder(embedder)
        self.embedder = embedder
        self.min_similarity = min_similarity
        self.calibration = calibration
        self.min_probability = min_probability
        self.share = share

    def groups(self, texts: Sequence[str], languages: Sequence[str] | None = None) -> list[Group]:
        """Return the groups of two or more documents, in the order of those that are kept.

        An empty text is in no group.

        Args:
            texts: The documents, (n,).
            languages: The language of each, (n,), for translations and for a model that has an
                encoder for each language.

        Raises:
            TmdeError: Translations are searched for without languages.
        """
        if self.calibration is not None and languages is None:
            raise TmdeError("languages: found none, expected one for each text, for translations")
        first_copies = _first_copies(texts)
        unique = [row for row, first in enumerate(first_copies) if row == first]
        matches: dict[int, list[Match]] = defaultdict(list)  # earlier documents, by the later one
        if unique:
            unique_texts = [texts[row] for row in unique]
            unique_languages = None
            if languages is not None:
                unique_languages = [languages[row] for row in unique]
            vectors = np.asarray(self.embedder.encode(unique_texts, language=unique_languages))
            for later, earlier, similarity in self._near_duplicates(unique_texts, vectors):
                match = Match(unique[earlier], Kind.NEAR_DUPLICATE, similarity)
                matches[unique[later]].append(match)
            if self.calibration is not None and unique_languages is not None:
                pairs = self._translations(unique_texts, unique_languages, vectors)
                for later, earlier, probability in pairs:
                    match = Match(unique[earlier], Kind.TRANSLATION, probability)
                    matches[unique[later]].append(match)
        return _grouped(unique, matches, first_copies)

    def _near_duplicates(
        self, texts: Sequence[str], vectors: np.ndarray
    ) -> Iterator[tuple[int, int, float]]:
        """Yield the later, the earlier, and the similarity of two near-duplicates.

        Args:
            texts: Different texts, (n,).
            vectors: Their vectors, (n, d).
        """
        if len(texts) < 2:
            return
        # The nearest neighbor of a document is itself, or one with an equal vector.
        _, neighbors = find_neighbors(vectors, vectors, NEIGHBORS + 1, "auto")
        compared: set[tuple[int, int]] = set()
        for row, nearest in enumerate(neighbors.tolist()):
            shingles = _shingles(texts[row])
            misses = 0
            for neighbor in nearest:
                if neighbor == row:
                    continue
                if misses == _PATIENCE:
                    break
                similarity = _similarity(shingles, _shingles(texts[neighbor]))
                if similarity < self.min_similarity:
                    misses += 1
                    continue
                misses = 0
                pair = max(row, neighbor), min(row, neighbor)
                if pair not in compared:
                    compared.add(pair)
                    yield *pair, similarity

    def _translations(
        self, texts: Sequence[str], languages: Sequence[str], vectors: np.ndarray
    ) -> Iterator[tuple[int, int, float]]:
        """Yield the later, the earlier, and the probability of two translations.

        Args:
            texts: Different texts, (n,).
            languages: The language of each.
            vectors: Their vectors, (n, d).
        """
        assert self.calibration is not None
        rows_of_language: dict[str, list[int]] = defaultdict(list)
        for row, language in enumerate(languages):
            rows_of_language[language].append(row)
        for first_language, second_language in itertools.combinations(sorted(rows_of_language), 2):
            first_rows = np.array(rows_of_language[first_language])
            second_rows = np.array(rows_of_language[second_language])
            mined = mine_bitext(
                vectors[first_rows],
                vectors[second_rows],
                k=self.calibration.neighbors,
                retrieval="intersection",
            ).renumbered(first_rows, second_rows)
            evidence = pair_evidence(
                [texts[row] for row in mined.first],
                [texts[row] for row in mined.second],
                mined.cosines,
                mined.neighbor_means,
            )
            probabilities = self.calibration.probabilities(evidence, self.share)
            for (first, second), probability in zip(
                mined.rows(), probabilities.tolist(), strict=True
            ):
                if probability >= self.min_probability:
                    yield max(first, second), min(first, second), probability


def _first_copies(texts: Sequence[str]) -> list[int]:
    """Return for each text the number of the first that equals it; -1 for an empty text."""
    first_rows: dict[str, int] = {}
    copies = []
    for row, text in enumerate(texts):
        key = plain_text(text).casefold()
        copies.append(first_rows.setdefault(key, row) if key else -1)
    return copies


def _shingles(text: str) -> set[str]:
    """Return all sequences of five characters of a text, without case and white space."""
    plain = plain_text(text).casefold()
    if len(plain) <= _SHINGLE:
        return {plain}
    return {plain[begin : begin + _SHINGLE] for begin in range(len(plain) - _SHINGLE + 1)}


def _similarity(first: set[str], second: set[str]) -> float:
    """Return the number of common items divided by that of all items (Jaccard)."""
    common = len(first & second)
    return common / (len(first) + len(second) - common)


def _grouped(
    unique: Sequence[int], matches: dict[int, list[Match]], first_copies: Sequence[int]
) -> list[Group]:
    """Return the groups of documents that repeat one that is kept.

    Args:
        unique: The documents that are no copies.
        matches: The earlier documents that each repeats.
        first_copies: For each document the first that equals it; -1 for an empty one.
    """
    groups: dict[int, Group] = {}
    kept_of: dict[int, int] = {}  # the document that is kept in place of each unique one
    for row in unique:
        # A document that was removed stands for no other one.
        found = [match for match in matches[row] if kept_of[match.document] == match.document]
        if not found:
            kept_of[row] = row
            groups[row] = Group(row)
            continue
        best = max(found, key=lambda match: match.score)
        kept_of[row] = best.document
        groups[best.document].duplicates.append(Match(row, best.kind, best.score))
    for row, first in enumerate(first_copies):
        if first >= 0 and row != first:
            groups[kept_of[first]].duplicates.append(Match(row, Kind.COPY, 1.0))
    for group in groups.values():
        group.duplicates.sort(key=lambda match: match.document)
    return [group for group in groups.values() if group.duplicates]
