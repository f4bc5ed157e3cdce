"""A training process keeps the memory that its tensors free; in processes of their own, for it cannot be undone."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from modeling_tmde.training.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(30):
    torch.ones(10_000_000)  # 40 MB, freed at once
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(10_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_tensors_take_the_memory_of_earlier_ones():
    # Pages of 4 KiB, or of 2 MiB where the system makes them so: a mapping of 40 MB has 20 at least.
    faults = {
        how: int(subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, check=True).stdout)
        for how in ("plain", "keep")
    }
    assert faults["plain"] > 90 > faults["keep"]
