"""Latency and recall of one query of `DocumentIndex`, beside exact scans by numpy and scikit-learn in the same run.

    python benchmarks/search_latency.py --documents 100000 --dimension 512 --json latency.json

Vectors have a power-law spectrum and lie around 2,000 topics, as those of documents do; or they are those of a file
(`--vectors FILE.npy`). The last 200 are the queries. Every query goes to each system in turn, so that other work on
the machine slows them down alike; times are medians after one query that is not measured. `DocumentIndex` returns ten
hits with their texts, the peers row numbers.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from common import markdown, write_json
from sklearn.neighbors import NearestNeighbors

from modeling_tmde.documents import DocumentIndex

K = 10
BATCH = 10_000  # documents of a write


def made_vectors(count: int, dimension: int) -> np.ndarray:
    """(count, d) float32 around 2,000 topics."""
    rng = np.random.default_rng(0)
    scale = (np.arange(1, dimension + 1) ** -0.6).astype(np.float32)
    topics = rng.standard_normal((2000, dimension), dtype=np.float32) * scale
    return topics[rng.integers(2000, size=count)] + 0.7 * scale * rng.standard_normal((count, dimension), np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    vectors = np.load(args.vectors) if args.vectors else made_vectors(args.documents + args.queries, args.dimension)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries, vectors = vectors[-args.queries :], np.ascontiguousarray(vectors[: -args.queries][: args.documents])
    peer = NearestNeighbors(n_neighbors=K, metric="cosine", algorithm="brute").fit(vectors)

    def by_numpy(query: np.ndarray) -> set[int]:
        return set(np.argpartition(-(vectors @ query), K)[:K].tolist())

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        index = DocumentIndex.create(Path(folder) / "index", dimension=vectors.shape[1])
        with index.writing():
            for first in range(0, len(vectors), BATCH):
                ids = [str(row) for row in range(first, min(first + BATCH, len(vectors)))]
                texts = [f"{id} " + "text of a document " * 50 for id in ids]
                index.upsert(ids, texts, [{"language": "de"}] * len(ids), vectors[first : first + BATCH])
        seconds = time.perf_counter() - start

        def by_index(query: np.ndarray, **options) -> set[int]:
            return {int(hit.id) for hit in index.search(query[None], K, snippet_width=0, **options)[0]}

        systems = {
            "tmde": by_index,
            "tmde, exact=True": lambda query: by_index(query, exact=True),
            "tmde, filter": lambda query: by_index(query, filter={"language": "de"}),
            "numpy, matrix product": by_numpy,
            "scikit-learn, brute force": lambda query: set(peer.kneighbors(query[None])[1][0].tolist()),
        }
        times: dict[str, list[float]] = {name: [] for name in systems}
        found: dict[str, int] = dict.fromkeys(systems, 0)
        for query in queries:
            right = by_numpy(query)
            for name, system in systems.items():
                start = time.perf_counter()
                hits = system(query)
                times[name].append(time.perf_counter() - start)
                found[name] += len(hits & right)
        rows = [
            {"system": name, "median ms": round(1000 * statistics.median(each[1:]), 1),
             f"recall@{K}": round(found[name] / K / len(queries), 4)}
            for name, each in times.items()
        ]  # fmt: skip
        stated = {"documents": len(vectors), "dimension": vectors.shape[1], "indexing s": round(seconds, 1)}
        stated |= {"stated recall": index.recall}
    print(stated)
    print(markdown(rows))
    if args.json:
        write_json(args.json, {"index": stated, "systems": rows})


if __name__ == "__main__":
    main()
