"""Seconds, memory and recall when translations are mined among many sentences.

    python benchmarks/mining.py --data DATA --work WORK \
        --sentences 250000 --sentences 500000 --sentences 1000000 \
        --json benchmarks/results/mining.json

The sentences are those of `DATA/parallel/` and `DATA/general/`: English and Spanish on one side,
German, French and Italian on the other, each sentence once, in random order. Without `DATA`, they
are of the built-in sample. `tmde mine` runs in a process of its own, whose memory is read ten times
a second: `own` is what the process alone has, `resident` has mapped files in it, too, as far as
they are in memory. The recall of the approximate search is that of the nearest four of 1,000
sentences that are searched exactly.
"""

import random
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from common import in_fresh_process, markdown, read_rows, write_json
from monitor import Monitor

from tmde.documents import file_mining, mining
from tmde.documents.neighbors import exact_neighbors
from tmde.documents.unit_rows import TIE, UnitRows

LANGUAGES = (("en", "es"), ("de", "fr", "it"))  # of both sides, the most frequent first
NEIGHBORS = 4
CHECKED_SENTENCES = 1000
# The steps that are timed: a name, and the function or method that does the work.
STAGES = (
    ("read", file_mining, "read_sides"),
    ("repeated", mining, "first_occurrences"),
    ("embed", file_mining.DocumentSet, "embed_to_file"),
    ("search", mining, "mine_bitext"),
    ("probabilities", file_mining, "_with_probabilities"),
    ("write", file_mining, "_write_pairs"),
)


# ---- The sentences


def make_sides(data: Path | None, count: int, seed: int) -> list[list[str]]:
    """Return the sentences of both sides.

    Args:
        data: The folder of the corpora; None for the sample.
        count: The number of sentences of a side; all if there are fewer.
        seed: Chooses sentences and their order.
    """
    rows = [list(row.items()) for row in read_rows(data)]
    generator = random.Random(seed)
    generator.shuffle(rows)
    sides = []
    for languages in LANGUAGES:
        sentences: dict[str, None] = {}
        for language in languages:
            for row in rows:
                text = " ".join((dict(row).get(language) or "").split())
                if text and len(sentences) < count:
                    sentences[text] = None
        side = list(sentences)
        generator.shuffle(side)
        sides.append(side)
    return sides


def write_side(side: list[str], path: Path) -> None:
    """Write the sentences of a side, one a line."""
    with open(path, "w", encoding="utf-8") as file:
        for sentence in side:
            file.write(sentence + "\n")


# ---- The run


def mine(work: Path, model: str) -> dict[str, Any]:
    """Mine two files as the command does; return the seconds, the stages, and the recalls."""
    meter = RecallMeter()
    mining.find_neighbors = meter.find_neighbors
    with Monitor() as monitor:
        for stage in STAGES:
            monitor.watch(*stage)
        monitor.watch("recall", RecallMeter, "measure")
        begin = time.perf_counter()
        file_mining.mine_files(
            work / "first.txt",
            work / "second.txt",
            work / "pairs.tsv",
            model=model,
            k=NEIGHBORS,
            search="hnsw",
        )
        # To measure the recall is no part of the command.
        seconds = time.perf_counter() - begin - monitor.stages.pop("recall")["seconds"]
    return {"seconds": seconds, "stages": monitor.stages, "recall": meter.recalls}


# ---- Measures


def measure(data: Path | None, count: int, model: str, seed: int, work: Path) -> dict[str, Any]:
    """Mine so many sentences a side; return seconds, memory and recall."""
    work.mkdir(parents=True, exist_ok=True)
    sides = make_sides(data, count, seed)
    for side, name in zip(sides, ("first", "second"), strict=True):
        write_side(side, work / f"{name}.txt")
    characters = sum(len(sentence) for side in sides for sentence in side)
    result = {
        "sentences": [len(side) for side in sides],
        "characters": characters / sum(len(side) for side in sides),
    }
    del sides
    measured = in_fresh_process(mine, work, model)
    stages = measured["stages"].values()
    return {
        **result,
        **measured,
        "resident": max(stage["resident"] for stage in stages),
        "own": max(stage["own"] for stage in stages),
    }


class RecallMeter:
    """Measures the recall of approximate searches, as they are done.

    Attributes:
        recalls: The share of the exact neighbors that each search has found.
    """

    def __init__(self) -> None:
        self.recalls: list[float] = []
        self._find_neighbors = mining.find_neighbors

    def find_neighbors(
        self, queries: np.ndarray, candidates: np.ndarray, k: int, search: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search, and compare with the exact neighbors of some queries."""
        cosines, numbers = self._find_neighbors(queries, candidates, k, search)
        self.measure(queries, candidates, cosines)
        return cosines, numbers

    def measure(self, queries: np.ndarray, candidates: np.ndarray, cosines: np.ndarray) -> None:
        """Add the recall of a search, whose cosines are (n, k)."""
        size = min(CHECKED_SENTENCES, len(queries))
        # Another choice of queries than that by which the search is tuned.
        chosen = np.sort(np.random.default_rng(1).choice(len(queries), size, replace=False))
        exact_cosines, _ = exact_neighbors(
            UnitRows("queries", queries[chosen]),
            UnitRows("candidates", candidates),
            cosines.shape[1],
        )
        are_found = cosines[chosen] >= exact_cosines[:, -1:] - TIE
        self.recalls.append(float(are_found.mean()))


# ---- The command


def main(
    data: Annotated[Path | None, typer.Option(help="Folder with parallel/ and general/.")] = None,
    work: Annotated[Path, typer.Option(help="Folder of the sentences.")] = Path("mining"),
    sentences: Annotated[list[int] | None, typer.Option(help="Of a side. Repeatable.")] = None,
    model: Annotated[str, typer.Option(help="The model.")] = "default",
    seed: Annotated[int, typer.Option(help="That of the sentences.")] = 0,
    json: Annotated[Path | None, typer.Option(help="File of the results.")] = None,
) -> None:
    """Measure `tmde mine`."""
    results = []
    for count in sentences or [100_000]:
        typer.echo(f"{count:,} sentences a side", err=True)
        results.append(measure(data, count, model, seed, work))
        # Written after each size, because the larger ones take long.
        write_json(json, "mining", {"model": model, "seed": seed}, results)
    print(markdown([table_row(result) for result in results]))


def table_row(result: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the printed table."""
    row: dict[str, Any] = {"sentences": min(result["sentences"])}
    row |= {name: result[name] for name in ("seconds", "own", "resident")}
    row["recall, %"] = 100 * min(result["recall"])
    for name, stage in result["stages"].items():
        row[f"{name}, s"] = stage["seconds"]
    return row


if __name__ == "__main__":
    typer.run(main)
