"""What a new run begins with: its tokenizer and its model."""

import itertools
import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import datasets
import yaml
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from modeling_tmde.tokenization import train_tokenizer
from modeling_tmde.training.architectures import ARCHITECTURES
from modeling_tmde.training.hub_encoder import build_adapted, encoder_tokenizer, token_settings
from modeling_tmde.training.recipe import ADAPTED, Recipe, RecipeError
from modeling_tmde.training.stages import stage_recipe


def prepare_tokenizer(
    recipe: Recipe, train: Any, folder: Path, resumed: Path | None = None
) -> PreTrainedTokenizerBase:
    """The tokenizer of the recipe: opened from `tokenizer.path` or the run's folder, else trained on the corpus. An
    encoder of the Hub has its own; of a resumed run, it is in its checkpoint."""
    if recipe.architecture == ADAPTED:
        return encoder_tokenizer(recipe, resumed)
    options = dict(recipe.sections["tokenizer"])
    path = options.pop("path", None)
    if path is not None:
        return AutoTokenizer.from_pretrained(path)
    if not (folder / "tokenizer_config.json").exists():
        temporary = folder.with_name(f".{folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        languages = recipe.data.languages
        max_characters = options.get("max_characters", 20_000_000)
        texts = texts_by_language(train, languages, max_characters, recipe.sections["training"].get("seed", 42))
        length = getattr(recipe.build_config(), "max_position_embeddings", VERY_LARGE_INTEGER)  # a bag has no limit
        options.setdefault("model_max_length", length)
        train_tokenizer(texts, **options).save_pretrained(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(temporary, folder)
    return AutoTokenizer.from_pretrained(folder)


def check_same_model(recipe: Recipe, folder: Path) -> None:
    """Looks whether a run that is resumed was begun with this `model` section.

    What the recipe leaves out of a model on an encoder of the Hub, be it the encoder, is as its checkpoint says.

    Raises:
        RecipeError: It was not; names what was found and what the run was begun with.
    """
    if not (folder / "recipe.yaml").is_file():
        return
    begun = (yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8")) or {}).get("model") or {}
    found = yaml.safe_load(recipe.to_yaml())["model"]  # without tuples, as it was written
    if recipe.architecture == begun.get("architecture") == ADAPTED:
        found = {name: value for name, value in found.items() if value is not None}
        begun = {name: value for name, value in begun.items() if name in found}
    defaults = {item.name: item.default for item in fields(ARCHITECTURES[recipe.architecture].config)}
    defaults |= {"architecture": "tmde", "encoder": defaults.get("encoder")}
    others = []
    for name in sorted(set(found) | set(begun), key=lambda name: (name != "architecture", name)):
        given, known = (section.get(name, defaults.get(name)) for section in (found, begun))
        same_path = name == "encoder" and given and known and Path(given).resolve() == Path(known).resolve()
        if given != known and not same_path:
            others.append(f"model.{name} is {given!r}, and the run was begun with {known!r}")
    if others:
        raise RecipeError(
            f"{folder} cannot be resumed with another model: {'; '.join(others)}. Give what it was begun with, or "
            "choose another folder"
        )


def share_tokenizer(recipe: Recipe, train: Any, folder: Path) -> None:
    """Where a first stage has fewer languages, its tokenizer, which is the run's, learns them all. Not where the run
    has a tokenizer of its own, or the stage that of a checkpoint."""
    stage = stage_recipe(recipe)
    if stage is None or stage.data.languages == recipe.data.languages or recipe.sections["tokenizer"]:
        return
    options = stage.sections["tokenizer"]
    if "path" in options or (stage.warm_start.checkpoint is not None and not options):
        return
    stage.sections["data"]["languages"] = recipe.data.languages
    prepare_tokenizer(stage, train, folder)
    recipe.set("warm_start.overrides.tokenizer.path", str(folder))


def texts_by_language(train, languages: list[str], max_characters: int, seed: int) -> dict[str, list[str]]:
    """Texts of shuffled rows until every language has its characters or the rows end."""
    texts: dict[str, list[str]] = {language: [] for language in languages}
    sizes = dict.fromkeys(languages, 0)
    if isinstance(train, datasets.Dataset):
        shuffled = train.shuffle(seed=seed)
    else:
        shuffled = train.shuffle(seed=seed, buffer_size=10_000)
    for batch in shuffled.iter(batch_size=1000):  # many times faster than row by row
        for row, language in itertools.product(batch["translation"], languages):
            text = row.get(language)
            if text and sizes[language] < max_characters:
                texts[language].append(text)
                sizes[language] += len(text)
        if all(size >= max_characters for size in sizes.values()):
            break
    return texts


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, resumed: Path | None = None) -> PreTrainedModel:
    """A new model of the recipe's architecture, for this tokenizer.

    Args:
        resumed: The checkpoint whose weights it will get, which has the config of an encoder of the Hub.

    Raises:
        RecipeError: A tokenizer or an encoder that the architecture cannot be trained with.
    """
    if recipe.architecture == ADAPTED:
        return build_adapted(recipe, tokenizer, resumed)
    from_tokenizer = token_settings(tokenizer)
    if not from_tokenizer.pop("reads_bos"):
        raise RecipeError(
            f"Architecture {recipe.architecture} needs a tokenizer that begins every text with a token of its own, "
            f"found that of {tokenizer.name_or_path!r}, which only ends them with one"
        )
    from_tokenizer |= {"vocab_size": len(tokenizer), "mask_token_id": tokenizer.mask_token_id}
    architecture = ARCHITECTURES[recipe.architecture]
    known = {field.name for field in fields(architecture.config)}
    return architecture.model(recipe.build_config(**{k: v for k, v in from_tokenizer.items() if k in known}))
