"""Documents with topics in five languages, the same ones in each: classification, and retrieval of translations."""

from __future__ import annotations

import os

from .base import ClassificationData, Languages, Provenance, RetrievalData, Source, Task
from .sources import (
    Splits,
    check_parallel,
    choose_languages,
    labeled_splits,
    named_files,
    provenance_of,
    source_of,
)

ADVICE = "Pass source= with topic_documents.parquet, its folder, or a Hub dataset with its columns."


class TopicDocuments(Task):
    """Folder of a documentation page from its title and text; the same pages, translated, in all languages."""

    name = "topic_documents"
    description = "documentation pages, 5 classes, 5 languages, parallel"
    provenance = Provenance(
        citation="Microsoft Corporation and contributors, documentation of Dynamics 365 Finance and Operations "
        "(bilingual editions), 2021; reduced to plain text",
        licence="CC BY 4.0",
        url="https://github.com/MicrosoftDocs/Dynamics-365-Operations.de-de",
    )
    languages = ("de", "en", "es", "fr", "it")
    local_names = ("eval/topic_documents.parquet", "topic_documents.parquet")

    def load(
        self, source: Source = None, languages: Languages = None, streaming: bool = False
    ) -> ClassificationData:
        """Splits `train` (400 documents), `dev` (200), `test` (800); a text is title, blank line, text.

        Args:
            source: A file, a folder or a Hub dataset with the columns doc_id, language, title, text, label, split.

        Raises:
            CorpusError: Missing languages or columns, or translations with different labels.
        """
        splits, provenance = self._read(source, languages, streaming, "test")
        check_parallel(provenance.source, splits)
        return ClassificationData(splits, provenance)

    def _read(
        self, source: Source, languages: Languages, streaming: bool, split: str
    ) -> tuple[Splits, Provenance]:
        source = source_of(self, source, ADVICE)
        documents = labeled_splits(self, source, "doc_id", "title", streaming)
        chosen = choose_languages(source, languages, documents, self.languages)
        # Only files of the benchmark's name count as copies of it: any documents may have these columns.
        copy = os.path.basename(source) == self.local_names[1] or bool(named_files(self, source))
        return {language: documents[language] for language in chosen}, provenance_of(
            self, source, split, copy
        )


class DocumentRetrieval(TopicDocuments):
    """The documents of one split of [`TopicDocuments`], to find the translations of."""

    name = "document_retrieval"
    description = "translations of documentation pages, 5 languages"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        split: str = "test",
    ) -> RetrievalData:
        """Documents aligned by `doc_id`, in the order of the first language.

        Args:
            source: As for [`TopicDocuments`].
            split: The split of the documents.

        Raises:
            CorpusError: Missing languages or columns.
        """
        splits, provenance = self._read(source, languages, streaming, split)
        found = {
            language: by_name[split] for language, by_name in splits.items() if split in by_name
        }
        texts = {
            language: dict(zip(rows.ids, rows.texts, strict=True))
            for language, rows in found.items()
        }
        ids = list(dict.fromkeys(doc_id for by_id in texts.values() for doc_id in by_id))
        aligned = {
            language: [by_id.get(doc_id) for doc_id in ids] for language, by_id in texts.items()
        }
        return RetrievalData(ids, aligned, provenance)
