"""The noise of denoising auto-encoders: tokens of a text change places, vanish or are blanked.

Every function takes texts (texts, length) that are `<s> tokens </s>`, padded on the right, and
leaves `<s>`, `</s>` and padding where they belong.

Source: Lample et al. 2018 (arXiv 1711.00043, section 2.3), whom Conneau follows (2019, section
4.3.5).
"""

from __future__ import annotations

import torch


def shuffle_locally(
    input_ids: torch.Tensor, is_content: torch.Tensor, distance: int
) -> torch.Tensor:
    """Return the texts (texts, length) with tokens moved by at most `distance` places.

    Tokens are sorted by `i + u`, where i is the place of a token and u is drawn uniformly from
    [0, distance + 1): a token is only passed by others that stood at most `distance` behind it.

    Args:
        input_ids: (texts, length).
        is_content: Which tokens are neither padding nor special, (texts, length).
        distance: The largest number of places; 0 leaves the texts as they are.
    """
    places = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
    moves = torch.rand(input_ids.shape, device=input_ids.device) * (distance + 1)
    last_content = (places * is_content).amax(dim=1, keepdim=True)  # (texts, 1)
    # What stands behind the content stays there, wherever the last tokens of the content move.
    behind = places + (places > last_content) * (distance + 1)
    order = torch.where(is_content, places + moves, behind.to(moves.dtype))
    return input_ids.gather(1, order.argsort(dim=1, stable=True))


def drop_tokens(
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    is_content: torch.Tensor,
    share: float,
    pad_token_id: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the texts and their mask without some tokens, each dropped with the same probability.

    At least one token of the content stays, because an empty text tells nothing.

    Args:
        input_ids: (texts, length).
        attention_mask: (texts, length), 1 for tokens and 0 for padding.
        is_content: Which tokens are neither padding nor special, (texts, length).
        share: The probability that a token is dropped.
        pad_token_id: The id that fills the end of a text.
    """
    chances = torch.rand(input_ids.shape, device=input_ids.device)
    last_to_go = chances.masked_fill(~is_content, -1).argmax(dim=1, keepdim=True)  # (texts, 1)
    is_dropped = is_content & (chances < share)
    is_dropped = is_dropped.scatter(1, last_to_go, False)
    is_kept = attention_mask.bool() & ~is_dropped
    # What is kept comes first, in its order; padding and dropped tokens follow.
    order = (~is_kept).to(torch.int8).argsort(dim=1, stable=True)
    mask = is_kept.gather(1, order)
    ids = input_ids.gather(1, order).masked_fill(~mask, pad_token_id)
    return ids, mask.to(attention_mask.dtype)


def blank_tokens(
    input_ids: torch.Tensor, is_content: torch.Tensor, share: float, mask_token_id: int
) -> torch.Tensor:
    """Return the texts (texts, length) with some tokens replaced by `<mask>`.

    Args:
        input_ids: (texts, length).
        is_content: Which tokens are neither padding nor special, (texts, length).
        share: The probability that a token is replaced.
        mask_token_id: The id of `<mask>`.
    """
    is_blank = torch.rand(input_ids.shape, device=input_ids.device) < share
    return input_ids.masked_fill(is_content & is_blank, mask_token_id)
