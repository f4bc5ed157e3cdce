"""The script that makes the packaged model `accurate`: its rows, and the mean of weights."""

import random

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from modeling_tmde import AdaptedConfig, AdaptedModel
from modeling_tmde.tokenization import load_tokenizer
from tests.conftest import LANGUAGES as TEST_LANGUAGES
from tests.conftest import make_rows
from tests.docs.scripts import script_module
from tests.hub_encoders import SIZES, adapt_encoder, save_encoder
from tmde import DocumentEmbedder
from tmde.embedding.export_vocabulary import export_vocabulary
from tmde.training.starts.hub_encoders import prompt_settings

LANGUAGES = ("de", "en", "es", "fr", "it")


@pytest.fixture(scope="module")
def script():
    with script_module("accurate_model") as module:
        yield module


def make_row(words, **texts):
    row = dict.fromkeys(LANGUAGES)
    row["en"] = " ".join(f"word{number}" for number in range(words))
    return row | texts


def test_sentences_are_different_and_neither_short_nor_long(script):
    rows = [
        make_row(5, de="eins"),
        make_row(5, de="dasselbe Englisch"),
        make_row(3, de="kurz"),
        make_row(71, de="lang"),
        make_row(0, en=None, de="ohne Englisch"),
        make_row(70, de="noch kurz genug"),
        make_row(6, de="eins zu viel"),
    ]
    source = script.Source("general/tatoeba", 2, 0)
    chosen = list(script.choose_sentences(rows, list(range(len(rows))), source))
    assert [row["de"] for row in chosen] == ["eins", "noch kurz genug"]
    # Short sentences of other sources are kept.
    source = script.Source("general/wiktionary", 1, 0)
    assert [row["de"] for row in script.choose_sentences(rows, [2], source)] == ["kurz"]


def test_passages_join_rows_of_a_document_that_share_languages(script):
    rows = []
    for number in range(12):
        rows.append(make_row(20, de=f"de{number}", fr=f"fr{number}" if number != 1 else None))
    documents = ["a"] * 6 + ["b"] * 6
    source = script.Source("parallel/x", 0, 10)
    order = list(range(len(rows)))
    passages = list(script.choose_passages(rows, documents, order, source, random.Random(0)))
    assert passages
    seen = []
    for passage in passages:
        words = len(passage["en"].split())
        assert script.SHORTEST_PASSAGE <= words <= script.LONGEST_PASSAGE
        numbers = [int(text[2:]) for text in passage["de"].split()]
        assert len(numbers) == words / 20
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert len({documents[number] for number in numbers}) == 1
        # A language is in a passage if all of its rows have it.
        assert (passage["fr"] is None) == (1 in numbers)
        assert passage["es"] is None
        seen += numbers
    assert len(seen) == len(set(seen))


def test_weights_are_the_mean_of_runs_and_start(script, tmp_path):
    config = BertConfig(vocab_size=20, **SIZES)
    start = BertModel(config)
    start.save_pretrained(tmp_path / "start")
    runs = []
    for seed in range(2):
        torch.manual_seed(seed)
        run = AdaptedModel(AdaptedConfig(encoder_config=config, pooling="mean"))
        run.save_pretrained(tmp_path / f"run-{seed}")
        runs.append(run.state_dict())
    folders = [tmp_path / "run-0", tmp_path / "run-1"]
    weights = script.mixed_weights(folders, tmp_path / "start")
    # The encoder of a run has no pooling layer.
    assert set(weights) == set(runs[0])
    before = start.state_dict()
    for name, weight in weights.items():
        first, second = (run[name].double() for run in runs)
        expected = 0.3 * first + 0.3 * second + 0.4 * before[name.removeprefix("encoder.")].double()
        torch.testing.assert_close(weight.double(), expected, atol=1e-6, rtol=0)


def test_matrices_are_stored_in_8_bits(script):
    assert script.stored_weight(torch.ones(2, 2)).dtype == torch.float8_e4m3fn
    assert script.stored_weight(torch.ones(2)).dtype == torch.float16


def test_the_whole_vocabulary_gives_the_vectors_of_the_whole_encoder(script, tmp_path):
    folder = str(save_encoder(tmp_path / "encoder", "xlm-roberta"))
    tokenizer = load_tokenizer(folder)
    prompt = prompt_settings(script.PROMPT, tokenizer)
    trained = adapt_encoder(folder, pooling="mean", **prompt).model.eval()
    with torch.no_grad():
        # Training changes the layers, and leaves the vectors of tokens as they were.
        for layer in trained.encoder.encoder.layer:
            layer.output.dense.weight.mul_(1.5)
    whole = DocumentEmbedder(trained, tokenizer)
    known = [" ".join(row["de"] for row in make_rows(3))]
    texts = [" ".join(row[language] for language in TEST_LANGUAGES) for row in make_rows(20)]
    size, _ = export_vocabulary(whole, known, tmp_path / "packed")
    assert size < len(tokenizer)

    script.use_whole_vocabulary(tmp_path / "packed", folder)

    packed = DocumentEmbedder.from_pretrained(tmp_path / "packed", device="cpu")
    assert len(packed.tokenizer) == len(tokenizer)
    assert packed.max_length == whole.max_length
    with torch.no_grad():
        # The table is stored in 8 bits.
        table = trained.get_input_embeddings().weight
        table.copy_(table.to(torch.float8_e4m3fn).float())
    np.testing.assert_allclose(packed.encode(texts), whole.encode(texts), rtol=0, atol=1e-5)
