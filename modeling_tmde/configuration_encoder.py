# SPDX-License-Identifier: Apache-2.0

"""Configuration of the transformer encoders without a decoder."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .common import EmbedderConfig, TmdeError, size

__all__ = ["TmdeEncoderConfig"]


@strict
class TmdeEncoderConfig(EmbedderConfig):
    r"""Configuration of [`TmdeEncoderModel`] and its models with a head.

    The defaults are the lightweight encoder of Mao et al. (2021, section 4.1; 30.1 M parameters).

    Args:
        vocab_size: The size of the shared vocabulary.
        d_model: The width of the encoder and of the document embedding; a multiple of the number of
            heads.
        encoder_layers: The number of layers.
        encoder_attention_heads: The number of attention heads per layer.
        encoder_ffn_dim: The inner width of the feed-forward networks.
        dropout: The dropout rate of embeddings and residual branches.
        attention_dropout: The dropout rate of attention probabilities.
        activation_function: An activation, by its name in transformers; Conneau (2019, section
            4.3.5) uses `"gelu"`.
        max_position_embeddings: The maximum input length in tokens, including `<s>` and `</s>`.
        pooling: How the embedding P is computed. `"mean"`: the mean of the final states of all
            tokens, including `<s>` and `</s>` (Mao et al., 2021, section 3.1). `"first"`: the first
            token's final state (Conneau, 2019, section 4.3.4; Li, 2021, section 4.3.1, for XLM-R).
        position_embeddings: `"sinusoidal"` (Vaswani et al., 2017) or `"learned"` (Conneau, 2019,
            section 4.3.5).
        prediction_head: The layers between a state and the softmax over the vocabulary. `"linear"`:
            one linear layer (Mao et al., 2021, section 3.1). `"transform"`: linear, activation,
            LayerNorm, as in BERT and XLM-R. `"none"`: none, as in XLM (Conneau, 2019, section 4.3);
            a decoder initialized from these layers can then predict tokens immediately.
        causal: Whether a token attends only to earlier tokens, for causal language modeling
            (Conneau, 2019, section 4.3.3).
        mask_token_id: The id of `<mask>`.
        languages: See [`TmdeConfig`]. The model receives no language signal.
        pivot_languages: Not used; a subset of `languages`.

    Raises:
        ValueError: A name is unknown, sizes do not match, or a pivot language is not in
            `languages`.

    Example:
        ```python
        from modeling_tmde import TmdeEncoderConfig, TmdeEncoderModel

        config = TmdeEncoderConfig(vocab_size=8000, d_model=256, languages=["de", "en", "es"])
        model = TmdeEncoderModel(config)
        ```
    """

    model_type = "tmde_encoder"
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
        "intermediate_size": "encoder_ffn_dim",
    }

    vocab_size: int = size(default=50000)
    d_model: int = size(default=512)
    encoder_layers: int = size(default=2)
    encoder_attention_heads: int = size(default=8)
    encoder_ffn_dim: int = size(default=1024)
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    activation_function: str = "relu"
    max_position_embeddings: int = size(default=2048)
    pooling: Literal["first", "mean"] = "mean"
    position_embeddings: Literal["sinusoidal", "learned"] = "sinusoidal"
    prediction_head: Literal["linear", "transform", "none"] = "linear"
    causal: bool = False
    mask_token_id: int | None = 4
    tie_word_embeddings: bool = True

    @property
    def special_token_ids(self) -> list[int]:
        """Ids of `<s>`, `<pad>`, `</s>` and `<mask>`, without those that are None."""
        token_ids = super().special_token_ids
        if self.mask_token_id is not None:
            token_ids.append(self.mask_token_id)
        return token_ids

    def validate_architecture(self) -> None:
        """Check that the sizes fit together.

        Raises:
            ValueError: If not.
        """
        super().validate_architecture()
        self._check_multiple("d_model", "encoder_attention_heads")
        if self.position_embeddings == "sinusoidal":
            self._check_even("d_model", "positions are pairs of sine and cosine")
        if self.causal and self.pooling == "first":
            raise TmdeError(
                "pooling: found 'first', which is useless for a causal encoder because the "
                "first token sees no other, expected 'mean'"
            )
