"""The recipe of a run that adds languages, made from the checkpoint and the recipe that it was trained by."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from transformers import AutoConfig, PreTrainedConfig
from transformers.utils import cached_file

from modeling_tmde.data.checks import is_code
from modeling_tmde.loading import local_or_hub
from modeling_tmde.training.architectures import ARCHITECTURES, architecture_of
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.recipe import Recipe, RecipeError, load_recipe, section_keys

RECIPE_NAME = "recipe.yaml"
HUB_KEYS = ("push_to_hub", "hub_")  # how they begin
LEARNING_RATE_SHARE = 0.3  # of the recipe's rates: much of what there is stays
# Each language's encoder stands for itself: nothing there knows a language that none was trained on.
PARTS_BY_LANGUAGE = ("tmde_ntdv", "tmde_aligned")


@dataclass(frozen=True)
class AddedLanguages:
    """
    What `tmde add-language` is asked for.

    Args:
        checkpoint: Folder or Hub id of a trained model with its tokenizer.
        languages: Codes of the languages to add.
        train: Source or sources of parallel text that pair them with the checkpoint's languages.
        replay: Source or sources of the old languages' parallel text; None takes what `train` holds of them.
        replay_share: Share of the training rows that are replayed.
        dev: Dev sets by name; None holds rows out of the training data.
        pivots: Which of the languages are pivots too, which the objectives translate into.
        new_tokens: Entries that the vocabulary gains; None for as many for each language as the old ones have on
            average, 0 to keep the tokenizer.
        recipe: Name or path of the recipe with the objectives and training settings; None for the one in the
            checkpoint's folder.
        overrides: Keys of the recipe, `key=value`. Without one, the learning rates are `LEARNING_RATE_SHARE` of the
            recipe's.
        max_drop: By how many points the old pairs' mean precision at 1 on the dev rows may fall.
    """

    checkpoint: str
    languages: list[str]
    train: Any
    replay: Any = None
    replay_share: float = 0.5
    dev: Mapping[str, Any] | None = None
    pivots: Sequence[str] = ()
    new_tokens: int | None = None
    recipe: str | None = None
    overrides: Sequence[str] = ()
    max_drop: float | None = None


def recipe_of(asked: AddedLanguages, tokenizer_folder: Path) -> Recipe:
    """The recipe of the run: the checkpoint's sizes and objectives, its languages and the new ones.

    Raises:
        RecipeError: A checkpoint that can't be opened or extended, languages that it has, no recipe, or a push.
    """
    config = open_checkpoint(asked.checkpoint)
    old, new = list(config.languages), list(asked.languages)
    _check_languages(old, new, asked)
    kind = architecture_of(config)
    name = next(name for name, item in ARCHITECTURES.items() if item is kind)
    base = load_recipe(_recipe_path(asked))
    if base.architecture != name:
        raise RecipeError(
            f"Recipe {base.name} trains a model of architecture {base.architecture!r}, and {asked.checkpoint} is of "
            f"{name!r}: give --recipe with one of its objectives"
        )
    pivots = [*config.pivot_languages, *(pivot for pivot in asked.pivots if pivot not in config.pivot_languages)]
    replayed = {"new": asked.train, "new_languages": new, "replay": asked.replay, "replay_share": asked.replay_share}
    data = {"train": replayed, "dev": asked.dev and dict(asked.dev), "languages": old + new, "pivot_languages": pivots}
    sections = {
        "data": data,
        "tokenizer": {"path": str(tokenizer_folder)},
        "warm_start": {"checkpoint": str(asked.checkpoint)},
        "model": {"architecture": name, **_model_section(config, name)},
        "objectives": base.sections["objectives"],
        "training": _training_section(base.sections["training"]),
        "card": {key: value for key, value in base.sections.get("card", {}).items() if key == "license"},
    }
    description = f"{', '.join(new)} added to {Path(asked.checkpoint).name} ({', '.join(old)})"
    with tempfile.TemporaryDirectory() as temporary:  # where overrides are applied and keys checked
        path = Path(temporary, "add_language.yaml")
        path.write_text(yaml.safe_dump({"description": description, **sections}, sort_keys=False), encoding="utf-8")
        recipe = load_recipe(str(path), list(asked.overrides))
    if pushed := [key for key in recipe.sections["training"] if key.startswith(HUB_KEYS)]:
        raise RecipeError(
            f"{', '.join(pushed)}: the result would be published before it is known what the old languages lost; push "
            "afterwards with `tmde push`"
        )
    return recipe


def open_checkpoint(checkpoint: str) -> PreTrainedConfig:
    try:
        config = AutoConfig.from_pretrained(local_or_hub(checkpoint))
    except (OSError, ValueError) as error:
        raise RecipeError(f"Checkpoint {checkpoint}: {error}") from error
    if architecture_of(config) is None:
        raise RecipeError(
            f"Checkpoint {checkpoint}: found a model of type {config.model_type!r}, expected one of this package"
        )
    if config.model_type in PARTS_BY_LANGUAGE:
        raise RecipeError(
            f"Checkpoint {checkpoint}: a model of type {config.model_type!r} has an encoder of its own for each "
            "language, and no language can be added to those there are; train one with all languages that begins "
            "with it (tmde train RECIPE --warm-start CHECKPOINT)"
        )
    return config


def _check_languages(old: Sequence[str], new: Sequence[str], asked: AddedLanguages) -> None:
    if not new:
        raise RecipeError("Found no language to add, expected codes such as it or pt-BR")
    for language in new:
        if not is_code(language):
            raise RecipeError(f"Language {language!r}: expected a code such as it or pt-BR")
        if language in old:
            raise RecipeError(
                f"Language {language!r} is one of the checkpoint's already ({', '.join(old)}); to train on with it, "
                f"use tmde train --warm-start {asked.checkpoint}"
            )
    if len(set(new)) != len(new):
        raise RecipeError(f"Languages {', '.join(new)}: found one twice, expected each once")
    for pivot in asked.pivots:
        if pivot not in (*old, *new):
            raise RecipeError(f"Pivot {pivot!r}: expected one of the languages {', '.join((*old, *new))}")


def _recipe_path(asked: AddedLanguages) -> str:
    if asked.recipe is not None:
        return asked.recipe
    path = cached_file(
        local_or_hub(asked.checkpoint),
        RECIPE_NAME,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        raise RecipeError(
            f"Checkpoint {asked.checkpoint} has no {RECIPE_NAME}: give --recipe, the name or path of one whose "
            "objectives and training settings fit it"
        )
    return path


def _model_section(config: PreTrainedConfig, architecture: str) -> dict[str, Any]:
    """The sizes of the checkpoint, as a recipe's `model` section has them."""
    content = config.to_dict()
    keys = section_keys("model", architecture) - {"architecture"}
    return json.loads(json.dumps({key: content[key] for key in sorted(keys) if key in content}))


def _training_section(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the recipe, at lower rates. Tables learn even where the recipe keeps them: they have new rows."""
    left = ("eval_pairs", "greater_is_better", *HUB_KEYS)  # of the checkpoint's run alone
    kept = {key: value for key, value in settings.items() if not key.startswith(left)}
    kept["metric_for_best_model"] = "mix"
    rate = kept.get("learning_rate", TmdeTrainingArguments.learning_rate)
    rates = {"learning_rate": rate, "embedding_learning_rate": kept.get("embedding_learning_rate") or None}
    if "encoder_learning_rate" in kept:
        rates["encoder_learning_rate"] = kept["encoder_learning_rate"]
    return kept | {name: value and LEARNING_RATE_SHARE * value for name, value in rates.items()}
