"""Load: millions of texts with kills, an index of a million, eight threads, Ray with a lost worker.

    python benchmarks/load.py --json benchmarks/results/load.json          # half an hour, two cores
    python benchmarks/load.py --texts 20000 --documents 2000 --only "embed|index"

The model is the default one, the texts are made up. Memory is the resident set of the process, read
twice a second; `early` is the largest in the second tenth of the samples, when the model is loaded,
`late` that in the last tenth.
"""

import contextlib
import itertools
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
# Names in the command lines of the processes in which Ray embeds.
WORKER_TITLES = ("BatchEmbedder", "MapWorker")


@dataclass(frozen=True)
class Load:
    """The settings of a test.

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
        for text in make_texts(count, seed):
            file.write(f"{text}\n")


# ---- Commands that are killed


@dataclass(frozen=True)
class CommandRun:
    """A run of a command.

    Attributes:
        code: Its exit code; that of a killed process is negative.
        memory: Its resident set twice a second, in MiB.
        messages: What it wrote to stderr.
    """

    code: int
    memory: list[float]
    messages: str


def survive(
    command: list[str],
    kills: int,
    rng: random.Random,
    seconds: float,
    output: Path | None = None,
) -> dict[str, Any]:
    """Run a command that is killed some times, then to its end.

    Args:
        command: The command.
        kills: How often it is killed, unless it is quicker than the kills.
        rng: Chooses the moments.
        seconds: The latest moment of a kill.
        output: A file that only a finished command leaves, and that it refuses to write again.

    Returns:
        The kills, the seconds of all runs, and the memory over time.
    """
    begin = time.monotonic()
    runs: list[CommandRun] = []
    while len(runs) < kills:
        run = run_command(command, kill_after=rng.uniform(0.5, 1) * seconds)
        runs.append(run)
        is_finished = output is not None and output.exists()
        if is_finished or run.code != -signal.SIGKILL:
            break
    num_kills = [run.code for run in runs].count(-signal.SIGKILL)
    if output is None or not output.exists():
        runs.append(run_command(command))
    # A run that had written all may have been killed before it ended.
    assert runs[-1].code in (0, -signal.SIGKILL), runs[-1].messages
    duration = round(time.monotonic() - begin)
    memory = list(itertools.chain.from_iterable(run.memory for run in runs))
    return {"kills": num_kills, "seconds": duration, **summarize_memory(memory, len(runs))}


def run_command(command: list[str], kill_after: float = float("inf")) -> CommandRun:
    """Run a command to its end, or kill it after some seconds."""
    with tempfile.TemporaryFile("w+") as messages:
        process = subprocess.Popen(command, stderr=messages)
        memory = watch_memory(process, kill_after)
        process.kill()
        code = process.wait()
        messages.seek(0)
        return CommandRun(code, memory, messages.read())


def watch_memory(process: subprocess.Popen, seconds: float) -> list[float]:
    """Return the resident set of a process in MiB, twice a second, while it runs."""
    watched = psutil.Process(process.pid)
    end = time.monotonic() + seconds
    samples = []
    while process.poll() is None and time.monotonic() < end:
        samples.append(watched.memory_info().rss / 2**20)
        time.sleep(0.5)
    return samples


def summarize_memory(samples: list[float], runs: int) -> dict[str, Any]:
    """Return the memory of a command over time, and early and late in its last run.

    Args:
        samples: The resident set twice a second, in MiB.
        runs: The number of runs, killed ones included.
    """
    memory = np.array(samples)
    memory = memory[memory > 1].round().astype(int)  # A process that has just ended has none.
    hundredth = len(memory) // 100 + 1
    last_run = memory[-max(len(memory) // runs, 10) :]
    tenth = len(last_run) // 10 + 1
    return {
        "curve, MiB": memory[::hundredth].tolist(),
        "MiB, early": int(last_run[tenth : 2 * tenth].max()),
        "MiB, late": int(last_run[-tenth:].max()),
    }


# ---- The tests


def embed(load: Load) -> dict[str, Any]:
    """Embed in shards of 8,192; every vector of 1,000 rows at random must be that of its text."""
    source = load.folder / "texts.txt"
    output = load.folder / "out.npy"
    write_texts(source, load.texts)
    command = [*TMDE, "embed", str(source), "-o", str(output), "--resume"]
    seconds = 6 + load.texts / 200_000
    report = survive(command, kills=3, rng=load.rng, seconds=seconds, output=output)
    vectors = np.load(output, mmap_mode="r")
    assert len(vectors) == load.texts
    assert not list(load.folder.glob("*.shards"))
    checked_rows = sorted(load.rng.sample(range(load.texts), CHECKED_ROWS))
    is_checked = np.zeros(load.texts, dtype=bool)
    is_checked[checked_rows] = True
    texts = list(itertools.compress(make_texts(load.texts), is_checked))
    expected = DocumentEmbedder.from_pretrained().encode(texts)
    np.testing.assert_allclose(vectors[checked_rows], expected, rtol=0, atol=TOLERANCE)
    return {"items": load.texts, **report}


def index(load: Load) -> dict[str, Any]:
    """Build an index with two kills; then search it, beside a matrix product of numpy."""
    source = load.folder / "documents.txt"
    write_texts(source, load.documents, seed=1)
    command = [*TMDE, "index", str(source), "-o", str(load.folder / "index")]
    seconds = load.documents / 10_000
    report = survive(command, kills=2, rng=load.rng, seconds=seconds)
    documents = list(make_texts(load.documents, seed=1))
    opened = DocumentIndex.open(load.folder / "index")
    assert len(opened) == load.documents
    rows = load.rng.sample(range(load.documents), QUERIES)
    return {"items": load.documents, **report, **search(opened, documents, rows)}


def search(index: DocumentIndex, documents: list[str], rows: list[int]) -> dict[str, float]:
    """Search an index for some of its own documents, each of which must be the first hit.

    Args:
        index: The index of the documents.
        documents: All documents.
        rows: The documents that are queries.

    Returns:
        The median milliseconds of a query, those of numpy, and the recall of the index.
    """
    embedder = DocumentEmbedder.from_pretrained()
    vectors = normalize(embedder.encode(documents, show_progress_bar=False))  # (documents, d)
    index_seconds = []
    numpy_seconds = []
    recalls = []
    for row in rows:
        begin = time.perf_counter()
        hits = index.search(vectors[row][None], k=K)[0]
        index_seconds.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        cosines = vectors @ vectors[row]  # (documents,)
        lowest_cosine = np.partition(cosines, -K)[-K]
        numpy_seconds.append(time.perf_counter() - begin)
        scores = np.array([hit.score for hit in hits])
        right_hits = np.count_nonzero(scores >= lowest_cosine - TOLERANCE)
        recalls.append(right_hits / K)
        assert hits[0].text == documents[row]
    return {
        "query, ms": 1000 * float(np.median(index_seconds)),
        "numpy, ms": 1000 * float(np.median(numpy_seconds)),
        "recall@10": float(np.mean(recalls)),
    }


def threads(load: Load) -> dict[str, Any]:
    """Let eight threads embed different texts with one `DocumentEmbedder`."""
    embedder = DocumentEmbedder.from_pretrained()
    encode = partial(embedder.encode, show_progress_bar=False)
    parts = [list(make_texts(TEXTS_OF_A_THREAD, seed)) for seed in range(THREADS)]
    expected_vectors = list(map(encode, parts))
    begin = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        thread_vectors = list(pool.map(encode, parts))
    seconds = round(time.monotonic() - begin, 1)
    difference = 0.0
    for vectors, expected in zip(thread_vectors, expected_vectors, strict=True):
        difference = max(difference, float(np.abs(vectors - expected).max()))
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
        """Return the processes of Ray that embed."""
        workers = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                title = " ".join(process.cmdline())
                if any(name in title for name in WORKER_TITLES):
                    workers.append(process)
        return workers


def ray(load: Load) -> dict[str, Any]:
    """Kill one of two workers of Ray, which starts another: no row is lost or doubled."""
    import ray as library

    from tmde.documents.ray_embedding import embed_dataset

    rows = []
    for number, text in enumerate(make_texts(TEXTS_OF_RAY)):
        rows.append({"id": number, "text": text})
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
    """Run all tests, or those whose names match the regular expression `--only`."""
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
