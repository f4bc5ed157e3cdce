"""Bring files of word vectors of two languages into one space, and make them a bag of words."""

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modeling_tmde import TmdeError
from tmde.data import load_parallel
from tmde.data.io import write_atomically
from tmde.documents import word_vectors
from tmde.documents.word_mapping import Fit, Start

RESULTS_FILE = "results.json"

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class WordAlignmentReport:
    """How well the words and sentences of two languages retrieve their translations.

    Attributes:
        output: The folder of the bag.
        before: Precision at 1, 5 and 10 before the alignment, by measurement, such as `words,
            CSLS`; empty if nothing was measured.
        after: The same, after the alignment.
        similarity: Pearson's correlation of cosines with word-similarity ratings, `before` and
            `after`, with the numbers of `pairs` and `left_out` pairs; None if not measured.
    """

    output: Path
    before: dict[str, dict[str, float]]
    after: dict[str, dict[str, float]]
    similarity: dict[str, float] | None

    def as_dict(self) -> dict[str, Any]:
        """Return the contents of `results.json`."""
        results: dict[str, Any] = {"before": self.before, "after": self.after}
        if self.similarity is not None:
            results["similarity"] = self.similarity
        return results


def align_word_files(
    source: PathLike,
    target: PathLike,
    output: PathLike,
    language_a: str,
    language_b: str,
    *,
    dictionary: PathLike | None = None,
    test: PathLike | None = None,
    similarity: tuple[PathLike, PathLike] | None = None,
    sentences: str | None = None,
    also: Mapping[str, PathLike] | None = None,
    fit: Fit = "rotation",
    refinements: int = 5,
    start: Start | None = None,
    epochs: int | None = None,
    restarts: int | None = None,
    seed: int = 42,
    max_words: int = 200_000,
) -> WordAlignmentReport:
    """Align the word vectors of two languages and store them as a bag of words.

    The methods are MUSE (Conneau et al., 2018, arXiv 1710.04087) and multiCCA (Ammar et al., 2016,
    arXiv 1602.01925). Words are lowercased.

    Args:
        source: The vectors of language A in fastText's text format, (n, d).
        target: The vectors of language B, (m, d), which are not changed.
        output: The folder for the bag (a checkpoint), the mapped source vectors `CODE.vec`, and
            `results.json`.
        language_a: The language code of A.
        language_b: The language code of B.
        dictionary: A file with two words per line, or `identical` for words that both languages
            share. None learns without a dictionary.
        test: A dictionary for evaluating word translation.
        similarity: A file of word pairs with similarity ratings, as in SemEval-2017 Task 2.
        sentences: Parallel rows, as `load_parallel` reads them, for the idf of words and for
            evaluating sentence translation.
        also: Vector files of more languages in the target's space, by code, to add to the bag.
        fit: `rotation` for MUSE, `cca` for multiCCA, which requires a dictionary.
        refinements: The maximum number of refinement rounds with mutual CSLS neighbors.
        start: How to learn without a dictionary: `similarities` (default) or `adversarial`.
        epochs: The number of `adversarial` epochs, with 31,250 steps each. Default: 5.
        restarts: The number of additional `adversarial` runs. Default: 1.
        seed: The seed for learning without a dictionary.
        max_words: Use only the most frequent `max_words` words per language.

    Raises:
        TmdeError: A file or an argument can't be used.
        OSError: A file does not exist.

    Example:
        ```python
        from tmde import DocumentEmbedder, align_word_files

        report = align_word_files(
            "wiki.de.vec", "wiki.en.vec", "runs/words", "de", "en", dictionary="de-en.txt"
        )
        embedder = DocumentEmbedder.from_pretrained("runs/words")
        ```
    """
    settings = _start_settings(dictionary, fit, start, epochs, restarts, seed)
    also = also or {}
    word_vectors.check_codes(language_a, language_b, *also)
    read = functools.partial(word_vectors.read_word_vectors, max_words=max_words)
    source_words = read(source)
    if fit == "cca":
        source_words = source_words.centered()
    target_words = read(target)
    also_words = {code: read(path) for code, path in also.items()}
    pairs = tested_pairs = judged = None
    if dictionary is not None:
        pairs = word_vectors.read_dictionary(dictionary, source_words, target_words)
    if test is not None:
        tested_pairs = word_vectors.read_dictionary(test, source_words, target_words)
    if similarity is not None:
        judged = word_vectors.read_similarities(*similarity, source_words, target_words)
    rows = []
    if sentences is not None:
        rows = load_parallel(sentences, [language_a, language_b, *also], [])["translation"]

    mapping = word_vectors.align_words(
        source_words, target_words, pairs, refinements, fit=fit, **settings
    )
    mapped_words = source_words.mapped(mapping)
    measures = []
    correlations = []
    for words in (source_words, mapped_words):
        languages = {language_a: words, language_b: target_words, **also_words}
        bag = word_vectors.word_bag(languages, rows)
        measures.append(word_vectors.measure(words, target_words, tested_pairs, bag, rows))
        if judged is not None:
            correlations.append(word_vectors.similarity_correlation(words, target_words, judged))
    similarities = None
    if judged is not None:
        similarities = {
            "before": correlations[0],
            "after": correlations[1],
            "pairs": len(judged.scores),
            "left_out": judged.left_out,
        }
    folder = Path(output)
    # The bag of the mapped words was made last.
    for part in bag:
        part.save_pretrained(folder)
    word_vectors.write_word_vectors(folder / f"{language_a}.vec", mapped_words)
    report = WordAlignmentReport(folder, measures[0], measures[1], similarities)
    write_atomically(folder / RESULTS_FILE, json.dumps(report.as_dict(), indent=2))
    return report


def _start_settings(
    dictionary: PathLike | None,
    fit: Fit,
    start: Start | None,
    epochs: int | None,
    restarts: int | None,
    seed: int,
) -> dict[str, Any]:
    """Return the arguments of `align_words` by which it learns without a dictionary.

    Raises:
        TmdeError: Arguments that do not go together.
    """
    if dictionary is None and fit == "cca":
        raise TmdeError(
            "fit=cca: found no dictionary, expected one, or `identical` for words that both "
            "languages share"
        )
    if dictionary is not None and start is not None:
        raise TmdeError(f"start={start}: found a dictionary too; a start learns without one")
    adversarial = {"epochs": epochs, "restarts": restarts}
    settings = {name: value for name, value in adversarial.items() if value is not None}
    for name, value in settings.items():
        if start != "adversarial":
            raise TmdeError(
                f"{name}={value}: expected start=adversarial, the only start with {name}"
            )
    if dictionary is not None:
        return {}
    return {"start": start or "similarities", "seed": seed, **settings}
