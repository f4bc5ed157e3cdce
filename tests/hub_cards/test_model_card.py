"""What a model card says of a run, and that the Hub's own classes read it."""

import json
import shutil

import pytest
import torch
import yaml
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.repocard_data import model_index_to_eval_results

from modeling_tmde import LaserConfig, LaserForConditionalGeneration
from modeling_tmde.eval.results import Cell, TaskResult
from modeling_tmde.eval.storage import write_results
from modeling_tmde.hub_cards import model_card, public_recipe, write_model_card
from modeling_tmde.hub_cards.measured import Measured
from modeling_tmde.hub_cards.run_facts import RunFacts
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe
from tests.conftest import make_rows
from tests.hub_cards.conftest import FAMILIES, TRAINING, write_recipe


@pytest.fixture
def run(runs, tmp_path):
    """A copy of T-MDE's run, to change."""
    return shutil.copytree(runs["tmde"], tmp_path / "model-of-mine")


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def row_of(card, name):
    """Cells of the first table row that begins so."""
    line = next(line for line in str(card).splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


@pytest.mark.parametrize("family", FAMILIES)
def test_training_writes_a_card_that_the_hub_reads(runs, family, secret):
    card = ModelCard.load(runs[family] / "README.md")
    data = card.data.to_dict()
    assert data["language"] == ["de", "en", "fr"] and data["library_name"] == "transformers"
    assert {"sentence-transformers", "feature-extraction", "sentence-similarity", "multilingual", "tmde"} == set(
        data["tags"]
    )
    assert "license" not in data and "datasets" not in data and "co2_eq_emissions" not in data
    name, results = model_index_to_eval_results(data["model-index"])
    assert name == f"tiny-{family}" and [result.dataset_split for result in results] == ["dev"] * len(results)
    stored = json.loads((runs[family] / "results.json").read_text())
    assert results[0].metric_value == round(stored["best"]["eval_dev_p1_de-en"], 6)
    text = str(card)
    assert str(secret) not in text and secret.name not in text and "| `words.jsonl` | not stated |" in text
    assert "Licence | not stated" in text and "not stated**: ask" in text
    # Nothing that was not filled in.
    assert "{{" not in text and "None" not in text and "Undefined" not in text and "\n\n\n" not in text
    assert str(model_card(runs[family])) == text
    assert not list(runs[family].glob("checkpoint-*/README.md"))


def test_numbers_are_those_of_the_run(runs):
    facts = RunFacts.read(runs["tmde"])
    card = model_card(runs["tmde"])
    total = sum(tensor.numel() for tensor in torch.nn.ModuleList([_model(runs["tmde"])]).parameters())
    encoder = sum(tensor.numel() for tensor in _model(runs["tmde"]).model.parameters())
    assert facts.parameters == (total, encoder) and total > encoder
    assert row_of(card, "Parameters") == [f"{total:,}; {encoder:,} of them embed"]
    assert row_of(card, "A vector") == ["16 numbers, float32"] and row_of(card, "Longest input") == ["64 tokens"]
    assert row_of(model_card(runs["laser"]), "Longest input") == ["no limit"]
    # A tenth of 120 rows is held out; chance finds one of these 12: 8.3 %.
    assert facts.results["dev_pools"] == {"dev": {"p1_de-en": 12}}
    value = f"{100 * facts.results['best']['eval_dev_p1_de-en']:.1f}"
    assert row_of(card, "dev, sentences") == [value, value, "8.3"]
    words = facts.results["seen"]["source_words"]
    assert f"in 2 steps over {words:,.0f} words" in str(card) and words > 0
    assert f"{facts.run['data']['train']['rows']:,} rows" in str(card)
    assert facts.run["data"]["train"]["fingerprint"] in str(card)


def test_codes_and_dev_sets_with_underscores(secret, tmp_path, monkeypatch):
    """Of a run, with its table, its chance and its model-index; and of documents."""
    monkeypatch.setattr("modeling_tmde.data.token_cache.default_folder", lambda: secret / "tokens")
    codes, names = ("de", "en", "es"), ("deu_Latn", "zh_CN", "pt-BR")
    rows = [{name: row[code] for code, name in zip(codes, names, strict=True)} for row in make_rows(120)]
    for path, part in ((tmp_path / "train.jsonl", rows[:100]), (tmp_path / "dev.jsonl", rows[100:])):
        path.write_text("".join(json.dumps({"translation": row}) + "\n" for row in part))
    data = {"train": str(tmp_path / "train.jsonl"), "dev": {"my_p1_set": str(tmp_path / "dev.jsonl")}}
    data |= {"languages": list(names), "pivot_languages": ["zh_CN"]}
    recipe = write_recipe(tmp_path, "bag", tmp_path, data=data, training={**TRAINING, "eval_pairs": None})
    folder = tmp_path / "bag"
    train_recipe(load_recipe(str(recipe)), folder)
    best = json.loads((folder / "results.json").read_text())["best"]
    pairs = ["deu_Latn-zh_CN", "deu_Latn-pt-BR", "zh_CN-pt-BR"]
    values = [best[f"eval_my_p1_set_p1_{pair}"] for pair in pairs]
    percents = [f"{100 * value:.1f}" for value in (*values, sum(values) / 3)]
    card = model_card(folder)
    assert row_of(card, "dev set") == [*pairs, "mean", "chance"]
    assert row_of(card, r"my\_p1\_set, sentences") == [*percents, "6.2"]  # 16 of 20 rows are searched
    (result,) = card.data.eval_results
    assert result.metric_value == round(sum(values) / 3, 6) and result.metric_args["pairs"] == pairs
    assert "None: no retrieval" not in str(card)
    change(folder / "results.json", best={**best, "eval_my_p1_set_doc_p1_deu_Latn-zh_CN": 0.25})
    assert row_of(model_card(folder), r"my\_p1\_set, documents") == ["25.0", "–", "–", "25.0", "–"]


def test_a_run_that_did_not_evaluate_its_dev_rows(run):
    """As with eval_strategy=no: they were held out, and a card that denies it is wrong."""
    change(run / "results.json", best=None)
    text = str(model_card(run))
    assert "None: no retrieval of dev rows and no classification was recorded" in text
    assert "held out" not in text and "model-index" not in text


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"type": "mps", "name": "arm"}, "2 × mps (arm)"),
        ({"type": "xpu"}, "2 × xpu"),
        ({"type": "cuda", "name": "NVIDIA H100"}, "2 × NVIDIA H100"),
        ({"type": "cpu", "name": "arm"}, "CPU: arm, 2 processes of 3 threads on 10 cores"),
        (None, "CPU: unknown, 2 processes of 3 threads on 10 cores"),
    ],
)
def test_the_device_is_that_which_trained(run, device, expected):
    change(run / "run.json", device=device, processes=2, machine={"threads": 3, "cpus": 10})
    assert row_of(model_card(run), "Device") == [expected]


