# SPDX-License-Identifier: Apache-2.0

"""Configuration of the LSTM models."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .common import EmbedderConfig, TmdeError, size

__all__ = ["LaserConfig"]

RECURRENT_POOLINGS = ("max", "mean", "last", "attention")
CONVOLUTIONAL_POOLINGS = ("max", "mean")


@strict
class LaserConfig(EmbedderConfig):
    r"""Configuration of [`LaserModel`] and [`LaserForConditionalGeneration`].

    The defaults are LASER_6 of Li (2021, table 4.1), with 223.1 M parameters; `encoder_layers=1`
    (LASER_1) has 191.6 M. The table states 241 M and 209 M, probably for a decoder that also reads
    its last output.

    The model of Yu et al. (2018) is `encoder_layers=2, unidirectional_layers=1, pooling="mean",
    decoder_hidden_size=1024, language_signal="start_token"`, with a vocabulary of 85k.

    Args:
        vocab_size: The size of the shared BPE vocabulary.
        d_model: The width of each encoder layer's output and of the document embedding. Even: a
            bidirectional layer splits it between its directions.
        embedding_dim: The width of token vectors.
        encoder_layers: The number of encoder layers.
        unidirectional_layers: The number of last layers that read forward only.
        pooling: How the last layer's states become the embedding: `"max"` (LASER), `"mean"` (Yu et
            al., 2018), `"last"` (the last state of each direction) or `"attention"` (self-attention
            with several views; Conneau, 2019, section 3.2.2, and Yu et al., 2018, table 1).
        cell: The kind of layer: `"lstm"`, `"gru"`, `"conv"` or `"gated_conv"`. `"conv"` (HConvNet
            of Conneau, 2019): convolutions over three tokens; the states of every layer, `d_model /
            encoder_layers` wide, are pooled and concatenated. `"gated_conv"` (GatedConvNet of
            Conneau, 2019): gated convolutions over three tokens with residual connections, on token
            vectors times `sqrt(embedding_dim)` plus sinusoidal positions; the last layer is pooled.
        attention_views: The number of context vectors of `"attention"`, which are concatenated. A
            layer is `d_model / attention_views` wide.
        decoder_hidden_size: The width of the decoder, one LSTM layer.
        language_signal: How the decoder receives the target language. `"feature"` (LASER): a
            language vector is concatenated to its input at every step. `"start_token"` (Yu et al.,
            2018): a language vector replaces the vector of `<s>`.
        language_embedding_dim: The width of the language vector for `"feature"`.
        dropout: The dropout rate of token vectors, between encoder layers, and of decoder outputs.
        share_embeddings: Whether encoder input, decoder input and decoder output share one table;
            requires equal widths.
        languages: See [`TmdeConfig`].
        pivot_languages: See [`TmdeConfig`].

    Raises:
        ValueError: Sizes do not match or are not positive, a setting is unknown, a language is
            listed twice, or a pivot language is not in `languages`.

    Example:
        ```python
        from modeling_tmde import LaserConfig, LaserForConditionalGeneration

        config = LaserConfig(
            vocab_size=8000,
            d_model=256,
            embedding_dim=128,
            encoder_layers=1,
            decoder_hidden_size=256,
            languages=["de", "en"],
            pivot_languages=["en"],
        )
        model = LaserForConditionalGeneration(config)
        ```
    """

    model_type = "tmde_laser"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "encoder_layers"}

    vocab_size: int = size(default=50000)
    d_model: int = size(default=1024)
    embedding_dim: int = size(default=512)
    encoder_layers: int = size(default=6)
    unidirectional_layers: int = 0
    pooling: Literal["max", "mean", "last", "attention"] = "max"
    cell: Literal["lstm", "gru", "conv", "gated_conv"] = "lstm"
    attention_views: int = size(default=4)
    decoder_hidden_size: int = size(default=2048)
    language_signal: Literal["feature", "start_token"] = "feature"
    language_embedding_dim: int = size(default=32)
    dropout: float | int = 0.1
    share_embeddings: bool = False
    is_encoder_decoder: bool = True
    use_cache: bool = True
    decoder_start_token_id: int | None = 0
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs):
        self.tie_word_embeddings = self.share_embeddings
        super().__post_init__(**kwargs)

    @property
    def is_recurrent(self) -> bool:
        """Whether the layers are LSTMs or GRUs, and not convolutions."""
        return self.cell in ("lstm", "gru")

    @property
    def joins_layers(self) -> bool:
        """Whether the states of all layers are pooled and joined, and not those of the last."""
        return self.cell == "conv"

    @property
    def layer_width(self) -> int:
        """The width of a layer's states, both directions together."""
        if self.joins_layers:
            return self.d_model // self.encoder_layers
        if self.pooling == "attention":
            return self.d_model // self.attention_views
        return self.d_model

    def validate_architecture(self) -> None:
        """Check that the sizes fit together.

        Raises:
            ValueError: If not.
        """
        super().validate_architecture()
        poolings = RECURRENT_POOLINGS if self.is_recurrent else CONVOLUTIONAL_POOLINGS
        if self.pooling not in poolings:
            raise TmdeError(
                f"cell={self.cell!r}, pooling={self.pooling!r}: expected {', '.join(poolings)}"
            )
        num_parts = self._num_parts()
        if self.d_model % num_parts:
            raise TmdeError(
                f"d_model={self.d_model} is not a multiple of {num_parts}, the number of "
                "directions, views or layers that share it"
            )
        most_unidirectional = self.encoder_layers if self.is_recurrent else 0
        if not 0 <= self.unidirectional_layers <= most_unidirectional:
            raise TmdeError(
                f"unidirectional_layers={self.unidirectional_layers}: expected 0 to "
                f"{most_unidirectional}"
            )
        if self.cell == "gated_conv":
            self._check_even("embedding_dim", "positions are pairs of sine and cosine")
        if self.share_embeddings and self.decoder_hidden_size != self.embedding_dim:
            raise TmdeError(
                "share_embeddings needs one width for input and output: found embedding_dim="
                f"{self.embedding_dim} and decoder_hidden_size={self.decoder_hidden_size}"
            )

    def _num_parts(self) -> int:
        """Return the number of equal parts that the embedding is joined from."""
        if self.joins_layers:
            return self.encoder_layers
        if not self.is_recurrent:
            return 1
        if self.pooling == "attention":
            return 2 * self.attention_views
        return 2
