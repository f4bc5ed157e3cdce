"""LAWDR: algorithm 1 in plain loops, planted languages and boilerplate, streams in any chunks, and what is on disk."""

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
from tmde.documents.lawdr import LanguageDebiaser, Lawdr
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.long_documents import SentenceDensity

DIMENSION = 24
OFFSETS = 20 * np.eye(DIMENSION)[:3]  # of de, en, fr


class Planted:
    """A sentence is "code content": its vector is the language's offset plus a random one of the content."""

    def encode(self, sentences):
        return np.stack([self._vector(*sentence.split(" ", 1)) for sentence in sentences]).astype(
            np.float32
        )

    @staticmethod
    def _vector(code, content):
        vector = np.random.default_rng(zlib.crc32(content.encode())).standard_normal(DIMENSION)
        vector[:3] = 0
        return vector + OFFSETS[["de", "en", "fr"].index(code)]


def corpus(code, count=40, boilerplate=0, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 7, count)
    return [
        [f"{code} {number} {sentence}" for sentence in range(size)]
        + [f"{code} menu {n}" for n in range(boilerplate)]
        for number, size in enumerate(sizes)
    ]


def cosine(first, second):
    return (
        (first * second).sum(axis=-1)
        / np.linalg.norm(first, axis=-1)
        / np.linalg.norm(second, axis=-1)
    )


def algorithm_1(documents, rank, bandwidth, kernel):
    """Of one language, as the paper prints it; the sum of eq. 3, not its mean."""
    vectors = [Planted().encode(sentences).astype(np.float64) for sentences in documents]
    every = np.concatenate(vectors)
    directions = np.linalg.svd(every)[2][:rank]
    analysis = PCA(5).fit(every)
    tree = KernelDensity(kernel=kernel, bandwidth=bandwidth).fit(analysis.transform(every))
    densities = np.exp(tree.score_samples(analysis.transform(every)))
    b = sum(densities) / (2 * len(densities))
    sums, number = [], 0
    for sentences in vectors:
        total = np.zeros(DIMENSION)
        for vector in sentences:
            weight = b / (b + densities[number])
            total += weight * (
                vector - sum(vector @ direction * direction for direction in directions)
            )
            number += 1
        sums.append(total)
    return np.array(sums)


