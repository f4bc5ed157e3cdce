"""Word vectors and dictionaries, and the files that hold them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tmde.data.checks import CorpusError, Unquoted, bad_value, is_code
from tmde.data.io import replacing
from tmde.data.lines import read_lines
from tmde.documents.unit_rows import unit_vectors

IDENTICAL = "identical"  # stands for a dictionary of the words that both languages have


@dataclass(frozen=True)
class WordVectors:
    """The words of a language and their vectors.

    Attributes:
        words: n different words, the most frequent first.
        vectors: (n, d) float32.
    """

    words: list[str]
    vectors: np.ndarray

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, rows: slice) -> WordVectors:
        return WordVectors(self.words[rows], self.vectors[rows])

    def centered(self) -> WordVectors:
        """Return the vectors at length 1, minus the mean of these."""
        units = unit_vectors(self.vectors)
        return WordVectors(self.words, units - units.mean(axis=0))

    def mapped(self, mapping: np.ndarray) -> WordVectors:
        """Return `W x` of every vector x, for a mapping W (d, d)."""
        return WordVectors(self.words, self.vectors @ mapping.T.astype(np.float32))


def read_word_vectors(path: str | os.PathLike, max_words: int | None = 200_000) -> WordVectors:
    """Read fastText's text format.

    The first line has the numbers of words and of dimensions, and every other a word and its
    vector. Words are lowercased, as in MUSE; of those that then are the same, the first is kept.

    Args:
        path: The file.
        max_words: Read the first ones, which are the most frequent. None for all.

    Raises:
        CorpusError: A line that is not as its header says, or no word.
        OSError: There is no such file.
    """
    place = os.fspath(path)
    lines = read_lines(place)
    count, dimension = _read_header(lines, place)
    vectors: dict[str, np.ndarray] = {}
    lines_read = 0
    for number, line in lines:
        word, vector = _read_word(line, dimension, place, number)
        vectors.setdefault(word.lower(), vector)
        lines_read += 1
        if len(vectors) == max_words:
            break
    if not vectors:
        advice = "Fetch the file again."
        raise bad_value(place, None, None, Unquoted("no word"), "one a line", advice)
    is_whole = len(vectors) != max_words
    if is_whole and lines_read != count:
        description = Unquoted(f"{lines_read:,} lines after the first")
        expected = f"the {count:,} of its header"
        raise bad_value(place, None, None, description, expected, "Fetch the file again.")
    return WordVectors(list(vectors), np.stack(list(vectors.values())))


def _read_header(lines: Iterator[tuple[int, str]], place: str) -> tuple[int, int]:
    """Return the numbers of words and of dimensions."""
    _, header = next(lines, (1, ""))
    try:
        count, dimension = map(int, header.split())
    except ValueError:
        expected = "the numbers of words and of dimensions"
        advice = "Pass a .vec file in fastText's text format."
        raise bad_value(place, 1, None, header, expected, advice) from None
    return count, dimension


def _read_word(line: str, dimension: int, place: str, number: int) -> tuple[str, np.ndarray]:
    """Return the word of a line and its vector, (dimension,)."""
    word, *values = line.rstrip().rsplit(" ", dimension)
    try:
        vector = np.array(values, dtype=np.float32)
    except ValueError:
        raise _bad_line(line, dimension, place, number) from None
    if len(vector) != dimension or not np.isfinite(vector).all():
        raise _bad_line(line, dimension, place, number)
    return word, vector


def _bad_line(line: str, dimension: int, place: str, number: int) -> CorpusError:
    expected = f"a word and {dimension} finite numbers, with a space between"
    return bad_value(place, number, None, line, expected, "Correct or delete the line.")


def write_word_vectors(path: str | os.PathLike, words: WordVectors) -> None:
    """Write fastText's text format."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(words)} {words.vectors.shape[1]}\n")
        for word, vector in zip(words.words, words.vectors, strict=True):
            numbers = " ".join(f"{value:.5f}" for value in vector)
            file.write(f"{word} {numbers}\n")


