"""Operations on a document index that follow from their number, and the state that they must leave.

Run as a program, it is killed while it writes, at random moments and at chosen ones: see `test_index_kill.py`.
"""

import itertools
import os
import random
import signal
import sys
import time
import zlib
from pathlib import Path

import numpy as np

from modeling_tmde.documents import index_files
from modeling_tmde.documents.index import DocumentIndex

DIMENSION = 16


def vector_of(text: str) -> np.ndarray:
    """(16,) that only this text has."""
    return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMENSION).astype(np.float32)


def change(state: dict[str, str], number: int) -> tuple[list[str], dict[str, str]]:
    """What operation `number` deletes from, or puts into, the state: ids, or texts by id."""
    rng = random.Random(number)
    if number % 4 == 3:
        return rng.sample(sorted(state), 3), {}
    put = {f"{number}-{each}": f"text {number} {each}" for each in range(rng.randint(3, 6))}
    if number % 4 == 2:  # updates as well
        put |= {id: f"{state[id]}, and {number}" for id in rng.sample(sorted(state), 2)}
    return [], put


def operate(index: DocumentIndex, state: dict[str, str], number: int) -> None:
    """Operation `number` on both: one commit."""
    deleted, put = change(state, number)
    if deleted:
        index.delete(deleted)
    else:
        metadata = [{"number": number} for _ in put]
        index.upsert(list(put), list(put.values()), metadata, np.stack([vector_of(text) for text in put.values()]))
    follow(state, number)


def follow(state: dict[str, str], number: int) -> None:
    deleted, put = change(state, number)
    for id in deleted:
        del state[id]
    state |= put


def check(index: DocumentIndex, state: dict[str, str]) -> None:
    """The index holds these texts and their vectors, and finds each by its vector."""
    assert sorted(index) == sorted(state) and len(index) == len(state)
    if not state:
        return
    ids = sorted(state)
    expected = np.stack([vector_of(state[id]) for id in ids])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(index.vectors(ids), expected, atol=1e-6)
    for id, (hit,) in zip(ids, index.search(expected, k=1), strict=True):
        assert (hit.id, hit.text) == (id, state[id]) and abs(hit.score - 1) < 1e-5


def write_for_ever(folder: Path, state: dict[str, str], log: int, last_sync: int | None) -> None:
    """Goes on with the operations, and tells after each how many there have been.

    Kills itself where it would sync a file for the `last_sync`-th time.
    """
    syncs = itertools.count(1)

    def sync(number: int) -> None:
        if next(syncs) == last_sync:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = sync  # a kill loses nothing that was written; a power cut would
    index = DocumentIndex.open(folder)
    os.write(log, b"\n")  # it begins
    for number in itertools.count(index._store.manifest.generation):
        operate(index, state, number)
        os.write(log, f"{number + 1}\n".encode())


def kill_writers(folder: Path, kills: int) -> tuple[int, int]:
    """Kills one writer after the other, every second one at a random moment, and checks what it leaves.

    Returns:
        Operations done in all, and how many writers left files that are in no manifest.
    """
    index_files.MERGED = 3  # merges are part of many commits
    operate(DocumentIndex.create(f"{folder}.first", dimension=DIMENSION), {}, 0)  # imports, before the forks
    DocumentIndex.create(folder, dimension=DIMENSION)
    state, done, broken = {}, 0, 0
    for number in itertools.count():
        if number >= kills and (done >= 10 or number == 10 * kills):  # a busy machine writes little between two kills
            break
        reading, writing = os.pipe()
        last_sync = 1 + number // 2 % 8 if number % 2 else None  # a commit syncs at least 3 times
        child = os.fork()
        if not child:
            write_for_ever(folder, dict(state), writing, last_sync)
        os.close(writing)
        os.read(reading, 1)
        if last_sync is None:
            time.sleep(random.Random(number).uniform(0.005, 0.08))
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with open(reading, encoding="ascii") as told:
            finished = ([done] + [int(line) for line in told if line.endswith("\n")])[-1]
        index = DocumentIndex.open(folder)
        generation = index._store.manifest.generation
        assert finished <= generation <= finished + 1, (finished, generation)
        while done < generation:
            follow(state, done)
            done += 1
        check(index, state)
        names = index._store.manifest.files() | {index_files.MANIFEST, index_files.LOCK}
        broken += bool(set(os.listdir(folder)) - names)
    return done, broken


if __name__ == "__main__":
    print(*kill_writers(Path(sys.argv[1]), int(sys.argv[2])))
