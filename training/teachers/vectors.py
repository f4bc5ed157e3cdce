"""The teachers of a run, and their vectors of its rows.

The vectors of a map-style dataset are read once and kept beside its tokens. Rows of a stream are
read as they are drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import datasets
import numpy as np
import pyarrow as pa
import torch
from accelerate import PartialState
from datasets.fingerprint import Hasher
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data.tokens import Tokens
from tmde.training.objectives import Distillation
from tmde.training.teachers.combination import Combination, combine_once
from tmde.training.teachers.files import FileTeacher
from tmde.training.teachers.models import ModelTeacher
from tmde.training.teachers.selection import TextSelection
from tmde.training.teachers.storage import ReadRows, StoredVectors, read_once
from tmde.training.teachers.versions import (
    KEY,
    TeacherVersion,
    find_versions,
    names_of,
    pin_versions,
)

if TYPE_CHECKING:
    from tmde.training.arguments import TmdeTrainingArguments
    from tmde.training.parallel_model import ParallelModel

logger = logging.get_logger("tmde.training")


@dataclass(frozen=True)
class RunTeachers:
    """The teachers of a run, from `prepare_teacher_vectors`.

    Attributes:
        versions: Their versions.
        combination: How their vectors become one, fitted on the training rows; None for one teacher
            whose vectors are taken as they are.
        seconds: The seconds that reading took, in this run or in an earlier one that left the
            vectors.
        cpu_seconds: The seconds of CPU time that it took, of all threads.
    """

    versions: tuple[TeacherVersion, ...]
    combination: Combination | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0


# ---- Reading rows


@dataclass(frozen=True)
class TeacherReader:
    """Reads the chosen text of each row.

    Args:
        teacher: The teacher.
        selection: Chooses the texts.
    """

    teacher: ModelTeacher | FileTeacher
    selection: TextSelection

    def read(self, table: pa.Table) -> ReadRows:
        """Return the vectors of the rows of a table that have a chosen text."""
        rows: list[int] = []
        blocks = []
        truncated = 0
        for language, texts_by_row in self.selection.choose(table).items():
            texts = list(texts_by_row.values())
            rows.extend(texts_by_row)
            blocks.append(self.teacher.encode(texts, language).astype(np.float16))
            truncated += self.teacher.count_truncated(texts)
        if not blocks:
            return ReadRows(np.zeros(0, np.int64), np.zeros((0, 0), np.float16))
        order = np.argsort(rows)
        vectors = np.concatenate(blocks)[order]
        return ReadRows(np.array(rows, np.int64)[order], vectors, truncated)

    @property
    def content(self) -> list[object]:
        """What decides the vectors beside the rows."""
        selection = self.selection
        files = [file.version.identity for file in selection.files]
        return ["teacher", self.teacher.content, selection.languages, selection.share, files]


class TeacherVectors:
    """The vectors that a model learns, by row.

    Args:
        readers: One for each teacher. A stream has one, which reads its rows as they are asked for.
        width: The width of the vectors.
        stored: The vectors of all rows that are read; None for a stream.
        parts: Each teacher's own vectors of these rows; None for a stream.
    """

    def __init__(
        self,
        readers: Sequence[TeacherReader],
        width: int,
        stored: StoredVectors | None = None,
        parts: Sequence[StoredVectors] = (),
    ):
        self.readers = readers
        self.width = width
        self.stored = stored
        self.parts = parts
        if stored is not None:
            truncated = sum(part.progress.truncated for part in parts)
            self.warn(truncated, unread=stored.total - len(stored.rows))

    @property
    def is_of_stream(self) -> bool:
        """Whether the rows are a stream, which the teacher reads in the process that trains."""
        return self.stored is None

    def __call__(self, tokens: Tokens, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors (rows, d), and bool (rows,), which rows have one.

        Args:
            tokens: The tokens of a stream's chunk, with its texts; not used of a dataset.
            rows: (rows,), the numbers of the rows.
        """
        if self.stored is not None:
            return self.stored.look_up(rows, self.width)
        assert tokens.texts is not None  # The tokens of a stream's chunk keep its texts.
        read_rows = self.readers[0].read(tokens.texts.take(rows))
        self.warn(read_rows.truncated, unread=len(rows) - len(read_rows.rows))
        vectors = np.zeros((len(rows), self.width), np.float16)
        is_taught = np.zeros(len(rows), bool)
        if len(read_rows.rows):
            vectors[read_rows.rows] = read_rows.vectors
            is_taught[read_rows.rows] = True
        return vectors, is_taught

    def warn(self, truncated: int, unread: int) -> None:
        """Warn once, in the main process, if rows were truncated, or not read."""
        if not PartialState().is_main_process:
            return
        names = names_of([reader.teacher.version for reader in self.readers])
        teachers = "The teacher" if len(self.readers) == 1 else "The teachers"
        if truncated:
            logger.warning_once(f"{teachers} {names}: some rows were longer than a teacher takes")
        if unread:
            logger.warning_once(f"{teachers} {names}: some rows are not read")


# ---- The teachers of a run


