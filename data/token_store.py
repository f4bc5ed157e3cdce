"""Token ids of parallel texts in one flat array: every text is tokenised once, and batches are gathered, not built."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer
from torch.utils.data import get_worker_info
from transformers import PreTrainedTokenizerBase

READ_ROWS = 20_000  # of an Arrow dataset at a time
ENCODE_TEXTS = 4096  # at a time: enough for the tokenizer's threads


class TextSource(Protocol):
    """Rows of texts by number.

    available: (rows, languages), whether there is a text. neighbors: (rows,), whether the next row continues the same
    document. `texts(rows, language)` gives the texts of rows that have them.
    """

    available: np.ndarray
    neighbors: np.ndarray

    def texts(self, rows: np.ndarray, language: int) -> list[str]: ...


class ArrowSource:
    """A map-style dataset with the column `translation`. Reads the rows that are asked for.

    Neighbours are rows of one document, by the column `doc_id`; without it there are none.
    """

    def __init__(self, dataset: datasets.Dataset, languages: Sequence[str]):
        self.languages = list(languages)
        self.dataset = dataset.with_format("arrow")
        documented = "doc_id" in dataset.column_names
        available, documents = [np.zeros((0, len(self.languages)), dtype=bool)], []
        for begin in range(0, len(dataset), READ_ROWS):
            table = self.dataset[begin : begin + READ_ROWS]
            structs = table["translation"].combine_chunks()
            available.append(np.stack([_present(_field(structs, language)) for language in self.languages], axis=1))
            documents += table["doc_id"].to_pylist() if documented else []
        self.available = np.concatenate(available)
        self.neighbors = np.zeros(len(dataset), dtype=bool)
        if documents:
            self.neighbors[:-1] = [one is not None and one == next for one, next in itertools.pairwise(documents)]

    def texts(self, rows: np.ndarray, language: int) -> list[str]:
        structs = self.dataset[rows]["translation"].combine_chunks()
        return _field(structs, self.languages[language]).to_pylist()


class ListSource:
    """Rows of a stream: dictionaries of texts, in memory. A stream is shuffled: no row continues another."""

    def __init__(self, rows: Sequence[dict[str, str | None] | None], languages: Sequence[str]):
        self.rows = rows
        self.languages = list(languages)
        available = [[bool(row and row.get(language)) for language in self.languages] for row in rows]
        self.available = np.array(available, dtype=bool).reshape(len(rows), len(self.languages))
        self.neighbors = np.zeros(len(rows), dtype=bool)

    def texts(self, rows: np.ndarray, language: int) -> list[str]:
        return [self.rows[row][self.languages[language]] for row in rows]


def _field(structs: pa.Array, language: str) -> pa.Array:
    if structs.type.get_field_index(language) < 0:
        return pa.nulls(len(structs), pa.string())
    return pc.struct_field(structs, language)  # which carries the nulls of the structs along


def _present(texts: pa.Array) -> np.ndarray:
    return pc.fill_null(pc.greater(pc.utf8_length(texts), 0), False).to_numpy(zero_copy_only=False)


def tokenizer_threads() -> int:
    """How many threads may tokenise: `RAYON_NUM_THREADS`, as for the tokenizers library, or one a core."""
    stated = os.environ.get("RAYON_NUM_THREADS", "")
    if stated.isdigit() and int(stated) > 0:
        return int(stated)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def forkable_tokenizers() -> Iterator[None]:
    """Processes that are forked meanwhile do not use the threads of this one's tokenizers, which they do not have.

    They would find out for themselves, with a warning each.
    """
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


class TextBounds(NamedTuple):
    """Ids of the tokens before and after a text; `reads_bos`: whether the tokenizer puts the first of them there."""

    bos: int
    eos: int
    reads_bos: bool = True


def text_bounds(tokenizer: PreTrainedTokenizerBase) -> TextBounds:
    """What a tokenizer puts around a text: `<s>` and `</s>`, as BERT does `[CLS]` and `[SEP]`, or as T5 `</s>` alone.

    A decoder needs something to begin with; where the tokenizer has nothing for that, it is padding, as T5's own does.

    Raises:
        ValueError: A tokenizer that makes something else of texts.
    """
    made = tokenizer("a")["input_ids"]
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    names = (("bos_token", "cls_token"), ("eos_token", "sep_token"))
    first, last = ({name: getattr(tokenizer, f"{name}_id", None) for name in pair} for pair in names)
    first, last = ({name: token for name, token in pair.items() if token is not None} for pair in (first, last))
    for eos in last.values():
        for bos in first.values():
            if made == [bos, *plain, eos]:
                return TextBounds(bos, eos)
        if not first and made == [*plain, eos]:
            return TextBounds(tokenizer.pad_token_id, eos, reads_bos=False)
    before, after = (" or ".join(f"{name} {token}" for name, token in pair.items()) for pair in (first, last))
    raise ValueError(
        f"The tokenizer makes {made} of 'a', whose own tokens are {plain}; expected its {before or 'bos_token'} "
        f"before and its {after or 'eos_token, which it lacks,'} after them"
    )


class TextEncoder:
    """
    Texts to token ids without special tokens, never truncated.

    Has a tokenizer of its own: the one given is set to truncate by whoever calls it with truncation, in whichever
    thread, and says so to all who call its inner tokenizer. Calling the inner one directly takes half the time, since
    nothing but the ids is made.

    Args:
        tokenizer: Makes `<s> tokens </s>`, see `text_bounds`.

    Raises:
        ValueError: As `text_bounds`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        text_bounds(tokenizer)
        self.dtype = np.dtype(np.uint16 if len(tokenizer) <= 2**16 else np.int32)  # no more memory than needed
        self.tokenizer = tokenizer
        self.backend: Tokenizer | None = None
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is not None:
            self.backend = Tokenizer.from_str(backend.to_str())
            self.backend.no_truncation()
            self.backend.no_padding()

    def __call__(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts, one after the other, and the number of each: (tokens,), (texts,)."""
        encoded = self._encode(texts)
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        ids = np.fromiter(itertools.chain.from_iterable(encoded), dtype=self.dtype, count=int(lengths.sum()))
        return ids, lengths

    def _encode(self, texts: list[str]) -> list[list[int]]:
        if self.backend is None:
            return self.tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        worker = get_worker_info()
        if worker is None:
            return self._encode_part(texts)
        # The tokenizer's own threads do not survive the fork of a DataLoader worker; Python's begin anew.
        threads = max(1, tokenizer_threads() // worker.num_workers)
        size = -(-len(texts) // threads)
        parts = [texts[begin : begin + size] for begin in range(0, len(texts), max(size, 1))]
        if len(parts) == 1:
            return self._encode_part(texts)
        with ThreadPoolExecutor(threads) as pool:
            return list(itertools.chain.from_iterable(pool.map(self._encode_part, parts)))

    def _encode_part(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]


@dataclass(frozen=True)
class Cells:
    """Some texts of a store, without special tokens: `starts` in the flat array, `lengths`, and `words`."""

    starts: np.ndarray
    lengths: np.ndarray
    words: np.ndarray


class Tokens(Protocol):
    """Tokens of texts by row and language, whether made when they are needed (`TokenStore`) or before (`TokenCache`).

    neighbors: As of a `TextSource`.
    """

    neighbors: np.ndarray

    def available(self, rows: np.ndarray) -> np.ndarray:
        """Whether these rows have a text: (rows, languages)."""

    def cells(self, rows: np.ndarray, languages: np.ndarray) -> Cells:
        """The texts (row, language) of two arrays of the same shape; each must be available."""

    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The first `lengths` tokens of texts that begin at `starts`, one text after the other."""


def gather(ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The pieces `ids[start : start + length]` one after the other: (sum of lengths,)."""
    shifts = starts - (np.cumsum(lengths) - lengths)
    return ids[np.arange(int(lengths.sum())) + np.repeat(shifts, lengths)]


def count_words(texts: list[str]) -> np.ndarray:
    """Whitespace-separated words of each text."""
    return np.fromiter((len(text.split()) for text in texts), dtype=np.int32, count=len(texts))


class TokenStore:
    """
    Token ids of the texts of a source in memory, made when they are first needed.

    Args:
        source: The texts.
        encoder: What makes the ids.
    """

    def __init__(self, source: TextSource, encoder: TextEncoder):
        self.source = source
        self.encoder = encoder
        self.neighbors = source.neighbors
        shape = source.available.shape
        self.starts = np.full(shape, -1, dtype=np.int64)
        self.lengths = np.zeros(shape, dtype=np.int32)
        self.words = np.zeros(shape, dtype=np.int32)
        self.ids = np.empty(0, dtype=encoder.dtype)
        self.size = 0

    def available(self, rows: np.ndarray) -> np.ndarray:
        return self.source.available[rows]

    def cells(self, rows: np.ndarray, languages: np.ndarray) -> Cells:
        for language in np.unique(languages):
            wanted = np.unique(rows[languages == language])
            missing = wanted[self.starts[wanted, language] < 0]
            for begin in range(0, len(missing), ENCODE_TEXTS):
                self._encode(missing[begin : begin + ENCODE_TEXTS], language)
        place = (rows, languages)
        return Cells(self.starts[place], self.lengths[place], self.words[place])

    def _encode(self, rows: np.ndarray, language: int) -> None:
        texts = self.source.texts(rows, language)
        ids, lengths = self.encoder(texts)
        self.starts[rows, language] = self.size + np.cumsum(lengths) - lengths
        self.lengths[rows, language] = lengths
        self.words[rows, language] = count_words(texts)
        end = self.size + len(ids)
        if end > len(self.ids):
            grown = np.empty(max(end, 2 * len(self.ids)), dtype=self.ids.dtype)  # doubling: few copies
            grown[: self.size] = self.ids[: self.size]
            self.ids = grown
        self.ids[self.size : end] = ids
        self.size = end

    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return gather(self.ids, starts, lengths)
