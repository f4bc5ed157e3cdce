"""A search index of documents on LanceDB: texts, metadata and vectors in one folder.

from modeling_tmde.documents import DocumentIndex
from modeling_tmde.embedding import DocumentEmbedder

index = DocumentIndex.create("news.index", DocumentEmbedder.from_pretrained("path/to/checkpoint"))
index.upsert(["1", "2"], ["Der Hund schläft.", "The bridge is closed."], [{"language": "de"}, {"language": "en"}])
hits = index.search("a sleeping dog", k=1)
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from sklearn.preprocessing import normalize

from modeling_tmde.data.io import write_atomically
from modeling_tmde.documents.neighbours import TIE
from modeling_tmde.embedding import DocumentEmbedder, EncodeReport
from modeling_tmde.long_documents import split_sentences

if TYPE_CHECKING:
    import lancedb

SETTINGS = "index.json"  # a folder with this file is an index
DENSITY = "density.npz"  # of an embedder that weights sentences by their density
APPROXIMATE_FROM = 20_000  # documents; search is exact up to this many
RECALL = 0.985  # share of the 10 nearest documents for which the approximate search is tuned
_TABLE, _LOCK = "documents", ".lock"
_TUNING_QUERIES, _TUNING_K = 200, 10
_FRAGMENTS = 32  # of the table, beyond which small ones are merged
_KEPT = timedelta(days=1)  # readers see the version they opened for at least this long

# An embedder is recognized by its vectors of these texts: they survive a moved folder, an update of the package and
# (nearly) another dtype or device, and differ between any two trainings.
PROBES = (
    "Der Ausschuss hat 1998 beschlossen, die Brücke zu sperren. The bridge is closed, but the river is not.",
    "Il gatto dorme sul tavolo mentre fuori piove. ¿Cuántas lenguas hablan los niños? Le prix est de 42 euros.",
)
_SAME_MODEL = 0.995  # cosine of two vectors of a probe; 8-bit weights stay above
_SNIPPET_SENTENCES, _SNIPPET_CHARACTERS = 256, 100_000  # of a document, compared with the query


@dataclass(frozen=True)
class Hit:
    """A document found by a search. score: its cosine to the query; snippet: its sentence nearest to the query."""

    score: float
    id: str
    text: str
    snippet: str
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Changes:
    """What `upsert` did. updated: documents with new text or metadata; report: of the texts that were embedded."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    report: EncodeReport = EncodeReport()

    def __add__(self, other: Changes) -> Changes:
        return Changes(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


class DocumentIndex:
    """Documents in a LanceDB table, found by the cosine of their vectors. Made by `create` or `open`.

    Every write is one commit: it is on disk when the method returns, and a process that is killed leaves all of it or
    nothing. One process writes at a time; any number of them read, each the version that it opened.

    Up to `APPROXIMATE_FROM` documents, search is exact. Beyond, it goes through an inverted file (IVF) whose number of
    probed lists is tuned, when the index is built, until the 10 nearest documents are found in 98.5 % of the cases;
    `recall` is the share that was found. `search(exact=True)` scans all vectors.

    Attributes:
        query_report: `EncodeReport` of the queries of the last search; None if they were vectors.
        query_vectors: Unit vectors of the queries of the last search, (q, d) float32.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], embedder: DocumentEmbedder | None = None) -> None:
        self.folder = folder
        self._settings = settings
        self._embedder = embedder
        self._lock = FileLock(str(folder / _LOCK))
        self._exact: tuple[np.ndarray, np.ndarray] | None = None  # ids (n,) and vectors (n, d) of this version
        self.query_report: EncodeReport | None = None
        self.query_vectors: np.ndarray | None = None
        try:
            self._table = _connection(folder).open_table(_TABLE)
        except (ValueError, RuntimeError, OSError) as error:
            raise ValueError(f"{folder}: missing or damaged files ({error})") from None

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike,
        embedder: DocumentEmbedder | None = None,
        dimension: int | None = None,
        loading: Mapping[str, Any] | None = None,
    ) -> DocumentIndex:
        """Creates an empty index.

        Args:
            folder: A new name, or an empty folder.
            embedder: Embeds documents and queries. None: every document and query comes with its vector.
            dimension: d, if there is no embedder.
            loading: Further arguments of `DocumentEmbedder.from_pretrained` that open the embedder again, such as
                `revision` (JSON values).

        Raises:
            ValueError: A folder that is not empty, or neither embedder nor dimension.
            ImportError: LanceDB is not installed.
        """
        folder = Path(folder)
        if embedder is None and dimension is None:
            raise ValueError("dimension: found None and no embedder, expected one of them")
        if not is_unused(folder):
            raise ValueError(f"{folder}: exists and is not an empty folder; expected a new name")
        connection = _connection(folder)  # makes the folder
        settings = {"dimension": int(embedder.dimension if embedder else dimension), "embedding": None}
        if embedder is not None:
            settings["embedding"] = _embedding_settings(embedder, folder, loading or {})
        text = pa.string()
        fields = [("id", text), ("text", text), ("language", text), ("metadata", text), ("tags", pa.list_(text))]
        schema = pa.schema([*fields, ("vector", pa.list_(pa.float32(), settings["dimension"]))])
        connection.create_table(_TABLE, schema=schema, mode="overwrite")
        write_atomically(folder / SETTINGS, json.dumps(settings) + "\n")  # last: from now on it is an index
        return cls(folder, settings, embedder)

    @classmethod
    def open(cls, folder: str | os.PathLike, embedder: DocumentEmbedder | None = None) -> DocumentIndex:
        """Opens the last committed version.

        Args:
            folder: Of an index.
            embedder: The model of the index, loaded from elsewhere or on another device. None: it is loaded from the
                path that the index names when a text is first embedded.

        Raises:
            ValueError: No index there, a damaged one, or an embedder of other vectors.
            ImportError: LanceDB is not installed.
        """
        folder = Path(folder)
        index = cls(folder, _read_settings(folder))
        if embedder is not None:
            index.embedder = embedder
        return index

    @property
    def settings(self) -> dict[str, Any] | None:
        """How texts become vectors: model, pooling, limits. None if vectors are given."""
        return self._settings["embedding"]

    @property
    def dimension(self) -> int:
        """Length d of a vector."""
        return self._settings["dimension"]

    @property
    def exact(self) -> bool:
        """Whether every search is exact."""
        return len(self) <= APPROXIMATE_FROM or "nprobes" not in self._settings

    @property
    def recall(self) -> float:
        """Share of the 10 nearest documents that the approximate search found when it was tuned; 1 if exact."""
        return 1.0 if self.exact else self._settings["recall"]

    @property
    def embedder(self) -> DocumentEmbedder:
        """Embeds documents and queries.

        Raises:
            ValueError: The model has changed, or the index has none. Else as `DocumentEmbedder.from_pretrained`.
        """
        if self._embedder is None:
            if self.settings is None:
                raise ValueError(f"{self.folder}: made without an embedder, expected vectors and not texts")
            options = loading_options(self.settings, self.folder)
            self.embedder = DocumentEmbedder.from_pretrained(self.settings["model"], **options)
        return self._embedder

    @embedder.setter
    def embedder(self, embedder: DocumentEmbedder) -> None:
        _check_embedder(embedder, self._settings, self.folder)
        self._embedder = embedder

    def __len__(self) -> int:
        return self._table.count_rows()

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._table.count_rows(_among("id", [id])) > 0

    def __iter__(self) -> Iterator[str]:
        """Ids, in no particular order."""
        return iter(self._table.search().select(["id"]).to_arrow()["id"].to_pylist())

    def upsert(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadata: Sequence[Mapping[str, Any]] | None = None,
        vectors: np.ndarray | None = None,
        language: str | Sequence[str] | None = None,
    ) -> Changes:
        """Adds or replaces n documents in one commit. A document whose id, text and metadata are known is left alone.

        A text that has not changed is not embedded again. With `vectors`, every document is written.

        Args:
            ids: n different strings.
            texts: n strings that are not empty.
            metadata: n mappings of JSON values; others are kept as strings. `language` (a code) is
                used to split the text into the sentences of a snippet.
            vectors: (n, d) of any length; None: the texts are embedded.
            language: One code or n, for an embedder that needs it or splits documents into sentences.

        Raises:
            ValueError: An id that occurs twice, an empty text, vectors that are not finite or not (n, d), or another
                process is writing.
        """
        rows = self._rows(ids, texts, metadata, language)
        given = None if vectors is None else _unit_rows(vectors, self.dimension, "vectors")
        if given is not None and len(given) != len(rows):
            raise ValueError(f"vectors: found {len(given)}, expected {len(rows)}, one for each id")
        with self.writing():
            stored = self._fetch(ids, ["id", "text", "language", "metadata"])
            changed, new = [], []  # row numbers; `new` are those of `changed` whose text is embedded
            for number, row in enumerate(rows):
                same = {name: stored.get(row["id"], {}).get(name) == row[name] for name in row if name != "tags"}
                if given is not None or not all(same.values()):
                    changed.append(number)
                if given is None and not (same["text"] and same["language"] and row["id"] in stored):
                    new.append(number)
            report, vectors = EncodeReport(), np.empty((len(rows), self.dimension), np.float32)
            if given is not None:
                vectors = given
            elif kept := sorted(set(changed) - set(new)):
                vectors[kept] = self.vectors([rows[number]["id"] for number in kept])
            if new:
                texts, codes = ([rows[number][name] for number in new] for name in ("text", "language"))
                codes = None if codes[0] is None else codes
                encoded = self.embedder.encode(texts, language=codes, show_progress_bar=False)
                vectors[new] = _unit_rows(encoded, self.dimension, "embedded texts")
                report = self.embedder.last_report
            if changed:
                self._commit([rows[number] for number in changed], vectors[changed])
        updated = sum(rows[number]["id"] in stored for number in changed)
        return Changes(len(changed) - updated, updated, len(rows) - len(changed), report)

    def delete(self, ids: str | Sequence[str]) -> None:
        """Deletes documents in one commit.

        Raises:
            ValueError: An id that is not in the index (nothing is deleted), or another process is writing.
        """
        ids = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
        with self.writing():
            unknown = set(ids).difference(self._fetch(ids, ["id"]))
            if unknown:
                raise ValueError(f"{self.folder}: found no document {min(unknown)!r}; nothing was deleted")
            if ids:
                with self._committing():
                    self._table.delete(_among("id", ids))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keeps other writers out during several writes, each of which is on disk when its method returns.

        Raises:
            ValueError: Another process is writing.
        """
        outermost = not self._lock.is_locked
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"{self.folder}: another process is writing to it; try again later") from None
        try:
            if outermost:
                self._settings = _read_settings(self.folder)
                self._table.checkout_latest()
                self._exact = None
            yield
            if outermost:
                self._maintain()
        finally:
            self._lock.release()

    def search(
        self,
        query: str | Sequence[str] | np.ndarray,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        exact: bool = False,
        snippet_width: int = 200,
        language: str | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """Returns the k documents of highest cosine to a query, best first.

        Args:
            query: One text, several, or vectors (q, d).
            k: Number of documents.
            filter: Name and value of metadata, or several values of which one must match; a list matches by any of
                its elements, None matches documents without a value. Numbers match their decimal form.
            exact: Scan all vectors of a large index.
            snippet_width: Characters of a snippet, 0 for none. To choose one, the first 256 sentences of every hit are
                embedded; for a query that is a vector, the snippet is the beginning of the document.
            language: Code of the queries' language, for an embedder that needs it.

        Returns:
            The hits of one text, or a list of hits for each of several queries.

        Raises:
            ValueError: An empty query, `k` below 1, a filter by a name that no document has, or vectors of
                another dimension.
        """
        if k < 1:
            raise ValueError(f"k: found {k}, expected at least 1")
        texts = None if isinstance(query, np.ndarray) else [query] if isinstance(query, str) else list(query)
        if texts is not None and not all(text.strip() for text in texts):
            raise ValueError(f"query: found {min(texts, key=len)!r}, expected a text")
        vectors = query
        if texts is not None:
            vectors = self.embedder.encode(texts, language=language, show_progress_bar=False)
        self.query_report = None if texts is None else self.embedder.last_report
        vectors = self.query_vectors = _unit_rows(vectors, self.dimension, "query")
        found = self._nearest(vectors, k, self._condition(filter), exact)
        if snippet_width:
            embedder = None if texts is None else self.embedder
            found = [
                _with_snippets(hits, vector, embedder, snippet_width)
                for hits, vector in zip(found, vectors, strict=True)
            ]
        return found[0] if isinstance(query, str) else found

    def documents(self, ids: Sequence[str]) -> list[Hit]:
        """Documents by their ids, with a score of 1 and no snippet. Raises KeyError if one is not there."""
        rows = self._fetch(ids, ["id", "text", "metadata"])
        return [_hit(rows[id], 1.0) for id in ids]

    def vectors(self, ids: Sequence[str]) -> np.ndarray:
        """Unit vectors of documents, (n, d) float32. Raises KeyError if an id is not there."""
        rows = self._fetch(ids, ["id", "vector"])
        return np.array([rows[id]["vector"] for id in ids], np.float32).reshape(-1, self.dimension)

    def values(self, name: str) -> set[Any]:
        """The values under one name of the metadata (of lists: their elements), None if a document has none."""
        column = self._table.search().select(["metadata"]).to_arrow()["metadata"].to_pylist()
        values = [json.loads(metadata).get(name) for metadata in column]
        return {each for value in values for each in (value if isinstance(value, list) else [value])}

    def _rows(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadata: Sequence[Mapping[str, Any]] | None,
        language: str | Sequence[str] | None,
    ) -> list[dict[str, Any]]:
        """The documents as rows of the table, without their vectors."""
        codes = [language] * len(ids) if language is None or isinstance(language, str) else language
        metadata = [{}] * len(ids) if metadata is None else metadata
        uses_language = self.settings is not None and self.settings["uses_language"]
        rows = []
        for id, text, values, code in zip(ids, texts, metadata, codes, strict=True):
            if not id or not text.strip():
                raise ValueError(f"document {id!r}: found text {text!r:.40}, expected an id and a text, not empty")
            values = {name: value for name, value in values.items() if value is not None}
            row = {"id": id, "text": text, "language": code if uses_language else None, "tags": _tags(values)}
            rows.append(row | {"metadata": json.dumps(values, ensure_ascii=False, sort_keys=True, default=str)})
        if len(set(ids)) < len(ids):
            raise ValueError(f"ids: found {Counter(ids).most_common(1)[0][0]!r} twice, expected different ids")
        return rows

    def _commit(self, rows: list[dict[str, Any]], vectors: np.ndarray) -> None:
        schema = self._table.schema
        columns = [pa.array([row[name] for row in rows], schema.field(name).type) for name in schema.names[:-1]]
        columns.append(pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self.dimension))
        table = pa.table(columns, schema=schema)
        with self._committing():
            merge = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(table)

    @contextmanager
    def _committing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise ValueError(
                f"{self.folder}: cannot be written ({error}); is the disk full? nothing was changed"
            ) from None
        finally:
            self._exact = None

    def _fetch(self, ids: Sequence[str], columns: list[str]) -> dict[str, dict[str, Any]]:
        """Rows by id, of those ids that are there."""
        if not ids:
            return {}
        rows = self._table.search().where(_among("id", ids)).select(columns).to_arrow().to_pylist()
        return {row["id"]: row for row in rows}

    def _condition(self, filter: Mapping[str, Any] | None) -> str | None:
        """The filter as SQL."""
        clauses = []
        for name, wanted in (filter or {}).items():
            wanted = list(wanted) if isinstance(wanted, (list, tuple, set, frozenset)) else [wanted]
            tags = [_tag(name, value) for value in wanted if value is not None]
            known = f"array_has(tags, {_quoted(_tag(name))})"
            if not self._table.count_rows(known):
                raise ValueError(f"filter: found {name!r}, expected a name of the metadata: {self._names()}")
            either = [f"array_has_any(tags, [{', '.join(map(_quoted, tags))}])"] if tags else []
            either += [f"NOT {known}"] if None in wanted else []
            clauses.append(f"({' OR '.join(either) or 'false'})")
        return " AND ".join(clauses) or None

    def _names(self) -> list[str]:
        rows = self._table.search().select(["metadata"]).to_arrow()["metadata"].to_pylist()
        return sorted({name for row in rows for name in json.loads(row)})

    def _nearest(self, vectors: np.ndarray, k: int, condition: str | None, exact: bool) -> list[list[Hit]]:
        if len(self) <= APPROXIMATE_FROM:
            return self._nearest_in_memory(vectors, k, condition)
        exact = exact or self.exact
        exact = exact or condition is not None and self._table.count_rows(condition) <= APPROXIMATE_FROM
        found = []
        for vector in vectors:
            query = self._table.search(vector).distance_type("cosine").limit(k)
            query = query.select(["id", "text", "metadata", "_distance"])
            query = query.bypass_vector_index() if exact else query.nprobes(self._settings["nprobes"])
            query = query if condition is None else query.where(condition)
            found.append([_hit(row, 1 - row["_distance"]) for row in query.to_arrow().to_pylist()])
        return found

    def _nearest_in_memory(self, vectors: np.ndarray, k: int, condition: str | None) -> list[list[Hit]]:
        """Exact search by a matrix product, many times faster than a scan of the table."""
        if self._exact is None:
            table = self._table.search().select(["id", "vector"]).to_arrow()
            self._exact = np.array(table["id"].to_pylist(), object), _vectors_of(table)
        ids, stored = self._exact
        if condition is not None:
            matching = self._table.search().where(condition).select(["id"]).to_arrow()["id"].to_pylist()
            rows = np.flatnonzero(np.isin(ids.astype(str), np.array(matching, str)))
            ids, stored = ids[rows], stored[rows]
        best = [(scores := stored @ vector, _largest(scores, k)) for vector in vectors]
        rows = self._fetch(list({ids[row] for _, order in best for row in order}), ["id", "text", "metadata"])
        return [[_hit(rows[ids[row]], scores[row]) for row in order] for scores, order in best]

    def _maintain(self) -> None:
        """Merges small files, and keeps the approximate index up to date. Every step is a commit of its own."""
        if self._table.stats()["fragment_stats"]["num_fragments"] > _FRAGMENTS:
            self._table.optimize(cleanup_older_than=_KEPT)
        count = len(self)
        if count <= APPROXIMATE_FROM:
            return
        if count > 2 * self._settings.get("indexed", 0):  # also the first time
            self._build_index(count)
        elif self._table.index_stats("vector_idx").num_unindexed_rows > APPROXIMATE_FROM // 2:
            self._table.optimize(cleanup_older_than=_KEPT)

    def _build_index(self, count: int) -> None:
        from lancedb.index import BTree, IvfFlat

        lists = int(count**0.5)
        self._table.create_index("id", config=BTree())
        self._table.create_index("vector", config=IvfFlat(distance_type="cosine", num_partitions=lists))
        sample = np.random.default_rng(0).choice(count, _TUNING_QUERIES, replace=count < _TUNING_QUERIES)
        queries = _vectors_of(self._table.take_offsets(sample.tolist()).select(["vector"]).to_arrow())
        best = np.full((len(queries), _TUNING_K), -np.inf, np.float32)
        for batch in self._table.search().select(["vector"]).to_batches():
            cosines = np.hstack([best, queries @ _vectors_of(pa.Table.from_batches([batch])).T])
            best = np.partition(cosines, -_TUNING_K, axis=1)[:, -_TUNING_K:]
        nprobes, recall = 10, 0.0
        while recall < RECALL and nprobes < lists:
            nprobes = min(math.ceil(1.4 * nprobes), lists)
            searches = (self._table.search(query).distance_type("cosine").nprobes(nprobes) for query in queries)
            found = [search.select(["_distance"]).limit(_TUNING_K).to_arrow()["_distance"] for search in searches]
            hits = [1 - each.to_numpy() >= right - TIE for each, right in zip(found, best.min(axis=1), strict=True)]
            recall = float(np.concatenate(hits).sum() / best.size)
        self._settings |= {"indexed": count, "nprobes": nprobes, "recall": round(recall, 4)}
        write_atomically(self.folder / SETTINGS, json.dumps(self._settings) + "\n")


