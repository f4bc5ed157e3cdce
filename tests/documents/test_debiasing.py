"""Language directions: planted ones are removed, and they equal numpy's SVD of all vectors at once."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from modeling_tmde.documents import debiasing
from modeling_tmde.documents.debiasing import LanguageDebiaser

LANGUAGES = ["de", "en", "fr"]


def planted(count=400, dimension=32, offset=50.0, dtype=np.float64, seed=0):
    """Vectors that are a language's own axis times `offset`, plus content orthogonal to all axes; codes; content."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0].T
    content = rng.standard_normal((count, dimension - 3)) @ axes[3:]
    codes = np.arange(count) % 3
    vectors = content + offset * axes[codes]
    return vectors.astype(dtype), [LANGUAGES[code] for code in codes], content, axes[:3]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_planted_offsets_are_removed(dtype):
    vectors, languages, content, axes = planted(dtype=dtype)
    # The offset is dominant; it is exactly the first direction only where content does not lean to one side.
    for code, language in enumerate(LANGUAGES):
        rows = [row for row, found in enumerate(languages) if found == language]
        content[rows] -= content[rows].mean(axis=0)
        vectors[rows] = content[rows] + 50 * axes[code]
    found = LanguageDebiaser().fit_transform(vectors, languages)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, content, atol=1e-5)
    # and translations, the same content in another language, meet
    twin = content + 50 * axes[2]
    debiaser = LanguageDebiaser().fit(vectors, languages)
    np.testing.assert_allclose(debiaser.transform(twin, "fr"), content, atol=1e-5)
    assert np.abs(LanguageDebiaser().fit_transform(vectors, ["de"] * len(vectors)) - content).max() > 1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5), st.integers(6, 40), st.integers(6, 60))
def test_directions_are_those_of_numpys_svd(seed, rank, dimension, count):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((2 * count, dimension)) * np.linspace(3, 0.3, dimension) + 0.2
    languages = ["de", "en"] * count
    debiaser = LanguageDebiaser(rank).fit(vectors, languages)
    semantic = debiaser.transform(vectors, languages)
    for start, language in enumerate(["de", "en"]):
        mine = vectors[start::2]
        _, _, right = np.linalg.svd(mine, full_matrices=False)
        projector = right[:rank].T @ right[:rank]
        components = debiaser.components_[language]
        np.testing.assert_allclose(components.T @ components, projector, atol=1e-7)
        np.testing.assert_allclose(semantic[start::2], mine - mine @ projector, atol=1e-7)
        for row, vector in enumerate(mine):  # algorithm 1 as printed
            expected = vector - sum(vector @ direction * direction for direction in components)
            np.testing.assert_allclose(semantic[start + 2 * row], expected, atol=1e-10)


def test_both_components_add_up_and_are_orthogonal():
    vectors, languages, _, _ = planted()
    debiaser = LanguageDebiaser({"de": 1, "en": 2, "fr": 5}).fit(vectors, languages)
    language, semantic = debiaser.language_component(vectors, languages), debiaser.transform(vectors, languages)
    np.testing.assert_allclose(language + semantic, vectors, atol=1e-10)
    np.testing.assert_allclose((language * semantic).sum(axis=1), 0, atol=1e-9)
    assert [len(debiaser.components_[code]) for code in debiaser.languages_] == [1, 2, 5]
    for components in debiaser.components_.values():
        np.testing.assert_allclose(components @ components.T, np.eye(len(components)), atol=1e-12)
    assert debiaser.languages_ == LANGUAGES and debiaser.counts_ == {"de": 134, "en": 133, "fr": 133}


def test_partial_fits_and_blocks_are_one_fit(monkeypatch):
    vectors, languages, _, _ = planted()
    whole = LanguageDebiaser(3).fit(vectors, languages)
    parts = LanguageDebiaser(3)
    for start in range(0, len(vectors), 7):
        for code in LANGUAGES:
            rows = [row for row in range(start, min(start + 7, len(vectors))) if languages[row] == code]
            parts.partial_fit(vectors[rows], code)
    parts.finish()
    monkeypatch.setattr(debiasing, "_ROWS", 5)
    blocks = LanguageDebiaser(3).fit(vectors, languages)
    for other in (parts, blocks):
        assert other.counts_ == whole.counts_
        np.testing.assert_allclose(other.transform(vectors, languages), whole.transform(vectors, languages), atol=1e-9)


