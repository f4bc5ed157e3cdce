"""Alignment of documents: against sorting all scores, by URL, and within websites."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.documents.plain import plain_scores
from tmde.documents import competitive_matching
from tmde.documents.alignment import AlignedPair, align_documents
from tmde.documents.neighbors import SCORINGS
from tmde.documents.quality import alignment_quality
from tmde.documents.urls import match_urls, strip_language_markers, website


def sorted_all(scores):
    """The protocol of WMT16, to the letter: (i, j, score), best first."""
    cells = []
    for (i, j), score in np.ndenumerate(np.round(scores, 9)):
        if np.isfinite(score):
            cells.append((-score, i, j))
    pairs = []
    rows = set()
    columns = set()
    for negative_score, i, j in sorted(cells):
        if i not in rows and j not in columns:
            pairs.append((i, j, -negative_score))
            rows.add(i)
            columns.add(j)
    return np.array(pairs)


def draw_vectors(data):
    """Small whole numbers: many equal documents, zero vectors, and ties of all kinds."""
    count = data.draw(st.integers(1, 14), label="rows")
    rows = st.lists(st.integers(-2, 2), min_size=3, max_size=3)
    return np.array(data.draw(st.lists(rows, min_size=count, max_size=count)), float)


def check_pairs(pairs, expected):
    """The pairs are the expected rows and columns, in this order, with these scores."""
    table = np.array(pairs)
    np.testing.assert_array_equal(table[:, :2], expected[:, :2])
    np.testing.assert_allclose(table[:, 2], expected[:, 2], atol=2e-9)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_equals_sorting_all_scores(data):
    first = draw_vectors(data)
    second = draw_vectors(data)
    scoring = data.draw(st.sampled_from(SCORINGS))
    k = data.draw(st.integers(1, 5))
    expected = sorted_all(plain_scores(first, second, scoring, k)[2])
    kind = data.draw(st.sampled_from([np.asarray, scipy.sparse.csr_matrix]))
    for candidates in (1, 3, 32):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(competitive_matching, "CANDIDATES", candidates)
            patch.setattr(competitive_matching, "CELLS", 20)
            patch.setattr(competitive_matching, "COLUMNS", 3)
            pairs = align_documents(kind(first), kind(second), scoring, k)
        check_pairs(pairs, expected)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_threshold_leaves_out_the_pairs_below(data):
    first = draw_vectors(data)
    second = draw_vectors(data)
    scoring = data.draw(st.sampled_from(SCORINGS))
    k = data.draw(st.integers(1, 5))
    expected = sorted_all(plain_scores(first, second, scoring, k)[2])
    threshold = data.draw(st.sampled_from(expected[:, 2].tolist()))
    pairs = align_documents(first, second, scoring, k, threshold=threshold)
    # Whether the pairs at the threshold are there depends on rounding.
    above_count = np.count_nonzero(expected[:, 2] > threshold + 1e-8)
    assert len(pairs) >= above_count
    table = np.array(pairs).reshape(-1, 5)
    np.testing.assert_array_equal(table[:above_count, :2], expected[:above_count, :2])
    assert (table[:, 2] >= threshold).all()


def unit(*degrees):
    """Vectors of the plane."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@pytest.mark.parametrize("scoring", SCORINGS)
def test_distinctness_by_hand(scoring):
    """The first pair is 10 degrees apart, and the nearest other document 50."""
    pairs = align_documents(unit(0, 60), unit(10, 180), scoring, k=1)
    distinctness = {pair[:2]: pair.distinctness for pair in pairs}
    expected = 1 - (1 - np.cos(np.radians(10))) / (1 - np.cos(np.radians(50)))
    assert distinctness[0, 0] == pytest.approx(expected)
    assert distinctness[1, 1] == 0  # The first document of the other side is nearer.


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_distinctness_of_any_pair(data):
    first = draw_vectors(data)
    second = draw_vectors(data)
    cosines = plain_scores(first, second, "cosine", 1)[2]
    for pair in align_documents(first, second, "cosine"):
        cosine = cosines[pair.first, pair.second]
        others = cosines.copy()
        others[pair.first, pair.second] = -1
        next_cosine = max(others[pair.first].max(), others[:, pair.second].max(), 0)
        expected = np.clip(1 - (1 - cosine) / max(1 - next_cosine, 1e-6), 0, 1)
        assert pair.distinctness == pytest.approx(expected, abs=1e-3)


FIRST_URLS = ["e.org/en/a", "e.org/en/b", ""]
SECOND_URLS = ["e.org/fr/b", "", "e.org/fr/c"]
# b is paired with b, though they have nothing in common, and the other two by their scores.
BY_URL_AND_SCORE = [
    AlignedPair(1, 0, 0.0, True, 0.0),
    AlignedPair(2, 2, 1.0, False, 1.0),
    AlignedPair(0, 1, 0.0, False, 0.0),
]


def test_urls_come_first():
    units = np.eye(3)
    pairs = align_documents(units, units, "cosine", first_urls=FIRST_URLS, second_urls=SECOND_URLS)
    assert pairs == BY_URL_AND_SCORE


def test_a_threshold_is_for_scores_alone():
    units = np.eye(3)
    pairs = align_documents(
        units, units, "cosine", threshold=0.5, first_urls=FIRST_URLS, second_urls=SECOND_URLS
    )
    assert pairs == BY_URL_AND_SCORE[:2]


def test_urls_may_match_all_documents():
    pairs = align_documents(
        np.eye(1), np.eye(1), "cosine", first_urls=["e.org/a"], second_urls=["e.org/a"]
    )
    assert pairs == [AlignedPair(0, 0, 1.0, True, 1.0)]


