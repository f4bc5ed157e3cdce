"""An ONNX graph gives the vectors of its model."""

import numpy as np
import pytest
import torch

from modeling_tmde import AdaptedConfig, AdaptedModel, AlignedModel, LaserModel, TmdeError
from tests.conftest import nightly_except, tiny_model
from tests.embedding.export_texts import TEXTS
from tests.tiny_embedders import aligned, laser, make_bag, make_xlmr
from tmde import DocumentEmbedder
from tmde.embedding import export_onnx as export_module
from tmde.embedding.export_onnx import export_onnx
from tmde.embedding.serving_files import write_serving_files


def make_bag_residual():
    return tiny_model(bag_residual=True, sublinear_counts=True)


def make_damped_bag():
    return make_bag(sublinear_counts=True)


def make_plain_bag():
    return make_bag(normalize=False)


def make_adapted():
    config = AdaptedConfig(
        encoder_config=make_xlmr().config, prompt_ids=[7, 9], bag_residual=2, projection=True
    )
    return AdaptedModel(config)


def graph_outputs(path, embedder, texts):
    """Return states, vectors and mask from one padded batch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    options = {
        "padding": True,
        "truncation": True,
        "max_length": embedder.max_length,
        "return_tensors": "pt",
    }
    inputs = embedder.tokenizer(texts, split_special_tokens=True, **options)
    names = {graph_input.name for graph_input in session.get_inputs()}
    assert names == {"input_ids", "attention_mask"}
    arrays = {name: inputs[name].numpy() for name in names}
    states, vectors = session.run(["last_hidden_state", "sentence_embedding"], arrays)
    return states, vectors, arrays["attention_mask"]


def pooled_states(states, mask, pooling):
    if pooling == "cls":
        return states[:, 0]
    mask = mask[:, :, None]
    return (states * mask).sum(1) / mask.sum(1)


@pytest.fixture
def onnx():
    """Skip tests if the packages of the extra `onnx` are missing."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")


@pytest.mark.parametrize(
    "make",
    nightly_except(
        [make_adapted],
        [make_bag_residual, make_xlmr, make_adapted, make_damped_bag, make_plain_bag],
    ),
    ids=["bag residual", "xlm-r", "adapted", "damped bag", "plain bag"],
)
def test_the_graph_gives_the_vectors_of_the_model(make, onnx, tokenizer, tmp_path):
    torch.manual_seed(0)
    embedder = DocumentEmbedder(make().eval(), tokenizer)

    path, difference, _ = export_onnx(embedder.model, tokenizer, tmp_path)

    assert path == tmp_path / "onnx" / "model.onnx"
    assert difference < 1e-4
    texts = [*TEXTS, ""]
    states, vectors, mask = graph_outputs(path, embedder, texts)
    expected = embedder.encode(texts)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    states_pooled = pooled_states(states, mask, embedder.pooling)
    np.testing.assert_allclose(states_pooled, expected, rtol=0, atol=1e-5)


@pytest.mark.nightly
def test_an_int8_graph_keeps_the_direction_of_the_vectors(onnx, tokenizer, tmp_path):
    torch.manual_seed(0)
    embedder = DocumentEmbedder(tiny_model().eval(), tokenizer)

    path, _, _ = export_onnx(embedder.model, tokenizer, tmp_path, "int8")

    assert path == tmp_path / "onnx" / "model_int8.onnx"
    _, vectors, _ = graph_outputs(path, embedder, TEXTS)
    expected = embedder.encode(TEXTS)
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (vectors * expected).sum(1) / norms
    assert cosines.min() > 0.9


def test_the_folder_of_a_graph_has_a_config_and_nothing_temporary(onnx, tokenizer, tmp_path):
    torch.manual_seed(0)
    export_onnx(tiny_model().eval(), tokenizer, tmp_path)
    assert (tmp_path / "config.json").exists()
    assert (tmp_path / "tokenizer.json").exists()
    assert not list((tmp_path / "onnx").glob(".*"))


def test_a_graph_of_another_model_is_not_overwritten(onnx, tokenizer, tmp_path):
    write_serving_files(DocumentEmbedder(make_bag(), tokenizer), tmp_path)
    with pytest.raises(ValueError, match="contains another model; choose a new folder"):
        export_onnx(make_xlmr(), tokenizer, tmp_path)
    assert not (tmp_path / "onnx").exists()


def test_a_graph_of_other_weights_is_not_overwritten(onnx, tokenizer, tmp_path):
    torch.manual_seed(0)
    model = make_bag()
    other_model = make_bag()
    torch.nn.init.normal_(other_model.get_input_embeddings().weight)
    path = export_onnx(model, tokenizer, tmp_path).path
    before = path.read_bytes()

    with pytest.raises(TmdeError, match="model.onnx belongs to another model"):
        export_onnx(other_model, tokenizer, tmp_path, "int8")

    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    export_onnx(model, tokenizer, tmp_path)  # The model itself may be written again.


def test_a_graph_that_gives_other_vectors_is_not_written(onnx, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(export_module, "TOLERANCE", -1)
    with pytest.raises(
        ValueError, match="the graph of XLMRobertaModel differs from the model by .* of its"
    ):
        export_onnx(make_xlmr(), tokenizer, tmp_path)
    assert not list(tmp_path.rglob("*.onnx"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LaserModel(laser()), "LaserModel can't be exported to ONNX: its LSTM layers"),
        (lambda: AlignedModel(aligned("bag")), "it has an encoder for each language"),
    ],
)
def test_models_that_are_no_graph_are_refused(make, message, onnx, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_onnx(make(), tokenizer, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unknown_quantization_is_named(onnx, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="quantization: found 'int4', expected None or 'int8'"):
        export_onnx(make_xlmr(), tokenizer, tmp_path, "int4")