def test_fit_forgets_and_finish_goes_on():
    vectors, languages, _, _ = planted()
    debiaser = LanguageDebiaser().fit(vectors + 3, languages).fit(vectors, "en")
    assert debiaser.languages_ == ["en"] and debiaser.counts_ == {"en": 400}
    debiaser.partial_fit(vectors, "de").finish()
    assert debiaser.counts_ == {"en": 400, "de": 400}
    again = debiaser.set_params(rank=2).finish()
    assert again.components_["en"].shape == (2, 32)
    assert clone(debiaser).get_params() == {"rank": 2} and not hasattr(clone(debiaser), "components_")


def test_a_memory_mapped_array_is_read(tmp_path):
    vectors, languages, _, _ = planted(dtype=np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    np.testing.assert_array_equal(
        LanguageDebiaser(2).fit_transform(mapped, languages), LanguageDebiaser(2).fit_transform(vectors, languages)
    )


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        (0, "rank: found 0 for 'de', expected an integer from 1 to 31, below the 32 dimensions"),
        (32, "rank: found 32 for 'de', expected an integer from 1 to 31"),
        (1.5, "rank: found 1.5 for 'de'"),
        (True, "rank: found True for 'de'"),
        ({"de": 1, "en": 1}, "rank: found none for 'fr', expected one for each language"),
        ({"de": 1, "en": 10, "fr": 1}, "rank: found 10 for 'en', of which there are 4 sentences, expected at least"),
    ],
)
def test_bad_ranks(rank, message):
    vectors, languages, _, _ = planted(count=12)
    with pytest.raises(ValueError, match=message):
        LanguageDebiaser(rank).fit(vectors, languages)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_repeated_sentences_span_few_directions(dtype):
    """40 sentences that are two, of which one's multiple: nobody knows a third direction."""
    rng = np.random.default_rng(0)
    vectors = np.tile(rng.standard_normal((2, 32)), (20, 1)).astype(dtype)
    vectors[::4] *= 2
    debiaser = LanguageDebiaser(2).fit(vectors, "de")
    assert debiaser.spans() == {"de": 2} and np.abs(debiaser.transform(vectors, "de")).max() < 1e-5
    with pytest.raises(ValueError, match="rank: found 3 for 'de', whose 40 sentences span only 2 directions"):
        LanguageDebiaser(3).fit(vectors, "de")
    with pytest.raises(ValueError, match="rank: found 1 for 'de', whose 4 sentences span only 0 directions"):
        LanguageDebiaser().fit(np.zeros((4, 8)), "de")
    assert LanguageDebiaser(31).fit(rng.standard_normal((31, 32)).astype(dtype), "de").spans() == {"de": 31}


def test_a_number_that_is_not_finite_is_named_and_adds_nothing():
    vectors, languages, _, _ = planted()
    broken = vectors.copy()
    broken[100, 3] = math.inf
    with pytest.raises(ValueError, match=r"not finite in row 100 \('en'\), expected finite"):
        LanguageDebiaser().fit(broken, languages)
    debiaser = LanguageDebiaser().fit(vectors, languages)
    with pytest.raises(ValueError, match=r"not finite in row 100 \('en'\)"):
        debiaser.transform(broken, languages)
    with pytest.raises(ValueError, match="not finite in row 100"):
        debiaser.partial_fit(broken, "en")
    assert debiaser.counts_["en"] == 133
    expected = LanguageDebiaser().fit(vectors, languages).components_["en"]
    np.testing.assert_array_equal(debiaser.finish().components_["en"], expected)


def test_bad_vectors_and_languages():
    vectors, languages, _, _ = planted()
    debiaser = LanguageDebiaser()
    with pytest.raises(ValueError, match="fit it to sentence vectors first"):
        debiaser.transform(vectors, languages)
    for empty in (vectors[:0], np.empty((0, 32))):
        with pytest.raises(ValueError, match="vectors: found none"):
            debiaser.fit(empty, [])
    debiaser.fit(vectors, languages)
    with pytest.raises(ValueError, match="languages: found 'it', expected one of those fitted: de, en, fr"):
        debiaser.transform(vectors[:1], ["it"])
    with pytest.raises(ValueError, match="languages: found 2, expected one for each of 400 vectors"):
        debiaser.transform(vectors, ["de", "en"])
    with pytest.raises(TypeError, match="found None for row 1, expected a code"):
        debiaser.transform(vectors[:2], ["de", None])
    with pytest.raises(ValueError, match=r"found shape \(400, 31\) for 'de', expected \(n, 32\)"):
        debiaser.transform(vectors[:, 1:], languages)
    with pytest.raises(ValueError, match=r"found shape \(3, 5\) for 'it', expected \(n, 32\)"):
        debiaser.partial_fit(np.ones((3, 5)), "it")
    assert debiaser.transform(vectors[:0], []).shape == (0, 32)
