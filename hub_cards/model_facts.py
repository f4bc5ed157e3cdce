"""Facts of a model that its files tell: sizes, limits, languages of the examples."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub

from modeling_tmde.inspection import NO_LIMIT
from tmde.hub_cards.run_records import RunRecords, read_json

# Families with a part of the encoder for each language.
NEEDS_LANGUAGE = ("tmde_ntdv", "tmde_aligned")

# Names of weights that take no part in embedding.
DECODER_PREFIXES = ("decoder.", "lm_head.")


@dataclass(frozen=True)
class ModelFacts:
    """Sizes and limits of a model, and the languages of the examples in its card.

    Args:
        dim: The dimension of a vector.
        vocab_size: The size of the vocabulary.
        max_length: The longest input in tokens; None if there is no limit.
        lowercases: Whether the tokenizer lowercases.
        needs_language: Whether the model must be told the language of a text.
        decodes: Whether a decoder writes texts from one vector.
        codes: The languages of the two example texts.
        parameters: The number of all weights, and of those that embed.
    """

    dim: int
    vocab_size: int | None
    max_length: int | None
    lowercases: bool
    needs_language: bool
    decodes: bool
    codes: list[str]
    parameters: tuple[int, int]


def read_model_facts(folder: Path, config: Mapping[str, Any]) -> ModelFacts:
    """Read the facts of a model from its folder.

    Args:
        folder: The folder of the model.
        config: The content of its `config.json`.
    """
    model_type = config["model_type"]
    encoder_config = config.get("encoder_config") or {}
    pooling = read_json(folder / "1_Pooling" / "config.json")
    tokenizer = read_json(folder / "tokenizer_config.json")
    return ModelFacts(
        dim=pooling["word_embedding_dimension"],
        vocab_size=config.get("vocab_size") or encoder_config.get("vocab_size"),
        max_length=_max_length(config, tokenizer),
        lowercases=_lowercases(folder, tokenizer),
        needs_language=model_type in NEEDS_LANGUAGE,
        decodes=_decodes_one_vector(config),
        codes=_example_languages(config["languages"]),
        parameters=_count_parameters(folder),
    )


def _max_length(config: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> int | None:
    positions = config.get("max_position_embeddings")
    if not positions:
        # A model without positions takes any length.
        return None
    # A tokenizer without a limit states a huge one.
    tokenizer_limit = int(tokenizer.get("model_max_length") or NO_LIMIT)
    limit = min(positions, tokenizer_limit)
    return limit if limit < NO_LIMIT else None


def _lowercases(folder: Path, tokenizer: Mapping[str, Any]) -> bool:
    if tokenizer.get("do_lower_case"):
        return True
    # A normalizer may be a sequence of others at any depth.
    normalizer = json.dumps(read_json(folder / "tokenizer.json").get("normalizer"))
    return '"Lowercase"' in normalizer


def _decodes_one_vector(config: Mapping[str, Any]) -> bool:
    architecture = (config.get("architectures") or [""])[0]
    has_decoder = architecture.endswith("ForConditionalGeneration")
    # The decoder of a full bottleneck reads all encoder outputs, and that of NTDV is for training.
    needs_more = config.get("bottleneck") == "full" or config["model_type"] == "tmde_ntdv"
    return has_decoder and not needs_more


def _example_languages(languages: Sequence[str]) -> list[str]:
    """Return two languages, German and English if the model has them."""
    preferred = [code for code in ("de", "en") if code in languages]
    # A dict serves as a set that is in the order of insertion.
    ordered = list(dict.fromkeys([*preferred, *languages]))
    if len(ordered) == 1:
        return ordered * 2
    return ordered[:2]


def _count_parameters(folder: Path) -> tuple[int, int]:
    """Return the number of all weights, and of those that embed."""
    metadata = huggingface_hub.get_local_safetensors_metadata(folder)
    count_of_name = {}
    for file in metadata.files_metadata.values():
        for name, tensor in file.tensors.items():
            count_of_name[name] = tensor.parameter_count
    total = 0
    embedding = 0
    for name, count in count_of_name.items():
        total += count
        if not name.startswith(DECODER_PREFIXES):
            embedding += count
    return total, embedding


def decoder_perplexity(records: RunRecords) -> float | None:
    """Return the perplexity of the decoder on the worst of the dev sets.

    It is None if no loss per token was recorded.
    """
    objectives = records.recipe.get("objectives") or {}
    translation = objectives.get("translation") or {}
    if translation.get("reduction", "mean") != "mean":
        return None
    losses = []
    for name, value in (records.results.get("best") or {}).items():
        if name.endswith("_translation_nll"):
            losses.append(value)
    return math.exp(max(losses)) if losses else None
