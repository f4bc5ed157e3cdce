# SPDX-License-Identifier: Apache-2.0

"""The files by which sentence-transformers opens a checkpoint."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from transformers import PreTrainedModel

from .inspection import NO_LIMIT, encoder_body, position_limit

logger = logging.getLogger(__name__)


# What sentence-transformers does to a text, by the names of its version 5; a literal `</s>` is text, as for
# `DocumentEmbedder`. Earlier versions of this package did not say the latter.
_READING = {"do_lower_case": False, "tokenizer_args": {"split_special_tokens": True}}
_EARLIER_READING = {"do_lower_case": False}


def write_sentence_transformers_files(
    model: PreTrainedModel, folder: str | os.PathLike, pooling: str = "cls", prompt: str = ""
) -> None:
    """Writes the files by which sentence-transformers opens a checkpoint of this package.

        SentenceTransformer(folder, trust_remote_code=True).encode(["Guten Tag", "Good day"])

    gives the vectors of `DocumentEmbedder`: a Transformer module, and a Pooling module that takes position 0 of
    `last_hidden_state`, where every model of this package has its embedding. There is no Normalize module. A
    `config_sentence_transformers.json` that is there is kept: users edit its prompts and its similarity. Another file
    that a person edited is kept too, see `_is_edited`, with a warning where it contradicts the model.

    Call it before `config.json` is written, which tells whose files an earlier save left in the folder.

    The longest input is that of `DocumentEmbedder.max_length`. For a model with a part for each language, give
    `encode(texts, language="de")`.

    Args:
        model: With or without a decoder or a head.
        folder: Made if missing.
        pooling: `"mean"` for a model of another package that takes the mean of its outputs.
        prompt: That readers put before every text, where there is no `config_sentence_transformers.json` yet.
    """
    encoder = encoder_body(model)
    # With positions, sentence-transformers takes the smaller of `max_position_embeddings` and `model_max_length`.
    limit = {"max_seq_length": NO_LIMIT} if position_limit(encoder) == NO_LIMIT else {}
    files = {
        "modules.json": _modules(getattr(encoder, "needs_language_ids", False)),
        "sentence_bert_config.json": limit | _READING,
        "1_Pooling/config.json": _pooling(encoder.config.hidden_size, pooling),
    }
    if not (Path(folder) / "config_sentence_transformers.json").exists():
        files["config_sentence_transformers.json"] = {
            "model_type": "SentenceTransformer",
            "prompts": {"default": prompt} if prompt else {},
            "default_prompt_name": "default" if prompt else None,
            "similarity_fn_name": "cosine",
        }
    for name, content in files.items():
        path = Path(folder) / name
        stored = _read_json(path)
        if stored is not None and _is_edited(name, stored, Path(folder)):
            if not _agrees(stored, content):
                logger.warning(
                    f"{path} was edited and is kept, but tmde would write {json.dumps(content)} there"
                )
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict | list | None:
    """Return the content of a file; None if it is missing or damaged, as a killed save leaves it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _is_edited(name: str, stored: dict | list, folder: Path) -> bool:
    """Return whether a file of sentence-transformers holds what this package writes for no model.

    What it writes for another model is no edit: an earlier save left it behind, and it has to be replaced.

    Args:
        name: Of the file, in the folder.
        stored: Its content.
        folder: With the `config.json` of the earlier save.
    """
    if name == "modules.json":
        return not any(stored == _modules(needs_language) for needs_language in (False, True))
    if not isinstance(stored, dict):
        return True
    if name == "sentence_bert_config.json":
        without_limit = {
            key: value
            for key, value in stored.items()
            if (key, value) != ("max_seq_length", NO_LIMIT)
        }
        return without_limit not in (_READING, _EARLIER_READING)
    poolings = ("cls",) if _is_folder_of_ours(folder) else ("cls", "mean")
    width = stored.get("word_embedding_dimension")
    return not any(stored == _pooling(width, pooling) for pooling in poolings)


def _is_folder_of_ours(folder: Path) -> bool:
    """Return whether a model of this package was saved there, which gets pooling "cls", or none was."""
    config = _read_json(folder / "config.json")
    return not isinstance(config, dict) or str(config.get("model_type", "tmde")).startswith("tmde")


def _agrees(stored: dict | list, content: dict | list) -> bool:
    """Return whether a file has all that `content` has, and perhaps more, such as another module or key."""
    if isinstance(content, list):
        return isinstance(stored, list) and all(item in stored for item in content)
    return isinstance(stored, dict) and content.items() <= stored.items()


def _modules(needs_language: bool) -> list[dict]:
    """Return the content of `modules.json`."""
    package = "sentence_transformers.models"  # the names of version 5, which later ones read too
    transformer: dict = {"idx": 0, "name": "0", "path": "", "type": f"{package}.Transformer"}
    if needs_language:
        transformer["kwargs"] = ["language"]
    pooler = {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{package}.Pooling"}
    return [transformer, pooler]


def _pooling(width: int, pooling: str) -> dict[str, int | bool]:
    """Return the content of `1_Pooling/config.json`."""
    return {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
    }
