# SPDX-License-Identifier: Apache-2.0

"""Configuration of the NTDV models."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .common import EmbedderConfig, size

__all__ = ["NtdvConfig"]


@strict
class NtdvConfig(EmbedderConfig):
    r"""Configuration of [`NtdvModel`] and [`NtdvForConditionalGeneration`].

    The defaults follow Li (2021, section 3.3 and table 3.1).

    Args:
        vocab_size: The size of the shared BPE vocabulary.
        embedding_dim: The width of the word vectors and of the decoders' outputs (the readout of
            Nematus).
        d_model: The width of the encoders' states (both directions together), the shared layers and
            the decoders (d_h). Even. The document embedding is `hidden_size` wide.
        attention_heads: The number of heads of the shared self-attention (r), each `d_model` wide.
        shared_layers: Whether the model has the three shared layers. Without them, it is the
            translation model of the first stage; the embedding is then the mean of the encoder's
            states.
        vector: The document embedding of the shared layers: the `"sum"` of the r context vectors
            (eq. 3.3, `d_model` wide) or their `"concat"` (eq. 3.4, `r * d_model` wide).
        dropout: The dropout rate of word vectors and decoder outputs.
        languages: See [`TmdeConfig`]. Each language has its own encoder.
        pivot_languages: The languages that have a decoder; a subset of `languages`.

    Raises:
        ValueError: Sizes do not match, or a pivot language is not in `languages`.

    Example:
        ```python
        from modeling_tmde import NtdvConfig, NtdvForConditionalGeneration

        config = NtdvConfig(
            vocab_size=8000,
            embedding_dim=64,
            d_model=128,
            attention_heads=2,
            languages=["de", "en"],
            pivot_languages=["en"],
        )
        model = NtdvForConditionalGeneration(config)
        ```
    """

    model_type = "tmde_ntdv"

    vocab_size: int = size(default=85000)
    embedding_dim: int = size(default=500)
    d_model: int = size(default=1024)
    attention_heads: int = size(default=4)
    shared_layers: bool = True
    vector: Literal["sum", "concat"] = "sum"
    dropout: float | int = 0.0
    languages: tuple[str, ...] | list[str] = ("de", "en")
    pivot_languages: tuple[str, ...] | list[str] = ("de", "en")
    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = 0
    tie_word_embeddings: bool = False

    @property
    def hidden_size(self) -> int:
        """Width of the document embedding."""
        if self.shared_layers and self.vector == "concat":
            return self.d_model * self.attention_heads
        return self.d_model

    def validate_architecture(self) -> None:
        """Check that the sizes fit together.

        Raises:
            ValueError: If not.
        """
        super().validate_architecture()
        self._check_even("d_model", "an encoder reads in two directions")
