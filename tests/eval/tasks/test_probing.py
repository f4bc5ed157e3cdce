"""Probing: the published files, and what is generated from text."""

import itertools
import json
import random
import string
from collections import Counter
from pathlib import Path

import pytest

from tmde.eval.classification import evaluate_classification
from tmde.eval.planning import plan_tasks
from tmde.eval.results import pairs_of, values_of
from tmde.eval.systems import CharacterTfidf
from tmde.eval.tasks import GROUPS, TASKS, ClassificationData, TaskError

NAMES = ("sentlen", "wc", "bshift", "somo")
LANGUAGES = ("en", "fr")


def made_up_words(stem: str) -> list[str]:
    endings = itertools.product(string.ascii_lowercase, repeat=2)
    return [stem + first + second for first, second in itertools.islice(endings, 150)]


@pytest.fixture
def corpus(tmp_path) -> str:
    """600 sentences in two languages over a small grammar, so that bigrams recur."""
    rng = random.Random(0)
    nouns = made_up_words("noun")
    verbs = made_up_words("verb")
    lines = []
    for number in range(600):
        words = []
        for _ in range(7):
            words += ["the", rng.choice(nouns), rng.choice(verbs), "and"]
        words = words[: rng.randint(3, 26)]
        text = f"Well {' '.join(words)} {number}."
        lines.append(json.dumps({"en": text, "fr": text.replace("the", "le")}))
    path = tmp_path / "text.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def originals(corpus) -> dict[str, set[str]]:
    """The sentences of the corpus by language."""
    sentences = {"en": set(), "fr": set()}
    for line in Path(corpus).read_text().splitlines():
        row = json.loads(line)
        for language in LANGUAGES:
            sentences[language].add(row[language])
    return sentences


def load(name: str, corpus: str) -> ClassificationData:
    return TASKS[f"probing_{name}"]().load(corpus)


def labeled_texts(data: ClassificationData) -> list[tuple[str, str, str, str]]:
    """Language, split, label and text of every item."""
    items = []
    for language, splits in data.splits.items():
        for name, split in splits.items():
            for label, text in zip(split.labels, split.texts, strict=True):
                items.append((language, name, label, text))
    return items


@pytest.mark.parametrize("name", NAMES)
def test_generated_tasks_have_all_languages_and_splits(name, corpus):
    data = load(name, corpus)
    assert data.languages == list(LANGUAGES)
    for splits in data.splits.values():
        assert list(splits) == ["train", "dev", "test"]
        assert len(splits["train"]) >= 30


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_generates_one_task(name, corpus):
    assert labeled_texts(load(name, corpus)) == labeled_texts(load(name, corpus))


@pytest.mark.parametrize("name", ["sentlen", "bshift", "somo"])
def test_labels_are_balanced_in_each_split(name, corpus):
    for splits in load(name, corpus).splits.values():
        for split in splits.values():
            assert len(set(Counter(split.labels).values())) == 1


def test_a_row_and_its_translation_are_in_one_split(corpus):
    data = load("sentlen", corpus)
    translations = {text.replace("the", "le") for text in data.splits["en"]["test"].texts}
    assert translations & {*data.splits["fr"]["test"].texts}
    assert not translations & {*data.splits["fr"]["train"].texts}


def test_sentence_length_is_the_bin_of_the_number_of_words(corpus, originals):
    for language, _, label, text in labeled_texts(load("sentlen", corpus)):
        shortest = 5 + 4 * int(label)
        assert shortest <= len(text.split()) <= shortest + 3
        assert text in originals[language]


def test_word_content_is_the_one_word_that_a_sentence_holds(corpus, originals):
    for language, _, label, text in labeled_texts(load("wc", corpus)):
        assert text.split().count(label) == 1
        assert text in originals[language]


@pytest.mark.parametrize("name", ["bshift", "somo"])
def test_original_sentences_are_as_they_were(name, corpus, originals):
    for language, _, label, text in labeled_texts(load(name, corpus)):
        if label == "original":
            assert text in originals[language]


