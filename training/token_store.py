"""Token ids of parallel texts in one flat array: every text is tokenised once, and batches are gathered, not built."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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


@dataclass(frozen=True)
class Cells:
    """Some texts of a store, without special tokens: `starts` in the flat array, `lengths`, and `words`."""

    starts: np.ndarray
    lengths: np.ndarray
    words: np.ndarray


class TokenStore:
    """
    Token ids of the texts of a source, made when they are first needed and kept.

    Args:
        source: The texts.
        tokenizer: Makes `<s> tokens </s>`; ids are stored without these two.

    Raises:
        ValueError: A tokenizer whose texts do not begin with its `bos_token` and end with its `eos_token`.
    """

    def __init__(self, source: TextSource, tokenizer: PreTrainedTokenizerBase):
        self.source = source
        self.tokenizer = tokenizer
        made = tokenizer("a")["input_ids"]
        plain = tokenizer("a", add_special_tokens=False)["input_ids"]
        if made != [tokenizer.bos_token_id, *plain, tokenizer.eos_token_id]:
            raise ValueError(
                f"The tokenizer makes {made} of 'a', whose own tokens are {plain}; expected its bos_token "
                f"{tokenizer.bos_token_id} before and its eos_token {tokenizer.eos_token_id} after them"
            )
        shape = source.available.shape
        self.starts = np.full(shape, -1, dtype=np.int64)
        self.lengths = np.zeros(shape, dtype=np.int32)
        self.words = np.zeros(shape, dtype=np.int32)
        self.ids = np.empty(0, dtype=np.uint16 if len(tokenizer) <= 2**16 else np.int32)
        self.size = 0

    def cells(self, rows: np.ndarray, languages: np.ndarray) -> Cells:
        """The texts (row, language) of two arrays of the same shape, tokenised if they are not yet."""
        for language in np.unique(languages):
            wanted = np.unique(rows[languages == language])
            missing = wanted[self.starts[wanted, language] < 0]
            for begin in range(0, len(missing), ENCODE_TEXTS):
                self._encode(missing[begin : begin + ENCODE_TEXTS], language)
        place = (rows, languages)
        return Cells(self.starts[place], self.lengths[place], self.words[place])

    def _encode(self, rows: np.ndarray, language: int) -> None:
        texts = self.source.texts(rows, language)
        encoded = self.tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        self.starts[rows, language] = self.size + np.cumsum(lengths) - lengths
        self.lengths[rows, language] = lengths
        self.words[rows, language] = [len(text.split()) for text in texts]
        end = self.size + int(lengths.sum())
        if end > len(self.ids):
            grown = np.empty(max(end, 2 * len(self.ids)), dtype=self.ids.dtype)  # doubling: few copies
            grown[: self.size] = self.ids[: self.size]
            self.ids = grown
        self.ids[self.size : end] = np.concatenate([np.asarray(ids, dtype=self.ids.dtype) for ids in encoded])
        self.size = end

    def fill(self, out: np.ndarray, starts: np.ndarray, lengths: np.ndarray, begins: np.ndarray) -> None:
        """Copies texts into the flat array `out`: text i, the first `lengths[i]` tokens, from `begins[i]` on."""
        total = int(lengths.sum())
        steps = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        out[np.repeat(begins, lengths) + steps] = self.ids[np.repeat(starts, lengths) + steps]
