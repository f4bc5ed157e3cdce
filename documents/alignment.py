"""Alignment of documents of two languages, one to one: by URL first, then by competitive matching of scores."""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.mining import PairQuality, pair_quality
from tmde.documents.margins import check_scoring, ranked_scores, warn_without_ratio
from tmde.documents.unit_rows import Matrix, largest, products, slices, slices_with_bar, two_sides

_CANDIDATES = 32  # that a document keeps
_CELLS = 2**22  # scores held at a time: 32 MiB, and twice as much to sort them
_COLUMNS = 4096  # vectors of the second side in float64 at a time
_DECIMALS = (
    9  # scores equal to these are ties: sums of float64 depend on their order in the last digits
)

# By ISO 639-1 code, what else stands for a language in URLs; the code itself always does. Without accents, lower case.
_NAMES = {
    line.split()[0]: line.split()
    for line in """
ar ara arabic arabe; bg bul bulgarian; ca cat catalan catala; cs cz cze ces czech cesky; da dan danish dansk;
de ger deu german deutsch allemand aleman tedesco; el gr gre ell greek ellinika;
en eng english englisch anglais ingles inglese; es esp spa spanish espanol spanisch espagnol spagnolo castellano;
et est estonian eesti; fi fin finnish suomi;
fr fra fre fran french francais franzoesisch franzosisch frances francese; hr hrv croatian hrvatski;
hu hun hungarian magyar; it ita italian italiano italienisch italien; ja jp jpn japanese nihongo;
ko kr kor korean; lt lit lithuanian lietuviu; lv lav latvian latviesu; nl nld dut dutch nederlands;
no nb nn nor norwegian norsk; pl pol polish polski; pt por portuguese portugues; ro ron rum romanian romana;
ru rus russian russkij; sk slk slo slovak slovensky; sl slv slovenian slovenski; sv se swe swedish svenska;
tr tur turkish turkce; uk ua ukr ukrainian; zh cn chi zho chinese
    """.split(";")
}
_PARAMETERS = frozenset(
    "lang language langue lingua idioma sprache locale hl lg ln lng setlang setlanguage sitelang uselang clang "
    "selectedlocale langid languageid culture".split()
)
_GENERIC = frozenset("ac co com edu gov net org".split())  # before a country, as in .co.uk
_INTERNATIONAL = frozenset(("", "co", "com"))  # as good as the domain of a country
_SCRIPTS = "hans|hant|latn|cyrl|arab|deva"
_LOCALE = re.compile(
    rf"([a-z]{{2,3}})(?:[-_](?:{_SCRIPTS}))?(?:[-_](?:[a-z]{{2}}|[0-9]{{3}}))?"
)  # pt_BR, zh-hans-cn
_SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//")
_WORD = re.compile(r"[^\W_]+")


