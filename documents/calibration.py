"""The probability that two texts are translations, from the cosine of their vectors.

```python
calibration = Calibration.from_pretrained("accurate")
mined = mine_bitext(german_vectors, english_vectors, german, english)
evidence = mined_pair_evidence(mined, german, english)
probabilities = calibration.probabilities(evidence, share=0.3)
```

`tmde calibrate` makes the calibration of a model. The packaged models have one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pydantic
from scipy.special import expit, logit

from modeling_tmde import TmdeError
from tmde.data.io import replacing
from tmde.documents.mining import ScoredPairs
from tmde.documents.model_probes import DECIMALS, SENTENCES, probe_vectors
from tmde.documents.number_agreement import numbers_agree
from tmde.documents.text_length import length_in_letters
from tmde.documents.unit_rows import largest, products, slices
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.model_files import CALIBRATION_FILE, find_model_file
from tmde.embedding.packaged_models import packaged_folder

DEFAULT_SHARE = 0.5
# What mined pairs need without any threshold. F1 is within a point or so of its highest here on
# development text of all domains.
DEFAULT_MIN_PROBABILITY = 0.4
# A pair whose neighbors are this far away has no margin that means anything.
_SMALLEST_MEAN = 0.05
_COMPARED_PAIRS = 512  # that are compared with all other texts at once
_SAME_MODEL = 0.02  # What 8-bit weights and bfloat16 change is less.
# What the columns of the evidence are, in their order.
EVIDENCE = ("ratio", "cosine", "length", "length_difference", "numbers_differ")


def probe_cosines(embedder: DocumentEmbedder) -> list[float]:
    """Return the cosines of every two of some texts, by which a model is recognized."""
    vectors = probe_vectors(embedder)[: len(SENTENCES)]
    cosines = vectors @ vectors.T
    upper = np.triu_indices(len(vectors), k=1)
    return [round(cosine, DECIMALS) for cosine in cosines[upper].tolist()]


def check_share(share: float) -> None:
    """Raise `TmdeError` if a share of texts is out of range."""
    if not 0 < share < 1:
        raise TmdeError(f"share: found {share}, expected a number between 0 and 1")


def check_min_probability(probability: float | None) -> None:
    """Raise `TmdeError` if the lowest probability of a pair is out of range."""
    if probability is not None and not 0 <= probability <= 1:
        raise TmdeError(f"min_probability: found {probability}, expected 0 to 1")


def pair_evidence(
    first: Sequence[str],
    second: Sequence[str],
    cosines: np.ndarray,
    neighbor_means: np.ndarray,
) -> np.ndarray:
    """Return the features of p text pairs, one column per name in `EVIDENCE`.

    - `ratio`: the cosine, divided by the mean cosine to the nearest neighbors on the other side
      (Artetxe and Schwenk, 2019).
    - `cosine`.
    - `length`: the mean log length in characters, which affects cosines. A character that
      represents several letters, such as a Chinese one, counts several times.
    - `length_difference`: the absolute difference of the log lengths.
    - `numbers_differ`: 1 if the texts contain different numbers, otherwise 0.

    Args:
        first: The texts of the first side, (p,).
        second: The texts of the second side, (p,).
        cosines: The cosine of each pair, (p,).
        neighbor_means: The mean cosine of both texts to their nearest neighbors on the other side,
            (p,): [`~tmde.documents.mining.ScoredPairs.neighbor_means`].

    Returns:
        (p, 5) float64.
    """
    cosines = np.asarray(cosines, np.float64)
    ratios = cosines / np.maximum(neighbor_means, _SMALLEST_MEAN)
    first_lengths = np.log([1 + length_in_letters(text) for text in first])
    second_lengths = np.log([1 + length_in_letters(text) for text in second])
    numbers_differ = np.array(
        [not numbers_agree(a, b) for a, b in zip(first, second, strict=True)], np.float64
    )
    columns = [
        ratios,
        cosines,
        (first_lengths + second_lengths) / 2,
        np.abs(first_lengths - second_lengths),
        numbers_differ,
    ]
    return np.stack(columns, axis=1)


def mined_pair_evidence(
    pairs: ScoredPairs, first: Sequence[str], second: Sequence[str]
) -> np.ndarray:
    """Return [`pair_evidence`] of mined pairs, (p, 5) float64.

    Args:
        pairs: p pairs of rows.
        first: The texts of all rows of the first side, (n,).
        second: Those of the second side, (m,).
    """
    return pair_evidence(
        [first[row] for row in pairs.first],
        [second[row] for row in pairs.second],
        pairs.cosines,
        pairs.neighbor_means,
    )


class Calibration(pydantic.BaseModel):
    """Convert the cosine of a pair into the probability that it is a translation.

    The model is a logistic regression on the columns of [`pair_evidence`]. The probability also
    depends on `share`, the share of texts that have a translation on the other side (Bayes' rule
    for a changed prior; Elkan, 2001):

        p = sigmoid(intercept + weights * evidence + logit(share))

    This is an approximation: the share of correct pairs is somewhat higher among mined pairs.

    Attributes:
        weights: The weight of each column of [`pair_evidence`], by name.
        intercept: The constant term, for a share of 0.5.
        neighbors: The number of nearest neighbors in the ratio.
        prompt: The prompt of the embedder.
        pooling: The pooling of the embedder.
        probe_cosines: The cosines of some probe texts, which identify the model.
        pairs: The number of pairs it was fitted to.
        languages: The languages of these pairs.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    weights: dict[str, float]
    intercept: float
    neighbors: int = pydantic.Field(ge=1)
    prompt: str
    pooling: str
    probe_cosines: list[float]
    pairs: int
    languages: list[str]

    @pydantic.field_validator("weights")
    @classmethod
    def _check_weights(cls, weights: dict[str, float]) -> dict[str, float]:
        if set(weights) != set(EVIDENCE):
            raise ValueError(f"expected the weights of {', '.join(EVIDENCE)}")
        return weights

    def probabilities(self, evidence: np.ndarray, share: float = DEFAULT_SHARE) -> np.ndarray:
        """Return the probability that each pair is a translation, (p,).

        Args:
            evidence: (p, 5), from [`pair_evidence`].
            share: The share of texts that have a translation on the other side, between 0 and 1.

        Raises:
            TmdeError: The share is out of range.
        """
        check_share(share)
        weights = np.array([self.weights[name] for name in EVIDENCE])
        probabilities: np.ndarray = expit(evidence @ weights + self.intercept + logit(share))
        return probabilities

    def probabilities_among(
        self,
        texts: tuple[Sequence[str], Sequence[str]],
        vectors: tuple[np.ndarray, np.ndarray],
        others: tuple[np.ndarray, np.ndarray],
        share: float,
    ) -> list[float]:
        """Return the probability that each pair is a translation, (p,), given the other texts.

        Args:
            texts: The first and second texts of the pairs, (p,) each.
            vectors: Their unit vectors, (p, d) each.
            others: The unit vectors of all texts on each side, (n, d) and (m, d), in which to find
                neighbors.
            share: See `probabilities`.
        """
        first, second = vectors
        first_means = self._neighbor_means(first, others[1])
        second_means = self._neighbor_means(second, others[0])
        neighbor_means = (first_means + second_means) / 2
        cosines = (first * second).sum(axis=1)
        evidence = pair_evidence(texts[0], texts[1], cosines, neighbor_means)
        probabilities: list[float] = self.probabilities(evidence, share).tolist()
        return probabilities

    def _neighbor_means(self, vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the mean cosine of vectors (p, d) to their nearest among others, (p,)."""
        neighbors = min(self.neighbors, len(others))
        means = np.empty(len(vectors), np.float32)
        for rows in slices(len(vectors), _COMPARED_PAIRS):
            # With queries of another type, numpy would convert all others every time.
            queries = vectors[rows].astype(others.dtype)
            cosines, _ = largest(products(queries, others), neighbors)
            means[rows] = np.clip(cosines, -1, 1).mean(axis=1)
        return means

    def check_embedder(self, embedder: DocumentEmbedder) -> None:
        """Raise `TmdeError` if the embedder's vectors differ from the calibrated ones."""
        for name, expected in (("prompt", self.prompt), ("pooling", self.pooling)):
            value = getattr(embedder, name)
            if value != expected:
                raise TmdeError(
                    f"{name}: found {value!r}, expected {expected!r}, the calibrated setting; "
                    "run `tmde calibrate` with your setting and pass its file"
                )
        differences = np.abs(np.subtract(probe_cosines(embedder), self.probe_cosines))
        if differences.max() > _SAME_MODEL:
            raise TmdeError(
                "The calibration belongs to another model; run `tmde calibrate` with this "
                "model and pass its file"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration as JSON."""
        with replacing(Path(path)) as temporary:
            temporary.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read a file of [`save`][tmde.documents.calibration.Calibration.save].

        Raises:
            TmdeError: The file is not a calibration.
            OSError: The file can't be read.
        """
        content = Path(path).read_bytes()
        try:
            return cls.model_validate_json(content)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise TmdeError(
                f"{os.fspath(path)}: {place}: {first['msg']}; expected a file from `tmde calibrate`"
            ) from None

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike[str],
        revision: str | None = None,
        token: str | bool | None = None,
    ) -> Calibration:
        """Load the calibration stored with a model.

        Args:
            name: A folder, a Hub id or a packaged model's name.
            revision: The branch, tag or commit on the Hub.
            token: The Hub token for a private repository.

        Raises:
            TmdeError: The model has no calibration, or its file is invalid.
        """
        calibration = cls.find(name, revision, token)
        if calibration is None:
            raise TmdeError(
                f"{name}: found no calibration, required for probabilities; create one with "
                f"`tmde calibrate {name} --pairs FILE`"
            )
        return calibration

    @classmethod
    def find(
        cls,
        name: str | os.PathLike[str],
        revision: str | None = None,
        token: str | bool | None = None,
    ) -> Calibration | None:
        """Load the calibration stored with a model; None if it has none.

        Arguments and errors are the same as in `from_pretrained`.
        """
        folder = packaged_folder(name) or name
        path = find_model_file(folder, CALIBRATION_FILE, revision, token)
        return None if path is None else cls.load(path)
