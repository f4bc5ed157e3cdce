"""The probabilities of pairs, for the functions on files that find them."""

import logging
import os
from collections.abc import Mapping
from typing import Any

from modeling_tmde import TmdeError
from tmde.documents.calibration import Calibration
from tmde.documents.calibration_fit import FEWEST_PAIRS
from tmde.documents.packaged_calibrations import packaged_calibration
from tmde.embedding import DocumentEmbedder

logger = logging.getLogger(__name__)


def needed_calibration(
    calibration: str | os.PathLike[str] | None,
    model: str | None,
    loading: Mapping[str, Any] | None,
    embedder: DocumentEmbedder | None,
) -> Calibration:
    """Return the calibration of the model that makes the vectors of pairs.

    Args:
        calibration: The file of a calibration; None for that of the model.
        model: The name of the model; None if it is not known.
        loading: Arguments that it is opened with.
        embedder: The open model; None if all vectors come from files.

    Raises:
        TmdeError: The model has no calibration, or one of another prompt or pooling.
    """
    if calibration is not None:
        chosen = Calibration.load(calibration)
    elif model is not None:
        revision = (loading or {}).get("revision")
        packaged = None
        if embedder is not None and Calibration.find(model, revision) is None:
            packaged = packaged_calibration(embedder)
        chosen = packaged or Calibration.from_pretrained(model, revision)
    else:
        raise TmdeError(
            "Probabilities need a calibration: pass calibration=FILE, written by `tmde calibrate` "
            "for the model of these vectors"
        )
    if embedder is not None:
        chosen.check_embedder(embedder)
    return chosen


def find_calibration(
    model: str | None, loading: Mapping[str, Any] | None, embedder: DocumentEmbedder | None
) -> Calibration | None:
    """Return the calibration of a model whose probabilities nobody asks for; None without one.

    Arguments are those of `needed_calibration`. It warns of one that does not fit.
    """
    if model is None:
        return None
    calibration = Calibration.find(model, (loading or {}).get("revision"))
    if embedder is None:
        return calibration
    if calibration is None:
        calibration = packaged_calibration(embedder)
    if calibration is None:
        return None
    try:
        calibration.check_embedder(embedder)
    except TmdeError as error:
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
            "Found only %s %s. Probabilities compare a pair with its neighbors, so they are "
            "too high with fewer than %d.",
            f"{count:,}",
            unit,
            FEWEST_PAIRS,
        )
