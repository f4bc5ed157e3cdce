"""What the scripts that measure alignment count as right."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load_script(name):
    """Import a script; it imports `common` from its own folder."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        path = BENCHMARKS / f"{name}.py"
        specification = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
        module = importlib.util.module_from_spec(specification)
        sys.modules[specification.name] = module  # dataclasses look up their module there
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


sentences = load_script("sentence_alignment")
documents = load_script("documents")


def units(*paragraphs):
    return [sentences.Unit(f"text {numbers}", numbers) for numbers in paragraphs]


def test_units_that_share_paragraphs_are_one_bead():
    """Paragraph 1 is missing on the left, 5 on the right; 2 and 3 are merged on the left alone."""
    left = units((0,), (2, 3), (4,), (5,))
    right = units((0,), (1,), (2,), (3,), (4,))
    expected = {((0,), (0,)), ((1,), (2, 3)), ((2,), (4,))}
    assert sentences.corresponding(left, right) == expected


def test_merges_that_overlap_chain():
    left = units((0, 1), (2,))
    right = units((0,), (1, 2))
    assert sentences.corresponding(left, right) == {((0, 1), (0, 1))}


def test_measures_are_those_of_all_documents_in_percent():
    pair = sentences.Pair(["a", "b", "c"], ["x", "y"], {((0,), (0,)), ((1, 2), (1,))})
    beads = [((0,), (0,)), ((1,), (1,)), ((2,), ())]
    result = sentences.measure([pair, pair], lambda pair: beads)
    assert result["precision"] == [pytest.approx(100 / 3)]
    assert result["recall"] == [50]
    value, low, high = result["strict"]
    assert value == pytest.approx(40)
    assert low < 40 < high
    assert result["lax"][0] == pytest.approx(80)


def test_the_program_of_vecalign_aligns_equal_texts():
    pytest.importorskip(
        "sentweave", reason="sentweave, the peer of this benchmark, is not installed"
    )

    class Encoder:
        def encode(self, texts, show_progress_bar):
            vectors = []
            for text in texts:
                vectors.append(sum(letter_vector(letter) for letter in text.replace(" ", "")))
            return np.array(vectors, np.float32)

    def letter_vector(letter):
        return np.random.default_rng(ord(letter)).normal(size=16)

    texts = list("abcdefgh")
    align = sentences.vecalign_aligner(Encoder())
    assert align(sentences.Pair(texts, texts, set())) == [((i,), (i,)) for i in range(8)]


def test_paragraph_merges_with_the_next_one_that_is_not_deleted():
    class Draws:
        """Keep 0, which merges; delete 1; keep 2, which is merged; keep 3."""

        numbers = iter([0.5, 0.0, 0.0, 0.5, 0.5, 0.5])

        def random(self):
            return next(self.numbers)

    edited = sentences.edited(["a", "b", "c", "d"], Draws())
    assert [unit.paragraphs for unit in edited] == [(0, 2), (3,)]


def test_middle_paragraphs():
    text = "\n\n".join("abcdef")
    assert documents.middle_paragraphs(text, 2) == "c\n\nd"
    assert documents.middle_paragraphs(text, 10) == text
    assert documents.middle_paragraphs(text, None) == text


def test_matches_of_every_pair():
    """The third language has the first two documents in the wrong order."""
    eye = np.eye(3, dtype=np.float32)
    vectors = {"de": eye, "en": eye, "fr": eye[[1, 0, 2]]}
    matches = documents.translation_matches(vectors, "cosine")
    assert matches.tolist() == [[1, 1, 1], [0, 0, 1], [0, 0, 1]]


def test_text_is_encoded_once():
    calls = []

    class Encoder:
        def encode(self, texts):
            calls.append(list(texts))
            return np.array([[len(text)] for text in texts], np.float32)

    encoder = documents.CachedEncoder(Encoder())
    assert encoder.encode(["a", "bb", "a"]).ravel().tolist() == [1, 2, 1]
    assert encoder.encode(["bb", "ccc"]).ravel().tolist() == [2, 3]
    assert calls == [["a", "bb"], ["ccc"]]
