"""The probabilities of pairs, for the functions on files that find them."""

import logging
from dataclasses import dataclass
from pathlib import Path

from modeling_tmde import TmdeError
from tmde.documents.calibration import DEFAULT_SHARE, Calibration, check_share
from tmde.documents.calibration_fit import FEWEST_PAIRS
from tmde.embedding import DocumentEmbedder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProbabilityOptions:
    """The values of the options of `PROBABILITY_OPTIONS`.

    Attributes:
        min_probability: The minimum probability of a pair; None for all pairs.
        share: The share of texts that have a translation; None for the default.
        calibration: The file of a calibration; None for that of the model.
    """

    min_probability: float | None = None
    share: float | None = None
    calibration: Path | None = None

    def __post_init__(self) -> None:
        """Raise `TmdeError` if the share is out of range."""
        if self.share is not None:
            check_share(self.share)

    @property
    def are_asked_for(self) -> bool:
        """Whether the user wants probabilities, so that a model without them is an error."""
        values = (self.min_probability, self.share, self.calibration)
        return any(value is not None for value in values)

    def share_or(self, default: float = DEFAULT_SHARE) -> float:
        """Return the share of texts that have a translation, as the user or the command says."""
        return default if self.share is None else self.share


def find_calibration(
    options: ProbabilityOptions,
    model: str | None,
    revision: str | None,
    embedder: DocumentEmbedder | None,
) -> Calibration | None:
    """Return the calibration of the pairs; None if there is none and nobody asks for it.

    Args:
        options: What the user asks for.
        model: The model that made the vectors; None if it is not known.
        revision: Its revision on the Hub.
        embedder: The same model; None if all vectors come from files.

    Raises:
        TmdeError: The user asks for probabilities, and the model has no calibration, or one of
            another prompt or pooling.
    """
    calibration = None
    if options.calibration is not None:
        calibration = Calibration.load(options.calibration)
    elif model is not None:
        find = Calibration.from_pretrained if options.are_asked_for else Calibration.find
        calibration = find(model, revision)
    elif options.are_asked_for:
        raise TmdeError(
            "--min-probability and --share need a calibration: give --calibration, the file that "
            "`tmde calibrate` wrote for the model of these vectors"
        )
    if calibration is None:
        return None
    if embedder is None:
        return calibration
    try:
        calibration.check_embedder(embedder)
    except TmdeError as error:
        if options.are_asked_for:
            raise
        logger.warning("No probabilities: %s", error)
        return None
    return calibration


def warn_of_few(count: int, unit: str) -> None:
    """Warn that probabilities mean little, if there are few texts to compare a pair with.

    Args:
        count: The number of texts of the side or language that has the fewest.
        unit: What they are, in the plural.
    """
    if count < FEWEST_PAIRS:
        logger.warning(
            "Found only %s %s. Probabilities compare a pair with its neighbors, and are too high "
            "below %d.",
            f"{count:,}",
            unit,
            FEWEST_PAIRS,
        )
