"""Translation retrieval: is the nearest vector of the other language the translation?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tmde.documents.neighbours import Matrix, target_ranks
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
    """Up to `size` of the first rows that have both languages and repeat no text of either.

    Repeated texts are left out: their vectors are equal, so their order is arbitrary.
    """
    pairs = [(row.get(source), row.get(target)) for row in rows]
    kept = [pairs[position] for position in _unrepeated(pairs)[:size]]
    return RetrievalPool(source, target, [pair[0] for pair in kept], [pair[1] for pair in kept])


def _unrepeated(pairs: Iterable[tuple[str | None, str | None]]) -> list[int]:
    """Positions of the pairs that are complete and repeat no text of a pair chosen before."""
    sources, targets, kept = set(), set(), []
    for position, (source, target) in enumerate(pairs):
        if source and target and source not in sources and target not in targets:
            sources.add(source)
            targets.add(target)
            kept.append(position)
    return kept


def precision_at_1(sources: np.ndarray, targets: np.ndarray) -> float:
    """Share of vectors whose nearest of the other side, by cosine, is the one at the same position.

    Args:
        sources, targets: (n, d), translations at equal rows.

    Returns:
        The mean of both search directions, between 0 and 1; 0 for an empty pool.
    """
    if not len(sources):
        return 0.0
    right = np.arange(len(sources))
    found = [target_ranks(*sides, right) == 1 for sides in ((sources, targets), (targets, sources))]
    return float(np.mean(found))


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
    """Precision at 1 of finding each text's translation, for all ordered pairs of languages.

    The pool of a pair is the rows that have both languages and repeat no text of either. Its source texts are the
    queries; the candidates are its target texts. A candidate that ties with the right one counts as before it (see
    [`~tmde.documents.neighbours.target_ranks`]). Each text is represented once, however many pairs it is in.

    Args:
        data: Aligned texts.
        system: What represents texts; it may be fitted on both sides of a pair's pool.
        scoring: `cosine`, or a margin: `ratio`, `distance`.
        margin: Scoring of the error rate (the xsim of Artetxe & Schwenk 2019, arXiv 1811.01136).
        k: Neighbors of a margin.
        max_queries: Rows of a pool whose sources are queries, drawn at random; all its targets stay candidates. With
            2,000 and a pool of 200,000 this is the protocol of XSR (paper 002).
        seed: Of that draw. Rows of a file often stand in the order of their sources.
        progress: Called with a line before each pair.

    Returns:
        One cell a pair with at least two rows. `value` is precision at 1 by `scoring`; `extra` holds `mrr` and
        `recall_at_10` by `scoring`, `error_rate` and `precision_at_1_margin` by `margin`, `size` (queries),
        `candidates`, and `left_out`: rows that have both languages, but repeat a text of an earlier row.

    Raises:
        TaskError: No pair has two rows.
        ValueError: Unknown scoring or margin; `k` below 1; vectors that are not finite.
    """
    cells = []
    for source, target in itertools.permutations(data.languages, 2):
        texts = data.texts[source], data.texts[target]
        rows = _unrepeated(zip(*texts, strict=True))
        if len(rows) < 2:
            continue
        if progress is not None:
            progress(f"{source} -> {target}: {len(rows)} rows")
        asked = rows
        if max_queries is not None and max_queries < len(rows):
            asked = np.random.default_rng(seed).choice(rows, max_queries, replace=False)
            asked = sorted(asked.tolist())
        fit_on = [column[row] for column in texts for row in rows]
        queries = _vectors_of(system, texts[0], fit_on, source, asked)
        candidates = _vectors_of(system, texts[1], fit_on, target, rows)
        right = np.searchsorted(rows, asked)
        ranks = target_ranks(queries, candidates, right, scoring, k)
        scores = rank_scores(ranks)
        by_margin = rank_scores(
            ranks if margin == scoring else target_ranks(queries, candidates, right, margin, k)
        )
        cells.append(
            Cell(
                source=source,
                target=target,
                metric="precision_at_1",
                value=scores.pop("precision_at_1"),
                ids=[data.ids[row] for row in asked],
                outcomes=(ranks == 1).astype(float),
                chance=1 / len(rows),
                extra={
                    **scores,
                    "left_out": sum(all(both) for both in zip(*texts, strict=True)) - len(rows),
                    "precision_at_1_margin": by_margin["precision_at_1"],
                    "error_rate": 1 - by_margin["precision_at_1"],
                    "size": len(asked),
                    "candidates": len(rows),
                },
            )
        )
    if not cells:
        listed = ", ".join(data.languages) or "(none)"
        raise TaskError(
            f"Found no pair with 2 rows in common among the languages {listed}, expected at least one"
        )
    return cells


def _vectors_of(
    system: System,
    column: Sequence[str | None],
    fit_on: list[str],
    language: str,
    rows: Sequence[int],
) -> Matrix:
    """Vectors (len(rows), d) of some texts of a language.

    The system gets all of the language's texts for every pair, because it keeps what it knows by list of texts.
    """
    there = [row for row, text in enumerate(column) if text]
    return system.represent([column[row] for row in there], fit_on, language)[
        np.searchsorted(there, rows)
    ]