class AlignedPair(NamedTuple):
    """Row numbers of both sides, their score, and whether their URLs matched."""

    first: int
    second: int
    score: float
    by_url: bool


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
    """Pairs documents one to one, as WMT16 does: the pair of the best score, then the best of those left, and so on.

    Scores are cosines, or the margins of Artetxe & Schwenk 2019 (arXiv 1811.01136, section 3) `ratio` and `distance`,
    whose neighbors are searched among all documents of the other side. `ratio` is 2k times eq. 4 of paper 003 (LAWDR),
    which divides by the sum over all 2k neighbors and not by their mean; and eq. 4 is printed with inner products,
    where these are cosines. Neither changes the ranking of unit vectors, but thresholds are on this scale. A pair
    whose neighbors have a mean cosine of 1e-6 or less has no ratio: it ranks below all others, by cosine.

    Scores are computed in float64; those that agree to nine decimals are ties, of which the first row of `first`, then
    of `second`, comes first. The result is that of sorting all scores, but not all are held: a document keeps its best
    candidates, and is searched again when others have taken them.

    Args:
        first: (n, d), dense or sparse.
        second: (m, d), of the same kind. A row of zeros has cosine 0 to everything.
        scoring: `cosine`, `ratio` or `distance`.
        k: Neighbors of a margin; all documents of a side that has fewer.
        threshold: Pairs below this score are left out, unless their URLs match. None keeps every pair.
        first_urls, second_urls: URL of each row, "" where it is not known. Documents whose URLs are equal without the
            marks of their language, and unlike all others, are paired before any is scored (Buck & Koehn 2016).
        languages: Codes of the languages whose marks are stripped from URLs; None for some thirty.
        same_domain: Pair only documents of one website (see [`website`]); a document whose URL is not known has
            no pair.

    Returns:
        min(n, m) pairs at most: those of URLs, then the others, both by falling score.

    Raises:
        ValueError: Unknown scoring, `k` below 1, no rows, different dimensions, numbers that are not finite, not one
            URL for each row, or none where `same_domain` needs them.
    """
    check_scoring(scoring, k)
    urls = (
        (first_urls or (), second_urls or ()) if first_urls or second_urls or same_domain else None
    )
    if urls and (len(urls[0]), len(urls[1])) != (first.shape[0], second.shape[0]):
        raise TmdeError(f"URLs: found {len(urls[0])} and {len(urls[1])}, expected one for each row")
    scorer = _Scorer(first, second, scoring, k)
    matched = match_urls(*urls, languages) if urls else []
    pairs = [AlignedPair(*pair, scorer.score(*pair), True) for pair in matched]
    taken = [set(side) for side in zip(*matched, strict=True)] or [set(), set()]
    for group in _groups(urls if same_domain else None, languages, scorer.shape):
        sides = [
            np.array([n for n in side if n not in used], int)
            for side, used in zip(group, taken, strict=True)
        ]
        if len(sides[0]) and len(sides[1]):
            pairs += _competitive_matching(scorer, *sides, threshold)
    pairs.sort(key=lambda pair: (not pair.by_url, -pair.score, pair.first, pair.second))
    warn_without_ratio(scoring, np.array([pair.score for pair in pairs]))
    return pairs


def alignment_quality(pairs: Iterable[Sequence], reference: Iterable[Sequence]) -> PairQuality:
    """Recall of the reference's pairs, the measure of WMT16 (Buck & Koehn 2016), and precision of the found ones.

    Args:
        pairs: What was found; of each, the first two items count: row numbers, or ids. Pairs without a document that
            the reference knows are left out.
        reference: Pairs that are right, in the same terms; one that occurs twice counts once.
    """
    right = {tuple(pair[:2]) for pair in reference}
    known = [{pair[side] for pair in right} for side in (0, 1)]
    found = {tuple(pair[:2]) for pair in pairs}
    return pair_quality(
        {pair for pair in found if pair[0] in known[0] or pair[1] in known[1]}, right
    )


def strip_language_markers(url: str, languages: Sequence[str] | None = None) -> str:
    """What is left of a URL without scheme, country domain and all marks of a language.

    Marks are codes and names of languages, alone or with a region, that stand as a subdomain (de.example.org) or a
    part of the path (/en-us/, page_fr.html, index.es.html), and parameters that are called lang, hl, locale and the
    like (`l` where its value is a mark). Codes of three letters, many of which are words (spa, cat), count as
    subdomain and as first part of the path only. Of a path that is nothing but marks (/en/it), only the first is one.
    Case, order of parameters, separators within a name, and fragments do not count; for domains see [`website`].

    Args:
        url: With or without its scheme.
        languages: ISO 639-1 codes of the languages whose marks are stripped; None for some thirty, which also strips
            words that happen to be codes ("it", "no"): give the two of your documents where you know them.

    Returns:
        A key for comparison, which is no URL; "" for an empty string.
    """
    marks = _marks(languages)
    host, path, query = _parts(url)
    parameters = sorted(
        f"{name}={value}"
        for name, value in parse_qsl(query, keep_blank_values=True)
        if name not in _PARAMETERS
        and not (name == "l" and _is_mark(value, marks))  # "l" has other meanings, too
    )
    key = "/".join([_site(host, marks), *_segments(path, marks)])
    return "?".join([key, *(["&".join(parameters)] if parameters else [])])


