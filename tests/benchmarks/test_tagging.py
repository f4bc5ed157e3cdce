"""The benchmark of tagging: what is counted, by hand, on a tiny model."""

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModel

from tests.benchmarks.test_alignment_benchmarks import load_script
from tests.conftest import save, tiny_model

benchmark = load_script("tagging")
NOUN, VERB, DET = 7, 15, 5


def sentences(*tagged):
    return datasets.Dataset.from_list([{"words": words, "tags": tags} for words, tags in tagged])


def test_the_most_frequent_tag_of_each_word():
    train = sentences(
        (["The", "walk"], [DET, NOUN]),
        (["walk", "the", "dog"], [VERB, DET, NOUN]),
        (["walk"], [VERB]),
        (["dog", "dog"], [NOUN, NOUN]),
    )
    # "walk" is a verb in two of three places. "cat" is unknown: nouns are the most frequent.
    test = sentences((["the", "walk", "cat"], [DET, VERB, NOUN]), (["WALK"], [NOUN]))
    assert benchmark.most_frequent_tag(train, test) == 3 / 4


def test_only_the_states_of_tagged_tokens_are_read(tokenizer, tmp_path):
    torch.manual_seed(0)
    save(tmp_path, tiny_model(bottleneck="dual"), tokenizer)
    model = AutoModel.from_pretrained(tmp_path).eval()
    rows = []
    for text in ("hund", "haus hund haus"):
        token_ids = tokenizer(text)["input_ids"]
        labels = [-100] * len(token_ids)
        labels[1] = len(rows)
        rows.append({"input_ids": token_ids, "attention_mask": [1] * len(token_ids)})
        rows[-1]["labels"] = labels
    assert len(rows[0]["input_ids"]) < len(rows[1]["input_ids"])
    states, tags = benchmark.token_states(model, datasets.Dataset.from_list(rows), tokenizer)
    assert tags.tolist() == [0, 1]
    for row, state in zip(rows, states, strict=True):
        with torch.no_grad():
            alone = model(input_ids=torch.tensor([row["input_ids"]])).last_hidden_state
        np.testing.assert_allclose(state, alone[0, 1], atol=1e-5)


def test_means_over_languages_and_seeds():
    scores = {"probe": {"en": 0.9, "de": 0.5, "es": 0.6, "fr": 0.7, "it": 0.8}}
    measures = benchmark.measures_of(scores)
    assert measures == pytest.approx({"probe, English": 90, "probe, other languages": 65})
    reference = {42: {"x": 50.0}, 43: {"x": 52.0}}
    described = benchmark.describe("dual", {42: {"x": 61.0}, 43: {"x": 63.0}}, reference)
    deviation = 2**0.5
    assert described["measures"]["x"] == pytest.approx([62, 62 - deviation, 62 + deviation])
    # Welch: the standard error is (2 / 2 + 2 / 2) ** 0.5, with two degrees of freedom.
    difference = described["differences"]["x"]
    assert difference["mean"] == pytest.approx(11)
    assert difference["standard_error"] == pytest.approx(2**0.5)
    assert difference["degrees"] == pytest.approx(2)
    assert benchmark.describe("first", reference, reference)["differences"] == {}


def test_the_texts(tmp_path):
    """Texts are there once; training texts have four words, and test texts one language."""
    translations = [{"en": text, "de": "x"} for text in ("a b c d", "a b c", "e f g h", "a b c d")]
    translations.append({"en": None, "de": "x"})
    pq.write_table(pa.table({"translation": translations}), tmp_path / "rows.parquet")
    texts = benchmark.training_texts(tmp_path / "rows.parquet", count=10, seed=0)
    assert sorted(texts) == ["a b c d", "e f g h"]
    assert len(benchmark.training_texts(tmp_path / "rows.parquet", count=1, seed=0)) == 1
    pairs = {"lang": ["de-de", "de-de", "de-en", "en-en"], "sentence1": ["a", "a", "b", "c"]}
    pq.write_table(pa.table(pairs), tmp_path / "pairs.parquet")
    assert benchmark.test_texts(tmp_path / "pairs.parquet", "de") == ["a"]


def test_tagged_sentences_are_conllu(tmp_path):
    pytest.importorskip("spacy", reason="spacy is not installed (benchmarks/tagging.py names it)")
    pytest.importorskip("rippletagger", reason="rippletagger is not installed")
    path = tmp_path / "de.conllu"
    benchmark.write_tagged(['Er geht "zum" Haus.', "Nein."], "de", path)
    rows = benchmark.read_sentences(path)
    assert rows["words"] == [["Er", "geht", '"', "zum", '"', "Haus", "."], ["Nein", "."]]
    names = [line.split("\t")[3] for line in path.read_text("utf-8").splitlines()[:5]]
    assert names == ["PRON", "VERB", "PUNCT", "ADP", "PUNCT"]
