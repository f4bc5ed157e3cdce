"""Rotate the vectors of a model to principal components, so that they can be cut.

    python docs/principal_components.py accurate -o runs/sorted --text documents.txt

The new axes are the principal components of the vectors of your texts, one a line. Whole vectors
have the same cosines as before. The first numbers of a vector (`--truncate-dim`) hold most of it,
for texts of that kind. For bags and for encoders of the recipe `adapted`, after training.
"""

import copy
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import torch
import typer
from torch import nn

from modeling_tmde import TmdeError
from modeling_tmde.modeling_adapted import AdaptedModel, EmbeddingProjection
from modeling_tmde.modeling_bag import BagModel
from modeling_tmde.sentence_transformers_files import write_sentence_transformers_files
from tmde import DocumentEmbedder

Rotatable: TypeAlias = BagModel | AdaptedModel


def export_pca(
    embedder: DocumentEmbedder, texts: Sequence[str], folder: str | os.PathLike[str]
) -> None:
    """Write a model whose vectors are rotated to the principal components of those of texts.

    The rotation changes no cosine and no distance. It sorts the numbers of a vector by their
    variance on these texts, so that the first of them hold as much of these vectors as so many
    numbers can. Texts of another kind gain less, or lose. The components are those about the mean;
    the mean itself is kept, because cosines depend on it.

    A bag is a sum, so its table takes the rotation in, and embedding costs nothing more. An encoder
    gets a layer behind its pooling (`config.projection`). Its decoder, if it has one, is left out.

    Args:
        embedder: A bag, or an encoder of the recipe `adapted`.
        texts: At least as many as the vectors have columns.
        folder: Made if missing.

    Raises:
        TmdeError: The model is another one, or the texts are too few.
    """
    model = copy.deepcopy(rotatable_model(embedder))
    nn.Module.to(model, "cpu", torch.float32)  # transformers' own `to` has no types.
    width = model.config.d_model
    if len(texts) < width:
        raise TmdeError(
            f"Found {len(texts):,} texts, expected at least {width:,}, one for each column of the "
            "vectors. Pass more texts"
        )
    vectors = np.asarray(embedder.encode(list(texts)), np.float64)
    components = torch.from_numpy(_principal_components(vectors))
    if isinstance(model, BagModel):
        table = model.embed_tokens.weight.detach().double()
        model.embed_tokens.weight = nn.Parameter((table @ components).float())
    else:
        _set_projection(model, components)
    model.save_pretrained(folder)
    write_sentence_transformers_files(model, folder, embedder.pooling, embedder.prompt)
    embedder.tokenizer.save_pretrained(folder)


def rotatable_model(embedder: DocumentEmbedder) -> Rotatable:
    """Return the model of an embedder.

    Raises:
        TmdeError: It can take no rotation in.
    """
    model = embedder.model
    if isinstance(model, BagModel | AdaptedModel):
        return model
    raise TmdeError(
        f"Found a model of type {model.config.model_type}, expected a bag (tmde_bag) or an encoder "
        "of the recipe adapted (tmde_adapted)"
    )


def _set_projection(model: AdaptedModel, components: torch.Tensor) -> None:
    """Multiply the embedding of an encoder by the components, after what it is multiplied by now.

    Args:
        model: The encoder, which is changed.
        components: The principal components as columns, (d, d).
    """
    matrix = components.T  # A linear layer has its outputs as rows.
    if model.config.projection:
        matrix = matrix @ model.projection.weight.detach().double()
    model.config.projection = True
    model.projection = EmbeddingProjection(len(matrix), len(matrix), bias=False)
    model.projection.requires_grad_(False)
    model.projection.weight.copy_(matrix)


def _principal_components(vectors: np.ndarray) -> np.ndarray:
    """Return the principal components of vectors (n, d) as columns (d, d), the largest first.

    The largest number of each component is positive, so that a model has one rotation.
    """
    centered = vectors - vectors.mean(axis=0)
    _, components = np.linalg.eigh(centered.T @ centered)
    components = components[:, ::-1]
    largest = np.abs(components).argmax(axis=0)
    signs = np.sign(components[largest, np.arange(len(components))])
    rotation: np.ndarray = components * signs
    return rotation


def main(
    model: Annotated[str, typer.Argument(help="The bag or the encoder.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to make.")],
    text: Annotated[Path, typer.Option(help="File with one text a line.")],
    samples: Annotated[int, typer.Option(min=1, help="Texts that are drawn at most.")] = 5_000,
) -> None:
    """Write a model whose vectors are rotated to the principal components of texts."""
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu", dtype="float32")
    texts = text.read_text(encoding="utf-8").splitlines()
    random.Random(0).shuffle(texts)
    try:
        export_pca(embedder, texts[:samples], output)
    except TmdeError as error:
        raise typer.BadParameter(str(error)) from error


if __name__ == "__main__":
    typer.run(main)
