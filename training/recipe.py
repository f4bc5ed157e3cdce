"""Recipes: everything a training run is made of, as YAML, with any key open to the command line."""

import dataclasses
import difflib
import inspect
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig
from transformers.utils import logging

from modeling_tmde.data.io import PlainLoader
from modeling_tmde.loading import has_fast_bf16
from modeling_tmde.tokenization import train_tokenizer
from modeling_tmde.training.architectures import ARCHITECTURES
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.objectives import OBJECTIVES
from modeling_tmde.training.recipe_values import too_small, wrong_data, wrong_value

logger = logging.get_logger("modeling_tmde.training")

ADAPTED = "adapted"  # the architecture on an encoder of the Hub
# Of its config, what follows from the encoder and its tokenizer.
FROM_ENCODER = {"encoder_config", "reads_bos", "decoder_embedding_scale"}
# Of other architectures, what it has as well and what does not depend on the width.
KEPT_BY_ENCODER = {"decoder_layers", "dropout", "activation_function", "language_embedding_dim"}


class RecipeError(ValueError):
    """A recipe, or a key of one, that does not exist or does not fit."""


@dataclass
class DataConfig:
    """
    The `data` section.

    Args:
        train: Source or sources of parallel text, as `load_parallel` takes them.
        dev: Source of held-out rows, or several by name. None holds out `dev_rows` rows of the training data.
        languages, pivot_languages: Languages to train, and those to translate into.
        streaming: Read the training data as a stream.
        temperature: Mixes several corpora, see `load_parallel`.
        bad_rows: `"report"` counts and skips bad rows, `"raise"` stops at the first.
        max_rows: Use only so many rows of the training data.
        dev_rows: Rows held out when `dev` is missing; 0 holds out none, and without `eval_task` nothing is evaluated.
        eval_task: Classification task or a list of several, `NAME` or `NAME=SOURCE` as `tmde eval` takes it, on which
            every evaluation measures Evaluation II (thesis 4.4.2) in the languages of `languages` that it has;
            `metric_for_best_model: cross` then chooses the checkpoint by its dev split (of several tasks, by their
            mean). None for no such task.
    """

    train: Any = None
    dev: Any = None
    languages: list[str] = field(default_factory=lambda: ["de", "en", "es", "fr", "it"])
    pivot_languages: list[str] = field(default_factory=lambda: ["en", "es"])
    streaming: bool = False
    temperature: float | None = None
    bad_rows: str = "report"
    max_rows: int | None = None
    dev_rows: int = 2000
    eval_task: str | list[str] | None = None


@dataclass
class WarmStartConfig:
    """
    The `warm_start` section: what a new model begins with; nothing by default.

    Args:
        checkpoint: Folder or Hub id of a bag, or of a model of the same architecture.
        recipe: Where there is no checkpoint, the recipe of a first stage, on the same data, that makes one in
            `warm_start/` of the run's folder.
        overrides: Keys of the first stage's recipe and their values, a mapping; on the command line
            `warm_start.overrides.max_minutes=5` changes one of them. Its data, seed and what it is evaluated on are
            the run's; `data.languages` and `data.pivot_languages` may be fewer.
        residual_scale, new_columns_std, direct_path: See `modeling_tmde.training.warm_start.warm_start`.
    """

    checkpoint: str | None = None
    recipe: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    residual_scale: float = 0.0
    new_columns_std: float = 0.0
    direct_path: bool = True


@dataclass
class CardConfig:
    """
    The `card` section: what the model card says that a run cannot know.

    Args:
        license: Of the model, an identifier of the Hub, such as `apache-2.0`.
        data_licenses: Of the training text, by source: as `data.train` names it, or by its last component.
        description: Markdown at the top of the card.
    """

    license: str | None = None
    data_licenses: dict[str, str] = field(default_factory=dict)
    description: str | None = None


