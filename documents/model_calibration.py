"""Calibrate a model: fit probabilities to parallel text, and say how good they are."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import precision_score, recall_score

from modeling_tmde import TmdeError
from tmde.data import load_parallel
from tmde.data.delimited import Quoting
from tmde.data.model_languages import LanguageWatch
from tmde.documents.calibration import Calibration
from tmde.documents.calibration_fit import (
    FIT_SHARE,
    PairVectors,
    embed_pairs,
    fit_calibration,
    language_pairs,
    mined_evidence,
    split_by_row,
)
from tmde.documents.corpus_writer import checked_output
from tmde.documents.reliability import expected_calibration_error, reliability_bins
from tmde.embedding import DocumentEmbedder
from tmde.embedding.model_files import CALIBRATION_FILE
from tmde.embedding.opening import open_embedder, without_truncation_warnings
from tmde.embedding.packaged_models import packaged_folder

_KEPT_BACK = 0.2  # share of the rows that is kept back to measure
_STATED_PROBABILITY = 0.9


@dataclass(frozen=True)
class CalibrationReport:
    """The report of `calibrate_model`.

    Attributes:
        output: The file of the calibration.
        calibration: The calibration.
        error: The expected calibration error (0 is perfect) on a fifth of the rows, after
            calibration on the rest.
        precision: The share of correct pairs among pairs with a probability of at least 0.9; NaN if
            there are none.
        recall: The share of correct pairs that have such a probability.
    """

    output: Path
    calibration: Calibration
    error: float
    precision: float
    recall: float

    def sentences(self) -> list[str]:
        """Return the report as sentences to print."""
        measured = (
            "Expected calibration error, fitted to four fifths of the rows and measured on the "
            f"rest: {self.error:.3f}"
        )
        if not math.isnan(self.precision):
            measured += (
                f"; pairs with a probability of {_STATED_PROBABILITY} or more include "
                f"{self.recall:.1%} of the correct pairs, and {self.precision:.1%} of them are "
                "correct"
            )
        languages = ", ".join(self.calibration.languages)
        return [measured, f"{self.calibration.pairs:,} pairs of {languages} -> {self.output}"]


def calibrate_model(
    model: str,
    pairs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    quoting: Quoting | None = None,
    seed: int = 0,
    loading: Mapping[str, Any] | None = None,
) -> CalibrationReport:
    """Calibrate a model: learn to convert its cosines into translation probabilities.

    Args:
        model: A folder, a Hub id or a packaged model's name.
        pairs: At least 200 parallel rows in two languages on which the model was not trained, as
            `load_parallel` reads them.
        output: The .json file to write or replace. Default: `calibration.json` in the model's
            folder.
        columns: Custom column names, see `load_parallel`.
        quoting: The quoting of CSV and TSV; None detects it.
        seed: The seed for choosing texts that lose their translation.
        loading: Arguments for `DocumentEmbedder.from_pretrained`.

    Raises:
        TmdeError: A source or the model can't be used, there are too few pairs, or `output` is
            missing and the model is not in a folder.

    Example:
        ```python
        from tmde import calibrate_model

        report = calibrate_model("runs/mine", "dev.parquet")
        print(report.error)
        ```
    """
    path = calibration_file(model) if output is None else Path(output)
    target = checked_output(path, (".json",))
    rows = load_parallel(pairs, columns=columns, quoting=quoting)["translation"]
    texts = language_pairs(rows)
    embedder = open_embedder(model, loading)
    languages = {language for pair in texts for language in pair}
    LanguageWatch(embedder).check_codes(sorted(languages))
    with without_truncation_warnings():
        vectors = embed_pairs(texts, embedder)
    calibration = fit_calibration(vectors, embedder, seed)
    error, precision, recall = _quality(vectors, rows, embedder, seed)
    calibration.save(target)
    return CalibrationReport(path, calibration, error, precision, recall)


def calibration_file(model: str) -> Path:
    """Return the file beside a model that holds its calibration.

    Raises:
        TmdeError: The model is not in a folder of the user.
    """
    folder = Path(model)
    if packaged_folder(model) is not None or not folder.is_dir():
        raise TmdeError(
            f"{model} is not a local folder: write its calibration to a file with "
            f"output={CALIBRATION_FILE}, and pass this file as the calibration later"
        )
    return folder / CALIBRATION_FILE


def _quality(
    vectors: list[PairVectors],
    rows: Sequence[Mapping[str, str | None]],
    embedder: DocumentEmbedder,
    seed: int,
) -> tuple[float, float, float]:
    """Fit to a part of the rows, and measure how well the probabilities of the others hold.

    Returns:
        The error, the precision and the recall of a [`CalibrationReport`].
    """
    # At random: every fifth row may be of one kind.
    is_kept_back = np.random.default_rng(seed).random(len(rows)) < _KEPT_BACK
    known, unseen = split_by_row(vectors, rows, is_kept_back)
    calibration = fit_calibration(known, embedder, seed)
    mined = mined_evidence(unseen, FIT_SHARE, seed)
    probabilities = calibration.probabilities(mined.evidence, FIT_SHARE)
    bins = reliability_bins(probabilities, mined.is_right)
    is_kept = probabilities >= _STATED_PROBABILITY
    precision = precision_score(mined.is_right, is_kept, zero_division=math.nan)
    recall = recall_score(mined.is_right, is_kept)
    return expected_calibration_error(bins), float(precision), float(recall)
