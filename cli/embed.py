"""`tmde embed`: a file or a pipe of documents in, a `.npy` or `.parquet` file of vectors out.

Shard i holds the result of the i-th `--shard-size` documents. With --resume, or in one of several processes of
`torchrun` or `accelerate launch`, shards are kept in `OUT.shards` until OUT is complete. Each process reads the whole
input and embeds every n-th shard; the first process joins them.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer
from typer import Argument, Option

from modeling_tmde import TmdeError
from tmde import __version__
from tmde.cli import options as common
from tmde.data.documents import VECTOR_COLUMN, Documents
from tmde.data.io import locked, replacing, write_atomically
from tmde.embedding.document_embedder import EncodeReport
from tmde.embedding.loading import DEFAULT_MODEL


@common.with_options(**common.MODEL_OPTIONS, **common.LONG_OPTIONS)
def embed(
    source: Annotated[str, Argument(metavar="INPUT", help="File of documents, or - for stdin.")],
    out: Annotated[
        Path, Option("--output", "-o", metavar="OUT", help="File to write: .npy or .parquet.")
    ],
    model: common.ModelOption = DEFAULT_MODEL,
    format: common.FormatOption = None,
    field: common.FieldOption = None,
    language: common.LanguageOption = None,
    language_field: common.LanguageFieldOption = None,
    batch_tokens: Annotated[
        int | None, Option(min=1, help="Of a batch; 4,096 on a CPU, else 16,384.")
    ] = None,
    compile: Annotated[
        bool, Option("--compile", help="Use torch.compile; takes a minute at first.")
    ] = False,
    normalize: Annotated[bool, Option("--normalize", help="Scale vectors to length 1.")] = False,
    resume: Annotated[
        bool, Option("--resume", help="Keep finished shards in OUT.shards; continue there.")
    ] = False,
    shard_size: Annotated[
        int, Option(min=1, help="Documents in memory at once, and in a shard.")
    ] = 8192,
    overwrite: common.OverwriteOption = False,
    loading: dict[str, Any] = ...,
) -> None:
    """Embed documents: one vector a document, in the order of the input.

    Text input holds one document a line; an empty line is an empty document, so that row i is line i.
    Parquet output keeps the columns of the input and adds "embedding".

        tmde embed news.txt -o news.npy

        zcat news.txt.gz | tmde embed - -o news.npy -m path/to/model

    Documents longer than the model takes, sentence by sentence; the mean of a document's sentences is its vector:

        tmde embed books.jsonl -o books.npy -m path/to/model --long-documents sentences

    Several processes share the shards of a file (one on each accelerator; on a CPU, set OMP_NUM_THREADS):

        torchrun --nproc-per-node 4 -m tmde embed news.txt -o news.npy -m path/to/model

    After an interruption the same command continues at the first missing shard (of one process: with --resume).
    """
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    keep = resume or processes > 1
    if keep and (source == "-" or Path(source).is_fifo()):
        raise TmdeError(
            f"{source} can be read once, by one process and without --resume; write it to a file"
        )
    if language is not None and language_field is not None:
        raise TmdeError("--language and --language-field exclude each other; give one of them")
    folder = Path(f"{out.resolve()}.shards")  # may outlive a kill beside the finished file
    target = common.check_output(out, overwrite or (keep and folder.exists()), (".npy", ".parquet"))
    if not keep and folder.exists():
        raise TmdeError(
            f"{folder} holds shards of an unfinished run; give --resume to continue, or delete it"
        )
    if processes > 1 and loading.get("device") in (None, "cuda") and torch.cuda.is_available():
        loading["device"] = f"cuda:{os.environ['LOCAL_RANK']}"
    with ExitStack() as stack:
        if not keep:
            folder = Path(
                stack.enter_context(
                    TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.")
                )
            )
        elif rank == 0:
            stack.enter_context(locked(folder))
        to_parquet = target.suffix == ".parquet"
        documents = Documents(stack, source, format, field, to_parquet, shard_size, language_field)
        if to_parquet and VECTOR_COLUMN in documents.schema.names:
            raise TmdeError(
                f"{documents.name} has a column {VECTOR_COLUMN!r} already; write to .npy, or rename it"
            )
        embedder = common.load_embedder(model, compile=compile, **loading)
        encoding = {"chunk_size": shard_size, "batch_tokens": batch_tokens, "normalize": normalize}
        if keep:
            run = (
                loading
                | embedder.long_document_settings
                | encoding
                | {"compile": compile, "tmde": __version__}
            )
            run |= {
                "field": field,
                "language": language,
                "language_field": language_field,
                "output": target.suffix,
            }
            commit = getattr(embedder.model.config, "_commit_hash", None)
            run |= {"input": _version_of(source), "model": _version_of(model), "commit": commit}
            _start(
                folder,
                {name: str(value) for name, value in run.items() if name != "device"},
                rank,
                overwrite,
            )

        def shard(number: int) -> Path:
            return folder / f"{number:08d}{target.suffix}"

        def texts() -> Iterator[str]:  # of the missing shards; `sizes` gets the rows of all
            nonlocal number, chunk
            for each, found in enumerate(documents.chunks):
                sizes.append(len(found.texts))
                if each % processes == rank and not shard(each).exists():
                    number, chunk = each, found
                    yield from found.texts

        def codes() -> Iterator[str]:
            while True:
                for row, code in zip(chunk.numbers, chunk.languages, strict=True):
                    if embedder.needs_language and code not in (
                        known := embedder.model.config.languages
                    ):
                        place = documents.place(row, language_field)
                        raise TmdeError(
                            f"{place}: found {code!r}, expected one of the model's languages {known}"
                        )
                    yield code

        start, sizes, number, chunk = time.perf_counter(), [], 0, None
        encoding |= {
            "total": documents.rows,
            "language": language if language_field is None else codes(),
        }
        # All chunks but the last have `shard_size` rows, so that vectors come chunk by chunk.
        report = EncodeReport()
        outputs = embedder.encode_iter_with_reports(texts(), show_progress_bar=True, **encoding)
        for vectors, chunk_report in outputs:
            report += chunk_report
            with replacing(shard(number)) as path:
                if to_parquet:
                    column = pa.FixedSizeListArray.from_arrays(
                        pa.array(vectors.reshape(-1)), vectors.shape[1]
                    )
                    pq.write_table(chunk.columns.append_column(VECTOR_COLUMN, column), path)
                else:
                    np.save(path, vectors)
        seconds = time.perf_counter() - start
        process = f"process {rank} of {processes}: " if processes > 1 else ""
        split = f", {report.split:,} split, {report.pieces:,} pieces in all" if report.split else ""
        typer.echo(
            f"{process}{report.texts:,} texts ({report.tokens:,} tokens, {report.truncated:,} truncated{split}) in "
            f"{seconds:.1f} s, {report.texts / seconds:,.0f} texts/s",
            err=True,
        )
        if rank:
            return
        shards = [shard(number) for number in range(len(sizes))]
        while not all(path.exists() for path in shards):
            time.sleep(
                0.2
            )  # for the other processes; the launcher ends this one if one of them fails
        with replacing(folder / f"whole{target.suffix}") as path:
            if to_parquet:
                vectors = pa.field(VECTOR_COLUMN, pa.list_(pa.float32(), embedder.dimension))
                with pq.ParquetWriter(path, documents.schema.append(vectors)) as writer:
                    for each in shards:
                        writer.write_table(pq.read_table(each).cast(writer.schema))
            else:
                header = {
                    "descr": "<f4",
                    "fortran_order": False,
                    "shape": (sum(sizes), embedder.dimension),
                }
                with open(path, "wb") as file:
                    np.lib.format.write_array_header_1_0(file, header)
                    for each in shards:
                        file.write(np.load(each).data)
        os.replace(folder / f"whole{target.suffix}", target)
        if keep:
            shutil.rmtree(folder)
    typer.echo(f"{out}: {sum(sizes):,} x {embedder.dimension} float32", err=True)


def _start(folder: Path, run: dict[str, str], rank: int, overwrite: bool) -> None:
    """Makes the folder of shards, or continues with it if it is of the same run; other processes wait for the first.

    Raises:
        ValueError: The folder holds shards of another run.
    """
    manifest = folder / "manifest.json"

    def found() -> dict[str, str]:
        return json.loads(manifest.read_text(encoding="utf-8")) if manifest.exists() else {}

    while rank and found() != run:
        time.sleep(0.1)
    other = found()
    if other == run:
        return
    if folder.exists() and any(folder.iterdir()):
        if not overwrite:
            name = next((name for name in run if other.get(name) != run[name]), "run")
            raise TmdeError(
                f"{folder} holds shards of another run: its {name} is {other.get(name)!r}, now {run.get(name)!r}; "
                "give --overwrite to delete them, or another --output"
            )
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    write_atomically(manifest, json.dumps(run, indent=2))


def _version_of(path: str) -> str:
    """A file or folder and its last change, or the id of a Hub model."""
    found = Path(path).expanduser().resolve()
    files = [each for each in found.iterdir() if each.is_file()] if found.is_dir() else [found]
    return (
        f"{found}, changed {max(each.stat().st_mtime_ns for each in files)}"
        if found.exists()
        else path
    )
