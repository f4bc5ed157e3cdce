"""How much of a language is in sentence vectors: a linear classifier of it, and a picture (paper 003, section 2).

from modeling_tmde.documents.language_probe import language_probe

print(language_probe(vectors, languages, rank=4, groups=document_ids))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import GroupShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from modeling_tmde.documents.debiasing import LanguageDebiaser
from modeling_tmde.eval.figures import new_figure, save_figure, scatter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANCE_MARGIN = 0.05  # above chance: 55 % of two languages, as in section 10.1


@dataclass(frozen=True)
class LanguageProbe:
    """Test accuracies of telling languages apart, from 0 to 1 (paper 003, table 1).

    raw: of the vectors; language: of what `LanguageDebiaser` takes away; semantic: of what it leaves; chance: share of
    the commonest language in the test part; train, test: sentences of either part.
    """

    raw: float
    language: float
    semantic: float
    chance: float
    train: int
    test: int


def language_probe(
    vectors: np.ndarray,
    languages: Sequence[str],
    rank: int | Mapping[str, int] = 1,
    groups: Sequence | None = None,
    test_share: float = 0.2,
    seed: int = 42,
) -> LanguageProbe:
    """Trains a linear support vector machine on standardised vectors to tell their languages apart, and tests it.

    Documents are split 8:2, as in the paper. Both classifier and directions are those of the training part: directions
    of all sentences would level the languages over both parts together, so that what differs in one part differs the
    other way in the other, and `semantic` falls far below chance. A language's component lies in that language's own
    directions, by which alone it can be told: expect nearly 1 of it from any model. What counts is how far `raw` is
    above `chance`, and how far `semantic` still is.

    Args:
        vectors: (n, d).
        languages: Code of each, two or more of them.
        rank: Directions of each language; see `LanguageDebiaser`.
        groups: Document of each, the same for a document and its translations: all sentences of one are on one side.
            None: each sentence is a document.
        test_share: Of the documents.
        seed: Of the split.

    Raises:
        ValueError: Fewer than two languages, documents or sentences of a language on either side, not as many
            languages or groups as vectors, a `test_share` that is not between 0 and 1, or as `LanguageDebiaser.fit`.
    """
    vectors = np.asarray(vectors)
    codes, train, test = _split(len(vectors), languages, groups, test_share, seed)
    debiaser = LanguageDebiaser(rank).fit(vectors[train], codes[train].tolist())
    component = debiaser.language_component(vectors, codes.tolist())
    accuracies = [_accuracy(part, codes, train, test) for part in (vectors, component, vectors - component)]
    return LanguageProbe(*accuracies, _chance(codes[test]), len(train), len(test))


def smallest_rank(
    vectors: np.ndarray,
    languages: Sequence[str],
    ranks: Sequence[int] | None = None,
    groups: Sequence | None = None,
    test_share: float = 0.2,
    seed: int = 42,
) -> tuple[int | None, dict[int, float]]:
    """The smallest rank after whose removal a language is told hardly better than by chance (paper 003, section 10.1).

    Args:
        vectors, languages, groups, test_share, seed: As for `language_probe`.
        ranks: To try, in order. Default: powers of two below d, below the number of training sentences of each
            language, and below the directions that these span.

    Returns:
        The first rank whose semantic accuracy is less than 5 points above chance, None if there is none, and the
        accuracies of all that were tried, by rank.

    Raises:
        ValueError: As `language_probe`.
    """
    vectors = np.asarray(vectors)
    codes, train, test = _split(len(vectors), languages, groups, test_share, seed)
    debiaser = LanguageDebiaser().fit(vectors[train], codes[train].tolist())
    limit = _chance(codes[test]) + CHANCE_MARGIN
    accuracies: dict[int, float] = {}
    largest = min(debiaser.spans().values())
    for rank in ranks or [2**power for power in range(32) if 2**power < largest]:
        semantic = debiaser.set_params(rank=rank).finish().transform(vectors, codes.tolist())
        accuracies[rank] = _accuracy(semantic, codes, train, test)
        if accuracies[rank] < limit:
            return rank, accuracies
    return None, accuracies


def draw_language_map(
    path: str | Path,
    vectors: np.ndarray,
    languages: Sequence[str],
    rank: int | Mapping[str, int] = 1,
    title: str = "",
    max_sentences: int = 2000,
    seed: int = 42,
) -> None:
    """Draws sentences in two dimensions, coloured by language: as they are, and without their language's directions.

    As paper 003's figure 1, by principal components, each panel's own. Where languages are in the vectors, colours
    part in the first panel; where debiasing takes them away, they mix in the second.

    Args:
        path: PNG, SVG or PDF to write.
        vectors, languages, rank: As for `language_probe`.
        title: Above the panels.
        max_sentences: Drawn, at random; directions and components are those of all.
        seed: Of that draw.

    Raises:
        ImportError: If matplotlib is missing.
        ValueError: As `LanguageDebiaser.fit`, or fewer than three sentences.
    """
    save_figure(language_map_figure(vectors, languages, rank, title, max_sentences, seed), path)


def language_map_figure(
    vectors: np.ndarray,
    languages: Sequence[str],
    rank: int | Mapping[str, int] = 1,
    title: str = "",
    max_sentences: int = 2000,
    seed: int = 42,
) -> Figure:
    """See `draw_language_map`."""
    vectors, languages = np.asarray(vectors), np.asarray(languages)
    if len(vectors) < 3:
        raise ValueError(f"vectors: found {len(vectors)}, expected at least 3 to draw")
    debiased = LanguageDebiaser(rank).fit_transform(vectors, languages.tolist())
    rng = np.random.default_rng(seed)
    shown = rng.permutation(len(vectors))[:max_sentences]
    figure = new_figure((11.2, 5.6))
    described = f"rank {rank}" if not isinstance(rank, Mapping) else "ranks by language"
    panels = zip(figure.subplots(1, 2), (vectors, debiased), ("as they are", f"debiased, {described}"), strict=True)
    for axes, points, name in panels:
        analysis = PCA(2, random_state=seed).fit(points)
        shares = 100 * analysis.explained_variance_ratio_
        scatter(axes, analysis.transform(points[shown]), languages[shown], size=7)
        axes.set_title(name)
        axes.set_xlabel(f"component 1 ({shares[0]:.0f} % of the variance)")
        axes.set_ylabel(f"component 2 ({shares[1]:.0f} %)")
    few = f" ({len(shown):,} of {len(vectors):,} sentences)" if len(shown) < len(vectors) else ""
    figure.suptitle(f"{title}{few}".strip())
    return figure


def _split(
    count: int, languages: Sequence[str], groups: Sequence | None, test_share: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Languages (n,), and row numbers of the two parts."""
    codes, groups = np.asarray(languages), np.arange(count) if groups is None else np.asarray(groups)
    if codes.shape != (count,) or len(set(codes.tolist())) < 2:
        raise ValueError(
            f"languages: found {len(set(codes.tolist()))} in {codes.size} codes, expected two or more, one code for "
            f"each of {count} vectors"
        )
    if groups.shape != (count,):
        raise ValueError(f"groups: found shape {groups.shape}, expected one for each of {count} vectors")
    if not 0 < test_share < 1:
        raise ValueError(f"test_share: found {test_share}, expected a number between 0 and 1")
    if len(np.unique(groups)) < 2:
        raise ValueError("groups: found one document, expected at least one to train with and one to test")
    splitter = GroupShuffleSplit(n_splits=1, test_size=test_share, random_state=seed)
    train, test = next(splitter.split(codes, groups=groups))
    for name, rows in (("train", train), ("test", test)):
        if missing := sorted(set(codes.tolist()) - set(codes[rows].tolist())):
            raise ValueError(f"languages: found no sentence of {missing[0]!r} in the {name} part, give more documents")
    return codes, train, test


def _chance(codes: np.ndarray) -> float:
    return max(Counter(codes.tolist()).values()) / len(codes)


def _accuracy(vectors: np.ndarray, codes: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    machine = make_pipeline(StandardScaler(), LinearSVC(dual="auto", max_iter=2000, random_state=0))
    return float(machine.fit(vectors[train], codes[train]).score(vectors[test], codes[test]))
