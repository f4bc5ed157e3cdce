"""Draw sentences and documents from the grammar; a stable hash of each sentence decides its split."""

import hashlib
import random
from collections.abc import Sequence

from datasets import Dataset, Features, Value

from modeling_tmde import TmdeError

from .grammar import LANGUAGES, NEUTRAL, TOPICS, Template, templates

SPLITS = ("train", "dev", "test")
DOCUMENT_COLUMNS = ("doc_id", "language", "text", "label", "split")

_HELD_OUT = {0: "test", 1: "dev"}  # of 20 hash classes, so 5 % each
_NEUTRAL_SHARE = 0.2  # of the sentences of a document
_PASSAGE_SHARE = 0.6  # of the rows of parallel text
_FOREIGN_SHARE = 0.1  # of the documents have one sentence of another topic
_TRANSLATION = {"translation": {language: Value("string") for language in LANGUAGES}}
_PATIENCE = 5000  # draws without a new sentence until a request counts as impossible


def split_of(template: Template, number: int) -> str:
    """The split of a sentence, for every process and seed: about 90 % train, 5 % dev and 5 % test."""
    digest = hashlib.blake2b(f"{template.name}:{number}".encode(), digest_size=4).digest()
    return _HELD_OUT.get(int.from_bytes(digest, "big") % 20, "train")


def _draw(rng: random.Random, group: Sequence[Template], split: str) -> tuple[Template, int]:
    """One sentence of a split; redrawing within the same template keeps the templates equally frequent."""
    template = group[int(rng.random() * len(group))]
    while True:
        number = int(rng.random() * template.capacity)
        if split_of(template, number) == split:
            return template, number


def _random(kind: str, split: str, seed: int) -> random.Random:
    if split not in SPLITS:
        raise TmdeError(f"Split of the sample: found {split!r}, expected one of {SPLITS}")
    return random.Random(f"{kind}/{split}/{seed}")


def sample_sentences(num_rows: int = 20000, split: str = "train", seed: int = 0) -> Dataset:
    """Parallel sentences in five languages, no row twice.

    Args:
        num_rows: How many.
        split: `train`, `dev` or `test`; no sentence is in two of them, whatever the seeds.
        seed: The same seed gives the same rows in every process.

    Returns:
        A dataset with `translation`, a struct with one string per language of LANGUAGES, and `topic`: one of TOPICS,
        or `neutral` for sentences that fit all topics.

    Raises:
        ValueError: If the split is unknown, or the grammar has not that many sentences.
    """
    rng = _random("sentences", split, seed)
    groups = list(templates().values())
    drawn: dict[tuple[Template, int], None] = {}  # in the order of the draws
    misses = 0
    while len(drawn) < num_rows:
        sentence = _draw(rng, groups[int(rng.random() * len(groups))], split)
        misses = misses + 1 if sentence in drawn else 0
        if misses == _PATIENCE:
            raise TmdeError(
                f"Rows of split {split!r}: found a request for {num_rows}, expected at most {len(drawn)}"
            )
        drawn[sentence] = None
    rows = [
        {"translation": template.render(number), "topic": template.topic}
        for template, number in drawn
    ]
    return Dataset.from_list(rows, features=Features(_TRANSLATION | {"topic": Value("string")}))


def _document(rng: random.Random, topic: str, length: int, split: str) -> dict[str, str]:
    """The text of one document in every language. More than half of the sentences that have a topic have its own; no
    template comes twice."""
    topics = [topic] + [
        NEUTRAL if rng.random() < _NEUTRAL_SHARE else topic for _ in range(length - 1)
    ]
    if topics.count(topic) >= 3 and rng.random() < _FOREIGN_SHARE:
        topics[topics.index(topic)] = rng.choice([other for other in TOPICS if other != topic])
    rng.shuffle(topics)
    used: list[Template] = []
    sentences: list[dict[str, str]] = []
    for name in topics:
        template, number = _draw(
            rng, [template for template in templates()[name] if template not in used], split
        )
        used.append(template)
        sentences.append(template.render(number))
    return {
        language: " ".join(sentence[language] for sentence in sentences) for language in LANGUAGES
    }


def sample_documents(
    num_documents: int = 400,
    split: str = "test",
    seed: int = 0,
    languages: Sequence[str] = LANGUAGES,
) -> Dataset:
    """Labelled documents that are parallel in the languages.

    A document has 3 to 6 sentences. Most of them speak about its topic, some about none, and sometimes one about
    another topic.

    Args:
        num_documents: How many per language.
        split: `train`, `dev` or `test`; documents consist of sentences of that split only.
        seed: The same seed gives the same documents in every process, for any choice of languages.
        languages: Languages to give, in this order.

    Returns:
        A dataset with one row per document and language and the columns `doc_id`, `language`, `text`, `label` and
        `split`. Rows with one doc_id are translations. Labels are equally frequent to within one document.

    Raises:
        ValueError: If the split is unknown.
    """
    rng = _random("documents", split, seed)
    labels = [TOPICS[place % len(TOPICS)] for place in range(num_documents)]
    rng.shuffle(labels)
    rows = []
    for place, label in enumerate(labels):
        texts = _document(rng, label, rng.randint(3, 6), split)
        for code in languages:
            values = (f"{split}-{seed}-{place:06d}", code, texts[code], label, split)
            rows.append(dict(zip(DOCUMENT_COLUMNS, values, strict=True)))
    return Dataset.from_list(
        rows, features=Features({name: Value("string") for name in DOCUMENT_COLUMNS})
    )


def sample_parallel(num_rows: int = 20000, split: str = "train", seed: int = 0) -> Dataset:
    """Parallel text to train on: single sentences and passages of two to five sentences, as corpora of documents give.

    An encoder that has only met single sentences embeds documents badly, so passages are 60 % of the rows.

    Args:
        num_rows, split, seed: As in `sample_sentences`.

    Returns:
        A dataset with the column `translation`, a struct with one string per language of LANGUAGES.

    Raises:
        ValueError: As `sample_sentences`.
    """
    passages = int(num_rows * _PASSAGE_SHARE)
    texts = sample_sentences(num_rows - passages, split, seed)["translation"][:]
    rng = _random("passages", split, seed)
    for place in range(passages):
        texts.append(_document(rng, TOPICS[place % len(TOPICS)], rng.randint(2, 5), split))
    rng.shuffle(texts)
    return Dataset.from_dict({"translation": texts}, features=Features(_TRANSLATION))
