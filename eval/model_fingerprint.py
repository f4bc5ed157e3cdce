"""What affects the vectors of an embedder: its prompts for queries and documents, and a hash."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerBase

from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.environment import CODE_OF_VECTORS, code_digest, folder_digest

# What texts are in a search; None where all texts have the same role.
Role = Literal["query", "document"] | None


def prompt_of_role(embedder: DocumentEmbedder, role: Role) -> str:
    """Return the prompt with which `encode`, `encode_query` or `encode_document` reads texts.

    Args:
        embedder: The embedder.
        role: The role of the texts; None for `encode`.
    """
    if role is None:
        return embedder.prompt
    return embedder.prompts[role] or ""


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
    code = code_of_vectors(type(embedder), type(embedder.model))
    weights = [weight_bytes(embedder.model)]
    weights += [weight_bytes(module) for module in embedder.projections]
    for content in itertools.chain(code, *weights):
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


def code_of_vectors(*classes: type) -> Iterator[bytes]:
    """Yield hashes of everything that computes vectors: this package, and the files of classes.

    Args:
        *classes: Classes of models. The code of a class that comes with a checkpoint, or of a
            library, is the folder of its module.
    """
    yield code_digest(CODE_OF_VECTORS).encode()
    for used_class in classes:
        path = getattr(sys.modules[used_class.__module__], "__file__", None)
        if path is not None:  # A class of a notebook has no file.
            yield folder_digest(Path(path).parent)


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
