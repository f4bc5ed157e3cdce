"""Token ids of parallel texts: each is tokenised once, by `Dataset.map`, and batches are gathered from its cache."""

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import torch
from datasets.fingerprint import Hasher
from filelock import FileLock
from tokenizers import Tokenizer
from torch.utils.data import get_worker_info
from tqdm.std import tqdm
from transformers import PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from tmde.embedding.progress import progress_bar

from .cpus import usable_cpus
from .parallel import LABEL, document_numbers

BLOCK_ROWS = 2048  # tokenised at a time, and rows of a record batch of the cache


class TextBounds(NamedTuple):
    """Ids of the tokens before and after a text; `reads_bos`: whether the tokenizer puts the first of them there."""

    bos: int
    eos: int
    reads_bos: bool = True


def text_bounds(tokenizer: PreTrainedTokenizerBase) -> TextBounds:
    """Return what a tokenizer puts around a text: `<s>` and `</s>`, as BERT does `[CLS]` and `[SEP]`, or as T5 `</s>`
    alone. A decoder must begin with something; where the tokenizer has nothing for that, it is padding, as in T5.

    Raises:
        ValueError: A tokenizer that makes something else of texts, or is not a fast one.
    """
    if not tokenizer.is_fast:
        raise TmdeError(
            f"{type(tokenizer).__name__} is written in Python, expected a fast tokenizer"
        )
    made, plain = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    names = (("bos_token", "cls_token"), ("eos_token", "sep_token"))
    first, last = ([getattr(tokenizer, f"{name}_id", None) for name in pair] for pair in names)
    if made[1:-1] == plain and made[0] in first and made[-1] in last:
        return TextBounds(made[0], made[-1])
    if made[:-1] == plain and first == [None, None] and made[-1] in last:
        return TextBounds(tokenizer.pad_token_id, made[-1], reads_bos=False)
    raise TmdeError(
        f"The tokenizer makes {made} of 'a', whose own tokens are {plain}; expected its bos_token or cls_token "
        f"{first} before and its eos_token or sep_token {last} after them"
    )


