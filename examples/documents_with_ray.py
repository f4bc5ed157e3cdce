r"""Embed, index or mine documents with Ray Data: on a laptop as it stands, on a cluster as well.

    pip install -c constraints.txt -e ".[ray,search]"
    python examples/documents_with_ray.py embed                          # the built-in sample
    python examples/documents_with_ray.py index --output runs/ray.index
    python examples/documents_with_ray.py mine --output runs/ray_pairs.parquet
    python examples/documents_with_ray.py embed --documents s3://bucket/documents \
        --output s3://bucket/vectors --actors 8 --gpus 1

Each actor loads the model once and embeds batches of documents. `--documents` is a parquet file or
folder with a column `text`, and `id` to index them; `--others` is the other side to mine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq
import ray
import ray.data

from tmde.data.sample import sample_documents
from tmde.documents.ray_embedding import embed_dataset
from tmde.documents.ray_index import index_dataset
from tmde.documents.ray_mining import mine_datasets
from tmde.embedding import DEFAULT_MODEL


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=["embed", "index", "mine"])
    parser.add_argument("--documents", help="parquet with a column text; default: the sample")
    parser.add_argument("--others", help="parquet of the other side, to mine")
    parser.add_argument("--output", help="a folder of parquet files, an index, or a parquet file")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a folder or a Hub id")
    parser.add_argument("--actors", type=int, default=1, help="each holds the model")
    parser.add_argument("--gpus", type=float, default=0, help="per actor; 0.5 shares a GPU")
    arguments = parser.parse_args()

    # On a cluster, `ray job submit` sets RAY_ADDRESS, and this connects to it.
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    documents = read_documents(arguments.documents, "de")
    pool = {"concurrency": arguments.actors, "num_gpus": arguments.gpus or None}
    if arguments.action == "embed":
        output = arguments.output or "runs/ray_vectors"
        embed_dataset(documents, arguments.model, **pool).write_parquet(output)
        rows = ray.data.read_parquet(output)
        print(f"{rows.count()} documents with vectors in {output}")
        print(f"columns: {', '.join(rows.columns())}")
    elif arguments.action == "index":
        output = arguments.output or "runs/ray.index"
        changes = index_dataset(documents, output, arguments.model, **pool)
        print(f"{changes.added} documents added and {changes.updated} updated in {output}")
    else:
        output = arguments.output or "runs/ray_pairs.parquet"
        others = read_documents(arguments.others, "en")
        pairs = mine_datasets(documents, others, arguments.model, **pool)
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pairs, output)
        print(f"{len(pairs)} pairs in {output}")
    ray.shutdown()


def read_documents(path: str | None, sample_language: str) -> ray.data.Dataset:
    """Return the documents of parquet files; those of the sample in one language without any."""
    if path is not None:
        return ray.data.read_parquet(path)
    sample = sample_documents(200, "test").to_pandas()
    documents = sample[sample["language"] == sample_language]
    return ray.data.from_pandas(documents.rename(columns={"doc_id": "id"}))


if __name__ == "__main__":
    main()
