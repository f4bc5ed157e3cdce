# SPDX-License-Identifier: Apache-2.0

"""T-MDE's bottleneck and decoder on a pretrained encoder of the Hub: XLM-R, BERT, ModernBERT, T5's encoder and others.

Source: thesis 000, chapter 4, for all but the encoder; `configuration_adapted.py` says what an encoder may be.
"""

import inspect
from collections import OrderedDict

import torch
from torch import nn
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_MAPPING,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.activations import ACT2FN
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    BaseModelOutputWithPooling,
)
from transformers.utils import can_return_tuple, is_tracing
from transformers.utils.output_capturing import capture_outputs

from .common import (
    EmbedderPreTrainedModel,
    EmbeddingSeq2Seq,
    OutputProjection,
    SelfAttention,
    TmdeError,
    TmdeSinusoidalPositions,
    bag_direction,
    check_inputs,
    check_position_ids,
    first_places,
    pool_states,
)
from .configuration_adapted import AdaptedConfig

DEFAULT_POSITIONS = 2048  # for encoders without a limit


def encoder_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The model class for an encoder config. For encoder-decoders like T5, the class of the encoder alone.

    Raises:
        ValueError: If transformers has no stand-alone encoder for this config.
    """
    for mapping in (MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING):
        if type(config) in mapping:
            found = mapping[type(config)]
            found = found[0] if isinstance(found, tuple) else found
            if config.is_encoder_decoder and mapping is MODEL_MAPPING:
                break
            return found
    raise TmdeError(
        f"encoder_config: transformers has no encoder by itself for models of type {config.model_type!r}"
    )


def pooler_options(model_class: type[PreTrainedModel]) -> dict[str, bool]:
    """Arguments that leave out the pooling layer, which the embedding does not use."""
    takes = inspect.signature(model_class.__init__).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


def longest_input(encoder: PreTrainedModel) -> int | None:
    """Longest input in tokens that the encoder has positions for, or None if it has no limit."""
    limit = getattr(encoder.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:  # T5 has none, XLNet says -1
        return None
    for name, module in encoder.named_modules():
        # RoBERTa and similar models count positions from padding_idx + 1, so 512 of 514 are usable.
        if (
            name.endswith("position_embeddings")
            and getattr(module, "padding_idx", None) is not None
        ):
            return limit - module.padding_idx - 1
    return limit


def position_rows(encoder: PreTrainedModel) -> int | None:
    """Return the size of the encoder's table of positions, or None without one (T5, ModernBERT)."""
    for name, module in encoder.named_modules():
        is_position_table = name.rpartition(".")[2] == "position_embeddings"
        if is_position_table and isinstance(module, nn.Embedding):
            return module.num_embeddings
    return None


class AdaptedPreTrainedModel(EmbedderPreTrainedModel):
    config: AdaptedConfig
    _auto_map = {
        "AutoConfig": "configuration_adapted.AdaptedConfig",
        "AutoModel": "modeling_adapted.AdaptedModel",
        "AutoModelForSeq2SeqLM": "modeling_adapted.AdaptedForConditionalGeneration",
    }
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["AdaptedDecoderLayer"]  # and the encoder's

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """As in transformers, and updates the config of the encoder."""
        table = super().resize_token_embeddings(*args, **kwargs)
        self.config.vocab_size = table.num_embeddings
        return table


