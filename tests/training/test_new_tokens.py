"""Tokens of a new script begin as the means of the texts that translate theirs."""

import math

import pytest
import torch

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.tokenization import extend_tokenizer
from tests import hub_encoders
from tests.conftest import make_dataset
from tests.training.added_language_helpers import NEW, ciphered_rows
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.retrieval import precision_at_1
from tmde.training.new_tokens import place_new_tokens


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The folder of a bag of English with a Unigram tokenizer."""
    folder = tmp_path_factory.mktemp("bag")
    texts = [row["en"] for row in ciphered_rows(400)]
    tokenizer = hub_encoders.make_tokenizer("unigram", texts, vocabulary=400)
    torch.manual_seed(0)
    bag = BagModel(BagConfig(vocab_size=len(tokenizer), d_model=96))
    bag.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def extended(checkpoint):
    """A bag with tokens of Greek, before and after they are placed, and its tokenizer."""
    embedder = DocumentEmbedder.from_pretrained(checkpoint, device="cpu")
    rows = ciphered_rows(400)
    tokenizer = extend_tokenizer(embedder.tokenizer, {NEW: [row[NEW] for row in rows]}, 400)
    torch.manual_seed(1)
    bag = BagModel(BagConfig(vocab_size=len(tokenizer), d_model=96)).eval()
    old_table = embedder.model.embed_tokens.weight.detach()
    with torch.no_grad():
        bag.embed_tokens.weight[: len(old_table)] = old_table
    number = place_new_tokens(bag, tokenizer, str(checkpoint), make_dataset(rows), [NEW])
    return bag, tokenizer, old_table, number


def test_texts_of_a_new_script_find_their_translations(extended):
    bag, tokenizer, _, number = extended
    assert number > 200
    embedder = DocumentEmbedder(bag, tokenizer)
    rows = ciphered_rows(60, seed=7)
    greek = embedder.encode([row[NEW] for row in rows])
    english = embedder.encode([row["en"] for row in rows])
    assert precision_at_1(greek, english) > 0.2  # by chance 0.02


def test_old_tokens_keep_their_vectors(extended):
    bag, _, old_table, _ = extended
    assert torch.equal(bag.embed_tokens.weight[: len(old_table)], old_table)


def test_new_vectors_have_the_usual_length(extended):
    bag, tokenizer, old_table, _ = extended
    token = tokenizer(ciphered_rows(1)[0][NEW], add_special_tokens=False)["input_ids"][1]
    assert token >= len(old_table)
    length = bag.embed_tokens.weight[token].norm().item()
    assert length == pytest.approx(old_table.square().sum(1).mean().sqrt().item(), rel=0.1)


def test_the_weight_of_a_token_is_that_of_its_frequency(checkpoint):
    """By hand: of `α α ω α`, α is 3 of 4 letters beside 4 word marks: log(1e-4 / (1e-4 + 3/8))."""
    embedder = DocumentEmbedder.from_pretrained(checkpoint, device="cpu")
    tokenizer = extend_tokenizer(embedder.tokenizer, {NEW: ["α ω"] * 9}, 2)
    assert {"α", "ω"} <= tokenizer.get_vocab().keys()
    bag = BagModel(BagConfig(vocab_size=len(tokenizer), d_model=96)).eval()
    rows = make_dataset([{"en": "It rains.", NEW: "α α ω α"}])
    assert place_new_tokens(bag, tokenizer, str(checkpoint), rows, [NEW]) == 2
    weight = bag.token_weights[tokenizer.get_vocab()["α"]].item()
    assert weight == pytest.approx(math.log(1e-4 / (1e-4 + 3 / 8)), abs=1e-3)


def test_a_vocabulary_without_new_scripts_stays(checkpoint):
    embedder = DocumentEmbedder.from_pretrained(checkpoint, device="cpu")
    rows = make_dataset(ciphered_rows(5))
    model = embedder.model
    assert place_new_tokens(model, embedder.tokenizer, str(checkpoint), rows, [NEW]) == 0
