"""The rank that hides the language: planted directions, accuracies by hand, what is refused."""

import numpy as np
import pytest

from tmde.documents.debiased_rank import (
    SplitVectors,
    choose_rank,
    debias_by_rank,
    language_accuracy,
    language_outcomes,
    remove_language_directions,
)
from tmde.documents.language_debiaser import LanguageDebiaser

DIMENSION = 20
ROTATION = np.linalg.qr(np.random.default_rng(9).normal(size=(DIMENSION, DIMENSION)))[0]


def contents(count: int, seed: int = 0) -> np.ndarray:
    """Vectors that tell nothing of their language. Before rotation, eight dimensions are free."""
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION))
    vectors[:, :8] = 0
    return vectors @ ROTATION


def planted_half(rank: int, sign: float, count: int, seed: int) -> np.ndarray:
    """Vectors of which each has a component in one of `rank` directions, whose sign is given.

    The first direction has the longest components, and so is the dominant one. Every content comes
    with its opposite, so that the dominant directions of these vectors are exactly the planted
    ones.
    """
    half_contents = contents(count // 2, seed)
    directions = np.arange(count // 2) % rank
    components = np.zeros((count // 2, DIMENSION))
    components[np.arange(count // 2), directions] = sign * (40.0 - 2 * directions)
    components = components @ ROTATION
    return np.vstack([components + half_contents, components - half_contents])


def planted(rank: int, sign: float, count: int = 800) -> np.ndarray:
    """Vectors of which every other is of one `planted_half`, and the rest of another.

    Two languages differ by a hair in a ninth direction, too. Without it, a classifier would tell
    vectors of equal contents by rounding errors.
    """
    vectors = np.empty((count, DIMENSION))
    vectors[0::2] = planted_half(rank, sign, count // 2, seed=0)
    vectors[1::2] = planted_half(rank, sign, count // 2, seed=1)
    return vectors + sign * 1e-7 * ROTATION[8]


def translations(rank: int) -> dict[str, np.ndarray]:
    """Texts of equal content in two languages, which `rank` directions tell apart."""
    return {"de": planted(rank, 1.0), "en": planted(rank, -1.0)}


def split(vectors: dict[str, np.ndarray]) -> dict[str, SplitVectors]:
    return {code: SplitVectors.every_other(rows) for code, rows in vectors.items()}


# ---- The accuracy


def test_every_other_vector_is_tested():
    vectors = np.arange(10.0).reshape(5, 2)
    halves = SplitVectors.every_other(vectors)
    np.testing.assert_array_equal(halves.learned, vectors[[0, 2, 4]])
    np.testing.assert_array_equal(halves.tested, vectors[[1, 3]])


def test_an_offset_tells_the_language():
    offset = np.zeros(DIMENSION)
    offset[3] = 20.0
    first = SplitVectors.every_other(contents(200))
    second = SplitVectors.every_other(contents(200, seed=1) + offset)
    np.testing.assert_array_equal(language_outcomes(first, second), np.ones(200))


def test_a_small_offset_is_told_among_more_dimensions_than_vectors():
    """As in TF-IDF, where a scale for each dimension would drown it in 2,000 others."""
    generator = np.random.default_rng(5)
    steepness = 1 / np.arange(1, 2001)
    first = generator.normal(size=(1000, 2000)) * steepness
    second = generator.normal(size=(1000, 2000)) * steepness
    second[:, 5] += 1.5  # Nine standard deviations.
    outcomes = language_outcomes(SplitVectors.every_other(first), SplitVectors.every_other(second))
    assert outcomes.mean() > 0.98


def test_a_rotation_does_not_change_what_is_told():
    first = np.random.default_rng(0).normal(size=(200, DIMENSION))
    second = np.random.default_rng(1).normal(size=(200, DIMENSION))
    second[:, 4] += 1.0
    outcomes = language_outcomes(SplitVectors.every_other(first), SplitVectors.every_other(second))
    rotation = np.linalg.qr(np.random.default_rng(3).normal(size=(DIMENSION, DIMENSION)))[0]
    rotated = language_outcomes(
        SplitVectors.every_other(first @ rotation), SplitVectors.every_other(second @ rotation)
    )
    np.testing.assert_array_equal(rotated, outcomes)
    assert 0.55 < outcomes.mean() < 0.9


def test_equal_vectors_tell_nothing():
    vectors = SplitVectors.every_other(np.ones((40, 3)))
    assert language_outcomes(vectors, vectors).mean() == 0.5


@pytest.mark.parametrize(("rank", "accuracy"), [(0, 1.0), (1, 0.875), (2, 0.75), (3, 0.625)])
def test_what_planted_directions_tell_by_hand(rank, accuracy):
    """Of four directions, each tells a quarter of the vectors.

    Of a quarter whose direction is removed, each vector is equal in both languages: whatever the
    classifier says, it is right about one of the two.
    """
    remaining = debias_by_rank(split(translations(4)), rank)
    assert language_accuracy(remaining) == pytest.approx(accuracy)


def test_three_languages_by_hand():
    """French is told from both others, and these are equal: the mean of 1, 1 and 1/2."""
    vectors = {"de": contents(200), "en": contents(200), "fr": planted(1, 1.0, 200)}
    assert language_accuracy(split(vectors)) == pytest.approx(5 / 6)


def test_a_larger_language_is_no_better_guess():
    """Of 600 and 200 equal vectors, three in four would be told by saying the first language."""
    vectors = {"de": contents(600), "en": contents(600)[:200]}
    assert language_accuracy(split(vectors)) == 0.5


# ---- The rank


@pytest.mark.parametrize("rank", [1, 2, 4, 8])
def test_planted_directions_are_found(rank):
    vectors = translations(rank)
    debiased = remove_language_directions(split(vectors))
    assert (debiased.rank, debiased.accuracy) == (rank, 0.5)
    remaining = debiased.vectors["de"].tested @ ROTATION.T
    assert np.abs(remaining[:, :8]).max() < 1e-6
    debiaser = LanguageDebiaser("auto").fit(
        np.vstack([vectors["de"], vectors["en"]]), ["de"] * 800 + ["en"] * 800
    )
    assert debiaser.rank == "auto"
    assert debiaser.rank_ == rank
    assert debiaser.components_["en"].shape == (rank, DIMENSION)


def test_the_rank_is_a_power_of_two():
    """Three directions are planted, and two leave a third of the vectors to be told."""
    assert choose_rank(translations(3)) == 4


def test_a_rank_given_as_a_number_removes_the_same_directions():
    vectors = translations(4)
    stacked = np.vstack([vectors["de"], vectors["en"]])
    languages = ["de"] * 800 + ["en"] * 800
    found = LanguageDebiaser("auto").fit(stacked, languages)
    given = LanguageDebiaser(4).fit(stacked, languages)
    assert found.rank_ == given.rank_ == 4
    np.testing.assert_array_equal(
        found.transform(stacked, languages), given.transform(stacked, languages)
    )


def test_one_distribution_needs_no_direction():
    """Vectors of other texts of the same kind: the language is not told, so nothing is removed."""
    vectors = np.vstack([contents(2000), contents(2000, seed=1)])
    languages = ["de"] * 2000 + ["en"] * 2000
    debiaser = LanguageDebiaser("auto").fit(vectors, languages)
    assert debiaser.rank_ == 0
    assert debiaser.components_["de"].shape == (0, DIMENSION)
    np.testing.assert_array_equal(debiaser.transform(vectors, languages), vectors)


def test_vectors_that_tell_nothing_stay_as_they_are():
    vectors = split({"de": contents(400), "en": contents(400)})
    assert remove_language_directions(vectors).vectors is vectors


def never_hidden() -> dict[str, np.ndarray]:
    """Vectors that span three directions: two can be removed, and the third tells all."""
    levels = np.repeat(np.eye(4)[:3], 40, axis=0)
    np.random.default_rng(0).shuffle(levels)
    return {"de": levels, "en": levels * [3.0, 2.0, -1.0, 0.0]}


def test_the_last_rank_is_taken_where_none_suffices():
    debiased = remove_language_directions(split(never_hidden()))
    assert debiased.rank == 2
    assert debiased.accuracy >= 0.55


def test_the_choice_looks_at_vectors_of_the_whole_corpus():
    """The first 2,000 vectors do not tell their language, and the other 4,000 do."""
    vectors = {}
    for code, sign in (("de", 1.0), ("en", -1.0)):
        vectors[code] = np.vstack([contents(2000), planted(1, sign, 4000)])
    assert choose_rank({code: rows[:2000] for code, rows in vectors.items()}) == 0
    assert choose_rank(vectors) > 0


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"de": contents(200)}, r"rank: found 'auto' for one language \(de\), expected .* two"),
        (
            {"de": contents(200), "en": contents(99)},
            "rank: found 'auto' for 99 vectors of 'en', expected at least 100",
        ),
        (
            never_hidden(),
            r"found 'auto', but even with 2 directions removed, .* predicts \d+% of the vectors'",
        ),
    ],
)
def test_what_is_refused(samples, message):
    vectors = np.vstack(list(samples.values()))
    languages = []
    for code, rows in samples.items():
        languages += [code] * len(rows)
    with pytest.raises(ValueError, match=message):
        LanguageDebiaser("auto").fit(vectors, languages)


def test_a_hundred_vectors_are_enough():
    assert choose_rank({"de": planted(1, 1.0, 100), "en": planted(1, -1.0, 100)}) == 1


def test_gram_matrices_alone_tell_no_rank():
    with pytest.raises(ValueError, match="rank: found 'auto' without samples of vectors"):
        LanguageDebiaser("auto").fit_grams({"de": np.eye(3), "en": np.eye(3)})


def test_another_word_is_no_rank():
    with pytest.raises(ValueError, match="rank: found 'atuo' for 'de', expected 'auto', or an"):
        LanguageDebiaser("atuo").fit(contents(100), "de")
