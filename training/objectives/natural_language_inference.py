"""Natural language inference: whether a premise entails or contradicts its hypothesis."""

import torch
from torch import nn

from tmde.data.rows import CLASSES, NLI_TEXTS
from tmde.training.objectives.base import (
    BatchSizes,
    Objective,
    ObjectiveOutput,
    Requirements,
    check_range,
)
from tmde.training.objectives.encoded_batch import EncodedBatch


class NaturalLanguageInference(Objective):
    """Classify pairs of sentences, as InferSent does (Conneau, 2019, section 3.2.2).

    With vectors u of the premise and v of the hypothesis, a network with one hidden layer reads
    `[u, v, |u - v|, u * v]` and predicts entailment, neutral or contradiction. The loss is the
    cross-entropy. Checkpoints contain the classifier; the saved model does not.

    Args:
        weight: The factor of this loss in the total.
        hidden_size: The number of units in the hidden layer.
        dropout: The dropout rate before both layers of the classifier.

    Inputs: embeddings (2, rows, d) of premises and hypotheses, and the classes (rows,). The sum has
    one term per row. Components: `loss` and `accuracy`.

    Raises:
        TmdeError: `hidden_size` is below 1, or `dropout` is outside [0, 1].

    Example:
        ```python
        import torch

        from tmde import NaturalLanguageInference

        objective = NaturalLanguageInference()
        objective.build(width=128)
        embeddings = torch.randn(2, 64, 128)  # premises and hypotheses
        labels = torch.randint(3, (64,))
        output = objective(embeddings, labels)
        loss = objective.weight * output.loss / 64
        ```
    """

    requirements = Requirements(texts=NLI_TEXTS)

    def __init__(self, weight: float = 1.0, hidden_size: int = 512, dropout: float = 0.0):
        super().__init__(weight)
        check_range("nli hidden_size", hidden_size, "[1, inf)")
        check_range("nli dropout", dropout, "[0, 1]")
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.classifier: nn.Sequential | None = None

    def build(self, width: int) -> None:
        """Create the classifier."""
        if self.classifier is not None:
            return
        self.classifier = nn.Sequential(
            nn.Dropout(self.dropout),
            nn.Linear(4 * width, self.hidden_size),
            nn.Tanh(),
            nn.Dropout(self.dropout),
            nn.Linear(self.hidden_size, len(CLASSES)),
        )

    def count(self, sizes: BatchSizes) -> int:
        """Return the number of sentence pairs."""
        return sizes.rows

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the loss of the embeddings with the labels of the batch."""
        output: ObjectiveOutput = self(encoded.embeddings, encoded.batch.labels)
        return output

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> ObjectiveOutput:
        """Return the cross-entropy of the classes, and the number of correct predictions."""
        premise, hypothesis = embeddings
        difference = (premise - hypothesis).abs()
        features = torch.cat([premise, hypothesis, difference, premise * hypothesis], dim=-1)
        assert self.classifier is not None  # `build` has made it.
        logits = self.classifier(features)  # (rows, 3)
        loss = nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
        correct = (logits.argmax(dim=-1) == labels).sum()
        return ObjectiveOutput(loss, {"loss": loss.detach(), "accuracy": correct})
