"""A teacher that is a model: anything that sentence-transformers opens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.inspection import NO_LIMIT
from tmde.embedding.loading import errors_about
from tmde.embedding.machine import has_fast_bf16
from tmde.training.teachers.files import SHOWN_CHARACTERS, first_invalid_row
from tmde.training.teachers.versions import KEY, TeacherVersion

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH_SIZE = 64  # The number of texts that a teacher reads at a time.


@dataclass(frozen=True)
class ModelTeacher:
    """Any model that `sentence_transformers.SentenceTransformer` opens.

    It is loaded when it is first needed.

    Args:
        version: From `find_version`.
        width: The width that its vectors must have; None for any.
        chosen_prompt: What comes before every text; None for the model's default prompt.
        trust_remote_code: Run code from the teacher's folder or repository.
        device: Where it computes, in bfloat16 where that is faster.
    """

    version: TeacherVersion
    width: int | None = None
    chosen_prompt: str | None = None
    trust_remote_code: bool = False
    device: torch.device = torch.device("cpu")

    @cached_property
    def model(self) -> SentenceTransformer:
        """The model."""
        from sentence_transformers import SentenceTransformer

        path = self.version.name
        if self.version.commit is None:
            path = str(self.version.path)
        dtype = torch.bfloat16 if self.half_precision else torch.float32
        devices = [self.device] if self.device.type == "cuda" else []
        # Loading draws numbers, which must not depend on whether the vectors are there already.
        with (
            torch.random.fork_rng(devices),
            errors_about(f"{KEY}={self.version.name}: sentence-transformers can't open it"),
        ):
            model = SentenceTransformer(
                path,
                device=str(self.device),
                revision=self.version.commit,
                trust_remote_code=self.trust_remote_code,
                model_kwargs={"dtype": dtype},
            )
        return model.eval()

    def release(self) -> None:
        """Free the memory of the weights. They are loaded again when they are needed."""
        self.__dict__.pop("model", None)

    @property
    def prompt(self) -> str:
        """The prompt before every text: the chosen one, or else the model's default."""
        if self.chosen_prompt is not None:
            return self.chosen_prompt
        name = self.model.default_prompt_name
        if name is None:
            return ""
        return self.model.prompts.get(name) or ""

    @property
    def half_precision(self) -> bool:
        """Whether it computes in bfloat16."""
        return has_fast_bf16(self.device.type == "cpu")

    @property
    def content(self) -> list[Any]:
        """What decides the vector of a text; the width is part of it because it is checked."""
        return [self.version.identity, self.chosen_prompt, self.width, self.half_precision]

    @torch.no_grad()
    def encode(self, texts: list[str], language: str) -> np.ndarray:
        """Return the vectors (texts, d) float32 of texts in a language, as the teacher gives them.

        Raises:
            TmdeError: The vectors are not as wide as they must be, or hold NaN or numbers that
                float16 can't hold.
        """
        options: dict[str, Any] = {}
        if "language" in self.model.get_model_kwargs():
            # A model of this package with a part for each language.
            options["language"] = language
        # The precision of the training around it must not change the vectors.
        with torch.autocast(self.device.type, enabled=False):
            vectors = self.model.encode(
                texts,
                batch_size=BATCH_SIZE,
                show_progress_bar=False,
                prompt=self.prompt,
                **options,
            )
        vectors = np.asarray(vectors, dtype=np.float32)
        self._check(vectors, texts)
        return vectors

    def _check(self, vectors: np.ndarray, texts: list[str]) -> None:
        width = vectors.shape[1]
        if self.width is not None and width != self.width:
            advice = f"set its width (model.d_model={width})"
            if width > self.width:
                advice += (
                    f", give {KEY}=[{self.version.name}], which is projected to d={self.width}"
                )
            raise TmdeError(
                f"{KEY}={self.version.name}: found vectors of d={width}, and the model that "
                f"learns them has d={self.width}; {advice}, or use another teacher"
            )
        row = first_invalid_row(vectors)
        if row is not None:
            text = texts[row][:SHOWN_CHARACTERS]
            raise TmdeError(
                f"{KEY}={self.version.name}: found a vector of {text!r} with NaN or too large "
                "elements, expected elements between -65504 and 65504; remove the row, or "
                "use another teacher"
            )

    def is_truncated(self, texts: list[str]) -> np.ndarray:
        """Return whether each text is longer than the teacher reads, as far as that is known."""
        limit = self.model.max_seq_length
        tokenizer = self.model.tokenizer
        # Models without a limit of their own say inf or 1e30.
        if limit is None or limit >= NO_LIMIT or not isinstance(tokenizer, PreTrainedTokenizerBase):
            return np.zeros(len(texts), bool)
        prompted = [self.prompt + text for text in texts]
        encoded = tokenizer(prompted, truncation=False, verbose=False)
        return np.array([len(ids) > limit for ids in encoded["input_ids"]])
