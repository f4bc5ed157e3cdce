"""From texts to the token ids of batches, with as little Python per text as can be."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

Item = TypeVar("Item")
_PROGRESS_BAR_FROM = 2000  # texts; fewer are done before a bar is read
_CHUNK = 2048  # texts tokenised at once: enough for the tokenizer's threads, little memory


@dataclass(frozen=True)
class EncodeReport:
    """What one `encode` (or `encode_iter`, up to now) did.

    texts: number of texts; tokens: tokens given to the model, special tokens included, after truncation; truncated:
    texts of which something was cut off; longest: tokens of the longest text **before** truncation; seconds: wall
    clock; split: texts that became several inputs of the model; pieces: inputs of the model, of all texts.
    """

    texts: int = 0
    tokens: int = 0
    truncated: int = 0
    longest: int = 0
    seconds: float = 0.0
    split: int = 0
    pieces: int = 0

    def __add__(self, other: "EncodeReport") -> "EncodeReport":
        sums = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return EncodeReport(**sums | {"longest": max(self.longest, other.longest)})


@dataclass(frozen=True)
class TokenizedTexts:
    """Token ids of n texts in one row.

    token_ids: (tokens,) int32, those of the first text, then those of the second, ...; lengths: (n,) int64, tokens of
    each text, at least 1; full_lengths: (n,) int64, the same before truncation; language_ids: (n,) int64, for a model
    that needs them.
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

    def report(self) -> EncodeReport:
        """Of texts that are an input each, without the time that it took."""
        truncated = int((self.full_lengths > self.lengths).sum())
        longest = int(self.full_lengths.max(initial=0))
        return EncodeReport(len(self), int(self.lengths.sum()), truncated, longest, pieces=len(self))

    def padded(
        self, texts: np.ndarray, pad_id: int, multiple: int = 1, limit: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Input ids and attention mask, both (rows, length) int64, of the texts with these numbers.

        The length is that of the longest text, raised to the next `multiple` but not beyond `limit`.
        """
        lengths = self.lengths[texts]
        longest = int(lengths.max())
        raised = -(-longest // multiple) * multiple
        columns = np.arange(max(longest, raised if limit is None else min(raised, limit)))
        mask = columns < lengths[:, None]  # (rows, length)
        starts = self.ends[texts] - lengths
        ids = self.token_ids.take(starts[:, None] + columns, mode="clip")
        return torch.from_numpy(np.where(mask, ids, pad_id)).long(), torch.from_numpy(mask).long()

    def ragged_batches(self, batch_tokens: int) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
        """Batches for a model that needs no padding: consecutive texts of at most `batch_tokens` tokens, at least one.

        Yields:
            The numbers of the texts, their token ids (tokens,) int32 and lengths (rows,) int64.
        """
        start = 0
        while start < len(self):
            begin = self.ends[start] - self.lengths[start]
            stop = max(start + 1, int(np.searchsorted(self.ends, begin + batch_tokens, side="right")))
            ids = torch.from_numpy(self.token_ids[begin : self.ends[stop - 1]])
            yield slice(start, stop), ids, torch.from_numpy(self.lengths[start:stop])
            start = stop

    def padded_batches(self, batch_tokens: int) -> Iterator[np.ndarray]:
        """Numbers of texts of like length, longest first (a batch too large for memory fails at once, not at the end).

        Rows times longest row is at most `batch_tokens`; a longer text is a batch of its own.
        """
        order = np.argsort(-self.lengths, kind="stable")
        start = 0
        while start < len(order):
            rows = max(1, batch_tokens // int(self.lengths[order[start]]))
            yield order[start : start + rows]
            start += rows


class TextTokenizer:
    """Tokenises lists of texts for one model.

    Args:
        tokenizer: fast or slow.
        max_length: longest result in tokens, special tokens included; the rest is cut off, and counted.
        vocabulary: token embeddings of the model, if known: a token id beyond is an error here, not in the model.
        empty_id: token in place of nothing, where the tokenizer adds no special tokens to an empty text.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, max_length: int, vocabulary: int | None, empty_id: int
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.vocabulary = vocabulary
        self.empty_id = empty_id
        self.special_tokens = tokenizer.num_special_tokens_to_add(pair=False)
        # A class may do more to a text than its backend does (Luke, Udop ...).
        self.plain_backend = (
            isinstance(tokenizer, PreTrainedTokenizerFast)
            and type(tokenizer).__call__ is PreTrainedTokenizerBase.__call__
            and type(tokenizer)._encode_plus is PreTrainedTokenizerFast._encode_plus
        )

    def windows(self, texts: list[str], size: int, first_number: int = 0) -> Iterator[TokenizedTexts]:
        """Token ids of `size` texts at a time, in order; the next ones are tokenised by a second thread."""
        if len(texts) <= size:
            yield self(texts, first_number)
            return
        starts = range(0, len(texts), size)
        yield from made_ahead(self(texts[start : start + size], first_number + start) for start in starts)

    def __call__(self, texts: list[str], first_number: int = 0) -> TokenizedTexts:
        """Token ids of texts, which errors number from `first_number`.

        Raises:
            ValueError: a text that is not valid Unicode, a token beyond the model's vocabulary.
        """
        flat, lengths, full_lengths = [np.empty(0, dtype=np.int32)], [], []
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            try:
                rows, before = self._rows(chunk)
            except Exception:
                # A fast tokenizer refuses lone surrogates with a message that does not say so, nor where.
                _check_unicode(chunk, first_number + start)
                raise
            rows = [row or [self.empty_id] for row in rows]
            sizes = list(map(len, rows))
            ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=sum(sizes))
            self._check_vocabulary(ids, sizes, first_number + start)
            flat.append(ids)
            lengths.extend(sizes)
            full_lengths.extend(before)
        full = np.maximum(np.array(full_lengths, dtype=np.int64), 1)
        return TokenizedTexts(np.concatenate(flat), np.array(lengths, dtype=np.int64), full)

    def _rows(self, texts: list[str]) -> tuple[list[list[int]], list[int]]:
        """Token ids of each text, at most `max_length`, and how many they were before truncation."""
        flags = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        cut = {"truncation": True, "max_length": self.max_length}
        if self.tokenizer.is_fast:
            if self.plain_backend:
                self.tokenizer("", padding=False, **cut, **flags)  # this leaves its settings in the backend
                encodings = self.tokenizer.backend_tokenizer.encode_batch_fast(texts)
                rows = [encoding.ids for encoding in encodings]
            else:
                encoded = self.tokenizer(texts, padding=False, **cut, **flags)
                rows, encodings = encoded["input_ids"], encoded.encodings
            lengths = list(map(len, rows))
            for i in (i for i, length in enumerate(lengths) if length >= self.max_length):
                # Every overflowing piece carries special tokens of its own.
                lengths[i] += sum(len(piece) - self.special_tokens for piece in encodings[i].overflowing)
            return rows, lengths
        rows = self.tokenizer(texts, padding=False, truncation=False, **flags)["input_ids"]
        lengths = list(map(len, rows))
        for i in (i for i, length in enumerate(lengths) if length > self.max_length):
            rows[i] = self.tokenizer(texts[i], padding=False, **cut, **flags)["input_ids"]
        return rows, lengths

    def _check_vocabulary(self, ids: np.ndarray, lengths: list[int], first_number: int) -> None:
        if self.vocabulary is None or ids.max() < self.vocabulary:
            return
        place = int(np.argmax(ids >= self.vocabulary))
        number = first_number + int(np.searchsorted(np.cumsum(lengths), place, side="right"))
        raise ValueError(
            f"text {number}: token id {ids[place]} found, but the model has {self.vocabulary} token embeddings: "
            "tokenizer and model do not belong together"
        )


