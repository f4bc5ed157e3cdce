"""What the model families share: languages, saving with remote code, and the interface of the encoder-decoders."""

import os
from collections.abc import Callable, Collection
from typing import ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling, Seq2SeqLMOutput
from transformers.utils import can_return_tuple


@strict
class EmbedderConfig(PreTrainedConfig):
    r"""
    What the configurations of all families have in common.

    Args:
        languages: Codes of the languages; positions in this list are the language ids.
        pivot_languages: The languages that a decoder is trained to translate into; a subset of `languages`.
        bos_token_id, pad_token_id, eos_token_id: Special tokens of the tokenizer.

    Raises:
        ValueError: If a language is named twice, or a pivot language is not among the languages.
    """

    languages: tuple[str, ...] | list[str] = ("de", "en", "es", "fr", "it")
    pivot_languages: tuple[str, ...] | list[str] = ("en", "es")
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs):
        self.languages = list(self.languages)  # as JSON gives them back
        self.pivot_languages = list(self.pivot_languages)
        super().__post_init__(**kwargs)

    def validate_languages(self):
        """Runs with the strict validation of every new config, as every method `validate_...` does."""
        if len(set(self.languages)) != len(self.languages):
            raise ValueError(f"languages={self.languages} names a language twice")
        unknown = [language for language in self.pivot_languages if language not in self.languages]
        if unknown:
            raise ValueError(f"pivot_languages {unknown} are not among languages={self.languages}")

    def _check_positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")

    def _check_choice(self, name: str, known: Collection[str]) -> None:
        if getattr(self, name) not in known:
            raise ValueError(f"{name}={getattr(self, name)!r} is unknown; choose one of {', '.join(known)}")

    def _check_multiple(self, name: str, heads: str) -> None:
        if getattr(self, name) % getattr(self, heads):
            raise ValueError(f"{name}={getattr(self, name)} is not a multiple of {heads}={getattr(self, heads)}")

    def _check_even(self, name: str, reason: str) -> None:
        if getattr(self, name) % 2:
            raise ValueError(f"{name}={getattr(self, name)} must be even: {reason}")

    @property
    def special_token_ids(self) -> list[int]:
        """Ids of `<s>`, `<pad>` and `</s>`, without those that are None."""
        eos = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        return [token for token in (self.bos_token_id, self.pad_token_id, *eos) if token is not None]


class OutputProjection(nn.Linear):
    """Projection of decoder states to the vocabulary; a class of its own because it is initialized like a table."""


class EmbedderPreTrainedModel(PreTrainedModel):
    """
    Base of the models of all families.

    Attributes:
        _auto_map: For each Auto class, the module and the class that open a checkpoint of this family.
        write_companions: Called with the model and the folder after saving. The package sets it to the function that
            writes the files of sentence-transformers; remote code has none.
    """

    base_model_prefix = "model"
    _auto_map: ClassVar[dict[str, str]] = {}
    write_companions: ClassVar[Callable[[PreTrainedModel, str | os.PathLike], None] | None] = None

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, OutputProjection):
            init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Linear):
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

    def save_pretrained(self, save_directory: str | os.PathLike, is_main_process: bool = True, **kwargs) -> None:
        """As in transformers, with every Auto class of the family in `auto_map`, whichever model of it is saved."""
        self.config.auto_map = dict(self._auto_map)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process and self.write_companions is not None:
            type(self).write_companions(self, save_directory)


# ---- Texts of a batch


