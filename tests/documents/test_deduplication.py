"""Duplicates: by hand, against plain loops, and translations of the built-in sample."""

import random
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde import TmdeError
from tests.conftest import nightly_except
from tests.strange_texts import SAMPLES
from tmde.data.sample import sample_sentences
from tmde.documents import signature_bands
from tmde.documents.deduplication import MIN_SIMILARITY, DuplicateFinder, Group, Kind, Match
from tmde.documents.signature_bands import SignatureBands, longest_band, resemblance, shingles
from tmde.embedding.document_embedder import DocumentEmbedder, EncodeOutput, EncodeReport


def groups_of(texts, min_similarity=MIN_SIMILARITY, min_words=0):
    return DuplicateFinder(min_similarity, min_words=min_words).groups(texts)


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


# ---- Short texts, and rows of a translation memory


def repeated(*texts):
    """Whether the second text repeats the first one, by default."""
    return bool(DuplicateFinder().groups(list(texts)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The changed lines are shown in green.", "The changed lines are shown in red."),
        ("Open the file in the upper left corner.", "Open the file in the upper lefty corner."),
        ("Do not show this message again, please", "Do show this message again, please"),
        ("A guide for all who write in C++ today", "A guide for all who write in C# today"),
        ("A board of 3.5 cm for the living room", "A board of 35 cm for the living room"),
        ("The temperature of the day was 15 degrees", "The temperature of the day was -15 degrees"),
    ],
)
def test_short_texts_of_different_words_are_different(first, second):
    assert groups_of([first, second])
    assert not repeated(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The bridge is closed until Friday.", "the bridge is closed until friday!"),
        (
            "The city says that the bridge over the river is “closed”, and that nobody may use it.",
            'The city says that the bridge over the river is "closed", and that nobody may use it!',
        ),
    ],
)
def test_short_texts_of_the_same_words_are_near_duplicates(first, second):
    assert repeated(first, second)


def test_a_long_text_may_differ_in_words():
    words = [f"word{number * 7919}" for number in range(50)]
    assert repeated(" ".join(words), " ".join([*words, "more"]))
    assert not repeated(" ".join(words[1:]), " ".join([*words[1:], "more"]))


def test_rows_repeat_each_other_if_all_their_texts_do():
    rows = [
        ("Open the file.", "Öffnen Sie die Datei."),
        ("Open the file.", "Datei öffnen"),
        ("OPEN the  file.", "öffnen Sie die Datei."),
        ("Open the file!", "Öffnen Sie die Datei!"),
        ("Open the file!", "Schließen Sie die Datei!"),
        ("Datei öffnen", "Open the file."),
        ("", ""),
        (" ", ""),
    ]
    (group,) = DuplicateFinder().groups(rows)
    assert group.kept == 0
    assert [(match.document, match.kind) for match in group.duplicates] == [
        (2, Kind.COPY),
        (3, Kind.NEAR_DUPLICATE),
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.3, 0.5, 0.8]))
def test_no_pair_of_similar_rows_is_missed(seed, least):
    """Two rows share a band whose texts are all similar."""
    rng = random.Random(seed)
    templates = [random_words(rng, 4) for _ in range(3)]
    rows = []
    for _ in range(40):
        row = []
        for _ in range(2):
            letters = list(rng.choice(templates))
            for _ in range(rng.randrange(4)):
                letters[rng.randrange(len(letters))] = rng.choice("wxyz")
            row.append("".join(letters))
        rows.append(tuple(row))
    rows = list(dict.fromkeys(rows))
    expected = {}
    kept = []
    for number, row in enumerate(rows):
        similarities = {}
        for other in kept:
            parts = zip(row, rows[other], strict=True)
            similarities[other] = min(resemblance(shingles(a), shingles(b)) for a, b in parts)
        best = max(similarities, key=similarities.__getitem__, default=None)
        if best is not None and similarities[best] >= least:
            expected[number] = best, similarities[best]
        else:
            kept.append(number)
    assert links_of(groups_of(rows, least)) == expected


