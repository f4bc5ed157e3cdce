# SPDX-License-Identifier: Apache-2.0

"""Configuration of encoders that are aligned with the one of a source language."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from .common import EmbedderConfig, TmdeError, size
from .configuration_bag import BagConfig
from .configuration_laser import LaserConfig

__all__ = ["AlignedConfig"]

# X-BiLSTM-max and X-CBOW of Conneau 2019, section 4.2.5, and all settings that can be changed.
PAPER_SETTINGS: dict[str, dict[str, Any]] = {
    "bilstm": {
        "embedding_dim": 300,
        "d_model": 1024,
        "encoder_layers": 1,
        "unidirectional_layers": 0,
        "pooling": "max",
        "cell": "lstm",
        "attention_views": 4,
        "dropout": 0.0,
    },
    "bag": {"d_model": 300, "normalize": False, "sublinear_counts": False},
}


@strict
class AlignedConfig(EmbedderConfig):
    r"""Configuration of [`AlignedModel`].

    The defaults are X-BiLSTM-max of Conneau (2019, section 4.2.5): a BiLSTM of 512 units per
    direction over word vectors of 300 dimensions, with max-pooling.

    Args:
        vocab_size: The size of the shared vocabulary. Every encoder has its own table.
        encoder: The kind of encoder: `"bilstm"` for [`LaserModel`], or `"bag"` for [`BagModel`]
            (X-CBOW).
        encoder_config: Settings of these encoders, by their names in [`LaserConfig`]
            (`embedding_dim`, `d_model`, `encoder_layers`, `unidirectional_layers`, `pooling`,
            `cell`, `attention_views`, `dropout`) or [`BagConfig`] (`d_model`, `normalize`,
            `sublinear_counts`). Default: the paper's.
        source_language: The language with the encoder to which the others are fitted.
        languages: See [`TmdeConfig`].
        pivot_languages: Not used; a subset of `languages`.

    Raises:
        ValueError: The kind of encoder or one of its settings is unknown, or a language is not in
            `languages`.

    Example:
        ```python
        from modeling_tmde import AlignedConfig, AlignedModel

        config = AlignedConfig(
            vocab_size=8000,
            encoder_config={"d_model": 128, "embedding_dim": 64},
            source_language="en",
            languages=["de", "en"],
        )
        model = AlignedModel(config)
        ```
    """

    model_type = "tmde_aligned"

    vocab_size: int = size(default=50000)
    encoder: Literal["bilstm", "bag"] = "bilstm"
    encoder_config: dict[str, Any] | None = None
    source_language: str = "en"
    pivot_languages: tuple[str, ...] | list[str] = ("en",)

    @property
    def settings_of_encoder(self) -> LaserConfig | BagConfig:
        """The settings of every encoder: the paper's, changed by `encoder_config`."""
        settings = PAPER_SETTINGS[self.encoder] | (self.encoder_config or {})
        if self.encoder == "bag":
            return BagConfig(**settings)
        return LaserConfig(**settings)

    @property
    def hidden_size(self) -> int:
        """Width of the document embedding."""
        return self.settings_of_encoder.d_model

    def validate_architecture(self) -> None:
        """Check that the settings are known and fit together.

        Raises:
            ValueError: If not.
        """
        super().validate_architecture()
        known = PAPER_SETTINGS[self.encoder]
        for name in self.encoder_config or {}:
            if name not in known:
                raise TmdeError(f"encoder_config names {name!r}; known: {', '.join(known)}")
        self.settings_of_encoder.validate()
        if self.source_language not in self.languages:
            raise TmdeError(
                f"source_language={self.source_language!r} is not among languages={self.languages}"
            )
