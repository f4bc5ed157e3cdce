"""The ten probing tasks of Conneau et al. (2018): which properties of a sentence does its vector hold?"""

from __future__ import annotations

import logging
import random
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path

from tmde.data.checks import Words, bad_value
from tmde.data.files import read_lines

from .base import ClassificationData, Languages, Provenance, Source, Split, Task
from .parallel import open_parts, rows_of
from .sources import choose_languages, provenance_of, source_of

logger = logging.getLogger("tmde.eval.tasks")

Items = list[tuple[str, str, str]]  # split, label, sentence
SPLITS = {"tr": "train", "va": "dev", "te": "test"}
WORDS = range(5, 29)  # in a sentence
SENTENCES_PER_WORD = 120  # of word content: 1,000 words in 120,000 sentences
COMMON_WORDS = 200  # mostly function words


def sentence_length(sentences: Mapping[int, list[str]], rng: random.Random) -> Items:
    """The number of words in six bins of equal width."""
    return [
        (split_of(row), str((len(words) - WORDS[0]) // 4), " ".join(words))
        for row, words in sentences.items()
    ]


def word_content(sentences: Mapping[int, list[str]], rng: random.Random) -> Items:
    """Which of n words of medium frequency (ranks 2 n to 3 n) the sentence holds; it holds one of them, once."""
    plain = {row: [bare(word).lower() for word in words] for row, words in sentences.items()}
    counts = Counter(word for words in plain.values() for word in words if is_word(word))
    n = max(2, len(sentences) // SENTENCES_PER_WORD)
    asked = {word for word, _ in counts.most_common(3 * n)[2 * n :]}
    found = {row: [word for word in words if word in asked] for row, words in plain.items()}
    items = [
        (split_of(row), held[0], " ".join(sentences[row]))
        for row, held in found.items()
        if len(held) == 1
    ]
    known = {label for split, label, _ in items if split == "train"}
    return [item for item in items if item[1] in known]


def bigram_shift(sentences: Mapping[int, list[str]], rng: random.Random) -> Items:
    """Whether two adjacent words are inverted, of which neither is the first or last and none has punctuation."""
    items = []
    for row, words in sentences.items():
        pairs = [(i, words[i], words[i + 1]) for i in range(1, len(words) - 2)]
        pairs = [i for i, a, b in pairs if is_word(a) and is_word(b) and a.lower() != b.lower()]
        if pairs and (inverted := rng.random() < 0.5):
            i = rng.choice(pairs)
            words = [*words[:i], words[i + 1], words[i], *words[i + 2 :]]
        if pairs:
            items.append((split_of(row), "inverted" if inverted else "original", " ".join(words)))
    return items


def odd_man_out(sentences: Mapping[int, list[str]], rng: random.Random) -> Items:
    """Whether a word is replaced by another that is half to twice as frequent beside the same neighbors.

    The published task replaces nouns and verbs; without a parser, the words beyond the 200 most frequent stand for
    them. No replacement occurs in two splits.
    """
    counts = Counter(word for words in sentences.values() for word in words)
    content = set(filter(is_word, counts)) - {word for word, _ in counts.most_common(COMMON_WORDS)}
    after, before = (
        defaultdict(Counter),
        defaultdict(Counter),
    )  # content words by their left and right neighbours
    for words in sentences.values():
        for first, second in zip(words, words[1:], strict=False):
            after[first].update({second} & content)
            before[second].update({first} & content)
    items, used = [], {}
    for row, words in sentences.items():
        split, choices = split_of(row), []
        for i, word in enumerate(words[1:-1], 1):
            tables = after[words[i - 1]], before[words[i + 1]]
            for other in tables[0].keys() & tables[1].keys() - {word} if word in content else ():
                alike = all(1 / 2 <= table[other] / table[word] <= 2 for table in tables)
                if alike and used.get(other, split) == split:
                    choices.append((i, other))
        if choices and (replaced := rng.random() < 0.5):
            i, other = rng.choice(sorted(choices))
            used[other] = split
            words = [*words[:i], other, *words[i + 1 :]]
        if choices:
            items.append((split, "replaced" if replaced else "original", " ".join(words)))
    return items


def is_word(text: str) -> bool:
    """Whether it is of letters and their marks alone: `isalpha` knows no vowel signs."""
    return bool(text) and all(unicodedata.category(character)[0] in "LM" for character in text)


def bare(word: str) -> str:
    """The word without the punctuation before and behind it."""
    kept = [n for n, character in enumerate(word) if unicodedata.category(character)[0] not in "PS"]
    return word[kept[0] : kept[-1] + 1] if kept else ""


def split_of(row: int) -> str:
    """80 % of rows are for training; a row and its translations are in one split."""
    return ("test", "dev", *["train"] * 8)[random.Random(row).randrange(10)]


def balanced(items: Items, rng: random.Random) -> Items:
    """As many items of every label as of the rarest, in each split; none if a split lacks a label."""
    labels = sorted({label for _, label, _ in items})
    counts = Counter(item[:2] for item in items)
    fewest = {split: min(counts[split, label] for label in labels) for split, _ in counts}
    kept, seen = [], Counter()
    for item in rng.sample(items, len(items)):
        seen[item[:2]] += 1
        if seen[item[:2]] <= fewest[item[0]]:
            kept.append(item)
    return kept


class Probing(Task):
    """A property of sentences that a classifier reads off their vectors (004, section 3.3).

    Four of the ten tasks need no parser (the group `probing_text`). They are also generated from parallel text, in all
    its languages that put spaces between words, with 80 % of the rows for training and 10 % each for dev and test.

    Class attributes: `file`, its name as published; `generate`, what makes items of sentences, or None.
    """

    provenance = Provenance(
        citation="Conneau et al., What you can cram into a single $&!#* vector: Probing sentence embeddings for "
        "linguistic properties, 2018",
        licence="BSD (SentEval); sentences of the Toronto Book Corpus",
        url="https://github.com/facebookresearch/SentEval/tree/main/data/probing",
    )
    head = "mlp"
    file: str
    generate: Callable[[Mapping[int, list[str]], random.Random], Items] | None = None

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        max_rows: int | None = None,
        seed: int = 42,
    ) -> ClassificationData:
        """Splits `train`, `dev`, `test`: 100,000, 10,000 and 10,000 English sentences in the published files.

        Args:
            source: A published file (`bigram_shift.txt`: lines of tr, va or te, label and sentence, with tabs
                between), or the folder of all. Or parallel text, to generate the task from its sentences of 5 to 28
                words.
            max_rows, seed: Of generated tasks: read so many rows; seed of the draws.

        Raises:
            CorpusError: No source; a line that is not as published; text for a task that needs a parser.
        """
        source = source_of(
            self, source, "Pass the folder of SentEval's probing files, or parallel text."
        )
        path = Path(source) / self.file if Path(source).is_dir() else Path(source)
        if path.name == self.file and path.exists():
            (chosen,) = choose_languages(source, languages, ["en"])
            items = {chosen: self._published(str(path))}
        elif self.generate is None:
            expected, advice = (
                f"SentEval's {self.file}",
                "The task can't be generated: its labels are a parser's.",
            )
            raise bad_value(source, None, None, Words("another source"), expected, advice)
        else:
            items = self._generated(source, languages, streaming, max_rows, seed)
        splits: dict[str, dict[str, Split]] = {}
        for language, found in items.items():
            by_split = {
                name: [item for item in found if item[0] == name] for name in SPLITS.values()
            }
            if not all(by_split.values()):
                logger.warning(
                    "%s: left %s out, which has too little text in %s", self.name, language, source
                )
                continue
            for name, rows in by_split.items():
                ids = [f"{language}:{name}:{number}" for number in range(len(rows))]
                _, labels, texts = zip(*rows, strict=True)
                splits.setdefault(language, {})[name] = Split(
                    ids, texts, labels, place=f"{source}, {name}"
                )
        if lacking := [language for language in languages or items if language not in splits]:
            if languages or not splits:
                found, expected = (
                    Words(f"too little text in {lacking[0]}"),
                    "sentences of every label in every split",
                )
                raise bad_value(
                    source, None, None, found, expected, "Pass more text, or other languages."
                )
        monolingual = self.generate is word_content
        return ClassificationData(
            splits, provenance_of(self, source, "test", copy=True), self.head, monolingual
        )

    def _published(self, path: str) -> Items:
        items = []
        for number, line in read_lines(path):
            parts = line.split("\t")
            if len(parts) != 3 or parts[0] not in SPLITS or not parts[2].strip():
                expected = "tr, va or te, a label and a sentence, with tabs between"
                raise bad_value(path, number, None, line[:80], expected, "Fetch the file again.")
            items.append((SPLITS[parts[0]], parts[1], parts[2]))
        return items

    def _generated(
        self, source: str, languages: Languages, streaming: bool, max_rows: int | None, seed: int
    ) -> dict[str, Items]:
        chosen, parts = open_parts(source, languages, self.languages, streaming=streaming)
        sentences: dict[str, dict[str, tuple[int, list[str]]]] = {
            language: {} for language in chosen
        }
        rows = (row for part in parts.values() for row in rows_of(part))
        for number, row in enumerate(islice(rows, max_rows)):
            for language in chosen:
                words = (row.get(language) or "").split()
                if len(words) in WORDS:
                    sentences[language].setdefault(" ".join(words).lower(), (number, words))
        generated = {}
        for language, found in sentences.items():
            rng = random.Random(f"{seed} {language}")
            items = self.generate(dict(found.values()), rng)
            generated[language] = items if self.generate is word_content else balanced(items, rng)
        return generated


_PUBLISHED = {  # name: file, description, how it is generated
    "sentlen": ("sentence_length.txt", "length in words, 6 bins", sentence_length),
    "wc": ("word_content.txt", "which of many words of medium frequency occurs", word_content),
    "treedepth": ("tree_depth.txt", "depth of the parse tree, 8 classes", None),
    "topconst": ("top_constituents.txt", "constituents below the root, 20 classes", None),
    "bshift": ("bigram_shift.txt", "are two adjacent words inverted?", bigram_shift),
    "tense": ("past_present.txt", "tense of the main verb", None),
    "subjnum": ("subj_number.txt", "number of the subject", None),
    "objnum": ("obj_number.txt", "number of the object", None),
    "somo": ("odd_man_out.txt", "is a word replaced by one of like frequency?", odd_man_out),
    "coordinv": ("coordination_inversion.txt", "are two coordinate clauses inverted?", None),
}
PROBING: list[type[Probing]] = [
    type(
        f"Probing_{name}",
        (Probing,),
        {
            "__doc__": f"Probing: {about}.",
            "name": f"probing_{name}",
            "description": f"probing: {about}"
            + (" (published, or from parallel text)" if generate else ""),
            "file": file,
            "local_names": (file, f"probing/{file}"),
            "generate": staticmethod(generate) if generate else None,
            "head": "logistic_regression" if name == "wc" else Probing.head,
        },
    )
    for name, (file, about, generate) in _PUBLISHED.items()
]
