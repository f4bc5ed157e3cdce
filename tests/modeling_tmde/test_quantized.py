"""Quantized models embed and write about as those in full precision do.

torchao replaces the weight of a layer, bitsandbytes and `torch.ao` the layer.
"""

import pytest
import torch
from torch import nn
from transformers import BitsAndBytesConfig, PreTrainedModel, TorchAoConfig

from tests.conftest import tiny_model
from tests.modeling_tmde.families import filled, of_families, padded
from tests.modeling_tmde.test_checkpoints import auto_class_of
from tests.test_goldens import FAMILIES
from tmde import DocumentEmbedder


def assert_similar(model: PreTrainedModel, expected: PreTrainedModel) -> None:
    inputs = padded(model=expected)
    with torch.no_grad():
        vectors = expected.base_model(**inputs).pooler_output
        for options in ({}, {"pooled_only": True}):
            quantized = model.base_model(**inputs, **options).pooler_output
            assert nn.functional.cosine_similarity(quantized, vectors).min() > 0.998
        if hasattr(model, "decoder"):
            labels = torch.tensor([[12, 13, 2]] * 4)
            decoded = [
                each(**inputs, labels=labels, target_language="en") for each in (model, expected)
            ]
            assert decoded[0].loss.item() == pytest.approx(decoded[1].loss.item(), rel=0.02)
            model.generate(**inputs, target_language="en", max_new_tokens=2)


@of_families(FAMILIES)
def test_torchao_opens_a_checkpoint(family, tmp_path):
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    expected = filled(family)
    expected.save_pretrained(tmp_path)
    config = TorchAoConfig(quantization.Int8WeightOnlyConfig(version=2))
    model = auto_class_of(expected).from_pretrained(tmp_path, quantization_config=config)
    assert_similar(model, expected)


@of_families(FAMILIES)
def test_torchao_quantizes_a_model_with_its_tables(family):
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    model = filled(family)
    quantization.quantize_(
        model,
        quantization.Int8WeightOnlyConfig(version=2),
        filter_fn=lambda layer, _: isinstance(layer, (nn.Linear, nn.Embedding)),
    )
    assert_similar(model, filled(family))


@pytest.mark.filterwarnings("ignore:.*torch.ao.quantization is deprecated")
@of_families(FAMILIES)
def test_torch_ao_quantizes_linear_and_recurrent_layers(family):
    layers = {nn.Linear, nn.LSTM, nn.GRU}
    model = torch.ao.quantization.quantize_dynamic(filled(family), layers, dtype=torch.qint8)
    assert_similar(model, filled(family))


@of_families(FAMILIES)
def test_bitsandbytes_opens_a_checkpoint(family, tmp_path):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    expected = filled(family)
    expected.save_pretrained(tmp_path)
    config = BitsAndBytesConfig(load_in_8bit=True)
    model = auto_class_of(expected).from_pretrained(
        tmp_path, quantization_config=config, device_map="cpu"
    )
    assert_similar(model, expected)


def test_an_embedder_encodes_with_a_quantized_model(tokenizer):
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    texts = ["haus hund", "katze"]
    expected = DocumentEmbedder(tiny_model().eval(), tokenizer).encode(texts)
    model = tiny_model().eval()
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig(version=2))
    vectors = DocumentEmbedder(model, tokenizer).encode(texts)
    similarities = nn.functional.cosine_similarity(*map(torch.from_numpy, (vectors, expected)))
    assert similarities.min() > 0.998


def test_a_hook_of_a_recurrent_layer_is_called():
    """Layers are called if anything hangs on the call, as offloading does."""
    model = filled("laser").base_model
    expected = model(**padded()).pooler_output
    calls = []
    model.layers[0].register_forward_hook(lambda *_: calls.append(1))
    torch.testing.assert_close(model(**padded()).pooler_output, expected)
    assert calls == [1]