def check_inputs(
    input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, attention_mask: torch.Tensor | None
) -> torch.Tensor:
    """Returns what was given, ids (batch, length) or vectors (batch, length, width).

    Raises:
        ValueError: If both or neither were given, or the mask is not (batch, length).
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Give exactly one of input_ids and inputs_embeds")
    given = input_ids if inputs_embeds is None else inputs_embeds
    if attention_mask is not None and attention_mask.shape != given.shape[:2]:
        raise ValueError(
            f"attention_mask {tuple(attention_mask.shape)} must be (batch, length) of the input, {tuple(given.shape)}"
        )
    return given


def first_places(attention_mask: torch.Tensor) -> torch.LongTensor:
    """(batch,) place of the first token of each text: not 0 behind padding."""
    return attention_mask.ne(0).long().argmax(dim=1)


def occurrences(input_ids: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """How often each token occurs in its text.

    Args:
        input_ids: (batch, length).
        counted: (batch, length), true where a token counts.

    Returns:
        (batch, length), at least 1; of no meaning where a token does not count.
    """
    ids = input_ids.masked_fill(~counted, -1).contiguous()
    ordered = ids.sort(dim=1).values
    return torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)


def read_texts(layer: nn.LSTM, states: torch.Tensor, mirrored: torch.LongTensor) -> torch.Tensor:
    """Runs `layer` over texts padded on the right, (batch, length, width) -> (batch, length, d_model); its outputs at
    padding mean nothing.

    Both directions read the tokens first and the padding last, where it cannot change what was read before. Packed
    sequences do the same, but take twice the time on a CPU, which has no fused kernel for them.

    Args:
        mirrored: (batch, length) places of the tokens of each text from the last to the first, then the padding.
    """
    rows = torch.arange(len(states), device=states.device).unsqueeze(1)
    zeros = states.new_zeros(1, len(states), layer.hidden_size)
    outputs = []
    for suffix in ("", "_reverse") if layer.bidirectional else ("",):
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(layer, name + suffix) for name in names]
        given = states[rows, mirrored] if suffix else states
        output, _, _ = torch.lstm(given, (zeros, zeros), weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)
        outputs.append(output[rows, mirrored] if suffix else output)
    return torch.cat(outputs, dim=-1)


def tokens_first(attention_mask: torch.Tensor) -> tuple[torch.LongTensor, torch.LongTensor, torch.LongTensor]:
    """Places (batch, length) of the tokens of each text, then of its padding; the same for the tokens from the last to
    the first, once they are in this order; and the lengths (batch,) of the texts.

    Raises:
        ValueError: If a text has no token.
    """
    real = attention_mask.bool()
    lengths = real.sum(dim=1)
    if not lengths.min():
        raise ValueError(f"Text {int(lengths.argmin())} of the batch has no token: its row of attention_mask is all 0")
    order = real.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    places = torch.arange(real.shape[1], device=real.device)
    mirrored = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
    return order, mirrored, lengths


def check_language_ids(
    language_ids: torch.LongTensor | None, language: str | None, languages: list[str], batch_size: int
) -> torch.LongTensor:
    """Language ids (batch,) of texts, for models with a part for each language.

    Args:
        language_ids: (batch,) or (1,) positions in `languages`.
        language: The code of all texts, in place of `language_ids`.

    Raises:
        ValueError: If both or neither are given, they do not fit the batch, or the code is unknown.
    """
    if (language is None) == (language_ids is None):
        raise ValueError(
            "This model has a part for each language: give language_ids (batch,), positions in its languages "
            f"{languages}, or language=, the code of all texts, as in SentenceTransformer.encode(texts, "
            f"language={languages[0]!r})"
        )
    if language is not None:
        if language not in languages:
            raise ValueError(
                f"language: found {language!r}, expected one of {languages}, the code of all texts of a call; for "
                "texts of several languages give language_ids, or use DocumentEmbedder"
            )
        return torch.tensor([languages.index(language)]).expand(batch_size)
    if language_ids.dim() != 1 or len(language_ids) not in (1, batch_size):
        raise ValueError(f"language_ids {tuple(language_ids.shape)} must be ({batch_size},), one for each text")
    return language_ids.expand(batch_size)


def by_language(
    language_ids: torch.LongTensor,
    languages: list[str],
    parts: nn.ModuleDict,
    apply: Callable[[nn.Module, torch.LongTensor], torch.Tensor],
) -> torch.Tensor:
    """Calls `apply(part, rows)` for every language of a batch, and puts the results in the order of the batch.

    Args:
        language_ids: (batch,) positions in `languages`.
        parts: The part of each language.
        apply: Takes a part and the rows (n,) of its texts, and returns a tensor (n, ...).

    Raises:
        ValueError: If an id has no language, or its language no part.
    """
    rows, results = [], []
    for index in torch.unique(language_ids).tolist():
        code = languages[index] if 0 <= index < len(languages) else None
        if code not in parts:
            raise ValueError(f"language id {index} ({code!r} of languages={languages}): this model has {list(parts)}")
        rows.append((language_ids == index).nonzero().squeeze(1))
        results.append(apply(parts[code], rows[-1]))
    if len(results) == 1:
        return results[0]
    return torch.cat(results).index_select(0, torch.cat(rows).argsort().to(results[0].device))


# ---- Encoder-decoders


class EmbeddingSeq2Seq:
    """
    Mixin of the models with a translation decoder: an encoder `model`, whose `pooler_output` is the embedding of a
    text, a `decoder` that is told which language to write, and an output projection `lm_head`.

    It stands first among the bases, and transformers wants `GenerationMixin` last:
    `class XForConditionalGeneration(EmbeddingSeq2Seq, XPreTrainedModel, GenerationMixin)`.

    Attributes:
        decoder_sees_states: Whether the decoder sees every output of the encoder, and not the embedding alone.
        decodes_embeddings: Whether the embedding alone is enough to generate from.
    """

    decoder_sees_states = False
    decodes_embeddings = True

    def get_encoder(self, modality: str | None = None) -> PreTrainedModel:
        return self.model if modality is None else self

    def get_decoder(self) -> PreTrainedModel:
        return self.decoder

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """As in transformers, which resizes the encoder's table and the output; the decoder's table goes along."""
        self.decoder.resize_token_embeddings(*args, **kwargs)
        return super().resize_token_embeddings(*args, **kwargs)

    def language_ids(
        self, target_language: str | list[str] | torch.LongTensor | None, batch_size: int
    ) -> torch.LongTensor:
        """Ids (batch,) of target languages given as one code, a list of codes, or ids.

        Raises:
            ValueError: If they are missing, unknown, or do not fit the batch.
        """
        known = self.config.languages
        if target_language is None:
            raise ValueError(f"target_language is missing: name the language to decode into, one of {known}")
        if isinstance(target_language, torch.Tensor):
            return target_language.to(self.device).expand(batch_size)
        codes = [target_language] * batch_size if isinstance(target_language, str) else list(target_language)
        unknown = sorted(set(codes) - set(known))
        if unknown:
            raise ValueError(f"target_language {unknown[0]!r} is unknown to this model; it has {known}")
        if len(codes) != batch_size:
            raise ValueError(f"target_language names {len(codes)} languages for {batch_size} texts")
        return torch.tensor([known.index(code) for code in codes], device=self.device)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.LongTensor) -> torch.LongTensor:
        """Decoder input (batch, length) of labels (batch, length): `<s>`, then all labels but the last.

        `logits[:, t]` are then those of `labels[:, t]`. Labels carry no `<s>`. The tokenizers write one, since
        `tokenizer(text_target=...)` cannot tell a target from a source: labels that all begin with `<s>` lose it **in
        place**, moved one place to the left. `DataCollatorForSeq2Seq(tokenizer, model)` calls this method, so its
        batches are right for any loss, such as that of `label_smoothing_factor`.
        """
        start, ignored = self.config.decoder_start_token_id, labels.new_full((len(labels), 1), -100)
        begins = (labels[:, :1] == start).all()
        labels.copy_(torch.where(begins, torch.cat([labels[:, 1:], ignored], dim=1), labels))
        shifted = torch.cat([torch.full_like(ignored, start), labels[:, :-1]], dim=1)
        return shifted.masked_fill(shifted == -100, self.config.pad_token_id)

    def translation_loss(
        self, logits: torch.Tensor, labels: torch.LongTensor, num_items_in_batch: int | torch.Tensor | None
    ) -> torch.Tensor:
        """Cross-entropy of logits (batch, length, vocab_size) for labels (batch, length), which -100 and
        `pad_token_id` pad: the mean, or the sum over `num_items_in_batch`."""
        labels = labels.masked_fill(labels == self.config.pad_token_id, -100).flatten()
        reduction = "mean" if num_items_in_batch is None else "sum"
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels, reduction=reduction)
        return loss if num_items_in_batch is None else loss / num_items_in_batch

    def embedding_as_encoder_outputs(self, embedding: torch.Tensor) -> BaseModelOutputWithPooling:
        """Embeddings (batch, d_model) in the form that the decoder takes: a memory of one slot.

        Raises:
            ValueError: If the decoder needs more than the embedding.
        """
        if not self.decodes_embeddings:
            raise ValueError(
                f"{type(self).__name__} decodes from the outputs of its encoder for every token, which an embedding "
                f"alone ({tuple(embedding.shape)}) does not give; pass input_ids, or what get_encoder() returned"
            )
        return BaseModelOutputWithPooling(last_hidden_state=embedding[:, None], pooler_output=embedding)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutputWithPooling | torch.Tensor | None = None,
        past_key_values: object | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        target_language: str | list[str] | torch.LongTensor | None = None,
        language_ids: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """
        Args:
            input_ids, inputs_embeds, attention_mask: (batch, length[, width]), the source; not needed with
                `encoder_outputs`.
            decoder_input_ids, decoder_inputs_embeds: (batch, target_length[, width]), beginning with `<s>`; made from
                `labels` when both are missing. With `past_key_values`, those that came since.
            encoder_outputs: What `get_encoder()` returned, or embeddings (batch, d_model).
            labels: (batch, target_length), `tokens </s>` without `<s>`, padded with -100 or `pad_token_id`. Where all
                begin with `<s>`, as the tokenizer writes them, they are taken without it.
            target_language: Language of the target, see `language_ids`.
            language_ids: (batch,) source languages, of a model with an encoder for each.
            token_type_ids: (batch, length), of encoders that take them.
            logits_to_keep: Compute the logits of so many last places only; 0 for all.
            num_items_in_batch: Target tokens to divide the loss by (gradient accumulation); this batch's by default.

        Returns:
            `logits` (batch, target_length, vocab_size), where `logits[:, t]` are those of `labels[:, t]`, and with
            `labels` the mean cross-entropy of a target token.

        Raises:
            ValueError: If there is nothing to decode, or the target language is missing or unknown.
        """
        if encoder_outputs is None:
            source = {"language_ids": language_ids, "token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
            source = {name: value for name, value in source.items() if value is not None}
            source |= {"input_ids": input_ids, "attention_mask": attention_mask, "return_dict": True}
            encoder_outputs = self.model(**source, **kwargs)
        elif isinstance(encoder_outputs, torch.Tensor):
            encoder_outputs = self.embedding_as_encoder_outputs(encoder_outputs)
            attention_mask = None
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if labels is None:
                raise ValueError("Give decoder_input_ids, or labels to make them from")
            labels = labels.clone()
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if use_cache is None:
            use_cache = labels is None and getattr(self.config, "use_cache", False)
        embedding = encoder_outputs.pooler_output
        outputs = self.decoder(
            input_ids=decoder_input_ids,
            inputs_embeds=decoder_inputs_embeds,
            embedding=embedding,
            language_ids=self.language_ids(target_language, len(embedding)),
            encoder_hidden_states=encoder_outputs.get("memory", encoder_outputs.last_hidden_state),
            encoder_attention_mask=attention_mask,
            attention_mask=decoder_attention_mask,
            past_key_values=past_key_values,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state[:, -logits_to_keep:])
        return Seq2SeqLMOutput(
            loss=None if labels is None else self.translation_loss(logits, labels, num_items_in_batch),
            logits=logits,
            past_key_values=outputs.get("past_key_values"),
            decoder_hidden_states=outputs.hidden_states,
            decoder_attentions=outputs.attentions,
            cross_attentions=outputs.get("cross_attentions"),
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )

    def generate(self, inputs=None, *args, target_language=None, encoder_outputs=None, **kwargs):
        """Translates, or with `encoder_outputs` of shape (batch, d_model) decodes embeddings back into text.

        Args as in `GenerationMixin.generate`, and `target_language`: one code, or one for each text.
        """
        if isinstance(encoder_outputs, torch.Tensor):
            encoder_outputs = self.embedding_as_encoder_outputs(encoder_outputs.to(self.device, self.dtype))
        if encoder_outputs is not None:
            kwargs["encoder_outputs"] = encoder_outputs
            batch_size = len(encoder_outputs.pooler_output)
        else:
            given = (inputs, kwargs.get("input_ids"), kwargs.get("inputs_embeds"))
            source = next((tensor for tensor in given if tensor is not None), None)
            if source is None:
                raise ValueError("Give input_ids to translate, or encoder_outputs to decode embeddings from")
            batch_size = len(source)
        kwargs["target_language"] = self.language_ids(target_language, batch_size)
        return super().generate(inputs, *args, **kwargs)


__all__ = ["EmbedderConfig", "EmbedderPreTrainedModel", "EmbeddingSeq2Seq", "OutputProjection"]