def section_keys(section: str, architecture: str) -> set[str]:
    """What the section of a recipe can say."""
    if section == "data":
        return {item.name for item in dataclasses.fields(DataConfig)}
    if section == "warm_start":
        return {item.name for item in dataclasses.fields(WarmStartConfig)}
    if section == "card":
        return {item.name for item in dataclasses.fields(CardConfig)}
    if section == "model":
        # The languages belong to `data`; the vocabulary's size and its special tokens follow from the tokenizer.
        config = ARCHITECTURES[architecture].config
        own = {item.name for item in dataclasses.fields(config)} & set(config.__annotations__)
        own = {name for name in own if not name.endswith("_token_id")}
        if architecture == ADAPTED:
            own = (own - FROM_ENCODER) | {"encoder"}
        return (own - {"languages", "pivot_languages", "vocab_size"}) | {"architecture"}
    if section == "tokenizer":
        return (set(inspect.signature(train_tokenizer).parameters) - {"texts", "show_progress"}) | {"path"}
    if section == "training":
        return {item.name for item in dataclasses.fields(TmdeTrainingArguments) if item.init} - {"output_dir"}
    return set(OBJECTIVES)


_READERS = {"data": DataConfig, "tokenizer": train_tokenizer, "training": TmdeTrainingArguments}
SECTIONS = ("data", "tokenizer", "warm_start", "model", "objectives", "training", "card")


def _objective_keys(name: str) -> set[str]:
    return set(inspect.signature(OBJECTIVES[name].__init__).parameters) - {"self"}


def _check_known(found: Any, known: set[str], what: str) -> None:
    if not isinstance(found, str) or found not in known:
        close = difflib.get_close_matches(str(found), known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(sorted(known))}"
        raise RecipeError(f"{what} {found!r} is unknown; {hint}")


def _check_mapping(value: Any, what: str) -> None:
    if value is not None and not isinstance(value, dict):
        raise RecipeError(f"{what} must be a mapping of keys to values, found {value!r}")


def _check_card(values: dict[str, Any], recipe: str) -> None:
    licenses = values.get("data_licenses")
    _check_mapping(licenses, f"card.data_licenses of recipe {recipe}")
    texts = {f"data_licenses.{source}": text for source, text in (licenses or {}).items()}
    for key, text in (texts | {key: values.get(key) for key in ("license", "description")}).items():
        if text is not None and not isinstance(text, str):
            raise RecipeError(f"card.{key} of recipe {recipe}: found {text!r}, expected text")