def pages_of(sites, name):
    """A URL on each site, all of different pages."""
    return [f"{site}/{name}{number}" for number, site in enumerate(sites)]


@pytest.mark.parametrize("scoring", SCORINGS)
def test_only_within_a_website(scoring):
    rng = np.random.default_rng(3)
    first = rng.normal(size=(30, 5))
    second = rng.normal(size=(25, 5))
    first_sites = rng.choice(["a.org", "b.de", "www.c.fr", "d.com"], size=30)
    second_sites = rng.choice(["a.org", "b.de", "www.c.fr", "elsewhere.com"], size=25)
    first_urls = pages_of(first_sites, "x")
    second_urls = pages_of(second_sites, "y")
    scores = plain_scores(first, second, scoring, 4)[2]  # The neighbors are of all documents.
    is_same_site = first_sites[:, None] == second_sites
    expected = sorted_all(np.where(is_same_site, scores, -np.inf))
    pairs = align_documents(
        first, second, scoring, first_urls=first_urls, second_urls=second_urls, same_domain=True
    )
    check_pairs(pairs, expected)


def test_recall_and_precision_by_hand():
    pairs = [("a", "x", 0.9), ("b", "z", 0.8), ("e", "f", 0.7)]
    reference = [("a", "x"), ("b", "y"), ("b", "y"), ("c", "z"), ("d", "w")]
    quality = alignment_quality(pairs, reference)
    assert quality.recall == 1 / 4
    assert quality.precision == 1 / 2  # The reference knows neither e nor f.


@pytest.mark.parametrize(
    ("second", "options", "message"),
    [
        (
            np.array([[1, 2, 3], [1, np.nan, 3]]),
            {},
            "second: found a vector that is not finite in row 1",
        ),
        (
            np.ones((2, 3)),
            {"first_urls": ["a", "b"]},
            "URLs: found 2 and 0, expected one for each row",
        ),
        (np.ones((2, 3)), {"same_domain": True}, "URLs: found 0 and 0"),
    ],
)
def test_bad_input(second, options, message):
    with pytest.raises(ValueError, match=message):
        align_documents(np.ones((2, 3)), second, **options)


# ---- URLs

SAME = [
    ("http://example.org/en/news/1", "http://example.org/fr/news/1"),
    ("http://example.org/en/news/1", "https://www.example.org/news/1/"),
    ("http://example.org/index.de.html", "http://example.org/index.html"),
    ("http://example.org/seite-de.html", "http://example.org/seite_en.html"),
    ("http://example.org/de-AT/a", "http://example.org/en_us/a"),
    ("http://example.org/a?id=7&lang=de", "http://example.org/a?id=7"),
    ("http://example.org/a?lang=de&id=7", "http://example.org/a?id=7&hl=en-GB"),
    ("http://de.example.org/a", "http://www.example.org/a"),
    ("http://example.de/a", "http://example.com/a"),
    ("http://example.co.uk/a", "http://example.fr/a"),
    ("http://example.org/deutsch/a", "http://example.org/english/a"),
    ("example.org/a//b", "http://example.org/en/a/b"),
]
DIFFERENT = [
    ("http://example.org/en/1", "http://example.org/fr/2"),
    ("http://example.org/a?id=7", "http://example.org/a?id=8"),
    ("http://example.org/entry", "http://example.org/try"),  # A code inside a word is none.
    ("http://example.com/de/it-news", "http://example.com/it/"),
    ("http://example.com/en/it", "http://example.com/it"),
    ("http://example.com/a?cat=en", "http://example.com/a?cat=fr"),
    ("http://example.co.uk/a", "http://example.org.uk/a"),
    ("example.com/a//b", "example.org/a//b"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_translations_have_one_key(first, second):
    assert strip_language_markers(first) == strip_language_markers(second)


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_other_pages_have_another_key(first, second):
    assert strip_language_markers(first) != strip_language_markers(second)


def test_only_the_languages_that_are_asked_for():
    url = "http://example.org/how-it-works/de"
    assert strip_language_markers(url) == "example.org/how-works"
    assert strip_language_markers(url, ["de", "en"]) == "example.org/how-it-works"
    assert strip_language_markers(url, ["fr", "en"]) == "example.org/how-it-works/de"


def test_a_language_without_names():
    assert strip_language_markers("http://example.org/xx/a", ["xx"]) == "example.org/a"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://www.example.com/a?b=c", "example"),
        ("http://de.example.com/a?b=c", "example"),
        ("http://example.co.uk/a?b=c", "example"),
        ("http://EXAMPLE.de:80/a?b=c", "example"),
        ("http://example.eu/a?b=c", "example"),
        ("http://www.example.org", "example.org"),
        ("http://de.example.org", "example.org"),
        ("http://example.org.uk", "example.org"),
        ("http://shop.example.com", "shop.example"),
        ("http://127.0.0.1/a", "127.0.0.1"),
        ("/a/b", ""),
        ("", ""),
    ],
)
def test_website(url, expected):
    assert website(url) == expected


def test_keys_that_occur_twice_are_not_matched():
    first = ["e.org/en/1", "e.org/en/2", "e.org/2", "", "e.org/en/4", "e.org/5"]
    second = ["e.org/fr/2", "e.org/fr/1", "e.org/5?lang=fr", "e.org/fr/4", "e.org/4", ""]
    # Page 2 occurs twice in first, page 4 twice in second, and "" is not known.
    assert match_urls(first, second) == [(0, 1), (5, 2)]
    assert match_urls([], second) == []
