"""Whitening of a bag by the differences of translations, beside plain float64 loops."""

import numpy as np
import pytest
import scipy.linalg
import torch

from modeling_tmde import BagConfig, BagModel
from tests.conftest import make_rows
from tests.docs.scripts import script_module
from tests.hub_encoders import adapt_encoder, save_encoder
from tmde import DocumentEmbedder

with script_module("whitening") as script:
    export_whitened = script.export_whitened

WIDTH = 6
ROWS = make_rows(80, seed=1)
PAIRS = [(row["de"], row["en"]) for row in ROWS]
TEXTS = [row["fr"] for row in make_rows(10, seed=2)]


@pytest.fixture(params=[True, False], ids=["normalized", "mean"])
def bag(request, tokenizer):
    torch.manual_seed(0)
    config = BagConfig(vocab_size=400, d_model=WIDTH, normalize=request.param)
    return DocumentEmbedder(BagModel(config).eval(), tokenizer)


def expected_matrix(embedder, power):
    covariance = np.zeros((WIDTH, WIDTH))
    for first, second in PAIRS:
        difference = embedder.encode([first])[0].astype(float)
        difference -= embedder.encode([second])[0].astype(float)
        for row in range(WIDTH):
            for column in range(WIDTH):
                covariance[row, column] += difference[row] * difference[column] / len(PAIRS)
    relative = WIDTH * covariance / np.trace(covariance)
    return scipy.linalg.fractional_matrix_power(relative, -power / 2)


@pytest.mark.parametrize("power", [0.0, 0.6, 1.0])
def test_products_are_those_of_the_vectors_before_times_the_matrix(bag, power, tmp_path):
    export_whitened(bag, PAIRS, tmp_path, power)
    whitened = DocumentEmbedder.from_pretrained(tmp_path, device="cpu").encode(TEXTS)
    expected = bag.encode(TEXTS) @ expected_matrix(bag, power)
    if bag.model.config.normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(whitened @ whitened.T, expected @ expected.T, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bag", [False], indirect=True)
def test_a_number_depends_on_itself_and_those_before_it(bag, tmp_path):
    """So what is cut off a vector before or after whitening is the same."""
    export_whitened(bag, PAIRS, tmp_path, power=0.6)
    whitened = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    before = bag.encode(TEXTS)
    after = whitened.encode(TEXTS)
    for width in range(1, WIDTH + 1):
        matrix, _, rank, _ = np.linalg.lstsq(before[:, :width], after[:, :width])
        assert rank == width
        np.testing.assert_allclose(before[:, :width] @ matrix, after[:, :width], rtol=0, atol=1e-5)


def test_a_direction_in_which_no_translations_differ_stays_finite(bag, tmp_path):
    with torch.no_grad():
        bag.model.embed_tokens.weight[:, 0] = 0
    export_whitened(bag, PAIRS, tmp_path, power=1.0)
    whitened = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    assert np.isfinite(whitened.encode(TEXTS)).all()


def test_what_cannot_be_whitened_is_refused(bag, tmp_path):
    with pytest.raises(ValueError, match=r"power: found 1.5, expected a number from 0 to 1"):
        export_whitened(bag, PAIRS, tmp_path / "new", power=1.5)
    message = "Found 59 pairs of translations, expected at least 60: 10 for each of 6 columns"
    with pytest.raises(ValueError, match=message):
        export_whitened(bag, PAIRS[:59], tmp_path / "new", power=0.6)
    same = [(text, text) for text, _ in PAIRS]
    with pytest.raises(ValueError, match="Found pairs whose two texts have the same vectors"):
        export_whitened(bag, same, tmp_path / "new", power=0.6)
    assert not (tmp_path / "new").exists()


def test_an_encoder_is_refused(tokenizer, tmp_path):
    model = adapt_encoder(save_encoder(tmp_path / "encoder", "bert")).eval()
    embedder = DocumentEmbedder(model, tokenizer)
    with pytest.raises(ValueError, match="Found a model of type tmde_adapted, expected a bag"):
        export_whitened(embedder, PAIRS, tmp_path / "new", power=0.6)
