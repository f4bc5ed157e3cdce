"""Questions and the paragraphs that answer them, the same in several languages: XQuAD."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tmde.data.checks import bad_value
from tmde.data.labeled_tables import choose_languages, read_columns
from tmde.data.tables import Table

from .base import Languages, Provenance, QuestionData, Questions, Source, Task
from .sources import named_files, open_tables, provenance_of, read_id, source_of

TEXT_COLUMNS = ("language", "paragraph", "question")
ID_COLUMNS = ("paragraph_id", "question_id")
NAME_OF_COPIES = "xquad"


@dataclass
class _Rows:
    """The rows of one language that were read so far.

    Attributes:
        questions: The text of each question by its id.
        paragraph_ids: The id of the paragraph of each question by the id of the question.
        paragraphs: The text of each paragraph by its id.
    """

    questions: dict[str, str] = field(default_factory=dict)
    paragraph_ids: dict[str, str] = field(default_factory=dict)
    paragraphs: dict[str, str] = field(default_factory=dict)

    def as_questions(self) -> Questions:
        """Return the rows as the questions of a language."""
        return Questions(
            ids=list(self.questions),
            texts=list(self.questions.values()),
            paragraph_ids=list(self.paragraph_ids.values()),
            paragraphs=self.paragraphs,
        )


class QuestionRetrieval(Task):
    """The paragraph that answers a question, in the language of the question and in another.

    A paragraph answers several questions. Questions and paragraphs of different languages with one
    id are translations of each other.

    The benchmark is XQuAD (Artetxe et al., 2020): 240 paragraphs and 1,190 questions of the English
    SQuAD with professional translations into ten languages, and later Romanian. Its own task is to
    find the answer in the paragraph; here the paragraph itself is searched for, among all of a
    language. LAReQA (Roy et al., 2020) searches for the sentence of the answer among those of all
    languages, so that its numbers cannot be compared.
    """

    name = "question_retrieval"
    description = "the paragraph that answers a question, in the same and in other languages"
    provenance = Provenance(
        citation="Artetxe, Ruder and Yogatama, On the Cross-lingual Transferability of Monolingual "
        "Representations, 2020 (XQuAD); paragraphs and questions of SQuAD, Rajpurkar et al., 2016",
        license="CC BY-SA 4.0",
        url="https://github.com/google-deepmind/xquad",
    )
    languages = ()  # those of the data
    local_names = ("eval/xquad_dev.parquet", "xquad.parquet")
    needs = "a file with language, paragraph_id, paragraph, question_id and question"

    def load(
        self, source: Source = None, languages: Languages = None, streaming: bool = False
    ) -> QuestionData:
        """Load the questions and paragraphs of each language.

        Args:
            source: A parquet, JSONL, CSV or TSV file, a folder of such files, or a Hub dataset. Its
                columns are language, paragraph_id, paragraph, question_id and question. The
                paragraph is repeated in the row of each of its questions.
            languages: None for those of the source.
            streaming: Read the Hub without downloading whole files first.

        Raises:
            CorpusError: Missing languages or columns, an empty text, a question that comes twice, a
                paragraph with two texts, or a question whose paragraph differs between languages.
        """
        source = source_of(self, source, "Pass source= with XQuAD, or questions of your own.")
        rows_by_language: dict[str, _Rows] = {}
        paragraph_of_question: dict[str, str] = {}
        for table in open_tables(self, source, streaming):
            _read_table(table, rows_by_language, paragraph_of_question)
        questions = {}
        for language in choose_languages(source, languages, rows_by_language, self.languages):
            questions[language] = rows_by_language[language].as_questions()
        return QuestionData(questions, self._provenance_of(source))

    def _provenance_of(self, source: str) -> Provenance:
        """Return where questions come from.

        Only files that are named after XQuAD count as copies of it: any questions may have these
        columns.
        """
        has_its_name = os.path.basename(source).lower().startswith(NAME_OF_COPIES)
        is_copy = has_its_name or bool(named_files(self, source))
        return provenance_of(self, source, split=None, copy=is_copy)


def _read_table(
    table: Table, rows_by_language: dict[str, _Rows], paragraph_of_question: dict[str, str]
) -> None:
    """Add the rows of a table to those of their languages.

    Args:
        table: The table.
        rows_by_language: The rows of all tables that were read before.
        paragraph_of_question: By id of a question, the id of its paragraph in all languages.

    Raises:
        CorpusError: A row contradicts an earlier one.
    """
    numbers, columns = read_columns(table, TEXT_COLUMNS, ID_COLUMNS)
    for row, number in enumerate(numbers):
        question_id = read_id(table.place, number, "question_id", columns["question_id"][row])
        paragraph_id = read_id(table.place, number, "paragraph_id", columns["paragraph_id"][row])
        language = columns["language"][row]
        first_paragraph_id = paragraph_of_question.setdefault(question_id, paragraph_id)
        if paragraph_id != first_paragraph_id:
            raise bad_value(
                table.place,
                number,
                "paragraph_id",
                paragraph_id,
                f"{first_paragraph_id!r}, which question {question_id!r} has in an earlier row",
                "Give translations the same ids, and other questions other ids.",
            )
        rows = rows_by_language.setdefault(language, _Rows())
        if question_id in rows.questions:
            raise bad_value(
                table.place,
                number,
                "question_id",
                question_id,
                f"an id that no other question in {language} has",
                "Delete the row, or give the question another id.",
            )
        text = columns["paragraph"][row]
        first_text = rows.paragraphs.setdefault(paragraph_id, text)
        if text != first_text:
            raise bad_value(
                table.place,
                number,
                "paragraph",
                text,
                f"the text that paragraph {paragraph_id!r} has in an earlier row",
                "Give each paragraph its own paragraph_id.",
            )
        rows.questions[question_id] = columns["question"][row]
        rows.paragraph_ids[question_id] = paragraph_id