def _model(folder):
    from transformers import AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM.from_pretrained(folder)


def test_limits_follow_from_facts(runs):
    cards = {family: str(model_card(folder)) for family, folder in runs.items()}

    def those_with(text):
        return {family for family, card in cards.items() if text in card}

    assert those_with("**Lower case.**") == {"bag"}  # the only recipe with that tokenizer
    assert those_with("may have read others") == those_with("words in this run: most") == {"adapted"}
    assert those_with("far fewer than useful models do") == set(FAMILIES) - {"adapted"}
    assert those_with("**It must be told the language**") == {"ntdv", "aligned"}
    assert those_with("have length 1") == {"bag"} and those_with("not of length 1") == set(FAMILIES) - {"bag"}
    assert those_with("**Word order**") == {"bag", "aligned"}  # which is one of bags
    assert those_with("**The decoder**") == {"tmde", "laser", "adapted"}
    assert those_with("texts of any length") == {"bag", "laser", "ntdv", "aligned"}
    assert those_with("no more than 32 tokens") == set(FAMILIES)
    # A loss for each token has a perplexity, one for each sentence has none.
    assert those_with("hesitates between") == {"tmde", "adapted"} and "was not measured" in cards["laser"]


def test_a_loss_becomes_a_perplexity(run):
    results = json.loads((run / "results.json").read_text())
    results["best"]["eval_dev_translation_nll"] = 2.0  # exp(2) = 7.39
    change(run / "results.json", best=results["best"])
    assert "Its perplexity on dev rows is 7.4" in str(model_card(run))
    results["best"]["eval_dev_translation_nll"] = 5.0  # exp(5) = 148.4
    change(run / "results.json", best=results["best"])
    assert "hesitates between 148 tokens" in str(model_card(run))


