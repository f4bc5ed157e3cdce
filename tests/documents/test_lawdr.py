"""LAWDR: algorithm 1 in plain loops, planted languages, streams in any chunks, files."""

import zlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.neighbors import KernelDensity

from tests.tiny_embedders import make_tables, make_tokenizer
from tmde.documents import lawdr as module
from tmde.documents.language_debiaser import LanguageDebiaser
from tmde.documents.lawdr import Lawdr
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.sentence_density import SentenceDensity

DIMENSION = 24
OFFSETS = 20 * np.eye(DIMENSION)[:3]  # of de, en, fr


class Planted:
    """A sentence is "code content".

    Its vector is the language's offset plus a random one of the content.
    """

    def encode(self, sentences):
        return np.array(list(map(self._vector, sentences)), np.float32)

    @staticmethod
    def _vector(sentence):
        code, content = sentence.split(" ", 1)
        vector = np.random.default_rng(zlib.crc32(content.encode())).standard_normal(DIMENSION)
        vector[:3] = 0
        return vector + OFFSETS[["de", "en", "fr"].index(code)]


def corpus(code, count=40, boilerplate=0, seed=0):
    rng = np.random.default_rng(seed)
    menu = [f"{code} menu {n}" for n in range(boilerplate)]
    documents = []
    for number, size in enumerate(rng.integers(2, 7, count)):
        sentences = [f"{code} {number} {sentence}" for sentence in range(size)]
        documents.append(sentences + menu)
    return documents


def cosine(first, second):
    norms = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return (first * second).sum(axis=-1) / norms


def without_directions(vector, directions):
    component = np.zeros(DIMENSION)
    for direction in directions:
        component += (vector @ direction) * direction
    return vector - component


def algorithm_1(documents, rank, bandwidth, kernel):
    """Of one language, as the paper prints it; the sum of eq. 3, not its mean."""
    vectors = list(map(Planted().encode, documents))
    all_vectors = np.concatenate(vectors).astype(np.float64)
    directions = np.linalg.svd(all_vectors)[2][:rank]
    points = PCA(5).fit(all_vectors).transform(all_vectors)
    tree = KernelDensity(kernel=kernel, bandwidth=bandwidth).fit(points)
    densities = np.exp(tree.score_samples(points))
    b = sum(densities) / (2 * len(densities))
    sums = []
    number = 0
    for sentences in vectors:
        total = np.zeros(DIMENSION)
        for vector in sentences:
            weight = b / (b + densities[number])
            total += weight * without_directions(vector, directions)
            number += 1
        sums.append(total)
    return np.array(sums)


def reordered(items, order):
    return [items[row] for row in order]


