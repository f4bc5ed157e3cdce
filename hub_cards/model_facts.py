"""Facts about a model from its files: sizes, limits, languages of the examples."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import get_local_safetensors_metadata

from modeling_tmde.inspection import NO_LIMIT
from tmde.hub_cards.run_records import read_json

# Families in which each language has its own part of the encoder.
NEEDS_LANGUAGE = ("tmde_ntdv", "tmde_aligned")

# Prefixes of weights that are not used for embedding.
DECODER_PREFIXES = ("decoder.", "lm_head.")


def read_model_facts(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's sizes and limits, and the languages of the examples in its card.

    Args:
        folder: The folder of the model.
        config: The content of its `config.json`.

    Returns:
        `dim`, the dimension of a vector; `vocab_size`; `max_length`, the longest input in tokens,
        None if there is no limit; `lowercases`, whether the tokenizer does; `needs_language`,
        whether the model requires the language of a text; `decodes`, whether a decoder generates
        text from one vector; `codes`, the languages of the two example texts; `parameters`, the
        number of all weights, and of those used for embedding.
    """
    encoder_config = config.get("encoder_config") or {}
    pooling = read_json(folder / "1_Pooling" / "config.json")
    tokenizer = read_json(folder / "tokenizer_config.json")
    return {
        "dim": pooling["word_embedding_dimension"],
        "vocab_size": config.get("vocab_size") or encoder_config.get("vocab_size"),
        "max_length": _max_length(config, tokenizer),
        "lowercases": _lowercases(folder, tokenizer),
        "needs_language": config["model_type"] in NEEDS_LANGUAGE,
        "decodes": _decodes_one_vector(config),
        "codes": _example_languages(config["languages"]),
        "parameters": _count_parameters(folder),
    }


def _max_length(config: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> int | None:
    # A model without positions accepts any length; a tokenizer without a limit states a huge one.
    positions = config.get("max_position_embeddings")
    if not positions:
        return None
    limit: int = min(positions, tokenizer.get("model_max_length") or NO_LIMIT)
    return limit if limit < NO_LIMIT else None


def _lowercases(folder: Path, tokenizer: Mapping[str, Any]) -> bool:
    # A normalizer may be a nested sequence of others.
    normalizer = json.dumps(read_json(folder / "tokenizer.json").get("normalizer"))
    return bool(tokenizer.get("do_lower_case")) or '"Lowercase"' in normalizer


def _decodes_one_vector(config: Mapping[str, Any]) -> bool:
    architecture = (config.get("architectures") or [""])[0]
    has_decoder = architecture.endswith("ForConditionalGeneration")
    # A full bottleneck's decoder reads all encoder outputs, and NTDV's is only for training.
    needs_more = config.get("bottleneck") == "full" or config["model_type"] == "tmde_ntdv"
    return has_decoder and not needs_more


def _example_languages(languages: Sequence[str]) -> list[str]:
    """Return two languages: German and English if the model supports them."""
    preferred = [code for code in ("de", "en") if code in languages]
    others = [code for code in languages if code not in preferred]
    codes = [*preferred, *others, *languages]  # A single language is repeated.
    return codes[:2]


def _count_parameters(folder: Path) -> tuple[int, int]:
    """Return the number of all weights, and of those used for embedding."""
    total = 0
    embedding = 0
    for file in get_local_safetensors_metadata(folder).files_metadata.values():
        for name, tensor in file.tensors.items():
            total += tensor.parameter_count
            if not name.startswith(DECODER_PREFIXES):
                embedding += tensor.parameter_count
    return total, embedding


def decoder_perplexity(recipe: Mapping[str, Any], results: Mapping[str, Any]) -> float | None:
    """Return the decoder's perplexity, averaged over all dev sets.

    Return None if no loss per token was recorded.

    Args:
        recipe: The recipe of the run.
        results: The content of `results.json`.
    """
    objectives = recipe.get("objectives") or {}
    translation = objectives.get("translation") or {}
    best = results.get("best") or {}
    is_mean = translation.get("reduction", "mean") == "mean"
    if not is_mean or "eval_translation_nll" not in best:
        return None
    return math.exp(best["eval_translation_nll"])
