# SPDX-License-Identifier: Apache-2.0

"""T-MDE's bottleneck and decoder on a pretrained encoder of the Hub: XLM-R, BERT, ModernBERT, T5.

Source: Li 2021, chapter 4, for all but the encoder; `configuration_adapted.py` says what an
encoder may be.
"""

import inspect
from typing import Any, cast

import torch
from torch import nn
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_MAPPING,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple, is_tracing

from .bags import bag_direction
from .common import TmdeError, TmdeOutputProjection, first_places, pool_states, text_mask
from .configuration_adapted import AdaptedConfig
from .inspection import longest_input
from .seq2seq import EmbeddingSeq2Seq
from .transformer import (
    TmdeDecoder,
    TransformerPreTrainedModel,
    check_packable_inputs,
    finite_mask,
    masked_scores,
    positions_of_tokens,
)

DEFAULT_POSITIONS = 2048  # for encoders without a limit


# ---- What the encoder is


def encoder_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """Return the model class for the configuration of an encoder.

    For an encoder-decoder such as T5, this is the class of the encoder alone.

    Raises:
        TmdeError: transformers has no stand-alone encoder for this configuration.
    """
    kind = type(config)
    if kind in MODEL_FOR_TEXT_ENCODING_MAPPING:
        model_class = MODEL_FOR_TEXT_ENCODING_MAPPING[kind]
    elif kind in MODEL_MAPPING and not config.is_encoder_decoder:
        model_class = MODEL_MAPPING[kind]
    else:
        raise TmdeError(
            "encoder_config: transformers has no separate encoder for models of type "
            f"{config.model_type!r}"
        )
    if isinstance(model_class, tuple):
        return cast(type[PreTrainedModel], model_class[0])
    return cast(type[PreTrainedModel], model_class)


def pooler_options(model_class: type[PreTrainedModel]) -> dict[str, bool]:
    """Return the arguments that leave out the pooling layer, which the embedding does not use."""
    parameters = inspect.signature(model_class.__init__).parameters
    if "add_pooling_layer" in parameters:
        return {"add_pooling_layer": False}
    return {}


def position_rows(encoder: PreTrainedModel) -> int | None:
    """Return the size of the encoder's table of positions, or None without one (T5, ModernBERT)."""
    for name, module in encoder.named_modules():
        is_position_table = name.rpartition(".")[2] == "position_embeddings"
        if is_position_table and isinstance(module, nn.Embedding):
            return module.num_embeddings
    return None


# ---- The last layer, for the first place alone


class _KeysAndValues:
    """The keys and values of a layer for all places, in the form of a cache.

    Args:
        attention: The attention of the layer, as in BERT.
        states: What the layer reads, (batch, length, d_model).
    """

    def __init__(self, attention: Any, states: torch.Tensor):
        self.attention = attention
        self.states = states

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of all places, (batch, heads, length, width).

        Args:
            key: That of the first place.
            value: That of the first place.
            layer: The number of the layer.
        """
        shape = (*self.states.shape[:2], -1, self.attention.attention_head_size)
        keys = self.attention.key(self.states).view(shape)
        values = self.attention.value(self.states).view(shape)
        return keys.transpose(1, 2), values.transpose(1, 2)


def _read_first_place(
    layer: Any, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Let a layer of BERT compute its output for the first place alone, if it is asked to."""
    if not options.pop("first_place_only", False):
        return None
    states, mask, *more_arguments = arguments
    if mask is not None:
        mask = mask[:, :, :1]  # (batch, 1 or heads, 1, length)
    options["past_key_values"] = _KeysAndValues(layer.attention.self, states)
    return (states[:, :1], mask, *more_arguments), options


def _last_layer_like_bert(encoder: PreTrainedModel) -> nn.Module | None:
    """Return the last layer of an encoder with the modules of BERT; None for any other."""
    if encoder.config.model_type not in ("bert", "roberta", "xlm-roberta", "camembert"):
        return None
    layers = cast(nn.ModuleList, encoder.get_submodule("encoder.layer"))
    return layers[-1]


