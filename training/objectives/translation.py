"""The translation loss l_mt of eq. 4.21: label-smoothed cross-entropy, without all logits in memory."""

from typing import Literal

import torch
from torch import nn

from tmde.training.objectives.base import BatchSizes, Objective, ObjectiveOutput, check_range
from tmde.training.objectives.cross_entropy import cross_entropy_sum


class TranslationObjective(Objective):
    """
    Label-smoothed cross-entropy of the translation decoder.

    With `p` the model's probabilities, `V` the vocabulary and `e` the smoothing, a target token `t` costs
    `(1 - e) * -log p_t + e / V * sum_c -log p_c`.

    Args:
        weight: Factor in the total loss; 0.5 in eq. 4.21.
        label_smoothing: `e`, 0.1 in the thesis (4.3.1).
        reduction: `"sum"`: a sentence costs the sum over its tokens (eq. 4.21 as printed), and sentences are
            averaged. `"mean"`: tokens are averaged.
        row_share: In training, translate only so many of a batch's rows, drawn anew for each; their loss stands for
            that of all.
        sampled_vocabulary: In training, so many random entries of the vocabulary, and the targets of the batch,
            compete for a place instead of all (Jean et al. 2015): the softmax over a large vocabulary costs more
            than a small model. Loss and nll of such steps are not to be compared with those over all entries, which
            dev rows have. None for all.

    Inputs: decoder states (tokens, d_model) of the real target positions, the output projection
        (vocab_size, d_model), and the targets (tokens,).

    Raises:
        ValueError: On a smoothing outside [0, 1), a share outside (0, 1] or no sampled entries.

    Example:

    ```python
    >>> objective = TranslationObjective(label_smoothing=0.1, reduction="mean")
    >>> output = objective(hidden, model.lm_head.weight, targets)
    >>> (output.loss / len(targets)).backward()
    ```
    """

    needs_decoder = needs_pivot = True

    def __init__(
        self,
        weight: float = 0.5,
        label_smoothing: float = 0.1,
        reduction: Literal["mean", "sum"] = "mean",
        row_share: float = 1.0,
        sampled_vocabulary: int | None = None,
    ):
        super().__init__(weight)
        check_range("translation label_smoothing", label_smoothing, "[0, 1)")
        check_range("translation row_share", row_share, "(0, 1]")
        check_range("translation sampled_vocabulary", sampled_vocabulary, "[1, inf)")
        self.label_smoothing = label_smoothing
        self.reduction = reduction
        self.row_share = row_share
        self.sampled_vocabulary = sampled_vocabulary

    def count(self, sizes: BatchSizes) -> int:
        return sizes.target_tokens if self.reduction == "mean" else sizes.rows * sizes.directions

    def forward(
        self, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> ObjectiveOutput:
        if (
            self.training
            and self.sampled_vocabulary is not None
            and self.sampled_vocabulary < len(weight)
        ):
            drawn = torch.randint(len(weight), (self.sampled_vocabulary,), device=weight.device)
            entries = torch.cat([targets, drawn]).unique()  # sorted
            weight = nn.functional.embedding(entries, weight)
            targets = torch.searchsorted(entries, targets)
        if torch.is_autocast_enabled(hidden.device.type):
            weight = weight.to(hidden.dtype)
        nll = cross_entropy_sum(hidden, weight, targets)
        loss = nll
        if self.label_smoothing:
            # sum_c -log p_c / V is logsumexp minus the mean logit, and -log p_t is logsumexp minus the target's
            # logit; their difference needs two vectors a token instead of the whole row of logits.
            mean_row = weight.mean(0, dtype=torch.float32)  # (d_model,)
            target_rows = nn.functional.embedding(targets, weight).float()  # (tokens, d_model)
            loss = nll + self.label_smoothing * (hidden.float() * (target_rows - mean_row)).sum()
        return ObjectiveOutput(loss, {"loss": loss.detach(), "nll": nll.detach()})
