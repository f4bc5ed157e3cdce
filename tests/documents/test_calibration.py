"""Probabilities of pairs: by hand, on pairs whose right ones are known, and their files."""

import csv
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import tmde
from modeling_tmde import TmdeError
from tests.cli.conftest import save_bag, write_rows
from tests.cli.test_calibrate import noisy_rows
from tests.strange_texts import SAMPLES
from tmde.data.sample import sample_sentences
from tmde.documents import model_calibration
from tmde.documents.bead_probabilities import BeadProbabilities
from tmde.documents.calibration import (
    DEFAULT_MIN_PROBABILITY,
    EVIDENCE,
    Calibration,
    pair_evidence,
)
from tmde.documents.calibration_fit import (
    FEWEST_PAIRS,
    PairVectors,
    embed_pairs,
    fit_calibration,
    language_pairs,
    mined_evidence,
    split_by_row,
)
from tmde.documents.number_agreement import numbers_agree, numbers_of
from tmde.documents.reliability import (
    ReliabilityBin,
    expected_calibration_error,
    reliability_bins,
)
from tmde.documents.sentence_alignment import Bead
from tmde.documents.unit_rows import UnitRows
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.packaged_models import PACKAGED_FOLDERS

WEIGHTS = dict(zip(EVIDENCE, [2.0, 3.0, 0.5, -1.0, -4.0], strict=True))
BY_HAND = Calibration(
    weights=WEIGHTS,
    intercept=-5.0,
    neighbors=2,
    prompt="",
    pooling="cls",
    probe_cosines=[0.0] * 6,
    pairs=10,
    languages=["de", "en"],
)


class OrthogonalTexts:
    """Embeds every text as a direction of its own."""

    needs_language = False

    def __init__(self, prompt="", pooling="cls"):
        self.prompt = prompt
        self.pooling = pooling

    def encode(self, texts, language=None, show_progress_bar=None, normalize=True):
        return np.eye(len(texts), 8)


EMBEDDER = OrthogonalTexts("query: ", "mean")


# ---- Evidence and probabilities


def test_evidence_by_hand():
    evidence = pair_evidence(
        ["abc", "Seite 7"], ["abcdefg", "page 8"], np.array([0.6, 0.9]), np.array([0.4, 0.01])
    )
    log2 = math.log(2)
    # 1 + 3 and 1 + 7 characters: the logarithms are 2 log 2 and 3 log 2.
    assert evidence[0] == pytest.approx([1.5, 0.6, 2.5 * log2, log2, 0])
    # A mean of neighbors below 0.05 counts as 0.05.
    assert evidence[1, :2] == pytest.approx([18, 0.9])
    assert evidence[1, 4] == 1


def test_probability_by_hand():
    evidence = np.array([[1.5, 0.6, 2.0, 0.8, 1.0]])
    # 2 * 1.5 + 3 * 0.6 + 0.5 * 2 - 0.8 - 4 - 5 = -4
    assert BY_HAND.probabilities(evidence)[0] == pytest.approx(1 / (1 + math.exp(4)))


def test_the_share_multiplies_the_odds():
    evidence = np.random.default_rng(0).normal(size=(20, 5))
    half = BY_HAND.probabilities(evidence, 0.5)
    tenth = BY_HAND.probabilities(evidence, 0.1)
    assert tenth / (1 - tenth) == pytest.approx(half / (1 - half) / 9)


@pytest.mark.parametrize("share", [0, 1, -0.5, float("nan")])
def test_a_share_that_is_none(share):
    with pytest.raises(TmdeError, match="share: found .*, expected a number between 0 and 1"):
        BY_HAND.probabilities(np.zeros((1, 5)), share)


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [
        ("1.000,50 Euro", "1,000.50 euros", True),
        ("am 3.4.2021", "on 2021-04-03", True),
        ("keine", "none", True),
        ("US-005", "US-004", False),
        ("zwei", "2", False),
        ("٣", "3", True),
    ],
)
def test_numbers(first, second, agree):
    assert numbers_agree(first, second) is agree


def test_a_sign_that_stands_for_several_letters_counts_several_times():
    """Lengths of `Ja!` and of 橋を渡る (two Chinese signs, two syllables), by hand: 3 and 10."""
    evidence = pair_evidence(["Ja!"], ["橋を渡る"], np.array([0.5]), np.array([0.25]))
    mean = (np.log(4) + np.log(11)) / 2
    np.testing.assert_allclose(evidence[0], [2, 0.5, mean, np.log(11) - np.log(4), 0])


def test_a_number_of_thousands_of_digits():
    assert numbers_of(f"{'1' * 6000}万") == ["1" * 6000]


def test_superscripts_are_no_numbers():
    assert numbers_of("m² 10³") == ["10"]


# ---- Beads


