"""The probe of a language: planted languages are told, until their directions are gone; and the picture of them."""

import numpy as np
import pytest

from modeling_tmde.documents import language_probe as module
from modeling_tmde.documents.debiasing import LanguageDebiaser
from modeling_tmde.documents.language_probe import draw_language_map, language_map_figure, smallest_rank
from modeling_tmde.eval import language_probe


def parallel(documents=60, dimension=20, offset=5.0, noise=0.3, languages=("de", "en")):
    """Five sentences a document in each language: the same content plus the language's own axis."""
    rng = np.random.default_rng(0)
    content = rng.standard_normal((5 * documents, dimension))
    content[:, : len(languages)] = 0
    vectors = np.concatenate(
        [
            content + offset * np.eye(dimension)[number] + noise * rng.standard_normal(content.shape)
            for number in range(len(languages))
        ]
    )
    codes = np.repeat(languages, len(content)).tolist()
    groups = np.tile(np.repeat(np.arange(documents), 5), len(languages))
    return vectors, codes, groups


@pytest.mark.parametrize("languages", [("de", "en"), ("de", "en", "es", "fr", "it")])
def test_planted_languages_are_told_until_they_are_removed(languages):
    vectors, codes, groups = parallel(languages=languages)
    found = language_probe(vectors, codes, groups=groups)
    assert found.raw == found.language == 1
    assert found.semantic < found.chance + 0.1
    assert found.chance == pytest.approx(1 / len(languages))  # every document is in every language
    assert (found.train, found.test) == (240 * len(languages), 60 * len(languages))


def test_vectors_without_language_are_not_told():
    vectors, codes, groups = parallel(offset=0, noise=1)
    assert abs(language_probe(vectors, codes, groups=groups).raw - 0.5) < 0.12


def test_documents_are_on_one_side():
    """With the document written into the vectors, and a language to each document, only a leak would tell it."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 20)
    vectors = 10 * rng.standard_normal((60, 100))[groups] + rng.standard_normal((1200, 100))
    codes = np.where(rng.permutation(60) < 30, "de", "en")[groups].tolist()
    assert language_probe(vectors, codes, groups=groups).raw < 0.8
    assert language_probe(vectors, codes).raw == 1  # sentences of a document on both sides


def test_nothing_of_the_test_part_is_in_directions_or_classifier(monkeypatch):
    vectors, codes, groups = parallel()
    before, seen = language_probe(vectors, codes, groups=groups), []
    fit = LanguageDebiaser.fit

    def listen(self, vectors, languages):
        seen.append(len(vectors))
        return fit(self, vectors, languages)

    monkeypatch.setattr(LanguageDebiaser, "fit", listen)
    assert language_probe(vectors, codes, groups=groups) == before
    smallest_rank(vectors, codes, groups=groups)
    assert seen == [before.train, before.train]
    assert language_probe(vectors, codes, groups=groups, seed=1) != before


def test_the_smallest_rank_is_the_first_that_hides_the_language():
    """A content direction that outweighs the offset, so that it takes two."""
    rng = np.random.default_rng(1)
    vectors, codes, groups = parallel(offset=3.0, documents=200)
    vectors[:, 5] += np.tile(30 * rng.standard_normal(1000), 2)
    rank, accuracies = smallest_rank(vectors, codes, groups=groups)
    assert rank == 2 and list(accuracies) == [1, 2] and accuracies[1] > 0.9 and accuracies[2] < 0.55
    alone = language_probe(vectors, codes, rank=2, groups=groups)
    assert accuracies[2] == alone.semantic
    assert smallest_rank(vectors, codes, ranks=[1], groups=groups) == (None, {1: accuracies[1]})


def test_ranks_of_few_sentences(monkeypatch):
    """6 training sentences a language in 64 dimensions, or two that differ: more directions than these have cannot go.

    Whatever is removed, the language is told here, so that all ranks are tried.
    """
    monkeypatch.setattr(module, "_accuracy", lambda *_: 1.0)
    vectors = np.random.default_rng(0).standard_normal((16, 64))
    codes, groups = ["de"] * 8 + ["en"] * 8, list(range(8)) * 2
    options = {"groups": groups, "test_share": 0.25}
    assert smallest_rank(vectors, codes, **options) == (None, {1: 1, 2: 1, 4: 1})
    repeated = vectors.copy()
    repeated[1:8:2], repeated[2:8:2] = vectors[1], vectors[0]
    assert smallest_rank(repeated, codes, **options) == (None, {1: 1})
    with pytest.raises(ValueError, match="rank: found 8 for 'de', of which there are 6 sentences"):
        smallest_rank(vectors, codes, ranks=[8], **options)


def test_a_rank_by_language():
    vectors, codes, groups = parallel()
    one, both = language_probe(vectors, codes, {"de": 3, "en": 1}, groups), language_probe(vectors, codes, 1, groups)
    assert one.raw == both.raw and one.language == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"languages": ["de"] * 600}, "languages: found 1 in 600 codes, expected two or more"),
        ({"languages": ["de", "en"]}, "languages: found 2 in 2 codes, expected two or more, one code for each of 600"),
        ({"groups": [1, 2]}, r"groups: found shape \(2,\), expected one for each of 600 vectors"),
        ({"groups": np.zeros(600)}, "groups: found one document, expected at least one to train"),
        ({"groups": np.repeat([0, 1], 300)}, "languages: found no sentence of '..' in the train part"),
        ({"test_share": 1.0}, "test_share: found 1.0, expected a number between 0 and 1"),
        ({"rank": 20}, "rank: found 20 for 'de', expected an integer from 1 to 19"),
    ],
)
def test_bad_arguments(changes, message):
    vectors, codes, groups = parallel()
    with pytest.raises(ValueError, match=message):
        language_probe(vectors, **{"languages": codes, "groups": groups} | changes)


def test_vectors_that_are_not_finite():
    vectors, codes, groups = parallel()
    vectors[:] = np.nan
    with pytest.raises(ValueError, match=r"not finite in row \d+ \('de'\)"):
        language_probe(vectors, codes, groups=groups)


def test_the_map_shows_languages_apart_and_then_mixed(tmp_path):
    vectors, codes, _ = parallel()
    figure = language_map_figure(vectors, codes, title="planted")
    before, after = figure.axes
    centres = {}
    for axes in (before, after):
        german, english = (dots.get_offsets().data for dots in axes.collections)
        assert len(german) == len(english) == 300
        spread = np.sqrt(german.var(axis=0).sum())
        centres[axes] = np.linalg.norm(german.mean(axis=0) - english.mean(axis=0)) / spread
    assert centres[before] > 2 and centres[after] < 0.1
    assert figure.get_suptitle() == "planted" and before.get_xlabel().startswith("component 1 (")
    assert after.get_title() == "debiased, rank 1"
    assert [text.get_text() for text in before.get_legend().get_texts()] == ["de", "en"]


def test_the_map_is_a_file_and_of_a_sample(tmp_path):
    vectors, codes, _ = parallel()
    draw_language_map(tmp_path / "map.png", vectors, codes, rank={"de": 1, "en": 2}, max_sentences=100)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG") and len(list(tmp_path.iterdir())) == 1
    figure = language_map_figure(vectors, codes, max_sentences=100)
    assert sum(len(dots.get_offsets()) for dots in figure.axes[0].collections) == 100
    assert figure.get_suptitle() == "(100 of 600 sentences)"
    with pytest.raises(ValueError, match="found 2, expected at least 3 to draw"):
        language_map_figure(vectors[:2], codes[:2])
