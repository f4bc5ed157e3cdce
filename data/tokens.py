"""Token ids of parallel texts: each is tokenised once, by `Dataset.map`, and batches are gathered from its cache."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets.fingerprint import Hasher
from filelock import FileLock
from tokenizers import Tokenizer
from torch.utils.data import get_worker_info
from transformers import PreTrainedTokenizerBase

from .parallel import DOCUMENT_ID

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


def tokenizer_threads() -> int:
    """Return how many threads may tokenise: `RAYON_NUM_THREADS`, as for the tokenizers library, or one a core."""
    stated = os.environ.get("RAYON_NUM_THREADS", "")
    if stated.isdigit() and int(stated) > 0:
        return int(stated)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def forkable_tokenizers() -> Iterator[None]:
    """Tell tokenizers not to use threads in processes that are forked meanwhile: the threads do not survive a fork."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


class TextEncoder:
    """Texts to token ids without special tokens, never truncated.

    It copies the inner tokenizer, which others may set to truncate, and calls it directly: that takes half the time,
    since nothing but the ids is made.

    Args:
        tokenizer: Makes `<s> tokens </s>`, see `text_bounds`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        text_bounds(tokenizer)
        self.dtype = np.dtype(np.uint16 if len(tokenizer) <= 2**16 else np.int32)  # no more memory than needed
        self.tokenizer = tokenizer
        self.backend: Tokenizer | None = None
        if getattr(tokenizer, "backend_tokenizer", None) is not None:
            self.backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
            self.backend.no_truncation()
            self.backend.no_padding()

    def __call__(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all texts, one after the other, (tokens,), and the number of each, (texts,)."""
        worker = get_worker_info()
        if self.backend is None:
            options = {"add_special_tokens": False, "truncation": False, "verbose": False}
            encoded = self.tokenizer(texts, **options)["input_ids"] if texts else []
        elif worker is None:
            encoded = self._encode(texts)
        else:  # the tokenizer's own threads do not survive the fork of a DataLoader worker; Python's begin anew
            threads = max(1, tokenizer_threads() // worker.num_workers)
            size = max(-(-len(texts) // threads), 1)
            parts = [texts[begin : begin + size] for begin in range(0, len(texts), size)]
            with ThreadPoolExecutor(threads) as pool:
                encoded = list(itertools.chain.from_iterable(pool.map(self._encode, parts)))
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        return np.fromiter(itertools.chain.from_iterable(encoded), self.dtype, int(lengths.sum())), lengths

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]


def tokenize(table: pa.Table, encoder: TextEncoder, languages: Sequence[str]) -> pa.Table:
    """Return the columns `ids.<language>`, null where there is no text, and `words.<language>` of rows with
    `translation`."""
    columns = {}
    for language, texts in texts_by_language(table, languages).items():
        there = pc.fill_null(pc.greater(pc.binary_length(texts), 0), False)
        present = there.to_numpy(zero_copy_only=False)
        found = texts.filter(there).to_pylist()
        lengths, words = np.zeros((2, len(texts)), np.int32)
        ids, lengths[present] = encoder(found)
        words[present] = [len(text.split()) for text in found]
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        columns[f"ids.{language}"] = pa.ListArray.from_arrays(offsets, pa.array(ids), mask=pa.array(~present))
        columns[f"words.{language}"] = pa.array(words)
    return pa.table(columns)


def texts_by_language(table: pa.Table, languages: Sequence[str]) -> dict[str, pa.Array]:
    """Return the texts of rows with `translation`: all null in a language that they do not have."""
    structs = table["translation"].combine_chunks()
    structs = pa.concat_arrays(structs.chunks) if isinstance(structs, pa.ChunkedArray) else structs
    there = {field.name for field in structs.type}
    missing = pa.nulls(len(structs), pa.string())
    return {name: pc.struct_field(structs, name) if name in there else missing for name in languages}


class Tokens:
    """Token ids of the texts of rows in some languages.

    Args:
        table: From `tokenize`, perhaps of a memory-mapped cache.
        languages: Their codes.
        documents: The document of each row, by which rows follow each other. Without it, a row is followed by the next
            one with the same languages: the rows are a stream of sentences.
        texts: The rows themselves, where something needs to read them.

    Attributes:
        following: (rows,), the row that continues the text of each, or -1.
        documented: Whether `documents` tells any two rows apart.
    """

    def __init__(
        self,
        table: pa.Table,
        languages: Sequence[str],
        documents: pa.Array | None = None,
        texts: pa.Table | None = None,
    ):
        self.table, self.languages = table, list(languages)
        self.documents, self.texts = documents, texts
        self._ids, self._starts, self._lengths = flat_lists([table[f"ids.{name}"] for name in self.languages])
        self._words = np.stack([table[f"words.{name}"].to_numpy() for name in self.languages], axis=1)
        self.documented = documents is not None and documents.null_count < len(documents)
        self.following = self._follow()

    def __reduce__(self) -> tuple:
        return Tokens, (self.table, self.languages, self.documents, self.texts)

    def _follow(self) -> np.ndarray:
        following = np.full(len(self), -1, dtype=np.int64)
        if len(self) < 2:
            return following
        if self.documented:
            same = pc.fill_null(pc.equal(self.documents[:-1], self.documents[1:]), False).to_numpy(
                zero_copy_only=False
            )
            following[:-1] = np.where(same, np.arange(1, len(self)), -1)
            return following
        _, kind = np.unique(pack_bits(self._lengths >= 0), return_inverse=True)
        order = np.argsort(kind, kind="stable")
        following[order[:-1]] = np.where(kind[order[:-1]] == kind[order[1:]], order[1:], -1)
        return following

    def __len__(self) -> int:
        return len(self._lengths)

    def available(self, rows: np.ndarray) -> np.ndarray:
        """Return whether these rows have a text: (rows, languages)."""
        return self._lengths[rows] >= 0

    def lengths(self, rows: np.ndarray, languages: np.ndarray) -> np.ndarray:
        """Return the tokens of texts (row, language), which must be available, without special tokens."""
        return self._lengths[rows, languages]

    def words(self, rows: np.ndarray, languages: np.ndarray) -> np.ndarray:
        """Return the whitespace-separated words of texts (row, language)."""
        return self._words[rows, languages]

    def gather(self, rows: np.ndarray, languages: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the first `lengths` tokens of texts (row, language), one text after the other: (sum of lengths,)."""
        shifts = self._starts[rows, languages] - (np.cumsum(lengths) - lengths)
        return self._ids[np.arange(int(lengths.sum())) + np.repeat(shifts, lengths)]


def flat_lists(columns: Sequence[pa.ChunkedArray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the values of list columns as one array, without a copy, and where each list begins in it, (rows,
    columns), and its length, -1 for null.

    The array spans all buffers, whether of one memory-mapped file or of several: a position in it is an address.
    """
    shape = (len(columns[0]), len(columns))
    starts, lengths = np.zeros(shape, np.int64), np.full(shape, -1, np.int32)
    dtype = np.dtype(columns[0].type.value_type.to_pandas_dtype())
    begins, ends = [], []
    for column, chunked in enumerate(columns):
        row = 0
        for chunk in chunked.chunks:
            if pa.types.is_fixed_size_list(chunk.type):
                offsets = (np.arange(len(chunk) + 1) + chunk.offset) * chunk.type.list_size
            else:
                offsets = chunk.offsets.to_numpy().astype(np.int64)
            rows = slice(row, row + len(chunk))
            row += len(chunk)
            lengths[rows, column] = np.where(chunk.is_valid(), np.diff(offsets), -1)
            if len(chunk.values):
                begin = chunk.values.buffers()[1].address // dtype.itemsize + chunk.values.offset
                begins.append(begin)
                ends.append(begin + len(chunk.values))
                starts[rows, column] = begin + offsets[:-1]
    if not begins:
        return np.empty(0, dtype), starts, lengths
    base = min(begins)
    buffer = pa.foreign_buffer(base * dtype.itemsize, (max(ends) - base) * dtype.itemsize, base=columns)
    return np.frombuffer(buffer, dtype), starts - base, lengths


def pack_bits(flags: np.ndarray) -> np.ndarray:
    """Return one value for each row of flags (rows, any): a number of 64 bits, if that will do, which sorts faster."""
    packed = np.packbits(flags, axis=1)
    if packed.shape[1] > 8:
        return packed.view(f"V{packed.shape[1]}").reshape(-1)
    padded = np.zeros((len(packed), 8), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64).reshape(-1)


def default_folder() -> Path:
    return Path(datasets.config.HF_DATASETS_CACHE).expanduser() / "tmde_tokens"


def map_once(
    rows: datasets.Dataset,
    function: Callable[[pa.Table], pa.Table],
    features: datasets.Features,
    content: object,
    folder: str | os.PathLike | None,
    desc: str,
) -> pa.Table:
    """Return `function` of all rows, as `Dataset.map` makes it once and keeps it.

    Several processes may call this at once: one makes the file, the others wait for it.

    Args:
        function: Of a table of rows.
        content: What decides the result beside the rows, for the name of the file.
        folder: Where the file is kept; `"auto"` is `tmde_tokens` in the cache folder of `datasets`. None keeps the
            result in memory.
        desc: What the progress bar says.

    Raises:
        OSError: A folder that can't be written.
    """
    if not len(rows):
        return features.arrow_schema.empty_table()
    if folder is None:
        return pa.concat_tables([function(table) for table in rows.with_format("arrow").iter(BLOCK_ROWS)])
    fingerprint = Hasher.hash([rows._fingerprint, len(rows), content])
    options = {"batched": True, "batch_size": BLOCK_ROWS, "writer_batch_size": BLOCK_ROWS, "features": features}
    options |= {"remove_columns": rows.column_names, "new_fingerprint": fingerprint}
    options["desc"] = desc
    rows = rows.with_format("arrow")
    parent = default_folder() if folder == "auto" else Path(folder).expanduser()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with FileLock(parent / f"{fingerprint}.lock"):
            return rows.map(function, cache_file_name=str(parent / f"{fingerprint}.arrow"), **options)[:]
    except OSError as error:
        raise OSError(
            f"The cache can't be written in {parent} ({error}): set token_cache_dir to a folder with room, or to "
            "null, which keeps it in memory"
        ) from error


def open_tokens(
    rows: datasets.Dataset | datasets.IterableDataset,
    tokenizer: PreTrainedTokenizerBase,
    languages: Sequence[str],
    folder: str | os.PathLike | None = "auto",
) -> Tokens | None:
    """Return the tokens of a dataset, made once and kept as its cache; None for a stream.

    Args:
        rows: Rows `{"translation": {language: text or None}}`, perhaps with `doc_id`.
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
    features = {}
    for language in languages:
        features[f"ids.{language}"] = datasets.List(datasets.Value(encoder.dtype.name))
        features[f"words.{language}"] = datasets.Value("int32")
    content = [list(languages), encoder.backend.to_str() if encoder.backend else None]
    table = map_once(
        rows.select_columns("translation"),
        lambda table: tokenize(table, encoder, languages),
        datasets.Features(features),
        content,
        folder if encoder.backend else None,
        "Tokenizing",
    )
    documents = None
    if DOCUMENT_ID in rows.column_names:
        documents = rows.select_columns(DOCUMENT_ID).with_format("arrow")[:][DOCUMENT_ID].combine_chunks()
    return Tokens(table, languages, documents)