# ---- Every pair is found


def plain_links(texts, least):
    """The same by comparing all texts with all that are kept."""
    kept = []
    links = {}
    for number, text in enumerate(texts):
        shingles = {text[begin : begin + 5] for begin in range(max(len(text) - 4, 1))}
        best = None
        for other, others in kept:
            similarity = len(shingles & others) / len(shingles | others)
            if similarity >= least and (best is None or similarity > best[1]):
                best = other, similarity
        if best is None:
            kept.append((number, shingles))
        else:
            links[number] = best
    return links


def links_of(groups):
    links = {}
    for group in groups:
        for match in group.duplicates:
            links[match.document] = group.kept, match.score
    return links


def is_repeated(texts):
    """Whether a second run removes further texts."""
    removed = links_of(groups_of(texts))
    kept = [text for number, text in enumerate(texts) if number not in removed]
    return bool(groups_of(kept))


def random_words(rng, count):
    return " ".join("".join(rng.choices("abcdefghijklmnop", k=6)) for _ in range(count))


@pytest.mark.parametrize("fixed_words", nightly_except([12], [8, 12, 16]))
def test_variants_of_a_template_among_other_texts(fixed_words):
    """Of 400 texts with one template, one is kept, or as many as differ enough."""
    rng = random.Random(fixed_words)
    template = random_words(rng, fixed_words)
    texts = [random_words(rng, 14) for _ in range(600)]
    texts += [f"{template} {random_words(rng, 2)}" for _ in range(400)]
    rng.shuffle(texts)
    expected = plain_links(texts, 0.7)
    assert links_of(groups_of(texts)) == expected
    if fixed_words > 8:
        assert len(expected) == 399
    assert not is_repeated(texts)


@pytest.mark.parametrize(
    ("count", "page"),
    [
        (1000, "report {number} of {date}: all is well."),
        (
            3000,
            "report {number} of {date}: the sky was clear, with some clouds in the afternoon, and "
            "the wind was weak. values are measured every hour, and published on the next day.",
        ),
    ],
)
def test_pages_that_differ_in_date_and_number(count, page):
    """Short ones differ too much in these to be all one group."""
    rng = random.Random(0)
    pages = {}
    while len(pages) < count:
        date = f"20{rng.randrange(10, 30)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
        pages[page.format(number=rng.randrange(10**6), date=date)] = None
    texts = list(pages)
    assert links_of(groups_of(texts)) == plain_links(texts, 0.7)
    assert not is_repeated(texts)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60), st.sampled_from([0.3, 0.5, 0.8, 1]))
def test_against_plain_loops(seed, count, least):
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
    assert links_of(groups_of(texts, least)) == plain_links(texts, least)


@given(st.lists(st.one_of(st.text(max_size=30), st.sampled_from(SAMPLES)), unique=True))
@settings(max_examples=100, deadline=None)
def test_texts_of_any_characters(texts):
    """A text and itself with another case are copies; none is compared with an empty one."""
    for group in groups_of([*texts, *texts]):
        numbers = [group.kept, *(match.document for match in group.duplicates)]
        assert len(set(numbers)) == len(numbers)
        assert group.kept < len(texts)


# ---- Bands of signatures


def bands_of(texts, least, tmp_path):
    return SignatureBands(texts, len(texts), least, tmp_path)