def prepare_teacher_vectors(
    train: datasets.Dataset | datasets.IterableDataset,
    dev: Iterable[datasets.Dataset],
    parallel: ParallelModel,
    args: TmdeTrainingArguments,
) -> RunTeachers | None:
    """Pin the teachers of a run, and make the vectors that `open_teacher_vectors` will open.

    This is done before the clock of the run begins. Every process must call it.

    Args:
        train: The training rows.
        dev: The dev rows on which losses are measured.
        parallel: The model with its objectives.
        args: The training arguments.

    Returns:
        The teachers; None if no objective has any.

    Raises:
        TmdeError: As `open_teacher_vectors`; or the run in `args.output_dir` began with other
            teachers, or no row to train on has a text that the teachers read.
    """
    objective = _distillation_of(parallel)
    if objective is None:
        return None
    versions = pin_versions(objective, Path(args.output_dir))
    setup = _Setup(objective, parallel, args, versions)
    if not isinstance(train, datasets.Dataset):
        _stream_vectors(setup)  # This checks that the teacher can read a stream.
        teachers = RunTeachers(versions)
    else:
        vectors, combination = _fit(setup, train)
        teachers = RunTeachers(versions, combination)
        teachers = _count_time(teachers, vectors)
    for rows in dev:
        dev_vectors = open_teacher_vectors(rows, parallel, args, teachers)
        assert dev_vectors is not None  # The objective was found above.
        teachers = _count_time(teachers, dev_vectors)
    if isinstance(train, datasets.Dataset):
        _open_readers.cache_clear()  # All rows are read; the weights of a teacher take memory.
    return teachers


def open_teacher_vectors(
    rows: datasets.Dataset | datasets.IterableDataset,
    parallel: ParallelModel,
    args: TmdeTrainingArguments,
    teachers: RunTeachers | None = None,
) -> TeacherVectors | None:
    """Return the vectors that a model learns for a dataset; None if no objective has a teacher.

    Those of a map-style dataset are made at once, if they are not there. Several processes may call
    this at once.

    Args:
        rows: Rows `{"translation": {language: text or None}}`.
        parallel: Its objectives name the teachers, its config the languages and the width of the
            student.
        args: `token_cache_dir`, the device, and the options that a teacher rules out.
        teachers: The teachers of the run, from `prepare_teacher_vectors`. None for their newest
            versions, combined by the vectors of these rows.

    Raises:
        TmdeError: A teacher can't be opened, reads a language that is not trained, or returns NaN
            or infinity; the vectors are narrower than the student's, or must be combined, and the
            rows are a stream; or rows are joined or paired with their neighbors.
    """
    objective = _distillation_of(parallel)
    if objective is None:
        return None
    versions = find_versions(objective) if teachers is None else teachers.versions
    setup = _Setup(objective, parallel, args, versions)
    if not isinstance(rows, datasets.Dataset):
        return _stream_vectors(setup)
    if teachers is None:
        vectors, _ = _fit(setup, rows, is_train=False)
        return vectors
    readers = setup.readers()
    parts = setup.read(rows, readers)
    stored = parts[0]
    if teachers.combination is not None:
        folder = args.token_cache_dir
        stored, _ = combine_once(parts, setup.width, folder, teachers.combination)
    return TeacherVectors(readers, setup.width, stored, parts)


@dataclass(frozen=True)
class _Setup:
    """What decides the vectors of any rows.

    Args:
        objective: The objective.
        parallel: The model with its objectives.
        args: The training arguments.
        versions: The versions of the teachers.
    """

    objective: Distillation
    parallel: ParallelModel
    args: TmdeTrainingArguments
    versions: tuple[TeacherVersion, ...]

    def __post_init__(self) -> None:
        _check_single_rows(self.args)

    @property
    def width(self) -> int:
        """The width of the student."""
        width: int = self.parallel.config.hidden_size
        return width

    def readers(self, is_stream: bool = False) -> tuple[TeacherReader, ...]:
        """Return the readers, one for each teacher."""
        return _open_readers(
            self.versions,
            self.objective,
            self.width,
            _languages_of_teacher(self.objective, self.parallel),
            self.args.device,
            is_stream,
        )

    def read(self, rows: datasets.Dataset, readers: Sequence[TeacherReader]) -> list[StoredVectors]:
        """Return each teacher's vectors of rows, read once and kept in a folder."""
        translations = rows.select_columns("translation")
        models = [reader for reader in readers if isinstance(reader.teacher, ModelTeacher)]
        parts = []
        for number, reader in enumerate(readers, start=1):
            desc = "Teacher reading"
            if len(readers) > 1:
                desc = f"Teacher reading, {number} of {len(readers)}"
            # `datasets` has no public name for the fingerprint of a dataset.
            content = [translations._fingerprint, len(rows), reader.content]
            fingerprint = Hasher.hash(content)
            folder = self.args.token_cache_dir
            parts.append(read_once(translations, reader.read, fingerprint, folder, desc))
            if len(models) > 1 and isinstance(reader.teacher, ModelTeacher):
                reader.teacher.release()  # One model at a time is in memory.
        return parts


