"""The sections of a recipe that are declared here, and the base class of these.

A section is a frozen class, whose fields are the section's keys. `options` has the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator
from typing_extensions import Self

from modeling_tmde import TmdeError
from tmde.data.languages import check_codes
from tmde.training.objectives.base import check_range
from tmde.training.recipe.values import (
    RecipeError,
    WholeNumber,
    describe_type,
    unknown_name_message,
    wrong_type_message,
)


class Section(BaseModel):
    """Base of all sections. Unknown keys are errors, and nothing changes after validation."""

    model_config = ConfigDict(frozen=True, strict=True)

    @classmethod
    def read(cls, values: Mapping[str, Any], place: str = "") -> Self:
        """Return the section with these values.

        Args:
            values: The values by key.
            place: The beginning of an error message, before the key.

        Raises:
            RecipeError: Names the first key that does not exist, is missing, or has a value that
                does not fit.
        """
        for key in values:
            if key not in cls.model_fields:
                raise RecipeError(place + unknown_name_message("key", key, cls.model_fields))
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
        if problem["type"] == "value_error":  # A check below, whose message names the key.
            raise RecipeError(f"{place}{problem['ctx']['error']}")
        key = str(problem["loc"][0])
        key_type = cls.model_fields[key].annotation
        if problem["type"] == "missing":
            raise RecipeError(f"{place}{key} is missing, expected {describe_type(key_type)}")
        raise RecipeError(place + wrong_type_message(key, problem["input"], key_type))

    def settings(self) -> dict[str, Any]:
        """Return copies of the values that were set, as plain YAML types."""
        return self.model_dump(exclude_unset=True)

    def values(self) -> dict[str, Any]:
        """Return the values of all keys, as plain YAML types."""
        return self.model_dump()


# ---- Data


class ReplaySources(Section):
    """The training data of a run that adds languages.

    Attributes:
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

    Attributes:
        train: Source or sources of parallel text, as `load_parallel` takes them, or
            `ReplaySources`.
        dev: Source of held-out rows, or several by name. None holds out `dev_rows` rows of the
            training data.
        dev_split: The split of a Hub dataset to take as held-out rows.
        languages: The languages to train. If a recipe sets none, `tmde train` takes those of the
            data.
        pivot_languages: The languages to translate into. `tmde train` takes those of them that the
            run has, unless the user names others.
        triples: Whether the rows are triples: the columns `anchor`, `positive` and, if the data has
            them, `negative` or `negative_1`, `negative_2` and so on. `tmde train` detects this.
        columns: The column of each language, of `doc_id` or of `label` that has another name,
            `{de: Source, en: Target}`, in all sources that have such columns.
        quoting: Whether fields of CSV and TSV may be quoted, `minimal`, or quotes are plain
            characters, `none`. None to find out.
        streaming: Read the training data as a stream.
        temperature: Mixes several corpora, see `load_parallel`.
        bad_rows: `"report"` counts and skips bad rows, `"raise"` stops at the first.
        max_rows: The largest number of rows of the training data to use.
        train_share: The share of the documents to train on, the same documents with every seed;
            rows without `doc_id` are drawn one by one. The dev rows are held out before, so that
            they are the same with every share. None trains on all.
        dev_rows: The number of rows held out when `dev` is missing. With 0 none are held out, and
            without `eval_task` nothing is evaluated.
        eval_task: Classification task or a list of several, `NAME` or `NAME=SOURCE` as `tmde eval`
            takes it. Every evaluation measures Evaluation II (Li, 2021, section 4.4.2) on it;
            `metric_for_best_model: cross` chooses the checkpoint by its dev split (of several
            tasks, by their mean).
    """

    train: Any = None
    dev: Any = None
    dev_split: str = "train"
    languages: list[str] = ["de", "en", "es", "fr", "it"]
    pivot_languages: list[str] = ["en", "es"]
    triples: bool = False
    columns: dict[str, str] | None = None
    quoting: Literal["minimal", "none"] | None = None
    streaming: bool = False
    temperature: float | int | None = None
    bad_rows: Literal["report", "raise"] = "report"
    max_rows: WholeNumber | None = None
    train_share: float | int | None = None
    dev_rows: WholeNumber = 2000
    eval_task: str | list[str] | None = None

    @field_validator("train")
    @classmethod
    def _read_replay_sources(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "new" in value:
            return ReplaySources.read(value, place="train: ")
        return value

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        check_range("max_rows", self.max_rows, "[1, inf)")
        check_range("train_share", self.train_share, "(0, 1]")
        check_range("dev_rows", self.dev_rows, "[0, inf)")
        check_range("temperature", self.temperature, "(0, inf]")
        self._check_languages()
        if self.train_share is not None and self.streaming:
            raise TmdeError(
                f"train_share: found {self.train_share} with streaming=true, but a stream's "
                "documents are unknown until they are read. Set max_rows, or streaming=false"
            )
        if self.train_share is not None and self.replay is not None:
            raise TmdeError(
                f"train_share: found {self.train_share} with data.train.new, but the old rows "
                "are chosen to match the new ones. Set max_rows, or use smaller files"
            )
        if self.replay is not None and self.streaming:
            raise TmdeError(
                "streaming: found true, but a stream's rows can't be replayed in a fixed share"
            )
        return self

    def _check_languages(self) -> None:
        check_codes(self.languages, "languages")
        if len(set(self.languages)) < len(self.languages):
            raise TmdeError(f"languages: found {self.languages}, expected each language once")
        if not set(self.pivot_languages) <= set(self.languages):
            raise TmdeError(
                f"pivot_languages: found {self.pivot_languages}, expected some of "
                f"languages={self.languages}; set data.pivot_languages as well"
            )

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

    Attributes:
        path: Folder or Hub id of a tokenizer to use.
        new_tokens: The number of entries that the tokenizer of `path`, a byte-level BPE, gains for
            the languages that the run adds.
        vocab_size: The number of entries of the vocabulary.
        max_characters: The number of characters of each language from which the tokenizer is made.
        model_max_length: The number of tokens at which texts end.
        lowercase: Read all text in lower case.
        add_prefix_space: Read the first word of a text like every other one.
    """

    path: str | None = None
    new_tokens: WholeNumber = 0
    vocab_size: WholeNumber | None = None
    max_characters: WholeNumber = 20_000_000
    model_max_length: WholeNumber | None = None
    lowercase: bool = False
    add_prefix_space: bool = False