class AdaptedModel(AdaptedPreTrainedModel):
    """
    The encoder with its bottleneck: documents in, embeddings out.

    The embedding P is the encoder's first output, or the mean of its outputs over the tokens of the text
    (`config.pooling`) and of the prompt (`config.prompt`), without projection, dropout or L2 normalization. Before
    training, it equals the vector that `DocumentEmbedder` gives for the plain encoder with that pooling and prompt.

    Example:

    ```python
    >>> model = AutoModel.from_pretrained(path)
    >>> inputs = tokenizer(["Das Haus ist alt.", "The house is old."], return_tensors="pt", padding=True)
    >>> model(**inputs).pooler_output  # (2, hidden_size)
    ```
    """

    # A checkpoint of the encoder-decoder opens here too, without its decoder.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def __init__(self, config: AdaptedConfig):
        super().__init__(config)
        model_class = encoder_class(config.encoder_config)
        self.encoder = model_class(config.encoder_config, **pooler_options(model_class))
        limit = longest_input(self.encoder)
        if limit is not None:
            limit -= len(config.prompt_ids or ())
        if config.max_position_embeddings is None:
            config.max_position_embeddings = limit or DEFAULT_POSITIONS
        elif limit is not None and config.max_position_embeddings > limit:
            raise TmdeError(
                f"max_position_embeddings={config.max_position_embeddings} is more than the {limit} tokens for which "
                f"the encoder ({config.encoder_config.model_type!r}) has positions beside the prompt"
            )
        if config.bag_residual:
            self.bag_tokens = nn.Embedding(config.vocab_size, config.d_model).requires_grad_(False)
            self.token_weights = nn.Parameter(
                torch.zeros(config.vocab_size), requires_grad=False
            )  # logarithms
        takes = inspect.signature(self.encoder.forward).parameters
        self.takes_token_types = "token_type_ids" in takes
        self.position_rows = position_rows(self.encoder)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_hidden_states: bool | list[int] | None = None,
        output_attentions: bool | None = None,
        pooled_only: bool = False,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: (batch, length), from the encoder's tokenizer.
            attention_mask: (batch, length), 1 for tokens and 0 for padding, on either side; everything counts when it
                is missing.
            token_type_ids: (batch, length); zeros by default, and ignored by encoders without token types.
            inputs_embeds: (batch, length, width) instead of `input_ids`, if the encoder accepts them.
            output_hidden_states, output_attentions: Also return those of the encoder. With a list of indices, the
                hidden states that it leaves out are None. Without a prompt or padding on the left, they
                are the encoder's own tensors, so that the gradient of P reaches them.
            kwargs: Other arguments of the encoder; `position_ids` only without a prompt.

        Returns:
            `pooler_output` (batch, d_model): the embedding P. `last_hidden_state`, whose position 0 is P, so that CLS
            pooling gives it too: (batch, length, d_model) with `pooling="cls"`, the encoder's outputs behind P; with
            `"mean"` (batch, 1, d_model), and the encoder's outputs are `hidden_states[-1]`. Behind padding, P is
            at the text's first place too. `attentions` are those of texts that begin at position 0, with the
            prompt's tokens, which all other outputs leave out.

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, or the mask does not fit; if
                `inputs_embeds` are given with `bag_residual`; if `position_ids` are given with a
                prompt, or the encoder has no vector for one of them. On an accelerator, the latter is
                checked in evaluation mode only.
        """
        tokens = check_inputs(input_ids, inputs_embeds, attention_mask)
        if kwargs.get("position_ids") is not None:
            self._check_position_ids(kwargs["position_ids"])
        if self.config.bag_residual and inputs_embeds is not None:
            raise TmdeError(
                "inputs_embeds: expected input_ids with bag_residual, whose bag looks up vectors by them"
            )
        has_mask = attention_mask is not None
        if not has_mask:
            attention_mask = torch.ones(tokens.shape[:2], dtype=torch.long, device=tokens.device)
        kwargs.pop(
            "target_language", None
        )  # `generate` passes the decoder's arguments to the encoder as well
        mask, given = attention_mask, kwargs | {"attention_mask": attention_mask}
        given["input_ids" if inputs_embeds is None else "inputs_embeds"] = tokens
        if token_type_ids is not None and self.takes_token_types:
            given["token_type_ids"] = token_type_ids
        # Encoders count positions from the first column: move padding on the left behind the text, and back later.
        firsts = first_places(attention_mask)
        given = {name: _turn(value, firsts, tokens.shape[:2]) for name, value in given.items()}
        given = self._with_prompt(given)
        # Without these, the encoder would follow its own config.
        wanted = {
            "output_hidden_states": output_hidden_states,
            "output_attentions": output_attentions,
        }
        given |= {
            name: getattr(self.config, name) if value is None else value
            for name, value in wanted.items()
        }
        outputs = self.encoder(return_dict=True, **given)
        read = outputs.last_hidden_state  # (batch, prompt + length, d_model)
        embedding = pool_states(
            read, given["attention_mask"], self.config.pooling
        )  # (batch, d_model)
        if self.config.bag_residual and not self.training:
            bag = bag_direction(
                self.config, tokens, mask, self.token_weights, self.bag_tokens(tokens)
            )
            embedding = embedding + self.config.bag_residual * bag
        output = embedding[:, None]
        if self.config.pooling == "cls":
            states = self._at_input_places(read, firsts, tokens.shape[:2])
            output = torch.cat([output, states[:, 1:]], dim=1)
        hidden_states = outputs.get("hidden_states")
        if hidden_states and self._moves_tokens(firsts if has_mask else None):
            hidden_states = tuple(
                self._at_input_places(state, firsts, tokens.shape[:2]) for state in hidden_states
            )
        return BaseModelOutputWithPooling(
            last_hidden_state=output,
            pooler_output=embedding,
            hidden_states=hidden_states,
            attentions=outputs.get("attentions"),
        )

    def _check_position_ids(self, position_ids: torch.LongTensor) -> None:
        """Check the `position_ids` that a caller gave.

        Raises:
            ValueError: If the model has a prompt, or the encoder has no vector for one of them.
        """
        if self.config.prompt_ids:
            raise TmdeError(
                f"position_ids: found {tuple(position_ids.shape)}, expected none, because the prompt of "
                "this model takes positions of its own"
            )
        if self.position_rows is not None:
            check_position_ids(position_ids, self.position_rows, self.training)

    def _moves_tokens(self, firsts: torch.LongTensor | None) -> bool:
        """Return whether the encoder reads tokens at other places than those of the input.

        Args:
            firsts: (batch,) places of the first tokens; None without a mask.
        """
        if self.config.prompt_ids:
            return True
        if firsts is None:
            return False
        if is_tracing(firsts):
            return True  # A graph cannot branch on the mask, and turning by 0 keeps the values.
        return bool(firsts.any())

    def _at_input_places(
        self, states: torch.Tensor | None, firsts: torch.LongTensor, shape: tuple[int, int]
    ) -> torch.Tensor | None:
        """Move states of the encoder, (batch, prompt + length, d_model), to the places of the input,
        (batch, length, d_model). Return None for None, a state that was not asked for."""
        if states is None:
            return None
        return _turn(self._without_prompt(states), -firsts, shape)

    def _with_prompt(self, given: dict[str, object]) -> dict[str, object]:
        """The encoder's inputs, each (batch, length, ...), with those of the prompt behind `<s>`."""
        if not self.config.prompt_ids:
            return given
        mask = given["attention_mask"]
        ids = torch.tensor(self.config.prompt_ids, device=mask.device).expand(
            len(mask), -1
        )  # (batch, prompt)
        prompt = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "token_type_ids": torch.zeros_like(ids),
        }
        if "inputs_embeds" in given:
            prompt["inputs_embeds"] = self.get_input_embeddings()(ids)
        start, added = int(self.config.reads_bos), {}
        for name in prompt.keys() & given.keys():
            value = given[name]
            added[name] = torch.cat(
                [value[:, :start], prompt[name].to(value.dtype), value[:, start:]], dim=1
            )
        return given | added

    def _without_prompt(self, states: torch.Tensor) -> torch.Tensor:
        """(batch, prompt + length, d_model) -> (batch, length, d_model)"""
        start, number = int(self.config.reads_bos), len(self.config.prompt_ids or ())
        return (
            torch.cat([states[:, :start], states[:, start + number :]], dim=1) if number else states
        )