def _fit(
    setup: _Setup, rows: datasets.Dataset, is_train: bool = True
) -> tuple[TeacherVectors, Combination | None]:
    """Return the vectors of rows, and the combination that they determine."""
    readers = setup.readers()
    parts = setup.read(rows, readers)
    width = setup.width
    if len(parts[0].rows) == 0:
        if is_train:
            raise _no_row(readers)
        return TeacherVectors(readers, width, parts[0], parts), None
    widths = [part.width for part in parts]
    if widths == [width]:
        return TeacherVectors(readers, width, parts[0], parts), None
    if sum(widths) < width:
        raise _too_narrow(readers, widths, width)
    stored, combination = combine_once(parts, width, setup.args.token_cache_dir)
    return TeacherVectors(readers, width, stored, parts), combination


def _stream_vectors(setup: _Setup) -> TeacherVectors:
    """Return the vectors of a stream, which are those of one teacher as they are."""
    width = setup.width
    if len(setup.versions) > 1:
        raise TmdeError(
            f"{KEY}: found {len(setup.versions)} teachers and a stream; they are combined by "
            "all of their vectors, which a stream does not have: set data.streaming=false, or "
            "name one teacher"
        )
    readers = setup.readers(is_stream=True)
    teacher = readers[0].teacher
    if isinstance(teacher, FileTeacher) and teacher.width != width:
        raise TmdeError(
            f"{KEY}={teacher.version.name}: found vectors of d={teacher.width}, and the model that "
            f"learns them has d={width}; a projection needs all vectors, which a stream does not "
            f"have: set data.streaming=false, or model.d_model={teacher.width}"
        )
    return TeacherVectors(readers, width)


def _count_time(teachers: RunTeachers, vectors: TeacherVectors) -> RunTeachers:
    """Add the time that vectors took."""
    stores = list(vectors.parts)
    if vectors.stored is not None and teachers.combination is not None:
        stores.append(vectors.stored)
    return RunTeachers(
        teachers.versions,
        teachers.combination,
        teachers.seconds + sum(store.progress.seconds for store in stores),
        teachers.cpu_seconds + sum(store.progress.cpu_seconds for store in stores),
    )


def _distillation_of(parallel: ParallelModel) -> Distillation | None:
    """Return the objective that has a teacher."""
    for objective in parallel.objectives.values():
        if isinstance(objective, Distillation):
            return objective
    return None


# The training rows and the dev rows of every evaluation share the teachers.
@lru_cache(maxsize=1)
def _open_readers(
    versions: tuple[TeacherVersion, ...],
    objective: Distillation,
    width: int,
    languages: tuple[str, ...],
    device: torch.device,
    is_stream: bool,
) -> tuple[TeacherReader, ...]:
    # The vectors of one model are taken as they are, unless it is given as a list.
    has_same_width = is_stream or isinstance(objective.teacher, str)
    teachers: list[ModelTeacher | FileTeacher] = []
    for version, prompt in zip(versions, objective.prompts, strict=True):
        if version.is_file:
            teachers.append(FileTeacher(version))
            continue
        teachers.append(
            ModelTeacher(
                version,
                width if has_same_width else None,
                prompt,
                objective.trust_remote_code,
                device,
            )
        )
    files = tuple(teacher for teacher in teachers if isinstance(teacher, FileTeacher))
    selection = TextSelection(languages, objective.teacher_share, files)
    return tuple(TeacherReader(teacher, selection) for teacher in teachers)


# ---- Checks


def _check_single_rows(args: TmdeTrainingArguments) -> None:
    """Check that rows are not joined to texts that the teacher has not read as one."""
    if args.max_joined_rows > 1:
        raise TmdeError(
            "objectives.distillation: the teacher's vectors are of single rows, and found "
            f"max_joined_rows={args.max_joined_rows}, which puts texts together that it has not "
            "read: set training.max_joined_rows=1"
        )


def _languages_of_teacher(objective: Distillation, parallel: ParallelModel) -> tuple[str, ...]:
    """Return the languages that the teachers read, by preference."""
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


def _no_row(readers: Sequence[TeacherReader]) -> TmdeError:
    selection = readers[0].selection
    languages = ", ".join(selection.languages)
    if not selection.files:
        return TmdeError(f"{KEY}_languages: found no row of the training data in {languages}")
    names = names_of([file.version for file in selection.files])
    example = next(iter(selection.files[0].table.row_of))
    return TmdeError(
        f"{KEY}={names}: found no text of the training data in {languages} "
        f"({KEY}_languages); expected its texts as they stand there, and the file has, for "
        f"example, {example!r}"
    )


def _too_narrow(readers: Sequence[TeacherReader], widths: Sequence[int], width: int) -> TmdeError:
    names = names_of([reader.teacher.version for reader in readers])
    vectors = "vectors of d=" + " + ".join(str(teacher_width) for teacher_width in widths)
    return TmdeError(
        f"{KEY}={names}: found {vectors}, and the model that learns them has d={width}; set its "
        f"width (model.d_model={sum(widths)} or less), or add a teacher"
    )
