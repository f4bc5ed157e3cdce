"""Rotation to principal components: the same cosines, and numbers sorted by their variance."""

import numpy as np
import pytest
import torch

from modeling_tmde import BagConfig, BagModel
from tests.conftest import make_rows, tiny_model
from tests.docs.scripts import script_module
from tests.hub_encoders import adapt_encoder, save_encoder
from tmde import DocumentEmbedder

with script_module("principal_components") as script:
    export_pca = script.export_pca

ROWS = make_rows(160, seed=1)
TEXTS = [row["de"] for row in ROWS] + [row["en"] for row in ROWS]
OTHER_TEXTS = [row["fr"] for row in make_rows(10, seed=2)]


def make_bag(tokenizer, normalize):
    torch.manual_seed(0)
    model = BagModel(BagConfig(vocab_size=400, d_model=8, normalize=normalize)).eval()
    with torch.no_grad():
        model.embed_tokens.weight *= torch.linspace(0.1, 2, 8)
    return DocumentEmbedder(model, tokenizer)


def make_encoder(folder, **changes):
    """Return an encoder of the recipe `adapted`, which reads a prompt."""
    model = adapt_encoder(save_encoder(folder / "encoder", "xlm-roberta"), **changes).model.eval()
    embedder = DocumentEmbedder.from_pretrained(folder / "encoder", "mean", device="cpu")
    return DocumentEmbedder(model, embedder.tokenizer)


@pytest.fixture(params=["bag", "mean bag", "encoder", "encoder and bag"])
def embedder(request, tokenizer, tmp_path):
    if request.param.endswith("encoder"):
        return make_encoder(tmp_path, pooling="mean", normalize=True)
    if request.param == "encoder and bag":
        return make_encoder(tmp_path, pooling="cls", bag_residual=2)
    return make_bag(tokenizer, normalize=request.param == "bag")


def rotated(embedder, folder):
    export_pca(embedder, TEXTS, folder)
    return DocumentEmbedder.from_pretrained(folder, device="cpu")


def test_products_are_those_before(embedder, tmp_path):
    before = embedder.encode(OTHER_TEXTS)
    after = rotated(embedder, tmp_path / "new").encode(OTHER_TEXTS)
    assert not np.allclose(before, after, atol=1e-2)
    np.testing.assert_allclose(before @ before.T, after @ after.T, rtol=0, atol=1e-4)


def test_numbers_do_not_correlate_and_are_sorted_by_their_variance(embedder, tmp_path):
    vectors = rotated(embedder, tmp_path / "new").encode(TEXTS).astype(float)
    covariance = np.cov(vectors, rowvar=False)
    variances = covariance.diagonal()
    np.testing.assert_allclose(covariance, np.diag(variances), rtol=0, atol=1e-5 * variances[0])
    assert (np.diff(variances) < 1e-6).all()


def test_a_second_rotation_changes_nothing(embedder, tmp_path):
    once = rotated(embedder, tmp_path / "once")
    twice = rotated(once, tmp_path / "twice")
    expected = once.encode(OTHER_TEXTS)
    # The last components of a tiny encoder have hardly any variance, so their order is chance.
    np.testing.assert_allclose(twice.encode(OTHER_TEXTS)[:, :4], expected[:, :4], rtol=0, atol=2e-3)


def test_other_libraries_open_the_rotated_encoder(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    embedder = make_encoder(tmp_path, pooling="mean", normalize=True)
    expected = rotated(embedder, tmp_path / "new").encode(OTHER_TEXTS)
    opened = sentence_transformers.SentenceTransformer(str(tmp_path / "new"), device="cpu")
    np.testing.assert_allclose(opened.encode(OTHER_TEXTS), expected, rtol=0, atol=1e-5)


def test_a_new_projection_changes_nothing(tmp_path):
    plain = make_encoder(tmp_path / "plain", pooling="mean")
    projected = make_encoder(tmp_path / "projected", pooling="mean", projection=True)
    np.testing.assert_allclose(projected.encode(OTHER_TEXTS), plain.encode(OTHER_TEXTS), atol=1e-6)


def test_what_cannot_be_rotated_is_refused(tokenizer, tmp_path):
    bag = make_bag(tokenizer, normalize=True)
    with pytest.raises(ValueError, match="Found 7 texts, expected at least 8, one for each column"):
        export_pca(bag, TEXTS[:7], tmp_path / "new")
    other = DocumentEmbedder(tiny_model().model.eval(), tokenizer)
    with pytest.raises(ValueError, match="Found a model of type tmde, expected a bag"):
        export_pca(other, TEXTS, tmp_path / "new")
    assert not (tmp_path / "new").exists()
