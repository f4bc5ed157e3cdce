"""Memory of the C library while training on a CPU."""

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h of glibc
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Has glibc keep the memory that tensors free, for the next ones.

    By default, glibc takes every tensor of more than some megabytes from the system and gives it back when it is
    freed; the next one is then mapped and zeroed page by page again, tens of thousands of times a training step. From
    now on the process keeps what it had at its peak; holes between tensors can double it.

    Returns:
        Whether this system is one where that can be set.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(_M_MMAP_MAX, 0)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, _NEVER))
