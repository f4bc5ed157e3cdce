"""A search index of documents on LanceDB: texts, metadata and vectors in one folder.

```python
from tmde.documents import DocumentIndex
from tmde.embedding.document_embedder import DocumentEmbedder

embedder = DocumentEmbedder.from_pretrained("path/to/checkpoint")
index = DocumentIndex.create("news.index", embedder)
index.upsert(
    ["1", "2"],
    ["Der Hund schläft.", "The bridge is closed."],
    [{"language": "de"}, {"language": "en"}],
)
hits = index.search("a sleeping dog", k=1)
```
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from filelock import FileLock, Timeout

from modeling_tmde import TmdeError
from modeling_tmde.tokenization import without_invisible
from tmde.data.io import locked
from tmde.documents.fusion import fused_rows
from tmde.documents.index_columns import column_of, stored_values
from tmde.documents.index_settings import (
    DENSITY,
    check_embedder,
    checked_unit_vectors,
    describe_embedder,
    loading_options,
    read_settings,
    write_settings,
)
from tmde.documents.index_table import TABLE, VECTOR_TYPES, DocumentTable, InvertedFile
from tmde.documents.passages import heading_at, split_passages
from tmde.documents.snippets import (
    MOST_CHARACTERS,
    matching_passage,
    matching_sentences,
    nearest_sentences,
    shortened,
    without_markup,
)
from tmde.documents.unit_rows import unit_vectors
from tmde.embedding.document_embedder import DocumentEmbedder, EncodeReport

Row = dict[str, Any]

_STORED_COLUMNS = ("id", "text", "embedded_language", "metadata")  # They identify a known document.
_EMBEDDED_COLUMNS = ("text", "embedded_language")  # They decide the vector of a document.

Mode = Literal["meaning", "words", "both"]
MODES: tuple[Mode, ...] = get_args(Mode)
_LEAST_FUSED = 50  # documents by meaning, and as many by words


@dataclass(frozen=True)
class Hit:
    """A document found by a search.

    Attributes:
        score: The cosine to the query; the BM25 score in mode "words"; a fused score in mode
            "both", see [`~tmde.documents.fusion`].
        id: The document's id.
        text: The document's text.
        snippet: The passage's sentence nearest to the query; in mode "words", the one with the most
            query words.
        metadata: The document's metadata.
        passage: The passage nearest to the query; in mode "words", the one with the most query
            words. Short documents have one passage.
        heading: The headings above the passage, as one line.
    """

    score: float
    id: str
    text: str
    snippet: str
    metadata: dict[str, Any]
    passage: str = ""
    heading: str = ""


@dataclass(frozen=True)
class SearchResult:
    """The results of q queries.

    Attributes:
        hits: The hits of each query, best first.
        query_vectors: The unit vectors of the queries, (q, d) float32; (q, 0) in mode "words".
        report: The embedder's report on the queries; None if none was embedded.
    """

    hits: list[list[Hit]]
    query_vectors: np.ndarray
    report: EncodeReport | None


@dataclass(frozen=True)
class Changes:
    """The report of `upsert`.

    Attributes:
        added: The number of new documents.
        updated: The number of documents with new text or metadata.
        unchanged: The number of documents already in the index.
        report: The embedder's report.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    report: EncodeReport = field(default_factory=EncodeReport)

    def __add__(self, other: Changes) -> Changes:
        return Changes(
            self.added + other.added,
            self.updated + other.updated,
            self.unchanged + other.unchanged,
            self.report + other.report,
        )