def website(url: str, languages: Sequence[str] | None = None) -> str:
    """The host of a URL without `www`, subdomains that name a language, and the domain of a country.

    foo.de, foo.fr, foo.co.uk, foo.eu and foo.com are one website, "foo"; other generic domains are others, such as
    "foo.org", also in foo.org.uk. "" where a URL has no host. WMT16 aligns within websites.

    Arguments as for [`strip_language_markers`].
    """
    return _site(_parts(url)[0], _marks(languages))


def match_urls(
    first: Sequence[str], second: Sequence[str], languages: Sequence[str] | None = None
) -> list[tuple[int, int]]:
    """Pairs of documents whose URLs are equal without their marks of language, and on each side like no other's.

    Args:
        first, second: URL of each document, "" where it is not known, which matches nothing.
        languages: See [`strip_language_markers`].

    Returns:
        Positions in `first` and `second`, in order of `first`.
    """
    unique = []  # of each side, the position of each key that occurs once
    for urls in (first, second):
        keys = [strip_language_markers(url, languages) for url in urls]
        counts = Counter(keys)
        unique.append({key: number for number, key in enumerate(keys) if key and counts[key] == 1})
    return [(number, unique[1][key]) for key, number in unique[0].items() if key in unique[1]]


class _Scorer:
    """Scores of any rows and columns, in float64, so that equal documents tie."""

    def __init__(self, first: Matrix, second: Matrix, scoring: str, k: int) -> None:
        self.sides = two_sides(("first", first), ("second", second), dtype=np.float64)
        self.shape = len(self.sides[0]), len(self.sides[1])
        self.scoring, self.means = scoring, (np.zeros(self.shape[0]), np.zeros(self.shape[1]))
        if scoring != "cosine":  # mean cosine of each document to its k nearest of the other side
            rows, columns = map(np.arange, self.shape)
            k_first, k_second = min(k, len(columns)), min(k, len(rows))
            nearest = np.full((k_second, len(columns)), -np.inf)
            for part in self._parts(rows, columns):
                cosines = self._cosines(rows[part], columns)
                self.means[0][part] = np.partition(cosines, -k_first, axis=1)[:, -k_first:].mean(
                    axis=1
                )
                nearest = np.partition(np.vstack([nearest, cosines]), -k_second, axis=0)[-k_second:]
            self.means[1][:] = nearest.mean(axis=0)

    def score(self, row: int, column: int) -> float:
        return float(self._scores(np.array([row]), np.array([column]))[0, 0])

    def best(
        self, rows: np.ndarray, columns: np.ndarray, count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and scores (rows, count) of the columns of highest score, falling, ties in order of column."""
        chosen, best = np.empty((len(rows), count), np.int64), np.empty((len(rows), count))
        for part in self._parts(rows, columns):
            best[part], places = largest(self._scores(rows[part], columns), count)
            chosen[part] = columns[places]
        return chosen, best

    def _parts(self, rows: np.ndarray, columns: np.ndarray) -> Iterable[slice]:
        return slices_with_bar(len(rows), max(1, _CELLS // len(columns)), "Searching")

    def _cosines(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        left, cosines = self.sides[0][rows], np.empty((len(rows), len(columns)))
        for part in slices(len(columns), _COLUMNS):
            cosines[:, part] = products(left, self.sides[1][columns[part]])
        return cosines

    def _scores(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        means = (self.means[0][rows, None] + self.means[1][None, columns]) / 2
        return np.round(ranked_scores(self.scoring, self._cosines(rows, columns), means), _DECIMALS)


def _competitive_matching(
    scorer: _Scorer, rows: np.ndarray, columns: np.ndarray, threshold: float | None
) -> Iterator[AlignedPair]:
    """The pairs of highest score, no row and no column twice, best first.

    Each row lists its best candidates. A heap holds for each row the score of its best free candidate, or more: one
    that was taken since. What comes out on top with this very score is the best of all pairs that are left.
    """
    width, left = min(_CANDIDATES, len(columns)), len(columns)
    nothing = columns.max() + 1  # fills lists
    free = np.zeros(nothing + 1, bool)
    free[columns] = True
    waiting = np.ones(len(rows), bool)
    listed, scores = scorer.best(rows, columns, width)  # (rows, width)
    heap = [(-score, row) for row, score in enumerate(scores[:, 0].tolist())]
    heapq.heapify(heap)
    while heap and left:
        negative, row = heapq.heappop(heap)
        place = int(free[listed[row]].argmax()) if free[listed[row]].any() else width - 1
        column, score = int(listed[row, place]), float(scores[row, place])
        if score < -negative:
            heapq.heappush(heap, (-score, row))
        elif threshold is not None and score < threshold:
            return
        elif free[column]:
            yield AlignedPair(int(rows[row]), column, score, False)
            free[column] = waiting[row] = False
            left -= 1
        else:  # all its candidates are taken: search again, for all rows of which this is true
            again = np.flatnonzero(waiting)
            again = again[~free[listed[again]].any(axis=1)]
            count = min(width, left)
            listed[again], scores[again] = nothing, -np.inf
            listed[again, :count], scores[again, :count] = scorer.best(
                rows[again], np.flatnonzero(free), count
            )
            heapq.heappush(heap, (negative, row))


def _groups(
    urls: tuple[Sequence[str], Sequence[str]] | None,
    languages: Sequence[str] | None,
    shape: tuple[int, int],
) -> list[tuple[Iterable[int], Iterable[int]]]:
    """Rows and columns that may be paired: all, or those of each known website that both sides have."""
    if urls is None:
        return [(range(shape[0]), range(shape[1]))]
    sides = defaultdict(list), defaultdict(list)
    for side, of_side in zip(sides, urls, strict=True):
        for number, url in enumerate(of_side):
            side[website(url, languages)].append(number)
    return [(rows, sides[1][name]) for name, rows in sides[0].items() if name and name in sides[1]]


def _marks(languages: Sequence[str] | None) -> set[str]:
    return {
        mark
        for code in (_NAMES if languages is None else languages)
        for mark in _NAMES.get(code, [code])
    }


def _is_mark(part: str, marks: set[str]) -> bool:
    locale = _LOCALE.fullmatch(part)
    return part in marks or (locale is not None and locale[1] in marks)


def _segments(path: str, marks: set[str]) -> list[str]:
    """The parts of a path without marks, words joined by hyphens."""
    given = [segment for segment in path.split("/") if segment]
    inner = {mark for mark in marks if len(mark) != 3}
    kept = []
    for number, segment in enumerate(given):
        if number == 0 and _is_mark(segment, marks):
            continue
        parts = [part for part in segment.split(".") if not _is_mark(part, inner)]
        kept.append(
            "-".join(word for part in parts for word in _WORD.findall(part) if word not in inner)
        )
    kept = list(filter(None, kept))
    return kept or ["-".join(_WORD.findall(segment)) for segment in given[1:]]


def _parts(url: str) -> tuple[str, str, str]:
    """Host, path and query, in lower case."""
    url = url.strip().lower()
    try:
        parts = urlsplit(url if _SCHEME.match(url) else "//" + url)
    except ValueError:  # brackets of no IPv6 address
        return "", unquote(url), ""
    host = parts.netloc.rpartition("@")[2]
    return re.sub(r":\d*$", "", host), unquote(parts.path), parts.query


def _site(host: str, marks: set[str]) -> str:
    labels = [label for label in host.split(".") if label]
    if all(label.isdigit() for label in labels) or host.startswith("["):
        return host  # an address of numbers
    domain = labels.pop() if len(labels) > 1 else ""
    if len(domain) == 2:  # of a country
        domain = labels.pop() if len(labels) > 1 and labels[-1] in _GENERIC else ""
    *subdomains, name = labels
    kept = [label for label in subdomains if label != "www" and not _is_mark(label, marks)]
    return ".".join([*kept, name] if domain in _INTERNATIONAL else [*kept, name, domain])
