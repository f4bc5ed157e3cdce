"""InfoNCE: each text picks its translation among those of the whole batch."""

import itertools

import torch
from torch import nn

from tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput, check_range
from tmde.training.objectives.gather import gather_rows, num_processes


class InfoNCE(EmbeddingObjective):
    r"""
    In-batch contrastive loss with temperature, for every ordered pair of languages of a row.

    With `s` the cosine, `t` the temperature and `m` the margin, row `i` costs for a -> b
    `-log(exp((s(a_i, b_i) - m) / t) / (exp((s(a_i, b_i) - m) / t) + sum_{j != i} exp(s(a_i, b_j) / t)))`:
    the cross-entropy of finding its translation among all texts `b_j` of language b, the other rows being negatives.

    Rows with the same text are each other's negatives all the same.

    Args:
        weight: Factor of this loss in the total.
        temperature: What cosines are divided by; the smaller, the more the nearest negatives count.
        margin: Additive margin on the positive pair: subtracted from its cosine.
        center: Subtract the mean of the batch, of the process's own, from all vectors first. The vectors of many
            encoders lie in a narrow cone; without this, a temperature that is large for it would have them leave it.
        gather: In training on several processes, take negatives from all of them, gradients flowing to both sides.
            Language b of another process is the one at the same place among its languages, whichever it is; where
            the languages agree, this is (without `center`) the loss of one process with all rows. Evaluation never
            gathers.

    Source: van den Oord et al. 2018 (InfoNCE); Chen et al. 2020 (cosine and temperature, SimCLR's NT-Xent); Yang et
    al. 2019 (both directions, additive margin).

    Inputs: embeddings (languages, rows, d_model). Components: `loss`, and `accuracy`, how many texts are nearest to
    their own translation.

    Raises:
        ValueError: If the temperature is not above 0.

    Example:

    ```python
    >>> objective = InfoNCE(temperature=0.05)
    >>> output = objective(embeddings)  # (2, 1024, 256)
    >>> loss = objective.weight * output.loss / (2 * 1024)
    ```
    """

    both_directions = True

    def __init__(
        self,
        weight: float = 1.0,
        temperature: float = 0.05,
        margin: float = 0.0,
        gather: bool = True,
        center: bool = False,
    ):
        super().__init__(weight)
        check_range("infonce temperature", temperature, "(0, inf)")
        self.temperature = temperature
        self.margin = margin
        self.gather = gather
        self.center = center

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        vectors = embeddings.float()  # (languages, rows, d_model)
        if self.center:
            vectors = vectors - vectors.mean(dim=(0, 1))
        vectors = nn.functional.normalize(vectors, dim=-1)
        anchors, margin = vectors / self.temperature, self.margin / self.temperature
        # An evaluation has the same rows on every process, or runs on the first alone.
        gathered = self.gather and self.training and num_processes() > 1
        candidates, first = vectors, [0] * len(vectors)
        if gathered:
            candidates, first = zip(*gather_rows(vectors), strict=True)
        sums = []
        with torch.autocast(
            vectors.device.type, enabled=False
        ):  # bf16 keeps too few digits of a cosine
            for a, b in itertools.combinations(range(len(vectors)), 2):
                forth = anchors[a] @ candidates[b].T  # (rows of a, candidates of b)
                # A transposed copy is cheaper than a second product, and than a softmax over the first dimension.
                back = anchors[b] @ candidates[a].T if gathered else forth.T.contiguous()
                sums += [
                    softmax_sums(forth, first[b], margin),
                    softmax_sums(back, first[a], margin),
                ]
        loss, accuracy = (torch.stack(values).sum() for values in zip(*sums, strict=True))
        return ObjectiveOutput(loss, {"loss": loss.detach(), "accuracy": accuracy})


def softmax_sums(
    logits: torch.Tensor, first: int = 0, margin: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of the cross-entropy and of the right first places, from logits (rows, candidates) whose right candidates
    are `first`, `first + 1`, ...; `margin` is taken from the logits of these."""
    right = torch.arange(first, first + len(logits), device=logits.device)
    correct = (logits.detach().argmax(dim=1) == right).sum()
    if margin:
        logits = logits.scatter_add(1, right[:, None], logits.new_full((len(logits), 1), -margin))
    return nn.functional.cross_entropy(logits, right, reduction="sum"), correct