def is_unused(folder: Path) -> bool:
    """Whether an index can be created there: nothing, an empty folder, or what a killed `create` left."""
    leftovers = {f"{_TABLE}.lance", DENSITY}
    names = {path.name for path in folder.iterdir() if path.name[0] != "."} if folder.is_dir() else set()
    return names <= leftovers and (folder.is_dir() or not folder.exists())


def shortened(text: str, width: int) -> str:
    """One line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def loading_options(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Arguments of `DocumentEmbedder.from_pretrained`, besides the name, that open the embedder of an index again."""
    names = ("pooling", "max_length", "long_documents", "window", "stride", "aggregation")
    options = {name: settings[name] for name in names if name in settings}
    if str(options.get("aggregation")).startswith("density"):
        options["aggregation"] = str(folder / DENSITY)
    return options | settings["loading"]


def _embedding_settings(embedder: DocumentEmbedder, folder: Path, loading: Mapping[str, Any]) -> dict[str, Any]:
    """What an index keeps of its embedder (JSON values); saves the density if sentences are weighted by one."""
    name = str(embedder.model.name_or_path)
    settings = embedder.long_document_settings
    if settings.get("aggregation", "").startswith("density"):
        embedder.aggregation.save(folder / DENSITY)
    return {
        "model": os.path.abspath(name) if os.path.isdir(name) else name,
        "loading": dict(loading),
        "pooling": embedder.pooling,
        "max_length": embedder.max_length,
        **settings,
        "uses_language": embedder.needs_language or settings["long_documents"] == "sentences",
        "probes": np.round(_probe_vectors(embedder).astype(float), 4).tolist(),
    }


