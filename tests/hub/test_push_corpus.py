"""Parallel rows on the Hub: pushed, streamed without the package, trained on, beside a model to begin with."""

import json

import pytest

from tests.conftest import make_rows
from tests.hub.clients import TMDE, run_client
from tests.hub.test_push_model import commits

pytestmark = pytest.mark.slow

STREAM = """
import datasets
stream = datasets.load_dataset("user/corpus", split="train", streaming=True)
report([list(stream), stream.info.splits["train"].num_examples, str(stream.features["translation"])])
"""


def write_rows(path, rows, **columns):
    with open(path, "w") as file:
        for index, row in enumerate(rows):
            extra = {name: values[index] for name, values in columns.items()}
            file.write(json.dumps({"translation": row} | extra) + "\n")


def test_a_corpus_is_pushed_and_streamed(hub, tmp_path):
    rows = make_rows(60, languages=("de", "en"))
    rows[3] = rows[3] | {"de": ""}  # which is left out, and counted
    write_rows(tmp_path / "all.jsonl", rows, doc_id=[f"d{index // 5}" for index in range(60)])
    write_rows(tmp_path / "mined.jsonl", rows[4:], score=[1 + index / 100 for index in range(56)])
    code = (
        TMDE
        + """
folder, model = arguments
found = {
    "dry": tmde("push", f"{folder}/all.jsonl", "user/corpus", "--repo-type", "dataset", "--dry-run"),
    "first": tmde("push", f"{folder}/all.jsonl", "user/corpus", "--repo-type", "dataset", "--license", "cc0-1.0"),
    "second": tmde("push", f"{folder}/mined.jsonl", "user/mined", "--repo-type", "dataset", "-m", "Mined"),
    "missing": tmde("push", f"{folder}/none.jsonl", "user/none", "--repo-type", "dataset"),
    "no rows": tmde("push", f"{folder}/all.jsonl", "user/none", "--repo-type", "dataset", "--results", folder),
}
from huggingface_hub import HfApi
HfApi().create_repo("user/pictures", repo_type="dataset")
HfApi().upload_file(path_or_fileobj=b"P1", path_in_repo="a.pbm", repo_id="user/pictures", repo_type="dataset")
found["pictures"] = tmde("push", f"{folder}/all.jsonl", "user/pictures", "--repo-type", "dataset")
report(found)
"""
    )
    found = run_client(hub, tmp_path / "pusher", code, tmp_path, "")
    for name, (status, _, stderr) in found.items():
        assert status == (1 if name in ("missing", "no rows", "pictures") else 0), (name, stderr)
    assert "found no such file" in found["missing"][2]
    assert "--results" in found["no rows"][2]
    assert "no column 'translation'" in found["pictures"][2] and "--overwrite" in found["pictures"][2]
    assert commits(hub, "user/corpus", "datasets") == ["Upload parallel corpus", "initial commit"]
    assert len(commits(hub, "user/pictures", "datasets")) == 2 and hub.store.find("datasets", "user/none") is None
    mined = hub.store.find("datasets", "user/mined").resolve("main").files
    card = hub.store.read(mined["README.md"]).decode()
    assert "name: score" in card and "1.55" in card

    streamed, count, features = run_client(hub, tmp_path / "reader", STREAM, package=False)
    kept = [row for index, row in enumerate(rows) if index != 3]
    assert [row["translation"] for row in streamed] == kept and count == 59
    assert [row["doc_id"] for row in streamed] == [f"d{index // 5}" for index in range(60) if index != 3]
    assert features == "Translation(languages=['de', 'en'])"


def test_train_and_embed_from_the_hub(hub, model_folder, tmp_path):
    """`tmde train --train user/corpus --warm-start user/tiny`, `tmde embed -m`, and DocumentEmbedder by name."""
    write_rows(tmp_path / "rows.jsonl", make_rows(200, seed=2))
    (tmp_path / "texts.txt").write_text("haus hund\nhouse dog\n")
    code = (
        TMDE
        + """
folder, model = arguments
options = ["model.d_model=32", "model.encoder_layers=3", "model.encoder_attention_heads=4", "model.encoder_ffn_dim=48"]
options += ["model.decoder_attention_heads=4", "model.decoder_ffn_dim=48", "model.max_position_embeddings=128"]
options += ["model.share_embeddings=false", "model.language_embedding_dim=8", "dev_rows=20", "max_steps=2"]
options += ["data.dev=null", "warmup_steps=0", "train_max_length=64", "embed_max_length=64", "eval_steps=2"]
options += ["save_steps=2", "eval_pool=10", "eval_loss_rows=10", "data.max_rows=null", "micro_batch_tokens=256"]
found = {
    "corpus": tmde("push", f"{folder}/rows.jsonl", "user/corpus", "--repo-type", "dataset"),
    "model": tmde("push", model, "user/tiny"),
    "embed": tmde("embed", f"{folder}/texts.txt", "-m", "user/tiny", "-o", f"{folder}/vectors.npy"),
    "train": tmde("train", "quickstart", *options, "--train", "user/corpus", "--warm-start", "user/tiny",
                  "-o", f"{folder}/run"),
}
import numpy as np
from modeling_tmde import DocumentEmbedder
vectors = DocumentEmbedder.from_pretrained("user/tiny").encode(["haus hund", "house dog"])
report([found, np.abs(vectors - np.load(f"{folder}/vectors.npy")).max().item(), vectors.tolist()])
"""
    )
    found, difference, vectors = run_client(hub, tmp_path / "client", code, tmp_path, model_folder)
    for name, (status, _, stderr) in found.items():
        assert status == 0, (name, stderr)
    assert difference < 1e-6

    from modeling_tmde import DocumentEmbedder

    expected = DocumentEmbedder.from_pretrained(model_folder).encode(["haus hund", "house dog"])
    assert abs(expected - vectors).max() < 1e-5
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [source["name"] for source in run["sources"]] == ["user/corpus"]
    assert "user/tiny" in json.dumps(run["warm_start"])