def _turn(value: object, by: torch.LongTensor, shape: tuple[int, int]) -> object:
    """Rotates each row of a tensor (batch, length, ...) or (1, length, ...) to the left by `by` (batch,) positions.
    Returns anything else unchanged."""
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.shape[1] != shape[1]:
        return value
    if value.shape[0] not in (shape[0], 1):
        return value
    order = torch.arange(shape[1], device=by.device) + by[:, None]  # (batch, length)
    order = order + shape[1] * (
        (order < 0).long() - (order >= shape[1]).long()
    )  # ONNX has no remainder here
    rows = torch.arange(shape[0], device=by.device)[:, None]
    return value.expand(shape[0], *value.shape[1:])[rows, order]


class AdaptedDecoderLayer(GradientCheckpointingLayer):
    """Pre-norm layer of the decoder of T-MDE's `first`: self-attention, the slot, feed-forward."""

    def __init__(self, config: AdaptedConfig, layer_idx: int):
        super().__init__()
        self.self_attn = SelfAttention(
            config, config.decoder_attention_heads, is_causal=True, layer_idx=layer_idx
        )
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        # A softmax over one key is 1, so attention over the slot is a linear map of it.
        slot_dim = config.d_model + config.language_embedding_dim
        values, output = (
            nn.Linear(slot_dim, config.d_model),
            nn.Linear(config.d_model, config.d_model),
        )
        self.slot_attn = nn.Sequential(OrderedDict(v_proj=values, out_proj=output))
        self.fc1 = nn.Linear(config.d_model, config.decoder_ffn_dim)
        self.fc2 = nn.Linear(config.decoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)
        self.activation_fn = ACT2FN[config.activation_function]
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        slot: torch.Tensor,
        cache: DynamicCache | None = None,
    ) -> torch.Tensor:
        """hidden_states (batch, length, d_model), slot (batch, slot_dim) -> (batch, length, d_model)"""
        attended, _ = self.self_attn(
            self.self_attn_layer_norm(hidden_states), attention_mask, cache
        )
        hidden_states = hidden_states + self.dropout(attended)
        hidden_states = hidden_states + self.dropout(self.slot_attn(slot)).unsqueeze(1)
        expanded = self.activation_fn(self.fc1(self.final_layer_norm(hidden_states)))
        return hidden_states + self.dropout(self.fc2(expanded))


