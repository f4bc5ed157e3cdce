"""Operations on a document index; see `test_index_kill.py`.

Operations follow from their numbers, so that whoever knows how many were committed knows what the
index must hold.
"""

import random
import zlib

import numpy as np

from tmde.documents.index import DocumentIndex

DIMENSION = 16


def vector_of(text: str) -> np.ndarray:
    """(16,), of length 1, that only this text has."""
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    vector = rng.standard_normal(DIMENSION).astype(np.float32)
    return vector / np.linalg.norm(vector)


def operation(state: dict[str, str], number: int) -> tuple[list[str], dict[str, str]]:
    """What operation `number` deletes from the state, or puts into it: ids, or texts by id."""
    rng = random.Random(number)
    if number % 4 == 3:
        deleted = rng.sample(sorted(state), 3)
        for id in deleted:
            del state[id]
        return deleted, {}
    put = {}
    for document in range(rng.randint(3, 6)):
        put[f"{number}-{document}"] = f"text {number} {document}"
    if number % 4 == 2:  # This operation updates texts as well.
        for id in rng.sample(sorted(state), 2):
            put[id] = f"{state[id]}, and {number}"
    state |= put
    return [], put


def operate(index: DocumentIndex, state: dict[str, str], number: int) -> None:
    """Operation `number` on both: one commit."""
    deleted, put = operation(state, number)
    if deleted:
        index.delete(deleted)
        return
    vectors = np.stack(list(map(vector_of, put.values())))
    metadata = [{"number": number}] * len(put)
    index.upsert(list(put), list(put.values()), metadata, vectors)


def check(index: DocumentIndex, state: dict[str, str]) -> None:
    """The index holds these texts and their vectors, and finds each by its vector."""
    assert sorted(index) == sorted(state)
    assert len(index) == len(state)
    if not state:
        return
    ids = sorted(state)
    expected = np.stack([vector_of(state[id]) for id in ids])
    np.testing.assert_allclose(index.vectors(ids), expected, atol=1e-6)
    for id, hits in zip(ids, index.search(expected, k=1), strict=True):
        (hit,) = hits
        assert hit.id == id
        assert hit.text == state[id]
        assert abs(hit.score - 1) < 1e-5
