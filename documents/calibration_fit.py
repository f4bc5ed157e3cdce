"""Fit a calibration to pairs of translations.

The probability of a pair is needed where pairs are mined: where each text comes with its nearest
neighbor, right or wrong. So mining is what the calibration is fitted to. Of the pairs of two
languages, a part keeps both texts and the others lose one of them, so that some texts have a
translation on the other side and some have none. The pairs that are mined from these texts are
right or wrong, and a logistic regression tells them apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from modeling_tmde import TmdeError
from tmde.documents.calibration import EVIDENCE, Calibration, mined_pair_evidence, probe_cosines
from tmde.documents.mining import mine_bitext, plain_text
from tmde.embedding.document_embedder import DocumentEmbedder

FEWEST_PAIRS = 200  # of two languages: fewer texts have no neighbors that are near
MOST_PAIRS = 5000  # of two languages
NEIGHBORS = 4
FIT_SHARE = 0.5
_FEWEST_MINED = 2  # pairs: if a single one loses a text, the other list is empty
_DRAWS = 3  # Each draw leaves other texts without a translation.
# The inverse strength by which the weights of the standardized evidence are shrunk, which matters
# for few pairs only.
_INVERSE_REGULARIZATION = 10.0

Translation = tuple[str, str]
LanguagePair = tuple[str, str]


def language_pairs(
    rows: Sequence[Mapping[str, str | None]], most_pairs: int = MOST_PAIRS
) -> dict[LanguagePair, list[Translation]]:
    """Return the pairs of texts of every two languages that have enough of them.

    A pair whose texts are equal, or one of whose texts was in a pair before, is left out.

    Args:
        rows: The texts by language.
        most_pairs: Take only this many of two languages, spread over the rows.
    """
    pairs: dict[LanguagePair, list[Translation]] = {}
    languages = sorted({language for row in rows for language in row})
    for first_language, second_language in itertools.combinations(languages, 2):
        unique = list(_unique_pairs(rows, first_language, second_language))
        if len(unique) < FEWEST_PAIRS:
            continue
        chosen = np.linspace(0, len(unique) - 1, min(len(unique), most_pairs)).astype(int)
        pairs[first_language, second_language] = [unique[position] for position in chosen]
    return pairs


def _unique_pairs(
    rows: Sequence[Mapping[str, str | None]], first_language: str, second_language: str
) -> Iterator[Translation]:
    """Yield the pairs of two languages whose texts are new and different."""
    seen_first: set[str] = set()
    seen_second: set[str] = set()
    for row in rows:
        first = plain_text(row.get(first_language) or "")
        second = plain_text(row.get(second_language) or "")
        if not first or not second or first == second:
            continue
        if first in seen_first or second in seen_second:
            continue
        seen_first.add(first)
        seen_second.add(second)
        yield first, second


@dataclass(frozen=True)
class MinedEvidence:
    """Pairs that were mined, and whether they are right.

    Attributes:
        evidence: (p, 5), by [`~tmde.documents.calibration.pair_evidence`].
        is_right: (p,) bool.
    """

    evidence: np.ndarray
    is_right: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[MinedEvidence]) -> MinedEvidence:
        """Return the pairs of several collections."""
        return cls(
            np.concatenate([part.evidence for part in parts]),
            np.concatenate([part.is_right for part in parts]),
        )


@dataclass(frozen=True)
class PairVectors:
    """The n pairs of two languages with their vectors.

    Attributes:
        languages: The two languages.
        pairs: The texts, (n,).
        first: The vectors of the first texts, (n, d).
        second: Those of the second.
    """

    languages: LanguagePair
    pairs: Sequence[Translation]
    first: np.ndarray
    second: np.ndarray

    def chosen(self, rows: np.ndarray) -> PairVectors:
        """Return some of the pairs.

        Args:
            rows: Their positions, or whether each pair is chosen, (n,) bool.
        """
        positions = np.arange(len(self.pairs))[rows]
        pairs = [self.pairs[position] for position in positions]
        return PairVectors(self.languages, pairs, self.first[positions], self.second[positions])

    def whole_count(self, share: float) -> int:
        """Return how many pairs keep both texts, so that a share of texts has a translation.

        Of every `share` pairs that are whole, (1 - share) lose the first text, and as many the
        second.
        """
        return round(len(self.pairs) * share / (2 - share))

    def mined(self, share: float, generator: np.random.Generator) -> MinedEvidence:
        """Mine two lists of which only a share of the texts has a translation in the other.

        Args:
            share: The share of the texts of each list whose translation the other one has.
            generator: Draws the pairs that lose a text, and which one.
        """
        order = generator.permutation(len(self.pairs))
        whole, broken = np.split(order, [self.whole_count(share)])
        without_second, without_first = np.array_split(broken, 2)
        first_rows = generator.permutation(np.concatenate([whole, without_second]))
        second_rows = generator.permutation(np.concatenate([whole, without_first]))
        mined = mine_bitext(self.first[first_rows], self.second[second_rows], k=NEIGHBORS)
        mined = mined.renumbered(first_rows, second_rows)
        first_texts = [first for first, _ in self.pairs]
        second_texts = [second for _, second in self.pairs]
        evidence = mined_pair_evidence(mined, first_texts, second_texts)
        return MinedEvidence(evidence, mined.first == mined.second)


def embed_pairs(
    pairs: Mapping[LanguagePair, Sequence[Translation]], embedder: DocumentEmbedder
) -> list[PairVectors]:
    """Embed the pairs of every two languages, each different text once."""
    texts_of_languages: dict[str, dict[str, None]] = {}
    for languages, text_pairs in pairs.items():
        for side, language in enumerate(languages):
            texts = dict.fromkeys(text_pair[side] for text_pair in text_pairs)
            texts_of_languages.setdefault(language, {}).update(texts)
    vectors: dict[str, np.ndarray] = {}
    row_of_text: dict[str, dict[str, int]] = {}
    for language, texts in texts_of_languages.items():
        vectors[language] = np.asarray(embedder.encode(list(texts), language=language))
        row_of_text[language] = {text: row for row, text in enumerate(texts)}
    collections = []
    for languages, text_pairs in pairs.items():
        sides = []
        for side, language in enumerate(languages):
            rows = [row_of_text[language][text_pair[side]] for text_pair in text_pairs]
            sides.append(vectors[language][rows])
        collections.append(PairVectors(languages, text_pairs, sides[0], sides[1]))
    return collections


def split_by_row(
    vectors: Sequence[PairVectors],
    rows: Sequence[Mapping[str, str | None]],
    is_kept_back: np.ndarray,
) -> tuple[list[PairVectors], list[PairVectors]]:
    """Return the pairs to fit to, and those to measure with, which have no text in common.

    A row in three languages gives three pairs, and a sentence may stand in several rows. So a text
    belongs to the part of the first row that it stands in, and a pair to that of both its texts. A
    pair whose texts belong to different parts is left out, and so are two languages that have only
    one pair in a part.

    Args:
        vectors: The pairs of every two languages, of these rows.
        rows: The texts of each row by language, (n,).
        is_kept_back: Whether the pairs of each row are kept back to measure, (n,) bool.
    """
    text_is_kept_back: dict[tuple[str, str], bool] = {}  # by language and text
    for row, row_is_kept_back in zip(rows, is_kept_back.tolist(), strict=True):
        for language, text in row.items():
            text_is_kept_back.setdefault((language, plain_text(text or "")), row_is_kept_back)
    known: list[PairVectors] = []
    kept_back: list[PairVectors] = []
    for collection in vectors:
        sides = []
        for side, language in enumerate(collection.languages):
            sides.append([text_is_kept_back[language, pair[side]] for pair in collection.pairs])
        first, second = np.array(sides)  # (pairs,) bool each
        for part, is_chosen in ((known, ~first & ~second), (kept_back, first & second)):
            if is_chosen.sum() >= _FEWEST_MINED:
                part.append(collection.chosen(is_chosen))
    return known, kept_back


def mined_evidence(
    vectors: Sequence[PairVectors], share: float, seed: int, draws: int = _DRAWS
) -> MinedEvidence:
    """Mine the pairs of every two languages, several times.

    Args:
        vectors: The pairs of each two languages with their vectors.
        share: As in [`PairVectors.mined`].
        seed: The seed of the draws.
        draws: How often each collection is mined.
    """
    generator = np.random.default_rng(seed)
    parts = []
    for collection in vectors:
        for _ in range(draws):
            parts.append(collection.mined(share, generator))
    return MinedEvidence.joined(parts)


def fit_calibration(
    vectors: Sequence[PairVectors], embedder: DocumentEmbedder, seed: int = 0
) -> Calibration:
    """Fit a calibration to pairs of translations that the model was not trained on.

    Args:
        vectors: The pairs of every two languages, by [`embed_pairs`].
        embedder: The model of the vectors.
        seed: Decides which pairs lose a text.

    Raises:
        TmdeError: There are no pairs, or all pairs that are mined are right, or none.
    """
    if not vectors:
        raise TmdeError(f"Found no two languages with {FEWEST_PAIRS} pairs of different texts")
    mined = mined_evidence(vectors, FIT_SHARE, seed)
    if mined.is_right.all() or not mined.is_right.any():
        kind = "only right" if mined.is_right.all() else "only wrong"
        raise TmdeError(f"Found {kind} mined pairs, expected correct and wrong ones")
    scaler = StandardScaler()
    regression = LogisticRegression(C=_INVERSE_REGULARIZATION, max_iter=1000)
    make_pipeline(scaler, regression).fit(mined.evidence, mined.is_right)
    weights = regression.coef_[0] / scaler.scale_
    languages = {language for collection in vectors for language in collection.languages}
    return Calibration(
        weights=dict(zip(EVIDENCE, weights.tolist(), strict=True)),
        intercept=float(regression.intercept_[0] - weights @ scaler.mean_),
        neighbors=NEIGHBORS,
        prompt=embedder.prompt,
        pooling=embedder.pooling,
        probe_cosines=probe_cosines(embedder),
        pairs=sum(len(collection.pairs) for collection in vectors),
        languages=sorted(languages),
    )
