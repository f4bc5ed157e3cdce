"""Ray Data: the vectors of an actor pool are those of `DocumentEmbedder`, row by row."""

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import make_rows, save
from tests.tiny_embedders import make_tables, make_tokenizer
from tmde import DocumentEmbedder
from tmde.documents.ray_embedding import BatchEmbedder, embed_dataset


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with an encoder for each language."""
    return str(save(tmp_path_factory.mktemp("tables"), make_tables(), make_tokenizer()))


@pytest.fixture(scope="module")
def table():
    texts = [row["de"] for row in make_rows(30, languages=("de",))] + [""]
    return pa.table({"id": range(31), "body": texts, "code": ["fr", "de"] * 15 + ["en"]})


def check_vectors(result, table, column="embedding", **options):
    """The column holds the vectors of `DocumentEmbedder`; the others are as they were."""
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())
    options = {"language": table["code"].to_pylist()} | options
    expected = embedder.encode(table["body"].to_pylist(), **options)

    assert result.drop_columns([column]).to_pydict() == table.to_pydict()
    assert result.schema.field(column).type == pa.list_(pa.float32(), expected.shape[1])
    np.testing.assert_allclose(np.stack(result[column].to_numpy()), expected, rtol=0, atol=1e-6)


@pytest.fixture
def embed(model) -> BatchEmbedder:
    return BatchEmbedder(
        model, "body", "vector", normalize=True, device="cpu", language_column="code"
    )


def test_a_batch_with_a_column_of_languages(embed, table):
    check_vectors(embed(table), table, "vector", normalize=True)


def test_a_batch_in_one_language(model, table):
    embed = BatchEmbedder(model, "body", device="cpu", language="en")

    check_vectors(embed(table), table, language="en")


def test_an_empty_batch_has_the_same_columns(embed, table):
    assert embed(table.slice(0, 0)).schema == embed(table).schema


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"text": ["a"], "code": ["de"]}, KeyError, '"body" does not exist'),
        (
            {"body": ["a", None], "code": ["de", "de"]},
            TypeError,
            "text 1: found NoneType, expected str",
        ),
        (
            {"body": ["a"], "code": ["sv"]},
            ValueError,
            "language of text 0: found 'sv', expected one of",
        ),
        ({"body": ["a"], "vector": [1]}, ValueError, "the column 'vector' already exists"),
    ],
    ids=["no texts", "null", "language", "output column"],
)
def test_bad_batches(embed, columns, error, message):
    with pytest.raises(error, match=message):
        embed(pa.table(columns))


def test_a_local_ray(model, table):
    """One Ray of one CPU on this machine."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tmde[ray]'")
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'tmde[ray]'")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        dataset = ray.data.from_arrow([table.slice(0, 11), table.slice(11)])
        embedded = embed_dataset(dataset, model, "body", batch_size=8, language_column="code")
        blocks = ray.get(embedded.to_arrow_refs())
    finally:
        ray.shutdown()
    check_vectors(pa.concat_tables(blocks).sort_by("id"), table)
