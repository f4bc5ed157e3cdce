"""A sentence-transformers model whose vectors are learned; it only reads."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError
from transformers import PreTrainedTokenizerBase

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MODULES = "modules.json"
# What decides a model's vectors, and what may stand beside it in a folder and does not.
READ_SUFFIXES = {".json", ".safetensors", ".bin", ".txt", ".model", ".py"}
RECORDS = {"results.json", "run.json", "data_state.json"}
NO_LIMIT = 10**9  # models without a limit of their own say inf or 1e30


class TeacherError(ValueError):
    """A teacher that can't be opened, or whose vectors are none."""


class Teacher:
    """
    Any model that `sentence_transformers.SentenceTransformer` opens. It is loaded when it is first asked for vectors.

    Args:
        name: Folder or Hub id.
        device: Where it computes.
        batch_size: Texts that it reads at a time.
        trust_remote_code: Run code from its folder or repository.

    Raises:
        TeacherError: There is no such model, or it can't be opened.
        ImportError: sentence-transformers is not installed.
    """

    def __init__(
        self, name: str, device: str | torch.device = "cpu", batch_size: int = 64, trust_remote_code: bool = False
    ):
        self.name = name
        self.device = torch.device(device)
        self.batch_size = batch_size
        self.trust_remote_code = trust_remote_code
        folder = Path(name).expanduser()
        self.path, self.commit = (str(folder), None) if folder.exists() else (name, _newest_commit(name))

    @property
    def identity(self) -> str:
        """Another one for other weights: the commit of a Hub model, a checksum of the files of a folder."""
        if self.commit is not None:
            return f"{self.name}@{self.commit}"
        files = _files(Path(self.path))
        status = [(path.name, path.stat()) for path in files]
        return _checksum(files, tuple((name, each.st_size, each.st_mtime_ns) for name, each in status))

    @cached_property
    def model(self) -> SentenceTransformer:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ImportError(
                "objectives.distillation.teacher needs sentence-transformers: "
                "pip install 'tmde[sentence-transformers]'"
            ) from error
        self._check_modules()
        # Loading draws numbers, which must not depend on whether a teacher is loaded or its vectors are there already.
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            try:
                return SentenceTransformer(
                    self.path,
                    device=str(self.device),
                    revision=self.commit,
                    trust_remote_code=self.trust_remote_code,
                ).eval()
            except Exception as error:  # by what its files hold, anything from KeyError to a Rust error
                raise TeacherError(
                    f"objectives.distillation.teacher={self.name}: sentence-transformers can't open it: "
                    f"{type(error).__name__}: {error}"
                ) from error

    def _check_modules(self) -> None:
        """Of a folder without modules, sentence-transformers would make a mean of token vectors, as of BERT."""
        folder = Path(self.path)
        if self.commit is not None or (folder / MODULES).is_file():
            return
        config = folder / "config.json"
        kind = json.loads(config.read_text(encoding="utf-8")).get("model_type", "") if config.is_file() else ""
        if not kind or kind.startswith("tmde"):
            what = f"a model of type {kind!r} saved by an older release" if kind else "no model"
            raise TeacherError(
                f"objectives.distillation.teacher={self.name}: found {what}, without {MODULES}, expected what "
                "sentence-transformers opens"
                + ("; load the model and save it again with save_pretrained, which writes that file" if kind else "")
            )

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


def _newest_commit(name: str) -> str:
    """The commit of a Hub model, from the Hub or, offline, from the cache."""
    try:
        try:
            path = hf_hub_download(name, MODULES)
        except EntryNotFoundError:
            path = hf_hub_download(name, "config.json")
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise TeacherError(
            f"objectives.distillation.teacher={name}: found no such folder and no such model on the Hub "
            f"({type(error).__name__}), expected the folder or the Hub id of a model that sentence-transformers opens"
        ) from error
    return Path(path).parent.name  # .../snapshots/<commit>/modules.json


def _files(folder: Path) -> list[Path]:
    """The files from which sentence-transformers makes a model: of the folder itself, and of its modules' folders."""
    if not folder.is_dir():
        raise TeacherError(f"objectives.distillation.teacher={folder}: found a file, expected a model's folder")
    found = list(folder.iterdir())
    if (folder / MODULES).is_file():
        modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
        for path in filter(None, (module.get("path") for module in modules)):
            found += (folder / path).rglob("*")
    return sorted(
        path for path in found if path.is_file() and path.suffix in READ_SUFFIXES and path.name not in RECORDS
    )


@lru_cache
def _checksum_of(paths: tuple[Path, ...], state: tuple) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while block := file.read(2**24):
                digest.update(block)
    return digest.hexdigest()


def _checksum(paths: list[Path], state: tuple) -> str:
    """Of names and contents; read once as long as sizes and times of the files stay as in `state`."""
    return _checksum_of(tuple(paths), state)
