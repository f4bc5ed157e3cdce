"""A search index of documents on LanceDB: texts, metadata and vectors in one folder.

from tmde.documents import DocumentIndex
from tmde.embedding.document_embedder import DocumentEmbedder

index = DocumentIndex.create("news.index", DocumentEmbedder.from_pretrained("path/to/checkpoint"))
index.upsert(["1", "2"], ["Der Hund schläft.", "The bridge is closed."], [{"language": "de"}, {"language": "en"}])
hits = index.search("a sleeping dog", k=1)
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from sklearn.preprocessing import normalize

from modeling_tmde import TmdeError
from tmde.data.io import locked, write_atomically
from tmde.documents.neighbours import TIE
from tmde.embedding.document_embedder import DocumentEmbedder, EncodeReport
from tmde.embedding.loading import DEFAULT_FOLDER, DEFAULT_MODEL
from tmde.embedding.long_documents import split_sentences

SETTINGS = "index.json"  # a folder with this file is an index
DENSITY = "density.npz"  # of an embedder that weights sentences by their density
APPROXIMATE_FROM = 20_000  # documents; search is exact up to this many
RECALL = 0.985  # share of the 10 nearest documents for which the approximate search is tuned
_TABLE = "documents"
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
        return Changes(
            *(
                mine + its
                for mine, its in zip(vars(self).values(), vars(other).values(), strict=True)
            )
        )


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

    def __init__(self, folder: Path, embedder: DocumentEmbedder | None = None) -> None:
        self.folder = folder
        self._settings = _read_settings(folder)
        self._lock = FileLock(str(folder / ".lock"))
        self._exact: tuple[np.ndarray, np.ndarray] | None = (
            None  # ids (n,) and vectors (n, d) of this version
        )
        self._embedder: DocumentEmbedder | None = None
        self.query_report: EncodeReport | None = None
        self.query_vectors: np.ndarray | None = None
        try:
            self._table = _connection(folder).open_table(_TABLE)
        except (ValueError, RuntimeError, OSError) as error:
            raise TmdeError(f"{folder}: missing or damaged files ({error})") from None
        if embedder is not None:
            self.embedder = embedder

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike,
        embedder: DocumentEmbedder | None = None,
        dimension: int | None = None,
        revision: str | None = None,
    ) -> DocumentIndex:
        """Creates an empty index.

        Args:
            folder: A new name, or an empty folder.
            embedder: Embeds documents and queries. None: every document and query comes with its vector.
            dimension: d, if there is no embedder.
            revision: Branch, tag or commit of the embedder, if its model is from the Hub.

        Raises:
            ValueError: A folder that is not empty, or another process is creating an index there.
            ImportError: LanceDB is not installed.
        """
        folder = Path(folder)
        leftovers = {f"{_TABLE}.lance", DENSITY}  # of a killed `create`
        with locked(folder):
            names = (
                {path.name for path in folder.iterdir() if path.name[0] != "."}
                if folder.is_dir()
                else set()
            )
            if folder.is_file() or not names <= leftovers:
                raise TmdeError(f"{folder}: holds an index or other files; expected a new name")
            connection = _connection(folder)  # makes the folder
            settings = {
                "dimension": int(embedder.dimension if embedder else dimension),
                "embedding": None,
            }
            if embedder is not None:
                settings["embedding"] = _embedding_settings(embedder, folder, revision)
            text = pa.string()
            fields = [
                ("id", text),
                ("text", text),
                ("language", text),
                ("metadata", text),
                ("tags", pa.list_(text)),
            ]
            schema = pa.schema([*fields, ("vector", pa.list_(pa.float32(), settings["dimension"]))])
            connection.create_table(_TABLE, schema=schema, mode="overwrite")
            write_atomically(
                folder / SETTINGS, json.dumps(settings) + "\n"
            )  # last: from now on it is an index
        return cls(folder, embedder)

    @classmethod
    def open(
        cls, folder: str | os.PathLike, embedder: DocumentEmbedder | None = None
    ) -> DocumentIndex:
        """Opens the last committed version.

        Args:
            folder: Of an index.
            embedder: The model of the index, loaded from elsewhere or on another device. None: it is loaded from the
                path that the index names when a text is first embedded.

        Raises:
            ValueError: No index there, a damaged one, or an embedder of other vectors.
            ImportError: LanceDB is not installed.
        """
        return cls(Path(folder), embedder)

    @property
    def settings(self) -> dict[str, Any] | None:
        """How texts become vectors: model, pooling, limits. None if vectors are given."""
        return self._settings["embedding"]

    @property
    def loading_options(self) -> dict[str, Any]:
        """Arguments of `DocumentEmbedder.from_pretrained`, besides the name, that open the embedder again."""
        if self.settings is None:
            raise TmdeError(
                f"{self.folder}: made without an embedder, expected vectors and not texts"
            )
        names = (
            "prompt",
            "pooling",
            "max_length",
            "long_documents",
            "window",
            "stride",
            "aggregation",
            "revision",
        )
        options = {
            name: self.settings[name] for name in names if self.settings.get(name) is not None
        }
        if str(options.get("aggregation")).startswith("density"):
            options["aggregation"] = str(self.folder / DENSITY)
        return options

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
            options = self.loading_options
            self.embedder = DocumentEmbedder.from_pretrained(self.settings["model"], **options)
        return self._embedder

    @embedder.setter
    def embedder(self, embedder: DocumentEmbedder) -> None:
        if self.settings is not None:
            stored = {"prompt": ""} | self.settings | {"dimension": self._settings["dimension"]}
            for name, value in _settings_of(embedder).items():
                if value != stored.get(name):
                    raise TmdeError(
                        f"{self.folder}: {name} is {stored.get(name)!r}, that of the embedder {value!r}"
                    )
            cosines = np.sum(
                _probe_vectors(embedder) * self._unit_rows(stored["probes"], "probes"), axis=1
            )
            if not (cosines >= _SAME_MODEL).all():
                raise TmdeError(
                    f"{self.folder}: was made with another model, {stored['model']} (cosines {cosines.round(3)} for "
                    f"the same texts, expected 1); found {embedder.model.name_or_path}"
                )
        self._embedder = embedder

    def __len__(self) -> int:
        return self._table.count_rows()

    def __iter__(self) -> Iterator[str]:
        """Ids, in no particular order."""
        return iter(self._column("id"))

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
        codes = [language] * len(ids) if language is None or isinstance(language, str) else language
        by_language = self.settings is not None and self.settings["uses_language"]
        rows = []
        for id, text, values, code in zip(
            ids, texts, metadata or [{}] * len(ids), codes, strict=True
        ):
            if not id or not text.strip():
                raise TmdeError(
                    f"document {id!r}: found text {text!r:.40}, expected an id and a text, not empty"
                )
            values = {name: value for name, value in values.items() if value is not None}
            row = {
                "id": id,
                "text": text,
                "language": code if by_language else None,
                "tags": _tags(values),
            }
            rows.append(
                row
                | {"metadata": json.dumps(values, ensure_ascii=False, sort_keys=True, default=str)}
            )
        if len(set(ids)) < len(ids):
            raise TmdeError(
                f"ids: found {Counter(ids).most_common(1)[0][0]!r} twice, expected different ids"
            )
        given = None if vectors is None else self._unit_rows(vectors, "vectors")
        if given is not None and len(given) != len(rows):
            raise TmdeError(f"vectors: found {len(given)}, expected {len(rows)}, one for each id")
        with self.writing():
            stored = self._fetch(ids, ["id", "text", "language", "metadata"])
            same = [
                {name for name, value in stored.get(row["id"], {}).items() if value == row[name]}
                for row in rows
            ]
            changed = [
                number for number, names in enumerate(same) if given is not None or len(names) < 4
            ]
            report, vectors = EncodeReport(), given
            if given is None:
                vectors = np.empty((len(rows), self._settings["dimension"]), np.float32)
                new = [number for number in changed if not same[number] >= {"text", "language"}]
                kept = sorted(set(changed) - set(new))
                vectors[kept] = self.vectors([ids[number] for number in kept])
                if new:
                    codes = (
                        None
                        if codes[0] is None or not by_language
                        else [codes[number] for number in new]
                    )
                    encoded, report = self.embedder.encode_with_report(
                        [texts[n] for n in new], language=codes, show_progress_bar=False
                    )
                    vectors[new] = self._unit_rows(encoded, "embedded texts")
            if changed:
                self._write([rows[number] for number in changed], vectors[changed])
        updated = sum(ids[number] in stored for number in changed)
        return Changes(len(changed) - updated, updated, len(rows) - len(changed), report)

    def delete(self, ids: str | Sequence[str], missing_ok: bool = False) -> int:
        """Deletes documents in one commit, and returns how many.

        Raises:
            ValueError: Another process is writing; or, unless `missing_ok`, an id that is not in the index (nothing
                is deleted then).
        """
        ids = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
        with self.writing():
            known = self._fetch(ids, ["id"])
            if len(known) < len(ids) and not missing_ok:
                unknown = min(set(ids).difference(known))
                raise TmdeError(
                    f"{self.folder}: found no document {unknown!r}; nothing was deleted"
                )
            if known:
                self._table.delete(_among(known))
        return len(known)

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
            raise TmdeError(
                f"{self.folder}: another process is writing to it; try again later"
            ) from None
        try:
            if outermost:
                self._settings = _read_settings(self.folder)
                self._table.checkout_latest()
            yield
            if outermost:
                self._maintain()
        finally:
            self._exact = None
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
            raise TmdeError(f"k: found {k}, expected at least 1")
        vectors, embedder, self.query_report = query, None, None
        if not isinstance(query, np.ndarray):
            texts = [query] if isinstance(query, str) else list(query)
            if not all(map(str.strip, texts)):
                raise TmdeError(f"query: found {min(texts, key=len)!r}, expected a text")
            embedder = self.embedder
            vectors, self.query_report = embedder.encode_with_report(
                texts, language=language, show_progress_bar=False
            )
        self.query_vectors = self._unit_rows(vectors, "query")
        found = list(self._nearest(self.query_vectors, k, self._condition(filter or {}), exact))
        if snippet_width:
            for hits, vector in zip(found, self.query_vectors, strict=True):
                for number, text in enumerate(_nearest_sentences(hits, vector, embedder)):
                    hits[number] = replace(hits[number], snippet=shortened(text, snippet_width))
        return found[0] if isinstance(query, str) else found

    def documents(self, ids: Sequence[str]) -> list[Hit]:
        """Documents by their ids, with a score of 1 and no snippet. Raises KeyError if one is not there."""
        rows = self._fetch(ids, ["id", "text", "metadata"])
        return [_hit(rows[id], 1.0) for id in ids]

    def vectors(self, ids: Sequence[str]) -> np.ndarray:
        """Unit vectors of documents, (n, d) float32. Raises KeyError if an id is not there."""
        rows = self._fetch(ids, ["id", "vector"])
        return np.array([rows[id]["vector"] for id in ids], np.float32).reshape(
            -1, self._settings["dimension"]
        )

    def values(self, name: str) -> set[Any]:
        """The values under one name of the metadata (of lists: their elements), None if a document has none."""
        values = [_metadata(text).get(name) for text in self._column("metadata")]
        return {
            each for value in values for each in (value if isinstance(value, list) else [value])
        }

    def _unit_rows(self, vectors: np.ndarray, name: str) -> np.ndarray:
        """(n, d) float32 of length 1; zeros stay zeros."""
        vectors, dimension = np.asarray(vectors, np.float32), self._settings["dimension"]
        if vectors.ndim != 2 or vectors.shape[1] != dimension:
            raise TmdeError(f"{name}: found shape {vectors.shape}, expected (n, {dimension})")
        if not np.isfinite(vectors).all():
            raise TmdeError(f"{name}: found a vector that is not finite, expected numbers")
        return normalize(vectors) if len(vectors) else vectors

    def _write(self, rows: list[dict[str, Any]], vectors: np.ndarray) -> None:
        schema = self._table.schema
        columns = [
            pa.array([row[name] for row in rows], schema.field(name).type)
            for name in schema.names[:-1]
        ]
        columns.append(
            pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        )
        merge = (
            self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        )
        try:
            merge.execute(pa.table(columns, schema=schema))
        except (OSError, RuntimeError) as error:
            raise TmdeError(
                f"{self.folder}: cannot be written, nothing was changed ({error})"
            ) from None

    def _column(self, name: str) -> list[str]:
        return self._table.search().select([name]).to_arrow()[name].to_pylist()

    def _fetch(self, ids: Sequence[str], columns: list[str]) -> dict[str, dict[str, Any]]:
        """Rows by id, of those ids that are there."""
        query = self._table.search().where(_among(ids) if len(ids) else "false").select(columns)
        return {row["id"]: row for row in query.to_arrow().to_pylist()}

    def _condition(self, filter: Mapping[str, Any]) -> str | None:
        """The filter as SQL."""
        clauses = []
        for name, wanted in filter.items():
            known = f"array_has(tags, {_quoted(_tag(name))})"
            if not self._table.count_rows(known):
                names = sorted(
                    {name for text in self._column("metadata") for name in json.loads(text)}
                )
                raise TmdeError(f"filter: found {name!r}, expected a name of the metadata: {names}")
            wanted = list(wanted) if isinstance(wanted, (list, tuple, set, frozenset)) else [wanted]
            either = [
                f"array_has(tags, {_quoted(_tag(name, value))})"
                for value in wanted
                if value is not None
            ]
            either += [f"NOT {known}"] if None in wanted else []
            clauses.append(f"({' OR '.join(either) or 'false'})")
        return " AND ".join(clauses) or None

    def _nearest(
        self, vectors: np.ndarray, k: int, condition: str | None, exact: bool
    ) -> Iterator[list[Hit]]:
        if (
            condition is None and len(self) <= APPROXIMATE_FROM
        ):  # a matrix product is faster than a scan of the table
            if self._exact is None:
                table = self._table.search().select(["id", "vector"]).to_arrow()
                self._exact = np.array(table["id"].to_pylist(), object), _vectors_of(table)
            for vector in vectors:
                cosines = self._exact[1] @ vector  # (n,)
                rows = np.argsort(-cosines, kind="stable")[:k]
                found = self._fetch(self._exact[0][rows], ["id", "text", "metadata"])
                yield [
                    _hit(found[id], cosine)
                    for id, cosine in zip(self._exact[0][rows], cosines[rows], strict=True)
                ]
            return
        exact = (
            exact
            or self.exact
            or condition is not None
            and self._table.count_rows(condition) <= APPROXIMATE_FROM
        )
        for vector in vectors:
            query = (
                self._table.search(vector)
                .distance_type("dot" if exact else "cosine")
                .where(condition)
                .limit(k)
            )
            query = (
                query.bypass_vector_index() if exact else query.nprobes(self._settings["nprobes"])
            )
            rows = query.select(["id", "text", "metadata", "_distance"]).to_arrow().to_pylist()
            yield [_hit(row, 1 - row["_distance"]) for row in rows]

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
        self._table.create_index(
            "vector", config=IvfFlat(distance_type="cosine", num_partitions=lists)
        )
        sample = np.random.default_rng(0).choice(
            count, _TUNING_QUERIES, replace=count < _TUNING_QUERIES
        )
        queries = _vectors_of(
            self._table.take_offsets(sample.tolist()).select(["vector"]).to_arrow()
        )
        best = np.full((len(queries), _TUNING_K), -np.inf, np.float32)
        for batch in self._table.search().select(["vector"]).to_batches():
            cosines = np.hstack([best, queries @ _vectors_of(pa.Table.from_batches([batch])).T])
            best = np.partition(cosines, -_TUNING_K, axis=1)[:, -_TUNING_K:]
        nprobes, recall = 10, 0.0
        while recall < RECALL and nprobes < lists:
            nprobes = min(math.ceil(1.4 * nprobes), lists)
            searches = (
                self._table.search(query).distance_type("cosine").nprobes(nprobes)
                for query in queries
            )
            found = [
                search.select(["_distance"]).limit(_TUNING_K).to_arrow()["_distance"]
                for search in searches
            ]
            hits = [
                1 - each.to_numpy() >= right - TIE
                for each, right in zip(found, best.min(axis=1), strict=True)
            ]
            recall = float(np.concatenate(hits).sum() / best.size)
        self._settings |= {"indexed": count, "nprobes": nprobes, "recall": round(recall, 4)}
        write_atomically(self.folder / SETTINGS, json.dumps(self._settings) + "\n")


def shortened(text: str, width: int) -> str:
    """One line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def _settings_of(embedder: DocumentEmbedder) -> dict[str, Any]:
    settings = {
        "dimension": embedder.dimension,
        "pooling": embedder.pooling,
        "max_length": embedder.max_length,
    }
    return settings | {"prompt": embedder.prompt} | embedder.long_document_settings


