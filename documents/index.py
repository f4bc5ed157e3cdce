"""Search among documents: a folder with their texts and vectors, to which documents are added and from which they go.

from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.documents.index import DocumentIndex

index = DocumentIndex.create("news.index", DocumentEmbedder.from_pretrained("path/to/checkpoint"))
index.add(["1", "2"], ["Der Hund schläft.", "The bridge is closed."], [{"language": "de"}, {"language": "en"}])
hits = index.search("a sleeping dog", k=1)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from modeling_tmde.documents.index_documents import TEXT_DIGEST, Changes, Hit, Metadata, document_table, unit_rows
from modeling_tmde.documents.index_embedding import check_embedder, embedding_settings, open_embedder, snippets
from modeling_tmde.documents.index_files import Manifest, is_unused
from modeling_tmde.documents.index_metadata import DocumentIndexError
from modeling_tmde.documents.index_store import SegmentStore

if TYPE_CHECKING:
    from modeling_tmde.embedding import DocumentEmbedder, EncodeReport

APPROXIMATE_FROM = 2**17  # rows of a segment; below, search is exact


class DocumentIndex:
    """Documents on disk, found by the cosine of their vectors: made by `create` or `open`.

    What `add`, `upsert` and `delete` did is on disk when they return, and all of it or nothing if the process is
    killed before. One process writes at a time; any number reads, each what was there when it opened the index. Not
    to be shared by threads.

    Search is exact but for segments of at least `approximate_from` documents, of whose inverted lists one in sixteen
    is looked at; `search(exact=True)` looks at all. Needs faiss: `pip install 'tmde[eval]'`.

    query_report: what embedding the queries of the last search did, such as to cut them off; None: they were vectors.
    query_vectors: (q, d) float32 of length 1, those of the last search; None before the first.
    """

    def __init__(self, store: SegmentStore, embedder: DocumentEmbedder | None = None) -> None:
        self._store = store
        self._embedder = embedder
        self.query_report: EncodeReport | None = None
        self.query_vectors: np.ndarray | None = None

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike,
        embedder: DocumentEmbedder | None = None,
        dimension: int | None = None,
        approximate_from: int = APPROXIMATE_FROM,
        loading: Mapping[str, Any] | None = None,
    ) -> DocumentIndex:
        """Makes an empty index.

        Args:
            folder: New, or empty.
            embedder: What embeds documents and queries. None: vectors are given with each document and query.
            dimension: d, where there is no embedder.
            approximate_from: Documents of a segment from which its search is approximate.
            loading: More arguments of `DocumentEmbedder.from_pretrained` that open the embedder again, such as
                `revision`: JSON values.

        Raises:
            DocumentIndexError: A folder that holds something, or neither embedder nor dimension.
            ImportError: Without faiss.
        """
        _check_faiss()
        folder = Path(folder)
        if embedder is None and dimension is None:
            raise DocumentIndexError("dimension: found None and no embedder, expected one of them")
        if not is_unused(folder):
            raise DocumentIndexError(f"{folder}: exists and is not an empty folder; expected a new name")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DocumentIndexError(f"{folder}: cannot be made ({error.strerror})") from None
        settings = None
        if embedder is not None:
            dimension = embedder.dimension
            settings = embedding_settings(embedder, folder, loading or {})
        manifest = Manifest(0, int(dimension), settings, approximate_from)
        store = SegmentStore(folder, manifest)
        with store.writing():
            if not is_unused(folder):  # another process was faster
                raise DocumentIndexError(f"{folder}: exists and is not an empty folder; expected a new name")
            manifest.write(folder, 0)
        return cls(store, embedder)

    @classmethod
    def open(cls, folder: str | os.PathLike, embedder: DocumentEmbedder | None = None) -> DocumentIndex:
        """Opens what the last finished write left.

        Args:
            folder: Of an index.
            embedder: In place of the one that the index names, which is loaded when a text is first to be embedded:
                the same model, elsewhere or on another device.

        Raises:
            DocumentIndexError: No index there, a damaged one, or an embedder that does not give its vectors.
            ImportError: Without faiss.
        """
        _check_faiss()
        index = cls(SegmentStore(Path(folder)))
        if embedder is not None:
            index.embedder = embedder
        return index

    @property
    def folder(self) -> Path:
        return self._store.folder

    @property
    def settings(self) -> dict[str, Any] | None:
        """How texts become vectors: name of the model, pooling, limits. None where vectors are given."""
        return self._store.manifest.embedding

    @property
    def dimension(self) -> int:
        """Length d of a vector."""
        return self._store.manifest.dimension

    @property
    def embedder(self) -> DocumentEmbedder:
        """What embeds documents and queries.

        Raises:
            DocumentIndexError: The model that the index names cannot be loaded or has changed, or it names none.
        """
        if self._embedder is None:
            if self.settings is None:
                raise DocumentIndexError(f"{self.folder}: made without an embedder, expected vectors and not texts")
            self.embedder = open_embedder(self.settings, self.folder)
        return self._embedder

    @embedder.setter
    def embedder(self, embedder: DocumentEmbedder) -> None:
        check_embedder(embedder, self._store.manifest, self.folder)
        self._embedder = embedder

    @property
    def exact(self) -> bool:
        """Whether every search looks at all documents."""
        return not any(segment.lists for segment in self._store.segments)

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, id: object) -> bool:
        return id in self._store.places

    def __iter__(self) -> Iterator[str]:
        """Ids, in no order that is promised."""
        return iter(self._store.places)

    def add(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadata: Metadata | None = None,
        vectors: np.ndarray | None = None,
        language: str | Sequence[str] | None = None,
    ) -> Changes:
        """Adds n new documents: all of them or, after an error, none.

        Args:
            ids: n different strings.
            texts: n strings that are not empty.
            metadata: n mappings, or a table of n rows; a name has one type in all documents. A `language` (its code)
                is used where the sentences of a snippet are split.
            vectors: (n, d) of any length; None: the texts are embedded.
            language: One code or n, for an embedder that needs them or splits documents into sentences.

        Raises:
            DocumentIndexError: An id that is there or comes twice, an empty text, metadata of another type, vectors
                that are not finite or of another dimension.
            DocumentIndexBusy: Another process is writing.
        """
        return self._put(ids, texts, metadata, vectors, language, replace=False)

    def upsert(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadata: Metadata | None = None,
        vectors: np.ndarray | None = None,
        language: str | Sequence[str] | None = None,
    ) -> Changes:
        """As `add`, but a document whose id is there is replaced, or left alone if nothing of it is new.

        A text that is embedded already is not embedded again, and keeps its vector with new metadata. With `vectors`,
        every document is written.
        """
        return self._put(ids, texts, metadata, vectors, language, replace=True)

    def delete(self, ids: str | Sequence[str]) -> None:
        """Removes documents: all of these or, after an error, none.

        Raises:
            DocumentIndexError: An id that is not there.
            DocumentIndexBusy: Another process is writing.
        """
        ids = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
        with self.writing():
            unknown = [id for id in ids if id not in self]
            if unknown:
                raise DocumentIndexError(
                    f"ids: found {unknown[0]!r}, one of {len(unknown)} (of {len(ids)}) that are not in {self.folder}; "
                    "nothing was deleted"
                )
            if ids:
                self._store.commit(removed=ids)

    def writing(self) -> AbstractContextManager[None]:
        """Keeps other writers out for several writes, each of which is on disk when it returns.

        Raises:
            DocumentIndexBusy: Another process is writing.
        """
        return self._store.writing()

    def search(
        self,
        query: str | Sequence[str] | np.ndarray,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        exact: bool = False,
        snippet_width: int = 200,
        language: str | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """The documents that are nearest to a query, best first.

        Args:
            query: One text, several, or vectors (q, d).
            k: How many; fewer come where the index holds fewer.
            filter: Only documents whose metadata have this value, or one of these values, under each name (of a list:
                among its elements); None: no value.
            exact: Look at all documents where search is approximate.
            snippet_width: Characters of a snippet, 0 for none. A snippet costs the embedding of the first sentences
                (64 at most) of its document; for a query that is a vector it is the beginning of the document.
            language: Code of the queries' language, for an embedder that needs it.

        Returns:
            Hits of one text, or a list of them for each of several queries.

        Raises:
            DocumentIndexError: An empty query, `k` below 1, a filter by a name that no document has or by a value that
                is not of its type, vectors of another dimension.
        """
        if k < 1:
            raise DocumentIndexError(f"k: found {k}, expected at least 1")
        texts = None if isinstance(query, np.ndarray) else [query] if isinstance(query, str) else list(query)
        for number, text in enumerate(texts or [], 1):
            if not isinstance(text, str) or not text.strip():
                raise DocumentIndexError(f"query {number}: found {text!r}, expected a text")
        vectors = query if texts is None else self._encoded(texts, language)
        # Now: the embedder reports on the sentences of snippets next.
        self.query_report = None if texts is None else self.embedder.last_report
        vectors = self.query_vectors = unit_rows(vectors, self.dimension, "query")
        found = [
            [Hit.of(score, self._store.row(place)) for score, place in zip(scores, places, strict=True)]
            for scores, places in self._store.nearest(vectors, k, filter, exact)
        ]
        if snippet_width:
            embedder = None if texts is None else self.embedder
            pairs = zip(found, vectors, strict=True)
            found = [snippets(hits, vector, embedder, snippet_width) for hits, vector in pairs]
        return found[0] if isinstance(query, str) else found

    def document(self, id: str) -> Hit:
        """A document by its id, with a score of 1 and no snippet.

        Raises:
            KeyError: It is not there.
        """
        return Hit.of(1.0, self._store.row(self._store.places[id]))

    def vectors(self, ids: Sequence[str]) -> np.ndarray:
        """Vectors of documents, (n, d) float32 of length 1.

        Raises:
            KeyError: An id that is not there.
        """
        return self._store.vectors(ids)

    def values(self, name: str) -> set[Any]:
        """The different values of all documents under one name of the metadata: those that a filter can have.

        Of lists: their elements. None is among them where a document has no value.

        Raises:
            DocumentIndexError: The name holds neither values nor lists of them.
        """
        return self._store.values(name)

    def _put(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadata: Metadata | None,
        vectors: np.ndarray | None,
        language: str | Sequence[str] | None,
        replace: bool,
    ) -> Changes:
        ids, texts = list(ids), list(texts)
        languages = [language] * len(ids) if language is None or isinstance(language, str) else list(language)
        uses_language = self.settings is not None and self.settings["uses_language"]
        if len(languages) != len(ids):
            raise DocumentIndexError(
                f"language: found {len(languages)} codes, expected one, or {len(ids)} for as many ids"
            )
        table = document_table(ids, texts, metadata, languages if uses_language else None)
        if vectors is not None:
            vectors = unit_rows(vectors, self.dimension, "vectors")
            if len(vectors) != len(ids):
                raise DocumentIndexError(f"vectors: found {len(vectors)}, expected {len(ids)}, one for each id")
        with self.writing():
            if not replace and (known := [id for id in ids if id in self]):
                raise DocumentIndexError(
                    f"ids: found {known[0]!r}, one of {len(known)} (of {len(ids)}) that are in {self.folder} already; "
                    "use upsert() to replace them"
                )
            wanted, report = list(range(len(ids))), None
            if vectors is None:
                wanted, vectors, report = self._missing_vectors(ids, texts, table.column("digest"), languages)
            old = [ids[row] for row in wanted if ids[row] in self]
            if wanted:
                self._store.commit(old, table.take(wanted), vectors)
        return Changes(len(wanted) - len(old), len(old), len(ids) - len(wanted), report)

    def _missing_vectors(
        self, ids: list[str], texts: list[str], digests: pa.ChunkedArray, languages: list[str | None]
    ) -> tuple[list[int], np.ndarray, EncodeReport | None]:
        """Rows that are not stored as they are, their vectors (rows, d), and what was embedded for them."""
        found = [digest.as_py() for digest in digests]
        stored = [self._store.digest(id) for id in ids]
        wanted = [row for row in range(len(ids)) if found[row] != stored[row]]
        # The same text with other metadata keeps its vector.
        kept = [row for row in wanted if (stored[row] or b"")[:TEXT_DIGEST] == found[row][:TEXT_DIGEST]]
        new = sorted(set(wanted) - set(kept))
        vectors, report = np.empty((len(ids), self.dimension), np.float32), None
        vectors[kept] = self.vectors([ids[row] for row in kept])
        if new:
            codes = None if languages[0] is None else [languages[row] for row in new]
            encoded = self._encoded([texts[row] for row in new], codes)
            vectors[new] = unit_rows(encoded, self.dimension, "vector of a document", [ids[row] for row in new])
            report = self.embedder.last_report
        return wanted, vectors[wanted], report

    def _encoded(self, texts: list[str], language: str | Sequence[str | None] | None) -> np.ndarray:
        return self.embedder.encode(texts, language=language, show_progress_bar=False)


def _check_faiss() -> None:
    try:
        import faiss  # noqa: F401
    except ImportError as error:
        raise ImportError("A document index needs faiss: pip install 'tmde[eval]'") from error
