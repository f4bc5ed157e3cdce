"""Documents with topics in five languages, the same in each: classification, and retrieval."""

from __future__ import annotations

import os

from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import choose_languages, read_columns, split_of

from .base import (
    ClassificationData,
    Languages,
    LawdrRank,
    Provenance,
    RetrievalData,
    Source,
    Task,
)
from .sources import (
    Splits,
    check_parallel,
    labeled_splits,
    lawdr_settings,
    named_files,
    open_tables,
    provenance_of,
    read_id,
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

    def _provenance_of(self, source: str, split: str | None) -> Provenance:
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
    """Documents to find the translations of, such as those of one split of [`TopicDocuments`]."""

    name = "document_retrieval"
    description = "translations of whole documents, such as documentation pages, 5 languages"
    needs = "a file with doc_id, language and text; optionally title and split"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        split: str = "test",
        lawdr_rank: LawdrRank = None,
        lawdr_weighted: bool = True,
    ) -> RetrievalData:
        """Load documents aligned by `doc_id`, in the order of the first language.

        Args:
            source: A file, a folder or a Hub dataset with the columns doc_id, language and text.
                Titles of a column title are put before the texts, with a blank line between.
            languages: None for those of the task that the source has.
            streaming: Read the Hub without downloading whole files first.
            split: The split of the documents. A file without a column split has only this one.
            lawdr_rank: See [`LawdrSettings`]; None if LAWDR is not used.
            lawdr_weighted: See [`LawdrSettings`].

        Raises:
            CorpusError: Missing languages or columns, a split without documents, a document that
                comes twice in a language, or bad settings of LAWDR.
        """
        lawdr = lawdr_settings(self, lawdr_rank, lawdr_weighted)
        source = source_of(self, source, ADVICE)
        text_of, has_splits = _read_documents(self, source, streaming, split)
        chosen = choose_languages(source, languages, text_of, self.languages)
        ids: dict[str, None] = {}
        for language in chosen:
            ids.update(dict.fromkeys(text_of[language]))
        texts = {}
        for language in chosen:
            texts[language] = [text_of[language].get(doc_id) for doc_id in ids]
        provenance = self._provenance_of(source, split if has_splits else None)
        return RetrievalData(list(ids), texts, provenance, lawdr=lawdr)


def _read_documents(
    task: Task, source: str, streaming: bool, split: str
) -> tuple[dict[str, dict[str, str]], bool]:
    """Return the documents of a split by language and id, and whether the source has splits.

    Raises:
        CorpusError: A column is missing, a value is bad, or there are no documents.
    """
    text_of: dict[str, dict[str, str]] = {}
    has_splits = False
    for table in open_tables(task, source, streaming):
        numbers, columns = read_columns(table, ["language", "text"], ["doc_id"])
        if table.split is not None or "split" in columns:
            has_splits = True
        splits = columns.get("split", [table.split or split] * len(numbers))
        titles = columns.get("title", [None] * len(numbers))
        for row, number in enumerate(numbers):
            if split_of(str(splits[row])) != split_of(split):
                continue
            language = columns["language"][row]
            doc_id = read_id(table.place, number, "doc_id", columns["doc_id"][row])
            documents = text_of.setdefault(language, {})
            if doc_id in documents:
                raise bad_value(
                    table.place,
                    number,
                    "doc_id",
                    doc_id,
                    f"an id that no other document in {language} has",
                    "Delete the row, or correct it.",
                )
            documents[doc_id] = columns["text"][row]
            if titles[row]:
                documents[doc_id] = f"{titles[row]}\n\n{documents[doc_id]}"
    if not text_of:
        raise bad_value(
            source,
            None,
            "split",
            Unquoted(f"no documents of split {split!r}"),
            "some",
            f"Pass another one, such as --set {task.name}.split=dev.",
        )
    return text_of, has_splits
