"""The ten probing tasks of Conneau et al. (2018): which properties does a sentence vector hold?"""

from __future__ import annotations

import itertools
import logging
import random
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import choose_languages
from tmde.data.lines import read_lines

from .base import ClassificationData, LabeledText, Languages, Provenance, Source, Split, Task
from .parallel import open_parts, rows_of
from .sources import Splits, provenance_of, source_of

logger = logging.getLogger("tmde.eval.tasks")

SPLITS = {"tr": "train", "va": "dev", "te": "test"}
SENTENCE_LENGTHS = range(5, 29)  # Words of a sentence.
BIN_WIDTH = 4  # Words; 24 lengths make six bins.
SENTENCES_PER_WORD = 120  # In the published task of word content: 1,000 words in 120,000 sentences.
COMMON_WORDS = 200  # They are mostly function words.
MAX_FREQUENCY_RATIO = 2  # Of a word and its replacement, beside the same neighbors.


class Item(NamedTuple):
    """A labeled sentence of a split."""

    split: str
    label: str
    sentence: str


Sentences = Mapping[int, Sequence[str]]  # the words of each sentence, by row
Generator = Callable[[Sentences, random.Random], list[Item]]


def sentence_length(sentences: Sentences, rng: random.Random) -> list[Item]:
    """Label sentences with the number of their words, in six bins of equal width.

    Args:
        sentences: Words by row.
        rng: Unused.
    """
    items = []
    for row, words in sentences.items():
        length_bin = (len(words) - SENTENCE_LENGTHS[0]) // BIN_WIDTH
        items.append(Item(split_of(row), str(length_bin), " ".join(words)))
    return items


