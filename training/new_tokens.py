"""The first vectors of tokens that a checkpoint knows nothing of, by the translations of texts.

A token of a new script has no pieces in the old vocabulary. In a bag, it is initialized with the
mean of the texts that translate those in which it occurs.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import torch
from accelerate import PartialState
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.modeling_bag import BagModel
from modeling_tmde.tokenization import load_tokenizer
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.loading import local_or_hub
from tmde.training.encoder_bag import RARE
from tmde.training.recipe.schema import Recipe
from tmde.training.starts.base import Rows
from tmde.training.starts.vocabulary import map_vocabulary

logger = logging.get_logger("tmde.training")

MOST_ROWS = 200_000
_BATCH_ROWS = 2048

Row = Mapping[str, str | None]


def place_added_tokens(
    recipe: Recipe, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Rows
) -> None:
    """Do as `place_new_tokens` in a run that adds languages to a bag; nothing in any other."""
    if recipe.data.replay is None or not isinstance(model, BagModel):
        return
    checkpoint = recipe.warm_start.checkpoint
    assert checkpoint is not None  # `extension_recipe` has named it.
    number = place_new_tokens(model, tokenizer, checkpoint, rows, recipe.data.replay.new_languages)
    if number and PartialState().is_main_process:
        logger.warning(
            f"{number:,} tokens of new scripts are initialized with the mean vectors of their "
            "translations"
        )


@torch.no_grad()
def place_new_tokens(
    bag: BagModel,
    tokenizer: PreTrainedTokenizerBase,
    checkpoint: str,
    rows: Rows,
    new_languages: Collection[str],
) -> int:
    """Set the vectors and weights of tokens without pieces in the checkpoint's vocabulary.

    A vector is the mean, over the texts with the token, of the unit vectors of their translations,
    minus the mean of all; it gets the usual length of a vector. The weight of a token with the
    relative frequency f is `1e-4 / (1e-4 + f)`, as in `encoder_bag`.

    Args:
        bag: The bag, which is changed in place. It has the vectors of the old tokens already.
        tokenizer: Its tokenizer.
        checkpoint: The folder or Hub id of the checkpoint, or the name of a packaged model.
        rows: The training rows, of which the first 200,000 different pairs are read.
        new_languages: The languages that the checkpoint lacks.

    Returns:
        The number of tokens that were set.
    """
    old_tokenizer = load_tokenizer(local_or_hub(checkpoint))
    table = bag.embed_tokens.weight
    is_known = map_vocabulary(tokenizer, old_tokenizer, len(table), len(old_tokenizer)).known
    if bool(is_known.all()):
        return 0
    embedder = DocumentEmbedder(bag, tokenizer)
    sums = torch.zeros_like(table)
    text_counts = torch.zeros(len(table))
    occurrences = torch.zeros(len(table))
    mean = torch.zeros(table.shape[1])
    number = 0
    pairs = itertools.islice(_different_pairs(rows, new_languages), MOST_ROWS)
    while batch := list(itertools.islice(pairs, _BATCH_ROWS)):
        new_texts = [new_text for new_text, _ in batch]
        old_texts = [old_text for _, old_text in batch]
        encoded = embedder.encode(old_texts, normalize=True, show_progress_bar=False)
        vectors = torch.from_numpy(np.asarray(encoded))  # (rows, d)
        number += len(vectors)
        mean += (vectors - mean).sum(dim=0) / number  # the mean of all so far
        for token_ids, vector in zip(_token_ids(tokenizer, new_texts), vectors, strict=True):
            ids, counts = torch.tensor(token_ids, dtype=torch.long).unique(return_counts=True)
            sums[ids] += vector
            text_counts[ids] += 1
            occurrences[ids] += counts
    _set_tokens(bag, ~is_known & (text_counts > 0), sums, text_counts, occurrences, mean)
    return int((~is_known & (text_counts > 0)).sum())


def _set_tokens(
    bag: BagModel,
    is_set: torch.Tensor,
    sums: torch.Tensor,
    text_counts: torch.Tensor,
    occurrences: torch.Tensor,
    mean: torch.Tensor,
) -> None:
    """Set vectors and weights of some tokens; see `place_new_tokens`.

    Args:
        bag: The bag.
        is_set: Which tokens to set, (tokens,) bool.
        sums: The sum of the translations' vectors of each token, (tokens, d).
        text_counts: The number of texts with each token, (tokens,).
        occurrences: How often each token occurs, (tokens,).
        mean: The mean of the vectors of all translations, (d,).
    """
    if not is_set.any():
        return
    table = bag.embed_tokens.weight
    usual_length = table[~is_set].square().sum(dim=1).mean().sqrt()
    means = sums[is_set] / text_counts[is_set].unsqueeze(1) - mean
    table[is_set] = usual_length * torch.nn.functional.normalize(means, dim=1)
    frequencies = occurrences[is_set] / occurrences.sum()
    bag.token_weights[is_set] = torch.log(RARE / (RARE + frequencies))


def _different_pairs(rows: Rows, new_languages: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each text of a new language with a translation into an old one, every pair once."""
    known_pairs = set()
    for batch in rows.iter(batch_size=_BATCH_ROWS):
        for row in batch["translation"]:
            for pair in _pairs_of_row(row, new_languages):
                if pair not in known_pairs:
                    known_pairs.add(pair)
                    yield pair


def _pairs_of_row(row: Row, new_languages: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the texts of new languages in a row, each with the first text of an old one."""
    old_texts = [text for language, text in row.items() if text and language not in new_languages]
    for language, text in row.items():
        if text and old_texts and language in new_languages:
            yield text, old_texts[0]


def _token_ids(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return ids
