# SPDX-License-Identifier: Apache-2.0

"""Configuration of the NTDV models."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .common import EmbedderConfig, size

__all__ = ["NtdvConfig"]


@strict
class NtdvConfig(EmbedderConfig):
    r"""Configuration of [`NtdvModel`] and [`NtdvForConditionalGeneration`].

    The defaults are those of Li 2021, section 3.3 and table 3.1.

    Args:
        vocab_size: The entries of the shared BPE vocabulary.
        embedding_dim: The width of the word vectors, and of the decoders' outputs (Nematus'
            readout).
        d_model: d_h, the width of the encoders' states (both directions together), of the shared
            layers and of the decoders; even. The document embedding is `hidden_size` wide.
        attention_heads: r, the number of heads of the shared self-attention, each `d_model` wide.
        shared_layers: Whether there are the three layers that all languages share. Without them it
            is the plain translation model (NMT) of the first stage, whose embedding is the mean of
            its encoder's states.
        vector: The document embedding that the shared layers give: `"sum"` of the r context vectors
            (eq. 3.3, `d_model` wide) or `"concat"` (eq. 3.4, `r * d_model` wide).
        dropout: The dropout rate of word vectors and of the decoders' outputs.
        languages: The language codes; the position of a code in this list is its language id. Each
            language has its own encoder.
        pivot_languages: The languages among them that have a decoder and are translated into.

    Raises:
        ValueError: If sizes do not fit together or a pivot language is not among the languages.
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
