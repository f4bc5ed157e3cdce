"""A search of the demo page: by meaning, by words or by both, with translations as one hit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from modeling_tmde import TmdeError
from tmde.cli.demo_collection import DOCUMENT_FIELD, Collection, as_text
from tmde.documents.index import Hit, Mode
from tmde.documents.snippets import nearest_sentences, shortened, without_markup

SNIPPET_WIDTH = 300  # characters
DECODED_TOKENS = 40


@dataclass(frozen=True)
class FoundDocument:
    """A document that was found, in one language or in several.

    Attributes:
        versions: Its text in each language, the one to show first. Their scores are cosines.
        bm25: The highest BM25 score of the versions; None if the search went by meaning, or if no
            version is among the best by words.
    """

    versions: list[Hit]
    bm25: float | None = None

    @property
    def shown(self) -> Hit:
        """The version that is shown first."""
        return self.versions[0]

    @property
    def nearest(self) -> Hit:
        """The version of the highest cosine."""
        return max(self.versions, key=lambda version: version.score)


@dataclass(frozen=True)
class SearchResult:
    """One search.

    Attributes:
        query: The text that was searched for.
        place: The place of the query on the map, (2,).
        documents: The documents that were found, best first.
        is_truncated: Whether the query was longer than the model takes.
        mode: What the search went by.
        decoded: What the model's decoder writes from the vector of the query, by language; empty
            for a model without a decoder.
    """

    query: str
    place: np.ndarray
    documents: list[FoundDocument]
    is_truncated: bool
    mode: Mode = "meaning"
    decoded: dict[str, str] = field(default_factory=dict)

    @property
    def hits(self) -> list[Hit]:
        """The version of each document that is shown first."""
        return [document.shown for document in self.documents]

    @property
    def ids(self) -> list[str]:
        """The ids of all versions of the documents."""
        ids = []
        for document in self.documents:
            for version in document.versions:
                ids.append(version.id)
        return ids


class Searcher:
    """Searches a collection.

    Args:
        collection: The documents.
    """

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    def search(
        self,
        query: str,
        k: int,
        languages: Sequence[str],
        language: str | None = None,
        mode: Mode = "meaning",
    ) -> SearchResult:
        """Search the documents of some languages.

        Args:
            query: The text to search for.
            k: The number of documents; translations of each other count as one.
            languages: The languages of the hits, "" for documents without one.
            language: The language of the query, for a model that needs it.
            mode: See `DocumentIndex.search`.

        Raises:
            TmdeError: With a sentence for the page, if the query or the languages are empty.
        """
        collection = self.collection
        _check_search(collection, query, languages)
        # As many rows as hold k documents, if each has a row in every language.
        row_count = k
        if collection.has_translations:
            row_count = k * len(languages)
        bm25_of_id: dict[str, float] = {}
        if mode != "meaning":
            bm25_of_id = self._scores_by_words(query, row_count, languages)
        # By words too, the vector of the query gives its place on the map and the cosines of hits.
        result = collection.index.search_queries(
            [query],
            row_count,
            _filter(languages),
            snippet_width=0,
            language=language,
            mode="both" if mode == "both" else "meaning",
        )
        vector = result.query_vectors[0]  # (d,)
        ids = [hit.id for hit in result.hits[0]]
        if mode == "words":
            ids = list(bm25_of_id)
        families = self._families(ids, k, vector, languages)
        if language is None and collection.guesser is not None:
            language = collection.guesser.guess(query)
        documents = []
        for family in self._with_snippets(families, vector):
            scores = [bm25_of_id[hit.id] for hit in family if hit.id in bm25_of_id]
            versions = _with_first_language(family, language)
            documents.append(FoundDocument(versions, max(scores, default=None)))
        is_truncated = result.report is not None and result.report.truncated > 0
        place = collection.map.place_of(vector)
        decoded = self._decoded(query, language)
        return SearchResult(query, place, documents, is_truncated, mode, decoded)

    def _decoded(self, query: str, language: str | None) -> dict[str, str]:
        """Return what the decoder writes from the vector of a query, by language."""
        embedder = self.collection.index.embedder
        texts: dict[str, str] = {}
        if not embedder.decoded_languages:
            return texts
        # The index scales vectors to length 1, and the decoder was trained on those of `encode`.
        vector = embedder.encode(query, language=language, show_progress_bar=False)
        try:
            for code in embedder.decoded_languages:
                texts[code] = embedder.decode(vector, code, max_new_tokens=DECODED_TOKENS)[0]
        except (TmdeError, OSError):  # The hits do not need it.
            return {}
        return texts

    def _scores_by_words(self, query: str, k: int, languages: Sequence[str]) -> dict[str, float]:
        """Return the BM25 scores of the k best documents by id, the best first."""
        result = self.collection.index.search_queries(
            [query], k, _filter(languages), snippet_width=0, mode="words"
        )
        return {hit.id: hit.score for hit in result.hits[0]}

    def _families(
        self, ids: list[str], k: int, vector: np.ndarray, languages: Sequence[str]
    ) -> list[list[Hit]]:
        """Return the first k documents of a ranking, each as the hits of all its versions."""
        hits = self._hits(ids, vector)
        if self.collection.has_translations:
            return self._with_translations(hits, k, vector, languages)
        return [[hit] for hit in hits[:k]]

    def _hits(self, ids: list[str], vector: np.ndarray) -> list[Hit]:
        """Return documents with their cosines to a vector, (d,)."""
        return self.collection.index.documents(ids, vector)

    def _with_translations(
        self, hits: Sequence[Hit], k: int, vector: np.ndarray, languages: Sequence[str]
    ) -> list[list[Hit]]:
        """Return the first k documents of a ranking, each with all its translations.

        Args:
            hits: The ranking, with several translations of a document.
            k: The number of documents.
            vector: The vector of the query, (d,).
            languages: The languages of the translations.
        """
        hits_of_document: dict[str, list[Hit]] = {}
        for hit in hits:
            document = _document_of(hit)
            if document in hits_of_document or len(hits_of_document) < k:
                hits_of_document.setdefault(document, []).append(hit)
        known_ids = {hit.id for hit in hits}
        if not hits_of_document:
            return []
        wanted = {DOCUMENT_FIELD: list(hits_of_document), "language": list(languages)}
        count = len(hits_of_document) * len(languages)
        translations = self.collection.index.search_queries(
            vector[None], count, wanted, snippet_width=0
        )
        for hit in translations.hits[0]:
            if hit.id not in known_ids:
                hits_of_document[_document_of(hit)].append(hit)
        return list(hits_of_document.values())

    def _with_snippets(self, families: list[list[Hit]], vector: np.ndarray) -> list[list[Hit]]:
        """Return hits with the sentence nearest to a vector, (d,)."""
        hits = list(chain.from_iterable(families))
        texts = []
        languages = []
        for hit in hits:
            texts.append(hit.passage)
            languages.append(hit.metadata.get("language"))
        embedder = self.collection.index.embedder
        sentences = nearest_sentences(texts, languages, vector, embedder)
        hit_of_id = {}
        for hit, sentence in zip(hits, sentences, strict=True):
            snippet = shortened(without_markup(sentence), SNIPPET_WIDTH)
            hit_of_id[hit.id] = replace(hit, snippet=snippet)
        result = []
        for family in families:
            result.append([hit_of_id[hit.id] for hit in family])
        return result


def _check_search(collection: Collection, query: str, languages: Sequence[str]) -> None:
    """Raise TmdeError if the query or the languages of the hits are empty."""
    if not query.strip():
        raise TmdeError("The query is empty: type a text in any language.")
    if collection.languages and not languages:
        raise TmdeError("No language is selected for the hits: check at least one.")


def _filter(languages: Sequence[str]) -> dict[str, Any] | None:
    """Return the filter of an index by languages, "" for none; None if no language is chosen."""
    if not languages:
        return None
    return {"language": [code or None for code in languages]}


def is_short(hit: Hit) -> bool:
    """Return whether the whole text of a hit is shown, with its nearest sentence marked."""
    return len(hit.text.strip()) <= SNIPPET_WIDTH and hit.snippet in hit.text


def _document_of(hit: Hit) -> str:
    """Return what translations of a document share; the id of a document that has none."""
    return as_text(hit.metadata.get(DOCUMENT_FIELD)) or hit.id


def _with_first_language(family: list[Hit], language: str | None) -> list[Hit]:
    """Return translations, that in one language first, others by their cosines."""
    return sorted(
        family, key=lambda hit: (as_text(hit.metadata.get("language")) != language, -hit.score)
    )
