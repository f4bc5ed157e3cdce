# SPDX-License-Identifier: Apache-2.0

"""Configuration of the NTDV models."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .common import EmbedderConfig, size


@strict
class NtdvConfig(EmbedderConfig):
    r"""
    Configuration of [`NtdvModel`] and [`NtdvForConditionalGeneration`]. The defaults are those of thesis 000, section
    3.3 and table 3.1.

    Args:
        vocab_size: Entries of the shared BPE vocabulary.
        embedding_dim: Width of the word vectors, and of the decoders' outputs (Nematus' readout).
        d_model: d_h, width of the encoders' states (both directions together), of the shared layers and of the
            decoders; even. The document embedding is `hidden_size` wide.
        attention_heads: r, heads of the shared self-attention, each `d_model` wide.
        shared_layers: Whether there are the three layers that all languages share. Without them it is the plain
            translation model (NMT) of the first stage, whose embedding is the mean of its encoder's states.
        vector: The document embedding that the shared layers give: `"sum"` of the r context vectors (eq. 3.3,
            `d_model` wide) or `"concat"` (eq. 3.4, `r * d_model` wide).
        dropout: On word vectors and on the decoders' outputs.
        languages: Codes of the languages; positions in this list are the language ids. Each has its own encoder.
        pivot_languages: Those among them that have a decoder, and are translated into.

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
        return self.d_model * (
            self.attention_heads if self.shared_layers and self.vector == "concat" else 1
        )

    def validate_architecture(self):
        super().validate_architecture()
        self._check_even("d_model", "an encoder reads in two directions")
