"""The built-in minimal pairs: the sentences themselves, and what an order-blind and a perfect system make of them."""

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
SENTENCES = {code: [text for item in items for text in item] for code, items in DATA.texts.items()}


def words(text):
    return re.findall(r"\w+", text)


def test_languages_and_phenomena():
    assert DATA.languages == list(LANGUAGES) and DATA.controls == ("negation",)
    assert Counter(DATA.groups) == dict.fromkeys((*ORDER, "negation"), 15)
    assert DATA.ids[0] == "roles-01" and DATA.ids[-1] == "negation-15" and len(set(DATA.ids)) == 75
    data = TASKS["word_order"]().load(languages=["fr", "de"], phenomena=["negation", "roles"])
    assert (data.languages, data.controls, set(data.groups)) == (
        ["fr", "de"],
        (),
        {"roles", "negation"},
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_contrasts_have_the_same_words(language):
    assert len({sentence.lower() for sentence in SENTENCES[language]}) == 150
    same = []
    for row in IN_ORDER:
        a, b = DATA.texts[language][row]
        assert words(a)[0] == words(b)[0]  # tokenizers treat the first word apart
        same.append(Counter(words(a)) == Counter(words(b)))
    assert np.mean(same) == 1 if language in ("de", "en", "es") else np.mean(same) >= 0.95


class Bag(dict):
    """Sum of random word vectors in the order of the words, so that float32 rounds it differently."""

    def __missing__(self, word):
        self[word] = np.random.default_rng(len(self)).normal(size=64).astype(np.float32)
        return self[word]

    def __call__(self, text):
        return sum((self[word] for word in words(text)), np.zeros(64, dtype=np.float32))


def test_a_bag_of_words_gets_exactly_half():
    for cell in evaluate_contrast(DATA, FakeSystem(Bag())):
        assert cell.value == 0.5 and set(cell.outcomes) == {0.5} and len(cell.outcomes) == 60
        assert all(cell.extra[f"accuracy_of_{group}"] == 0.5 for group in ORDER)
        assert cell.extra["ties"] >= 0.95
