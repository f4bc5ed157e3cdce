"""The interface of every objective: what it needs, what it computes, and how many terms it sums."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn
from transformers import PreTrainedConfig

from modeling_tmde import TmdeError

if TYPE_CHECKING:
    from tmde.training.objectives.encoded_batch import EncodedBatch


def check_range(name: str, value: float | None, interval: str) -> None:
    """Check that a number lies in an interval; None always passes.

    Args:
        name: What the error calls the number.
        value: The number.
        interval: An interval such as "(0, 1]" or "[1, inf)".

    Raises:
        TmdeError: The value lies outside.
    """
    if value is None:
        return
    lowest, highest = (float(end) for end in interval[1:-1].split(","))
    is_above = value >= lowest if interval.startswith("[") else value > lowest
    is_below = value <= highest if interval.endswith("]") else value < highest
    if not is_above or not is_below:
        raise TmdeError(f"{name}={value} must lie in {interval}")


@dataclass(frozen=True)
class BatchSizes:
    """The sizes of one micro-batch, known before any forward pass.

    Attributes:
        rows: The number of parallel rows.
        languages: The number of languages per row.
        directions: The number of (encoded language, predicted text) pairs per row; for translation,
            (source, pivot) pairs.
        target_tokens: The number of target tokens in all directions, with `</s>` but without
            padding.
        tokens: The number of tokens in all texts, with `<s>` and `</s>` but without padding.
        taught_rows: The number of rows with a teacher's vector.
        has_triples: Whether a row is an anchor, a positive and hard negatives, instead of
            translations.
    """

    rows: int
    languages: int
    directions: int
    target_tokens: int
    tokens: int
    taught_rows: int = 0
    has_triples: bool = False

    @property
    def texts(self) -> int:
        """The number of texts in all rows and languages."""
        return self.rows * self.languages

    @property
    def ordered_pairs(self) -> int:
        """The number of ordered language pairs over all rows."""
        return self.texts * (self.languages - 1)

    @property
    def pairs(self) -> int:
        """The number of unordered language pairs over all rows."""
        return self.ordered_pairs // 2


@dataclass(frozen=True)
class Requirements:
    """What an objective needs of the model and of a batch, known before anything is encoded.

    Attributes:
        embeddings: Whose embeddings it reads: those of all languages of a row, of the languages
            that are translated from, or none.
        encoder_states: Whether it reads more of the encoder's output than the embeddings.
        decoder: Whether the model must have a decoder.
        head: Whether the model must have a head that predicts tokens.
        masked_input: Whether the encoder call that all objectives share must read the texts as this
            objective masks them. At most one objective of a run may ask for it.
        pivot: Whether every row must hold a pivot language.
        several_languages: Whether every row must hold two languages or more.
        one_encoder: Whether all languages must share one encoder.
        targets: What the decoder predicts, see `TranslationObjective`.
        texts: The columns of a row to encode; None for the model's languages.
        accepts_triples: Whether rows may be triples, an anchor, its positive and hard negatives,
            instead of translations.
    """

    embeddings: Literal["all", "sources", "none"] = "all"
    encoder_states: bool = False
    decoder: bool = False
    head: bool = False
    masked_input: bool = False
    pivot: bool = False
    several_languages: bool = True
    one_encoder: bool = False
    targets: tuple[str, ...] = ()
    texts: tuple[str, ...] | None = None
    accepts_triples: bool = False


@dataclass
class ObjectiveOutput:
    """The sums of an objective over one micro-batch.

    The trainer divides them by the objective's count over a whole optimizer step, so gradients do
    not depend on how a batch is split.

    Attributes:
        loss: The differentiable sum.
        components: The detached sums to log, by name.

    Example:
        ```python
        import torch

        from tmde import InfoNCE

        output = InfoNCE()(torch.randn(2, 64, 128))  # (languages, rows, d_model)
        print(output.loss, output.components["accuracy"])
        ```
    """

    loss: torch.Tensor
    components: dict[str, torch.Tensor] = field(default_factory=dict)


class Objective(nn.Module):
    """Base class of all losses.

    A subclass declares its `requirements`, computes sums over an encoded batch in `compute`, and
    returns their number of terms in `count`. The loss itself is a `forward` on tensors.

    Args:
        weight: The factor of this loss in the total.

    Example:
        ```python
        import torch

        from tmde import EmbeddingObjective, ObjectiveOutput


        class MeanDistance(EmbeddingObjective):
            def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
                loss = (embeddings[0] - embeddings[1]).norm(dim=-1).sum()
                return ObjectiveOutput(loss, {"loss": loss.detach()})


        objective = MeanDistance(weight=0.5)
        output = objective(torch.randn(2, 64, 128))
        ```
    """

    requirements = Requirements()

    def __init__(self, weight: float = 1.0):
        super().__init__()
        self.weight = weight

    def check_config(self, config: PreTrainedConfig) -> None:
        """Check that the objective works with a model of this configuration.

        Token ids may still be defaults; the tokenizer's are set later.

        Raises:
            TmdeError: It does not.
        """

    def build(self, width: int) -> None:
        """Create the objective's own parameters, if any, for embeddings of this width."""

    def count(self, sizes: BatchSizes) -> int:
        """Return the number of terms in the sums for a batch of these sizes.

        Default: one per row and unordered pair of languages.
        """
        return sizes.pairs

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the sums over a batch that was encoded as `requirements` asks."""
        raise NotImplementedError


class EmbeddingObjective(Objective):
    """Base class of losses on embeddings: `forward` takes (languages, rows, d_model).

    Example:
        ```python
        import torch

        from tmde import EmbeddingObjective, ObjectiveOutput


        class MeanDistance(EmbeddingObjective):
            def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
                loss = (embeddings[0] - embeddings[1]).norm(dim=-1).sum()
                return ObjectiveOutput(loss, {"loss": loss.detach()})


        output = MeanDistance()(torch.randn(2, 64, 128))
        ```
    """

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the loss of the embeddings."""
        output: ObjectiveOutput = self(encoded.embeddings)
        return output