def _check_embedder(embedder: DocumentEmbedder, settings: Mapping[str, Any], folder: Path) -> None:
    """Raises ValueError if the vectors are not those of the index, or texts are read differently."""
    embedding, dimension = settings["embedding"], settings["dimension"]
    if embedder.dimension != dimension:
        made_with = f", which was made with {embedding['model']}" if embedding else ""
        raise ValueError(
            f"{folder}: the embedder has {embedder.dimension} dimensions, the index {dimension}{made_with}"
        )
    if embedding is None:
        return
    found = {"pooling": embedder.pooling, "max_length": embedder.max_length, **embedder.long_document_settings}
    for name, value in found.items():
        if value != embedding.get(name):
            raise ValueError(
                f"{folder}: {name} of the embedder is {value!r}, that of the index {embedding.get(name)!r}; expected "
                "the same"
            )
    cosines = np.sum(_probe_vectors(embedder) * _unit_rows(embedding["probes"], dimension, "probes"), axis=1)
    if not (cosines >= _SAME_MODEL).all():
        raise ValueError(
            f"{folder}: was made with another model, {embedding['model']} (cosines {np.round(cosines, 3).tolist()} "
            f"for the same texts, expected 1); found {embedder.model.name_or_path}"
        )


def _probe_vectors(embedder: DocumentEmbedder) -> np.ndarray:
    """(2, d) of length 1."""
    language = embedder.model.config.languages[0] if embedder.needs_language else None
    return embedder.encode(list(PROBES), language=language, show_progress_bar=False, normalize=True)


