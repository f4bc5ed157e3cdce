"""The teacher of distillation: a pinned sentence-transformers model, and its vectors of rows.

`Dataset.map` makes the vectors of a map-style dataset once and keeps them as tokens are kept
(`data.tokens`). A row has one vector, in float16: 2 d bytes, 1.5 GB for a million rows of LaBSE.
Storing moves a vector of length 1 by less than 0.0005, its cosine with others by less than 1e-6.
The teacher computes in bfloat16 where that is faster, which moves vectors more. Rows of a stream
are read as they are drawn.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from accelerate import PartialState
from huggingface_hub import snapshot_download
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde import TmdeError
from modeling_tmde.inspection import NO_LIMIT
from tmde.data.io import digests, write_atomically
from tmde.data.tokens import Tokens, map_once
from tmde.embedding.loading import default_prompt, reading
from tmde.training.objectives import Distillation
from tmde.training.precision import has_fast_bf16

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tmde.training.arguments import TmdeTrainingArguments
    from tmde.training.parallel_model import ParallelModel

logger = logging.get_logger("tmde.training")

KEY = "objectives.distillation.teacher"  # The key in a recipe.
RECORD = "teacher.json"  # The name of the file in the run's folder.
BATCH_SIZE = 64  # The number of texts that a teacher reads at a time.
LARGEST = float(np.finfo(np.float16).max)
SHOWN_CHARACTERS = 60  # The length at which an error cuts a text that it quotes.
# What became of a row.
UNTAUGHT = 0
TAUGHT = 1
TRUNCATED = 2
# Suffixes of the files that decide the vectors of a folder.
WEIGHT_SUFFIXES = {".safetensors", ".bin", ".json", ".txt", ".model", ".py"}
# Files that a run writes beside its model, which decide no vector.
REPORTS = {"results.json", "run.json", "data_state.json", "trainer_state.json", RECORD}


# ---- The version of a teacher


@dataclass(frozen=True)
class TeacherVersion:
    """A teacher and its weights.

    Attributes:
        name: The folder or Hub id.
        revision: The revision of a Hub model that was asked for; None for the newest.
        commit: The commit of a Hub model; None for a folder.
        sha256: The digest of the names and contents of a folder's files; None for a Hub model.
    """

    name: str
    revision: str | None = None
    commit: str | None = None
    sha256: str | None = None

    @property
    def identity(self) -> str:
        """Identifies the weights: it changes when they change, not when a folder is copied."""
        if self.sha256 is not None:
            return self.sha256
        return f"{self.name}@{self.commit}"

    def pins(self, name: str, revision: str | None) -> bool:
        """Return whether this commit is what a name and revision stand for in a run."""
        if name != self.name or self.commit is None:
            return False
        return revision in (None, self.revision, self.commit)


def find_version(name: str, revision: str | None = None) -> TeacherVersion:
    """Return what a name stands for now.

    This is a commit on the Hub (offline: in its cache), or the checksum of the names and contents
    of a folder's files, without reports of runs beside them.

    Args:
        name: A folder or Hub id.
        revision: The branch, tag or commit of a Hub model; None for the newest.

    Raises:
        TmdeError: There is no such model, or a folder has no model or a revision.
    """
    folder = Path(name).expanduser()
    if not folder.exists():
        problem = f"{KEY}={name} is neither a folder nor a model that the Hub returns ({revision=})"
        with reading(problem):
            snapshot = snapshot_download(
                name, revision=revision, allow_patterns=["modules.json", "config.json"]
            )
        return TeacherVersion(name, revision, commit=Path(snapshot).name)  # snapshots/<commit>
    if revision is not None:
        raise TmdeError(f"{KEY}_revision: found {revision!r} of the folder {name}, expected null")
    checksums = digests(_files_of_teacher(folder), folder)
    return TeacherVersion(name, sha256=hashlib.sha256(checksums.encode()).hexdigest())


def _files_of_teacher(folder: Path) -> list[Path]:
    """Return the files that decide the vectors of a folder's model."""
    modules = folder / "modules.json"
    has_modules = modules.is_file()
    # Without modules, sentence-transformers takes the mean of an encoder's outputs.
    if not has_modules and not (folder / "config.json").is_file():
        raise TmdeError(
            f"{KEY}={folder}: found no modules.json and no config.json, expected the folder of an "
            "encoder"
        )
    folders = {folder}
    if has_modules:
        for module in json.loads(modules.read_text()):
            folders.add(folder / module["path"])
    files = []
    for module_folder in folders:
        for path in module_folder.glob("*"):
            if path.suffix in WEIGHT_SUFFIXES and path.name not in REPORTS:
                files.append(path)
    return files


