"""`tmde export`: a static embedding, fewer tokens, and graphs that a push leaves out."""

import os

import numpy as np
import pytest
from transformers import AutoTokenizer

from modeling_tmde import BagConfig, BagModel
from tests.cli.conftest import ok, run, save_bag, write_rows
from tests.conftest import WORDS, save
from tests.hub_encoders import adapt_encoder, save_encoder
from tmde import DocumentEmbedder
from tmde.training.starts.hub_encoders import prompt_settings
from tmde.training.publishing import push_model


def test_static(bag, tmp_path):
    pytest.importorskip("sentence_transformers")
    ok("export", "static", bag, "-o", tmp_path / "static")
    assert (tmp_path / "static" / "modules.json").exists()


def save_unigram(kind, folder):
    """A model with a Unigram or WordPiece vocabulary of five languages; some have a prompt."""
    encoder = save_encoder(
        folder / "encoder", kind if kind in ("bert", "xlm-roberta") else "xlm-roberta"
    )
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    if kind == "adapted":
        settings = {
            "languages": ["de", "en"],
            "pivot_languages": ["en"],
            **prompt_settings("perro: ", tokenizer),
        }
        return save(folder / "model", adapt_encoder(encoder, **settings), tokenizer)
    if kind == "bag":
        return save(
            folder / "model",
            BagModel(BagConfig(vocab_size=len(tokenizer) + 2, d_model=8)),
            tokenizer,
        )
    return encoder


@pytest.mark.parametrize("kind", ["xlm-roberta", "bert", "adapted", "bag"])
def test_vocabulary(kind, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model, texts = (
        save_unigram(kind, tmp_path),
        [" ".join(WORDS["de"]), " ".join(WORDS["en"][:5]), "hund dog"],
    )
    rows = [{"translation": {"de": texts[0], "en": text, "fr": "chien"}} for text in texts]
    write_rows(tmp_path / "rows.jsonl", rows)
    prompt = ["--prompt", "pan: "] if kind in ("xlm-roberta", "bert") else []
    options = [
        "-o",
        tmp_path / "cut",
        "--train",
        tmp_path / "rows.jsonl",
        "--languages",
        "de,en",
        *prompt,
    ]
    ok("export", "vocabulary", model, *options)
    before = DocumentEmbedder.from_pretrained(
        model, prompt="pan: " if prompt else None, device="cpu"
    )
    after = DocumentEmbedder.from_pretrained(tmp_path / "cut", device="cpu")
    table = after.model.get_input_embeddings()
    assert (
        after.model.config.vocab_size
        == table.num_embeddings
        == len(after.tokenizer)
        < len(before.tokenizer)
    )
    texts += ["", "katze nacht tree dog hund"]
    expected = before.encode(texts)
    np.testing.assert_allclose(after.encode(texts), expected, rtol=0, atol=1e-5)
    peer = sentence_transformers.SentenceTransformer(
        str(tmp_path / "cut"), trust_remote_code=True, device="cpu"
    )
    np.testing.assert_allclose(peer.encode(texts), expected, rtol=0, atol=1e-5)
    (tmp_path / "text.txt").write_text(texts[0])
    options = ["--text", tmp_path / "text.txt", "--max-tokens", len(after.tokenizer) - 1, *prompt]
    ok("export", "vocabulary", model, "-o", tmp_path / "fewer", *options)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "fewer")) < len(after.tokenizer)


def test_vocabularies_that_are_not_cut(bag, tmp_path):
    assert "no texts to read" in run("export", "vocabulary", bag, "-o", tmp_path / "cut").output
    (tmp_path / "text.txt").write_text("haus")
    found = run(
        "export", "vocabulary", bag, "-o", tmp_path / "cut", "--text", tmp_path / "text.txt"
    ).output
    assert (
        "of type BPE, cannot be cut" in " ".join(found.split()) and not (tmp_path / "cut").exists()
    )


def test_a_push_leaves_out_a_graph_of_earlier_weights(tokenizer, tmp_path, caplog):
    bag = save_bag(tmp_path / "bag", tokenizer)
    (bag / "onnx").mkdir()
    (bag / "onnx" / "model.onnx").write_bytes(b"graph")
    assert "onnx/model.onnx" in push_model(bag, "user/bag", dry_run=True)[0]
    saved = (bag / "onnx" / "model.onnx").stat().st_mtime + 60
    os.utime(bag / "model.safetensors", (saved, saved))
    assert "onnx/model.onnx" not in push_model(bag, "user/bag", dry_run=True)[0]
    assert "older than the weights" in caplog.text
