"""Translation retrieval: is the nearest vector of the other language the translation?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tmde.documents.ranks import TiedRanks, tied_ranks
from tmde.documents.unit_rows import Matrix
from tmde.eval.lawdr_system import lawdr_measures, with_lawdr
from tmde.eval.metrics.translation_retrieval.translation_retrieval import rank_scores
from tmde.eval.results import Cell
from tmde.eval.systems import System
from tmde.eval.tasks import RetrievalData, TaskError


@dataclass(frozen=True)
class RetrievalPool:
    """Texts of two languages, translations at equal positions, none of them twice."""

    source_language: str
    target_language: str
    sources: list[str]
    targets: list[str]


def retrieval_pool(
    rows: list[dict[str, str | None]], source: str, target: str, size: int = 1000
) -> RetrievalPool:
    """Choose the first rows that have both languages and repeat no text of either.

    Repeated texts are left out, so that no text has two right answers or counts twice.

    Args:
        rows: Texts by language.
        source: The source language.
        target: The target language.
        size: At most so many rows are chosen.
    """
    source_texts = [row.get(source) for row in rows]
    target_texts = [row.get(target) for row in rows]
    positions = unrepeated_rows(source_texts, target_texts)[:size]
    return RetrievalPool(
        source,
        target,
        sources=texts_at(positions, source_texts),
        targets=texts_at(positions, target_texts),
    )


def unrepeated_rows(sources: Iterable[str | None], targets: Iterable[str | None]) -> list[int]:
    """Return the positions of complete pairs that repeat no text of a pair chosen before."""
    seen_sources: set[str] = set()
    seen_targets: set[str] = set()
    positions = []
    for position, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if not source or not target:
            continue
        if source in seen_sources or target in seen_targets:
            continue
        seen_sources.add(source)
        seen_targets.add(target)
        positions.append(position)
    return positions


def texts_at(positions: Iterable[int], texts: Sequence[str | None]) -> list[str]:
    """Return the texts at positions none of which lacks one."""
    chosen_texts = []
    for position in positions:
        text = texts[position]
        if text is not None:
            chosen_texts.append(text)
    return chosen_texts


def precision_at_1(sources: np.ndarray, targets: np.ndarray) -> float:
    """Return the share of vectors whose nearest of the other side, by cosine, is the translation.

    Args:
        sources: (n, d).
        targets: (n, d), their translations at equal rows.

    Returns:
        The mean of both search directions, between 0 and 1; 0 for an empty pool. Ties count as in
        `evaluate_retrieval`.
    """
    if len(sources) == 0:
        return 0.0
    translations = np.arange(len(sources))
    forward_ranks = tied_ranks(sources, targets, translations)
    backward_ranks = tied_ranks(targets, sources, translations)
    precisions = [forward_ranks.chance_within(1), backward_ranks.chance_within(1)]
    return float(np.mean(precisions))


def evaluate_retrieval(
    data: RetrievalData,
    system: System,
    scoring: str = "cosine",
    margin: str = "ratio",
    k: int = 4,
    max_queries: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> list[Cell]:
    """Evaluate translation retrieval (precision at 1) for all ordered language pairs.

    The pool of a language pair contains the rows that have both languages and repeat no text.
    Source texts are the queries, target texts the candidates. A translation that ties with t other
    candidates for first place counts 1 / (t + 1) (see [`~tmde.documents.ranks.TiedRanks`]).

    Args:
        data: Aligned texts. With `lawdr`, an embedder represents them with LAWDR.
        system: The system to evaluate; it may be fitted to both sides of a pair's pool.
        scoring: `cosine`, or a margin, `ratio` or `distance`.
        margin: The score of the error rate (xsim; Artetxe and Schwenk, 2019, arXiv 1811.01136).
        k: The number of neighbors for a margin.
        max_queries: The number of random queries per pair; all targets remain candidates. 2,000
            with a pool of 200,000 is the XSR protocol of Mao et al. (2021). None uses all rows.
        seed: The seed of the draw.
        progress: A function called with a line of text before each pair.

    Returns:
        One cell per language pair with at least two rows. `value` is precision at 1. `extra`
        contains `mrr` and `recall_at_10` by `scoring`, `error_rate` and `precision_at_1_margin` by
        `margin`, `size` (queries), `candidates`, `left_out` (rows that repeat an earlier text) and,
        with LAWDR, `debiased_rank` (directions removed).

    Raises:
        TaskError: No pair has two rows.
        TmdeError: The scoring or margin is unknown, `k` is below 1, or a vector is not finite.
    """
    system = with_lawdr(system, data.lawdr, data.texts)
    cells = []
    for source, target in itertools.permutations(data.languages, 2):
        rows = unrepeated_rows(data.texts[source], data.texts[target])
        if len(rows) < 2:
            continue
        if progress is not None:
            progress(f"{source} -> {target}: {len(rows)} rows")
        query_rows = draw_queries(rows, max_queries, seed)
        queries, candidates = _vectors_of_pair(data, system, source, target, rows, query_rows)
        translations = np.searchsorted(rows, query_rows)
        ranks = tied_ranks(queries, candidates, translations, scoring, k)
        margin_ranks = ranks
        if margin != scoring:
            margin_ranks = tied_ranks(queries, candidates, translations, margin, k)
        cell = _cell(data, source, target, rows, query_rows, ranks, margin_ranks)
        cell.extra.update(lawdr_measures(system))
        cells.append(cell)
    if not cells:
        listed = ", ".join(data.languages) or "(none)"
        raise TaskError(
            f"Found no language pair with 2 common rows among {listed}, expected at least one"
        )
    return cells


def draw_queries(rows: list[int], max_queries: int | None, seed: int) -> list[int]:
    """Return the rows of the queries, in order.

    Args:
        rows: All rows, in order.
        max_queries: At most so many are drawn at random; None for all.
        seed: The seed of the draw.
    """
    if max_queries is None or max_queries >= len(rows):
        return rows
    drawn = np.random.default_rng(seed).choice(rows, max_queries, replace=False)
    return sorted(drawn.tolist())


def _vectors_of_pair(
    data: RetrievalData,
    system: System,
    source: str,
    target: str,
    rows: list[int],
    query_rows: list[int],
) -> tuple[Matrix, Matrix]:
    """Return the vectors of the queries (q, d), and of the candidates (n, d)."""
    source_texts = data.texts[source]
    target_texts = data.texts[target]
    pool_sources = texts_at(rows, source_texts)
    pool_targets = texts_at(rows, target_texts)
    fit_on = pool_sources + pool_targets
    queries = vectors_of_rows(system, source_texts, fit_on, source, query_rows)
    candidates = vectors_of_rows(system, target_texts, fit_on, target, rows)
    return queries, candidates


def vectors_of_rows(
    system: System,
    texts: Sequence[str | None],
    fit_on: list[str],
    language: str,
    rows: list[int],
) -> Matrix:
    """Return vectors (len(rows), d) of some texts of a language.

    The system gets all of the language's texts for every pair, because it keeps what it knows by
    list of texts.
    """
    rows_with_text = [row for row, text in enumerate(texts) if text]
    vectors = system.represent(texts_at(rows_with_text, texts), fit_on, language)
    return vectors[np.searchsorted(rows_with_text, rows)]


def _cell(
    data: RetrievalData,
    source: str,
    target: str,
    rows: list[int],
    query_rows: list[int],
    ranks: TiedRanks,
    margin_ranks: TiedRanks,
) -> Cell:
    """Return the scores of one pair of languages."""
    scores = rank_scores(ranks)
    margin_precision = rank_scores(margin_ranks)["precision_at_1"]
    complete_count = 0
    for source_text, target_text in zip(data.texts[source], data.texts[target], strict=True):
        if source_text and target_text:
            complete_count += 1
    return Cell(
        source=source,
        target=target,
        metric="precision_at_1",
        value=scores["precision_at_1"],
        ids=[data.ids[row] for row in query_rows],
        outcomes=ranks.chance_within(1),
        chance=1 / len(rows),
        extra={
            "mrr": scores["mrr"],
            "recall_at_10": scores["recall_at_10"],
            "left_out": complete_count - len(rows),
            "precision_at_1_margin": margin_precision,
            "error_rate": 1 - margin_precision,
            "size": len(query_rows),
            "candidates": len(rows),
        },
    )