def word_content(sentences: Sentences, rng: random.Random) -> list[Item]:
    """Label sentences with the one word of medium frequency that they hold, once.

    Of n such words, the frequencies have the ranks 2 n to 3 n. Labels that no train sentence has
    are left out.

    Args:
        sentences: Words by row.
        rng: Unused.
    """
    plain_words = {}
    counts: Counter[str] = Counter()
    for row, words in sentences.items():
        plain_words[row] = [bare(word).lower() for word in words]
        counts.update(filter(is_word, plain_words[row]))
    label_count = max(2, len(sentences) // SENTENCES_PER_WORD)
    ranked_words = counts.most_common(3 * label_count)
    labels = set(dict(ranked_words[2 * label_count :]))
    items = []
    train_labels = set()
    for row, words in plain_words.items():
        labels_of_row = [word for word in words if word in labels]
        if len(labels_of_row) != 1:
            continue
        item = Item(split_of(row), labels_of_row[0], " ".join(sentences[row]))
        items.append(item)
        if item.split == "train":
            train_labels.add(item.label)
    return [item for item in items if item.label in train_labels]


def bigram_shift(sentences: Sentences, rng: random.Random) -> list[Item]:
    """Invert two adjacent words in about half of the sentences.

    Neither of the two is the first or last word, and none has punctuation.

    Args:
        sentences: Words by row.
        rng: Decides which sentences and words are inverted.
    """
    items = []
    for row, words in sentences.items():
        positions = _invertible_positions(words)
        if not positions:
            continue
        label = "original"
        if rng.random() < 0.5:
            label = "inverted"
            first = rng.choice(positions)
            words = [*words[:first], words[first + 1], words[first], *words[first + 2 :]]
        items.append(Item(split_of(row), label, " ".join(words)))
    return items


def _invertible_positions(words: Sequence[str]) -> list[int]:
    """Return the positions of inner words that can change places with the next one."""
    positions = []
    for position in range(1, len(words) - 2):
        first = words[position]
        second = words[position + 1]
        if is_word(first) and is_word(second) and first.lower() != second.lower():
            positions.append(position)
    return positions


def odd_man_out(sentences: Sentences, rng: random.Random) -> list[Item]:
    """Replace a word in about half of the sentences.

    The replacement is half to twice as frequent beside the same neighbors. The published task
    replaces nouns and verbs; without a parser, the words beyond the 200 most frequent stand for
    them. No replacement occurs in two splits.

    Args:
        sentences: Words by row.
        rng: Decides which sentences and words are replaced.
    """
    neighbors = _ContentWords(sentences.values())
    split_of_replacement: dict[str, str] = {}
    items = []
    for row, words in sentences.items():
        split = split_of(row)
        choices = []
        for position in range(1, len(words) - 1):
            for replacement in neighbors.replacements(words, position):
                if split_of_replacement.get(replacement, split) == split:
                    choices.append((position, replacement))
        if not choices:
            continue
        label = "original"
        if rng.random() < 0.5:
            label = "replaced"
            # Sorted, because replacements come from a set.
            position, replacement = rng.choice(sorted(choices))
            split_of_replacement[replacement] = split
            words = [*words[:position], replacement, *words[position + 1 :]]
        items.append(Item(split, label, " ".join(words)))
    return items


class _ContentWords:
    """The words beyond the most frequent ones, with counts by left and by right neighbor.

    Args:
        sentences: Words of each sentence.
    """

    def __init__(self, sentences: Collection[Sequence[str]]) -> None:
        counts: Counter[str] = Counter()
        for words in sentences:
            counts.update(words)
        common_words = dict(counts.most_common(COMMON_WORDS))
        self.words = set(filter(is_word, counts)) - common_words.keys()
        self.after: dict[str, Counter[str]] = defaultdict(Counter)
        self.before: dict[str, Counter[str]] = defaultdict(Counter)
        for words in sentences:
            for first, second in itertools.pairwise(words):
                if second in self.words:
                    self.after[first][second] += 1
                if first in self.words:
                    self.before[second][first] += 1

    def replacements(self, words: Sequence[str], position: int) -> set[str]:
        """Return other words that are about as frequent between the neighbors of a content word."""
        word = words[position]
        if word not in self.words:
            return set()
        after_left = self.after[words[position - 1]]
        before_right = self.before[words[position + 1]]
        replacements = set()
        for other in after_left.keys() & before_right.keys():
            if other == word:
                continue
            if _alike(after_left, word, other) and _alike(before_right, word, other):
                replacements.add(other)
        return replacements


def _alike(counts: Counter[str], word: str, other: str) -> bool:
    """Return whether two words are about as frequent."""
    ratio = counts[other] / counts[word]
    return 1 / MAX_FREQUENCY_RATIO <= ratio <= MAX_FREQUENCY_RATIO


def is_word(text: str) -> bool:
    """Return whether a text has letters and their marks alone; `isalpha` knows no vowel signs."""
    return bool(text) and all(unicodedata.category(character)[0] in "LM" for character in text)


def bare(word: str) -> str:
    """Return the word without the punctuation and symbols before and behind it."""
    first = 0
    last = len(word)
    while first < last and unicodedata.category(word[first])[0] in "PS":
        first += 1
    while last > first and unicodedata.category(word[last - 1])[0] in "PS":
        last -= 1
    return word[first:last]


def split_of(row: int) -> str:
    """Return the split of a row and its translations: 80% train, 10% dev and 10% test."""
    tenths = ("test", "dev", *["train"] * 8)
    return tenths[random.Random(row).randrange(10)]


def balanced(items: Sequence[Item], rng: random.Random) -> list[Item]:
    """Draw as many items of every label as of the rarest, in each split.

    Args:
        items: Items.
        rng: Decides which items are kept.

    Returns:
        Items in random order; none of a split that lacks a label.
    """
    labels: set[str] = set()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for item in items:
        labels.add(item.label)
        counts[item.split][item.label] += 1
    fewest = {}
    for split, counts_of_split in counts.items():
        # A label that the split lacks counts 0.
        fewest[split] = min(counts_of_split[label] for label in labels)
    drawn_items = []
    drawn_counts: Counter[tuple[str, str]] = Counter()
    for item in rng.sample(items, len(items)):
        drawn_counts[item.split, item.label] += 1
        if drawn_counts[item.split, item.label] <= fewest[item.split]:
            drawn_items.append(item)
    return drawn_items


class Probing(Task):
    """A property of sentences that a classifier reads off vectors (Conneau, 2019, section 3.3).

    Four of the ten tasks need no parser (the group `probing_text`). They are also generated from
    parallel text, in all its languages that put spaces between words, with 80% of the rows for
    training and 10% each for dev and test.

    Attributes:
        file: The name of the published file.
        generate: What makes items of sentences; None if only a parser could.
        balance: Whether generated items have as many of every label.
        head: The name of the head of the published protocol.
        monolingual: Whether the labels mean nothing in another language.
    """

    provenance = Provenance(
        citation="Conneau et al., What you can cram into a single $&!#* vector: Probing sentence "
        "embeddings for linguistic properties, 2018",
        license="BSD (SentEval); sentences of the Toronto Book Corpus",
        url="https://github.com/facebookresearch/SentEval/tree/main/data/probing",
    )
    needs = "the folder of SentEval's probing files; for some tasks also parallel text"
    head: str = "mlp"
    file: str
    generate: Generator | None = None
    balance: bool = True
    monolingual: bool = False

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        max_rows: int | None = None,
        seed: int = 42,
    ) -> ClassificationData:
        """Load the splits `train`, `dev` and `test`.

        The published files hold 100,000, 10,000 and 10,000 English sentences.

        Args:
            source: A published file (`bigram_shift.txt`: lines of tr, va or te, label and sentence,
                with tabs between), or the folder of all. Or parallel text, to generate the task
                from its sentences of 5 to 28 words.
            languages: None for all languages of the source.
            streaming: Read the Hub without downloading whole files first.
            max_rows: How many rows are read to generate a task; None for all.
            seed: Seed of the draws that generate a task.

        Raises:
            CorpusError: No source; a line that is not as published; text for a task that needs a
                parser.
        """
        source = source_of(
            self, source, "Pass the folder of SentEval's probing files, or parallel text."
        )
        path = Path(source)
        if path.is_dir():
            path = path / self.file
        if path.name == self.file and path.exists():
            choose_languages(source, languages, ["en"])
            items = {"en": _read_published(str(path))}
        elif self.generate is None:
            raise bad_value(
                source,
                None,
                None,
                Unquoted("another source"),
                f"SentEval's {self.file}",
                "The task can't be generated: its labels are a parser's.",
            )
        else:
            items = self._generate_items(
                self.generate, source, languages, streaming, max_rows, seed
            )
        splits = self._complete_splits(items, source)
        requested = languages or list(items)
        lacking = [language for language in requested if language not in splits]
        if lacking and (languages or not splits):
            raise bad_value(
                source,
                None,
                None,
                Unquoted(f"too little text in {lacking[0]}"),
                "sentences of every label in every split",
                "Pass more text, or other languages.",
            )
        provenance = provenance_of(self, source, "test", copy=True)
        return ClassificationData(splits, provenance, self.head, self.monolingual)

    def _complete_splits(self, items: Mapping[str, Sequence[Item]], source: str) -> Splits:
        """Return the splits of each language; a language that lacks one is left out."""
        splits: Splits = {}
        for language, language_items in items.items():
            by_name: dict[str, list[Item]] = {name: [] for name in SPLITS.values()}
            for item in language_items:
                by_name[item.split].append(item)
            if not all(by_name.values()):
                logger.warning(
                    "%s: left %s out, which has too little text in %s", self.name, language, source
                )
                continue
            splits[language] = {}
            for name, split_items in by_name.items():
                labeled_texts = _number_items(split_items, f"{language}:{name}")
                splits[language][name] = Split.of(labeled_texts, f"{source}, {name}")
        return splits

    def _generate_items(
        self,
        generate: Generator,
        source: str,
        languages: Languages,
        streaming: bool,
        max_rows: int | None,
        seed: int,
    ) -> dict[str, list[Item]]:
        """Generate the items of each language from parallel text."""
        chosen, parts = open_parts(source, languages, self.languages, streaming=streaming)
        rows = itertools.chain.from_iterable(map(rows_of, parts.values()))
        # Rows and words by lowercase text, so that a repeated sentence counts once.
        sentences: dict[str, dict[str, tuple[int, list[str]]]] = {}
        for language in chosen:
            sentences[language] = {}
        for number, row in enumerate(itertools.islice(rows, max_rows)):
            for language in chosen:
                words = (row.get(language) or "").split()
                if len(words) in SENTENCE_LENGTHS:
                    sentences[language].setdefault(" ".join(words).lower(), (number, words))
        items = {}
        for language, by_text in sentences.items():
            rng = random.Random(f"{seed} {language}")
            items[language] = generate(dict(by_text.values()), rng)
            if self.balance:
                items[language] = balanced(items[language], rng)
        return items


