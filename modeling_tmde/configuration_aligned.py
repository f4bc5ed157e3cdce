# SPDX-License-Identifier: Apache-2.0

"""Configuration of encoders that are aligned with the one of a source language."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from .common import EmbedderConfig, TmdeError, size
from .recurrent import SequenceSettings

__all__ = ["AlignedBagSettings", "AlignedConfig"]


@dataclass(frozen=True)
class AlignedBagSettings:
    """The settings of a bag as the encoder of one language, as in [`BagConfig`]."""

    d_model: int
    normalize: bool
    sublinear_counts: bool


# X-BiLSTM-max and X-CBOW of Conneau 2019, section 4.2.5.
PAPER_BILSTM = SequenceSettings(
    embedding_dim=300,
    d_model=1024,
    encoder_layers=1,
    unidirectional_layers=0,
    pooling="max",
    cell="lstm",
    attention_views=4,
    dropout=0.0,
)
PAPER_BAG = AlignedBagSettings(d_model=300, normalize=False, sublinear_counts=False)


@strict
class AlignedConfig(EmbedderConfig):
    r"""Configuration of [`AlignedModel`].

    The defaults are X-BiLSTM-max of Conneau 2019, section 4.2.5.

    Args:
        vocab_size: The entries of the shared vocabulary; every encoder has a table of its own.
        encoder: The kind of encoder that each language has: `"bilstm"`, as [`LaserModel`], or
            `"bag"`, as [`BagModel`] (X-CBOW).
        encoder_config: Settings of these encoders, by their names in [`LaserConfig`]
            (`embedding_dim`, `d_model`, `encoder_layers`, `unidirectional_layers`, `pooling`,
            `cell`, `attention_views`, `dropout`) or [`BagConfig`] (`d_model`, `normalize`,
            `sublinear_counts`). By default the paper's: a BiLSTM of 512 units in each direction
            over word vectors of 300 dimensions with max-pooling, or the plain average of such word
            vectors.
        source_language: The language to whose encoder the others are fitted.
        languages: The language codes; the position of a code in this list is its language id. Each
            language has its own encoder.
        pivot_languages: A subset of `languages`, as for [`TmdeConfig`]. The model does not use it.

    Raises:
        ValueError: If the kind of encoder or a setting of it is unknown, or a language is not among
            the languages.
    """

    model_type = "tmde_aligned"

    vocab_size: int = size(default=50000)
    encoder: Literal["bilstm", "bag"] = "bilstm"
    encoder_config: dict[str, Any] | None = None
    source_language: str = "en"
    pivot_languages: tuple[str, ...] | list[str] = ("en",)

    @property
    def sequence_settings(self) -> SequenceSettings:
        """The settings of every `"bilstm"`: the paper's, changed by `encoder_config`."""
        changes = self.encoder_config or {}
        return replace(PAPER_BILSTM, **changes)

    @property
    def bag_settings(self) -> AlignedBagSettings:
        """The settings of every `"bag"`: the paper's, changed by `encoder_config`."""
        changes = self.encoder_config or {}
        return replace(PAPER_BAG, **changes)

    @property
    def hidden_size(self) -> int:
        """Width of the document embedding."""
        if self.encoder == "bag":
            return self.bag_settings.d_model
        return self.sequence_settings.d_model

    def validate_architecture(self) -> None:
        """Check that the settings are known and fit together.

        Raises:
            ValueError: If not.
        """
        super().validate_architecture()
        settings = PAPER_BAG if self.encoder == "bag" else PAPER_BILSTM
        known = [field.name for field in fields(settings)]
        for name in self.encoder_config or {}:
            if name not in known:
                raise TmdeError(f"encoder_config names {name!r}; known: {', '.join(known)}")
        if self.encoder == "bilstm":
            self.sequence_settings.check()
        if self.source_language not in self.languages:
            raise TmdeError(
                f"source_language={self.source_language!r} is not among languages={self.languages}"
            )
