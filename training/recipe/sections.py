"""The sections of a recipe: one frozen class each, whose fields are the section's keys.

Three sections set options that are declared elsewhere: those of a model's configuration, of a loss
and of the training arguments. Their classes are generated from these declarations, so that every
option and its default exist once.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    Tag,
    create_model,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from modeling_tmde import TmdeError
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objectives import OBJECTIVES
from tmde.training.objectives.base import Objective, check_range
from tmde.training.recipe.architectures import (
    ADAPTED,
    ARCHITECTURES,
    DEFAULT_ARCHITECTURE,
    config_class,
)
from tmde.training.recipe.values import WholeNumber, recipe_type, union_of

# Options of a model's configuration that the tokenizer, the `data` section or the encoder decides.
SETTLED_OPTIONS = {
    "languages",
    "pivot_languages",
    "vocab_size",
    "reads_bos",
    "prompt_ids",
    "decoder_embedding_scale",
}
# Training arguments that a recipe does not set: the folder of the run, and an object that YAML
# cannot write.
NO_TRAINING_KEYS = {"output_dir", "parallelism_config"}


class Section(BaseModel):
    """Base of all sections. Unknown keys are errors, and nothing changes after validation."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        arbitrary_types_allowed=True,
        protected_namespaces=(),
    )

    # The keys that were set, in the order in which they were written: `recipe.yaml` keeps it.
    _keys: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _remember_keys(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        section = handler(values)
        if isinstance(values, Mapping):
            section._keys = tuple(values)
        return section

    def settings(self) -> dict[str, Any]:
        """Return the keys that were set and their values, as plain YAML types."""
        return {key: _to_plain(getattr(self, key)) for key in self._keys}


def _to_plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.settings()
    return value


# ---- Data


class ReplaySources(Section):
    """The training data of a run that adds languages.

    Args:
        new: Source or sources with rows in the new languages.
        new_languages: The codes of the new languages.
        replay: Source or sources of the old languages; None takes what `new` holds of them.
        replay_share: The share of the training rows that hold old languages only.
    """

    new: Any
    new_languages: list[str]
    replay: Any = None
    replay_share: float | int = 0.5

    @field_validator("replay_share")
    @classmethod
    def _check_share(cls, value: float) -> float:
        check_range("replay_share", value, "[0, 1)")
        return value


class DataSection(Section):
    """The `data` section.

    Args:
        train: Source or sources of parallel text, as `load_parallel` takes them, or
            `ReplaySources`.
        dev: Source of held-out rows, or several by name. None holds out `dev_rows` rows of the
            training data.
        dev_split: The split of a Hub dataset to take as held-out rows.
        languages: The languages to train.
        pivot_languages: The languages to translate into.
        streaming: Read the training data as a stream.
        temperature: Mixes several corpora, see `load_parallel`.
        bad_rows: `"report"` counts and skips bad rows, `"raise"` stops at the first.
        max_rows: The largest number of rows of the training data to use.
        dev_rows: The number of rows held out when `dev` is missing. With 0 none are held out, and
            without `eval_task` nothing is evaluated.
        eval_task: Classification task or a list of several, `NAME` or `NAME=SOURCE` as `tmde eval`
            takes it. Every evaluation measures Evaluation II (thesis 4.4.2) on it;
            `metric_for_best_model: cross` chooses the checkpoint by its dev split (of several
            tasks, by their mean).
    """

    train: Any = None
    dev: Any = None
    dev_split: str = "train"
    languages: list[str] = ["de", "en", "es", "fr", "it"]
    pivot_languages: list[str] = ["en", "es"]
    streaming: bool = False
    temperature: float | int | None = None
    bad_rows: Literal["report", "raise"] = "report"
    max_rows: WholeNumber | None = None
    dev_rows: WholeNumber = 2000
    eval_task: str | list[str] | None = None

    @field_validator("train")
    @classmethod
    def _read_replay_sources(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "new" in value:
            return ReplaySources.model_validate(value)
        return value

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        check_range("max_rows", self.max_rows, "[1, inf)")
        check_range("dev_rows", self.dev_rows, "[0, inf)")
        check_range("temperature", self.temperature, "(0, inf]")
        if self.replay is not None and self.streaming:
            raise TmdeError(
                "streaming: found true, but the rows of a stream cannot be replayed in a stated "
                "share"
            )
        return self

    @property
    def replay(self) -> ReplaySources | None:
        """The sources of a run that adds languages; None if the training data is ordinary."""
        if isinstance(self.train, ReplaySources):
            return self.train
        return None

    @property
    def is_evaluated(self) -> bool:
        """Whether the run has dev rows or tasks to evaluate on."""
        return bool(self.dev) or bool(self.dev_rows) or bool(self.eval_task)


# ---- Tokenizer, warm start and card


class TokenizerSection(Section):
    """The `tokenizer` section: options of `train_tokenizer`, or the path of a tokenizer to use.

    A key that is not set, or null, has the default of `train_tokenizer`.

    Args:
        path: Folder or Hub id of a tokenizer to use.
        vocab_size: The number of entries of the vocabulary.
        max_characters: The number of characters of each language from which the tokenizer is made.
        model_max_length: The number of tokens at which texts end.
        lowercase: Read all text in lower case.
        add_prefix_space: Read the first word of a text like every other one.
        whole_words: The number of entries that are words, see `save_encoder_bag`.
    """

    path: str | None = None
    vocab_size: WholeNumber | None = None
    max_characters: WholeNumber = 20_000_000
    model_max_length: WholeNumber | None = None
    lowercase: bool = False
    add_prefix_space: bool = False
    whole_words: WholeNumber = 0


class WarmStartSection(Section):
    """The `warm_start` section: what a new model begins with; nothing by default.

    Args:
        checkpoint: Folder or Hub id of a bag, or of a model of the same architecture; for a bag
            also any text encoder, whose token vectors it takes, see `save_encoder_bag`.
        recipe: Without a checkpoint, the recipe of a first stage on the same data, which is trained
            in `warm_start/` of the run's folder.
        overrides: Keys of the first stage's recipe and their values. On the command line,
            `warm_start.overrides.max_minutes=5` changes one of them. Data, seed and what is
            evaluated are the run's; `data.languages` and `data.pivot_languages` may be fewer.
        direct_path: Whether T-MDE takes the token weights of a bag, see
            `tmde.training.starts.weights.warm_start`.
    """

    checkpoint: str | None = None
    recipe: str | None = None
    overrides: dict[str, Any] = {}
    direct_path: bool = True


class CardSection(Section):
    """The `card` section: what the model card says that a run cannot know.

    Args:
        license: The license of the model, as the Hub calls it.
        data_licenses: The licenses of the training text by source, as `data.train` names it or by
            its last component.
        description: Markdown for the top of the card.
    """

    license: str | None = None
    data_licenses: dict[str, str] = {}
    description: str | None = None


# ---- Model


class ModelSection(Section):
    """Base of the `model` sections, of which every architecture has its own."""

    architecture: str

    if TYPE_CHECKING:  # the options of the configuration

        def __getattr__(self, name: str) -> Any: ...

    # Keys that are not options of the configuration.
    not_in_config: ClassVar[frozenset[str]] = frozenset({"architecture"})

    def config_options(self) -> dict[str, Any]:
        """Return the options of the model's configuration that were set."""
        options = self.settings()
        for key in self.not_in_config:
            options.pop(key, None)
        return options


class AdaptedSection(ModelSection):
    """The keys of the `model` section of `adapted` that its configuration lacks.

    Args:
        encoder: Folder or Hub id of the encoder.
        encoder_layers: The numbers of the encoder's layers that are kept; None keeps all.
    """

    encoder: str | None = None
    encoder_layers: list[WholeNumber] | None = None

    not_in_config: ClassVar[frozenset[str]] = frozenset(
        {"architecture", "encoder", "encoder_layers"}
    )


def _is_model_key(option: str, architecture: str) -> bool:
    """Return whether a recipe may set an option of a model's configuration."""
    if option == "encoder_config":  # of `adapted`, the encoder decides it
        return architecture != ADAPTED
    return option not in SETTLED_OPTIONS and not option.endswith("_token_id")


def _field_of(hint: Any, field: dataclasses.Field[Any]) -> tuple[Any, Any]:
    """Return the type and the default of a recipe's key for the field of a dataclass."""
    if field.default_factory is not dataclasses.MISSING:
        return recipe_type(hint), Field(default_factory=field.default_factory)
    return recipe_type(hint), field.default


def _model_section(architecture: str) -> type[ModelSection]:
    base = AdaptedSection if architecture == ADAPTED else ModelSection
    config = config_class(architecture)
    hints = inspect.get_annotations(config, eval_str=True)  # without those it inherits
    options: dict[str, Any] = {"architecture": (Literal[architecture], architecture)}
    for field in dataclasses.fields(config):
        if field.name in hints and _is_model_key(field.name, architecture):
            options[field.name] = _field_of(hints[field.name], field)
    return create_model(f"{config.__name__}Section", __base__=base, **options)


MODEL_SECTIONS = {name: _model_section(name) for name in ARCHITECTURES}


def architecture_tag(values: Any) -> str:
    """Return the architecture that a `model` section names, by which its class is chosen."""
    if isinstance(values, Mapping):
        return str(values.get("architecture", DEFAULT_ARCHITECTURE))
    return DEFAULT_ARCHITECTURE


if TYPE_CHECKING:
    AnyModelSection = ModelSection
else:
    _TAGGED_SECTIONS = [Annotated[section, Tag(name)] for name, section in MODEL_SECTIONS.items()]
    AnyModelSection = Annotated[union_of(_TAGGED_SECTIONS), Discriminator(architecture_tag)]

# ---- Objectives


def _objective_section(objective_class: type[Objective]) -> type[Section]:
    hints = typing.get_type_hints(objective_class.__init__)
    options: dict[str, Any] = {}
    for name, parameter in inspect.signature(objective_class.__init__).parameters.items():
        if name != "self":
            options[name] = (recipe_type(hints[name]), parameter.default)
    return create_model(f"{objective_class.__name__}Section", __base__=Section, **options)


class _ObjectivesSection(Section):
    """The `objectives` section: the losses by name, each with its options."""

    if TYPE_CHECKING:  # the losses

        def __getattr__(self, name: str) -> Any: ...

    @model_validator(mode="before")
    @classmethod
    def _read_empty_options(cls, values: Any) -> Any:
        """Let `distance:` without options mean the loss with its defaults."""
        if not isinstance(values, Mapping):
            return values
        return {name: {} if options is None else options for name, options in values.items()}


def _objectives_section() -> type[_ObjectivesSection]:
    losses: dict[str, Any] = {}
    for name, objective_class in OBJECTIVES.items():
        losses[name] = (_objective_section(objective_class) | None, None)
    return create_model("ObjectivesSection", __base__=_ObjectivesSection, **losses)


if TYPE_CHECKING:
    ObjectivesSection = _ObjectivesSection
else:
    ObjectivesSection = _objectives_section()

# ---- Training


class _TrainingSection(Section):
    """The `training` section: the training arguments."""

    if TYPE_CHECKING:  # the arguments

        def __getattr__(self, name: str) -> Any: ...


def _training_section() -> type[_TrainingSection]:
    hints = typing.get_type_hints(TmdeTrainingArguments)
    hints["bf16"] = bool | Literal["auto"] | None  # "auto" is ours, see `build_arguments`
    hints["fsdp"] = bool | str | None  # transformers annotates str, and takes true as well
    options: dict[str, Any] = {}
    for field in dataclasses.fields(TmdeTrainingArguments):
        if field.name not in NO_TRAINING_KEYS:
            options[field.name] = _field_of(hints[field.name], field)
    return create_model("TrainingSection", __base__=_TrainingSection, **options)


if TYPE_CHECKING:
    TrainingSection = _TrainingSection
else:
    TrainingSection = _training_section()
