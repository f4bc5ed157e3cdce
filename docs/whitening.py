"""Whiten a bag: its vectors depend less on what translations do not share.

    python docs/whitening.py runs/bag -o runs/whitened --train corpus/

Directions in which the vectors of translations differ become shorter, and the others longer.
Questions then find their paragraphs more often, and similarities are closer to those that people
see. Embedding is as fast as before. For models of the recipes `bag` and `default`, after training;
the corpus may be that of the training.
"""

import copy
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import scipy.linalg
import torch
import typer
from torch import nn

from modeling_tmde import TmdeError
from modeling_tmde.modeling_bag import BagModel
from modeling_tmde.sentence_transformers_files import write_sentence_transformers_files
from tmde import DocumentEmbedder, load_parallel

POWER = 0.6  # Chosen on development data, see docs/experiments.md.
PAIRS_PER_COLUMN = 10  # A covariance matrix of fewer pairs is mostly chance.
# Directions with a smaller share of the mean variance count no more than one with this share.
LEAST_VARIANCE = 1e-3


def export_whitened(
    embedder: DocumentEmbedder,
    pairs: Sequence[tuple[str, str]],
    folder: str | os.PathLike[str],
    power: float,
) -> None:
    """Write a bag whose vectors are whitened by the differences of translations.

    Let W be the mean of `(u - v)(u - v)^T` over the vectors u and v of translations. Every vector
    is multiplied by `(d W / trace(W))^(-power / 2)`, and rotated: directions in which translations
    differ are shortened, the others lengthened. A bag is a sum, so its table takes the matrix in,
    and embedding costs nothing more. With `power=1` this is within-class covariance normalization
    (Hatch et al. 2006) for translations as classes; of vectors of sentences, whitening by their own
    covariance is known to help (Su et al. 2021, arXiv 2103.15316).

    The rotation changes no cosine. It makes the matrix triangular: each number of a vector depends
    on itself and the numbers before it, so vectors that can be cut still can.

    Args:
        embedder: The bag.
        pairs: Texts and their translations, at least 10 for each column of the vectors.
        folder: Made if missing.
        power: From 0, which changes nothing, to 1.

    Raises:
        TmdeError: The model is no bag, `power` is out of range, or the pairs are too few or all
            equal.
    """
    bag = bag_of(embedder)
    if not 0 <= power <= 1:
        raise TmdeError(f"power: found {power}, expected a number from 0 to 1")
    width = bag.config.d_model
    least_pairs = PAIRS_PER_COLUMN * width
    if len(pairs) < least_pairs:
        raise TmdeError(
            f"Found {len(pairs):,} pairs of translations, expected at least {least_pairs:,}: "
            f"{PAIRS_PER_COLUMN} for each of {width} columns"
        )
    matrix = torch.from_numpy(_whitening_matrix(_differences(embedder, pairs), power))
    model = copy.deepcopy(bag)
    nn.Module.to(model, "cpu", torch.float32)  # transformers' own `to` has no types.
    table = model.embed_tokens
    table.weight = nn.Parameter((table.weight.detach().double() @ matrix).float())
    model.save_pretrained(folder)
    write_sentence_transformers_files(model, folder, embedder.pooling, embedder.prompt)
    embedder.tokenizer.save_pretrained(folder)


def bag_of(embedder: DocumentEmbedder) -> BagModel:
    """Return the bag of an embedder.

    Raises:
        TmdeError: Its model is another one.
    """
    model = embedder.model
    if not isinstance(model, BagModel):
        raise TmdeError(
            f"Found a model of type {model.config.model_type}, expected a bag (tmde_bag): only the "
            "table of a bag can take the whitening in"
        )
    return model


def _differences(embedder: DocumentEmbedder, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Return the differences of the vectors of translations, (pairs, d) float64."""
    first = embedder.encode([first for first, _ in pairs])
    second = embedder.encode([second for _, second in pairs])
    return np.asarray(first, np.float64) - np.asarray(second, np.float64)


def _whitening_matrix(differences: np.ndarray, power: float) -> np.ndarray:
    """Return the upper triangular matrix that whitens by differences (pairs, d), as (d, d)."""
    covariance = differences.T @ differences / len(differences)
    variances, directions = np.linalg.eigh(covariance)
    mean_variance = variances.mean()
    if mean_variance <= 0:
        raise TmdeError(
            "Found pairs whose two texts have the same vectors, expected translations into another "
            "language"
        )
    scaled = np.maximum(variances / mean_variance, LEAST_VARIANCE)
    symmetric = (directions * scaled ** (-power / 2)) @ directions.T
    # symmetric = triangular @ rotation. Without the rotation, all cosines are the same.
    triangular, _ = scipy.linalg.rq(symmetric)
    # A column may have either sign.
    matrix: np.ndarray = triangular * np.sign(np.diag(triangular))
    return matrix


def draw_pairs(sources: Sequence[str], count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return two texts of each of some parallel rows, in languages drawn at random."""
    generator = random.Random(seed)
    rows = load_parallel(list(sources))
    order = list(range(len(rows)))
    generator.shuffle(order)
    pairs = []
    for row in rows.select(order[:count])["translation"]:
        texts = list(filter(None, row.values()))
        if len(texts) >= 2:
            first, second = generator.sample(texts, 2)
            pairs.append((first, second))
    return pairs


def main(
    model: Annotated[str, typer.Argument(help="The bag.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to make.")],
    train: Annotated[list[str], typer.Option(help="Parallel rows; repeatable.")],
    pairs: Annotated[int, typer.Option(min=1, help="Rows that are read at most.")] = 20_000,
    power: Annotated[float, typer.Option(help="0 changes nothing, 1 whitens wholly.")] = POWER,
) -> None:
    """Write a bag that is whitened by translations."""
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu", dtype="float32")
    export_whitened(embedder, draw_pairs(train, pairs), output, power)


if __name__ == "__main__":
    typer.run(main)
