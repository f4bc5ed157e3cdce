# SPDX-License-Identifier: Apache-2.0

"""Configuration of the T-MDE models."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .common import EmbedderConfig, TmdeError, size

__all__ = ["TmdeConfig"]


@strict
class TmdeConfig(EmbedderConfig):
    r"""Configuration of [`TmdeModel`] and [`TmdeForConditionalGeneration`].

    The defaults are the sizes in Li (2021, table 4.1): 243.9 M parameters for `bottleneck="first"`
    and 256.5 M for `"pyramid"`. The table states 246 M and 259 M, which include unused queries and
    keys of the attention over a single slot.

    Args:
        vocab_size: The size of the shared BPE vocabulary.
        d_model: The width of encoder, decoder and document embedding (d_h in table 4.1). Even, and
            a multiple of both numbers of heads.
        encoder_layers: The number of encoder layers.
        encoder_attention_heads: The number of attention heads per encoder layer (r).
        encoder_ffn_dim: The inner width of the encoder's feed-forward networks (d_fc).
        decoder_layers: The number of decoder layers.
        decoder_attention_heads: The number of attention heads per decoder layer.
        decoder_ffn_dim: The inner width of the decoder's feed-forward networks.
        dropout: The dropout rate of embeddings and residual branches.
        attention_dropout: The dropout rate of attention probabilities, except over the bottleneck's
            single slot.
        activation_function: An activation, by its name in transformers.
        max_position_embeddings: The maximum input length in tokens, including `<s>` and `</s>`.
        bottleneck: What the decoder sees of the encoder:

            - `"first"` (T-MDE): one slot, the embedding P, which is the first output of the
              encoder.
            - `"pyramid"` (T-MDE_P, eq. 4.8-4.17): one slot, P, computed from the first output of
              every layer and from a pyramid of learned queries.
            - `"full"` (T-MDE_F, the ablation in section 4.4.4): all encoder outputs. P is still the
              first one.
            - `"dual"` (dbT-MDE, section 5.2): the slot, then all encoder outputs.
        pyramid_queries: The number of learned queries on the first level of the pyramid; each of
            the next two levels halves it.
        bottleneck_loss_weight: For `"dual"`: the share of the translation loss computed with the
            slot alone. The rest uses the slot and all outputs.
        bag_residual: Whether position 0 of the first layer reads a bag of the text's tokens instead
            of the embedding of `<s>`: `sqrt(d_model)` times the unit vector along `sum_t exp(w_t)
            E_t`, over all tokens t except `<s>`, `</s>` and `<pad>`, with a learned weight w per
            token. Not in Li (2021).
        sublinear_counts: Whether a token that occurs n times in a text counts sqrt(n) times in this
            bag.
        mask_token_id: The id of `<mask>`, which denoising inserts; None if there is none.
        share_embeddings: Whether encoder input, decoder input and decoder output share one table.
        language_embedding_dim: The width of the target language's vector, which is concatenated to
            every slot that the decoder sees.
        languages: The language codes. The position of a code is its language id.
        pivot_languages: The languages that the decoder learns to translate into; a subset of
            `languages`.

    Raises:
        ValueError: Sizes do not match, or a pivot language is not in `languages`.

    Example:
        ```python
        from modeling_tmde import TmdeConfig, TmdeForConditionalGeneration

        config = TmdeConfig(
            vocab_size=8000,
            d_model=256,
            encoder_layers=3,
            encoder_attention_heads=4,
            encoder_ffn_dim=512,
            decoder_attention_heads=4,
            decoder_ffn_dim=512,
            languages=["de", "en"],
            pivot_languages=["en"],
        )
        model = TmdeForConditionalGeneration(config)
        ```
    """

    model_type = "tmde"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    vocab_size: int = size(default=50000)
    d_model: int = size(default=1024)
    encoder_layers: int = size(default=6)
    encoder_attention_heads: int = size(default=16)
    encoder_ffn_dim: int = size(default=4096)
    decoder_layers: int = size(default=1)
    decoder_attention_heads: int = size(default=16)
    decoder_ffn_dim: int = size(default=4096)
    dropout: float | int = 0.3
    attention_dropout: float | int = 0.0
    activation_function: str = "relu"
    max_position_embeddings: int = size(default=2048)
    bottleneck: Literal["first", "pyramid", "full", "dual"] = "first"
    pyramid_queries: int = size(default=32)
    bottleneck_loss_weight: float | int = 0.5
    bag_residual: bool = False
    sublinear_counts: bool = False
    mask_token_id: int | None = None
    share_embeddings: bool = False
    language_embedding_dim: int = size(default=32)
    is_encoder_decoder: bool = True
    use_cache: bool = True
    decoder_start_token_id: int | None = 0
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs):
        self.tie_word_embeddings = self.share_embeddings
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        """Check that the sizes fit together.

        Raises:
            ValueError: If not.
        """
        super().validate_architecture()
        self._check_multiple("d_model", "encoder_attention_heads")
        self._check_multiple("d_model", "decoder_attention_heads")
        self._check_even("d_model", "positions are pairs of sine and cosine")
        if self.bottleneck == "pyramid" and (self.encoder_layers < 3 or self.pyramid_queries < 4):
            raise TmdeError(
                "bottleneck='pyramid' needs encoder_layers >= 3 and pyramid_queries >= 4, found "
                f"encoder_layers={self.encoder_layers} and pyramid_queries={self.pyramid_queries}"
            )
        if not 0 <= self.bottleneck_loss_weight <= 1:
            raise TmdeError(
                f"bottleneck_loss_weight={self.bottleneck_loss_weight} must lie between 0 and 1"
            )