@dataclass
class Recipe:
    """A training run: the `SECTIONS` of plain values."""

    name: str
    sections: dict[str, dict[str, Any]]
    description: str = ""

    @property
    def data(self) -> DataConfig:
        return DataConfig(**self.sections["data"])

    @property
    def warm_start(self) -> WarmStartConfig:
        return WarmStartConfig(**self.sections["warm_start"])

    @property
    def architecture(self) -> str:
        """What the `model` section builds, one of `ARCHITECTURES`."""
        return self.sections["model"].get("architecture", "tmde")

    def build_config(self, **values: Any) -> PreTrainedConfig:
        """The config of the `model` section with the languages of `data`; `values` are what the tokenizer decides.

        Raises:
            RecipeError: If sizes do not fit together.
        """
        left_out = ("architecture", "encoder") if self.architecture == ADAPTED else ("architecture",)
        options = {name: value for name, value in self.sections["model"].items() if name not in left_out}
        languages = {"languages": self.data.languages, "pivot_languages": self.data.pivot_languages}
        try:
            return ARCHITECTURES[self.architecture].config(**options, **languages, **values)
        except StrictDataclassError as error:  # no ValueError, but it comes from one
            raise RecipeError(f"Section 'model' of recipe {self.name}: {error.__cause__ or error}") from error

    def open_model_keys(self) -> set[str]:
        """What the `model` section could say and does not."""
        return section_keys("model", self.architecture) - set(self.sections["model"])

    def use_encoder(self, encoder: str) -> None:
        """Puts an encoder of the Hub in place of the recipe's: its architecture becomes `adapted`.

        Data, objectives and training stay. Sizes that are the encoder's from now on, the tokenizer and a warm start
        are left out, which is said.

        Raises:
            RecipeError: The recipe's decoder sees more of the encoder than one vector.
        """
        model = self.sections["model"]
        if self.architecture != ADAPTED:
            bottleneck = model.pop("bottleneck", "first")
            if bottleneck != "first":
                raise RecipeError(
                    f"Recipe {self.name} has model.bottleneck={bottleneck}, and an encoder of the Hub gets that of "
                    "T-MDE, 'first'; take another recipe, such as adapted"
                )
            named = {f"model.{name}" for name in set(model) - KEPT_BY_ENCODER - {"architecture"}}
            named |= {section for section in ("tokenizer", "warm_start") if self.sections[section]}
            self.sections |= {"tokenizer": {}, "warm_start": {}}
            self.sections["model"] = model = {name: model[name] for name in model if name in KEPT_BY_ENCODER}
            if named:
                left_out = ", ".join(sorted(named))
                logger.warning(f"Recipe {self.name} on {encoder}: left out, as the encoder has its own: {left_out}")
        self.sections["model"] = {**model, "architecture": ADAPTED, "encoder": str(encoder)}
        self.check()

    def set(self, key: str, value: Any) -> None:
        """Sets `section.key`, `objectives.name.key`, or a bare `key` that only one section has. `model.encoder` of a
        recipe of another architecture is `use_encoder` (but for `aligned`, which has such a key).

        Raises:
            RecipeError: If there is no such key, naming the closest ones.
        """
        if key == "model.encoder" and value is not None and self.architecture not in (ADAPTED, "aligned"):
            self.use_encoder(value)
            return
        section, _, rest = key.partition(".")
        if section not in SECTIONS:
            keys = {name: section_keys(name, self.architecture) for name in SECTIONS}
            owners = [name for name in SECTIONS if name != "objectives" and key in keys[name]]
            if len(owners) != 1:
                everything = {f"{name}.{item}" for name in SECTIONS for item in keys[name]}
                close = difflib.get_close_matches(key, everything | {item.split(".")[1] for item in everything}, n=3)
                hint = f"did you mean {' or '.join(close)}?" if close else f"sections are {', '.join(SECTIONS)}"
                raise RecipeError(f"Recipe key {key!r} is unknown; {hint}")
            section, rest = owners[0], key
        if not rest:
            known = sorted(section_keys(section, self.architecture))
            raise RecipeError(f"Recipe key {key!r} is a section; give one of its keys, such as {section}.{known[0]}")
        if section == "objectives":
            name, _, option = rest.partition(".")
            _check_known(name, set(OBJECTIVES), "Objective")
            if not option:
                # objectives.distance=null removes it, a mapping replaces it
                if value is None:
                    self.sections[section].pop(name, None)
                else:
                    _check_mapping(value, f"Objective {name!r}")
                    self.sections[section][name] = dict(value)
            else:
                self.sections[section][name] = {**(self.sections[section].get(name) or {}), option: value}
        elif section == "warm_start" and rest.startswith("overrides."):
            stage = self.sections[section].get("overrides") or {}
            self.sections[section]["overrides"] = {**stage, rest.removeprefix("overrides."): value}
        else:
            self.sections[section][rest] = value
        self.check()

    def check(self) -> None:
        """Raises RecipeError on the first key that nothing reads."""
        _check_known(self.architecture, set(ARCHITECTURES), f"model.architecture of recipe {self.name}:")
        for section, values in self.sections.items():
            _check_known(section, set(SECTIONS), f"Section of recipe {self.name}:")
            what = f"Key of section {section!r} in recipe {self.name}"
            if section == "warm_start":
                _check_mapping(values.get("overrides"), f"warm_start.overrides of recipe {self.name}")
            if section == "card":
                _check_card(values, self.name)
            if section == "model":
                what += f" (architecture {self.architecture})"
            for key, value in values.items():
                _check_known(key, section_keys(section, self.architecture), f"{what}:")
                if section == "objectives":
                    for option in value or {}:
                        _check_known(option, _objective_keys(key), f"Option of objective {key!r}")
            wrong = None
            if section in _READERS:
                wrong = wrong_value(values, _READERS[section], {"bf16": "auto"})
            if wrong is None and section == "data":
                wrong = wrong_data(values)
            elif wrong is None and section in ("model", "tokenizer"):
                wrong = too_small(values, self._least_sizes(section))
            if wrong is not None:
                raise RecipeError(f"Section {section!r} of recipe {self.name}: {wrong}")

    def _least_sizes(self, section: str) -> dict[str, int]:
        """By key of `model` or `tokenizer`, the least that a number can be."""
        if section == "tokenizer":
            return {"vocab_size": 1, "max_characters": 1, "model_max_length": 3}
        config = ARCHITECTURES[self.architecture].config
        whole = [name for name, kind in config.__annotations__.items() if kind in (int, int | None)]
        return {name: 0 if getattr(config, name) == 0 else 1 for name in whole}

    def build_objectives(self) -> dict:
        return {name: OBJECTIVES[name](**(options or {})) for name, options in self.sections["objectives"].items()}

    def build_arguments(self, output_dir: str, **overrides: Any) -> TmdeTrainingArguments:
        values = {**self.sections["training"], **overrides}
        values |= {key: "no" for key, value in values.items() if key.endswith("_strategy") and value is False}  # YAML
        if "eval_steps" in values:
            values.setdefault("save_steps", values["eval_steps"])  # the best checkpoint must be one that was saved
        if "eval_strategy" in values:
            values.setdefault("save_strategy", values["eval_strategy"])
        if not (torch.cuda.is_available() or torch.backends.mps.is_available()):
            values.setdefault("use_cpu", True)  # else transformers refuses bf16, which a CPU can do
        if values.get("bf16") == "auto":
            values["bf16"] = has_fast_bf16(values.get("use_cpu", False))
        try:
            return TmdeTrainingArguments(output_dir=output_dir, **values)
        except (TypeError, ValueError) as error:
            raise RecipeError(f"Section 'training' of recipe {self.name}: {error}") from error

    def to_yaml(self) -> str:
        return yaml.safe_dump({"description": self.description, **self.sections}, sort_keys=False, allow_unicode=True)


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    folder = resources.files("modeling_tmde.training.recipes")
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def load_recipe(name_or_path: str, overrides: list[str] | None = None, encoder: str | None = None) -> Recipe:
    """Opens a recipe by its name or as a YAML file, puts it on an encoder of the Hub if there is one (see
    `Recipe.use_encoder`), and applies overrides of the form `key=value`.

    Raises:
        RecipeError: If there is no such recipe or key, or a value is not YAML.
    """
    if name_or_path in recipe_names():
        text = resources.files("modeling_tmde.training.recipes").joinpath(f"{name_or_path}.yaml").read_text("utf-8")
    elif Path(name_or_path).is_file():
        try:
            text = Path(name_or_path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise RecipeError(f"{name_or_path} is not YAML: found bytes that are not UTF-8 ({error})") from error
    else:
        close = difflib.get_close_matches(name_or_path, recipe_names(), n=3)
        hint = f"; did you mean {' or '.join(close)}? Else" if close else ":"
        raise RecipeError(
            f"There is no recipe {name_or_path!r}{hint} give the path of a YAML file or one of "
            f"{', '.join(recipe_names())}"
        )
    try:
        content = yaml.load(text, PlainLoader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{name_or_path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"{name_or_path} must be a mapping with the sections {', '.join(SECTIONS)}")
    description = content.pop("description", "")
    content.pop("source", None)
    for section, values in content.items():
        _check_mapping(values, f"Section {section!r} of {name_or_path}")
    for objective, options in (content.get("objectives") or {}).items():
        _check_mapping(options, f"Objective {objective!r} of {name_or_path}")
    recipe = Recipe(Path(name_or_path).stem, {section: {} for section in SECTIONS} | content, description)
    recipe.sections = {section: dict(values or {}) for section, values in recipe.sections.items()}
    recipe.check()
    if encoder is not None:
        recipe.use_encoder(encoder)
    for override in overrides or []:
        key, separator, value = override.partition("=")
        if not separator:
            raise RecipeError(f"Override {override!r} is not of the form key=value, such as learning_rate=3e-4")
        recipe.set(key.strip(), _parse(key, value))
    return recipe


def _parse(key: str, text: str) -> Any:
    try:
        value = yaml.load(text, PlainLoader)
    except yaml.YAMLError as error:
        raise RecipeError(f"The value of {key}={text} is not YAML: {error}") from error
    if isinstance(value, str):
        try:
            return float(value)  # inf
        except ValueError:
            return value
    return value
