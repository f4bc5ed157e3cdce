"""Transformer encoders without a decoder, trained to fill in tokens and to tell translations from other texts.

Source: the lightweight encoder of paper 002 (section 3.1), and the cross-lingual language models of thesis 004
(section 4.3), which is what thesis 000 (section 4.3.1) compares T-MDE with.
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutputWithPooling, MaskedLMOutput
from transformers.utils import can_return_tuple

from .configuration_encoder import TmdeEncoderConfig
from .layers import TmdeEncoderLayer, TmdeSinusoidalPositions
from .linear import Linear
from .packing import Packing
from .sharing import SharedModel


@dataclass
class TmdeEncoderOutput(BaseModelOutputWithPooling):
    """As `BaseModelOutputWithPooling`, and `token_states` (batch, length, d_model): the final state of every token,
    whatever the pooling; of no meaning at padding."""

    token_states: torch.FloatTensor | None = None


class TmdeEncoderPreTrainedModel(SharedModel, PreTrainedModel):
    config: TmdeEncoderConfig
    _auto_map = {
        "AutoConfig": "configuration_encoder.TmdeEncoderConfig",
        "AutoModel": "modeling_encoder.TmdeEncoderModel",
        "AutoModelForMaskedLM": "modeling_encoder.TmdeEncoderForMaskedLM",
    }
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["TmdeEncoderLayer"]

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        # transformers looks for its attention interface in the source of this file; ours is used in `layers.py`.
        return True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, TmdeSinusoidalPositions):
            # Loading builds the model on the meta device; a buffer outside the checkpoint must be filled here.
            init.copy_(module.weight, module.table())


class TmdeEncoderModel(TmdeEncoderPreTrainedModel):
    """
    Documents in, embeddings out: the layers of T-MDE over `<s> tokens </s>` without a language signal, and the mean of
    their final states, or the first of them, as the embedding P.

    Example:

    ```python
    >>> model = AutoModel.from_pretrained(path)
    >>> inputs = tokenizer(["Das Haus ist alt.", "The house is old."], return_tensors="pt", padding=True)
    >>> model(**inputs).pooler_output  # (2, d_model)
    ```
    """

    # A checkpoint with its prediction head opens here as well; the head is not wanted.
    _keys_to_ignore_on_load_unexpected = [r"^head\.", r"^lm_head\."]

    def __init__(self, config: TmdeEncoderConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        if config.position_embeddings == "learned":
            self.embed_positions = nn.Embedding(config.max_position_embeddings, config.d_model)
        else:
            self.embed_positions = TmdeSinusoidalPositions(config.max_position_embeddings, config.d_model)
        self.embed_scale = config.d_model**0.5
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(TmdeEncoderLayer(config) for _ in range(config.encoder_layers))
        self.layer_norm = nn.LayerNorm(config.d_model)
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs,
    ) -> TmdeEncoderOutput:
        """
        Args:
            input_ids: (batch, length), beginning with `<s>`.
            attention_mask: (batch, length), 1 for tokens and 0 for padding, wherever it is; everything counts when it
                is missing. A text has at least one token.
            position_ids: (batch, length), the place of each token in its text; counted from 0 over the tokens of the
                mask when missing. With them, a text and its translation may follow each other as one text, each
                counted from 0 (thesis 004, figure 4.6).
            inputs_embeds: (batch, length, d_model) in place of `input_ids`, before scaling and positions.
            output_hidden_states: Also return H^0, H^1, ... and, last, the final states after the norm.
            output_attentions: Also return attention probabilities; needs `attn_implementation="eager"`.

        Returns:
            `pooler_output` (batch, d_model): the embedding P. `last_hidden_state`, whose position 0 is P: with
            `pooling="first"` the final states (batch, length, d_model), where position 0 is that of the first token
            even behind padding; with `"mean"`, P alone (batch, 1, d_model). `token_states` (batch, length, d_model):
            the final state of every token in either case.

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, a mask or positions do not fit
                them, or the input is too long.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of input_ids and inputs_embeds")
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        shape = tuple(tokens.shape[:2])  # (batch, length)
        for name, given in (("attention_mask", attention_mask), ("position_ids", position_ids)):
            if given is not None and given.shape != shape:
                raise ValueError(f"{name} {tuple(given.shape)} must be (batch, length), as the input, {shape}")
        packing = Packing.of(attention_mask)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids if packing is None else packing.pack(input_ids))
        elif packing is not None:
            inputs_embeds = packing.pack(inputs_embeds)
        if position_ids is None:
            position_ids = self._places(attention_mask, shape, tokens.device)
        elif position_ids.device.type == "cpu" and int(position_ids.max()) >= self.config.max_position_embeddings:
            raise ValueError(
                f"position_ids has {int(position_ids.max())}, expected less than max_position_embeddings="
                f"{self.config.max_position_embeddings}"
            )
        if packing is not None:
            position_ids = packing.pack(position_ids)
        hidden_states = self._add_positions(inputs_embeds, position_ids)  # (batch, length, d_model) or (tokens, ...)
        hidden_states = self.dropout(hidden_states)
        mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=hidden_states.new_empty((*shape, 1)), attention_mask=attention_mask
        )
        states, attentions = [hidden_states], []  # H^0, H^1, ...
        for layer in self.layers:
            hidden_states, probabilities = layer(hidden_states, mask, packing=packing)
            states.append(hidden_states)
            attentions.append(probabilities)
        token_states = self.layer_norm(hidden_states)
        states[-1] = token_states
        if packing is not None:
            token_states = packing.pad(token_states)
        embedding = self._pool(token_states, attention_mask)  # (batch, d_model)
        output = embedding[:, None]
        if self.config.pooling == "first":
            output = torch.cat([output, token_states[:, 1:]], dim=1)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_hidden_states:
            states = [packing.pad(state) if state.dim() == 2 else state for state in states]
        return TmdeEncoderOutput(
            last_hidden_state=output,
            pooler_output=embedding,
            hidden_states=tuple(states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
            token_states=token_states,
        )

    def _places(
        self, attention_mask: torch.Tensor | None, shape: tuple[int, int], device: torch.device
    ) -> torch.LongTensor:
        """(batch, length) the place of each token among those of its text, so that padding before it does not count.

        Raises:
            ValueError: If an input goes past the longest that the model knows.
        """
        if shape[1] > self.config.max_position_embeddings:
            raise ValueError(
                f"An input of {shape[1]} tokens is longer than max_position_embeddings="
                f"{self.config.max_position_embeddings}; truncate it, or embed it with DocumentEmbedder, which "
                "truncates and says so."
            )
        if attention_mask is None:
            return torch.arange(shape[1], device=device).expand(shape)
        return (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)

    def _add_positions(self, inputs_embeds: torch.Tensor, position_ids: torch.LongTensor) -> torch.Tensor:
        """H^0 before dropout, in the shape of `inputs_embeds`."""
        positions = nn.functional.embedding(position_ids, self.embed_positions.weight).to(inputs_embeds.dtype)
        if self.config.position_embeddings == "learned":
            return (inputs_embeds + positions) * self.embed_scale  # two tables that start out alike
        return inputs_embeds * self.embed_scale + positions

    def _pool(self, token_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """The embedding (batch, d_model) of final states (batch, length, d_model)."""
        if self.config.pooling == "first":
            if attention_mask is None:
                return token_states[:, 0]
            first = (attention_mask != 0).long().argmax(dim=1)  # (batch,)
            rows = torch.arange(len(token_states), device=token_states.device)
            return token_states[rows, first]
        dtype = torch.promote_types(token_states.dtype, torch.float32)
        if attention_mask is None:
            return token_states.mean(dim=1, dtype=dtype).to(token_states.dtype)
        real = (attention_mask != 0).unsqueeze(2)  # (batch, length, 1)
        total = token_states.masked_fill(~real, 0.0).sum(dim=1, dtype=dtype)
        return (total / real.sum(dim=1)).to(token_states.dtype)


class TmdePredictionHead(nn.Module):
    """From a state to what the softmax over the vocabulary compares with every entry; the same for all languages."""

    def __init__(self, config: TmdeEncoderConfig):
        super().__init__()
        self.dense = Linear(config.d_model, config.d_model)
        self.transforms = config.prediction_head == "transform"
        if self.transforms:
            self.activation_fn = ACT2FN[config.activation_function]
            self.layer_norm = nn.LayerNorm(config.d_model)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """(..., d_model) -> (..., d_model)"""
        states = self.dense(states)
        return self.layer_norm(self.activation_fn(states)) if self.transforms else states


class TmdeEncoderForMaskedLM(TmdeEncoderPreTrainedModel):
    """
    The encoder with its prediction head: what is trained, and what fills in `<mask>`.

    The output projection is the embedding table. A model of paper 002 is trained to predict from its embedding, which
    is `lm_head(head(pooler_output))`; the logits of `forward` are those of every token, as thesis 004 trains them.

    Example:

    ```python
    >>> model = AutoModelForMaskedLM.from_pretrained(path)
    >>> inputs = tokenizer("Das Haus ist <mask>.", return_tensors="pt", split_special_tokens=False)
    >>> model(**inputs).logits  # (1, length, vocab_size)
    ```
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: TmdeEncoderConfig):
        super().__init__(config)
        self.model = TmdeEncoderModel(config)
        self.head = TmdePredictionHead(config)
        self.lm_head = Linear(config.d_model, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> MaskedLMOutput:
        """
        Args:
            input_ids, attention_mask, position_ids, inputs_embeds: As for [`TmdeEncoderModel`].
            labels: (batch, length), the token to predict at each place, -100 where there is none.
            num_items_in_batch: Tokens to divide the loss by (gradient accumulation); this batch's by default.

        Returns:
            `logits` (batch, length, vocab_size), and with `labels` the mean cross-entropy of the predicted tokens.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        logits = self.lm_head(self.head(outputs.token_states))
        loss = None
        if labels is not None:
            if labels.shape != logits.shape[:2]:
                raise ValueError(f"labels {tuple(labels.shape)} must be (batch, length), {tuple(logits.shape[:2])}")
            reduction = "mean" if num_items_in_batch is None else "sum"
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction=reduction)
            if num_items_in_batch is not None:
                loss = loss / num_items_in_batch
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


TmdeEncoderConfig.register_for_auto_class()
TmdeEncoderModel.register_for_auto_class("AutoModel")
TmdeEncoderForMaskedLM.register_for_auto_class("AutoModelForMaskedLM")

__all__ = ["TmdeEncoderForMaskedLM", "TmdeEncoderModel", "TmdeEncoderOutput", "TmdeEncoderPreTrainedModel"]
