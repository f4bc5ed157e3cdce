"""The LanceDB table of an index: rows in and out, exact search, and search by an inverted file."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from modeling_tmde import TmdeError
from modeling_tmde.tokenization import without_invisible
from tmde.documents.index_columns import (
    add_columns,
    column_of,
    column_values,
    has_id,
    has_name,
    has_value,
    metadata_types,
    widened_types,
)
from tmde.documents.unit_rows import TIE, unit_vectors

TABLE = "documents"
_HIT_COLUMNS = ["id", "text", "passages", "metadata"]
VECTOR_TYPES = {"float32": pa.float32(), "float16": pa.float16()}  # by precision
APPROXIMATE_FROM = 20_000  # documents; search is exact up to this many
RECALL = 0.985  # share of the nearest documents for which the approximate search is tuned
SAMPLED = 1000  # documents whose cosines to a query show their mean and deviation
TUNING_QUERIES = 200
TUNING_K = 10  # nearest documents of each of these queries
FIRST_PROBES = 10  # lists; tuning begins above this number
PROBES_FACTOR = 1.4  # how many times as many lists the next step of tuning tries
# How many times as many documents as asked for are compared by their stored vectors. The inverted
# file has 8 bits a number, by which the order of near documents is not exact.
COMPARED = 4
FRAGMENTS = 32  # fragments of the table beyond which small ones are merged
UNINDEXED_IDS = 50_000  # new ids beyond which the B-tree of ids is built again
# LanceDB keeps what it has read of indexes and of metadata, by default 6 GiB and 1 GiB.
CACHE_BYTES = 128 * 2**20
KMEANS_VECTORS = 50_000  # vectors from which the lists of the inverted file are made
MOST_SAMPLED_OF_A_LIST = 256  # of them for each list, as by default in LanceDB
LEAST_SAMPLED_OF_A_LIST = 32
KEPT = timedelta(days=1)  # how long readers see the version they opened, at least

_LONGEST_WORD = 1000  # characters; a longer word is not found
# LanceDB ends a message with a comma and the absolute path of a file of its source code.
_SOURCE_PLACE = ", /"
Row = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")


def _reading(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method that reads the files of a table raise a TmdeError if these are at fault."""
    return _with_file_errors(method, writes=False)


