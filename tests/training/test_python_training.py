"""Training from Python: what a user of transformers expects of the trainer and its arguments."""

import json
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, TrainerCallback
from transformers.trainer_utils import EvalPrediction

from modeling_tmde import TmdeError, TmdeForConditionalGeneration
from tests.conftest import make_dataset, make_rows, nightly_except, tiny_config, tiny_model
from tests.training.logs import assert_equal_weights
from tests.training.models import bag
from tests.training.trainers import ARGUMENTS, tiny_trainer
from tmde import (
    DistanceConstraint,
    DocumentEmbedder,
    EmbeddingObjective,
    InfoNCE,
    ObjectiveOutput,
    TmdeTrainer,
    TmdeTrainingArguments,
    TranslationObjective,
    load_recipe,
    train_recipe,
)
from tmde.training import evaluation
from tmde.training.evaluation import embed_rows
from tmde.training.recipe import RecipeError
from tmde.training.recipe.building import build_arguments, build_config, build_objectives
from tmde.training.recipe.objective_classes import make_objectives

DEV = make_dataset(make_rows(12, seed=9))
ROWS = make_dataset(make_rows(120, seed=2))
# What `ARGUMENTS` turns off, because most tests need no checkpoints.
DEFAULTS = {name: ARGUMENTS[name] for name in ("use_cpu", "disable_tqdm", "max_steps", "seed")}
DEFAULTS["micro_batch_tokens"] = 400


def python_trainer(folder: Path, tokenizer, **options) -> TmdeTrainer:
    """Return a trainer as a user of transformers builds it, with the default arguments."""
    arguments = DEFAULTS | options.pop("arguments", {})
    options.setdefault("model", tiny_model(seed=1))
    return TmdeTrainer(
        args=TmdeTrainingArguments(str(folder), **arguments),
        train_dataset=ROWS,
        processing_class=tokenizer,
        **options,
    )


# ---- The model


class SeenModels(TrainerCallback):
    """Keeps the model that callbacks get."""

    def __init__(self):
        self.models = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.models.append(model)


def test_the_model_stays_the_one_that_was_given(tokenizer, tmp_path):
    model = tiny_model(seed=1)
    seen = SeenModels()
    trainer = python_trainer(tmp_path, tokenizer, model=model, callbacks=[seen])
    assert trainer.model is model
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    trainer.train()
    trainer.train()  # A second call trains on, and wraps nothing twice.

    assert trainer.model is model
    assert all(seen_model is model for seen_model in seen.models)
    changed = [
        name for name, weight in model.state_dict().items() if (weight != before[name]).any()
    ]
    assert "model.layers.0.fc1.weight" in changed


def test_model_init_makes_the_model_that_is_trained(tokenizer, tmp_path):
    given = tiny_model(seed=1)
    trainer = python_trainer(tmp_path / "given", tokenizer, model=given)
    trainer.train()

    made = python_trainer(
        tmp_path / "made", tokenizer, model=None, model_init=lambda: tiny_model(seed=1)
    )
    made.train()

    assert_equal_weights(made.model.state_dict(), given.state_dict())


def test_a_model_of_another_package_is_refused_with_what_to_do(tokenizer, tmp_path):
    config = BertConfig(
        vocab_size=400,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
    )
    with pytest.raises(TmdeError, match=r"found BertModel.*tmde.adapt_encoder"):
        python_trainer(tmp_path, tokenizer, model=BertModel(config))


def test_arguments_that_the_trainer_cannot_use_are_refused_by_name(tokenizer, tmp_path):
    with pytest.raises(TmdeError, match=r"data_collator: found function, expected None"):
        python_trainer(tmp_path, tokenizer, data_collator=lambda rows: rows)
    with pytest.raises(TypeError, match="no argument 'loss_function'"):
        python_trainer(tmp_path, tokenizer, loss_function=None)


# ---- Objectives


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        (["infonce"], "objectives: found \\['infonce'\\], expected losses by name"),
        ({"infonce": "0.5"}, "objectives.infonce: found the weight '0.5', expected a number"),
        ({"infonce": -1}, "objectives.infonce: found the weight -1, expected a number"),
        ({"infonce": {"weight": True}}, "objectives.infonce: found the weight True"),
    ],
)
def test_objectives_that_are_none(objectives, message):
    with pytest.raises(RecipeError, match=message):
        make_objectives(objectives)


