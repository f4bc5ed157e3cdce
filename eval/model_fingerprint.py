"""A hash of everything that affects the vectors of an embedder."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.imported_code import imported_files
from tmde.eval.role_prompts import prompt_of_role


def model_fingerprint(embedder: DocumentEmbedder) -> str:
    """Return a hash of everything that affects the vectors of an embedder.

    It covers weights, configuration, tokenizer, prompts, limits, further modules, code, and
    the versions of the libraries that find sentences and pool outputs.

    Args:
        embedder: The embedder.

    Returns:
        The first 16 hexadecimal digits of a SHA-256.
    """
    digest = hashlib.sha256()
    weights = [weight_bytes(embedder.model)]
    weights += [weight_bytes(module) for module in embedder.projections]
    for content in itertools.chain(_code(embedder), *weights):
        digest.update(content)
    settings = [
        {**embedder.model.config.to_dict(), "_name_or_path": None},
        tokenizer_content(embedder.tokenizer),
        [
            type(embedder.model).__name__,
            embedder.pooling,
            embedder.prompt,
            prompt_of_role(embedder, "query"),
            prompt_of_role(embedder, "document"),
            embedder.max_length,
            embedder.dimension,
        ],
        [str(module) for module in list(embedder.children())[1:]],
        embedder.long_document_settings,
        ["sentencex", metadata.version("sentencex")],
        ["sentence-transformers", metadata.version("sentence-transformers")],
    ]
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]


def _code(embedder: DocumentEmbedder) -> Iterator[bytes]:
    """Yield the source files of everything that computes vectors."""
    classes = (DocumentEmbedder, type(embedder), type(embedder.model))
    modules = [used_class.__module__ for used_class in classes]
    for file in imported_files(*modules):
        yield file.read_bytes()


def weight_bytes(model: torch.nn.Module) -> Iterator[bytes | memoryview]:
    """Yield name, shape, dtype and bytes of every weight, in the order of the names."""
    for name, tensor in sorted(model.state_dict().items()):
        if name.startswith("pooler."):
            # The pooler of an encoder of the Hub is never used. Where a checkpoint has none, it is
            # random at every start.
            continue
        yield f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode()
        yield tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def tokenizer_content(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return everything that decides how a tokenizer reads texts."""
    if not tokenizer.is_fast:
        return tokenizer.get_vocab()
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    # An earlier call may have left its truncation and padding in the tokenizer.
    return content | {"truncation": None, "padding": None}
