"""Token ids of a map-style dataset on disk, made once by all cores and mapped into memory by every process.

A cache is a folder whose name follows from the dataset's fingerprint, the languages and the tokenizer. It is made
under another name and then renamed, so none is ever half there; `meta.json` holds the size and the checksum of every
file, so that one which was damaged later is made anew.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets.utils import tqdm
from filelock import FileLock
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.data.token_store import (
    ArrowSource,
    Cells,
    TextEncoder,
    count_words,
    forkable_tokenizers,
    gather,
    tokenizer_threads,
)

logger = logging.get_logger("modeling_tmde.training")

FORMAT = 1  # raise it when the files change
BLOCK_ROWS = 2048  # that a process tokenises at a time
READ_BYTES = 2**24  # of a file that is checked, at a time
META = "meta.json"
ARRAYS = ("ids", "starts", "lengths", "words", "neighbors")

_whole: dict[Path, list[tuple[int, int]]] = {}  # caches that this process found whole, and their files' states then


class TokenCache:
    """
    Token ids of all texts of a dataset, read from the files of a cache as they are needed.

    Args:
        folder: A complete cache, as `open_token_cache` makes it.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.languages: list[str] = (meta := read_meta(folder))["languages"]
        arrays = {name: map_array(folder, name, meta) for name in ARRAYS}
        self.ids, self.neighbors = arrays["ids"], arrays["neighbors"]
        self.starts, self.lengths, self.words = arrays["starts"], arrays["lengths"], arrays["words"]

    def __reduce__(self) -> tuple:
        return TokenCache, (self.folder,)  # a process that is started anew maps the files too

    def available(self, rows: np.ndarray) -> np.ndarray:
        return self.starts[rows] >= 0

    def cells(self, rows: np.ndarray, languages: np.ndarray) -> Cells:
        place = (rows, languages)
        return Cells(self.starts[place], self.lengths[place], self.words[place])

    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return gather(self.ids, starts, lengths)


def default_folder() -> Path:
    return Path(datasets.config.HF_DATASETS_CACHE).expanduser() / "tmde_tokens"


def open_token_cache(
    dataset: datasets.Dataset | datasets.IterableDataset,
    tokenizer: PreTrainedTokenizerBase,
    languages: Sequence[str],
    folder: str | os.PathLike | None = "auto",
    show_progress: bool = False,
) -> TokenCache | None:
    """
    The token cache of a dataset, made if it is not there or damaged.

    Several processes may call this at once: one makes the cache, the others wait for it.

    Args:
        dataset: Rows `{"translation": {language: text or None}}`, perhaps with `doc_id`.
        tokenizer: Makes `<s> tokens </s>`.
        languages: The languages whose texts are kept.
        folder: Where caches are kept; `"auto"` is `tmde_tokens` in the cache folder of `datasets`.
        show_progress: Show a bar while the cache is made.

    Returns:
        The cache; None if there can't be one, which is so for a stream, for a tokenizer without a `tokenizers` backend
        and for `folder=None`.

    Raises:
        ValueError: A tokenizer that makes something else; see `TextEncoder`.
        OSError: A folder that can't be written.
    """
    if folder is None or not isinstance(dataset, datasets.Dataset):
        return None
    encoder = TextEncoder(tokenizer)
    if encoder.backend is None:
        return None
    parent = cache_folder(folder)
    content = [FORMAT, dataset._fingerprint, len(dataset), list(languages), encoder.backend.to_str()]
    try:
        path = make_once(parent, content, lambda path: _write(path, dataset, languages, encoder, show_progress))
    except OSError as error:
        raise OSError(
            f"The token cache can't be written in {parent} ({error}): set token_cache_dir to a folder with room, or "
            "to null, which tokenises texts as they are used"
        ) from error
    return TokenCache(path)


def cache_folder(folder: str | os.PathLike) -> Path:
    return default_folder() if folder == "auto" else Path(folder).expanduser()


def make_once(parent: Path, content: list, write: Callable[[Path], None], resumes: bool = False) -> Path:
    """The cache folder of what `content` names, made if it is not there or damaged; other processes wait meanwhile.

    Args:
        parent: Where caches are kept.
        content: Everything that decides what is in it.
        write: Fills a folder: with `meta.json` (see `write_meta`) and the arrays that it names.
        resumes: Whether `write` goes on with what an interrupted call left in the folder.
    """
    name = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    path = parent / name
    parent.mkdir(parents=True, exist_ok=True)
    with FileLock(parent / f"{name}.lock"):
        known = path in _whole and _whole[path] == _states(path)
        if path.exists() and not known and (damage := find_damage(path)):
            logger.warning(f"The cache {path} is damaged ({damage}) and is made anew")
            shutil.rmtree(path)
        if not path.exists():
            temporary = parent / f".{name}.tmp"  # of this name alone, as the lock is held
            if not resumes:
                shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(exist_ok=True)
            write(temporary)
            os.replace(temporary, path)
        _whole[path] = _states(path)
    return path


# ---- Reading


def read_meta(folder: Path) -> dict[str, Any]:
    return json.loads((folder / META).read_text(encoding="utf-8"))


