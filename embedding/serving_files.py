"""The files beside an ONNX graph, by which servers and browsers read texts for it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from modeling_tmde import TmdeError
from modeling_tmde.sentence_transformers_files import (
    TRANSFORMER_FILE,
    write_json,
    write_sentence_transformers_files,
)
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.hub_names import holds_weights
from tmde.embedding.model_files import copy_card

# In tokens, the longest text of a model without a limit. text-embeddings-inference refuses a model
# whose longest text is longer than its batches, by default of 16,384 tokens.
LONGEST_SERVED = 8192

_CONFIG_FILE = "config.json"


def check_holds_no_other_model(embedder: DocumentEmbedder, folder: Path) -> None:
    """Check that a folder without weights has no graph of a model with another configuration.

    Raises:
        TmdeError: It has.
    """
    path = folder / _CONFIG_FILE
    if holds_weights(folder) or not path.exists():
        return
    if json.loads(path.read_text(encoding="utf-8")) != _serving_config(embedder):
        raise TmdeError(f"{folder} contains another model; choose a new folder")


def write_serving_files(embedder: DocumentEmbedder, folder: Path) -> None:
    """Write configuration, tokenizer, pooling and card in a folder that has no weights.

    A folder with weights is that of the model itself, and is left as it is.

    Args:
        embedder: The model, its tokenizer, its pooling and its prompt.
        folder: The folder of the graph.
    """
    if holds_weights(folder):
        return
    write_json(folder / _CONFIG_FILE, _serving_config(embedder))
    _write_tokenizer(embedder, folder)
    write_sentence_transformers_files(
        embedder.model, folder, pooling=embedder.pooling, prompt=embedder.prompt
    )
    length = _served_length(embedder)
    write_json(folder / TRANSFORMER_FILE, {"max_seq_length": length, "do_lower_case": False})
    copy_card(embedder.model, folder)


def _served_length(embedder: DocumentEmbedder) -> int:
    """Return the longest text in tokens, special tokens included."""
    return min(embedder.max_length, LONGEST_SERVED)


def _serving_config(embedder: DocumentEmbedder) -> dict[str, Any]:
    """Return the configuration of the model, and what servers ask of every model.

    The type of the model stays what it is. The Python code of the model stays behind, and so does
    `auto_map`, which names it.
    """
    config = embedder.model.config
    content: dict[str, Any] = json.loads(config.to_json_string())
    content.pop("auto_map", None)
    content.setdefault("architectures", None)
    if content["architectures"] is None:
        content["architectures"] = [type(embedder.model).__name__]
    content.setdefault("hidden_size", config.hidden_size)
    content.setdefault("num_hidden_layers", getattr(config, "num_hidden_layers", 0))
    content.setdefault("max_position_embeddings", _served_length(embedder))
    return content


def _write_tokenizer(embedder: DocumentEmbedder, folder: Path) -> None:
    """Save the tokenizer, with the longest text that the model takes."""
    tokenizer = copy.copy(embedder.tokenizer)
    tokenizer.model_max_length = _served_length(embedder)
    tokenizer.save_pretrained(folder)
    # transformers 5 no longer writes this file, which fastembed reads.
    write_json(folder / "special_tokens_map.json", _special_tokens(embedder))


def _special_tokens(embedder: DocumentEmbedder) -> dict[str, str]:
    """Return the special tokens by their roles."""
    tokens: dict[str, str] = {}
    for role, token in embedder.tokenizer.special_tokens_map.items():
        if isinstance(token, str):
            tokens[role] = token
    return tokens
