"""Load: 5,000,000 texts through `tmde embed` with kills, an index of 1,000,000, eight threads, Ray with a lost worker.

    python benchmarks/load.py --json benchmarks/results/load.json          # half an hour on two cores
    python benchmarks/load.py --texts 20000 --documents 2000 --only "embed|index"

The model is the default one, the texts are made up. Memory is the resident set of the process, read twice a second;
`early` is the largest in the second tenth of the samples, when the model is loaded, `late` that in the last tenth.
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import typer
from common import markdown, write_json
from faults import JsonOption
from sklearn.preprocessing import normalize

from tmde.embedding import DocumentEmbedder

WORDS = "haus house casa maison hund dog perro chien stadt town ciudad ville nacht night noche nuit brot pan".split()
TMDE = [sys.executable, "-m", "tmde"]


def made_up_texts(count: int, seed: int = 0) -> Iterator[str]:
    rng = random.Random(seed)
    for number in range(count):
        yield f"{number} {' '.join(rng.choices(WORDS, k=6))}"


def survive(command: list[str], kills: int, rng: random.Random, seconds: float) -> dict[str, Any]:
    """Runs a command that is killed `kills` times, then to its end; what it took."""
    memory, begin = [], time.monotonic()
    for number in range(kills + 1):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        watched, end = psutil.Process(process.pid), time.monotonic() + rng.uniform(0.5, 1) * seconds
        while process.poll() is None and (number == kills or time.monotonic() < end):
            memory.append(watched.memory_info().rss / 2**20)
            time.sleep(0.5)
        if number < kills:
            assert process.poll() is None, f"it ended before kill {number + 1}: give more texts"
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert process.returncode == 0, process.returncode
    memory = [value for value in memory if value > 1]
    last = memory[-max(len(memory) // (kills + 1), 10) :]
    tenth = len(last) // 10 + 1
    curve = [round(value) for value in memory[:: len(memory) // 100 + 1]]
    found = {"kills": kills, "seconds": round(time.monotonic() - begin), "curve, MiB": curve}
    return found | {
        "MiB, early": round(max(last[tenth : 2 * tenth])),
        "MiB, late": round(max(last[-tenth:])),
    }


def embed(folder: Path, texts: int, documents: int, rng: random.Random) -> dict[str, Any]:
    """Shards of 8,192; every vector of 1,000 rows at random is that of its text."""
    source, out = folder / "texts.txt", folder / "out.npy"
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in made_up_texts(texts))
    found = survive(
        [*TMDE, "embed", str(source), "-o", str(out), "--resume"], 3, rng, 6 + texts / 200_000
    )
    vectors = np.load(out, mmap_mode="r")
    rows = sorted(rng.sample(range(texts), 1000))
    wanted = set(rows)
    chosen = [text for number, text in enumerate(made_up_texts(texts)) if number in wanted]
    np.testing.assert_allclose(
        vectors[rows], DocumentEmbedder.from_pretrained().encode(chosen), rtol=0, atol=1e-5
    )
    assert len(vectors) == texts and not list(folder.glob("*.shards"))
    return {"items": texts} | found


def index(folder: Path, texts: int, documents: int, rng: random.Random) -> dict[str, Any]:
    """Built with two kills; then one query at a time, beside a matrix product of numpy."""
    from tmde.documents import DocumentIndex

    source = folder / "documents.txt"
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in made_up_texts(documents, seed=1))
    found = survive(
        [*TMDE, "index", str(source), "-o", str(folder / "index")], 2, rng, documents / 10_000
    )
    opened, embedder = DocumentIndex.open(folder / "index"), DocumentEmbedder.from_pretrained()
    everything = list(made_up_texts(documents, seed=1))
    assert len(opened) == documents
    vectors = normalize(embedder.encode(everything, show_progress_bar=False))
    queries = rng.sample(range(documents), 100)
    seconds, exact, hits = [], [], 0
    for query in queries:
        begin = time.perf_counter()
        of_query = opened.search(vectors[query][None], k=10)[0]
        seconds.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        cosines = vectors @ vectors[query]
        nearest = np.partition(cosines, -10)[-10]
        exact.append(time.perf_counter() - begin)
        hits += sum(hit.score >= nearest - 1e-5 for hit in of_query)
        assert of_query[0].text == everything[query]
    found |= {
        "query, ms": 1000 * float(np.median(seconds)),
        "numpy, ms": 1000 * float(np.median(exact)),
    }
    return {"items": documents} | found | {"recall@10": float(hits / 1000)}


def threads(folder: Path, texts: int, documents: int, rng: random.Random) -> dict[str, Any]:
    """Eight threads embed different texts with one `DocumentEmbedder`."""
    encode = partial(DocumentEmbedder.from_pretrained().encode, show_progress_bar=False)
    parts = [list(made_up_texts(20_000, seed)) for seed in range(8)]
    expected, begin = list(map(encode, parts)), time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(encode, parts))
    difference = max(float(np.abs(found[number] - expected[number]).max()) for number in range(8))
    assert difference <= 1e-5, difference
    return {
        "items": 160_000,
        "seconds": round(time.monotonic() - begin, 1),
        "largest difference": difference,
    }


def ray(folder: Path, texts: int, documents: int, rng: random.Random) -> dict[str, Any]:
    """Two workers, one of which is killed: Ray starts another, no row is lost or doubled."""
    import ray as library

    from tmde.eval.ray_embedding import embed_dataset

    rows = [{"id": number, "text": text} for number, text in enumerate(made_up_texts(200_000))]
    library.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    begin, killed = time.monotonic(), []

    def kill() -> None:
        while not killed:
            time.sleep(0.5)
            actors = [
                each
                for each in psutil.Process().children(recursive=True)
                if "BatchEmbedder" in each.name()
            ]
            actors = actors or [
                each for each in psutil.process_iter() if "MapWorker" in " ".join(each.cmdline())
            ]
            if len(actors) > 1:
                time.sleep(1)
                actors[0].kill()
                killed.append(actors[0].pid)

    try:
        threading.Thread(target=kill, daemon=True).start()
        data = library.data.from_items(rows).repartition(100)
        found = (
            embed_dataset(data, "default", concurrency=2, batch_size=1000)
            .to_pandas()
            .sort_values("id")
        )
    finally:
        library.shutdown()
    assert killed and found["id"].tolist() == list(range(len(rows)))
    expected = DocumentEmbedder.from_pretrained().encode(
        found["text"].tolist(), show_progress_bar=False
    )
    np.testing.assert_allclose(np.stack(found["embedding"]), expected, rtol=0, atol=1e-5)
    return {"items": len(rows), "kills": 1, "seconds": round(time.monotonic() - begin)}


def main(
    texts: int = 5_000_000,
    documents: int = 1_000_000,
    seed: int = 0,
    only: str = "",
    json_file: JsonOption = None,
) -> None:
    rows = []
    for function in (embed, index, threads, ray):
        if re.search(only, function.__name__):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(
                    {"row": function.__name__}
                    | function(Path(folder), texts, documents, random.Random(seed))
                )
            print(rows[-1], flush=True)
    print(markdown(rows))
    write_json(json_file, "load", {"texts": texts, "documents": documents, "seed": seed}, rows)


if __name__ == "__main__":
    typer.run(main)