def _embedding_settings(
    embedder: DocumentEmbedder, folder: Path, revision: str | None
) -> dict[str, Any]:
    """Settings of the embedder that are stored in the index (JSON values); also saves its density, if it has one."""
    name, settings = str(embedder.model.name_or_path), _settings_of(embedder)
    if name == str(DEFAULT_FOLDER):
        name = DEFAULT_MODEL  # wherever the package is
    elif os.path.isdir(name):
        name = os.path.abspath(name)
    if settings.get("aggregation", "").startswith("density"):
        embedder.aggregation.save(folder / DENSITY)
    return settings | {
        "model": name,
        "revision": revision,
        "uses_language": embedder.needs_language or settings["long_documents"] == "sentences",
        "probes": np.round(_probe_vectors(embedder).astype(float), 4).tolist(),
    }


def _probe_vectors(embedder: DocumentEmbedder) -> np.ndarray:
    """(2, d) of length 1."""
    language = embedder.model.config.languages[0] if embedder.needs_language else None
    return embedder.encode(list(PROBES), language=language, show_progress_bar=False, normalize=True)


def _nearest_sentences(
    hits: list[Hit], query: np.ndarray, embedder: DocumentEmbedder | None
) -> list[str]:
    """The sentence of each hit that is nearest to the query (d,); without an embedder, the text itself."""
    best = [(-math.inf, hit.text[:_SNIPPET_CHARACTERS]) for hit in hits]
    sentences = []  # (number of the hit, language, text)
    for number, hit in enumerate(hits):
        code = hit.metadata.get("language")
        if embedder and (not embedder.needs_language or code in embedder.model.config.languages):
            parts = split_sentences(best[number][1], code if isinstance(code, str) else None)
            sentences += [(number, code, part) for part in parts[:_SNIPPET_SENTENCES]]
    if sentences:
        numbers, codes, texts = map(list, zip(*sentences, strict=True))
        codes = codes if embedder.needs_language else None
        vectors = embedder.encode(texts, language=codes, show_progress_bar=False, normalize=True)
        for number, cosine, text in zip(numbers, vectors @ query, texts, strict=True):
            best[number] = max(best[number], (float(cosine), text))
    return [text for _, text in best]


