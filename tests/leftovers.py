"""Ends the processes that a test run leaves behind, such as servers, also when pytest was killed.

Every process that a test starts inherits an environment variable with the number of the test run.
A guard waits until the test run has ended, and kills the processes that still have the variable.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from select import select

VARIABLE = "TMDE_TEST_RUN"
GRACE_SECONDS = 1.0  # for processes that end by themselves when their pipes are closed


def start_guard() -> subprocess.Popen | None:
    """Start the guard of this process; return None where there is no `/proc` to look into."""
    if sys.platform != "linux":
        return None
    environment = dict(os.environ)
    environment.pop(VARIABLE, None)
    test_run = f"{os.getpid()}.{time.time_ns()}"
    os.environ[VARIABLE] = test_run
    return subprocess.Popen(
        [sys.executable, "-SI", __file__, str(os.getpid()), test_run],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches the tests, and must not reach the guard.
    )


def wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select([descriptor], [], [])


def processes_of(test_run: str) -> list[int]:
    """Return the numbers of the processes that were started in a test run and still exist."""
    entry = f"{VARIABLE}={test_run}".encode()
    processes = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = file.read_bytes().split(b"\0")
        except OSError:  # It has ended, or belongs to another user.
            continue
        if entry in variables:
            processes.append(int(file.parent.name))
    return processes


def kill_processes_of(test_run: str) -> None:
    """Kill the processes of a test run, and those that they start meanwhile."""
    processes = processes_of(test_run)
    while processes:
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)
        processes = processes_of(test_run)


if __name__ == "__main__":
    wait_for_end(int(sys.argv[1]))
    time.sleep(GRACE_SECONDS)
    kill_processes_of(sys.argv[2])
