"""Vectors arrive in vector stores as they are."""

import numpy as np
import pytest

from tests.tiny_embedders import make_bag
from tmde import DocumentEmbedder


@pytest.fixture
def embedder(tokenizer):
    return DocumentEmbedder(make_bag(), tokenizer)


def test_pgvector_sends_and_reads_the_same_numbers(embedder):
    pgvector = pytest.importorskip("pgvector")
    vector = embedder.encode("haus hund")

    sent = pgvector.Vector(vector)

    np.testing.assert_array_equal(pgvector.Vector.from_binary(sent.to_binary()).to_numpy(), vector)
    read_text = pgvector.Vector.from_text(sent.to_text()).to_numpy()
    np.testing.assert_allclose(read_text, vector, rtol=1e-6)


def test_qdrant_finds_a_text_by_its_own_vector(embedder):
    qdrant_client = pytest.importorskip("qdrant_client")
    from qdrant_client import models

    texts = ["haus hund", "katze baum", "fluss stadt"]
    vectors = embedder.encode(texts)
    client = qdrant_client.QdrantClient(":memory:")
    size = models.VectorParams(size=embedder.dimension, distance=models.Distance.COSINE)
    client.create_collection("texts", vectors_config=size)
    points = []
    for number, vector in enumerate(vectors):
        points.append(models.PointStruct(id=number, vector=vector))
    client.upsert("texts", points)

    best = client.query_points("texts", query=vectors[1], limit=1).points[0]

    assert best.id == 1
    assert best.score == pytest.approx(1, abs=1e-5)
