"""Export an encoder with the tokens of some texts only."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from modeling_tmde import TmdeError
from modeling_tmde.sentence_transformers_files import write_sentence_transformers_files
from modeling_tmde.tokenization import cut_tokenizer
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.export_check import check_can_be_exported
from tmde.embedding.text_tokenizer import private_copy

# How far vectors may change, relative to their largest element.
LEAST_CHANGE = 1e-5
COMPARED_TEXTS = 256


class VocabularyExport(NamedTuple):
    """An encoder with fewer tokens.

    Attributes:
        size: The number of entries of the new vocabulary.
        difference: The largest difference between old and new vectors, over their largest element.
    """

    size: int
    difference: float


def export_vocabulary(
    embedder: DocumentEmbedder,
    texts: Iterable[str],
    folder: str | os.PathLike[str],
    max_tokens: int | None = None,
    min_count: int = 1,
) -> VocabularyExport:
    """Write an encoder whose vocabulary is that of some texts, see `cut_tokenizer`.

    multilingual-e5-small, whose table holds 81% of its parameters, shrinks to half or less.

    Args:
        embedder: The encoder, with the prompt and the pooling that the new checkpoint carries.
        texts: See `cut_tokenizer`.
        folder: Made if missing.
        max_tokens: See `cut_tokenizer`.
        min_count: See `cut_tokenizer`.

    Returns:
        The size, and the difference on the texts among the first 256 whose tokens are all kept.

    Raises:
        TmdeError: The vocabulary is no Unigram or WordPiece, vectors differ, or they are made by
            further modules.
    """
    check_can_be_exported(embedder)
    model = copy.deepcopy(embedder.model)
    texts = iter(texts)
    first_texts = list(itertools.islice(texts, COMPARED_TEXTS))
    prompts = f"{embedder.prompt} {getattr(model.config, 'prompt', '')}"
    tokenizer, kept_ids = cut_tokenizer(
        embedder.tokenizer,
        itertools.chain(first_texts, texts),
        max_tokens=max_tokens,
        min_count=min_count,
        keep=prompts,
    )
    _keep_rows(model, kept_ids)
    _renumber_config(model.config, kept_ids)
    model.save_pretrained(folder)
    # `save_pretrained` of this package's models has just written them without pooling and prompt.
    write_sentence_transformers_files(model, folder, embedder.pooling, embedder.prompt)
    tokenizer.save_pretrained(folder)
    known_texts = _texts_of_tokens(embedder, first_texts, kept_ids)
    smaller = DocumentEmbedder.from_pretrained(folder, embedder.pooling, device="cpu")
    difference = _largest_change(embedder, smaller, known_texts)
    if not difference <= LEAST_CHANGE:  # Written so that NaN fails.
        raise TmdeError(
            f"{folder}: its vectors change by {difference:.1e}, expected at most {LEAST_CHANGE:.0e}"
        )
    return VocabularyExport(len(kept_ids), difference)


def _texts_of_tokens(
    embedder: DocumentEmbedder, texts: list[str], kept_ids: list[int]
) -> list[str]:
    """Return the texts whose tokens are all in the new vocabulary."""
    if not texts:
        return []
    known_ids = set(kept_ids)
    rows = private_copy(embedder.tokenizer)(texts)["input_ids"]
    known_texts = []
    for text, token_ids in zip(texts, rows, strict=True):
        if known_ids.issuperset(token_ids):
            known_texts.append(text)
    return known_texts


def _largest_change(
    before: DocumentEmbedder, after: DocumentEmbedder, texts: Sequence[str]
) -> float:
    """Return the largest difference between vectors of texts, over their largest element."""
    if not texts:
        return 0.0
    old_vectors = np.asarray(before.encode(texts))
    new_vectors = np.asarray(after.encode(texts))
    return float(abs(old_vectors - new_vectors).max() / abs(old_vectors).max())


def _keep_rows(model: PreTrainedModel, kept_ids: list[int]) -> None:
    """Cut all tables and weights of tokens to the rows of the kept ids."""
    table = cast(nn.Embedding, model.get_input_embeddings())
    vocab_size = len(table.weight)
    for module, name in _token_parameters(model):
        weight = getattr(module, name)
        if len(weight) == vocab_size:
            setattr(module, name, nn.Parameter(weight.detach()[kept_ids]))


def _renumber_config(config: PreTrainedConfig, kept_ids: list[int]) -> None:
    """Set the size of the vocabulary and the new ids in a config and the configs of its parts."""
    new_ids = {old_id: new_id for new_id, old_id in enumerate(kept_ids)}
    part_configs = [getattr(config, name) for name in config.sub_configs]
    for part in [config, *part_configs]:
        part.vocab_size = len(kept_ids)
        for name, value in part.to_dict().items():
            if name.endswith("_token_id") and isinstance(value, int):
                setattr(part, name, new_ids.get(value))
            elif name == "prompt_ids" and value:
                part.prompt_ids = [new_ids[token_id] for token_id in value]


def _token_parameters(model: PreTrainedModel) -> set[tuple[nn.Module, str]]:
    """Return where the parameters with a row for each token are.

    These are the input and output embeddings of the model and of its parts, and this package's
    tables and weights of tokens. The number of rows tells nothing: a layer may be as wide as the
    vocabulary is large.

    Returns:
        Modules and names of their parameters.
    """
    tables: set[nn.Module | None] = set()
    parameters: set[tuple[nn.Module, str]] = set()
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            tables |= _embeddings_of_part(module)
        tables.add(getattr(module, "embed_tokens", None))
        tables.add(getattr(module, "bag_tokens", None))
        if isinstance(getattr(module, "token_weights", None), nn.Parameter):
            parameters.add((module, "token_weights"))
    for table in tables:
        if table is not None:
            parameters |= {(table, name) for name, _ in table.named_parameters(recurse=False)}
    return parameters


def _embeddings_of_part(part: PreTrainedModel) -> set[nn.Module | None]:
    """Return the input and output embeddings of a model within a model; some raise for none."""
    try:
        output_table = part.get_output_embeddings()  # type: ignore[no-untyped-call]
        return {part.get_input_embeddings(), output_table}
    except (AttributeError, NotImplementedError):
        return set()
