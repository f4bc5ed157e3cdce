"""Join the parts of a corpus: one after the other, or drawn at random by temperature."""

import logging
import math
from collections.abc import Sequence

import datasets

from .parts import Part
from .rows import DOCUMENT_ID, with_reading_orders
from .tables import AnyDataset

logger = logging.getLogger("tmde.data")


def limits_of(
    parts: Sequence[Part], max_rows: int | None, temperature: float | None
) -> list[int | None]:
    """Return how many rows to read of each part.

    Hub configs that are not mixed share `max_rows` in proportion to their rows. Otherwise the first
    pair of languages would be all there is.
    """
    if max_rows is None or temperature is not None or not _are_configs(parts):
        return [max_rows] * len(parts)
    # Only streams have configs of unknown size, and `max_rows` does not reach their parts.
    rows_of_parts = _known_sizes([part.rows for part in parts])
    total_rows = sum(rows_of_parts)
    return [math.ceil(max_rows * rows / total_rows) for rows in rows_of_parts]


def mixing_probabilities(sizes: Sequence[int | None], temperature: float) -> list[float]:
    """Return p ~ rows^(1/temperature) for parts of `sizes` rows.

    The probabilities are uniform if a size is not known.
    """
    known_sizes = _known_sizes(sizes)
    if len(known_sizes) < len(sizes):
        logger.warning(
            "The row counts of some parts are unknown, so the parts are mixed uniformly."
        )
        return [1 / len(sizes)] * len(sizes)
    # The ratio is taken first because a power of the size itself overflows below T = 1.
    largest = max(known_sizes)
    weights = [(size / largest) ** (1 / temperature) for size in known_sizes]
    total_weight = sum(weights)
    return [weight / total_weight for weight in weights]


def _are_configs(parts: Sequence[Part]) -> bool:
    """Return whether all parts are configs of Hub datasets."""
    return all(part.is_config for part in parts)


def _known_sizes(sizes: Sequence[int | None]) -> list[int]:
    """Return the sizes that are not None."""
    return [size for size in sizes if size is not None]


def mix(
    loaded: list[AnyDataset], parts: Sequence[Part], temperature: float | None, seed: int
) -> AnyDataset:
    """Join the loaded rows of all parts.

    Args:
        loaded: The rows of each part.
        parts: What they were loaded from.
        temperature: As in `load_parallel`.
        seed: The seed of the draws.
    """
    if len(loaded) == 1:
        return loaded[0]
    is_stream = isinstance(loaded[0], datasets.IterableDataset)
    # Configs are drawn at random from a stream. Its shuffle buffer is far smaller than a config, so
    # one config after the other would come out language by language.
    draws_configs = is_stream and _are_configs(parts)
    if temperature is None and not draws_configs:
        return datasets.concatenate_datasets(loaded)
    sizes: list[int | None] = []
    for rows, part in zip(loaded, parts, strict=True):
        sizes.append(part.rows if is_stream else len(rows))
    if temperature is None:
        probabilities = mixing_probabilities(sizes, 1.0)
        strategy = "all_exhausted_without_replacement"
    else:
        probabilities = mixing_probabilities(sizes, temperature)
        strategy = "all_exhausted"
    if not is_stream and DOCUMENT_ID in loaded[0].column_names:
        loaded = with_reading_orders(loaded)
    return datasets.interleave_datasets(
        loaded, probabilities, seed=seed, stopping_strategy=strategy
    )
