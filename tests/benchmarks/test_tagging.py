"""The benchmark of tagging: what is counted, by hand, and a whole run on a tiny checkpoint."""

import json

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import typer
from transformers import AutoModel

from tests.benchmarks.test_alignment_benchmarks import load_script
from tests.conftest import save, tiny_model
from tests.tiny_embedders import make_bag

benchmark = load_script("tagging")
NOUN, VERB, DET = 7, 15, 5


def tag_by_length(text):
    """A tagger for tests: words of four letters are nouns, and others are verbs."""
    return [(word, "NOUN" if len(word) == 4 else "VERB") for word in text.split()]


def sentences(*tagged):
    return datasets.Dataset.from_list([{"words": words, "tags": tags} for words, tags in tagged])


def write_pairs(path):
    pairs = {"pair": [], "sentence1": [], "sentence2": []}
    for language in ("de", "es", "fr", "it"):
        for first, second in (("hund haus", "dog"), ("hund haus", "dogs"), ("haus", "dog")):
            pairs["pair"].append(f"{language}-en")
            pairs["sentence1"].append(first)
            pairs["sentence2"].append(second)
    pq.write_table(pa.table(pairs), path)
    return path


def write_rows(path, texts):
    translations = [{"en": text, "de": "x"} for text in texts]
    pq.write_table(pa.table({"translation": translations}), path)
    return path


def test_the_most_frequent_tag_of_each_word():
    train = sentences(
        (["The", "walk"], [DET, NOUN]),
        (["walk", "the", "dog"], [VERB, DET, NOUN]),
        (["walk"], [VERB]),
        (["dog", "dog"], [NOUN, NOUN]),
    )
    # "walk" is a verb in two of three places. "cat" is unknown: nouns are the most frequent.
    test = sentences((["the", "walk", "cat"], [DET, VERB, NOUN]), (["WALK"], [NOUN]))
    assert benchmark.most_frequent_tag_accuracy(train, test) == 3 / 4


@pytest.mark.parametrize("layer", [-1, -2])
def test_only_the_states_of_tagged_tokens_are_read(layer, tokenizer, tmp_path):
    torch.manual_seed(0)
    save(tmp_path, tiny_model(bottleneck="dual"), tokenizer)
    model = AutoModel.from_pretrained(tmp_path).eval()
    rows = []
    for text in ("hund", "haus hund haus"):
        token_ids = tokenizer(text)["input_ids"]
        labels = [-100] * len(token_ids)
        labels[1] = len(rows)
        mask = [1] * len(token_ids)
        rows.append({"input_ids": token_ids, "attention_mask": mask, "labels": labels})
    assert len(rows[0]["input_ids"]) < len(rows[1]["input_ids"])
    tokenized = datasets.Dataset.from_list(rows)
    states, tags = benchmark.token_states(model, tokenized, tokenizer, layer)
    assert tags.tolist() == [0, 1]
    for row, state in zip(rows, states, strict=True):
        with torch.no_grad():
            token_ids = torch.tensor([row["input_ids"]])
            layers = model(input_ids=token_ids, output_hidden_states=True).hidden_states
        np.testing.assert_allclose(state, layers[layer][0, 1], atol=1e-5)


def test_means_over_languages_and_seeds():
    accuracies = {"fine-tuned": {"en": 0.9, "de": 0.5, "es": 0.6, "fr": 0.7, "it": 0.8}}
    measures = benchmark.measures_of(accuracies)
    assert measures == pytest.approx({"fine-tuned, English": 90, "fine-tuned, other languages": 65})
    reference = {42: {"x": 50.0}, 43: {"x": 52.0}}
    described = benchmark.describe("dual", {42: {"x": 61.0}, 43: {"x": 63.0}}, reference)
    deviation = 2**0.5
    assert described["measures"]["x"] == pytest.approx([62, 62 - deviation, 62 + deviation])
    # Welch: the standard error is (2 / 2 + 2 / 2) ** 0.5, with two degrees of freedom.
    difference = described["differences"]["x"]
    assert difference["mean"] == pytest.approx(11)
    assert difference["standard_error"] == pytest.approx(2**0.5)
    assert difference["degrees"] == pytest.approx(2)
    assert benchmark.describe("first", reference)["differences"] == {}


def test_tagged_sentences_are_conllu(tmp_path):
    tags = {"Er und sie.": ["PRON", "CONJ", "PRON"], "Er zum Haus.": ["PRON", "_", "NOUN"]}
    path = tmp_path / "de.conllu"
    benchmark.write_tagged(
        tags, lambda text: list(zip(text.split(), tags[text], strict=True)), path
    )
    # The second sentence has a word without a tag.
    lines = ["1\tEr\t_\tPRON", "2\tund\t_\tCCONJ", "3\tsie.\t_\tPRON"]
    assert path.read_text("utf-8") == "".join(line + "\t_" * 6 + "\n" for line in lines) + "\n"


def test_the_tagger_keeps_the_words_of_the_text():
    pytest.importorskip("spacy", reason="spacy is not installed (benchmarks/tagging.py names it)")
    pytest.importorskip("rippletagger", reason="rippletagger is not installed")
    tagged = benchmark.load_tagger("de")('Er geht "nach" Hause.')
    assert [word for word, _ in tagged] == ["Er", "geht", '"', "nach", '"', "Hause", "."]
    assert [tag for _, tag in tagged][:5] == ["PRON", "VERB", "PUNCT", "ADP", "PUNCT"]


def test_a_whole_run(tokenizer, tmp_path, monkeypatch, capsys):
    comparison = tmp_path / "comparison"
    for name in ("first-1", "dual-1"):
        save(comparison / "runs" / name, tiny_model(bottleneck=name[:-2]), tokenizer)
    save(comparison / "start" / "bag", make_bag(), tokenizer)
    monkeypatch.setattr(benchmark, "load_tagger", lambda language: tag_by_length)
    options = {
        "comparison": comparison,
        "train": write_rows(tmp_path / "rows.parquet", ["hund haus cane hund a", "haus a b c"]),
        "test": write_pairs(tmp_path / "pairs.parquet"),
        "work": tmp_path / "work",
        "system": ["first", "dual"],
        "seed": [1],
        "json": tmp_path / "tagging.json",
    }
    benchmark.main(**options, sentences=2, epochs=1)
    assert "before training" in capsys.readouterr().out
    results = json.loads((tmp_path / "tagging.json").read_text())["results"]
    names = [result["system"] for result in results]
    assert names == ["first", "dual", "before training", "most frequent tag"]
    assert len(results[0]["measures"]) == 6
    # "hund" and "haus" are nouns. "dog" and "dogs" are unknown, and half of them are nouns.
    assert results[-1]["measures"] == {"words, English": [50], "words, other languages": [100]}
    trained = AutoModel.from_pretrained(comparison / "runs" / "first-1")
    untrained = AutoModel.from_pretrained(tmp_path / "work" / "before training-1")
    for name, weight in trained.named_parameters():
        if weight.dim() == 2:
            assert not torch.equal(weight, untrained.get_parameter(name)), name

    options["system"] = ["first", "missing"]
    with pytest.raises(typer.BadParameter, match="missing-1 has no config.json. Run `tmde compare"):
        benchmark.main(**options)
