"""Every way to run an encoder against plain torch, on tiny models."""

import builtins
import importlib.util
import os
import shutil
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModel, XLMRobertaModel

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.backends import Int8Linear, compile_encoder, quantize_int8, use_fast_linear
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.linear import Linear
from modeling_tmde.onnx_backend import OnnxEncoder
from modeling_tmde.onnx_export import export_onnx
from tests.conftest import LANGUAGES, make_rows, tiny_model
from tests.modeling_tmde.test_embedding import make_tokenizer, make_xlmr

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in ("onnxruntime", "onnx", "onnxscript")),
    reason="needs the extra 'onnx'",
)
TEXTS = [row[language] for row in make_rows(6) for language in LANGUAGES] + ["", "haus haus haus hund hund", "a"]
VARIANTS = {
    "first": {},
    "pyramid": {"bottleneck": "pyramid"},
    "full": {"bottleneck": "full"},
    "dual": {"bottleneck": "dual"},
    "bag": {"bag_residual": True},
    "sublinear bag": {"bag_residual": True, "sublinear_counts": True},
}


def save(model, tokenizer, folder):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("token_weights"):  # which begin as zeros
                parameter.copy_(torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["first"])
def checkpoint(request, tokenizer, tmp_path_factory):
    return save(tiny_model(**VARIANTS[request.param]), tokenizer, tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def plain(checkpoint):
    return load(checkpoint).encode(TEXTS)


def load(folder, **modes) -> DocumentEmbedder:
    return DocumentEmbedder.from_pretrained(folder, device="cpu", **modes)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_bfloat16_and_int8_are_near(checkpoint, plain):
    for modes in ({"dtype": "bfloat16"}, {"quantization": "int8"}, {"quantization": "int8", "dtype": "bfloat16"}):
        vectors = load(checkpoint, **modes).encode(TEXTS)
        assert vectors.dtype == np.float32 and not np.array_equal(vectors, plain)
        assert cosines(vectors, plain).min() > 0.999, modes


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_vector_does_not_depend_on_the_batch(checkpoint, quantization):
    """Also in 8 bits: inputs are scaled token by token."""
    embedder = load(checkpoint, quantization=quantization)
    alone = np.stack([embedder.encode(text) for text in TEXTS])
    for batch_tokens in (1, 40, 4096):
        np.testing.assert_allclose(embedder.encode(TEXTS, batch_tokens=batch_tokens), alone, rtol=0, atol=1e-5)


def test_int8_linear_against_loops():
    torch.manual_seed(0)
    linear = Linear(5, 3)
    tensor = torch.randn(2, 4, 5) * torch.tensor([1.0, 100.0])[:, None, None]
    tensor[0, 1] = 0
    quantized = Int8Linear(linear)
    assert quantized.weight.dtype == torch.int8 and quantized.weight.shape == (3, 5)
    expected = np.zeros((2, 4, 3))
    weight, bias = linear.weight.detach().double().numpy(), linear.bias.detach().double().numpy()
    for text in range(2):
        for place in range(4):
            row = tensor[text, place].double().numpy()
            step = max(abs(row).max() / 127, 1e-30)
            for unit in range(3):
                weight_step = abs(weight[unit]).max() / 127
                sum_of_products = sum(
                    round(value / step) * round(w / weight_step) for value, w in zip(row, weight[unit], strict=True)
                )
                expected[text, place, unit] = sum_of_products * step * weight_step + bias[unit]
    found = quantized(tensor)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.numpy()[0], linear(tensor)[0].detach().numpy(), atol=0.05)
    assert quantized(tensor.bfloat16()).dtype == torch.bfloat16


def test_int8_takes_every_linear_layer_and_no_attention_that_reads_weights():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": Linear(2, 2), "c": nn.MultiheadAttention(2, 1)})
    quantize_int8(model)
    assert isinstance(model["a"], Int8Linear) and isinstance(model["b"], Int8Linear)
    attended, _ = model["c"](*[torch.ones(1, 1, 2)] * 3)
    assert attended.shape == (1, 1, 2)
    with pytest.raises(ValueError, match="found no linear layers in Embedding"):
        quantize_int8(nn.Embedding(2, 2))
    with pytest.raises(ValueError, match="found device 'meta', expected 'cpu'"):
        quantize_int8(nn.Linear(2, 2, device="meta"))


