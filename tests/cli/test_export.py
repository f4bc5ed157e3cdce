"""`tmde export`: graphs that compute what the model does, in folders that open; clear errors that leave nothing."""

import hashlib
import importlib.util
import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModel
from typer.testing import CliRunner

from modeling_tmde import BagConfig, BagModel, DocumentEmbedder, LaserModel, NtdvModel
from modeling_tmde.cli.export import ARTICLES, TEXTS
from modeling_tmde.cli.main import app
from modeling_tmde.onnx_export import export_and_measure
from modeling_tmde.static_embedding import export_static_embedding
from tests.conftest import make_rows, tiny_model
from tests.modeling_tmde.test_embedding_families import laser, ntdv

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in ("onnxruntime", "onnx", "onnxscript")),
    reason="needs the extra 'onnx'",
)
INPUTS = [row[code] for row in make_rows(4) for code in ("de", "fr")] + ["", "haus", "hund katze " * 90, *ARTICLES[:3]]


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def failed(*arguments) -> str:
    result = run(*arguments)
    assert result.exit_code == 1 and result.stderr.count("Error: ") == 1 and "Traceback" not in result.stderr
    return result.stderr


def save(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    return save(tiny_model(encoder_layers=2), tokenizer, tmp_path_factory.mktemp("export") / "model")


@pytest.fixture(scope="module")
def expected(model):
    return DocumentEmbedder.from_pretrained(model, device="cpu").encode(INPUTS)


@pytest.fixture(scope="module")
def exported(model):
    """The folder of a graph alone, and what was printed."""
    folder = model.parent / "served"
    result = run("onnx", model, "-o", folder)
    assert result.exit_code == 0, result.stderr
    return folder, result.stdout


@pytest.fixture
def quick_export(exported, monkeypatch):
    """An export that gives the graph of `model`, whatever the model."""
    program = SimpleNamespace(save=lambda path: shutil.copyfile(exported[0] / "onnx" / "model.onnx", path))
    monkeypatch.setattr("torch.onnx.export", lambda *_, **__: program)


# ---- Graphs


@needs_onnx
def test_a_graph_alone_gives_the_vectors_of_the_model(exported, model, expected):
    import onnx

    folder, printed = exported
    assert not list(folder.rglob("*.safetensors"))
    embedder = DocumentEmbedder.from_pretrained(folder, backend="onnx", device="cpu")
    assert embedder.model.path == folder / "onnx" / "model.onnx" and embedder.max_length == 128
    for batch_tokens in (1, 60, 4096):
        vectors = embedder.encode(INPUTS, batch_tokens=batch_tokens)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    graph = onnx.load(embedder.model.path)
    onnx.checker.check_model(graph, full_check=True)
    shapes = [[axis.dim_param for axis in given.type.tensor_type.shape.dim] for given in graph.graph.input]
    assert shapes == [["batch", "length"]] * 2
    # What it was written from is on record, and what was measured is printed.
    record = json.loads((folder / "onnx" / "model.onnx.tmde.json").read_text())
    assert record["model.safetensors"] == hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    size, opset, inputs, longest, difference = re.search(
        r"([\d.]+) MB, opset (\d+).*on (\d+) inputs of 1 to (\d+) tokens .* differ by at most ([\d.e-]+);",
        printed,
        re.S,
    ).groups()
    assert float(size) == pytest.approx(embedder.model.path.stat().st_size / 1e6, abs=0.05)
    assert int(opset) == graph.opset_import[0].version
    assert int(inputs) == 2 + 1 + 3 + 3 * 3 * len(TEXTS) and int(longest) == 128
    assert 0 <= float(difference) < 1e-4


@needs_onnx
def test_beside_the_weights_it_is_found_and_not_written_again(model, expected, quick_export, tmp_path, monkeypatch):
    folder = shutil.copytree(model, tmp_path / "model")
    assert run("onnx", folder).exit_code == 0

    def read(*_, **__):
        raise AssertionError("the weights were read")

    monkeypatch.setattr(AutoModel, "from_pretrained", read)
    embedder = DocumentEmbedder.from_pretrained(folder, backend="onnx", device="cpu")
    np.testing.assert_allclose(embedder.encode(INPUTS), expected, rtol=0, atol=1e-5)


@needs_onnx
def test_int8_beside_float(exported, model, expected, quick_export, tmp_path):
    import onnx

    folder = shutil.copytree(exported[0], tmp_path / "served")
    result = run("onnx", model, "-o", folder, "--quantization", "int8")
    assert result.exit_code == 0, result.stderr
    small, large = folder / "onnx" / "model_int8.onnx", folder / "onnx" / "model.onnx"
    assert small.stat().st_size < large.stat().st_size
    tensors = onnx.load(small).graph.initializer
    (table,) = (tensor for tensor in tensors if tuple(tensor.dims) == (400, 32))
    assert table.data_type == onnx.TensorProto.UINT8  # most of a small model's weights
    embedder = DocumentEmbedder.from_pretrained(folder, backend="onnx", quantization="int8", device="cpu")
    vectors = embedder.encode(INPUTS)
    cosines = (vectors * expected).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(expected, axis=1)
    lowest, mean = map(float, re.search(r"at least ([\d.]+), on average ([\d.]+)\n", result.stdout).groups())
    assert 0.98 < lowest < mean < 1 and 0.98 < cosines.min() < 1
    assert mean == pytest.approx(cosines.mean(), abs=0.01)
    assert DocumentEmbedder.from_pretrained(folder, backend="onnx").model.path == large


@needs_onnx
def test_what_is_measured(model, tokenizer, exported, quick_export, tmp_path, monkeypatch):
    """The graph of one model against another: the differences are those of the two, computed apart."""
    monkeypatch.setattr("modeling_tmde.onnx_export.TOLERANCE", 9.0)
    other = tiny_model(encoder_layers=2, seed=1).model
    graph = export_and_measure(other, tokenizer, tmp_path, texts=["haus hund katze", "", "nacht " * 40])
    first = AutoModel.from_pretrained(model)
    differences, cosines = [], []
    example = tokenizer("ONNX graphs are written once and run everywhere; 1, 2, 3, 1.")["input_ids"][:24]
    rows = [tokenizer(text)["input_ids"] for text in ("haus hund katze", "", "nacht " * 40)]
    rows += [row[: max(1, len(row) // share)] for share in (2, 5) for row in rows[:3]]
    for row in [example, example[: len(example) // 2], example[:-1], *([token] for token in example[:3]), *rows * 3]:
        with torch.no_grad():
            pair = [each(torch.tensor([row])).pooler_output[0].double() for each in (first, other)]
        differences.append((pair[0] - pair[1]).abs().max().item())
        cosines.append((pair[0] @ pair[1] / pair[0].norm() / pair[1].norm()).item())
    assert graph.parity.inputs == len(differences) and graph.parity.longest == max(map(len, rows))
    assert graph.parity.difference == pytest.approx(max(differences), abs=1e-4)
    assert graph.parity.cosine == pytest.approx(min(cosines), abs=1e-4)
    assert graph.parity.mean_cosine == pytest.approx(sum(cosines) / len(cosines), abs=1e-4)


# ---- What does not go


@needs_onnx
def test_a_graph_that_computes_something_else_leaves_nothing(tokenizer, quick_export, tmp_path):
    other = save(tiny_model(encoder_layers=2, seed=1), tokenizer, tmp_path / "other")
    assert "the graph of TmdeModel differs from the model by a share of" in failed("onnx", other, "-o", tmp_path / "o")
    assert not [path for path in (tmp_path / "o").rglob("*") if path.is_file()]


def spoil_tables(spoil):
    """In place of `_quantize`: the graph with another embedding table."""

    def quantize(source, target):
        import onnx

        graph = onnx.load(source)
        (table,) = (tensor for tensor in graph.graph.initializer if tuple(tensor.dims) == (400, 32))
        table.CopyFrom(onnx.numpy_helper.from_array(spoil(onnx.numpy_helper.to_array(table)), table.name))
        onnx.save(graph, target)

    return quantize


@needs_onnx
@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda table: np.random.default_rng(0).permutation(table), r"-?0\.\d+"),  # a model of another training
        (lambda table: np.full_like(table, np.nan), "nan"),
    ],
)
def test_an_int8_graph_that_computes_something_else_leaves_nothing(
    model, quick_export, tmp_path, monkeypatch, spoil, found
):
    monkeypatch.setattr("modeling_tmde.onnx_export._quantize", spoil_tables(spoil))
    expected = (
        f"the int8 graph of TmdeModel gives vectors whose cosine .* is as low as {found}, expected at least 0.9;"
    )
    assert re.search(expected, failed("onnx", model, "-o", tmp_path / "o", "--quantization", "int8"))
    assert not [path for path in (tmp_path / "o").rglob("*") if path.is_file()]
    folder = shutil.copytree(model, tmp_path / "model")
    with pytest.raises(ValueError, match=expected):
        DocumentEmbedder.from_pretrained(folder, backend="onnx", quantization="int8", device="cpu")
    assert not list((folder / "onnx").iterdir())


@needs_onnx
def test_a_graph_that_the_checker_refuses_leaves_nothing(model, quick_export, tmp_path, monkeypatch):
    def refuse(path, full_check):
        assert full_check and path.endswith("model.onnx")
        raise RuntimeError("No Op registered for Mul\nmore")

    monkeypatch.setattr("onnx.checker.check_model", refuse)
    message = failed("onnx", model, "-o", tmp_path / "o")
    assert "onnx.checker refuses the graph of TmdeModel: No Op registered for Mul\n" in message
    assert not [path for path in (tmp_path / "o").rglob("*") if path.is_file()]


@needs_onnx
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BagModel(BagConfig(vocab_size=400, d_model=8)), "BagModel .* `tmde export static` writes it"),
        (lambda: LaserModel(laser()), "LaserModel cannot be an ONNX graph: its LSTM layers"),
        (lambda: NtdvModel(ntdv()), "NtdvModel cannot be an ONNX graph: it has an encoder for each language"),
    ],
)
def test_models_that_are_no_graph_say_so(make, message, tokenizer, tmp_path):
    folder = save(make(), tokenizer, tmp_path / "model")
    assert re.search(message, failed("onnx", folder, "-o", tmp_path / "o"))
    assert not (tmp_path / "o").exists()