def test_licences_of_model_and_data(run):
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["card"] = {"license": "mit", "data_licenses": {"words.jsonl": "CC0"}, "description": "Made by **us**."}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    card = model_card(run)
    assert card.data.license == "mit" and "| `words.jsonl` | CC0 |" in str(card) and "\nMade by **us**.\n" in str(card)
    # Arguments count before the recipe; a source may be named as the recipe reads it.
    card = model_card(run, license="apache-2.0", data_licenses={recipe["data"]["train"]: "CC BY 4.0"})
    assert card.data.license == "apache-2.0" and "| `words.jsonl` | CC BY 4.0 |" in str(card)
    with pytest.raises(ValueError, match="found other.jsonl, expected some of the training sources: words.jsonl"):
        model_card(run, data_licenses={"there/other.jsonl": "CC0"})


def test_hub_ids_become_metadata(run):
    record = json.loads((run / "run.json").read_text())
    sources = [{"name": "Helsinki-NLP/europarl", "kind": "hub", "license": "known"}, *record["sources"]]
    change(run / "run.json", sources=sources)
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["data"]["train"] = ["Helsinki-NLP/europarl", recipe["data"]["train"]]
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    card = model_card(run, co2_eq_emissions=12.5)
    assert card.data.datasets == ["Helsinki-NLP/europarl"]
    assert card.data.to_dict()["co2_eq_emissions"] == 12.5 and "Energy was not measured" not in str(card)
    assert "| [Helsinki-NLP/europarl](https://huggingface.co/datasets/Helsinki-NLP/europarl) | known |" in str(card)
    assert yaml.safe_load(public_recipe(run))["data"]["train"] == ["Helsinki-NLP/europarl", "words.jsonl"]


def test_the_public_recipe_has_no_paths_and_no_keys(run):
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["data"] |= {
        "dev": {"a": "/home/me/a.jsonl", "b": "rows/b"},
        "eval_task": ["sample", "sib200=C:\\x\\s.parquet"],
    }
    recipe["tokenizer"] = {"path": "~/models/mine/"}
    recipe["warm_start"] = {"checkpoint": "../bag", "overrides": {"tokenizer.path": "/srv/t"}}
    recipe["training"] |= {"hub_token": "hf_secret", "token_cache_dir": "/scratch/x", "learning_rate": 0.1}
    recipe["card"] = {"data_licenses": {recipe["data"]["train"]: "CC0"}}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    text = public_recipe(run)
    for private in ("/home", "rows/", "C:", "~", "..", "/srv", "hf_secret", "scratch", str(run.parent)):
        assert private not in text, private
    public = yaml.safe_load(text)
    assert public["data"]["dev"] == {"a": "a.jsonl", "b": "b"}
    assert public["data"]["eval_task"] == ["sample", "sib200=s.parquet"]
    assert public["tokenizer"]["path"] == "mine" and public["training"]["learning_rate"] == 0.1
    assert public["card"] == {"data_licenses": {"words.jsonl": "CC0"}}
    (run / "public.yaml").write_text(text)
    assert load_recipe(str(run / "public.yaml")).sections["objectives"] == recipe["objectives"]
    assert "hf_secret" not in str(model_card(run))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"license": 3}, "card.license of recipe .*: found 3, expected text"),
        ({"data_licenses": ["CC0"]}, "card.data_licenses of recipe .* must be a mapping"),
        ({"data_licenses": {"a": None}}, None),
        ({"data_licenses": {"a": 1}}, "card.data_licenses.a of recipe .*: found 1, expected text"),
        ({"licence": "mit"}, "'licence' is unknown; did you mean license"),
    ],
)
def test_the_card_section_of_a_recipe_is_checked(run, section, message):
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    path = run / "changed.yaml"
    path.write_text(yaml.safe_dump(recipe | {"card": section}))
    if message is None:
        assert load_recipe(str(path)).sections["card"] == section
        return
    with pytest.raises(ValueError, match=message):
        load_recipe(str(path))


