# SPDX-License-Identifier: Apache-2.0

"""Configuration of T-MDE's bottleneck and decoder on an encoder of the Hub."""

import copy
import math
from typing import Any, Literal, cast

from huggingface_hub.dataclasses import strict
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

from .common import EmbedderConfig, TmdeError, size

# XLM-R base.
DEFAULT_ENCODER = {
    "model_type": "xlm-roberta",
    "vocab_size": 250002,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
_HEAD_DIM = 64
_ENCODER_SIZES = (
    "vocab_size",
    "hidden_size",
    "d_model",
    "num_hidden_layers",
    "num_attention_heads",
)


@strict
class AdaptedConfig(EmbedderConfig):
    r"""Configuration of [`AdaptedModel`] and [`AdaptedForConditionalGeneration`].

    Width, vocabulary and depth come from the encoder: setting one, such as `d_model`, changes
    `encoder_config`.

    Args:
        encoder_config: The configuration of any text encoder of transformers, or a dictionary with
            its `model_type`.
        pooling: `"cls"` uses the encoder's first output as embedding P, `"mean"` averages over the
            tokens. Use `"mean"` if the first output was not trained (XLM-R, ModernBERT, DistilBERT)
            or belongs to a word (T5), and `"cls"` for embedders trained with it.
        projection: Whether to multiply P by a fixed matrix, such as a rotation to principal
            components.
        normalize: Whether to scale P to length 1.
        prompt: The prefix that the model itself adds to every text, such as "query: " for E5, but
            not to decoder texts.
        prompt_ids: The token ids of the prompt.
        reads_bos: Whether the encoder's tokenizer starts every text with `bos_token_id`. If not
            (T5), only the decoder's texts start with it.
        bag_residual: The length of a bag of the text's tokens ([`BagModel`]) that is added to P; 0
            for none. The bag is not trained, and not added in training mode.
        sublinear_counts: Whether a token that occurs n times counts sqrt(n) times in that bag.
        decoder_layers: The number of layers of the translation decoder.
        decoder_attention_heads: The number of attention heads of the decoder. Default: heads of 64
            dimensions.
        decoder_ffn_dim: The inner width of the decoder's feed-forward layers. Default: four times
            the width.
        dropout: The decoder's dropout rate. The encoder's is in `encoder_config`.
        attention_dropout: The dropout rate of the decoder's attention probabilities.
        activation_function: The decoder's activation, by its name in transformers.
        max_position_embeddings: The maximum text length in tokens, including special tokens.
            Default: the encoder's positions minus the prompt's, or 2048 if the encoder has no
            limit.
        share_embeddings: Whether encoder input, decoder input and decoder output share one table.
            Default: if the encoder's table is as wide as its outputs.
        decoder_embedding_scale: The factor applied to the decoder's input table. Default:
            `sqrt(d_model)`, which suits a T-MDE table.
        language_embedding_dim: The width of the target language's vector.
        languages: See [`TmdeConfig`].
        pivot_languages: See [`TmdeConfig`].

    Raises:
        TmdeError: Sizes do not match, the encoder's type is unknown, or a pivot language is not in
            `languages`.

    Example:
        ```python
        from transformers import BertConfig

        from modeling_tmde import AdaptedConfig, AdaptedModel

        encoder = BertConfig(vocab_size=8000, hidden_size=128, num_hidden_layers=2)
        encoder.num_attention_heads = 2
        config = AdaptedConfig(encoder_config=encoder, pooling="mean")
        model = AdaptedModel(config)
        ```
    """

    model_type = "tmde_adapted"
    sub_configs = {"encoder_config": AutoConfig}
    keys_to_ignore_at_inference = ["past_key_values"]

    encoder_config: dict[str, Any] | PreTrainedConfig | None = None
    pooling: Literal["cls", "mean"] = "cls"
    projection: bool = False
    normalize: bool = False
    prompt: str = ""
    prompt_ids: list[int] | None = None
    reads_bos: bool = True
    bag_residual: float | int = 0
    sublinear_counts: bool = False
    decoder_layers: int = size(default=1)
    decoder_attention_heads: int | None = None
    decoder_ffn_dim: int | None = None
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_function: str = "relu"
    max_position_embeddings: int | None = None
    share_embeddings: bool | None = None
    decoder_embedding_scale: float | int | None = None
    language_embedding_dim: int = size(default=32)
    is_encoder_decoder: bool = True
    use_cache: bool = True
    decoder_start_token_id: int | None = 0
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs):
        self.encoder_config = _as_config(self.encoder_config)
        _check_has_sizes(self.encoder_config)
        # The defaults below depend on them.
        for name in _ENCODER_SIZES:
            if name in kwargs:
                setattr(self, name, kwargs.pop(name))
        if self.decoder_attention_heads is None:
            num_heads = max(1, self.d_model // _HEAD_DIM)
            self.decoder_attention_heads = math.gcd(self.d_model, num_heads)
        if self.decoder_ffn_dim is None:
            self.decoder_ffn_dim = 4 * self.d_model
        self.tie_word_embeddings = self.share_embeddings is not False
        super().__post_init__(**kwargs)

    @property
    def settled_encoder_config(self) -> PreTrainedConfig:
        """`encoder_config`, which is a configuration after `__post_init__`."""
        return cast(PreTrainedConfig, self.encoder_config)

    @property
    def bottleneck(self) -> str:
        """What the decoder sees: `"first"`, the embedding alone."""
        return "first"

    @property
    def d_model(self) -> int:
        """The width of the encoder's outputs, the decoder and the document embedding."""
        return self.settled_encoder_config.hidden_size

    @d_model.setter
    def d_model(self, size: int) -> None:
        self.settled_encoder_config.hidden_size = size

    @property
    def hidden_size(self) -> int:
        """The same as `d_model`, under the name that other libraries use."""
        return self.d_model

    @hidden_size.setter
    def hidden_size(self, size: int) -> None:
        self.d_model = size

    @property
    def num_hidden_layers(self) -> int:
        """The number of the encoder's layers."""
        return self.settled_encoder_config.num_hidden_layers

    @num_hidden_layers.setter
    def num_hidden_layers(self, size: int) -> None:
        self.settled_encoder_config.num_hidden_layers = size

    @property
    def num_attention_heads(self) -> int:
        """The number of attention heads of the encoder's layers."""
        return self.settled_encoder_config.num_attention_heads

    @num_attention_heads.setter
    def num_attention_heads(self, size: int) -> None:
        self.settled_encoder_config.num_attention_heads = size

    @property
    def vocab_size(self) -> int:
        """The rows of the encoder's table, which may exceed the entries of its tokenizer."""
        return self.settled_encoder_config.vocab_size

    @vocab_size.setter
    def vocab_size(self, size: int) -> None:
        self.settled_encoder_config.vocab_size = size

    def get_text_config(
        self, decoder: bool | None = None, encoder: bool | None = None
    ) -> PreTrainedConfig:
        """Return the configuration of the decoder or of the encoder, as transformers asks for it.

        Args:
            decoder: Whether it is that of the decoder, whose layers the caches of `generate` count.
            encoder: Whether it is that of the encoder. With both or neither, it is this one.
        """
        if decoder == encoder:
            return self
        if encoder:
            return self.settled_encoder_config
        of_decoder = copy.copy(self)
        of_decoder.__class__ = _DecoderConfig
        return of_decoder

    def validate_architecture(self) -> None:
        """Check that sizes fit together; called for every new configuration."""
        super().validate_architecture()
        num_heads = cast(int, self.decoder_attention_heads)  # `__post_init__` has set it.
        if self.d_model % num_heads:
            raise TmdeError(
                f"the encoder's hidden_size={self.d_model} is not a multiple of "
                f"decoder_attention_heads={num_heads}"
            )
        self._check_even("d_model", "positions are pairs of sine and cosine")


class _DecoderConfig(AdaptedConfig):
    """The same configuration, where the sizes that both parts have are those of the decoder."""

    @property
    def num_hidden_layers(self) -> int:
        return self.decoder_layers

    @num_hidden_layers.setter
    def num_hidden_layers(self, size: int) -> None:
        self.decoder_layers = size

    @property
    def num_attention_heads(self) -> int:
        return cast(int, self.decoder_attention_heads)  # `__post_init__` has set it.

    @num_attention_heads.setter
    def num_attention_heads(self, size: int) -> None:
        self.decoder_attention_heads = size


def _as_config(encoder: dict[str, Any] | PreTrainedConfig | None) -> PreTrainedConfig:
    """Return the configuration of an encoder that is given by its settings, by default XLM-R's."""
    if isinstance(encoder, PreTrainedConfig):
        return encoder
    settings = dict(DEFAULT_ENCODER if encoder is None else encoder)
    model_type = settings.pop("model_type", None)
    if model_type not in CONFIG_MAPPING:
        raise TmdeError(
            f"encoder_config names model_type={model_type!r}, which the installed "
            "transformers does not have"
        )
    return CONFIG_MAPPING[model_type](**settings)


def _check_has_sizes(encoder: PreTrainedConfig) -> None:
    """Check that the configuration of an encoder says how wide it is and how many tokens it has."""
    for name in ("vocab_size", "hidden_size"):
        if not isinstance(getattr(encoder, name, None), int):
            raise TmdeError(
                f"encoder_config: found a model of type {encoder.model_type!r} without {name}"
            )


__all__ = ["AdaptedConfig"]
