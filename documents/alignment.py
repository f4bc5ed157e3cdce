"""Alignment of documents of two languages, one to one: by URL first, then by their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.competitive_matching import PairScorer, competitive_matching
from tmde.documents.neighbors import check_scoring, warn_without_ratio
from tmde.documents.unit_rows import Matrix
from tmde.documents.urls import group_by_website, match_urls

# Below it, a pair of documents may be no translation. Here F1 is highest on development pages and
# news, of which a sixth to all have a translation. Right pairs of single sentences are often below.
CLEAR_DISTINCTNESS = 0.25


class AlignedPair(NamedTuple):
    """A pair of documents.

    Attributes:
        first: The row number on the first side.
        second: The row number on the second side.
        score: The score of the pair.
        by_url: Whether the URLs matched.
        distinctness: How much nearer the documents are than the next-best match, from 0 to 1; see
            [`~tmde.documents.distinct_pairs`].
    """

    first: int
    second: int
    score: float
    by_url: bool
    distinctness: float


def align_documents(
    first: Matrix,
    second: Matrix,
    scoring: str = "ratio",
    k: int = 4,
    threshold: float | None = None,
    first_urls: Sequence[str] | None = None,
    second_urls: Sequence[str] | None = None,
    languages: Sequence[str] | None = None,
    same_domain: bool = False,
) -> list[AlignedPair]:
    """Pair documents one to one, greedily: the best pair first, then the best remaining one.

    This is the WMT16 protocol. Scores are float64 cosines, or the margins `ratio` and `distance` of
    Artetxe and Schwenk (2019, arXiv 1811.01136, section 3) over all documents of the other side.
    `ratio` is 2k times eq. 4 of LAWDR (Gong et al., 2021). A pair whose neighbors have a mean
    cosine of 1e-6 or less has no ratio; it ranks below all others, by cosine. Ties, to nine
    decimals, are broken by the order of rows.

    Args:
        first: (n, d), dense or sparse.
        second: (m, d), of the same kind. A row of zeros has cosine 0 to everything.
        scoring: `cosine`, `ratio` or `distance`.
        k: The number of neighbors for a margin, at most all documents of a side.
        threshold: The minimum score of a pair, unless URLs match. None keeps every pair.
        first_urls: The URL of each row of `first`, "" if unknown. Documents with URLs that differ
            only in language codes, and match no others, are paired first (Buck and Koehn, 2016).
        second_urls: The URL of each row of `second`.
        languages: The language codes to strip from URLs. Default: about thirty.
        same_domain: Whether to pair only documents from the same website (see
            [`~tmde.documents.urls.website`]), which excludes documents without a URL.

    Returns:
        At most min(n, m) pairs: pairs found by URL, then the others, both by decreasing score.

    Raises:
        TmdeError: An option is invalid, there are no rows, dimensions differ, a number is not
            finite, or URLs are missing or do not match the rows.

    Example:
        ```python
        from tmde import DocumentEmbedder, align_documents

        embedder = DocumentEmbedder.from_pretrained()
        german = embedder.encode(["Die Brücke ist gesperrt.", "Morgen regnet es."])
        english = embedder.encode(["It will rain tomorrow.", "The bridge is closed."])
        for pair in align_documents(german, english):
            print(pair.first, pair.second, pair.score)
        ```
    """
    check_scoring(scoring, k)
    has_urls = bool(first_urls or second_urls or same_domain)
    first_urls = first_urls or ()
    second_urls = second_urls or ()
    has_one_each = len(first_urls) == first.shape[0] and len(second_urls) == second.shape[0]
    if has_urls and not has_one_each:
        raise TmdeError(
            f"URLs: found {len(first_urls)} and {len(second_urls)}, expected one for each row"
        )
    scorer = PairScorer(first, second, scoring, k)
    pairs = []
    for row, column in match_urls(first_urls, second_urls, languages):
        score = scorer.score(row, column)
        pairs.append(AlignedPair(row, column, score, True, scorer.distinctness(row, column)))
    if same_domain:
        groups = _website_groups(first_urls, second_urls, languages)
    else:
        groups = iter([(range(scorer.shape[0]), range(scorer.shape[1]))])
    taken_rows = {pair.first for pair in pairs}
    taken_columns = {pair.second for pair in pairs}
    for group_rows, group_columns in groups:
        rows = _without(group_rows, taken_rows)
        columns = _without(group_columns, taken_columns)
        if len(rows) and len(columns):
            for row, column, score in competitive_matching(scorer, rows, columns, threshold):
                distinctness = scorer.distinctness(row, column)
                pairs.append(AlignedPair(row, column, score, False, distinctness))
    pairs.sort(key=_order)
    warn_without_ratio(scoring, np.array([pair.score for pair in pairs]))
    return pairs


def _website_groups(
    first_urls: Sequence[str], second_urls: Sequence[str], languages: Sequence[str] | None
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield the rows and columns of each website that both sides have."""
    columns_by_site = group_by_website(second_urls, languages)
    for site, rows in group_by_website(first_urls, languages).items():
        if site in columns_by_site:
            yield rows, columns_by_site[site]


def _without(numbers: Sequence[int], taken: set[int]) -> np.ndarray:
    return np.array([number for number in numbers if number not in taken], int)


def _order(pair: AlignedPair) -> tuple:
    """Return the key that sorts pairs: those of URLs first, then by falling score."""
    return not pair.by_url, -pair.score, pair.first, pair.second