def test_objectives_come_by_weight_by_options_and_as_objects():
    mine = InfoNCE(temperature=0.1)
    made = make_objectives({"translation": 0.7, "distance": {"margin": 0.3}, "mine": mine})
    assert list(made) == ["translation", "distance", "mine"]
    assert isinstance(made["translation"], TranslationObjective)
    assert made["translation"].weight == 0.7
    assert isinstance(made["distance"], DistanceConstraint)
    assert (made["distance"].weight, made["distance"].margin) == (0.25, 0.3)
    assert made["mine"] is mine


def test_by_default_the_objectives_are_those_of_ctmde(tokenizer, tmp_path):
    trainer = python_trainer(tmp_path, tokenizer)
    weights = {name: objective.weight for name, objective in trainer.objectives.items()}
    assert weights == {"translation": 0.5, "distance": 0.25}


def test_an_unknown_objective_is_named_with_those_that_there_are(tokenizer, tmp_path):
    with pytest.raises(TmdeError, match="objective 'distnace' is unknown; did you mean distance"):
        python_trainer(tmp_path, tokenizer, objectives={"distnace": 1.0})


class CosineMargin(EmbeddingObjective):
    """Push translations to a cosine of at least 0.9."""

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        first, second = embeddings  # (rows, d_model) each
        cosines = torch.nn.functional.cosine_similarity(first, second)  # (rows,)
        return (0.9 - cosines).clamp_min(0).sum()


def test_an_objective_of_ones_own_trains_an_encoder(tokenizer, tmp_path):
    trainer = python_trainer(
        tmp_path, tokenizer, model=bag(), eval_dataset=DEV, objectives={"cosine": CosineMargin()}
    )
    before = trainer.evaluate()["eval_cosine_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_cosine_loss"] < before


# ---- Evaluation


def test_nothing_is_evaluated_without_rows_and_tasks(tokenizer, tmp_path):
    trainer = python_trainer(tmp_path, tokenizer)
    trainer.train()
    logged = {name for entry in trainer.state.log_history for name in entry}
    assert not [name for name in logged if name.startswith("eval_")]


def test_an_evaluation_that_is_asked_for_needs_rows_or_tasks(tokenizer, tmp_path):
    with pytest.raises(TmdeError, match="eval_strategy=steps: found no eval_dataset"):
        python_trainer(tmp_path, tokenizer, arguments={"eval_strategy": "steps"})


def test_one_set_of_rows_has_measures_without_a_name(tokenizer, tmp_path):
    trainer = python_trainer(tmp_path, tokenizer, eval_dataset=DEV)
    metrics = trainer.evaluate()
    by_name = trainer.evaluate({"dev": DEV})
    loss = 0.5 * metrics["eval_translation_loss"] + 0.25 * metrics["eval_distance_loss"]
    assert metrics["eval_loss"] == pytest.approx(loss, abs=2e-6)  # Metrics have six decimals.
    assert metrics["eval_p1_de-en"] == by_name["eval_dev_p1_de-en"]
    assert by_name["eval_dev_loss"] == by_name["eval_loss"] == metrics["eval_loss"]


def test_the_loss_can_choose_the_best_model(tokenizer, tmp_path):
    arguments = {"metric_for_best_model": "eval_loss", "eval_steps": 2, "save_steps": 2}
    trainer = python_trainer(tmp_path, tokenizer, eval_dataset=DEV, arguments=arguments)
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(losses) == 2
    assert trainer.state.best_metric == min(losses)


def test_a_metric_that_nothing_measures_is_refused_before_training(tokenizer, tmp_path):
    arguments = {"metric_for_best_model": "bleu"}
    with pytest.raises(TmdeError, match=r"metric_for_best_model=bleu.*expected one of mix, loss"):
        python_trainer(tmp_path, tokenizer, eval_dataset=DEV, arguments=arguments)


NLI_ROWS = [
    {"premise": "dog house", "hypothesis": "dog", "label": 0},
    {"premise": "cat tree", "hypothesis": "river", "label": 1},
]


