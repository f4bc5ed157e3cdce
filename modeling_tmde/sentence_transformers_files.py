# SPDX-License-Identifier: Apache-2.0

"""The files by which sentence-transformers opens a checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from .inspection import NO_LIMIT, encoder_body, position_limit

MODULES_FILE = "modules.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
POOLING_FILE = "1_Pooling/config.json"
PROMPTS_FILE = "config_sentence_transformers.json"
COMPANIONS = (MODULES_FILE, TRANSFORMER_FILE, POOLING_FILE, PROMPTS_FILE)

# The name of the first module in version 5 of sentence-transformers, which later versions read too.
TRANSFORMER_TYPE = "sentence_transformers.models.Transformer"
_POOLING_TYPE = "sentence_transformers.models.Pooling"


def write_sentence_transformers_files(
    model: PreTrainedModel, folder: str | os.PathLike, pooling: str = "cls", prompt: str = ""
) -> None:
    """Write the files by which sentence-transformers opens a checkpoint of this package.

        SentenceTransformer(folder, trust_remote_code=True).encode(["Guten Tag", "Good day"])

    gives the vectors of `DocumentEmbedder`: a Transformer module, and a Pooling module that takes
    position 0 of `last_hidden_state`, where every model of this package has its embedding. There is
    no Normalize module. For a model with a part for each language, give
    `encode(texts, language="de")`.

    The longest input is that of `DocumentEmbedder.max_length`.

    `save_pretrained` of the models of this package calls this. Call it afterwards with a pooling or
    a prompt of your own.

    Prompts and similarity are made to be edited, so their file is kept if it is there. If
    `modules.json` lists further modules, such as Dense, every file is kept.

    Args:
        model: With or without a decoder or a head.
        folder: Made if missing.
        pooling: `"mean"` for a model that takes the mean of its outputs.
        prompt: What readers put before every text.
    """
    folder = Path(folder)
    if _has_further_modules(folder / MODULES_FILE):
        return
    encoder = encoder_body(model)
    write_json(folder / MODULES_FILE, _modules(encoder))
    write_json(folder / TRANSFORMER_FILE, transformer_settings(encoder))
    write_json(folder / POOLING_FILE, _pooling(encoder.config.hidden_size, pooling))
    if prompt or not (folder / PROMPTS_FILE).exists():
        write_json(folder / PROMPTS_FILE, prompt_settings(prompt))


def transformer_settings(encoder: PreTrainedModel) -> dict[str, Any]:
    """Return how sentence-transformers reads texts, the content of `sentence_bert_config.json`.

    A literal `</s>` is text, as for `DocumentEmbedder`. The names are those of version 5, which
    later versions read too.
    """
    settings: dict[str, Any] = {
        "do_lower_case": False,
        "tokenizer_args": {"split_special_tokens": True},
    }
    if position_limit(encoder) == NO_LIMIT:
        # With positions, sentence-transformers takes the smaller of `max_position_embeddings` and
        # `model_max_length` by itself.
        settings["max_seq_length"] = NO_LIMIT
    return settings


def _modules(encoder: PreTrainedModel) -> list[dict[str, Any]]:
    """Return the content of `modules.json`."""
    transformer: dict[str, Any] = {"idx": 0, "name": "0", "path": "", "type": TRANSFORMER_TYPE}
    if getattr(encoder, "needs_language_ids", False):
        transformer["kwargs"] = ["language"]
    pooling = {"idx": 1, "name": "1", "path": "1_Pooling", "type": _POOLING_TYPE}
    return [transformer, pooling]


def _pooling(width: int | None, pooling: str) -> dict[str, int | bool | None]:
    """Return the content of `1_Pooling/config.json`."""
    return {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
        # Some versions of text-embeddings-inference refuse a file without these.
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }


def prompt_settings(prompt: str) -> dict[str, Any]:
    """Return the content of `config_sentence_transformers.json`."""
    return {
        "model_type": "SentenceTransformer",
        "prompts": {"default": prompt} if prompt else {},
        "default_prompt_name": "default" if prompt else None,
        "similarity_fn_name": "cosine",
    }


def _has_further_modules(path: Path) -> bool:
    """Return whether a `modules.json` lists more than a Transformer and a Pooling.

    A file that a killed save left damaged lists nothing.
    """
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return len(modules) > 2


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, and its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
