"""Sentences of two translated texts, and which of them belong together: the format of vecalign."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from tmde.data.checks import Unquoted, bad_value, is_code
from tmde.data.labeled_tables import choose_languages
from tmde.data.lines import read_lines

from .base import (
    Languages,
    Provenance,
    SentenceAlignmentData,
    SentenceBead,
    Source,
    Task,
    TranslatedText,
)
from .sources import provenance_of, source_of

ADVICE = "Correct the alignment, or fetch it again."
# A line such as `[0]:[0, 1]`. Programs write a cost behind it.
NUMBERS = r"\[((?:\d+(?:, *\d+)*)?)\]"
GOLD_LINE = re.compile(f"{NUMBERS}:{NUMBERS}(:.*)?")


class SentenceAlignment(Task):
    """Alignment of the sentences of texts and their translations, such as that of Bleualign.

    A text has three files with one name: `NAME.de` and `NAME.fr` have a sentence a line, and
    `NAME.defr` (or `NAME.de-fr`) the right alignment. Its lines are `[0]:[0, 1]`, numbers of
    sentences from 0. A sentence that no line pairs is alone. Sentences of one list need not be
    consecutive, but no program of tmde pairs others.
    """

    name = "sentence_alignment"
    description = "sentence alignment against a hand-made alignment in vecalign's format"
    provenance = Provenance(
        citation="Sennrich and Volk, MT-based Sentence Alignment for OCR-generated Parallel Texts, "
        "2010 (Bleualign); format of Thompson and Koehn, Vecalign, 2019",
        license="as given by the publisher",
        url="https://github.com/thompsonb/vecalign",
    )
    languages = ()  # those of the data
    local_names = ("eval/bleualign_dev",)
    needs = "a folder with NAME.de, NAME.fr and NAME.defr"

    def load(
        self, source: Source = None, languages: Languages = None, streaming: bool = False
    ) -> SentenceAlignmentData:
        """Load all texts of a folder.

        Args:
            source: The folder.
            languages: Only texts in two of these; None for all.
            streaming: Ignored.

        Raises:
            CorpusError: No source or no text in it, two alignments of one text, missing languages,
                a line that is no pair of lists, a sentence that a file does not have or that comes
                twice.
        """
        advice = "Pass a folder with NAME.de, NAME.fr and one right alignment, NAME.defr."
        folder = source_of(self, source, advice)
        texts = {}
        available: dict[str, None] = {}
        for gold_file, pair in _find_texts(Path(folder)):
            name = f"{gold_file.stem}.{'-'.join(pair)}"
            if name in texts:
                raise bad_value(str(gold_file), None, None, Unquoted("a second one"), "one", advice)
            texts[name] = _read_text(gold_file, pair)
            available.update(dict.fromkeys(pair))
        if not texts:
            raise bad_value(folder, None, None, Unquoted("no alignment"), "NAME.defr", advice)
        chosen = choose_languages(folder, languages, list(available), self.languages)
        chosen_texts = {}
        for name, text in texts.items():
            if set(text.languages) <= set(chosen):
                chosen_texts[name] = text
        if not chosen_texts:
            listed = Unquoted(f"only {', '.join(texts)}")
            expected = f"a text in two of {', '.join(chosen)}"
            raise bad_value(folder, None, "languages", listed, expected, "Pass other languages.")
        return SentenceAlignmentData(chosen_texts, provenance_of(self, folder, split=None))


def _find_texts(folder: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    """Yield the file of each alignment in a folder, and its languages."""
    suffixes_of: dict[str, set[str]] = {}
    for path in sorted(folder.glob("*.*")):
        suffixes_of.setdefault(path.stem, set()).add(path.suffix[1:])
    for stem, suffixes in suffixes_of.items():
        codes = sorted(filter(is_code, suffixes))
        for first, second in itertools.permutations(codes, 2):
            for joined in (first + second, f"{first}-{second}"):
                if joined in suffixes:
                    yield folder / f"{stem}.{joined}", (first, second)


def _read_text(gold_file: Path, languages: tuple[str, str]) -> TranslatedText:
    """Return the sentences of a text and of its translation, and the right alignment."""
    sides = []
    for language in languages:
        path = str(gold_file.with_suffix(f".{language}"))
        sides.append([line.strip() for _, line in read_lines(path)])
    first, second = sides
    beads = _read_gold(str(gold_file), len(first), len(second))
    return TranslatedText(languages, first, second, beads)


def _read_gold(path: str, first_size: int, second_size: int) -> list[SentenceBead]:
    """Return the pairs of an alignment that have sentences on both sides.

    Raises:
        CorpusError: A line is no pair of lists, or names a sentence that the text lacks or that
            came before.
    """
    beads: list[SentenceBead] = []
    first_known: set[int] = set()
    second_known: set[int] = set()
    for number, line in read_lines(path):
        if not line.strip():
            continue
        match = GOLD_LINE.fullmatch(line.strip())
        if match is None:
            raise bad_value(path, number, None, line, "two lists such as [0]:[0, 1]", ADVICE)
        first = _numbers(match[1])
        second = _numbers(match[2])
        _check_sentences(path, number, first, first_size, first_known)
        _check_sentences(path, number, second, second_size, second_known)
        if first and second:
            beads.append((first, second))
    return beads


def _check_sentences(
    path: str, number: int, sentences: tuple[int, ...], size: int, known: set[int]
) -> None:
    """Check the numbers of the sentences of one side of a line, and add them to the known ones.

    Args:
        path: The file of the alignment.
        number: The number of the line.
        sentences: The numbers.
        size: How many sentences the text has.
        known: The sentences that came before, to which these are added.

    Raises:
        CorpusError: The text lacks one, or it came before.
    """
    for sentence in sentences:
        if sentence >= size:
            expected = f"a number below {size}, the number of lines of the text"
            raise bad_value(path, number, None, sentence, expected, ADVICE)
        if sentence in known:
            raise bad_value(path, number, None, sentence, "each sentence once", ADVICE)
        known.add(sentence)


def _numbers(listed: str) -> tuple[int, ...]:
    """Return the numbers of a list such as `0, 1`, in rising order."""
    return tuple(sorted(int(number) for number in listed.split(",") if number))