@pytest.mark.parametrize("metric", ["mix", "eval_mix"])
def test_rows_without_pairs_are_judged_by_the_loss(metric, tokenizer, tmp_path):
    rows = datasets.Dataset.from_list(30 * NLI_ROWS)
    arguments = {"metric_for_best_model": metric, "eval_steps": 2, "save_steps": 2}
    trainer = TmdeTrainer(
        model=bag(),
        args=TmdeTrainingArguments(str(tmp_path), **DEFAULTS, **arguments),
        train_dataset=rows,
        eval_dataset=rows,
        objectives={"nli": 1.0},
        processing_class=tokenizer,
    )
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert trainer.state.best_metric == min(losses)


@pytest.mark.parametrize("pairs", [None, []])
def test_retrieval_that_nothing_measures_is_refused_before_training(pairs, tokenizer, tmp_path):
    arguments = {"metric_for_best_model": "retrieval", "eval_pairs": pairs}
    options = {"eval_dataset": DEV}
    if pairs is None:
        rows = datasets.Dataset.from_list(30 * NLI_ROWS)
        options = {"eval_dataset": rows, "objectives": {"nli": 1.0}, "model": bag()}
    with pytest.raises(TmdeError, match="metric_for_best_model=retrieval: .*expected one of loss"):
        python_trainer(tmp_path, tokenizer, arguments=arguments, **options)


def test_a_recipe_of_one_language_is_judged_by_the_loss(tmp_path):
    rows = make_dataset(make_rows(60, seed=2, languages=("en",)))
    sizes = ["model.d_model=16", "model.encoder_attention_heads=2", "model.encoder_layers=1"]
    sizes += ["model.encoder_ffn_dim=16", "tokenizer.vocab_size=300", "max_steps=2", "use_cpu=true"]
    options = ["data.languages=[en]", "data.pivot_languages=[en]", "data.streaming=false"]
    options += ["metric_for_best_model=mix", "disable_tqdm=true", "model.prediction_head=none"]
    recipe = load_recipe("mlm", [*sizes, *options])
    trainer = train_recipe(recipe, tmp_path / "run", train_dataset=rows, eval_dataset=rows)
    assert trainer.args.metric_for_best_model == "loss"


def test_compute_metrics_gets_the_embeddings_and_can_choose_the_best_model(tokenizer, tmp_path):
    predictions = []

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        predictions.append(prediction)
        return {"width": float(np.nanmax(prediction.predictions))}

    rows = make_rows(12, seed=9)
    rows[3]["de"] = None
    languages = tiny_config().languages
    trainer = python_trainer(
        tmp_path,
        tokenizer,
        eval_dataset=make_dataset(rows),
        compute_metrics=compute_metrics,
        arguments={"metric_for_best_model": "width", "eval_steps": 2, "save_steps": 2},
    )
    metrics = trainer.evaluate()

    embeddings = predictions[0].predictions  # (rows, languages, d)
    assert predictions[0].label_ids is None
    assert embeddings.shape == (12, len(languages), trainer.model.config.d_model)
    assert np.isnan(embeddings[3, languages.index("de")]).all()
    embedder = DocumentEmbedder(trainer.model.model.eval(), tokenizer)
    for number, language in enumerate(languages):
        texts = [row[language] for row in rows if row[language] is not None]
        present = [index for index, row in enumerate(rows) if row[language] is not None]
        expected = embedder.encode(texts)
        np.testing.assert_allclose(embeddings[present, number], expected, atol=1e-5)
    assert metrics["eval_width"] == pytest.approx(np.nanmax(embeddings), abs=1e-6)

    trainer.train()
    history = trainer.state.log_history
    widths = [entry["eval_width"] for entry in history if "eval_width" in entry]
    assert trainer.state.best_metric == max(widths)


def test_predict_returns_embeddings_and_metrics(tokenizer, tmp_path):
    trainer = python_trainer(tmp_path, tokenizer, eval_dataset=DEV)
    evaluated = trainer.evaluate()
    predictions, labels, metrics = trainer.predict(DEV)
    embedder = DocumentEmbedder(trainer.model.model.eval(), tokenizer)
    english = [row["en"] for row in DEV["translation"]]
    number = trainer.model.config.languages.index("en")
    np.testing.assert_allclose(predictions[:, number], embedder.encode(english), atol=1e-5)
    assert labels is None
    assert metrics["test_loss"] == evaluated["eval_loss"]
    assert metrics["test_retrieval"] == evaluated["eval_retrieval"]