def _connection(folder: Path) -> Any:
    os.environ.setdefault(
        "LANCEDB_LOG", "error"
    )  # it warns of a table that does not exist before it is created
    import lancedb  # of the extra `search`

    return lancedb.connect(folder)


def _read_settings(folder: Path) -> dict[str, Any]:
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        settings["dimension"], settings["embedding"]
        return settings
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise TmdeError(
            f"{folder}: no index there that tmde index has written, or a damaged one ({error})"
        ) from None


def _vectors_of(table: pa.Table) -> np.ndarray:
    """The column of vectors, (n, d)."""
    column = table["vector"].combine_chunks()
    return column.flatten().to_numpy().reshape(-1, column.type.list_size)


def _hit(row: Mapping[str, Any], score: float) -> Hit:
    return Hit(float(score), row["id"], row["text"], "", _metadata(row["metadata"]))


def _metadata(text: str) -> dict[str, Any]:
    return json.loads(
        text, parse_constant=lambda name: None
    )  # NaN and Infinity of parquet and pandas


def _tags(metadata: Mapping[str, Any]) -> list[str]:
    """What filters look up: every name that has a value, and every name with its value or element."""
    tags = [_tag(name) for name in metadata]
    for name, value in metadata.items():
        tags += [
            _tag(name, each) for each in (value if isinstance(value, (list, tuple)) else [value])
        ]
    return tags


def _tag(name: str, *values: Any) -> str:
    """Equal for values that look alike in decimal: 1998, 1998.0 and "1998"; True and "true"."""
    whole = (
        int(value) if isinstance(value, float) and value.is_integer() else value for value in values
    )
    texts = (str(value).lower() if isinstance(value, bool) else str(value) for value in whole)
    return json.dumps([name, *texts], ensure_ascii=False)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _among(ids: Iterable[str]) -> str:
    return f"id IN ({', '.join(map(_quoted, ids))})"
