"""The tokens of one vocabulary as pieces of another one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import decoders, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.tokenization import is_byte_level_bpe, is_plain_unigram
from tmde.training.recipe.values import RecipeError


@dataclass(frozen=True)
class VocabularyMap:
    """The tokens of a new vocabulary as pieces of an old one.

    Token `rows[i]` has the piece `pieces[i]`.

    Attributes:
        rows: Tokens of the new vocabulary in ascending order, (pieces,). A token without pieces is
            not known to the old vocabulary.
        pieces: Tokens of the old vocabulary, (pieces,).
        size: The number of rows of the new tables.
        copied: The number of tokens whose one piece is the same token.
    """

    rows: torch.Tensor
    pieces: torch.Tensor
    size: int
    copied: int

    @property
    def known(self) -> torch.Tensor:
        """Whether the old vocabulary knows a token, (size,) bool."""
        return torch.bincount(self.rows, minlength=self.size) > 0

    def log_weights(self, old: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of each token's weight, that of its pieces together, (size,).

        It is `-inf` without pieces.

        Together with `table` it keeps every bag: `exp(w) E` of a token is the sum of `exp(w_p) E_p`
        over its pieces.

        Args:
            old: The logarithms of the old tokens' weights, (old size,).
        """
        values = old[self.pieces]  # (pieces,)
        largest = torch.full((self.size,), -torch.inf).scatter_reduce(0, self.rows, values, "amax")
        scaled = (values - largest[self.rows]).exp()
        sums = torch.zeros(self.size).index_add(0, self.rows, scaled)
        return largest + sums.log()

    def table(self, old: torch.Tensor, log_weights: torch.Tensor) -> torch.Tensor:
        """Return the mean of each token's pieces, weighted by `exp(log_weights)`, (size, d).

        It is 0 without pieces.

        Args:
            old: The old table, (old size, d).
            log_weights: The logarithms of the old tokens' weights, (old size,).
        """
        totals = self.log_weights(log_weights)[self.rows]
        shares = (log_weights[self.pieces] - totals).exp()  # (pieces,)
        offsets = torch.searchsorted(self.rows, torch.arange(self.size))
        return nn.functional.embedding_bag(
            self.pieces, old, offsets, mode="sum", per_sample_weights=shares
        )


def map_vocabulary(
    new: PreTrainedTokenizerBase, old: PreTrainedTokenizerBase, new_size: int, old_size: int
) -> VocabularyMap:
    """Find every token of the tokenizer `new` in the tokenizer `old`.

    It is found as itself, or as the pieces that it falls into.

    In a Unigram vocabulary, a token with a character that `old` does not know has no pieces.
    Byte-level tokens are compared byte by byte, so that a token which is no text alone (half a
    character) has its pieces as well. Special and added tokens that `old` lacks have none. If `old`
    reads lower case only, a token with capitals is looked up without them.

    Args:
        new: The tokenizer whose tokens are looked up.
        old: The tokenizer in which they are found.
        new_size: Rows of the new embedding table, at least the size of the vocabulary.
        old_size: Rows of the old embedding table.

    Raises:
        TmdeError: A vocabulary is larger than its table, or they differ and are not both
            byte-level or both Unigram.
    """
    check_ids(new, new_size, "New model")
    check_ids(old, old_size, f"Checkpoint {old.name_or_path}")
    new_ids = new.get_vocab()
    old_ids = old.get_vocab()
    are_byte_level = is_byte_level_bpe(new) and is_byte_level_bpe(old)
    are_unigram = is_plain_unigram(new) and is_plain_unigram(old)
    if new_ids != old_ids and not (are_byte_level or are_unigram):
        raise TmdeError(
            f"The vocabularies of {new.name_or_path!r} and of the checkpoint "
            f"{old.name_or_path!r} differ, which only works between byte-level BPE or Unigram "
            "tokenizers; use the checkpoint's tokenizer (tokenizer.path in a recipe)"
        )
    added_tokens = {token.content for token in new.added_tokens_decoder.values()}
    lowers_case = are_byte_level and new_ids != old_ids and _lowers_case(old)
    split = old.backend_tokenizer.model.tokenize
    rows: list[int] = []
    pieces: list[int] = []
    copied = 0
    for token, row in sorted(new_ids.items(), key=lambda item: item[1]):
        # The old model has never seen a token that its tokenizer does not produce.
        is_lowered = lowers_case and token not in added_tokens
        seen = _lower_case(token) if is_lowered else token
        if seen in old_ids:
            token_pieces = [old_ids[seen]]
            if seen == token:
                copied += 1
        elif token in added_tokens:
            token_pieces = []
        else:
            token_pieces = [piece.id for piece in split(seen)]
            if are_unigram and old.unk_token_id in token_pieces:
                token_pieces = []
        rows.extend([row] * len(token_pieces))
        pieces.extend(token_pieces)
    return VocabularyMap(torch.tensor(rows), torch.tensor(pieces), new_size, copied)


def check_ids(tokenizer: PreTrainedTokenizerBase, size: int, owner: str) -> None:
    """Refuse a tokenizer with ids that an embedding table has no rows for.

    Args:
        tokenizer: The tokenizer.
        size: The rows of the table.
        owner: The beginning of the error message: the model or the tokenizer.

    Raises:
        RecipeError: Names the largest id.
    """
    largest_id = max(tokenizer.get_vocab().values())
    if largest_id >= size:
        raise RecipeError(
            f"{owner}: its tokenizer has the id {largest_id}, but the model has {size} "
            "embeddings; expected the model's own tokenizer"
        )


def _lowers_case(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a tokenizer reads all text in lower case."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    return normalizer is not None and normalizer.normalize_str("A").strip() == "a"


def _lower_case(token: str) -> str:
    """Return a byte-level token in lower case; unchanged if its bytes are no text alone."""
    text = decoders.ByteLevel().decode([token])
    if "\ufffd" in text or text.lower() == text:
        return token
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    [(lower, _)] = byte_level.pre_tokenize_str(text.lower())
    return lower