def _with_snippets(hits: Sequence[Hit], query: np.ndarray, embedder: DocumentEmbedder | None, width: int) -> list[Hit]:
    """The hits with the sentence nearest to the query (d,), or the beginning of the text without an embedder."""
    sentences, codes, owners = [], [], []
    for number, hit in enumerate(hits):
        language = hit.metadata.get("language")
        if embedder is not None and (not embedder.needs_language or language in embedder.model.config.languages):
            text = hit.text[:_SNIPPET_CHARACTERS]
            parts = split_sentences(text, language if isinstance(language, str) else None)[:_SNIPPET_SENTENCES]
            sentences += parts
            codes += [language] * len(parts)
            owners += [number] * len(parts)
    best: dict[int, tuple[float, str]] = {}
    if sentences:
        language = codes if embedder.needs_language else None
        vectors = embedder.encode(sentences, language=language, show_progress_bar=False, normalize=True)
        for sentence, owner, cosine in zip(sentences, owners, (vectors @ query).tolist(), strict=True):
            if owner not in best or cosine > best[owner][0]:
                best[owner] = cosine, sentence
    return [
        replace(hit, snippet=shortened(best[number][1] if number in best else hit.text[: 4 * width], width))
        for number, hit in enumerate(hits)
    ]


def _connection(folder: Path) -> lancedb.DBConnection:
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of a table that does not exist before it is created
    import lancedb  # of the extra `search`

    return lancedb.connect(folder)


