"""Operations on a document index; see `test_index_kill.py`.

Operations follow from their numbers, so that whoever knows how many were committed knows what the index must hold.
"""

import random
import zlib

import numpy as np

from tmde.documents.index import DocumentIndex

DIMENSION = 16


def vector_of(text: str) -> np.ndarray:
    """(16,), of length 1, that only this text has."""
    vector = (
        np.random.default_rng(zlib.crc32(text.encode()))
        .standard_normal(DIMENSION)
        .astype(np.float32)
    )
    return vector / np.linalg.norm(vector)


def operation(state: dict[str, str], number: int) -> tuple[list[str], dict[str, str]]:
    """What operation `number` deletes from, or puts into, the state: ids, or texts by id. Changes the state."""
    rng = random.Random(number)
    if number % 4 == 3:
        deleted = rng.sample(sorted(state), 3)
        for id in deleted:
            del state[id]
        return deleted, {}
    put = {f"{number}-{each}": f"text {number} {each}" for each in range(rng.randint(3, 6))}
    if number % 4 == 2:  # updates as well
        put |= {id: f"{state[id]}, and {number}" for id in rng.sample(sorted(state), 2)}
    state |= put
    return [], put


def operate(index: DocumentIndex, state: dict[str, str], number: int) -> None:
    """Operation `number` on both: one commit."""
    deleted, put = operation(state, number)
    if deleted:
        index.delete(deleted)
    else:
        vectors = np.stack([vector_of(text) for text in put.values()])
        index.upsert(list(put), list(put.values()), [{"number": number}] * len(put), vectors)


def check(index: DocumentIndex, state: dict[str, str]) -> None:
    """The index holds these texts and their vectors, and finds each by its vector."""
    assert sorted(index) == sorted(state) and len(index) == len(state)
    if not state:
        return
    ids = sorted(state)
    expected = np.stack([vector_of(state[id]) for id in ids])
    np.testing.assert_allclose(index.vectors(ids), expected, atol=1e-6)
    for id, (hit,) in zip(ids, index.search(expected, k=1), strict=True):
        assert (hit.id, hit.text) == (id, state[id]) and abs(hit.score - 1) < 1e-5
