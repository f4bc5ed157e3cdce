"""Texts of which some tokens are hidden or predicted, and what the losses on such tokens share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedConfig

from modeling_tmde import TmdeError
from tmde.training.objectives.base import Objective, Requirements


@dataclass
class Masked:
    """Texts with some tokens hidden.

    Attributes:
        input_ids: The texts (..., length) with the hidden tokens replaced.
        places: The ascending places (tokens,) of the tokens to predict in the flattened input.
        targets: The tokens (tokens,) to predict.
        is_content: Which tokens belong to a text's content, hidden ones included, in the shape of
            the input.
        attention_mask: The mask (..., length) of texts that were joined; None for others.
        position_ids: The positions (..., length) of texts that were joined; None for others.
    """

    input_ids: torch.Tensor
    places: torch.Tensor
    targets: torch.Tensor
    is_content: torch.Tensor
    attention_mask: torch.Tensor | None = None
    position_ids: torch.Tensor | None = None


class MaskingObjective(Objective):
    """A loss for which the encoder reads texts with tokens hidden."""

    requirements = Requirements(encoder_states=True, head=True, masked_input=True)

    def mask(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> Masked:
        """Hide tokens.

        Args:
            input_ids: (languages, rows, length), padded on the right.
            attention_mask: (languages, rows, length).
            config: The model's, with its special tokens, `<mask>` among them, and the size of its
                vocabulary.

        Returns:
            The texts with tokens hidden, and the tokens to predict.
        """
        raise NotImplementedError


def content_tokens(
    ids: torch.Tensor, attention_mask: torch.Tensor, config: PreTrainedConfig
) -> torch.Tensor:
    """Return which tokens are neither padding nor special, in the shape of `ids`."""
    special = torch.tensor(config.special_token_ids, device=ids.device)
    return attention_mask.bool() & ~torch.isin(ids, special)


def hiding_token(config: PreTrainedConfig) -> int:
    """Return the id of the token that hides others.

    Raises:
        TmdeError: The config has none.
    """
    token_id: int | None = getattr(config, "mask_token_id", None)
    if token_id is None:
        raise TmdeError(
            "Found mask_token_id=None, expected the id of a mask token: use a tokenizer that "
            "has one, or an objective that hides nothing (with denoising, "
            "objectives.denoising.blank_share=0)"
        )
    return token_id


def random_tokens(number: int, config: PreTrainedConfig, device: torch.device) -> torch.Tensor:
    """Return (number,) entries of the vocabulary, drawn uniformly from those not special."""
    specials = sorted(set(config.special_token_ids))
    drawn = torch.randint(config.vocab_size - len(specials), (number,), device=device)
    # The special tokens ascend, so that whatever is at or above one moves over it.
    for token in specials:
        drawn = drawn + (drawn >= token)
    return drawn