def test_predict_encodes_the_rows_once_for_embeddings_and_metrics(tokenizer, tmp_path, monkeypatch):
    calls = []

    def count(*args, **options):
        calls.append(args)
        return embed_rows(*args, **options)

    monkeypatch.setattr(evaluation, "embed_rows", count)
    predictions = []

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        predictions.append(prediction.predictions)
        return {"rows": float(len(prediction.predictions))}

    trainer = python_trainer(tmp_path, tokenizer, compute_metrics=compute_metrics)
    output = trainer.predict(DEV)
    assert len(calls) == 1
    assert output.predictions is predictions[0]
    assert output.metrics["test_rows"] == len(DEV)


# ---- Resuming


def test_a_path_resumes_as_its_string_does(tokenizer, tmp_path):
    arguments = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    whole = tiny_trainer(tmp_path / "whole", tokenizer, **arguments)
    whole.train()
    checkpoint = tmp_path / "whole" / "checkpoint-2"
    resumed = tiny_trainer(tmp_path / "resumed", tokenizer, **arguments)

    resumed.train(resume_from_checkpoint=checkpoint)

    assert resumed.position == whole.position
    assert_equal_weights(resumed.model.state_dict(), whole.model.state_dict())


# ---- Records


def test_a_trainer_built_in_python_writes_card_recipe_and_results(tokenizer, tmp_path):
    arguments = {"learning_rate": 2e-3, "eval_steps": 2, "save_steps": 2}
    trainer = python_trainer(
        tmp_path,
        tokenizer,
        eval_dataset=DEV,
        objectives={"translation": 0.6, "infonce": {"temperature": 0.1}},
        arguments=arguments,
    )
    trainer.train()
    trainer.save_model()

    recipe = load_recipe(str(tmp_path / "recipe.yaml"))
    config = build_config(recipe, vocab_size=trainer.model.config.vocab_size)
    made = TmdeForConditionalGeneration(config)
    assert_same_shapes(made, trainer.model)
    objectives = build_objectives(recipe)
    assert objectives["translation"].weight == 0.6
    assert objectives["infonce"].temperature == 0.1
    rebuilt = build_arguments(recipe, str(tmp_path))
    for name in ("learning_rate", "max_steps", "eval_steps", "micro_batch_tokens", "seed"):
        assert getattr(rebuilt, name) == getattr(trainer.args, name)

    results = json.loads((tmp_path / "results.json").read_text())
    assert results["steps"] == 4
    assert results["best"]["eval_loss"] == pytest.approx(trainer.evaluate()["eval_loss"], abs=1e-6)
    assert json.loads((tmp_path / "run.json").read_text())["data"]["train"]["rows"] == 120
    card = (tmp_path / "README.md").read_text()
    assert "Trained with `TmdeTrainer`, in 4 steps" in card
    sentences = 100 * results["best"]["eval_retrieval"]
    assert "The **dev** rows are of unrecorded origin" in card
    assert f"| mean, sentences | {sentences:.1f} | 8.3 |" in card  # chance is one of 12
    assert "Objectives: translation, weight 0.6; InfoNCE" in card
    saved = TmdeForConditionalGeneration.from_pretrained(tmp_path)
    assert_equal_weights(saved.state_dict(), trainer.model.state_dict())
    assert not (tmp_path / "data_state.json").exists()  # Only checkpoints have a position.


def test_results_have_the_evaluation_before_the_first_step(tokenizer, tmp_path):
    trainer = python_trainer(
        tmp_path, tokenizer, eval_dataset=DEV, arguments={"eval_on_start": True}
    )
    trainer.train()
    trainer.save_model()
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["start"]["step"] == 0
    assert results["start"]["eval_loss"] == trainer.state.log_history[0]["eval_loss"]
    assert results["packaged"] is None


