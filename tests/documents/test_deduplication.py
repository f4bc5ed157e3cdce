"""Duplicates: by hand, against plain loops, and translations of the built-in sample."""

import random

import numpy as np
import pytest

from modeling_tmde import TmdeError
from tmde.data.sample import sample_sentences
from tmde.documents.calibration import EVIDENCE, Calibration
from tmde.documents.deduplication import DuplicateFinder, Group, Kind, Match
from tmde.embedding.document_embedder import DocumentEmbedder


class Letters:
    """Embeds a text as the counts of its letters."""

    def encode(self, texts, language=None, show_progress_bar=None):
        vectors = np.zeros((len(texts), 26), np.float32)
        for row, text in enumerate(texts):
            for letter in text.lower():
                if letter.isascii() and letter.isalpha():
                    vectors[row, ord(letter) - ord("a")] += 1
        return vectors


def groups_of(texts, **options):
    return DuplicateFinder(Letters(), **options).groups(texts)


def test_copies():
    groups = groups_of(["It rains.", "The sun", "it  RAINS. ", "", "the sun", " ", "It rains!"])
    first, second = groups
    assert first.kept == 0
    assert first.duplicates[0] == Match(2, Kind.COPY, 1.0)
    assert second == Group(1, [Match(4, Kind.COPY, 1.0)])


def test_the_similarity_by_hand():
    """`abcdefgh` has four sequences of five characters, and `abcdefgx` three of them."""
    (group,) = groups_of(["abcdefgh", "abcdefgx"], min_similarity=0.6)
    assert group == Group(0, [Match(1, Kind.NEAR_DUPLICATE, 3 / 5)])
    assert groups_of(["abcdefgh", "abcdefgx"], min_similarity=0.61) == []


def test_no_chain():
    """The third text is near to the second, which is removed, and not to the first."""
    texts = ["abcdefghijklmnop", "abcdefghijklmnopqrs", "abcdefghijklmnopqrstuv"]
    groups = groups_of(texts, min_similarity=0.75)
    assert groups == [Group(0, [Match(1, Kind.NEAR_DUPLICATE, 12 / 15)])]


def test_a_copy_of_a_near_duplicate_goes_with_it():
    (group,) = groups_of(["abcdefgh", "abcdefgx", "ABCDEFGX"], min_similarity=0.5)
    assert [match.document for match in group.duplicates] == [1, 2]
    assert [match.kind for match in group.duplicates] == [Kind.NEAR_DUPLICATE] * 2


class RandomVectors:
    """Embeds texts as random directions."""

    def encode(self, texts, language=None, show_progress_bar=None):
        return np.random.default_rng(0).normal(size=(len(texts), 8))


def test_a_large_group_has_one_document_that_is_kept():
    """Pages of one template: most of them are nearer to each other than to the first one."""
    rng = random.Random(1)
    texts = [f"The item number {rng.random():.9f} is sold out in all shops" for _ in range(200)]
    (group,) = DuplicateFinder(RandomVectors(), min_similarity=0.5).groups(texts)
    assert group.kept == 0
    assert len(group.duplicates) == 199


def plain_links(texts, least):
    """The same by comparing all texts with all that are kept."""
    kept = []
    links = {}
    for number, text in enumerate(texts):
        shingles = {text[begin : begin + 5] for begin in range(max(len(text) - 4, 1))}
        best = None
        for other, others in kept:
            similarity = len(shingles & others) / len(shingles | others)
            if similarity >= least and (best is None or similarity > best[0]):
                best = similarity, other
        if best is None:
            kept.append((number, shingles))
        else:
            links[number] = best[1]
    return links


def test_against_plain_loops():
    rng = random.Random(0)
    texts = ["".join(rng.choices("abcdefgh", k=40)) for _ in range(30)]
    for number in rng.choices(range(30), k=40):
        letters = list(texts[number])
        letters[rng.randrange(40)] = rng.choice("xyz")
        texts.append("".join(letters))
    texts = list(dict.fromkeys(texts))
    links = {}
    for group in groups_of(texts, min_similarity=0.6):
        for match in group.duplicates:
            links[match.document] = group.kept
    expected = plain_links(texts, 0.6)
    assert len(expected) > 20
    assert links == expected


def test_nothing_to_compare():
    assert groups_of([]) == []
    assert groups_of(["", " "]) == []
    assert groups_of(["one"]) == []


def test_translations():
    rows = sample_sentences(60, "test", seed=5)["translation"]
    texts = [row["de"] for row in rows] + [row["en"] for row in rows[:30]]
    languages = ["de"] * 60 + ["en"] * 30
    embedder = DocumentEmbedder.from_pretrained(device="cpu")
    finder = DuplicateFinder(
        embedder, 0.999, Calibration.from_pretrained("default"), min_probability=0.5
    )
    translations = []
    for group in finder.groups(texts, languages):
        for match in group.duplicates:
            if match.kind is Kind.TRANSLATION:
                assert match.score >= 0.5
                translations.append(match.document - 60 == group.kept)
    assert len(translations) >= 20
    assert all(translations)


def test_a_translation_of_a_near_duplicate_is_one_of_what_is_kept():
    """The German text is nearest to the second one, which is removed before."""

    class Vectors:
        def encode(self, texts, language=None, show_progress_bar=None):
            return np.array([[1, 0, 0], [0.8, 0.6, 0], [0.8, 0.6, 0]])

    finder = DuplicateFinder(Vectors(), min_similarity=0.5, min_probability=0.5)
    certain = {"intercept": 9.0, "probe_cosines": [], "weights": dict.fromkeys(EVIDENCE, 0.0)}
    finder.calibration = Calibration.from_pretrained("default").model_copy(update=certain)
    (group,) = finder.groups(["abcdefgh", "abcdefgx", "Text"], ["en", "en", "de"])
    assert group.kept == 0
    assert [match.kind for match in group.duplicates] == [Kind.NEAR_DUPLICATE, Kind.TRANSLATION]


def test_errors():
    with pytest.raises(TmdeError, match="min_similarity: found 0, expected a number above 0"):
        DuplicateFinder(Letters(), 0)
    with pytest.raises(TmdeError, match="min_probability: found 2, expected 0 to 1"):
        DuplicateFinder(Letters(), min_probability=2)
    embedder = DocumentEmbedder.from_pretrained(device="cpu")
    finder = DuplicateFinder(embedder, calibration=Calibration.from_pretrained("default"))
    with pytest.raises(TmdeError, match="languages: found none, expected one for each text"):
        finder.groups(["a", "b"])
