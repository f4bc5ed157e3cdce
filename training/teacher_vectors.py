"""What a teacher makes of parallel rows, for distillation: on disk, made once, or of a stream as rows are drawn.

A cache is a folder beside those of tokens (see `token_cache`), whose name follows from the dataset's fingerprint, the
teacher's weights and the languages that it reads. A row has one vector, in float16: 2 d bytes, 1.5 GB for a million
rows of LaBSE; a vector of length 1 so moves by less than 0.0005 of it, its cosine with others by less than 1e-6.
A cache that was not finished is gone on with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import datasets
import numpy as np
import torch
from datasets.utils import tqdm
from transformers import PreTrainedConfig
from transformers.utils import logging

from modeling_tmde.data import token_cache
from modeling_tmde.data.token_store import ArrowSource, ListSource, Tokens
from modeling_tmde.training.teacher import Teacher, check_finite
from modeling_tmde.training.teacher_version import TeacherError, TeacherVersion, settle_version

if TYPE_CHECKING:
    from modeling_tmde.training.arguments import TmdeTrainingArguments
    from modeling_tmde.training.objectives import Distillation
    from modeling_tmde.training.parallel_model import ParallelModel

logger = logging.get_logger("modeling_tmde.training")

FORMAT = 1  # raise it when the files change
BLOCK_ROWS = 2048  # read at a time; an interruption loses no more
UNTAUGHT, TAUGHT, TRUNCATED = range(3)  # what became of a row


class TeacherVectors(Protocol):
    """Vectors of a teacher by row."""

    def __call__(self, tokens: Tokens, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For rows (rows,) of `tokens`: the vectors (rows, d), and bool (rows,), which rows have one."""


