"""What the card of a model says of its run, and that the Hub's own classes read it."""

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results

from tests.hub_cards.recorded_runs import (
    FAMILIES,
    RECIPE,
    cells_of_line,
    change,
    make_run,
    row_of,
    write,
)
from tmde.hub_cards import model_card

# ---- Every family


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def family_card(family, tmp_path_factory) -> ModelCard:
    """The card of a family, as the Hub reads it."""
    run = make_run(tmp_path_factory.mktemp("family") / "run", family)
    card = model_card(run, repo_id="user/run")
    return ModelCard(str(card))


def test_the_hub_reads_the_metadata(family_card):
    metadata = family_card.data.to_dict()

    assert metadata["language"] == ["de", "en", "fr"]
    assert metadata["datasets"] == ["Helsinki-NLP/europarl"]


def test_the_template_is_filled(family_card):
    for leftover in ("{{", "None", "Undefined", "\n\n\n"):
        assert leftover not in str(family_card)


@pytest.mark.parametrize("private", ["somebody", "secret"])
def test_the_card_tells_no_paths_and_secrets(family_card, private):
    assert private not in str(family_card)


def test_the_card_tells_the_size_of_a_vector(family_card):
    assert row_of(family_card, "Vector") == ["16 dimensions, float32"]


@pytest.mark.parametrize(
    ("text", "families"),
    [
        ("**The decoder**", {"tmde", "tmde_laser", "tmde_adapted"}),
        ("generate(", {"tmde", "tmde_laser", "tmde_adapted"}),
        ("**It requires the language**", {"tmde_ntdv", "tmde_aligned"}),
        ("language_ids", {"tmde_ntdv", "tmde_aligned"}),
        ("**Lowercase.**", {"tmde_bag"}),
        ("have length 1", {"tmde_bag"}),
        ("**Word order**", {"tmde_bag", "tmde_aligned"}),
        ("texts of any length", {"tmde_bag", "tmde_laser", "tmde_ntdv", "tmde_aligned"}),
        ("its base model", {"tmde_adapted"}),
    ],
)
def test_limits_and_code_are_those_of_the_family(family, family_card, text, families):
    assert (text in str(family_card)) is (family in families)


def test_other_models_are_refused(run):
    change(run / "config.json", model_type="bert")

    message = "found model_type 'bert' in config.json, expected a model of this package"
    with pytest.raises(ValueError, match=message):
        model_card(run)


# ---- Numbers of the run


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("Parameters", ["48; 40 of them in the encoder"]),
        ("Longest input", ["64 tokens"]),
        ("dev, sentences, de-en", ["25.0", "8.3"]),  # chance is one of 12
        ("mean, sentences", ["25.0", "8.3"]),
        ("Same", ["90.0", "–"]),
    ],
)
def test_tables_hold_the_numbers_of_the_run(run, name, cells):
    assert row_of(model_card(run), name) == cells


@pytest.mark.parametrize(
    "text",
    [
        "in 2 steps over 1,234 words",
        "108 parallel rows",
        "weight 0.5",
        "Its perplexity on dev rows is 7.4",  # exp(2)
        "2.5 hours on 1 × 2 threads of 4 cores, x86.",
    ],
)
def test_the_text_holds_the_numbers_of_the_run(run, text):
    assert text in str(model_card(run))


@pytest.mark.parametrize(
    ("targets", "task"),
    [
        ("self", "repeats the text"),
        (["pivots", "next"], "translates and writes the next row of the document"),
        ("tree", "writes the row's `tree` column"),
    ],
)
def test_what_the_decoder_predicts_is_told(run, targets, task):
    write(run / "recipe.yaml", RECIPE | {"objectives": {"translation": {"targets": targets}}})
    card = str(model_card(run))
    assert f"trained with a decoder that {task} from this vector alone" in card
    assert f"Objectives: cross-entropy of a decoder that {task}" in card
    assert "What you can cram into a single" in card


def test_gated_convolutions_are_no_bilstm(tmp_path):
    run = make_run(tmp_path / "run", "tmde_laser")
    before = str(model_card(run))
    assert "A BiLSTM encoder" in before
    assert "What you can cram" not in before
    change(run / "config.json", cell="gated_conv")
    card = str(model_card(run))
    assert "A gated convolutional encoder" in card
    assert "GatedConvNet" in card
    assert "BiLSTM" not in card


def test_nested_dimensions_are_told(run):
    options = {"dims": [64, 128], "weight": 2.0}
    write(run / "recipe.yaml", RECIPE | {"objectives": {"infonce": options, "translation": None}})
    card = str(model_card(run))
    assert "in the batch), on the first 64, 128 dimensions, weight 2; trans" in card
    assert "Matryoshka representation learning" in card


def test_vectors_without_nested_dimensions_are_not_said_to_have_some(run):
    write(run / "recipe.yaml", RECIPE | {"objectives": {"infonce": {"dims": None}}})
    card = str(model_card(run))
    assert "on the first" not in card
    assert "Matryoshka" not in card


def test_the_dev_table_has_the_start_and_the_packaged_model(run):
    change(
        run / "results.json",
        start={"eval_dev_p1_de-en": 0.125, "eval_retrieval": 0.125},
        packaged={"eval_dev_p1_de-en": 0.5, "eval_retrieval": 0.5},
    )

    card = model_card(run)

    header = ["this model", "before training", "packaged model", "chance"]
    assert row_of(card, "dev rows") == header
    assert row_of(card, "dev, sentences, de-en") == ["25.0", "12.5", "50.0", "8.3"]
    assert row_of(card, "mean, sentences") == ["25.0", "12.5", "50.0", "8.3"]
    _, results = model_index_to_eval_results(card.data.to_dict()["model-index"])
    assert [result.metric_value for result in results] == [0.25]  # Its own numbers alone.


