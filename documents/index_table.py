"""The LanceDB table of an index: rows in and out, exact search, and search by an inverted file."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from modeling_tmde import TmdeError
from tmde.documents.index_columns import (
    add_columns,
    column_of,
    column_values,
    metadata_types,
    widened_types,
)
from tmde.documents.index_filters import has_id, has_name, has_value
from tmde.documents.index_vectors import (
    FLOATS,
    SIGNS,
    VECTOR_COLUMNS,
    Center,
    comparable_column,
    float_columns,
    float_field,
    restored_vectors,
    small_columns,
    stored_signs,
)
from tmde.documents.unit_rows import TIE

TABLE = "documents"
APPROXIMATE_FROM = 20_000  # documents; search is exact up to this many
RECALL = 0.985  # share of the nearest documents for which the approximate search is tuned
SAMPLED = 1000  # documents whose cosines to a query show their mean and deviation
TUNING_QUERIES = 200
TUNING_K = 10  # nearest documents of each of these queries
FIRST_PROBES = 10  # lists; tuning begins above this number
PROBES_FACTOR = 1.4  # how many times as many lists the next step of tuning tries
# Share of the nearest documents that are among those nearest by signs.
RECALL_OF_CANDIDATES = 0.995
FIRST_CANDIDATES = 100  # nearest documents by signs; tuning doubles this number
FRAGMENTS = 32  # fragments of the table beyond which small ones are merged
UNINDEXED_IDS = 50_000  # new ids beyond which the B-tree of ids is built again
# LanceDB keeps what it has read of indexes and of metadata, by default 6 GiB and 1 GiB.
CACHE_BYTES = 128 * 2**20
KMEANS_VECTORS = 50_000  # vectors from which the lists of the inverted file are made
MOST_SAMPLED_OF_A_LIST = 256  # of them for each list, as by default in LanceDB
LEAST_SAMPLED_OF_A_LIST = 32
KEPT = timedelta(days=1)  # how long readers see the version they opened, at least

_LONGEST_WORD = 1000  # characters; a longer word is not found
# The place in its source code with which LanceDB ends a message.
_RUST_SOURCE = re.compile(r",\s*/\S+\.rs:\d+:\d+")
# LanceDB has no classes of errors for these, only messages. Number 2 is that of a missing file.
_DAMAGE = re.compile(
    r"not found:|was not found|corrupt|failed to fill whole buffer|file size is too small"
    r"|invalid range|not appear to be a lance file|invalid magic|failed to decode|invalid format"
    r"|\(os error 2\)",
    re.IGNORECASE,
)
_SYSTEM_ERROR = re.compile(r"\(os error \d+\)|\[Errno \d+\]")
Row = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")


def _reporting_file_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method of a table raise a TmdeError that names the folder if its files are at fault.

    LanceDB raises RuntimeError, ValueError and OSError, and says in the message what happened. An
    error with any other message is a defect, and is left as it is.
    """

    @functools.wraps(method)
    def reporting_method(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except TmdeError:
            raise
        except (RuntimeError, ValueError, OSError) as error:
            table: Any = args[0]
            file_error = _file_error(table.folder, error)
            if file_error is None:
                raise
            raise file_error from error

    return reporting_method


def _file_error(folder: Path, error: Exception) -> TmdeError | None:
    """Return the error for files that are damaged or out of reach; None for any other error."""
    reason = _RUST_SOURCE.sub("", str(error)).strip()
    if _DAMAGE.search(reason):
        return TmdeError(
            f"{folder}: missing or damaged files ({reason}); build the index anew: delete the "
            "folder, and run `tmde index` again"
        )
    if isinstance(error, OSError) or _SYSTEM_ERROR.search(reason):
        return TmdeError(
            f"{folder}: cannot be read or written ({reason}); free space on the disk or change "
            "the permissions, and run the same command again"
        )
    return None


@dataclass(frozen=True)
class InvertedFile:
    """The tuned approximate search of a table.

    Attributes:
        indexed: The number of documents when it was built.
        nprobes: The number of lists that a search looks into.
        recall: The share of the nearest documents that it found when it was tuned.
        candidates: The number of documents nearest by signs among which the TUNING_K nearest are
            looked for; None if vectors are stored in float32, and no signs are compared.
    """

    indexed: int
    nprobes: int
    recall: float
    candidates: int | None = None

    def candidates_of(self, k: int) -> int:
        """Return among how many documents nearest by signs the k nearest are looked for."""
        assert self.candidates is not None
        return self.candidates * math.ceil(k / TUNING_K)


class DocumentTable:
    """A table of documents with their vectors. Every write is one commit.

    Args:
        folder: The folder of the index.
        dimension: The dimension of the vectors.
        precision: How the vectors are to be stored, see [`~tmde.documents.index_vectors`].

    Attributes:
        center: What signs are relative to; None as long as vectors are stored in float32.

    Raises:
        TmdeError: Its files are missing or damaged, or cannot be read.
        ImportError: LanceDB is not installed.
    """

    def __init__(self, folder: Path, dimension: int, precision: str = "float32") -> None:
        self.folder = folder
        self.dimension = dimension
        self.precision = precision
        self.center: Center | None = None
        # The ids (n,) and vectors (n, d) of this version, for a search by one matrix product.
        self._in_memory: tuple[np.ndarray, np.ndarray] | None = None
        self._sample: np.ndarray | None = None  # the vectors of some documents, (n, d)
        self._table = self._open()

    @_reporting_file_errors
    def _open(self) -> Any:
        return _connect(self.folder).open_table(TABLE)

    @staticmethod
    def create(folder: Path, dimension: int) -> None:
        """Make an empty table, and the folder."""
        text = pa.string()
        schema = pa.schema(
            [
                ("id", text),
                ("text", text),
                ("embedded_language", text),
                float_field(dimension),
            ]
        )
        _connect(folder).create_table(TABLE, schema=schema, mode="overwrite")

    @_reporting_file_errors
    def __len__(self) -> int:
        return self._table.count_rows()

    @property
    def is_small(self) -> bool:
        """Whether every search is exact, because there are few documents."""
        return len(self) <= APPROXIMATE_FROM

    @property
    @_reporting_file_errors
    def has_floats(self) -> bool:
        """Whether vectors are stored in float32."""
        return FLOATS in self._table.schema.names

    @property
    def _comparable_column(self) -> str:
        return comparable_column(self._table.schema)

    # ---- Reading

    def column(self, name: str) -> Iterator[pa.Array]:
        """Iterate over a column of the current version by parts, in no particular order."""
        batches = self._batches([name])
        while (batch := self._next_batch(batches)) is not None:
            yield batch.column(name)

    @_reporting_file_errors
    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        return self._table.search().select(columns).to_batches()

    @_reporting_file_errors
    def _next_batch(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        return next(batches, None)

    @_reporting_file_errors
    def fetch(self, ids: Sequence[str], columns: list[str]) -> dict[str, Row]:
        """Return rows by id, of those ids that are there."""
        query = self._table.search().where(has_id(ids))
        return {row["id"]: row for row in self._rows(query, columns)}

    @_reporting_file_errors
    def vectors(self, ids: Sequence[str]) -> np.ndarray:
        """Return the unit vectors of rows by id, restored from how they are stored, (n, d) float32.

        Raises:
            KeyError: An id is not there.
        """
        query = self._table.search().where(has_id(ids))
        table = query.select(["id", self._comparable_column]).to_arrow()
        return restored_vectors(table, self.center)[_places_of(ids, table["id"])]

    @_reporting_file_errors
    def all_vectors(self) -> np.ndarray:
        """Return the unit vectors of all rows, (n, d) float32."""
        table = self._table.search().select([self._comparable_column]).to_arrow()
        return restored_vectors(table, self.center)

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
    @_reporting_file_errors
    def metadata_types(self) -> dict[str, pa.DataType]:
        """The type of each name of the metadata."""
        return metadata_types(self._table.schema)

    @_reporting_file_errors
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
                raise TmdeError(f"filter: found {name!r}, expected a name of the metadata: {names}")
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
            if _file_error(self.folder, error) is not None:
                raise
            reason, _, _ = _RUST_SOURCE.sub("", str(error)).partition(". Valid fields are")
            columns = [column_of(name) for name in self.metadata_types]
            raise TmdeError(
                f"where: found {where!r}, expected a condition in SQL over the columns "
                f'{", ".join(["id", "text", *sorted(columns)])}, such as "year >= 2024 AND '
                f"language = 'de'\" ({reason.strip()})"
            ) from error

    @_reporting_file_errors
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

    @_reporting_file_errors
    def refresh(self) -> None:
        """Go to the last committed version."""
        self._table.checkout_latest()

    def forget(self) -> None:
        """Forget the vectors that a search has read, because others may be there now."""
        self._in_memory = None
        self._sample = None

    @_reporting_file_errors
    def append(self, rows: list[Row], vectors: np.ndarray) -> None:
        """Add rows of new ids.

        Args:
            rows: n rows with `id`, `text`, `embedded_language`, and `metadata` as stored.
            vectors: Their unit vectors, (n, d) float32.

        Raises:
            TmdeError: The table cannot be written.
        """
        self._table.add(self._arrow_table(rows, self._vector_columns(vectors)))
        self._index_ids()

    @_reporting_file_errors
    def merge(self, rows: list[Row], vectors: np.ndarray, same_vectors: Sequence[Row] = ()) -> None:
        """Add or replace rows in one commit.

        Args:
            rows: See `append`.
            vectors: See there.
            same_vectors: More rows, which replace stored ones and keep their vectors.

        Raises:
            TmdeError: The table cannot be written.
        """
        columns = self._vector_columns(vectors)
        if same_vectors:
            stored = self._stored_vector_columns([row["id"] for row in same_vectors])
            columns = pa.concat_tables([columns, stored.select(columns.column_names)])
        merge = self._table.merge_insert("id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.execute(self._arrow_table([*rows, *same_vectors], columns))
        self._index_ids()

    @_reporting_file_errors
    def make_small(self, center: Center) -> None:
        """Store the vectors of a table of float32 in their precision, in one commit.

        Processes that have opened the table before still read the version that they opened.

        Args:
            center: What signs are relative to from now on.
        """
        had_words = self.has_word_index
        self.center = center
        table = self._table.search().to_arrow()
        columns = small_columns(restored_vectors(table, center), self.precision, center)
        table = table.drop_columns([FLOATS])
        for name in columns.column_names:
            table = table.append_column(name, columns[name])
        self._table = _connect(self.folder).create_table(TABLE, table, mode="overwrite")
        if had_words:  # Writing the table anew has removed the index.
            self.build_word_index()

    def _vector_columns(self, vectors: np.ndarray) -> pa.Table:
        """Return the columns that store unit vectors, (n, d)."""
        if self.has_floats:
            return float_columns(vectors)
        assert self.center is not None
        return small_columns(vectors, self.precision, self.center)

    def _stored_vector_columns(self, ids: Sequence[str]) -> pa.Table:
        """Return the columns of the vectors of rows that are there, in the order of their ids."""
        query = self._table.search().where(has_id(ids))
        names = [name for name in VECTOR_COLUMNS if name in self._table.schema.names]
        table = query.select(["id", *names]).to_arrow()
        return table.take(_places_of(ids, table["id"])).drop_columns(["id"])

    def _arrow_table(self, rows: list[Row], vectors: pa.Table) -> pa.Table:
        """Return rows as a table, after new names of the metadata have got their columns.

        Args:
            rows: n rows; see `append`.
            vectors: The columns of their vectors.
        """
        types = widened_types(self.metadata_types, rows)
        add_columns(self._table, types)
        columns: dict[str, Any] = {name: vectors[name] for name in vectors.column_names}
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

    @_reporting_file_errors
    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows."""
        self._table.delete(has_id(ids))

    # ---- Search

    @_reporting_file_errors
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
        if self.has_floats:
            return [self._scan(vector, k, condition, inverted_file) for vector in vectors]
        if inverted_file is None:
            nearest = self._nearest_of_all(vectors, k, condition)
        else:
            nearest = []
            for vector in vectors:
                nearest.append(self._nearest_by_signs(vector, k, condition, inverted_file))
        return [self._with_rows(ids, cosines) for ids, cosines in nearest]

    def _is_fulfilled_by_few(self, condition: str | None) -> bool:
        return condition is not None and self._table.count_rows(condition) <= APPROXIMATE_FROM

    def _nearest_in_memory(self, vector: np.ndarray, k: int) -> list[tuple[Row, float]]:
        if self._in_memory is None:
            table = self._table.search().select(["id", self._comparable_column]).to_arrow()
            ids = np.array(table["id"].to_pylist(), object)
            self._in_memory = ids, restored_vectors(table, self.center)
        all_ids, all_vectors = self._in_memory
        cosines = all_vectors @ vector  # (n,)
        best = np.argsort(-cosines, kind="stable")[:k]
        return self._with_rows(all_ids[best].tolist(), cosines[best])

    def _with_rows(self, ids: list[str], cosines: np.ndarray) -> list[tuple[Row, float]]:
        """Return the rows of ids, in their order, with the cosines."""
        rows = self.fetch(ids, ["id", "text", "metadata"])
        return [(rows[id], cosine) for id, cosine in zip(ids, cosines, strict=True)]

    def _nearest_of_all(
        self, vectors: np.ndarray, k: int, condition: str | None
    ) -> list[tuple[list[str], np.ndarray]]:
        """Return the ids of the k nearest rows to each query, and their cosines.

        All rows that fulfill the condition are compared, block by block.
        """
        no_cosines = np.empty(0, np.float32)
        nearest: list[tuple[list[str], np.ndarray]] = [([], no_cosines)] * len(vectors)
        query = self._table.search().where(condition).select(["id", self._comparable_column])
        for batch in query.to_batches():
            table = pa.Table.from_batches([batch])
            block = restored_vectors(table, self.center)
            for number, cosines in enumerate(vectors @ block.T):  # (rows,) each
                best = np.argsort(-cosines, kind="stable")[:k]
                ids = nearest[number][0] + table["id"].take(best).to_pylist()
                all_cosines = np.concatenate([nearest[number][1], cosines[best]])
                nearest[number] = _best_of(ids, all_cosines, k)
        return nearest

    def _nearest_by_signs(
        self, vector: np.ndarray, k: int, condition: str | None, inverted_file: InvertedFile
    ) -> tuple[list[str], np.ndarray]:
        """Return the ids of the k nearest rows to a query, and their cosines.

        The rows nearest by the Hamming distance of signs are compared.
        """
        query = self._query_of_signs(vector).nprobes(inverted_file.nprobes)
        query = query.where(condition).limit(inverted_file.candidates_of(k))
        return self._compared(query, vector, k)

    def _query_of_signs(self, vector: np.ndarray) -> Any:
        """Return the query of LanceDB for the rows nearest by signs."""
        assert self.center is not None
        (signs,) = self.center.signs(vector[None])
        return self._table.search(signs, vector_column_name=SIGNS).distance_type("hamming")

    def _compared(self, query: Any, vector: np.ndarray, k: int) -> tuple[list[str], np.ndarray]:
        """Return the ids of the k rows of a query's result nearest to a vector, and the cosines."""
        table = query.select(["id", self._comparable_column]).to_arrow()
        cosines = restored_vectors(table, self.center) @ vector
        return _best_of(table["id"].to_pylist(), cosines, k)

    @_reporting_file_errors
    def sampled_vectors(self) -> np.ndarray:
        """Return the vectors of up to 1,000 documents, chosen at random, (n, d)."""
        if self._sample is None:
            count = len(self)
            size = min(count, SAMPLED)
            rows = np.random.default_rng(0).choice(count, size, replace=False)
            self._sample = self._vectors_at(rows)
        return self._sample

    def _vectors_at(self, rows: np.ndarray) -> np.ndarray:
        """Return the vectors at some places of the table, (rows, d)."""
        query = self._table.take_offsets(rows.tolist()).select([self._comparable_column])
        return restored_vectors(query.to_arrow(), self.center)

    def _scan(
        self, vector: np.ndarray, k: int, condition: str | None, inverted_file: InvertedFile | None
    ) -> list[tuple[Row, float]]:
        query = self._table.search(vector)
        if inverted_file is None:
            query = query.distance_type("dot").bypass_vector_index()
        else:
            query = query.distance_type("cosine").nprobes(inverted_file.nprobes)
        query = query.where(condition).limit(k)
        rows = self._rows(query, ["id", "text", "metadata", "_distance"])
        return [(row, 1 - row["_distance"]) for row in rows]

    # ---- Words

    @property
    @_reporting_file_errors
    def has_word_index(self) -> bool:
        """Whether this version can be searched by words."""
        return any(index.columns == ["text"] for index in self._table.list_indices())

    @_reporting_file_errors
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

    @_reporting_file_errors
    def matching(self, text: str, k: int, condition: str | None) -> list[tuple[Row, float]]:
        """Return the k rows of highest BM25 score to the words of a text, and their scores.

        Args:
            text: The query. A row that has none of its words is not returned.
            k: The number of rows.
            condition: What rows must fulfill, as SQL; None for all rows.
        """
        from lancedb.query import MatchQuery

        # mypy takes the defaults of MatchQuery, which pydantic knows, for missing arguments.
        words = MatchQuery(text, "text")  # type: ignore[call-arg]
        query = self._table.search(words, query_type="fts")
        if condition is not None:
            query = query.where(condition)
        rows = self._rows(query.limit(k), ["id", "text", "metadata", "_score"])
        return [(row, row["_score"]) for row in rows]

    # ---- Upkeep

    @_reporting_file_errors
    def maintain(self, inverted_file: InvertedFile | None) -> InvertedFile | None:
        """Merge small files, and keep the inverted file up to date. Each step is a commit.

        Returns:
            An inverted file if one was built; otherwise the present one still holds.
        """
        if self.has_word_index:
            # Rows outside of the index of words would be scored by other counts of words.
            self._table.optimize(cleanup_older_than=KEPT)
        if self._table.stats()["fragment_stats"]["num_fragments"] > FRAGMENTS:
            self._table.optimize(cleanup_older_than=KEPT)
        count = len(self)
        if count <= APPROXIMATE_FROM:
            return None
        if inverted_file is None or count > 2 * inverted_file.indexed:
            return self._build_inverted_file(count)
        stats = self._table.index_stats(f"{self._searched_column}_idx")
        if stats.num_unindexed_rows > APPROXIMATE_FROM // 2:
            self._table.optimize(cleanup_older_than=KEPT)
        return None

    def _build_inverted_file(self, count: int) -> InvertedFile:
        """Build an inverted file of sqrt(n) lists, and tune how many a search looks into."""
        from lancedb.index import IvfFlat

        lists = int(count**0.5)
        config = IvfFlat(
            distance_type="cosine" if self.has_floats else "hamming",
            num_partitions=lists,
            sample_rate=_sampled_of_each_list(lists),
        )
        self._table.create_index(self._searched_column, config=config)
        queries = self._tuning_queries(count)
        lowest_cosines = self._lowest_cosines(queries)
        candidates = None
        if not self.has_floats:
            candidates = self._tuned_candidates(queries, lowest_cosines, count)
        nprobes = FIRST_PROBES
        recall = 0.0
        while recall < RECALL and nprobes < lists:
            nprobes = min(math.ceil(PROBES_FACTOR * nprobes), lists)
            tried = InvertedFile(count, nprobes, recall, candidates)
            recall = self._recall(queries, lowest_cosines, tried)
        return InvertedFile(count, nprobes, round(recall, 4), candidates)

    @property
    def _searched_column(self) -> str:
        """The column over which the inverted file goes."""
        return FLOATS if self.has_floats else SIGNS

    def _tuning_queries(self, count: int) -> np.ndarray:
        """Return the vectors of some documents, (TUNING_QUERIES, d).

        A vector that is restored from signs alone is found by signs more easily than a query. It
        gets random magnitudes.
        """
        has_few = count < TUNING_QUERIES
        rows = np.random.default_rng(0).choice(count, TUNING_QUERIES, replace=has_few)
        if self._comparable_column != SIGNS:
            return self._vectors_at(rows)
        assert self.center is not None
        query = self._table.take_offsets(rows.tolist()).select([SIGNS])
        return self.center.sampled(stored_signs(query.to_arrow()), seed=0)

    def _tuned_candidates(self, queries: np.ndarray, lowest_cosines: np.ndarray, count: int) -> int:
        """Return among how many documents nearest by signs the nearest documents are.

        All lists are looked into.
        """
        candidates = FIRST_CANDIDATES
        while candidates < count:
            neighbor_count = 0
            for vector, lowest_cosine in zip(queries, lowest_cosines, strict=True):
                query = self._query_of_signs(vector).bypass_vector_index().limit(candidates)
                _, cosines = self._compared(query, vector, TUNING_K)
                neighbor_count += int(np.count_nonzero(cosines >= lowest_cosine - TIE))
            if neighbor_count >= RECALL_OF_CANDIDATES * len(queries) * TUNING_K:
                break
            candidates *= 2
        return min(candidates, count)

    def _lowest_cosines(self, queries: np.ndarray) -> np.ndarray:
        """Return the exact cosine of the TUNING_K-th nearest document of each query, (q,)."""
        best = np.full((len(queries), TUNING_K), -np.inf, np.float32)
        for batch in self._table.search().select([self._comparable_column]).to_batches():
            vectors = restored_vectors(pa.Table.from_batches([batch]), self.center)
            cosines = np.hstack([best, queries @ vectors.T])  # (q, TUNING_K + rows)
            best = np.partition(cosines, -TUNING_K, axis=1)[:, -TUNING_K:]
        return best.min(axis=1)

    def _recall(
        self, queries: np.ndarray, lowest_cosines: np.ndarray, inverted_file: InvertedFile
    ) -> float:
        """Return the share of the nearest documents that the approximate search finds."""
        neighbor_count = 0
        for query, lowest_cosine in zip(queries, lowest_cosines, strict=True):
            if self.has_floats:
                cosines = self._approximate_cosines(query, inverted_file)
            else:
                _, cosines = self._nearest_by_signs(query, TUNING_K, None, inverted_file)
            neighbor_count += int(np.count_nonzero(cosines >= lowest_cosine - TIE))
        return neighbor_count / (len(queries) * TUNING_K)

    def _approximate_cosines(self, vector: np.ndarray, inverted_file: InvertedFile) -> np.ndarray:
        """Return the cosines of the TUNING_K rows that a search of vectors in float32 finds."""
        search = self._table.search(vector).distance_type("cosine").nprobes(inverted_file.nprobes)
        result = search.select(["_distance"]).limit(TUNING_K).to_arrow()
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


def _best_of(ids: list[str], cosines: np.ndarray, k: int) -> tuple[list[str], np.ndarray]:
    """Return the k ids of highest cosine, best first, and their cosines."""
    best = np.argsort(-cosines, kind="stable")[:k]
    return [ids[place] for place in best], cosines[best]


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