def test_probabilities_of_beads_by_hand():
    """Both sentences of the second document are the translation of the first one's last."""
    first = np.array([[0, 0, 1.0], [1, 0, 0]])
    second = np.array([[1, 0, 0], [0, 1.0, 0]])
    texts = ["aaa", "a" * 7], ["a" * 16, "b" * 16]
    bead = Bead(range(1, 2), range(2), cost=0, similarity=0.7)
    probabilities = BeadProbabilities(BY_HAND, 0.5, [first], [second, np.empty((0, 1))])
    value = probabilities.probabilities_of([bead], texts, (first, second))
    # Equal lengths weigh the same: the sum is (1, 1, 0), the cosine with (1, 0, 0) is sqrt(1/2).
    cosine = math.sqrt(0.5)
    # The cosines of (1, 0, 0) to the second document are 1 and 0, those of the sum to the first one
    # sqrt(1/2) and 0.
    neighbor_mean = ((1 + 0) / 2 + (cosine + 0) / 2) / 2
    first_length = math.log(8)
    second_length = math.log(34)  # two sentences of 16 characters, a space, and 1
    logit = 2 * cosine / neighbor_mean + 3 * cosine
    logit += 0.5 * (first_length + second_length) / 2 - (second_length - first_length) - 5
    assert value == pytest.approx([1 / (1 + math.exp(-logit))])


def test_no_beads():
    vectors = np.eye(2)
    probabilities = BeadProbabilities(BY_HAND, 0.5, [vectors], [vectors])
    assert probabilities.probabilities_of([], ([], []), (vectors, vectors)) == []
    none = np.empty((0, 1))
    probabilities = BeadProbabilities(BY_HAND, 0.5, [none], [vectors])
    assert probabilities.probabilities_of([], ([], []), (none, vectors)) == []


def test_norms_of_sentences_are_computed_once(monkeypatch):
    """A thousand short documents do not need the norms of all sentences a thousand times."""
    counts = []
    norms_of = UnitRows._norms

    def counted(rows):
        counts.append(len(rows))
        return norms_of(rows)

    monkeypatch.setattr(UnitRows, "_norms", counted)
    vectors = np.eye(50)
    documents = [vectors[row : row + 1] for row in range(50)]
    probabilities = BeadProbabilities(BY_HAND, 0.5, documents, documents)
    bead = Bead(range(1), range(1), cost=0, similarity=1.0)
    for document in documents:
        probabilities.probabilities_of([bead], (["a"], ["b"]), (document, document))
    assert counts.count(50) == 2


# ---- Fit