class TextEncoder:
    """Texts to token ids without special tokens, never truncated.

    It copies the inner tokenizer, which others may set to truncate, and calls it directly: that takes half the time,
    since nothing but the ids is made.

    Args:
        tokenizer: Makes `<s> tokens </s>`, see `text_bounds`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        text_bounds(tokenizer)
        self.dtype = np.dtype(
            np.uint16 if len(tokenizer) <= 2**16 else np.int32
        )  # no more memory than needed
        self.backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True  # a literal `</s>` is text

    def __call__(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text."""
        worker = get_worker_info()
        if worker is None:
            return self._encode(texts)
        # The tokenizer's own threads do not survive the fork of a DataLoader worker; Python's begin anew.
        threads = max(1, usable_cpus() // worker.num_workers)
        size = max(-(-len(texts) // threads), 1)
        with ThreadPoolExecutor(threads) as pool:
            parts = pool.map(
                self._encode, [texts[begin : begin + size] for begin in range(0, len(texts), size)]
            )
            return list(itertools.chain.from_iterable(parts))

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [
            encoding.ids
            for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)
        ]


def tokenize(table: pa.Table, encoder: TextEncoder, languages: Sequence[str]) -> pa.Table:
    """Return, of rows with `translation`, the columns `ids`, of all languages one after the other, `lengths`, the
    tokens of each language or -1 where there is no text, and `words`, the whitespace-separated words of each."""
    texts = [
        (row or {}).get(name) for row in table["translation"].to_pylist() for name in languages
    ]
    there = np.array([bool(text) for text in texts], bool)
    texts = [text for text in texts if text]
    encoded = encoder(texts)
    lengths, words = np.full(len(there), -1, np.int32), np.zeros(len(there), np.int32)
    lengths[there] = [len(ids) for ids in encoded]
    words[there] = [len(text.split()) for text in texts]
    ends = np.maximum(lengths, 0).reshape(-1, len(languages)).sum(axis=1).cumsum()
    ids = pa.array(np.fromiter(itertools.chain.from_iterable(encoded), encoder.dtype))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    by_row = [
        pa.FixedSizeListArray.from_arrays(values, len(languages)) for values in (lengths, words)
    ]
    return pa.table([pa.ListArray.from_arrays(offsets, ids), *by_row], ["ids", "lengths", "words"])


class Tokens:
    """Token ids of the texts of rows in some languages.

    Args:
        table: From `tokenize`, perhaps of a memory-mapped cache.
        documents: Of `document_numbers`, by which rows follow each other. Without it, a row is followed by the next
            one with the same languages: the rows are a stream of sentences.
        texts: The rows themselves, where something needs to read them.
        labels: (rows,), numbers of classes, of rows that have them.

    Attributes:
        lengths: (rows, languages), the tokens of each text without special tokens, -1 where there is none.
        words: (rows, languages), the whitespace-separated words of each text.
        following: (rows,), the row that continues the text of each, or -1.
        documented: Whether the documents are known.
    """

    def __init__(
        self,
        table: pa.Table,
        documents: np.ndarray | None = None,
        texts: pa.Table | None = None,
        labels: np.ndarray | None = None,
    ):
        self.table, self.documents, self.texts, self.labels = table, documents, texts, labels
        self.lengths, self.words = (
            table[name].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
            for name in ("lengths", "words")
        )
        self._ids, starts = _flat(table["ids"])
        lengths = np.maximum(self.lengths, 0)
        self._starts = starts[:, None] + np.cumsum(lengths, axis=1) - lengths  # (rows, languages)
        self.documented = documents is not None
        self.following = self._follow()

    def __reduce__(self) -> tuple:
        return Tokens, (self.table, self.documents, self.texts, self.labels)

    def _follow(self) -> np.ndarray:
        following = np.full(len(self), -1, dtype=np.int64)
        kind, order = self.documents, np.arange(len(self))
        if not self.documented:
            _, kind = np.unique(np.packbits(self.lengths >= 0, axis=1), axis=0, return_inverse=True)
            kind = kind.reshape(-1)
            order = np.argsort(kind, kind="stable")
        same = (kind[order[:-1]] == kind[order[1:]]) & (kind[order[1:]] >= 0)
        following[order[:-1]] = np.where(same, order[1:], -1)
        return following

    def __len__(self) -> int:
        return len(self.lengths)

    def gather(self, rows: np.ndarray, languages: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the first `lengths` tokens of texts (row, language), one text after the other: (sum of lengths,)."""
        shifts = self._starts[rows, languages] - (np.cumsum(lengths) - lengths)
        return self._ids[np.arange(int(lengths.sum())) + np.repeat(shifts, lengths)]


def _flat(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a list column as one array, without a copy, and where each list begins in it, (rows,).

    The array spans all buffers, whether of one memory-mapped file or of several: a position in it is an address.
    """
    blocks = [chunk.values.to_numpy() for chunk in column.chunks]
    filled = [
        block for block in blocks if len(block)
    ] or blocks  # the address of an empty one is anything
    begin = min(block.ctypes.data for block in filled)
    end = max(block.ctypes.data + block.nbytes for block in filled)
    starts = [
        (block.ctypes.data - begin) // block.itemsize
        + chunk.offsets.to_numpy()[:-1].astype(np.int64)
        for block, chunk in zip(blocks, column.chunks, strict=True)
    ]
    return np.frombuffer(
        pa.foreign_buffer(begin, end - begin, column), blocks[0].dtype
    ), np.concatenate(starts)


def default_folder() -> Path:
    return Path(datasets.config.HF_DATASETS_CACHE).expanduser() / "tmde_tokens"


def map_once(
    rows: datasets.Dataset,
    function: Callable[[pa.Table], pa.Table],
    features: datasets.Features,
    content: object,
    folder: str | os.PathLike | None,
    desc: str,
) -> datasets.Dataset:
    """Return `function` of all rows, as `Dataset.map` makes it once and keeps it.

    Several processes may call this at once: one makes the file, the others wait for it. The one that makes it shows
    how far it is: as the progress bar of `datasets`, or where `tmde` turned that off, because stderr is a log, as a
    line every 30 seconds.

    Args:
        function: Of a table of rows.
        content: What decides the result beside the rows, for the name of the file.
        folder: Where the file is kept; `"auto"` is `tmde_tokens` in the cache folder of `datasets`. None keeps the
            result in memory.
        desc: What the progress bar and the lines of a log begin with.

    Raises:
        OSError: A folder that can't be written.
    """
    fingerprint = Hasher.hash([rows._fingerprint, len(rows), content, str(features)])
    options = {
        "batched": True,
        "batch_size": BLOCK_ROWS,
        "writer_batch_size": BLOCK_ROWS,
        "features": features,
    }
    options |= {"remove_columns": rows.column_names, "new_fingerprint": fingerprint, "desc": desc}
    rows = rows.with_format("arrow")
    if folder is None:  # every process makes its own, and one of them shows it
        with _row_progress(len(rows), desc, is_first_process()) as bar:
            return rows.map(_counting_rows(function, bar), keep_in_memory=True, **options)
    parent = default_folder() if folder == "auto" else Path(folder).expanduser()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with FileLock(parent / f"{fingerprint}.lock"):
            file = str(parent / f"{fingerprint}.arrow")
            with _row_progress(len(rows), desc) as bar:
                return rows.map(_counting_rows(function, bar), cache_file_name=file, **options)
    except OSError as error:
        raise OSError(
            f"The cache can't be written in {parent} ({error}): set token_cache_dir to a folder with room, or to "
            "null, which keeps it in memory"
        ) from error


def _row_progress(total: int, desc: str, shown: bool = True) -> tqdm:
    """Return a bar for rows that shows nothing where `datasets` shows one of its own."""
    shown = shown and datasets.are_progress_bars_disabled()
    return progress_bar(total=total, desc=desc, unit=" rows", disable=not shown)


def is_first_process() -> bool:
    """Return whether this is the only process, or the first of several that train together."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return True
    return torch.distributed.get_rank() == 0


def _counting_rows(
    function: Callable[[pa.Table], pa.Table], bar: tqdm
) -> Callable[[pa.Table], pa.Table]:
    """Return a function that does the same and then moves the bar by the rows it was given."""

    def count_rows(table: pa.Table) -> pa.Table:
        result = function(table)
        bar.update(table.num_rows)
        return result

    return count_rows


def open_tokens(
    rows: datasets.Dataset | datasets.IterableDataset,
    tokenizer: PreTrainedTokenizerBase,
    languages: Sequence[str],
    folder: str | os.PathLike | None = "auto",
) -> Tokens | None:
    """Return the tokens of a dataset, made once and kept as its cache; None for a stream.

    Args:
        rows: Rows `{"translation": {language: text or None}}`, perhaps with `doc_id` or `label`.
        tokenizer: Makes `<s> tokens </s>`.
        languages: The languages whose texts are kept.
        folder: Where the cache is kept, see `map_once`.

    Raises:
        ValueError: A tokenizer that makes something else; see `text_bounds`.
        OSError: A folder that can't be written.
    """
    if not isinstance(rows, datasets.Dataset):
        return None
    encoder = TextEncoder(tokenizer)
    each = datasets.List(datasets.Value("int32"), length=len(languages))
    ids = datasets.List(datasets.Value(encoder.dtype.name))
    features = datasets.Features({"ids": ids, "lengths": each, "words": each})
    texts, content = rows.select_columns("translation"), [list(languages), encoder.backend.to_str()]
    made = map_once(
        texts,
        lambda table: tokenize(table, encoder, languages),
        features,
        content,
        folder,
        "Tokenizing",
    )
    labels = np.array(rows[LABEL][:]) if LABEL in rows.column_names else None
    return Tokens(made.with_format("arrow")[:], document_numbers(rows), labels=labels)