def test_fast_linear_of_other_encoders(tmp_path):
    model = make_xlmr()
    ids = torch.tensor([[0, 5, 6, 2]])
    expected = model(ids).last_hidden_state
    use_fast_linear(model)
    assert sum(isinstance(module, Linear) for module in model.modules()) == 12
    torch.testing.assert_close(model(ids).last_hidden_state, expected, rtol=0, atol=1e-5)
    model.save_pretrained(tmp_path)
    assert type(XLMRobertaModel.from_pretrained(tmp_path).encoder.layer[0].output.dense) is nn.Linear


@needs_onnx
@pytest.mark.parametrize(
    "checkpoint",
    [
        pytest.param(name, marks=pytest.mark.slow if name not in ("first", "sublinear bag") else ())
        for name in VARIANTS
    ],
    indirect=True,
)
def test_onnx_gives_the_same_vectors(checkpoint, plain):
    embedder = load(checkpoint, backend="onnx")
    assert isinstance(embedder.model, OnnxEncoder) and embedder.device.type == "cpu"
    np.testing.assert_allclose(embedder.encode(TEXTS), plain, rtol=0, atol=1e-5)
    np.testing.assert_allclose(embedder.encode(TEXTS, batch_tokens=30), plain, rtol=0, atol=1e-5)
    np.testing.assert_allclose(embedder.encode(TEXTS[0]), plain[0], rtol=0, atol=1e-5)
    assert embedder.max_length == 128 and embedder.dimension == 32


@pytest.fixture
def quick_export(checkpoint, monkeypatch):
    """An export that gives the graph of `checkpoint`, whatever the model."""
    graph = load(checkpoint, backend="onnx").model.path
    program = SimpleNamespace(save=lambda path: shutil.copyfile(graph, path))
    monkeypatch.setattr("torch.onnx.export", lambda *_, **__: program)


@needs_onnx
def test_onnx_is_written_once_and_again_for_other_weights(checkpoint, plain, tokenizer, tmp_path, monkeypatch):
    load(checkpoint, backend="onnx")
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    written = {path.name for path in (folder / "onnx").iterdir()}
    assert {"model.onnx", "model.onnx.tmde.json"} <= written and not any(name.startswith(".") for name in written)

    def no_torch(*_, **__):
        raise AssertionError("the weights were read")

    with monkeypatch.context() as patch:
        patch.setattr(AutoModel, "from_pretrained", no_torch)
        again = load(folder, backend="onnx")
        np.testing.assert_allclose(again.encode(TEXTS), plain, rtol=0, atol=1e-5)
        os.utime(folder / "model.safetensors", (time.time() + 9,) * 2)  # the same weights, as a copy has them
        assert load(folder, backend="onnx").model.path == folder / "onnx" / "model.onnx"
    save(tiny_model(seed=1).model, tokenizer, folder)
    os.utime(folder / "model.safetensors", (1, 1))  # other weights with an older time, as `cp -p` puts them there
    renewed = load(folder, backend="onnx")
    np.testing.assert_allclose(renewed.encode(TEXTS), load(folder).encode(TEXTS), rtol=0, atol=1e-5)
    assert not torch.equal(again.model.state_dict()["sha256"], renewed.model.state_dict()["sha256"])


@needs_onnx
def test_onnx_of_a_folder_that_cannot_be_written_to(checkpoint, plain, quick_export, tmp_path, monkeypatch):
    folder = shutil.copytree(checkpoint, tmp_path / "model", ignore=shutil.ignore_patterns("onnx"))
    (folder / "onnx").write_text("a file in the way, which stops even root")
    monkeypatch.setattr("modeling_tmde.onnx_files.constants.HF_HOME", str(tmp_path / "cache"))
    np.testing.assert_allclose(load(folder, backend="onnx").encode(TEXTS), plain, rtol=0, atol=1e-5)
    (graph,) = (tmp_path / "cache").rglob("model.onnx")
    before = graph.stat().st_mtime_ns
    load(folder, backend="onnx")
    assert graph.stat().st_mtime_ns == before


