"""`tmde export`: a static embedding, fewer tokens, and graphs that a push leaves out."""

import json
import os

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoTokenizer

from modeling_tmde import BagConfig, BagModel
from tests.cli.conftest import ok, run, save_bag, write_rows
from tests.conftest import WORDS, make_rows, save
from tests.hub_encoders import adapt_encoder, save_encoder
from tmde import DocumentEmbedder
from tmde.training.publishing import push_model
from tmde.training.starts.hub_encoders import prompt_settings

# What the parallel rows hold.
TEXTS = [" ".join(WORDS["de"]), " ".join(WORDS["en"][:5]), "hund dog"]
# Kinds of encoders that carry no prompt, for which one is given.
WITHOUT_PROMPT = ("xlm-roberta", "bert")


@pytest.fixture
def short_sample(monkeypatch):
    """The sample that a static export is measured on is 20 rows."""
    monkeypatch.setattr("tmde.eval.static_report._NUM_ROWS", 20)


def test_static(bag, tmp_path, short_sample):
    pytest.importorskip("sentence_transformers")
    result = ok("export", "static", bag, "-o", tmp_path / "static")
    assert (tmp_path / "static" / "modules.json").exists()
    # The bag counts tokens as often as they occur, so that the vectors are the same.
    assert "1.0000 on average and at least 1.0000" in result.output
    assert "sqrt(n)" not in result.output


def test_static_says_what_it_cannot_do_and_writes_it_down(tokenizer, tmp_path, short_sample):
    pytest.importorskip("sentence_transformers")
    torch.manual_seed(0)
    config = BagConfig(vocab_size=400, d_model=48, sublinear_counts=True)
    bag = save(tmp_path / "bag", BagModel(config), tokenizer)
    (bag / "README.md").write_text("---\nlicense: cc0-1.0\nlanguage: [de]\n---\n")

    result = ok("export", "static", bag, "-o", tmp_path / "static")

    report = result.output.partition("model2vec\n")[2]
    assert "count sqrt(n) times. A static model cannot" in report
    card = ModelCard.load(tmp_path / "static" / "README.md")
    assert report.strip() in card.text
    assert card.data.license == "cc0-1.0"


def test_a_graph_gets_the_pooling_that_was_asked_for(tmp_path, monkeypatch):
    calls = []

    def export(model, tokenizer, folder, quantization, **options):
        calls.append(options)
        return folder / "onnx" / "model.onnx", 0.0, 1.0

    monkeypatch.setattr("tmde.embedding.export_onnx.export_onnx", export)
    encoder = save_encoder(tmp_path / "encoder", "bert")
    ok("export", "onnx", encoder, "-o", tmp_path / "served", "--pooling", "cls", "--prompt", "q: ")
    assert calls == [{"pooling": "cls", "prompt": "q: "}]


def test_a_graph_is_not_written_beside_the_weights_of_another_model(bag, tmp_path):
    encoder = save_encoder(tmp_path / "encoder", "bert")
    result = run("export", "onnx", bag, "-o", encoder)
    assert "contains another model" in result.output


def save_model(kind, folder):
    """Save a model with a Unigram or WordPiece vocabulary of five languages."""
    if kind in WITHOUT_PROMPT:
        return save_encoder(folder / "encoder", kind)
    encoder = save_encoder(folder / "encoder", "xlm-roberta")
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    if kind == "adapted":
        settings = prompt_settings("perro: ", tokenizer)
        model = adapt_encoder(encoder, languages=["de", "en"], pivot_languages=["en"], **settings)
    else:
        model = BagModel(BagConfig(vocab_size=len(tokenizer) + 2, d_model=8))
    return save(folder / "model", model, tokenizer)


def prompt_options(kind):
    return ["--prompt", "pan: "] if kind in WITHOUT_PROMPT else []


@pytest.fixture(scope="module", params=["xlm-roberta", "bert", "adapted", "bag"])
def cut(request, tmp_path_factory):
    """The kind of a model, its folder, and that of the same with fewer tokens."""
    folder = tmp_path_factory.mktemp("vocabulary")
    model = save_model(request.param, folder)
    rows = [{"translation": {"de": TEXTS[0], "en": text, "fr": "chien"}} for text in TEXTS]
    source = write_rows(folder / "rows.jsonl", rows)
    options = ["--train", source, "--languages", "de,en", *prompt_options(request.param)]
    ok("export", "vocabulary", model, "-o", folder / "cut", *options)
    return request.param, model, folder / "cut"