def assert_same_shapes(first: torch.nn.Module, second: torch.nn.Module) -> None:
    shapes = {name: weight.shape for name, weight in first.state_dict().items()}
    assert shapes == {name: weight.shape for name, weight in second.state_dict().items()}


def test_two_losses_of_one_class_leave_the_model_without_a_recipe(tokenizer, tmp_path):
    two = {"near": InfoNCE(temperature=0.1), "far": InfoNCE(temperature=1.0)}
    trainer = python_trainer(tmp_path, tokenizer, objectives=two, model=bag())
    trainer.train()
    trainer.save_model()
    assert not (tmp_path / "recipe.yaml").exists()
    assert (tmp_path / "README.md").is_file()


# ---- Batches


def test_rows_are_needed_to_train_and_not_to_evaluate(tokenizer, tmp_path):
    trainer = TmdeTrainer(
        model=tiny_model(),
        args=TmdeTrainingArguments(str(tmp_path), use_cpu=True),
        eval_dataset=DEV,
        processing_class=tokenizer,
    )
    assert trainer.evaluate()["eval_retrieval"] > 0
    with pytest.raises(TmdeError, match="train_dataset: found None"):
        trainer.train()


# ---- Columns


@pytest.mark.parametrize("kind", ["map", "stream"])
def test_one_column_for_each_language_trains_as_translations_do(kind, tokenizer, tmp_path):
    flat = datasets.Dataset.from_list(make_rows(120, seed=2))
    flat_dev = datasets.Dataset.from_list(make_rows(12, seed=9))
    nested = ROWS
    if kind == "stream":
        flat = flat.to_iterable_dataset()
        nested = nested.to_iterable_dataset()
    trainers = []
    for name, rows, dev in (("flat", flat, flat_dev), ("nested", nested, DEV)):
        trainer = TmdeTrainer(
            model=tiny_model(seed=1),
            args=TmdeTrainingArguments(str(tmp_path / name), **DEFAULTS),
            train_dataset=rows,
            eval_dataset=dev,
            processing_class=tokenizer,
        )
        trainer.train()
        trainers.append(trainer)
    first, second = trainers
    assert_equal_weights(first.model.state_dict(), second.model.state_dict())
    assert first.evaluate()["eval_loss"] == second.evaluate()["eval_loss"]


def test_columns_without_a_language_are_named(tokenizer, tmp_path):
    rows = datasets.Dataset.from_list([{"source": "Hund", "target": "dog"}])
    with pytest.raises(TmdeError, match=r"source, target"):
        TmdeTrainer(
            model=tiny_model(),
            args=TmdeTrainingArguments(str(tmp_path)),
            train_dataset=rows,
            processing_class=tokenizer,
        )


# ---- Arguments


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("steps", 1000, "steps", 1000, True)),
        ({"save_steps": 10}, ("steps", 10, "steps", 10, True)),
        ({"eval_steps": 20}, ("steps", 20, "steps", 20, True)),
        ({"eval_steps": 20, "save_steps": 40}, ("steps", 20, "steps", 40, True)),
        ({"eval_strategy": "epoch"}, ("epoch", 1000, "epoch", 1000, True)),
        ({"eval_strategy": "no", "save_steps": 7}, ("no", 7, "steps", 7, False)),
        ({"save_strategy": "no"}, ("steps", 1000, "no", 1000, False)),
    ],
)
def test_saving_follows_evaluation_where_only_one_is_set(given, expected, tmp_path):
    args = TmdeTrainingArguments(str(tmp_path), **given)
    evaluation = (args.eval_strategy, args.eval_steps, args.save_strategy, args.save_steps)
    assert (*evaluation, args.load_best_model_at_end) == expected


# ---- Recipes with datasets


