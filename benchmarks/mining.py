"""Seconds, memory and recall when translations are mined among many sentences.

    python benchmarks/mining.py --data DATA --work WORK \
        --sentences 250000 --sentences 500000 --sentences 1000000 \
        --json benchmarks/results/mining.json

The sentences are those of `DATA/parallel/` and `DATA/general/`: English and Spanish on one side,
German, French and Italian on the other, each sentence once, in random order. Without `DATA`, they
are of the built-in sample. `tmde mine` runs in a process of its own, whose memory is read ten times
a second: `own` is what the process alone has, `resident` has mapped files in it, too, as far as
they are in memory. A pair is right if both sentences are of one row of the corpus. The recall of
the approximate search is that of the nearest four of 1,000 sentences that are searched exactly.
"""

import json as json_format
import random
import time
from pathlib import Path
from typing import Any

from corpora import read_rows
from monitor import Monitor

from tmde.cli import mine_files
from tmde.cli.document_sets import SidesOptions
from tmde.cli.pair_probabilities import ProbabilityOptions

LANGUAGES = (("en", "es"), ("de", "fr", "it"))  # of both sides, the most frequent first
NEIGHBORS = 4
CHECKED_SENTENCES = 1000
MIN_PROBABILITY = 0.9
# The steps that are timed: a name, and the function or method that does the work.
STAGES = (
    ("read", mine_files.document_sets, "read_sides"),
    ("repeated", mine_files.mining, "first_occurrences"),
    ("embed", mine_files.MinedVectors, "embed"),
    ("search", mine_files.mining, "mine_bitext"),
    ("probabilities", mine_files, "_with_probabilities"),
    ("write", mine_files, "_write_pairs"),
)


# ---- The sentences


def make_sides(data: Path | None, count: int, seed: int) -> list[list[dict[str, Any]]]:
    """Return the sentences of both sides, with the row of the corpus that each is of.

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
        sentences: dict[str, dict[str, Any]] = {}
        for language in languages:
            for number, row in enumerate(rows):
                text = " ".join((dict(row).get(language) or "").split())
                if text and len(sentences) < count:
                    sentences.setdefault(text, {"text": text, "row": number})
        side = list(sentences.values())
        generator.shuffle(side)
        sides.append(side)
    return sides


def write_side(side: list[dict[str, Any]], path: Path) -> None:
    """Write the sentences of a side, one a line."""
    with open(path, "w", encoding="utf-8") as file:
        for sentence in side:
            file.write(sentence["text"] + "\n")


# ---- The run


def mine(work: Path, model: str) -> None:
    """Mine two files as the command does, and print the stages as JSON."""
    job = mine_files.MiningJob(
        first_file=str(work / "first.txt"),
        second_file=str(work / "second.txt"),
        sides_options=SidesOptions(),
        output=work / "pairs.tsv",
        target=work / "pairs.tsv",
        model=model,
        loading={},
        probabilities=ProbabilityOptions(),
        first_vectors=None,
        second_vectors=None,
        precision="float32",
        truncate_dim=None,
        scoring="ratio",
        k=NEIGHBORS,
        retrieval="max",
        threshold=None,
        max_pairs=None,
        drop_identical=False,
        search="hnsw",
        gold=None,
        optimize_threshold=False,
    )
    with Monitor() as monitor:
        for stage in STAGES:
            monitor.watch(*stage)
        begin = time.perf_counter()
        mine_files.mine_files(job)
        seconds = time.perf_counter() - begin
    print(json_format.dumps({"seconds": seconds, "stages": monitor.stages}))