@needs_onnx
def test_folders_that_hold_something_else_are_left_alone(model, exported, tokenizer, tmp_path):
    other = save(tiny_model(seed=3), tokenizer, tmp_path / "other")
    assert f"--output {other} holds another model; give the name of a new" in failed("onnx", model, "-o", other)
    served = exported[0]
    assert f"--output {served} holds another model" in failed("onnx", other, "-o", served)  # a graph of `model`
    (other / "onnx").mkdir()
    (other / "onnx" / "model.onnx").write_text("own")
    assert "model.onnx is there, and was not written by tmde; move it away" in failed("onnx", other)
    assert (other / "onnx" / "model.onnx").read_text() == "own"
    (tmp_path / "file").write_text("")
    assert "file is a file, expected a folder" in failed("onnx", model, "-o", tmp_path / "file")


@needs_onnx
def test_models_that_are_not_there(tmp_path, monkeypatch):
    message = failed("onnx", tmp_path / "none", "-o", tmp_path / "o")
    assert message.startswith(f"Error: {tmp_path / 'none'}: no folder ")
    assert "--output: user/name is no folder; give the folder to write to" in failed("onnx", "user/name")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if "onnx" in name else find(name, *rest))
    assert "pip install 'tmde[onnx]'" in failed("onnx", "user/name")


