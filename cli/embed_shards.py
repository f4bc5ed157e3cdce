"""`tmde embed` in shards: several processes share the work, and what was done before an interruption is not lost.

Shard i holds the vectors of the i-th `--shard-size` documents, in `OUT.shards/`. Every process reads the whole input;
they embed the missing shards in turn. The first process then joins all in order into OUT and removes the folder.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from modeling_tmde._version import __version__
from modeling_tmde.cli.embedding_job import EmbeddingJob, embed_chunks, load_embedder, stderr_is_terminal
from modeling_tmde.cli.processes import Processes
from modeling_tmde.cli.vector_files import check_output, replacing, vector_writer
from modeling_tmde.data.documents import Documents, EmbedError

if TYPE_CHECKING:
    import numpy as np

    from modeling_tmde.embedding import DocumentEmbedder, EncodeReport

_MANIFEST = "manifest.json"
_MODEL_FILES = {".safetensors", ".bin", ".json", ".model", ".txt"}


@dataclass(frozen=True)
class Outcome:
    """report: of the documents embedded now; rows: of OUT; dimension: of a vector; seconds: without loading."""

    report: EncodeReport
    rows: int
    dimension: int
    seconds: float


class ShardFolder:
    """`OUT.shards`: a manifest that says what the shards are of, and the shards."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.shards")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other runs out, which would remove the folder under this one.

        Raises:
            EmbedError: Another run is in it, or the lock cannot be written.
        """
        from filelock import FileLock, Timeout

        file = self.path.with_name(f".{self.path.name}.lock")
        with ExitStack() as stack:
            try:
                stack.enter_context(FileLock(file, timeout=0))
            except Timeout:
                raise EmbedError(
                    f"another run is writing shards into {self.path}; wait until it ends, or give another --output"
                ) from None
            except OSError as error:
                raise EmbedError(f"{self.path} cannot be locked: {error}") from None
            yield
            with suppress(OSError):  # Windows removes no open file
                file.unlink()

    def start(self, manifest: dict[str, Any], overwrite: bool) -> frozenset[int]:
        """Makes the folder, or goes on with the one that is there, and returns the numbers of its shards.

        Args:
            manifest: Of the input, the model and all settings that the vectors depend on.
            overwrite: Delete the shards of another run.

        Raises:
            EmbedError: The folder holds shards of another run, or something else.
        """
        found = self._manifest()
        if found is not None and found != manifest:
            keys = [key for key in {**manifest, **found} if manifest.get(key) != found.get(key)]
            if not overwrite:
                raise EmbedError(
                    f"{self.path} holds shards of another run: its {keys[0]} is {found.get(keys[0])!r}, "
                    f"now it is {manifest.get(keys[0])!r}; give --overwrite to delete them, or another --output"
                )
            shutil.rmtree(self.path)
        if found != manifest:
            self.path.mkdir(exist_ok=True)
            with replacing(self.path / _MANIFEST) as file:
                file.write(json.dumps(manifest, indent=2).encode())
        return frozenset(int(path.stem) for path in self.path.glob("*.npy") if path.stem.isdecimal())

    def _manifest(self) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        try:
            return json.loads((self.path / _MANIFEST).read_bytes())
        except (OSError, ValueError) as error:
            if self.path.is_dir() and not any(self.path.iterdir()):  # ended before it was written
                return None
            raise EmbedError(f"{self.path} is no folder of shards ({error}); move it away, or delete it") from None

    def file(self, number: int) -> Path:
        """Of shard `number`."""
        return self.path / f"{number:08d}.npy"

    def write(self, number: int, vectors: np.ndarray) -> None:
        """Vectors (n, d) of one shard: complete, or not there."""
        import numpy as np

        with replacing(self.file(number)) as file:
            np.save(file, vectors)

    def read(self, number: int, rows: int, dimension: int) -> np.ndarray:
        """Vectors (rows, dimension) of one shard.

        Raises:
            EmbedError: The file is damaged, or of another shape.
        """
        import numpy as np

        try:
            vectors = np.load(self.file(number))
        except (OSError, ValueError, EOFError) as error:
            raise EmbedError(f"{self.file(number)} is damaged ({error}); delete it and run again") from None
        if vectors.shape != (rows, dimension):
            found = f"found {vectors.shape}, expected {(rows, dimension)}"
            raise EmbedError(f"{self.file(number)}: {found}; delete it and run again")
        return vectors


def embed_in_shards(job: EmbeddingJob, processes: Processes) -> Outcome | None:
    """Does the share of this process, and what is left to do once: the outcome is None on all processes but the first.

    Raises:
        EmbedError, KeyboardInterrupt: With the shards kept.
        OtherProcessFailed: Told by another process.
    """
    with ExitStack() as stack:
        target, documents = None, None
        first = processes.rank == 0

        def prepare() -> None:
            nonlocal target, documents
            if job.source == "-" or Path(job.source).is_fifo():
                name = "stdin" if job.source == "-" else f"the pipe {job.source}"
                raise EmbedError(f"{name} can be read once, by one process and without --resume; write it to a file")
            if first:
                target = check_output(job.out, job.overwrite)
                stack.enter_context(ShardFolder(target).locked())
                documents = job.open(stack, keep_columns=job.out.suffix == ".parquet")

        processes.together(prepare)
        bar = first and stderr_is_terminal()
        embedder = _load(job, processes, bar)
        folder = ShardFolder(job.out.resolve())
        manifest = processes.on_first(lambda: _fingerprint(job, embedder))
        done = processes.on_first(lambda: folder.start(manifest, job.overwrite))
        if first:
            kept = f"; {len(done)} of them are there already" if done else ""
            typer.echo(
                f"Shards go into {folder.path}{kept}. If this ends early, run the same command again.", err=True
            )
        start = time.perf_counter()
        try:
            sizes = _embed_share(job, embedder, folder, done, processes, bar)
        except EmbedError as error:
            where = f" (process {processes.rank} of {processes.count})" if processes.count > 1 else ""
            raise EmbedError(f"{error}{where}. Finished shards are kept: run the same command again") from None
        reports = processes.gather(embedder.last_report)
        if not first:
            return None
        _join(folder, target, documents, sizes, embedder.dimension, lambda: _fingerprint(job, embedder) == manifest)
        seconds = time.perf_counter() - start
        return Outcome(sum(reports[1:], reports[0]), sum(sizes), embedder.dimension, seconds)


def _load(job: EmbeddingJob, processes: Processes, bar: bool) -> DocumentEmbedder:
    def load() -> DocumentEmbedder:
        return load_embedder(job, _device(job, processes), bar)

    if job.loading["backend"] != "onnx":
        return processes.together(load)
    # The first one writes the graph, which all others then find.
    embedder = processes.together(lambda: load() if processes.rank == 0 else None)
    return processes.together(lambda: load() if embedder is None else embedder)


def _device(job: EmbeddingJob, processes: Processes) -> str | None:
    """Of a machine with several accelerators, each process takes its own."""
    import torch

    device = job.device
    if processes.count > 1 and (device == "cuda" or (device is None and torch.cuda.is_available())):
        return f"cuda:{processes.local_rank}"
    return device


def share_of(done: Set[int], processes: Processes) -> Callable[[int], bool]:
    """Whether a shard is this process's to do: the missing ones go round. Ask once for every shard, in order."""
    missing = itertools.count()
    return lambda number: number not in done and next(missing) % processes.count == processes.rank


