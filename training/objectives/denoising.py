"""Denoising auto-encoding: the decoder writes a text whose tokens the encoder reads in disorder."""

from __future__ import annotations

import torch
from transformers import PreTrainedConfig

from modeling_tmde import TmdeError
from tmde.training.objectives.base import check_range
from tmde.training.objectives.encoded_batch import EncodedBatch
from tmde.training.objectives.masking import content_tokens, hiding_token
from tmde.training.objectives.noise import blank_tokens, drop_tokens, shuffle_locally
from tmde.training.objectives.reconstruction import Reconstruction


class Denoising(Reconstruction):
    """The cross-entropy of a text given a noisy version of it, `-log p(x | C(x), language of x)`.

    The noise C moves tokens by a few positions, drops some and blanks others. It trains the decoder
    for each language on monolingual texts.

    Args:
        weight: The factor of this loss in the total.
        label_smoothing: The share of the target distributed evenly over the vocabulary.
        shuffle_distance: The maximum number of positions by which a token moves; 0 for none.
        drop_share: The probability that a token is dropped.
        blank_share: The probability that a remaining token becomes `<mask>`.

    Source: Lample et al. 2018 (arXiv 1711.00043, section 2.3); Conneau 2019, section 4.3.5.

    Inputs: decoder states (tokens, d_model) of the real target positions, the output projection
    (vocab_size, d_model), and the targets (tokens,).

    Raises:
        TmdeError: A number is out of range, or tokens are blanked but the model has no `<mask>`.

    Example:
        ```python
        import torch

        from tmde import Denoising, TmdeConfig

        config = TmdeConfig(mask_token_id=4)
        input_ids = torch.randint(5, 1000, (2, 8, 12))  # (languages, rows, length)
        objective = Denoising(drop_share=0.1, blank_share=0.1)
        noisy_ids, mask = objective.add_noise(input_ids, torch.ones_like(input_ids), config)
        ```
    """

    def __init__(
        self,
        weight: float = 1.0,
        label_smoothing: float = 0.0,
        shuffle_distance: int = 3,
        drop_share: float = 0.1,
        blank_share: float = 0.1,
    ):
        super().__init__(weight, label_smoothing)
        check_range("denoising shuffle_distance", shuffle_distance, "[0, inf)")
        check_range("denoising drop_share", drop_share, "[0, 1)")
        check_range("denoising blank_share", blank_share, "[0, 1)")
        self.shuffle_distance = shuffle_distance
        self.drop_share = drop_share
        self.blank_share = blank_share

    def check_config(self, config: PreTrainedConfig) -> None:
        """Check that the model can have a token for blanks.

        Raises:
            TmdeError: Tokens are blanked, and the architecture has no `<mask>`.
        """
        if self.blank_share and not hasattr(config, "mask_token_id"):
            raise TmdeError(
                f"denoising blank_share={self.blank_share} needs a mask token, which the "
                f"architecture {config.model_type!r} does not have: set "
                "objectives.denoising.blank_share=0"
            )

    def source_texts(self, encoded: EncodedBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return noisy versions of the batch's texts."""
        batch = encoded.batch
        return self.add_noise(batch.input_ids, batch.attention_mask, encoded.model.config)

    def add_noise(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return noisy texts and their attention mask.

        Args:
            input_ids: (..., length), `<s> tokens </s>`, padded on the right.
            attention_mask: (..., length).
            config: The model's configuration, with its special tokens.
        """
        shape = input_ids.shape
        ids = input_ids.flatten(0, -2)  # (texts, length)
        mask = attention_mask.flatten(0, -2)
        ids = shuffle_locally(ids, content_tokens(ids, mask, config), self.shuffle_distance)
        is_content = content_tokens(ids, mask, config)
        ids, mask = drop_tokens(ids, mask, is_content, self.drop_share, config.pad_token_id)
        if self.blank_share:
            is_content = content_tokens(ids, mask, config)
            ids = blank_tokens(ids, is_content, self.blank_share, hiding_token(config))
        return ids.view(shape), mask.view(shape)
