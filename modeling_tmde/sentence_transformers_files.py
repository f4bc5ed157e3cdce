# SPDX-License-Identifier: Apache-2.0

"""The files by which sentence-transformers opens a checkpoint."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from .inspection import NO_LIMIT, encoder_body, position_limit

logger = logging.getLogger(__name__)

# The same names as `COMPANIONS` of common.py: remote code does without this module.
MODULES_FILE = "modules.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
POOLING_FILE = "1_Pooling/config.json"
PROMPTS_FILE = "config_sentence_transformers.json"

# What sentence-transformers does to a text, by the names of its version 5; a literal `</s>` is
# text, as for `DocumentEmbedder`. Earlier versions of this package did not say the latter.
_READING: dict[str, Any] = {
    "do_lower_case": False,
    "tokenizer_args": {"split_special_tokens": True},
}
_EARLIER_READING: dict[str, Any] = {"do_lower_case": False}
_LIMIT_OF_THE_TOKENIZER = {"max_seq_length": NO_LIMIT}


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

    `save_pretrained` of the models of this package calls this before it writes `config.json`, which
    still tells whose files an earlier save left in the folder. Call it afterwards with a pooling or
    a prompt of your own.

    A file that a person edited is kept, see `_is_edited`, with a warning if it contradicts the
    model. Prompts and similarity are made to be edited, so there is no warning for theirs.

    Args:
        model: With or without a decoder or a head.
        folder: Made if missing.
        pooling: `"mean"` for a model that takes the mean of its outputs.
        prompt: What readers put before every text.
    """
    folder = Path(folder)
    for name, content in _contents(model, pooling, prompt).items():
        path = folder / name
        stored = _read_json(path)
        if stored is None or not _is_edited(name, stored, folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        elif name != PROMPTS_FILE and not _agrees(stored, content):
            logger.warning(
                f"{path} was edited and is kept, but tmde would write {json.dumps(content)} there"
            )


# ---- What the files hold


def _contents(model: PreTrainedModel, pooling: str, prompt: str) -> dict[str, Any]:
    """Return the content of each file; the arguments are those above."""
    encoder = encoder_body(model)
    transformer = dict(_READING)
    if position_limit(encoder) == NO_LIMIT:
        # With positions, sentence-transformers takes the smaller of `max_position_embeddings` and
        # `model_max_length` by itself.
        transformer = _LIMIT_OF_THE_TOKENIZER | _READING
    return {
        MODULES_FILE: _modules(getattr(encoder, "needs_language_ids", False)),
        TRANSFORMER_FILE: transformer,
        POOLING_FILE: _pooling(encoder.config.hidden_size, pooling),
        PROMPTS_FILE: _prompts(prompt),
    }


def _modules(needs_language: bool) -> list[dict[str, Any]]:
    """Return the content of `modules.json`."""
    package = "sentence_transformers.models"  # the names of version 5, which later ones read too
    transformer: dict[str, Any] = {
        "idx": 0,
        "name": "0",
        "path": "",
        "type": f"{package}.Transformer",
    }
    if needs_language:
        transformer["kwargs"] = ["language"]
    pooling = {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{package}.Pooling"}
    return [transformer, pooling]


def _pooling(width: int | None, pooling: str) -> dict[str, int | bool | None]:
    """Return the content of `1_Pooling/config.json`."""
    return {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
    }


def _prompts(prompt: str) -> dict[str, Any]:
    """Return the content of `config_sentence_transformers.json`."""
    return {
        "model_type": "SentenceTransformer",
        "prompts": {"default": prompt} if prompt else {},
        "default_prompt_name": "default" if prompt else None,
        "similarity_fn_name": "cosine",
    }


# ---- Which files a person edited


def _read_json(path: Path) -> Any:
    """Return the content of a file; None without one, or if a killed save left it damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _is_edited(name: str, stored: Any, folder: Path) -> bool:
    """Return whether a file of sentence-transformers holds what this package writes for no model.

    What it writes for another model is no edit: an earlier save left it behind, and it has to be
    replaced.

    Args:
        name: The name of the file in the folder.
        stored: Its content.
        folder: The folder, with the `config.json` of the earlier save.
    """
    if name == MODULES_FILE:
        return stored not in (_modules(needs_language=False), _modules(needs_language=True))
    if not isinstance(stored, dict):
        return True
    if name == PROMPTS_FILE:
        return stored != _prompts("")
    if name == TRANSFORMER_FILE:
        return not _is_our_transformer(stored)
    width = stored.get("word_embedding_dimension")
    if stored == _pooling(width, "cls"):
        return False
    # Models of this package get "cls", unless a person wants it otherwise.
    return stored != _pooling(width, "mean") or _is_folder_of_ours(folder)


def _is_our_transformer(stored: dict[str, Any]) -> bool:
    """Return whether this package writes, or wrote, this `sentence_bert_config.json`."""
    contents: list[dict[str, Any]] = []
    for reading in (_READING, _EARLIER_READING):
        contents.append(reading)
        contents.append(_LIMIT_OF_THE_TOKENIZER | reading)
    return stored in contents


def _is_folder_of_ours(folder: Path) -> bool:
    """Return whether a model of this package was saved in a folder, or none was."""
    config = _read_json(folder / "config.json")
    if not isinstance(config, dict):
        return True
    return str(config.get("model_type", "tmde")).startswith("tmde")


def _agrees(stored: Any, content: Any) -> bool:
    """Return whether a file has all that `content` has, and perhaps more.

    More could be another module or key.
    """
    if isinstance(content, list):
        return isinstance(stored, list) and all(item in stored for item in content)
    return isinstance(stored, dict) and content.items() <= stored.items()