@pytest.mark.parametrize("kernel", ["tophat", "gaussian"])
def test_it_is_algorithm_1_of_each_language(kernel):
    german, english = corpus("de", boilerplate=1), corpus("en", count=30, seed=1)
    both = [*german, *english]
    languages = ["de"] * len(german) + ["en"] * len(english)
    order = np.random.default_rng(0).permutation(len(both))  # languages mixed
    lawdr = Lawdr(Planted(), {"de": 1, "en": 3}, SentenceDensity(5, kernel, bandwidth=1.7))
    found = lawdr.fit_transform([both[row] for row in order], [languages[row] for row in order])
    assert found.dtype == np.float32 and found.shape == (70, DIMENSION)
    expected = np.concatenate(
        [algorithm_1(german, 1, 1.7, kernel), algorithm_1(english, 3, 1.7, kernel)]
    )
    np.testing.assert_allclose(cosine(found, expected[order]), 1, atol=1e-5)
    # the mean, not the sum: as long as the sentences are, however many
    lengths = np.linalg.norm(expected[order], axis=1) / np.linalg.norm(found, axis=1)
    sizes = np.array([len(both[row]) for row in order])
    assert (lengths < sizes).all() and np.corrcoef(lengths, sizes)[0, 1] > 0.5


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 300), st.booleans(), st.booleans())
def test_the_chunks_of_a_stream_do_not_matter(chunk, sample, debias, weighted):
    documents = [*corpus("de", 8, boilerplate=1), *corpus("fr", 8, boilerplate=1, seed=1)]
    languages = ["de"] * 8 + ["fr"] * 8
    density = SentenceDensity(4, sample=max(2, sample)) if weighted else None
    replicas = [Lawdr(Planted(), 2, density, debias) for _ in range(2)]
    expected = replicas[0].fit_transform(documents, languages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        again = (
            replicas[1]
            .fit(iter(documents), iter(languages))
            .transform(iter(documents), iter(languages))
        )
    np.testing.assert_allclose(again, expected, atol=1e-4)


def test_with_a_document_embedder_truncated_sentences_are_counted():
    embedder = DocumentEmbedder(make_tables(), make_tokenizer(), max_length=12)
    documents = [["kurz", "lang " * 30], ["auch kurz", "noch einer"]]
    lawdr = Lawdr(embedder, density=None, debias=False).fit(documents, ["de", "en"])
    vectors = lawdr.transform(documents, ["de", "en"])  # the model has a part for each language
    expected = [
        embedder.encode(sentences, language=code).mean(axis=0)
        for sentences, code in zip(documents, ("de", "en"), strict=True)
    ]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert lawdr.truncated_ == 1


@pytest.mark.parametrize("options", [{}, {"debias": False}, {"density": None}])
def test_what_is_loaded_gives_the_same_vectors(tmp_path, options):
    documents, languages = [*corpus("de"), *corpus("fr", seed=1)], ["de"] * 40 + ["fr"] * 40
    lawdr = Lawdr(Planted(), rank={"de": np.int64(2), "fr": 1}, **options).fit(documents, languages)
    lawdr.save(tmp_path / "new" / "folder")
    embedder = Planted()
    loaded = Lawdr.load(tmp_path / "new" / "folder", embedder)
    assert (
        loaded.rank == lawdr.rank
        and loaded.languages_ == ["de", "fr"]
        and loaded.embedder is embedder
    )
    np.testing.assert_array_equal(
        loaded.transform(documents, languages), lawdr.transform(documents, languages)
    )


GOOD = [["de a", "de b"], ["de c"]]


def test_bad_documents_and_languages():
    for documents, languages, message in [
        ([], "de", "documents: found none, expected at least one"),
        ([*GOOD, " \n "], "de", "document 2 is empty, expected at least one sentence"),
        ("de a", "de", "found one str, expected an iterable"),
        (GOOD, ["de"], "languages: found 1, expected 2, one for each document"),
    ]:
        with pytest.raises(ValueError, match=message):
            Lawdr(Planted()).fit(documents, languages)
    with pytest.raises(ValueError, match="not fitted"):
        Lawdr(Planted()).transform(GOOD, "de")
    lawdr = Lawdr(Planted()).fit(GOOD, "de")
    with pytest.raises(
        ValueError, match="found 'fr' for document 1, expected one of those fitted: de"
    ):
        lawdr.transform(GOOD, ["de", "fr"])
    with pytest.raises(TypeError, match="found an iterator, which can be read once"):
        lawdr.fit_transform(iter(GOOD), "de")


# ---- Directions of languages


def test_bad_vectors_and_ranks():
    """40 sentences that are two, of which one's multiple: nobody knows a third direction."""
    vectors = np.tile(np.random.default_rng(0).standard_normal((2, 32)), (20, 1))
    vectors[::4] *= 2
    debiaser = LanguageDebiaser(2).fit(vectors, "de")
    assert np.abs(debiaser.transform(vectors, "de")).max() < 1e-5
    table = pd.DataFrame(vectors)  # whose columns are not its rows
    np.testing.assert_array_equal(
        LanguageDebiaser(2).fit(table, "de").components_["de"], debiaser.components_["de"]
    )
    assert SentenceDensity().fit(table).bandwidth_ == SentenceDensity().fit(vectors).bandwidth_
    with pytest.raises(ValueError, match="found one DataFrame, expected an iterable of documents"):
        Lawdr(Planted()).fit(pd.DataFrame({"text": ["de a"]}), "de")
    for rank, bad, message in [
        (3, vectors, "rank: found 3 for 'de', .* span 2 of the 32"),
        (1, np.zeros((4, 8)), "rank: found 1 for 'de', expected an integer from 1 to 0"),
        (1, vectors * np.nan, "not finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            LanguageDebiaser(rank).fit(bad, "de")
