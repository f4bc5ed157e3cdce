"""The files of a document index: segments, which never change, and a manifest that names those that count.

A segment is a parquet file of ids, texts and metadata and a faiss file of their vectors, in the same order. What is
deleted from it is written in a file of bits beside it. A writer makes new files under new names and then replaces the
manifest, so that whoever is killed at any moment leaves either the old state or the new one, and files that no
manifest names, which the next writer removes. A reader opens all files of one manifest at once; those that a writer
removes meanwhile stay readable to it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from modeling_tmde.documents.index_metadata import OWN_COLUMNS, DocumentIndexError, conformed

MANIFEST = "index.json"
LOCK = ".lock"
DENSITY = "density.npz"  # of an embedder that weights sentences
FORMAT, VERSION = "tmde document index", 1
LARGEST = 2**18  # rows of a segment: its vectors are in memory when it is written, 1 GiB at d = 1024
MERGED = 8  # segments of like size that become one
_GROUP_ROWS, _GROUP_BYTES = 64, 2**18  # of a row group, which is read whole for one hit
_READ = 8192  # rows read at a time when segments are merged
_ONE_THREAD = 2**27  # products of a search up to which one thread does it: some 20 ms, and no waiting for a busy core
_FILE = re.compile(r"(segment-\d+-\d+\.(faiss|parquet)|live-\d+-\d+\.npy|\.index\.json\.\d+\.tmp)\Z")


class DocumentIndexBusy(DocumentIndexError):
    """Another process is writing."""


@dataclass(frozen=True)
class Manifest:
    """What `index.json` holds.

    generation: number of commits so far; dimension: d; embedding: how texts become vectors, None where only vectors
    are given; approximate_from: rows from which a segment gets inverted lists; segments: name, rows and live file of
    each.
    """

    generation: int
    dimension: int
    embedding: dict[str, Any] | None
    approximate_from: int
    segments: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """
        Raises:
            DocumentIndexError: No index there, a damaged one, or one of a later version.
        """
        path = folder / MANIFEST
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise DocumentIndexError(
                f"{folder}: found no {MANIFEST}, expected the folder of a document index"
            ) from None
        except (OSError, ValueError) as error:
            raise DocumentIndexError(f"{path}: cannot be read ({error})") from None
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise DocumentIndexError(f"{path}: not the manifest of a document index")
        if (version := content.pop("version", None)) != VERSION:
            raise DocumentIndexError(f"{path}: found format version {version}, expected {VERSION}; update tmde")
        content.pop("documents", None)
        try:
            return cls(**content)
        except TypeError as error:
            raise DocumentIndexError(f"{path}: damaged ({error})") from None

    def write(self, folder: Path, documents: int) -> None:
        """Replaces the manifest: from here on, its files are the index."""
        content = {"format": FORMAT, "version": VERSION, "documents": documents, **vars(self)}
        temporary = folder / f".{MANIFEST}.{os.getpid()}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / MANIFEST)
        _sync_folder(folder)

    def files(self) -> set[str]:
        """Names of the files that count."""
        names = {f"{entry['name']}.{suffix}" for entry in self.segments for suffix in ("faiss", "parquet")}
        return names | {entry["live"] for entry in self.segments if entry["live"]}


def remove_leftovers(folder: Path, manifest: Manifest | None) -> None:
    """Removes what an earlier state or a killed writer left. Only for a writer that holds the lock."""
    current = set() if manifest is None else manifest.files()
    for path in list(folder.iterdir()):
        if _FILE.match(path.name) and path.name not in current:
            with contextlib.suppress(OSError):  # Windows keeps what a reader has open; the next writer tries again
                path.unlink()


def is_unused(folder: Path) -> bool:
    """Whether a new index can be made there: nothing is there, or what a killed one had begun."""
    if not folder.exists():
        return True
    return folder.is_dir() and all(path.name in (LOCK, DENSITY) or _FILE.match(path.name) for path in folder.iterdir())


def _sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextlib.contextmanager
def told_failures(folder: Path) -> Iterator[None]:
    """What goes wrong with new files, as an error of the index: no manifest names them yet.

    Raises:
        DocumentIndexError: Metadata that parquet cannot hold, or files that cannot be written.
    """
    try:
        yield
    except pa.ArrowException as error:
        raise DocumentIndexError(f"metadata: cannot be written ({error}); nothing was changed") from None
    except (OSError, RuntimeError) as error:  # faiss has RuntimeError for all, with the place in its source before
        cause = getattr(error, "strerror", None) or str(error).rpartition(" failed: ")[2]
        raise DocumentIndexError(
            f"{folder}: cannot be written ({cause}); is the disk full? nothing was changed"
        ) from None


class Segment:
    """Rows of an index: open files of one manifest entry.

    Args:
        folder: Of the index.
        entry: `name`, `rows`, and `live`, the file of the bits of rows that are not deleted (None: all).

    Raises:
        FileNotFoundError: A writer has removed it meanwhile, or the index is damaged.
    """

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        import faiss

        self.entry = entry
        paths = [folder / f"{entry['name']}.{suffix}" for suffix in ("faiss", "parquet")]
        for path in paths:
            if not path.exists():  # faiss has no error of its own for that
                raise FileNotFoundError(path)
        # Mapped, where this faiss can do it: opened at once, and read when it is searched.
        self.vectors = faiss.read_index(str(paths[0]), getattr(faiss, "IO_FLAG_MMAP_IFC", 0))
        self.table = pq.ParquetFile(paths[1], memory_map=True)
        groups = range(self.table.num_row_groups)
        self._ends = np.cumsum([self.table.metadata.row_group(group).num_rows for group in groups])
        self.live = np.ones(entry["rows"], bool)  # (rows,)
        if entry["live"]:
            self.live = np.unpackbits(np.load(folder / entry["live"]), count=entry["rows"], bitorder="little") > 0
        self._columns: dict[str, pa.ChunkedArray] = {}
        if not self.vectors.ntotal == self.table.metadata.num_rows == entry["rows"]:
            raise DocumentIndexError(
                f"{folder / entry['name']}: found {self.vectors.ntotal} vectors and {self.table.metadata.num_rows} "
                f"texts, expected {entry['rows']} of each: the index is damaged"
            )

    def __len__(self) -> int:
        """Documents that are not deleted."""
        return int(self.live.sum())

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema_arrow

    @property
    def lists(self) -> int:
        """Inverted lists; 0 where search is exact."""
        return getattr(self.vectors, "nlist", 0)

    def column(self, name: str) -> pa.ChunkedArray:
        """(rows,) of one column, which stays in memory."""
        if name not in self._columns:
            self._columns[name] = self.read_column(name)
        return self._columns[name]

    def read_column(self, name: str) -> pa.ChunkedArray:
        """(rows,) of one column."""
        return self.table.read([name]).column(
            name
        )  # read() gives those as well whose names begin with `name` and a dot

    def row(self, number: int) -> dict[str, Any]:
        """All columns of one row."""
        group = int(np.searchsorted(self._ends, number, side="right"))
        start = self._ends[group - 1] if group else 0
        return self.table.read_row_group(group, use_threads=False).slice(number - start, 1).to_pylist()[0]

    def vectors_of(self, rows: np.ndarray) -> np.ndarray:
        """(n, d) float32."""
        if self.lists:
            self.vectors.make_direct_map()
        found = np.empty((len(rows), self.vectors.d), np.float32)
        for vector, row in zip(found, rows, strict=True):
            self.vectors.reconstruct(int(row), vector)
        return found

    def without(self, folder: Path, rows: Sequence[int], name: str) -> Segment:
        """The same rows but for these, which are marked as deleted in a new file `name`.npy."""
        segment = copy(self)
        segment.live = self.live.copy()
        segment.live[list(rows)] = False
        segment.entry = self.entry | {"live": f"{name}.npy"}
        with open(folder / f"{name}.npy", "wb") as file:
            np.save(file, np.packbits(segment.live, bitorder="little"))
            file.flush()
            os.fsync(file.fileno())
        return segment

    def search(
        self, vectors: np.ndarray, k: int, allowed: np.ndarray | None, exact: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The nearest rows that are neither deleted nor left out.

        Args:
            vectors: (q, d) float32, of length 1.
            allowed: (rows,) bool, None for all.
            exact: Look at all inverted lists.

        Returns:
            Cosines (q, n) and row numbers (q, n), n <= k; -1 where there is none.
        """
        import faiss

        mask = self.live if allowed is None else self.live & allowed
        count = int(mask.sum())
        if not count:
            return np.empty((len(vectors), 0), np.float32), np.empty((len(vectors), 0), np.int64)
        bits = np.packbits(mask, bitorder="little")
        options = {} if count == len(mask) else {"sel": faiss.IDSelectorBitmap(bits)}
        if self.lists:
            # Of few allowed rows, as many are to be seen as of many.
            share = len(mask) if exact else self.lists / 16 * len(mask) / count
            parameters = faiss.SearchParametersIVF(nprobe=min(self.lists, max(8, math.ceil(share))), **options)
        else:
            parameters = faiss.SearchParameters(**options)
        threads = faiss.omp_get_max_threads()
        if len(vectors) * len(mask) * vectors.shape[1] <= _ONE_THREAD:
            faiss.omp_set_num_threads(1)
        try:
            return self.vectors.search(vectors, min(k, count), params=parameters)
        finally:
            faiss.omp_set_num_threads(threads)

    def live_tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Its documents that are not deleted, in order, with all columns of `schema`."""
        done = 0
        for batch in self.table.iter_batches(_READ):
            table = pa.Table.from_batches([batch])
            kept = table.filter(pa.array(self.live[done : done + len(table)]))
            done += len(table)
            yield conformed(kept, schema)


def write_segment(
    folder: Path, name: str, tables: Iterable[pa.Table], schema: pa.Schema, vectors: np.ndarray, approximate_from: int
) -> Segment:
    """Writes both files of a segment and opens it.

    Args:
        tables: Its n rows.
        schema: Of each table.
        vectors: (n, d) float32, of length 1.
        approximate_from: Rows from which search goes through inverted lists.
    """
    import faiss

    path = folder / name
    repeated = [item.name for item in schema if item.name not in OWN_COLUMNS.names] or False
    with pq.ParquetWriter(f"{path}.parquet", schema, compression="zstd", use_dictionary=repeated) as writer:
        for table in tables:
            if len(table):
                rows = int(_GROUP_BYTES * len(table) / max(1, table.nbytes))
                writer.write_table(table, row_group_size=min(_GROUP_ROWS, max(1, rows)))
    count, dimension = vectors.shape
    index = faiss.IndexFlatIP(dimension)
    if count >= approximate_from:
        lists = max(1, int(2 * math.sqrt(count)))
        index = faiss.IndexIVFFlat(index, dimension, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.max_points_per_centroid = 40  # k-means over a sample: lists need not be perfect
        index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, f"{path}.faiss")
    for suffix in ("parquet", "faiss"):
        _sync(folder / f"{name}.{suffix}")
    return Segment(folder, {"name": name, "rows": count, "live": None})


def merge_segments(
    folder: Path, name: str, segments: Sequence[Segment], schema: pa.Schema, approximate_from: int
) -> Segment:
    """One segment of what is not deleted in several, in order. Texts are streamed, vectors are in memory."""
    total = sum(map(len, segments))
    vectors = np.empty((total, segments[0].vectors.d), np.float32)
    done = 0
    for segment in segments:
        for start in range(0, len(segment.live), _READ):
            live = segment.live[start : start + _READ]
            block = segment.vectors.reconstruct_n(start, len(live))[live]
            vectors[done : done + len(block)] = block
            done += len(block)
    tables = (table for segment in segments for table in segment.live_tables(schema))
    return write_segment(folder, name, tables, schema, vectors, approximate_from)


def segments_to_merge(live: Sequence[int], rows: Sequence[int]) -> list[int]:
    """Which segments should become one now; none: [].

    One of which more than half is deleted, or as many as `MERGED` of like size (powers of `MERGED`), so that a row is
    rewritten a few times at most however many documents come after it.

    Args:
        live: Documents of each segment that are not deleted.
        rows: Documents of each segment, deleted ones included.
    """
    for number, (kept, all_rows) in enumerate(zip(live, rows, strict=True)):
        if 2 * kept < all_rows:
            return [number]
    tiers: dict[int, list[int]] = {}
    for number, kept in enumerate(live):
        if 2 * kept <= LARGEST:
            tiers.setdefault(int(math.log(kept, MERGED) + 1e-9), []).append(number)
    for _, members in sorted(tiers.items()):
        total, chosen = 0, []
        for number in members:
            if total + live[number] <= LARGEST:
                chosen.append(number)
                total += live[number]
        if len(chosen) >= MERGED or (len(chosen) > 1 and 2 * total > LARGEST):
            return chosen
    return []