def _read_settings(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder}: no index there, expected a folder written by tmde index") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / SETTINGS}: damaged, cannot be read ({error})") from None


def _vectors_of(table: pa.Table) -> np.ndarray:
    """The column of vectors, (n, d)."""
    column = table["vector"].combine_chunks()
    return column.flatten().to_numpy().reshape(-1, column.type.list_size)


def _hit(row: Mapping[str, Any], score: float) -> Hit:
    return Hit(float(score), row["id"], row["text"], "", json.loads(row["metadata"]))


def _tags(metadata: Mapping[str, Any]) -> list[str]:
    """What filters look up: every name that has a value, and every name with its value or element."""
    tags = [_tag(name) for name in metadata]
    for name, value in metadata.items():
        tags += [_tag(name, each) for each in (value if isinstance(value, (list, tuple)) else [value])]
    return tags


def _tag(name: str, *values: Any) -> str:
    """Equal for values that look alike in decimal: 1998, 1998.0 and "1998"; True and "true"."""
    return json.dumps([name, *map(_as_text, values)], ensure_ascii=False)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _among(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join(map(_quoted, values))})"


def _largest(scores: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest (n,), falling; equal ones in order of position."""
    if k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows = np.flatnonzero(scores >= threshold)
    else:
        rows = np.arange(len(scores))
    return rows[np.argsort(-scores[rows], kind="stable")][:k]


def _unit_rows(vectors: np.ndarray, dimension: int, name: str) -> np.ndarray:
    """(n, d) float32 of length 1; zeros stay zeros."""
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise ValueError(f"{name}: found shape {vectors.shape}, expected (n, {dimension})")
    if not np.isfinite(vectors).all():
        raise ValueError(f"{name}: found a vector that is not finite, expected numbers")
    return normalize(vectors)
