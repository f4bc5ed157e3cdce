"""A sentence-transformers model whose vectors are learned; it only reads."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from modeling_tmde.training.teacher_version import TeacherError, TeacherVersion, find_version, folder_checksum

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

NO_LIMIT = 10**9  # models without a limit of their own say inf or 1e30


class Teacher:
    """
    Any model that `sentence_transformers.SentenceTransformer` opens. It is loaded when it is first asked for vectors.

    Args:
        version: From `find_version`; or a folder or Hub id, of which it is what that finds now.
        device: Where it computes.
        batch_size: Texts that it reads at a time.
        trust_remote_code: Run code from its folder or repository.

    Raises:
        TeacherError: There is no such model, or it can't be opened, or its files are no longer those of `version`.
        ImportError: sentence-transformers is not installed.
    """

    def __init__(
        self,
        version: TeacherVersion | str,
        device: str | torch.device = "cpu",
        batch_size: int = 64,
        trust_remote_code: bool = False,
    ):
        self.version = find_version(version) if isinstance(version, str) else version
        self.name = self.version.name
        self.device = torch.device(device)
        self.batch_size = batch_size
        self.trust_remote_code = trust_remote_code

    @cached_property
    def model(self) -> SentenceTransformer:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ImportError(
                "objectives.distillation.teacher needs sentence-transformers: "
                "pip install 'tmde[sentence-transformers]'"
            ) from error
        folder = Path(self.name).expanduser()
        if self.version.commit is None and folder_checksum(folder) != self.version.sha256:
            raise TeacherError(
                f"objectives.distillation.teacher={self.name}: found other files in the folder than when the run "
                "began: put those back, or begin a new run"
            )
        # Loading draws numbers, which must not depend on whether a teacher is loaded or its vectors are there already.
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            try:
                return SentenceTransformer(
                    self.name if self.version.commit else str(folder),
                    device=str(self.device),
                    revision=self.version.commit,
                    trust_remote_code=self.trust_remote_code,
                ).eval()
            except Exception as error:  # by what its files hold, anything from KeyError to a Rust error
                raise TeacherError(
                    f"objectives.distillation.teacher={self.name}: sentence-transformers can't open it: "
                    f"{type(error).__name__}: {error}"
                ) from error

    def width(self, language: str) -> int:
        return self.encode(["a"], language).shape[1]  # not every module says

    @torch.no_grad()
    def encode(self, texts: list[str], language: str) -> np.ndarray:
        """(texts, d) float32 of texts in a language, as the teacher gives them; numbers may be NaN."""
        options = {"batch_size": self.batch_size, "show_progress_bar": False}
        if "language" in self.model.get_model_kwargs():  # one of this package with a part for each language
            options["language"] = language
        with torch.autocast(self.device.type, enabled=False):  # of the training around it
            return np.asarray(self.model.encode(texts, **options), dtype=np.float32)

    def truncates(self, texts: list[str]) -> np.ndarray:
        """Which texts are longer than the teacher reads: bool (texts,)."""
        limit, tokenizer = self.model.max_seq_length, self.model.tokenizer
        found = np.zeros(len(texts), dtype=bool)
        if limit is None or limit >= NO_LIMIT or not isinstance(tokenizer, PreTrainedTokenizerBase):
            return found
        special = tokenizer.num_special_tokens_to_add()
        long = [place for place, text in enumerate(texts) if len(text.encode()) + special > limit]  # a byte at least
        if long:
            ids = tokenizer([texts[place] for place in long], truncation=False, verbose=False)["input_ids"]
            found[long] = [len(each) > limit for each in ids]
        return found


def check_finite(vectors: np.ndarray, texts: list[str], rows: np.ndarray, name: str) -> None:
    """Refuses vectors (texts, d) with a NaN or an infinite number.

    Raises:
        TeacherError: Names the first one's row and text.
    """
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        vector, text = vectors[bad[0]], texts[bad[0]]
        raise TeacherError(
            f"objectives.distillation.teacher={name}: found {vector[~np.isfinite(vector)][0]} in the vector of "
            f"row {rows[bad[0]]:,} ({text[:60]!r}), expected numbers between -65504 and 65504; leave the row out, or "
            "take another teacher"
        )
