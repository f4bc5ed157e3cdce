"""What exports share: the models that they refuse, and the texts that they are compared on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from modeling_tmde import BagModel, TmdeError
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.opening import open_embedder

# In tokens, of the longest text that an ONNX graph and the model are compared on.
LONGEST = 1024
# How far outputs may differ in float32, relative to the largest output.
TOLERANCE = 1e-4
# Article 1 of the Universal Declaration of Human Rights.
TEXTS = (
    "All human beings are born free and equal in dignity and rights. They are endowed with reason "
    "and conscience and should act towards one another in a spirit of brotherhood.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
    "人人生而自由，在尊严和权利上一律平等。",
    "Equal. " * LONGEST,
)


def open_exportable(model: str, loading: Mapping[str, Any] | None = None) -> DocumentEmbedder:
    """Return an embedder whose encoder and pooling make its vectors, on the CPU in float32.

    Args:
        model: A folder, a Hub id, or the name of a packaged model.
        loading: Further arguments of `DocumentEmbedder.from_pretrained`.

    Raises:
        TmdeError: The model or one of the arguments cannot be used, or it cannot be exported.
    """
    embedder = open_embedder(model, {"device": "cpu", "dtype": "float32", **(loading or {})})
    check_can_be_exported(embedder)
    return embedder


def check_can_be_exported(embedder: DocumentEmbedder) -> None:
    """Refuse an embedder whose vectors an exported encoder and its pooling would not give.

    Raises:
        TmdeError: Modules follow the pooling, the pooling leaves the prompt out, or it is neither
            "cls" nor "mean".
    """
    module_names = [type(module).__name__ for module in embedder.projections]
    if module_names:
        raise TmdeError(f"Found the modules {module_names} after the pooling, expected none")
    if not embedder.includes_prompt:
        raise TmdeError("Found a pooling with include_prompt=false, expected one over all tokens")
    if embedder.pooling not in ("cls", "mean"):
        raise TmdeError(f"pooling: found {embedder.pooling!r}, expected 'cls' or 'mean'")


@torch.no_grad()
def weighted_table(bag: BagModel) -> torch.Tensor:
    """Return the vector of each token times its weight, (vocab_size, d_model) float32.

    Weights and vectors of 8 or 16 bits become numbers of 32 bits first.
    """
    weights = bag.token_weights.float().exp().cpu()  # (vocab_size,)
    return weights[:, None] * bag.embed_tokens.weight.float().cpu()
