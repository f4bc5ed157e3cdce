"""Search by words for the demo page: BM25 over a table in memory, which leaves the index alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tmde.documents.index import DocumentIndex

_TABLE = "words"
_BATCH = 1000  # documents that are read at a time


class WordSearch:
    """Finds documents that share words with a query, by LanceDB's full-text search.

    Words are compared without case and accents, and are not stemmed. The table is filled by the
    first search, because it reads the text of every document.

    Args:
        index: The documents.
    """

    def __init__(self, index: DocumentIndex) -> None:
        self._index = index
        self._table: Any = None

    def ranking(self, query: str, k: int, languages: Sequence[str]) -> dict[str, float]:
        """Return the BM25 scores of the k best documents by id, the best first.

        Args:
            query: The text whose words are searched for.
            k: The number of documents.
            languages: The languages of the documents, "" for those without one; empty for all.
        """
        from lancedb.query import MatchQuery  # It belongs to the extra `demo`.

        if self._table is None:
            self._table = self._make_table()
        # mypy takes the defaults of MatchQuery, which pydantic knows, for missing arguments.
        words = MatchQuery(query, "text")  # type: ignore[call-arg]
        search = self._table.search(words, query_type="fts")
        if languages:
            search = search.where(_any_of("language", languages))
        rows = search.limit(k).select(["id", "_score"]).to_list()
        return {row["id"]: row["_score"] for row in rows}

    def _make_table(self) -> Any:  # noqa: ANN401 - a table of LanceDB, which has no public type
        import lancedb
        import pyarrow as pa
        from lancedb.index import FTS

        names = ("id", "language", "text")
        schema = pa.schema([(name, pa.string()) for name in names])
        table = lancedb.connect("memory://").create_table(_TABLE, schema=schema)
        ids = sorted(self._index)
        for start in range(0, len(ids), _BATCH):
            rows = []
            for hit in self._index.documents(ids[start : start + _BATCH]):
                language = str(hit.metadata.get("language") or "")
                rows.append({"id": hit.id, "language": language, "text": hit.text})
            table.add(pa.Table.from_pylist(rows, schema))
        words = FTS(base_tokenizer="simple", stem=False, remove_stop_words=False)
        table.create_index("text", config=words)
        return table


def _any_of(column: str, values: Sequence[str]) -> str:
    """Return the condition, in SQL, that a column has one of the values."""
    quoted = []
    for value in values:
        escaped = value.replace("'", "''")
        quoted.append(f"'{escaped}'")
    return f"{column} IN ({', '.join(quoted)})"
