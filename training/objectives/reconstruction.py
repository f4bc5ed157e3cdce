"""What denoising and back-translation share: a text is decoded from another text in its place."""

from __future__ import annotations

import torch

from tmde.training.objectives.base import BatchSizes, ObjectiveOutput, Requirements
from tmde.training.objectives.encoded_batch import EncodedBatch
from tmde.training.objectives.targets import SELF
from tmde.training.objectives.translation import TranslationObjective


class Reconstruction(TranslationObjective):
    """Base class of losses that decode every text of a batch from a text made from it.

    A subclass makes that text in `source_texts`. Rows need one language. The encoder reads no
    language and the decoder is told that of the text.

    Args:
        weight: Factor of this loss in the total.
        label_smoothing: The share of the target that goes to all entries alike.

    Inputs: decoder states (tokens, d_model) of the real target positions, the output projection
        (vocab_size, d_model), and the targets (tokens,).
    """

    requirements = Requirements(
        embeddings="none", decoder=True, several_languages=False, one_encoder=True
    )

    def __init__(self, weight: float = 1.0, label_smoothing: float = 0.0):
        super().__init__(weight, label_smoothing, targets=SELF)
        # Its terms are counted by `count`, whatever a translation loss beside it predicts.
        self.requirements = type(self).requirements

    def count(self, sizes: BatchSizes) -> int:
        """Return the number of tokens that are decoded, `</s>` among them and `<s>` not."""
        return sizes.tokens - sizes.texts

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Encode the texts made from those of the batch, and return the loss of decoding these."""
        input_ids, attention_mask = self.source_texts(encoded)
        return super().compute(encoded.reencoded(input_ids, attention_mask))

    def source_texts(self, encoded: EncodedBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the encoder reads for each text of the batch.

        Returns:
            Token ids `<s> tokens </s>` and their mask, both (languages, rows, any length).
        """
        raise NotImplementedError
