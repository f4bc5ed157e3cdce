"""What every encoder-decoder of this package shares: target languages, losses, decoding from an embedding alone."""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling


class EmbeddingSeq2Seq:
    """
    Mixin of a `PreTrainedModel` that has an encoder `model`, whose `pooler_output` is the embedding of a text, a
    `decoder` told which language to write, and an output projection `lm_head`.

    It stands first among the bases, and transformers wants `GenerationMixin` last among them:
    `class XForConditionalGeneration(EmbeddingSeq2Seq, XPreTrainedModel, GenerationMixin)`.

    What a decoder needs of the encoder besides the embedding is said by `decoder_sees_states`, and whether the
    embedding alone is enough to generate from by `decodes_embeddings`.
    """

    decoder_sees_states = False
    decodes_embeddings = True

    def get_encoder(self, modality: str | None = None) -> PreTrainedModel:
        return self.model

    def get_decoder(self) -> nn.Module:
        return self.decoder

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As in transformers, which knows the encoder's table and the output; the decoder's goes along."""
        self.decoder.resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        return super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)

    def language_ids(
        self, target_language: str | list[str] | torch.LongTensor | None, batch_size: int
    ) -> torch.LongTensor:
        """Ids (batch,) of target languages given as one code, a list of codes, or ids already.

        Raises:
            ValueError: If it is missing, unknown, or does not fit the batch.
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

    def _encoded(self, input_ids, attention_mask, encoder_outputs, kwargs) -> tuple:
        if encoder_outputs is None:
            inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
            return self.model(**inputs, return_dict=True, **kwargs), attention_mask
        if isinstance(encoder_outputs, torch.Tensor):
            return self.embedding_as_encoder_outputs(encoder_outputs), None
        return encoder_outputs, attention_mask

    def _target_ids(
        self, decoder_input_ids: torch.LongTensor | None, labels: torch.LongTensor | None
    ) -> torch.LongTensor:
        """What the decoder reads: given, or made from labels."""
        if decoder_input_ids is not None:
            return decoder_input_ids
        if labels is None:
            raise ValueError("Give decoder_input_ids, or labels to make them from")
        return labels.masked_fill(labels == -100, self.config.pad_token_id)

    def _loss(
        self, logits: torch.Tensor, labels: torch.LongTensor, num_items_in_batch: int | torch.Tensor | None
    ) -> torch.Tensor:
        """Cross-entropy of logits (batch, length, vocab_size) for labels `<s> tokens </s>`, shifted here by one."""
        targets = labels[:, 1:].masked_fill(labels[:, 1:] == self.config.pad_token_id, -100)
        reduction = "mean" if num_items_in_batch is None else "sum"
        loss = nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), targets.flatten(), reduction=reduction
        )
        return loss if num_items_in_batch is None else loss / num_items_in_batch

    def embedding_as_encoder_outputs(self, embedding: torch.Tensor) -> BaseModelOutputWithPooling:
        """Embeddings (batch, d_model) in the form the decoder takes: a memory of one slot.

        Raises:
            ValueError: The decoder needs more than the embedding.
        """
        if not self.decodes_embeddings:
            raise ValueError(
                f"{type(self).__name__} decodes from the outputs of its encoder for every token, which an embedding "
                f"alone ({tuple(embedding.shape)}) does not give; pass input_ids, or what get_encoder() returned"
            )
        return BaseModelOutputWithPooling(last_hidden_state=embedding[:, None], pooler_output=embedding)

    def generate(self, inputs=None, *args, target_language=None, encoder_outputs=None, **kwargs):
        """Translates, or with `encoder_outputs` of shape (batch, d_model) decodes embeddings back into text.

        Args as in `GenerationMixin.generate`, and `target_language`: one code, or one per text. A T-MDE `dual` model
        decodes a bare embedding with its bottleneck band alone.
        """
        if isinstance(encoder_outputs, torch.Tensor):
            if getattr(self.config, "bottleneck", None) == "dual":
                kwargs.setdefault("bottleneck_only", True)
            encoder_outputs = self.embedding_as_encoder_outputs(encoder_outputs.to(self.device, self.dtype))
        if encoder_outputs is not None:
            kwargs["encoder_outputs"] = encoder_outputs
            batch_size = encoder_outputs.pooler_output.shape[0]
        else:
            given = (inputs, kwargs.get("input_ids"), kwargs.get("inputs_embeds"))
            source = next((tensor for tensor in given if tensor is not None), None)
            if source is None:
                raise ValueError("Give input_ids to translate, or encoder_outputs to decode embeddings from")
            batch_size = source.shape[0]
        kwargs["target_language"] = self.language_ids(target_language, batch_size)
        return super().generate(inputs, *args, **kwargs)


__all__ = ["EmbeddingSeq2Seq"]
