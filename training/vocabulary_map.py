"""The tokens of one vocabulary in terms of another, and tables of vectors carried over."""

import json
from dataclasses import dataclass

import torch
from tokenizers import decoders, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class VocabularyMap:
    """The tokens of a new vocabulary as pieces of an old one: token `rows[i]` has the piece `pieces[i]`.

    rows, pieces: (pieces,), by ascending row. A row without pieces is not known to the old vocabulary.
    size: Rows of the new tables.
    copied: Rows whose one piece is the same token.
    """

    rows: torch.Tensor
    pieces: torch.Tensor
    size: int
    copied: int

    @property
    def known(self) -> torch.Tensor:
        """(size,) bool."""
        return torch.bincount(self.rows, minlength=self.size) > 0

    def log_weights(self, old: torch.Tensor) -> torch.Tensor:
        """(size,): the logarithm of the pieces' summed weights; `-inf` where there are none.

        Together with `table` it keeps every bag: `exp(w) E` of a token is the sum of `exp(w_p) E_p` over its pieces.
        """
        values = old[self.pieces]
        largest = torch.full((self.size,), -torch.inf).scatter_reduce(0, self.rows, values, "amax")
        sums = torch.zeros(self.size).index_add(0, self.rows, (values - largest[self.rows]).exp())
        return largest + sums.log()

    def table(self, old: torch.Tensor, log_weights: torch.Tensor) -> torch.Tensor:
        """(size, d): the means of the pieces' rows of `old`, weighted by `exp(log_weights)`; 0 without pieces."""
        shares = (log_weights[self.pieces] - self.log_weights(log_weights)[self.rows]).exp()  # (pieces,)
        offsets = torch.searchsorted(self.rows, torch.arange(self.size))
        return nn.functional.embedding_bag(self.pieces, old, offsets, mode="sum", per_sample_weights=shares)


def map_vocabulary(
    new: PreTrainedTokenizerBase, old: PreTrainedTokenizerBase, new_size: int, old_size: int
) -> VocabularyMap:
    """
    Finds every token of the tokenizer `new` in the tokenizer `old`: as itself, else as the pieces it falls into there.
    Byte-level tokens are compared byte by byte, so that one which is no text alone (half a character) has its pieces
    as well. Special and added tokens that `old` lacks have none. Of an `old` that reads lower case only, a token with
    capitals is that without.

    Args:
        new_size, old_size: Rows of the embedding tables, at least the sizes of the vocabularies.

    Raises:
        ValueError: If a vocabulary is larger than its table, or they differ and not both are byte-level.
    """
    new_ids, old_ids = new.get_vocab(), old.get_vocab()
    for tokenizer, ids, size in ((new, new_ids, new_size), (old, old_ids, old_size)):
        if max(ids.values()) >= size:
            raise ValueError(
                f"The tokenizer {tokenizer.name_or_path!r} has the id {max(ids.values())}, but the embedding table of "
                f"its model has {size} rows; expected the tokenizer that the model was made with"
            )
    if new_ids != old_ids and not (_is_byte_level(new) and _is_byte_level(old)):
        raise ValueError(
            f"The vocabularies of {new.name_or_path!r} and of the checkpoint {old.name_or_path!r} differ, which works "
            "between byte-level BPE tokenizers only; take the checkpoint's tokenizer (tokenizer.path in a recipe)"
        )
    added = {token.content for token in new.added_tokens_decoder.values()}
    rows, pieces, copied = [], [], 0
    lowered = new_ids != old_ids and "Lowercase" in _types(old, "normalizer")
    for token, row in sorted(new_ids.items(), key=lambda item: item[1]):
        # What the old tokenizer never makes of a text, its model has never seen.
        seen = _lower_case(token) if lowered and token not in added else token
        if seen in old_ids:
            found = [old_ids[seen]]
            copied += seen == token
        else:
            found = [] if token in added else [piece.id for piece in old.backend_tokenizer.model.tokenize(seen)]
        rows += [row] * len(found)
        pieces += found
    return VocabularyMap(torch.tensor(rows), torch.tensor(pieces), new_size, copied)


def _types(tokenizer: PreTrainedTokenizerBase, part: str) -> set[str]:
    """Names of what the `normalizer` or `decoder` of a fast tokenizer is made of; none of a slow one."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    settings = json.loads(backend.to_str())[part] if backend is not None else None
    nested = [settings or {}, *(settings or {}).get("decoders", []), *(settings or {}).get("normalizers", [])]
    return {item["type"] for item in nested if "type" in item}


def _is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    return "ByteLevel" in _types(tokenizer, "decoder")


def _lower_case(token: str) -> str:
    """A byte-level token in lower case; unchanged if its bytes are no text alone."""
    text = decoders.ByteLevel().decode([token])
    if "\ufffd" in text or text.lower() == text:
        return token
    [(lower, _)] = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text.lower())
    return lower
