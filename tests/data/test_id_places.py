"""The ids that a command has read, on disk: compared with a dict, and measured in memory."""

import random
import subprocess
import sys

import pytest

from modeling_tmde import TmdeError
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


MEMORY_OF_IDS = """
import resource
from tmde.data.id_places import IdPlaces

id_places = IdPlaces()
def add(first, count):
    for start in range(first, first + count, 1000):
        numbers = range(start, start + 1000)
        ids = [f"{number:0100d}" for number in numbers]
        assert id_places.add(ids, [("file", number) for number in numbers]) is None

add(0, 400_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
add(400_000, 400_000)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
def test_memory_does_not_grow_with_the_ids():
    """The strings of 400,000 ids alone would take 60 MB."""
    process = subprocess.run(
        [sys.executable, "-c", MEMORY_OF_IDS], capture_output=True, text=True, check=True
    )
    assert int(process.stdout) < 10 * 2**20


LIMITED_DISK = """
import resource
import signal
from tmde.data import id_places as module
from tmde.data.id_places import IdPlaces

module._CACHE_KIBIBYTES = 100
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
id_places = IdPlaces()
try:
    for start in range(0, 100_000, 1000):
        numbers = range(start, start + 1000)
        id_places.add([f"{number:0100d}" for number in numbers], [("file", 1)] * 1000)
except ValueError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes differ elsewhere")
def test_a_full_disk_is_told():
    process = subprocess.run(
        [sys.executable, "-c", LIMITED_DISK], capture_output=True, text=True, check=True
    )
    assert process.stdout.startswith(TmdeError.__name__)
    assert "the temporary file of ids cannot be written" in process.stdout
