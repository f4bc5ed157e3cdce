"""The work of `tmde calibrate`: fit probabilities to parallel text, and say how good they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

from tmde.cli.models import load_embedder, without_truncation_warnings
from tmde.data import load_parallel
from tmde.data.delimited import Quoting
from tmde.documents.calibration_fit import (
    FIT_SHARE,
    PairVectors,
    embed_pairs,
    fit_calibration,
    language_pairs,
    mined_evidence,
    split_by_row,
)
from tmde.documents.reliability import (
    expected_calibration_error,
    reliability_bins,
    threshold_quality,
)
from tmde.embedding import DocumentEmbedder

_KEPT_BACK = 0.2  # share of the rows that is kept back to measure
_STATED_PROBABILITY = 0.9


@dataclass(frozen=True)
class CalibrationJob:
    """What `tmde calibrate` was asked for; the fields are its arguments and options.

    Attributes:
        loading: The arguments of `load_embedder`.
        target: The file to write, with symlinks resolved.
    """

    model: str
    loading: dict[str, Any]
    sources: list[str]
    columns: dict[str, str] | None
    quoting: Quoting | None
    target: Path
    seed: int


def calibrate_model(job: CalibrationJob) -> None:
    """Fit the calibration of a model, write it, and print how well it holds.

    Raises:
        TmdeError: A source or the model cannot be used, or there are too few pairs.
    """
    rows = load_parallel(job.sources, columns=job.columns, quoting=job.quoting)["translation"]
    pairs = language_pairs(rows)
    embedder = load_embedder(job.model, **job.loading)
    with without_truncation_warnings():
        vectors = embed_pairs(pairs, embedder)
    calibration = fit_calibration(vectors, embedder, job.seed)
    _report_quality(vectors, rows, embedder, job.seed)
    calibration.save(job.target)
    typer.echo(
        f"{calibration.pairs:,} pairs of {', '.join(calibration.languages)} -> {job.target}",
        err=True,
    )


def _report_quality(
    vectors: list[PairVectors],
    rows: Sequence[Mapping[str, str | None]],
    embedder: DocumentEmbedder,
    seed: int,
) -> None:
    """Fit to a part of the rows, and print how well the probabilities of the others hold."""
    # At random: every fifth row may be of one kind.
    is_kept_back = np.random.default_rng(seed).random(len(rows)) < _KEPT_BACK
    known, unseen = split_by_row(vectors, rows, is_kept_back)
    calibration = fit_calibration(known, embedder, seed)
    mined = mined_evidence(unseen, FIT_SHARE, seed)
    probabilities = calibration.probabilities(mined.evidence, FIT_SHARE)
    bins = reliability_bins(probabilities, mined.is_right)
    quality = threshold_quality(probabilities, mined.is_right, _STATED_PROBABILITY)
    sentence = (
        f"Fitted to four fifths of the rows, measured on the others: expected calibration error "
        f"{expected_calibration_error(bins):.3f}"
    )
    if quality.precision is not None and quality.recall is not None:
        sentence += (
            f"; --min-probability {_STATED_PROBABILITY} keeps {quality.recall:.1%} of the right "
            f"pairs, and {quality.precision:.1%} of what it keeps is right"
        )
    typer.echo(sentence, err=True)
