# SPDX-License-Identifier: Apache-2.0

"""Transformer encoders without a decoder, trained to fill in tokens and to find translations.

Sources: Mao et al. 2021, *Lightweight cross-lingual sentence representation learning*, section 3.1;
Conneau 2019, *Learning distributed representations of sentences using neural networks*, section
4.3: cross-lingual language models, with which Li 2021 (section 4.3.1) compares T-MDE.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPooling, MaskedLMOutput
from transformers.utils import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from .common import pool_states, text_mask
from .configuration_encoder import TmdeEncoderConfig
from .transformer import (
    EmbeddingClassifier,
    TmdeAttention,
    TmdeEncoderLayer,
    TmdeSinusoidalPositions,
    TransformerPreTrainedModel,
    check_length,
    check_packable_inputs,
    finite_mask,
    positions_of_tokens,
)


@dataclass
class TmdeEncoderOutput(BaseModelOutputWithPooling):
    """Output of [`TmdeEncoderModel`].

    Args:
        token_states: (batch, length, d_model), the final state of every token, regardless of
            pooling; undefined at padding.
    """

    token_states: torch.Tensor | None = None


class TmdeEncoderPreTrainedModel(TransformerPreTrainedModel):
    """Base of the encoders: their configuration, Auto classes and abilities."""

    config: TmdeEncoderConfig
    _auto_map = {
        "AutoConfig": "configuration_encoder.TmdeEncoderConfig",
        "AutoModel": "modeling_encoder.TmdeEncoderModel",
        "AutoModelForMaskedLM": "modeling_encoder.TmdeEncoderForMaskedLM",
        "AutoModelForSequenceClassification": (
            "modeling_encoder.TmdeEncoderForSequenceClassification"
        ),
    }
    _can_record_outputs = {"hidden_states": TmdeEncoderLayer, "attentions": TmdeAttention}


class TmdeEncoderModel(TmdeEncoderPreTrainedModel):
    """Transformer encoder without a decoder or a language signal.

    It has T-MDE's layers and reads `<s> tokens </s>`. The embedding P is the mean of the final
    states, or the first of them.

    Example:
        ```python
        from transformers import AutoModel, AutoTokenizer

        import modeling_tmde

        model = AutoModel.from_pretrained("runs/encoder")
        tokenizer = AutoTokenizer.from_pretrained("runs/encoder")
        texts = ["Das Haus ist alt.", "The house is old."]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        embeddings = model(**inputs).pooler_output  # (2, d_model)
        ```
    """

    # A checkpoint with a prediction head or a classifier opens here too, without them.
    _keys_to_ignore_on_load_unexpected = [r"^head\.", r"^lm_head\.", r"^classifier\."]

    embed_positions: nn.Embedding | TmdeSinusoidalPositions

    def __init__(self, config: TmdeEncoderConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        if config.position_embeddings == "learned":
            self.embed_positions = nn.Embedding(config.max_position_embeddings, config.d_model)
        else:
            self.embed_positions = TmdeSinusoidalPositions(
                config.max_position_embeddings, config.d_model
            )
        self.embed_scale = config.d_model**0.5
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            TmdeEncoderLayer(config, is_causal=config.causal) for _ in range(config.encoder_layers)
        )
        self.layer_norm = nn.LayerNorm(config.d_model)
        self.gradient_checkpointing = False
        self.post_init()

    @capture_outputs(tie_last_hidden_states=False)
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        pooled_only: bool = False,
        **kwargs: Any,
    ) -> TmdeEncoderOutput:
        """Embed texts.

        Args:
            input_ids: (batch, length), starting with `<s>`.
            attention_mask: (batch, length), 1 for tokens and 0 for padding at any position. Each
                text has at least one token. Default: all ones. For rows that contain several texts,
                see [`TmdeModel`].
            inputs_embeds: (batch, length, d_model) instead of `input_ids`, before scaling and
                positions.
            position_ids: (batch, length), the position of each token in its text. Default: counted
                from 0 over the tokens of the mask. A text and its translation in one row are each
                counted from 0 (Conneau, 2019, figure 4.6). Positions must be below
                `max_position_embeddings`; on an accelerator this is checked in evaluation mode
                only.
            pooled_only: Not used.
            kwargs: `output_hidden_states` also returns H^0, H^1, ... before the final norm.
                `output_attentions` also returns attention probabilities, with
                `attn_implementation="eager"`.

        Returns:
            `pooler_output` (batch, d_model), the embedding P. `last_hidden_state` contains P at
            position 0: with `pooling="first"`, it is the final states (batch, length, d_model), the
            first token at position 0 even if padding comes first; with `"mean"`, only P, (batch, 1,
            d_model). `token_states` (batch, length, d_model) are the final states in either case.

        Raises:
            ValueError: Not exactly one of `input_ids` and `inputs_embeds` is given, a mask or
                positions do not match them, or the input is too long.
        """
        inputs = check_packable_inputs(
            input_ids, inputs_embeds, attention_mask, position_ids, self.config
        )
        attention_mask = finite_mask(attention_mask)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, length, d_model)
        if position_ids is None:
            position_ids = self._count_positions(inputs, attention_mask)
        else:
            position_ids = positions_of_tokens(
                position_ids, inputs, self.config.max_position_embeddings, self.training
            )
        hidden_states = self._add_positions(inputs_embeds, position_ids)
        hidden_states = self.dropout(hidden_states)  # (batch, length, d_model)
        if self.config.causal:
            mask = create_causal_mask(
                self.config, hidden_states, attention_mask, past_key_values=None
            )
        else:
            mask = create_bidirectional_mask(self.config, hidden_states, attention_mask)
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask)
        token_states = self.layer_norm(hidden_states)
        if attention_mask is None:
            is_token = torch.ones(token_states.shape[:2], device=token_states.device)
        else:
            is_token = text_mask(attention_mask)
        embedding = pool_states(token_states, is_token, self.config.pooling)
        output = embedding[:, None]  # (batch, 1, d_model)
        if self.config.pooling == "first":
            output = torch.cat([output, token_states[:, 1:]], dim=1)  # (batch, length, d_model)
        return TmdeEncoderOutput(
            last_hidden_state=output, pooler_output=embedding, token_states=token_states
        )

    def _add_positions(
        self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor
    ) -> torch.Tensor:
        """Return H^0 (batch, length, d_model): scaled token vectors and those of the positions."""
        if isinstance(self.embed_positions, TmdeSinusoidalPositions):
            positions = self.embed_positions.at(position_ids)
        else:
            positions = self.embed_positions(position_ids)
        positions = positions.to(inputs_embeds.dtype)  # (batch, length, d_model)
        if self.config.position_embeddings == "learned":
            # Both tables have the same scale.
            return (inputs_embeds + positions) * self.embed_scale
        return inputs_embeds * self.embed_scale + positions

    def _count_positions(
        self, inputs: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the place of each token among those of its text, (batch, length).

        Raises:
            ValueError: If the input is longer than the longest that the model knows.
        """
        batch_size, length = inputs.shape[:2]
        check_length(length, self.config.max_position_embeddings)
        if attention_mask is None:
            return torch.arange(length, device=inputs.device).expand(batch_size, length)
        return (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)


