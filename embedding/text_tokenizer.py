# SPDX-License-Identifier: Apache-2.0

"""Texts in, token ids out, in bulk."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


def private_copy(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return a copy without truncation and padding, whose calls leave the settings of the tokenizer alone.

    A fast tokenizer keeps truncation, padding and `split_special_tokens` in its backend, where every call sets them
    for all threads. The copy has a backend of its own around the same vocabulary and rules, so it takes microseconds
    and no memory. A slow tokenizer has no such state and is returned as it is.
    """
    shared = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(shared, Tokenizer):
        return tokenizer
    backend = Tokenizer(shared.model)
    backend.normalizer = shared.normalizer
    backend.pre_tokenizer = shared.pre_tokenizer
    backend.post_processor = shared.post_processor
    backend.decoder = shared.decoder
    added_tokens = shared.get_added_tokens_decoder()
    backend.add_tokens([added_tokens[token_id] for token_id in sorted(added_tokens)])
    private = copy.copy(tokenizer)
    private._tokenizer = backend
    return private


@dataclass
class TokenizedTexts:
    """Token ids of n texts, one text after the other.

    token_ids: (tokens,) int32.
    lengths: (n,) int64, tokens of each text, at least 1.
    full_lengths: (n,) int64, the same before truncation.
    language_ids: (n,) int64, for a model with a part for each language.
    """

    token_ids: np.ndarray
    lengths: np.ndarray
    full_lengths: np.ndarray
    language_ids: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def ends(self) -> np.ndarray:
        """(n,) where the tokens of each text end."""
        return np.cumsum(self.lengths)

    def rows(self) -> list[np.ndarray]:
        """The token ids of each text."""
        return np.split(self.token_ids, self.ends[:-1]) if len(self) else []

    def padded(self, texts: np.ndarray, pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Input ids and attention mask, both (rows, length) int64, of the texts with these numbers."""
        lengths = self.lengths[texts]
        columns = np.arange(lengths.max())
        mask = columns < lengths[:, None]  # (rows, length)
        starts = self.ends[texts] - lengths
        ids = self.token_ids.take(starts[:, None] + columns, mode="clip")
        return torch.from_numpy(np.where(mask, ids, pad_id)).long(), torch.from_numpy(mask).long()

    def padded_batches(self, batch_tokens: int) -> Iterator[np.ndarray]:
        """Numbers of texts of similar length, the longest first (a batch too large for memory fails at once).

        Rows times longest row is at most `batch_tokens`; a longer text is a batch of its own.
        """
        order = np.argsort(-self.lengths, kind="stable")
        start = 0
        while start < len(order):
            rows = max(1, batch_tokens // int(self.lengths[order[start]]))
            yield order[start : start + rows]
            start += rows

    def ragged_batches(
        self, batch_tokens: int
    ) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
        """Batches for a model that needs no padding: consecutive texts of at most `batch_tokens` tokens, at least one.

        Yields:
            The numbers of the texts, their token ids (tokens,) int32 and lengths (rows,) int64.
        """
        start = 0
        while start < len(self):
            begin = self.ends[start] - self.lengths[start]
            stop = max(
                start + 1, int(np.searchsorted(self.ends, begin + batch_tokens, side="right"))
            )
            ids = torch.from_numpy(self.token_ids[begin : self.ends[stop - 1]])
            yield slice(start, stop), ids, torch.from_numpy(self.lengths[start:stop])
            start = stop


class TextTokenizer:
    """Tokenizes lists of texts for one model. A literal `</s>` in a text is text.

    Any number of threads may use it, and its tokenizer too: every call works on a copy, see `private_copy`.

    Args:
        tokenizer: Fast or slow; its settings for truncation and padding neither matter nor change.
        max_length: Longest result in tokens, including special tokens; longer texts are truncated and counted.
        empty_id: Token for an empty text, where the tokenizer adds no special tokens.
        prompt: Put before every text, and counted in its length.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, max_length: int, empty_id: int, prompt: str = ""
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.empty_id = empty_id
        self.prompt = prompt
        # Some classes do more to a text than their backend does (Luke, Udop).
        self._backend_is_all = (
            isinstance(tokenizer, PreTrainedTokenizerFast)
            and type(tokenizer).__call__ is PreTrainedTokenizerBase.__call__
            and type(tokenizer)._encode_plus is PreTrainedTokenizerFast._encode_plus
        )

    def __call__(self, texts: list[str]) -> TokenizedTexts:
        """Token ids of texts."""
        if self.prompt:
            texts = [self.prompt + text for text in texts]
        flags = {
            "padding": False,
            "truncation": False,
            "return_attention_mask": False,
            "return_token_type_ids": False,
        }
        flags["split_special_tokens"] = True
        tokenizer = private_copy(self.tokenizer)
        if self._backend_is_all:
            backend = tokenizer.backend_tokenizer
            backend.encode_special_tokens = True  # what `split_special_tokens` sets
            rows = [encoding.ids for encoding in backend.encode_batch_fast(texts)]
        else:
            rows = tokenizer(texts, **flags, verbose=False)["input_ids"] if texts else []
        rows = [row or [self.empty_id] for row in rows]
        full_lengths = np.array(list(map(len, rows)), dtype=np.int64)
        for number in np.flatnonzero(full_lengths > self.max_length).tolist():
            options = flags | {"truncation": True, "max_length": self.max_length}
            rows[number] = tokenizer(texts[number], **options)["input_ids"]
        lengths = np.array(list(map(len, rows)), dtype=np.int64)
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=lengths.sum())
        return TokenizedTexts(ids, lengths, full_lengths)
