"""Vectors in 8 bits or 1 bit: their values, the same in every call, and how they are compared."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde import TmdeError
from tests.tiny_embedders import TEXTS, make_bag, make_tokenizer, make_xlmr
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.quantization import PRECISIONS, quantized, restored, signed_bytes

WIDTH = 32  # of the tiny model
DTYPES = {
    "float32": np.float32,
    "int8": np.int8,
    "uint8": np.uint8,
    "binary": np.int8,
    "ubinary": np.uint8,
}


@pytest.fixture(scope="module")
def embedder():
    return DocumentEmbedder(make_xlmr(), make_tokenizer())


@pytest.fixture(scope="module")
def vectors(embedder):
    return embedder.encode(TEXTS)


def random_vectors(number: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((number, width)).astype(np.float32)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    first = first / np.linalg.norm(first, axis=1, keepdims=True)
    second = second / np.linalg.norm(second, axis=1, keepdims=True)
    return first @ second.T


# ---- Values


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        # 127 x over the largest number of a row, 0.5 and 4: 25.4, -63.5 and 31.75.
        ("int8", [[127, -64, 25, 0], [32, 0, -127, 0], [0, 0, 0, 0]]),
        ("uint8", [[255, 64, 153, 128], [160, 128, 1, 128], [128, 128, 128, 128]]),
        ("ubinary", [[0b10100000], [0b10000000], [0]]),
        ("binary", [[0b10100000 - 128], [0], [-128]]),
    ],
)
def test_values(precision, expected):
    numbers = [[0.5, -0.25, 0.1, 0.0], [1.0, 0.0, -4.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    result = quantized(np.array(numbers, np.float32), precision)
    assert result.dtype == DTYPES[precision]
    assert result.tolist() == expected


@settings(max_examples=30, deadline=None)
@given(width=st.integers(1, 40), seed=st.integers(0, 1000), scale=st.floats(1e-6, 1e6))
def test_8_bits_keep_the_direction(width, seed, scale):
    originals = random_vectors(5, width, seed)
    for precision in ("int8", "uint8"):
        stored = quantized(originals * np.float32(scale), precision)
        directions = restored(torch.from_numpy(stored), precision).numpy()
        lengths = np.linalg.norm(originals, axis=1, keepdims=True)
        # Half a step of each number.
        steps = np.abs(originals).max(axis=1, keepdims=True) / lengths / 127
        assert (np.abs(directions - originals / lengths) <= 0.51 * steps * (1 + width**0.5)).all()


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
@pytest.mark.parametrize("width", [16, 13])
def test_signs_come_back(precision, width):
    originals = random_vectors(20, width)
    directions = restored(torch.from_numpy(quantized(originals, precision)), precision).numpy()
    assert directions.shape == (20, 16)
    np.testing.assert_allclose(directions[:, :width], np.sign(originals) / 4)
    assert (directions[:, width:] < 0).all()


def test_an_unknown_precision_is_refused():
    for function in (lambda: quantized(np.ones((1, 8)), "int4"), lambda: restored(None, "int4")):
        with pytest.raises(TmdeError, match="precision: found 'int4', expected one of"):
            function()


# ---- encode


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("make", [make_xlmr, make_bag])
def test_a_text_has_the_same_vector_in_every_call(precision, make):
    embedder = DocumentEmbedder(make(), make_tokenizer())
    together = embedder.encode(TEXTS, precision=precision)
    for number, text in enumerate(TEXTS):
        for alone in (
            embedder.encode(text, precision=precision),
            embedder.encode([text, TEXTS[0]], precision=precision)[0],
        ):
            assert alone.dtype == together.dtype == DTYPES[precision]
            if precision == "float32":
                np.testing.assert_allclose(alone, together[number], rtol=0, atol=1e-5)
            elif precision in ("int8", "uint8"):
                # Where float32 differs in its last digits, a number may round to the next step.
                assert np.abs(alone.astype(int) - together[number]).max() <= 1
            else:
                np.testing.assert_array_equal(alone, together[number])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("options", [{}, {"truncate_dim": 12}, {"normalize": True}], ids=str)
def test_encode_quantizes_what_it_would_return(precision, options, embedder):
    expected = quantized(embedder.encode(TEXTS, **options), precision)
    result = embedder.encode(TEXTS, precision=precision, **options)
    tensor = embedder.encode(TEXTS, precision=precision, convert_to_tensor=True, **options)
    chunks = embedder.encode_iter(TEXTS, chunk_size=2, precision=precision, **options)
    for other in (result, tensor.numpy(), np.concatenate(list(chunks))):
        assert other.dtype == DTYPES[precision]
        assert other.shape == expected.shape
        differences = np.abs(other.astype(np.float32) - expected)
        assert differences.max() <= (1e-5 if precision == "float32" else 1)
    nothing = embedder.encode([], precision=precision, **options)
    assert (nothing.shape, nothing.dtype) == ((0, expected.shape[1]), expected.dtype)


def test_a_stream_refuses_what_encode_refuses(embedder):
    for options, message in (
        ({"truncate_dim": 33}, "truncate_dim: found 33, expected 1 to 32"),
        ({"precision": "int4"}, "precision: found 'int4'"),
    ):
        with pytest.raises(TmdeError, match=message):
            next(embedder.encode_iter(TEXTS, **options))


# ---- Similarity


@pytest.mark.parametrize("precision", ["int8", "uint8"])
def test_similarity_of_8_bits(precision, embedder, vectors):
    stored = embedder.encode(TEXTS, precision=precision)
    expected = cosines(vectors, vectors)
    np.testing.assert_allclose(embedder.similarity(stored, stored), expected, atol=0.01)
    # One side in full precision, a tensor, a list, one vector.
    np.testing.assert_allclose(embedder.similarity(vectors, stored), expected, atol=0.01)
    np.testing.assert_allclose(
        embedder.similarity(torch.from_numpy(stored), list(stored)), expected, atol=0.01
    )
    np.testing.assert_allclose(embedder.similarity(stored[0], stored), expected[:1], atol=0.01)
    pairs = embedder.similarity_pairwise(stored, stored[::-1].copy())
    np.testing.assert_allclose(pairs, np.diagonal(expected[:, ::-1]), atol=0.01)


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
def test_similarity_of_signs_is_that_of_the_hamming_distance(precision, embedder, vectors):
    stored = embedder.encode(TEXTS, precision=precision)
    signs = vectors > 0
    distances = (signs[:, None] != signs).sum(axis=-1)
    assert distances.max() > 5
    scores = embedder.similarity(stored, stored, precision=precision)
    np.testing.assert_allclose(scores, 1 - 2 * distances / WIDTH, atol=1e-6)
    scores = embedder.similarity(vectors, stored, precision=precision)
    np.testing.assert_allclose(scores, cosines(vectors, np.where(signs, 1.0, -1.0)), atol=1e-6)


def test_similarity_of_signs_without_their_padding(embedder, vectors):
    cut = embedder.encode(TEXTS, truncate_dim=13)
    stored = embedder.encode(TEXTS, truncate_dim=13, precision="ubinary")
    expected = cosines(cut, np.where(cut > 0, 1.0, -1.0))
    for scores in (
        embedder.similarity(cut, stored, precision="ubinary"),
        embedder.similarity(stored, cut, precision="ubinary").T,
    ):
        np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["dot", "euclidean", "manhattan"])
def test_other_measures_take_directions(name):
    embedder = DocumentEmbedder(make_xlmr(), make_tokenizer())
    embedder.similarity_fn_name = name
    directions = embedder.encode(TEXTS, normalize=True)
    stored = embedder.encode(TEXTS, precision="int8")
    expected = embedder.similarity(directions, directions)
    np.testing.assert_allclose(embedder.similarity(stored, stored), expected, atol=0.1)


@pytest.mark.parametrize(
    ("options", "precision", "message"),
    [
        (
            {"precision": "ubinary"},
            None,
            "embeddings1: found uint8 vectors of width 4, but the model's width is 32; give "
            "precision='ubinary' for packed bits, or precision='uint8' for vectors",
        ),
        ({"precision": "int8", "truncate_dim": 8}, None, "found int8 vectors of width 8"),
        ({"precision": "int8"}, "ubinary", "found 'ubinary', expected 'int8' or 'binary'"),
        ({"precision": "int8"}, "int4", "precision: found 'int4', expected one of"),
    ],
)
def test_vectors_that_could_be_of_two_kinds(options, precision, message, embedder):
    stored = embedder.encode(TEXTS, **options)
    for method in (embedder.similarity, embedder.similarity_pairwise):
        with pytest.raises(TmdeError, match=message):
            method(stored, stored, precision=precision)


def test_vectors_cut_in_8_bits_with_their_precision(embedder):
    cut = embedder.encode(TEXTS, truncate_dim=8)
    stored = embedder.encode(TEXTS, truncate_dim=8, precision="int8")
    scores = embedder.similarity(stored, stored, precision="int8")
    np.testing.assert_allclose(scores, cosines(cut, cut), atol=0.02)


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_signed_bytes_have_the_cosines_of_the_vectors(precision):
    stored = quantized(random_vectors(20, 24), precision)
    signed = signed_bytes(stored, precision)
    assert signed.dtype == np.int8
    assert signed.shape == (20, 24)
    directions = restored(torch.from_numpy(stored), precision).numpy()
    expected = directions @ directions.T
    np.testing.assert_allclose(cosines(signed.astype(float), signed), expected, atol=1e-6)
