"""The teachers of a run, and their vectors of its rows.

The vectors of a dataset are read once and kept beside its tokens, in float16: 2 d bytes, 1.5 GB for
a million rows of LaBSE. Storing moves a vector of length 1 by less than 0.0005, its cosine with
others by less than 1e-6.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from accelerate import PartialState
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data.tokens import BLOCK_ROWS, ListColumn, map_once
from tmde.training.objectives import Distillation
from tmde.training.teachers.combination import Combination, fit_combination
from tmde.training.teachers.files import FileTeacher
from tmde.training.teachers.models import ModelTeacher
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

SHARD_ROWS = 16 * BLOCK_ROWS  # The rows of a file. A run that is killed reads no more again.

# The columns of a row that was read; `vector` is null where the row is not taught. The seconds are
# those of its block, divided by the rows of the block.
FEATURES = datasets.Features(
    {
        "vector": datasets.List(datasets.Value("float16")),
        "is_truncated": datasets.Value("bool"),
        "seconds": datasets.Value("float32"),
        "cpu_seconds": datasets.Value("float32"),
    }
)


def open_teachers(
    parallel: ParallelModel, args: TmdeTrainingArguments, run_folder: Path | None = None
) -> Teachers | None:
    """Return the teachers of a model's distillation; None without this objective.

    Args:
        parallel: Its objectives name the teachers, its config the languages and the width of the
            student.
        args: `token_cache_dir`, the device, and the options that a teacher rules out.
        run_folder: Keeps the versions of the teachers until the end of the run, see `pin_versions`.
            Every process must give it. None for their newest versions.

    Raises:
        TmdeError: There is no such teacher; or the run began with other teachers; or a teacher
            reads a language that is not trained; or rows are joined.
    """
    for objective in parallel.objectives.values():
        if isinstance(objective, Distillation):
            if run_folder is None:
                versions = find_versions(objective)
            else:
                versions = pin_versions(objective, run_folder)
            return Teachers(versions, objective, parallel, args)
    return None


class Teachers:
    """The teachers of a run.

    They read one text of a row, the same one for all teachers: that in the first of their languages
    that the row has, that belongs to the share, and that all files know. A row without such a text
    is not taught.

    Args:
        versions: Their versions.
        objective: Names the teachers, and says what they read.
        parallel: The student.
        args: The training arguments.

    Attributes:
        seconds: The seconds that it took to read the rows of `prepare`, in this run or in an
            earlier one that left the vectors.
        cpu_seconds: The seconds of CPU time that it took, of all threads.
    """

    def __init__(
        self,
        versions: tuple[TeacherVersion, ...],
        objective: Distillation,
        parallel: ParallelModel,
        args: TmdeTrainingArguments,
    ):
        if args.max_joined_rows > 1:
            raise TmdeError(
                f"objectives.distillation: found max_joined_rows={args.max_joined_rows}, "
                "which joins rows, but the teacher's vectors belong to single rows: set "
                "training.max_joined_rows=1"
            )
        self.versions = versions
        self.names = names_of(versions)
        self.languages = _languages_of(objective, parallel)
        self.share = objective.teacher_share
        self.width: int = parallel.config.hidden_size
        self.cache_folder = args.token_cache_dir
        self._fitted_rows: datasets.Dataset | None = None  # One column of vectors a teacher.
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        # The vectors of one model are taken as they are, unless it is given as a list.
        width = self.width if isinstance(objective.teacher, str) else None
        self.files: list[FileTeacher] = []
        self.models: list[ModelTeacher] = []
        self.teachers: list[ModelTeacher | FileTeacher] = []
        for version, prompt in zip(versions, objective.prompts, strict=True):
            if version.is_file:
                file = FileTeacher(version)
                self.files.append(file)
                self.teachers.append(file)
                continue
            model = ModelTeacher(version, width, prompt, objective.trust_remote_code, args.device)
            self.models.append(model)
            self.teachers.append(model)

    def prepare(
        self,
        train: datasets.Dataset | datasets.IterableDataset,
        dev: Iterable[datasets.Dataset] = (),
    ) -> None:
        """Read the rows of a run, before its clock begins. Every process must call it.

        Args:
            train: The training rows.
            dev: The dev rows on which losses are measured.

        Raises:
            TmdeError: As `vectors_of`; or no row to train on has a text that the teachers read.
        """
        for rows in (train, *dev):
            vectors = self.vectors_of(rows)
            if rows is train and not vectors.is_taught.any():
                raise self._no_row()
            self.seconds += vectors.seconds
            self.cpu_seconds += vectors.cpu_seconds
        for model in self.models:
            model.release()  # All rows are read.

    def vectors_of(self, rows: datasets.Dataset | datasets.IterableDataset) -> TeacherVectors:
        """Return the vectors that a model learns for rows.

        They are made at once, if they are not there. Several processes may call this at once: one
        reads, the others wait for it. Reading that was killed continues behind the last file that
        it finished.

        Args:
            rows: Rows `{"translation": {language: text or None}}`.

        Raises:
            TmdeError: The rows are a stream; or a teacher can't be opened, or returns NaN or
                infinity; or the vectors are narrower than the student's.
            OSError: The folder of the cache can't be written.
        """
        if not isinstance(rows, datasets.Dataset):
            raise TmdeError(
                f"{KEY}={self.names}: found a stream, expected a Dataset, because a teacher "
                "reads all rows before the run: set data.streaming=false (data.max_rows "
                "limits the rows)"
            )
        parts = self._read_all(rows)
        widths = [_width(part, "vector") for part in parts]
        taught = parts[0]
        if widths[0] and widths != [self.width]:
            taught = self._combine(parts, widths)
        vectors = TeacherVectors(taught, parts, self.width)
        self.warn(vectors.truncated, unread=int((~vectors.is_taught).sum()))
        return vectors

    def _read_all(self, rows: datasets.Dataset) -> list[datasets.Dataset]:
        """Return the columns `FEATURES` of each teacher, read once."""
        translations = rows.select_columns("translation")
        parts = []
        for number, teacher in enumerate(self.teachers, start=1):
            name = "Teacher" if len(self.teachers) == 1 else f"Teacher {number}"
            parts.append(self._read_once(translations, teacher, f"{name} reading"))
            if len(self.models) > 1 and isinstance(teacher, ModelTeacher):
                teacher.release()  # One model at a time is in memory.
        return parts

    def _read_once(
        self, rows: datasets.Dataset, teacher: ModelTeacher | FileTeacher, desc: str
    ) -> datasets.Dataset:
        files = [file.version.identity for file in self.files]
        content = ["teacher", teacher.content, self.languages, self.share, files]

        def read_table(table: pa.Table) -> pa.Table:
            return self.read(table, teacher)

        shards = []
        count = -(-len(rows) // SHARD_ROWS)
        for number in range(count):
            begin = number * SHARD_ROWS
            shard = rows.select(range(begin, min(begin + SHARD_ROWS, len(rows))))
            part = f" (part {number + 1} of {count})" if count > 1 else ""
            shards.append(
                map_once(shard, read_table, FEATURES, content, self.cache_folder, desc + part)
            )
        return datasets.concatenate_datasets(shards)

    def read(self, table: pa.Table, teacher: ModelTeacher | FileTeacher) -> pa.Table:
        """Return what a teacher makes of rows, the columns `FEATURES`.

        Args:
            table: Rows with `translation`.
            teacher: The teacher.
        """
        begin = perf_counter()
        cpu_begin = process_time()
        rows: list[int] = []
        blocks = [np.zeros((0, 0), np.float16)]
        is_taught = np.zeros(len(table), bool)
        is_truncated = np.zeros(len(table), bool)
        for language, texts_by_row in self._choose(table).items():
            chosen_rows = list(texts_by_row)
            texts = list(texts_by_row.values())
            rows += chosen_rows
            blocks.append(teacher.encode(texts, language).astype(np.float16))
            is_taught[chosen_rows] = True
            is_truncated[chosen_rows] = teacher.is_truncated(texts)
        vectors = blocks[0]
        if rows:
            vectors = np.concatenate(blocks[1:])[np.argsort(rows)]
        share_of_block = np.ones(len(table), np.float32) / len(table)
        return pa.table(
            {
                "vector": _vector_column(vectors, is_taught),
                "is_truncated": is_truncated,
                "seconds": (perf_counter() - begin) * share_of_block,
                "cpu_seconds": (process_time() - cpu_begin) * share_of_block,
            }
        )

    def _choose(self, table: pa.Table) -> dict[str, dict[int, str]]:
        """Return the texts that are read by the number of their row, for each language."""
        rows = table["translation"].to_pylist()
        chosen_rows: set[int] = set()
        texts_by_language: dict[str, dict[int, str]] = {}
        for language in self.languages:
            texts_by_row = {}
            for index, row in enumerate(rows):
                text = row.get(language) if row else None
                if text and index not in chosen_rows and self._includes(text):
                    texts_by_row[index] = text
            if texts_by_row:
                texts_by_language[language] = texts_by_row
                chosen_rows.update(texts_by_row)
        return texts_by_language

    def _includes(self, text: str) -> bool:
        # The text itself decides, wherever it is.
        if zlib.crc32(text.encode()) >= self.share * 2**32:
            return False
        return all(file.knows(text) for file in self.files)

    def _combine(self, parts: Sequence[datasets.Dataset], widths: list[int]) -> datasets.Dataset:
        """Return the combined vectors of rows, made once."""
        if sum(widths) < self.width:
            of_each = " + ".join(str(width) for width in widths)
            raise TmdeError(
                f"{KEY}={self.names}: found vectors of d={of_each}, and the model that learns them "
                f"has d={self.width}; set its width (model.d_model={sum(widths)} or less), or add "
                "a teacher"
            )
        columns = []
        for number, part in enumerate(parts):
            column = part.select_columns("vector").rename_column("vector", str(number))
            columns.append(column)
        joint = datasets.concatenate_datasets(columns, axis=1)
        if self._fitted_rows is None:
            self._fitted_rows = joint

        def combine(table: pa.Table) -> pa.Table:
            combined = self.combination(_matrices(table, widths)).astype(np.float16)
            is_taught = table["0"].is_valid().to_numpy()
            return pa.table({"vector": _vector_column(combined, is_taught)})

        features = datasets.Features({"vector": FEATURES["vector"]})
        content = ["combined", self._fitted_rows._fingerprint, self.width]
        desc = "Combining the teachers of"
        return map_once(joint, combine, features, content, self.cache_folder, desc)

    @cached_property
    def combination(self) -> Combination:
        """How the vectors of several teachers become one, fitted on the first rows they read.

        It is not needed where the cache has the combined vectors.
        """
        rows = self._fitted_rows
        assert rows is not None  # `_combine` has noted them.
        widths = [_width(rows, name) for name in rows.column_names]
        return fit_combination(_Blocks(rows, widths), widths, self.width)

    def _no_row(self) -> TmdeError:
        languages = ", ".join(self.languages)
        if not self.files:
            return TmdeError(f"{KEY}_languages: found no row of the training data in {languages}")
        names = names_of([file.version for file in self.files])
        example = next(iter(self.files[0].table.row_of))
        return TmdeError(
            f"{KEY}={names}: found no text of the training data in {languages} "
            f"({KEY}_languages), expected exactly the same texts; the file has, for example, "
            f"{example!r}"
        )

    def warn(self, truncated: int, unread: int) -> None:
        """Warn once, in the main process, if rows were truncated, or not read."""
        if not PartialState().is_main_process:
            return
        teachers = "The teacher" if len(self.versions) == 1 else "The teachers"
        if truncated:
            logger.warning_once(f"{teachers} {self.names}: some rows were truncated for a teacher")
        if unread:
            logger.warning_once(f"{teachers} {self.names}: some rows are not read")


def _languages_of(objective: Distillation, parallel: ParallelModel) -> list[str]:
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
    return list(languages)


# ---- The vectors of rows


class TeacherVectors:
    """The vectors of a dataset, memory-mapped if they are in the cache.

    Args:
        rows: The column `vector`, null where a row is not taught.
        parts: What each teacher made of the rows, the columns `FEATURES`.
        width: The width of the vectors, which is not known if there are none.

    Attributes:
        is_taught: (rows,), whether each row has a vector.
        truncated: The number of texts that were longer than a teacher reads.
        seconds: The seconds that reading took.
        cpu_seconds: The seconds of CPU time that it took.
    """

    def __init__(self, rows: datasets.Dataset, parts: Sequence[datasets.Dataset], width: int):
        self.rows = rows
        self.parts = parts
        self.width = width
        column = _column(rows, "vector")
        self.is_taught = column.is_valid().to_numpy()
        self._lists = ListColumn(column)
        self.truncated = int(self._sum("is_truncated"))
        self.seconds = self._sum("seconds")
        self.cpu_seconds = self._sum("cpu_seconds")

    def __reduce__(self) -> tuple:
        # A process that loads data maps the files itself.
        return TeacherVectors, (self.rows, self.parts, self.width)

    def _sum(self, name: str) -> float:
        return sum(float(pc.sum(_column(part, name)).as_py() or 0) for part in self.parts)

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors (rows, d) float16, and bool (rows,), which rows have one.

        Args:
            rows: (rows,), the numbers of the rows.
        """
        is_taught = self.is_taught[rows]
        taught_rows = rows[is_taught]
        numbers = self._lists.gather(
            taught_rows, np.zeros_like(taught_rows), np.full(len(taught_rows), self.width)
        )
        vectors = np.zeros((len(rows), self.width), np.float16)
        vectors[is_taught] = numbers.reshape(-1, self.width)
        return vectors, is_taught


