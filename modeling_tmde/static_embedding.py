"""A bag model for people who have sentence-transformers and not this package.

from modeling_tmde.static_embedding import export_static_embedding

export_static_embedding("path/to/checkpoint", folder="static")
SentenceTransformer("static").encode(["Guten Tag"])  # (1, d), the vectors of BagModel

A checkpoint also opens with sentence-transformers as it is (`SentenceTransformer(path, trust_remote_code=True)`), any
bag and any other model; the export runs none of this package's code and holds nothing but a table.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from .loading import local_or_hub


def export_static_embedding(
    model_or_path: PreTrainedModel | str | os.PathLike,
    tokenizer: PreTrainedTokenizerFast | None = None,
    *,
    folder: str | os.PathLike,
) -> Path:
    """Writes a bag model as `sentence_transformers.SentenceTransformer(folder)` opens it, without this package.

    Its two modules are a StaticEmbedding, which takes the mean of `exp(w_t) E_t` in float32 over the tokens of a text
    (`<s>` and `</s>`, of next to no weight, are left out), and a Normalize. They give the vectors of [`BagModel`]; but
    a text without any token gets zeros.

    Args:
        model_or_path: a [`BagModel`], or its folder or Hub id.
        tokenizer: its tokenizer; default: the one beside the model.
        folder: where to write; files of an earlier export are overwritten.

    Returns:
        The folder.

    Raises:
        ImportError: sentence-transformers is not installed.
        ValueError: the model is no bag, does not normalise, or damps counts; a model without its tokenizer, a slow
            tokenizer, or one with more tokens than the model.
    """
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    except ImportError as error:
        raise ImportError(
            "export_static_embedding needs sentence-transformers 6 or newer: pip install -U sentence-transformers"
        ) from error
    if isinstance(model_or_path, PreTrainedModel):
        model, name = model_or_path, model_or_path.name_or_path
        if tokenizer is None and not name:
            raise ValueError("tokenizer: found None for a model that was not loaded, expected its tokenizer")
    else:
        name = local_or_hub(model_or_path)
        model = AutoModel.from_pretrained(name)
    tokenizer = AutoTokenizer.from_pretrained(name) if tokenizer is None else tokenizer
    _check(model, tokenizer)
    with torch.no_grad():
        weights = model.token_weights.float().exp().cpu()
        vectors = weights[:, None] * model.embed_tokens.weight.float().cpu()  # (vocab_size, d_model)
    modules = [StaticEmbedding(_plain_tokenizer(tokenizer), embedding_weights=vectors), Normalize()]
    SentenceTransformer(modules=modules, device="cpu", similarity_fn_name="cosine").save(
        str(folder), create_model_card=False
    )
    return Path(folder)


def _check(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    if model.config.model_type != "tmde_bag":
        raise ValueError(
            f"model: found {type(model).__name__} (model_type {model.config.model_type!r}), expected a BagModel: no "
            "other model is a sum of one vector for each token"
        )
    if not model.config.normalize:
        raise ValueError("model: found normalize=False in its config, expected True: the export normalises")
    if model.config.sublinear_counts:
        raise ValueError("model: found sublinear_counts=True in its config, expected False: a mean counts every token")
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ValueError(f"tokenizer: found {type(tokenizer).__name__}, expected a fast tokenizer")
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"tokenizer: found {len(tokenizer)} tokens, expected at most the {model.config.vocab_size} of the model: "
            "they do not belong together"
        )


def _plain_tokenizer(tokenizer: PreTrainedTokenizerFast) -> Tokenizer:
    """The backend of a tokenizer, as its own copy, that neither truncates nor pads."""
    state = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    if tokenizer.split_special_tokens:
        # transformers keeps this setting, that a literal "<s>" is text, outside the backend's file.
        state |= {"added_tokens": [], "post_processor": None}
    return Tokenizer.from_str(json.dumps(state))


__all__ = ["export_static_embedding"]
