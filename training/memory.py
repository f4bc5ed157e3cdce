"""Memory while training: that of the C library on a CPU, and the peak of a run."""

import ctypes
import platform
import sys
from pathlib import Path

import torch

# Parameters of `mallopt`, from glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
NEVER = 2**31 - 1  # bytes
MIB = 2**20  # bytes


def keep_freed_memory() -> bool:
    """Make glibc keep the memory that tensors free, for the next ones.

    By default, glibc takes every tensor of more than some megabytes from the system and gives it
    back when it is freed; the next one is then mapped and zeroed page by page again, tens of
    thousands of times a training step. From the call on, the process keeps what it had at its peak;
    holes between tensors can double it.

    There is no public way from Python: the environment variables that do the same are read before a
    process begins.

    Returns:
        Whether this system is one where that can be set.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    maps_nothing = libc.mallopt(M_MMAP_MAX, 0) == 1
    trims_nothing = libc.mallopt(M_TRIM_THRESHOLD, NEVER) == 1
    return maps_nothing and trims_nothing


class PeakMemory:
    """The most memory that a process of a run has taken, in MiB.

    On a GPU it is the memory of tensors there, from `start` on. Elsewhere it is the resident memory
    of the whole process, with libraries and data, from its beginning on: another model that
    was trained in the same process counts, and so do freed tensors that `keep_freed_memory` keeps.

    Args:
        device: The device that is trained on.

    Attributes:
        before: The peak of the run's earlier processes, if it was resumed.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.before = 0.0

    def start(self) -> None:
        """Forget what a GPU held before."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    @property
    def mib(self) -> float | None:
        """The peak so far; None where the system does not tell, as on Windows."""
        if self.device.type == "cuda":
            peak: int | None = torch.cuda.max_memory_allocated(self.device)
        else:
            peak = _peak_resident_bytes()
        if peak is None:
            return None
        return max(self.before, peak / MIB)


def _peak_resident_bytes() -> int | None:
    """Return the peak resident memory of this process; None where it is not known."""
    if sys.platform == "linux":
        return _linux_peak_bytes()
    try:
        import resource
    except ImportError:  # Windows has no such module.
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts in bytes, and BSD in kibibytes.
    return peak if sys.platform == "darwin" else 1024 * peak


def _linux_peak_bytes() -> int | None:
    """Return the peak that the kernel states in kibibytes; None if it does not.

    `getrusage` is of no use on Linux: a process begins with the peak of the one that started it.
    """
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return None
