"""The export to sentence-transformers gives the same vectors, there, from files alone."""

import sys

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from modeling_tmde import BagConfig, BagModel, DocumentEmbedder
from modeling_tmde.export import export_static_embedding
from tests.conftest import LANGUAGES, make_rows, tiny_model

TEXTS = [row[language] for row in make_rows(6, seed=3) for language in LANGUAGES]
TEXTS += ["<s> </s> a<pad>b <unk>", "Großer HUND, 12,345.67!", "long text " * 60, " ", "漢字 Привет"]


def make_bag(**changes) -> BagModel:
    torch.manual_seed(1)
    model = BagModel(BagConfig(**({"vocab_size": 400, "d_model": 24} | changes))).eval()
    with torch.no_grad():
        model.token_weights[3:] = torch.randn(397)
    return model


def static_vectors(folder) -> np.ndarray:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    opened = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert [type(module).__name__ for module in opened] == ["StaticEmbedding", "Normalize"]
    assert opened.similarity_fn_name == "cosine"
    return opened.encode(TEXTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_same_vectors_from_a_folder(tokenizer, tmp_path, dtype):
    pytest.importorskip("sentence_transformers")
    make_bag().to(dtype).save_pretrained(tmp_path / "bag")
    tokenizer.save_pretrained(tmp_path / "bag")
    assert export_static_embedding(tmp_path / "bag", folder=tmp_path / "static") == tmp_path / "static"
    assert not list((tmp_path / "static").rglob("*.py"))
    embedder = DocumentEmbedder.from_pretrained(tmp_path / "bag", device="cpu", dtype=torch.float32)
    vectors = embedder.encode(TEXTS)
    assert embedder.last_report.truncated == 0
    np.testing.assert_allclose(static_vectors(tmp_path / "static"), vectors, rtol=0, atol=1e-5)


def test_same_vectors_from_a_model_and_its_tokenizer(tokenizer, tmp_path):
    pytest.importorskip("sentence_transformers")
    model = make_bag()
    tokenizer("truncated", truncation=True, max_length=4, padding="max_length")  # what this leaves behind is not taken
    export_static_embedding(model, tokenizer, folder=tmp_path)
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    expected = model(**inputs).pooler_output.detach().numpy()
    np.testing.assert_allclose(static_vectors(tmp_path), expected, rtol=0, atol=1e-5)


def test_what_cannot_be_exported_is_named(tokenizer, tmp_path):
    pytest.importorskip("sentence_transformers")
    bert = BertModel(BertConfig(vocab_size=400, hidden_size=8, num_hidden_layers=1, num_attention_heads=1))
    for model in (bert, tiny_model()):
        with pytest.raises(ValueError, match=f"found {type(model).__name__} .*expected a BagModel"):
            export_static_embedding(model, tokenizer, folder=tmp_path)
    for setting in ({"normalize": False}, {"sublinear_counts": True}):
        found = "found {}={}".format(*next(iter(setting.items())))
        with pytest.raises(ValueError, match=found):
            export_static_embedding(make_bag(**setting), tokenizer, folder=tmp_path)
    with pytest.raises(ValueError, match="found None for a model"):
        export_static_embedding(make_bag(), folder=tmp_path)
    with pytest.raises(ValueError, match="found 400 tokens, expected at most the 399"):
        export_static_embedding(BagModel(BagConfig(vocab_size=399, d_model=4)), tokenizer, folder=tmp_path)
    with pytest.raises(ValueError, match="found str, expected a fast tokenizer"):
        export_static_embedding(make_bag(), "no tokenizer", folder=tmp_path)
    assert not any(tmp_path.iterdir())


def test_missing_library_is_named(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match="pip install -U sentence-transformers"):
        export_static_embedding(make_bag(), tokenizer, folder=tmp_path)
