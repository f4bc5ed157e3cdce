"""Random draws without replacement."""

from __future__ import annotations

import torch


def draw_without_replacement(
    candidates: torch.Tensor,
    number: int,
    dim: int = -1,
    inverse_weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Draw some of the candidates along one dimension, none of them twice.

    The largest of independent uniform numbers `u` are a draw with equal chances, the largest
    `u ** (1 / weight)` one in proportion to the weights (Efraimidis and Spirakis 2006).

    Args:
        candidates: Which places may be drawn. Others come last, after all candidates.
        number: How many places to draw along `dim`.
        dim: The dimension along which places are drawn, each line on its own.
        inverse_weights: One over the weight of each place; None for equal chances.

    Returns:
        The drawn places along `dim`, in random order.
    """
    keys = torch.rand(candidates.shape, device=candidates.device)
    if inverse_weights is not None:
        keys = keys.log() * inverse_weights
    return keys.masked_fill(~candidates, -torch.inf).topk(number, dim=dim).indices


def draw_other_rows(rows: int, number: int, device: torch.device) -> torch.Tensor:
    """Return (rows, number) different rows for each of `rows` rows, never the row itself."""
    itself = torch.eye(rows, dtype=torch.bool, device=device)
    return draw_without_replacement(~itself, number)
