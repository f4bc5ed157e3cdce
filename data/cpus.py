"""How many CPUs there are to work with."""

import os


def usable_cpus() -> int:
    """Return how many CPUs this process may use, at least 1.

    A scheduler may leave a process fewer than the machine has. macOS and Windows don't tell, so all
    of the machine's CPUs count there.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
