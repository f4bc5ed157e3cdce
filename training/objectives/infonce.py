"""InfoNCE: each text picks its translation among those of the whole batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import distributed, nn
from transformers import PreTrainedConfig

from modeling_tmde import TmdeError
from tmde.training.objectives.base import (
    BatchSizes,
    EmbeddingObjective,
    ObjectiveOutput,
    Requirements,
    check_range,
)
from tmde.training.objectives.encoded_batch import EncodedBatch
from tmde.training.objectives.gather import gather_rows, num_processes


class InfoNCE(EmbeddingObjective):
    """In-batch contrastive loss with temperature, for every ordered pair of languages in a row.

    With cosine `s`, temperature `t` and margin `m`, row `i` costs `-log(p_i / (p_i + sum_{j != i}
    exp(s(a_i, b_j) / t)))` for a -> b, where `p_i = exp((s(a_i, b_i) - m) / t)`. All other rows are
    negatives, even rows with the same text.

    Triples are trained in one direction, as in `MultipleNegativesRankingLoss` of
    sentence-transformers with `scale = 1 / temperature`: each anchor selects its positive among the
    positives and hard negatives of all rows.

    Args:
        weight: The factor of this loss in the total.
        temperature: The divisor of cosines. Smaller values put more weight on the nearest
            negatives.
        margin: The number subtracted from the cosine of a positive pair (additive margin).
        gather: When training with several processes, use the negatives of all processes, with
            gradients flowing to both sides. If the processes' batches have the same languages in
            order, and `center` is off, the loss equals a single process's loss on all rows.
        center: Subtract the mean of the process's batch from all vectors first, because many
            encoders' vectors lie in a narrow cone.
        dims: Prefix lengths, such as `[64, 128, 256, 384]`, to which the vectors can be truncated
            (Matryoshka embeddings). The loss is the mean over the prefixes (Kusupati et al., 2022,
            use the sum), each centered and scaled to length 1 separately. Include the full width.
            None trains only the full vector.
        dims_per_step: The number of `dims` drawn at random for each training step, as in
            `MatryoshkaLoss` of sentence-transformers; None for all.

    Source: van den Oord et al. 2018 (InfoNCE); Chen et al. 2020 (cosine and temperature, SimCLR's
    NT-Xent); Yang et al. 2019 (both directions, additive margin); Kusupati et al. 2022, arXiv
    2205.13147, equation 1 (`dims`).

    Inputs: embeddings (languages, rows, d_model), and whether a row is a triple, anchor first and
    positive second. Components: `loss`, and `accuracy`, the number of texts nearest to their
    translation, or of anchors nearest to their positive, with the longest prefix of the step.

    Raises:
        TmdeError: The temperature is not above 0, `dims` is empty or does not increase, or
            `dims_per_step` is not between 1 and their number.

    Example:
        ```python
        import torch

        from tmde import InfoNCE

        objective = InfoNCE(temperature=0.05)
        output = objective(torch.randn(2, 64, 128))  # (languages, rows, d_model)
        loss = objective.weight * output.loss / (2 * 64)
        triples = objective(torch.randn(3, 64, 128), has_triples=True)
        loss = objective.weight * triples.loss / 64
        ```
    """

    requirements = Requirements(accepts_triples=True)

    def __init__(
        self,
        weight: float = 1.0,
        temperature: float = 0.05,
        margin: float = 0.0,
        gather: bool = True,
        center: bool = False,
        dims: list[int] | None = None,
        dims_per_step: int | None = None,
    ):
        super().__init__(weight)
        check_range("infonce temperature", temperature, "(0, inf)")
        if dims is not None:
            _check_dims(dims)
        if dims_per_step is not None:
            _check_dims_per_step(dims_per_step, dims)
        self.temperature = temperature
        self.margin = margin
        self.gather = gather
        self.center = center
        self.dims = dims
        self.dims_per_step = dims_per_step

    def check_config(self, config: PreTrainedConfig) -> None:
        """Check that no prefix is longer than the embeddings.

        Raises:
            TmdeError: One is.
        """
        width = config.hidden_size
        if self.dims is not None and self.dims[-1] > width:
            raise TmdeError(
                f"infonce dims: found {self.dims[-1]}, expected at most {width}, the width of "
                "the model's vectors; remove it, or train a wider model"
            )

    def count(self, sizes: BatchSizes) -> int:
        """Return one term per row and ordered pair of languages, or per triple."""
        if sizes.has_triples:
            return sizes.rows
        return sizes.ordered_pairs

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the loss of the embeddings of translations or triples."""
        output: ObjectiveOutput = self(encoded.embeddings, encoded.batch.sizes.has_triples)
        return output

    def forward(self, embeddings: torch.Tensor, has_triples: bool = False) -> ObjectiveOutput:
        """Return the loss of all directions, and the number of correct choices."""
        contrast = self._contrast_triples if has_triples else self._contrast_translations
        if self.dims is None:
            loss, accuracy = contrast(self._unit_vectors(embeddings))
            return ObjectiveOutput(loss, {"loss": loss.detach(), "accuracy": accuracy})
        losses = []
        for dim in self._chosen_dims(self.dims, embeddings.device):
            loss, accuracy = contrast(self._unit_vectors(embeddings[..., :dim]))
            losses.append(loss)
        loss = torch.stack(losses).mean()
        # The last prefix is the longest.
        return ObjectiveOutput(loss, {"loss": loss.detach(), "accuracy": accuracy})

    def _chosen_dims(self, dims: list[int], device: torch.device) -> list[int]:
        """Return the lengths of the prefixes that this step compares, in increasing order."""
        if self.dims_per_step is None or not self.training:
            return dims
        order = torch.randperm(len(dims), device=device)
        if num_processes() > 1:
            # Processes exchange vectors, so all of them have to cut these at the same place.
            distributed.broadcast(order, src=0)
        chosen = order[: self.dims_per_step].sort().values
        return [dims[position] for position in chosen.tolist()]

    def _unit_vectors(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return embeddings, (languages, rows, width), centered if asked for, at length 1."""
        vectors = embeddings.float()
        if self.center:
            vectors = vectors - vectors.mean(dim=(0, 1))
        return nn.functional.normalize(vectors, dim=-1)

    @property
    def _gathers(self) -> bool:
        """Whether negatives come from several processes.

        An evaluation has the same rows on every process, or runs on the first alone.
        """
        return self.gather and self.training and num_processes() > 1

    def _contrast_triples(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of anchors that pick their positives, and the number of right choices.

        Args:
            vectors: (texts, rows, width) of length 1: anchors, positives, then negatives.
        """
        candidates = vectors[1:].flatten(0, 1)  # (candidates, width), the positives first
        first = 0
        if self._gathers:
            # As one language, so that processes may differ in the number of their negatives.
            [(candidates, first)] = gather_rows(candidates[None])
        # bf16 keeps too few digits of a cosine.
        with torch.autocast(vectors.device.type, enabled=False):
            logits = vectors[0] / self.temperature @ candidates.T  # (rows, candidates)
            return softmax_sums(logits, first, self.margin / self.temperature)

    def _contrast_translations(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of both directions of all pairs, and the number of right choices.

        Args:
            vectors: (languages, rows, width) of length 1.
        """
        anchors = vectors / self.temperature
        margin = self.margin / self.temperature
        gathers = self._gathers
        gathered = [(candidates, 0) for candidates in vectors]
        if gathers:
            gathered = gather_rows(vectors)

        losses = []
        corrects = []
        # bf16 keeps too few digits of a cosine.
        with torch.autocast(vectors.device.type, enabled=False):
            for a, b in itertools.combinations(range(len(vectors)), 2):
                candidates_a, first_a = gathered[a]
                candidates_b, first_b = gathered[b]
                forth = anchors[a] @ candidates_b.T  # (rows of a, candidates of b)
                # Of one process, a transposed copy is cheaper than a second product, and than a
                # softmax over the first dimension.
                back = anchors[b] @ candidates_a.T if gathers else forth.T.contiguous()
                for logits, first in ((forth, first_b), (back, first_a)):
                    loss, correct = softmax_sums(logits, first, margin)
                    losses.append(loss)
                    corrects.append(correct)
        return torch.stack(losses).sum(), torch.stack(corrects).sum()


def _check_dims(dims: Sequence[int]) -> None:
    """Check that the lengths of prefixes increase from 1 or more.

    Raises:
        TmdeError: They do not, or there are none.
    """
    if not dims:
        raise TmdeError(
            "infonce dims: found an empty list, expected lengths such as [64, 128, 256]; "
            "null trains only the full vector"
        )
    if dims[0] < 1:
        raise TmdeError(f"infonce dims: found {dims[0]}, expected lengths of 1 or more")
    for shorter, longer in itertools.pairwise(dims):
        if longer <= shorter:
            raise TmdeError(
                f"infonce dims: found {longer} after {shorter} in {list(dims)}, expected "
                "increasing lengths"
            )


def _check_dims_per_step(count: int, dims: Sequence[int] | None) -> None:
    """Check that so many prefixes can be drawn.

    Raises:
        TmdeError: They cannot, or there are no prefixes.
    """
    if dims is None:
        raise TmdeError(
            f"infonce dims_per_step: found {count} without dims, expected the lengths to draw "
            "from, such as dims=[64, 128, 256]"
        )
    if not 1 <= count <= len(dims):
        raise TmdeError(
            f"infonce dims_per_step: found {count}, expected a number from 1 to {len(dims)}, the "
            "number of dims"
        )


def softmax_sums(
    logits: torch.Tensor, first: int = 0, margin: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of the cross-entropy and of the right choices.

    Args:
        logits: (rows, candidates).
        first: The right candidates are `first`, `first + 1`, ... of the rows in turn.
        margin: Subtracted from the logits of the right candidates.
    """
    right = torch.arange(first, first + len(logits), device=logits.device)
    correct = (logits.detach().argmax(dim=1) == right).sum()
    if margin:
        margins = logits.new_full((len(logits), 1), -margin)
        logits = logits.scatter_add(1, right[:, None], margins)
    return nn.functional.cross_entropy(logits, right, reduction="sum"), correct