# ---- Static tables


def test_a_bag_as_a_table(tokenizer, tmp_path):
    transformers = pytest.importorskip("sentence_transformers")
    torch.manual_seed(0)
    bag = BagModel(BagConfig(vocab_size=400, d_model=16))
    with torch.no_grad():
        bag.token_weights[5:] = torch.randn(395)
    folder = save(bag, tokenizer, tmp_path / "bag")
    result = run("static", folder, "-o", tmp_path / "static")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"static: 0\.\d MB; on 14 texts its vectors differ by at most \d\.\de-0[678]\n", result.stdout)
    assert not list((tmp_path / "static").glob("*.py")) and len(list(tmp_path.iterdir())) == 2
    vectors = transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu").encode(list(ARTICLES))
    expected = DocumentEmbedder.from_pretrained(folder, device="cpu").encode(ARTICLES)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert "static is there already; give the name of a new" in failed("static", folder, "-o", tmp_path / "static")
    assert "is there already" in failed("static", folder, "-o", folder)


@pytest.mark.parametrize("spoiled", [{"seed": 1}, {"value": float("nan")}])
def test_a_table_of_other_vectors_is_not_kept(tokenizer, tmp_path, monkeypatch, spoiled):
    pytest.importorskip("sentence_transformers")

    def bag(seed=0, value=None):
        torch.manual_seed(seed)
        model = BagModel(BagConfig(vocab_size=400, d_model=16))
        if value is not None:
            torch.nn.init.constant_(model.get_input_embeddings().weight, value)
        return model

    def export(_, tokenizer, folder):
        return export_static_embedding(bag(**spoiled), tokenizer, folder=folder)

    monkeypatch.setattr("modeling_tmde.static_embedding.export_static_embedding", export)
    folder = save(bag(), tokenizer, tmp_path / "bag")
    message = failed("static", folder, "-o", tmp_path / "static")
    assert f"the table of {folder} gives vectors that differ from those of the model by " in message
    assert ("by nan, expected at most 1e-04" in message) == ("value" in spoiled)
    assert [path.name for path in tmp_path.iterdir()] == ["bag"]


def test_only_a_bag_is_a_table(model, tmp_path):
    pytest.importorskip("sentence_transformers")
    assert "model: found TmdeModel (model_type 'tmde'), expected a BagModel" in failed(
        "static", model, "-o", tmp_path / "static"
    )
    assert not list(tmp_path.iterdir())
