"""Duplicates: by hand, against plain loops, and translations of the built-in sample."""

import random
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde import TmdeError
from tests.strange_texts import SAMPLES
from tmde.data.sample import sample_sentences
from tmde.documents import deduplication
from tmde.documents.calibration import EVIDENCE, Calibration
from tmde.documents.deduplication import NEIGHBORS, DuplicateFinder, Group, Kind, Match
from tmde.documents.shingles import ShingleSketches, resemblance, shingles
from tmde.embedding.document_embedder import DocumentEmbedder


class Letters:
    """Embeds a text as the counts of its letters."""

    dimension = 26

    def encode_iter(self, texts, chunk_size, show_progress_bar, total, language):
        for start in range(0, len(texts), chunk_size):
            yield self.encode(texts[start : start + chunk_size])

    def encode(self, texts):
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

    dimension = 8

    def encode_iter(self, texts, chunk_size, show_progress_bar, total, language):
        yield np.random.default_rng(0).normal(size=(len(texts), 8))


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


def nearest_texts(vectors):
    """The ten nearest of each text and those that it is one of the ten nearest of."""
    count = len(vectors)
    near = [set() for _ in range(count)]
    for row in range(count):
        cosines = [float(vectors[row] @ vectors[other]) for other in range(count)]
        order = sorted(range(count), key=lambda other: -cosines[other])
        for other in order[: NEIGHBORS + 1]:
            if other != row:
                near[row].add(other)
                near[other].add(row)
    return near


def compared_in_rounds(texts, vectors, least):
    """The text that each one repeats and their similarity; every text is looked at every time."""
    near = nearest_texts(vectors)
    links = {}
    for _ in range(10):
        before = dict(links)
        for row, text in enumerate(texts):
            best = None
            for neighbor in near[row]:
                other = links[neighbor][0] if neighbor in links else neighbor
                if other >= row or other in links:
                    continue
                first = {text[begin : begin + 5] for begin in range(max(len(text) - 4, 1))}
                second_text = texts[other]
                second = {
                    second_text[begin : begin + 5] for begin in range(max(len(second_text) - 4, 1))
                }
                similarity = len(first & second) / len(first | second)
                if similarity >= least and (best is None or (-similarity, other) < best):
                    best = -similarity, other
            links.pop(row, None)
            if best is not None:
                links[row] = best[1], -best[0]
        if links == before:
            break
    return links


class FixedVectors:
    """Embeds texts as given vectors."""

    def __init__(self, vectors):
        self.vectors = np.asarray(vectors)
        self.dimension = self.vectors.shape[1]

    def encode_iter(self, texts, chunk_size, show_progress_bar, total, language):
        yield self.vectors


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60), st.sampled_from([0.3, 0.5, 0.8]))
def test_against_rounds_of_plain_loops(seed, count, least):
    """Texts of a few templates with changes, so that groups are large and many texts nearly fit."""
    rng = random.Random(seed)
    templates = ["".join(rng.choices("abcd", k=rng.randrange(5, 40))) for _ in range(3)]
    texts = []
    while len(texts) < count:
        letters = list(rng.choice(templates))
        for _ in range(rng.randrange(4)):
            letters[rng.randrange(len(letters))] = rng.choice("wxyz")
        texts.append("".join(letters))
    texts = list(dict.fromkeys(texts))
    vectors = np.random.default_rng(seed).normal(size=(len(texts), 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rounded = vectors.astype(np.float16).astype(np.float64)
    rounded /= np.linalg.norm(rounded, axis=1, keepdims=True)
    links = {}
    for group in DuplicateFinder(FixedVectors(vectors), least).groups(texts):
        for match in group.duplicates:
            links[match.document] = group.kept, match.score
    assert links == compared_in_rounds(texts, rounded, least)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.text("ab", max_size=30), st.text(max_size=30), st.sampled_from(SAMPLES))),
    st.floats(0.01, 1),
)
def test_sketches_never_exclude_similar_texts(tmp_path_factory, texts, least):
    path = tmp_path_factory.mktemp("sketches") / "sketches.npy"
    sketches = ShingleSketches(texts, len(texts), path)
    first, second = np.indices((len(texts), len(texts))).reshape(2, -1)
    may_resemble = sketches.may_resemble(first, second, least)
    for row, other, may in zip(first, second, may_resemble, strict=True):
        assert may or resemblance(shingles(texts[row]), shingles(texts[other])) < least


def test_sketches_exclude_most_other_texts(tmp_path):
    rng = random.Random(0)
    texts = ["".join(rng.choices("abcdefghijkl ", k=length)) for length in (80, 90, 900, 1000)]
    texts.append(texts[0].replace("a", "b", 1))
    sketches = ShingleSketches(texts, len(texts), tmp_path / "sketches.npy")
    pairs = np.array([[0, 4], [0, 1], [2, 3], [0, 3]])
    found = sketches.may_resemble(pairs[:, 0], pairs[:, 1], 0.7)
    assert found.tolist() == [True, False, False, False]


class Sentences(Sequence):
    """Sentences that are made when they are asked for."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        if number >= self.count:
            raise IndexError(number)
        return f"{number * 7919 % 100003} " * 20


def peak_of_groups(count):
    """The most memory of Python and numpy while so many documents are compared, in bytes."""
    finder = DuplicateFinder(Letters())
    tracemalloc.start()
    finder.groups(Sentences(count))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_for_a_document():
    """A text of 120 characters is an object of 170 bytes, and its vector has 104 in float32."""
    more = 4096
    peaks = [peak_of_groups(count) for count in (2 * 4096, 2 * 4096 + more)]
    assert (peaks[1] - peaks[0]) / more < 300


def test_chunks_of_documents_are_joined(monkeypatch):
    texts = ["abcdefgh", "ijklmnop", "qrstuvwx", "yzyzyzyz", "abcdefgx", "ijklmnox", "qrstuvwy"]
    expected = groups_of(texts, min_similarity=0.5)
    assert [group.kept for group in expected] == [0, 1, 2]
    monkeypatch.setattr(deduplication, "_CHUNK", 2)
    monkeypatch.setattr(deduplication, "NEIGHBORS", 1)  # Wrong vectors have wrong neighbors.
    assert groups_of(texts, min_similarity=0.5) == expected


def test_temporary_files_are_removed(tmp_path):
    finder = DuplicateFinder(Letters(), folder=tmp_path)
    assert finder.groups(["abcdefgh", "abcdefgh"])
    assert not list(tmp_path.iterdir())

    class Failing:
        dimension = 2

        def encode_iter(self, texts, chunk_size, show_progress_bar, total, language):
            assert list(tmp_path.iterdir())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DuplicateFinder(Failing(), folder=tmp_path).groups(["abcdefgh"])
    assert not list(tmp_path.iterdir())


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
    embedder = FixedVectors([[1, 0, 0], [0.8, 0.6, 0], [0.8, 0.6, 0]])
    finder = DuplicateFinder(embedder, min_similarity=0.5, min_probability=0.5)
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
