"""Distillation: the embeddings of a row in every language approach its teacher's vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from modeling_tmde import TmdeError
from tmde.training.objectives.base import BatchSizes, Objective, ObjectiveOutput, check_range
from tmde.training.objectives.encoded_batch import EncodedBatch


class Distillation(Objective):
    """Multilingual knowledge distillation (Reimers & Gurevych 2020, arXiv 2004.09813, section 2).

    The teacher M reads one language of a row. The student M' learns the same vector for the texts
    s_l in all languages l of the batch: a row costs `sum_l |M(s) - M'(s_l)|^2`.

    With `similarity_weight`, the student also learns the teacher's similarities between the texts
    of a batch (Fang et al., 2021, arXiv 2101.04731, eq. 3, with the batch in place of the queue).
    Each text costs `similarity_weight * KL(teacher || student)`, over the softmax of its cosines
    with the texts of all other rows divided by `similarity_temperature`.

    Several teachers act as one: their vectors are centered, scaled to length 1, concatenated, and
    projected to the student's width if they are wider.

    Args:
        teacher: A teacher or a list of teachers: the folder or Hub id of a model that
            sentence-transformers loads, or a parquet file with the columns `text` and `vector`. In
            a recipe, also `encoder`, the trained encoder before the run. If the student is
            initialized from one of several teachers, list that one first: the projection is rotated
            toward the first teacher of the student's width.
        weight: The factor of this loss in the total.
        center: Whether to subtract the batch mean from both sides and scale to length 1 before
            comparing, because many encoders' vectors lie in a narrow cone. If set, also set
            `center` of InfoNCE.
        similarity_weight: The weight of the similarity divergence, relative to the squared
            distance. Default: 0.
        similarity_temperature: The divisor of cosines. With lower values, fewer neighbors count.
        teacher_share: The share of rows that the teachers read, chosen by their text. The loss
            skips other rows.
        teacher_prompt: A prefix for every text that a model reads, such as `"query: "`, or a list
            with one prompt per teacher. None uses the model's default; "" means no prompt.
        teacher_languages: The languages that the teachers support. They read the first of these in
            a row; a row without any is skipped. Default: the pivot languages.
        trust_remote_code: Whether to run code from the teacher's folder or repository.
        teacher_revision: The branch, tag or commit of a teacher on the Hub, or a list with one per
            teacher. Default: the newest; a resumed run keeps its teacher.

    Inputs: embeddings (languages, rows, d), the teacher's vectors (rows, d), and which rows have
    one, (rows,). The sum has one term per text in these rows. Components: `loss`, `cosine` of
    student and teacher, and with `similarity_weight` the `divergence`.

    Raises:
        TmdeError: There is no teacher, the share is not in (0, 1], or the number of prompts or
            revisions differs from that of teachers.

    Example:
        ```python
        import torch

        from tmde import Distillation

        objective = Distillation("sentence-transformers/LaBSE", teacher_languages=["en"])
        embeddings = torch.randn(2, 64, 768)  # (languages, rows, d)
        vectors = torch.randn(64, 768)  # those of the teacher
        taught = torch.ones(64, dtype=torch.bool)
        output = objective(embeddings, vectors, taught)
        loss = objective.weight * output.loss / (2 * taught.sum())
        ```
    """

    def __init__(
        self,
        teacher: str | list[str] | None = None,
        weight: float = 1.0,
        center: bool = False,
        similarity_weight: float = 0.0,
        similarity_temperature: float = 0.1,
        teacher_share: float = 1.0,
        teacher_prompt: str | list[str | None] | None = None,
        teacher_languages: list[str] | None = None,
        trust_remote_code: bool = False,
        teacher_revision: str | list[str | None] | None = None,
    ):
        super().__init__(weight)
        teachers = [teacher] if isinstance(teacher, str) else list(teacher or [])
        if not teachers or not all(teachers):
            raise TmdeError(
                "objectives.distillation.teacher: give a sentence-transformers model, folder or "
                "Hub id, or a parquet file with vectors"
            )
        check_range("teacher_share", teacher_share, "(0, 1]")
        check_range("similarity_weight", similarity_weight, "[0, inf)")
        check_range("similarity_temperature", similarity_temperature, "(0, inf)")
        self.center = center
        self.similarity_weight = similarity_weight
        self.similarity_temperature = similarity_temperature
        self.teacher = teacher
        self.teachers = teachers
        self.prompts = self._one_for_each("prompt", teacher_prompt)
        self.revisions = self._one_for_each("revision", teacher_revision)
        self.teacher_share = teacher_share
        self.teacher_languages = teacher_languages
        self.trust_remote_code = trust_remote_code

    def _one_for_each(self, name: str, option: Any) -> list[Any]:
        """Return an option of each teacher: the same for all, or those of a list."""
        if not isinstance(option, list | tuple):
            return [option] * len(self.teachers)
        if len(option) != len(self.teachers):
            raise TmdeError(
                f"objectives.distillation.teacher_{name}: found {len(option)} for "
                f"{len(self.teachers)} teachers, expected one for each"
            )
        return list(option)

    def count(self, sizes: BatchSizes) -> int:
        """Return the number of texts in taught rows."""
        return sizes.languages * sizes.taught_rows

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the loss of the embeddings against the teacher's vectors in the batch."""
        batch = encoded.batch
        output: ObjectiveOutput = self(encoded.embeddings, batch.teacher_vectors, batch.taught)
        return output

    def forward(
        self, embeddings: torch.Tensor, vectors: torch.Tensor, taught: torch.Tensor
    ) -> ObjectiveOutput:
        """Return the squared distances and divergences, and the cosines."""
        student = embeddings.float()  # In half precision, close vectors cancel.
        teacher = vectors.float()
        if self.center:
            student = _directions(student, taught)
            teacher = _directions(teacher[None], taught)[0]
        # Chosen, not multiplied, and before the square: rows not taught may hold anything.
        differences = torch.where(taught[:, None], student - teacher, 0.0)
        loss = differences.square().sum()
        # (languages, rows)
        cosines = torch.cosine_similarity(student.detach(), teacher.expand_as(student), dim=-1)
        cosine = torch.where(taught, cosines, 0.0).sum()
        if not self.similarity_weight:
            return ObjectiveOutput(loss, {"loss": loss.detach(), "cosine": cosine})
        divergence = self._divergence(student[:, taught], teacher[taught])
        loss = loss + self.similarity_weight * divergence
        components = {"loss": loss, "cosine": cosine, "divergence": divergence}
        return ObjectiveOutput(loss, {name: value.detach() for name, value in components.items()})

    def _divergence(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        """Return the sum of the divergences of all texts.

        Args:
            student: (languages, rows, d).
            teacher: (rows, d).
        """
        num_languages, num_rows, _ = student.shape
        if num_rows < 2:
            return student.sum() * 0  # There is no other row.
        # All languages of a row have the vector of its teacher, and are not compared.
        row_numbers = torch.arange(num_rows, device=student.device).repeat(num_languages)
        is_same_row = row_numbers[:, None] == row_numbers
        expected = self._log_probabilities(teacher.repeat(num_languages, 1), is_same_row)
        actual = self._log_probabilities(student.flatten(0, 1), is_same_row)
        return nn.functional.kl_div(actual, expected, reduction="sum", log_target=True)

    def _log_probabilities(self, vectors: torch.Tensor, is_hidden: torch.Tensor) -> torch.Tensor:
        """Return for each text the log-probabilities of the texts, (texts, texts)."""
        directions = nn.functional.normalize(vectors, dim=-1)
        scores = directions @ directions.T / self.similarity_temperature
        # Not -inf, of which the divergence would be NaN. The probability underflows to 0.
        return scores.masked_fill(is_hidden, -1e4).log_softmax(dim=-1)


def _directions(vectors: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
    """Return the directions of (languages, rows, d) from the mean over all taught texts."""
    total = torch.where(taught[:, None], vectors, 0.0).sum(dim=(0, 1))
    number = (len(vectors) * taught.sum()).clamp(min=1)
    return nn.functional.normalize(vectors - total / number, dim=-1)
