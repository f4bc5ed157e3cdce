"""Draw sentences and documents from the grammar.

A stable hash of each sentence decides its split. Published results are of these very sentences, so
the draws of random numbers must stay in their order.
"""

import hashlib
import random
from collections.abc import Sequence

from datasets import Dataset, Features, Value

from modeling_tmde import TmdeError

from .grammar import LANGUAGES, NEUTRAL, TOPICS, Template, templates

SPLITS = ("train", "dev", "test")
DOCUMENT_COLUMNS = ("doc_id", "language", "text", "label", "split")

_HASH_CLASSES = 20
_HELD_OUT = {0: "test", 1: "dev"}  # splits by hash class, so 5% each
_NEUTRAL_SHARE = 0.2  # share of the sentences of a document without its topic
_PASSAGE_SHARE = 0.6  # share of the rows of parallel text that are passages
_FOREIGN_SHARE = 0.1  # share of the documents with one sentence of another topic
_FOREIGN_FROM = 3  # sentences of its own topic that such a document has before
_TRANSLATION = {"translation": {language: Value("string") for language in LANGUAGES}}
_PATIENCE = 5000  # draws without a new sentence until a request counts as impossible


def split_of(template: Template, number: int) -> str:
    """Return the split of a sentence, the same in every process and for every seed.

    About 90% of the sentences are in train, 5% in dev and 5% in test.
    """
    digest = hashlib.blake2b(f"{template.name}:{number}".encode(), digest_size=4).digest()
    hash_class = int.from_bytes(digest, "big") % _HASH_CLASSES
    return _HELD_OUT.get(hash_class, "train")


def _draw(rng: random.Random, group: Sequence[Template], split: str) -> tuple[Template, int]:
    """Return a sentence of a split: its template, and its number there.

    A number of another split is drawn again within the same template, so that all templates stay
    equally frequent.
    """
    template = group[int(rng.random() * len(group))]
    while True:
        number = int(rng.random() * template.capacity)
        if split_of(template, number) == split:
            return template, number


def _random(kind: str, split: str, seed: int) -> random.Random:
    """Return the random numbers of one kind of sample.

    Raises:
        TmdeError: The split is unknown.
    """
    if split not in SPLITS:
        raise TmdeError(f"Split of the sample: found {split!r}, expected one of {SPLITS}")
    return random.Random(f"{kind}/{split}/{seed}")


def sample_sentences(num_rows: int = 20000, split: str = "train", seed: int = 0) -> Dataset:
    """Return parallel sentences in five languages, no row twice.

    Args:
        num_rows: The number of rows.
        split: `train`, `dev` or `test`; no sentence is in two of them, whatever the seeds.
        seed: The same seed gives the same rows in every process.

    Returns:
        A dataset with `translation`, a struct with one string per language of LANGUAGES, and
        `topic`: one of TOPICS, or `neutral` for sentences that fit all topics.

    Raises:
        TmdeError: The split is unknown, or the grammar has not that many sentences.
    """
    rng = _random("sentences", split, seed)
    groups = list(templates().values())
    drawn: dict[tuple[Template, int], None] = {}  # in the order of the draws
    misses = 0
    while len(drawn) < num_rows:
        group = groups[int(rng.random() * len(groups))]
        sentence = _draw(rng, group, split)
        misses = misses + 1 if sentence in drawn else 0
        if misses == _PATIENCE:
            raise TmdeError(
                f"Rows of split {split!r}: requested {num_rows}, expected at most {len(drawn)}"
            )
        drawn[sentence] = None
    rows = []
    for template, number in drawn:
        rows.append({"translation": template.render(number), "topic": template.topic})
    return Dataset.from_list(rows, features=Features(_TRANSLATION | {"topic": Value("string")}))


def _document(rng: random.Random, topic: str, length: int, split: str) -> dict[str, str]:
    """Return the text of one document in every language.

    More than half of the sentences that have a topic have that of the document. No template comes
    twice.
    """
    used: list[Template] = []
    sentences: list[dict[str, str]] = []
    for sentence_topic in _sentence_topics(rng, topic, length):
        unused = [template for template in templates()[sentence_topic] if template not in used]
        template, number = _draw(rng, unused, split)
        used.append(template)
        sentences.append(template.render(number))
    texts = {}
    for language in LANGUAGES:
        texts[language] = " ".join(sentence[language] for sentence in sentences)
    return texts


def _sentence_topics(rng: random.Random, topic: str, length: int) -> list[str]:
    """Return the topics of the sentences of a document: mostly its own, some neutral."""
    topics = [topic]
    for _ in range(length - 1):
        is_neutral = rng.random() < _NEUTRAL_SHARE
        topics.append(NEUTRAL if is_neutral else topic)
    # Only a document that may have a foreign sentence draws whether it has one.
    if topics.count(topic) >= _FOREIGN_FROM and rng.random() < _FOREIGN_SHARE:
        foreign_topics = [other for other in TOPICS if other != topic]
        topics[topics.index(topic)] = rng.choice(foreign_topics)
    rng.shuffle(topics)
    return topics


def sample_documents(
    num_documents: int = 400,
    split: str = "test",
    seed: int = 0,
    languages: Sequence[str] = LANGUAGES,
) -> Dataset:
    """Return labeled documents that are parallel in the languages.

    A document has 3 to 6 sentences. Most of them speak about its topic, some about none, and
    sometimes one about another topic.

    Args:
        num_documents: The number of documents in each language.
        split: `train`, `dev` or `test`; documents consist of sentences of that split only.
        seed: The same seed gives the same documents in every process, for any choice of languages.
        languages: The languages to give, in this order.

    Returns:
        A dataset with one row per document and language and the columns `doc_id`, `language`,
        `text`, `label` and `split`. Rows with one doc_id are translations. Labels are equally
        frequent to within one document.

    Raises:
        TmdeError: The split is unknown.
    """
    rng = _random("documents", split, seed)
    labels = [TOPICS[place % len(TOPICS)] for place in range(num_documents)]
    rng.shuffle(labels)
    rows = []
    for place, label in enumerate(labels):
        length = rng.randint(3, 6)
        texts = _document(rng, label, length, split)
        for language in languages:
            rows.append(
                {
                    "doc_id": f"{split}-{seed}-{place:06d}",
                    "language": language,
                    "text": texts[language],
                    "label": label,
                    "split": split,
                }
            )
    features = Features({name: Value("string") for name in DOCUMENT_COLUMNS})
    return Dataset.from_list(rows, features=features)


def sample_parallel(num_rows: int = 20000, split: str = "train", seed: int = 0) -> Dataset:
    """Return parallel text to train on: single sentences, and passages of two to five sentences.

    An encoder that has only met single sentences embeds documents badly, so passages are 60% of
    the rows.

    Args:
        num_rows: As in `sample_sentences`, like the other arguments.
        split: See there.
        seed: See there.

    Returns:
        A dataset with the column `translation`, a struct with one string per language of LANGUAGES.

    Raises:
        TmdeError: As `sample_sentences`.
    """
    passages = int(num_rows * _PASSAGE_SHARE)
    texts = sample_sentences(num_rows - passages, split, seed)["translation"][:]
    rng = _random("passages", split, seed)
    for place in range(passages):
        topic = TOPICS[place % len(TOPICS)]
        length = rng.randint(2, 5)
        texts.append(_document(rng, topic, length, split))
    rng.shuffle(texts)
    return Dataset.from_dict({"translation": texts}, features=Features(_TRANSLATION))
