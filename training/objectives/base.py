"""What every objective is: a weighted sum over a batch, and the number of things it sums over."""

from dataclasses import dataclass, field

import torch
from torch import nn
from transformers import PreTrainedConfig

from modeling_tmde import TmdeError


def check_range(name: str, value: float | None, interval: str) -> None:
    """Checks a number that is not None.

    Args:
        interval: Such as "(0, 1]" or "[1, inf)".

    Raises:
        ValueError: The value lies outside.
    """
    if value is None:
        return
    low, high = map(float, interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    if not (above and below):
        raise TmdeError(f"{name}={value} must lie in {interval}")


@dataclass(frozen=True)
class BatchSizes:
    """Sizes of one micro-batch, known before any forward pass.

    Attributes:
        rows: Parallel rows.
        languages: Languages of each row.
        directions: Translation directions, (source, pivot) pairs.
        target_tokens: Target tokens of all directions together, `</s>` counted and padding not.
        tokens: Tokens of all texts, `<s>` and `</s>` counted and padding not.
        taught_rows: Rows for which there is a teacher's vector.
    """

    rows: int
    languages: int
    directions: int
    target_tokens: int
    tokens: int
    taught_rows: int = 0

    @property
    def texts(self) -> int:
        return self.rows * self.languages

    @property
    def ordered_pairs(self) -> int:
        """Of two languages of one row, over all rows."""
        return self.texts * (self.languages - 1)


@dataclass
class ObjectiveOutput:
    """`loss` and every component are sums over the batch; the trainer divides them by the objective's count over
    all micro-batches and processes of an optimizer step, so that neither changes the gradient."""

    loss: torch.Tensor
    components: dict[str, torch.Tensor] = field(default_factory=dict)


class Objective(nn.Module):
    """Base of all losses.

    Args:
        weight: Factor of this loss in the total.
    """

    needs_decoder = False
    needs_head = False  # for hidden tokens
    needs_all_embeddings = False  # of every language of a row
    needs_pivot = False  # in every row
    masks_input = False  # of the encoder call that all objectives share
    texts: tuple[str, ...] | None = None  # columns of a row that are no languages
    both_directions = False  # counts a pair of languages twice

    def __init__(self, weight: float = 1.0):
        super().__init__()
        self.weight = weight

    def build(self, width: int) -> None:
        """Makes the parameters of its own, if it has any, for embeddings of this width."""

    def count(self, sizes: BatchSizes) -> int:
        """How many terms the sums of `ObjectiveOutput` have for a batch of these sizes: unless a loss says otherwise,
        one for every row and pair of languages, or with `both_directions` two."""
        return sizes.ordered_pairs if self.both_directions else sizes.ordered_pairs // 2


class EmbeddingObjective(Objective):
    """A loss on the embeddings of parallel rows alone: `forward(embeddings)` with embeddings (languages, rows, d).

    With `takes_languages`, it is called as `forward(embeddings, languages)`, with the codes of the first dimension.
    With `takes_context`, the embeddings of a model that makes them of several vectors are all of these, one after
    another.
    """

    needs_all_embeddings = True
    takes_languages = False
    takes_context = False


class ParameterObjective(Objective):
    """A loss on the weights of the encoder: `forward(parameters)` with those that are trained.

    It counts once a micro-batch, so that neither its size nor accumulation changes what it weighs.
    """

    def count(self, sizes: BatchSizes) -> int:
        return 1


@dataclass
class Masked:
    """
    Texts with tokens hidden.

    Attributes:
        input_ids: As they were, (..., length), but for the hidden tokens.
        places: (tokens,) ascending places of these in the flattened input.
        targets: (tokens,) what was there.
        own: In the shape of the input, where the texts' own tokens are, the hidden ones among them.
        attention_mask, position_ids: (..., length), of texts that are joined.
    """

    input_ids: torch.LongTensor
    places: torch.LongTensor
    targets: torch.LongTensor
    own: torch.BoolTensor
    attention_mask: torch.Tensor | None = None
    position_ids: torch.LongTensor | None = None


class MaskingObjective(Objective):
    """A loss for which the encoder reads texts with tokens hidden; one of a run's objectives at most."""

    needs_head = needs_all_embeddings = masks_input = True

    def mask(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor, config: PreTrainedConfig
    ) -> Masked:
        """
        Args:
            input_ids, attention_mask: (languages, rows, length), padded on the right.
            config: Of the model: its special tokens, `<mask>` among them, and the size of its vocabulary.
        """
        raise NotImplementedError