def noisy_pairs(count, noise, seed):
    """Pairs whose second vector is the first one with noise; their texts say nothing."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(count, 24))
    second = first + noise * rng.normal(size=(count, 24))
    return PairVectors(("de", "en"), [("Text", "text")] * count, first, second)


def test_probabilities_hold_for_other_pairs_and_other_shares():
    calibration = fit_calibration([noisy_pairs(1000, 0.9, seed=0)], EMBEDDER)
    unseen = [noisy_pairs(1000, 0.9, seed=1)]
    for share in (0.9, 0.5, 0.2):
        mined = mined_evidence(unseen, share, seed=1)
        assert 0.05 < mined.is_right.mean() < 0.95
        probabilities = calibration.probabilities(mined.evidence, share)
        bins = reliability_bins(probabilities, mined.is_right)
        assert expected_calibration_error(bins) < 0.05
        assert mined.is_right[probabilities >= 0.9].mean() > 0.87
    # With the share of another collection, the probabilities do not hold.
    wrong = calibration.probabilities(mined.evidence, 0.9)
    assert expected_calibration_error(reliability_bins(wrong, mined.is_right)) > 0.1


def test_a_calibration_says_what_it_was_fitted_to():
    calibration = fit_calibration([noisy_pairs(300, 0.9, seed=0)], EMBEDDER)
    assert (calibration.pairs, calibration.languages) == (300, ["de", "en"])
    assert (calibration.prompt, calibration.pooling) == ("query: ", "mean")
    assert calibration.weights["cosine"] > 0


def test_the_share_of_texts_with_a_translation():
    """With distinct vectors, the right pairs are those of which no text was lost."""
    count = 300
    pairs = PairVectors(("de", "en"), [("a", "b")] * count, np.eye(count), np.eye(count))
    mined = pairs.mined(0.5, np.random.default_rng(0))
    # Of 300 pairs, 100 stay whole and 100 lose each side: half of 200 texts have a translation.
    assert mined.is_right.sum() == 100


def test_only_right_pairs():
    count = 3
    pairs = PairVectors(("de", "en"), [("a", "b")] * count, np.eye(count), np.eye(count))
    with pytest.raises(TmdeError, match="Found only right mined pairs"):
        fit_calibration([pairs], EMBEDDER)


def test_too_few_pairs():
    with pytest.raises(TmdeError, match=f"Found no two languages with {FEWEST_PAIRS} pairs"):
        fit_calibration([], EMBEDDER)


def test_language_pairs():
    rows = [{"de": f"Haus {n}", "en": f"house {n}", "fr": None} for n in range(250)]
    rows.append({"de": "Haus 7", "en": "new house"})  # A text of a pair before.
    rows.append({"de": "7 8", "en": "7  8"})  # Equal texts.
    rows.append({"de": " ", "en": "nothing"})
    pairs = language_pairs(rows)
    assert list(pairs) == [("de", "en")]
    assert len(pairs["de", "en"]) == 250
    limited = language_pairs(rows, most_pairs=3)["de", "en"]
    assert limited == [(f"Haus {n}", f"house {n}") for n in (0, 124, 249)]


def test_every_text_is_embedded_once():
    asked = []

    class Counting:
        def encode(self, texts, language):
            asked.append((language, texts))
            return np.array([[len(text), 0] for text in texts])

    pairs = {("de", "en"): [("a", "bb")], ("de", "fr"): [("a", "ccc"), ("dddd", "ccc")]}
    first, second = embed_pairs(pairs, Counting())
    assert asked == [("de", ["a", "dddd"]), ("en", ["bb"]), ("fr", ["ccc"])]
    assert first.second.tolist() == [[2, 0]]
    assert second.first.tolist() == [[1, 0], [4, 0]]
    assert second.second.tolist() == [[3, 0], [3, 0]]


def test_a_text_is_fitted_to_or_measured_with():
    """Rows 0 and 4 are kept back. The English text of row 0 is that of row 3, too."""
    rows = [
        {"de": "a", "en": "A", "fr": "α"},
        {"de": "b", "en": "B", "fr": None},
        {"de": "c", "en": "C", "fr": "γ"},
        {"de": "d", "en": "A", "fr": "δ"},
        {"de": "e", "en": "E", "fr": "γ"},
    ]
    vectors = []
    for languages in (("de", "en"), ("de", "fr")):
        pairs = []
        for row in rows:
            if row[languages[1]] is not None:
                pairs.append((row[languages[0]], row[languages[1]]))
        vectors.append(PairVectors(languages, pairs, np.eye(len(pairs)), np.eye(len(pairs))))
    is_kept_back = np.array([True, False, False, False, True])
    known, kept_back = split_by_row(vectors, rows, is_kept_back)
    german_english, german_french = [collection.pairs for collection in known]
    assert german_english == [("b", "B"), ("c", "C")]  # "A" is kept back.
    assert german_french == [("c", "γ"), ("d", "δ")]
    # "γ" is known by row 2, so there would be only one German and French pair.
    (german_english,) = [collection.pairs for collection in kept_back]
    assert german_english == [("a", "A"), ("e", "E")]
    assert kept_back[0].first.tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]


def test_the_parts_of_a_corpus_have_no_text_in_common():
    texts = sample_sentences(300, "dev", seed=2)["translation"]
    rows = [{language: row[language] for language in ("de", "en", "fr")} for row in texts]
    vectors = []
    for languages, pairs in language_pairs(rows).items():
        size = len(pairs)
        vectors.append(PairVectors(languages, pairs, np.ones((size, 2)), np.ones((size, 2))))
    sides = []
    for part in split_by_row(vectors, rows, np.arange(300) % 5 == 0):
        sides.append({text for collection in part for pair in collection.pairs for text in pair})
    known, kept_back = sides
    assert len(known) > 3 * len(kept_back) > 100
    assert not known & kept_back


# ---- Reliability


def test_reliability_by_hand():
    probabilities = np.array([0.05, 0.15, 0.12, 1.0])
    bins = reliability_bins(probabilities, np.array([False, True, False, True]))
    assert bins == [
        ReliabilityBin(1, pytest.approx(0.05), 0.0),
        ReliabilityBin(2, pytest.approx(0.135), 0.5),
        ReliabilityBin(1, 1.0, 1.0),
    ]
    assert expected_calibration_error(bins) == pytest.approx((0.05 + 2 * 0.365 + 0) / 4)


class KnownProbabilities:
    """A calibration that knows the probabilities of five pairs, and their evidence."""

    languages = ("de", "en")
    pairs = 5
    evidence = None
    is_right = np.array([True, True, False, True, True])

    def probabilities(self, evidence, share):
        return np.array([0.99, 0.95, 0.93, 0.2, 0.1])

    def save(self, path):
        path.write_text("")


def test_what_a_probability_of_nine_tenths_keeps(tokenizer, tmp_path, monkeypatch):
    save_bag(tmp_path / "model", tokenizer)
    for name in ("mined_evidence", "fit_calibration"):
        monkeypatch.setattr(model_calibration, name, lambda *arguments: KnownProbabilities())
    pairs = write_rows(tmp_path / "pairs.jsonl", noisy_rows())
    report = tmde.calibrate_model(str(tmp_path / "model"), str(pairs))
    assert report.precision == pytest.approx(2 / 3)
    assert report.recall == 0.5
    assert "include 50.0% of the correct pairs, and 66.7% of them" in report.sentences()[0]


# ---- Files


def test_a_file(tmp_path):
    BY_HAND.save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path / "calibration.json") == BY_HAND
    assert Calibration.from_pretrained(tmp_path) == BY_HAND


def test_a_model_without_a_calibration(tmp_path):
    assert Calibration.find(tmp_path) is None
    with pytest.raises(TmdeError, match=f"{tmp_path}: found no calibration"):
        Calibration.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "the file: Input should be an object"),
        ("{", "the file: Invalid JSON"),
        (BY_HAND.model_dump_json().replace('"neighbors":2', '"neighbors":"x"'), "neighbors: "),
        (
            BY_HAND.model_dump_json().replace('"ratio"', '"other"'),
            "weights: .*expected the weights",
        ),
    ],
)
def test_files_that_are_no_calibration(tmp_path, content, message):
    path = tmp_path / "calibration.json"
    path.write_text(content)
    with pytest.raises(TmdeError, match=f"{path}: {message}"):
        Calibration.load(path)


def test_another_prompt():
    with pytest.raises(TmdeError, match="prompt: found 'passage: ', expected ''"):
        BY_HAND.check_embedder(OrthogonalTexts("passage: "))


def test_another_model():
    BY_HAND.check_embedder(OrthogonalTexts())
    default = DocumentEmbedder.from_pretrained(device="cpu")
    with pytest.raises(TmdeError, match="The calibration belongs to another model"):
        BY_HAND.check_embedder(default)
    accurate = DocumentEmbedder.from_pretrained("accurate", device="cpu")
    with pytest.raises(TmdeError, match="The calibration belongs to another model|prompt: found"):
        Calibration.from_pretrained("default").check_embedder(accurate)


@pytest.mark.parametrize("name", ["default", "tmde", "accurate"])
def test_packaged_models_are_calibrated(name):
    calibration = Calibration.from_pretrained(name)
    calibration.check_embedder(DocumentEmbedder.from_pretrained(name, device="cpu"))
    assert calibration.weights["cosine"] > 0
    assert calibration.weights["numbers_differ"] < 0


MEMORY = Path(__file__).parents[2] / "examples" / "data" / "memory.tsv"


@pytest.mark.parametrize("name", ["default", "tmde", "accurate"])
def test_packaged_probabilities_hold_for_software_strings(name):
    """The calibrations were fitted to no such text. The strings are real."""
    with open(MEMORY, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))[::3]
    embedder = DocumentEmbedder.from_pretrained(name, device="cpu")
    vectors = embed_pairs(language_pairs(rows), embedder)
    mined = mined_evidence(vectors, 0.5, seed=0)
    probabilities = Calibration.from_pretrained(name).probabilities(mined.evidence)
    bins = reliability_bins(probabilities, mined.is_right)
    assert expected_calibration_error(bins) < 0.06
    is_kept = probabilities >= DEFAULT_MIN_PROBABILITY
    right_count = 3 * vectors[0].whole_count(0.5)
    found = mined.is_right[is_kept].sum()
    assert found / is_kept.sum() > 0.8
    assert found / right_count > 0.85


def test_saving_a_model_keeps_its_calibration(tmp_path):
    default = DocumentEmbedder.from_pretrained(device="cpu")
    default.save_pretrained(tmp_path)
    assert Calibration.from_pretrained(tmp_path) == Calibration.from_pretrained("default")
    saved = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    saved.save_pretrained(tmp_path)
    assert Calibration.from_pretrained(tmp_path) == Calibration.from_pretrained("default")


def test_saving_another_model_leaves_no_calibration(tmp_path):
    other = tmp_path / "other"
    shutil.copytree(PACKAGED_FOLDERS["default"], other)
    (other / "calibration.json").unlink()
    saved = tmp_path / "saved"
    DocumentEmbedder.from_pretrained(device="cpu").save_pretrained(saved)
    assert (saved / "calibration.json").exists()
    DocumentEmbedder.from_pretrained(other, device="cpu").save_pretrained(saved)
    assert not (saved / "calibration.json").exists()


@pytest.mark.parametrize("text", [*SAMPLES, "7" * 5000, "²", "१२३"])
def test_evidence_about_strange_texts(text):
    evidence = pair_evidence([text], [text], np.array([0.5]), np.array([0.4]))
    assert np.isfinite(evidence).all()
    assert evidence[0, 4] == 0
