"""The state of a document index in memory: what one writer changes and commits, and any number of readers search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from modeling_tmde.documents.index_files import (
    LOCK,
    MANIFEST,
    DocumentIndexBusy,
    Manifest,
    Segment,
    merge_segments,
    remove_leftovers,
    segments_to_merge,
    told_failures,
    write_segment,
)
from modeling_tmde.documents.index_metadata import (
    DocumentIndexError,
    conformed,
    different_values,
    extended_schema,
    filter_values,
    matching,
    unified_schema,
)

Place = tuple[int, int]  # number of a segment, and of a row in it


class SegmentStore:
    """The segments of the last commit, and where in them each document is.

    Args:
        folder: Of the index.
        manifest: Of a new index; None: what the last finished write left.

    Raises:
        DocumentIndexError: No index there, or a damaged one.
    """

    def __init__(self, folder: Path, manifest: Manifest | None = None) -> None:
        from filelock import FileLock

        self.folder = folder
        self.manifest, self.segments = _read(folder) if manifest is None else (manifest, [])
        self._places: dict[str, Place] | None = None
        self._lock = FileLock(folder / LOCK, timeout=0)
        self._depth = 0

    def __len__(self) -> int:
        return sum(map(len, self.segments))

    @property
    def places(self) -> dict[str, Place]:
        """Of every document, by its id."""
        if self._places is None:
            places = {}
            for number, segment in enumerate(self.segments):
                ids = segment.column("id").to_pylist()
                places.update((ids[row], (number, row)) for row in np.flatnonzero(segment.live).tolist())
            self._places = places  # all of them: who is interrupted before builds them again
        return self._places

    def row(self, place: Place) -> dict[str, Any]:
        """All columns of one document."""
        return self.segments[place[0]].row(place[1])

    def values(self, name: str) -> set[Any]:
        """See `DocumentIndex.values`."""
        return set().union(*(different_values(segment, name) for segment in self.segments))

    def digest(self, id: str) -> bytes | None:
        """None where there is no such document."""
        if id not in self.places:
            return None
        segment, row = self.places[id]
        return self.segments[segment].column("digest")[row].as_py()

    def vectors(self, ids: Sequence[str]) -> np.ndarray:
        """(n, d) float32."""
        found = np.empty((len(ids), self.manifest.dimension), np.float32)
        places = np.array([self.places[id] for id in ids], np.int64).reshape(-1, 2)
        for number in np.unique(places[:, 0]):
            chosen = np.flatnonzero(places[:, 0] == number)
            found[chosen] = self.segments[number].vectors_of(places[chosen, 1])
        return found

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keeps other writers out; goes on from what they wrote before, and removes what a killed one left.

        Raises:
            DocumentIndexBusy: Another process is writing.
            DocumentIndexError: A folder that cannot be written.
        """
        from filelock import Timeout

        try:
            lock = self._lock.acquire()
        except Timeout:
            raise DocumentIndexBusy(
                f"{self.folder}: another process is writing to it; wait until it is done"
            ) from None
        except OSError as error:
            raise DocumentIndexError(f"{self.folder}: cannot be written ({error.strerror or error})") from None
        with lock:
            written = (self.folder / MANIFEST).exists()  # not by one who makes the index
            if self._depth == 0:
                if written:
                    self._catch_up()
                remove_leftovers(self.folder, self.manifest)
            self._depth += 1
            try:
                yield
            except BaseException:
                if (self.folder / MANIFEST).exists():
                    self._catch_up()  # a commit may have failed after it replaced the manifest
                    remove_leftovers(self.folder, self.manifest)
                raise
            finally:
                self._depth -= 1

    def _catch_up(self) -> None:
        """Goes on from the manifest that is there."""
        if Manifest.read(self.folder).generation != self.manifest.generation:
            self._set(*_read(self.folder), None)

    def _set(self, manifest: Manifest, segments: list[Segment], places: dict[str, Place] | None) -> None:
        """Another state; who is interrupted here has the old generation still, and will catch up."""
        self._places = None
        self.segments = segments
        self.manifest = manifest
        self._places = places

    def commit(self, removed: Sequence[str] = (), table: pa.Table | None = None, vectors: Any = None) -> None:
        """Writes files with what changes, merges segments where they are many, and replaces the manifest.

        Args:
            removed: Ids that are there, each once.
            table: n new documents, whose ids are not there or removed.
            vectors: (n, d) float32, of length 1.
        """
        generation, lists_from = self.manifest.generation + 1, self.manifest.approximate_from
        with told_failures(self.folder):
            if table is None:
                schema = unified_schema([segment.schema for segment in self.segments])
            else:
                schema = extended_schema(self.segments, table)
            segments = self._without(removed, generation)
            if table is not None:
                name, tables = f"segment-{generation:08d}-0", [conformed(table, schema)]
                segments.append(write_segment(self.folder, name, tables, schema, vectors, lists_from))
            merges = 0
            while chosen := segments_to_merge([len(each) for each in segments], [len(each.live) for each in segments]):
                merges += 1
                parts = [segments[number] for number in chosen]
                segments = [segment for number, segment in enumerate(segments) if number not in chosen]
                if any(map(len, parts)):
                    name = f"segment-{generation:08d}-{merges}"
                    segments.append(merge_segments(self.folder, name, parts, schema, lists_from))
        manifest = replace(self.manifest, generation=generation, segments=[segment.entry for segment in segments])
        manifest.write(self.folder, sum(map(len, segments)))
        places, self._places = self._places, None
        if places is not None:  # where segments were merged, all are read again when they are needed
            places = None if merges else _changed(places, removed, segments, table is not None)
        self._set(manifest, segments, places)
        remove_leftovers(self.folder, manifest)

    def _without(self, removed: Sequence[str], generation: int) -> list[Segment]:
        gone: dict[int, list[int]] = {}
        for id in removed:
            segment, row = self.places[id]
            gone.setdefault(segment, []).append(row)
        segments = list(self.segments)
        for number, rows in gone.items():
            segments[number] = segments[number].without(self.folder, rows, f"live-{generation:08d}-{number}")
        return segments

    def nearest(
        self, vectors: np.ndarray, k: int, filter: Mapping[str, Any] | None, exact: bool
    ) -> Iterator[tuple[list[float], list[Place]]]:
        """Cosines and places of each query's best, falling; see `DocumentIndex.search`."""
        schema = unified_schema([segment.schema for segment in self.segments]) if filter else None
        wanted = filter_values(filter, schema) if filter and self.segments else {}
        scores: list[np.ndarray] = [np.empty((len(vectors), 0), np.float32)]
        places: list[np.ndarray] = [np.empty((len(vectors), 0, 2), np.int64)]
        for number, segment in enumerate(self.segments):
            allowed = matching(segment, wanted, schema) if wanted else None
            found, rows = segment.search(vectors, k, allowed, exact)
            scores.append(np.where(rows < 0, -np.inf, found))  # inverted lists may hold fewer
            places.append(np.stack([np.full_like(rows, number), rows], axis=-1))
        all_scores, all_places = np.concatenate(scores, axis=1), np.concatenate(places, axis=1)  # (q, n), (q, n, 2)
        for query_scores, query_places in zip(all_scores, all_places, strict=True):
            order = np.argsort(-query_scores, kind="stable")[:k]
            order = order[np.isfinite(query_scores[order])]
            yield np.clip(query_scores[order], -1, 1).tolist(), list(map(tuple, query_places[order].tolist()))


def _changed(
    places: dict[str, Place], removed: Sequence[str], segments: Sequence[Segment], appended: bool
) -> dict[str, Place]:
    """The same dictionary, without what was removed and with the rows of the last segment if it was appended."""
    for id in removed:
        del places[id]
    if appended:
        ids = segments[-1].column("id").to_pylist()
        places.update((id, (len(segments) - 1, row)) for row, id in enumerate(ids))
    return places


def _read(folder: Path) -> tuple[Manifest, list[Segment]]:
    """The state of the last manifest; of a later one, where a writer removes files of this one meanwhile."""
    manifest = Manifest.read(folder)
    while True:
        try:
            return manifest, [Segment(folder, entry) for entry in manifest.segments]
        except (OSError, RuntimeError, ValueError) as error:  # faiss has RuntimeError for all, pyarrow ValueErrors
            later = Manifest.read(folder)
            if later.generation == manifest.generation:
                raise DocumentIndexError(f"{folder}: a file of the index is missing or damaged: {error}") from None
            manifest = later
