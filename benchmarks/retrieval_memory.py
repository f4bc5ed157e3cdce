"""Memory and speed of exact retrieval: `target_ranks` beside brute-force search by scikit-learn.

    OMP_NUM_THREADS=1 python benchmarks/retrieval_memory.py

Every measurement has a forked process of its own, in which the vectors are made in memory, in no file: peak memory is
the `ru_maxrss` of that process, vectors and imported libraries included. scikit-learn does the part of the work that
it can: for cosine the nearest candidate of each query; for the ratio margin the nearest neighbours of both sides,
whose means a margin needs, but not the search by margin. Needs Linux or macOS, and at full size some 3 GiB.
"""

import argparse
import multiprocessing
import sys
import time

import numpy as np
from mining_memory import GIB, peak_memory
from sklearn.neighbors import NearestNeighbors

from modeling_tmde.documents.neighbours import target_ranks

MEASUREMENTS = {
    "tmde, cosine": "target_ranks by cosine",
    "scikit-learn, cosine": "nearest candidate of each query",
    "tmde, ratio": "target_ranks by ratio, k = 4",
    "scikit-learn, both sides": "4 nearest of each query and of each candidate",
}


def measure(name: str, queries: int, candidates: int, dimensions: int) -> dict[str, float]:
    """Makes vectors, each query near its candidate, and searches.

    Returns:
        `seconds` of the search, `before` and `peak` in bytes, and `precision` at 1, None where none is computed.
    """
    rng = np.random.default_rng(0)
    pool = rng.standard_normal((candidates, dimensions), dtype=np.float32)
    search = pool[:queries] + 5 * rng.standard_normal((queries, dimensions), dtype=np.float32)
    right = np.arange(queries)
    before = peak_memory()
    start = time.perf_counter()
    hits = None
    if name.startswith("tmde"):
        hits = target_ranks(search, pool, right, name.split()[-1]) == 1
    elif name == "scikit-learn, cosine":
        hits = brute_force(search, pool, 1)[:, 0] == right
    else:
        brute_force(search, pool, 4)
        brute_force(pool, search, 4)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "before": before,
        "peak": peak_memory(),
        "precision": None if hits is None else float(hits.mean()),
    }


def brute_force(queries: np.ndarray, candidates: np.ndarray, k: int) -> np.ndarray:
    """Row numbers (n, k) of the nearest candidates by scikit-learn."""
    search = NearestNeighbors(n_neighbors=k, metric="cosine", algorithm="brute").fit(candidates)
    return search.kneighbors(queries, return_distance=False)


def table(results: dict[str, dict[str, float]]) -> str:
    """Markdown; the speed of each row of tmde is relative to the row of scikit-learn below it."""
    lines = [
        "| search | what | P@1 | seconds | peak GiB | of it vectors and libraries | speed / scikit-learn |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    names = list(results)
    for name, result in results.items():
        precision = "" if result["precision"] is None else f"{result['precision']:.4f}"
        speed = ""
        if name.startswith("tmde"):
            speed = f"{results[names[names.index(name) + 1]]['seconds'] / result['seconds']:.2f}"
        lines.append(
            f"| {name} | {MEASUREMENTS[name]} | {precision} | {result['seconds']:.1f} | {result['peak'] / GIB:.2f} | "
            f"{result['before'] / GIB:.2f} | {speed} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--candidates", type=int, default=200_000)
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--limit", type=float, default=3.0, help="GiB that tmde may take at its peak")
    args = parser.parse_args()
    if not 1 <= args.queries <= args.candidates:
        parser.error(f"--queries: found {args.queries}, expected 1 to {args.candidates}, the number of candidates")
    sizes = (args.queries, args.candidates, args.dimensions)
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        results = {name: pool.apply(measure, (name, *sizes)) for name in MEASUREMENTS}
    print(f"{args.queries} queries, {args.candidates} candidates, {args.dimensions} dimensions, float32\n")
    print(table(results))
    over = [name for name, result in results.items() if name.startswith("tmde") and result["peak"] > args.limit * GIB]
    if over:
        sys.exit(f"More than {args.limit} GiB: {', '.join(over)}")


if __name__ == "__main__":
    main()
