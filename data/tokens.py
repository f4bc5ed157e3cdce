"""Token ids of parallel texts.

Each text is tokenized once, by `Dataset.map`, and batches are gathered from its cache.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
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
from tmde.embedding.progress import announce, progress_bar
from tmde.embedding.text_tokenizer import private_copy

from .cpus import usable_cpus
from .rows import LABEL, document_numbers, reading_order, stored_reading_order

BLOCK_ROWS = 2048  # rows tokenized at a time, and rows of a record batch of the cache


# ---- Tokenizers


class TextBounds(NamedTuple):
    """The special tokens around a text.

    Attributes:
        bos: The id before the text.
        eos: The id after the text.
        reads_bos: Whether the tokenizer itself puts `bos` before a text.
    """

    bos: int
    eos: int
    reads_bos: bool = True


def text_bounds(tokenizer: PreTrainedTokenizerBase) -> TextBounds:
    """Return what a tokenizer puts around a text.

    That is `<s>` and `</s>`, or BERT's `[CLS]` and `[SEP]`, or `</s>` alone in T5. A decoder must
    begin with something: where the tokenizer puts nothing before a text, `bos` is padding, as in
    T5.

    Raises:
        TmdeError: The tokenizer makes something else of texts, or is not a fast one.
    """
    if not tokenizer.is_fast:
        raise TmdeError(f"{type(tokenizer).__name__} is a slow tokenizer, expected a fast one")
    wrapped_ids = tokenizer("a")["input_ids"]
    text_ids = tokenizer("a", add_special_tokens=False)["input_ids"]
    first_ids = [_special_id(tokenizer, "bos_token"), _special_id(tokenizer, "cls_token")]
    last_ids = [_special_id(tokenizer, "eos_token"), _special_id(tokenizer, "sep_token")]
    bos = wrapped_ids[0]
    eos = wrapped_ids[-1]
    if wrapped_ids == [bos, *text_ids, eos] and bos in first_ids and eos in last_ids:
        return TextBounds(bos, eos)
    has_no_first_token = first_ids == [None, None]
    if wrapped_ids == [*text_ids, eos] and has_no_first_token and eos in last_ids:
        return TextBounds(tokenizer.pad_token_id, eos, reads_bos=False)
    raise TmdeError(
        f"The tokenizer encodes 'a' as {wrapped_ids} with special tokens and as {text_ids} "
        f"without; expected its bos_token or cls_token {first_ids} before and its eos_token "
        f"or sep_token {last_ids} after them"
    )


def _special_id(tokenizer: PreTrainedTokenizerBase, name: str) -> int | None:
    return getattr(tokenizer, f"{name}_id", None)


class TextEncoder:
    """Turns texts into token ids without special tokens, never truncated.

    It calls the backend of a private copy of the tokenizer. The copy does not truncate, whatever
    other users of the tokenizer set, and a direct call takes half the time, because it makes
    nothing but the ids.

    Args:
        tokenizer: Makes `<s> tokens </s>`, see `text_bounds`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        text_bounds(tokenizer)
        # Most vocabularies fit 16 bits, and then the cache takes half the room.
        fits_16_bits = len(tokenizer) <= 2**16
        self.dtype = np.dtype(np.uint16 if fits_16_bits else np.int32)
        self.backend: Tokenizer = private_copy(tokenizer).backend_tokenizer
        self.backend.encode_special_tokens = True  # A literal `</s>` is text.

    def __call__(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text."""
        worker = get_worker_info()
        if worker is None:
            return self._encode(texts)
        # The tokenizer's own threads do not survive the fork of a DataLoader worker, but threads
        # that Python starts after it work.
        threads = max(1, usable_cpus() // worker.num_workers)
        size = max(-(-len(texts) // threads), 1)
        blocks = [texts[begin : begin + size] for begin in range(0, len(texts), size)]
        with ThreadPoolExecutor(threads) as pool:
            return list(chain.from_iterable(pool.map(self._encode, blocks)))

    def _encode(self, texts: list[str]) -> list[list[int]]:
        encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


def tokenize(table: pa.Table, encoder: TextEncoder, languages: Sequence[str]) -> pa.Table:
    """Return the tokens of rows.

    Args:
        table: Rows with `translation`.
        encoder: What makes the tokens.
        languages: The languages whose texts are tokenized.

    Returns:
        The columns `ids`, of all languages one after the other; `lengths`, the tokens of each
        language, or -1 where there is no text; and `words`, the whitespace-separated words of each.
    """
    cells = []  # the texts, row by row and language by language
    for row in table["translation"].to_pylist():
        row_texts = row or {}
        cells += [row_texts.get(language) for language in languages]
    texts = [text for text in cells if text]
    has_text = np.array([bool(text) for text in cells], bool)  # (rows * languages,)
    encoded = encoder(texts)
    lengths = np.full(len(cells), -1, np.int32)
    lengths[has_text] = [len(ids) for ids in encoded]
    words = np.zeros(len(cells), np.int32)
    words[has_text] = [len(text.split()) for text in texts]
    row_lengths = np.maximum(lengths, 0).reshape(-1, len(languages)).sum(axis=1)  # (rows,)
    offsets = np.concatenate([[0], row_lengths.cumsum()])
    ids = np.fromiter(chain.from_iterable(encoded), encoder.dtype)
    return pa.table(
        {
            "ids": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids)),
            "lengths": pa.FixedSizeListArray.from_arrays(pa.array(lengths), len(languages)),
            "words": pa.FixedSizeListArray.from_arrays(pa.array(words), len(languages)),
        }
    )


# ---- Tokens of rows


class Tokens:
    """Token ids of the texts of rows in some languages.

    Args:
        table: The result of `tokenize`, perhaps in a memory-mapped cache.
        documents: The result of `document_numbers`; None if no row has a document.
        labels: The classes, (rows,), of rows that have them.
        order: The column `reading_order`, (rows,); None for rows that stand as in their source.

    Attributes:
        lengths: (rows, languages), the tokens of each text without special tokens, -1 where there
            is none.
        words: (rows, languages), the whitespace-separated words of each text.
        following: (rows,), the row that continues the text of each, or -1.
        documented: Whether the documents are known.
    """

    def __init__(
        self,
        table: pa.Table,
        documents: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        order: np.ndarray | None = None,
    ):
        self.table = table
        self.documents = documents
        self.labels = labels
        self.order = order
        self.lengths = _matrix(table["lengths"])
        self.words = _matrix(table["words"])
        self._id_lists = ListColumn(table["ids"])
        filled_lengths = np.maximum(self.lengths, 0)
        # Where the tokens of each language begin in the ids of a row, (rows, languages).
        self._begins = np.cumsum(filled_lengths, axis=1) - filled_lengths
        self.documented = documents is not None
        self.following = self._follow()

    def __reduce__(self) -> tuple:
        return Tokens, (self.table, self.documents, self.labels, self.order)

    def __len__(self) -> int:
        return len(self.lengths)

    def _follow(self) -> np.ndarray:
        """Return the row that follows each row in its document or stream, or -1, (rows,)."""
        numbers = self.order
        if numbers is None:
            numbers = reading_order(self.documents, self.lengths >= 0)
        # A mixed corpus repeats rows. All copies have the same texts, so the first one serves.
        known_numbers, first_rows = np.unique(numbers, return_index=True)
        places = np.searchsorted(known_numbers, numbers + 1)
        places = np.minimum(places, len(known_numbers) - 1)
        is_continued = known_numbers[places] == numbers + 1
        return np.where(is_continued, first_rows[places], -1)

    def gather(self, rows: np.ndarray, languages: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the first tokens of texts, one text after the other.

        Args:
            rows: The row of each text, (texts,).
            languages: The column of its language, (texts,).
            lengths: How many tokens to take, (texts,).

        Returns:
            (sum of lengths,)
        """
        return self._id_lists.gather(rows, self._begins[rows, languages], lengths)


class ListColumn:
    """A column of lists in several buffers, such as those of a memory-mapped file.

    The buffers are read in place: the tokens of a large corpus do not fit into memory.
    """

    def __init__(self, column: pa.ChunkedArray):
        self._blocks = []
        begins = []
        sizes = []
        for chunk in column.chunks:
            self._blocks.append(chunk.values.to_numpy())
            begins.append(chunk.offsets.to_numpy()[:-1])
            sizes.append(len(chunk))
        self._begins = np.concatenate(begins).astype(np.int64)  # (rows,), within its block
        self._block_numbers = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)  # (rows,)

    def gather(self, rows: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the items from `begins` on of the lists of `rows`, (sum of lengths,)."""
        starts = self._begins[rows] + begins
        stops = starts + lengths
        numbers = self._block_numbers[rows]
        # A slice of a text costs well under a microsecond, and copies its tokens at once.
        slices = [self._blocks[0][:0]]
        for number, start, stop in zip(
            numbers.tolist(), starts.tolist(), stops.tolist(), strict=True
        ):
            slices.append(self._blocks[number][start:stop])
        return np.concatenate(slices)


def _matrix(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of lists of equal lengths as (rows, length)."""
    array = column.combine_chunks()
    return array.flatten().to_numpy().reshape(len(array), -1)


# ---- The cache


def default_folder() -> Path:
    """Return the folder of token caches if none is chosen."""
    return Path(datasets.config.HF_DATASETS_CACHE).expanduser() / "tmde_tokens"


def map_once(
    rows: datasets.Dataset,
    function: Callable[[pa.Table], pa.Table],
    features: datasets.Features,
    content: object,
    folder: str | os.PathLike | None,
    desc: str,
) -> datasets.Dataset:
    """Return `function` of all rows, made once by `Dataset.map` and kept in a file.

    Several processes may call this at once: one makes the file, the others wait for it. The one
    that makes it shows its progress, as the bar of `datasets`. Where `tmde` turned that bar off,
    because stderr is a log, it writes a line when it begins, and one every 30 seconds.

    Args:
        rows: The rows.
        function: Makes a table out of a table of rows.
        features: The columns that it makes.
        content: What decides the result beside the rows; it goes into the name of the file.
        folder: The folder of the file; `"auto"` is `tmde_tokens` in the cache folder of `datasets`.
            None keeps the result in memory.
        desc: What the progress bar and the lines of a log begin with.

    Raises:
        OSError: A folder that can't be written.
    """
    # `datasets` has no public name for the fingerprint of a dataset.
    fingerprint = Hasher.hash([rows._fingerprint, len(rows), content, str(features)])
    options = {
        "batched": True,
        "batch_size": BLOCK_ROWS,
        "writer_batch_size": BLOCK_ROWS,
        "features": features,
        "remove_columns": rows.column_names,
        "new_fingerprint": fingerprint,
        "desc": desc,
    }
    rows = rows.with_format("arrow")
    if folder is None:
        # Every process makes its own tokens, and only the first shows its progress.
        if is_first_process():
            _announce_rows(desc, len(rows))
        with _row_progress(len(rows), desc, is_shown=is_first_process()) as bar:
            return rows.map(_counting_rows(function, bar), keep_in_memory=True, **options)
    with (
        writable_cache(folder) as parent,
        FileLock(parent / f"{fingerprint}.lock"),
        _row_progress(len(rows), desc) as bar,
    ):
        file_name = str(parent / f"{fingerprint}.arrow")
        if not os.path.exists(file_name):
            _announce_rows(desc, len(rows))
        return rows.map(_counting_rows(function, bar), cache_file_name=file_name, **options)


@contextmanager
def writable_cache(folder: str | os.PathLike) -> Iterator[Path]:
    """Yield the folder of a cache, and explain what to do if it can't be written.

    Args:
        folder: The folder, see `map_once`.

    Raises:
        OSError: A folder that can't be written.
    """
    parent = default_folder() if folder == "auto" else Path(folder).expanduser()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        yield parent
    except OSError as error:
        raise OSError(
            f"The cache can't be written in {parent} ({error}): set token_cache_dir to a "
            "folder with free space, or to null to keep it in memory"
        ) from error


def _announce_rows(desc: str, count: int) -> None:
    """Say in a log that rows will be read, unless one block holds them all, which takes no time."""
    if count > BLOCK_ROWS:
        announce(f"{desc} {count:,} rows")


def _row_progress(total: int, desc: str, is_shown: bool = True) -> tqdm:
    """Return a bar that counts rows, hidden where `datasets` shows one of its own."""
    is_needed = is_shown and datasets.are_progress_bars_disabled()
    return progress_bar(total=total, desc=desc, unit=" rows", disable=not is_needed)


def is_first_process() -> bool:
    """Return whether this is the only process, or the first of several that train together."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return True
    return torch.distributed.get_rank() == 0


def _counting_rows(
    function: Callable[[pa.Table], pa.Table], bar: tqdm
) -> Callable[[pa.Table], pa.Table]:
    """Return a function that does the same, and then moves the bar by the rows of its argument."""

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
        rows: Rows `{"translation": {language: text or None}}`, perhaps with `doc_id`, `label` or
            `reading_order`.
        tokenizer: Makes `<s> tokens </s>`.
        languages: The languages whose texts are tokenized.
        folder: The folder of the cache, see `map_once`.

    Raises:
        TmdeError: The tokenizer makes something else; see `text_bounds`.
        OSError: A folder that can't be written.
    """
    if not isinstance(rows, datasets.Dataset):
        return None
    encoder = TextEncoder(tokenizer)
    number_by_language = datasets.List(datasets.Value("int32"), length=len(languages))
    features = datasets.Features(
        {
            "ids": datasets.List(datasets.Value(encoder.dtype.name)),
            "lengths": number_by_language,
            "words": number_by_language,
        }
    )

    def tokenize_table(table: pa.Table) -> pa.Table:
        return tokenize(table, encoder, languages)

    tokenized = map_once(
        rows.select_columns("translation"),
        tokenize_table,
        features,
        [list(languages), encoder.backend.to_str()],
        folder,
        "Tokenizing",
    )
    labels = None
    if LABEL in rows.column_names:
        labels = np.array(rows[LABEL][:])  # (rows,)
    return Tokens(
        tokenized.with_format("arrow")[:],
        document_numbers(rows),
        labels=labels,
        order=stored_reading_order(rows),
    )
