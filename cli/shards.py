"""The shards of a file of vectors: files of a few thousand documents each, joined at the end."""

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from modeling_tmde import TmdeError
from tmde.data.documents import VECTOR_COLUMN, Chunk
from tmde.data.io import replacing, write_atomically


class Shards:
    """A folder of shards. Subclasses say what a shard and the joined file look like.

    Args:
        folder: The folder of the shards.
        schema: The columns of the documents that are kept.
        dimension: The length of a vector.
    """

    suffix: str

    def __init__(self, folder: Path, schema: pa.Schema, dimension: int) -> None:
        self.folder = folder
        self.schema = schema
        self.dimension = dimension
        self._manifest = folder / "manifest.json"

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"{number:08d}{self.suffix}"

    def begin(self, settings: dict[str, str], overwrite: bool) -> None:
        """Make the folder, or continue with it if it is of a run with the same settings.

        Args:
            settings: All that decides the content of the shards, by name.
            overwrite: Delete the shards of another run.

        Raises:
            TmdeError: The folder holds shards of another run, and `overwrite` is not set.
        """
        begun = self._read_manifest()
        if begun == settings:
            return
        if self.folder.exists() and any(self.folder.iterdir()):
            if not overwrite:
                changed = [name for name in settings if begun.get(name) != settings[name]]
                name = changed[0] if changed else "run"
                raise TmdeError(
                    f"{self.folder} holds shards of another run: its {name} is "
                    f"{begun.get(name)!r}, "
                    f"now {settings.get(name)!r}; give --overwrite to delete them, or another "
                    "--output"
                )
            shutil.rmtree(self.folder)
        self.folder.mkdir(exist_ok=True)
        write_atomically(self._manifest, json.dumps(settings, indent=2))

    def wait_for_begin(self, settings: dict[str, str]) -> None:
        """Wait until the first process has begun; the launcher ends this one if that one fails."""
        while self._read_manifest() != settings:
            time.sleep(0.1)

    def wait_for(self, count: int) -> None:
        """Wait for the shards of other processes; the launcher ends this one if one fails."""
        paths = [self.path(number) for number in range(count)]
        while not all(path.exists() for path in paths):
            time.sleep(0.2)

    def write(self, number: int, chunk: Chunk, vectors: np.ndarray) -> None:
        """Write a shard.

        Args:
            number: Its number.
            chunk: Its documents.
            vectors: Their vectors, (documents, dimension).
        """
        raise NotImplementedError

    def join(self, sizes: list[int], target: Path) -> None:
        """Write all shards into one file.

        Args:
            sizes: The number of documents of each shard.
            target: The file.
        """
        whole = self.folder / f"whole{self.suffix}"
        with replacing(whole) as path:
            self._join(sizes, path)
        os.replace(whole, target)

    def delete(self) -> None:
        """Delete the folder with all shards."""
        shutil.rmtree(self.folder)

    def _join(self, sizes: list[int], path: Path) -> None:
        raise NotImplementedError

    def _read_manifest(self) -> dict[str, str]:
        if not self._manifest.exists():
            return {}
        return json.loads(self._manifest.read_text(encoding="utf-8"))


class NpyShards(Shards):
    """Shards of vectors alone."""

    suffix = ".npy"

    def write(self, number: int, chunk: Chunk, vectors: np.ndarray) -> None:
        """Write the vectors of a shard."""
        with replacing(self.path(number)) as path:
            np.save(path, vectors)

    def _join(self, sizes: list[int], path: Path) -> None:
        header = {
            "descr": "<f4",
            "fortran_order": False,
            "shape": (sum(sizes), self.dimension),
        }
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for number in range(len(sizes)):
                file.write(np.load(self.path(number)).data)


class ParquetShards(Shards):
    """Shards of the columns of the documents, with the vectors as one more column."""

    suffix = ".parquet"

    def write(self, number: int, chunk: Chunk, vectors: np.ndarray) -> None:
        """Write the columns and the vectors of a shard."""
        values = pa.array(vectors.reshape(-1))
        column = pa.FixedSizeListArray.from_arrays(values, self.dimension)
        table = chunk.columns.append_column(VECTOR_COLUMN, column)
        with replacing(self.path(number)) as path:
            pq.write_table(table, path)

    def _join(self, sizes: list[int], path: Path) -> None:
        vectors = pa.field(VECTOR_COLUMN, pa.list_(pa.float32(), self.dimension))
        with pq.ParquetWriter(path, self.schema.append(vectors)) as writer:
            for number in range(len(sizes)):
                table = pq.read_table(self.path(number))
                writer.write_table(table.cast(writer.schema))


SHARDS_OF_SUFFIX: dict[str, type[Shards]] = {
    shards.suffix: shards for shards in (NpyShards, ParquetShards)
}