def test_evaluations_become_tables_and_model_index(run, tmp_path):
    ids = ["a", "b", "c", "d"]

    def cell(source, target, outcomes):
        value = sum(outcomes) / 4
        return Cell(source, target, "accuracy", value, ids, torch.tensor(outcomes).numpy(), 0.25, interval=(0.1, 0.9))

    data = {"source": "/home/me/private/rows.parquet", "split": "test"}
    pairs = [("de", "de", [1.0, 1, 1, 0]), ("de", "en", [1.0, 0, 0, 0]), ("en", "de", [1.0, 1, 1, 1])]
    mine = TaskResult("topics", "mine", "zero-shot", [cell(*pair) for pair in pairs], data=data)
    other = TaskResult("topics", "other", "zero-shot", [cell("de", "de", [0.0] * 4)], data=data)
    tfidf = TaskResult("topics", "TF-IDF", "zero-shot", [cell(a, b, [1.0, 1, 0, 0]) for a, b, _ in pairs], data=data)
    write_results(tmp_path / "results", [mine, other, tfidf], {})
    with pytest.raises(ValueError, match=r"systems mine, other, expected .*'model-of-mine'; name it: .*#mine"):
        model_card(run, results=[tmp_path / "results"])
    card = model_card(run, results=[f"{tmp_path / 'results'}#mine"])
    found = {
        (result.dataset_config, result.metric_type): result.metric_value
        for result in ModelCardData(**yaml.safe_load(str(card).split("---")[1])).eval_results
    }
    # Same is the mean of one cell, which is there itself; Cross is (0.25 + 1) / 2.
    assert found == {("Cross", "accuracy"): 0.625, ("de-de", "accuracy"): 0.75, ("de-en", "accuracy"): 0.25} | {
        ("en-de", "accuracy"): 1.0
    }
    lines = [line for line in str(card).splitlines() if line.startswith("| topics (zero-shot)")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    cross = next(row for row in cells if row[2] == "Cross")
    assert cross[3] == "62.5" and cross[5:7] == ["50.0", "25.0"]
    low, high = map(float, cross[4].split(" to "))
    assert low <= 62.5 <= high
    assert (
        "/home/me" not in str(card)
        and "rows.parquet" in str(card)
        and "other" not in Measured.read([f"{tmp_path / 'results'}#mine"], "x").details()
    )


def test_a_card_needs_no_more_than_weights_and_config(tmp_path):
    config = LaserConfig(vocab_size=20, d_model=8, embedding_dim=4, encoder_layers=1, decoder_hidden_size=8)
    LaserForConditionalGeneration(config).save_pretrained(tmp_path / "bare")
    text = str(model_card(tmp_path / "bare"))
    assert "holds no recipe" in text and "None: no retrieval" in text and "Not recorded." in text
    assert "Undefined" not in text and "{{" not in text


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "found no config.json"), ('{"model_type": "bert"}', "found a model of type 'bert'"), ("{", "not JSON")],
)
def test_what_is_no_model_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        model_card(tmp_path)


def test_a_card_that_fails_costs_no_run(runs, secret, corpus, monkeypatch):
    from modeling_tmde.training.train import train_recipe
    from tests.hub_cards.conftest import write_recipe

    monkeypatch.setattr("modeling_tmde.data.token_cache.default_folder", lambda: secret / "tokens")
    monkeypatch.setattr("modeling_tmde.hub_cards.model_cards.limits", lambda facts: 1 / 0)
    monkeypatch.setattr("modeling_tmde.training.run_record.logger.warning", lambda text: messages.append(text))
    messages = []
    folder = secret / "runs" / "no-card"
    train_recipe(load_recipe(str(write_recipe(secret, "bag", corpus))), folder)
    assert (folder / "results.json").exists() and not (folder / "README.md").exists()
    assert messages[-1] == "The model card was not written: ZeroDivisionError: division by zero"
    monkeypatch.undo()
    assert write_model_card(folder) and (folder / "README.md").exists()


def test_licences_of_other_sources_stop_a_run_before_it_trains(secret, corpus):
    from modeling_tmde.training.recipe import RecipeError
    from modeling_tmde.training.train import train_recipe
    from tests.hub_cards.conftest import write_recipe

    path = write_recipe(secret, "bag", corpus, card={"data_licenses": {"other.jsonl": "CC0"}})
    with pytest.raises(RecipeError, match="card.*found other.jsonl, expected some of the training sources: words"):
        train_recipe(load_recipe(str(path)), secret / "runs" / "refused")
    assert not (secret / "runs" / "refused").exists()
