"""Tokenize lists of texts in bulk, and arrange their tokens in batches."""

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

from modeling_tmde.inspection import NO_LIMIT

# A literal `</s>` in a text is text. Texts are padded and truncated by this module, if at all.
_CALL_OPTIONS = {
    "padding": False,
    "truncation": False,
    "return_attention_mask": False,
    "return_token_type_ids": False,
    "split_special_tokens": True,
}


def private_copy(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return a copy without truncation and padding, which can be called without side effects.

    A fast tokenizer keeps truncation, padding and `split_special_tokens` in its backend, where
    every call sets them for all threads. The copy has a backend of its own around the same
    vocabulary and rules, so it takes microseconds and no memory. A slow tokenizer has no such
    state and is returned as it is.

    Args:
        tokenizer: Any tokenizer; its settings stay as they are.
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


@dataclass(frozen=True)
class BatchLimits:
    """How much a batch may hold.

    Attributes:
        tokens: The most tokens, padding included.
        texts: The most texts.
    """

    tokens: int
    texts: int = NO_LIMIT

    @property
    def most_texts(self) -> int:
        """The most texts that a batch will hold: most texts have several tokens."""
        return min(self.texts, self.tokens // 2)


@dataclass(frozen=True)
class RaggedBatch:
    """Consecutive texts whose tokens are concatenated, for a model that needs no padding.

    Attributes:
        texts: The numbers of the texts.
        token_ids: The token ids of all texts, (tokens,) int32.
        lengths: The number of tokens of each text, (texts,) int64.
    """

    texts: slice
    token_ids: torch.Tensor
    lengths: torch.Tensor


@dataclass
class TokenizedTexts:
    """The token ids of n texts, concatenated.

    Attributes:
        token_ids: The token ids of all texts, (tokens,) int32.
        lengths: The number of tokens of each text, (n,) int64, at least 1.
        full_lengths: The number of tokens before truncation, (n,) int64.
        language_ids: The language of each text, (n,) int64, for a model with a part for each
            language.
    """

    token_ids: np.ndarray
    lengths: np.ndarray
    full_lengths: np.ndarray
    language_ids: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def ends(self) -> np.ndarray:
        """The place in `token_ids` behind the last token of each text, (n,)."""
        return np.cumsum(self.lengths)

    def rows(self) -> list[np.ndarray]:
        """Return the token ids of each text."""
        if not len(self):
            return []
        return np.split(self.token_ids, self.ends[:-1])

    def padded(self, texts: np.ndarray, pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return some texts as a batch that is padded on the right.

        Args:
            texts: The numbers of the texts, (rows,).
            pad_id: The token id at padding.

        Returns:
            Input ids and attention mask, both (rows, length) int64.
        """
        lengths = self.lengths[texts]
        columns = np.arange(lengths.max())
        is_token = columns < lengths[:, None]  # (rows, length)
        starts = self.ends[texts] - lengths
        # At padding, these are tokens of the next text or, behind the last one, of the last place.
        token_ids: np.ndarray = self.token_ids.take(
            starts[:, None] + columns, mode="clip"
        )  # (rows, length)
        input_ids = np.where(is_token, token_ids, pad_id)
        return torch.from_numpy(input_ids).long(), torch.from_numpy(is_token).long()

    def padded_batches(self, limits: BatchLimits) -> Iterator[np.ndarray]:
        """Divide the texts into batches of similar length.

        The longest texts come first, so that a batch that is too large for the memory fails at
        once. The number of rows times the longest row is within the limit of tokens; a longer text
        is a batch of its own.

        Args:
            limits: How much a batch may hold.

        Yields:
            The numbers of the texts of a batch, (rows,).
        """
        longest_first = np.argsort(-self.lengths, kind="stable")
        start = 0
        while start < len(longest_first):
            longest = int(self.lengths[longest_first[start]])
            num_rows = max(1, min(limits.texts, limits.tokens // longest))
            yield longest_first[start : start + num_rows]
            start += num_rows

    def ragged_batches(self, limits: BatchLimits) -> Iterator[RaggedBatch]:
        """Divide the texts, in order, into batches.

        A text of more tokens than a batch may hold is a batch of its own.

        Args:
            limits: How much a batch may hold.
        """
        start = 0
        while start < len(self):
            begin = self.ends[start] - self.lengths[start]
            fitting = int(np.searchsorted(self.ends, begin + limits.tokens, side="right"))
            stop = max(start + 1, min(fitting, start + limits.texts))
            token_ids = self.token_ids[begin : self.ends[stop - 1]]
            yield RaggedBatch(
                slice(start, stop),
                torch.from_numpy(token_ids),
                torch.from_numpy(self.lengths[start:stop]),
            )
            start = stop


class TextTokenizer:
    """Tokenize lists of texts for one model.

    A literal `</s>` in a text is text. Any number of threads may share a `TextTokenizer`, and its
    tokenizer too, because every call works on a copy of it, see `private_copy`.

    Args:
        tokenizer: Fast or slow; its settings for truncation and padding neither matter nor change.
        max_length: Longest result in tokens, including special tokens. Longer texts are truncated.
        empty_id: The token that an empty text gets if the tokenizer adds no special tokens.
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
        """Return the token ids of texts."""
        if self.prompt:
            texts = [self.prompt + text for text in texts]
        tokenizer = private_copy(self.tokenizer)
        rows = self._token_ids(tokenizer, texts)
        full_lengths = _lengths(rows)
        for number in np.flatnonzero(full_lengths > self.max_length).tolist():
            rows[number] = self._truncated_token_ids(tokenizer, texts[number])
        lengths = _lengths(rows)
        token_ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
        return TokenizedTexts(token_ids, lengths, full_lengths)

    def _token_ids(self, tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text, at least one, without truncation."""
        if not texts:
            return []
        if self._backend_is_all:
            backend = tokenizer.backend_tokenizer
            backend.encode_special_tokens = True  # This is what `split_special_tokens` sets.
            rows = [encoding.ids for encoding in backend.encode_batch_fast(texts)]
        else:
            rows = tokenizer(texts, **_CALL_OPTIONS, verbose=False)["input_ids"]
        return [row or [self.empty_id] for row in rows]

    def _truncated_token_ids(self, tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
        """Return the token ids of one text, as the tokenizer itself truncates it."""
        options = _CALL_OPTIONS | {"truncation": True, "max_length": self.max_length}
        token_ids: list[int] = tokenizer(text, **options)["input_ids"]
        return token_ids


def _lengths(rows: list[list[int]]) -> np.ndarray:
    """Return the number of tokens of each row, (rows,) int64."""
    return np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