def _writing(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method that writes files of a table raise a TmdeError if these are at fault."""
    return _with_file_errors(method, writes=True)


def _with_file_errors(method: Callable[P, R], writes: bool) -> Callable[P, R]:
    @functools.wraps(method)
    def reporting_method(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except TmdeError:
            raise
        except (RuntimeError, ValueError, OSError) as error:
            table: Any = args[0]
            file_error = table.file_error(error, writes)
            if file_error is None:
                raise
            raise file_error from error

    return reporting_method


@dataclass(frozen=True)
class InvertedFile:
    """The tuned approximate search of a table.

    Attributes:
        indexed: The number of documents when it was built.
        nprobes: The number of lists that a search looks into.
        recall: The share of the nearest documents that it found when it was tuned.
    """

    indexed: int
    nprobes: int
    recall: float


@dataclass(frozen=True)
class PassageVectors:
    """The vectors of n documents, one for each of their passages.

    Attributes:
        vectors: Unit vectors, (passages, d) float32.
        begins: The place of the first vector of each document, (n,).
    """

    vectors: np.ndarray
    begins: np.ndarray

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> PassageVectors:
        """Read the vectors of a column."""
        lists = column.combine_chunks()
        if isinstance(lists, pa.ChunkedArray):  # It had no chunks.
            lists = pa.array([], column.type)
        passages = lists.flatten()
        numbers = passages.flatten().to_numpy().reshape(-1, passages.type.list_size)
        if numbers.dtype != np.float32:
            numbers = unit_vectors(numbers)
        counts = lists.value_lengths().to_numpy()
        return cls(numbers, np.cumsum(counts) - counts)

    @property
    def firsts(self) -> np.ndarray:
        """The vector of the first passage of each document, (n, d)."""
        return self.vectors[self.begins]

    def means(self) -> np.ndarray:
        """Return the mean of each document's vectors at length 1, (n, d)."""
        if len(self.vectors) == len(self.begins):
            return self.vectors
        return unit_vectors(np.add.reduceat(self.vectors, self.begins))

    def cosines(self, query: np.ndarray) -> np.ndarray:
        """Return the cosine of each document's nearest passage to a query, (n,)."""
        cosines = self.vectors @ query
        if len(self.begins) == len(cosines):
            return cosines
        highest: np.ndarray = np.maximum.reduceat(cosines, self.begins)
        return highest

    def nearest_passages(self, query: np.ndarray) -> np.ndarray:
        """Return the number of each document's nearest passage to a query, (n,)."""
        cosines = self.vectors @ query
        parts = np.split(cosines, self.begins[1:])
        return np.array([part.argmax() for part in parts], np.int64)


class DocumentTable:
    """A table of documents with their vectors. Every write is one commit.

    Args:
        folder: The folder of the index.

    Raises:
        TmdeError: Its files are missing or damaged, or cannot be read.
        ImportError: LanceDB is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The ids (n,) and vectors of this version, for a search by one matrix product.
        self._in_memory: tuple[np.ndarray, PassageVectors] | None = None
        self._sample: PassageVectors | None = None  # the vectors of some documents
        self._table = self._open()

    @_reading
    def _open(self) -> Any:
        return _connect(self.folder).open_table(TABLE)

    def file_error(self, error: Exception, writes: bool) -> TmdeError | None:
        """Return the error for files that are damaged or out of reach; None for a defect.

        LanceDB raises RuntimeError, ValueError and OSError for all of these, so the files are
        looked at.

        Args:
            error: What a method has raised.
            writes: Whether the method writes.
        """
        reason, _, _ = str(error).partition(_SOURCE_PLACE)
        is_out_of_reach = isinstance(error, OSError) or not self._are_files_readable()
        is_intact = not is_out_of_reach and self._is_intact()
        if is_intact and isinstance(error, ValueError):
            return None
        # What is intact can be read, except for the files of the index of words.
        if is_out_of_reach or (is_intact and writes):
            return TmdeError(
                f"{self.folder}: can't be read or written ({reason}); free disk space or "
                "change the permissions, and run the same command again"
            )
        return TmdeError(
            f"{self.folder}: missing or damaged files ({reason}); rebuild the index: delete the "
            "folder, and run `tmde index` again"
        )

    def _are_files_readable(self) -> bool:
        """Return whether this process may read all files of the index."""
        return all(os.access(path, os.R_OK) for path in self.folder.rglob("*"))

    def _is_intact(self) -> bool:
        """Return whether all data files of the last committed version can be opened."""
        try:
            _connect(self.folder).open_table(TABLE).search().select(["id"]).to_arrow()
        except (RuntimeError, ValueError, OSError):
            return False
        return True

    @staticmethod
    def create(folder: Path, dimension: int, precision: str) -> None:
        """Make an empty table, and the folder.

        Args:
            folder: The folder of the index.
            dimension: The dimension of the vectors.
            precision: One of `VECTOR_TYPES`.
        """
        text = pa.string()
        schema = pa.schema(
            [
                ("id", text),
                ("text", text),
                ("embedded_language", text),
                ("passages", pa.list_(pa.int64())),
                ("vector", pa.list_(pa.list_(VECTOR_TYPES[precision], dimension))),
            ]
        )
        _connect(folder).create_table(TABLE, schema=schema, mode="overwrite")

    @_reading
    def __len__(self) -> int:
        return self._table.count_rows()

    @property
    def is_small(self) -> bool:
        """Whether every search is exact, because there are few documents."""
        return len(self) <= APPROXIMATE_FROM

    # ---- Reading

    @_reading
    def column(self, name: str) -> list[pa.Array]:
        """Return a column of the current version by parts, in no particular order."""
        table: pa.Table = self._table.search().select([name]).to_arrow()
        return table[name].chunks

    @_reading
    def fetch(self, ids: Sequence[str], columns: list[str]) -> dict[str, Row]:
        """Return rows by id, of those ids that are there."""
        query = self._table.search().where(has_id(ids))
        return {row["id"]: row for row in self._rows(query, columns)}

    @_reading
    def vectors(self, ids: Sequence[str]) -> PassageVectors:
        """Return the unit vectors of the passages of rows, in the order of some ids.

        Raises:
            KeyError: An id is not there.
        """
        query = self._table.search().where(has_id(ids))
        table = query.select(["id", "vector"]).to_arrow()
        return PassageVectors.of(table["vector"].take(_places_of(ids, table["id"])))

    def _rows(self, query: Any, columns: Sequence[str]) -> list[Row]:
        """Run a query, and return its rows.

        Args:
            query: A query of LanceDB.
            columns: The columns of the rows; `metadata` stands for all columns of the metadata, and
                becomes a mapping of those that have a value.
        """
        names: list[str] = []
        if "metadata" in columns:
            names = list(metadata_types(self._table.schema))
        selected = [column for column in columns if column != "metadata"]
        selected += [column_of(name) for name in names]
        rows = []
        for values in query.select(selected).to_arrow().to_pylist():
            row = {column: values[column] for column in columns if column != "metadata"}
            if "metadata" in columns:
                metadata = {name: values[column_of(name)] for name in names}
                row["metadata"] = {
                    name: value for name, value in metadata.items() if value is not None
                }
            rows.append(row)
        return rows

    @property
    @_reading
    def metadata_types(self) -> dict[str, pa.DataType]:
        """The type of each name of the metadata."""
        return metadata_types(self._table.schema)

    @_reading
    def condition(self, filter: Mapping[str, Any], where: str | None) -> str | None:
        """Return what documents must fulfill as SQL; None if all are wanted.

        Args:
            filter: Names and values of the metadata.
            where: A condition in SQL over the columns; None if there is none.

        Raises:
            TmdeError: No document has such a name, or the SQL is none or names another column.
        """
        conditions = []
        types = self.metadata_types
        for name, wanted in filter.items():
            if name not in types or not self._table.count_rows(has_name(name)):
                names = sorted(types)
                raise TmdeError(f"filter: found {name!r}, expected a metadata name: {names}")
            conditions.append(has_value(name, types[name], wanted))
        if where is not None:
            self._check_where(where)
            conditions.append(_in_parentheses(where))
        return " AND ".join(conditions) or None

    def _check_where(self, where: str) -> None:
        """Raise TmdeError unless a condition of a user can be evaluated for all rows."""
        try:
            self._table.count_rows(_in_parentheses(where))
            # What is a condition in parentheses only, such as "a) OR (b", would escape a filter.
            self._table.count_rows(f"coalesce({where}\n, false)")
        except (RuntimeError, ValueError) as error:
            if not self._is_intact():
                raise
            reason, _, _ = str(error).partition(_SOURCE_PLACE)
            reason, _, _ = reason.partition(". Valid fields are")
            columns = [column_of(name) for name in self.metadata_types]
            raise TmdeError(
                f"where: found {where!r}, expected a condition in SQL over the columns "
                f'{", ".join(["id", "text", *sorted(columns)])}, such as "year >= 2024 AND '
                f"language = 'de'\" ({reason.strip()})"
            ) from error

    @_reading
    def has_value(self, name: str, value: Any) -> bool:
        """Return whether a row has this value under a name of the metadata."""
        types = self.metadata_types
        if name not in types:
            return value is None and len(self) > 0
        return self._table.count_rows(has_value(name, types[name], value)) > 0

    # ---- Writing

    def expect(self, rows: Iterable[Row]) -> None:
        """Add the columns of the metadata of rows that will be written.

        Raises:
            TmdeError: A value has another type than the column, or than the rows before it.
        """
        add_columns(self._table, widened_types(self.metadata_types, rows))

    def check_types(self, rows: list[Row]) -> None:
        """Raise TmdeError if rows have metadata of other types than the columns."""
        widened_types(self.metadata_types, rows)

    @_reading
    def refresh(self) -> None:
        """Go to the last committed version."""
        self._table.checkout_latest()

    def forget(self) -> None:
        """Forget the vectors that a search has read, because others may be there now."""
        self._in_memory = None
        self._sample = None

    @_writing
    def append(self, rows: list[Row], vectors: np.ndarray) -> None:
        """Add rows of new ids.

        Args:
            rows: n rows with `id`, `text`, `embedded_language`, `passages`, the places where these
                begin, and `metadata` as stored.
            vectors: The unit vectors of the passages of all rows, (passages, d) float32.

        Raises:
            TmdeError: The table cannot be written.
        """
        self._table.add(self._arrow_table(rows, self._stored(rows, vectors)))
        self._index_ids()

    @_writing
    def merge(self, rows: list[Row], vectors: np.ndarray, same_vectors: Sequence[Row] = ()) -> None:
        """Add or replace rows in one commit.

        Args:
            rows: n rows as `append` takes them.
            vectors: The unit vectors of their passages, (passages, d) float32.
            same_vectors: More rows, which replace stored ones and keep their vectors.

        Raises:
            TmdeError: The table cannot be written.
        """
        column = self._stored(rows, vectors)
        if same_vectors:
            column = pa.concat_arrays([column, self._stored_vectors(same_vectors)])
        merge = self._table.merge_insert("id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.execute(self._arrow_table([*rows, *same_vectors], column))
        self._index_ids()

    def _stored(self, rows: Sequence[Row], vectors: np.ndarray) -> pa.Array:
        """Return the column that stores the unit vectors of the passages of rows, (passages, d)."""
        type = self._table.schema.field("vector").type
        number_type = type.value_type.value_type
        numbers = pa.array(vectors.astype(number_type.to_pandas_dtype()).reshape(-1))
        passages = pa.FixedSizeListArray.from_arrays(numbers, type=type.value_type)
        ends = np.cumsum([0, *(len(row["passages"]) for row in rows)])
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), passages, type=type)

    def _stored_vectors(self, rows: Sequence[Row]) -> pa.Array:
        """Return the stored vectors of rows that are there, in their order, as they are."""
        ids = [row["id"] for row in rows]
        table = self._table.search().where(has_id(ids)).select(["id", "vector"]).to_arrow()
        return table["vector"].combine_chunks().take(_places_of(ids, table["id"]))

    def _arrow_table(self, rows: list[Row], vectors: pa.Array) -> pa.Table:
        """Return rows as a table, after new names of the metadata have got their columns.

        Args:
            rows: n rows; see `append`.
            vectors: The column of their vectors.
        """
        types = widened_types(self.metadata_types, rows)
        add_columns(self._table, types)
        columns: dict[str, Any] = {"vector": vectors}
        columns["passages"] = pa.array([row["passages"] for row in rows], pa.list_(pa.int64()))
        for name in ("id", "text", "embedded_language"):
            columns[name] = pa.array([row[name] for row in rows], pa.string())
        for name, type in types.items():
            metadata = [row["metadata"].get(name) for row in rows]
            columns[column_of(name)] = column_values(metadata, type)
        schema = self._table.schema
        return pa.table([columns[field.name] for field in schema], schema=schema)

    def _index_ids(self) -> None:
        """Build the B-tree of a large table's ids, if many are not in it: a commit of its own.

        Without it, each look-up of ids reads all of them.
        """
        from lancedb.index import BTree

        if self.is_small:
            return
        tree = self._table.index_stats("id_idx")
        if tree is None or tree.num_unindexed_rows > UNINDEXED_IDS:
            self._table.create_index("id", config=BTree())

    @_writing
    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows."""
        self._table.delete(has_id(ids))

    # ---- Search

    @_reading
    def nearest(
        self, vectors: np.ndarray, k: int, condition: str | None, inverted_file: InvertedFile | None
    ) -> list[list[tuple[Row, float]]]:
        """Return the k rows of highest cosine to each query, best first, and their cosines.

        Args:
            vectors: Queries, (q, d) of length 1.
            k: The number of rows.
            condition: What rows must fulfill, as SQL; None for all rows.
            inverted_file: What the search goes through if many rows fulfill the condition; None for
                an exact search.
        """
        if condition is None and self.is_small:
            # A matrix product is faster than a scan of the table.
            return [self._nearest_in_memory(vector, k) for vector in vectors]
        if inverted_file is not None and self._is_fulfilled_by_few(condition):
            # The lists that a search looks into may hold none of them.
            inverted_file = None
        return [self._scan(vector, k, condition, inverted_file) for vector in vectors]

    def _is_fulfilled_by_few(self, condition: str | None) -> bool:
        return condition is not None and self._table.count_rows(condition) <= APPROXIMATE_FROM

    def _nearest_in_memory(self, vector: np.ndarray, k: int) -> list[tuple[Row, float]]:
        if self._in_memory is None:
            table = self._table.search().select(["id", "vector"]).to_arrow()
            ids = np.array(table["id"].to_pylist(), object)
            self._in_memory = ids, PassageVectors.of(table["vector"])
        all_ids, all_vectors = self._in_memory
        cosines = all_vectors.cosines(vector)  # (n,)
        best = np.argsort(-cosines, kind="stable")[:k]
        ids = all_ids[best].tolist()
        rows = self.fetch(ids, _HIT_COLUMNS)
        return [(rows[id], cosine) for id, cosine in zip(ids, cosines[best], strict=True)]

    def _approximate_query(self, vector: np.ndarray, inverted_file: InvertedFile) -> Any:
        """Return the query of LanceDB that goes through the inverted file."""
        query = self._table.search(vector, vector_column_name="vector").distance_type("cosine")
        query = query.nprobes(inverted_file.nprobes)
        return query.refine_factor(COMPARED)

    @_reading
    def sampled_vectors(self) -> PassageVectors:
        """Return the vectors of up to 1,000 documents, chosen at random."""
        if self._sample is None:
            count = len(self)
            size = min(count, SAMPLED)
            rows = np.random.default_rng(0).choice(count, size, replace=False)
            self._sample = self._vectors_at(rows)
        return self._sample

    def _vectors_at(self, rows: np.ndarray) -> PassageVectors:
        """Return the vectors at some places of the table."""
        query = self._table.take_offsets(rows.tolist()).select(["vector"])
        return PassageVectors.of(query.to_arrow()["vector"])

    def _scan(
        self, vector: np.ndarray, k: int, condition: str | None, inverted_file: InvertedFile | None
    ) -> list[tuple[Row, float]]:
        if inverted_file is None:
            query = self._table.search(vector, vector_column_name="vector")
            query = query.distance_type("cosine").bypass_vector_index()
        else:
            query = self._approximate_query(vector, inverted_file)
        query = query.where(condition).limit(k)
        rows = self._rows(query, [*_HIT_COLUMNS, "_distance"])
        return [(row, 1 - row["_distance"]) for row in rows]

    # ---- Words

    @property
    @_reading
    def has_word_index(self) -> bool:
        """Whether this version can be searched by words."""
        return any(index.columns == ["text"] for index in self._table.list_indices())

    @_writing
    def build_word_index(self) -> None:
        """Make the texts searchable by words, without case and accents and without stemming.

        Words are those of ICU, which knows the words of languages that write no spaces.
        """
        from lancedb.index import FTS

        config = FTS(
            base_tokenizer="icu/split",
            stem=False,
            remove_stop_words=False,
            ascii_folding=True,
            with_position=False,
            max_token_length=_LONGEST_WORD,
        )
        self._table.create_index("text", config=config)

    @_reading
    def matching(self, text: str, k: int, condition: str | None) -> list[tuple[Row, float]]:
        """Return the k rows of highest BM25 score to the words of a text, and their scores.

        Args:
            text: The query. A row that has none of its words is not returned.
            k: The number of rows.
            condition: What rows must fulfill, as SQL; None for all rows.
        """
        from lancedb.query import MatchQuery

        # mypy takes the defaults of MatchQuery, which pydantic knows, for missing arguments.
        words = MatchQuery(without_invisible(text), "text")  # type: ignore[call-arg]
        query = self._table.search(words, query_type="fts")
        if condition is not None:
            query = query.where(condition)
        rows = self._rows(query.limit(k), [*_HIT_COLUMNS, "_score"])
        return [(row, row["_score"]) for row in rows]

    # ---- Upkeep

    @_writing
    def maintain(self, inverted_file: InvertedFile | None) -> InvertedFile | None:
        """Merge small files, and keep the inverted file up to date. Each step is a commit.

        Returns:
            An inverted file if one was built; otherwise the present one still holds.
        """
        # Rows outside of the index of words would be scored by other counts of words. Without it,
        # merging waits for many files, because it writes their documents again.
        fragments = self._table.stats()["fragment_stats"]["num_fragments"]
        if self.has_word_index or fragments > FRAGMENTS:
            self._table.optimize(cleanup_older_than=KEPT)
        count = len(self)
        if count <= APPROXIMATE_FROM:
            return None
        if inverted_file is None or count > 2 * inverted_file.indexed:
            return self._build_inverted_file(count)
        stats = self._table.index_stats("vector_idx")
        if stats.num_unindexed_rows > APPROXIMATE_FROM // 2:
            self._table.optimize(cleanup_older_than=KEPT)
        return None

    def _build_inverted_file(self, count: int) -> InvertedFile:
        """Build an inverted file of sqrt(n) lists, and tune how many a search looks into."""
        from lancedb.index import IvfSq

        lists = int(count**0.5)
        config = IvfSq(
            distance_type="cosine",
            num_partitions=lists,
            sample_rate=_sampled_of_each_list(lists),
        )
        self._table.create_index("vector", config=config)
        has_few = count < TUNING_QUERIES
        rows = np.random.default_rng(0).choice(count, TUNING_QUERIES, replace=has_few)
        queries = self._vectors_at(rows).firsts
        lowest_cosines = self._lowest_cosines(queries)
        nprobes = FIRST_PROBES
        recall = 0.0
        while recall < RECALL and nprobes < lists:
            nprobes = min(math.ceil(PROBES_FACTOR * nprobes), lists)
            tried = InvertedFile(count, nprobes, recall)
            recall = self._recall(queries, lowest_cosines, tried)
        return InvertedFile(count, nprobes, round(recall, 4))

    def _lowest_cosines(self, queries: np.ndarray) -> np.ndarray:
        """Return the exact cosine of the TUNING_K-th nearest document of each query, (q,)."""
        best = np.full((len(queries), TUNING_K), -np.inf, np.float32)
        for batch in self._table.search().select(["vector"]).to_batches():
            vectors = PassageVectors.of(pa.Table.from_batches([batch])["vector"])
            batch_cosines = [vectors.cosines(query) for query in queries]
            cosines = np.hstack([best, np.stack(batch_cosines)])  # (q, TUNING_K + rows)
            best = np.partition(cosines, -TUNING_K, axis=1)[:, -TUNING_K:]
        return best.min(axis=1)

    def _recall(
        self, queries: np.ndarray, lowest_cosines: np.ndarray, inverted_file: InvertedFile
    ) -> float:
        """Return the share of the nearest documents that the approximate search finds."""
        neighbor_count = 0
        for query, lowest_cosine in zip(queries, lowest_cosines, strict=True):
            cosines = self._approximate_cosines(query, inverted_file)
            neighbor_count += int(np.count_nonzero(cosines >= lowest_cosine - TIE))
        return neighbor_count / (len(queries) * TUNING_K)

    def _approximate_cosines(self, vector: np.ndarray, inverted_file: InvertedFile) -> np.ndarray:
        """Return the cosines of the TUNING_K rows that a search through the inverted file finds."""
        query = self._approximate_query(vector, inverted_file)
        result = query.select(["_distance"]).limit(TUNING_K).to_arrow()
        return 1 - result["_distance"].to_numpy()


def _connect(folder: Path) -> Any:
    """Return the LanceDB connection of a folder."""
    # LanceDB warns of a table that does not exist before it is created.
    os.environ.setdefault("LANCEDB_LOG", "error")
    import lancedb  # It belongs to the extra `search`.

    session = lancedb.Session(
        index_cache_size_bytes=CACHE_BYTES, metadata_cache_size_bytes=CACHE_BYTES
    )
    return lancedb.connect(folder, session=session)


def _in_parentheses(where: str) -> str:
    """Return a condition that other conditions can stand beside; a comment may end it."""
    return f"({where}\n)"


def _sampled_of_each_list(lists: int) -> int:
    """Return how many vectors of each list k-means sees, so that it sees as many in all."""
    return max(LEAST_SAMPLED_OF_A_LIST, min(MOST_SAMPLED_OF_A_LIST, KMEANS_VECTORS // lists))


def _places_of(ids: Sequence[str], column: pa.ChunkedArray) -> np.ndarray:
    """Return where ids stand in a column of ids, (n,).

    Raises:
        KeyError: An id is not there.
    """
    place_of_id = {id: place for place, id in enumerate(column.to_pylist())}
    return np.array([place_of_id[id] for id in ids], np.int64)
