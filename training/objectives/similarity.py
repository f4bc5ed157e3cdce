"""The similarity loss of Yu et al. (2018): translations to the same point."""

import itertools

import torch

from tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput


class SimilarityLoss(EmbeddingObjective):
    """Pull a text and its translation to the same point: `L_sim = ||h(s) - h(t)||_2^2`.

    There is one term per pair of languages in a row. Combine it with a translation loss: alone, it
    makes all vectors equal.

    Args:
        weight: The factor of this loss in the total (alpha). The paper suggests starting with a
            factor that makes both losses comparable.

    Source: Yu et al. 2018, section 2.2.

    Inputs: embeddings (languages, rows, d_model), neither scaled nor normalized.

    Example:
        ```python
        import torch

        from tmde import SimilarityLoss

        embeddings = torch.randn(2, 64, 128)  # (languages, rows, d_model)
        objective = SimilarityLoss(weight=0.1)
        output = objective(embeddings)
        loss = objective.weight * output.loss / 64
        ```
    """

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        """Return the squared distances of translations."""
        embeddings = embeddings.float()  # In bf16, the difference of close vectors cancels.
        loss = embeddings.new_zeros(())
        for a, b in itertools.combinations(embeddings, 2):
            loss = loss + (a - b).square().sum()
        return ObjectiveOutput(loss, {"loss": loss.detach()})
