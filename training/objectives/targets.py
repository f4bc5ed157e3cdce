"""What a decoder predicts from the embedding of a text.

The names are those of `objectives.translation.targets`. Every other name is that of a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modeling_tmde import TmdeError

PIVOTS = "pivots"  # The same row in every other pivot language: translation.
SELF = "self"  # The text itself: an autoencoder.
NEXT = "next"  # The row that follows in the document, in the same language: SkipThought.
NAMED_TARGETS = (PIVOTS, SELF, NEXT)


@dataclass(frozen=True)
class Direction:
    """What the decoder predicts for every row of a batch from the embeddings of one language.

    Attributes:
        source: The language of the embeddings, as an index of the batch's languages.
        target: `NEXT` or a column, the texts of a batch's `targets` that are predicted; None for
            the texts that the encoder reads.
        text: Which of those texts, an index of their first dimension.
        language: The language of which the decoder is told, as an index of the batch's languages.
    """

    source: int
    target: str | None
    text: int
    language: int


def target_names(targets: str | Sequence[str]) -> tuple[str, ...]:
    """Return one or several targets as a tuple.

    Raises:
        TmdeError: There is none, or one is there twice.
    """
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    if not names or len(set(names)) < len(names):
        raise TmdeError(
            f"translation targets={targets!r}: expected one or more of "
            f"{', '.join(NAMED_TARGETS)} and column names, each once"
        )
    return names


def target_columns(targets: Sequence[str]) -> list[str]:
    """Return the targets that are columns of a row."""
    return [name for name in targets if name not in NAMED_TARGETS]


def translation_directions(
    languages: Sequence[str], pivot_languages: Sequence[str]
) -> list[tuple[int, int]]:
    """Return (source, target) indices into `languages`: every language into every other pivot."""
    directions = []
    for target, target_language in enumerate(languages):
        if target_language not in pivot_languages:
            continue
        for source in range(len(languages)):
            if source != target:
                directions.append((source, target))
    return directions


def decoder_directions(
    targets: Sequence[str], languages: Sequence[str], pivot_languages: Sequence[str]
) -> list[Direction]:
    """Return what the decoder predicts for a batch in these languages."""
    directions = []
    for name in targets:
        if name == PIVOTS:
            for source, target in translation_directions(languages, pivot_languages):
                directions.append(Direction(source, None, target, target))
            continue
        for source in range(len(languages)):
            if name == SELF:
                directions.append(Direction(source, None, source, source))
            elif name == NEXT:
                directions.append(Direction(source, NEXT, source, source))
            else:  # A column has one text a row, which all languages predict.
                directions.append(Direction(source, name, 0, source))
    return directions
