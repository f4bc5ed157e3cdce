"""The ids that a command has read, on disk: compared with a dict, and measured in memory."""

import os
import random
import signal
import sys
from pathlib import Path

import pytest

from modeling_tmde import TmdeError
from tmde.data import id_places as module
from tmde.data.id_places import IdPlaces


def test_ids_and_places_against_a_dict():
    rng = random.Random(0)
    id_places = IdPlaces()
    expected = {}
    for chunk in range(40):
        ids = [f"it's {rng.randrange(3000)}" for _ in range(30)]
        places = [(f"file {chunk}", number) for number in range(30)]
        first_repeated = None
        for position, (id, place) in enumerate(zip(ids, places, strict=True)):
            if expected.setdefault(id, place) != place and first_repeated is None:
                first_repeated = position
        assert id_places.add(ids, places) == first_repeated
        for id in ids:
            assert id_places.place(id) == expected[id]
    candidates = [f"it's {number}" for number in range(3000)]
    assert id_places.absent(candidates) == [id for id in candidates if id not in expected]
    assert id_places.absent([]) == []


def test_an_unknown_id_has_no_place():
    with pytest.raises(KeyError, match="x"):
        IdPlaces().place("x")


def add_numbers(id_places: IdPlaces, numbers: range) -> None:
    """Add numbers as ids of 100 characters, in parts."""
    for start in range(numbers.start, numbers.stop, 1000):
        ids = [f"{number:0100d}" for number in range(start, start + 1000)]
        assert id_places.add(ids, [("file", 1)] * 1000) is None


def resident_bytes() -> int:
    """Return the memory of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_ids(monkeypatch):
    """The strings of 100,000 ids alone would take 15 MB."""
    monkeypatch.setattr(module, "_CACHE_KIBIBYTES", 1024)
    id_places = IdPlaces()
    add_numbers(id_places, range(0, 20_000))
    before = resident_bytes()
    add_numbers(id_places, range(20_000, 120_000))
    assert resident_bytes() - before < 5 * 2**20


@pytest.fixture
def files_of_one_mebibyte():
    """A file that grows beyond a mebibyte cannot be written, as on a disk that is full."""
    resource = pytest.importorskip("resource")
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes differ elsewhere")
def test_a_full_disk_is_told(monkeypatch, files_of_one_mebibyte):
    monkeypatch.setattr(module, "_CACHE_KIBIBYTES", 100)
    id_places = IdPlaces()
    with pytest.raises(TmdeError, match="the temporary file of ids can't be written"):
        add_numbers(id_places, range(0, 100_000))
