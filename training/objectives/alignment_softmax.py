"""Sentence alignment loss: each text picks its translation in the batch by inner product."""

import itertools

import torch

from tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput
from tmde.training.objectives.infonce import softmax_sums


class AlignmentSoftmax(EmbeddingObjective):
    """Find the translation in the batch by inner products, for every pair of languages.

    With embeddings u and v of a batch in two languages, row j costs `-log(exp(u_j . v_j) / sum_k
    exp(u_j . v_k)) - log(exp(u_j . v_j) / sum_k exp(u_k . v_j))` (Mao et al., 2021, eq. 5). Unlike
    `InfoNCE`, it uses no cosine or temperature.

    Args:
        weight: The factor of this loss in the total; 2 in eq. 7.

    Inputs: embeddings (languages, rows, d_model). The sum has one term per row and pair of
    languages, both directions together. Components: `loss`, and `accuracy`, the share of texts for
    which the translation has the largest product.

    Example:
        ```python
        import torch

        from tmde import AlignmentSoftmax

        embeddings = torch.randn(2, 64, 128)  # (languages, rows, d_model)
        objective = AlignmentSoftmax(weight=2.0)
        output = objective(embeddings)
        loss = objective.weight * output.loss / 64
        ```
    """

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        """Return the loss of both directions, and half the number of correct choices."""
        embeddings = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
        losses = []
        corrects = []
        # Products of hundreds need fp32 in an exponent.
        with torch.autocast(embeddings.device.type, enabled=False):
            for u, v in itertools.combinations(embeddings, 2):
                products = u @ v.T  # (rows of u, rows of v)
                for logits in (products, products.T):
                    loss, correct = softmax_sums(logits)
                    losses.append(loss)
                    corrects.append(correct)
        loss = torch.stack(losses).sum()
        accuracy = torch.stack(corrects).sum() / 2
        return ObjectiveOutput(loss, {"loss": loss.detach(), "accuracy": accuracy})