class WarmStartSection(Section):
    """The `warm_start` section: what a new model begins with; nothing by default.

    Attributes:
        packaged: With `"auto"`, `tmde train` begins with the model that comes with the package if
            it has the languages of the run, and neither a checkpoint nor a setting of the user
            speaks against it (see `tmde.training.starts.packaged`). `recipe.yaml` of a run never
            has this key, since it states the start that was chosen.
        checkpoint: Folder or Hub id of a bag, or of a model of the same architecture.
        made_by: The command that makes the checkpoint, without its data and its output. A recipe
            that has it needs a checkpoint.
        direct_path: Whether T-MDE takes the token weights of a bag, see
            `tmde.training.starts.weights.warm_start`.
    """

    packaged: Literal["auto", "never"] = "never"
    checkpoint: str | None = None
    made_by: str | None = None
    direct_path: bool = True


class LoraSection(Section):
    """The `lora` key of the `model` section of `adapted`: adapters that are trained alone.

    Attributes:
        r: The rank of the adapters.
        alpha: Adapter outputs are scaled by `alpha / r`.
        dropout: The probability of dropout before the adapters.
        target_modules: The layers of the encoder that get an adapter, as in PEFT's `LoraConfig`:
            `all-linear`, a list of ends of their names, or a regular expression of whole names.
    """

    r: WholeNumber = 16
    alpha: WholeNumber = 32
    dropout: float | int = 0.0
    target_modules: str | list[str] = "all-linear"

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        check_range("r", self.r, "[1, inf)")
        check_range("alpha", self.alpha, "[1, inf)")
        check_range("dropout", self.dropout, "[0, 1)")
        return self


class CardSection(Section):
    """The `card` section: what the model card says that a run cannot know.

    Attributes:
        license: The license of the model, as the Hub calls it.
        data_licenses: The licenses of the training text by source, as `data.train` names it or by
            its last component.
        license_override: Why `license` is right although the license of what the model was made
            from does not allow it; the card repeats the reason.
        description: Markdown for the top of the card.
    """

    license: str | None = None
    data_licenses: dict[str, str] = {}
    license_override: str | None = None
    description: str | None = None


PLAIN_SECTIONS: dict[str, type[Section]] = {
    "data": DataSection,
    "tokenizer": TokenizerSection,
    "warm_start": WarmStartSection,
    "card": CardSection,
}
