"""Load: millions of texts with kills, an index of a million, eight threads, Ray with a lost worker.

    python benchmarks/load.py --json benchmarks/results/load.json          # half an hour, two cores
    python benchmarks/load.py --texts 20000 --documents 2000 --only "embed|index"

The model is the default one, the texts are made up. Memory is the resident set of the process, read
twice a second; `early` is the largest in the second tenth of the samples, when the model is loaded,
`late` that in the last tenth.
"""

import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import typer
from common import markdown, write_json
from faults import JsonOption
from sklearn.preprocessing import normalize

from tmde.documents import DocumentIndex
from tmde.embedding import DocumentEmbedder

WORDS = [
    *("haus", "house", "casa", "maison"),
    *("hund", "dog", "perro", "chien"),
    *("stadt", "town", "ciudad", "ville"),
    *("nacht", "night", "noche", "nuit"),
    *("brot", "pan"),
]
TMDE = [sys.executable, "-m", "tmde"]
TOLERANCE = 1e-5
CHECKED_ROWS = 1000
QUERIES = 100
K = 10  # hits of a query
THREADS = 8
TEXTS_OF_A_THREAD = 20_000
TEXTS_OF_RAY = 200_000


@dataclass(frozen=True)
class Load:
    """What a test is given.

    Attributes:
        folder: A folder of its own.
        texts: The number of texts to embed.
        documents: The number of documents to index.
        rng: Chooses moments of kills and rows to check.
    """

    folder: Path
    texts: int
    documents: int
    rng: random.Random


def make_texts(count: int, seed: int = 0) -> Iterator[str]:
    """Yield different texts of random words."""
    rng = random.Random(seed)
    for number in range(count):
        words = " ".join(rng.choices(WORDS, k=6))
        yield f"{number} {words}"


def write_texts(path: Path, count: int, seed: int = 0) -> None:
    """Write texts, one a line."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in make_texts(count, seed))


# ---- Commands that are killed


def survive(command: list[str], kills: int, rng: random.Random, seconds: float) -> dict[str, Any]:
    """Run a command that is killed some times, then to its end.

    Args:
        command: The command.
        kills: How often it is killed.
        rng: Chooses the moments.
        seconds: The latest moment of a kill.

    Returns:
        The kills, the seconds of all runs, and the memory over time.
    """
    begin = time.monotonic()
    samples = []  # MiB
    for _ in range(kills):
        samples += run_until_killed(command, rng.uniform(0.5, 1) * seconds)
    samples += run_to_end(command)
    duration = round(time.monotonic() - begin)
    samples = [sample for sample in samples if sample > 1]  # a process that has ended has none
    last_run = samples[-max(len(samples) // (kills + 1), 10) :]
    tenth = len(last_run) // 10 + 1
    hundredth = len(samples) // 100 + 1
    return {
        "kills": kills,
        "seconds": duration,
        "curve, MiB": [round(sample) for sample in samples[::hundredth]],
        "MiB, early": round(max(last_run[tenth : 2 * tenth])),
        "MiB, late": round(max(last_run[-tenth:])),
    }


def run_until_killed(command: list[str], seconds: float) -> list[float]:
    """Start a command, and kill it after some seconds; return its memory over time in MiB."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    samples = watch_memory(process, seconds)
    assert process.poll() is None, "it ended before it was killed: give more texts"
    process.send_signal(signal.SIGKILL)
    process.wait()
    return samples