@pytest.mark.parametrize(("least", "length"), [(0.1, 1), (0.3, 2), (0.5, 3), (0.7, 6), (1, 384)])
def test_the_length_of_a_band(least, length):
    """The longest with which a pair of this resemblance is missed once in a thousand times."""
    assert longest_band(least) == length
    assert (1 - least**length) ** (384 // length) <= 1e-3
    assert length == 384 or (1 - least ** (length + 1)) ** (384 // (length + 1)) > 1e-3


def test_signatures_agree_as_texts_resemble_each_other(tmp_path):
    """The share of equal numbers is within four standard deviations of the resemblance."""
    rng = random.Random(3)
    texts = []
    for length in (20, 60, 300, 2000):
        first = "".join(rng.choices("abcdefghijklmnop", k=length))
        letters = list(first)
        for _ in range(max(length // 50, 1)):
            letters[rng.randrange(length)] = "z"
        texts += [first, "".join(letters)]
    bands_of(texts, 0.7, tmp_path)
    signatures = np.load(tmp_path / "signatures.npy")
    for place in range(0, len(texts), 2):
        expected = resemblance(shingles(texts[place]), shingles(texts[place + 1]))
        agreement = np.mean(signatures[place] == signatures[place + 1])
        assert 0.5 < expected < 1
        assert abs(agreement - expected) < 4 * (expected * (1 - expected) / 384) ** 0.5


def test_texts_without_anything_in_common_share_no_band(tmp_path):
    rng = random.Random(0)
    texts = [random_words(rng, 20) for _ in range(300)]
    texts.append(texts[7].replace("a", "z", 1))
    shared = dict(bands_of(texts, 0.7, tmp_path).shared())
    assert list(shared) == [7, 300]
    assert shared[7].tolist() == shared[300].tolist()


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
    finder = DuplicateFinder()
    tracemalloc.start()
    finder.groups(Sentences(count))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.nightly
def test_memory_for_a_document(monkeypatch):
    """A text of 120 characters is an object of 170 bytes, and its signature has 1,536."""
    monkeypatch.setattr(signature_bands, "_BLOCK", 512)
    more = 4096
    peaks = [peak_of_groups(count) for count in (2 * 4096, 2 * 4096 + more)]
    assert (peaks[1] - peaks[0]) / more < 300


def test_blocks_of_texts_are_joined(monkeypatch):
    texts = ["abcdefgh", "ijklmnop", "qrstuvwx", "yzyzyzyz", "abcdefgx", "ijklmnox", "qrstuvwy"]
    expected = groups_of(texts, min_similarity=0.5)
    assert [group.kept for group in expected] == [0, 1, 2]
    monkeypatch.setattr(signature_bands, "_BLOCK", 2)
    assert groups_of(texts, min_similarity=0.5) == expected


def test_temporary_files_are_removed(tmp_path):
    finder = DuplicateFinder(folder=tmp_path)
    assert finder.groups(["abcdefgh", "abcdefgh"])
    assert not list(tmp_path.iterdir())


def test_temporary_files_are_removed_after_an_interruption(tmp_path, monkeypatch):
    def interrupted(bands):
        assert list(tmp_path.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(SignatureBands, "shared", interrupted)
    with pytest.raises(KeyboardInterrupt):
        DuplicateFinder(folder=tmp_path).groups(["abcdefgh"])
    assert not list(tmp_path.iterdir())


def test_nothing_to_compare():
    assert groups_of([]) == []
    assert groups_of(["", " "]) == []
    assert groups_of(["one"]) == []


def test_translations():
    rows = sample_sentences(60, "test", seed=5)["translation"]
    texts = [row["de"] for row in rows] + [row["en"] for row in rows[:30]]
    languages = ["de"] * 60 + ["en"] * 30
    finder = DuplicateFinder(0.999, embedder=DocumentEmbedder.from_pretrained(device="cpu"))
    translations = []
    for group in finder.groups(texts, languages):
        for match in group.duplicates:
            if match.kind is Kind.TRANSLATION:
                assert match.score >= 0.4
                translations.append(match.document - 60 == group.kept)
    assert len(translations) >= 20
    assert all(translations)


class FixedVectors:
    """Embeds texts as given vectors."""

    dimension = 3

    def __init__(self, vectors):
        self.vectors = vectors

    def encode_iter_with_reports(self, texts, language, **options):
        vectors = np.array([self.vectors[text] for text in texts], np.float32)
        yield EncodeOutput(vectors, EncodeReport(texts=len(texts)))


def finder_of_translations(vectors, **options):
    finder = DuplicateFinder(**options, min_words=0, embedder=FixedVectors(vectors))
    return finder


def test_a_group_has_all_languages():
    """Joined by pairs: de and fr are not distinct enough, but both are near to en."""
    vectors = {
        "one": [1, 0, 0],
        "eins": [0.96, 0.28, 0],
        "un": [0.96, -0.28, 0],
        "two": [0, 0, 1],
        "zwei": [0, 0, 1],
        "deux": [0.99, -0.14, 0],
    }
    languages = ["en", "de", "fr", "en", "de", "fr"]
    finder = finder_of_translations(vectors, min_distinctness=0.3)
    first, second = finder.groups(list(vectors), languages)
    # `deux` is nearer to `one`, and takes the place of `un`: a group has one text of a language.
    assert (first.kept, [match.document for match in first.duplicates]) == (0, [1, 5])
    assert (second.kept, [match.document for match in second.duplicates]) == (3, [4])
    assert {match.kind for match in first.duplicates} == {Kind.TRANSLATION}


def test_the_first_document_of_a_group_is_kept():
    vectors = {"un": [1, 0, 0], "eins": [1, 0, 0], "one": [1, 0, 0]}
    (group,) = finder_of_translations(vectors).groups(list(vectors), ["fr", "de", "en"])
    assert group == Group(0, [Match(1, Kind.TRANSLATION, 1.0), Match(2, Kind.TRANSLATION, 1.0)])


def test_documents_of_one_subject_are_no_translations():
    """Each is nearest to the other, and not nearer than to a third."""
    vectors = {"one": [1, 0.1, 0], "two": [1, 0, 0.1], "drei": [1, 0, 0]}
    assert finder_of_translations(vectors).groups(list(vectors), ["en", "en", "de"]) == []


def test_a_translation_of_a_near_duplicate_is_one_of_what_is_kept():
    """The German text is nearest to the second one, which is removed before."""
    vectors = {"abcdefgh": [1, 0, 0], "abcdefgx": [0.8, 0.6, 0], "Text": [0.8, 0.6, 0]}
    finder = finder_of_translations(vectors, min_similarity=0.5)
    (group,) = finder.groups(["abcdefgh", "abcdefgx", "Text"], ["en", "en", "de"])
    assert group.kept == 0
    assert [match.kind for match in group.duplicates] == [Kind.NEAR_DUPLICATE, Kind.TRANSLATION]


def test_texts_in_unknown_languages_are_not_embedded():
    """They are no translations, but still copies and near-duplicates."""
    vectors = {"abcdefgh": [1, 0, 0], "Text": [1, 0, 0]}
    finder = finder_of_translations(vectors, min_similarity=0.5)
    texts = ["abcdefgh", "Text", "unknown", "unknowns"]
    first, second = finder.groups(texts, ["en", "de", "", ""])
    assert first == Group(0, [Match(1, Kind.TRANSLATION, pytest.approx(1, abs=1e-3))])
    assert [match.kind for match in second.duplicates] == [Kind.NEAR_DUPLICATE]


def test_errors():
    with pytest.raises(TmdeError, match="min_similarity: found 0, expected a number above 0"):
        DuplicateFinder(0)
    with pytest.raises(TmdeError, match="min_distinctness: found 2, expected 0 to 1"):
        DuplicateFinder(min_distinctness=2)
    finder = DuplicateFinder(embedder=FixedVectors({}))
    with pytest.raises(TmdeError, match="languages: expected one per text"):
        finder.groups(["a", "b"])
    with pytest.raises(TmdeError, match="languages: expected one per text"):
        DuplicateFinder().groups(["a", "b"], ["de", "en"])
