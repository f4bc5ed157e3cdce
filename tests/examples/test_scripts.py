"""The scripts of `examples/` run as they stand, in real processes."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from transformers import AutoModelForTokenClassification

from tests.conftest import save, tiny_model
from tmde import DocumentEmbedder, DocumentIndex
from tmde.data.sample import sample_documents

FOLDER = Path(__file__).parents[2] / "examples"


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


@pytest.mark.nightly
def test_indexing_with_ray(tmp_path):
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'tmde[ray]'")
    printed = run([str(FOLDER / "documents_with_ray.py"), "index"], tmp_path)
    documents = sample_documents(200, "test")
    count = documents["language"].count("de")
    assert f"{count} documents added and 0 updated" in printed
    index = DocumentIndex.open(tmp_path / "runs" / "ray.index")
    (hit,) = index.search(documents["text"][0], k=1)
    assert hit.text == documents["text"][0]


@pytest.mark.nightly
def test_mining_with_ray(tmp_path):
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'tmde[ray]'")
    printed = run([str(FOLDER / "documents_with_ray.py"), "mine"], tmp_path)
    pairs = pq.read_table(tmp_path / "runs" / "ray_pairs.parquet")
    assert f"{len(pairs)} pairs in" in printed
    assert pairs.column_names == ["score", "id_a", "id_b", "text_a", "text_b"]


# Words with one tag each, so that a tagger of single tokens finds all of them.
WORDS = {
    "DET": ["the", "a"],
    "ADJ": ["old", "small", "green"],
    "NOUN": ["house", "dog", "cat", "tree"],
    "VERB": ["sees", "finds", "likes"],
    "PUNCT": ["."],
}
PATTERN = ["DET", "ADJ", "NOUN", "VERB", "DET", "NOUN", "PUNCT"]


def treebank(path, seed):
    """Write sixty sentences in CoNLL-U, each with a comment, a contraction and an omitted word."""
    draw = random.Random(seed)
    lines = []
    for number in range(60):
        lines.append(f"# sent_id = {number}")
        lines.append("1-2\tthold" + "\t_" * 8)
        for place, tag in enumerate(PATTERN, start=1):
            word = draw.choice(WORDS[tag])
            lines.append(f"{place}\t{word}\t{word}\t{tag}" + "\t_" * 6)
        lines.append("7.1\tsees\tsee\tX" + "\t_" * 6)
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


@pytest.mark.nightly
def test_tagging_parts_of_speech(tmp_path, tokenizer):
    save(tmp_path / "dual", tiny_model(bottleneck="dual"), tokenizer)
    train = treebank(tmp_path / "train.conllu", seed=0)
    test = treebank(tmp_path / "test.conllu", seed=1)
    script = str(FOLDER / "tag_parts_of_speech.py")
    printed = run([script, "dual", "--train", train, "--test", test, "--epochs", "60"], tmp_path)
    (line,) = [line for line in printed.splitlines() if line.startswith("test.conllu: ")]
    assert float(line.split()[1]) > 95
    tagger = AutoModelForTokenClassification.from_pretrained(tmp_path / "runs" / "tagger")
    tokens = tokenizer("the old dog sees a tree.", return_tensors="pt")
    tags = tagger(**tokens).logits[0].argmax(-1).tolist()
    # The first token after <s> begins "the".
    assert tagger.config.id2label[tags[1]] == "DET"


def texts(folder):
    """Write forty documents as parquet."""
    import pyarrow as pa

    path = folder / "documents.parquet"
    pq.write_table(
        pa.table({"text": [f"Document {number} of forty." for number in range(40)]}), path
    )
    return path