@pytest.mark.parametrize(("mean", "is_told"), [(0.49, True), (0.5, False), (0.51, False)])
def test_a_model_below_the_packaged_one_is_told(run, mean, is_told):
    best = {"eval_dev_p1_de-en": mean, "eval_retrieval": mean}
    change(run / "results.json", best=best, packaged={"eval_retrieval": 0.5})
    sentence = "On these rows, this model scores lower than tmde's packaged model."
    assert (sentence in str(model_card(run))) == is_told


def test_a_run_that_was_not_measured_against_others_has_no_such_columns(run):
    change(run / "results.json", start=None, packaged=None)
    card = str(model_card(run))
    assert "before training |" not in card
    assert "packaged model |" not in card
    assert "lower than tmde's packaged model" not in card


def test_dev_results_become_the_model_index(run):
    card = model_card(run)

    name, (result,) = model_index_to_eval_results(card.data.to_dict()["model-index"])
    assert name == "mine"
    assert result.metric_value == 0.25
    assert result.dataset_split == "dev"


def test_a_run_without_results(run):
    change(run / "results.json", best=None)

    card = str(model_card(run))

    assert "No results are recorded." in card
    assert "model-index" not in card


# ---- Evaluations


@pytest.fixture
def evaluation(tmp_path):
    """The folder of an evaluation of two systems."""
    record = {
        "task": "Topics",
        "protocol": "zero-shot",
        "metric_name": "Accuracy (%)",
        "baseline": False,
        "cells": [
            {
                "source": "de",
                "target": "de",
                "metric": "accuracy",
                "value": 0.9,
                "interval": [0.85, 0.95],
                "items": 100,
            }
        ],
        "columns": [
            {
                "title": "Same",
                "value": 0.9,
                "interval": [0.85, 0.95],
                "chance": 0.25,
                "majority": 0.3,
            }
        ],
        "model_index": [
            {
                "task_type": "text-classification",
                "dataset_type": "user/set",
                "dataset_name": "Topics",
                "dataset_config": "Cross",
                "metric_type": "accuracy",
                "metric_value": 0.7,
            }
        ],
    }
    records = [{**record, "system": "ours"}, {**record, "system": "theirs"}]
    write(tmp_path / "results" / "eval.json", {"results": records})
    return tmp_path / "results"


def test_tables_of_an_evaluation(run, evaluation):
    card = model_card(run, results=[f"{evaluation}#ours"])

    lines = [line for line in str(card).splitlines() if line.startswith("| Topics (zero-shot)")]
    columns, cells = map(cells_of_line, lines)
    assert columns == ["Accuracy (%)", "Same", "90.0", "85.0 to 95.0", "25.0", "30.0"]
    assert cells == ["de → de", "90.0", "85.0 to 95.0", "100"]


def test_the_results_of_an_evaluation_become_the_model_index(run, evaluation):
    card = model_card(run, results=[f"{evaluation}#ours"])

    (result,) = card.data.eval_results
    assert result.metric_value == 0.7
    assert result.dataset_type == "user/set"


def test_an_evaluation_of_several_systems_of_which_none_is_named(run, evaluation):
    message = "found results of ours, theirs, expected some of 'mine'; set FOLDER#SYSTEM, such as"
    with pytest.raises(ValueError, match=message):
        model_card(run, results=[evaluation])


def test_a_folder_without_an_evaluation(run, tmp_path):
    message = "found no eval.json, expected an evaluation folder"
    with pytest.raises(ValueError, match=message):
        model_card(run, results=[tmp_path / "empty"])


# ---- Licenses


@pytest.fixture
def licensed_run(run):
    """A run whose recipe states licenses and a description."""
    stated = {
        "license": "mit",
        "data_licenses": {"words.jsonl": "CC0"},
        "description": "By **us**.",
    }
    write(run / "recipe.yaml", {**RECIPE, "card": stated})
    return run


def test_licenses_and_description_of_the_recipe(licensed_run):
    card = model_card(licensed_run)

    assert card.data.license == "mit"
    assert "| `words.jsonl` | CC0 |" in str(card)
    assert "\nBy **us**.\n" in str(card)


def test_licenses_that_are_given_come_before_those_of_the_recipe(licensed_run):
    data_licenses = {"/home/somebody/words.jsonl": "CC BY 4.0"}

    card = model_card(licensed_run, license="apache-2.0", data_licenses=data_licenses)

    assert card.data.license == "apache-2.0"
    assert "| `words.jsonl` | CC BY 4.0 |" in str(card)


def test_licenses_of_unknown_sources(run):
    message = "found other.jsonl, expected some of the training sources"
    with pytest.raises(ValueError, match=message):
        model_card(run, data_licenses={"there/other.jsonl": "CC0"})


# ---- Added languages


@pytest.mark.parametrize(
    "text",
    [
        "Added languages: `pt`.",
        "25.0% of the first training rows contained only the other languages",
        "the weights are 50.0% trained and 50.0% initial weights",
        "| 10.0 | 85.0 | +75.0 |",
    ],
)
def test_added_languages(run, text):
    write(run / "recipe.yaml", {"data": {"train": {"new": "x.tsv", "new_languages": ["pt"]}}})
    report = {
        "data": {"new": {"rows": 75}, "old": {"rows": 25}},
        "trained_share": 0.5,
        "means": {"new_sentences": {"before": 0.1, "after": 0.85}},
    }
    write(run / "languages.json", report)

    assert text in str(model_card(run))
