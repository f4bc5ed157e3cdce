"""A bag that begins with an encoder: its tokens, their vectors and weights, and a run that goes on from there."""

import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from modeling_tmde import BagModel, DocumentEmbedder
from modeling_tmde.training.recipe import RecipeError, load_recipe
from modeling_tmde.training.token_vectors import save_encoder_bag
from modeling_tmde.training.train import train_recipe
from tests.conftest import WORDS, make_rows
from tests.hub_encoders import save_encoder

TEXTS = [" ".join(WORDS["de"]), " ".join(WORDS["en"]), WORDS["en"][0]]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder") / "xlm-roberta", "xlm-roberta")


def centered_vectors(folder, tokens):
    """(tokens, width) float64: each token alone through the encoder, mean over its outputs, minus the mean of all."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    rows = []
    for token in tokens:
        ids = [tokenizer.bos_token_id, tokenizer.convert_tokens_to_ids(token), tokenizer.eos_token_id]
        with torch.no_grad():
            rows.append(model(torch.tensor([ids])).last_hidden_state[0].double().mean(dim=0).numpy())
    return np.stack(rows) - np.mean(rows, axis=0)


def test_a_bag_as_wide_as_the_encoder_is_in_its_space(encoder, tmp_path):
    width = AutoModel.from_pretrained(encoder).config.hidden_size
    save_encoder_bag(load_recipe("bag", [f"model.d_model={width}"]), str(encoder), TEXTS, tmp_path / "bag")
    bag, tokenizer = BagModel.from_pretrained(tmp_path / "bag"), AutoTokenizer.from_pretrained(tmp_path / "bag")
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    expected = centered_vectors(encoder, tokens)
    expected /= np.linalg.norm(expected, axis=1).mean()
    np.testing.assert_allclose(bag.embed_tokens.weight.detach().numpy(), expected, atol=1e-5)
    counts = Counter(token for text in TEXTS for token in tokenizer.tokenize(text))
    for token, weight in zip(tokens, bag.token_weights.tolist(), strict=True):
        if token not in tokenizer.all_special_tokens:
            assert weight == pytest.approx(math.log(1e-4 / (1e-4 + counts[token] / counts.total())), abs=1e-5)
    assert bag.token_weights[tokenizer.eos_token_id] == -20


def test_frequent_words_become_tokens(encoder, tmp_path):
    texts = [*TEXTS, *["Hausboot hausboot", "boothaus"] * 20]
    model, whole = AutoModel.from_pretrained(encoder).eval(), AutoTokenizer.from_pretrained(encoder)
    options = [f"model.d_model={model.config.hidden_size}", "tokenizer.whole_words=1"]
    save_encoder_bag(load_recipe("bag", options), str(encoder), texts, tmp_path / "bag")
    bag, tokenizer = BagModel.from_pretrained(tmp_path / "bag"), AutoTokenizer.from_pretrained(tmp_path / "bag")
    assert tokenizer.tokenize("Das Hausboot")[-1] == "▁hausboot" and len(tokenizer.tokenize("boothaus")) > 1
    assert tokenizer.convert_tokens_to_ids("▁hausboot") == len(tokenizer) - 1 == bag.config.vocab_size - 1
    expected = []
    for word in ("hausboot", "boothaus"):
        with torch.no_grad():
            expected.append(model(torch.tensor([whole(word)["input_ids"]])).last_hidden_state[0].mean(dim=0))
    save_encoder_bag(load_recipe("bag", [*options, "tokenizer.whole_words=2"]), str(encoder), texts, tmp_path / "two")
    first, second = BagModel.from_pretrained(tmp_path / "two").embed_tokens.weight[-2:].detach()
    # The mean of all rows is removed from both, and one factor scales them.
    assert torch.cosine_similarity(first - second, expected[0] - expected[1], dim=0) == pytest.approx(1, abs=1e-5)
    with pytest.raises(RecipeError, match="whole_words: only for a bag that begins with an encoder"):
        train_recipe(load_recipe("bag", ["data.train=sample", "tokenizer.whole_words=5"]), tmp_path / "run")


def test_a_narrower_bag_keeps_the_principal_directions(encoder, tmp_path):
    save_encoder_bag(load_recipe("bag", ["model.d_model=4"]), str(encoder), TEXTS, tmp_path / "bag")
    table = BagModel.from_pretrained(tmp_path / "bag").embed_tokens.weight.detach().double().numpy()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "bag")
    wide = centered_vectors(encoder, tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    left, sizes, _ = np.linalg.svd(wide, full_matrices=False)
    expected = (left * sizes)[:, :4]
    expected /= np.linalg.norm(expected, axis=1).mean()
    np.testing.assert_allclose(table @ table.T, expected @ expected.T, atol=1e-4)  # directions may have another sign


def test_a_run_begins_with_an_encoder(encoder, tmp_path):
    lines = (json.dumps({"translation": row}) + "\n" for row in make_rows(300))
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    settings = [f"data.train={tmp_path / 'rows.jsonl'}", f"warm_start.checkpoint={encoder}", "model.d_model=8"]
    settings += ["max_steps=2", "max_minutes=null", "eval_minutes=null", "data.dev_rows=20", "disable_tqdm=true"]
    train_recipe(load_recipe("bag", settings), tmp_path / "run")
    embedder = DocumentEmbedder.from_pretrained(tmp_path / "run")
    assert embedder.encode(["haus"]).shape == (1, 8)
    assert embedder.tokenizer.get_vocab().keys() < AutoTokenizer.from_pretrained(encoder).get_vocab().keys()
    train_recipe(load_recipe("bag", [*settings, "max_steps=3"]), tmp_path / "run", resume=True)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["steps"] == 3
    with pytest.raises(RecipeError, match="expected a saved model.s folder or a Hub id"):
        train_recipe(
            load_recipe("bag", [*settings[:1], f"warm_start.checkpoint={tmp_path / 'none'}"]), tmp_path / "no"
        )
    with pytest.raises(ValueError, match="d_model=1000: expected at most"):
        save_encoder_bag(load_recipe("bag", ["model.d_model=1000"]), str(encoder), TEXTS, tmp_path / "wide")