def _number_items(items: Sequence[Item], prefix: str) -> Iterator[LabeledText]:
    """Yield the items of a split with ids `<prefix>:<number>`, which count from 0."""
    for number, item in enumerate(items):
        yield LabeledText(f"{prefix}:{number}", item.sentence, item.label)


def _read_published(path: str) -> list[Item]:
    """Read a published file.

    Raises:
        CorpusError: A line is not a split, a label and a sentence.
    """
    items = []
    for number, line in read_lines(path):
        fields = line.split("\t")
        if len(fields) != 3 or fields[0] not in SPLITS or not fields[2].strip():
            expected = "tr, va or te, a label and a sentence, with tabs between"
            raise bad_value(path, number, None, line[:80], expected, "Fetch the file again.")
        split, label, sentence = fields
        items.append(Item(SPLITS[split], label, sentence))
    return items


class SentenceLength(Probing):
    """Probing: length in words, 6 bins."""

    name = "probing_sentlen"
    description = "probing: length in words, 6 bins (published, or from parallel text)"
    file = "sentence_length.txt"
    local_names = (file, f"probing/{file}")
    generate = staticmethod(sentence_length)


class WordContent(Probing):
    """Probing: which of many words of medium frequency occurs.

    The words of one language mean nothing in another.
    """

    name = "probing_wc"
    description = (
        "probing: which of many mid-frequency words occurs (published, or from parallel text)"
    )
    file = "word_content.txt"
    local_names = (file, f"probing/{file}")
    generate = staticmethod(word_content)
    balance = False
    monolingual = True
    head = "logistic_regression"