@pytest.mark.parametrize("kind", ["map", "stream"])
def test_a_recipe_trains_on_a_dataset(kind, tmp_path):
    languages = ("de", "en", "fr")
    rows = datasets.Dataset.from_list(make_rows(300, seed=2, languages=languages))
    dev = datasets.Dataset.from_list(make_rows(12, seed=9, languages=languages))
    if kind == "stream":
        rows = rows.to_iterable_dataset()
    sizes = ["model.d_model=16", "tokenizer.vocab_size=400", "max_steps=4", "use_cpu=true"]
    recipe = load_recipe("bag", [*sizes, "warm_start.packaged=never", "disable_tqdm=true"])

    trainer = train_recipe(recipe, tmp_path / "run", train_dataset=rows, eval_dataset=dev)

    assert list(trainer.model.config.languages) == ["de", "en", "fr"]
    assert list(trainer.eval_dataset) == ["dev"]
    recorded = load_recipe(str(tmp_path / "run" / "recipe.yaml"))
    assert recorded.data.train is None
    assert recorded.data.languages == ["de", "en", "fr"]
    assert (tmp_path / "run" / "README.md").is_file()


# ---- Several runs of one trainer

LIMITS = [{"num_train_epochs": 1, "max_steps": -1}, {"max_steps": 3}]


@pytest.mark.parametrize("limit", nightly_except([LIMITS[1]], LIMITS))
@pytest.mark.parametrize("saves_between", nightly_except([True], [False, True]))
def test_a_second_train_begins_anew(limit, saves_between, tokenizer, tmp_path):
    trainer = python_trainer(
        tmp_path, tokenizer, eval_dataset=DEV, arguments={**limit, "early_stopping_patience": 1}
    )
    trainer.train()
    first_steps = trainer.state.global_step
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    if saves_between:
        trainer.save_model()
    trainer.train()
    assert trainer.state.global_step == first_steps > 0
    assert trainer.meter.seen["rows"] > 0
    name = "model.layers.0.fc1.weight"
    assert (trainer.model.state_dict()[name] != before[name]).any()


def test_what_one_loss_does_not_train_the_next_one_does(tokenizer, tmp_path):
    model = tiny_model(seed=1)
    python_trainer(
        tmp_path / "infonce", tokenizer, model=model, objectives={"infonce": 1.0}
    ).train()
    before = model.decoder.layers[0].fc1.weight.clone()
    python_trainer(
        tmp_path / "translation", tokenizer, model=model, objectives={"translation": 1.0}
    ).train()
    assert (model.decoder.layers[0].fc1.weight != before).any()