@dataclass
class _Blocks:
    """Yields the vectors of some rows at a time, (taught rows, width) of each teacher."""

    joint: datasets.Dataset
    widths: list[int]

    def __iter__(self) -> Iterator[list[np.ndarray]]:
        for table in self.joint.with_format("arrow").iter(batch_size=SHARD_ROWS):
            yield _matrices(table, self.widths)


def _matrices(table: pa.Table, widths: list[int]) -> list[np.ndarray]:
    """Return a matrix (taught rows, width) of each column."""
    return [_matrix(column, width) for column, width in zip(table.columns, widths, strict=True)]


def _matrix(column: pa.ChunkedArray, width: int) -> np.ndarray:
    """Return the lists of a column that are not null, (taught rows, width)."""
    numbers: np.ndarray = pc.list_flatten(column).to_numpy()
    return numbers.reshape(-1, width)


def _vector_column(vectors: np.ndarray, is_taught: np.ndarray) -> pa.ListArray:
    """Return a list for each row: its vector, or null where it is not taught.

    A null takes no room, as it would in lists of a fixed size.

    Args:
        vectors: (taught rows, d) float16.
        is_taught: bool (rows,).
    """
    lengths = np.where(is_taught, vectors.shape[1], 0)
    offsets = np.concatenate([[0], lengths.cumsum()])
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(vectors.ravel()), mask=pa.array(~is_taught)
    )


def _width(rows: datasets.Dataset, name: str) -> int:
    """Return the length of a column's vectors; 0 if no row has one."""
    lengths = pc.list_value_length(_column(rows, name))
    return pc.max(lengths).as_py() or 0


def _column(rows: datasets.Dataset, name: str) -> pa.ChunkedArray:
    return rows.select_columns(name).with_format("arrow")[:][name]
