"""The shards of a file of vectors: files of a few thousand documents each, joined at the end."""

import json
import os
import shutil
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from modeling_tmde import TmdeError

from .documents import VECTOR_COLUMN, Chunk
from .io import replacing, write_atomically


@dataclass(frozen=True)
class _Manifest:
    """What is written into the folder of shards when a run begins.

    Attributes:
        settings: All that decides the content of the shards, by name.
        run: An id that changes each time the first process begins.
    """

    settings: dict[str, str]
    run: str


class Shards:
    """A folder of shards: files of parquet with columns of the documents, and their vectors.

    Args:
        folder: The folder of the shards.
        schema: The columns of the documents that are kept.
        dimension: The length of a vector.
        dtype: The type of its numbers.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        dimension: int,
        dtype: np.typing.DTypeLike = np.float32,
    ) -> None:
        self.folder = folder
        self.dtype = np.dtype(dtype)
        self.dimension = dimension
        self._document_schema = schema
        vector_type = pa.list_(pa.from_numpy_dtype(self.dtype), dimension)
        self._schema = schema.append(pa.field(VECTOR_COLUMN, vector_type))
        self._manifest = folder / "manifest.json"

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"{number:08d}.parquet"

    def begin(self, settings: dict[str, str], overwrite: bool) -> None:
        """Make the folder, or continue with it if it is of a run with the same settings.

        Args:
            settings: All that decides the content of the shards, by name.
            overwrite: Delete the shards of another run.

        Raises:
            TmdeError: The folder holds shards of another run, and `overwrite` is not set.
        """
        begun = self._read_manifest()
        if begun is None or begun.settings != settings:
            self._check_or_delete(begun, settings, overwrite)
            self.folder.mkdir(exist_ok=True)
        manifest = _Manifest(settings, run=uuid.uuid4().hex)
        write_atomically(self._manifest, json.dumps(asdict(manifest), indent=2))

    def wait_for_begin(self, settings: dict[str, str]) -> None:
        """Wait until the first process has begun; the launcher ends this one if that one fails."""
        manifest = self._read_manifest()
        while manifest is None or manifest.settings != settings:
            time.sleep(0.1)
            manifest = self._read_manifest()

    def report_done(self, rank: int) -> None:
        """Tell the first process that all shards of this one exist, and wait for it to finish.

        The note holds the id of the run, because one of an interrupted run may still be there. The
        first process may begin after this one: then the id changes, and the note is written again.
        """
        noted_run = None
        manifest = self._read_manifest()
        while manifest is not None:
            if manifest.run != noted_run:
                noted_run = manifest.run
                write_atomically(self._done_path(rank), noted_run)
            time.sleep(0.2)
            manifest = self._read_manifest()

    def wait_for_others(self, processes: int) -> None:
        """Wait until all other processes are done; the launcher ends this one if one fails.

        A process may have no shard to write, but it needs the folder until it knows that.
        """
        for rank in range(1, processes):
            while not self._is_done(rank):
                time.sleep(0.2)

    def write(self, number: int, chunk: Chunk, vectors: np.ndarray) -> None:
        """Write a shard.

        Args:
            number: Its number.
            chunk: Its documents.
            vectors: Their vectors, (documents, dimension).
        """
        values = pa.array(vectors.reshape(-1))
        column = pa.FixedSizeListArray.from_arrays(values, self.dimension)
        columns = [*chunk.table(self._document_schema).columns, column]
        with replacing(self.path(number)) as path:
            pq.write_table(pa.table(columns, schema=self._schema), path)

    def join(self, sizes: list[int], target: Path) -> None:
        """Write all shards into one file.

        Args:
            sizes: The number of documents of each shard.
            target: The file: .npy for the vectors alone, or .parquet.
        """
        whole = self.folder / f"whole{target.suffix}"
        shards = [self.path(number) for number in range(len(sizes))]
        with replacing(whole) as path:
            if target.suffix == ".npy":
                self._join_vectors(shards, sum(sizes), path)
            else:
                with pq.ParquetWriter(path, self._schema) as writer:
                    for shard in shards:
                        writer.write_table(pq.read_table(shard).cast(self._schema))
        os.replace(whole, target)

    def _join_vectors(self, shards: list[Path], rows: int, path: Path) -> None:
        """Write the vectors of shards into one .npy file of `rows` rows."""
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (rows, self.dimension),
        }
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for shard in shards:
                column = pq.read_table(shard, columns=[VECTOR_COLUMN])[VECTOR_COLUMN]
                file.write(column.combine_chunks().flatten().to_numpy().data)

    def delete(self) -> None:
        """Delete the folder with all shards. The other processes end when the manifest is gone.

        The manifest goes last, so that a run that is killed here can be continued.
        """
        for path in self.folder.iterdir():
            if path != self._manifest:
                path.unlink()
        self._manifest.unlink()
        shutil.rmtree(self.folder)

    def _done_path(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.done"

    def _is_done(self, rank: int) -> bool:
        """Return whether a process has finished its shards in this run."""
        path = self._done_path(rank)
        manifest = self._read_manifest()
        if manifest is None or not path.exists():
            return False
        return path.read_text(encoding="utf-8") == manifest.run

    def _read_manifest(self) -> _Manifest | None:
        """Return the manifest; None if the folder has none, or not any more."""
        try:
            fields = json.loads(self._manifest.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return _Manifest(**fields)

    def _check_or_delete(
        self, begun: _Manifest | None, settings: dict[str, str], overwrite: bool
    ) -> None:
        """Delete the shards of another run if `overwrite` is set, and otherwise refuse to."""
        # A run that was killed before it wrote its manifest leaves a hidden temporary file at most.
        if not self.folder.exists() or not any(self.folder.glob("[!.]*")):
            return
        if overwrite:
            shutil.rmtree(self.folder)
            return
        if begun is None:
            raise TmdeError(
                f"{self.folder} contains files, but no {self._manifest.name} that identifies "
                "their run; set overwrite=True to delete them, or choose another output"
            )
        names = {**settings, **begun.settings}
        name = next(name for name in names if begun.settings.get(name) != settings.get(name))
        raise TmdeError(
            f"{self.folder} has shards of another run: its {name} is "
            f"{begun.settings.get(name)!r}, now {settings.get(name)!r}; set overwrite=True to "
            "delete them, or choose another output"
        )