# ---- Encoder


class EmbeddingProjection(nn.Linear):
    """A matrix that embeddings are multiplied by. A new one changes nothing."""


class AdaptedPreTrainedModel(TransformerPreTrainedModel):
    """Base of the models on an encoder of the Hub."""

    config: AdaptedConfig
    _auto_map = {
        "AutoConfig": "configuration_adapted.AdaptedConfig",
        "AutoModel": "modeling_adapted.AdaptedModel",
        "AutoModelForSeq2SeqLM": "modeling_adapted.AdaptedForConditionalGeneration",
    }

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, EmbeddingProjection):
            init.copy_(module.weight, torch.eye(module.in_features))
        else:
            super()._init_weights(module)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize as transformers does, and update the configuration of the encoder."""
        table = super().resize_token_embeddings(*args, **kwargs)
        self.config.vocab_size = table.num_embeddings
        return table


class AdaptedModel(AdaptedPreTrainedModel):
    """A pretrained encoder with a pooling: documents in, embeddings out.

    The embedding P is the encoder's first output, or the mean of its outputs over text and prompt
    (`config.pooling`). `config.projection` multiplies it by a matrix, and `config.normalize` scales
    it to length 1. Without these two, the vectors of an untrained model match those of
    `DocumentEmbedder` with the original encoder and the same pooling and prompt.

    Example:
        ```python
        from transformers import AutoModel, AutoTokenizer

        import modeling_tmde

        model = AutoModel.from_pretrained("runs/adapted")
        tokenizer = AutoTokenizer.from_pretrained("runs/adapted")
        texts = ["Das Haus ist alt.", "The house is old."]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        embeddings = model(**inputs).pooler_output  # (2, hidden_size)
        ```
    """

    # A checkpoint of the encoder-decoder opens here too, without its decoder.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def __init__(self, config: AdaptedConfig):
        super().__init__(config)
        encoder_config = config.settled_encoder_config
        model_class = encoder_class(encoder_config)
        self.encoder = model_class(encoder_config, **pooler_options(model_class))
        self._settle_longest_input(config)
        if config.bag_residual:
            self.bag_tokens = nn.Embedding(config.vocab_size, config.d_model).requires_grad_(False)
            log_weights = torch.zeros(config.vocab_size)
            self.token_weights = nn.Parameter(log_weights, requires_grad=False)
        if config.projection:
            self.projection = EmbeddingProjection(config.d_model, config.d_model, bias=False)
            self.projection.requires_grad_(False)
        encoder_parameters = inspect.signature(self.encoder.forward).parameters
        self.takes_token_types = "token_type_ids" in encoder_parameters
        self.position_rows = position_rows(self.encoder)
        last_layer = _last_layer_like_bert(self.encoder)
        if last_layer is not None:
            last_layer.register_forward_pre_hook(_read_first_place, with_kwargs=True)
        self.post_init()

    def _settle_longest_input(self, config: AdaptedConfig) -> None:
        """Set `max_position_embeddings` if the configuration leaves it open, or check it.

        Raises:
            TmdeError: The encoder has fewer positions beside the prompt.
        """
        limit = longest_input(self.encoder)
        encoder_type = config.settled_encoder_config.model_type
        if limit is not None and config.prompt_ids:
            limit -= len(config.prompt_ids)
        if config.max_position_embeddings is None:
            config.max_position_embeddings = limit or DEFAULT_POSITIONS
        elif limit is not None and config.max_position_embeddings > limit:
            raise TmdeError(
                f"max_position_embeddings={config.max_position_embeddings} exceeds the "
                f"{limit} positions that the encoder ({encoder_type!r}) has left after the "
                "prompt"
            )

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the encoder's table of tokens."""
        return cast(nn.Embedding, self.encoder.get_input_embeddings())

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the encoder's table of tokens."""
        self.encoder.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        output_hidden_states: bool | list[int] | None = None,
        output_attentions: bool | None = None,
        pooled_only: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embed texts.

        Args:
            input_ids: (batch, length), from the encoder's tokenizer.
            attention_mask: (batch, length), 1 for tokens and 0 for padding, on either side.
                Default: all ones. For rows that contain several texts, see [`TmdeModel`]; not
                possible with a prompt.
            inputs_embeds: (batch, length, width) instead of `input_ids`, if the encoder accepts
                them.
            token_type_ids: (batch, length). Default: zeros. Ignored by encoders without token
                types.
            output_hidden_states: Also return the encoder's hidden states. A list of indices returns
                only these and None for the others. Without a prompt or left padding, the gradient
                of P reaches them.
            output_attentions: Also return the encoder's attentions.
            pooled_only: Return only P as `last_hidden_state`, (batch, 1, d_model). With
                `pooling="cls"`, the last layer of BERT, RoBERTa and XLM-R is computed for P alone.
            kwargs: More arguments for the encoder; `position_ids` only without a prompt.

        Returns:
            `pooler_output` (batch, d_model), the embedding P. `last_hidden_state` contains P at
            position 0 for CLS pooling, even if padding comes first: with `pooling="cls"` it is
            (batch, length, d_model), P followed by the encoder's outputs; with `"mean"` it is
            (batch, 1, d_model), and the encoder's outputs are `hidden_states[-1]`. `attentions`
            cover texts that start at position 0 and include the prompt's tokens, which all other
            outputs omit.

        Raises:
            TmdeError: Not exactly one of `input_ids` and `inputs_embeds` is given, the mask does
                not match, `inputs_embeds` are given with `bag_residual`, `position_ids` are given
                with a prompt, or the encoder has no vector for a position (on an accelerator,
                checked in evaluation mode only).
        """
        position_ids = kwargs.get("position_ids")
        tokens = check_packable_inputs(
            input_ids, inputs_embeds, attention_mask, position_ids, self.config
        )
        attention_mask = self._encoder_mask(attention_mask)
        batch_size, length = tokens.shape[:2]
        shape = (batch_size, length)
        self._check_options(tokens, inputs_embeds, position_ids, attention_mask)
        has_mask = attention_mask is not None
        if attention_mask is None:
            attention_mask = torch.ones(shape, dtype=torch.long, device=tokens.device)
        first_columns = self._first_columns(attention_mask)
        encoder_inputs = kwargs | {"attention_mask": attention_mask}
        # `generate` passes the arguments of the decoder to the encoder as well.
        encoder_inputs.pop("target_language", None)
        encoder_inputs["input_ids" if inputs_embeds is None else "inputs_embeds"] = tokens
        if token_type_ids is not None and self.takes_token_types:
            encoder_inputs["token_type_ids"] = token_type_ids
        encoder_inputs = self._at_encoder_places(encoder_inputs, first_columns, shape)
        # Without these, the encoder would follow its own configuration.
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        returns_states = bool(output_hidden_states or output_attentions)
        encoder_inputs |= self._first_place_option(returns_states or not pooled_only)
        outputs = self.encoder(
            **encoder_inputs,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
            return_dict=True,
        )
        states = outputs.last_hidden_state  # (batch, prompt + length, d_model)
        pooled_mask = text_mask(encoder_inputs["attention_mask"])  # (batch, prompt + length)
        embedding = pool_states(states, pooled_mask, self.config.pooling)
        if self.config.bag_residual and not self.training:
            embedding = embedding + self._bag(tokens, text_mask(attention_mask))  # (batch, d_model)
        if self.config.projection:
            embedding = self.projection(embedding)
        if self.config.normalize:
            embedding = nn.functional.normalize(embedding, dim=-1)
        last_hidden_state = embedding[:, None]  # (batch, 1, d_model)
        if self.config.pooling == "cls" and not pooled_only:
            states = self._at_input_places(states, first_columns, shape)
            last_hidden_state = torch.cat([last_hidden_state, states[:, 1:]], dim=1)
        hidden_states = outputs.get("hidden_states")
        if hidden_states and self._moves_tokens(first_columns if has_mask else None):
            hidden_states = self._hidden_states_at_input_places(hidden_states, first_columns, shape)
        return BaseModelOutputWithPooling(
            last_hidden_state=last_hidden_state,
            pooler_output=embedding,
            hidden_states=hidden_states,
            attentions=outputs.get("attentions"),
        )

    def _first_place_option(self, needs_states: bool) -> dict[str, bool]:
        """Return the argument with which the last layer computes the first place alone, if it can.

        Args:
            needs_states: Whether more of the encoder's outputs are needed.
        """
        layer = _last_layer_like_bert(self.encoder)
        if layer is None or needs_states or self.config.pooling != "cls":
            return {}
        if self.encoder.config._attn_implementation not in ("sdpa", "eager"):
            return {}
        if self.training and layer.gradient_checkpointing:
            return {}  # transformers leaves out caches then.
        return {"first_place_only": True}

    def _encoder_mask(self, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
        """Return a mask as the encoder reads it.

        Eager attention in transformers adds a mask of pairs to the scores, even one of booleans.
        """
        is_added = self.encoder.config._attn_implementation == "eager"
        if attention_mask is None or attention_mask.dim() != 4 or not is_added:
            return finite_mask(attention_mask)
        scores = torch.zeros(attention_mask.shape, dtype=self.dtype, device=attention_mask.device)
        return finite_mask(masked_scores(scores, attention_mask))

    def _check_options(
        self,
        tokens: torch.Tensor,
        inputs_embeds: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
    ) -> None:
        """Check the arguments that not every configuration takes.

        Raises:
            TmdeError: There are `position_ids` or a mask of pairs though the model has a prompt;
                the positions do not fit, or the encoder has no vector for one of them; or there
                are `inputs_embeds` with `bag_residual`.
        """
        if attention_mask is not None and attention_mask.dim() == 4 and self.config.prompt_ids:
            raise TmdeError(
                f"attention_mask: found {tuple(attention_mask.shape)}, expected (batch, "
                "length), because this model puts its prompt before every text"
            )
        if position_ids is not None and self.config.prompt_ids:
            raise TmdeError(
                f"position_ids: found {tuple(position_ids.shape)}, expected none, because "
                "this model's prompt takes the first positions"
            )
        if position_ids is not None:
            positions_of_tokens(position_ids, tokens, self.position_rows, self.training)
        if self.config.bag_residual and inputs_embeds is not None:
            raise TmdeError(
                "inputs_embeds: expected input_ids, because bag_residual looks up token vectors"
            )

    def _bag(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the second summand of P, (batch, d_model)."""
        vectors = self.bag_tokens(input_ids)  # (batch, length, d_model)
        direction = bag_direction(
            self.config, input_ids, attention_mask, self.token_weights, vectors
        )
        return self.config.bag_residual * direction

    # ---- Where the encoder reads the tokens: padding behind the text, the prompt behind `<s>`

    @staticmethod
    def _first_columns(attention_mask: torch.Tensor) -> torch.Tensor:
        """Return by how many places the encoder reads each row earlier, (batch,).

        Padding before a text moves behind it. Rows of several texts stay as they are.
        """
        if attention_mask.dim() == 4:
            num_rows = len(attention_mask)
            return torch.zeros(num_rows, dtype=torch.long, device=attention_mask.device)
        return first_places(attention_mask)

    def _at_encoder_places(
        self, inputs: dict[str, Any], first_columns: torch.Tensor, shape: tuple[int, int]
    ) -> dict[str, Any]:
        """Move inputs to the places at which the encoder reads them.

        Encoders count positions from the first column, so padding on the left goes behind the text.

        Args:
            inputs: The encoder's arguments, of which some are (batch, length, ...).
            first_columns: (batch,) places of the first tokens.
            shape: (batch, length).

        Returns:
            The arguments, those (batch, prompt + length, ...).
        """
        turned = {name: _turn(value, first_columns, shape) for name, value in inputs.items()}
        return self._with_prompt(turned)

    def _with_prompt(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Insert the prompt behind `<s>` in the encoder's inputs, each (batch, length, ...)."""
        if not self.config.prompt_ids:
            return inputs
        mask = inputs["attention_mask"]
        prompt_ids = torch.tensor(self.config.prompt_ids, device=mask.device)
        prompt_ids = prompt_ids.expand(len(mask), -1)  # (batch, prompt)
        prompt = {
            "input_ids": prompt_ids,
            "attention_mask": torch.ones_like(prompt_ids),
            "token_type_ids": torch.zeros_like(prompt_ids),
        }
        if "inputs_embeds" in inputs:
            prompt["inputs_embeds"] = self.get_input_embeddings()(prompt_ids)
        start = self._prompt_start
        inputs = dict(inputs)
        for name in prompt.keys() & inputs.keys():
            value = inputs[name]
            inserted = prompt[name].to(value.dtype)
            inputs[name] = torch.cat([value[:, :start], inserted, value[:, start:]], dim=1)
        return inputs

    def _without_prompt(self, states: torch.Tensor) -> torch.Tensor:
        """Cut the prompt out of states: (batch, prompt + length, ...) to (batch, length, ...)."""
        if not self.config.prompt_ids:
            return states
        start = self._prompt_start
        end = start + len(self.config.prompt_ids)
        return torch.cat([states[:, :start], states[:, end:]], dim=1)

    @property
    def _prompt_start(self) -> int:
        """The place of the prompt: behind `<s>`, if texts begin with it."""
        return 1 if self.config.reads_bos else 0

    def _moves_tokens(self, first_columns: torch.Tensor | None) -> bool:
        """Return whether the encoder reads tokens at other places than those of the input.

        Args:
            first_columns: (batch,) places of the first tokens; None without a mask.
        """
        if self.config.prompt_ids:
            return True
        if first_columns is None:
            return False
        if is_tracing(first_columns):
            return True  # A graph cannot branch on the mask, and turning by 0 keeps the values.
        return bool(first_columns.any())

    def _at_input_places(
        self,
        states: torch.Tensor,
        first_columns: torch.Tensor,
        shape: tuple[int, int],
    ) -> torch.Tensor:
        """Move states of the encoder to the places of the input.

        Args:
            states: (batch, prompt + length, d_model).
            first_columns: (batch,) places of the first tokens of the input.
            shape: (batch, length).

        Returns:
            (batch, length, d_model).
        """
        return _turn(self._without_prompt(states), -first_columns, shape)

    def _hidden_states_at_input_places(
        self,
        hidden_states: tuple[torch.Tensor | None, ...],
        first_columns: torch.Tensor,
        shape: tuple[int, int],
    ) -> tuple[torch.Tensor | None, ...]:
        """Move hidden states to the places of the input; those not asked for are None."""
        moved_states = []
        for states in hidden_states:
            if states is not None:
                states = self._at_input_places(states, first_columns, shape)
            moved_states.append(states)
        return tuple(moved_states)


def _turn(value: Any, shifts: torch.Tensor, shape: tuple[int, int]) -> Any:
    """Rotate each row of a tensor to the left.

    Args:
        value: (batch, length, ...) or (1, length, ...); anything else is returned as it is.
        shifts: (batch,) places to rotate by, negative ones to the right.
        shape: (batch, length).

    Returns:
        (batch, length, ...).
    """
    batch_size, length = shape
    is_of_tokens = (
        isinstance(value, torch.Tensor)
        and value.dim() >= 2
        and value.shape[0] in (batch_size, 1)
        and value.shape[1] == length
    )
    if not is_of_tokens:
        return value
    columns = torch.arange(length, device=shifts.device) + shifts[:, None]  # (batch, length)
    # ONNX has no remainder here.
    is_left = (columns < 0).long()
    is_right = (columns >= length).long()
    columns = columns + length * (is_left - is_right)
    rows = torch.arange(batch_size, device=shifts.device)[:, None]
    return value.expand(batch_size, *value.shape[1:])[rows, columns]


# ---- Encoder and decoder


class AdaptedForConditionalGeneration(EmbeddingSeq2Seq, AdaptedPreTrainedModel):
    """A pretrained encoder with T-MDE's translation decoder.

    The decoder trains the encoder and turns embeddings back into text. As with
    `bottleneck="first"`, it sees only P and the target language.

    Example:
        ```python
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        import modeling_tmde

        model = AutoModelForSeq2SeqLM.from_pretrained("runs/adapted")
        tokenizer = AutoTokenizer.from_pretrained("runs/adapted")
        inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
        translated = model.generate(**inputs, target_language="en", max_new_tokens=20)
        print(tokenizer.batch_decode(translated, skip_special_tokens=True))

        embedding = model.get_encoder()(**inputs).pooler_output  # (1, d_model)
        model.generate(encoder_outputs=embedding, target_language="es", max_new_tokens=20)
        ```
    """

    config: AdaptedConfig
    model: AdaptedModel
    decoder: TmdeDecoder

    def __init__(self, config: AdaptedConfig):
        super().__init__(config)
        self.model = AdaptedModel(config)
        self._settle_sharing(config)
        self.decoder = TmdeDecoder(config)
        if config.decoder_embedding_scale is not None:
            self.decoder.embed_scale = config.decoder_embedding_scale
        self.lm_head = TmdeOutputProjection(config.d_model, config.vocab_size, bias=False)
        if config.share_embeddings:
            encoder_table = f"{self._encoder_table_name()}.weight"
            self._tied_weights_keys = {
                "decoder.embed_tokens.weight": encoder_table,
                "lm_head.weight": encoder_table,
            }
        self.post_init()

    def _settle_sharing(self, config: AdaptedConfig) -> None:
        """Set `share_embeddings` if the configuration leaves it open, or check it.

        Raises:
            TmdeError: Tables of different widths would have to be shared.
        """
        table_width = self.model.get_input_embeddings().embedding_dim
        fits = table_width == config.d_model
        if config.share_embeddings and not fits:
            raise TmdeError(
                f"share_embeddings=True: the encoder's table has {table_width} columns and the "
                f"decoder {config.d_model}; omit it"
            )
        config.share_embeddings = fits and config.share_embeddings is not False
        config.tie_word_embeddings = config.share_embeddings

    def _encoder_table_name(self) -> str:
        """Return the name of the encoder's table of tokens among the modules of this model."""
        table = self.model.get_input_embeddings()
        return next(name for name, module in self.named_modules() if module is table)

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the encoder's table of tokens."""
        return self.model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the encoder's table of tokens."""
        self.model.set_input_embeddings(value)

    @torch.no_grad()
    def take_encoder(self, encoder: PreTrainedModel) -> None:
        """Copy the weights of a pretrained encoder with the same configuration.

        If the decoder shares the encoder's embeddings, whose norms vary between models, its input
        and output are scaled as T-MDE initializes them: elements of size 1 at the first layer, and
        logits of size 1.
        """
        self.model.encoder.load_state_dict(encoder.state_dict())
        if self.config.share_embeddings:
            table = self.get_input_embeddings().weight.float()
            element_size = float(table.square().mean().sqrt())
            self.config.decoder_embedding_scale = 1 / element_size
            self.decoder.embed_scale = 1 / element_size
            logit_size = element_size * self.config.d_model**0.5
            self.decoder.layer_norm.weight.fill_(1 / logit_size)


__all__ = ["AdaptedForConditionalGeneration", "AdaptedModel", "AdaptedPreTrainedModel"]
