"""Memory of the C library while training on a CPU."""

import ctypes
import platform

# Parameters of `mallopt`, from glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
NEVER = 2**31 - 1  # bytes


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
