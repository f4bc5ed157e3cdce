"""Recipes: YAML files with everything a training run is made of, and `key=value` overrides for them."""

import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from huggingface_hub.dataclasses import type_validator
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from modeling_tmde import TmdeError
from modeling_tmde.modeling_adapted import AdaptedForConditionalGeneration
from modeling_tmde.modeling_aligned import AlignedModel
from modeling_tmde.modeling_bag import BagModel
from modeling_tmde.modeling_encoder import TmdeEncoderForMaskedLM
from modeling_tmde.modeling_laser import LaserForConditionalGeneration
from modeling_tmde.modeling_ntdv import NtdvForConditionalGeneration
from modeling_tmde.modeling_tmde import TmdeForConditionalGeneration
from tmde.data.io import PlainLoader
from tmde.data.parallel import NLI_TEXTS
from tmde.embedding.document_embedder import has_fast_bf16
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objectives import OBJECTIVES
from tmde.training.objectives.base import check_range

logger = logging.get_logger("tmde.training")

RECIPES = "tmde.training.recipes"
# By the name of `architecture` in the `model` section of a recipe.
ARCHITECTURES: dict[str, type[PreTrainedModel]] = {
    "tmde": TmdeForConditionalGeneration,
    "bag": BagModel,
    "laser": LaserForConditionalGeneration,
    "ntdv": NtdvForConditionalGeneration,
    "encoder": TmdeEncoderForMaskedLM,
    "aligned": AlignedModel,
    "adapted": AdaptedForConditionalGeneration,
}
ADAPTED = "adapted"  # the architecture on an encoder of the Hub
NOT_IN_CONFIG = {"architecture", "encoder", "encoder_layers"}  # of its `model` section
MIN_PYRAMID_LAYERS = 4  # its queries attend the output of the third layer from the top
# Keys of a config that the tokenizer, the `data` section or the encoder decides.
SETTLED_KEYS = {
    "languages",
    "pivot_languages",
    "vocab_size",
    "encoder_config",
    "reads_bos",
    "prompt_ids",
}
SETTLED_KEYS |= {"decoder_embedding_scale"}


class RecipeError(TmdeError):
    """A recipe, or a key of one, that does not exist or does not fit."""


def architecture_of(config: PreTrainedConfig) -> str | None:
    """The architecture of a model's configuration; None if it is not of this package."""
    types = {model.config_class.model_type: name for name, model in ARCHITECTURES.items()}
    return types.get(config.model_type)


@dataclass
class ReplaySources:
    """`data.train` of a recipe that adds languages.

    Args:
        new: Source or sources with rows in the new languages.
        new_languages: Their codes.
        replay: Source or sources of the old languages; None takes what `new` holds of them.
        replay_share: Share of the training rows that are of old languages alone.
    """

    new: Any
    new_languages: list[str]
    replay: Any = None
    replay_share: float | int = 0.5

    def __post_init__(self):
        check_range("replay_share", self.replay_share, "[0, 1)")


@dataclass
class DataSection:
    """The `data` section.

    Args:
        train: Source or sources of parallel text, as `load_parallel` takes them.
        dev: Source of held-out rows, or several by name. None holds out `dev_rows` rows of the training data.
        dev_split: The split of a Hub dataset to take as held-out rows.
        languages, pivot_languages: Languages to train, and those to translate into.
        streaming: Read the training data as a stream.
        temperature: Mixes several corpora, see `load_parallel`.
        bad_rows: `"report"` counts and skips bad rows, `"raise"` stops at the first.
        max_rows: Use only so many rows of the training data.
        dev_rows: Rows held out when `dev` is missing; 0 holds out none, and without `eval_task` nothing is evaluated.
        eval_task: Classification task or a list of several, `NAME` or `NAME=SOURCE` as `tmde eval` takes it. Every
            evaluation measures Evaluation II (thesis 4.4.2) on it; `metric_for_best_model: cross` chooses the
            checkpoint by its dev split (of several tasks, by their mean).
    """

    train: Any = None
    dev: Any = None
    dev_split: str = "train"
    languages: list[str] = field(default_factory=lambda: ["de", "en", "es", "fr", "it"])
    pivot_languages: list[str] = field(default_factory=lambda: ["en", "es"])
    streaming: bool = False
    temperature: float | int | None = None
    bad_rows: Literal["report", "raise"] = "report"
    max_rows: int | None = None
    dev_rows: int = 2000
    eval_task: str | list[str] | None = None

    def __post_init__(self):
        check_range("max_rows", self.max_rows, "[1, inf)")
        check_range("dev_rows", self.dev_rows, "[0, inf)")
        check_range("temperature", self.temperature, "(0, inf]")
        if self.replay is not None and self.streaming:
            raise TmdeError(
                "streaming: found true, but rows of a stream cannot be replayed in a stated share"
            )

    @property
    def replay(self) -> ReplaySources | None:
        """The sources of a run that adds languages; None where `train` is ordinary."""
        return (
            ReplaySources(**self.train)
            if isinstance(self.train, Mapping) and "new" in self.train
            else None
        )


