"""A model in other forms gives its vectors: an ONNX graph, a static embedding, sentence-transformers."""

import json

import numpy as np
import pytest
import torch

from modeling_tmde import (
    AdaptedConfig,
    AdaptedModel,
    AlignedModel,
    DocumentEmbedder,
    LaserModel,
    NtdvForConditionalGeneration,
    TmdeEncoderForMaskedLM,
)
from modeling_tmde import export as export_module
from modeling_tmde.export import export_onnx, export_static_embedding
from modeling_tmde.long_documents import NO_LIMIT
from tests.conftest import LANGUAGES, jittered, make_rows, save, tiny_model
from tests.tiny_embedders import aligned, encoder, laser, make_bag, make_xlmr, ntdv

TEXTS = [row[language] for row in make_rows(6, seed=3) for language in LANGUAGES]
TEXTS += ["<s> </s> a<pad>b <unk>", "Großer HUND, 12,345.67!", "long text " * 60, " ", "漢字 Привет 🙂 e\u0301"]


def run_graph(path, embedder, texts):
    """Vectors of a graph, in one padded batch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    options = {"padding": True, "truncation": True, "max_length": embedder.max_length, "return_tensors": "pt"}
    inputs = embedder.tokenizer(texts, split_special_tokens=True, **options)
    names = {given.name for given in session.get_inputs()}
    assert names == {"input_ids", "attention_mask"}
    (hidden,) = session.run(["last_hidden_state"], {name: inputs[name].numpy() for name in names})
    if embedder.pooling == "cls":
        return hidden[:, 0]
    mask = inputs["attention_mask"].numpy()[:, :, None]
    return (hidden * mask).sum(1) / mask.sum(1)


PARTS = {"prompt_ids": [7, 9], "bag_residual": 2, "sublinear_counts": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "quantization"),
    [
        (lambda: tiny_model(bag_residual=True, sublinear_counts=True), None),
        (make_xlmr, None),
        (
            lambda: AdaptedModel(AdaptedConfig(encoder_config=make_xlmr().config, prompt_ids=[7, 9], bag_residual=2)),
            None,
        ),
        (lambda: tiny_model(), "int8"),
    ],
    ids=["bag residual", "xlm-r", "adapted", "int8"],
)
def test_the_graph_gives_the_vectors_of_the_model(make, quantization, tokenizer, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    embedder = DocumentEmbedder(make().eval(), tokenizer)
    path, difference, _ = export_onnx(embedder.model, tokenizer, tmp_path, quantization)
    assert path == tmp_path / "onnx" / ("model.onnx" if quantization is None else "model_int8.onnx")
    assert (tmp_path / "config.json").exists() and not list((tmp_path / "onnx").glob(".*"))
    expected, vectors = embedder.encode(TEXTS), run_graph(path, embedder, TEXTS)
    if quantization is None:
        assert difference < 1e-4
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    else:
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        assert ((vectors * expected).sum(1) / norms).min() > 0.9
    if make is make_xlmr:  # a graph that gives other vectors is not written
        monkeypatch.setattr(export_module, "TOLERANCE", -1)
        with pytest.raises(ValueError, match="the graph of XLMRobertaModel differs from the model by .* of its"):
            export_onnx(embedder.model, tokenizer, tmp_path / "other")
        assert not list((tmp_path / "other").rglob("*.onnx"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_bag, "BagModel cannot be an ONNX graph: it adds up rows"),
        (lambda: LaserModel(laser()), "LaserModel cannot be an ONNX graph: its LSTM layers"),
        (lambda: AlignedModel(aligned("bag")), "it has an encoder for each language"),
    ],
)
def test_models_that_are_no_graph(make, message, tokenizer, tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ValueError, match=message):
        export_onnx(make(), tokenizer, tmp_path)
    assert not list(tmp_path.iterdir())


def test_static_embedding(tokenizer, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = make_bag()
    assert export_static_embedding(model, tokenizer, tmp_path / "static") < 1e-4
    static = sentence_transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu")
    assert [type(module).__name__ for module in static] == ["StaticEmbedding", "Normalize"]
    expected = DocumentEmbedder(model, tokenizer).encode(TEXTS)
    np.testing.assert_allclose(static.encode(TEXTS), expected, rtol=0, atol=1e-5)
    for bad, message in (
        (tiny_model().model, "found TmdeModel, expected a BagModel"),
        (make_bag(normalize=False), "found normalize=False"),
        (make_bag(sublinear_counts=True), "sublinear_counts=True"),
    ):
        with pytest.raises(ValueError, match=message):
            export_static_embedding(bad, tokenizer, tmp_path / "other")
    assert not (tmp_path / "other").exists()


# The model, its longest input, and whether it needs the language of a text.
SAVED = {
    "pyramid": (lambda: tiny_model(bottleneck="pyramid", max_position_embeddings=100), 100, False),
    "bag": (lambda: make_bag(), NO_LIMIT, False),
    "masked": (lambda: TmdeEncoderForMaskedLM(encoder("mean")), 40, False),
    "ntdv": (lambda: NtdvForConditionalGeneration(ntdv()), NO_LIMIT, True),
}


@pytest.mark.parametrize("name", SAVED)
def test_sentence_transformers_gives_the_same_vectors(name, tokenizer, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    make, limit, needs_language = SAVED[name]
    torch.manual_seed(0)
    save(tmp_path, jittered(make()), tokenizer)
    opened = sentence_transformers.SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    embedder = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    assert opened.max_seq_length == embedder.max_length == limit
    language = {"language": "fr"} if needs_language else {}
    texts = [*TEXTS, "", " ".join(["haus", "cane"] * 80)]
    expected = embedder.encode(texts, **language)
    assert (embedder.last_report.truncated > 0) == (limit < NO_LIMIT)
    for batch_size in (1, 64):
        vectors = opened.encode(texts, batch_size=batch_size, **language)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert opened.similarity_fn_name == "cosine" and opened.get_embedding_dimension() == embedder.dimension
    if needs_language:
        with pytest.raises(ValueError, match="has a part for each language"):
            opened.encode(texts)


def test_saving_again_keeps_prompts_and_the_limit_of_the_tokenizer(tokenizer, tmp_path):
    """50 tokens of 128 positions: the first 50 of the text, as 750 in thesis 4.5.2."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    save(tmp_path, tiny_model(), tokenizer)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"model_max_length": 50}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prompts": {"query": "hund "}}))
    tiny_model(d_model=16).save_pretrained(tmp_path)
    opened = sentence_transformers.SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    embedder = DocumentEmbedder.from_pretrained(tmp_path, device="cpu")
    assert opened.max_seq_length == embedder.max_length == 50
    expected = embedder.encode(["hund haus", "hund " + "katze haus " * 90])
    vectors = opened.encode(["haus", "katze haus " * 90], prompt_name="query")
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert embedder.last_report.truncated == 1
