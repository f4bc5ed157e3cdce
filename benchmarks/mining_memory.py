"""Memory and speed of bitext mining: `mine_bitext` of two large sides, and what exact search of them would take.

    OMP_NUM_THREADS=1 python benchmarks/mining_memory.py

Both measurements have a process of their own, in which the vectors are made in memory, in no file: peak memory is the
`ru_maxrss` of that process, vectors and imported libraries included. The vectors lie near a subspace of 64 dimensions,
as those of real text do, around 500 topics; every row of one side has its translation on the other. Exact search is
measured on a slice of the queries: seconds of the whole are an estimate, in proportion. CPU seconds are those of all
threads, which other processes of the machine change little. Needs Linux or macOS.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

GIB = 2**30
LATENT, TOPICS, NOISE, SPREAD = 64, 500, 0.5, 0.1
BLOCK = 8192


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def planted_sides(rows: int, dimensions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two sides (rows, dimensions) float32, and for each row of the first that of its translation."""
    import numpy as np

    rng = np.random.default_rng(0)
    topics = rng.standard_normal((TOPICS, LATENT), dtype=np.float32)
    axes = rng.standard_normal((LATENT, dimensions), dtype=np.float32) / LATENT**0.5
    right = rng.permutation(rows)
    sides = [np.empty((rows, dimensions), np.float32) for _ in range(2)]
    for start in range(0, rows, BLOCK):
        chosen = slice(start, min(start + BLOCK, rows))
        size = chosen.stop - start
        content = topics[rng.integers(0, TOPICS, size)] + rng.standard_normal((size, LATENT), dtype=np.float32)
        for side, place in zip(sides, (chosen, right[chosen]), strict=True):
            noisy = content + NOISE * rng.standard_normal(content.shape, dtype=np.float32)
            side[place] = noisy @ axes + SPREAD * rng.standard_normal((size, dimensions), dtype=np.float32)
    return *sides, right


def measure(what: str, args: argparse.Namespace) -> dict:
    """`seconds` and `cpu` seconds, `before` and `peak` bytes; of the whole, also what share was `found`."""
    import faiss
    import numpy as np

    from modeling_tmde.documents.mining import mine_bitext
    from modeling_tmde.documents.neighbours import find_neighbours

    first, second, right = planted_sides(args.rows, args.dimensions)
    result: dict = {"before": peak_memory(), "threads": faiss.omp_get_max_threads()}
    start, cpu = time.perf_counter(), time.process_time()
    if what == "exact":
        find_neighbours(first[: args.slice], second, 4)
    else:
        mined = mine_bitext(first, second, search=args.search)
        result |= {"found": float(np.sum(right[mined.first] == mined.second) / args.rows)}
    result |= {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    return result | {"peak": peak_memory()}


def in_fresh_process(what: str, args: argparse.Namespace) -> dict:
    options = [f"--{name}={getattr(args, name)}" for name in ("rows", "dimensions", "slice", "search")]
    command = [sys.executable, __file__, "--measure", what, *options]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=args.timeout).stdout
    return json.loads(output)


def line(name: str, found: str, result: dict) -> str:
    return (
        f"| {name} | {found} | {result['seconds']:.0f} | {result['cpu']:.0f} | {result['peak'] / GIB:.2f} | "
        f"{result['before'] / GIB:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="of each side")
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--slice", type=int, default=8192, help="queries of the exact search")
    parser.add_argument("--search", default="auto", help="of the whole: auto, exact, hnsw")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds of one measurement")
    parser.add_argument("--limit", type=float, default=8.0, help="GiB that mining may take at its peak")
    parser.add_argument("--measure", choices=["exact", "whole"], help="one measurement, in this process, as JSON")
    args = parser.parse_args()
    args.slice = min(args.slice, args.rows)
    if args.measure:
        print(json.dumps(measure(args.measure, args)))
        return
    exact, whole = (in_fresh_process(what, args) for what in ("exact", "whole"))
    times = 2 * args.rows / args.slice
    print(f"{args.rows:,} x {args.rows:,}, {args.dimensions} dimensions, float32, {whole['threads']} thread(s)\n")
    print("| mining | translations found | seconds | CPU seconds | peak GiB | of it vectors and libraries |")
    print("|---|--:|--:|--:|--:|--:|")
    print(line(f"exact, {args.slice:,} rows one way", "", exact))
    print(f"| exact, all both ways (estimate) | | {times * exact['seconds']:.0f} | {times * exact['cpu']:.0f} | | |")
    print(line(args.search, f"{whole['found']:.2%}", whole))
    if whole["peak"] > args.limit * GIB:
        sys.exit(f"More than {args.limit} GiB")


if __name__ == "__main__":
    main()
