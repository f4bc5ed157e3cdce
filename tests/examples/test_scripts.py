"""The scripts of `examples/` run as they stand, in real processes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tmde import DocumentEmbedder, DocumentIndex
from tmde.data.sample import sample_documents

FOLDER = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.slow


def run(command, folder):
    environment = {
        **os.environ,
        "HF_HOME": str(folder / "huggingface"),
        "TMDE_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        # A busy machine takes long to start Ray.
        "RAY_raylet_start_wait_time_s": "240",
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_training_on_two_processes(tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    script = str(FOLDER / "train_distributed.py")
    printed = run([*launcher, script, "--steps", "8"], tmp_path)
    assert "2 processes, 8 steps" in printed
    assert printed.count("P@1") == 1, "only the first process prints"
    embedder = DocumentEmbedder.from_pretrained(tmp_path / "runs" / "distributed")
    assert np.isfinite(embedder.encode(["Guten Tag"])).all()


def test_embedding_with_ray(tmp_path):
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'tmde[ray]'")
    printed = run(
        [str(FOLDER / "documents_with_ray.py"), "embed", "--documents", str(texts(tmp_path))],
        tmp_path,
    )
    assert "40 documents with vectors" in printed
    rows = pq.read_table(tmp_path / "runs" / "ray_vectors").to_pylist()
    vectors = DocumentEmbedder.from_pretrained().encode([row["text"] for row in rows])
    np.testing.assert_allclose([row["embedding"] for row in rows], vectors, atol=1e-5)


def test_indexing_with_ray(tmp_path):
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'tmde[ray]'")
    printed = run([str(FOLDER / "documents_with_ray.py"), "index"], tmp_path)
    documents = sample_documents(200, "test")
    count = documents["language"].count("de")
    assert f"{count} documents added and 0 updated" in printed
    index = DocumentIndex.open(tmp_path / "runs" / "ray.index")
    (hit,) = index.search(documents["text"][0], k=1)
    assert hit.text == documents["text"][0]


def test_mining_with_ray(tmp_path):
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'tmde[ray]'")
    printed = run([str(FOLDER / "documents_with_ray.py"), "mine"], tmp_path)
    pairs = pq.read_table(tmp_path / "runs" / "ray_pairs.parquet")
    assert f"{len(pairs)} pairs in" in printed
    assert pairs.column_names == ["score", "id_a", "id_b", "text_a", "text_b"]


def texts(folder):
    """Write forty documents as parquet."""
    import pyarrow as pa

    path = folder / "documents.parquet"
    pq.write_table(
        pa.table({"text": [f"Document {number} of forty." for number in range(40)]}), path
    )
    return path
