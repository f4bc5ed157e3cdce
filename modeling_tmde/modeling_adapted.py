"""T-MDE's bottleneck and decoder on a pretrained encoder of the Hub: XLM-R, BERT, ModernBERT, T5's encoder and others.

Source: thesis 000, chapter 4, for all but the encoder; `configuration_adapted.py` says what an encoder may be.
"""

import inspect

import torch
from torch import nn
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_MAPPING,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutputWithPooling, Seq2SeqLMOutput
from transformers.utils import can_return_tuple

from .configuration_adapted import AdaptedConfig
from .loading import NO_LIMIT, position_limit
from .modeling_tmde import TmdeDecoder, TmdeOutputProjection
from .packing import TextStarts
from .seq2seq import EmbeddingSeq2Seq
from .sharing import SharedModel

DEFAULT_POSITIONS = 2048  # where the encoder names no longest input
FROM_GENERATE = ("target_language",)  # what `generate` gives the encoder, and the decoder is meant


def encoder_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class of an encoder with this config; of T5 and its kin the encoder alone.

    Raises:
        ValueError: transformers has no such encoder.
    """
    for mapping in (MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING):
        if type(config) in mapping:
            found = mapping[type(config)]
            found = found[0] if isinstance(found, tuple) else found
            if config.is_encoder_decoder and mapping is MODEL_MAPPING:
                break
            return found
    raise ValueError(f"encoder_config: transformers has no encoder by itself for models of type {config.model_type!r}")


def pooler_options(model_class: type[PreTrainedModel]) -> dict[str, bool]:
    """Arguments that leave out a layer after the encoder's outputs, which no embedding would see."""
    takes = inspect.signature(model_class.__init__).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


class AdaptedPreTrainedModel(SharedModel, PreTrainedModel):
    config: AdaptedConfig
    _auto_map = {
        "AutoConfig": "configuration_adapted.AdaptedConfig",
        "AutoModel": "modeling_adapted.AdaptedModel",
        "AutoModelForSeq2SeqLM": "modeling_adapted.AdaptedForConditionalGeneration",
    }
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["TmdeDecoderLayer"]  # and the encoder's

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        return True  # the decoder's layers look it up; transformers would look for that in the source of this file

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # Encoder and decoder are models with ways of their own.
        if isinstance(module, TmdeOutputProjection):
            init.normal_(module.weight, std=module.in_features**-0.5)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As in transformers; the encoder's own config goes along."""
        table = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        self.config.vocab_size = table.num_embeddings
        return table


