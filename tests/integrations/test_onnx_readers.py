"""Software that reads ONNX folders gives the vectors of the model."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest

from tests.conftest import make_rows
from tests.tiny_embedders import make_bag
from tmde import DocumentEmbedder

pytestmark = pytest.mark.nightly

TEXTS = ["Großer HUND, 12,345.67!", "haus haus haus", "漢字 Привет 🙂 e\u0301", "a"]
for row in make_rows(6, seed=3):
    TEXTS += row.values()

JAVASCRIPT = """
const { env, pipeline } = require("@huggingface/transformers");
(async () => {
  const [folder, name, texts] = process.argv.slice(1);
  env.allowRemoteModels = false;
  env.localModelPath = folder;
  const extractor = await pipeline("feature-extraction", name, { dtype: "fp32" });
  const vectors = await extractor(JSON.parse(texts), { pooling: "cls" });
  console.log(JSON.stringify(vectors.tolist()));
})();
"""


@pytest.fixture(scope="module")
def served(tokenizer, tmp_path_factory):
    """The folder of a graph of a bag that damps counts, and the vectors of the bag."""
    for package in ("onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    from tmde.embedding.export_onnx import export_onnx

    model = make_bag(sublinear_counts=True)
    folder = tmp_path_factory.mktemp("onnx") / "served"
    export_onnx(model, tokenizer, folder)
    return folder, DocumentEmbedder(model, tokenizer).encode(TEXTS)


def test_fastembed(served):
    fastembed = pytest.importorskip("fastembed")
    from fastembed.common.model_description import ModelSource, PoolingType

    folder, expected = served
    fastembed.TextEmbedding.add_custom_model(
        model="tmde-test",
        dim=24,
        pooling=PoolingType.CLS,
        normalization=False,
        sources=ModelSource(hf="user/name"),
        model_file="onnx/model.onnx",
    )
    model = fastembed.TextEmbedding("tmde-test", specific_model_path=str(folder))
    np.testing.assert_allclose(list(model.embed(TEXTS)), expected, rtol=0, atol=1e-5)


def test_transformers_js(served):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    has_package = [node, "-e", 'require.resolve("@huggingface/transformers")']
    if subprocess.run(has_package, capture_output=True).returncode != 0:
        pytest.skip(
            "node does not find @huggingface/transformers: install it with npm, and name its "
            "node_modules in NODE_PATH"
        )

    folder, expected = served
    arguments = [f"{folder.parent}{os.sep}", folder.name, json.dumps(TEXTS)]
    command = [node, "-e", JAVASCRIPT, "--", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=0, atol=1e-5)
