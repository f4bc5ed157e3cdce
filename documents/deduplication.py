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
import os
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import scipy.sparse

from modeling_tmde import TmdeError
from tmde.documents.calibration import DEFAULT_SHARE, Calibration, check_share, mined_pair_evidence
from tmde.documents.mining import ChosenTexts, first_occurrences, mine_bitext
from tmde.documents.neighbors import find_neighbors
from tmde.documents.shingles import ShingleSketches, comparable_text, resemblance, shingles
from tmde.documents.unit_rows import slices, unit_vectors
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.progress import progress_bar

NEIGHBORS = 10  # of a document that may be near-duplicates
MIN_SIMILARITY = 0.7
MIN_PROBABILITY = 0.9
# Of a large group, not every document has the first one among its neighbors. So those that stand
# for its neighbors are compared again, until nothing changes, at most so often.
_ROUNDS = 10
# The language of a document in an unknown language, which is no translation of any.
UNKNOWN_LANGUAGE = ""
_CHUNK = 8192  # documents that are embedded, and pairs of translations that are judged, at once
_COMPARED_ROWS = 2048  # documents that are compared with their neighbors at once
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

    - Copies have equal texts but for case and white space.
    - Near-duplicates have a similarity of `min_similarity` or more: the number of sequences of five
      characters that both have, divided by that of all in either (Broder 1997, "On the resemblance
      and containment of documents"). The documents that are compared are the nearest ones by
      vectors.
    - Translations are those that are nearest to each other among the documents of both languages,
      with a probability of `min_probability` or more.

    Every duplicate repeats the document that is kept, so no chain of small changes makes a group.

    Vectors of d numbers, and what tells which texts can be similar, are in temporary files that are
    mapped into memory: 2 d + 256 bytes a document. Beside these, the texts and the index of the
    search, a document takes some 300 bytes, and more while translations are searched for.

    Args:
        embedder: The model of the vectors.
        min_similarity: The least similarity of near-duplicates, above 0 and at most 1.
        calibration: That of the model; None finds no translations.
        min_probability: The least probability of translations.
        share: The share of documents that you expect to have a translation in the collection.
        folder: The folder of the temporary files; None for that of the system.

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
        folder: str | os.PathLike[str] | None = None,
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
        self.folder = folder

    def groups(self, texts: Sequence[str], languages: Sequence[str] | None = None) -> list[Group]:
        """Return the groups of two or more documents, in the order of those that are kept.

        An empty text is in no group.

        Args:
            texts: The documents, (n,). They are read several times, one after the other.
            languages: The language of each, (n,), for translations and for a model that has an
                encoder for each language; "" for one that is not known.

        Raises:
            TmdeError: Translations are searched for without languages.
        """
        if self.calibration is not None and languages is None:
            raise TmdeError("languages: found none, expected one for each text, for translations")
        first_copies, unique = first_occurrences(
            _with_bar(texts, "Looking for copies"), comparable_text
        )
        if not len(unique):
            return []
        unique_texts = ChosenTexts(texts, unique)
        unique_languages = None
        if languages is not None:
            unique_languages = ChosenTexts(languages, unique)
        links = Links(len(unique))
        with tempfile.TemporaryDirectory(prefix=".tmde-", dir=self.folder) as name:
            folder = Path(name)
            vectors = self._embed(unique_texts, unique_languages, folder)
            self._add_near_duplicates(links, unique_texts, vectors, folder)
            if self.calibration is not None and unique_languages is not None:
                self._add_translations(links, unique_texts, unique_languages, vectors, folder)
        return _grouped(unique, links, first_copies)

    def _embed(self, texts: ChosenTexts, languages: ChosenTexts | None, folder: Path) -> np.ndarray:
        """Return the unit vectors of texts, (n, d) float16, which are mapped from a file."""
        count = len(texts)
        shape = (count, self.embedder.dimension)
        vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float16, shape)
        blocks = self.embedder.encode_iter(
            texts,
            chunk_size=_CHUNK,
            # By default it shows on a terminal only, and not in a log.
            show_progress_bar=count > _CHUNK,
            total=count,
            language=languages,
        )
        start = 0
        for block in blocks:
            end = start + len(block)
            vectors[start:end] = unit_vectors(np.asarray(block))
            start = end
        return np.asarray(vectors)

    # ---- Near-duplicates

    def _add_near_duplicates(
        self, links: Links, texts: ChosenTexts, vectors: np.ndarray, folder: Path
    ) -> None:
        """Link texts to the earlier ones that they nearly repeat, which repeat none themselves.

        Args:
            links: The links, which are added to.
            texts: Different texts, (n,).
            vectors: Their vectors, (n, d).
            folder: The folder of temporary files.
        """
        neighbors = _mutual_neighbors(vectors)
        sketches = ShingleSketches(_with_bar(texts, "Reading"), len(texts), folder / "sketches.npy")
        # A text needs a look if an earlier neighbor may be similar, or a neighbor repeats another
        # text, which may be similar, too.
        needs_look = _may_repeat_neighbor(neighbors, sketches, self.min_similarity)
        for _ in range(_ROUNDS):
            has_changed = False
            for row in _with_bar(range(len(texts)), "Comparing"):
                if not needs_look[row]:
                    continue
                near_rows = neighbors.indices[neighbors.indptr[row] : neighbors.indptr[row + 1]]
                original, similarity = self._nearest_kept(row, near_rows, texts, links, sketches)
                if original != row:
                    needs_look[near_rows] = True
                if (original, similarity) != (links.originals[row], links.scores[row]):
                    links.set(row, original, similarity)
                    has_changed = True
            if not has_changed:
                break

    def _nearest_kept(
        self,
        row: int,
        near_rows: np.ndarray,
        texts: ChosenTexts,
        links: Links,
        sketches: ShingleSketches,
    ) -> tuple[int, float]:
        """Return the most similar earlier text that is kept, and the similarity.

        If no text is similar, it is the text itself.

        Args:
            row: The text.
            near_rows: The texts that are near to it, (neighbors,).
            texts: All texts.
            links: The links so far.
            sketches: Tells which texts may be similar.
        """
        candidates = links.originals[near_rows[near_rows != row]]
        candidates = candidates[(candidates < row) & links.are_kept(candidates)]
        rows = np.full(len(candidates), row)
        candidates = candidates[sketches.may_resemble(candidates, rows, self.min_similarity)]
        if not len(candidates):
            return row, 1.0
        own_shingles = shingles(texts[row])
        best = row
        highest = 0.0
        for candidate in np.unique(candidates).tolist():
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
        vectors: np.ndarray,
        folder: Path,
    ) -> None:
        """Link texts that are kept to the earlier ones that they translate.

        Args:
            links: The links so far, which are added to.
            texts: Different texts, (n,).
            languages: The language of each.
            vectors: Their vectors, (n, d).
            folder: The folder of temporary files.
        """
        rows_of_language = _rows_of_languages(languages, links)
        vectors_of_language = {}
        for number, (language, rows) in enumerate(rows_of_language.items()):
            path = folder / f"language-{number}.npy"
            vectors_of_language[language] = _stored_rows(vectors, rows, path)
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