def write_meta(folder: Path, arrays: dict[str, dict[str, Any]], facts: dict[str, Any]) -> None:
    """Writes `meta.json`, by which `find_damage` and `map_array` know the arrays.

    Args:
        arrays: `dtype` and `shape` of every array by name, and `crc32`, which is read from its file if missing.
        facts: What else is to be known of it.
    """
    for name, stated in arrays.items():
        if "crc32" not in stated:
            stated["crc32"] = _checksum(folder / f"{name}.bin")
    (folder / META).write_text(json.dumps({**facts, "arrays": arrays}), encoding="utf-8")


def find_damage(folder: Path) -> str | None:
    """What is wrong with the files of a cache, or None."""
    try:
        meta = read_meta(folder)
        for name in {path.stem for path in folder.glob("*.bin")} | set(meta["arrays"]):
            stated = meta["arrays"][name]
            size = int(np.prod(stated["shape"])) * np.dtype(stated["dtype"]).itemsize
            path = folder / f"{name}.bin"
            if path.stat().st_size != size:
                return f"{path.name} has {path.stat().st_size:,} bytes, expected {size:,}"
            if _checksum(path) != stated["crc32"]:
                return f"{path.name} is not what was written"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _states(folder: Path) -> list[tuple[int, int]]:
    """Size and time of the last change of every file."""
    status = [path.stat() for path in sorted(folder.glob("*"))]
    return [(each.st_size, each.st_mtime_ns) for each in status]


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:  # not mapped: pages that are only checked would count as this process's memory
        while block := file.read(READ_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum


def map_array(folder: Path, name: str, meta: dict[str, Any]) -> np.ndarray:
    shape, dtype = tuple(meta["arrays"][name]["shape"]), np.dtype(meta["arrays"][name]["dtype"])
    if not np.prod(shape):
        return np.empty(shape, dtype)  # an empty file can't be mapped
    return np.asarray(np.memmap(folder / f"{name}.bin", dtype, mode="r", shape=shape))


# ---- Making

Block = dict[str, np.ndarray]
Job = tuple[datasets.Dataset, list[str], TextEncoder]


def _write(
    folder: Path, dataset: datasets.Dataset, languages: Sequence[str], encoder: TextEncoder, show_progress: bool
) -> None:
    """Fills a folder with the arrays and, at last, `meta.json`. Memory holds a few blocks of rows."""
    rows, columns = len(dataset), len(languages)
    arrays = {name: {"dtype": "int32", "shape": [rows, columns]} for name in ARRAYS}
    arrays["starts"]["dtype"] = "int64"
    arrays["neighbors"] = {"dtype": "bool", "shape": [rows]}
    checksums, size = dict.fromkeys(ARRAYS, 0), 0
    files = {name: (folder / f"{name}.bin").open("wb") for name in ARRAYS}
    try:
        for block in tqdm(
            _blocks((dataset, list(languages), encoder)),
            "Tokenizing",
            -(-rows // BLOCK_ROWS),
            disable=not show_progress,
        ):
            block["starts"][block["starts"] >= 0] += size
            size += len(block["ids"])
            for name, file in files.items():
                content = block[name].astype(arrays[name]["dtype"] if name != "ids" else encoder.dtype).tobytes()
                checksums[name] = zlib.crc32(content, checksums[name])
                file.write(content)
    finally:
        for file in files.values():
            file.close()
    arrays["ids"] = {"dtype": encoder.dtype.name, "shape": [size]}
    for name in ARRAYS:
        arrays[name]["crc32"] = checksums[name]
    write_meta(folder, arrays, {"languages": list(languages)})


def _blocks(job: Job) -> Iterator[Block]:
    """All blocks in order, made by as many processes as there are cores, where they can be forked safely."""
    begins = range(0, len(job[0]), BLOCK_ROWS)
    processes = min(tokenizer_threads(), len(begins))
    if processes < 2 or not sys.platform.startswith("linux"):
        yield from (_tokenize_block(job, begin) for begin in begins)
        return
    context = multiprocessing.get_context("fork")  # the dataset and the tokenizer are there at once, not copied
    with forkable_tokenizers(), ProcessPoolExecutor(processes, context, _begin_worker, (job,)) as pool:
        yield from pool.map(_work, begins)


_job: Job  # of a worker


def _begin_worker(job: Job) -> None:
    """Keeps the job, and ends this process when the one that started it has ended, however it did."""
    global _job
    _job = job

    def watch() -> None:
        wait([multiprocessing.parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work(begin: int) -> Block:
    return _tokenize_block(_job, begin)


def _tokenize_block(job: Job, begin: int) -> Block:
    dataset, languages, encoder = job
    end = min(begin + BLOCK_ROWS, len(dataset))
    # One row more, which may continue the document of the last.
    source = ArrowSource(dataset.select(range(begin, min(end + 1, len(dataset)))), languages)
    shape = (end - begin, len(languages))
    starts, lengths, words = np.full(shape, -1, np.int64), np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    parts, size = [np.empty(0, encoder.dtype)], 0
    for language in range(len(languages)):
        rows = np.flatnonzero(source.available[: end - begin, language])
        texts = source.texts(rows, language) if len(rows) else []
        ids, counts = encoder(texts)
        starts[rows, language] = size + np.cumsum(counts) - counts
        lengths[rows, language], words[rows, language] = counts, count_words(texts)
        parts.append(ids)
        size += len(ids)
    neighbors = source.neighbors[: end - begin]
    return {"ids": np.concatenate(parts), "starts": starts, "lengths": lengths, "words": words, "neighbors": neighbors}
