"""What an objective gets: a micro-batch and what the encoder made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from tmde.training.objectives.masking import Masked

if TYPE_CHECKING:
    from tmde.training.batches import ParallelBatch


def encoder_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return the encoder of a model with a decoder or a head; an encoder is its own."""
    encoder: PreTrainedModel = getattr(model, "model", model)
    return encoder


def sees_states(model: PreTrainedModel) -> bool:
    """Return whether the model has a decoder that attends all states of the encoder."""
    return bool(getattr(model, "decoder_sees_states", False))


def make_language_ids(
    config: PreTrainedConfig, languages: Sequence[str], rows: int, device: torch.device
) -> torch.Tensor:
    """Return (languages * rows,), the index of each text's language in the config."""
    indices = torch.tensor([config.languages.index(language) for language in languages])
    return indices.repeat_interleave(rows).to(device, non_blocking=True)


def encode_texts(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    all_states: bool,
    **options: torch.Tensor,
) -> BaseModelOutputWithPooling:
    """Encode texts in one call, and return the output of the encoder.

    Args:
        model: The model that is trained.
        input_ids: (languages, rows, length), `<s> tokens </s>`.
        attention_mask: (languages, rows, length).
        all_states: Whether more than the embeddings is needed.
        options: Further arguments of the encoder.
    """
    if not getattr(model.config, "reads_bos", True):
        # The decoder alone reads `<s>`.
        input_ids = input_ids[..., 1:]
        attention_mask = attention_mask[..., 1:]
    output: BaseModelOutputWithPooling = encoder_of(model)(
        input_ids.flatten(0, 1),
        attention_mask.flatten(0, 1),
        pooled_only=not all_states,
        return_dict=True,
        **options,
    )
    return output


@dataclass
class EncodedBatch:
    """A micro-batch and what the encoder made of it.

    Attributes:
        model: The model that is trained, with its decoder or head.
        batch: The batch itself.
        attention_mask: The mask (languages, rows, length) after token dropout: 1 where the encoder
            reads a token.
        encoded_languages: The indices of the languages that were encoded, ascending.
        masked: The tokens hidden by the objective that requires a masked input; None without one.
        encoder_output: The encoder's output, as a `BaseModelOutputWithPooling`, texts in the order
            (encoded languages, rows); None if no objective requires embeddings.
    """

    model: PreTrainedModel
    batch: ParallelBatch
    attention_mask: torch.Tensor
    encoded_languages: list[int]
    masked: Masked | None = None
    encoder_output: Any = None

    @property
    def encoder(self) -> PreTrainedModel:
        """The encoder of the model."""
        return encoder_of(self.model)

    @property
    def decoder(self) -> nn.Module:
        """The decoder, of objectives that require one."""
        return self.model.get_submodule("decoder")

    @property
    def head(self) -> nn.Module:
        """The head that predicts tokens from states, of objectives that require one."""
        return self.model.get_submodule("head")

    @property
    def output_projection(self) -> torch.Tensor:
        """The table (vocab_size, d_model) from the states of a decoder or head to logits."""
        return self.model.get_parameter("lm_head.weight")

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.batch.input_ids.shape[1]

    @property
    def embeddings(self) -> torch.Tensor:
        """The embeddings (encoded languages, rows, d_model)."""
        return self._by_language(self.encoder_output.pooler_output)

    @property
    def context(self) -> torch.Tensor:
        """All vectors from which a model makes an embedding, one after another.

        (encoded languages, rows, vectors * d); of a model that has one vector only, the embeddings.
        """
        if "context" not in self.encoder_output:
            return self.embeddings
        return self._by_language(self.encoder_output.context)

    @property
    def decoder_memory(self) -> torch.Tensor:
        """The states (encoded languages, rows, length, d) that a decoder attends."""
        output = self.encoder_output
        states = output.memory if "memory" in output else output.last_hidden_state
        return self._by_language(states)

    def token_states(self, places: torch.Tensor) -> torch.Tensor:
        """Return the states (tokens, d_model) of the encoder at places of the flattened texts."""
        states: torch.Tensor = self.encoder_output.token_states
        return states.flatten(0, 1).index_select(0, places)

    def reencoded(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> EncodedBatch:
        """Return the batch with what the encoder makes of other texts in place of its own.

        Args:
            input_ids: A text for each of the batch, (languages, rows, any length).
            attention_mask: Its mask, in the same shape.
        """
        output = encode_texts(self.model, input_ids, attention_mask, sees_states(self.model))
        return replace(
            self,
            attention_mask=attention_mask,
            encoded_languages=list(range(len(input_ids))),
            encoder_output=output,
        )

    def _by_language(self, texts: torch.Tensor) -> torch.Tensor:
        """Return (encoded languages, rows, ...) from (encoded languages * rows, ...)."""
        return texts.reshape(len(self.encoded_languages), self.num_rows, *texts.shape[1:])