@pytest.mark.parametrize("kernel", ["tophat", "gaussian"])
def test_it_is_algorithm_1_of_each_language(kernel):
    german = corpus("de", boilerplate=1)
    english = corpus("en", count=30, seed=1)
    both = [*german, *english]
    languages = ["de"] * len(german) + ["en"] * len(english)
    order = np.random.default_rng(0).permutation(len(both))  # The languages are mixed.
    lawdr = Lawdr(Planted(), {"de": 1, "en": 3}, SentenceDensity(5, kernel, bandwidth=1.7))
    vectors = lawdr.fit_transform(reordered(both, order), reordered(languages, order))
    assert vectors.dtype == np.float32
    assert vectors.shape == (70, DIMENSION)
    german_vectors = algorithm_1(german, 1, 1.7, kernel)
    english_vectors = algorithm_1(english, 3, 1.7, kernel)
    expected = np.concatenate([german_vectors, english_vectors])[order]
    np.testing.assert_allclose(cosine(vectors, expected), 1, atol=1e-5)
    # A vector is the mean, not the sum: it is as long as the sentences are, however many.
    lengths = np.linalg.norm(expected, axis=1) / np.linalg.norm(vectors, axis=1)
    sizes = np.array(list(map(len, reordered(both, order))))
    assert (lengths < sizes).all()
    assert np.corrcoef(lengths, sizes)[0, 1] > 0.5


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 40), st.integers(1, 300), st.booleans(), st.booleans())
def test_the_chunks_of_a_stream_do_not_matter(chunk, sample, debias, weighted):
    documents = [*corpus("de", 8, boilerplate=1), *corpus("fr", 8, boilerplate=1, seed=1)]
    languages = ["de"] * 8 + ["fr"] * 8
    density = SentenceDensity(4, sample=max(2, sample)) if weighted else None
    expected = Lawdr(Planted(), 2, density, debias).fit_transform(documents, languages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        lawdr = Lawdr(Planted(), 2, density, debias)
        lawdr.fit(iter(documents), iter(languages))
        vectors = lawdr.transform(iter(documents), iter(languages))
    np.testing.assert_allclose(vectors, expected, atol=1e-4)


def test_with_a_document_embedder_truncated_sentences_are_counted():
    embedder = DocumentEmbedder(make_tables(), make_tokenizer(), max_length=12)
    first = ["kurz", "lang " * 30]
    second = ["auch kurz", "noch einer"]
    lawdr = Lawdr(embedder, density=None, debias=False).fit([first, second], ["de", "en"])
    # The model has a part for each language.
    vectors = lawdr.transform([first, second], ["de", "en"])
    first_vector = embedder.encode(first, language="de").mean(axis=0)
    second_vector = embedder.encode(second, language="en").mean(axis=0)
    np.testing.assert_allclose(vectors, [first_vector, second_vector], atol=1e-5)
    assert lawdr.truncated_ == 1


@pytest.mark.parametrize("options", [{}, {"debias": False}, {"density": None}])
def test_what_is_loaded_gives_the_same_vectors(tmp_path, options):
    documents = [*corpus("de"), *corpus("fr", seed=1)]
    languages = ["de"] * 40 + ["fr"] * 40
    lawdr = Lawdr(Planted(), rank={"de": np.int64(2), "fr": 1}, **options).fit(documents, languages)
    lawdr.save(tmp_path / "new" / "folder")
    embedder = Planted()
    loaded = Lawdr.load(tmp_path / "new" / "folder", embedder)
    assert loaded.rank == lawdr.rank
    assert loaded.languages_ == ["de", "fr"]
    assert loaded.embedder is embedder
    np.testing.assert_array_equal(
        loaded.transform(documents, languages), lawdr.transform(documents, languages)
    )


# ---- The rank that hides the language


class Blended(Planted):
    """Contents have components in all dimensions, also in those of the offsets."""

    @staticmethod
    def _vector(sentence):
        code, content = sentence.split(" ", 1)
        vector = np.random.default_rng(zlib.crc32(content.encode())).standard_normal(DIMENSION)
        return vector + OFFSETS[["de", "en", "fr"].index(code)]


def three_languages(count=300):
    """Some four sentences a document; all languages have the same contents."""
    documents = []
    languages = []
    for code in ("de", "en", "fr"):
        documents += corpus(code, count)
        languages += [code] * count
    return documents, languages


def test_the_rank_of_planted_languages():
    """The offset of a language is one direction."""
    documents, languages = three_languages()
    found = Lawdr(Blended(), "auto", density=None).fit(documents, languages)
    given = Lawdr(Blended(), 1, density=None).fit(documents, languages)
    assert found.rank_ == given.rank_ == 1
    np.testing.assert_array_equal(
        found.transform(documents, languages), given.transform(documents, languages)
    )


def test_the_chunks_of_a_stream_do_not_matter_to_the_rank(monkeypatch):
    samples = []
    monkeypatch.setattr(module, "MOST_VECTORS", 150)
    monkeypatch.setattr(
        "tmde.documents.language_debiaser.choose_rank",
        lambda of_languages: samples.append(of_languages) or 1,
    )
    documents, languages = three_languages(50)
    for chunk in (7, 10_000):
        monkeypatch.setattr(module, "_CHUNK", chunk)
        Lawdr(Blended(), "auto", density=None).fit(iter(documents), iter(languages))
    small, large = samples
    assert list(large) == ["de", "en", "fr"]
    for code, sample in large.items():
        assert sample.shape == (150, DIMENSION)
        np.testing.assert_array_equal(small[code], sample)


@pytest.mark.parametrize(("offset", "rank"), [(20.0, 1), (0.0, 0)])
def test_a_loaded_rank(tmp_path, monkeypatch, offset, rank):
    """Without an offset, no direction is removed; the empty directions are kept, too."""
    monkeypatch.setitem(globals(), "OFFSETS", offset * np.eye(DIMENSION)[:3])
    documents, languages = three_languages()
    lawdr = Lawdr(Blended(), "auto", density=None).fit(documents, languages)
    lawdr.save(tmp_path)
    loaded = Lawdr.load(tmp_path, Blended())
    assert lawdr.rank_ == loaded.rank_ == rank
    assert loaded.rank == "auto"
    assert loaded.debiaser_.rank_ == rank
    np.testing.assert_array_equal(
        loaded.transform(documents, languages), lawdr.transform(documents, languages)
    )


def test_without_debiasing_there_is_no_rank():
    assert Lawdr(Planted(), "auto", debias=False).fit(GOOD, "de").rank_ == 0
    with pytest.raises(ValueError, match="not fitted"):
        _ = Lawdr(Planted()).rank_


# ---- What is refused


GOOD = [["de a", "de b"], ["de c"]]


@pytest.mark.parametrize(
    ("documents", "languages", "message"),
    [
        ([], "de", "documents: found none, expected at least one"),
        ([*GOOD, " \n "], "de", "document 2 is empty, expected at least one sentence"),
        ("de a", "de", "found one str, expected an iterable"),
        (
            pd.DataFrame({"text": ["de a"]}),
            "de",
            "found one DataFrame, expected an iterable of documents",
        ),
        (GOOD, ["de"], "languages: found 1, expected 2, one for each document"),
    ],
)
def test_bad_documents(documents, languages, message):
    with pytest.raises(ValueError, match=message):
        Lawdr(Planted()).fit(documents, languages)


def test_it_must_be_fitted_first():
    with pytest.raises(ValueError, match="not fitted"):
        Lawdr(Planted()).transform(GOOD, "de")


def test_a_language_that_was_not_fitted():
    lawdr = Lawdr(Planted()).fit(GOOD, "de")
    message = "found 'fr' for document 1, expected one of the fitted languages: de"
    with pytest.raises(ValueError, match=message):
        lawdr.transform(GOOD, ["de", "fr"])


def test_an_iterator_cannot_be_read_twice():
    with pytest.raises(TypeError, match="found an iterator, which can be read only once"):
        Lawdr(Planted()).fit_transform(iter(GOOD), "de")


# ---- Directions of languages


def two_directions():
    """Forty vectors that are two, or multiples of one, and so span two directions only."""
    vectors = np.tile(np.random.default_rng(0).standard_normal((2, 32)), (20, 1))
    vectors[::4] *= 2
    return vectors


def test_all_directions_can_be_removed():
    vectors = two_directions()
    debiaser = LanguageDebiaser(2).fit(vectors, "de")
    assert np.abs(debiaser.transform(vectors, "de")).max() < 1e-5


def test_the_rows_of_a_table_are_vectors():
    """A table is an iterable of its columns."""
    vectors = two_directions()
    table = pd.DataFrame(vectors)
    np.testing.assert_array_equal(
        LanguageDebiaser(2).fit(table, "de").components_["de"],
        LanguageDebiaser(2).fit(vectors, "de").components_["de"],
    )
    assert SentenceDensity().fit(table).bandwidth_ == SentenceDensity().fit(vectors).bandwidth_


@pytest.mark.parametrize(
    ("rank", "vectors", "message"),
    [
        (3, two_directions(), "rank: found 3 for 'de', .* span 2 of the 32"),
        (1, np.zeros((4, 8)), "rank: found 1 for 'de', expected 'auto', or an integer from 0 to 0"),
        (1, two_directions() * np.nan, "not finite"),
    ],
)
def test_bad_vectors_and_ranks(rank, vectors, message):
    with pytest.raises(ValueError, match=message):
        LanguageDebiaser(rank).fit(vectors, "de")
