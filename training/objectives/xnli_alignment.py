"""The alignment loss of the XNLI baselines: target encoders learn to match the source encoder."""

import torch

from modeling_tmde import TmdeError
from tmde.training.objectives.base import (
    BatchSizes,
    Objective,
    ObjectiveOutput,
    Requirements,
    check_range,
)
from tmde.training.objectives.encoded_batch import EncodedBatch


class XnliAlignment(Objective):
    """Fit every language to a frozen source language (Conneau, 2019, section 4.2.4).

    `L(x, y) = dist(x, y) - negative_weight * (dist(x_c, y) + dist(x, y_c))` with the Euclidean
    distance. x is a sentence of the source language, y its translation, and x_c and y_c are random
    other sentences in the micro-batch. Only y and y_c have a gradient. Set `negative_weight` to 0.5
    or less; above 0.5, the loss has no lower bound.

    With `margin`, it is the ranking loss that the paper rejects for "very poor results": `L_rank(x,
    y) = max(0, margin - dist(x, y_c) + dist(x, y)) + max(0, margin - dist(x_c, y) + dist(x, y))`.

    Args:
        weight: The factor of this loss in the total.
        negative_weight: The factor of the distances to other sentences (lambda), without `margin`.
            Default: 0.25, as in the paper.
        source_language: The language with the encoder to which the others are fitted.
        margin: How much farther than the translation another sentence must be (alpha), for the
            ranking loss. The paper states no value.

    Inputs: embeddings (languages, rows, d) and the codes of the languages.

    Raises:
        TmdeError: `negative_weight` is negative, or a batch lacks the source language.

    Example:
        ```python
        import torch

        from tmde import XnliAlignment

        objective = XnliAlignment(source_language="en")
        output = objective(torch.randn(2, 64, 128), ("de", "en"))
        loss = objective.weight * output.loss / 64
        ```
    """

    # Every row must hold the source, the pivot language of the recipes with this objective.
    requirements = Requirements(pivot=True)

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
        """Return one term per row and language other than the source."""
        return sizes.rows * (sizes.languages - 1)

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the loss of the embeddings with the languages of the batch."""
        output: ObjectiveOutput = self(encoded.embeddings, encoded.batch.languages)
        return output

    def forward(self, embeddings: torch.Tensor, languages: tuple[str, ...]) -> ObjectiveOutput:
        """Return the loss, and the distances to translations and to negatives."""
        if self.source_language not in languages:
            raise TmdeError(
                "xnli_alignment fits every language to "
                f"source_language={self.source_language!r}, and a batch of "
                f"{', '.join(languages)} lacks it: train on rows with it "
                f"(data.pivot_languages=[{self.source_language}]), or choose another source"
            )
        source = languages.index(self.source_language)
        x = embeddings[source].float().detach()  # (rows, d)
        targets = torch.cat([embeddings[:source], embeddings[source + 1 :]])
        y = targets.float()  # (languages - 1, rows, d)
        positive = torch.linalg.vector_norm(x - y, dim=-1)  # (languages - 1, rows)
        negatives = self._negatives(x, y)  # (2, languages - 1, rows)
        if self.margin is None:
            loss = positive.sum() - self.negative_weight * negatives.sum()
        else:
            loss = (self.margin + positive - negatives).clamp_min(0).sum()
        components = {
            "loss": loss.detach(),
            "positive": positive.sum().detach(),
            "negative": (negatives.sum() / 2).detach(),
        }
        return ObjectiveOutput(loss, components)

    @staticmethod
    def _negatives(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return `dist(x_c, y)` and `dist(x, y_c)`, (2, languages - 1, rows).

        Args:
            x: (rows, d) of the source.
            y: (languages - 1, rows, d) of the others. With one row there are no negatives, and the
                first dimension of the result is 0.
        """
        num_languages, num_rows, _ = y.shape
        if num_rows == 1:
            return y.new_empty(0, num_languages, num_rows)
        x_c = x[_random_other_rows(y)]  # (languages - 1, rows, d)
        y_c = y.gather(1, _random_other_rows(y)[..., None].expand_as(y))
        distances: torch.Tensor = torch.linalg.vector_norm(torch.stack([x_c - y, x - y_c]), dim=-1)
        return distances


def _random_other_rows(texts: torch.Tensor) -> torch.Tensor:
    """Return (languages, rows): for each text of (languages, rows, d) a row that is not its own."""
    num_rows = texts.shape[1]
    shifts = torch.randint(1, num_rows, texts.shape[:2], device=texts.device)
    return (torch.arange(num_rows, device=texts.device) + shifts) % num_rows
