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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.calibration import DEFAULT_SHARE, Calibration, check_share, mined_pair_evidence
from tmde.documents.mining import mine_bitext, plain_text
from tmde.documents.neighbors import find_neighbors
from tmde.embedding.document_embedder import DocumentEmbedder

NEIGHBORS = 10  # of a document that may be near-duplicates
MIN_SIMILARITY = 0.7
MIN_PROBABILITY = 0.9
_SHINGLE = 5  # characters
# Of a large group, not every document has the first one among its neighbors. So those that stand
# for its neighbors are compared again, until nothing changes, at most so often.
_ROUNDS = 10
# The language of a document in an unknown language, which is no translation of any.
UNKNOWN_LANGUAGE = ""


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


class Link(NamedTuple):
    """A text that repeats an earlier one.

    Attributes:
        earlier: The place of the earlier text.
        kind: How it is repeated.
        score: As that of a match.
    """

    earlier: int
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
                encoder for each language; "" for one that is not known.

        Raises:
            TmdeError: Translations are searched for without languages.
        """
        if self.calibration is not None and languages is None:
            raise TmdeError("languages: found none, expected one for each text, for translations")
        first_copies = _first_copies(texts)
        unique = [row for row, first in enumerate(first_copies) if row == first]
        if not unique:
            return []
        unique_texts = [texts[row] for row in unique]
        unique_languages = None if languages is None else [languages[row] for row in unique]
        vectors = np.asarray(self.embedder.encode(unique_texts, language=unique_languages))
        links = self._near_duplicates(unique_texts, vectors)
        if self.calibration is not None and unique_languages is not None:
            self._add_translations(links, unique_texts, unique_languages, vectors)
        return _grouped(unique, links, first_copies)

    def _near_duplicates(self, texts: Sequence[str], vectors: np.ndarray) -> list[Link | None]:
        """Return for each text the earlier one that it nearly repeats, which repeats none itself.

        Args:
            texts: Different texts, (n,).
            vectors: Their vectors, (n, d).
        """
        links: list[Link | None] = [None] * len(texts)
        neighbors = _mutual_neighbors(vectors)
        for _ in range(_ROUNDS):
            before = list(links)
            for row in range(len(texts)):
                links[row] = self._nearest_kept(row, neighbors[row], texts, links)
            if links == before:
                break
        return links

    def _nearest_kept(
        self, row: int, neighbors: Sequence[int], texts: Sequence[str], links: list[Link | None]
    ) -> Link | None:
        """Return the link of a text to the most similar earlier one that is kept; None without.

        Args:
            row: The text.
            neighbors: The texts that are near to it.
            texts: All texts.
            links: The links so far.
        """
        candidates = set()
        for neighbor in neighbors:
            link = links[neighbor]
            candidates.add(neighbor if link is None else link.earlier)
        shingles = _shingles(texts[row])
        best: Link | None = None
        for earlier in sorted(candidates):
            if earlier >= row or links[earlier] is not None:
                continue
            similarity = _similarity(shingles, _shingles(texts[earlier]))
            if similarity >= self.min_similarity and (best is None or similarity > best.score):
                best = Link(earlier, Kind.NEAR_DUPLICATE, similarity)
        return best

    def _add_translations(
        self,
        links: list[Link | None],
        texts: Sequence[str],
        languages: Sequence[str],
        vectors: np.ndarray,
    ) -> None:
        """Link texts that are kept to the earlier ones that they translate.

        Args:
            links: The links so far, which are added to.
            texts: Different texts, (n,).
            languages: The language of each.
            vectors: Their vectors, (n, d).
        """
        rows_of_language: dict[str, list[int]] = defaultdict(list)
        for row, language in enumerate(languages):
            if links[row] is None and language != UNKNOWN_LANGUAGE:
                rows_of_language[language].append(row)
        translations = []
        for first_language, second_language in itertools.combinations(sorted(rows_of_language), 2):
            first_rows = np.array(rows_of_language[first_language])
            second_rows = np.array(rows_of_language[second_language])
            translations += self._translations(first_rows, second_rows, texts, vectors)
        translated: set[int] = set()
        # The most probable come first. A text that is removed is no original of another.
        for probability, earlier, later in sorted(translations, reverse=True):
            if links[later] is None and links[earlier] is None and later not in translated:
                links[later] = Link(earlier, Kind.TRANSLATION, probability)
                translated.add(earlier)

    def _translations(
        self,
        first_rows: np.ndarray,
        second_rows: np.ndarray,
        texts: Sequence[str],
        vectors: np.ndarray,
    ) -> list[tuple[float, int, int]]:
        """Return the probability, the earlier and the later text of probable translations.

        Args:
            first_rows: The texts of the first language.
            second_rows: Those of the second.
            texts: All texts, (n,).
            vectors: Their vectors, (n, d).
        """
        assert self.calibration is not None
        mined = mine_bitext(
            vectors[first_rows],
            vectors[second_rows],
            k=self.calibration.neighbors,
            retrieval="intersection",
        ).renumbered(first_rows, second_rows)
        evidence = mined_pair_evidence(mined, texts, texts)
        probabilities = self.calibration.probabilities(evidence, self.share)
        translations = []
        for (first, second), probability in zip(mined.rows(), probabilities.tolist(), strict=True):
            if probability >= self.min_probability:
                translations.append((probability, min(first, second), max(first, second)))
        return translations


def _mutual_neighbors(vectors: np.ndarray) -> list[list[int]]:
    """Return for each row those that are near to it, or that it is near to."""
    # The nearest neighbor of a row is itself, or one with an equal vector.
    _, nearest = find_neighbors(vectors, vectors, NEIGHBORS + 1, "auto")
    neighbors: list[set[int]] = [set() for _ in vectors]
    for row, near_rows in enumerate(nearest.tolist()):
        for near_row in near_rows:
            if near_row != row:
                neighbors[row].add(near_row)
                neighbors[near_row].add(row)
    return [sorted(near_rows) for near_rows in neighbors]


def _first_copies(texts: Sequence[str]) -> list[int]:
    """Return for each text the number of the first that equals it; -1 for an empty text."""
    first_rows: dict[str, int] = {}
    copies = []
    for row, text in enumerate(texts):
        key = plain_text(text).casefold()
        copies.append(first_rows.setdefault(key, row) if key else -1)
    return copies


def _shingles(text: str) -> set[str]:
    """Return all sequences of five characters of a text, in lower case."""
    plain = plain_text(text).casefold()
    if len(plain) <= _SHINGLE:
        return {plain}
    return {plain[begin : begin + _SHINGLE] for begin in range(len(plain) - _SHINGLE + 1)}


def _similarity(first: set[str], second: set[str]) -> float:
    """Return the number of common items divided by that of all items (Jaccard)."""
    common = len(first & second)
    return common / (len(first) + len(second) - common)


def _grouped(
    unique: Sequence[int], links: Sequence[Link | None], first_copies: Sequence[int]
) -> list[Group]:
    """Return the groups of documents that repeat one that is kept.

    Args:
        unique: The numbers of the different texts.
        links: What each different text repeats, by its place among these.
        first_copies: For each document the first that equals it; -1 for an empty one.
    """
    groups: dict[int, Group] = {}
    link_of = dict(zip(unique, links, strict=True))
    for row, first in enumerate(first_copies):
        if first < 0:
            continue
        link = link_of[first]
        if link is None:
            group = groups.setdefault(first, Group(first))
            if row != first:
                group.duplicates.append(Match(row, Kind.COPY, 1.0))
        else:
            # A copy of a text that is removed repeats what that repeats, in the same way.
            original = unique[link.earlier]
            group = groups.setdefault(original, Group(original))
            group.duplicates.append(Match(row, link.kind, link.score))
    return [groups[original] for original in sorted(groups) if groups[original].duplicates]
