"""Distillation: the vectors of a row in every language become those that a teacher gives the row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from modeling_tmde import TmdeError
from tmde.training.objectives.base import BatchSizes, Objective, ObjectiveOutput, check_range

if TYPE_CHECKING:
    from tmde.training.teacher import TeacherVersion


class Distillation(Objective):
    r"""
    Multilingual knowledge distillation (Reimers & Gurevych 2020, arXiv 2004.09813, section 2).

    With M the teacher, which reads one language of a row, and M' the student, a row costs
    `sum_l (M(s) - M'(s_l))^2` over its texts s_l in all the languages l of the batch: the source again, and its
    translations. The square is that of the Euclidean distance: d times the mean over d coordinates that some
    libraries print, and for vectors of length 1 it is `2 - 2 cos`. The student so learns the teacher's space as it
    is, in languages that the teacher need not know.

    The vectors of many encoders lie in a narrow cone. With `center`, both sides are compared without their mean over
    the batch, which for the student is that of all its languages, and scaled to length 1. Use it beside an InfoNCE
    with `center`.

    Args:
        teacher: Folder or Hub id of any model that sentence-transformers opens, one of this package among them; in a
            recipe also `encoder`, the one that is trained, as it was before the run. Its
            vectors are as wide as the student's, and taken as they are, normalized or not, unless `center` is set.
        weight: Factor of this loss in the total.
        center: Compare directions from the mean of the batch, see above.
        teacher_languages: Languages that the teacher knows; of every row it reads the first of these that the row
            has. None is the pivot languages. A row without any of them is not taught.
        teacher_share: Share of the rows that the teacher reads, chosen by their text; the rest is not taught.
        teacher_prompt: What the teacher wants before every text, such as `"query: "`.
        teacher_batch_size: Texts that the teacher reads at a time.
        trust_remote_code: Run code from the teacher's folder or repository, which some models need.
        teacher_revision: Branch, tag or commit of a teacher on the Hub; None is the newest when a run begins. Either
            way a run keeps the weights with which it began, see `settle_version`.

    Inputs: embeddings (languages, rows, d), the teacher's vectors (rows, d), and which rows have one, (rows,). The sum
    has one term for every text of such a row. Components: `loss`, and `cosine` of student and teacher.

    Raises:
        ValueError: No teacher, or a share that is not in (0, 1].

    Example:

    ```python
    >>> objective = Distillation("sentence-transformers/LaBSE", teacher_languages=["en"])
    >>> output = objective(embeddings, vectors, taught)  # (2, 128, 768), (128, 768), (128,)
    >>> loss = objective.weight * output.loss / (2 * taught.sum())
    ```
    """

    needs_all_embeddings = True

    def __init__(
        self,
        teacher: str | None = None,
        weight: float = 1.0,
        center: bool = False,
        teacher_share: float = 1.0,
        teacher_prompt: str = "",
        teacher_languages: list[str] | None = None,
        teacher_batch_size: int = 64,
        trust_remote_code: bool = False,
        teacher_revision: str | None = None,
    ):
        super().__init__(weight)
        if not teacher:
            raise TmdeError(
                "objectives.distillation.teacher: give a sentence-transformers model, folder or Hub id"
            )
        check_range("teacher_share", teacher_share, "(0, 1]")
        self.center = center
        self.teacher_share = teacher_share
        self.teacher_prompt = teacher_prompt
        self.teacher = teacher
        self.teacher_revision = teacher_revision
        self.version: TeacherVersion | None = None  # settled when a run begins
        self.teacher_languages = teacher_languages
        self.teacher_batch_size = teacher_batch_size
        self.trust_remote_code = trust_remote_code

    def count(self, sizes: BatchSizes) -> int:
        return sizes.languages * sizes.taught_rows

    def forward(
        self, embeddings: torch.Tensor, vectors: torch.Tensor, taught: torch.BoolTensor
    ) -> ObjectiveOutput:
        student, teacher = (
            embeddings.float(),
            vectors.float(),
        )  # close vectors cancel in half precision
        if self.center:
            student, teacher = (
                _directions(vectors, taught) for vectors in (student, teacher[None])
            )
            teacher = teacher[0]
        # Chosen, not multiplied, and before the square: what stands for rows that are not taught may be anything.
        loss = torch.where(taught[:, None], student - teacher, 0.0).square().sum()
        cosines = torch.cosine_similarity(
            student.detach(), teacher.expand_as(student), dim=-1
        )  # (languages, rows)
        return ObjectiveOutput(
            loss, {"loss": loss.detach(), "cosine": torch.where(taught, cosines, 0.0).sum()}
        )


def _directions(vectors: torch.Tensor, taught: torch.BoolTensor) -> torch.Tensor:
    """Of (languages, rows, d), the directions from the mean over the taught rows of all languages."""
    total = torch.where(taught[:, None], vectors, 0.0).sum(dim=(0, 1))
    return nn.functional.normalize(
        vectors - total / (len(vectors) * taught.sum()).clamp(min=1), dim=-1
    )