class TreeDepth(Probing):
    """Probing: depth of the parse tree, 8 classes."""

    name = "probing_treedepth"
    description = "probing: depth of the parse tree, 8 classes"
    file = "tree_depth.txt"
    local_names = (file, f"probing/{file}")


class TopConstituents(Probing):
    """Probing: constituents below the root, 20 classes."""

    name = "probing_topconst"
    description = "probing: constituents below the root, 20 classes"
    file = "top_constituents.txt"
    local_names = (file, f"probing/{file}")


class BigramShift(Probing):
    """Probing: are two adjacent words inverted?"""

    name = "probing_bshift"
    description = "probing: are two adjacent words inverted? (published, or from parallel text)"
    file = "bigram_shift.txt"
    local_names = (file, f"probing/{file}")
    generate = staticmethod(bigram_shift)


class Tense(Probing):
    """Probing: tense of the main verb."""

    name = "probing_tense"
    description = "probing: tense of the main verb"
    file = "past_present.txt"
    local_names = (file, f"probing/{file}")


class SubjectNumber(Probing):
    """Probing: number of the subject."""

    name = "probing_subjnum"
    description = "probing: number of the subject"
    file = "subj_number.txt"
    local_names = (file, f"probing/{file}")


class ObjectNumber(Probing):
    """Probing: number of the object."""

    name = "probing_objnum"
    description = "probing: number of the object"
    file = "obj_number.txt"
    local_names = (file, f"probing/{file}")


class OddManOut(Probing):
    """Probing: is a word replaced by one of like frequency?"""

    name = "probing_somo"
    description = (
        "probing: was a word replaced by a similarly frequent one? (published, or from parallel "
        "text)"
    )
    file = "odd_man_out.txt"
    local_names = (file, f"probing/{file}")
    generate = staticmethod(odd_man_out)


class CoordinationInversion(Probing):
    """Probing: are two coordinate clauses inverted?"""

    name = "probing_coordinv"
    description = "probing: are two coordinate clauses inverted?"
    file = "coordination_inversion.txt"
    local_names = (file, f"probing/{file}")


PROBING: list[type[Probing]] = [
    SentenceLength,
    WordContent,
    TreeDepth,
    TopConstituents,
    BigramShift,
    Tense,
    SubjectNumber,
    ObjectNumber,
    OddManOut,
    CoordinationInversion,
]

# The tasks that can be generated from text, because their labels need no parser.
GENERATED_PROBING: list[type[Probing]] = [SentenceLength, WordContent, BigramShift, OddManOut]
