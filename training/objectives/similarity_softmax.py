"""Sentence similarity loss: texts are as similar to each other in one language as in another."""

import itertools
import math

import torch

from tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput, check_range


class SimilaritySoftmax(EmbeddingObjective):
    """Make the similarities within two languages agree (Mao et al., 2021, eq. 6).

    With embeddings u and v of a batch in two languages, row j1 costs `-log cos(pi/2 *
    (softmax_j2(u_j1 . u_j2) - softmax_j2(v_j1 . v_j2)))`, summed over all rows j2. Beyond a
    difference of `1 - epsilon`, the loss is linear, because it is infinite at 1.

    Args:
        weight: The factor of this loss in the total; 2 in eq. 7.
        epsilon: The distance from a difference of 1 at which the linear part starts.

    Inputs: embeddings (languages, rows, d_model). The sum has one term per row and pair of
    languages.

    Raises:
        TmdeError: epsilon is not between 0 and 1.

    Example:
        ```python
        import torch

        from tmde import SimilaritySoftmax

        embeddings = torch.randn(2, 64, 128)  # (languages, rows, d_model)
        objective = SimilaritySoftmax(weight=2.0)
        output = objective(embeddings)
        loss = objective.weight * output.loss / 64
        ```
    """

    def __init__(self, weight: float = 1.0, epsilon: float = 1e-3):
        super().__init__(weight)
        check_range("similarity_softmax epsilon", epsilon, "(0, 1)")
        self.epsilon = epsilon

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        """Return the disagreement of all pairs of languages."""
        embeddings = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
        # Products of hundreds need fp32 in an exponent.
        with torch.autocast(embeddings.device.type, enabled=False):
            similarities = (embeddings @ embeddings.mT).softmax(dim=2)  # (languages, rows, rows)
            losses = [self._disagreement(u - v) for u, v in itertools.combinations(similarities, 2)]
        loss = torch.stack(losses).sum()
        return ObjectiveOutput(loss, {"loss": loss.detach()})

    def _disagreement(self, differences: torch.Tensor) -> torch.Tensor:
        """Return the sum of `-log cos(pi/2 x)` over differences x of probabilities (rows, rows)."""
        sizes = differences.abs()
        line_begins = 1 - self.epsilon
        slope = math.pi / 2 * math.tan(math.pi / 2 * line_begins)
        beyond = (sizes - line_begins).clamp(min=0)
        cosines = (math.pi / 2 * sizes.clamp(max=line_begins)).cos()
        return (slope * beyond - cosines.log()).sum()