def read_dictionary(
    path: str | os.PathLike, source: WordVectors, target: WordVectors
) -> np.ndarray:
    """Return the pairs of a dictionary whose words both have vectors, as row numbers (p, 2).

    Args:
        path: UTF-8, a word and its translation a line, with a space or tab between, as MUSE's
            dictionaries; or `identical`, for the words that both languages have, such as names and
            numbers.
        source: The words of the first language.
        target: Those of the second.

    Raises:
        CorpusError: A line that is not two words, or no pair whose words both have vectors.
        OSError: There is no such file.
    """
    place = os.fspath(path)
    if place == IDENTICAL:
        word_pairs = [(word, word) for word in source.words]
    else:
        word_pairs = _read_word_pairs(place)
    rows = []
    for word, translation in word_pairs:
        if word in source.rows and translation in target.rows:
            rows.append((source.rows[word], target.rows[translation]))
    if not rows:
        description = Unquoted(f"{len(word_pairs):,} pairs, none of words that both have vectors")
        advice = "Check the languages and their order."
        raise bad_value(place, None, None, description, "at least one", advice)
    return np.array(rows)


def _read_word_pairs(path: str) -> list[tuple[str, str]]:
    word_pairs = []
    for number, line in read_lines(path):
        words = line.lower().split()
        if not words:
            continue
        if len(words) != 2:
            expected = "a word and its translation"
            raise bad_value(path, number, None, line, expected, "Correct or delete the line.")
        word_pairs.append((words[0], words[1]))
    return word_pairs


@dataclass(frozen=True)
class ScoredWordPairs:
    """Pairs of words whose similarity people have judged.

    Attributes:
        rows: Row numbers (p, 2) of the words in two [`WordVectors`].
        scores: The judged similarities, (p,) float64.
        left_out: The number of pairs of the files of which a word has no vector.
    """

    rows: np.ndarray
    scores: np.ndarray
    left_out: int


def read_similarities(
    pairs_path: str | os.PathLike,
    scores_path: str | os.PathLike,
    source: WordVectors,
    target: WordVectors,
) -> ScoredWordPairs:
    """Read the two files of a language pair of SemEval-2017 Task 2 (word similarity).

    Words are lowercased, as those of [`read_word_vectors`]. Pairs without two vectors are left out,
    as in MUSE; most of them hold a phrase.

    Args:
        pairs_path: UTF-8, two words or phrases a line with a tab between, such as
            `de-en.test.data.txt`.
        scores_path: The similarity of each of these pairs, one a line, such as
            `de-en.test.gold.txt`.
        source: The words of the first language.
        target: Those of the second.

    Raises:
        CorpusError: A line that is not two words or not a number, files of different lengths, fewer
            than two pairs whose words both have vectors, or one score for all of these.
        OSError: There is no such file.
    """
    place = os.fspath(pairs_path)
    word_pairs = _read_tabbed_pairs(place)
    all_scores = _read_scores(os.fspath(scores_path))
    if len(all_scores) != len(word_pairs):
        description = Unquoted(f"{len(all_scores):,} scores")
        expected = f"{len(word_pairs):,}, one for each pair of {place}"
        advice = "Pass the data file and the gold file of the same languages."
        raise bad_value(os.fspath(scores_path), None, None, description, expected, advice)
    rows = []
    scores = []
    for (word, other_word), score in zip(word_pairs, all_scores, strict=True):
        if word in source.rows and other_word in target.rows:
            rows.append((source.rows[word], target.rows[other_word]))
            scores.append(score)
    if len(set(scores)) < 2:
        description = Unquoted(
            f"{len(word_pairs):,} pairs, {len(rows):,} of words that both have vectors"
        )
        expected = "at least two of these, with different scores"
        advice = "Check the languages and their order."
        raise bad_value(place, None, None, description, expected, advice)
    return ScoredWordPairs(np.array(rows), np.array(scores), len(word_pairs) - len(rows))


def _read_tabbed_pairs(path: str) -> list[tuple[str, str]]:
    word_pairs = []
    for number, line in read_lines(path):
        words = [word.strip() for word in line.lower().split("\t")]
        if len(words) != 2 or not all(words):
            expected = "two words with a tab between"
            raise bad_value(path, number, None, line, expected, "Correct or delete the line.")
        word_pairs.append((words[0], words[1]))
    return word_pairs


def _read_scores(path: str) -> list[float]:
    scores = []
    for number, line in read_lines(path):
        try:
            score = float(line)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise bad_value(path, number, None, line, "a number", "Correct the line.")
        scores.append(score)
    return scores


def check_codes(*codes: str) -> None:
    """Raise [`CorpusError`] unless the codes are those of different languages.

    They name files and what these hold.
    """
    are_different = len(set(codes)) == len(codes)
    if not are_different or not all(map(is_code, codes)):
        expected = "different codes such as de and pt-BR"
        raise bad_value("languages", None, None, list(codes), expected, "Correct the codes.")