def pin_version(objective: Distillation, run_folder: Path) -> TeacherVersion:
    """Return the version of an objective's teacher that stays until the end of the run.

    Every process must call it.

    Args:
        objective: Names the teacher.
        run_folder: Keeps the version in `teacher.json`; where there is one, the run goes on with
            it.

    Raises:
        TmdeError: As `find_version`; or the run began with another teacher.
    """
    name = objective.teacher
    revision = objective.teacher_revision
    record = run_folder / RECORD
    with PartialState().main_process_first():
        if not record.exists():
            run_folder.mkdir(parents=True, exist_ok=True)
            version = find_version(name, revision)
            write_atomically(record, json.dumps(asdict(version), indent=2) + "\n")
    recorded = TeacherVersion(**json.loads(record.read_text(encoding="utf-8")))
    # A commit stays, whatever is the newest by now; the files of a folder may have changed.
    current = recorded if recorded.pins(name, revision) else find_version(name, revision)
    if current.identity != recorded.identity:
        raise TmdeError(
            f"{KEY}={name}: found {current.identity}, and the run began with {recorded.name} "
            f"({recorded.identity}, in {record}): put that back, or begin a new run, in another "
            "folder or with --overwrite"
        )
    return current


# ---- Reading rows


@dataclass(frozen=True)
class Teacher:
    """Any model that `sentence_transformers.SentenceTransformer` opens.

    It is loaded when it is first needed.

    Args:
        version: From `find_version`.
        objective: Says how it reads: the share of the rows, and the prompt.
        width: The width of the vectors of the model that learns from it.
        languages: The languages that it reads, by preference: of a row, it reads the text in the
            first of these that the row has.
        device: Where it computes, in bfloat16 where that is faster.
    """

    version: TeacherVersion
    objective: Distillation
    width: int
    languages: tuple[str, ...] = ("en",)
    device: torch.device = torch.device("cpu")

    @cached_property
    def model(self) -> SentenceTransformer:
        """The model."""
        from sentence_transformers import SentenceTransformer

        path = self.version.name
        if self.version.commit is None:
            path = str(Path(path).expanduser())
        dtype = torch.bfloat16 if self.half_precision else torch.float32
        devices = [self.device] if self.device.type == "cuda" else []
        # Loading draws numbers, which must not depend on whether the vectors are there already.
        with (
            torch.random.fork_rng(devices),
            reading(f"{KEY}={self.version.name}: sentence-transformers can't open it"),
        ):
            model = SentenceTransformer(
                path,
                device=str(self.device),
                revision=self.version.commit,
                trust_remote_code=self.objective.trust_remote_code,
                model_kwargs={"dtype": dtype},
            )
        return model.eval()

    @cached_property
    def prompt(self) -> str:
        """The prompt before every text: the objective's, or else the model's default."""
        if self.objective.teacher_prompt:
            return self.objective.teacher_prompt
        return default_prompt(self.version.name, revision=self.version.commit)

    @property
    def half_precision(self) -> bool:
        """Whether it computes in bfloat16."""
        return has_fast_bf16(self.device.type == "cpu")

    @torch.no_grad()
    def encode(self, texts: list[str], language: str) -> np.ndarray:
        """Return the vectors (texts, d) float32 of texts in a language, as the teacher gives them.

        Raises:
            TmdeError: The vectors are not as wide as the student's, or hold NaN or numbers that
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
        if width != self.width:
            raise TmdeError(
                f"{KEY}={self.version.name}: found vectors of d={width}, and the model that learns "
                f"them has d={self.width}; set its width (model.d_model={width}), or take another "
                "teacher"
            )
        is_valid = (np.abs(vectors) <= LARGEST).all(axis=1)  # NaN is not
        if not is_valid.all():
            text = texts[int(is_valid.argmin())][:SHOWN_CHARACTERS]
            raise TmdeError(
                f"{KEY}={self.version.name}: found a vector of {text!r} with NaN or too large "
                "numbers, expected numbers between -65504 and 65504; leave the row out, or take "
                "another teacher"
            )

    def read(self, table: pa.Table) -> pa.Table:
        """Read rows.

        Args:
            table: Rows with `translation`.

        Returns:
            Each row's `vector` in float16, zero where the teacher read nothing, and what became of
            it, `state`.
        """
        rows = table["translation"].to_pylist()
        vectors = np.zeros((len(rows), self.width), np.float16)
        states = np.full(len(rows), UNTAUGHT, np.uint8)
        for language in self.languages:
            texts_by_row = {}
            for index, row in enumerate(rows):
                text = row.get(language) if row else None
                if text and states[index] == UNTAUGHT and self._reads(text):
                    texts_by_row[index] = text
            if not texts_by_row:
                continue
            indices = list(texts_by_row)
            texts = list(texts_by_row.values())
            vectors[indices] = self.encode(texts, language)
            states[indices] = self._states_of(texts)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self.width)
        return pa.table({"vector": lists, "state": states})

    def _reads(self, text: str) -> bool:
        """Return whether a text is in the share that is read, wherever it stands."""
        return zlib.crc32(text.encode()) < self.objective.teacher_share * 2**32

    def _states_of(self, texts: list[str]) -> list[int]:
        """Return whether each text was read in full or truncated, as far as that is known."""
        limit = self.model.max_seq_length
        tokenizer = self.model.tokenizer
        # Models without a limit of their own say inf or 1e30.
        if limit is None or limit >= NO_LIMIT or not isinstance(tokenizer, PreTrainedTokenizerBase):
            return [TAUGHT] * len(texts)
        prompted = [self.prompt + text for text in texts]
        encoded = tokenizer(prompted, truncation=False, verbose=False)
        return [TRUNCATED if len(ids) > limit else TAUGHT for ids in encoded["input_ids"]]


class TeacherVectors:
    """The teacher's vectors by row.

    Args:
        teacher: The teacher.
        rows: The vectors and states of all rows, made once by `Dataset.map`; None for a stream,
            which is read as its rows are asked for.
    """

    def __init__(self, teacher: Teacher, rows: datasets.Dataset | None):
        self.teacher = teacher
        self.rows: datasets.Dataset | None = None
        if rows is not None:
            self.rows = rows.with_format("numpy")
            self.states: np.ndarray = self.rows["state"][:]
            self.warn(self.states)

    @property
    def is_of_stream(self) -> bool:
        """Whether the rows are a stream, which the teacher reads in the process that trains."""
        return self.rows is None

    def __call__(self, tokens: Tokens, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors (rows, d), and bool (rows,), which rows have one.

        Args:
            tokens: The tokens of a stream's chunk, with its texts; not used of a dataset.
            rows: (rows,), the numbers of the rows.
        """
        if self.rows is not None:
            vectors = self.rows[rows]["vector"].astype(np.float16)
            return vectors, self.states[rows] != UNTAUGHT
        assert tokens.texts is not None  # The tokens of a stream's chunk keep its texts.
        table = self.teacher.read(tokens.texts.take(rows))
        states = table["state"].to_numpy()
        self.warn(states)
        vectors = np.stack(table["vector"].to_numpy())
        return vectors, states != UNTAUGHT

    def warn(self, states: np.ndarray) -> None:
        """Warn once, in the main process, if rows were truncated, or not read."""
        if not PartialState().is_main_process:
            return
        name = self.teacher.version.name
        if (states == TRUNCATED).any():
            logger.warning_once(f"The teacher {name}: some rows were longer than it takes")
        if (states == UNTAUGHT).any():
            logger.warning_once(f"The teacher {name}: some rows are not read")


