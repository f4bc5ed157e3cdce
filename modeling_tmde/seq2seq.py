# SPDX-License-Identifier: Apache-2.0

"""What models with a translation decoder share: target languages, labels, losses, generation."""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPooling,
    Seq2SeqLMOutput,
)
from transformers.utils import ModelOutput, can_return_tuple, is_tracing

from .common import EmbedderPreTrainedModel, TmdeError, first_places, text_mask

__all__ = ["EmbeddingOutput", "EmbeddingSeq2Seq", "is_embedding"]


class EmbeddingOutput(BaseModelOutputWithPooling):
    """Embeddings as encoder outputs of length 1, without outputs for the tokens of a text."""


def is_embedding(encoder_outputs: Any) -> bool:
    """Return whether encoder outputs are embeddings alone."""
    return isinstance(encoder_outputs, (torch.Tensor, np.ndarray, list, EmbeddingOutput))


def _as_tensor(vectors: Any) -> torch.Tensor:
    """Return a tensor of a tensor, an array, a number, or a list of such.

    Raises:
        ValueError: If the vectors of a list differ in shape.
    """
    if isinstance(vectors, np.ndarray):
        # PyTorch cannot read an array backwards.
        return torch.tensor(np.ascontiguousarray(vectors))
    if not isinstance(vectors, list) or not vectors:
        return torch.as_tensor(vectors)
    tensors = [_as_tensor(vector) for vector in vectors]
    shapes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes) > 1:
        raise TmdeError(
            f"encoder_outputs: found a list of tensors of shapes {shapes}, expected vectors of one "
            "length"
        )
    return torch.stack(tensors)


def _are_ids(target_language: Any) -> bool:
    """Return whether target languages are given by their ids, not by their codes."""
    if isinstance(target_language, (list, tuple)):
        return all(isinstance(language, (int, np.integer)) for language in target_language)
    return isinstance(target_language, (int, np.integer, np.ndarray, torch.Tensor))


