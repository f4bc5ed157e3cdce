"""Latency of one query of `DocumentIndex` among many documents, beside brute force by numpy and scikit-learn.

    python benchmarks/search_latency.py --model path/to/model --json latency.json

The documents have made-up texts of some 1,000 characters and random vectors around random centres, so that near ones
exist. The time of each query is taken after the index is loaded and has answered once: `search` is given a vector
(ten hits with their texts), as are the peers; `text to hits` embeds a query and the sentences of its hits as well, by
the model, in an index of its own dimension. Every number of threads has a process of its own.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import markdown, write_json

WORDS = "the of and house river town light night bread water bridge council vote law open close north long day".split()
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
K = 10


def made_texts(count: int) -> list[str]:
    """Fourteen sentences each, all different."""
    rng = random.Random(0)

    def sentence() -> str:
        return " ".join(rng.choices(WORDS, k=13)).capitalize() + "."

    pool = [sentence() for _ in range(5000)]
    return [f"{' '.join(rng.choices(pool, k=14))} {number}" for number in range(count)]


def made_vectors(count: int, dimension: int):
    """(count, d) float32 of length 1, around 1,000 centres."""
    import numpy as np

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((1000, dimension), dtype=np.float32)
    vectors = centres[rng.integers(1000, size=count)] + rng.standard_normal((count, dimension), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_index(folder: Path, documents: int, dimension: int, approximate_from: int | None) -> None:
    """An index of made-up documents, written in batches as `tmde index` does."""
    from modeling_tmde.documents.index import DocumentIndex

    options = {} if approximate_from is None else {"approximate_from": approximate_from}
    index = DocumentIndex.create(folder, dimension=dimension, **options)
    texts, vectors = made_texts(documents), made_vectors(documents, dimension)
    with index.writing():
        for start in range(0, documents, 8192):
            ids = [str(number) for number in range(start, min(start + 8192, documents))]
            rows = [{"language": "en"}] * len(ids)
            index.add(ids, texts[start : start + 8192], rows, vectors=vectors[start : start + 8192])


def timed(functions: dict[str, Callable[[int], object]], queries: int) -> dict[str, dict[str, float]]:
    """Milliseconds of every function, query by query in turn, after one query that is not measured.

    `cpu ms` is the median of the processor time of all threads, which other programs on the machine change little.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    used: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(-1, queries):
        for name, function in functions.items():
            begin, processor = time.perf_counter(), time.process_time()
            function(number % queries)
            if number >= 0:
                used[name].append(time.process_time() - processor)
                seconds[name].append(time.perf_counter() - begin)
    return {
        name: {
            "median ms": 1000 * statistics.median(values),
            "p95 ms": 1000 * statistics.quantiles(values, n=20, method="inclusive")[-1],
            "cpu ms": 1000 * statistics.median(used[name]),
        }
        for name, values in seconds.items()
    }


def measure_vectors(folder: Path, documents: int, dimension: int, queries: int) -> dict[str, dict[str, float]]:
    """The index of `folder`, and peers that have the vectors in memory and return row numbers only."""
    import faiss  # noqa: F401
    import numpy as np
    from sklearn.neighbors import NearestNeighbors

    from modeling_tmde.documents.index import DocumentIndex

    begin = time.perf_counter()
    index = DocumentIndex.open(folder)
    loaded = time.perf_counter() - begin
    vectors = made_vectors(documents, dimension)
    rng = np.random.default_rng(1)
    asked = vectors[rng.integers(documents, size=queries)]
    asked = asked + 0.5 / np.sqrt(dimension) * rng.standard_normal(asked.shape, dtype=np.float32)
    peer = NearestNeighbors(n_neighbors=K, metric="cosine", algorithm="brute").fit(vectors)

    def by_numpy(number: int):
        scores = vectors @ asked[number]
        best = np.argpartition(-scores, K)[:K]
        return best[np.argsort(-scores[best])]

    def by_index(number: int, **options):
        return index.search(asked[number : number + 1], K, snippet_width=0, **options)[0]

    shared = {
        name: statistics.mean(
            len({int(hit.id) for hit in by_index(number, **options)} & set(by_numpy(number).tolist())) / K
            for number in range(queries)
        )
        for name, options in (("default", {}), ("exact", {"exact": True}))
    }
    functions = {"tmde, default": by_index}
    if not index.exact:
        functions["tmde, exact=True"] = lambda number: by_index(number, exact=True)
    functions["tmde, filter by language"] = lambda number: by_index(number, filter={"language": "en"})
    functions["numpy, matrix product"] = by_numpy
    functions["scikit-learn, brute force"] = lambda number: peer.kneighbors(asked[number : number + 1])
    results = timed(functions, queries)
    for name, result in results.items():
        if name.startswith("tmde"):
            result["opened in ms"] = 1000 * loaded
            result[f"recall@{K}"] = shared["exact" if "exact" in name or index.exact else "default"]
    return results


