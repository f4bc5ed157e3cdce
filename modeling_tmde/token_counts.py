"""How often a token occurs in its text: a bag may count repeated tokens less than in proportion."""

import torch


def sublinear_log_weights(
    log_weights: torch.Tensor, token_ids: torch.Tensor, texts: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Log weights with which a token that occurs n times in a text counts sqrt(n) times in all.

    Long documents repeat their commonest tokens, which would otherwise outweigh what the document is about; the
    square root is one of the usual damping functions (`sublinear_tf` in TF-IDF is another).

    Args:
        log_weights: (tokens,), of each occurrence.
        token_ids: (tokens,).
        texts: (tokens,), the number of the text that each token belongs to.
        vocab_size: More than any token id.

    Returns:
        (tokens,): `log_weights - log(n) / 2`.
    """
    keys = texts.long() * vocab_size + token_ids.long()
    _, inverse, counts = torch.unique(keys, return_inverse=True, return_counts=True)
    return log_weights - counts[inverse].to(log_weights.dtype).log() / 2


def occurrences(input_ids: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """How often each token occurs in its text: `n` above for texts in rows, without waiting for an accelerator.

    Args:
        input_ids: (batch, length).
        counted: (batch, length), true where a token counts.

    Returns:
        (batch, length), at least 1; of no meaning where a token does not count.
    """
    ids = input_ids.masked_fill(~counted, -1).contiguous()
    ordered = ids.sort(dim=1).values
    return torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)