def test_one_swap_of_neighbors_undoes_an_inversion(corpus, originals):
    for language, _, label, text in labeled_texts(load("bshift", corpus)):
        if label != "inverted":
            continue
        words = text.split()
        undone = 0
        for i in range(1, len(words) - 2):
            swapped = [*words[:i], words[i + 1], words[i], *words[i + 2 :]]
            undone += " ".join(swapped) in originals[language]
        assert undone == 1


def replacements(data: ClassificationData, originals: dict[str, set[str]]):
    """Language, split, the old and the new words of every replaced item."""
    for language, split, label, text in labeled_texts(data):
        if label != "replaced":
            continue
        words = text.split()
        number = words[-1]  # It tells the original.
        (original,) = [text for text in originals[language] if text.endswith(f" {number}")]
        pairs = zip(original.split(), words, strict=True)
        yield language, split, [(old, new) for old, new in pairs if old != new]


def test_one_noun_or_verb_is_replaced_by_another(corpus, originals, monkeypatch):
    monkeypatch.setattr("tmde.eval.tasks.probing.COMMON_WORDS", 3)
    for _, _, changes in replacements(load("somo", corpus), originals):
        ((old, new),) = changes
        assert old[:4] == new[:4]


def test_no_replacement_occurs_in_two_splits(corpus, originals, monkeypatch):
    monkeypatch.setattr("tmde.eval.tasks.probing.COMMON_WORDS", 3)
    split_of: dict[tuple[str, str], str] = {}
    for language, split, changes in replacements(load("somo", corpus), originals):
        for _, new in changes:
            assert split_of.setdefault((language, new), split) == split


def test_words_of_one_language_are_refused_where_another_would_be_tested(corpus):
    with pytest.raises(TaskError, match="protocol leave-one-out with labels in one language"):
        evaluate_classification(load("wc", corpus), CharacterTfidf(), protocol="leave-one-out")


def test_words_are_asked_for_in_their_own_language_only(corpus):
    cells = evaluate_classification(load("wc", corpus), CharacterTfidf(), "logistic_regression")
    assert pairs_of(cells) == [("en", "en"), ("fr", "fr")]
    assert min(values_of(cells)) > 0.9  # TF-IDF sees words.


@pytest.fixture
def published(tmp_path) -> Path:
    """A folder with all published files."""
    lines = []
    for split in ("tr", "va", "te"):
        for label in "AB":
            lines.append(f"{split}\t{label}\ta sentence {label} .")
    for name in GROUPS["probing"]:
        (tmp_path / TASKS[name].file).write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_group_plans_all_ten_tasks(published):
    plans = plan_tasks([f"probing={published}"])
    assert [plan.name for plan in plans] == GROUPS["probing"]
    assert len(plans) == 10


@pytest.mark.parametrize("name", GROUPS["probing"])
def test_published_files(name, published):
    data = TASKS[name]().load(published)
    assert data.languages == ["en"]
    assert data.provenance.split == "test"
    for split in data.splits["en"].values():
        assert list(split.labels) == ["A", "B"]
        assert list(split.texts) == ["a sentence A .", "a sentence B ."]


def test_an_unpublished_split_is_named_with_file_and_row(tmp_path):
    path = tmp_path / "bigram_shift.txt"
    path.write_text("tr\tI\ta sentence\ntrain\tO\tanother\n")
    with pytest.raises(TaskError, match=r"bigram_shift.txt.*2.*tr, va or te"):
        TASKS["probing_bshift"]().load(path)


def test_a_file_without_every_split_has_too_little_text(tmp_path):
    path = tmp_path / "bigram_shift.txt"
    path.write_text("te\tI\ta sentence\n")
    message = "found too little text in en, expected sentences of every label"
    with pytest.raises(TaskError, match=message):
        TASKS["probing_bshift"]().load(path)


def test_a_task_of_a_parser_cannot_be_generated(corpus):
    with pytest.raises(TaskError, match="parser's"):
        load("tense", corpus)


def test_without_a_source_the_error_says_what_to_pass():
    with pytest.raises(TaskError, match="SentEval's probing files"):
        TASKS["probing_tense"]().load()
