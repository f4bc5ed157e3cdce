"""Cut and quantized vectors are measured as `DocumentEmbedder` stores and compares them."""

import numpy as np
import pytest

from tests.benchmarks.test_alignment_benchmarks import load_script
from tests.tiny_embedders import TEXTS, make_bag, make_tokenizer
from tmde.embedding import DocumentEmbedder
from tmde.eval import EmbeddingSystem

pytest.importorskip("sentence_transformers")  # which `peers` imports
vector_size = load_script("vector_size")


@pytest.fixture(scope="module")
def model():
    return EmbeddingSystem("tiny", DocumentEmbedder(make_bag(), make_tokenizer()))


def test_sizes_end_with_the_whole_vector(model):
    sizes = vector_size.sizes_of(model, (8, 16, 384), ("float32", "ubinary"))
    assert [stored.name for stored in sizes] == [
        "tiny 8 float32",
        "tiny 8 ubinary",
        "tiny 16 float32",
        "tiny 16 ubinary",
        "tiny 24 float32",
        "tiny 24 ubinary",
    ]
    assert [stored.bytes for stored in sizes] == [32, 1, 64, 2, 96, 3]


@pytest.mark.parametrize("precision", ["float32", "int8", "ubinary"])
def test_vectors_are_compared_as_the_embedder_compares_them(model, precision):
    embedder = model.embedder
    stored = vector_size.StoredVectors(model, 16, precision)
    vectors = stored.represent(TEXTS)
    encoded = embedder.encode(TEXTS, truncate_dim=16, precision=precision)
    expected = embedder.similarity(encoded, encoded, precision=precision)
    np.testing.assert_allclose(vectors @ vectors.T, expected, atol=1e-5)
