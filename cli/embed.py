"""`tmde embed`: a file or a pipe of documents in, a `.npy` or `.parquet` file of vectors out."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords
from tmde.embedding.packaged_models import DEFAULT_MODEL


@dataclass(kw_only=True)
class EmbedOptions(common.LongOptions, common.ModelOptions, common.InputOptions):
    """The options of `tmde embed`."""

    source: Annotated[str, Argument(metavar="INPUT", help=common.DOCUMENTS_HELP)]
    output: Annotated[
        Path, Option("--output", "-o", metavar="OUT", help="File to write: .npy or .parquet.")
    ]
    model: common.ModelOption = DEFAULT_MODEL
    batch_tokens: Annotated[
        int | None,
        Option(
            min=1, help="Batch size in tokens. Default: a size that suits the model and device."
        ),
    ] = None
    compile: Annotated[
        bool, Option("--compile", help="Use torch.compile, which adds a minute at the start.")
    ] = False
    normalize: Annotated[bool, Option("--normalize", help="Scale vectors to length 1.")] = False
    truncate_dim: Annotated[
        int | None,
        Option(
            min=1,
            help="Keep only the first N dimensions (Matryoshka embeddings). Default: all.",
        ),
    ] = None
    precision: Annotated[
        common.Precision,
        Option(help="Quantize vectors to 8 bits (int8, uint8) or 1 bit (binary, ubinary)."),
    ] = "float32"
    resume: Annotated[
        bool, Option("--resume", help="Keep finished shards in OUT.shards, and continue from them.")
    ] = False
    shard_size: Annotated[
        int, Option(min=1, help="Number of documents per shard, and in memory at once.")
    ] = 8192
    bad_rows: Annotated[
        common.BadRows | None,
        Option(
            help="Whether to report and skip unreadable rows, or raise an error at the first one. "
            "Default: raise for .npy, report for .parquet."
        ),
    ] = None
    overwrite: common.OverwriteOption = False


@command(EmbedOptions)
def embed(options: EmbedOptions) -> None:
    """Embed documents: one vector per document, in input order.

    INPUT is text (one document per line; empty lines count), or CSV, TSV, JSONL or parquet with a
    "text" column; all except parquet may be gzipped. It may also be a folder of such tables, or of
    .txt, .md and .html files (one document each, without markup). Parquet output contains the
    input's columns and "embedding".

        tmde embed news.txt -o news.npy

        tmde embed articles.csv.gz -o articles.npy --field title --field body

        tmde embed notes/ -o notes.parquet -m path/to/model

    Embed documents longer than the model's limit sentence by sentence, and average the vectors:

        tmde embed books.jsonl -o books.npy -m path/to/model --long-documents sentences

    Store smaller vectors, here the first 128 dimensions in 8 bits each:

        tmde embed news.txt -o news.npy --truncate-dim 128 --precision int8

    Distribute the work over several processes, one per accelerator (on a CPU, use `torchrun` and
    set OMP_NUM_THREADS):

        accelerate launch --num_processes 4 -m tmde embed news.txt -o news.npy -m path/to/model

    After an interruption, the same command continues with the first missing shard (a single process
    requires --resume).
    """
    common.check_languages_exclude(options.language, options.language_field)
    common.check_sources(options.source)
    # A file that exists may be complete, if the run is resumed or another process takes part.
    may_exist = options.overwrite or options.resume or "WORLD_SIZE" in os.environ
    common.check_output(options.output, may_exist, [".npy", ".parquet"])
    from tmde.data.file_embedding import embed_file

    loading = keywords(options, common.ModelOptions) | keywords(options, common.LongOptions)
    loading["compile"] = options.compile
    report = embed_file(
        loading=loading,
        **keywords(options, common.InputOptions),
        **keywords(options, EmbedOptions, without=("compile",)),
    )
    for sentence in report.sentences():
        typer.echo(sentence, err=True)
