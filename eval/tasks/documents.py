"""Documents with topics in five languages, the same in each: classification, and retrieval."""

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
FILE_NAME = "topic_documents.parquet"


class _DocumentationPages(Task):
    """A task on documentation pages, which are translations of each other."""

    provenance = Provenance(
        citation="Microsoft Corporation and contributors, documentation of Dynamics 365 Finance "
        "and Operations (bilingual editions), 2021; reduced to plain text",
        license="CC BY 4.0",
        url="https://github.com/MicrosoftDocs/Dynamics-365-Operations.de-de",
    )
    languages = ("de", "en", "es", "fr", "it")
    local_names = (f"eval/{FILE_NAME}", FILE_NAME)
    needs = "a file with doc_id, language, title, text, label and split"

    def _read_splits(self, source: str, languages: Languages, streaming: bool) -> Splits:
        """Return the documents of the chosen languages."""
        splits = labeled_splits(self, source, "doc_id", "title", streaming)
        chosen = choose_languages(source, languages, splits, self.languages)
        return {language: splits[language] for language in chosen}

    def _provenance_of(self, source: str, split: str) -> Provenance:
        """Return where documents come from.

        Only files of the benchmark's name count as copies of it: any documents may have these
        columns.
        """
        is_copy = os.path.basename(source) == FILE_NAME or bool(named_files(self, source))
        return provenance_of(self, source, split, is_copy)


class TopicDocuments(_DocumentationPages):
    """Folder of a documentation page from its title and text.

    The pages of all languages are translations of each other.
    """

    name = "topic_documents"
    description = "documentation pages, 5 classes, 5 languages, parallel"

    def load(
        self, source: Source = None, languages: Languages = None, streaming: bool = False
    ) -> ClassificationData:
        """Load the splits `train` (400 documents), `dev` (200) and `test` (800).

        A text is title, blank line, text.

        Args:
            source: A file, a folder or a Hub dataset with the columns doc_id, language, title,
                text, label, split.
            languages: None for those of the task that the source has.
            streaming: Read the Hub without downloading whole files first.

        Raises:
            CorpusError: Missing languages or columns, or translations with different labels.
        """
        source = source_of(self, source, ADVICE)
        splits = self._read_splits(source, languages, streaming)
        check_parallel(source, splits)
        return ClassificationData(splits, self._provenance_of(source, "test"))


class DocumentRetrieval(_DocumentationPages):
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
        """Load documents aligned by `doc_id`, in the order of the first language.

        Args:
            source: As for [`TopicDocuments`].
            languages: None for those of the task that the source has.
            streaming: Read the Hub without downloading whole files first.
            split: The split of the documents.

        Raises:
            CorpusError: Missing languages or columns.
        """
        source = source_of(self, source, ADVICE)
        text_of: dict[str, dict[str, str]] = {}
        for language, by_name in self._read_splits(source, languages, streaming).items():
            if split in by_name:
                documents = by_name[split]
                text_of[language] = dict(zip(documents.ids, documents.texts, strict=True))
        ids: dict[str, None] = {}
        for by_id in text_of.values():
            ids.update(dict.fromkeys(by_id))
        texts = {}
        for language, by_id in text_of.items():
            texts[language] = [by_id.get(doc_id) for doc_id in ids]
        return RetrievalData(list(ids), texts, self._provenance_of(source, split))
