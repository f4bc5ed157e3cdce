"""Translation retrieval: is the nearest vector of the other language the translation?"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RetrievalPool:
    """Texts of two languages, translations at equal positions, none of them twice."""

    source_language: str
    target_language: str
    sources: list[str]
    targets: list[str]


def retrieval_pool(rows: list[dict[str, str | None]], source: str, target: str, size: int = 1000) -> RetrievalPool:
    """Up to `size` of the first rows that have both languages and repeat no text of either.

    Repeated texts are left out because their vectors are equal, and which of them comes first says nothing.
    """
    seen: tuple[set[str], set[str]] = (set(), set())
    kept: list[tuple[str, str]] = []
    for row in rows:
        if len(kept) >= size:
            break
        pair = (row.get(source), row.get(target))
        if not all(pair) or any(text in known for text, known in zip(pair, seen, strict=True)):
            continue
        for text, known in zip(pair, seen, strict=True):
            known.add(text)
        kept.append(pair)
    return RetrievalPool(source, target, [pair[0] for pair in kept], [pair[1] for pair in kept])


def precision_at_1(sources: np.ndarray, targets: np.ndarray) -> float:
    """Share of vectors whose nearest of the other side, by cosine, is the one at the same position.

    Args:
        sources, targets: (n, d), translations at equal rows.

    Returns:
        The mean of both search directions, between 0 and 1; 0 for an empty pool.

    Raises:
        ValueError: If the shapes differ.
    """
    if sources.shape != targets.shape:
        raise ValueError(
            f"Retrieval needs as many sources as targets, found shapes {sources.shape} and {targets.shape}"
        )
    if not len(sources):
        return 0.0
    unit = [
        vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12) for vectors in (sources, targets)
    ]
    similarity = unit[0] @ unit[1].T  # (n, n)
    expected = np.arange(len(sources))
    forward = similarity.argmax(axis=1) == expected
    backward = similarity.argmax(axis=0) == expected
    return float((forward.mean() + backward.mean()) / 2)