class AdaptedModel(AdaptedPreTrainedModel):
    """
    The encoder with its bottleneck: documents in, embeddings out.

    The embedding P is the encoder's first output, or the mean of its outputs over the tokens of the text
    (`config.pooling`), without projection, dropout or L2 normalisation. Before any training it is what
    `DocumentEmbedder` makes of the bare encoder with the same pooling.

    Example:

    ```python
    >>> model = AutoModel.from_pretrained(path)
    >>> inputs = tokenizer(["Das Haus ist alt.", "The house is old."], return_tensors="pt", padding=True)
    >>> model(**inputs).pooler_output  # (2, hidden_size)
    ```
    """

    # A checkpoint of the whole encoder-decoder opens here as well; its decoder is not wanted.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def __init__(self, config: AdaptedConfig):
        super().__init__(config)
        model_class = encoder_class(config.encoder_config)
        self.encoder = model_class(config.encoder_config, **pooler_options(model_class))
        limit = position_limit(self.encoder)
        if config.max_position_embeddings is None:
            config.max_position_embeddings = limit if limit < NO_LIMIT else DEFAULT_POSITIONS
        elif config.max_position_embeddings > limit:
            raise ValueError(
                f"max_position_embeddings={config.max_position_embeddings} is more than the {limit} tokens for which "
                f"the encoder ({config.encoder_config.model_type!r}) has positions"
            )
        takes = inspect.signature(self.encoder.forward).parameters
        self.takes_token_types = "token_type_ids" in takes
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
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: (batch, length), as the encoder's tokenizer makes them.
            attention_mask: (batch, length), 1 for tokens and 0 for padding, on either side; everything counts when it
                is missing.
            token_type_ids: (batch, length); zeros when they are missing, ignored by an encoder without.
            inputs_embeds: (batch, length, width) in place of `input_ids`, where the encoder takes them.
            output_hidden_states, output_attentions: Also return the encoder's.
            kwargs: What else the encoder takes, such as `position_ids`.

        Returns:
            `pooler_output` (batch, d_model): the embedding P. `last_hidden_state`, whose position 0 is P, so that CLS
            pooling gives it too: (batch, length, d_model) with `pooling="cls"`, the encoder's outputs behind P; with
            `"mean"` (batch, 1, d_model), and the encoder's outputs are `hidden_states[-1]`. Behind padding, P is
            at the text's first place too. `attentions` are those of texts that begin at position 0.

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, or the mask does not fit.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of input_ids and inputs_embeds")
        given = {name: value for name, value in kwargs.items() if name not in FROM_GENERATE}
        given |= {"input_ids": input_ids} if inputs_embeds is None else {"inputs_embeds": inputs_embeds}
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        shape = tokens.shape[:2]  # (batch, length)
        if attention_mask is None:
            attention_mask = torch.ones(shape, dtype=torch.long, device=tokens.device)
        if attention_mask.shape != shape:
            found = tuple(attention_mask.shape)
            raise ValueError(f"attention_mask {found} must be (batch, length) of the input, {tuple(tokens.shape)}")
        if token_type_ids is not None and self.takes_token_types:
            given["token_type_ids"] = token_type_ids
        starts = TextStarts.of(attention_mask)
        given |= {name: starts.to_front(value) for name, value in given.items() if _has_places(value, shape)}
        # The encoder's config has defaults of its own for these.
        wanted = {"output_hidden_states": output_hidden_states, "output_attentions": output_attentions}
        given |= {name: getattr(self.config, name) if value is None else value for name, value in wanted.items()}
        outputs = self.encoder(attention_mask=starts.to_front(attention_mask), return_dict=True, **given)
        states = starts.back(outputs.last_hidden_state)  # (batch, length, d_model)
        hidden_states = outputs.get("hidden_states")
        embedding = self._pool(states, attention_mask)
        output = embedding[:, None]
        if self.config.pooling == "cls":
            output = torch.cat([output, states[:, 1:]], dim=1)
        return BaseModelOutputWithPooling(
            last_hidden_state=output,
            pooler_output=embedding,
            hidden_states=hidden_states and tuple(map(starts.back, hidden_states)),
            attentions=outputs.get("attentions"),
        )

    def _pool(self, states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The embedding (batch, d_model) of final states (batch, length, d_model)."""
        real = attention_mask != 0
        if self.config.pooling == "cls":
            first = real.long().argmax(dim=1)  # not 0 behind padding
            return states[torch.arange(len(states), device=states.device), first]
        dtype = torch.promote_types(states.dtype, torch.float32)
        total = states.masked_fill(~real.unsqueeze(2), 0.0).sum(dim=1, dtype=dtype)
        return (total / real.sum(dim=1, keepdim=True).clamp(min=1)).to(states.dtype)


def _has_places(value: object, shape: tuple[int, int]) -> bool:
    """Whether an argument of the encoder is (batch, length, ...) or, as `position_ids` may be, (1, length, ...)."""
    if not isinstance(value, torch.Tensor) or value.dim() < 2:
        return False
    return value.shape[0] in (shape[0], 1) and value.shape[1] == shape[1]


class AdaptedForConditionalGeneration(EmbeddingSeq2Seq, AdaptedPreTrainedModel, GenerationMixin):
    """
    The encoder with T-MDE's translation decoder: what is trained, and what turns an embedding back into text.

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
            raise ValueError(
                f"share_embeddings=True: the encoder's table has {table.embedding_dim} columns and the decoder "
                f"{config.d_model}; leave it out"
            )
        config.share_embeddings = config.tie_word_embeddings = fits and config.share_embeddings is not False
        self.decoder = TmdeDecoder(config)
        if config.decoder_embedding_scale is not None:
            self.decoder.embed_scale = config.decoder_embedding_scale
        self.lm_head = TmdeOutputProjection(config.d_model, config.vocab_size, bias=False)
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
        """Takes over the weights of a pretrained encoder of the same config.

        Where the decoder shares its table, whose rows may be of any size, its input and its output are scaled to begin
        as with a table of T-MDE: elements of size 1 at the first layer, and logits of size 1.
        """
        self.model.encoder.load_state_dict(encoder.state_dict())
        if self.config.share_embeddings:
            size = float(self.get_input_embeddings().weight.float().square().mean().sqrt())
            self.config.decoder_embedding_scale = self.decoder.embed_scale = 1 / size
            self.decoder.layer_norm.weight.fill_(1 / (size * self.config.d_model**0.5))

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutputWithPooling | torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: torch.LongTensor | None = None,
        target_language: str | list[str] | torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """
        Args:
            input_ids, attention_mask, token_type_ids: (batch, length), the source; not needed with `encoder_outputs`.
            decoder_input_ids: (batch, target_length) beginning with `bos_token_id`; made from `labels` when missing.
            encoder_outputs: What `get_encoder()` returned, or embeddings (batch, d_model).
            labels: (batch, target_length) as the tokenizer makes them, padded with -100 or `pad_token_id`; the shift
                by one happens here, as in causal language models.
            target_language: Language of the target, see `language_ids`.
            num_items_in_batch: Target tokens to divide the loss by (gradient accumulation); this batch's by default.

        Returns:
            `logits` (batch, target_length, vocab_size), or with `labels` of a tokenizer that does not begin with
            `bos_token_id` one place more; with `labels` the mean cross-entropy per target token.
        """
        options = kwargs | {"token_type_ids": token_type_ids}
        encoder_outputs, _ = self._encoded(input_ids, attention_mask, encoder_outputs, options)
        if labels is not None:
            use_cache = False
            if not self.config.reads_bos:
                labels = nn.functional.pad(labels, (1, 0), value=self.config.bos_token_id)
        decoder_input_ids = self._target_ids(decoder_input_ids, labels)
        embedding = encoder_outputs.pooler_output
        outputs = self.decoder(
            input_ids=decoder_input_ids,
            embedding=embedding,
            language_ids=self.language_ids(target_language, embedding.shape[0]),
            attention_mask=decoder_attention_mask,
            past_key_values=past_key_values,
            use_cache=self.config.use_cache if use_cache is None else use_cache,
            return_dict=True,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        return Seq2SeqLMOutput(
            loss=None if labels is None else self._loss(logits, labels, num_items_in_batch),
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.hidden_states,
            decoder_attentions=outputs.attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.get("hidden_states"),
            encoder_attentions=encoder_outputs.get("attentions"),
        )


AdaptedConfig.register_for_auto_class()
AdaptedModel.register_for_auto_class("AutoModel")
AdaptedForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")

__all__ = ["AdaptedForConditionalGeneration", "AdaptedModel", "AdaptedPreTrainedModel", "encoder_class"]