@dataclass
class WarmStartSection:
    """The `warm_start` section: what a new model begins with; nothing by default.

    Args:
        checkpoint: Folder or Hub id of a bag, or of a model of the same architecture; for a bag also any text encoder,
            whose token vectors it takes, see `save_encoder_bag`.
        recipe: Without a checkpoint: the recipe of a first stage on the same data, trained in `warm_start/` of the
            run's folder.
        overrides: Keys of the first stage's recipe and their values. On the command line,
            `warm_start.overrides.max_minutes=5` changes one of them. Data, seed and what is evaluated are the run's;
            `data.languages` and `data.pivot_languages` may be fewer.
        direct_path: See `tmde.training.warm_start.warm_start`.
    """

    checkpoint: str | None = None
    recipe: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    direct_path: bool = True


# The options of `train_tokenizer`, or the path of a tokenizer to use; `whole_words`: see `save_encoder_bag`.
TOKENIZER_KEYS = {
    "path": str | None,
    "vocab_size": int,
    "max_characters": int,
    "model_max_length": int,
}
TOKENIZER_KEYS |= {"lowercase": bool, "add_prefix_space": bool, "whole_words": int}
# What the model card says that a run cannot know: the model's license, as the Hub calls it; those of the training text
# by source, as `data.train` names it or by its last component; and Markdown for the top of the card.
CARD_KEYS = {"license": str | None, "data_licenses": dict[str, str], "description": str | None}
# transformers annotates `fsdp` as str, and takes true as well.
TRAINING_KEYS = typing.get_type_hints(TmdeTrainingArguments)
TRAINING_KEYS |= {"bf16": bool | Literal["auto"] | None, "fsdp": bool | str | None}
del TRAINING_KEYS["output_dir"]
# The keys of each section and their types.
SECTIONS = {
    "data": typing.get_type_hints(DataSection),
    "tokenizer": TOKENIZER_KEYS,
    "warm_start": typing.get_type_hints(WarmStartSection),
    "model": {},  # those of the architecture's config, see `section_keys`
    "objectives": dict.fromkeys(OBJECTIVES, dict | None),
    "training": TRAINING_KEYS,
    "card": CARD_KEYS,
}


def section_keys(section: str, architecture: str) -> dict[str, Any]:
    """The keys of a section and their types."""
    if section != "model":
        return SECTIONS[section]
    if architecture not in ARCHITECTURES:
        raise TmdeError(unknown("model.architecture", architecture, ARCHITECTURES))
    left_out = SETTLED_KEYS if architecture == ADAPTED else SETTLED_KEYS - {"encoder_config"}
    hints = ARCHITECTURES[architecture].config_class.__annotations__
    keys = {
        name: hint
        for name, hint in hints.items()
        if name not in left_out and not name.endswith("_token_id")
    }
    own = {"encoder": str | None, "encoder_layers": list[int] | None}
    return keys | {"architecture": str} | (own if architecture == ADAPTED else {})


def unknown(what: str, found: Any, known: Iterable[str]) -> str:
    """A sentence about a name that is not among the known ones."""
    close = difflib.get_close_matches(str(found), known, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(sorted(known))}"
    return f"{what} {found!r} is unknown; {hint}"


def _check_values(values: dict[str, Any], hints: Mapping[str, Any]) -> None:
    """Checks keys and types in place. A float such as 1e6 becomes the integer that its key takes.

    Raises:
        ValueError: A key that is not among the hints.
        TypeError: A value of another type.
    """
    for key, value in values.items():
        if key not in hints:
            raise TmdeError(unknown("key", key, hints))
        types = typing.get_args(hints[key]) or (hints[key],)
        if isinstance(value, float) and value.is_integer() and int in types and float not in types:
            values[key] = int(value)
        elif not (type(value) is int and float in types):
            type_validator(key, value, hints[key])


