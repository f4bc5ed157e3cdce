"""Question retrieval: is the paragraph that answers a question the nearest one?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tmde.documents.ranks import TiedRanks, tied_ranks
from tmde.eval.metrics.translation_retrieval.translation_retrieval import rank_scores
from tmde.eval.results import Cell
from tmde.eval.retrieval import draw_queries
from tmde.eval.systems import System
from tmde.eval.tasks import QuestionData, Questions, TaskError


def evaluate_questions(
    data: QuestionData,
    system: System,
    scoring: str = "cosine",
    k: int = 4,
    max_queries: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> list[Cell]:
    """Evaluate how often the paragraph that answers a question ranks first.

    Questions of each language search the distinct paragraphs of every language, including their
    own. A paragraph that ties with t others for first place counts 1 / (t + 1) (see
    [`~tmde.documents.ranks.TiedRanks`]).

    Args:
        data: Questions and paragraphs.
        system: The system to evaluate, with questions as queries and paragraphs as documents; it
            may be fitted to the questions and paragraphs of a pair.
        scoring: `cosine`, or a margin, `ratio` or `distance`.
        k: The number of neighbors for a margin.
        max_queries: The number of random questions per language; None for all.
        seed: The seed of the draw.
        progress: A function called with a line of text before each pair.

    Returns:
        One cell per pair of question and paragraph language that has a question with its paragraph
        and a second paragraph. `value` is precision at 1, and `ids` are paragraph ids. `extra`
        contains `mrr`, `recall_at_10`, `size` (questions), `candidates` and `unanswered` (questions
        without a paragraph in the other language).

    Raises:
        TaskError: No language pair has such a question.
        TmdeError: The scoring is unknown, `k` is below 1, or a vector is not finite.
    """
    cells = []
    for source, target in itertools.product(data.languages, repeat=2):
        search = _Search.of(data.questions[source], data.questions[target].paragraphs)
        if not search.answered_rows or len(search.candidates) < 2:
            continue
        rows = draw_queries(search.answered_rows, max_queries, seed)
        if progress is not None:
            progress(f"{source} -> {target}: {len(rows)} questions")
        # A system keeps what it knows by list of texts, so that it gets all questions each time.
        fit_on = search.questions + search.candidates
        queries = system.represent(search.questions, fit_on, source, role="query")[rows]
        documents = system.represent(search.candidates, fit_on, target, role="document")
        targets = [search.target_of_row[row] for row in rows]
        ranks = tied_ranks(queries, documents, targets, scoring, k)
        paragraph_ids = [data.questions[source].paragraph_ids[row] for row in rows]
        cells.append(_cell(source, target, search, paragraph_ids, ranks))
    if not cells:
        listed = ", ".join(data.languages) or "(none)"
        raise TaskError(
            "Found no question with its paragraph and a second paragraph in the languages "
            f"{listed}, expected at least one"
        )
    return cells


@dataclass(frozen=True)
class _Search:
    """The questions of one language, and the paragraphs of a language among which they search.

    Attributes:
        questions: All questions.
        candidates: The different paragraphs.
        target_of_row: By row of a question, the row of its paragraph among the candidates.
    """

    questions: list[str]
    candidates: list[str]
    target_of_row: dict[int, int]

    @classmethod
    def of(cls, questions: Questions, paragraphs: Mapping[str, str]) -> _Search:
        """Find the paragraphs of questions."""
        # Paragraphs of different ids may have the same text, which is one candidate.
        row_of_text: dict[str, int] = {}
        for text in paragraphs.values():
            row_of_text.setdefault(text, len(row_of_text))
        target_of_row = {}
        for row, paragraph_id in enumerate(questions.paragraph_ids):
            if paragraph_id in paragraphs:
                target_of_row[row] = row_of_text[paragraphs[paragraph_id]]
        return cls(list(questions.texts), list(row_of_text), target_of_row)

    @property
    def answered_rows(self) -> list[int]:
        """The rows of the questions whose paragraph is among the candidates."""
        return list(self.target_of_row)


def _cell(
    source: str,
    target: str,
    search: _Search,
    paragraph_ids: list[str],
    ranks: TiedRanks,
) -> Cell:
    """Return the scores of one pair of languages."""
    scores = rank_scores(ranks)
    return Cell(
        source=source,
        target=target,
        metric="question_precision_at_1",
        value=scores["precision_at_1"],
        ids=paragraph_ids,
        outcomes=ranks.chance_within(1),
        chance=1 / len(search.candidates),
        extra={
            "mrr": scores["mrr"],
            "recall_at_10": scores["recall_at_10"],
            "size": len(paragraph_ids),
            "candidates": len(search.candidates),
            "unanswered": len(search.questions) - len(search.target_of_row),
        },
    )
