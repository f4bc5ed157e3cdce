"""Memory and speed of LAWDR on many sentences: `Lawdr` beside the same steps by scikit-learn, all in memory.

    OMP_NUM_THREADS=1 python benchmarks/lawdr_memory.py

Vectors are sums of rows of two random tables, chosen by a hash of the sentence, so that embedding costs next to
nothing; documents of 20 sentences in two languages are made as they are read, and one sentence in ten is one of 50
menu entries. Every measurement has a process of its own: peak memory is the `ru_maxrss` of that process, vectors and
imported libraries included. scikit-learn gets fewer sentences, and `Lawdr` the same in a second measurement: it holds
all vectors, and its tree search of the density takes long. Needs Linux or macOS.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator

import numpy as np

GIB = 2**30
SENTENCES_OF_DOCUMENT = 20
LANGUAGES = ("de", "en")
RANK = 8


class HashEmbedder:
    """A stand-in: vectors (n, dimension) float32 that depend on the sentence and, by an offset, on its language."""

    def __init__(self, dimension: int) -> None:
        rng = np.random.default_rng(0)
        self.tables = rng.standard_normal((2, 4096, dimension), dtype=np.float32)
        self.offsets = 3 * rng.standard_normal((len(LANGUAGES), dimension), dtype=np.float32)

    def encode(self, sentences: list[str]) -> np.ndarray:
        hashes = np.array([zlib.crc32(sentence.encode()) for sentence in sentences])
        vectors = self.tables[0, hashes & 4095] + self.tables[1, hashes >> 20]
        return vectors + self.offsets[[LANGUAGES.index(sentence[:2]) for sentence in sentences]]


def documents(sentences: int) -> Iterator[list[str]]:
    """Lists of sentences that begin with their language; consecutive documents take turns in language."""
    for number in range(sentences // SENTENCES_OF_DOCUMENT):
        language = LANGUAGES[number % len(LANGUAGES)]
        own = [f"{language} sentence {row} of {number}" for row in range(SENTENCES_OF_DOCUMENT - 2)]
        yield own + [f"{language} menu {(7 * number + row) % 50}" for row in range(2)]


def languages(sentences: int) -> Iterator[str]:
    return (LANGUAGES[number % len(LANGUAGES)] for number in range(sentences // SENTENCES_OF_DOCUMENT))


def by_tmde(sentences: int, dimension: int) -> np.ndarray:
    from modeling_tmde.documents import Lawdr

    lawdr = Lawdr(HashEmbedder(dimension), rank=RANK)
    start = time.perf_counter()
    lawdr.fit(documents(sentences), languages(sentences))
    print(f"fit: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return lawdr.transform(documents(sentences), languages(sentences))


def by_scikit_learn(sentences: int, dimension: int) -> np.ndarray:
    """The same steps, with the bandwidth that `SentenceDensity` chooses."""
    from sklearn.decomposition import PCA, TruncatedSVD
    from sklearn.neighbors import KernelDensity

    from modeling_tmde.long_documents import SentenceDensity

    flat = [sentence for document in documents(sentences) for sentence in document]
    vectors = HashEmbedder(dimension).encode(flat)
    codes = np.array([sentence[:2] for sentence in flat])
    weights = np.empty(len(flat))
    for language in LANGUAGES:
        mine = codes == language
        chosen = vectors[mine]
        sample = chosen[np.random.default_rng(0).permutation(len(chosen))[:20_000]]
        bandwidth = SentenceDensity().fit(sample).bandwidth_
        analysis = PCA(16, random_state=0).fit(sample)
        tree = KernelDensity(kernel="tophat", bandwidth=bandwidth).fit(analysis.transform(sample))
        b = np.exp(tree.score_samples(analysis.transform(sample))).mean() / 2
        weights[mine] = b / (b + np.exp(tree.score_samples(analysis.transform(chosen))))
        directions = TruncatedSVD(RANK, algorithm="arpack").fit(chosen).components_
        vectors[mine] -= chosen @ directions.T @ directions
    weighted = (vectors * weights[:, None]).reshape(-1, SENTENCES_OF_DOCUMENT, dimension).sum(axis=1)
    return weighted / weights.reshape(-1, SENTENCES_OF_DOCUMENT).sum(axis=1, keepdims=True)


def measure(name: str, sentences: int, dimension: int) -> dict[str, float]:
    """`seconds`, `peak` in bytes, and `documents` that were embedded."""
    start = time.perf_counter()
    vectors = (by_tmde if name == "tmde" else by_scikit_learn)(sentences, dimension)
    seconds = time.perf_counter() - start
    if not np.isfinite(vectors).all():
        sys.exit(f"{name}: vectors that are not finite")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": seconds,
        "peak": peak if sys.platform == "darwin" else peak * 1024,
        "documents": len(vectors),
    }


def in_fresh_process(name: str, sentences: int, dimension: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", name, f"--sentences={sentences}", f"--dimensions={dimension}"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=1_000_000)
    parser.add_argument("--compared", type=int, default=40_000, help="sentences that scikit-learn gets")
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--limit", type=float, default=4.0, help="GiB that tmde may take at its peak")
    parser.add_argument(
        "--measure", choices=("tmde", "scikit-learn"), help="one measurement, in this process, as JSON"
    )
    args = parser.parse_args()
    least = 2 * SENTENCES_OF_DOCUMENT
    for name in ("sentences", "compared"):
        if getattr(args, name) < least:
            parser.error(f"--{name}: found {getattr(args, name)}, expected at least {least}")
    if args.measure:
        print(json.dumps(measure(args.measure, args.sentences, args.dimensions)))
        return
    print(f"{args.dimensions} dimensions, float32, rank {RANK}, density of a sample of 20,000 of each language\n")
    print("| LAWDR by | sentences | documents | seconds | sentences / s | peak GiB |\n|---|--:|--:|--:|--:|--:|")
    runs = [("tmde", args.sentences), ("tmde", args.compared), ("scikit-learn", args.compared)]
    for name, sentences in runs:
        result = in_fresh_process(name, sentences, args.dimensions)
        print(
            f"| {name} | {sentences:,} | {result['documents']:,} | {result['seconds']:.0f} | "
            f"{sentences / result['seconds']:,.0f} | {result['peak'] / GIB:.2f} |",
            flush=True,
        )
        if name == "tmde" and result["peak"] > args.limit * GIB:
            sys.exit(f"More than {args.limit} GiB: {sentences:,} sentences by tmde")


if __name__ == "__main__":
    main()
