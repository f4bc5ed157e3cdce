"""The built-in minimal pairs: the sentences, and what an order-blind system makes of them."""

import itertools
import re
from collections import Counter

import numpy as np
import pytest

from tests.eval.fake_system import FakeSystem
from tmde.eval.contrast import evaluate_contrast
from tmde.eval.tasks import TASKS

LANGUAGES = ("de", "en", "es", "fr", "it")
ORDER = ("roles", "negation_scope", "attribute", "order")
DATA = TASKS["word_order"]().load()
IN_ORDER = [row for row, group in enumerate(DATA.groups) if group != "negation"]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def test_all_languages_and_phenomena():
    assert DATA.languages == list(LANGUAGES)
    assert DATA.controls == ("negation",)
    assert Counter(DATA.groups) == dict.fromkeys((*ORDER, "negation"), 15)


def test_ids():
    assert DATA.ids[0] == "roles-01"
    assert DATA.ids[-1] == "negation-15"
    assert len(set(DATA.ids)) == 75


def test_some_languages_and_phenomena():
    data = TASKS["word_order"]().load(languages=["fr", "de"], phenomena=["negation", "roles"])
    assert data.languages == ["fr", "de"]
    assert data.controls == ()
    assert set(data.groups) == {"roles", "negation"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_sentence_occurs_twice(language):
    texts = itertools.chain.from_iterable(DATA.texts[language])
    assert len(set(map(str.lower, texts))) == 150


@pytest.mark.parametrize("language", LANGUAGES)
def test_contrasts_begin_with_the_same_word(language):
    """Tokenizers treat the first word apart."""
    for row in IN_ORDER:
        sentence, contrast = DATA.texts[language][row]
        assert words(sentence)[0] == words(contrast)[0]


@pytest.mark.parametrize(
    ("language", "least_share"),
    [("de", 1), ("en", 1), ("es", 1), ("fr", 0.95), ("it", 0.95)],
)
def test_contrasts_have_the_same_words(language, least_share):
    has_same_words = []
    for row in IN_ORDER:
        sentence, contrast = DATA.texts[language][row]
        has_same_words.append(Counter(words(sentence)) == Counter(words(contrast)))
    assert np.mean(has_same_words) >= least_share


class Bag(dict):
    """Sum of random word vectors, in the order of the words, so that float32 rounds differently."""

    def __missing__(self, word):
        self[word] = np.random.default_rng(len(self)).normal(size=64).astype(np.float32)
        return self[word]

    def __call__(self, text):
        return sum((self[word] for word in words(text)), np.zeros(64, dtype=np.float32))


@pytest.fixture(scope="module")
def bag_cells():
    return evaluate_contrast(DATA, FakeSystem(Bag()))


def test_a_bag_of_words_gets_exactly_half(bag_cells):
    for cell in bag_cells:
        assert cell.value == 0.5
        assert cell.outcomes.tolist() == [0.5] * 60


def test_a_bag_of_words_gets_half_of_each_phenomenon(bag_cells):
    for cell in bag_cells:
        for group in ORDER:
            assert cell.extra[f"accuracy_of_{group}"] == 0.5


def test_nearly_all_choices_of_a_bag_of_words_are_ties(bag_cells):
    for cell in bag_cells:
        assert cell.extra["ties"] >= 0.95