@dataclass
class Recipe:
    """A training run: what was set in each of the `SECTIONS`. `data`, `warm_start` and the `build_` methods add the
    defaults.
    """

    name: str
    sections: dict[str, dict[str, Any]]
    description: str = ""

    @property
    def data(self) -> DataSection:
        return DataSection(**self.sections["data"])

    @property
    def warm_start(self) -> WarmStartSection:
        return WarmStartSection(**self.sections["warm_start"])

    @property
    def seed(self) -> int:
        return self.sections["training"].get("seed", 42)

    @property
    def architecture(self) -> str:
        """What the `model` section builds, one of `ARCHITECTURES`."""
        return self.sections["model"].get("architecture", "tmde")

    @property
    def model_class(self) -> type[PreTrainedModel]:
        return ARCHITECTURES[self.architecture]

    @contextmanager
    def _errors_of(self, section: str) -> Iterator[None]:
        """Errors name the section and the recipe."""
        try:
            yield
        except (RuntimeError, TypeError, ValueError, StrictDataclassError) as error:
            name = re.match(r"Validation error for field '(\w+)'", str(error))
            field = f"{name[1]}: " if name else ""
            text = f"Section {section!r} of recipe {self.name}: {field}{error.__cause__ or error}"
            raise RecipeError(text) from error

    def build_config(self, **values: Any) -> PreTrainedConfig:
        """The config of the `model` section with the languages of `data`; `values` are what the tokenizer decides.

        Raises:
            RecipeError: If sizes do not fit together.
        """
        options = {"languages": self.data.languages, "pivot_languages": self.data.pivot_languages}
        options |= self.sections["model"] | values
        for name in NOT_IN_CONFIG if self.architecture == ADAPTED else ("architecture",):
            options.pop(name, None)
        with self._errors_of("model"):
            return self.model_class.config_class(**options)

    def check_pyramid(self) -> None:
        """Refuse to begin the training of a pyramid whose encoder is too shallow for it.

        This is a rule for new models: the config still opens those that were trained with three layers.

        Raises:
            RecipeError: A pyramid on fewer than four layers.
        """
        model = self.sections["model"]
        layers = model.get("encoder_layers")
        if model.get("bottleneck") != "pyramid" or layers is None:
            return
        if layers < MIN_PYRAMID_LAYERS:
            raise RecipeError(
                f"Section 'model' of recipe {self.name}: found bottleneck=pyramid with encoder_layers={layers}, "
                f"expected at least {MIN_PYRAMID_LAYERS} layers: the pyramid's queries attend the output of the third "
                "layer from the top, which is H^4 with the thesis's six layers, but with three only H^1, where words "
                "have hardly met their context. Set model.encoder_layers=6, or model.bottleneck=first"
            )

    @property
    def texts(self) -> Sequence[str]:
        """What the texts of a row are called: the languages, or premise and hypothesis."""
        return NLI_TEXTS if "nli" in self.sections["objectives"] else self.data.languages

    def build_objectives(self) -> dict:
        return {
            name: OBJECTIVES[name](**(options or {}))
            for name, options in self.sections["objectives"].items()
        }

    def build_arguments(self, output_dir: str) -> TmdeTrainingArguments:
        values = dict(self.sections["training"])
        for name in ("steps", "strategy"):  # the best checkpoint must be one that was saved
            if f"eval_{name}" in values:
                values.setdefault(f"save_{name}", values[f"eval_{name}"])
        if not (torch.cuda.is_available() or torch.backends.mps.is_available()):
            values.setdefault("use_cpu", True)  # else transformers refuses bf16, which a CPU can do
        if values.get("bf16") == "auto":
            values["bf16"] = has_fast_bf16(values.get("use_cpu", False))
        with self._errors_of("training"):
            return TmdeTrainingArguments(output_dir=output_dir, **values)

    def use_encoder(self, encoder: str) -> None:
        """Puts an encoder of the Hub in place of the recipe's: the `model` section becomes that of recipe `adapted`.

        Data, objectives and training stay. Tokenizer and warm start are left out, with a warning.
        """
        if self.architecture != ADAPTED:
            self.sections |= {
                "tokenizer": {},
                "warm_start": {},
                "model": load_recipe(ADAPTED).sections["model"],
            }
            logger.warning(
                f"Recipe {self.name} on {encoder}: the model is that of recipe adapted; sizes, tokenizer and warm "
                "start are left out. If learning_rate is high for a pretrained encoder, set encoder_learning_rate"
            )
        self.set("model.encoder", str(encoder))

    def set(self, key: str, value: Any) -> None:
        """Sets `section.key`, `objectives.name.key`, or a bare `key` that only one section has.

        Raises:
            RecipeError: There is no such key, or the value is of another type.
        """
        section, _, rest = key.partition(".")
        if section not in SECTIONS:
            keys = {
                name: section_keys(name, self.architecture)
                for name in SECTIONS
                if name != "objectives"
            }
            owners = [name for name in keys if section in keys[name]]
            if len(owners) != 1:
                raise RecipeError(unknown("Recipe key", key, set().union(*keys.values())))
            section, rest = owners[0], key
        values = self.sections[section]
        name, _, option = rest.partition(".")
        if section == "objectives" and not option and value is None:
            values.pop(name, None)
        elif option and (section == "objectives" or name == "overrides"):
            values[name] = {**(values.get(name) or {}), option: value}
        else:
            values[rest] = value
        self.check()

    def override(self, overrides: Iterable[str]) -> None:
        """Applies overrides of the form `key=value`, see `set`."""
        for override in overrides:
            key, separator, value = override.partition("=")
            if not separator:
                raise RecipeError(
                    f"Override {override!r} is not of the form key=value, such as learning_rate=3e-4"
                )
            try:
                content = yaml.load(value, PlainLoader)
            except yaml.YAMLError as error:
                raise RecipeError(f"The value of {override} is not YAML: {error}") from error
            if key.strip() in ("prompt", "model.prompt") and not isinstance(content, str):
                content = value  # "query: " is a mapping in YAML
            self.set(key.strip(), content)

    def check(self) -> None:
        """Raises:
        RecipeError: A key that nothing reads, or a value of another type than its key takes.
        """
        for section, values in self.sections.items():
            if section not in SECTIONS:
                raise RecipeError(unknown(f"Recipe {self.name}: section", section, SECTIONS))
            with self._errors_of(section):
                if not isinstance(values, Mapping | None):
                    raise TmdeError(f"found {values!r}, expected a mapping")
                self.sections[section] = values = dict(values or {})
                _check_values(values, section_keys(section, values.get("architecture", "tmde")))
                if section == "objectives":
                    for name, options in values.items():
                        values[name] = dict(options or {})
                        _check_values(
                            values[name], typing.get_type_hints(OBJECTIVES[name].__init__)
                        )
                elif section == "data":
                    DataSection(**values)

    def to_yaml(self) -> str:
        return yaml.safe_dump(
            {"description": self.description, **self.sections}, sort_keys=False, allow_unicode=True
        )


