"""Calibrations of encoders of the Hub that carry none, which come with the package."""

from __future__ import annotations

from pathlib import Path

from modeling_tmde import TmdeError
from tmde.documents.calibration import Calibration, probe_cosines
from tmde.embedding import DocumentEmbedder

_FOLDER = Path(__file__).parent / "calibrations"
# By Hub id. `tmde calibrate` made it from the same pairs as those of the packaged models, which
# benchmarks/thresholds.py writes.
_FILES = {"intfloat/multilingual-e5-small": _FOLDER / "multilingual-e5-small.json"}


def packaged_calibration(embedder: DocumentEmbedder) -> Calibration | None:
    """Return the calibration of an encoder of the Hub; None if the package has none of it.

    The encoder is recognized by its name, or a folder with its weights by the vectors that it
    makes.

    Args:
        embedder: The open encoder.
    """
    for name, file in _FILES.items():
        calibration = Calibration.load(file)
        in_cache = f"models--{name.replace('/', '--')}"
        if embedder.model_label == name or in_cache in embedder.model_label:
            # The calibrated weights were rounded, and their vectors may differ a little.
            cosines = probe_cosines(embedder)
            return calibration.model_copy(update={"probe_cosines": cosines})
        try:
            calibration.check_embedder(embedder)
        except TmdeError:
            continue
        return calibration
    return None