class DocumentIndex:
    """A search index of documents, stored in a LanceDB table.

    Every write is one atomic commit: it is on disk when the method returns. One process writes at a
    time; any number can read, each the version it opened.

    Search is exact up to 20,000 documents and approximate beyond, with an inverted file (IVF) tuned
    to find 98.5% of the 10 nearest documents. A document has one vector per passage: a section, or
    part of a long one ([`~tmde.documents.passages`]). Its nearest passage determines its score.

    Example:
        ```python
        from tmde import DocumentEmbedder, DocumentIndex

        index = DocumentIndex.create("news.index", DocumentEmbedder.from_pretrained())
        texts = ["Die Brücke wird saniert.", "The museum opens at nine."]
        index.upsert(ids=["a", "b"], texts=texts, metadata=[{"year": 2024}, {"year": 2025}])
        for hit in index.search("Why is the bridge closed?", k=1):
            print(hit.score, hit.text)
        ```
    """

    def __init__(self, folder: Path, embedder: DocumentEmbedder | None = None) -> None:
        self.folder = folder
        self._settings = read_settings(folder)
        self._lock = FileLock(str(folder / ".lock"))
        self._table = DocumentTable(folder)
        self._embedder: DocumentEmbedder | None = None
        if embedder is not None:
            self.embedder = embedder

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike,
        embedder: DocumentEmbedder | None = None,
        dimension: int | None = None,
        revision: str | None = None,
        precision: str = "float32",
        truncate_dim: int | None = None,
        passages: bool = True,
    ) -> DocumentIndex:
        """Create an empty index.

        Args:
            folder: A new or empty folder.
            embedder: The embedder of documents and queries. None if you pass vectors for all of
                them.
            dimension: The width of the vectors if there is no embedder.
            revision: The branch, tag or commit of a model from the Hub.
            precision: The type of stored vectors: "float32" (4 bytes per element) or "float16" (2
                bytes). Queries stay float32.
            truncate_dim: Store and compare only the first `truncate_dim` elements of each vector.
            passages: Whether to store one vector per passage or one per document.

        Raises:
            TmdeError: The folder is not empty, another process is creating an index there, embedder
                and dimension are both missing, or an option is invalid.
            ImportError: LanceDB is not installed.
        """
        folder = Path(folder)
        if embedder is not None:
            dimension = embedder.dimension
        if dimension is None:
            raise TmdeError(
                "embedder, dimension: found neither; set "
                "embedder=DocumentEmbedder.from_pretrained(), or the dimension of your own "
                "vectors"
            )
        _check_precision(precision)
        _check_truncation(truncate_dim, dimension)
        with locked(folder):
            _check_empty(folder)
            DocumentTable.create(folder, int(truncate_dim or dimension), precision)
            settings: dict[str, Any] = {
                "dimension": int(dimension),
                "embedding": None,
                "precision": precision,
                "truncate_dim": truncate_dim,
                "passages": passages,
            }
            if embedder is not None:
                settings["embedding"] = describe_embedder(embedder, folder, revision)
            # The settings are written last: from now on the folder is an index.
            write_settings(folder, settings)
        return cls(folder, embedder)

    @classmethod
    def open(
        cls, folder: str | os.PathLike, embedder: DocumentEmbedder | None = None
    ) -> DocumentIndex:
        """Open the latest version of an index.

        Args:
            folder: The folder of the index.
            embedder: The index's model, if you loaded it yourself, for example on another device.
                By default, it is loaded when first needed.

        Raises:
            TmdeError: There is no index, it is damaged, or the embedder computes different vectors.
            ImportError: LanceDB is not installed.
        """
        return cls(Path(folder), embedder)

    # ---- Settings

    @property
    def settings(self) -> dict[str, Any] | None:
        """The embedding settings: model, pooling and limits. None if you pass vectors."""
        return self._settings["embedding"]

    @property
    def loading_options(self) -> dict[str, Any]:
        """The arguments of `DocumentEmbedder.from_pretrained` that reload the embedder.

        They exclude the model name.
        """
        return loading_options(self._embedder_settings, self.folder)

    @property
    def model_name(self) -> str:
        """The path or Hub id of the embedder's model.

        Raises:
            TmdeError: The index has no embedder.
        """
        return self._embedder_settings["model"]

    @property
    def _embedder_settings(self) -> dict[str, Any]:
        """The settings of the embedder.

        Raises:
            TmdeError: The index was made without an embedder.
        """
        if self.settings is None:
            raise TmdeError(
                f"{self.folder}: this index has no embedder, expected vectors instead of texts"
            )
        return self.settings

    @property
    def exact(self) -> bool:
        """Whether every search is exact."""
        return self._inverted_file is None

    @property
    def recall(self) -> float:
        """The share of the 10 nearest documents that tuned approximate search found; 1 if exact."""
        inverted_file = self._inverted_file
        if inverted_file is None:
            return 1.0
        return inverted_file.recall

    @property
    def embedder(self) -> DocumentEmbedder:
        """The embedder of documents and queries.

        Raises:
            TmdeError: The model has changed, or the index has none.
        """
        if self._embedder is not None:
            return self._embedder
        embedder = DocumentEmbedder.from_pretrained(self.model_name, **self.loading_options)
        self.embedder = embedder
        return embedder

    @embedder.setter
    def embedder(self, embedder: DocumentEmbedder) -> None:
        if self.settings is not None:
            check_embedder(embedder, self.settings, self._dimension, self.folder)
        self._embedder = embedder

    @property
    def precision(self) -> str:
        """The type of stored vectors: "float32" or "float16"."""
        return self._settings.get("precision", "float32")

    @property
    def stored_dimension(self) -> int:
        """The width of the stored vectors."""
        truncate_dim = self._settings.get("truncate_dim")
        if truncate_dim is None:
            return self._dimension
        return truncate_dim

    @property
    def has_passages(self) -> bool:
        """Whether documents have one vector per passage."""
        return self._settings["passages"]

    @property
    def _dimension(self) -> int:
        """The dimension of the vectors that are given."""
        return self._settings["dimension"]

    @property
    def _inverted_file(self) -> InvertedFile | None:
        """The approximate search of a large index."""
        if self._table.is_small:
            return None
        return self._stored_inverted_file

    @property
    def _stored_inverted_file(self) -> InvertedFile | None:
        if "nprobes" not in self._settings:
            return None
        return InvertedFile(
            indexed=self._settings["indexed"],
            nprobes=self._settings["nprobes"],
            recall=self._settings["recall"],
        )

    @property
    def _uses_language(self) -> bool:
        """Whether the language of a text decides its vector."""
        return self.settings is not None and self.settings["uses_language"]

    # ---- Documents

    def __repr__(self) -> str:
        """Say where the index is, how much it holds, and which model embeds for it."""
        model = None if self.settings is None else self.model_name
        return (
            f"DocumentIndex({str(self.folder)!r}, documents={len(self)}, model={model!r}, "
            f"dimension={self._dimension})"
        )

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of the current version, in no particular order."""
        for ids in self._table.column("id"):
            yield from ids.to_pylist()

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and bool(self.known_ids([id]))

    def known_ids(self, ids: Sequence[str]) -> list[str]:
        """Return the given ids that are in the index, in order."""
        rows = self._table.fetch(ids, ["id"])
        return [id for id in ids if id in rows]

    def documents(self, ids: Sequence[str], query: np.ndarray | None = None) -> list[Hit]:
        """Return documents by id, without snippets.

        Args:
            ids: The ids.
            query: A unit vector, (d,). The score of a document is the highest cosine between this
                vector and its passages. None returns whole documents with a score of 1.

        Raises:
            KeyError: An id is unknown.
        """
        if query is not None:
            found_rows = self._table.fetch(ids, ["id", "text", "passages", "metadata"])
            cosines = self._table.vectors(ids).cosines(query).tolist()
            scored_rows = [(found_rows[id], score) for id, score in zip(ids, cosines, strict=True)]
            return self._hits(scored_rows, query)
        rows = self._table.fetch(ids, ["id", "text", "metadata"])
        return [Hit(1.0, id, rows[id]["text"], "", rows[id]["metadata"]) for id in ids]

    def vectors(self, ids: Sequence[str]) -> np.ndarray:
        """Return the unit vectors of documents, (n, d) float32.

        Here d is `stored_dimension`. The vector of a document with several passages is their mean,
        scaled to length 1.

        Raises:
            KeyError: An id is unknown.
        """
        return self._table.vectors(ids).means()

    def has_value(self, name: str, value: Any) -> bool:
        """Return whether any document has this metadata value."""
        return self._table.has_value(name, value)

    def values(self, name: str) -> set[Any]:
        """Return the values of a metadata field, or of the elements of its lists.

        None is included if a document has no value.
        """
        type = self._table.metadata_types.get(name)
        if type is None:
            return {None} if len(self) else set()
        values: set[Any] = set()
        for part in self._table.column(column_of(name)):
            if pa.types.is_list(type):
                if part.null_count:
                    values.add(None)
                part = part.flatten()
            values.update(part.unique().to_pylist())
        return values

    # ---- Writing

    def upsert(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadata: Sequence[Mapping[str, Any]] | None = None,
        vectors: np.ndarray | None = None,
        language: str | Sequence[str | None] | None = None,
    ) -> Changes:
        """Add or replace n documents in one commit.

        Without `vectors`, unchanged documents are skipped, and unchanged texts are not embedded
        again.

        Args:
            ids: n distinct strings.
            texts: n nonempty strings.
            metadata: n mappings. Each name becomes a typed column: string, integer, float, bool, or
                a list of one of those; integers widen to floats. Mappings are stored as JSON, other
                values as strings; NaN, NaT and infinity count as missing. The field `language` (a
                code) helps split snippets.
            vectors: (n, d), or (n, `truncate_dim`), not necessarily normalized. None embeds the
                texts.
            language: One language code, or n, if the embedder requires them or splits sentences.

        Raises:
            TmdeError: Ids are not distinct strings, a text is empty, lengths differ, a metadata
                field changes its type, vectors are not finite or not (n, d), or another process is
                writing.
        """
        ids = _checked_ids(ids)
        if isinstance(texts, str):
            raise TmdeError(f"texts: found one text {texts!r:.40}, expected a list: [text]")
        rows = self._rows(ids, texts, metadata, language)
        if vectors is not None:
            vectors = self._checked_vectors(vectors, "vectors")
            if len(vectors) != len(rows):
                raise TmdeError(
                    f"vectors: found {len(vectors)}, expected {len(rows)}, one for each id"
                )
        with self.writing():
            self._table.check_types(rows)
            stored = self._table.fetch(ids, [*_STORED_COLUMNS, "passages"])
            if vectors is not None:
                new_vectors = list(range(len(rows)))
                changed = new_vectors
                report = EncodeReport()
            else:
                new_vectors = _changed_rows(rows, stored, _EMBEDDED_COLUMNS)
                changed = _changed_rows(rows, stored, _STORED_COLUMNS)
                vectors, report = self._embedded([rows[number] for number in new_vectors])
            updated = sum(1 for number in changed if ids[number] in stored)
            added = len(changed) - updated
            if changed:
                new_rows = [rows[number] for number in new_vectors]
                if stored:
                    same_vectors = sorted(set(changed) - set(new_vectors))
                    other_rows = [rows[number] for number in same_vectors]
                    for row in other_rows:
                        row["passages"] = stored[row["id"]]["passages"]
                    self._table.merge(new_rows, vectors, other_rows)
                else:
                    self._table.append(new_rows, vectors)
        return Changes(
            added=added,
            updated=updated,
            unchanged=len(rows) - len(changed),
            report=report,
        )

    def expect(self, documents: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Fix the column types for documents that will be added in several commits.

        Otherwise, the first documents determine them, and a list that is empty in all of these
        becomes a list of strings.

        Args:
            documents: The id and metadata of each document; read once.

        Raises:
            TmdeError: A metadata field has values of different types.
        """
        rows = ({"id": id, "metadata": stored_values(values)} for id, values in documents)
        with self.writing():
            self._table.expect(rows)

    def _rows(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadata: Sequence[Mapping[str, Any]] | None,
        language: str | Sequence[str | None] | None,
    ) -> list[Row]:
        """Return documents as rows of the table, without their vectors.

        Raises:
            TmdeError: An id that occurs twice, an empty id or text, or another number of texts,
                metadata or languages than of ids.
        """
        if metadata is None:
            metadata = [{}] * len(ids)
        for name, number in (("texts", len(texts)), ("metadata", len(metadata))):
            if number != len(ids):
                raise TmdeError(f"{name}: found {number}, expected {len(ids)}, one for each id")
        codes = _codes_of_documents(language, len(ids))
        rows = []
        for id, text, values, code in zip(ids, texts, metadata, codes, strict=True):
            visible_text = without_invisible(text) if isinstance(text, str) else ""
            if not id or not visible_text.strip():
                raise TmdeError(
                    f"document {id!r}: found text {text!r:.40}, expected a nonempty text"
                )
            rows.append(
                {
                    "id": id,
                    "text": visible_text,
                    "embedded_language": code if self._uses_language else None,
                    "passages": [0],
                    "metadata": stored_values(values),
                }
            )
        if len(set(ids)) < len(ids):
            repeated_id = Counter(ids).most_common(1)[0][0]
            raise TmdeError(f"ids: found {repeated_id!r} twice, expected distinct ids")
        return rows

    def _embedded(self, rows: list[Row]) -> tuple[np.ndarray, EncodeReport]:
        """Return the unit vectors of the passages of rows, (passages, d), and a report.

        The rows get the places where their passages begin.
        """
        texts: list[str] = []
        codes: list[str] = []  # None for each text, if the model needs no languages
        for row in rows:
            passage_texts = [row["text"]]
            if self.has_passages:
                passages = split_passages(row["text"])
                row["passages"] = [passage.begin for passage in passages]
                if len(passages) > 1:
                    passage_texts = [passage.embedded_text(row["text"]) for passage in passages]
            texts += passage_texts
            codes += [row["embedded_language"]] * len(passage_texts)
        if not texts:
            return np.empty((0, self.stored_dimension), np.float32), EncodeReport()
        languages = None if codes[0] is None else codes
        encoded, report = self.embedder.encode_with_report(
            texts, language=languages, show_progress_bar=False
        )
        return self._checked_vectors(encoded, "embedded texts"), report

    def _checked_vectors(self, vectors: npt.ArrayLike, name: str) -> np.ndarray:
        """Check vectors, and return them cut and at length 1, (n, d) float32.

        Args:
            vectors: (n, d), whole or cut already.
            name: Their name in messages.

        Raises:
            TmdeError: Another shape, or a number that is not finite.
        """
        matrix = np.asarray(vectors, np.float32)
        if matrix.ndim == 2 and matrix.shape[1] == self.stored_dimension:
            return checked_unit_vectors(matrix, self.stored_dimension, name)
        whole = checked_unit_vectors(matrix, self._dimension, name)
        return unit_vectors(whole[:, : self.stored_dimension])

    def delete(self, ids: str | Sequence[str], missing_ok: bool = False) -> int:
        """Delete documents in one commit, and return their number.

        Args:
            ids: One id or several.
            missing_ok: Whether to ignore unknown ids.

        Raises:
            TmdeError: Another process is writing, or an id is unknown. Nothing is deleted.
        """
        ids = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
        with self.writing():
            known = self._table.fetch(ids, ["id"])
            if len(known) < len(ids) and not missing_ok:
                unknown_id = min(set(ids).difference(known))
                raise TmdeError(
                    f"{self.folder}: found no document {unknown_id!r}; nothing was deleted"
                )
            if known:
                self._table.delete(list(known))
        return len(known)

    def index_words(self) -> None:
        """Create the word index (BM25) in one commit, if there is none.

        `tmde index` and the first search by words do this. Later writes keep it up to date.

        Raises:
            TmdeError: Another process is writing, or the folder is read-only.
        """
        if self._table.has_word_index:
            return
        advice = (
            ", and its texts are not yet indexed by words; search by meaning, or try again later"
        )
        try:
            with self._locked(advice):
                if not self._table.has_word_index:
                    self._table.build_word_index()
        except OSError as error:
            raise TmdeError(
                f"{self.folder}: the word index is missing and can't be written ({error}); "
                "run `tmde index` where the folder is writable, or search by meaning"
            ) from None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclude other writers during several writes.

        Raises:
            TmdeError: Another process is writing.
        """
        is_outermost = not self._lock.is_locked
        with self._locked("; try again later"):
            yield
            if is_outermost:
                self._maintain()

    @contextmanager
    def _locked(self, advice: str) -> Iterator[None]:
        """Keep other writers out, and go to the last committed version unless they are out already.

        Args:
            advice: The end of the sentence, from its punctuation on, if another process is writing.

        Raises:
            TmdeError: Another process is writing.
        """
        is_outermost = not self._lock.is_locked
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise TmdeError(f"{self.folder}: another process is writing to it{advice}") from None
        try:
            if is_outermost:
                self._table.refresh()
                self._settings = read_settings(self.folder)
            yield
        finally:
            self._table.forget()
            self._lock.release()

    def _maintain(self) -> None:
        """Keep the table fast, and note the inverted file if one was built."""
        built = self._table.maintain(self._stored_inverted_file)
        if built is not None:
            self._settings |= asdict(built)
            write_settings(self.folder, self._settings)

    # ---- Search

    def search(
        self,
        query: str | Sequence[str] | np.ndarray | torch.Tensor,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        exact: bool = False,
        snippet_width: int = 200,
        language: str | None = None,
        mode: str = "meaning",
        where: str | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """Search the index and return the k best documents.

        Args:
            query: One text, several texts, one vector (d,), or vectors (q, d).
            k: The number of documents to return.
            filter: The metadata a document must have: for each name, a value or several
                alternatives. A list matches if any element does; None matches documents without a
                value. Numbers match their decimal form.
            exact: Whether to scan all vectors, even in a large index.
            snippet_width: The length of a snippet in characters, 0 for none. The best of a hit's
                first 256 sentences is chosen; for a query vector, the document's start.
            language: The language code of the queries, if the embedder requires it.
            mode: `"meaning"` compares vectors, across languages. `"words"` compares words (BM25),
                ignoring case and accents, without an embedder. `"both"` combines them (hybrid
                search), see [`~tmde.documents.fusion`].
            where: An SQL condition on `id`, `text` and the metadata, combined with `filter`: `"year
                >= 2024 AND array_has(topics, 'trains')"`. Enclose names that are not plain SQL
                words in backticks; characters other than letters, digits, "_", "-" and spaces are
                percent-encoded, `a.b` as `a%2Eb`.

        Returns:
            The hits of one query, best first, or a list of hits for each of several queries.

        Raises:
            TmdeError: The query is empty, `k` is below 1, the mode is unknown or requires a text, a
                filter or `where` is invalid, or vectors have the wrong width. In modes with words,
                also as for `index_words`.
        """
        if isinstance(query, torch.Tensor):
            query = query.cpu().numpy()
        queries: Sequence[str] | np.ndarray = query
        is_vector = isinstance(query, np.ndarray) and query.ndim == 1 and query.dtype.kind == "f"
        if isinstance(query, str):
            queries = [query]
        elif is_vector:
            queries = np.asarray(query)[None]  # (1, d)
        result = self.search_queries(
            queries, k, filter, exact, snippet_width, language, mode, where
        )
        if isinstance(query, str) or is_vector:
            return result.hits[0]
        return result.hits

    def search_queries(
        self,
        queries: Sequence[str] | np.ndarray,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        exact: bool = False,
        snippet_width: int = 200,
        language: str | None = None,
        mode: str = "meaning",
        where: str | None = None,
    ) -> SearchResult:
        """Search with several queries, and also return their vectors and the embedder's report.

        Args:
            queries: Texts, or vectors (q, d).
            k: The number of documents per query.
            filter: See `search`.
            exact: See `search`.
            snippet_width: See `search`.
            language: See `search`.
            mode: See `search`.
            where: See `search`.

        Raises:
            TmdeError: As for `search`.
        """
        if k < 1:
            raise TmdeError(f"k: found {k}, expected at least 1")
        texts = _texts_of_queries(queries, mode)
        condition = self._table.condition(filter or {}, where)
        if mode == "words":
            hits = self._search_words(texts, k, condition, snippet_width)
            return SearchResult(hits, np.empty((len(texts), 0), np.float32), None)
        embedder = None
        report = None
        if isinstance(queries, np.ndarray) and not texts:
            vectors = self._checked_vectors(queries, "query")
            sentence_queries = vectors
        else:
            embedder = self.embedder
            encoded, report = embedder.encode_with_report(
                texts, language=language, show_progress_bar=False
            )
            vectors = self._checked_vectors(encoded, "query")
            # The sentences of a hit are embedded whole.
            sentence_queries = checked_unit_vectors(encoded, self._dimension, "query")
        inverted_file = None if exact else self._inverted_file
        if mode == "both":
            rows_of_queries = self._fused(texts, vectors, k, condition, inverted_file)
        else:
            rows_of_queries = self._table.nearest(vectors, k, condition, inverted_file)
        hits = []
        for vector, sentence_query, scored_rows in zip(
            vectors, sentence_queries, rows_of_queries, strict=True
        ):
            hits_of_query = self._hits(scored_rows, vector)
            if snippet_width:
                hits_of_query = _with_snippets(
                    hits_of_query, sentence_query, embedder, snippet_width
                )
            hits.append(hits_of_query)
        return SearchResult(hits, vectors, report)

    def _hits(self, scored_rows: list[tuple[Row, float]], vector: np.ndarray) -> list[Hit]:
        """Return rows as hits, with the passages that are nearest to a query, (d,)."""
        numbers = np.zeros(len(scored_rows), np.int64)
        if any(len(row["passages"]) > 1 for row, _ in scored_rows):
            ids = [row["id"] for row, _ in scored_rows]
            numbers = self._table.vectors(ids).nearest_passages(vector)
        hits = []
        for (row, score), number in zip(scored_rows, numbers.tolist(), strict=True):
            hits.append(_hit(row, score, number))
        return hits

    def _search_words(
        self, texts: list[str], k: int, condition: str | None, snippet_width: int
    ) -> list[list[Hit]]:
        """Return the hits of each query by words."""
        self.index_words()
        hits = []
        for text in texts:
            scored_rows = self._table.matching(text, k, condition)
            hits_of_query = []
            for row, score in scored_rows:
                number = matching_passage(_passages_of(row), text)
                hits_of_query.append(_hit(row, score, number))
            if snippet_width:
                hits_of_query = _with_matching_snippets(hits_of_query, text, snippet_width)
            hits.append(hits_of_query)
        return hits

    def _fused(
        self,
        texts: list[str],
        vectors: np.ndarray,
        k: int,
        condition: str | None,
        inverted_file: InvertedFile | None,
    ) -> list[list[tuple[Row, float]]]:
        """Return the k best rows for each query by meaning and words, and their scores."""
        self.index_words()
        depth = max(2 * k, _LEAST_FUSED)
        sample = self._table.sampled_vectors()
        nearest = self._table.nearest(vectors, depth, condition, inverted_file)
        fused = []
        for text, vector, nearest_rows in zip(texts, vectors, nearest, strict=True):
            matching_rows = self._table.matching(text, depth, condition)
            ids = [row["id"] for row, _ in matching_rows]
            cosines_of_rows = self._table.vectors(ids).cosines(vector).tolist()
            cosines = dict(zip(ids, cosines_of_rows, strict=True))
            rows = fused_rows(nearest_rows, matching_rows, cosines, sample.cosines(vector))
            fused.append(rows[:k])
        return fused


def _check_empty(folder: Path) -> None:
    """Raise TmdeError if a folder holds more than what a killed `create` may have left."""
    leftovers = {f"{TABLE}.lance", DENSITY}
    names: set[str] = set()
    if folder.is_dir():
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    if folder.is_file() or not names <= leftovers:
        raise TmdeError(
            f"{folder} is not empty; choose a new folder, or open an index with DocumentIndex.open"
        )


def _check_precision(precision: str) -> None:
    """Raise TmdeError if vectors cannot be stored in this precision."""
    if precision not in VECTOR_TYPES:
        raise TmdeError(
            f"precision: found {precision!r}, expected one of {tuple(VECTOR_TYPES)} for an index"
        )


def _check_truncation(truncate_dim: int | None, dimension: int) -> None:
    """Raise TmdeError unless vectors can be cut to this many numbers."""
    if truncate_dim is not None and not 1 <= truncate_dim <= dimension:
        raise TmdeError(
            f"truncate_dim: found {truncate_dim}, expected 1 to {dimension}, the width of the "
            "vectors"
        )


def _changed_rows(rows: list[Row], stored: Mapping[str, Row], columns: Sequence[str]) -> list[int]:
    """Return the positions of the rows that are not stored, or differ in one of the columns."""
    changed = []
    for number, row in enumerate(rows):
        stored_row = stored.get(row["id"])
        if stored_row is None or any(stored_row[name] != row[name] for name in columns):
            changed.append(number)
    return changed


def _checked_ids(ids: Sequence[str]) -> list[str]:
    """Return ids as a list.

    Raises:
        TmdeError: One is no string, or they are one string instead of several.
    """
    if isinstance(ids, str):
        raise TmdeError(f"ids: found one id {ids!r}, expected a list: [id]")
    checked = list(ids)
    for number, id in enumerate(checked):
        if not isinstance(id, str):
            raise TmdeError(
                f"ids: found {id!r} ({type(id).__name__}) at {number}, expected strings, such as "
                "str(id)"
            )
    return checked


def _codes_of_documents(
    language: str | Sequence[str | None] | None, num_documents: int
) -> list[str | None]:
    """Return the language code of each document, from one code for all or one for each.

    Raises:
        TmdeError: There is another number of codes than of documents.
    """
    if language is None or isinstance(language, str):
        return [language] * num_documents
    codes = list(language)
    if len(codes) != num_documents:
        raise TmdeError(
            f"language: found {len(codes)} codes, expected {num_documents}, one for each id, or "
            "one string for all"
        )
    return codes


def _texts_of_queries(queries: Sequence[str] | np.ndarray, mode: str) -> list[str]:
    """Return the texts of queries, none if they are vectors.

    Raises:
        TmdeError: The mode is unknown, a query is empty, or words are asked of vectors.
    """
    if mode not in MODES:
        raise TmdeError(f"mode: found {mode!r}, expected one of {MODES}")
    if isinstance(queries, np.ndarray) and queries.dtype.kind not in "OU":
        if mode != "meaning":
            raise TmdeError(f"mode: found {mode!r} for vectors, which have no words; pass texts")
        return []
    texts = list(queries)
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise TmdeError(f"query: found {text!r:.40}, expected a text")
    return texts


def _with_matching_snippets(hits: list[Hit], query: str, width: int) -> list[Hit]:
    """Return hits with the sentences that have the most words of a query."""
    texts = [hit.passage[:MOST_CHARACTERS] for hit in hits]
    languages = [hit.metadata.get("language") for hit in hits]
    result = []
    for hit, sentence in zip(hits, matching_sentences(texts, languages, query), strict=True):
        result.append(replace(hit, snippet=shortened(without_markup(sentence), width)))
    return result


def _with_snippets(
    hits: list[Hit], query: np.ndarray, embedder: DocumentEmbedder | None, width: int
) -> list[Hit]:
    """Return hits with snippets: the nearest sentences, or the beginnings without an embedder."""
    sentences = [hit.passage[:MOST_CHARACTERS] for hit in hits]
    if embedder is not None:
        languages = [hit.metadata.get("language") for hit in hits]
        sentences = nearest_sentences(sentences, languages, query, embedder)
    result = []
    for hit, sentence in zip(hits, sentences, strict=True):
        result.append(replace(hit, snippet=shortened(without_markup(sentence), width)))
    return result


def _passages_of(row: Row) -> list[str]:
    """Return the texts of the passages of a row."""
    begins = row["passages"]
    ends = [*begins[1:], len(row["text"])]
    return [row["text"][begin:end] for begin, end in zip(begins, ends, strict=True)]


def _hit(row: Row, score: float, passage_number: int) -> Hit:
    """Return a row as a hit by one of its passages."""
    text = row["text"]
    passage = text
    heading = ""
    if len(row["passages"]) > 1:
        passage = _passages_of(row)[passage_number].strip()
        heading = heading_at(text, row["passages"][passage_number])
    return Hit(
        score=float(score),
        id=row["id"],
        text=text,
        snippet="",
        metadata=row["metadata"],
        passage=passage,
        heading=heading,
    )