class EmbeddingSeq2Seq(EmbedderPreTrainedModel, GenerationMixin):
    """Base of the models with a translation decoder.

    They have an encoder `model`, whose `pooler_output` is the embedding, a `decoder` that takes the
    target language, and an output projection `lm_head`.

    It is the first base, and the class says which configuration it has:
    `class XForConditionalGeneration(EmbeddingSeq2Seq, XPreTrainedModel)` with `config: XConfig`.

    Attributes:
        decoder_sees_states: Whether the decoder attends all outputs of the encoder, not only the
            embedding.
        decodes_embeddings: Whether the model can generate from an embedding alone.
    """

    model: EmbedderPreTrainedModel
    decoder: EmbedderPreTrainedModel
    lm_head: nn.Linear
    decoder_sees_states = False
    decodes_embeddings = True

    def get_encoder(self, modality: str | None = None) -> PreTrainedModel:
        """Return the encoder; for a modality other than text, the model itself."""
        return self.model if modality is None else self

    def get_decoder(self) -> PreTrainedModel:
        """Return the decoder."""
        return self.decoder

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """Resize the tables of the encoder and the output, as transformers does, and the decoder's.

        Args:
            args: As in transformers.
            kwargs: As in transformers.
        """
        self.decoder.resize_token_embeddings(*args, **kwargs)
        return super().resize_token_embeddings(*args, **kwargs)

    # ---- Target languages

    def language_ids(
        self,
        target_language: str | int | list[str] | list[int] | torch.Tensor | None,
        batch_size: int,
        is_translation: bool = False,
    ) -> torch.Tensor:
        """Return the ids of target languages, (batch,).

        Args:
            target_language: One code or id, a code or id for each text, or a tensor of ids,
                (batch,) or (1,). Default: the pivot language, if there is only one. Ids on an
                accelerator are checked only before a model in evaluation mode translates.
            batch_size: The number of texts.
            is_translation: Whether codes have to be those of pivot languages. Ids may be of any
                language, because a decoder can be trained to write others too.

        Raises:
            ValueError: If they are missing, unknown, no pivot, or do not fit the batch.
        """
        known = self.config.languages
        pivots = self.config.pivot_languages
        if target_language is None:
            if len(pivots) != 1:
                raise TmdeError(
                    f"target_language is missing: pass one of the pivot languages {pivots}. A "
                    "trainer reads it from a column target_language (codes with "
                    "TranslationCollator, otherwise positions in config.languages)"
                )
            target_language = pivots[0]
        if isinstance(target_language, str):
            codes = [target_language] * batch_size
        elif _are_ids(target_language):
            ids = torch.as_tensor(target_language)
            self._check_language_ids(ids, batch_size, is_translation)
            return ids.to(self.device).expand(batch_size)
        else:
            codes = list(cast(Iterable[str], target_language))
        unknown = sorted(set(codes) - set(known))
        if unknown:
            raise TmdeError(
                f"target_language {unknown[0]!r} is unknown to this model; it has {known}"
            )
        others = sorted(set(codes) - set(pivots))
        if is_translation and others:
            raise TmdeError(
                f"target_language {others[0]!r} is not a pivot language; this model "
                f"translates into {pivots}. If its decoder was trained to write {others[0]!r} "
                "too, add it to config.pivot_languages"
            )
        if len(codes) != batch_size:
            raise TmdeError(f"target_language names {len(codes)} languages for {batch_size} texts")
        return torch.tensor([known.index(code) for code in codes], device=self.device)

    def _check_language_ids(self, ids: torch.Tensor, batch_size: int, is_translation: bool) -> None:
        """Check ids of target languages.

        Reading them from an accelerator would make every step of training and generation wait.

        Raises:
            ValueError: If they do not fit the batch, or one is not that of a language.
        """
        if ids.shape not in ((batch_size,), (1,), ()) or ids.is_floating_point():
            raise TmdeError(
                f"target_language: found ids {tuple(ids.shape)} of {ids.dtype}, expected integers "
                f"(1,) or ({batch_size},), one for each text"
            )
        is_on_host = ids.device.type == "cpu"
        is_read = is_on_host or (is_translation and not self.training)
        if not is_read or ids.is_meta or is_tracing(ids):
            return
        known = self.config.languages
        is_outside = (ids < 0) | (ids >= len(known))
        if is_outside.any():
            raise TmdeError(
                f"target_language: found the id {int(ids[is_outside][0])}, expected 0 to "
                f"{len(known) - 1}, a position in config.languages={known}"
            )

    # ---- Labels and losses

    def mask_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return a copy of labels with -100 wherever nothing is predicted.

        Args:
            labels: (batch, length), padded on either side with -100 or `pad_token_id`.

        Returns:
            (batch, length), -100 at padding and at the `<s>` that a row begins with.
        """
        targets = labels.masked_fill(labels == self.config.pad_token_id, -100)
        first_columns = first_places(targets != -100).unsqueeze(1)  # (batch, 1)
        first_labels = targets.gather(1, first_columns)  # (batch, 1)
        is_start = first_labels == self.config.decoder_start_token_id
        return targets.scatter(1, first_columns, first_labels.masked_fill(is_start, -100))

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return the decoder input of labels, which stay as they are.

        In every row `<s>` is read where the first target is predicted, and each target where
        the next one is. A row that begins with `<s>`, as `tokenizer(text_target=...)` writes it,
        has padding at that place: `[<s>, a, b]` gives `[<pad>, <s>, a]`, and `[a, b]` gives
        `[<s>, a]`. `forward` moves such padding behind the row before it decodes.

        Args:
            labels: (batch, length), padded with -100 or `pad_token_id`.

        Returns:
            (batch, length); `logits[:, t]` predict `labels[:, t]`.
        """
        start = self.config.decoder_start_token_id
        first_columns = first_places(self.mask_labels(labels) != -100).unsqueeze(1)  # (batch, 1)
        columns = torch.arange(labels.shape[1], device=labels.device)
        decoder_input_ids = labels.roll(1, dims=1)
        is_padding = (decoder_input_ids == -100) | (columns < first_columns)
        decoder_input_ids = decoder_input_ids.masked_fill(is_padding, self.config.pad_token_id)
        return decoder_input_ids.masked_fill(columns == first_columns, start)

    def translation_loss(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: int | torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the cross-entropy per target, where padding and a leading `<s>` are no targets.

        transformers' `Trainer` counts every label that is not -100. If some of the labels here
        are no targets, the same share of `num_items_in_batch` is taken for targets. This is exact
        for one batch; for accumulated batches it is exact if they have the same share of such
        labels, as those of [`TranslationCollator`] have, which has none.

        Args:
            logits: (batch, length, vocab_size).
            labels: (batch, length), padded with -100 or `pad_token_id`.
            num_items_in_batch: Labels of all accumulated batches; those of `labels` if None.
        """
        targets = self.mask_labels(labels)
        flat_logits = logits.flatten(0, 1).float()  # (batch * length, vocab_size)
        if num_items_in_batch is None:
            return nn.functional.cross_entropy(flat_logits, targets.flatten())
        total = nn.functional.cross_entropy(flat_logits, targets.flatten(), reduction="sum")
        if isinstance(num_items_in_batch, torch.Tensor):
            num_items_in_batch = num_items_in_batch.to(total.device)
        num_labels = (labels != -100).sum()
        num_targets = (targets != -100).sum().clamp(min=1)
        return total / num_items_in_batch * (num_labels / num_targets)

    def decoder_loss(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: int | torch.Tensor | None,
        decoder_inputs: dict[str, Any],
    ) -> torch.Tensor:
        """Return the loss of logits that `_decode(**decoder_inputs)` gave.

        Args:
            logits: (batch, length, vocab_size).
            labels: (batch, length), padded with -100 or `pad_token_id`.
            num_items_in_batch: As for [`EmbeddingSeq2Seq.translation_loss`].
            decoder_inputs: The arguments, for families that decode once more.
        """
        return self.translation_loss(logits, labels, num_items_in_batch)

    # ---- Outputs of the encoder

    def embedding_as_encoder_outputs(
        self, embedding: torch.Tensor | np.ndarray | list
    ) -> EmbeddingOutput:
        """Return embeddings as encoder outputs of length 1.

        They come from anywhere, so they are moved to the device and the type of the model.

        Args:
            embedding: (batch, d_model), (d_model,) of one text, or a list of the latter.

        Raises:
            ValueError: If the decoder needs more than the embedding, or the embedding is not one of
                this model.
        """
        vectors = _as_tensor(embedding)
        if not self.decodes_embeddings:
            raise TmdeError(
                f"{type(self).__name__} decodes from the encoder's outputs for every token, "
                f"not from an embedding ({tuple(vectors.shape)}); pass input_ids, or what "
                "get_encoder() returned"
            )
        if vectors.numel() == 0:
            raise TmdeError("encoder_outputs: found no embedding, expected at least one")
        width = self.config.hidden_size
        is_vector = vectors.is_floating_point() and vectors.dim() in (1, 2)
        if not is_vector or vectors.shape[-1] != width:
            raise TmdeError(
                f"encoder_outputs: found embeddings {tuple(vectors.shape)} of {vectors.dtype}, "
                f"expected floats ({width},) or (batch, {width}), as DocumentEmbedder.encode "
                "returns them"
            )
        vectors = torch.atleast_2d(vectors.to(self.device, self.dtype))  # (batch, d_model)
        return EmbeddingOutput(last_hidden_state=vectors[:, None], pooler_output=vectors)

    def as_encoder_outputs(
        self, encoder_outputs: ModelOutput | tuple | torch.Tensor | np.ndarray | list
    ) -> BaseModelOutputWithPooling:
        """Return encoder outputs of any form with the embedding as `pooler_output`.

        Args:
            encoder_outputs: Output of `get_encoder()`, an output or a tuple whose first entry is
                `last_hidden_state` with the embedding at position 0, or embeddings
                (batch, d_model), (d_model,), or a list of the latter.

        Raises:
            ValueError: If the decoder needs more than the last hidden state, or embeddings do not
                fit.
        """
        if isinstance(encoder_outputs, (torch.Tensor, np.ndarray, list)):
            return self.embedding_as_encoder_outputs(encoder_outputs)
        if isinstance(encoder_outputs, tuple):
            encoder_outputs = BaseModelOutput(last_hidden_state=encoder_outputs[0])
        if encoder_outputs.get("pooler_output") is not None:
            # It is the output of an encoder, of a class with these fields and perhaps more.
            return cast(BaseModelOutputWithPooling, encoder_outputs)
        states = encoder_outputs["last_hidden_state"]  # (batch, length, d_model)
        embedding = self.embedding_as_encoder_outputs(states[:, 0]).pooler_output
        return BaseModelOutputWithPooling(
            last_hidden_state=states,
            pooler_output=embedding,
            hidden_states=encoder_outputs.get("hidden_states"),
            attentions=encoder_outputs.get("attentions"),
        )

    # ---- Decoding

    def _leading_padding(
        self, decoder_input_ids: torch.Tensor, has_labels: bool
    ) -> torch.Tensor | None:
        """Return how much padding each row begins with, (batch,), or None if no row does."""
        if self.config.pad_token_id == self.config.decoder_start_token_id:
            return None  # Every row begins with this token.
        is_token = decoder_input_ids != self.config.pad_token_id
        # A graph cannot branch on the tokens, and moving rows by 0 places changes nothing.
        is_graph_of_training = has_labels and is_tracing(decoder_input_ids)
        if not is_graph_of_training and is_token[:, 0].all():
            return None
        return first_places(is_token)

    def _decode(
        self,
        input_ids: torch.Tensor | None,
        leading_padding: torch.Tensor | None,
        logits_to_keep: int,
        attention_mask: torch.Tensor | None,
        **decoder_inputs,
    ) -> tuple[torch.Tensor, ModelOutput]:
        """Return the logits (batch, length, vocab_size) and the output of the decoder.

        Decoders count positions from the first column, and recurrent ones read all of a row.
        Padding that rows begin with is therefore moved behind them, together with its part of the
        mask, and their logits are moved back. The logits at such padding are 0, so that no loss has
        a gradient there.
        """
        if input_ids is None or leading_padding is None:
            outputs = self.decoder(
                input_ids=input_ids, attention_mask=attention_mask, **decoder_inputs
            )
            return self.lm_head(outputs.last_hidden_state[:, -logits_to_keep:]), outputs
        length = input_ids.shape[1]
        columns = torch.arange(length, device=input_ids.device)
        shifts = leading_padding.unsqueeze(1)  # (batch, 1)
        sources = (columns + shifts) % length  # (batch, length)
        if attention_mask is not None:
            attention_mask = self._moved_mask(attention_mask, sources)
        outputs = self.decoder(
            input_ids=input_ids.gather(1, sources), attention_mask=attention_mask, **decoder_inputs
        )
        states = outputs.last_hidden_state  # (batch, length, width)
        rows = torch.arange(len(states), device=states.device).unsqueeze(1)  # (batch, 1)
        states = states[rows, (columns - shifts) % length]
        states = states.masked_fill((columns < shifts).unsqueeze(2), 0)
        return self.lm_head(states[:, -logits_to_keep:]), outputs

    @staticmethod
    def _moved_mask(attention_mask: torch.Tensor, sources: torch.Tensor) -> torch.Tensor:
        """Return the mask of a target whose tokens were moved.

        Args:
            attention_mask: (batch, past + length).
            sources: (batch, length), the columns of the target that the new ones are made of.

        Returns:
            (batch, past + length); the part of the past stays where it is.

        Raises:
            ValueError: If the mask has no entry for every token of the target.
        """
        length = sources.shape[1]
        if attention_mask.dim() != 2 or attention_mask.shape[1] < length:
            raise TmdeError(
                f"decoder_attention_mask {tuple(attention_mask.shape)} must be (batch, past + "
                f"length) of the target, {tuple(sources.shape)} without a past, because rows of "
                "the target begin with padding"
            )
        past = attention_mask[:, :-length]  # (batch, past)
        moved = attention_mask[:, -length:].gather(1, sources)  # (batch, length)
        return torch.cat([past, moved], dim=1)

    @staticmethod
    def _is_whole_target(
        labels: torch.Tensor | None,
        decoder_attention_mask: torch.Tensor | None,
        past_key_values: Cache | None,
        use_cache: bool | None,
    ) -> bool:
        """Return whether `decoder_input_ids` that a caller gave are whole targets.

        Padding that whole targets begin with is not read. Generation continues targets, and masks
        the padding of those that it was given.
        """
        if past_key_values is not None:
            return False
        if labels is not None:
            return True
        return not use_cache and decoder_attention_mask is None

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: ModelOutput | tuple | torch.Tensor | np.ndarray | list | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        target_language: str | int | list[str] | list[int] | torch.Tensor | None = None,
        language_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        bottleneck_only: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Encode texts, or take `encoder_outputs`, and decode into the target language.

        Args:
            input_ids: (batch, length), the source texts; not needed with `encoder_outputs`.
            attention_mask: (batch, length), 1 for tokens and 0 for padding.
            decoder_input_ids: (batch, target_length), starting with `<s>`. Default: made from
                `labels`. Padding before `<s>` is ignored, except in generation. With
                `past_key_values`, only the new ids.
            decoder_attention_mask: (batch, past + target_length), for the `decoder_input_ids`.
            encoder_outputs: The output of `get_encoder()`; or a tuple (last_hidden_state, ...) with
                the embedding at position 0; or embeddings (batch, d_model), (d_model,), or a list
                of them.
            past_key_values: The cache of earlier calls.
            inputs_embeds: (batch, length, width) instead of `input_ids`.
            decoder_inputs_embeds: (batch, target_length, width) instead of `decoder_input_ids`.
            labels: (batch, target_length), `tokens </s>`, padded with -100 or `pad_token_id`. A
                leading `<s>` is not a target.
            target_language: The language to decode into: one code, one code per text, or ids
                (positions in `config.languages`), one or (batch,). With `labels`, codes must be
                pivot languages. Default: the only pivot language.
            language_ids: (batch,), the source languages, for models with an encoder per language.
            token_type_ids: (batch, length), for encoders that take them.
            use_cache: Whether to return a cache. Default: as configured, without `labels`.
            logits_to_keep: Compute only the logits of this many last positions; 0 for all.
            num_items_in_batch: The number of labels to divide the loss by. Default: those of this
                batch.
            bottleneck_only: For `TmdeConfig(bottleneck="dual")`: decode from the embedding alone.
                Default: true if `encoder_outputs` are embeddings.
            kwargs: Passed to encoder and decoder.

        Returns:
            `logits` (batch, target_length, vocab_size), where `logits[:, t]` predict `labels[:,
            t]`, and with `labels` the mean cross-entropy per target token.

        Raises:
            ValueError: There is nothing to decode, or the target language is missing or unknown.
        """
        if bottleneck_only is None:
            bottleneck_only = is_embedding(encoder_outputs)
        if encoder_outputs is None:
            encoder_outputs = self._encode_source(
                input_ids, attention_mask, inputs_embeds, language_ids, token_type_ids, **kwargs
            )
        else:
            if is_embedding(encoder_outputs):
                attention_mask = None  # It is that of the tokens, and an embedding is one slot.
            encoder_outputs = self.as_encoder_outputs(encoder_outputs)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if labels is None:
                raise TmdeError("Pass decoder_input_ids, or labels from which to build them")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            is_whole_target = True
        else:
            is_whole_target = self._is_whole_target(
                labels, decoder_attention_mask, past_key_values, use_cache
            )
        leading_padding = None
        if decoder_input_ids is not None and is_whole_target:
            leading_padding = self._leading_padding(decoder_input_ids, labels is not None)
        if use_cache is None:
            is_inference = labels is None and leading_padding is None
            use_cache = is_inference and getattr(self.config, "use_cache", False)

        embedding = encoder_outputs.pooler_output  # (batch, d_model)
        assert embedding is not None  # Every encoder returns it.
        states = encoder_outputs.last_hidden_state  # (batch, length, d_model)
        source_mask = None if attention_mask is None else text_mask(attention_mask)
        decoder_inputs: dict[str, Any] = {
            "input_ids": decoder_input_ids,
            "leading_padding": leading_padding,
            "logits_to_keep": logits_to_keep,
            "inputs_embeds": decoder_inputs_embeds,
            "embedding": embedding,
            "language_ids": self.language_ids(
                target_language, len(embedding), is_translation=labels is not None
            ),
            "encoder_hidden_states": encoder_outputs.get("memory", states),
            "encoder_attention_mask": source_mask,
            "attention_mask": decoder_attention_mask,
            "past_key_values": past_key_values,
            "use_cache": use_cache,
            "bottleneck_only": bottleneck_only,
            "return_dict": True,
            **kwargs,
        }
        logits, decoder_outputs = self._decode(**decoder_inputs)
        loss = None
        if labels is not None:
            loss = self.decoder_loss(logits, labels, num_items_in_batch, decoder_inputs)
        return self._seq2seq_output(loss, logits, encoder_outputs, decoder_outputs)

    def _encode_source(
        self,
        input_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        language_ids: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Return the output of the encoder, which gets only those optional inputs that are there.

        An encoder of the Hub would refuse the name of an input that it does not take.
        """
        optional_inputs = {
            "inputs_embeds": inputs_embeds,
            "language_ids": language_ids,
            "token_type_ids": token_type_ids,
        }
        for name, value in optional_inputs.items():
            if value is not None:
                kwargs[name] = value
        return self.model(
            input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs
        )

    @staticmethod
    def _seq2seq_output(
        loss: torch.Tensor | None,
        logits: torch.Tensor,
        encoder_outputs: BaseModelOutputWithPooling,
        decoder_outputs: ModelOutput,
    ) -> Seq2SeqLMOutput:
        """Join the outputs of encoder and decoder as transformers names them."""
        # A decoder of one slot has no cross-attention: asked for attentions, it returns none of it.
        attentions = decoder_outputs.get("attentions")
        cross_attentions = None if attentions is None else ()
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=decoder_outputs.get("past_key_values"),
            decoder_hidden_states=decoder_outputs.get("hidden_states"),
            decoder_attentions=attentions,
            cross_attentions=decoder_outputs.get("cross_attentions", cross_attentions),
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        *args,
        target_language: str | int | list[str] | list[int] | torch.Tensor | None = None,
        encoder_outputs: ModelOutput | tuple | torch.Tensor | np.ndarray | list | None = None,
        **kwargs,
    ) -> ModelOutput | torch.Tensor:
        """Translate texts, or decode embeddings into text.

        Args:
            inputs: (batch, length), token ids of the source.
            args: As for `GenerationMixin.generate`.
            target_language: One code, one code per text, or ids. Codes must be pivot languages.
            encoder_outputs: See `forward`. `TmdeConfig(bottleneck="dual")` decodes embeddings from
                its slot alone.
            kwargs: As for `GenerationMixin.generate`.

        Raises:
            ValueError: There is nothing to decode, embeddings have the wrong shape, or the target
                language is missing, unknown, or not a pivot language.
        """
        if encoder_outputs is None:
            batch_size = self._source_batch_size(inputs, **kwargs)
        else:
            encoder_outputs = self.as_encoder_outputs(encoder_outputs)
            kwargs["encoder_outputs"] = encoder_outputs
            embedding = encoder_outputs.pooler_output  # (batch, d_model)
            assert embedding is not None  # `as_encoder_outputs` has seen to it.
            batch_size = len(embedding)
        kwargs["target_language"] = self.language_ids(
            target_language, batch_size, is_translation=True
        )
        # The protocol by which transformers types `self` does not match its own models.
        return super().generate(inputs, *args, **kwargs)  # type: ignore[misc]

    @staticmethod
    def _source_batch_size(
        inputs: torch.Tensor | None,
        input_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs,
    ) -> int:
        """Return the number of texts that `generate` is to translate.

        Raises:
            ValueError: If there are none.
        """
        for source in (inputs, input_ids, inputs_embeds):
            if source is not None and len(source) > 0:
                return len(source)
        raise TmdeError("Give input_ids to translate, or encoder_outputs to decode embeddings from")
