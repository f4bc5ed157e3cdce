"""A model in other forms gives its vectors: an ONNX graph, a static embedding, sentence-transformers."""

import numpy as np
import pytest
import torch

from modeling_tmde import AlignedModel, BagConfig, BagModel, DocumentEmbedder, LaserModel
from modeling_tmde import export as export_module
from modeling_tmde.export import export_onnx, export_static_embedding
from tests.conftest import LANGUAGES, make_rows, tiny_model
from tests.tiny_embedders import aligned, laser, make_bag, make_xlmr

TEXTS = [row[language] for row in make_rows(6, seed=3) for language in LANGUAGES]
TEXTS += ["<s> </s> a<pad>b <unk>", "Großer HUND, 12,345.67!", "long text " * 60, " ", "漢字 Привет"]


def run_graph(path, embedder, texts):
    """Vectors of a graph, in one padded batch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    assert {given.name for given in session.get_inputs()} == {"input_ids", "attention_mask"}
    inputs = embedder.tokenizer(
        texts, padding=True, truncation=True, max_length=embedder.max_length, return_tensors="pt"
    )
    (hidden,) = session.run(["last_hidden_state"], {name: inputs[name].numpy() for name in inputs})
    if embedder.pooling == "cls":
        return hidden[:, 0]
    mask = inputs["attention_mask"].numpy()[:, :, None]
    return (hidden * mask).sum(1) / mask.sum(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "quantization"),
    [
        (lambda: tiny_model(), None),
        (lambda: tiny_model(bottleneck="pyramid"), None),
        (lambda: tiny_model(bag_residual=True, sublinear_counts=True), None),
        (make_xlmr, None),
        (lambda: tiny_model(), "int8"),
    ],
    ids=["first", "pyramid", "bag residual", "xlm-r", "int8"],
)
def test_the_graph_gives_the_vectors_of_the_model(make, quantization, tokenizer, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    embedder = DocumentEmbedder(make().eval(), tokenizer)
    graph = export_onnx(embedder.model, tokenizer, tmp_path, quantization)
    assert graph.path == tmp_path / "onnx" / ("model.onnx" if quantization is None else "model_int8.onnx")
    assert graph.path.stat().st_size <= graph.size and not list((tmp_path / "onnx").glob(".*"))
    assert (tmp_path / "config.json").exists() and (tmp_path / "tokenizer.json").exists()
    expected = embedder.encode(TEXTS)
    vectors = run_graph(graph.path, embedder, TEXTS)
    if quantization is None:
        assert graph.difference < 1e-4
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    else:
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        assert ((vectors * expected).sum(1) / norms).min() > 0.9


@pytest.mark.slow
def test_a_graph_of_something_else_is_refused(tokenizer, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    write = export_module._write_graph

    def spoiled(graph, embedder, path):
        with torch.no_grad():
            graph.encoder.embed_tokens.weight[7:] *= -1
            write(graph, embedder, path)
            graph.encoder.embed_tokens.weight[7:] *= -1

    monkeypatch.setattr(export_module, "_write_graph", spoiled)
    with pytest.raises(ValueError, match="the graph of TmdeModel differs from the model by .* of its largest output"):
        export_onnx(tiny_model(), tokenizer, tmp_path)
    assert not list(tmp_path.rglob("*.onnx"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BagModel(BagConfig(vocab_size=400, d_model=8)), "BagModel cannot be an ONNX graph: it adds up rows"),
        (lambda: LaserModel(laser()), "LaserModel cannot be an ONNX graph: its LSTM layers"),
        (lambda: AlignedModel(aligned("bag")), "it has an encoder for each language"),
    ],
)
def test_models_that_are_no_graph(make, message, tokenizer, tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ValueError, match=message):
        export_onnx(make(), tokenizer, tmp_path)
    assert not list(tmp_path.iterdir())


def test_static_embedding(tokenizer, tmp_path, monkeypatch):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = make_bag()
    assert export_static_embedding(model, tokenizer, tmp_path / "static") < 1e-4
    static = sentence_transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu")
    assert [type(module).__name__ for module in static] == ["StaticEmbedding", "Normalize"]
    expected = DocumentEmbedder(model, tokenizer).encode(TEXTS)
    np.testing.assert_allclose(static.encode(TEXTS), expected, rtol=0, atol=1e-5)
    for bad, message in (
        (tiny_model().model, "found TmdeModel .*expected a BagModel"),
        (make_bag(normalize=False), "found normalize=False"),
        (make_bag(sublinear_counts=True), "sublinear_counts=True"),
    ):
        with pytest.raises(ValueError, match=message):
            export_static_embedding(bad, tokenizer, tmp_path / "other")
    monkeypatch.setattr(export_module, "TOLERANCE", -1)
    with pytest.raises(ValueError, match="the table gives vectors that differ from those of the model"):
        export_static_embedding(model, tokenizer, tmp_path / "other")
    assert not (tmp_path / "other").exists()