@needs_onnx
@pytest.mark.parametrize("days", [-1, 1])
def test_a_graph_of_the_users_own_is_left_alone(checkpoint, plain, quick_export, tmp_path, monkeypatch, days):
    """Be it older or newer than the weights."""
    folder = shutil.copytree(checkpoint, tmp_path / "model", ignore=shutil.ignore_patterns("onnx"))
    (folder / "onnx").mkdir()
    own = folder / "onnx" / "model.onnx"
    own.write_bytes(b"own")
    os.utime(own, (time.time() + days * 86400,) * 2)
    monkeypatch.setattr("modeling_tmde.onnx_files.constants.HF_HOME", str(tmp_path / "cache"))
    embedder = load(folder, backend="onnx")
    assert embedder.model.path.is_relative_to(tmp_path / "cache")
    np.testing.assert_allclose(embedder.encode(TEXTS), plain, rtol=0, atol=1e-5)
    assert own.read_bytes() == b"own" and [path.name for path in own.parent.iterdir()] == ["model.onnx"]
    shutil.copyfile(embedder.model.path, own)
    (folder / "model.safetensors").unlink()  # graph, config and tokenizer: there is nothing else to use
    assert load(folder, backend="onnx").model.path == own


@needs_onnx
@pytest.mark.parametrize("record", ["{", "{}", '{"model.safetensors": "00"}'])
def test_a_graph_of_an_unclear_record_is_written_anew(checkpoint, quick_export, tmp_path, record):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    path = folder / "onnx" / "model.onnx.tmde.json"
    expected = path.read_text()
    path.write_text(record)
    assert load(folder, backend="onnx").model.path == folder / "onnx" / "model.onnx"
    assert path.read_text() == expected


@needs_onnx
def test_onnx_int8_is_smaller_and_near(checkpoint, plain, quick_export):
    embedder = load(checkpoint, backend="onnx", quantization="int8")
    assert cosines(embedder.encode(TEXTS), plain).min() > 0.99
    assert not np.allclose(embedder.encode(TEXTS), plain, rtol=0, atol=1e-5)
    small = embedder.model.path
    assert small.name == "model_int8.onnx"
    assert small.stat().st_size < small.with_name("model.onnx").stat().st_size


@needs_onnx
def test_onnx_of_another_encoder_opens_without_its_weights(tmp_path):
    """XLM-R: mean pooling, and two positions fewer than its config says."""
    model, tokenizer = make_xlmr(), make_tokenizer()
    path = export_onnx(model, tokenizer, tmp_path)
    assert path == tmp_path / "onnx" / "model.onnx" and not list(tmp_path.glob("*.safetensors"))
    embedder = load(tmp_path, backend="onnx")
    assert (embedder.pooling, embedder.max_length) == ("mean", 64)
    expected = DocumentEmbedder(model, tokenizer).encode([*TEXTS, "x y z " * 90])
    np.testing.assert_allclose(embedder.encode([*TEXTS, "x y z " * 90]), expected, rtol=0, atol=1e-5)
    cls = DocumentEmbedder(model, tokenizer, pooling="cls").encode(TEXTS)
    np.testing.assert_allclose(load(tmp_path, backend="onnx", pooling="cls").encode(TEXTS), cls, rtol=0, atol=1e-5)


@needs_onnx
def test_a_wrong_graph_is_refused_and_leaves_what_was_there(tokenizer, quick_export, tmp_path):
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_text("old")
    with pytest.raises(ValueError, match="graph of TmdeModel differs from the model by a share of"):
        export_onnx(tiny_model(seed=1).model, tokenizer, tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["onnx", "model.onnx"]
    assert (tmp_path / "onnx" / "model.onnx").read_text() == "old"


@needs_onnx
def test_a_graph_of_another_kind_is_named(checkpoint, quick_export, tmp_path):
    onnx = pytest.importorskip("onnx")
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    graph = onnx.load(folder / "onnx" / "model.onnx")
    graph.graph.output[0].name = graph.graph.node[-1].output[0] = "logits"
    onnx.save(graph, folder / "onnx" / "model.onnx")
    with pytest.raises(
        ValueError, match=r"model.onnx: found a graph with outputs \['logits'\], expected 'last_hidden"
    ):
        load(folder, backend="onnx")


@needs_onnx
def test_what_onnx_does_not_take(checkpoint):
    with pytest.raises(ValueError, match="device: found 'cuda' with backend='onnx', expected 'cpu'"):
        DocumentEmbedder.from_pretrained(checkpoint, backend="onnx", device="cuda")
    with pytest.raises(ValueError, match="found 'mean' with backend='onnx'"):
        load(checkpoint, backend="onnx", pooling="mean")


def test_onnx_runtime_is_missing(checkpoint, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if "onnx" in name else find(name, *rest))
    with pytest.raises(ImportError, match=r"needs onnxruntime: pip install 'tmde\[onnx\]'"):
        load(checkpoint, backend="onnx")


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ({"backend": "tensorflow"}, "backend: found 'tensorflow', expected one of"),
        ({"quantization": "int4"}, "quantization: found 'int4', expected one of"),
        ({"backend": "onnx", "compile": True}, "compile=True is for backend='torch'"),
        ({"backend": "onnx", "dtype": "bfloat16"}, "dtype: found 'bfloat16' with backend='onnx'"),
        ({"quantization": "int8", "compile": True}, "exclude each other"),
    ],
)
def test_modes_that_do_not_go_together(checkpoint, modes, message):
    with pytest.raises(ValueError, match=message):
        load(checkpoint, **modes)