def run_to_end(command: list[str]) -> list[float]:
    """Run a command, which must end well; return its memory over time in MiB."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    samples = watch_memory(process)
    assert process.returncode == 0, process.returncode
    return samples


def watch_memory(process: subprocess.Popen, seconds: float = float("inf")) -> list[float]:
    """Return the resident set of a process in MiB, twice a second, while it runs."""
    watched = psutil.Process(process.pid)
    end = time.monotonic() + seconds
    samples = []
    while process.poll() is None and time.monotonic() < end:
        samples.append(watched.memory_info().rss / 2**20)
        time.sleep(0.5)
    return samples


# ---- The tests


def embed(load: Load) -> dict[str, Any]:
    """Embed in shards of 8,192; every vector of 1,000 rows at random must be that of its text."""
    source = load.folder / "texts.txt"
    output = load.folder / "out.npy"
    write_texts(source, load.texts)
    command = [*TMDE, "embed", str(source), "-o", str(output), "--resume"]
    report = survive(command, 3, load.rng, seconds=6 + load.texts / 200_000)
    vectors = np.load(output, mmap_mode="r")
    assert len(vectors) == load.texts
    assert not list(load.folder.glob("*.shards"))
    rows = sorted(load.rng.sample(range(load.texts), CHECKED_ROWS))
    checked_rows = set(rows)
    texts = [text for row, text in enumerate(make_texts(load.texts)) if row in checked_rows]
    expected = DocumentEmbedder.from_pretrained().encode(texts)
    np.testing.assert_allclose(vectors[rows], expected, rtol=0, atol=TOLERANCE)
    return {"items": load.texts, **report}


def index(load: Load) -> dict[str, Any]:
    """Build an index with two kills; then search it, beside a matrix product of numpy."""
    source = load.folder / "documents.txt"
    write_texts(source, load.documents, seed=1)
    command = [*TMDE, "index", str(source), "-o", str(load.folder / "index")]
    report = survive(command, 2, load.rng, seconds=load.documents / 10_000)
    documents = list(make_texts(load.documents, seed=1))
    opened = DocumentIndex.open(load.folder / "index")
    assert len(opened) == load.documents
    embedder = DocumentEmbedder.from_pretrained()
    vectors = normalize(embedder.encode(documents, show_progress_bar=False))  # (documents, d)
    index_seconds = []
    numpy_seconds = []
    right_hits = 0
    for row in load.rng.sample(range(load.documents), QUERIES):
        begin = time.perf_counter()
        hits = opened.search(vectors[row][None], k=K)[0]
        index_seconds.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        cosines = vectors @ vectors[row]
        lowest_cosine = np.partition(cosines, -K)[-K]
        numpy_seconds.append(time.perf_counter() - begin)
        right_hits += sum(hit.score >= lowest_cosine - TOLERANCE for hit in hits)
        assert hits[0].text == documents[row]
    return {
        "items": load.documents,
        **report,
        "query, ms": 1000 * float(np.median(index_seconds)),
        "numpy, ms": 1000 * float(np.median(numpy_seconds)),
        "recall@10": float(right_hits / (QUERIES * K)),
    }


def threads(load: Load) -> dict[str, Any]:
    """Let eight threads embed different texts with one `DocumentEmbedder`."""
    embedder = DocumentEmbedder.from_pretrained()
    encode = partial(embedder.encode, show_progress_bar=False)
    parts = [list(make_texts(TEXTS_OF_A_THREAD, seed)) for seed in range(THREADS)]
    expected_vectors = [encode(part) for part in parts]
    begin = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        thread_vectors = list(pool.map(encode, parts))
    seconds = round(time.monotonic() - begin, 1)
    differences = [
        float(np.abs(vectors - expected).max())
        for vectors, expected in zip(thread_vectors, expected_vectors, strict=True)
    ]
    difference = max(differences)
    assert difference <= TOLERANCE, difference
    return {
        "items": THREADS * TEXTS_OF_A_THREAD,
        "seconds": seconds,
        "largest difference": difference,
    }


class WorkerKiller(threading.Thread):
    """A thread that kills one of Ray's workers as soon as there are two."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.killed_pid: int | None = None

    def run(self) -> None:
        """Wait for two workers, let them work for a second, and kill one."""
        while self.killed_pid is None:
            time.sleep(0.5)
            workers = self._find_workers()
            if len(workers) > 1:
                time.sleep(1)
                workers[0].kill()
                self.killed_pid = workers[0].pid

    def _find_workers(self) -> list[psutil.Process]:
        children = psutil.Process().children(recursive=True)
        workers = [child for child in children if "BatchEmbedder" in child.name()]
        if workers:
            return workers
        return [
            process
            for process in psutil.process_iter()
            if "MapWorker" in " ".join(process.cmdline())
        ]


def ray(load: Load) -> dict[str, Any]:
    """Kill one of two workers of Ray, which starts another: no row is lost or doubled."""
    import ray as library

    from tmde.eval.ray_embedding import embed_dataset

    rows = [{"id": number, "text": text} for number, text in enumerate(make_texts(TEXTS_OF_RAY))]
    library.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    begin = time.monotonic()
    killer = WorkerKiller()
    try:
        killer.start()
        data = library.data.from_items(rows).repartition(100)
        embedded = embed_dataset(data, "default", concurrency=2, batch_size=1000)
        table = embedded.to_pandas().sort_values("id")
    finally:
        library.shutdown()
    seconds = round(time.monotonic() - begin)
    assert killer.killed_pid is not None
    assert table["id"].tolist() == list(range(len(rows)))
    embedder = DocumentEmbedder.from_pretrained()
    expected = embedder.encode(table["text"].tolist(), show_progress_bar=False)
    np.testing.assert_allclose(np.stack(table["embedding"]), expected, rtol=0, atol=TOLERANCE)
    return {"items": len(rows), "kills": 1, "seconds": seconds}


def main(
    texts: int = 5_000_000,
    documents: int = 1_000_000,
    seed: int = 0,
    only: str = "",
    json_file: JsonOption = None,
) -> None:
    """Run the tests whose names `--only`, a regular expression, finds."""
    rows = []
    for test in (embed, index, threads, ray):
        if not re.search(only, test.__name__):
            continue
        with tempfile.TemporaryDirectory() as folder:
            load = Load(Path(folder), texts, documents, random.Random(seed))
            row = {"row": test.__name__, **test(load)}
        print(row, flush=True)
        rows.append(row)
    print(markdown(rows))
    settings = {"texts": texts, "documents": documents, "seed": seed}
    write_json(json_file, "load", settings, rows)


if __name__ == "__main__":
    typer.run(main)
