"""Documents with topics in five languages, the same ones in each: classification, and retrieval of translations."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .base import ClassificationData, Provenance, RetrievalData, Task
from .sources import (
    check_parallel,
    choose_languages,
    labelled_splits,
    named_files,
    provenance_of,
    require_splits,
    source_of,
)

LOCAL_NAMES = ("eval/topic_documents.parquet", "topic_documents.parquet")
PROVENANCE = Provenance(
    citation="Microsoft Corporation and contributors, documentation of Dynamics 365 Finance and Operations "
    "(bilingual editions), 2021; reduced to plain text",
    licence="CC BY 4.0",
    url="https://github.com/MicrosoftDocs/Dynamics-365-Operations.de-de",
)
ADVICE = "Pass source= with topic_documents.parquet, its folder, or a Hub dataset with its columns."


def _provenance(task: Task, source: str, split: str) -> Provenance:
    """Only files of the benchmark's name count as copies of it: any documents may have these columns."""
    copy = os.path.basename(source) == os.path.basename(LOCAL_NAMES[0]) or bool(named_files(task, source))
    return provenance_of(task, source, PROVENANCE, split, copy=copy)


class TopicDocuments(Task):
    """Folder of a documentation page from its title and text; the same pages, translated, in all languages."""

    name = "topic_documents"
    description = "documentation pages, 5 classes, 5 languages, parallel"
    languages = ("de", "en", "es", "fr", "it")
    local_names = LOCAL_NAMES

    def load(
        self,
        source: str | os.PathLike | None = None,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
    ) -> ClassificationData:
        """Splits `train` (400 documents), `dev` (200), `test` (800); a text is title, blank line, text.

        Args:
            source: A file, a folder or a Hub dataset with the columns doc_id, language, title, text, label, split.

        Raises:
            CorpusError: Missing languages, splits or columns, or translations with different labels.
        """
        source = source_of(self, source, ADVICE)
        documents = labelled_splits(self, source, "doc_id", "title", streaming)
        chosen = choose_languages(source, languages, documents, self.languages)
        names = ("train", "dev", "test")
        splits = require_splits(source, documents, chosen, names)
        check_parallel(source, splits, names)
        return ClassificationData(splits, _provenance(self, source, "test"))


class DocumentRetrieval(Task):
    """The documents of one split of [`TopicDocuments`], to find the translations of."""

    name = "document_retrieval"
    description = "translations of documentation pages, 5 languages"
    languages = ("de", "en", "es", "fr", "it")
    local_names = LOCAL_NAMES

    def load(
        self,
        source: str | os.PathLike | None = None,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
        split: str = "test",
    ) -> RetrievalData:
        """Documents aligned by `doc_id`, in the order of the first language.

        Args:
            source: As for [`TopicDocuments`].
            split: Which documents.

        Raises:
            CorpusError: Missing languages, split or columns.
        """
        source = source_of(self, source, ADVICE)
        documents = labelled_splits(self, source, "doc_id", "title", streaming)
        chosen = choose_languages(source, languages, documents, self.languages)
        found = {
            language: by_name[split]
            for language, by_name in require_splits(source, documents, chosen, [split]).items()
        }
        texts = {language: dict(zip(rows.ids, rows.texts, strict=True)) for language, rows in found.items()}
        ids = list(dict.fromkeys(doc_id for by_id in texts.values() for doc_id in by_id))
        aligned = {language: [by_id.get(doc_id) for doc_id in ids] for language, by_id in texts.items()}
        return RetrievalData(ids, aligned, _provenance(self, source, split))
