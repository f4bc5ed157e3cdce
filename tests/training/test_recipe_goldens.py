"""Every recipe of the package resolves to the values it had before the rewrite."""

import inspect
import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.building import stage_recipe
from modeling_tmde.training.recipe import Recipe, load_recipe, packaged_names

GOLDEN = Path(__file__).parents[1] / "goldens" / "recipes.json"


def resolve(recipe: Recipe) -> dict:
    """What a recipe means, with the defaults filled in: data, tokenizer, warm start, model, objectives, training."""
    arguments = recipe.build_arguments("unused")
    names = {*TmdeTrainingArguments.__annotations__, *recipe.sections["training"]}
    training = {name: getattr(arguments, name) for name in sorted(names)}
    if recipe.sections["training"].get("bf16") == "auto":  # decided by the machine
        training["bf16"] = "auto"
    model = dict(recipe.sections["model"])
    if recipe.architecture != "adapted":
        config = recipe.build_config()
        model |= {name: getattr(config, name) for name in model if name not in ("architecture", "encoder_config")}
    objectives = {
        name: {key: getattr(each, key) for key in inspect.signature(type(each).__init__).parameters if key != "self"}
        for name, each in recipe.build_objectives().items()
    }
    found = {"data": asdict(recipe.data), "tokenizer": recipe.sections["tokenizer"]}
    found |= {"warm_start": asdict(recipe.warm_start), "model": model, "objectives": objectives, "training": training}
    return json.loads(json.dumps(found, default=str))


def resolve_with_stage(name: str) -> dict:
    recipe = load_recipe(name)
    stage = stage_recipe(recipe)
    return {"run": resolve(recipe)} | ({} if stage is None else {"first_stage": resolve(stage)})


@pytest.mark.parametrize("name", packaged_names())
def test_recipes_resolve_as_before(name: str) -> None:
    assert resolve_with_stage(name) == json.loads(GOLDEN.read_text(encoding="utf-8"))[name]


if __name__ == "__main__":  # makes the golden file
    os.makedirs(GOLDEN.parent, exist_ok=True)
    found = {name: resolve_with_stage(name) for name in packaged_names()}
    GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