def packaged_names(package: str = RECIPES) -> list[str]:
    """Names of the YAML files that come with a package, of the recipes by default."""
    return sorted(
        path.name.removesuffix(".yaml") for path in resources.files(package).glob("*.yaml")
    )


def read_yaml(name_or_path: str, package: str, kind: str) -> dict[str, Any]:
    """A YAML mapping: a file, or one that comes with the package.

    Raises:
        RecipeError: There is none, or it is no mapping.
    """
    names = packaged_names(package)
    path = (
        resources.files(package).joinpath(f"{name_or_path}.yaml")
        if name_or_path in names
        else Path(name_or_path)
    )
    if not path.is_file():
        raise RecipeError(
            f"{unknown(kind, name_or_path, names)}. Give one of these, or the path of a YAML file"
        )
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), PlainLoader)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"{name_or_path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(
            f"{name_or_path}: found {content!r}, expected a mapping of keys to values"
        )
    return content


def load_recipe(
    name_or_path: str, overrides: Iterable[str] = (), encoder: str | None = None
) -> Recipe:
    """Opens a recipe by its name or as a YAML file, puts it on an encoder of the Hub if one is given (see
    `Recipe.use_encoder`), and applies overrides of the form `key=value`. A distillation's teacher `encoder` is that
    encoder with its prompt.

    Raises:
        RecipeError: There is no such recipe or key, or a value does not fit.
    """
    content = read_yaml(name_or_path, RECIPES, "Recipe")
    description = content.pop("description", "")
    content.pop("source", None)
    recipe = Recipe(
        Path(name_or_path).stem, {section: {} for section in SECTIONS} | content, description
    )
    recipe.check()
    if encoder is not None:
        recipe.use_encoder(encoder)
    recipe.override(overrides)
    model, distillation = (
        recipe.sections["model"],
        recipe.sections["objectives"].get("distillation", {}),
    )
    if distillation.get("teacher") == "encoder" and model.get("encoder"):
        distillation |= (
            {"teacher_prompt": model.get("prompt") or ""}
            | distillation
            | {"teacher": model["encoder"]}
        )
    return recipe
