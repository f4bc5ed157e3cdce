r"""Embed documents with Ray Data: on a laptop as it stands, on a cluster with your own files.

    pip install -c constraints.txt -e ".[ray]"
    python examples/embed_with_ray.py                                  # the built-in sample
    python examples/embed_with_ray.py --documents s3://bucket/documents \
        --output s3://bucket/vectors --actors 8 --gpus 1

Each actor loads the model once and embeds batches of documents. The vectors are those of
`DocumentEmbedder.encode`. `--documents` is a parquet file or folder with a column `text`.
"""

from __future__ import annotations

import argparse

import ray
import ray.data

from tmde.data.sample import sample_documents
from tmde.documents.ray_embedding import embed_dataset
from tmde.embedding import DEFAULT_MODEL


def main() -> None:
    """Embed the documents, and write them with their vectors as parquet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", help="parquet with a column text; default: the sample")
    parser.add_argument("--output", default="runs/ray_vectors", help="a folder for parquet files")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a folder or a Hub id")
    parser.add_argument("--actors", type=int, default=1, help="each holds the model")
    parser.add_argument("--gpus", type=float, default=0, help="per actor; 0.5 shares a GPU")
    arguments = parser.parse_args()

    # On a cluster, `ray job submit` sets RAY_ADDRESS, and this connects to it.
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    if arguments.documents:
        documents = ray.data.read_parquet(arguments.documents)
    else:
        documents = ray.data.from_arrow(sample_documents(200, "test").data.table)
    embedded = embed_dataset(
        documents,
        arguments.model,
        column="text",
        concurrency=arguments.actors,
        num_gpus=arguments.gpus or None,
    )
    embedded.write_parquet(arguments.output)

    rows = ray.data.read_parquet(arguments.output)
    print(f"{rows.count()} documents with vectors in {arguments.output}")
    print(f"columns: {', '.join(rows.columns())}")
    ray.shutdown()


if __name__ == "__main__":
    main()