class TmdeEncoderPredictionHead(nn.Module):
    """Transformation of a state before the output projection, which all languages share."""

    def __init__(self, config: TmdeEncoderConfig):
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.transforms = config.prediction_head == "transform"
        if self.transforms:
            self.activation_fn = ACT2FN[config.activation_function]
            self.layer_norm = nn.LayerNorm(config.d_model)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Transform states (..., d_model)."""
        states = self.dense(states)
        if self.transforms:
            states = self.layer_norm(self.activation_fn(states))
        return states


class TmdeEncoderForMaskedLM(TmdeEncoderPreTrainedModel):
    """The encoder with a prediction head, for masked language modeling.

    The output projection is the embedding table. `forward` predicts every token (Conneau, 2019).
    Mao et al. (2021) predict from the embedding: `lm_head(head(pooler_output))`.

    Example:
        ```python
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        import modeling_tmde

        model = AutoModelForMaskedLM.from_pretrained("runs/encoder")
        tokenizer = AutoTokenizer.from_pretrained("runs/encoder")
        inputs = tokenizer("Das Haus ist <mask>.", return_tensors="pt")
        logits = model(**inputs).logits  # (1, length, vocab_size)
        ```
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    head: nn.Module

    def __init__(self, config: TmdeEncoderConfig):
        super().__init__(config)
        self.model = TmdeEncoderModel(config)
        if config.prediction_head == "none":
            self.head = nn.Identity()
        else:
            self.head = TmdeEncoderPredictionHead(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """Return the output projection."""
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Set the output projection."""
        self.lm_head = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Predict the tokens of texts.

        Args:
            input_ids: As for [`TmdeEncoderModel`].
            attention_mask: As for [`TmdeEncoderModel`].
            inputs_embeds: As for [`TmdeEncoderModel`].
            position_ids: As for [`TmdeEncoderModel`].
            labels: (batch, length), the token to predict at each position; -100 for none.
            num_items_in_batch: The number of labels to divide the loss by. Default: those of this
                batch.
            kwargs: As for [`TmdeEncoderModel`].

        Returns:
            `logits` (batch, length, vocab_size), and with `labels` the mean cross-entropy.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            position_ids=position_ids,
            return_dict=True,
            **kwargs,
        )
        logits = self.lm_head(self.head(outputs.token_states))
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits, labels, self.config.vocab_size, num_items_in_batch=num_items_in_batch
            )
        return MaskedLMOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TmdeEncoderForSequenceClassification(EmbeddingClassifier, TmdeEncoderPreTrainedModel):
    """The encoder with a linear classifier on its embedding, for texts or pairs of texts.

    Conneau (2019, sections 4.3.4 and 4.3.5) fine-tunes language models on XNLI this way: a pair is
    one text, `<s> premise </s> hypothesis </s>`.

    Example:
        ```python
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        import modeling_tmde

        model = AutoModelForSequenceClassification.from_pretrained("runs/encoder", num_labels=3)
        tokenizer = AutoTokenizer.from_pretrained("runs/encoder")
        inputs = tokenizer("Das Haus ist alt.", "Das Haus ist neu.", return_tensors="pt")
        loss = model(**inputs, labels=torch.tensor([2])).loss
        ```
    """

    encoder_class = TmdeEncoderModel

    config: TmdeEncoderConfig


__all__ = [
    "TmdeEncoderForMaskedLM",
    "TmdeEncoderForSequenceClassification",
    "TmdeEncoderModel",
    "TmdeEncoderOutput",
    "TmdeEncoderPreTrainedModel",
]
