"""The alignment loss of the XNLI baselines: target encoders learn to give what the source encoder gives."""

import torch

from modeling_tmde import TmdeError
from tmde.training.objectives.base import (
    BatchSizes,
    EmbeddingObjective,
    ObjectiveOutput,
    check_range,
)


class XnliAlignment(EmbeddingObjective):
    """
    Alignment loss (paper 004, section 4.2.4) of the source language with every other language of a row.

    `L(x, y) = dist(x, y) - negative_weight * (dist(x_c, y) + dist(x, y_c))` with the Euclidean distance, x of the
    source language and y its translation, and x_c and y_c other sentences of the two languages, drawn from the same
    micro-batch, each on its own; a sentence is never drawn for itself. Only y and y_c have a gradient: the source
    encoder is what the others are fitted to. A batch of one row has no negatives.

    It is the loss as printed, which nothing but the negatives' weight keeps from falling for ever: above 0.5, target
    vectors that move away from everything make it smaller without end. Up to 0.5, as with the 0.25 of the paper, it
    is by the triangle inequality, on average over the draws, at least `-2 * negative_weight` times the mean distance
    of the source's vectors from each other.

    With `margin`, it is the ranking loss that the paper compares with and rejects for "very poor results", because
    translations need only be nearer than other sentences, not near:
    `L_rank(x, y) = max(0, margin - dist(x, y_c) + dist(x, y)) + max(0, margin - dist(x_c, y) + dist(x, y))`.

    Args:
        weight: Factor in the total loss.
        negative_weight: lambda, 0.25; without influence on the ranking loss.
        source_language: Whose encoder the others are fitted to.
        margin: alpha of the ranking loss, of which the paper prints no value; None for the alignment loss.

    Inputs: embeddings (languages, rows, d) and the codes of the languages.

    Raises:
        ValueError: If `negative_weight` is negative, or the source is not among the languages of a batch.

    Example:

    ```python
    >>> objective = XnliAlignment()
    >>> output = objective(embeddings, ("de", "en"))  # (2, 64, 1024)
    >>> loss = output.loss / 64
    ```
    """

    takes_languages = True
    needs_pivot = True  # every row must hold the source, the pivot language of its recipes

    def __init__(
        self,
        weight: float = 1.0,
        negative_weight: float = 0.25,
        source_language: str = "en",
        margin: float | None = None,
    ):
        super().__init__(weight)
        check_range("xnli_alignment negative_weight", negative_weight, "[0, inf)")
        self.negative_weight = negative_weight
        self.source_language = source_language
        self.margin = margin

    def count(self, sizes: BatchSizes) -> int:
        return sizes.rows * (sizes.languages - 1)

    def forward(self, embeddings: torch.Tensor, languages: tuple[str, ...]) -> ObjectiveOutput:
        if self.source_language not in languages:
            raise TmdeError(
                f"xnli_alignment fits every language to source_language={self.source_language!r}, and a batch of "
                f"{', '.join(languages)} lacks it: train on rows that have it (data.pivot_languages="
                f"[{self.source_language}]), or name another source"
            )
        source = languages.index(self.source_language)
        x = embeddings[source].float().detach()  # (rows, d)
        y = torch.cat(
            [embeddings[:source], embeddings[source + 1 :]]
        ).float()  # (languages - 1, rows, d)
        positive = torch.linalg.vector_norm(x - y, dim=-1)  # (languages - 1, rows)
        negatives = positive.new_empty(0, *positive.shape)  # of one row
        if y.shape[1] > 1:
            x_c = x[_others(positive)]  # (languages - 1, rows, d)
            y_c = y.gather(1, _others(positive)[..., None].expand_as(y))
            negatives = torch.linalg.vector_norm(
                torch.stack([x_c - y, x - y_c]), dim=-1
            )  # (2, languages - 1, rows)
        if self.margin is None:
            loss = positive.sum() - self.negative_weight * negatives.sum()
        else:
            loss = (self.margin + positive - negatives).clamp_min(0).sum()
        sums = {"loss": loss, "positive": positive.sum(), "negative": negatives.sum() / 2}
        return ObjectiveOutput(loss, {name: value.detach() for name, value in sums.items()})


def _others(places: torch.Tensor) -> torch.LongTensor:
    """For each place of (languages, rows) a random row that is not its own."""
    rows = places.shape[1]
    shift = torch.randint(1, rows, places.shape, device=places.device)
    return (torch.arange(rows, device=places.device) + shift) % rows
