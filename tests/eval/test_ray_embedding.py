"""Ray Data: the vectors of an actor pool are those of `DocumentEmbedder`, row by row; one local Ray of one CPU."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from modeling_tmde import BagConfig, BagModel, DocumentEmbedder
from modeling_tmde.eval.ray_embedding import BatchEmbedder, embed_dataset
from tests.conftest import make_rows
from tests.tiny_embedders import make_tables, make_tokenizer


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("bag")
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=len(tokenizer), d_model=8)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="module")
def table():
    texts = [row["de"] for row in make_rows(30, languages=("de",))] + [""]
    return pa.table({"id": range(31), "body": texts})


def vectors_of(table, column="embedding"):
    return np.stack(table[column].to_numpy())


def test_a_batch(model, table):
    embed = BatchEmbedder(model, "body", "vector", normalize=True, device="cpu", max_length=4)
    result = embed(table)
    assert result.drop_columns(["vector"]).equals(table)
    assert result.schema.field("vector").type == pa.list_(pa.float32(), 8)
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu", max_length=4)
    expected = embedder.encode(table["body"].to_pylist(), normalize=True)
    np.testing.assert_allclose(vectors_of(result, "vector"), expected, rtol=0, atol=1e-6)
    assert embed(table.slice(0, 0)).schema == result.schema
    for columns, message in (
        ({"text": ["a"]}, '"body" does not exist'),
        ({"body": ["a", None]}, "text 1: found NoneType, expected str"),
        ({"body": ["a"], "vector": [1]}, "there is a column 'vector' already"),
    ):
        with pytest.raises((KeyError, TypeError, ValueError), match=message):
            embed(pa.table(columns))


def test_a_language_for_all_or_a_column_of_them(table, tmp_path):
    make_tables().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    texts, codes = table["body"].to_pylist(), ["fr", "de"] * 15 + ["en"]
    table = table.append_column("code", [codes])
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())
    for options, language in (({"language": "en"}, "en"), ({"language_column": "code"}, codes)):
        found = BatchEmbedder(str(tmp_path), "body", device="cpu", **options)(table)
        np.testing.assert_allclose(vectors_of(found), embedder.encode(texts, language=language), rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="AlignedModel has an encoder for each language"):
        BatchEmbedder(str(tmp_path), "body", device="cpu")(table)


@pytest.mark.slow
def test_a_local_ray(model, table):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tmde[ray]'")
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'tmde[ray]'")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        dataset = ray.data.from_arrow([table.slice(0, 11), table.slice(11)])
        blocks = ray.get(embed_dataset(dataset, model, "body", batch_size=8).to_arrow_refs())
    finally:
        ray.shutdown()
    result = pa.concat_tables(blocks).sort_by("id")
    assert result.select(["id", "body"]).to_pydict() == table.to_pydict()
    expected = DocumentEmbedder.from_pretrained(model, device="cpu").encode(table["body"].to_pylist())
    np.testing.assert_allclose(vectors_of(result), expected, rtol=0, atol=1e-6)
