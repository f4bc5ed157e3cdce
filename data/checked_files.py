"""The checked rows of a file as a dataset of `datasets`: from its cache, or as a stream."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import datasets
import pyarrow as pa
from datasets.builder import Key

from .parts import AnyDataset
from .row_checks import RowChecker, check_file
from .tables import Table


@dataclass
class _CheckedFileConfig(datasets.BuilderConfig):
    """What decides the rows; `datasets` keeps a cache for each.

    Attributes:
        file: The file.
        limit: How many rows to read; None for all.
        checker: What checks the rows.
        stamps: The sizes and times of the files, so that one that has changed has another cache.
    """

    file: Table | None = None
    limit: int | None = None
    checker: RowChecker | None = None
    stamps: str = ""


class _CheckedFile(datasets.ArrowBasedBuilder):
    """Builds a dataset of the checked rows of a file."""

    BUILDER_CONFIG_CLASS = _CheckedFileConfig

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(features=self.config.checker.features)

    def _split_generators(self, dl_manager: object) -> list[datasets.SplitGenerator]:
        # A list is a shard of a stream, which `DataLoader` workers and resumed runs share out.
        return [datasets.SplitGenerator("train", gen_kwargs={"files": [self.config.file]})]

    def _generate_tables(self, files: list[Table]) -> Iterator[tuple[Key, pa.Table]]:
        for file in files:
            tables = check_file(file, self.config.limit, self.config.checker)
            for number, table in enumerate(tables):
                yield Key(0, number), table


def open_checked(
    file: Table, limit: int | None, checker: RowChecker, streaming: bool
) -> AnyDataset:
    """Return the rows of a file, good and bad, with what the checks say about them.

    Args:
        file: The file.
        limit: How many rows to read; None for all.
        checker: What checks the rows.
        streaming: Return a stream.

    Raises:
        CorpusError: A row has no right form; of a stream when it is read.
    """
    builder = _CheckedFile(
        cache_dir=str(datasets.config.HF_DATASETS_CACHE),
        file=file,
        limit=limit,
        checker=checker,
        stamps=_stamps_of(file),
    )
    if streaming:
        return builder.as_streaming_dataset("train")
    try:
        builder.download_and_prepare()
    except datasets.exceptions.DatasetGenerationError as error:
        raise (error.__cause__ or error) from None
    return builder.as_dataset("train")


def _stamps_of(file: Table) -> str:
    """Return the sizes and times of the files, which tell whether one has changed."""
    stamps = []
    for path in file.paths:
        status = os.stat(path)
        stamps.append((status.st_size, status.st_mtime_ns))
    return str(stamps)
