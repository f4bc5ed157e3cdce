"""Configuration of encoders that are aligned with the one of a source language."""

import dataclasses
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .configuration_bag import BagConfig
from .configuration_laser import LaserConfig
from .language_settings import check_languages, list_languages

ENCODERS: dict[str, type[PreTrainedConfig]] = {"bilstm": LaserConfig, "bag": BagConfig}
# X-BiLSTM-max and X-CBOW of paper 004, section 4.2.5.
PAPER_SETTINGS: dict[str, dict[str, Any]] = {
    "bilstm": {"embedding_dim": 300, "d_model": 1024, "encoder_layers": 1, "pooling": "max", "dropout": 0.0},
    "bag": {"d_model": 300, "normalize": False},
}
SHARED = ("vocab_size", "languages", "pivot_languages", "bos_token_id", "pad_token_id", "eos_token_id")


@strict
class AlignedConfig(PreTrainedConfig):
    r"""
    Configuration of [`AlignedModel`]. The defaults are X-BiLSTM-max of paper 004, section 4.2.5.

    Args:
        vocab_size: Entries of the shared vocabulary; every encoder has a table of its own.
        encoder: What the encoder of each language is: `"bilstm"`, a [`LaserModel`], or `"bag"`, a [`BagModel`]
            (X-CBOW).
        encoder_config: Settings of these encoders, by their names in [`LaserConfig`] or [`BagConfig`]; the others are
            the paper's: a BiLSTM of 512 units in each direction over word vectors of 300 dimensions with
            max-pooling, or the plain average of such word vectors.
        source_language: Whose encoder the others are fitted to.
        languages: Codes of the languages; positions in this list are the language ids. Each has its own encoder.
        pivot_languages: A subset of `languages`, as for [`TmdeConfig`]. The model itself does not ask for it.

    Raises:
        ValueError: If the kind of encoder or a setting of it is unknown, or a language is not among the languages.
    """

    model_type = "tmde_aligned"

    vocab_size: int = 50000
    encoder: str = "bilstm"
    encoder_config: dict[str, Any] | None = None
    source_language: str = "en"
    languages: tuple[str, ...] | list[str] = ("de", "en", "es", "fr", "it")
    pivot_languages: tuple[str, ...] | list[str] = ("en",)
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs):
        list_languages(self)
        super().__post_init__(**kwargs)

    @property
    def hidden_size(self) -> int:
        """Width of the document embedding."""
        return self.build_encoder_config().hidden_size

    def build_encoder_config(self) -> PreTrainedConfig:
        """The config of every encoder."""
        shared = {name: getattr(self, name) for name in SHARED}
        return ENCODERS[self.encoder](**PAPER_SETTINGS[self.encoder] | (self.encoder_config or {}), **shared)

    def validate_architecture(self):
        """Runs with the strict validation of every new config."""
        super().validate_architecture()
        if self.encoder not in ENCODERS:
            raise ValueError(f"encoder={self.encoder!r} is unknown; choose one of {', '.join(ENCODERS)}")
        kind = ENCODERS[self.encoder]
        fields = {field.name for field in dataclasses.fields(kind)} & set(kind.__annotations__)
        for name in self.encoder_config or {}:
            if name in SHARED:
                raise ValueError(f"encoder_config names {name!r}, which is one for all encoders: set {name} itself")
            if name not in fields:
                raise ValueError(f"encoder_config names {name!r}; known: {', '.join(sorted(fields - set(SHARED)))}")
        check_languages(self)
        if self.source_language not in self.languages:
            raise ValueError(f"source_language={self.source_language!r} is not among languages={self.languages}")
        self.build_encoder_config()


__all__ = ["AlignedConfig"]
