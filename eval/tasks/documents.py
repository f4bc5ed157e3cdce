"""Documents with topics in five languages, the same ones in each: classification, and retrieval of translations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from modeling_tmde.data.checks import Words, bad_value
from modeling_tmde.data.files import read_columns

from .base import ClassificationData, Provenance, RetrievalData, Split, Task
from .sources import (
    check_parallel,
    choose_languages,
    named_files,
    open_tables,
    provenance_of,
    read_labels,
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


@dataclass(frozen=True)
class _Document:
    """A document in one language; `doc_id` is the same in all of them and, as it holds the label, in no text."""

    doc_id: str
    text: str
    label: str


Documents = dict[str, dict[str, list[_Document]]]  # by language and split


def _read_documents(task: Task, source: str, streaming: bool) -> Documents:
    """Read rows with the columns doc_id, language, title, text, label and, unless the source has splits, split."""
    documents: Documents = {}
    for table in open_tables(task, source, streaming):
        texts = ["doc_id", "language", "title", "text"]
        numbers, rows = read_columns(table, texts, ["label"], optional=["split"])
        labels = read_labels(table, "label", numbers, rows["label"])
        if "split" not in rows and table.split is None:
            found = Words(f"the columns {', '.join(rows)}")
            raise bad_value(table.place, None, "split", found, "also a column 'split'", "Add it.")
        names = rows.get("split") or [table.split] * len(labels)
        for doc_id, language, title, text, label, name in zip(
            *(rows[column] for column in texts), labels, names, strict=True
        ):
            by_split = documents.setdefault(language, {})
            name = "dev" if name == "validation" else name
            by_split.setdefault(name, []).append(_Document(doc_id, f"{title}\n\n{text}", label))
    return documents


def _split_of(source: str, language: str, name: str, documents: Documents) -> Split:
    found = documents[language].get(name)
    if found is None:
        there = f"one of the splits of {language}: {', '.join(map(str, documents[language]))}"
        raise bad_value(source, None, "split", name, there, "Add the missing split, or pass another source.")
    place = f"{source}, language {language}, split {name}"
    return Split(*([getattr(row, field) for row in found] for field in ("doc_id", "text", "label")), place=place)


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
        documents = _read_documents(self, source, streaming)
        chosen = choose_languages(source, languages, documents, self.languages)
        names = ("train", "dev", "test")
        splits = {
            language: {name: _split_of(source, language, name, documents) for name in names} for language in chosen
        }
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
        documents = _read_documents(self, source, streaming)
        chosen = choose_languages(source, languages, documents, self.languages)
        texts = {}
        for language in chosen:
            rows = _split_of(source, language, split, documents)
            texts[language] = dict(zip(rows.ids, rows.texts, strict=True))
        ids = list(dict.fromkeys(doc_id for by_id in texts.values() for doc_id in by_id))
        aligned = {language: [by_id.get(doc_id) for doc_id in ids] for language, by_id in texts.items()}
        return RetrievalData(ids, aligned, _provenance(self, source, split))
