"""How the vectors of parallel texts lie: their spectrum, their distances, and their language."""

from __future__ import annotations

from .base import GeometryData, Languages, Source, Task, TaskError
from .documents import DocumentRetrieval
from .parallel import SentenceRetrieval
from .sources import check_count, source_of
from .tatoeba import Tatoeba

_TEXTS_OF: dict[str, type[SentenceRetrieval | Tatoeba | DocumentRetrieval]] = {
    SentenceRetrieval.name: SentenceRetrieval,
    Tatoeba.name: Tatoeba,
    DocumentRetrieval.name: DocumentRetrieval,
}


class VectorGeometry(Task):
    """Measures of the vectors of a retrieval task, see `evaluate_geometry`."""

    name = "vector_geometry"
    description = "spectrum, Euclidean P@1 and a language classifier, on parallel text"
    needs = "the data of sentence_retrieval, tatoeba or document_retrieval"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        texts: str = SentenceRetrieval.name,
        max_rows: int = 1000,
    ) -> GeometryData:
        """Load the texts of a retrieval task.

        Args:
            source: As for the task that `texts` names.
            languages: None for all languages of the source.
            streaming: Read the Hub without downloading whole files first.
            texts: The task that reads the source: `sentence_retrieval`, `tatoeba` or
                `document_retrieval`.
            max_rows: The most rows of a pair of languages; the first ones are taken.

        Raises:
            TaskError: Another task.
            CorpusError: As the task that reads the source.
        """
        if texts not in _TEXTS_OF:
            raise TaskError(
                f"{self.name}.texts: found {texts!r}, expected one of {', '.join(_TEXTS_OF)}"
            )
        source = source_of(self, source, "Pass source= with parallel text.")
        check_count(self, "max_rows", max_rows)
        reader = _TEXTS_OF[texts]()
        if self.languages:
            # Those of the models.
            reader.languages = self.languages
        data = reader.load(source, languages, streaming)
        return GeometryData(data.ids, data.texts, data.provenance, max_rows)