@pytest.mark.parametrize("modes", [{"backend": "onnx"}, {"quantization": "int8"}, {"compile": True}])
def test_a_bag_takes_none(tokenizer, tmp_path, modes):
    folder = save(BagModel(BagConfig(vocab_size=400, d_model=8)), tokenizer, tmp_path)
    ((name, value),) = modes.items()
    with pytest.raises(ValueError, match=f"^{name}={value!r}: found a bag of tokens"):
        load(folder, **modes)


def test_bfloat16_without_instructions_is_warned_of(checkpoint, monkeypatch, caplog):
    for flags, warned in (({"avx512_bf16"}, False), ({"avx2"}, True)):
        caplog.clear()
        monkeypatch.setattr("modeling_tmde.loading._cpu_flags", lambda flags=flags: flags)
        load(checkpoint, dtype="bfloat16")
        assert ("no instructions for bfloat16" in caplog.text) is warned


def test_compile_needs_a_compiler(checkpoint, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match="compile: found no C\\+\\+ compiler 'no-such-compiler'"):
        load(checkpoint, compile=True)


def test_compiled_batches_have_few_shapes_and_the_same_vectors(checkpoint, plain, monkeypatch):
    """torch.compile itself takes a minute; this runs what it would be given."""
    monkeypatch.setattr("torch.nn.Module.compile", lambda module, **_: setattr(module, "_compiled_call_impl", True))
    monkeypatch.setattr("modeling_tmde.backends.shutil.which", lambda _: "compiler")
    model = AutoModel.from_pretrained(checkpoint)
    shapes, forward = [], model.forward
    monkeypatch.setattr(nn.Module, "__call__", nn.Module._call_impl)
    model.forward = lambda **inputs: shapes.append(tuple(inputs["input_ids"].shape)) or forward(**inputs)
    tokenizer = load(checkpoint).tokenizer
    embedder = DocumentEmbedder(compile_encoder(model), tokenizer, max_length=40)
    expected = DocumentEmbedder(AutoModel.from_pretrained(checkpoint), tokenizer, max_length=40)
    texts = [*TEXTS, "haus hund " * 40]
    for batch_tokens in (1, 100, 4096):
        np.testing.assert_allclose(embedder.encode(texts, batch_tokens), expected.encode(texts), rtol=0, atol=1e-5)
    assert min(rows for rows, _ in shapes) == 2
    assert {length for _, length in shapes} == {16, 32, 40}


@pytest.mark.slow
def test_torch_compile_gives_the_same_vectors(checkpoint, plain):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    embedder = load(checkpoint, compile=True)
    counters = torch._dynamo.utils.counters["stats"]
    before = counters["unique_graphs"]
    np.testing.assert_allclose(embedder.encode(TEXTS), plain, rtol=0, atol=1e-5)
    np.testing.assert_allclose(embedder.encode(TEXTS, batch_tokens=1), plain, rtol=0, atol=1e-5)
    assert counters["unique_graphs"] == before > 0  # no shape was compiled anew


def test_an_encoder_that_cannot_be_compiled(monkeypatch):
    def broken(module, **_):
        module.forward = lambda **__: builtins.int("Python.h: No such file")

    monkeypatch.setattr("torch.nn.Module.compile", broken)
    monkeypatch.setattr("modeling_tmde.backends.shutil.which", lambda _: "compiler")
    with pytest.raises(ValueError, match="compile: XLMRobertaModel cannot be compiled here: .*Python.h"):
        compile_encoder(make_xlmr())