def measure_texts(folder: Path, model: str, queries: int) -> dict[str, dict[str, float]]:
    """With the model's part: embedding a query of eight words, and the sentences of the hits for their snippets."""
    import numpy as np
    import torch

    from modeling_tmde.documents.index import DocumentIndex
    from modeling_tmde.embedding import DocumentEmbedder

    torch.set_num_threads(int(os.environ[THREADS[0]]))
    embedder = DocumentEmbedder.from_pretrained(model, device="cpu")
    index = DocumentIndex.open(folder, embedder)
    rng = random.Random(1)
    asked = [" ".join(rng.choices(WORDS, k=8)) for _ in range(queries)]
    vectors = np.stack([embedder.encode(text) for text in asked])
    return timed(
        {
            "search by vector": lambda number: index.search(vectors[number : number + 1], K, snippet_width=0),
            "text to hits": lambda number: index.search(asked[number], K, snippet_width=0),
            "text to hits with snippets": lambda number: index.search(asked[number], K),
        },
        queries,
    )


def in_process(arguments: list[str], threads: int) -> dict[str, dict[str, float]]:
    """The results of this script with these arguments, in a process with so many threads."""
    command = [sys.executable, __file__, *arguments]
    environment = os.environ | {name: str(threads) for name in THREADS}
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--approximate-from", type=int, help="of the index; default: its own")
    parser.add_argument("--model", help="measure `text to hits` with this one too")
    parser.add_argument("--folder", type=Path, help="where indexes are made; default: a temporary folder")
    parser.add_argument("--limit", type=float, default=50.0, help="ms that the median of tmde, default may take")
    parser.add_argument("--json", type=Path, help="write machine, settings and results here")
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "DIMENSION"), help="one index, in this process")
    args = parser.parse_args()
    if args.measure and args.model:
        print(json.dumps(measure_texts(Path(args.measure[0]), args.model, args.queries)))
        return
    if args.measure:
        folder, dimension = args.measure
        print(json.dumps(measure_vectors(Path(folder), args.documents, int(dimension), args.queries)))
        return
    rows = []
    with tempfile.TemporaryDirectory(dir=args.folder) as temporary:
        sizes = [f"--documents={args.documents}", f"--queries={args.queries}"]
        jobs = [(dimension, []) for dimension in args.dimensions]
        if args.model:
            from modeling_tmde.embedding import DocumentEmbedder

            jobs.append(
                (DocumentEmbedder.from_pretrained(args.model, device="cpu").dimension, ["--model", args.model])
            )
        for dimension, model in jobs:
            folder = Path(temporary) / str(dimension)
            if not folder.exists():
                make_index(folder, args.documents, dimension, args.approximate_from)
            for threads in args.threads:
                found = in_process([*sizes, *model, "--measure", str(folder), str(dimension)], threads)
                rows += [{"d": dimension, "threads": threads, "search": name} | found[name] for name in found]
    columns = ("d", "threads", "search", "median ms", "p95 ms", "cpu ms", f"recall@{K}", "opened in ms")
    print(f"{args.documents:,} documents, {args.queries} queries one by one, k = {K}\n")
    print(markdown([{name: row.get(name, "") for name in columns} for row in rows]))
    write_json(args.json, "search_latency", vars(args), rows)
    slow = [row for row in rows if row["search"] == "tmde, default" and row["median ms"] > args.limit]
    if slow:
        sys.exit(f"More than {args.limit} ms: {slow}")


if __name__ == "__main__":
    main()
