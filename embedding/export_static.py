# SPDX-License-Identifier: Apache-2.0

"""Export a bag of tokens as a static embedding of sentence-transformers."""

from __future__ import annotations

import json
import os
from typing import cast

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import BagModel, TmdeError
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.export_check import TEXTS, TOLERANCE


def export_static_embedding(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | os.PathLike[str]
) -> float:
    """Write a bag model as `SentenceTransformer(folder)` opens it: a table of vectors.

    This package is not needed to open it. Its two modules are a StaticEmbedding, which takes the
    mean of `exp(w_t) E_t` in float32 over the tokens of a text (`<s>` and `</s>`, of next to no
    weight, are left out), and a Normalize. They give the vectors of [`BagModel`]; but a text
    without any token gets zeros.

    Args:
        model: A [`BagModel`].
        tokenizer: Its tokenizer.
        folder: Where to write; files of an earlier export are overwritten.

    Returns:
        The largest difference between the vectors of the table and of the model on `TEXTS`.

    Raises:
        ImportError: sentence-transformers is not installed.
        TmdeError: The model is no bag, does not normalize, or damps counts; or the table gives
            other vectors.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    _check_is_a_normalized_mean(model)
    weighted_table = _weighted_table(cast(BagModel, model))
    static_embedding = StaticEmbedding(
        _tokenizer_of_plain_text(tokenizer), embedding_weights=weighted_table
    )
    static_model = SentenceTransformer(
        modules=[static_embedding, Normalize()], device="cpu", similarity_fn_name="cosine"
    )
    expected = DocumentEmbedder(model, tokenizer).encode(TEXTS)
    vectors = static_model.encode(list(TEXTS), show_progress_bar=False)
    difference = float(np.abs(vectors - expected).max())
    if not difference <= TOLERANCE:  # Written so that NaN fails.
        raise TmdeError(
            f"the table's vectors differ from the model's by {difference:.1e}, expected at "
            f"most {TOLERANCE:.0e}"
        )
    static_model.save(str(folder), create_model_card=False)
    return difference


def _check_is_a_normalized_mean(model: PreTrainedModel) -> None:
    """Check that a static embedding can give the vectors of a model."""
    config = model.config
    if config.model_type != "tmde_bag":
        raise TmdeError(
            f"model: found {type(model).__name__}, expected a BagModel, the only model that sums "
            "token vectors"
        )
    if not config.normalize or config.sublinear_counts:
        raise TmdeError(
            f"model: found normalize={config.normalize} and sublinear_counts="
            f"{config.sublinear_counts} in its config, expected True and False: a static embedding "
            "is a normalized mean. Train a bag with --from-scratch or model.sublinear_counts=false"
        )


@torch.no_grad()
def _weighted_table(model: BagModel) -> torch.Tensor:
    """Return the vector of each token times its weight, (vocab_size, d_model) float32."""
    weights = model.token_weights.float().exp().cpu()  # (vocab_size,)
    return weights[:, None] * model.embed_tokens.weight.float().cpu()


def _tokenizer_of_plain_text(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Return a tokenizer without special tokens, for which a literal `</s>` is text."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["truncation"] = None
    state["padding"] = None
    state["added_tokens"] = []
    state["post_processor"] = None
    return Tokenizer.from_str(json.dumps(state))
