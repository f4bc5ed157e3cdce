"""Values of a recipe that are of the wrong kind, by the annotations of what reads them."""

import pytest

from modeling_tmde.tokenization import train_tokenizer
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.recipe import DataConfig, load_recipe, recipe_names
from modeling_tmde.training.recipe_values import wrong_value

AUTO = {"bf16": "auto"}


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_of_the_package_are_right(name):
    sections = load_recipe(name).sections
    assert wrong_value(sections["training"], TmdeTrainingArguments, AUTO) is None
    assert wrong_value(sections["data"], DataConfig, {}) is None
    assert wrong_value(sections["tokenizer"], train_tokenizer, {}) is None


@pytest.mark.parametrize(
    ("reader", "key", "value", "expected"),
    [
        (TmdeTrainingArguments, "learning_rate", "fast", "a number"),
        (TmdeTrainingArguments, "learning_rate", True, "a number"),
        (TmdeTrainingArguments, "learning_rate", [0.1], "a number"),
        (TmdeTrainingArguments, "seed", "x", "a whole number"),
        (TmdeTrainingArguments, "max_steps", 2.5, "a whole number"),
        (TmdeTrainingArguments, "bf16", "maybe", "true or false"),
        (TmdeTrainingArguments, "max_minutes", "ten", "a number"),
        (DataConfig, "temperature", "hot", "a number"),
        (DataConfig, "streaming", 1, "true or false"),
        (DataConfig, "max_rows", "all", "a whole number"),
        (train_tokenizer, "vocab_size", "many", "a whole number"),
    ],
)
def test_wrong_kind_is_told(reader, key, value, expected):
    assert wrong_value({key: value}, reader, AUTO) == f"{key}: found {value!r}, expected {expected}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("learning_rate", 1), ("learning_rate", 3e-4), ("max_steps", 1e3), ("bf16", "auto"), ("bf16", False),
        ("max_minutes", None), ("lr_scheduler_type", "linear"), ("fsdp", True), ("unknown", "x"),
    ],
)  # fmt: skip
def test_right_kinds_pass(key, value):
    assert wrong_value({key: value}, TmdeTrainingArguments, AUTO) is None
