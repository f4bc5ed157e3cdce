"""Translation language modeling: hidden tokens predicted from their text and its translation."""

from dataclasses import replace

import torch
from transformers import PreTrainedConfig

from tmde.training.objectives.base import BatchSizes, ObjectiveOutput, Requirements
from tmde.training.objectives.encoded_batch import EncodedBatch
from tmde.training.objectives.masked_lm import MaskedLanguageModel
from tmde.training.objectives.masking import Masked


def neighbors(languages: int) -> list[tuple[int, int]]:
    """Return the pairs of languages that are read together.

    Two languages are one pair. Of more, each is paired with the next, in a ring, so that every
    language is read equally often.
    """
    if languages == 2:
        return [(0, 1)]
    return [(first, (first + 1) % languages) for first in range(languages)]


class TranslationLanguageModel(MaskedLanguageModel):
    """Translation language modeling (TLM).

    This is masked language modeling over a text joined with its translation: `<s> text </s> <s>
    translation </s>`. Positions restart at 0 in the translation. There is no language signal, as in
    XLM-R. In rows with more than two languages, each language is joined with the next, and the last
    with the first.

    Args:
        weight: The factor of this loss in the total.
        share: As for [`MaskedLanguageModel`].
        mask_share: As for [`MaskedLanguageModel`].
        random_share: As for [`MaskedLanguageModel`].
        frequency_power: As for [`MaskedLanguageModel`].

    Source: Conneau 2019, section 4.3.3 and figure 4.6 (Lample and Conneau 2019).

    Inputs: outputs of the prediction head (tokens, d_model) at the chosen places, the output
    projection (vocab_size, d_model), and the original tokens there (tokens,).

    Example:
        ```python
        import torch

        from tmde import TmdeEncoderConfig, TmdeEncoderForMaskedLM, TranslationLanguageModel

        config = TmdeEncoderConfig(vocab_size=1000, d_model=64, mask_token_id=4)
        model = TmdeEncoderForMaskedLM(config)
        input_ids = torch.randint(5, 1000, (2, 8, 12))  # (languages, rows, length)
        attention_mask = torch.ones_like(input_ids)

        objective = TranslationLanguageModel()
        masked = objective.mask(input_ids, attention_mask, config)
        encoded = model.model(
            masked.input_ids, masked.attention_mask, position_ids=masked.position_ids
        )
        hidden = model.head(encoded.token_states.flatten(0, 1)[masked.places])
        output = objective(hidden, model.lm_head.weight, masked.targets)
        ```
    """

    requirements = Requirements(embeddings="none", head=True)  # It calls the encoder itself.

    def count(self, sizes: BatchSizes) -> int:
        """Return the number of predicted tokens."""
        # The number of pairs in which each text is read.
        readings_per_text = 2 * len(neighbors(sizes.languages)) // sizes.languages
        return self.num_chosen(readings_per_text * (sizes.tokens - 2 * sizes.texts))

    def mask(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> Masked:
        """Join each text with a translation and hide tokens of both.

        Args:
            input_ids: (languages, rows, length), padded on the right; two languages or more.
            attention_mask: (languages, rows, length).
            config: The model's configuration.

        Returns:
            (pairs * rows, 2 * length): the first pair of every row, then the second, and so on. The
            padding of the first text stays between the two, masked.
        """
        pairs = neighbors(len(input_ids))
        joined_ids = _joined(input_ids, pairs)
        joined_mask = _joined(attention_mask, pairs)
        positions = torch.arange(input_ids.shape[-1], device=input_ids.device)
        position_ids = positions.repeat(2).expand_as(joined_ids)
        masked = super().mask(joined_ids, joined_mask, config)
        return replace(masked, attention_mask=joined_mask, position_ids=position_ids)

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Encode the joined texts and return the loss of their hidden tokens."""
        config = encoded.model.config
        masked = self.mask(encoded.batch.input_ids, encoded.attention_mask, config)
        output = encoded.encoder(
            masked.input_ids,
            attention_mask=masked.attention_mask,
            position_ids=masked.position_ids,
            return_dict=True,
        )
        states = output.token_states.flatten(0, 1).index_select(0, masked.places)
        return self.predict(encoded, states, masked.targets)


def _joined(texts: torch.Tensor, pairs: list[tuple[int, int]]) -> torch.Tensor:
    """Return (pairs * rows, 2 * length) from (languages, rows, length)."""
    first = texts[[first for first, _ in pairs]]
    second = texts[[second for _, second in pairs]]
    return torch.cat([first, second], dim=-1).flatten(0, 1)
