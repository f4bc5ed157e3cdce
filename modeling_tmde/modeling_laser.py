"""LASER and its relatives: an LSTM encoder whose pooled states are the document embedding, and an LSTM decoder that
sees nothing else.

Sources: thesis 000, sections 2.1.4 and 4.3 (LASER); paper 001, section 2 (seq2seq with similarity loss).
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast, BaseModelOutputWithPooling, Seq2SeqLMOutput
from transformers.utils import can_return_tuple

from .configuration_laser import LaserConfig
from .linear import Linear
from .seq2seq import EmbeddingSeq2Seq
from .sharing import SharedModel

MOST_PADDING = 0.3  # share of a batch from which on a CPU, too, is faster with a packed sequence


class LaserOutputProjection(Linear):
    """From decoder states to the vocabulary; it starts out like an embedding table."""


class LaserPreTrainedModel(SharedModel, PreTrainedModel):
    config: LaserConfig
    _auto_map = {
        "AutoConfig": "configuration_laser.LaserConfig",
        "AutoModel": "modeling_laser.LaserModel",
        "AutoModelForSeq2SeqLM": "modeling_laser.LaserForConditionalGeneration",
    }
    base_model_prefix = "model"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, LaserOutputProjection):
            init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.LSTM):
            for name, parameter in module.named_parameters():
                if name.startswith("weight"):
                    # Xavier's bound for each of the four gates, whose matrices are stacked: torch's own, a third to a
                    # half of it, lets the signal die down over six layers.
                    bound = (6 / (parameter.shape[1] + module.hidden_size)) ** 0.5
                    init.uniform_(parameter, -bound, bound)
                else:
                    bias = torch.zeros_like(parameter)
                    if name.startswith("bias_ih"):
                        bias[module.hidden_size : 2 * module.hidden_size] = 1  # the forget gate begins by keeping
                    init.copy_(parameter, bias)


def _read_both_ways(layer: nn.LSTM, states: torch.Tensor, mirrored: torch.LongTensor) -> torch.Tensor:
    """What `layer` makes of texts padded on the right, (batch, length, width) -> (batch, length, d_model); its outputs
    at padding mean nothing.

    Every direction reads the real tokens first and the padding last, which cannot change what was read before. Packed
    sequences do the same, but a CPU has no fused kernel for them: twice the time.
    """
    rows = torch.arange(len(states), device=states.device).unsqueeze(1)
    zeros = states.new_zeros(1, len(states), layer.hidden_size)
    learns = torch.is_grad_enabled()
    outputs = []
    for suffix in ("", "_reverse") if layer.bidirectional else ("",):
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(layer, name + suffix) for name in names]
        given = states[rows, mirrored] if suffix else states
        output, _, _ = torch.lstm(given, (zeros, zeros), weights, True, 1, 0.0, learns, False, True)
        outputs.append(output[rows, mirrored] if suffix else output)
    return torch.cat(outputs, dim=-1)


class LaserModel(LaserPreTrainedModel):
    """
    The encoder: documents in, embeddings out.

    LSTM layers over the tokens, no language signal; the embedding P is the maximum (thesis 2.1.4) or the mean (paper
    001) over the last layer's states at the real tokens. There is no longest text.
    """

    # A checkpoint of the whole encoder-decoder opens here as well; its decoder is not wanted.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def __init__(self, config: LaserConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_dim, config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        bidirectional_layers = config.encoder_layers - config.unidirectional_layers
        self.layers = nn.ModuleList(
            nn.LSTM(
                config.d_model if index else config.embedding_dim,
                config.d_model // 2 if index < bidirectional_layers else config.d_model,
                batch_first=True,
                bidirectional=index < bidirectional_layers,
            )
            for index in range(config.encoder_layers)
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for tokens and 0 for padding, which may be anywhere; everything counts
                when it is missing.
            inputs_embeds: (batch, length, embedding_dim) in place of `input_ids`.
            output_hidden_states: Also return the token vectors and every layer's states, (batch, length, width),
                zeros at padding.

        Returns:
            `pooler_output` (batch, d_model): the embedding P. `last_hidden_state` (batch, 1, d_model), whose position
            0 is P, so that CLS pooling gives it too; the states of the last layer are `hidden_states[-1]`.

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, if the mask does not fit, or a
                text has no token.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of input_ids and inputs_embeds")
        given = input_ids if inputs_embeds is None else inputs_embeds
        if attention_mask is None:
            attention_mask = torch.ones(given.shape[:2], device=given.device)
        if attention_mask.shape != given.shape[:2]:
            found = tuple(attention_mask.shape)
            raise ValueError(f"attention_mask {found} must be (batch, length) of the input, {tuple(given.shape)}")
        padding = ~attention_mask.bool()
        lengths = (~padding).sum(dim=1)
        order = padding.to(torch.uint8).argsort(dim=1, stable=True)  # places of the real tokens first, in their order
        host_lengths = lengths.cpu()  # packing takes them there, for which an accelerator is waited for
        if not int(host_lengths.min()):
            empty = host_lengths.argmin().item()
            raise ValueError(f"Text {empty} of the batch has no token: its row of attention_mask is all 0")
        rows = torch.arange(len(order), device=order.device).unsqueeze(1)
        given = given[rows, order[:, : int(host_lengths.max())]]  # padded on the right
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        states = self._read(given, lengths, host_lengths, output_hidden_states)  # (batch, longest, width) each
        embedding = self._pool(states[-1], lengths)
        return BaseModelOutputWithPooling(
            last_hidden_state=embedding[:, None],
            pooler_output=embedding,
            hidden_states=tuple(_put_back(x, order, lengths) for x in states) if output_hidden_states else None,
        )

    def _read(
        self, given: torch.Tensor, lengths: torch.Tensor, host_lengths: torch.Tensor, all_layers: bool
    ) -> list[torch.Tensor]:
        """The last layer's states (batch, length, d_model) of ids or vectors padded on the right; before them, if
        asked for, the token vectors and the states of all other layers."""
        ids = given.dim() == 2
        padding = 1 - int(host_lengths.sum()) / (given.shape[0] * given.shape[1])
        if given.device.type == "cpu" and padding <= MOST_PADDING and all(map(_is_plain, self.layers)):
            places = torch.arange(given.shape[1], device=given.device)
            mirrored = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
            states = [self.embed_tokens(given) if ids else given]
            for layer in self.layers:
                states.append(_read_both_ways(layer, self.dropout(states[-1]), mirrored))
            return states if all_layers else states[-1:]
        packed = pack_padded_sequence(given, host_lengths, batch_first=True, enforce_sorted=False)
        packed = packed._replace(data=self.embed_tokens(packed.data)) if ids else packed
        states = [packed]
        for layer in self.layers:
            packed, _ = layer(packed._replace(data=self.dropout(packed.data)))
            states.append(packed)
        states = states if all_layers else states[-1:]
        return [pad_packed_sequence(state, batch_first=True)[0] for state in states]

    def _pool(self, states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """The embedding (batch, d_model) of states (batch, length, d_model) padded on the right."""
        padding = (torch.arange(states.shape[1], device=states.device) >= lengths[:, None]).unsqueeze(2)
        if self.config.pooling == "max":
            return states.masked_fill(padding, -torch.inf).max(dim=1).values
        total = states.masked_fill(padding, 0).sum(dim=1, dtype=torch.promote_types(states.dtype, torch.float32))
        return (total / lengths[:, None]).to(states.dtype)


def _is_plain(layer: nn.Module) -> bool:
    """Whether `_read_both_ways` may do what the layer does: a quantised one, or one with hooks (which load offloaded
    weights, say), has to be called."""
    return type(layer) is nn.LSTM and not (
        layer._forward_hooks or layer._forward_pre_hooks or hasattr(layer, "_hf_hook")
    )


def _put_back(states: torch.Tensor, order: torch.LongTensor, lengths: torch.LongTensor) -> torch.Tensor:
    """States (batch, longest, width) of the real tokens to the places (batch, length, width) they came from."""
    rows = torch.arange(len(order), device=order.device).unsqueeze(1)
    real = torch.arange(states.shape[1], device=order.device) < lengths[:, None]
    padded = states.new_zeros(*order.shape, states.shape[2])
    return padded.index_put((rows, order[:, : states.shape[1]]), states * real.unsqueeze(2))


@dataclass
class LaserState:
    """What the decoder remembers between two steps of generation: `hidden` and `cell`, (1, batch, width), after
    `length` tokens."""

    hidden: torch.Tensor
    cell: torch.Tensor
    length: int

    def get_seq_length(self) -> int:
        return self.length

    def reorder_cache(self, beams: torch.LongTensor) -> None:
        self.hidden, self.cell = self.hidden.index_select(1, beams), self.cell.index_select(1, beams)


class LaserDecoder(LaserPreTrainedModel):
    """One LSTM layer that reads `[token ; P ; language]` at every step and begins in linear maps of P."""

    def __init__(self, config: LaserConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_dim, config.pad_token_id)
        feature = config.language_signal == "feature"
        language_dim = config.language_embedding_dim if feature else config.embedding_dim
        self.embed_languages = nn.Embedding(len(config.languages), language_dim)
        self.initial_hidden = Linear(config.d_model, config.decoder_hidden_size)
        self.initial_cell = Linear(config.d_model, config.decoder_hidden_size)
        input_dim = config.embedding_dim + config.d_model + (language_dim if feature else 0)
        self.lstm = nn.LSTM(input_dim, config.decoder_hidden_size, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor,
        embedding: torch.Tensor,
        language_ids: torch.LongTensor,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        token_indices: torch.LongTensor | None = None,
        past_key_values: LaserState | None = None,
        use_cache: bool = False,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        """
        Args:
            input_ids: (batch, length) target tokens read so far, beginning with `<s>`, padded on the right; with
                `past_key_values`, those that came since.
            embedding: (batch, d_model), P.
            language_ids: (batch,) ids of the target languages.
            encoder_hidden_states, encoder_attention_mask: Not looked at: the decoder sees P alone.
            token_indices: (tokens,) ascending places in the flattened batch whose outputs are wanted.
            past_key_values: Where it stopped reading.
            use_cache: Also return where it stops.

        Returns:
            `last_hidden_state` (batch, length, decoder_hidden_size), or with `token_indices`
            (tokens, decoder_hidden_size); `past_key_values`.
        """
        tokens = self.embed_tokens(input_ids)  # (batch, length, embedding_dim)
        embedding = embedding.to(tokens.dtype)
        language = self.embed_languages(language_ids)
        constant = [embedding]
        if self.config.language_signal == "feature":
            constant.append(language)
        elif past_key_values is None:
            tokens = torch.cat([language[:, None], tokens[:, 1:]], dim=1)
        constant = torch.cat(constant, dim=-1)[:, None].expand(-1, tokens.shape[1], -1)
        if past_key_values is None:
            hidden, cell = (linear(embedding)[None] for linear in (self.initial_hidden, self.initial_cell))
            length = 0
        else:
            hidden, cell, length = past_key_values.hidden, past_key_values.cell, past_key_values.length
        inputs = torch.cat([self.dropout(tokens), constant], dim=-1)  # (batch, length, input_dim)
        states, (hidden, cell) = self.lstm(inputs, (hidden.to(inputs.dtype), cell.to(inputs.dtype)))
        if token_indices is not None:  # not before: in batches sorted by length, packing costs what it would save
            states = states.flatten(0, 1).index_select(0, token_indices)
        past = LaserState(hidden, cell, length + input_ids.shape[1]) if use_cache else None
        return BaseModelOutputWithPast(last_hidden_state=self.dropout(states), past_key_values=past)


class LaserForConditionalGeneration(EmbeddingSeq2Seq, LaserPreTrainedModel, GenerationMixin):
    """
    The encoder with its translation decoder: what is trained, and what turns an embedding back into text.

    Example:

    ```python
    >>> model = AutoModelForSeq2SeqLM.from_pretrained(path)
    >>> inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
    >>> tokenizer.batch_decode(model.generate(**inputs, target_language="en"), skip_special_tokens=True)
    >>> embedding = model.get_encoder()(**inputs).pooler_output  # (1, d_model)
    >>> model.generate(encoder_outputs=embedding, target_language="es")
    ```
    """

    _is_stateful = True  # an LSTM cannot go back, as assisted generation wants to

    def __init__(self, config: LaserConfig):
        super().__init__(config)
        self.model = LaserModel(config)
        self.decoder = LaserDecoder(config)
        self.lm_head = LaserOutputProjection(config.decoder_hidden_size, config.vocab_size, bias=False)
        if config.share_embeddings:
            self._tied_weights_keys = {
                "decoder.embed_tokens.weight": "model.embed_tokens.weight",
                "lm_head.weight": "model.embed_tokens.weight",
            }
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # there are no keys and values to keep, but a `LaserState`

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        encoder_outputs: BaseModelOutputWithPooling | torch.Tensor | None = None,
        past_key_values: LaserState | None = None,
        labels: torch.LongTensor | None = None,
        target_language: str | list[str] | torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """
        Args:
            input_ids, attention_mask: (batch, length), the source; not needed with `encoder_outputs`.
            decoder_input_ids: (batch, target_length) beginning with `<s>`, padded on the right; made from `labels`
                when missing.
            encoder_outputs: What `get_encoder()` returned, or embeddings (batch, d_model).
            past_key_values: What the decoder remembers; `decoder_input_ids` are then those that came since.
            labels: (batch, target_length) as the tokenizer makes them, `<s> tokens </s>`, padded with -100 or
                `pad_token_id`; the shift by one happens here, as in causal language models.
            target_language: Language of the target, see `language_ids`.
            num_items_in_batch: Target tokens to divide the loss by (gradient accumulation); this batch's by default.

        Returns:
            `logits` (batch, target_length, vocab_size), and with `labels` the mean cross-entropy per target token.

        Raises:
            ValueError: If neither `labels` nor `decoder_input_ids` are given, or the target language is missing or
                unknown.
        """
        encoder_outputs, _ = self._encoded(input_ids, attention_mask, encoder_outputs, kwargs)
        if labels is not None:
            use_cache = False
        decoder_input_ids = self._target_ids(decoder_input_ids, labels)
        embedding = encoder_outputs.pooler_output
        outputs = self.decoder(
            input_ids=decoder_input_ids,
            embedding=embedding,
            language_ids=self.language_ids(target_language, embedding.shape[0]),
            past_key_values=past_key_values,
            use_cache=self.config.use_cache if use_cache is None else use_cache,
            return_dict=True,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        return Seq2SeqLMOutput(
            loss=None if labels is None else self._loss(logits, labels, num_items_in_batch),
            logits=logits,
            past_key_values=outputs.past_key_values,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.get("hidden_states"),
        )


LaserConfig.register_for_auto_class()
LaserModel.register_for_auto_class("AutoModel")
LaserForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")

__all__ = ["LaserDecoder", "LaserForConditionalGeneration", "LaserModel", "LaserPreTrainedModel"]