def _embed_share(
    job: EmbeddingJob,
    embedder: DocumentEmbedder,
    folder: ShardFolder,
    done: Set[int],
    processes: Processes,
    bar: bool,
) -> list[int]:
    """Writes the missing shards of this process; returns the rows of all shards."""
    with ExitStack() as stack:
        documents = job.open(stack, keep_columns=False, wanted=share_of(done, processes))
        total = None
        if documents.rows is not None:
            mine = share_of(done, processes)
            starts = enumerate(range(0, documents.rows, job.shard_size))
            total = sum(min(job.shard_size, documents.rows - start) for number, start in starts if mine(number))
        return embed_chunks(
            job, embedder, documents, lambda number, vectors, _: folder.write(number, vectors), bar, total
        )


def _join(
    folder: ShardFolder,
    target: Path,
    documents: Documents,
    sizes: list[int],
    dimension: int,
    unchanged: Callable[[], bool],
) -> None:
    """All shards, in order, into one file; then the folder is removed."""
    if not unchanged():
        raise EmbedError(f"{documents.name} or the model has changed since the start; --overwrite starts again")
    try:
        with replacing(target) as file, vector_writer(target, file, dimension, documents.schema) as writer:
            for number, rows in enumerate(sizes):
                columns = next(documents.chunks).columns if target.suffix == ".parquet" else None
                writer.write(folder.read(number, rows, dimension), columns)
    except OSError as error:
        raise EmbedError(f"--output {target}: {error.strerror or error}. The shards are kept: run again") from None
    shutil.rmtree(folder.path)


def _fingerprint(job: EmbeddingJob, embedder: DocumentEmbedder) -> dict[str, Any]:
    """What the vectors depend on: the input, the model, the settings. The device is not among them."""
    source = Path(job.source).resolve()
    status = source.stat()
    model = Path(job.model).expanduser()
    languages = {"language": job.language, "language field": job.language_field}
    return (
        job.loading
        | job.encoding
        | {name: value for name, value in languages.items() if value is not None}
        | {
            "input": str(source),
            "input size": status.st_size,
            "input's last change": status.st_mtime_ns,
            "format": job.format and job.format.value,
            "field": job.field,
            "model": str(model.resolve()) if model.is_dir() else job.model,
            "model version": _folder_version(model) if model.is_dir() else _commit(job, embedder),
            "pooling": embedder.pooling,
            "max_length": embedder.max_length,
            **embedder.long_document_settings,
            "shard_size": job.shard_size,
            "tmde": __version__,
        }
    )


def _folder_version(folder: Path) -> str:
    """Changes when a file of the model does."""
    files = sorted(path for path in folder.iterdir() if path.suffix in _MODEL_FILES)
    status = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(status).encode()).hexdigest()[:16]


def _commit(job: EmbeddingJob, embedder: DocumentEmbedder) -> str | None:
    from modeling_tmde.onnx_files import commit_of

    return commit_of(job.model, embedder.model.config, {"revision": job.loading.get("revision")})
