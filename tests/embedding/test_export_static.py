"""A bag as a static embedding of sentence-transformers gives the vectors of the bag."""

import numpy as np
import pytest

from tests.conftest import tiny_model
from tests.embedding.export_texts import TEXTS
from tests.tiny_embedders import make_bag
from tmde import DocumentEmbedder
from tmde.embedding.export_static import export_static_embedding

sentence_transformers = pytest.importorskip("sentence_transformers")


def test_a_static_embedding_gives_the_vectors_of_the_bag(tokenizer, tmp_path):
    model = make_bag()

    difference = export_static_embedding(model, tokenizer, tmp_path / "static")

    assert difference < 1e-4
    static = sentence_transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu")
    assert [type(module).__name__ for module in static] == ["StaticEmbedding", "Normalize"]
    expected = DocumentEmbedder(model, tokenizer).encode(TEXTS)
    np.testing.assert_allclose(static.encode(TEXTS), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tiny_model().model, "found TmdeModel, expected a BagModel"),
        (lambda: make_bag(normalize=False), "found normalize=False"),
        (lambda: make_bag(sublinear_counts=True), "sublinear_counts=True"),
    ],
)
def test_models_that_are_no_normalized_mean_are_refused(make, message, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_static_embedding(make(), tokenizer, tmp_path / "static")
    assert not (tmp_path / "static").exists()