def made_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; each is made by a second thread while the caller works on the one before it.

    Neither tokenizer nor model holds Python's lock for most of its time.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer") as pool:
        pending = pool.submit(next, items, None)
        while (item := pending.result()) is not None:
            pending = pool.submit(next, items, None)
            yield item


def check_arguments(texts: object, batch_tokens: int | None, chunk_size: int = 1) -> None:
    """What `encode` and `encode_iter` are given.

    Raises:
        ValueError: A size below 1.
        TypeError: No collection of texts, or one without order.
    """
    for name, value in (("batch_tokens", batch_tokens), ("chunk_size", chunk_size)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: found {value}, expected at least 1")
    if isinstance(texts, (bytes, bytearray, Mapping, set, frozenset)) or not isinstance(texts, Iterable):
        raise TypeError(f"texts: found {type(texts).__name__}, expected a sequence of str")


def check_texts(texts: list[str], first_number: int = 0) -> None:
    """Every text is a string.

    Raises:
        TypeError: One is not; its number and type are named.
    """
    for i, text in enumerate(texts, first_number):
        if not isinstance(text, str):
            raise TypeError(f"text {i}: found {type(text).__name__}, expected str")


def _check_unicode(texts: list[str], first_number: int) -> None:
    for i, text in enumerate(texts, first_number):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            found = f"{text[error.start]!r} at character {error.start}"
            raise ValueError(f"text {i}: found the lone surrogate {found}, expected valid Unicode") from error


def progress_bar(show: bool | None, logger: logging.Logger, total: int | None, stream: bool = False) -> tqdm:
    """On stderr; None shows it where the logger tells of details, or a terminal's user would have to wait."""
    if show is None:
        many = stream or (total or 0) > _PROGRESS_BAR_FROM
        show = logger.isEnabledFor(logging.INFO) or (many and sys.stderr is not None and sys.stderr.isatty())
    return tqdm(total=total, desc="Embedding", unit=" texts", disable=not show)