class TeacherCache:
    """
    The teacher's vectors of all rows of a dataset, read from the files of a cache as they are needed.

    Args:
        folder: A complete cache, as `open_teacher_vectors` makes it.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        meta = token_cache.read_meta(folder)
        self.vectors, self.states = (token_cache.map_array(folder, name, meta) for name in ("vectors", "states"))

    def __reduce__(self) -> tuple:
        return TeacherCache, (self.folder,)  # a process that is started anew maps the files too

    @property
    def width(self) -> int:
        return self.vectors.shape[1]

    def count(self, state: int) -> int:
        return int((self.states == state).sum())

    def __call__(self, tokens: Tokens, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.vectors[rows], self.states[rows] != UNTAUGHT


class LiveTeacher:
    """
    A teacher that reads rows as they are drawn, every time anew.

    Args:
        teacher: Reads.
        languages: That it reads, by preference.
        width: Of its vectors.
    """

    def __init__(self, teacher: Teacher, languages: Sequence[str], width: int):
        self.teacher, self.languages, self.width = teacher, languages, width

    def __call__(self, tokens: Tokens, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        vectors, states = np.zeros((len(rows), self.width), np.float32), np.full(len(rows), UNTAUGHT, np.uint8)
        _read_rows(tokens.source, rows, self.teacher, self.languages, vectors, states)
        if not states.any() and not tokens.source.available[:, _columns(tokens.source, self.languages)].any():
            logger.warning_once(
                f"No row of {len(tokens.source.available):,} has a text in {', '.join(self.languages)}, which the "
                "teacher reads (objectives.distillation.teacher_languages): they are not distilled"
            )
        if (states == TRUNCATED).any():
            _say_truncated(self.teacher.name, "Some")  # no counts: they would make every batch's warning another one
        return vectors, states != UNTAUGHT


def _columns(source: ArrowSource | ListSource, languages: Sequence[str]) -> list[int]:
    return [source.languages.index(language) for language in languages]


def _read_rows(
    source: ArrowSource | ListSource,
    rows: np.ndarray,
    teacher: Teacher,
    languages: Sequence[str],
    vectors: np.ndarray,
    states: np.ndarray,
) -> None:
    """Fills `vectors` (rows, d) and `states` (rows,) with what the teacher makes of each row's text in the first of
    `languages` that it has."""
    columns = _columns(source, languages)
    there = source.available[rows][:, columns]  # (rows, languages)
    first = np.where(there.any(axis=1), there.argmax(axis=1), -1)
    for place, (language, column) in enumerate(zip(languages, columns, strict=True)):
        own = np.flatnonzero(first == place)
        if not len(own):
            continue
        texts = source.texts(rows[own], column)
        with np.errstate(over="ignore"):  # what float16 can't hold is said in the next line
            vectors[own] = teacher.encode(texts, language)
        check_finite(vectors[own], texts, rows[own], teacher.name)
        states[own] = np.where(teacher.truncates(texts), TRUNCATED, TAUGHT)


def open_teacher_vectors(
    dataset: datasets.Dataset | datasets.IterableDataset,
    parallel: ParallelModel,
    args: TmdeTrainingArguments,
    show_progress: bool = False,
) -> TeacherVectors | None:
    """
    The teacher's vectors of a dataset; None if no objective has a teacher.

    They are made at once, if they are not there, unless the dataset is a stream or `token_cache_dir` is None: then
    the teacher reads rows as they are drawn. Several processes may call this at once: one makes the vectors, the
    others wait for it. Where `prepare_teacher_vectors` has not settled the teacher's version, every process must.

    Args:
        dataset: Rows `{"translation": {language: text or None}}`.
        parallel: Its objectives name the teacher, its config the languages and the width of the student.
        args: `token_cache_dir`, the device, and the options that a teacher rules out.
        show_progress: Show a bar while the teacher reads.

    Raises:
        TeacherError: The teacher can't be opened, is not as wide as the student, reads a language that is not trained,
            or gives numbers that are none.
        ValueError: Rows are joined or paired with their neighbours; or the teacher is to read a stream in a worker.
        OSError: A folder that can't be written.
    """
    objective = distillation_of(parallel)
    if objective is None:
        return None
    check_unjoined(args.max_joined_rows, args.neighbor_share)
    languages = _teacher_languages(objective, parallel.config)
    version = settle_version(objective)
    teacher = _open_teacher(version, args.device, objective.teacher_batch_size, objective.trust_remote_code)
    if args.token_cache_dir is None or not isinstance(dataset, datasets.Dataset):
        if args.dataloader_num_workers:
            raise ValueError(
                f"objectives.distillation: the teacher reads {'a stream' if args.token_cache_dir else 'rows'} in the "
                f"process that trains, and found dataloader_num_workers={args.dataloader_num_workers}: set "
                "training.dataloader_num_workers=0; or make its vectors once, before training, with "
                "data.streaming=false and token_cache_dir=auto"
            )
        width = teacher.width(languages[0])
        _check_width(teacher.name, width, parallel.config)
        return LiveTeacher(teacher, languages, width)
    cache = _open_cache(dataset, teacher, languages, parallel.config, args.token_cache_dir, show_progress)
    _check_width(objective.teacher, cache.width, parallel.config)
    if truncated := cache.count(TRUNCATED):
        read = len(cache.states) - cache.count(UNTAUGHT)
        _say_truncated(objective.teacher, f"{truncated:,} of {read:,}")
    return cache


def prepare_teacher_vectors(
    train: datasets.Dataset | datasets.IterableDataset,
    dev: Iterable[datasets.Dataset],
    parallel: ParallelModel,
    args: TmdeTrainingArguments,
    show_progress: bool = False,
) -> None:
    """Settles which teacher a run has, and makes what `open_teacher_vectors` will find, before the clock of the run
    begins. Every process must call it.

    Args:
        train, dev: The rows to train on, and those on which the losses are measured.

    Raises:
        As `open_teacher_vectors`; TeacherError also if the run in `args.output_dir` began with another teacher, or no
            row to train on has a language that the teacher reads.
    """
    if (objective := distillation_of(parallel)) is None:
        return
    settle_version(objective, Path(args.output_dir))
    made = open_teacher_vectors(train, parallel, args, show_progress)
    if isinstance(made, TeacherCache) and (untaught := made.count(UNTAUGHT)):
        languages = ", ".join(_teacher_languages(objective, parallel.config))
        if untaught == len(made.states):
            raise TeacherError(
                f"objectives.distillation.teacher_languages: found no row of the training data in {languages}, "
                "expected languages that the rows have and the teacher knows"
            )
        logger.warning_once(
            f"{untaught:,} of {len(made.states):,} rows have no text in {languages}, which the teacher reads, and are "
            "not distilled (objectives.distillation.teacher_languages)"
        )
    opened = [made, *(open_teacher_vectors(rows, parallel, args, show_progress) for rows in dev)]
    if not any(isinstance(each, LiveTeacher) for each in opened):
        _open_teacher.cache_clear()  # its weights take memory, and it has read all


def distillation_of(parallel: ParallelModel) -> Distillation | None:
    from modeling_tmde.training.objectives import Distillation

    return next((each for each in parallel.objectives.values() if isinstance(each, Distillation)), None)


def check_unjoined(max_joined_rows: int, neighbor_share: float) -> None:
    """Refuses texts of several rows, or of other rows: the teacher has read each row on its own.

    Raises:
        ValueError: Names the option.
    """
    for name, found, expected in (("max_joined_rows", max_joined_rows, 1), ("neighbor_share", neighbor_share, 0)):
        if found > expected:
            raise ValueError(
                f"objectives.distillation: the teacher's vectors are of single rows, and found {name}={found}, which "
                f"puts texts together that it has not read: set training.{name}={expected}"
            )


# ---- Making


@lru_cache(maxsize=1)  # of the training rows and those of every evaluation
def _open_teacher(version: TeacherVersion, device: torch.device, batch_size: int, trust_remote_code: bool) -> Teacher:
    return Teacher(version, device, batch_size, trust_remote_code)


def _teacher_languages(objective: Distillation, config: PreTrainedConfig) -> list[str]:
    known, languages = list(config.languages), objective.teacher_languages or list(config.pivot_languages)
    unknown = [language for language in languages if language not in known]
    if unknown or not languages:
        raise TeacherError(
            f"objectives.distillation.teacher_languages: found {unknown or languages}, expected some of "
            f"data.languages=[{', '.join(known)}]"
        )
    return languages


def _check_width(name: str, width: int, config: PreTrainedConfig) -> None:
    if width != config.hidden_size:
        key = "the width of the model"
        if getattr(config, "d_model", None) == config.hidden_size:
            key = f"model.d_model={width}"
        raise TeacherError(
            f"objectives.distillation.teacher={name}: found vectors of d={width}, and the model that learns them has "
            f"d={config.hidden_size}; set {key}, or take a teacher of d={config.hidden_size}"
        )


def _say_truncated(name: str, how_many: str) -> None:
    logger.warning_once(
        f"{how_many} texts that the teacher {name} read are longer than it takes and were truncated; its "
        "max_seq_length says at how many tokens"
    )


def _open_cache(
    dataset: datasets.Dataset,
    teacher: Teacher,
    languages: list[str],
    config: PreTrainedConfig,
    folder: str,
    show_progress: bool,
) -> TeacherCache:
    parent = token_cache.cache_folder(folder)
    content = ["teacher", FORMAT, dataset._fingerprint, len(dataset), teacher.version.identity, languages]

    def write(path: Path) -> None:
        width = teacher.width(languages[0])
        _check_width(teacher.name, width, config)  # before hours of reading
        _write(path, ArrowSource(dataset, languages), teacher, width, show_progress)

    try:
        return TeacherCache(token_cache.make_once(parent, content, write, resumes=True))
    except OSError as error:
        raise OSError(
            f"The teacher's vectors can't be written in {parent} ({error}): set token_cache_dir to a folder with room "
            f"for {2 * config.hidden_size * len(dataset) / 1e9:.1f} GB"
        ) from error


def _write(folder: Path, source: ArrowSource, teacher: Teacher, width: int, show_progress: bool) -> None:
    """Fills a folder with the arrays, from where an earlier attempt ended, and at last `meta.json`."""
    rows, sizes = len(source.available), {"vectors": 2 * width, "states": 1}  # bytes of a row
    paths = {name: folder / f"{name}.bin" for name in sizes}
    for path in paths.values():
        path.touch()
    done = min(paths[name].stat().st_size // size for name, size in sizes.items()) // BLOCK_ROWS * BLOCK_ROWS
    files = {name: path.open("r+b") for name, path in paths.items()}
    try:
        for name, file in files.items():
            file.truncate(done * sizes[name])
            file.seek(0, 2)
        with tqdm(total=rows, initial=done, desc="Teacher reading", unit=" rows", disable=not show_progress) as bar:
            for begin in range(done, rows, BLOCK_ROWS):
                block = np.arange(begin, min(begin + BLOCK_ROWS, rows))
                arrays = {
                    "vectors": np.zeros((len(block), width), np.float16),
                    "states": np.full(len(block), UNTAUGHT, np.uint8),
                }
                _read_rows(source, block, teacher, source.languages, arrays["vectors"], arrays["states"])
                for name, file in files.items():
                    file.write(arrays[name].tobytes())
                    file.flush()
                bar.update(len(block))
    finally:
        for file in files.values():
            file.close()
    arrays = {
        "vectors": {"dtype": "float16", "shape": [rows, width]},
        "states": {"dtype": "uint8", "shape": [rows]},
    }
    token_cache.write_meta(folder, arrays, {"teacher": teacher.name, "languages": source.languages})