def test_the_vocabulary_is_smaller(cut):
    _, model, folder = cut
    after = DocumentEmbedder.from_pretrained(folder, device="cpu")
    size = len(after.tokenizer)
    assert size < len(AutoTokenizer.from_pretrained(model))
    assert after.model.config.vocab_size == size
    assert after.model.get_input_embeddings().num_embeddings == size


def test_texts_of_known_tokens_keep_their_vectors(cut):
    kind, model, folder = cut
    sentence_transformers = pytest.importorskip("sentence_transformers")
    prompt = "pan: " if kind in WITHOUT_PROMPT else None
    texts = [*TEXTS, "", "katze nacht tree dog hund"]
    expected = DocumentEmbedder.from_pretrained(model, prompt=prompt, device="cpu").encode(texts)
    after = DocumentEmbedder.from_pretrained(folder, device="cpu")
    np.testing.assert_allclose(after.encode(texts), expected, rtol=0, atol=1e-5)
    peer = sentence_transformers.SentenceTransformer(
        str(folder), trust_remote_code=True, device="cpu"
    )
    np.testing.assert_allclose(peer.encode(texts), expected, rtol=0, atol=1e-5)


def test_the_most_tokens(cut, tmp_path):
    kind, model, folder = cut
    size = len(AutoTokenizer.from_pretrained(folder))
    (tmp_path / "text.txt").write_text(TEXTS[0])
    options = ["--text", tmp_path / "text.txt", "--max-tokens", size - 1, *prompt_options(kind)]
    ok("export", "vocabulary", model, "-o", tmp_path / "fewer", *options)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "fewer")) < size


def test_a_vocabulary_is_not_cut_without_texts(bag, tmp_path):
    result = run("export", "vocabulary", bag, "-o", tmp_path / "cut")
    assert "Found no texts" in result.output


def test_a_vocabulary_of_another_type_is_not_cut(bag, tmp_path):
    (tmp_path / "text.txt").write_text("haus")
    options = ["-o", tmp_path / "cut", "--text", tmp_path / "text.txt"]
    result = run("export", "vocabulary", bag, *options)
    assert "of type BPE can't be trimmed" in " ".join(result.output.split())
    assert not (tmp_path / "cut").exists()


def test_a_push_leaves_out_a_graph_of_earlier_weights(tokenizer, tmp_path, caplog):
    bag = save_bag(tmp_path / "bag", tokenizer)
    graph = bag / "onnx" / "model.onnx"
    graph.parent.mkdir()
    graph.write_bytes(b"graph")
    sizes, _ = push_model(bag, "user/bag", dry_run=True)
    assert "onnx/model.onnx" in sizes
    later = graph.stat().st_mtime + 60
    os.utime(bag / "model.safetensors", (later, later))
    sizes, _ = push_model(bag, "user/bag", dry_run=True)
    assert "onnx/model.onnx" not in sizes
    assert "older than the weights" in caplog.text


def test_bag_is_a_checkpoint_that_training_takes(tmp_path, monkeypatch):
    encoder = save_encoder(tmp_path / "encoder", "xlm-roberta")
    rows = write_rows(tmp_path / "rows.jsonl", make_rows(300))
    options = ["--vocab-size", 100, "--whole-words", 2, "--width", 8]
    result = ok("export", "bag", encoder, "-o", tmp_path / "bag", "--train", rows, *options)
    assert "dimensions" in result.output
    bag = BagModel.from_pretrained(tmp_path / "bag")
    assert bag.config.d_model == 8
    assert bag.config.sublinear_counts
    known = AutoTokenizer.from_pretrained(encoder).get_vocab().keys()
    assert known & AutoTokenizer.from_pretrained(tmp_path / "bag").get_vocab().keys()
    assert json.loads((tmp_path / "bag" / "run.json").read_text())["begun_with"] == [
        {"name": "encoder", "hub": False, "license": None, "sources": None}
    ]

    training = ["max_steps=2", "dev_rows=20", "disable_tqdm=true", "cooldown=0", "bf16=false"]
    options = ["--warm-start", tmp_path / "bag", "--train", rows, *training]
    ok("train", "default", "-o", tmp_path / "run", *options)
    embedder = DocumentEmbedder.from_pretrained(tmp_path / "run")
    assert embedder.encode(["haus"]).shape == (1, 8)
    assert len(embedder.tokenizer) == bag.config.vocab_size

    result = run("train", "bag", "-o", tmp_path / "no", "--warm-start", encoder, "--train", rows)
    assert "`tmde export bag` makes one of an encoder" in result.output
