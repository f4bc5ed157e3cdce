"""The teacher of distillation: a sentence-transformers model that a run pins, and its vectors of parallel rows.

`Dataset.map` makes the vectors of a map-style dataset once and keeps them as tokens are kept (`data.tokens`). A row
has one vector, in float16: 2 d bytes, 1.5 GB for a million rows of LaBSE; storing moves a vector of length 1 by less
than 0.0005, its cosine with others by less than 1e-6. The teacher computes in bfloat16 where that is faster, which
moves vectors more. Rows of a stream are read as they are drawn.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import datasets
import numpy as np
import pyarrow as pa
import torch
from accelerate import PartialState
from huggingface_hub import snapshot_download
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data.io import digests, write_atomically
from tmde.data.tokens import Tokens, map_once
from tmde.embedding.document_embedder import has_fast_bf16
from tmde.embedding.loading import default_prompt, reading
from tmde.training.objectives import Distillation

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tmde.training.arguments import TmdeTrainingArguments
    from tmde.training.parallel_model import ParallelModel

logger = logging.get_logger("tmde.training")

KEY = "objectives.distillation.teacher"  # of a recipe
RECORD = "teacher.json"  # in the run's folder
NO_LIMIT = 10**9  # models without a limit of their own say inf or 1e30
UNTAUGHT, TAUGHT, TRUNCATED = range(3)  # what became of a row
WEIGHTS = {
    ".safetensors",
    ".bin",
    ".json",
    ".txt",
    ".model",
    ".py",
}  # files that decide the vectors of a folder
REPORTS = {
    "results.json",
    "run.json",
    "data_state.json",
    "trainer_state.json",
    RECORD,
}  # of a run in that folder


@dataclass(frozen=True)
class TeacherVersion:
    """A teacher and its weights.

    Attributes:
        name: Folder or Hub id.
        revision: Of a Hub model, as it was asked for; None is the newest.
        commit: Of a Hub model.
        sha256: Of a folder: of the names and contents of its files.
    """

    name: str
    revision: str | None = None
    commit: str | None = None
    sha256: str | None = None

    @property
    def identity(self) -> str:
        """Another one for other weights; the same for a folder that was copied."""
        return self.sha256 or f"{self.name}@{self.commit}"


def find_version(name: str, revision: str | None = None) -> TeacherVersion:
    """Return what a name stands for now: a commit on the Hub (offline: in its cache), or the checksum of the names and
    contents of a folder's files, without reports of runs beside them.

    Raises:
        ValueError: There is no such model, or a folder has no model or a revision.
    """
    folder = Path(name).expanduser()
    if not folder.exists():
        with reading(
            f"{KEY}={name} is neither a folder nor a model that the Hub returns ({revision=})"
        ):
            path = snapshot_download(
                name, revision=revision, allow_patterns=["modules.json", "config.json"]
            )
        return TeacherVersion(name, revision, commit=Path(path).name)  # .../snapshots/<commit>
    if revision is not None:
        raise TmdeError(f"{KEY}_revision: found {revision!r} of the folder {name}, expected null")
    modules = (
        folder / "modules.json"
    )  # without it, sentence-transformers takes the mean of an encoder's outputs
    if not (modules.is_file() or (folder / "config.json").is_file()):
        raise TmdeError(
            f"{KEY}={name}: found no modules.json and no config.json, expected the folder of an encoder"
        )
    parts = [part["path"] for part in json.loads(modules.read_text())] if modules.is_file() else []
    modules = [folder / part for part in parts if part]
    files = {
        path for place in [folder, *modules] for path in place.glob("*") if path.suffix in WEIGHTS
    }
    found = digests((path for path in files if path.name not in REPORTS), folder)
    return TeacherVersion(name, sha256=hashlib.sha256(found.encode()).hexdigest())


def settle_version(objective: Distillation, run_folder: Path) -> None:
    """Give the objective the `version` of its teacher that stays until the end of the run. Every process must call it.

    Args:
        objective: Names the teacher.
        run_folder: Keeps the version in `teacher.json`; where there is one, the run goes on with it.

    Raises:
        ValueError: As `find_version`; or the run began with another teacher.
    """
    name, revision, record = objective.teacher, objective.teacher_revision, run_folder / RECORD
    with PartialState().main_process_first():
        if not record.exists():
            run_folder.mkdir(parents=True, exist_ok=True)
            write_atomically(
                record, json.dumps(asdict(find_version(name, revision)), indent=2) + "\n"
            )
    recorded = TeacherVersion(**json.loads(record.read_text(encoding="utf-8")))
    pinned = (
        name == recorded.name
        and recorded.commit
        and revision in (None, recorded.revision, recorded.commit)
    )
    objective.version = (
        recorded if pinned else find_version(name, revision)
    )  # whatever is the newest by now
    if objective.version.identity != recorded.identity:
        raise TmdeError(
            f"{KEY}={name}: found {objective.version.identity}, and the run began with {recorded.name} "
            f"({recorded.identity}, in {record}): put that back, or begin a new run, in another folder or with "
            "--overwrite"
        )


@dataclass(frozen=True)
class Teacher:
    """Any model that `sentence_transformers.SentenceTransformer` opens. It is loaded when it is first asked.

    Args:
        version: From `find_version`.
        objective: Says how it reads: the share of the rows, the prompt, the batch size.
        width: Of the vectors of the model that learns from it.
        languages: That it reads, by preference: of a row, the text in the first of these that it has.
        device: Where it computes; in bfloat16 where that is faster.
    """

    version: TeacherVersion
    objective: Distillation
    width: int
    languages: tuple[str, ...] = ("en",)
    device: torch.device = torch.device("cpu")

    @cached_property
    def model(self) -> SentenceTransformer:
        from sentence_transformers import SentenceTransformer

        name, commit = self.version.name, self.version.commit
        options = {"device": str(self.device), "revision": commit}
        options["trust_remote_code"] = self.objective.trust_remote_code
        options["model_kwargs"] = {
            "dtype": torch.bfloat16 if self.half_precision else torch.float32
        }
        # Loading draws numbers, which must not depend on whether a teacher is loaded or its vectors are there already.
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            with reading(f"{KEY}={name}: sentence-transformers can't open it"):
                return SentenceTransformer(
                    name if commit else str(Path(name).expanduser()), **options
                ).eval()

    @property
    def half_precision(self) -> bool:
        return has_fast_bf16(self.device.type == "cpu")

    @torch.no_grad()
    def encode(self, texts: list[str], language: str) -> np.ndarray:
        """Return (texts, d) float32 of texts in a language, as the teacher gives them.

        Raises:
            ValueError: The vectors are not as wide as the student's, or hold NaN or numbers that float16 can't hold.
        """
        prompt = self.objective.teacher_prompt or default_prompt(
            self.version.name, revision=self.version.commit
        )
        options = {
            "batch_size": self.objective.teacher_batch_size,
            "show_progress_bar": False,
            "prompt": prompt,
        }
        if (
            "language" in self.model.get_model_kwargs()
        ):  # one of this package with a part for each language
            options["language"] = language
        with torch.autocast(self.device.type, enabled=False):  # of the training around it
            vectors = np.asarray(self.model.encode(texts, **options), dtype=np.float32)
        if vectors.shape[1] != self.width:
            raise TmdeError(
                f"{KEY}={self.version.name}: found vectors of d={vectors.shape[1]}, and the model that learns them "
                f"has d={self.width}; set its width (model.d_model={vectors.shape[1]}), or take another teacher"
            )
        for index in np.flatnonzero(~(np.abs(vectors) <= np.finfo(np.float16).max).all(axis=1)):
            raise TmdeError(
                f"{KEY}={self.version.name}: found a vector of {texts[index][:60]!r} with NaN or too large numbers, "
                "expected numbers between -65504 and 65504; leave the row out, or take another teacher"
            )
        return vectors

    def read(self, table: pa.Table) -> pa.Table:
        """Return, of rows with `translation`, each row's `vector` in float16, zero where the teacher read nothing, and
        what became of it, `state`."""
        vectors = np.zeros((table.num_rows, self.width), np.float16)
        states = np.full(table.num_rows, UNTAUGHT, np.uint8)
        limit, tokenizer = self.model.max_seq_length, self.model.tokenizer
        limited = (
            limit is not None
            and limit < NO_LIMIT
            and isinstance(tokenizer, PreTrainedTokenizerBase)
        )
        rows = table["translation"].to_pylist()
        for language in self.languages:
            texts = [(row or {}).get(language) for row in rows]
            own = [index for index, text in enumerate(texts) if text and states[index] == UNTAUGHT]
            own = [
                index
                for index in own
                if zlib.crc32(texts[index].encode()) < self.objective.teacher_share * 2**32
            ]
            if own:
                texts = [texts[index] for index in own]
                vectors[own], states[own] = self.encode(texts, language), TAUGHT
                if limited:
                    read = [self.objective.teacher_prompt + text for text in texts]
                    encoded = tokenizer(read, truncation=False, verbose=False)["input_ids"]
                    states[own] = [TRUNCATED if len(ids) > limit else TAUGHT for ids in encoded]
        lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self.width)
        return pa.table({"vector": lists, "state": states})


class TeacherVectors:
    """The teacher's vectors by row: `rows`, made once by `Dataset.map`, or of a stream (None) read as asked for."""

    def __init__(self, teacher: Teacher, rows: datasets.Dataset | None):
        self.teacher, self.rows = teacher, None if rows is None else rows.with_format("numpy")
        if self.rows is not None:
            self.states = self.rows["state"][:]
            self.warn(self.states)

    def __call__(self, tokens: Tokens, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for rows (rows,) of `tokens`, the vectors (rows, d), and bool (rows,), which rows have one."""
        if self.rows is not None:
            return self.rows[rows]["vector"].astype(np.float16), self.states[rows] != UNTAUGHT
        found = self.teacher.read(tokens.texts.take(rows))
        states = found["state"].to_numpy()
        self.warn(states)
        vectors = np.stack(found["vector"].to_numpy())
        return vectors, states != UNTAUGHT

    def warn(self, states: np.ndarray) -> None:
        """Say once, in the main process, if rows were truncated, or not read."""
        if not PartialState().is_main_process:
            return
        for state, what in ((TRUNCATED, "were longer than it takes"), (UNTAUGHT, "are not read")):
            if (states == state).any():
                logger.warning_once(f"The teacher {self.teacher.version.name}: some rows {what}")


def open_teacher_vectors(
    rows: datasets.Dataset | datasets.IterableDataset,
    parallel: ParallelModel,
    args: TmdeTrainingArguments,
) -> TeacherVectors | None:
    """Return the teacher's vectors of a dataset; None if no objective has a teacher.

    Those of a map-style dataset are made at once, if they are not there. Several processes may call this at once.

    Args:
        rows: Rows `{"translation": {language: text or None}}`.
        parallel: Its objectives name the teacher, its config the languages and the width of the student.
        args: `token_cache_dir`, the device, and the options that a teacher rules out. For a stream, which it reads in
            the process that trains, `dataloader_num_workers` becomes 0.

    Raises:
        ValueError: The teacher can't be opened, is not as wide as the student, reads a language that is not trained,
            or gives numbers that are none.
        ValueError: Rows are joined or paired with their neighbors.
    """
    objective = next(
        (each for each in parallel.objectives.values() if isinstance(each, Distillation)), None
    )
    if objective is None:
        return None
    for name, expected in (("max_joined_rows", 1), ("neighbor_share", 0)):
        if (found := getattr(args, name)) > expected:
            raise TmdeError(
                f"objectives.distillation: the teacher's vectors are of single rows, and found {name}={found}, which "
                f"puts texts together that it has not read: set training.{name}={expected}"
            )
    config = parallel.config
    languages = tuple(objective.teacher_languages or config.pivot_languages)
    if unknown := [language for language in languages if language not in config.languages]:
        expected = f"some of data.languages=[{', '.join(config.languages)}]"
        raise TmdeError(f"{KEY}_languages: found {unknown}, expected {expected}")
    version = objective.version or find_version(objective.teacher, objective.teacher_revision)
    teacher = _open_teacher(version, objective, config.hidden_size, languages, args.device)
    if not isinstance(rows, datasets.Dataset):
        args.dataloader_num_workers = 0  # the teacher reads a stream in the process that trains
        return TeacherVectors(teacher, None)
    vector = datasets.List(datasets.Value("float16"), length=config.hidden_size)
    features = datasets.Features({"vector": vector, "state": datasets.Value("uint8")})
    content = [
        "teacher",
        version.identity,
        languages,
        objective.teacher_share,
        objective.teacher_prompt,
    ]
    content += [config.hidden_size, teacher.half_precision]
    rows = rows.select_columns("translation")
    read = map_once(rows, teacher.read, features, content, args.token_cache_dir, "Teacher reading")
    return TeacherVectors(teacher, read)


def prepare_teacher_vectors(
    train: datasets.Dataset | datasets.IterableDataset,
    dev: Iterable[datasets.Dataset],
    parallel: ParallelModel,
    args: TmdeTrainingArguments,
) -> None:
    """Settle which teacher a run has, and make what `open_teacher_vectors` will find, before the clock of the run
    begins. Every process must call it.

    Raises:
        ValueError: As `open_teacher_vectors`; or the run in `args.output_dir` began with another teacher, or no row
            to train on has a language that the teacher reads.
    """
    for objective in parallel.objectives.values():
        if isinstance(objective, Distillation):
            settle_version(objective, Path(args.output_dir))
            opened = [open_teacher_vectors(rows, parallel, args) for rows in [train, *dev]]
            if opened[0].rows is not None:
                if not opened[0].states.any():
                    languages = ", ".join(opened[0].teacher.languages)
                    raise TmdeError(
                        f"{KEY}_languages: found no row of the training data in {languages}"
                    )
                _open_teacher.cache_clear()  # its weights take memory, and it has read all


@lru_cache(maxsize=1)  # of the training rows and those of every evaluation
def _open_teacher(*options: object) -> Teacher:
    return Teacher(*options)