# ---- The teacher of a run


def open_teacher_vectors(
    rows: datasets.Dataset | datasets.IterableDataset,
    parallel: ParallelModel,
    args: TmdeTrainingArguments,
    version: TeacherVersion | None = None,
) -> TeacherVectors | None:
    """Return the teacher's vectors of a dataset; None if no objective has a teacher.

    Those of a map-style dataset are made at once, if they are not there. Several processes may call
    this at once.

    Args:
        rows: Rows `{"translation": {language: text or None}}`.
        parallel: Its objectives name the teacher, its config the languages and the width of the
            student.
        args: `token_cache_dir`, the device, and the options that a teacher rules out.
        version: The version of the teacher, from `pin_version`; None for the newest.

    Raises:
        TmdeError: The teacher can't be opened, is not as wide as the student, reads a language that
            is not trained, or returns NaN or infinity; or rows are joined or paired with their
            neighbors.
    """
    objective = _distillation_of(parallel)
    if objective is None:
        return None
    _check_single_rows(args)
    if version is None:
        version = find_version(objective.teacher, objective.teacher_revision)
    teacher = _open_teacher(
        version,
        objective,
        parallel.config.hidden_size,
        _languages_of_teacher(objective, parallel),
        args.device,
    )
    if not isinstance(rows, datasets.Dataset):
        return TeacherVectors(teacher, None)
    return TeacherVectors(teacher, _read_all(teacher, rows, args.token_cache_dir))


