"""Translation language modelling: hidden tokens, predicted from the rest of a text and from its translation."""

from dataclasses import replace

import torch
from transformers import PreTrainedConfig

from tmde.training.objectives.base import BatchSizes, Masked
from tmde.training.objectives.masked_lm import MaskedLanguageModel


def neighbors(languages: int) -> list[tuple[int, int]]:
    """The pairs of languages that are read together: of two the one pair, of more each with the next, in a ring, so
    that each is read equally often."""
    return (
        [(0, 1)]
        if languages == 2
        else [(place, (place + 1) % languages) for place in range(languages)]
    )


class TranslationLanguageModel(MaskedLanguageModel):
    """
    Translation language modelling (TLM): masked language modelling over a text and its translation, read as one.

    `<s> text </s> <s> translation </s>` with tokens of both hidden; the positions of the translation begin at 0 again.
    There is no language signal (XLM-R, which thesis 000 compares with, has none). Rows of two languages are joined in
    their order; of more, each language is joined with the next of the row and the last with the first, so that every
    text is read twice.

    The thesis alternates between batches for MLM and for TLM; with both among the objectives of a recipe, each batch
    is used for the two.

    Args:
        weight, share, mask_share, random_share: As for `MaskedLanguageModel`.

    Source: thesis 004, section 4.3.3 and figure 4.6 (Lample and Conneau 2019).

    Inputs: As for `MaskedLanguageModel`.

    Example:

    ```python
    >>> objective = TranslationLanguageModel()
    >>> masked = objective.mask(input_ids, attention_mask, model.config)  # from (2, rows, length)
    >>> states = model.model(masked.input_ids, masked.attention_mask, masked.position_ids).token_states
    >>> output = objective(model.head(states.flatten(0, 1)[masked.places]), model.lm_head.weight, masked.targets)
    ```
    """

    needs_all_embeddings = False
    masks_input = False  # it has an encoder call of its own

    def count(self, sizes: BatchSizes) -> int:
        readings = 2 * len(neighbors(sizes.languages)) // sizes.languages  # of every text
        return self.chosen(readings * (sizes.tokens - 2 * sizes.texts))

    def mask(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> Masked:
        """
        Args:
            input_ids, attention_mask: (languages, rows, length), padded on the right.

        Returns:
            (pairs * rows, 2 * length): the first pair of every row, then the second, ... The padding of the first
            text stays between the two, where nothing attends it.

        Raises:
            ValueError: If there is one language only.
        """
        first, second = map(list, zip(*neighbors(len(input_ids)), strict=True))
        joined = [
            torch.cat([part[first], part[second]], dim=-1).flatten(0, 1)
            for part in (input_ids, attention_mask)
        ]
        positions = (
            torch.arange(input_ids.shape[-1], device=input_ids.device)
            .repeat(2)
            .expand_as(joined[0])
        )
        return replace(
            super().mask(*joined, config), attention_mask=joined[1], position_ids=positions
        )