class AdaptedDecoder(AdaptedPreTrainedModel):
    """The decoder of T-MDE's `first`: it sees only the embedding and the target language."""

    _can_record_outputs = {"hidden_states": AdaptedDecoderLayer, "attentions": SelfAttention}

    def __init__(self, config: AdaptedConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = TmdeSinusoidalPositions(
            config.max_position_embeddings, config.d_model
        )
        self.embed_languages = nn.Embedding(len(config.languages), config.language_embedding_dim)
        self.embed_scale = config.decoder_embedding_scale or config.d_model**0.5
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            AdaptedDecoderLayer(config, index) for index in range(config.decoder_layers)
        )
        self.layer_norm = nn.LayerNorm(config.d_model)
        self.gradient_checkpointing = False
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        embedding: torch.Tensor | None = None,
        language_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool = False,
        **kwargs,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """
        Args:
            input_ids: (batch, length) target tokens read so far, beginning with `<s>`.
            embedding: (batch, d_model), P.
            language_ids: (batch,) ids of the target languages.
            attention_mask: (batch, past + length) of the target; right padding needs none.
            inputs_embeds: (batch, length, d_model) in place of `input_ids`, before scaling and positions.

        Returns:
            `last_hidden_state` (batch, length, d_model), ready for the output projection.
        """
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        past_length = 0 if past_key_values is None else past_key_values.get_seq_length()
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        positions = self.embed_positions(inputs_embeds.shape[1], past_length).to(
            inputs_embeds.dtype
        )
        hidden_states = self.dropout(
            inputs_embeds * self.embed_scale + positions
        )  # (batch, length, d_model)
        cache = None if past_key_values is None else past_key_values.self_attention_cache
        mask = create_causal_mask(self.config, hidden_states, attention_mask, past_key_values=cache)
        slot = torch.cat(
            [embedding, self.embed_languages(language_ids).to(embedding.dtype)], dim=-1
        )
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask, slot, cache)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.layer_norm(hidden_states), past_key_values=past_key_values
        )


class AdaptedForConditionalGeneration(EmbeddingSeq2Seq, AdaptedPreTrainedModel, GenerationMixin):
    """
    The encoder with T-MDE's translation decoder, for training and for decoding an embedding back into text.

    The decoder is that of T-MDE's `first`: it sees one slot, P and the target language.

    Example:

    ```python
    >>> model = AutoModelForSeq2SeqLM.from_pretrained(path)
    >>> inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
    >>> tokenizer.batch_decode(model.generate(**inputs, target_language="en"), skip_special_tokens=True)
    >>> embedding = model.get_encoder()(**inputs).pooler_output  # (1, d_model)
    >>> model.generate(encoder_outputs=embedding, target_language="es")
    ```
    """

    def __init__(self, config: AdaptedConfig):
        super().__init__(config)
        self.model = AdaptedModel(config)
        table = self.model.get_input_embeddings()
        fits = table.embedding_dim == config.d_model
        if config.share_embeddings and not fits:
            raise TmdeError(
                f"share_embeddings=True: the encoder's table has {table.embedding_dim} columns and the decoder "
                f"{config.d_model}; leave it out"
            )
        config.share_embeddings = config.tie_word_embeddings = (
            fits and config.share_embeddings is not False
        )
        self.decoder = AdaptedDecoder(config)
        self.lm_head = OutputProjection(config.d_model, config.vocab_size, bias=False)
        if config.share_embeddings:
            name = next(name for name, module in self.named_modules() if module is table)
            tables = ("decoder.embed_tokens.weight", "lm_head.weight")
            self._tied_weights_keys = dict.fromkeys(tables, f"{name}.weight")
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.model.set_input_embeddings(value)

    @torch.no_grad()
    def take_encoder(self, encoder: PreTrainedModel) -> None:
        """Loads the weights of a pretrained encoder with the same config.

        If the decoder shares the encoder's embeddings, whose norms vary between models, its input and output are
        scaled as T-MDE initializes them: elements of size 1 at the first layer, and logits of size 1.
        """
        self.model.encoder.load_state_dict(encoder.state_dict())
        if self.config.share_embeddings:
            size = float(self.get_input_embeddings().weight.float().square().mean().sqrt())
            self.config.decoder_embedding_scale = self.decoder.embed_scale = 1 / size
            self.decoder.layer_norm.weight.fill_(1 / (size * self.config.d_model**0.5))
