"""Nearest neighbors by cosine: exact, or approximate by a graph if exact search takes too long."""

from __future__ import annotations

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.exact_search import exact_neighbors
from tmde.documents.neighbor_graph import LAST_EFFORT, RECALL, SHARD, graph_neighbors
from tmde.documents.unit_rows import Matrix, two_sides

SEARCHES = ("auto", "exact", "hnsw")
EXACT_COST = 1e13  # n m d of 100,000 x 100,000 x 1,024, which takes some 4 minutes on one core
# Candidates for each step of a walk through the graph. With fewer, exact search is faster.
WORTHWHILE = 400


def find_neighbors(
    queries: Matrix, candidates: Matrix, k: int, search: str = "exact"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the `k` candidates of highest cosine to each query.

    An approximate search is warned of, with its recall. `hnsw` is a graph that a query walks along,
    with vectors in 8 bits; see [`~tmde.documents.neighbor_graph`]. How far a query walks is doubled
    until 95 % of the exact neighbors of 256 random queries are found. `auto` is `exact` up to
    n m d = 1e13, and for sparse rows; beyond, it is `hnsw`, unless the walk would have to be so
    long that exact search is faster.

    Args:
        queries: (n, d), dense or sparse.
        candidates: (m, d), of the same kind.
        k: The number of neighbors; all m candidates if there are fewer.
        search: `exact`, `hnsw` or `auto`.

    Returns:
        Cosines (n, min(k, m)) float32, falling, and row numbers of the candidates (n, min(k, m))
        int64. The cosines are exact, whatever the search.

    Raises:
        TmdeError: Unknown search, a graph of sparse rows, `k` below 1, no rows, different
            dimensions, or numbers that are not finite.
        ImportError: `hnsw` without faiss.
    """
    if search not in SEARCHES or k < 1:
        raise TmdeError(
            f"search, k: found {search!r}, {k}, "
            f"expected one of {', '.join(SEARCHES)}, and at least 1"
        )
    query_rows, candidate_rows = two_sides(("first", queries), ("second", candidates))
    k = min(k, len(candidate_rows))
    if search == "hnsw":
        if candidate_rows.is_sparse:
            raise TmdeError(
                "search: found 'hnsw' for sparse rows, "
                "expected exact or auto: faiss indexes dense ones"
            )
        neighbors = graph_neighbors(query_rows, candidate_rows, k, LAST_EFFORT, least_recall=0.0)
        assert neighbors is not None  # No recall is below 0.
        return neighbors
    cost = len(query_rows) * len(candidate_rows) * candidate_rows.shape[1]
    if search == "auto" and cost > EXACT_COST and not candidate_rows.is_sparse:
        # Longer walks take longer than exact search.
        graph_size = min(len(candidate_rows), SHARD)
        last_effort = min(graph_size // WORTHWHILE, LAST_EFFORT)
        neighbors = graph_neighbors(query_rows, candidate_rows, k, last_effort, RECALL)
        if neighbors is not None:
            return neighbors
    return exact_neighbors(query_rows, candidate_rows, k)