def test_an_optimizer_of_the_user_keeps_its_groups(tokenizer, tmp_path):
    model = tiny_model(seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = python_trainer(tmp_path, tokenizer, model=model, optimizers=(optimizer, schedule))
    trainer.train()
    assert [group["lr"] for group in optimizer.param_groups] == [0.5]
    with pytest.raises(TmdeError, match="encoder_learning_rate=0.1: found `optimizers`"):
        python_trainer(
            tmp_path,
            tokenizer,
            model=model,
            optimizers=(optimizer, schedule),
            arguments={"encoder_learning_rate": 0.1},
        )


def test_groups_do_not_multiply_with_every_train(tokenizer, tmp_path):
    trainer = python_trainer(tmp_path, tokenizer, arguments={"encoder_learning_rate": 1e-4})
    trainer.train()
    groups = len(trainer.optimizer.param_groups)
    trainer.train()
    assert len(trainer.optimizer.param_groups) == groups


# ---- Arguments and names that would be ignored


@pytest.mark.parametrize(
    "argument",
    [
        {"load_best_model_at_end": True},
        {"eval_on_start": True},
        {"early_stopping_patience": 2},
        {"save_strategy": "best"},
        {"lr_scheduler_type": "reduce_lr_on_plateau"},
    ],
)
def test_what_needs_evaluations_is_refused_without_any(argument, tokenizer, tmp_path):
    (name,) = argument
    with pytest.raises(TmdeError, match=f"{name}=.*found no eval_dataset"):
        python_trainer(tmp_path, tokenizer, arguments=argument)


def test_a_metric_of_the_user_does_not_replace_one_of_the_trainer(tokenizer, tmp_path):
    trainer = python_trainer(
        tmp_path, tokenizer, eval_dataset=DEV, compute_metrics=lambda prediction: {"loss": 5.0}
    )
    with pytest.raises(TmdeError, match="compute_metrics returned 'loss'"):
        trainer.evaluate()


def test_a_set_is_evaluated_by_its_name(tokenizer, tmp_path):
    trainer = python_trainer(tmp_path, tokenizer, eval_dataset={"a": DEV, "b": DEV})
    metrics = trainer.evaluate("a")
    assert "eval_a_loss" in metrics
    assert not [name for name in metrics if name.startswith("eval_b_")]
    with pytest.raises(TmdeError, match="eval_dataset: found 'typo', expected 'a', 'b'"):
        trainer.evaluate("typo")


def test_held_out_rows_are_no_stream(tokenizer, tmp_path):
    with pytest.raises(TmdeError, match="found IterableDataset, expected a Dataset"):
        python_trainer(tmp_path, tokenizer, eval_dataset=DEV.to_iterable_dataset())
    with pytest.raises(TmdeError, match="found no rows"):
        python_trainer(tmp_path, tokenizer, eval_dataset=DEV.select([]))


def test_a_search_of_hyperparameters_is_refused(tokenizer, tmp_path):
    with pytest.raises(TmdeError, match="make a trainer for each trial"):
        python_trainer(tmp_path, tokenizer).hyperparameter_search()


# ---- Pushes


def test_a_push_goes_to_the_repository_that_the_arguments_name(tokenizer, tmp_path, monkeypatch):
    pushed = []

    def push_model(folder, repo_id, **options):
        pushed.append((Path(folder), repo_id))
        return {}, None

    monkeypatch.setattr("tmde.training.publishing.push_model", push_model)
    arguments = {"hub_model_id": "me/wanted"}
    trainer = python_trainer(tmp_path / "run", tokenizer, arguments=arguments)
    trainer.push_to_hub()
    assert pushed == [(tmp_path / "run", "me/wanted")]
    assert (tmp_path / "run" / "model.safetensors").is_file()
    with pytest.raises(TmdeError, match="push_to_hub has no option 'tasks'"):
        trainer.push_to_hub(tasks="feature-extraction")
    with pytest.raises(TmdeError, match="blocking: found False"):
        trainer.push_to_hub(blocking=False)


# ---- What a recipe cannot describe


class Forgetful(EmbeddingObjective):
    """A loss that does not keep its option."""

    def __init__(self, weight: float = 1.0, margin: float = 0.5):
        super().__init__(weight)

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        return ObjectiveOutput(embeddings.square().sum())


def test_a_loss_without_its_options_leaves_the_model_without_a_recipe(tokenizer, tmp_path):
    losses = {"forgetful": Forgetful()}
    trainer = python_trainer(tmp_path, tokenizer, model=bag(), objectives=losses)
    trainer.train()
    trainer.save_model()
    assert not (tmp_path / "recipe.yaml").exists()
    assert (tmp_path / "run.json").is_file()


def test_saving_elsewhere_in_a_run_of_a_recipe_copies_its_records(tmp_path):
    rows = datasets.Dataset.from_list(make_rows(300, seed=2, languages=("de", "en")))
    sizes = ["model.d_model=16", "tokenizer.vocab_size=400", "max_steps=2"]
    recipe = load_recipe("bag", [*sizes, "warm_start.packaged=never", "disable_tqdm=true"])
    trainer = train_recipe(recipe, tmp_path / "run", train_dataset=rows)
    trainer.save_model(tmp_path / "copy")
    for name in ("recipe.yaml", "run.json"):
        assert (tmp_path / "copy" / name).read_text() == (tmp_path / "run" / name).read_text()


# ---- Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objectives": {}}, "At least one objective is needed"),
        ({"model": tiny_model(vocab_size=300)}, "400 tokens.*vocab_size is 300"),
    ],
)
def test_a_mistake_is_named(options, message, tokenizer, tmp_path):
    with pytest.raises(TmdeError, match=message):
        python_trainer(tmp_path, tokenizer, **options)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"de": "Hund", "en": "dog"}], "found list, expected a Dataset.*from_list"),
        ("memory.tsv", "found str, expected a Dataset.*load_parallel"),
        (datasets.DatasetDict(train=ROWS), "found DatasetDict.*one of its splits: train"),
    ],
)
def test_rows_that_are_no_dataset_are_named(rows, message, tokenizer, tmp_path):
    with pytest.raises(TmdeError, match=message):
        TmdeTrainer(model=tiny_model(), train_dataset=rows, processing_class=tokenizer)