def prepare_teacher_vectors(
    train: datasets.Dataset | datasets.IterableDataset,
    dev: Iterable[datasets.Dataset],
    parallel: ParallelModel,
    args: TmdeTrainingArguments,
) -> TeacherVersion | None:
    """Pin the teacher of a run, and make the vectors that `open_teacher_vectors` will open.

    This is done before the clock of the run begins. Every process must call it.

    Args:
        train: The training rows.
        dev: The dev rows on which losses are measured.
        parallel: The model with its objectives.
        args: The training arguments.

    Returns:
        The version of the teacher; None if no objective has a teacher.

    Raises:
        TmdeError: As `open_teacher_vectors`; or the run in `args.output_dir` began with another
            teacher, or no row to train on has a language that the teacher reads.
    """
    objective = _distillation_of(parallel)
    if objective is None:
        return None
    version = pin_version(objective, Path(args.output_dir))
    train_vectors = open_teacher_vectors(train, parallel, args, version)
    for rows in dev:
        open_teacher_vectors(rows, parallel, args, version)
    if train_vectors is None or train_vectors.is_of_stream:
        return version
    if not train_vectors.states.any():
        languages = ", ".join(train_vectors.teacher.languages)
        raise TmdeError(f"{KEY}_languages: found no row of the training data in {languages}")
    _open_teacher.cache_clear()  # The teacher has read all rows; its weights take memory.
    return version


def _distillation_of(parallel: ParallelModel) -> Distillation | None:
    """Return the objective that has a teacher."""
    for objective in parallel.objectives.values():
        if isinstance(objective, Distillation):
            return objective
    return None


def _check_single_rows(args: TmdeTrainingArguments) -> None:
    """Check that no option puts texts together that the teacher has not read as one."""
    for name, expected in (("max_joined_rows", 1), ("neighbor_share", 0)):
        value = getattr(args, name)
        if value > expected:
            raise TmdeError(
                f"objectives.distillation: the teacher's vectors are of single rows, and found "
                f"{name}={value}, which puts texts together that it has not read: set "
                f"training.{name}={expected}"
            )


def _languages_of_teacher(objective: Distillation, parallel: ParallelModel) -> tuple[str, ...]:
    """Return the languages that the teacher reads, by preference."""
    languages: Sequence[str] = parallel.config.pivot_languages
    if objective.teacher_languages:
        languages = objective.teacher_languages
    trained = parallel.config.languages
    unknown = [language for language in languages if language not in trained]
    if unknown:
        raise TmdeError(
            f"{KEY}_languages: found {unknown}, expected some of "
            f"data.languages=[{', '.join(trained)}]"
        )
    return tuple(languages)


# The training rows and the dev rows of every evaluation share one teacher.
@lru_cache(maxsize=1)
def _open_teacher(
    version: TeacherVersion,
    objective: Distillation,
    width: int,
    languages: tuple[str, ...],
    device: torch.device,
) -> Teacher:
    return Teacher(version, objective, width, languages, device)


def _read_all(teacher: Teacher, rows: datasets.Dataset, folder: str | None) -> datasets.Dataset:
    """Return `vector` and `state` of all rows, made once and kept in a folder."""
    vector = datasets.List(datasets.Value("float16"), length=teacher.width)
    features = datasets.Features({"vector": vector, "state": datasets.Value("uint8")})
    # What decides the vectors beside the rows.
    content = [
        "teacher",
        teacher.version.identity,
        teacher.languages,
        teacher.objective.teacher_share,
        teacher.prompt,
        teacher.width,
        teacher.half_precision,
    ]
    translations = rows.select_columns("translation")
    return map_once(translations, teacher.read, features, content, folder, "Teacher reading")
