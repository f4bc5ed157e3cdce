"""The peak memory of a run: of a process, of a GPU, and over a resume."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tmde.training.memory import PeakMemory

# What a new process needs for itself, and with 256 MiB that it frees again.
MEASURE = """
import json, os, torch
from tmde.training.memory import PeakMemory

def resident_mib():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

peak_memory = PeakMemory(torch.device("cpu"))
before = peak_memory.mib
ones = torch.ones(64 * 2**20)
resident = resident_mib()
del ones
print(json.dumps([before, peak_memory.mib, resident, resident_mib()]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_of_a_process_includes_what_was_freed():
    """The memory of the process that started it, which is larger here, is not counted."""
    ballast = np.ones(100 * 2**20)  # 800 MiB
    process = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True
    )
    del ballast
    before, after, resident, resident_at_end = json.loads(process.stdout)
    assert after - before == pytest.approx(256, abs=30)
    assert after == pytest.approx(resident, rel=0.02)
    assert after > resident_at_end + 200
    assert after < 800


def test_the_peak_of_a_gpu_begins_with_the_run(monkeypatch):
    device = torch.device("cuda", 1)
    asked = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", asked.append)
    monkeypatch.setattr(
        torch.cuda, "max_memory_allocated", lambda asked_device: 3 * 2**20 * asked_device.index
    )
    peak_memory = PeakMemory(device)
    peak_memory.start()
    assert asked == [device]
    assert peak_memory.mib == 3


@pytest.mark.parametrize(("before", "expected"), [(2.0, 5.0), (7.0, 7.0)])
def test_a_resumed_run_keeps_the_larger_peak(before, expected, monkeypatch):
    monkeypatch.setattr("tmde.training.memory._peak_resident_bytes", lambda: 5 * 2**20)
    peak_memory = PeakMemory(torch.device("cpu"))
    peak_memory.before = before
    assert peak_memory.mib == expected


@pytest.mark.parametrize(("platform", "expected"), [("darwin", 3.0), ("freebsd", 3072.0)])
def test_the_units_of_other_systems(platform, expected, monkeypatch):
    """macOS counts in bytes, and others in kibibytes."""
    usage = SimpleNamespace(ru_maxrss=3 * 2**20)
    fake = SimpleNamespace(getrusage=lambda who: usage, RUSAGE_SELF=0)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setitem(sys.modules, "resource", fake)
    assert PeakMemory(torch.device("cpu")).mib == expected


def test_a_system_that_does_not_tell(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)  # Its import fails, as on Windows.
    assert PeakMemory(torch.device("cpu")).mib is None