def _mutual_neighbors(vectors: np.ndarray) -> scipy.sparse.csr_matrix:
    """Return for each row those that are near to it, or that it is near to, and mostly itself.

    Returns:
        (n, n), whose indices are these rows, rising.
    """
    # The nearest neighbor of a row is itself, or one with an equal vector.
    nearest = find_neighbors(vectors, vectors, NEIGHBORS + 1, "auto")[1]
    count, neighbor_count = nearest.shape
    begins = np.arange(0, count * neighbor_count + 1, neighbor_count)
    are_near = np.ones(count * neighbor_count, np.int8)
    graph = scipy.sparse.csr_matrix((are_near, nearest.ravel(), begins), shape=(count, count))
    graph = graph.maximum(graph.T.tocsr())
    graph.sort_indices()
    return graph


def _may_repeat_neighbor(
    neighbors: scipy.sparse.csr_matrix, sketches: ShingleSketches, min_similarity: float
) -> np.ndarray:
    """Return whether each text may be similar to an earlier one that is near, (n,) bool."""
    count = neighbors.shape[0]
    may_repeat = np.zeros(count, bool)
    for rows in slices(count, _COMPARED_ROWS):
        begins = neighbors.indptr[rows.start : rows.stop + 1]
        near_rows = neighbors.indices[begins[0] : begins[-1]]
        own_rows = np.repeat(np.arange(rows.start, rows.stop), np.diff(begins))
        is_earlier = near_rows < own_rows
        near_rows = near_rows[is_earlier]
        own_rows = own_rows[is_earlier]
        is_similar = sketches.may_resemble(near_rows, own_rows, min_similarity)
        may_repeat[own_rows[is_similar]] = True
    return may_repeat


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


def _stored_rows(vectors: np.ndarray, rows: np.ndarray, path: Path) -> np.ndarray:
    """Return some rows of vectors, (rows, d), which are mapped from a new file."""
    shape = (len(rows), vectors.shape[1])
    stored = np.lib.format.open_memmap(path, "w+", vectors.dtype, shape)
    for places in slices(len(rows), _CHUNK):
        stored[places] = vectors[rows[places]]
    return stored


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
